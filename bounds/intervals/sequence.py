"""An interval after every value, valid at all of them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from bounds._checks import FloatArray, unknown
from bounds._rounding import round_down
from bounds.intervals.betting import order_free, predictable_bets
from bounds.intervals.sample import Side, checked_values, error_level
from bounds.intervals.wealth import Bets, gains, largest_gap, log_wealth_down
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


def _predictable_at_all_times(gain: FloatArray, alpha: float) -> Bets:
    """Bets for no sample size in particular: t log(t + 1) stands for it (Waudby-Smith and Ramdas 2024)."""
    count = np.arange(1.0, gain.size + 1.0)
    return predictable_bets(gain, alpha, count * np.log1p(count))


#: Bets that do not use the sample size: (gain, alpha) -> bets.
SEQUENCES: Mapping[str, Callable[[FloatArray, float], Bets]] = MappingProxyType(
    {"betting": lambda gain, alpha: order_free(gain), "predictable": _predictable_at_all_times}
)


def confidence_sequence(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
    method: str = "betting",
) -> ConfidenceSequence:
    """An interval after each value, valid at all of them together: one may look, and stop, whenever one likes.

    Parameters
    ----------
    values : array [N]
        In order of arrival; each has the same mean given those before it.
    confidence, low, high, side
        As in :func:`betting`.
    method : "betting" or "predictable"
        A name in ``SEQUENCES``.

    Raises
    ------
    ValueError
        As in :func:`betting`; also for a method that is not known.

    Notes
    -----
    Ville's inequality for the wealths of :func:`betting` and of :func:`predictable` (with bets that are made for no
    sample size). Costs O(N^2): some seconds at N = 5,000.

    Examples
    --------
    >>> sequence = confidence_sequence(np.full(40, 0.5), 0.95, low=0.0, high=1.0)
    >>> bool((np.diff(sequence.low) >= 0.0).all()), round(float(sequence.low[-1]), 2)
    (True, 0.45)
    """
    if method not in SEQUENCES:
        raise ValueError(unknown("method", method, SEQUENCES))
    values, low, high = checked_values(values, low, high)
    alpha = error_level(confidence, side)
    bottom, top = np.full(values.size, low), np.full(values.size, high)
    if side != "upper":
        bottom = np.maximum(low, _running_limits(values, low, method, alpha))
    if side != "lower":
        top = np.minimum(high, -_running_limits(-values, -high, method, alpha))
    return ConfidenceSequence(bottom, top, confidence, Standing.MEASURED, f"{method}, valid at all times")


def _running_limits(values: FloatArray, low: float, method: str, alpha: float) -> FloatArray:
    """The largest lower limit so far, after each value."""
    limits = np.full(values.size, low)
    if math.isinf(low):
        return limits
    gain = gains(values, low)
    bets = SEQUENCES[method](gain, alpha)
    gap = 0.0
    for n in range(1, gain.size + 1):
        seen, placed = gain[:n], bets.first(n)
        if gap == 0.0 or log_wealth_down(seen, placed, gap) >= -math.log(alpha):
            gap = max(gap, largest_gap(seen, placed, alpha, gap))
        limits[n - 1] = round_down(Fraction(low) + Fraction(gap))
    return limits
