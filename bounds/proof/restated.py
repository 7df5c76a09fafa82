"""Every rule restated in SymPy as it is printed, and compared with what the rules compute, between certified ends.

As in :mod:`bounds.proof.symbolic`, each function returns whether its statement holds, and takes a constant.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import sympy as sp

from bounds._rounding import INFINITE, exact, interval, rational, sqrt_enclosure
from bounds.rules.profile import Profile
from bounds.rules.sums import sqrt_sum
from bounds.rules.unified import rule

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
    "linear": 4 * _A,
    "coupling": 4 * _unit(_eps) * _over_positions(_unit(_back * _eps)),
    "pinsker_marginal_kl": 4 * _unit(_root) * _over_positions(_unit(sp.sqrt(_back * _delta / 2))),
    "pinsker_marginal_tv": 4 * _unit(_eps) * _over_positions(_unit(sp.sqrt(_back * _delta / 2))),
    "mixed_kl": 4 * _T * _unit(_root) * _unit(sp.sqrt(_D / 2)),
    "mixed_tv": 4 * _T * _unit(_eps) * _unit(_tv),
    "adaptive_kl": _over_positions(4 * _dbar * _unit(sp.sqrt(_ahead * _delta / 2))),
    "adaptive_tv": _over_positions(4 * _dbar * _unit(_ahead * _eps)),
    "adaptive": _over_positions(4 * _dbar * sp.Min(1, _ahead * _eps, sp.sqrt(_ahead * _delta / 2))),
    "trajectory_kl": _D,
    "trajectory_tv": _A,
}


def _of_summed_delta(D: Any) -> Any:
    excess, grown = sp.exp(2 * D) - 1 - 2 * D, sp.exp(2 * D) - 1
    summed = sp.sqrt(excess) / 2 + 2 * D * sp.sqrt(grown) / 3 + 8 * ((D - 1) * sp.exp(D) + 1) / 9
    return sp.exp(4 * D / 9) * summed


_X, _C, _sd = sp.symbols("X C sd", positive=True)
_excess = (1 + _X) ** _T - 1 - _T * _X
RESTATED = {
    **RESTATED,
    **{f"halved_{n}": form / 2 for n, form in RESTATED.items() if not n.startswith("trajectory") and n != "coupling"},
    "exact_tv": _over_positions(_unit(_eps) * (1 - (1 - _unit(_eps)) ** (_T - 1))),
    "halved_mixed_kl": RESTATED["mixed_kl"] * (_T - 1) / (2 * _T),
    "halved_mixed_tv": RESTATED["mixed_tv"] * (_T - 1) / (2 * _T),
    "martingale_chi2": _sd * sp.sqrt(_excess),
    "martingale_kl": _of_summed_delta(_T * _delta),
    "first_order": _unit(_tv) + _sd * sp.sqrt(_C),
}

# --- arrays ------------------------------------------------------------------------------------------------

_dbar_t, _eps_t, _K_t, _kl_t, _C_t, _chi2_t = (sp.IndexedBase(name) for name in ("Dbar", "eps", "K", "delta", "C", "X"))
_ARRAYS = {
    "mean_tv": _dbar_t,
    "max_tv": _eps_t,
    "mean_kl": _K_t,
    "max_kl": _kl_t,
    "mean_chi2": _C_t,
    "max_chi2": _chi2_t,
}


def _total(symbol: Any, positions: range) -> Any:
    return sp.Add(*(symbol[s] for s in positions))


def _survive(symbol: Any, positions: range) -> Any:
    return sp.Mul(*(1 - symbol[s] for s in positions))


def _by_position(term: Callable[[int, int], Any]) -> Callable[[int], Any]:
    return cache(lambda T: sp.Add(*(term(t, T) for t in range(1, T + 1))))


def _least(*terms: Any) -> Any:
    return sp.Min(*terms, evaluate=False)  # SymPy would search which is larger for all symbols


def _prefix_tv(t: int) -> Any:
    seen = range(1, t)
    by_kl, by_tv, by_coupling = sp.sqrt(_total(_K_t, seen) / 2), _total(_dbar_t, seen), 1 - _survive(_eps_t, seen)
    return _least(by_kl, by_tv, by_coupling, _unit(_tv))


@cache
def _context_shift(T: int) -> Any:
    b: Any = sp.Integer(0)
    for t in range(1, T + 1):
        new = _least(_dbar_t[t], _eps_t[t] * _prefix_tv(t))
        b = (1 - _eps_t[t]) * b + _eps_t[t] * _total(_dbar_t, range(1, t)) + new
    return _least(b, sp.Add(*(2 * _eps_t[t] * _prefix_tv(t) for t in range(1, T + 1))))


def _adaptive_by_position(t: int, T: int) -> Any:
    left = range(t + 1, T + 1)
    return 2 * _dbar_t[t] * _least(1, 1 - _survive(_eps_t, left), sp.sqrt(_total(_kl_t, left) / 2))


_variance = _by_position(lambda t, T: _chi2_t[t] * (sp.Mul(*(1 + _chi2_t[s] for s in range(1, t))) - 1))

#: Rules on arrays, as functions of T on symbols with an index (1-based); and the arrays of the profile that they need.
BY_POSITION: Mapping[str, tuple[Callable[[int], Any], tuple[str, ...]]] = {
    "linear": (_by_position(lambda t, T: 4 * _dbar_t[t]), ("mean_tv",)),
    "trajectory_tv": (_by_position(lambda t, T: _dbar_t[t]), ("mean_tv",)),
    "trajectory_kl": (_by_position(lambda t, T: _K_t[t]), ("mean_kl",)),
    "adaptive_kl": (_by_position(lambda t, T: 4 * _dbar_t[t] * _unit(sp.sqrt((T - t) * _delta / 2))), ("mean_tv",)),
    "adaptive_tv": (_by_position(lambda t, T: 4 * _dbar_t[t] * _unit((T - t) * _eps)), ("mean_tv",)),
    "adaptive": (
        _by_position(lambda t, T: 4 * _dbar_t[t] * sp.Min(1, (T - t) * _eps, sp.sqrt((T - t) * _delta / 2))),
        ("mean_tv",),
    ),
    "context_shift_profile": (_context_shift, ("max_tv", "mean_kl", "mean_tv")),
    "adaptive_profile": (_by_position(_adaptive_by_position), ("mean_tv", "max_tv", "max_kl")),
    "martingale_kl": (lambda T: _of_summed_delta(_total(_kl_t, range(1, T + 1))), ("max_kl",)),
    "martingale_chi2": (lambda T: sp.sqrt(_variance(T)) / 2, ("max_chi2",)),
    "cauchy_schwarz": (
        _by_position(lambda t, T: sp.sqrt(_C_t[t] * _total(_K_t, range(t + 1, T + 1)) / 2)),
        ("mean_chi2", "mean_kl"),
    ),
}

# --- certified ends ----------------------------------------------------------------------------------------

Ends = tuple[Fraction, Fraction]


def enclose(form: Any, values: Mapping[Any, Fraction]) -> Ends:
    """Return rationals around the value of a form: exact but for square roots and exponentials, enclosed closely."""
    if form in values:
        return values[form], values[form]
    if form.is_Rational:
        return (Fraction(int(form.p), int(form.q)),) * 2
    if isinstance(form, sp.Sum):
        body, (t, first, last) = form.args
        always, changing = body.as_independent(t, as_Add=False)
        steps = range(int(enclose(first, values)[0]), int(enclose(last, values)[0]) + 1)
        return _multiply([enclose(always, values), _add(enclose(changing, {**values, t: Fraction(k)}) for k in steps)])
    if isinstance(form, sp.exp):
        return _exp(enclose(form.args[0], values))
    if form.is_Pow:
        return _power(enclose(form.base, values), enclose(form.exp, values)[0])
    parts = [enclose(part, values) for part in form.args]
    if form.is_Add:
        return _add(parts)
    if isinstance(form, sp.Min):
        return min(low for low, _ in parts), min(high for _, high in parts)
    if not form.is_Mul:
        raise TypeError(f"no certified ends of {form}")
    return _multiply(parts)


def _multiply(parts: Sequence[Ends]) -> Ends:
    ends, *others = parts
    for part in others:
        corners = [a * b for a, b in itertools.product(_distinct(ends), _distinct(part))]
        ends = min(corners), max(corners)
    return ends


def _add(parts: Iterable[Ends]) -> Ends:
    lows, highs = zip(*parts, strict=True)
    total = sum(lows, Fraction(0))
    return total, total if lows == highs else sum(highs, Fraction(0))


def _distinct(ends: Ends) -> Sequence[Fraction]:
    return ends if ends[0] != ends[1] else ends[:1]


def _power(base: Ends, exponent: Fraction) -> Ends:
    """Take a base that is not negative to a power (any base, if it is exact and the exponent is whole)."""
    if exponent == Fraction(1, 2):
        return sqrt_enclosure(base[0])[0], sqrt_enclosure(base[1])[1]
    if exponent.denominator != 1 or (base[0] < 0 and base[0] != base[1]):
        raise TypeError(f"no certified ends of {base} to the power {exponent}")
    return tuple(sorted(end ** int(exponent) for end in base))  # type: ignore[return-value]


def _exp(ends: Ends) -> Ends:
    """Enclose so closely that 1 and more may be taken away where the ends are 1e-300."""
    context, margin = _exponentials(), Fraction(1, 2**2200)  # the last bits of mpmath's exp may be wrong
    found = [context.exp(interval(context, min(x, Fraction(1500)))) for x in _distinct(ends)]
    return rational(found[0].a) * (1 - margin), INFINITE if ends[1] > 1500 else rational(found[-1].b) * (1 + margin)


@cache
def _exponentials() -> Any:
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()
    context.prec = 2400
    return context


def _within(value: float, ends: Ends, factor: Fraction) -> bool:
    """Whether a value is not below the form, and within 1e-12 of it, the smallest float, or all floats."""
    low, high = (factor * end for end in ends)
    if value == math.inf and high > Fraction(sys.float_info.max):
        return factor >= 1
    return low <= exact(value) <= high * (1 + Fraction(1, 10**12)) + Fraction(5e-324)


_SYMBOLS = {_eps: "epsilon", _tv: "tv_seq", _D: "kl_seq", _A: "tv_sum", _X: "chi2_max", _C: "chi2_sum"}


@cache
def _grid() -> tuple[Profile, ...]:
    """Return scalar profiles: uncapped, capped, mixed, single tokens, tiny, huge."""
    rows: list[tuple[Any, ...]] = [  # T, delta, epsilon, D, tv_seq, X, sum C, mean reward
        (9, 1e-3, 1 / 50, 1 / 200, 1 / 30, 1 / 100, 1 / 40, 1 / 2),
        (40, 1 / 10, 1 / 30, 3.0, 9 / 10, 1 / 50, 2 / 3, 8 / 9),
        (40, 1 / 20, 3 / 40, 5 / 4, 1 / 2, 1 / 1000, 1 / 30, 1 / 7),
        (23, 1.0, 1 / 2, 7.0, 1.0, 3.0, 60.0, 1.0),
        *(
            (T, delta, eps, min(delta / 3, 1.0), min(1.0, 2 * eps), eps, eps / 2, 1 / 3)
            for T in (1, 2, 17)
            for delta in (1e-300, 1e-4, 0.3, 2.0, 1e300)
            for eps in (1e-300, 5e-3, 0.4, 1.0)
        ),
    ]
    names = ("T", "delta", "epsilon", "kl_seq", "tv_seq", "chi2_max", "chi2_sum", "mean_reward")
    return tuple(Profile(**dict(zip(names, row, strict=True))) for row in rows)


def restated(name: str, factor: Fraction = Fraction(1)) -> bool:
    """Low <= rule <= high (1 + 1e-12) for the certified ends of its restatement, at the exact values of the floats.

    What a rule takes for epsilon, A and so on is the smallest that is proved; that is put into the restatement, too.
    """
    own, form = rule(name), RESTATED[name].subs(_dbar, sp.Min(_eps, _root))
    used = [(symbol, field) for symbol, field in _SYMBOLS.items() if symbol in form.free_symbols]
    for profile in _grid():
        values = {_T: Fraction(profile.T), _delta: exact(profile.delta or 0.0), _sd: exact(profile.reward_sd.value)}
        for symbol, field in used:
            resolved = profile.resolve(field, own.family)
            values[symbol] = exact(resolved.value) if resolved else Fraction(0)
        if not _within(own.value(profile), enclose(form, values), factor):
            return False
    return True


def _profiles_by_position(needed: tuple[str, ...]) -> Iterator[Profile]:
    """Yield arrays that rise and fall, with zeros, from tiny to capped; scalars where a rule needs only mean_tv.

    Beside a total variation, a KL is once of its order and once of its square, so that either may be the smaller route.
    """
    powers = (1, 2) if "mean_tv" in needed and needed != ("mean_tv",) else (1,)
    for T, scale, power in itertools.product((1, 3, 8), (1e-200, 1e-2, 0.3), powers):
        entries = [scale / (1 + (3 * k) % 7) * (k % 5 != 3) for k in range(T)]
        arrays: dict[str, Any] = {
            n: [x ** (power if n.endswith("kl") else 1) * (0.5 if n.startswith("mean") else 1.0) for x in entries]
            for n in needed
        }
        scalars: dict[str, Any] = {"delta": 0.1, "epsilon": 0.15} if needed == ("mean_tv",) else {}
        yield Profile(T=T, **arrays, **scalars)
        yield Profile(T=T, **arrays, **scalars, tv_seq=scale * 0.7)


def restated_by_position(name: str, factor: Fraction = Fraction(1)) -> bool:
    """Low <= rule <= high (1 + 1e-12) for a rule on arrays, summed position by position."""
    form, needed = BY_POSITION[name]
    own = rule(name)
    for profile in _profiles_by_position(needed):
        values = {_delta: exact(profile.delta or 0.0), _eps: exact(profile.epsilon or 0.0)}
        tv_seq = profile.resolve("tv_seq", own.family)
        values[_tv] = exact(tv_seq.value) if tv_seq else Fraction(1)
        for field, symbol in _ARRAYS.items():
            resolved = profile.quantity(field, own.family)
            entries = [] if resolved is None else resolved[0].tolist()
            values |= {symbol[k + 1]: exact(x) for k, x in enumerate(entries)}
        if not _within(own.value(profile), enclose(form(profile.T), values), factor):
            return False
    return True


# --- how the published forms relate ------------------------------------------------------------------------


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


def halves(factor: Fraction = Fraction(1)) -> bool:
    """Each halved rule is half of its published one, and (T-1)/T of that for the mixed ones, within 1e-12."""
    T, known = 9, {"delta": 0.02, "epsilon": 0.05, "kl_seq": 0.1, "tv_seq": 0.2}  # all below what the others imply
    for mean_tv in (None, [0.03 / k for k in range(1, T + 1)]):
        profile = Profile.of({"T": T, **known, "mean_tv": mean_tv})
        for name in (n for n in RESTATED if n.startswith("halved_")):
            own, of = (exact(rule(n).value(profile)) for n in (name, name.removeprefix("halved_")))
            share = Fraction(T - 1, 2 * T) if "mixed" in name else Fraction(1, 2)
            if abs(factor * own / (share * of) - 1) > Fraction(1, 10**12):
                return False
    return True


def reversed_sums(shift: int = 0) -> bool:
    """adaptive_kl at Dbar = sqrt(delta/2) is PM-KL, adaptive_tv at Dbar = epsilon is coupling (t reversed)."""
    values = {_delta: sp.Rational(1, 7), _eps: sp.Rational(1, 5)}
    pairs = [
        (RESTATED["adaptive_kl"].subs(_dbar, _root), RESTATED["pinsker_marginal_kl"]),
        (RESTATED["adaptive_tv"].subs(_dbar, _eps), RESTATED["coupling"]),
    ]
    return all(
        sp.expand(a.subs(_T, T + shift).doit() - b.subs(_T, T).doit()) == 0
        for a, b in ((a.subs(values), b.subs(values)) for a, b in pairs)
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
