r"""The factors that the rules are built from, exact in O(1) of the horizon.

A rule is an advantage factor times a context-shift factor, summed over positions. With k = t - 1 steps
before a position (or T - t steps after it) the context shift is at most min(1, k eps, sqrt(k delta / 2)).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import INFINITE, exact, interval, round_up, sqrt_enclosure, sqrt_up, upper_value

_DIRECT = 128  # partial sums of square roots up to here are added one by one
# zeta(-1/2) enclosed between two rationals (DLMF 25.2; the tests recompute it with mpmath)
_ZETA_LOW = Fraction(-20788622497735456602, 10**20) - Fraction(1, 10**20)
_ZETA_HIGH = Fraction(-20788622497735456602, 10**20) + Fraction(1, 10**20)


def unit(x: Fraction) -> Fraction:
    """Return min(1, x): a total variation is at most 1."""
    return min(Fraction(1), x)


@lru_cache(maxsize=1024)
def sqrt_sum(n: int) -> tuple[Fraction, Fraction]:
    r"""Enclose between rationals low <= sum_{k=1}^{n} sqrt(k) <= high, in O(1).

    From n = 128 on by Euler-Maclaurin, with sqrt(n) factored out:
    sqrt(n) (2n/3 + 1/2 + 1/(24 n) - 1/(1920 n^3)) + zeta(-1/2), error at most n^-4.5 / 9216.

    >>> low, high = sqrt_sum(4095)
    >>> float(low) <= sum(math.sqrt(k) for k in range(4096)) * (1 + 1e-15) and float(high - low) < 1e-12
    True
    """
    if n < _DIRECT:
        lows, highs = zip(*(sqrt_enclosure(Fraction(k)) for k in range(n + 1)), strict=True)
        return sum(lows), sum(highs)
    low, high = sqrt_enclosure(Fraction(n))
    series = Fraction(2 * n, 3) + Fraction(1, 2) + Fraction(1, 24 * n) - Fraction(1, 1920 * n**3)
    remainder = Fraction(1, 9216 * n**4)  # n^-4.5 is smaller
    return low * series + _ZETA_LOW - remainder, high * series + _ZETA_HIGH + remainder


def capped_sum(n: int, *, epsilon: Fraction | None = None, delta: Fraction | None = None) -> Fraction:
    r"""Bound from above sum_{k=0}^{n} min(1, k epsilon, sqrt(k delta / 2)), in O(1) of n.

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
    """Find up to which k < T the smallest of 1, k epsilon, sqrt(k delta / 2) is the second, and then the third."""
    if epsilon == 0 or delta == 0:
        return (T - 1, T - 1) if epsilon == 0 else (0, T - 1)
    linear = 0
    if epsilon is not None:
        steps = 1 / epsilon if delta is None else min(1 / epsilon, delta / (2 * epsilon**2))
        linear = min(math.floor(steps), T - 1)
    return linear, linear if delta is None else max(linear, min(math.floor(2 / delta), T - 1))


@lru_cache(maxsize=1024)
def binomial_excess(T: int, X: Fraction) -> Fraction:
    r"""Bound from above f(T, X) = (1+X)^T - 1 - T X for X >= -1, closer than 2^-99 relative.

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
def exponential_excess(D: Fraction) -> Fraction:
    r"""Bound e^(4D/9) (sqrt(e^2D - 1 - 2D) / 2 + 2/3 D sqrt(e^2D - 1) + 8/9 ((D-1) e^D + 1)) from above.

    It is closer than 1e-23 relative.

    >>> round(float(exponential_excess(Fraction(1, 100))), 8)
    0.00812302
    """
    if D == 0:
        return Fraction(0)
    if D > 490:  # it is beyond the floats
        return INFINITE
    lost = 2 * max(0, D.denominator.bit_length() - D.numerator.bit_length()) + 16
    second = upper_value(lambda iv: iv.exp(2 * interval(iv, D)) - 1 - 2 * interval(iv, D), lost)
    first = upper_value(lambda iv: iv.exp(2 * interval(iv, D)) - 1, lost)
    last = upper_value(lambda iv: (interval(iv, D) - 1) * iv.exp(interval(iv, D)) + 1, lost)
    growth = upper_value(lambda iv: iv.exp(4 * interval(iv, D) / 9), 16)
    return growth * (sqrt_up(second) / 2 + 2 * D * sqrt_up(first) / 3 + 8 * last / 9)


@lru_cache(maxsize=1024)
def product_coupling(length: int, epsilon: Fraction) -> Fraction:
    """Bound from above 1 - (1 - epsilon)^length: TV of contexts after steps of TV epsilon each."""
    if epsilon >= 1:
        return Fraction(min(length, 1))
    return unit(upper_value(lambda iv: 1 - _power(iv, length, -epsilon), _cancelled(length, epsilon)))


def _power(iv: Any, T: int, X: Fraction) -> Any:
    """Return (1 + X)^T as an interval."""
    return iv.exp(T * iv.log(1 + interval(iv, X))) if X > -1 else iv.mpf(0)


def _cancelled(T: int, X: Fraction) -> int:
    """Return how many leading bits (1 + X)^T - 1 - T X loses at most."""
    size = X.numerator.bit_length() - X.denominator.bit_length() + T.bit_length()
    return 2 * max(0, -size) + 2 * T.bit_length() + 16


def remaining_weights(T: int, *, epsilon: float | None = None, delta: float | None = None) -> FloatArray:
    r"""Return the array [T] of min(1, (T-t) epsilon, sqrt((T-t) delta/2)), t = 1..T; at most 3 roundings each.

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
