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
RESTATED: dict[str, Any] = {
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

_X, _C, _sd = sp.symbols("X C sd", positive=True)
_excess = (1 + _X) ** _T - 1 - _T * _X
RESTATED = {
    **RESTATED,
    **{f"halved_{name}": form / 2 for name, form in RESTATED.items() if not name.startswith("trajectory")},
    "halved_coupling": 2 * _unit(_eps) * _over_positions(1 - (1 - _unit(_eps)) ** _back),
    "halved_mixed_kl": RESTATED["mixed_kl"] * (_T - 1) / (2 * _T),
    "halved_mixed_tv": RESTATED["mixed_tv"] * (_T - 1) / (2 * _T),
    "martingale_chi2": _sd * sp.sqrt(_excess),
    "first_order": _unit(_tv) + _sd * sp.sqrt(_C),
}

_INPUTS = [  # T, delta, epsilon, D, tv_seq, X, sum C, mean reward: uncapped, capped, mixed, single token
    (1, "1/10", "1/5", "1/20", "1/10", "1/9", "1/9", "1/3"),
    (2, "1/100", "1/20", "1/100", "1/20", "1/90", "1/80", "1/9"),
    (9, "1/1000", "1/50", "1/200", "1/30", "1/100", "1/40", "1/2"),
    (40, "1/10", "1/30", "3", "9/10", "1/50", "2/3", "8/9"),
    (40, "1/20", "3/40", "5/4", "1/2", "1/1000", "1/30", "1/7"),
    (23, "1", "1/2", "7", "1", "3", "60", "1"),
]


def _inputs(row: tuple[Any, ...]) -> tuple[Profile, dict[Any, Any]]:
    """A profile, and the exact values of the floats in it for the symbols of the restatements."""
    T, *texts = row
    delta, epsilon, kl_seq, tv_seq, chi2_max, chi2_sum, reward = (float(Fraction(x)) for x in texts)
    profile = Profile(
        T=T,
        delta=delta,
        epsilon=epsilon,
        kl_seq=kl_seq,
        tv_seq=tv_seq,
        chi2_max=chi2_max,
        chi2_sum=chi2_sum,
        mean_reward=reward,
    )
    mean = sp.Rational(Fraction(reward))
    exact = dict(
        zip(
            (_delta, _eps, _D, _tv, _X, _C),
            map(Fraction, (delta, epsilon, kl_seq, tv_seq, chi2_max, chi2_sum)),
            strict=True,
        )
    )
    return profile, {_T: T, _sd: sp.sqrt(mean * (1 - mean)), **{symbol: sp.Rational(x) for symbol, x in exact.items()}}


def restated(name: str, factor: Fraction = Fraction(1)) -> bool:
    """0 <= rule - restatement <= 1e-12 restatement, at 40 digits, at the exact values of the float inputs.

    Sharp rules use the smallest epsilon and TV that are proved; the inputs are such that this is the given one,
    but where Pinsker's exact curve is below it.
    """
    own = rule(name)
    for row in _INPUTS:
        profile, values = _inputs(row)
        for symbol, field in ((_eps, "epsilon"), (_tv, "tv_seq"), (_D, "kl_seq"), (_X, "chi2_max"), (_C, "chi2_sum")):
            resolved = profile.resolve(field, own.family)
            values[symbol] = sp.Rational(Fraction(resolved.value)) if resolved else values[symbol]
        by_tv = name in ("linear", "halved_linear", "trajectory_tv")  # their sum is filled from epsilon alone
        values[_dbar] = values[_eps] if by_tv else sp.Min(values[_eps], sp.sqrt(values[_delta] / 2))
        truth = (sp.Rational(factor) * RESTATED[name]).subs(values).doit().evalf(40)
        value = sp.Rational(Fraction(own.value(profile)))
        if not (value >= truth and value <= truth * (1 + sp.Rational(1, 10**12))):
            return False
    return True


_dbar_t, _eps_t, _kl_t, _chi2_t = (sp.IndexedBase(name) for name in ("Dbar", "eps", "K", "C"))  # 1-based


def _before(term: Any, t: int) -> Any:
    return sum((term(s) for s in range(1, t)), start=sp.Integer(0))


def _after(term: Any, t: int, T: int) -> Any:
    return sum((term(s) for s in range(t + 1, T + 1)), start=sp.Integer(0))


def _survive(positions: Any, symbol: Any) -> Any:
    return sp.Mul(*(1 - symbol[s] for s in positions))


#: Rules on arrays, as functions of t and T on symbols with an index; and the arrays of the profile that they need.
BY_POSITION: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "linear": (lambda t, T: 4 * _dbar_t[t], ("mean_tv",)),
    "trajectory_tv": (lambda t, T: _dbar_t[t], ("mean_tv",)),
    "trajectory_kl": (lambda t, T: _kl_t[t], ("mean_kl",)),
    "adaptive_kl": (lambda t, T: 4 * _dbar_t[t] * _unit(sp.sqrt((T - t) * _delta / 2)), ("mean_tv",)),
    "adaptive_tv": (lambda t, T: 4 * _dbar_t[t] * _unit((T - t) * _eps), ("mean_tv",)),
    "adaptive": (lambda t, T: 4 * _dbar_t[t] * sp.Min(1, (T - t) * _eps, sp.sqrt((T - t) * _delta / 2)), ("mean_tv",)),
    "context_shift_profile": (
        lambda t, T: (
            2
            * _eps_t[t]
            * sp.Min(
                1,
                sp.sqrt(_before(lambda s: _kl_t[s], t) / 2),
                _before(lambda s: _dbar_t[s], t),
                1 - _survive(range(1, t), _eps_t),
            )
        ),
        ("max_tv", "mean_kl", "mean_tv"),
    ),
    "adaptive_profile": (
        lambda t, T: (
            2
            * _dbar_t[t]
            * sp.Min(1, 1 - _survive(range(t + 1, T + 1), _eps_t), sp.sqrt(_after(lambda s: _kl_t[s], t, T) / 2))
        ),
        ("mean_tv", "max_tv", "max_kl"),
    ),
    "martingale_chi2": (
        lambda t, T: _chi2_t[t] * (sp.Mul(*(1 + _chi2_t[s] for s in range(1, t))) - 1),
        ("max_chi2",),
    ),
    "cauchy_schwarz": (
        lambda t, T: sp.sqrt(_chi2_t[t] * _after(lambda s: _kl_t[s], t, T) / 2),
        ("mean_chi2", "mean_kl"),
    ),
}
_INDEXED = {
    "tv": {"mean": _dbar_t, "max": _eps_t},
    "kl": {"mean": _kl_t, "max": _kl_t},
    "chi2": {"mean": _chi2_t, "max": _chi2_t},
}


def restated_by_position(name: str, factor: Fraction = Fraction(1)) -> bool:
    """The same for a rule on arrays, summed position by position."""
    form, needed = BY_POSITION[name]
    scalars: dict[str, Any] = {} if needed != ("mean_tv",) else {"delta": 0.02, "epsilon": 0.15}
    for T in (1, 2, 5, 9):
        arrays: dict[str, Any] = {
            n: [0.1 / (2 + (3 * k) % 7) * (0.5 if n == "mean_tv" else 1.0) for k in range(T)] for n in needed
        }
        values: dict[Any, Any] = {_delta: sp.Rational(Fraction(0.02)), _eps: sp.Rational(Fraction(0.15))}
        for n, numbers in arrays.items():
            side, kind = n.split("_")
            values |= {_INDEXED[kind][side][k + 1]: sp.Rational(Fraction(x)) for k, x in enumerate(numbers)}
        total = sum(form(t, T).subs(values).evalf(50) for t in range(1, T + 1))
        if name == "martingale_chi2":
            total = sp.sqrt(total) / 2
        truth = (sp.Rational(factor) * total).evalf(40)
        value = sp.Rational(Fraction(rule(name).value(Profile(T=T, **scalars, **arrays))))
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


# --- the steps of the sharp rules --------------------------------------------------------------------------


def free_baseline(baseline: int = 1) -> bool:
    """E_roll W = 0, so Error does not change under R -> R - 1/2: the advantage factor is TV, not 2 TV."""
    tree = _SymbolicTree(2, 3)
    whole = sum(tree.mass(tree.theta, y) - tree.mass(tree.roll, y) for y in tree.responses)
    score = sum(
        sp.Mul(*((tree.theta if s == t else tree.roll)[y[: s + 1]] for s in range(tree.depth)))
        - baseline * tree.mass(tree.roll, y)
        for y in tree.responses
        for t in range(tree.depth)
    )
    return bool(sp.expand(whole - score) == 0)


def orthogonal_increments(first: int = 2) -> bool:
    """E_roll of (rho_3 - 1)(P_2 - 1) times (rho_2 - 1)(P_1 - 1) is 0: W is a sum of orthogonal increments."""
    tree = _SymbolicTree(3, 2)

    def increment(y: tuple[int, ...], t: int) -> Any:
        ratios = [tree.theta[y[: s + 1]] / tree.roll[y[: s + 1]] for s in range(t)]
        return (ratios[t - 1] - 1) * (sp.Mul(*ratios[: t - 1]) - 1)

    covariance = sum(tree.mass(tree.roll, y) * increment(y, 3) * increment(y, first) for y in tree.responses)
    return bool(sp.cancel(sp.together(covariance)) == 0)


def expected_square_of_score(factor: int = 1) -> bool:
    """E_roll S^2 = sum_t E_roll chi2(c_t), on a symbolic tree: the second step of first_order."""
    tree = _SymbolicTree(2, 2)

    def score(y: tuple[int, ...]) -> Any:
        return sum(tree.theta[y[: t + 1]] / tree.roll[y[: t + 1]] - 1 for t in range(tree.depth))

    square = sum(tree.mass(tree.roll, y) * score(y) ** 2 for y in tree.responses)
    chi2 = sum(
        tree.mass(tree.roll, c) * (tree.theta[(*c, v)] - tree.roll[(*c, v)]) ** 2 / tree.roll[(*c, v)]
        for t in range(tree.depth)
        for c in tree.contexts(t)
        for v in tree.tokens
    )
    return bool(sp.cancel(sp.together(square - factor * chi2)) == 0)


def summed_excess(start: int = 1) -> bool:
    """sum_t X ((1+X)^(t-1) - 1) = f(T, X), sum_t (1 - (1-eps)^(t-1)) = f(T, -eps) / eps, f = T(T-1)/2 X^2 + ..."""
    for T in range(1, 9):
        f = sp.expand((1 + _X) ** T - start - T * _X)
        summed = sum(_X * ((1 + _X) ** (t - 1) - 1) for t in range(1, T + 1))
        coupling = sum(1 - (1 - _X) ** (t - 1) for t in range(1, T + 1))
        leading = sp.Rational(T * (T - 1), 2) if T > 1 else 0
        if sp.expand(summed - f) != 0 or sp.expand(coupling * _X - f.subs(_X, -_X)) != 0 or f.coeff(_X, 2) != leading:
            return False
    return True


def chi2_to_kl(power: int = 2) -> bool:
    """(z-1)^2 / k3(z) increases in z, so |log rho| <= Lam gives chi2 <= (e^Lam-1)^2 / (e^Lam-1-Lam) KL."""
    z = sp.Symbol("z", positive=True)
    inner = 2 * _k3(z) - (z - 1) ** 2 / z  # the derivative is (z-1) inner / k3^2, and inner has the sign of z-1
    derivative = sp.diff((z - 1) ** power / _k3(z), z) - (z - 1) * inner / _k3(z) ** 2
    rises = sp.diff(inner, z) - (1 - 1 / z) ** 2
    return bool(sp.simplify(derivative) == 0 and sp.simplify(rises) == 0 and inner.subs(z, 1) == 0)


def curve_slope(factor: int = 2) -> bool:
    """Along the exact Pinsker curve dKL/ds = 2 s dTV/ds, so KL is convex in TV and the curve certifies."""
    s = sp.Symbol("s", positive=True)
    tv = s / 2 * (1 - (sp.coth(s) - 1 / s) ** 2)
    kl = sp.log(s / sp.sinh(s)) + s * sp.coth(s) - s**2 / sp.sinh(s) ** 2
    difference = (sp.diff(kl, s) - factor * s * sp.diff(tv, s)).rewrite(sp.exp)
    return bool(sp.simplify(difference) == 0)
