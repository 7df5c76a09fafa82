r"""Intervals from bets: finite-sample, for ranges that need to be known on one side only.

With Z >= a, a wealth that starts at 1 and is multiplied by 1 - b_i + b_i (Z_i - a) / (m - a) at each value, b_i in
[0, 1), stays non-negative, and at m = E Z every factor has mean 1. So the wealth K(m) at the true mean has mean 1, and
exceeds 1/alpha with probability at most alpha (Markov). K decreases in m; therefore the m with K(m) = 1/alpha is a
lower limit of the mean at error alpha. K increases in every Z_i, so values that are too small (rounded down, +inf
replaced by the largest float) only lower that limit: it stays valid.

Bets on the other side need Z <= b: they are the same bets on -Z.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds._rounding import round_down
from bounds._text import many
from bounds.intervals.ends import Side, checked_values, error_level, mean_of, prompt_means, prompt_numbers, two_sided
from bounds.results import Interval, Standing

#: Levels f = 1/(1 + 2^k), k = -12..12, of the order-free bets: dense near 0 (long samples) and near 1 (quiet ones).
LEVELS: FloatArray = 1.0 / (1.0 + np.exp2(-np.arange(-12.0, 12.5)))
_BLOCK = 2048  # values multiplied at once: the table of factors stays in the cache
_UNIT = 2.0**-53
_LARGEST_WIN = 1e290  # a larger (Z - a) / (m - a) counts as this much, which only lowers the wealth


def betting(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Bet on a mean, in any order: K(m) = mean over f of prod_i [1 - f + f (Z_i - a) / (m - a)].

    Parameters
    ----------
    values : array [N]
        Independent values of one mean: one for each prompt (:func:`prompt_means`), in any order. May be +inf
        where ``high`` is inf, and -inf where ``low`` is -inf.
    confidence : float
        Probability with which the interval contains the mean, at least, for every N.
    low, high : float
        Range of the values, fixed beforehand. The lower end needs ``low`` only, the upper end ``high`` only; an
        end that lacks its range is vacuous.
    side : "both", "lower" or "upper"
        Where the error may be; the other end is then that of the range.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Raises
    ------
    ValueError
        For no values, NaN, a value outside the range (its index is named), a bad confidence or side.

    Notes
    -----
    The levels f are fixed beforehand, of equal weight: a mean of wealths is a wealth. Taken in order of arrival the
    wealth is a martingale, so that by Ville's inequality the guarantee holds at all times at once. Source:
    Waudby-Smith and Ramdas 2024 (JRSS-B 86), "diversified" bets; for values without an upper range Waudby-Smith et
    al. 2022 (arXiv 2210.10768).

    Examples
    --------
    >>> interval = betting(np.full(128, 0.1), 0.95, low=-1.0, side="lower")
    >>> round(interval.low, 3), interval.high
    (0.067, inf)
    """

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        distinct, count = np.unique(data, return_counts=True)  # shares of a prompt's responses take few values
        return lower_limit(distinct, low, Bets(np.ones(distinct.size), LEVELS, count.astype(np.float64)), alpha)

    return two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, "order-free betting")


def betting_these_prompts(
    values: FloatArray,
    prompt: IntArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Bet, in any order, on the average over the prompts of this batch of each prompt's mean.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt of each response; the responses to a prompt are independent of one another, and of the others.
    confidence, low, high, side
        As in :func:`betting`.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Raises
    ------
    ValueError
        As in :func:`betting`; also if ``prompt`` has another length.

    Notes
    -----
    Every response is a factor of its own, with the bet b_k = f c_k, where c_k = (least number of responses of a
    prompt) / (number of its prompt's), fixed before the values are seen. With lam_k = b_k / (m - a) and mu_k
    the mean of response k's prompt, E prod (1 + lam_k (Z_k - m)) = prod (1 + lam_k (mu_k - m)), factors that are
    not negative; so by the inequality of arithmetic and geometric means it is at most
    (1 + (1/n) sum_k lam_k (mu_k - m))^n. The sum is proportional to the sum over prompts of (mean - m), 0 at the
    target. The wealth has mean at most 1 there, for this fixed n (not at all times at once).

    Examples
    --------
    >>> values, prompt = np.tile([0.0, 0.2], 64), np.repeat(np.arange(16), 8)
    >>> round(betting_these_prompts(values, prompt, 0.95, low=-1.0, side="lower").low, 3)
    0.063
    """
    group = prompt_numbers(np.asarray(values), prompt)
    bets = prompt_bets(group)

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        return lower_limit(data, low, bets, alpha)

    method = f"order-free betting, {many(int(group.max()) + 1, 'prompt')} of this batch"
    interval = two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, method)
    return replace(interval, value=mean_of(prompt_means(np.asarray(values, dtype=np.float64), prompt)))


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


# --- the bets, and what they win -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bets:
    """Bets b_(g, i) = level_g * share_i < 1 of G wealths (their mean is the wealth) on N values."""

    share: FloatArray  # [N], in (0, 1]
    level: FloatArray  # [G], in (0, 1]
    count: FloatArray | float = 1.0  # [N], how many equal values each value stands for: its factor has that exponent


def order_free(n: int) -> Bets:
    """Return the same bet on each of n values, at each of :data:`LEVELS`: the order does not matter."""
    return Bets(np.ones(n), LEVELS)


def prompt_bets(group: IntArray) -> Bets:
    """Return equal bets on all responses to a prompt, inversely to their number, at each of :data:`LEVELS`."""
    count = np.bincount(group)
    return Bets((count.min() / count)[group], LEVELS)


def lower_limit(values: FloatArray, low: float, bets: Bets, alpha: float) -> float:
    r"""Return the m >= low where mean_g prod_i [1 - b + b (Z_i - low) / (m - low)] is 1/alpha, or a little less.

    Parameters
    ----------
    values : array [N]
        Not below ``low``; +inf counts as the largest float.
    low : float
        Range of the values; -inf gives -inf.
    bets : Bets
        On the N values.
    alpha : float
        In (0, 1).

    Returns
    -------
    float
        Never above the m where it is 1/alpha.
    """
    if math.isinf(low):
        return -math.inf
    return round_down(Fraction(low) + Fraction(largest_gap(gains(values, low), bets, alpha)))


def gains(values: FloatArray, low: float) -> FloatArray:
    """Return Z - low, rounded down."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nextafter(np.minimum(values - low, sys.float_info.max), 0.0)


def largest_gap(gain: FloatArray, bets: Bets, alpha: float, start: float = 0.0) -> float:
    """Return a gap m - low where the wealth is 1/alpha or more, as large as rounding allows; 0 if there is none.

    log K is convex and decreasing in log(gap): each factor 1 - b + b s e^-t is, in logarithm. So a Newton step
    from anywhere lands where K >= 1/alpha, and from there the steps rise to the root without passing it. What
    rounding adds is taken back until K is at least 1/alpha with all rounding errors counted against it.
    """
    largest = float(gain.max())
    if largest < 1e-280:
        return 0.0
    target = -math.log(alpha) * (1.0 + 4.0 * _UNIT)
    gap = start or largest * float(np.average(gain / largest, weights=np.broadcast_to(bets.count, gain.shape)))
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


def _factors(gain: FloatArray, bets: Bets, gap: float) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Yield factors [G, block] of the wealths, the part of each that the value brought, and its exponents [block]."""
    count = np.broadcast_to(bets.count, gain.shape)
    for first in range(0, gain.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        bet = bets.level[:, None] * bets.share[block]
        with np.errstate(over="ignore", under="ignore"):
            won = bet * np.minimum(gain[block] / gap, _LARGEST_WIN)
        yield (1.0 - bet) + won, won, count[block]


def _log_wealth(gain: FloatArray, bets: Bets, gap: float) -> tuple[float, float]:
    """Return the log of the wealth, and its derivative by log(gap)."""
    logs, slopes = np.zeros(bets.level.size), np.zeros(bets.level.size)
    for factor, won, count in _factors(gain, bets, gap):
        logs += (count * np.log(factor)).sum(axis=1)
        slopes -= (count * (won / factor)).sum(axis=1)
    with np.errstate(under="ignore"):
        part = np.exp(logs - logs.max())
        return float(logs.max() + math.log(part.mean())), float(part @ slopes / part.sum())


def log_wealth_down(gain: FloatArray, bets: Bets, gap: float) -> float:
    """Return a lower value of the log of the wealth, every rounding error counted.

    A factor carries at most 8 roundings relative to itself, each up to 1/(1 - largest bet) times larger because of
    the 1 - b in it, as often as it counts; a logarithm, times its count, 5 relative to itself; and a sum in blocks
    those of its depth.
    """
    logs, sizes = np.zeros(bets.level.size), np.zeros(bets.level.size)
    for factor, _, count in _factors(gain, bets, gap):
        terms = count * np.log(factor)
        logs += terms.sum(axis=1)
        sizes += np.abs(terms).sum(axis=1)
    steady = 1.0 - bets.level * float(bets.share.max())
    depth = 300 + gain.size // _BLOCK
    values = float(np.broadcast_to(bets.count, gain.shape).sum())
    logs -= _UNIT * (8.0 * values / steady + 2.0 * depth * sizes)
    largest = float(logs.max())
    with np.errstate(under="ignore"):
        mean = float(np.exp(logs - largest).mean())
    return largest + math.log(mean) - 64.0 * _UNIT * (1.0 + abs(largest))
