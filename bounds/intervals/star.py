r"""STaR bets: each aims at the wealth that is still missing, by means of the values that are still to come.

A wealth W(m) starts at 1 and is multiplied by 1 + lam_t (Z_t - m) at each value, where lam_t >= 0 looks at earlier
values only and is so small that no factor is negative. Where no mean is above m, W(m) has mean 1 at most. So has the
mean of W(m) over orders of the values that were fixed without looking at them, and half of that with half of an
order-free wealth K(m) (:mod:`bounds.intervals.betting`): it is 1/alpha or more with probability alpha at most.

W need not decrease in m. So a lower limit is found on a grid that is fixed beforehand: the scan goes up, stops at the
first point where the wealth is too small, and returns the point before. If that exceeds the mean, the wealth was large
at the least grid point above the mean, which has probability alpha at most. It begins where K alone is 2/alpha, since K
decreases: so no limit is further than that of order-free bets by more than log 2 in the logarithm of the wealth.

The number of values must be fixed beforehand: unlike K, W says nothing of a sample that may still grow.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray, refuse
from bounds._rounding import round_down
from bounds.intervals.betting import LEVELS, Bets, gains, largest_gap, log_wealth_down, log_wealth_slope
from bounds.intervals.ends import Side, checked_values, mean_of, two_sided
from bounds.results import Interval, Standing

Keys = npt.NDArray[np.uint64]

_ORDERS = 16
_MOST = 2**15  # more values are bet on in blocks of equal size, by their means
_BETS = 256  # are worked out; each is on at most _MOST / _BETS values in a row
_STEP = 0.05  # of the grid, relative to the distance from the range, times N (its root, and that of _FINE, if larger)
_FINE = 512
_AT_ONCE = 32  # points of the grid
_WORK = 2**16  # this many of them, divided by N, but 4 to 32 times as many: then the last one is the limit
_EARLY = 0.003  # added to the second moment, relative to the squared distance from the range; times N/t^2
_LARGEST_BET = 0.999  # of the bet that could lose all, so that no factor is below .001
_LARGEST_WIN = 1e150  # a larger (Z - a) / (m - a) counts as this much, which only lowers the wealth
_UNIT = 2.0**-53


def star(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
    keys: Keys | None = None,
) -> Interval:
    r"""Bet on a mean by half in any order, and by half so as to reach 2/alpha with the values that are to come.

    The bets of the second half are lam_t = min(sqrt(2 (log(2/alpha) - log W_{t-1})^+ / ((N-t+1) S_t)), .999 / (m-a)),
    with S_t a running second moment about m.

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`~bounds.intervals.betting`, with its refusals; N must be fixed beforehand.
    keys : array [N] of uint64, optional
        Names of the values, such as hashed prompt ids, chosen without looking at the values. They alone decide in which
        orders the values are bet on, so that the order given does not matter; without them it does. What is assumed
        then is that the values, in the order of their keys however mixed, are independent draws with one mean: that a
        hash says no more of its prompt than a random number would.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Notes
    -----
    The proof is that of this module. A higher confidence aims at another wealth and may, rarely, come out narrower; so
    it must be chosen beforehand. The values must be independent draws with one mean: an average over fixed means
    (these prompts) can be missed for certain. Source of the bets: Voracek and Orabona 2025 (arXiv 2505.22422).

    Examples
    --------
    >>> interval = star(np.full(128, 0.1), 0.95, low=-1.0, side="lower")
    >>> round(interval.low, 3), interval.high
    (0.072, inf)
    """
    data, _, _ = checked_values(values, low, high)
    if keys is None:
        keys = np.arange(data.size, dtype=np.uint64)
    elif keys.shape != data.shape:
        refuse("keys", f"one for each value (shape {data.shape})", f"shape {keys.shape}")
    orders = orders_of(keys)

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        unit = high - low if math.isfinite(high - low) else 1.0
        return _star_end(data, low, unit, alpha, orders)

    method = "half STaR bets, half order-free ones"
    return two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, method)


def _star_end(values: FloatArray, low: float, unit: float, alpha: float, orders: list[IntArray]) -> float:
    """Return a lower limit of the mean, at error ``alpha``; the grid of m - low is that of this ``unit``."""
    if math.isinf(low):
        return -math.inf
    gain = gains(values, low)
    distinct, count = np.unique(gain, return_counts=True)
    bets = Bets(np.ones(distinct.size), LEVELS, count.astype(np.float64))
    start = largest_gap(distinct, bets, alpha / 2.0)
    if start <= 0.0:
        return low
    step, target = grid_step(gain.size), math.log(2.0 / alpha)
    blocks = np.stack([_blocks(gain[order]) for order in orders])
    needed = math.exp(target) * (1.0 + 64.0 * _UNIT)
    place = math.floor(
        (math.log(start) - math.log(unit)) / step - 1e-6
    )  # of the last point of the grid where K alone is enough
    for _ in range(min(max(_WORK // gain.size, 4), 32)):
        grid = np.array([unit * math.exp(step * k) for k in range(place, place + 1 + _AT_ONCE)])
        by_star = np.exp(np.minimum(log_wealths(blocks, grid[1:], target), 700.0)).mean(axis=0) * (1.0 - 64.0 * _UNIT)
        # log K is convex in the logarithm of the gap, so that a tangent is below it
        middle = grid[_AT_ONCE // 2]
        tangent = log_wealth_slope(distinct, bets, middle) * np.log(grid[1:] / middle) - 1e-9
        order_free = np.exp(np.minimum(log_wealth_down(distinct, bets, middle) + tangent, 700.0))
        short = by_star + order_free < needed
        if short.any():
            break
        place += _AT_ONCE
    gap = unit * math.exp(step * (place + int(np.argmax(short))))
    return min(round_down(Fraction(low) + Fraction(gap)), mean_of(values))  # ends of both sides shall not cross


def grid_step(n: int) -> float:
    """Return the distance of points of the grid, in the logarithm of m - low."""
    return _STEP / math.sqrt(n * min(n, _FINE))


def orders_of(keys: Keys, count: int = _ORDERS) -> list[IntArray]:
    """Return permutations that depend on the keys alone: of these mixed with the number of each, by splitmix64."""
    found = []
    for k in range(count):
        mixed = keys + np.uint64((k + 1) * 0x9E3779B97F4A7C15 % 2**64)
        for shift, odd in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(odd)
        found.append(np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable"))
    return found


def _blocks(gain: FloatArray) -> FloatArray:
    """Return the means of blocks of equal size, rounded down; on a rest nothing is bet."""
    size = -(-gain.size // _MOST)
    whole = gain[: gain.size - gain.size % size].reshape(-1, size)
    return np.asarray(whole.sum(axis=1) / size * (1.0 - 4.0 * (size - 1) * _UNIT))


def log_wealths(gain: FloatArray, gaps: FloatArray, target: float) -> FloatArray:
    """Return lower values of the log of W(low + gap), in each order [orders, gaps]; ``gain`` is [orders, values].

    In units of the gap a value is -1 or more, and what can be bet below 1. The bet is the same on some values in a row,
    so that there are not many to work out. Each factor is .001 or more: it carries at most 8,000 roundings relative to
    itself.
    """
    n = gain.shape[1]
    wealth, squares = np.zeros((gain.shape[0], gaps.size)), np.zeros((gain.shape[0], gaps.size))
    ends = np.linspace(0, n, min(n, _BETS) + 1).astype(np.int64)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        for t, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            moment = squares / max(t, 1) + _EARLY * n / (t + 1.0) ** 2
            bet = np.minimum(np.sqrt(np.maximum(target - wealth, 0.0) * (2.0 / (n - t)) / moment), _LARGEST_BET)
            value = np.minimum(gain[:, t:end, None] / gaps, _LARGEST_WIN) - 1.0
            wealth += np.log(np.minimum((1.0 + bet[:, None] * value).prod(axis=1), _LARGEST_WIN))
            squares += np.square(value).sum(axis=1)
    return np.asarray(wealth - n * _UNIT * (8000.0 + np.abs(wealth)))
