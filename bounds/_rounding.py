"""Outward rounding: what is printed as an upper bound is never below the true value.

Scalar formulas are evaluated in exact rational arithmetic (:class:`fractions.Fraction`) and rounded to
float64 once, upward, at the very end. Irrational numbers in them, nearly all of them square roots, are
enclosed to 160 bits. So a rule can be written as plain mathematics, and no count of rounding errors is
needed to believe it. Long arrays stay float64 and are summed with a proved error margin.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray

#: Stands for +inf inside exact formulas: min(1, INFINITE) = 1, and even its fourth root rounds to inf.
INFINITE = Fraction(2) ** 10_000
_ROOT_BITS = 160
_UNIT = Fraction(1, 2**53)


def exact(x: float) -> Fraction:
    """Return the rational number that a float is; +inf becomes :data:`INFINITE`. NaN raises ValueError."""
    return INFINITE if x == math.inf else Fraction(x)


def round_up(x: Fraction) -> float:
    """Return the smallest float64 that is not below the rational ``x``, or +inf beyond the largest."""
    try:
        nearest = x.numerator / x.denominator
    except OverflowError:
        return math.inf if x > 0 else -sys.float_info.max
    numerator, denominator = nearest.as_integer_ratio()
    return nearest if numerator * x.denominator >= x.numerator * denominator else math.nextafter(nearest, math.inf)


def round_down(x: Fraction) -> float:
    """Return the largest float64 that is not above the rational ``x``, or -inf below the least."""
    return 0.0 - round_up(-x)  # never -0.0


def sqrt_enclosure(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals low <= sqrt(x) <= high, equal for perfect squares, else 2^-79 apart (relative) or less."""
    up = (_ROOT_BITS - x.numerator.bit_length() + x.denominator.bit_length()) // 2
    up, down = max(up, 0), max(-up, 0)
    numerator, denominator = x.numerator << 2 * up, x.denominator << 2 * down
    root = math.isqrt(numerator // denominator)
    low = Fraction(root << down, 1 << up)
    return (low, low) if root * root * denominator == numerator else (low, Fraction(root + 1 << down, 1 << up))


def sqrt_up(x: Fraction) -> Fraction:
    """Return an upper value of sqrt(x), closer than 2^-79 relative."""
    return sqrt_enclosure(x)[1]


def largest_integer(holds: Callable[[int], bool], low: int, high: int, near: int | None = None) -> int | None:
    """Find the largest integer in [low, high] where a predicate holds that is true up to somewhere; None if nowhere.

    Safe side: ``holds`` was seen to be true at the answer, and false right above it. A guess ``near`` it saves time:
    from there the search goes in steps that double, until the answer is between two of them.
    """
    if holds(high):
        return high
    if not holds(low):
        return None
    probe, step = low if near is None else near, 1
    while low < probe < high:
        if holds(probe):
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def largest_float(holds: Callable[[float], bool], low: float, high: float, near: float | None = None) -> float | None:
    """Find the same among the float64 numbers from ``low`` >= 0 to ``high`` (inf allowed)."""

    def number(k: int) -> float:
        return float(np.int64(k).view(np.float64))

    def place(x: float) -> int:
        return int(np.float64(x).view(np.int64))  # in the order of the floats

    found = largest_integer(lambda k: holds(number(k)), place(low), place(high), None if near is None else place(near))
    return None if found is None else number(found)


def sum_up(terms: FloatArray, roundings: int = 0) -> Fraction:
    """Bound from above the exact sum of non-negative float64 terms (inf allowed).

    ``roundings`` says how many float64 roundings each term already carries. The margin is that of any
    summation tree of depth at most 256 + log2(n) (NumPy sums pairwise in blocks of 128), so it stays below
    1e-13 relative.
    """
    return _raised(float(np.sum(np.ascontiguousarray(terms))), terms.size, roundings)


def _raised(total: float, size: int, roundings: int) -> Fraction:
    depth = 256 + max(size, 1).bit_length() + roundings
    return exact(total) * (1 + 2 * depth * _UNIT)


def dot_up(a: FloatArray, b: FloatArray, roundings: int = 0) -> Fraction:
    """Bound from above sum(a * b) for non-negative arrays; ``roundings``: those that a and b carry.

    Products that underflow lose at most one smallest subnormal each. An infinite entry times 0 is 0: an empty term.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        total = _dot(a, b)
    if 1e-280 < total < math.inf:
        return _raised(total, a.size, roundings + _BLOCK) + Fraction(math.ulp(0.0)) * a.size
    return _scaled_dot_up(a, b, roundings)


_BLOCK = 512


def _dot(a: FloatArray, b: FloatArray) -> float:
    """Compute sum(a * b) in blocks of 512; within one the order does not matter to the margin: each adds 511 times."""
    whole = a.size - a.size % _BLOCK
    blocks = np.matmul(a[:whole].reshape(-1, 1, _BLOCK), b[:whole].reshape(-1, _BLOCK, 1))
    return float(np.sum(blocks)) + float(a[whole:] @ b[whole:])


def _scaled_dot_up(a: FloatArray, b: FloatArray, roundings: int) -> Fraction:
    """Bound the same where the sum is 0, beyond the floats, NaN from 0 * inf, or so small that underflow counts.

    Both are scaled by powers of two to have their largest entry near 1.
    """
    both = (a > 0.0) & (b > 0.0)
    if not both.any():
        return Fraction(0)
    shift_a, shift_b = (math.frexp(float(x.max()))[1] for x in (a, b))  # 0 of inf
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        products = np.where(both, np.ldexp(a, -shift_a) * np.ldexp(b, -shift_b), 0.0)
        total, underflowed = float(np.sum(products)), int(np.count_nonzero(both & (products < sys.float_info.min)))
    if math.isinf(total):
        return INFINITE
    least = Fraction(math.ulp(0.0)) * underflowed
    return (_raised(total, a.size, roundings + 1) + least) * Fraction(2) ** (shift_a + shift_b)


def enclosure(function: Callable[[Any], Any], bits: int = 0) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper value, each closer than 2^-99 relative, of a non-negative transcendental expression.

    ``function`` takes mpmath's interval context and returns an interval; ``bits`` is how many leading bits
    may cancel in it, and 160 more are carried. The ends of mpmath's exp and log can be wrong in their last
    bits (seen: 2^-176 relative after cancellation), so both ends are moved outward by 2^-100.
    """
    context = _interval_context()
    context.prec = _ROOT_BITS + bits
    value = function(context)
    return rational(value.a) * (1 - Fraction(1, 2**100)), rational(value.b) * (1 + Fraction(1, 2**100))


def upper_value(function: Callable[[Any], Any], bits: int = 0) -> Fraction:
    """Return the upper value of :func:`enclosure`."""
    return enclosure(function, bits)[1]


def interval(context: Any, x: Fraction) -> Any:
    """Return a rational as an interval of the context."""
    return context.mpf(x.numerator) / context.mpf(x.denominator)


@cache
def _interval_context() -> Any:
    from mpmath.ctx_iv import MPIntervalContext

    return MPIntervalContext()


def rational(end: Any) -> Fraction:
    """Return the rational that one end of an interval (itself an interval of width 0) is."""
    sign, mantissa, exponent, _ = end._mpi_[1]
    if not mantissa and exponent:
        return INFINITE  # mpmath's inf (or nan, of which nothing is known)
    size = Fraction(mantissa) * (Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent))
    return -size if sign else size
