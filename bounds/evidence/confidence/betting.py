r"""Intervals from bets: finite-sample, for ranges that need to be known on one side only.

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
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds._rounding import round_down
from bounds.evidence.confidence.sample import Side, prompt_numbers, two_sided
from bounds.results import Interval, Standing

#: Fractions that the order-free bets are spread over: dense near 0 (long samples) and near 1 (quiet ones).
FRACTIONS: FloatArray = 1.0 / (1.0 + np.exp2(-np.arange(-14.0, 10.5, 1.0)))
_BLOCK = 8192  # values multiplied at once: the table of factors stays in the cache
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
    r"""Order-free betting: K(m) = mean over f of prod_i [1 - f + f (Z_i - a) / (m - a)].

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

    Raises
    ------
    ValueError
        For no values, NaN, a value outside the range (its index is named), a bad confidence or side.

    Notes
    -----
    The fractions f are :data:`FRACTIONS`, fixed beforehand, of equal weight: a mean of wealths is a wealth. Taken
    in order of arrival the wealth is a martingale, so that by Ville's inequality the guarantee holds at all
    times at once. Source: Waudby-Smith and Ramdas 2024 (JRSS-B 86), "diversified" bets; for values without an upper
    range Waudby-Smith et al. 2022 (arXiv 2210.10768).

    Examples
    --------
    >>> interval = betting(np.full(128, 0.1), 0.95, low=-1.0, side="lower")
    >>> round(interval.low, 3), interval.high
    (0.073, inf)
    """
    return two_sided(_order_free, values, confidence, low, high, side, Standing.MEASURED, "order-free betting")


def _order_free(values: FloatArray, low: float, high: float, alpha: float) -> float:
    return lower_limit(values, low, np.ones(values.size), FRACTIONS, alpha)


def betting_these_prompts(
    values: FloatArray,
    prompt: IntArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Order-free betting on the average, over the prompts of this batch, of each prompt's mean.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt of each response; the responses to a prompt are independent of one another, and of the others.
    confidence, low, high, side
        As in :func:`betting`.

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
    0.074
    """
    group = prompt_numbers(np.asarray(values), prompt)
    count = np.bincount(group)
    weight = (count.min() / count)[group]

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        return lower_limit(data, low, weight, FRACTIONS, alpha)

    method = f"order-free betting, {count.size} prompts of this batch"
    return two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, method)


# --- the wealth, and where it is 1/alpha -------------------------------------------------------------------------


def lower_limit(values: FloatArray, low: float, weight: FloatArray, fractions: FloatArray, alpha: float) -> float:
    r"""The m >= low where mean_f prod_i [1 - f w_i + f w_i (Z_i - low) / (m - low)] is 1/alpha; never above it.

    Parameters
    ----------
    values : array [N]
        Not below ``low``; +inf counts as the largest float.
    low : float
        Range of the values; -inf gives -inf.
    weight : array [N]
        In (0, 1].
    fractions : array [G]
        In (0, 1).
    alpha : float
        In (0, 1).

    Notes
    -----
    log K is convex and decreasing in log(m - low): each factor 1 - b + b s e^-t is, in logarithm. So a Newton step
    from anywhere lands where K >= 1/alpha, and from there the steps rise to the root without passing it; what rounding
    adds is taken back, until K is at least 1/alpha with all rounding errors counted against it.
    """
    if math.isinf(low):
        return -math.inf
    with np.errstate(over="ignore"):
        gain = np.nextafter(np.minimum(values - low, sys.float_info.max), 0.0)
    gap = _root(gain, weight, fractions, alpha, None)
    return round_down(Fraction(low) + Fraction(gap))


def _root(gain: FloatArray, weight: FloatArray, fractions: FloatArray, alpha: float, start: float | None) -> float:
    """A gap m - low with wealth 1/alpha or more, as near to the largest as rounding allows; 0 if there is none."""
    largest = float(gain.max())
    if largest < 1e-280:
        return 0.0
    target = -math.log(alpha) * (1.0 + 4.0 * _UNIT)
    gap = start or largest * float(np.mean(gain / largest))
    for _ in range(100):
        height, slope = _log_wealth(gain, weight, fractions, gap)
        step = min(max((height - target) / -slope, -30.0), 30.0)
        gap *= math.exp(step)
        if gap < 1e-300:
            return 0.0
        if abs(step) < 1e-13:
            break
    back = 1e-14
    while _log_wealth_down(gain, weight, fractions, gap) < target:
        gap *= 1.0 - back
        back = min(2.0 * back, 0.5)
        if gap < 1e-300:
            return 0.0
    return gap


def _factors(
    gain: FloatArray, weight: FloatArray, fractions: FloatArray, gap: float
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Factors [G, block] of the wealths, and the part of each that the value brought."""
    for first in range(0, gain.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        bet = fractions[:, None] * weight[block]
        with np.errstate(over="ignore", under="ignore"):
            won = bet * np.minimum(gain[block] / gap, _LARGEST_WIN)
        yield (1.0 - bet) + won, won


def _log_wealth(gain: FloatArray, weight: FloatArray, fractions: FloatArray, gap: float) -> tuple[float, float]:
    """Log of the wealth, and its derivative by log(gap)."""
    logs, slopes = np.zeros(fractions.size), np.zeros(fractions.size)
    for factor, won in _factors(gain, weight, fractions, gap):
        logs += np.log(factor).sum(axis=1)
        slopes -= (won / factor).sum(axis=1)
    share = np.exp(logs - logs.max())
    return float(logs.max() + math.log(share.mean())), float(share @ slopes / share.sum())


def _log_wealth_down(gain: FloatArray, weight: FloatArray, fractions: FloatArray, gap: float) -> float:
    """A lower value of the log of the wealth, every rounding error counted.

    A factor carries at most 8 roundings relative to itself, each up to 1/(1 - largest bet) times larger because of
    the 1 - b in it; a logarithm 4 relative to itself; and a sum in blocks those of its depth.
    """
    logs, sizes = np.zeros(fractions.size), np.zeros(fractions.size)
    for factor, _ in _factors(gain, weight, fractions, gap):
        terms = np.log(factor)
        logs += terms.sum(axis=1)
        sizes += np.abs(terms).sum(axis=1)
    steady = 1.0 - fractions * float(weight.max())
    depth = 300 + gain.size // _BLOCK
    logs -= _UNIT * (8.0 * gain.size / steady + 2.0 * depth * sizes)
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).mean())) - 64.0 * _UNIT * (1.0 + abs(largest))
