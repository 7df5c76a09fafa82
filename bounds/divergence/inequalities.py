r"""Inequalities between divergences, as upper values.

Plain Pinsker is TV <= sqrt(KL/2). The exact curve (Fedotov, Harremoes, Topsoe 2003) is the best there is:
with s > 0, TV = (s/2) (1 - (coth s - 1/s)^2) at KL = log(s / sinh s) + s coth s - s^2 / sinh^2 s. Any s whose
KL is at least the given one certifies its TV. A cap Lam on \|log theta - log roll\| over the WHOLE vocabulary
gives the conversions; a mask on sampled tokens gives no such cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from bounds._rounding import INFINITE, enclosure, interval, sqrt_up, upper_value

_PLAIN_BELOW = Fraction(1, 10**13)  # there sqrt(KL/2) is within 1e-14 of the curve
_CAP = 750  # exp of a larger cap is beyond the floats
_ONE_ABOVE = 30  # there the curve is within 1e-13 of 1


def pinsker(kl: Fraction) -> Fraction:
    """Return min(1, sqrt(KL/2)): plain Pinsker, as the literature uses it."""
    return min(Fraction(1), sqrt_up(kl / 2))


@lru_cache(maxsize=4096)
def pinsker_curve(kl: Fraction) -> Fraction:
    """Bound the largest TV at a KL by the exact curve, from above, closer than 1e-13 relative.

    >>> round(float(pinsker_curve(Fraction(1))), 4), round(float(pinsker(Fraction(1))), 4)
    (0.6644, 0.7071)
    """
    if kl <= _PLAIN_BELOW:
        return pinsker(kl)
    if kl >= _ONE_ABOVE:
        return Fraction(1)
    context = _digits()
    target = context.mpf(kl.numerator) / kl.denominator
    found = context.findroot(
        lambda s: context.log(_curve_kl(context, s) / target), _around(context, target), "anderson", tol=1e-38
    )
    s = Fraction(str(found)) * (1 + Fraction(1, 10**18))
    while _enclosed(_curve_kl, s)[0] < kl:
        s *= 1 + Fraction(1, 10**18)
    return min(Fraction(1), _enclosed(_curve_tv, s)[1])


def curve_tangent(root: float) -> tuple[Fraction, Fraction]:
    """Return intercept and slope, upper values, of a tangent of the curve over r = sqrt(KL/2), near ``root`` > 0.

    At any s it is TV - KL/s + (2 r/s) r, since dKL = 2 s dTV; the curve is concave in r, so it lies below.
    """
    low, high = _around(math, 2.0 * root**2)
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _curve_kl(math, middle) < 2.0 * root**2 else (low, middle)
    s = Fraction(high)
    kl, tv = _enclosed(_curve_kl, s), _enclosed(_curve_tv, s)
    return tv[1] - kl[0] / s, 2 * sqrt_up(kl[1] / 2) / s


def _enclosed(curve: Callable[[Any, Any], Any], s: Fraction) -> tuple[Fraction, Fraction]:
    return enclosure(lambda iv: curve(iv, interval(iv, s)), _BITS)


_BITS = 200  # s >= 4e-7, so at most 4 * 22 bits cancel


def _curve_kl(iv: Any, s: Any) -> Any:
    """Return KL at s, with e = exp(-2s) so that nothing overflows."""
    e = iv.exp(-2 * s)
    return iv.log(2 * s) - iv.log(1 - e) + 2 * s * e / (1 - e) - 4 * s**2 * e / (1 - e) ** 2


def _curve_tv(iv: Any, s: Any) -> Any:
    e = iv.exp(-2 * s)
    slope = (1 + e) / (1 - e) - 1 / s
    return s / 2 * (1 - slope**2)


@lru_cache(maxsize=1)
def _digits() -> Any:
    """Return numbers of 50 digits, of which up to 27 cancel in the KL at a small s."""
    import mpmath

    context = mpmath.MPContext()
    context.dps = 50
    return context


def _around(context: Any, kl: Any) -> tuple[Any, Any]:
    """Return two numbers around the s of a KL; ``context`` is where sqrt and exp come from."""
    if kl < 1:
        root = context.sqrt(2 * kl)  # s = root (1 + KL/6 + ...)
        return root, root * (1 + kl / 4)
    limit = context.exp(kl) / 2  # of s as KL grows, from above
    return limit, limit * 1.3


def binary_kl_low(p: Fraction, q: Fraction) -> Fraction:
    """Bound kl(p||q) = p log(p/q) + (1-p) log((1-p)/(1-q)) of two probabilities from below, closer than 1e-29 relative.

    >>> float(binary_kl_low(Fraction(1, 2), Fraction(1, 4)))
    0.14384103622589045
    """
    if p == q:
        return Fraction(0)
    if q in (0, 1):
        return INFINITE
    parts = [(a, b) for a, b in ((p, q), (1 - p, 1 - q)) if a]
    lost = 2 * (abs(p - q).denominator.bit_length() - abs(p - q).numerator.bit_length()) + 64  # as kl >= 2 (p-q)^2
    return enclosure(lambda iv: sum(interval(iv, a) * iv.log(interval(iv, a / b)) for a, b in parts), max(lost, 64))[0]


def _converted(expression: Callable[[Any, Any], Any], cap: Fraction, beyond: Fraction = INFINITE) -> Fraction:
    if cap > _CAP:
        return beyond
    size = max(0, cap.denominator.bit_length() - cap.numerator.bit_length())
    return upper_value(lambda iv: expression(iv, interval(iv, cap)), bits=4 * size + 64)


@lru_cache(maxsize=1024)
def chi2_per_kl(cap: Fraction) -> Fraction:
    r"""Return the factor of chi2 <= (e^Lam - 1)^2 / (e^Lam - 1 - Lam) KL for \\|log ratio\\| <= Lam (2 at Lam = 0)."""
    if cap == 0:
        return Fraction(2)
    return _converted(lambda iv, x: (iv.exp(x) - 1) ** 2 / (iv.exp(x) - 1 - x), cap)


@lru_cache(maxsize=1024)
def chi2_per_tv(cap: Fraction) -> Fraction:
    r"""Return the factor of chi2 <= 2 sinh(Lam) TV where \\|log ratio\\| <= Lam."""
    return _converted(lambda iv, x: iv.exp(x) - iv.exp(-x), cap)


@lru_cache(maxsize=1024)
def tv_of_cap(cap: Fraction) -> Fraction:
    r"""Return the bound TV <= tanh(Lam/2) where \\|log ratio\\| <= Lam."""
    return min(Fraction(1), _converted(lambda iv, x: (1 - iv.exp(-x)) / (1 + iv.exp(-x)), cap, beyond=Fraction(1)))


def kl_of_cap(cap: Fraction) -> Fraction:
    r"""Return the bound KL <= Lam tanh(Lam/2) where \\|log ratio\\| <= Lam."""
    return cap * tv_of_cap(cap)
