r"""The factors that the rules are built from, exact in O(1) of the horizon.

A rule is an advantage factor times a context-shift factor, summed over positions. With k = t - 1 steps
before a position (or T - t steps after it) the context shift is at most min(1, k eps, sqrt(k delta / 2)).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import (
    INFINITE,
    exact,
    floor_within,
    interval,
    round_up,
    sqrt_enclosure,
    sqrt_up,
    upper_value,
)

_DIRECT = 128  # partial sums of square roots up to here are added one by one
# zeta(-1/2) enclosed between two rationals (DLMF 25.2; the tests recompute it with mpmath)
_ZETA_LOW = Fraction(-20788622497735456602, 10**20) - Fraction(1, 10**20)
_ZETA_HIGH = Fraction(-20788622497735456602, 10**20) + Fraction(1, 10**20)


def unit(x: Fraction) -> Fraction:
    """min(1, x): a total variation is at most 1."""
    return min(Fraction(1), x)


def pinsker_array(kl: FloatArray) -> FloatArray:
    """min(1, sqrt(kl/2)) of each entry, upper values: sqrt is correctly rounded, so one step up is above it."""
    return _root_up(kl / 2.0, kl)


def half_root_array(chi2: FloatArray) -> FloatArray:
    """min(1, sqrt(chi2)/2) of each entry, upper values: TV <= sqrt(chi2)/2 by Cauchy-Schwarz."""
    return _root_up(chi2 / 4.0, chi2)


def huber_array(kl: FloatArray) -> FloatArray:
    """sqrt(1 - exp(-kl)) of each entry, upper values (Bretagnolle-Huber): below Pinsker where kl is large."""
    return np.minimum(1.0, np.sqrt(-np.expm1(-kl)) * (1.0 + 16.0 * 2.0**-53))


def _root_up(x: FloatArray, source: FloatArray) -> FloatArray:
    root = np.nextafter(np.sqrt(np.nextafter(x, math.inf)), math.inf)
    return np.where(source == 0.0, 0.0, np.minimum(1.0, root))


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
    linear = 0
    if epsilon is not None:
        crossover = 1 / epsilon if delta is None else min(1 / epsilon, delta / (2 * epsilon**2))
        linear = floor_within(crossover, n)
    total = (epsilon or 0) * Fraction(linear * (linear + 1), 2)
    root = linear
    if delta is not None:
        root = max(linear, floor_within(2 / delta, n))
        if root > linear:
            total += sqrt_up(delta / 2) * (sqrt_sum(root)[1] - sqrt_sum(linear)[0])
    return total + (n - root)


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


def before(a: FloatArray) -> FloatArray:
    """Sums of the entries before each position, [T], upper values within 5e-13 relative (for T to 10^6).

    Summed in blocks of about sqrt(T), so that few roundings add up.
    """
    return _running(a)[:-1]


def after(a: FloatArray) -> FloatArray:
    """Sums of the entries after each position, [T]; see :func:`before`."""
    return _running(a[::-1])[-2::-1]


def _running(a: FloatArray) -> FloatArray:
    """0, a_1, a_1 + a_2, ...: T+1 upper values of the partial sums of non-negative numbers."""
    width = max(1, math.isqrt(a.size))
    rows = -(-a.size // width)
    grid = np.zeros((rows, width))
    grid.ravel()[: a.size] = a
    inside = np.cumsum(grid, axis=1)
    offset = np.concatenate([[0.0], np.cumsum(inside[:-1, -1])])
    sums = (inside + offset[:, None]).ravel()[: a.size]
    return np.concatenate([[0.0], sums * (1.0 + 2.0 * (width + rows + 8) * 2.0**-53)])


def coupled(running: FloatArray) -> FloatArray:
    """1 - prod (1 - epsilon_s) from sums of -log(1 - epsilon_s), upper values.

    log1p and expm1 of NumPy are taken to be within 8 ulp here (the tests compare with mpmath).
    """
    return np.minimum(1.0, -np.expm1(-running) * (1.0 + 16.0 * 2.0**-53))


def log_survival(epsilon: FloatArray) -> FloatArray:
    """-log(1 - epsilon_t), upper values [T]; inf at 1."""
    with np.errstate(divide="ignore"):
        return -np.log1p(-np.minimum(epsilon, 1.0)) * (1.0 + 16.0 * 2.0**-53)


def compounded(X: FloatArray) -> FloatArray:
    """prod_{s<t} (1 + X_s) - 1 at each position, [T], upper values; inf beyond the floats."""
    with np.errstate(over="ignore"):
        growth = before(np.log1p(X) * (1.0 + 16.0 * 2.0**-53))
        return np.expm1(growth) * (1.0 + (32.0 + 2.0 * np.minimum(growth, 1e3)) * 2.0**-53)


def remaining_weights(T: int, *, epsilon: float | None = None, delta: float | None = None) -> FloatArray:
    r"""Array [T] of min(1, (T-t) epsilon, sqrt((T-t) delta/2)), t = 1..T; at most 3 roundings each."""
    steps = np.arange(T - 1, -1, -1, dtype=np.float64)
    weights = np.ones(T)
    if epsilon is not None:
        weights = np.minimum(weights, steps * min(epsilon, 1.0))
    if delta is not None and not math.isinf(delta):
        with np.errstate(over="ignore"):
            weights = np.minimum(weights, np.sqrt(steps * round_up(exact(delta) / 2)))
    weights[-1] = 0.0
    return weights
