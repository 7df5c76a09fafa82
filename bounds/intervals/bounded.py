"""Finite-sample intervals for values whose range is known on both sides: the textbook ones, for comparison.

Where the range is infinite, or the sample too small, they are vacuous: the ends are those of the range.
Every end is computed in exact rational arithmetic and rounded outward once.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray, refuse
from bounds._rounding import dot_up, exact, interval, round_down, sqrt_up, sum_up, upper_value
from bounds.intervals.ends import Side, checked_values, two_sided
from bounds.results import Interval, Standing


def hoeffding(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Bound a mean by Hoeffding's inequality.

    Each end is mean -+ (high - low) sqrt(log(1/alpha) / (2N)), at error alpha.

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`~bounds.intervals.betting`, with its refusals; both ends need the whole range.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Notes
    -----
    Source: Hoeffding 1963 (JASA 58), theorem 2.

    Examples
    --------
    >>> round(hoeffding(np.full(200, 0.5), 0.95, low=0.0, high=1.0, side="lower").low, 4)
    0.4135
    """
    return two_sided(_hoeffding_end, values, confidence, low, high, side, Standing.MEASURED, "Hoeffding")


def _hoeffding_end(values: FloatArray, low: float, high: float, alpha: float) -> float:
    if math.isinf(high - low):
        return low
    width = Fraction(high) - Fraction(low)
    return round_down(_mean_down(values) - width * sqrt_up(_log_up(1 / Fraction(alpha)) / (2 * values.size)))


def empirical_bernstein(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Bound a mean by its sample variance (empirical Bernstein).

    Each end is mean -+ (sqrt(2 V l / N) + 7 (high - low) l / (3 (N - 1))), l = log(2/alpha).

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`~bounds.intervals.betting`, with its refusals; both ends need the whole range.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Notes
    -----
    V is the sample variance (divisor N - 1); each end is at error alpha. Source: Maurer and Pontil 2009 (COLT),
    theorem 4 (arXiv 0907.3740). One value says nothing.

    Examples
    --------
    >>> round(empirical_bernstein(np.full(200, 0.5), 0.95, low=0.0, high=1.0, side="lower").low, 4)
    0.4567
    """
    method = "empirical Bernstein"
    return two_sided(_empirical_bernstein_end, values, confidence, low, high, side, Standing.MEASURED, method)


def _empirical_bernstein_end(values: FloatArray, low: float, high: float, alpha: float) -> float:
    n = values.size
    if math.isinf(high - low) or n < 2:
        return low
    # about any center the squares sum to at least what they do about the mean
    with np.errstate(over="ignore"):
        distance = np.abs(values - float(_mean_down(values)))
    variance = dot_up(distance, distance, roundings=2) / (n - 1)
    log = _log_up(2 / Fraction(alpha))
    width = Fraction(high) - Fraction(low)
    return round_down(_mean_down(values) - sqrt_up(2 * variance * log / n) - 7 * width * log / (3 * (n - 1)))


def clopper_pearson(
    values: FloatArray,
    confidence: float,
    *,
    low: float = 0.0,
    high: float = 1.0,
    side: Side = "both",
) -> Interval:
    r"""Return Clopper-Pearson's exact interval of a share, of values that are ``low`` or ``high``, nothing between.

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`~bounds.intervals.betting`.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Raises
    ------
    ValueError
        As in :func:`~bounds.intervals.betting`; also for a value between ``low`` and ``high``.

    Notes
    -----
    With k values at ``high``, the lower end is the share p at which a binomial count of k or more has probability
    alpha. Source: Clopper and Pearson 1934 (Biometrika 26).

    Examples
    --------
    >>> round(clopper_pearson(np.array([0.0, 1.0, 1.0, 1.0]), 0.95).low, 4)
    0.1941
    """
    values, low, high = checked_values(values, low, high)
    between = (values > low) & (values < high)
    if between.any():
        first = int(np.argmax(between))
        refuse(f"values[{first}]", f"{low:g} or {high:g} for Clopper-Pearson", f"{values[first]:.17g}")
    return two_sided(_clopper_pearson_end, values, confidence, low, high, side, Standing.MEASURED, "Clopper-Pearson")


def _clopper_pearson_end(values: FloatArray, low: float, high: float, alpha: float) -> float:
    share = _least_share(int(np.count_nonzero(values == high)), values.size, alpha)
    return round_down(Fraction(low) + Fraction(share) * (Fraction(high) - Fraction(low)))


@lru_cache(maxsize=4096)
def _least_share(k: int, n: int, alpha: float) -> float:
    """Return the share at which a binomial count of n is k or more with probability alpha, or a little below."""
    from scipy.special import betaincinv

    if k == 0:
        return 0.0
    share = min(float(betaincinv(k, n - k + 1, alpha)), math.nextafter(1.0, 0.0))
    back = 1e-14
    while _binomial_tail_up(k, n, share) > Fraction(alpha):
        share *= 1.0 - back
        back = min(2.0 * back, 0.5)
    return share


def _binomial_tail_up(k: int, n: int, share: float) -> Fraction:
    """Return an upper value of the probability that a binomial count of n is k or more.

    The first term is enclosed; the others are it times a running product of ratios, at most 6 roundings each.
    """
    p = Fraction(share)
    if p == 0:
        return Fraction(0)

    def first(c: Any) -> Any:
        choose = c.loggamma(c.mpf(n + 1)) - c.loggamma(c.mpf(k + 1)) - c.loggamma(c.mpf(n - k + 1))
        return c.exp(choose + k * c.log(interval(c, p)) + (n - k) * c.log(interval(c, 1 - p)))

    count = np.arange(float(k), float(n))
    with np.errstate(under="ignore"):
        products = np.cumprod((n - count) / (count + 1.0) * (share / (1.0 - share)))
    rest = sum_up(np.asarray(products, dtype=np.float64), roundings=6 * (n - k + 1)) + (n - k) * Fraction(
        sys.float_info.min
    )
    return upper_value(first, bits=128) * (1 + rest)


@cache
def _log_up(x: Fraction) -> Fraction:
    """Return an upper value of log(x), x > 1."""
    return upper_value(lambda c: c.log(interval(c, x)), bits=64)


def _mean_down(values: FloatArray) -> Fraction:
    """Return a lower value of the mean of finite values, closer than an ulp of the largest."""
    scale = math.frexp(float(np.abs(values).max()))[1]
    with np.errstate(under="ignore"):
        total = math.fsum(np.ldexp(values, -scale).tolist())
    below = exact(math.nextafter(total, -math.inf)) - values.size * Fraction(math.ulp(0.0))
    return below * Fraction(2) ** scale / values.size
