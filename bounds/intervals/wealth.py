r"""The wealth of a bettor who bets against a mean, and the mean at which it is too large to be believed.

With Z >= a, a wealth that starts at 1 and is multiplied by 1 - b_i + b_i (Z_i - a) / (m - a) at each value,
b_i in [0, 1), stays non-negative, and at m = E Z every factor has mean 1. So the wealth K(m) at the true
mean has mean 1, and exceeds 1/alpha with probability at most alpha (Markov). K decreases in m; therefore the m
with K(m) = 1/alpha is a lower limit of the mean at error alpha. K increases in every Z_i, so values that are too
small (rounded down, +inf replaced by the largest float) only lower that limit: it stays valid.

Bets on the other side need Z <= b: they are the same bets on -Z.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import round_down

_BLOCK = 2048  # values multiplied at once: the table of factors stays in the cache
_UNIT = 2.0**-53
_LARGEST_WIN = 1e290  # a larger (Z - a) / (m - a) counts as this much, which only lowers the wealth


@dataclass(frozen=True, slots=True)
class Bets:
    """Bets b_(g, i) = level_g * share_i < 1 of G wealths (their mean is the wealth) on N values."""

    share: FloatArray  # [N], in (0, 1]
    level: FloatArray  # [G], in (0, 1]

    def first(self, n: int) -> Bets:
        """The bets on the first n values."""
        return Bets(self.share[:n], self.level)


def lower_limit(values: FloatArray, low: float, strategy: Callable[[FloatArray], Bets], alpha: float) -> float:
    r"""The m >= low where mean_g prod_i [1 - b + b (Z_i - low) / (m - low)] is 1/alpha, b = b_(g, i); never above it.

    Parameters
    ----------
    values : array [N]
        Not below ``low``; +inf counts as the largest float.
    low : float
        Range of the values; -inf gives -inf.
    strategy
        From the gains Z - low [N] to bets.
    alpha : float
        In (0, 1).
    """
    if math.isinf(low):
        return -math.inf
    gain = gains(values, low)
    return round_down(Fraction(low) + Fraction(largest_gap(gain, strategy(gain), alpha)))


def gains(values: FloatArray, low: float) -> FloatArray:
    """Z - low, rounded down."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nextafter(np.minimum(values - low, sys.float_info.max), 0.0)


def largest_gap(gain: FloatArray, bets: Bets, alpha: float, start: float = 0.0) -> float:
    """A gap m - low where the wealth is 1/alpha or more, as large as rounding allows; 0 if there is none.

    log K is convex and decreasing in log(gap): each factor 1 - b + b s e^-t is, in logarithm. So a Newton step
    from anywhere lands where K >= 1/alpha, and from there the steps rise to the root without passing it. What
    rounding adds is taken back until K is at least 1/alpha with all rounding errors counted against it.
    """
    largest = float(gain.max())
    if largest < 1e-280:
        return 0.0
    target = -math.log(alpha) * (1.0 + 4.0 * _UNIT)
    gap = start or largest * float(np.mean(gain / largest))
    for _ in range(100):
        height, slope = _log_wealth(gain, bets, gap)
        step = min(max((height - target) / -slope, -30.0), 30.0)
        gap *= math.exp(step)
        if abs(step) < 1e-13 or gap < 1e-300:
            break
    back = 1e-14
    while gap >= 1e-300:
        if log_wealth_down(gain, bets, gap) >= target:
            return gap
        gap *= 1.0 - back
        back = min(2.0 * back, 0.5)
    return 0.0


def _factors(gain: FloatArray, bets: Bets, gap: float) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Factors [G, block] of the wealths, and the part of each that the value brought."""
    for first in range(0, gain.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        bet = bets.level[:, None] * bets.share[block]
        with np.errstate(over="ignore", under="ignore"):
            won = bet * np.minimum(gain[block] / gap, _LARGEST_WIN)
        yield (1.0 - bet) + won, won


def _log_wealth(gain: FloatArray, bets: Bets, gap: float) -> tuple[float, float]:
    """Log of the wealth, and its derivative by log(gap)."""
    logs, slopes = np.zeros(bets.level.size), np.zeros(bets.level.size)
    for factor, won in _factors(gain, bets, gap):
        logs += np.log(factor).sum(axis=1)
        slopes -= (won / factor).sum(axis=1)
    with np.errstate(under="ignore"):
        part = np.exp(logs - logs.max())
        return float(logs.max() + math.log(part.mean())), float(part @ slopes / part.sum())


def log_wealth_down(gain: FloatArray, bets: Bets, gap: float) -> float:
    """A lower value of the log of the wealth, every rounding error counted.

    A factor carries at most 8 roundings relative to itself, each up to 1/(1 - largest bet) times larger because of
    the 1 - b in it; a logarithm 4 relative to itself; and a sum in blocks those of its depth.
    """
    logs, sizes = np.zeros(bets.level.size), np.zeros(bets.level.size)
    for factor, _ in _factors(gain, bets, gap):
        terms = np.log(factor)
        logs += terms.sum(axis=1)
        sizes += np.abs(terms).sum(axis=1)
    steady = 1.0 - bets.level * float(bets.share.max())
    depth = 300 + gain.size // _BLOCK
    logs -= _UNIT * (8.0 * gain.size / steady + 2.0 * depth * sizes)
    largest = float(logs.max())
    with np.errstate(under="ignore"):
        mean = float(np.exp(logs - largest).mean())
    return largest + math.log(mean) - 64.0 * _UNIT * (1.0 + abs(largest))
