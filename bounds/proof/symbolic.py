"""Every rule restated in SymPy as it is printed, and the identities that its derivation rests on.

Each function returns whether its statement (the first line of its docstring) holds. Its keyword is a
constant with the right value as default; :mod:`bounds.proof.registry` knows a value that must break it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy as sp

from bounds.theory.profile import Profile
from bounds.theory.terms import sqrt_sum
from bounds.theory.unified import rule

# --- the rules, restated -----------------------------------------------------------------------------------

_T, _t = sp.symbols("T t", integer=True, positive=True)
_delta, _eps, _D, _tv, _A = sp.symbols("delta epsilon D TV A", positive=True)
_dbar = sp.Symbol("Dbar", positive=True)  # a uniform Dbar_t


def _unit(x: Any) -> Any:
    return sp.Min(1, x)


def _over_positions(term: Any) -> Any:
    return sp.Sum(term, (_t, 1, _T))


_back, _ahead = _t - 1, _T - _t  # steps before a position, steps after it
_root = sp.sqrt(_delta / 2)

#: Each rule as the literature prints it, literally summed over positions; Dbar_t = min(epsilon, Pinsker).
RESTATED: Mapping[str, Any] = {
    "classical": 2 * _T * (_T - 1) * _eps**2,
    "linear": _over_positions(4 * _dbar),
    "coupling": 4 * _unit(_eps) * _over_positions(_unit(_back * _eps)),
    "pinsker_marginal_kl": 4 * _unit(_root) * _over_positions(_unit(sp.sqrt(_back * _delta / 2))),
    "pinsker_marginal_tv": 4 * _unit(_eps) * _over_positions(_unit(sp.sqrt(_back * _delta / 2))),
    "mixed_kl": 4 * _T * _unit(_root) * _unit(sp.sqrt(_D / 2)),
    "mixed_tv": 4 * _T * _unit(_eps) * _unit(_tv),
    "adaptive_kl": _over_positions(4 * _dbar * _unit(sp.sqrt(_ahead * _delta / 2))),
    "adaptive_tv": _over_positions(4 * _dbar * _unit(_ahead * _eps)),
    "adaptive": _over_positions(4 * _dbar * sp.Min(1, _ahead * _eps, sp.sqrt(_ahead * _delta / 2))),
    "trajectory_kl": _D,
    "trajectory_tv": _over_positions(_dbar),
}

_INPUTS = [  # T, delta, epsilon, D, tv_seq: uncapped, capped, mixed, single token
    (1, "1/10", "1/5", "1/20", "1/10"),
    (2, "1/100", "1/20", "1/100", "1/20"),
    (9, "1/1000", "1/50", "1/200", "1/30"),
    (40, "1/10", "1/30", "3", "9/10"),
    (40, "1/20", "3/40", "5/4", "1/2"),
    (23, "1", "1/2", "7", "1"),
]


def restated(name: str, factor: Fraction = Fraction(1)) -> bool:
    """0 <= rule - restatement <= 1e-12 restatement, at 40 digits, at the exact values of the float inputs."""
    for T, *texts in _INPUTS:
        delta, epsilon, kl_seq, tv_seq = (float(Fraction(x)) for x in texts)
        profile = Profile(T=T, delta=delta, epsilon=epsilon, kl_seq=kl_seq, tv_seq=tv_seq)
        symbols = {
            _delta: sp.Rational(Fraction(delta)),
            _eps: sp.Rational(Fraction(epsilon)),
            _D: sp.Rational(Fraction(kl_seq)),
            _tv: sp.Rational(Fraction(tv_seq)),
        }
        by_tv = name in ("linear", "trajectory_tv")  # their sum is filled from epsilon alone
        symbols[_dbar] = symbols[_eps] if by_tv else sp.Min(symbols[_eps], sp.sqrt(symbols[_delta] / 2))
        truth = (sp.Rational(factor) * RESTATED[name]).subs(_T, T).subs(symbols).doit().evalf(40)
        value = sp.Rational(Fraction(rule(name).value(profile)))
        if not (value >= truth and value <= truth * (1 + sp.Rational(1, 10**12))):
            return False
    return True


def restated_by_position(name: str, factor: Fraction = Fraction(1)) -> bool:
    """The same for a rule on an array Dbar_t, summed position by position."""
    values = {_delta: sp.Rational(Fraction(0.02)), _eps: sp.Rational(Fraction(0.15))}
    for T in (1, 2, 5, 30):
        dbar = [0.1 / (k + 1) for k in range(T)]
        term = RESTATED[name].function.subs(_T, T).subs(values)
        truth = sum(
            sp.Rational(factor) * term.subs({_t: t, _dbar: sp.Rational(Fraction(x))}).evalf(40)
            for t, x in enumerate(dbar, start=1)
        )
        value = sp.Rational(Fraction(rule(name).value(Profile(T=T, delta=0.02, epsilon=0.15, mean_tv=dbar))))
        if not (value >= truth and value <= truth * (1 + sp.Rational(1, 10**12))):
            return False
    return True


# --- symbolic trees ----------------------------------------------------------------------------------------


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

    def contexts(self, t: int) -> list[tuple[int, ...]]:
        return list(itertools.product(self.tokens, repeat=t))

    @staticmethod
    def mass(policy: Mapping[tuple[int, ...], Any], y: tuple[int, ...]) -> Any:
        return sp.Mul(*(policy[y[: t + 1]] for t in range(len(y))))

    def action_value(self, c: tuple[int, ...]) -> Any:
        """Expected reward under roll from a context on."""
        rest = itertools.product(self.tokens, repeat=self.depth - len(c))
        return sum(
            self.reward[c + r] * sp.Mul(*(self.roll[(c + r)[: t + 1]] for t in range(len(c), self.depth))) for r in rest
        )

    def gain(self, c: tuple[int, ...]) -> Any:
        """g_t(c) = sum_v (theta - roll)(v|c) Q(c, v)."""
        return sum((self.theta[(*c, v)] - self.roll[(*c, v)]) * self.action_value((*c, v)) for v in self.tokens)


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
    policy = getattr(tree, contexts)
    steps = sum(tree.mass(policy, c) * tree.gain(c) for t in range(tree.depth) for c in tree.contexts(t))
    return bool(sp.expand(change - steps) == 0)


def surrogate_form(baseline: int = 1) -> bool:
    """L' = E_roll[R sum_t (rho_t - 1)] = sum_t E_roll[g_t(c_t)], on a symbolic tree."""
    tree = _SymbolicTree(2, 3)

    def weighted_score(y: tuple[int, ...]) -> Any:  # roll(y) (rho_t - baseline), without dividing
        whole = tree.mass(tree.roll, y)
        return sum(
            sp.Mul(*((tree.theta if s == t else tree.roll)[y[: s + 1]] for s in range(tree.depth))) - baseline * whole
            for t in range(tree.depth)
        )

    surrogate = sum(tree.reward[y] * weighted_score(y) for y in tree.responses)
    steps = sum(tree.mass(tree.roll, c) * tree.gain(c) for t in range(tree.depth) for c in tree.contexts(t))
    return bool(sp.expand(surrogate - steps) == 0)


def _log_ratio(numerator: Any, denominator: Any) -> Any:
    return sp.expand_log(sp.log(numerator), force=True) - sp.expand_log(sp.log(denominator), force=True)


def chain_rule(contexts: str = "roll") -> bool:
    """KL(P_roll||P_theta) = sum_t E_roll KL(c_t), on a symbolic tree."""
    tree = _SymbolicTree(2, 2)
    whole = sum(
        tree.mass(tree.roll, y) * _log_ratio(tree.mass(tree.roll, y), tree.mass(tree.theta, y)) for y in tree.responses
    )
    policy = getattr(tree, contexts)
    steps = sum(
        tree.mass(policy, c) * tree.roll[(*c, v)] * _log_ratio(tree.roll[(*c, v)], tree.theta[(*c, v)])
        for t in range(tree.depth)
        for c in tree.contexts(t)
        for v in tree.tokens
    )
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
    p = [*sp.symbols("p1 p2", positive=True)]
    q = [*sp.symbols("q1 q2", positive=True)]
    p.append(1 - sum(p))
    q.append(1 - sum(q))
    k3 = sum(b - constant * a - a * _log_ratio(b, a) for a, b in zip(p, q, strict=True))
    kl = sum(a * _log_ratio(a, b) for a, b in zip(p, q, strict=True))
    return bool(sp.expand(k3 - kl) == 0)


def pinsker(coefficient: int = 2) -> bool:
    """d/dq [kl(p||q) - 2 (p-q)^2] = (q-p) (1-2q)^2 / (q (1-q)): least, and 0, at q = p; for two outcomes."""
    p, q = sp.symbols("p q", positive=True)
    gap = p * sp.log(p / q) + (1 - p) * sp.log((1 - p) / (1 - q)) - coefficient * (p - q) ** 2
    slope = (q - p) * (1 - 2 * q) ** 2 / (q * (1 - q))
    return bool(sp.simplify(sp.diff(gap, q) - slope) == 0 and sp.simplify(gap.subs(q, p)) == 0)


def crossover(factor: int = 2) -> bool:
    """(T-t) epsilon = sqrt((T-t) delta/2) at T-t = delta / (2 epsilon^2)."""
    k = sp.Symbol("k", positive=True)
    return bool(sp.solve(sp.Eq((k * _eps) ** 2, k * _delta / 2), k) == [_delta / (factor * _eps**2)])


def reductions(factor: int = 2) -> bool:
    """TV forms = KL forms, classical = T(T-1) delta, mixed = 2T sqrt(delta D), at epsilon and TV by Pinsker."""
    by_pinsker = {_eps: sp.sqrt(_delta / factor), _tv: sp.sqrt(_D / 2)}
    mixed = 4 * _T * _root * sp.sqrt(_D / 2)
    pairs = [
        (RESTATED["mixed_tv"].subs(by_pinsker), RESTATED["mixed_kl"]),
        (RESTATED["pinsker_marginal_tv"].subs(by_pinsker), RESTATED["pinsker_marginal_kl"]),
        (RESTATED["classical"].subs(by_pinsker), _T * (_T - 1) * _delta),
        (mixed, 2 * _T * sp.sqrt(_delta * _D)),
        (4 * _eps * sp.summation(_back * _eps, (_t, 1, _T)), RESTATED["classical"]),
    ]
    return all(sp.simplify(a - b) == 0 for a, b in pairs)


def reversed_sums(shift: int = 0) -> bool:
    """adaptive_kl at Dbar = sqrt(delta/2) is PM-KL, adaptive_tv at Dbar = epsilon is coupling (t reversed)."""
    values = {_delta: sp.Rational(1, 7), _eps: sp.Rational(1, 5)}
    pairs = [
        (RESTATED["adaptive_kl"].subs(_dbar, _root), RESTATED["pinsker_marginal_kl"]),
        (RESTATED["adaptive_tv"].subs(_dbar, _eps), RESTATED["coupling"]),
    ]
    return all(
        sp.simplify(a.subs(_T, T + shift).subs(values).doit() - b.subs(_T, T).subs(values).doit()) == 0
        for a, b in pairs
        for T in (1, 2, 5, 30)
    )


def simplified_is_larger(coefficient: Fraction = Fraction(4, 3)) -> bool:
    """PM-KL < (4/3) T^1.5 delta, PM-TV < (8/3) T^1.5 eps sqrt(delta/2): sqrt(k) < its integral over [k, k+1]."""
    x = sp.Symbol("x", positive=True)
    integral = sp.integrate(sp.sqrt(x), (x, 0, _T))
    form = sp.Rational(coefficient) * _T ** sp.Rational(3, 2)
    symbolic = (
        sp.simplify(4 * _root * _root * integral - form * _delta) == 0
        and sp.simplify(4 * _eps * _root * integral - 2 * form * _eps * _root) == 0
    )
    increasing = sp.diff(sp.sqrt(x), x).is_positive
    limit = coefficient / 2  # of sum sqrt(k) / T^1.5
    strict = all(sqrt_sum(T - 1)[1] ** 2 < limit**2 * T**3 for T in range(1, 400))
    return bool(symbolic and increasing and strict)
