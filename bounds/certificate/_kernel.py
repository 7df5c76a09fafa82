"""The look at the tokens of a log, compiled by numba; bounds/certificate/statistics.py says what is looked for.

Loops are vectors: no branch, no call, and few enough results for the registers. What needs exp, |d| >= 1/2, is rare
and comes after.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from bounds.divergence._compiled import kept
from bounds.divergence.rows import SERIES_RADIUS, k3_series

#: Of the series that stands elsewhere; a test holds it. A new one changes this file, so that what is kept is not used.
SERIES = "d2999cdaf9d35358"
# Sums may be reordered (that is what makes them vectors); nothing is assumed away about inf and NaN.
_sums = njit(fastmath={"contract", "reassoc", "nsz"})
_LARGEST = np.int64(2**63 - 1)
_series = njit(fastmath={"contract"})(k3_series)


@kept
def fill_sums(roll: Any, theta: Any, starts: Any, weights: Any, responses: Any, k3_at: Any, shortfall_at: Any) -> None:
    """Fill the sums, as NumPy does in ``statistics``."""
    for i in range(weights.size):
        x, y = roll[starts[i] : starts[i + 1]], theta[starts[i] : starts[i + 1]]
        d, k3, excess, short, far = _near(x, y, weights[i], k3_at, shortfall_at)
        if far > 0.0:
            more = _far(x, y, weights[i], k3_at, shortfall_at)
            k3, excess, short = k3 + more[0], excess + more[1], short + more[2]
        row = responses[i]
        row.log_ratio_sum, row.k3_sum, row.surrogate_sum, row.shortfall_sum = d, k3, excess, short
        row.least, row.largest = _ends(x, y)


@_sums
def _near(x: Any, y: Any, weight: float, k3_at: Any, shortfall_at: Any) -> Any:
    """Sum over the tokens where the series of k3 converges, and how many others there are."""
    total = k3 = excess = short = far = 0.0
    for t in range(x.size):
        d = y[t] - x[t]
        inside = abs(d) < SERIES_RADIUS
        near = d if inside else 0.0
        divergence = _series(near)
        more = divergence + near
        less = -more if more < 0.0 else 0.0
        total += d
        k3 += divergence
        excess += more
        short += less
        far += 0.0 if inside else 1.0
        k3_at[t] += weight * divergence
        shortfall_at[t] += weight * less
    return total, k3, excess, short, far


@njit
def _far(x: Any, y: Any, weight: float, k3_at: Any, shortfall_at: Any) -> Any:
    k3 = excess = short = 0.0
    for t in range(x.size):
        d = y[t] - x[t]
        if not abs(d) < SERIES_RADIUS:
            more = math.expm1(d)
            divergence = more - d if d < math.inf else math.inf
            less = max(-more, 0.0)
            k3 += divergence
            excess += more
            short += less
            k3_at[t] += weight * divergence
            shortfall_at[t] += weight * less
    return k3, excess, short


@njit
def _ends(x: Any, y: Any) -> Any:
    """Return the least and the largest d, found among whole numbers of the same order, whose search is a vector."""
    low, high = _LARGEST, -_LARGEST
    for t in range(x.size):
        number = _ordered(np.float64(y[t] - x[t]).view(np.int64))
        low = number if number < low else low
        high = number if number > high else high
    return np.int64(_ordered(low)).view(np.float64), np.int64(_ordered(high)).view(np.float64)


@njit
def _ordered(bits: Any) -> Any:
    """Return the bits of a float64 as a number that grows with it; the same once more gives the bits back."""
    return bits ^ ((bits >> np.int64(63)) & _LARGEST)


@kept
def fill_signs(roll: Any, theta: Any, starts: Any, responses: Any, totals: Any, limits: Any) -> None:
    """Fill the signs, as NumPy does in ``statistics``."""
    same, close, alike, improbable, abrupt, true_zero, positive = limits
    total = totals[0]
    for i in range(responses.size):
        x, y = roll[starts[i] : starts[i + 1]], theta[starts[i] : starts[i + 1]]
        row = responses[i]
        row.uncertain, row.same, row.close = _copies(x, y, same, close, true_zero)
        row.tail = _tail(x, y, alike, improbable, abrupt)
        _relation(x, y, total)
        _count(x, y, true_zero, positive, total)


@_sums
def _copies(x: Any, y: Any, same: float, close: float, true_zero: float) -> Any:
    uncertain = near = nearer = 0.0
    for t in range(x.size):
        gap, told = abs(y[t] - x[t]), x[t] < true_zero
        uncertain += 1.0 if told else 0.0
        near += 1.0 if told & (gap <= -close * x[t]) else 0.0
        nearer += 1.0 if told & (gap <= -same * x[t]) else 0.0
    return uncertain, nearer, near


@njit
def _tail(x: Any, y: Any, alike: float, improbable: float, abrupt: float) -> Any:
    t, last = x.size - 1, x[x.size - 1]
    while t >= 0 and (
        (abs(y[t] - x[t]) <= alike and (x[t] == 0.0 or y[t] == 0.0))
        or (y[t] == x[t] and x[t] < improbable and x[t] == last)
    ):
        t -= 1
    n = x.size - 1 - t
    return n if n > 0 and (t < 0 or abs(x[t] - x[t + 1]) > abrupt) else 0


@_sums
def _relation(x: Any, y: Any, total: Any) -> None:
    sx = sd = xx = dd = xd = 0.0
    for t in range(x.size):
        d = y[t] - x[t]
        sx += x[t]
        sd += d
        xx += x[t] * x[t]
        dd += d * d
        xd += x[t] * d
    total.x += sx
    total.d += sd
    total.xx += xx
    total.dd += dd
    total.xd += xd


@njit
def _count(x: Any, y: Any, true_zero: float, above: float, total: Any) -> None:
    unequal = numbers = other_numbers = zeros = other_zeros = positive = told = 0
    for t in range(x.size):
        roll, theta = x[t], y[t]
        unequal += roll != theta
        numbers += roll != 0.0
        other_numbers += theta != 0.0
        zeros += (roll == 0.0) & (theta < true_zero)
        other_zeros += (theta == 0.0) & (roll < true_zero)
        positive += (roll > above) | (theta > above)
        told += (roll < true_zero) & (theta < true_zero)
    total.unequal += unequal
    total.rollout_numbers += numbers
    total.train_numbers += other_numbers
    total.rollout_zeros += zeros
    total.train_zeros += other_zeros
    total.positive += positive
    total.told += told
