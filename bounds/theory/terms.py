r"""The factors that the rules are built from, exact in O(1) of the horizon.

A rule is an advantage factor times a context-shift factor, summed over positions. With k = t - 1 steps
before a position (or T - t steps after it) the context shift is at most min(1, k eps, sqrt(k delta / 2)).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import (
    INFINITE,
    dot_up,
    exact,
    floor_within,
    interval,
    round_up,
    sqrt_enclosure,
    sqrt_up,
    upper_value,
)
from bounds.divergence.inequalities import curve_tangent

_DIRECT = 128  # partial sums of square roots up to here are added one by one
# zeta(-1/2) enclosed between two rationals (DLMF 25.2; the tests recompute it with mpmath)
_ZETA_LOW = Fraction(-20788622497735456602, 10**20) - Fraction(1, 10**20)
_ZETA_HIGH = Fraction(-20788622497735456602, 10**20) + Fraction(1, 10**20)
_ROOT_HALF = round_up(sqrt_up(Fraction(1, 2))) * (1.0 + 4.0 * 2.0**-53)
_NODES, _LAST_ROOT = 1024, 4.0  # tangents of Pinsker's curve, up to KL = 32, where it is within 1e-13 of 1


def unit(x: Fraction) -> Fraction:
    """min(1, x): a total variation is at most 1."""
    return min(Fraction(1), x)


def pinsker_array(kl: FloatArray) -> FloatArray:
    """min(1, sqrt(kl/2)) of each entry, upper values."""
    return np.minimum(1.0, root_of_half(kl.copy()))


def curve_array(kl: FloatArray) -> FloatArray:
    r"""The largest TV at each KL by Pinsker's exact curve: upper values, within 4e-6 relative of it.

    The curve is concave in r = sqrt(KL/2) (checked by :func:`bounds.proof.symbolic.curve_concave`), so each of its
    tangents lies above it everywhere, and the nearest of 1024 that are certified one by one lies close. Here 4 roundings
    are added: of the slope times r, of the sum, and of the factor that covers them all.
    """
    root = root_of_half(kl.copy())
    nearest = np.minimum(root * (_NODES / _LAST_ROOT), _NODES).astype(np.intp)
    intercept, slope = np.zeros(_NODES + 1), np.zeros(_NODES + 1)
    for k in np.flatnonzero(np.bincount(nearest)):
        intercept[k], slope[k] = _tangent(int(k))
    line = slope[nearest]
    line *= root
    line += intercept[nearest]
    line *= 1.0 + 8.0 * 2.0**-53
    np.minimum(line, root, out=line)
    return np.minimum(1.0, line)


@cache
def _tangent(k: int) -> tuple[float, float]:
    """Intercept and slope, upper values, of the tangent that touches the curve where r is (k + 1/2) / 256."""
    intercept, slope = curve_tangent(_LAST_ROOT * (k + 0.5) / _NODES)
    return round_up(intercept), round_up(slope)


def half_root_array(chi2: FloatArray) -> FloatArray:
    """min(1, sqrt(chi2)/2) of each entry, upper values: TV <= sqrt(chi2)/2 by Cauchy-Schwarz."""
    return np.minimum(1.0, np.sqrt(chi2) * (0.5 * (1.0 + 4.0 * 2.0**-53)))


def multiple_array(x: FloatArray, factor: Fraction) -> FloatArray:
    """A multiple of each entry, upper values (0 stays 0 and is of no infinite multiple more)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(x == 0.0, 0.0, np.nextafter(x * round_up(factor), math.inf))


def root_of_half(x: FloatArray) -> FloatArray:
    """sqrt(x/2) of each entry, in place, upper values: the root is correctly rounded, the factor has 4 roundings more.

    No root of a float is subnormal, so nothing underflows.
    """
    np.sqrt(x, out=x)
    x *= _ROOT_HALF
    return x


@cache
def _direct_sums() -> tuple[tuple[Fraction, Fraction], ...]:
    sums = [(Fraction(0), Fraction(0))]
    for k in range(1, _DIRECT):
        low, high = sqrt_enclosure(Fraction(k))
        sums.append((sums[-1][0] + low, sums[-1][1] + high))
    return tuple(sums)


def sqrt_sum(n: int) -> tuple[Fraction, Fraction]:
    r"""Rationals low <= sum_{k=1}^{n} sqrt(k) <= high, in O(1).

    From n = 128 on by Euler-Maclaurin, with sqrt(n) factored out:
    sqrt(n) (2n/3 + 1/2 + 1/(24 n) - 1/(1920 n^3)) + zeta(-1/2), error at most n^-4.5 / 9216.

    >>> low, high = sqrt_sum(4095)
    >>> float(low) <= sum(math.sqrt(k) for k in range(4096)) * (1 + 1e-15) and float(high - low) < 1e-12
    True
    """
    if n < _DIRECT:
        return _direct_sums()[n]
    low, high = sqrt_enclosure(Fraction(n))
    series = Fraction(2 * n, 3) + Fraction(1, 2) + Fraction(1, 24 * n) - Fraction(1, 1920 * n**3)
    remainder = Fraction(1, 9216 * n**4)  # n^-4.5 is smaller
    return low * series + _ZETA_LOW - remainder, high * series + _ZETA_HIGH + remainder


def capped_sum(n: int, *, epsilon: Fraction | None = None, delta: Fraction | None = None) -> Fraction:
    r"""An upper value of sum_{k=0}^{n} min(1, k epsilon, sqrt(k delta / 2)), in O(1) of n.

    At least one of the two routes is given. The minimum is linear up to k = delta / (2 epsilon^2) (or
    1/epsilon), a square root up to k = 2/delta, and 1 from there on.

    >>> float(capped_sum(3, epsilon=Fraction(1, 4)))
    1.5
    """
    if n <= 0 or epsilon == 0 or delta == 0:
        return Fraction(0)
    linear, root = crossings(n + 1, epsilon, delta)
    total = (epsilon or 0) * Fraction(linear * (linear + 1), 2)
    if delta is not None and root > linear:
        total += sqrt_up(delta / 2) * (sqrt_sum(root)[1] - sqrt_sum(linear)[0])
    return total + (n - root)


def crossings(T: int, epsilon: Fraction | None, delta: Fraction | None) -> tuple[int, int]:
    """Up to which k < T the smallest of 1, k epsilon, sqrt(k delta / 2) is the second, and then the third."""
    if epsilon == 0 or delta == 0:
        return (T - 1, T - 1) if epsilon == 0 else (0, T - 1)
    linear = 0
    if epsilon is not None:
        linear = floor_within(1 / epsilon if delta is None else min(1 / epsilon, delta / (2 * epsilon**2)), T - 1)
    return linear, linear if delta is None else max(linear, floor_within(2 / delta, T - 1))


@lru_cache(maxsize=1024)
def binomial_excess(T: int, X: Fraction) -> Fraction:
    r"""An upper value of f(T, X) = (1+X)^T - 1 - T X for X >= -1, closer than 2^-99 relative.

    >>> f"{float(binomial_excess(4096, Fraction(1, 10**12))):.5g}"
    '8.3866e-18'
    """
    if X == 0 or T < 2:
        return Fraction(0)
    if T <= 16:
        return (1 + X) ** T - 1 - T * X
    if X > 0 and T * math.log1p(min(round_up(X), 1e300)) > 1500.0:  # its root is beyond the floats, too
        return INFINITE
    return upper_value(lambda iv: _power(iv, T, X) - 1 - T * interval(iv, X), _cancelled(T, X))


@lru_cache(maxsize=1024)
def product_coupling(length: int, epsilon: Fraction) -> Fraction:
    """An upper value of 1 - (1 - epsilon)^length: TV of contexts after steps of TV epsilon each."""
    if epsilon >= 1:
        return Fraction(min(length, 1))
    return unit(upper_value(lambda iv: 1 - _power(iv, length, -epsilon), _cancelled(length, epsilon)))


def product_coupling_sum(T: int, epsilon: Fraction) -> Fraction:
    """An upper value of sum_{k=0}^{T-1} (1 - (1-epsilon)^k) = f(T, -epsilon) / epsilon."""
    return binomial_excess(T, -epsilon) / epsilon if epsilon else Fraction(0)


def _power(iv: Any, T: int, X: Fraction) -> Any:
    """(1 + X)^T as an interval."""
    return iv.exp(T * iv.log(1 + interval(iv, X))) if X > -1 else iv.mpf(0)


def _cancelled(T: int, X: Fraction) -> int:
    """How many leading bits (1 + X)^T - 1 - T X loses at most."""
    size = X.numerator.bit_length() - X.denominator.bit_length() + T.bit_length()
    return 2 * max(0, -size) + 2 * T.bit_length() + 16


_GROUP, _BLOCK = 32, 2**14  # of positions: the second so that what is in work stays in the cache
_RAISED = 1.0 + 1024.0 * 2.0**-53  # covers 16 roundings of an entry, 33 of a group, 512 of a block, and 3 more
_EARLIER = np.triu(np.full((_GROUP, _GROUP), _RAISED), 1)  # column j sums the entries before j


@dataclass(frozen=True, slots=True)
class Route:
    """One way to bound a context shift: ``leave`` of the sum of ``enter`` of the entries before (or after) a position.

    Both may carry 16 roundings: NumPy's log1p and expm1 are taken to be within 8 ulp (the tests compare with mpmath).
    """

    array: FloatArray
    enter: Callable[[FloatArray], FloatArray] = lambda x: x
    leave: Callable[[FloatArray], FloatArray] = lambda x: x


def summed(x: FloatArray) -> Route:
    """Route sum x_s."""
    return Route(x)


def pinsker_of_sum(kl: FloatArray) -> Route:
    """Route sqrt(sum K_s / 2)."""
    return Route(kl, leave=root_of_half)


def coupled(epsilon: FloatArray) -> Route:
    """Route 1 - prod (1 - epsilon_s)."""
    return Route(epsilon, _log_survival, _lost)


def compounded(X: FloatArray) -> Route:
    """Route prod (1 + X_s) - 1."""
    return Route(X, np.log1p, lambda x: np.expm1(x) * (1.0 + 16.0 * 2.0**-53))


def _log_survival(epsilon: FloatArray) -> FloatArray:
    """-log(1 - epsilon); the last float below 1 stands for 1, and the margins make 1 of it again."""
    x = np.minimum(epsilon, 1.0 - 2.0**-53)
    np.negative(x, out=x)
    np.log1p(x, out=x)
    return np.negative(x, out=x)


def _lost(x: FloatArray) -> FloatArray:
    """1 - exp(-x), in place."""
    np.negative(x, out=x)
    np.expm1(x, out=x)
    x *= -(1.0 + 16.0 * 2.0**-53)
    return x


def shifted_sum(factor: FloatArray, routes: Sequence[Route], cap: float = 1.0, *, follow: bool = False) -> Fraction:
    """An upper value of sum_t factor_t min(cap, routes from the positions before t), within 1e-12 relative.

    ``follow``: from the positions after t. ``factor`` may carry one rounding. It goes block by block, and 4 units in the
    last place for each block cover the rounding of what is carried on.
    """
    shift = np.full(factor.size, cap)
    facing = slice(None, None, -1 if follow else 1)
    for route in routes:
        array, out, carried = route.array[facing], shift[facing], 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, factor.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                sums, whole = _running(route.enter(np.ascontiguousarray(array[block])))
                sums += carried
                carried = (carried + whole) * (1.0 + 4.0 * 2.0**-53)
                np.minimum(out[block], route.leave(sums), out=out[block])
    return dot_up(factor, shift, roundings=1)


def _running(a: FloatArray) -> tuple[FloatArray, float]:
    """Sums of the entries of a block before each, and of all: not below, and within 3e-13 relative.

    Non-negative entries may carry 16 roundings of their own. Sums within groups of 32 are a product with a triangle of
    ones, each a hair above 1; then the totals of the groups before are added. Whatever the order in which a product
    adds, all roundings lose less than the hair gains; below the normal floats additions are exact.
    """
    if a.size % _GROUP:
        sums, whole = _running(np.append(a, np.zeros(-a.size % _GROUP)))
        return sums[: a.size], whole
    grid = a.reshape(-1, _GROUP)
    totals = np.cumsum(grid @ np.full(_GROUP, _RAISED))
    if not math.isfinite(totals[-1]):  # 0 times the largest float is 0, and a sum with it is again inf
        grid = np.minimum(grid, sys.float_info.max)
    sums = grid @ _EARLIER
    sums[1:] += totals[:-1, None]
    return sums.ravel(), float(totals[-1])


def remaining_weights(T: int, *, epsilon: float | None = None, delta: float | None = None) -> FloatArray:
    r"""Array [T] of min(1, (T-t) epsilon, sqrt((T-t) delta/2)), t = 1..T; at most 3 roundings each.

    As in :func:`capped_sum` the last positions are linear, those before them roots, and the rest 1.
    """
    linear, root = crossings(T, *(None if x is None else exact(x) for x in (epsilon, delta)))
    weights = np.arange(T - 1, -1, -1, dtype=np.float64)
    ones, roots, lines = np.split(weights, [T - 1 - root, T - 1 - linear])
    ones[:] = 1.0
    if delta is not None and roots.size:
        roots *= round_up(exact(delta) / 2)
        np.sqrt(roots, out=roots)
    lines *= epsilon or 0.0
    return weights
