"""The identities that the derivations rest on, on symbols and symbolic trees.

Each function returns whether its statement (the first line of its docstring) holds. Its keyword is a
constant with the right value as default; :mod:`bounds.proof.registry` knows a value that must break it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp


class _SymbolicTree:
    """Two policies on a tree of depth T over V tokens, with symbols for probabilities and rewards."""

    def __init__(self, depth: int, width: int) -> None:
        self.depth, self.tokens = depth, range(width)
        self.roll, self.theta = self._policy("p"), self._policy("q")
        self.responses = list(itertools.product(self.tokens, repeat=depth))
        self.reward = {y: sp.Symbol("R" + "".join(map(str, y))) for y in self.responses}

    def _policy(self, letter: str) -> dict[tuple[int, ...], Any]:
        policy = {}
        for t in range(self.depth):
            for context in itertools.product(self.tokens, repeat=t):
                row = [sp.Symbol(f"{letter}{''.join(map(str, context))}_{v}", positive=True) for v in self.tokens]
                row[-1] = 1 - sum(row[:-1])
                policy.update({(*context, v): row[v] for v in self.tokens})
        return policy

    def expected(self, policy: Mapping[tuple[int, ...], Any], of: Callable[[tuple[int, ...]], Any]) -> Any:
        """Return the sum over positions of the expectation of something at a context."""
        contexts = (c for t in range(self.depth) for c in itertools.product(self.tokens, repeat=t))
        return sum(self.mass(policy, c) * of(c) for c in contexts)

    @staticmethod
    def mass(policy: Mapping[tuple[int, ...], Any], y: tuple[int, ...]) -> Any:
        return sp.Mul(*(policy[y[: t + 1]] for t in range(len(y))))

    def score(self, y: tuple[int, ...], baseline: Any = 1) -> Any:
        """Return roll(y) sum_t (rho_t - baseline), without dividing."""
        return sum(
            sp.Mul(*((self.theta if s == t else self.roll)[y[: s + 1]] for s in range(self.depth)))
            - baseline * self.mass(self.roll, y)
            for t in range(self.depth)
        )

    def action_value(self, c: tuple[int, ...]) -> Any:
        """Return the expected reward under roll from a context on."""
        rest = itertools.product(self.tokens, repeat=self.depth - len(c))
        return sum(
            self.reward[c + r] * sp.Mul(*(self.roll[(c + r)[: t + 1]] for t in range(len(c), self.depth))) for r in rest
        )

    def gain(self, c: tuple[int, ...]) -> Any:
        """Return g_t(c) = sum_v (theta - roll)(v|c) Q(c, v)."""
        return sum((b - a) * self.action_value((*c, v)) for v, (a, b) in enumerate(zip(*self.rows(c), strict=True)))

    def rows(self, c: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
        """Return roll and theta at a context."""
        return [self.roll[(*c, v)] for v in self.tokens], [self.theta[(*c, v)] for v in self.tokens]


def telescoping(sign: int = -1) -> bool:
    """P - 1 - S = sum_t (rho_t - 1)(P_{t-1} - 1), as polynomials."""
    for length in range(1, 6):
        rho = sp.symbols(f"rho1:{length + 1}")
        product, score = sp.Mul(*rho), sum(r - 1 for r in rho)
        steps = sum((r - 1) * (sp.Mul(*rho[:k]) + sign) for k, r in enumerate(rho))
        if sp.expand(product - 1 - score - steps) != 0:
            return False
    return True


def performance_difference(contexts: str = "theta") -> bool:
    """J(theta) - J(roll) = sum_t E_theta[g_t(c_t)], on a symbolic tree."""
    tree = _SymbolicTree(2, 3)
    change = sum(tree.reward[y] * (tree.mass(tree.theta, y) - tree.mass(tree.roll, y)) for y in tree.responses)
    return bool(sp.expand(change - tree.expected(getattr(tree, contexts), tree.gain)) == 0)


def surrogate_form(baseline: int = 1) -> bool:
    """L' = E_roll[R sum_t (rho_t - 1)] = sum_t E_roll[g_t(c_t)], on a symbolic tree."""
    tree = _SymbolicTree(2, 3)
    surrogate = sum(tree.reward[y] * tree.score(y, baseline) for y in tree.responses)
    return bool(sp.expand(surrogate - tree.expected(tree.roll, tree.gain)) == 0)


def _log_ratio(numerator: Any, denominator: Any) -> Any:
    return sp.expand_log(sp.log(numerator), force=True) - sp.expand_log(sp.log(denominator), force=True)


def _kl(roll: Any, theta: Any) -> Any:
    return sum(a * _log_ratio(a, b) for a, b in zip(roll, theta, strict=True))


def chain_rule(contexts: str = "roll") -> bool:
    """KL(P_roll||P_theta) = sum_t E_roll KL(c_t), on a symbolic tree."""
    tree = _SymbolicTree(2, 2)
    whole = _kl(*([tree.mass(policy, y) for y in tree.responses] for policy in (tree.roll, tree.theta)))
    steps = tree.expected(getattr(tree, contexts), lambda c: _kl(*tree.rows(c)))
    return bool(sp.expand(whole - steps) == 0)


def _k3(z: Any, constant: Any = 1) -> Any:
    return z - constant - sp.expand_log(sp.log(z), force=True)


def identity(sign: int = -1) -> bool:
    """W = P - 1 - S = k3(P) - Phi, on positive symbols."""
    for length in range(1, 5):
        rho = sp.symbols(f"rho1:{length + 1}", positive=True)
        product, score = sp.Mul(*rho), sum(r - 1 for r in rho)
        if sp.expand(product - 1 - score - (_k3(product) + sign * sum(map(_k3, rho)))) != 0:
            return False
    return True


def k3_convex(constant: int = 1) -> bool:
    """k3(1) = k3'(1) = 0 and k3'' = 1/z^2 > 0, so k3 >= 0."""
    z = sp.Symbol("z", positive=True)
    f = _k3(z, constant)
    return bool(f.subs(z, 1) == 0 and sp.diff(f, z).subs(z, 1) == 0 and sp.diff(f, z, 2).is_positive)


def expected_k3(constant: int = 1) -> bool:
    """E_roll k3(rho) = KL(roll||theta) for rows that sum to 1, on symbols."""
    p, q = _SymbolicTree(1, 3).rows(())
    k3 = sum(b - constant * a - a * _log_ratio(b, a) for a, b in zip(p, q, strict=True))
    return bool(sp.expand(k3 - _kl(p, q)) == 0)


def pinsker(coefficient: int = 2) -> bool:
    """d/dq [kl(p||q) - 2 (p-q)^2] = (q-p) (1-2q)^2 / (q (1-q)): least, and 0, at q = p; for two outcomes."""
    p, q = sp.symbols("p q", positive=True)
    gap = p * sp.log(p / q) + (1 - p) * sp.log((1 - p) / (1 - q)) - coefficient * (p - q) ** 2
    slope = (q - p) * (1 - 2 * q) ** 2 / (q * (1 - q))
    return _cancels(sp.diff(gap, q) - slope) and _cancels(gap.subs(q, p))


def _cancels(form: Any) -> bool:
    """Whether a form that is rational in symbols, logarithms and exponentials is 0 everywhere."""
    return bool(sp.cancel(sp.together(form)) == 0)


def _vanishes(form: Any) -> bool:
    """Whether a rational form is 0 everywhere; one point where it is not says quickly that it is not."""
    point = {s: sp.Rational(1, 3 + k) for k, s in enumerate(sorted(form.free_symbols, key=str))}
    return bool(form.subs(point) == 0 and _cancels(form))


def free_baseline(baseline: int = 1) -> bool:
    """E_roll W = 0, so Error does not change under R -> R - 1/2: the advantage factor is TV, not 2 TV."""
    tree = _SymbolicTree(2, 3)
    whole = sum(tree.mass(tree.theta, y) - tree.mass(tree.roll, y) for y in tree.responses)
    score = sum(tree.score(y, baseline) for y in tree.responses)
    return bool(sp.expand(whole - score) == 0)


def orthogonal_increments(first: int = 2) -> bool:
    """E_roll of (rho_3 - 1)(P_2 - 1) times (rho_2 - 1)(P_1 - 1) is 0: W is a sum of orthogonal increments."""
    tree = _SymbolicTree(3, 2)

    def increment(y: tuple[int, ...], t: int) -> Any:
        ratios = [tree.theta[y[: s + 1]] / tree.roll[y[: s + 1]] for s in range(t)]
        return (ratios[t - 1] - 1) * (sp.Mul(*ratios[: t - 1]) - 1)

    covariance = sum(tree.mass(tree.roll, y) * increment(y, 3) * increment(y, first) for y in tree.responses)
    return _vanishes(covariance)


def expected_square_of_score(factor: int = 1) -> bool:
    """E_roll S^2 = sum_t E_roll chi2(c_t), on a symbolic tree: the second step of first_order."""
    tree = _SymbolicTree(2, 2)

    def score(y: tuple[int, ...]) -> Any:
        return sum(tree.theta[y[: t + 1]] / tree.roll[y[: t + 1]] - 1 for t in range(tree.depth))

    square = sum(tree.mass(tree.roll, y) * score(y) ** 2 for y in tree.responses)
    chi2 = tree.expected(tree.roll, lambda c: sum((b - a) ** 2 / a for a, b in zip(*tree.rows(c), strict=True)))
    return _vanishes(square - factor * chi2)


def summed_excess(start: int = 1) -> bool:
    """sum_t X ((1+X)^(t-1) - 1) = f(T, X) = (1+X)^T - 1 - T X = T(T-1)/2 X^2 + ..."""
    X = sp.Symbol("X", positive=True)
    for T in range(1, 9):
        f = sp.expand((1 + X) ** T - start - T * X)
        summed = sum(X * ((1 + X) ** (t - 1) - 1) for t in range(1, T + 1))
        leading = sp.Rational(T * (T - 1), 2) if T > 1 else 0
        if sp.expand(summed - f) != 0 or f.coeff(X, 2) != leading:
            return False
    return True


def solved_forward(constant: int = 1) -> bool:
    """b_T = sum_t (n_t + (Dbar_t - n_t)(1 - prod_{k>t} (1 - eps_k))); T eps (1 - (1-eps)^(T-1)) for constant eps."""
    e = sp.Symbol("e", positive=True)
    for T in range(1, 6):
        d, n, eps = (sp.symbols(f"{letter}1:{T + 1}", positive=True) for letter in ("d", "n", "e"))
        b, solved = sp.Integer(0), sp.Integer(0)
        for t in range(T):
            b = (1 - eps[t]) * b + eps[t] * sum(d[:t]) + n[t]
            solved += n[t] + (d[t] - n[t]) * (constant - sp.Mul(*(1 - x for x in eps[t + 1 :])))
        values = dict.fromkeys((*d, *eps), e) | {n[t]: e * (1 - (1 - e) ** t) for t in range(T)}
        if sp.expand(b - solved) != 0 or sp.expand(b.subs(values) - T * e * (1 - (1 - e) ** (T - 1))) != 0:
            return False
    return True


def potential(factor: int = 2) -> bool:
    """dQ_b/db = 2 alpha_b; y^2 has the factor alpha_b in W'^2 + Q_b(P'), e^2b P^2 in alpha_b(P'); sums; a square.

    P' = P (1+y), W' = W + (P-1) y, Q_b(P) = P^2 (e^2b - 1) - 4 b P + 2 b and alpha_b(P) = e^2b P^2 - 2 P + 1.
    """
    b, P, W, y, D, s = sp.symbols("b P W y D s", positive=True)

    def q(x: Any) -> Any:
        return x**2 * (sp.exp(2 * b) - 1) - 4 * b * x + 2 * b

    def alpha(x: Any) -> Any:
        return sp.exp(2 * b) * x**2 - 2 * x + 1

    def square(form: Any) -> Any:
        return sp.expand(form).coeff(y, 2)

    zero = (
        sp.diff(q(P), b) - factor * alpha(P),
        square((W + (P - 1) * y) ** 2 + q(P * (1 + y))) - alpha(P),
        square(alpha(P * (1 + y))) - sp.exp(2 * b) * P**2,
        sp.diff(alpha(P), b) - factor * sp.exp(2 * b) * P**2,
        q(1) - (sp.exp(2 * b) - 1 - 2 * b),
        alpha(1) - (sp.exp(2 * b) - 1),
        sp.integrate(b * sp.exp(b), (b, 0, D)) - ((D - 1) * sp.exp(D) + 1),
        3 * y**2 * (1 + 2 * s / 3) ** 2
        - (3 + 2 * y) * (y**2 - (y - 2 * s) ** 2)
        - 3 * (y - 2 * s - 2 * s * y / 3) ** 2,
    )
    return all(sp.expand(form) == 0 for form in zero)


def chi2_to_kl(power: int = 2) -> bool:
    """(z-1)^2 / k3(z) increases in z, so |log rho| <= Lam gives chi2 <= (e^Lam-1)^2 / (e^Lam-1-Lam) KL."""
    z = sp.Symbol("z", positive=True)
    inner = 2 * _k3(z) - (z - 1) ** 2 / z  # the derivative is (z-1) inner / k3^2, and inner has the sign of z-1
    derivative = sp.diff((z - 1) ** power / _k3(z), z) - (z - 1) * inner / _k3(z) ** 2
    rises = sp.diff(inner, z) - (1 - 1 / z) ** 2
    return bool(_cancels(derivative) and _cancels(rises) and inner.subs(z, 1) == 0)


def curve_slope(factor: int = 2) -> bool:
    """Along the exact Pinsker curve dKL/ds = 2 s dTV/ds, so KL is convex in TV and the curve certifies."""
    s = sp.Symbol("s", positive=True)
    tv = s / 2 * (1 - (sp.coth(s) - 1 / s) ** 2)
    kl = sp.log(s / sp.sinh(s)) + s * sp.coth(s) - s**2 / sp.sinh(s) ** 2
    difference = (sp.diff(kl, s) - factor * s * sp.diff(tv, s)).rewrite(sp.exp)
    return _cancels(difference)


def curve_concave(factor: int = 2) -> bool:
    """Pinsker's exact curve is concave in sqrt(KL/2), so each of its tangents lies above it.

    With TV = s (1 - L^2) / 2, L = coth s - 1/s, L' = 1/s^2 - 1/sinh^2 s: TV'' = -s L'^2 - 2 s L^2 / sinh^2 s < 0 in s.
    As dKL = 2 s dTV, sign (KL/s^2)' = sign (s KL' - 2 KL), which is 0 at s = 0 and has the slope 2 s^2 TV'' < 0; and
    dTV/d sqrt(KL/2) = 2 sqrt(KL/2) / s.
    """
    s, tv = sp.Symbol("s", positive=True), sp.Function("TV")
    L = sp.coth(s) - 1 / s
    second = sp.diff(s * (1 - L**2) / 2, s, 2) + s * sp.diff(L, s) ** 2 + factor * s * L**2 / sp.sinh(s) ** 2
    kl_slope = 2 * s * sp.diff(tv(s), s)
    slope = sp.diff(s * kl_slope, s) - 2 * kl_slope - 2 * s**2 * sp.diff(tv(s), s, 2)
    return bool(_cancels(second.rewrite(sp.exp)) and sp.expand(slope) == 0)
