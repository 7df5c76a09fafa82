"""An interval after every value, valid at all of them together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import round_down
from bounds.intervals.betting import gains, largest_gap, log_wealth_down, order_free
from bounds.intervals.ends import Side, checked_values, error_level
from bounds.results import Standing


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """Lower and upper ends after each value [N]; at that confidence the mean lies within all of them at once.

    Ends are running intersections: they never widen. Where they cross (low > high), that happened of which the
    probability is at most 1 - confidence, or the values do not share one mean.
    """

    low: FloatArray
    high: FloatArray
    confidence: float
    standing: Standing
    method: str


def confidence_sequence(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> ConfidenceSequence:
    """Bet after each value, valid at all of them together: one may look, and stop, whenever one likes.

    Parameters
    ----------
    values : array [N]
        In order of arrival; each has the same mean given those before it.
    confidence, low, high, side
        As in :func:`betting`.

    Returns
    -------
    ConfidenceSequence

    Raises
    ------
    ValueError
        As in :func:`betting`.

    Notes
    -----
    Ville's inequality for the wealth of :func:`betting`. Costs O(N^2): some seconds at N = 5,000.

    Examples
    --------
    >>> sequence = confidence_sequence(np.full(40, 0.5), 0.95, low=0.0, high=1.0)
    >>> bool((np.diff(sequence.low) >= 0.0).all()), round(float(sequence.low[-1]), 2)
    (True, 0.45)
    """
    values, low, high = checked_values(values, low, high)
    alpha = error_level(confidence, side)
    bottom, top = np.full(values.size, low), np.full(values.size, high)
    if side != "upper":
        bottom = np.maximum(low, _running_limits(values, low, alpha))
    if side != "lower":
        top = np.minimum(high, -_running_limits(-values, -high, alpha))
    return ConfidenceSequence(bottom, top, confidence, Standing.MEASURED, "order-free betting, valid at all times")


def _running_limits(values: FloatArray, low: float, alpha: float) -> FloatArray:
    """Return the largest lower limit so far, after each value."""
    limits = np.full(values.size, low)
    if math.isinf(low):
        return limits
    gain = gains(values, low)
    gap = 0.0
    for n in range(1, gain.size + 1):
        seen, bets = gain[:n], order_free(n)
        if gap == 0.0 or log_wealth_down(seen, bets, gap) >= -math.log(alpha):
            gap = max(gap, largest_gap(seen, bets, alpha, gap))
        limits[n - 1] = round_down(Fraction(low) + Fraction(gap))
    return limits
