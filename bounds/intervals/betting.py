"""Intervals from bets: finite-sample, for ranges that need to be known on one side only."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds._text import many
from bounds.intervals.sample import Side, mean_of, prompt_means, prompt_numbers, two_sided
from bounds.intervals.wealth import Bets, lower_limit
from bounds.results import Interval, Standing

#: Levels f = 1/(1 + 2^k), k = -12..12, of the order-free bets: dense near 0 (long samples) and near 1 (quiet ones).
LEVELS: FloatArray = 1.0 / (1.0 + np.exp2(-np.arange(-12.0, 12.5)))
_ONE_LEVEL: FloatArray = np.ones(1)
_LARGEST_BET = 0.9  # of the predictable bets; a value at its range's end costs a factor 1 - this
_FIRST_SPREAD = 0.25  # squared coefficient of variation that the predictable bets expect before the first value


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
    return two_sided(_order_free_end, values, confidence, low, high, side, Standing.MEASURED, "order-free betting")


def predictable(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Predictable betting: each bet is chosen from the values before it; their order matters.

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`betting`, in order of arrival (an order that does not depend on the values).

    Raises
    ------
    ValueError
        As in :func:`betting`.

    Notes
    -----
    Each bet looks at earlier values only, and is made for the N values there are. Source: Waudby-Smith and Ramdas 2024
    (JRSS-B 86), "predictable plug-in" bets; here as a share of the largest bet allowed, so that they need the range
    on one side only and no scale. To look after every value use :func:`confidence_sequence`.

    Examples
    --------
    >>> interval = predictable(np.full(128, 0.1), 0.95, low=-1.0, side="lower")
    >>> round(interval.low, 3), interval.high
    (0.072, inf)
    """

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        return lower_limit(data, low, lambda gain: predictable_bets(gain, alpha, float(gain.size)), alpha)

    return two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, "predictable betting")


def _order_free_end(values: FloatArray, low: float, high: float, alpha: float) -> float:
    return lower_limit(values, low, order_free, alpha)


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
    0.063
    """
    group = prompt_numbers(np.asarray(values), prompt)
    bets = prompt_bets(group)

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        return lower_limit(data, low, lambda _: bets, alpha)

    method = f"order-free betting, {many(int(group.max()) + 1, 'prompt')} of this batch"
    interval = two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, method)
    return replace(interval, value=mean_of(prompt_means(np.asarray(values, dtype=np.float64), prompt)))


# --- which bets ----------------------------------------------------------------------------------------------------


def order_free(gain: FloatArray) -> Bets:
    """The same bet on every value, at each of :data:`LEVELS`: the wealth does not depend on the order."""
    return Bets(np.ones(gain.size), LEVELS)


def prompt_bets(group: IntArray) -> Bets:
    """The same bets on all responses to a prompt, inversely to their number, at each of :data:`LEVELS`."""
    count = np.bincount(group)
    return Bets((count.min() / count)[group], LEVELS)


def predictable_bets(gain: FloatArray, alpha: float, looks: float | FloatArray) -> Bets:
    r"""Bet sqrt(2 log(1/alpha) / (q_(i-1) looks_i)), at most 0.9, on value i.

    q is the squared coefficient of variation of the gains Z - a before i, drawn toward 1/4 as one more value
    would. This is the growth-optimal bet for ``looks`` values of that spread. Any bet that does not use value i or
    later ones is valid; this choice only decides the width.
    """
    unit = gain[np.argmax(gain > 0.0)]  # the first gain: before it all is 0, so no bet sees it early
    with np.errstate(over="ignore", under="ignore"):
        seen = np.minimum(gain / unit if unit > 0.0 else gain, 1e150)  # squares must not overflow
        total, squares = np.cumsum(seen), np.cumsum(np.square(seen))
    count = np.arange(1.0, gain.size + 1.0)
    spread = np.square(count)  # zeros only: as large as if the next value were the first gain
    some = total > 0.0
    spread[some] = np.maximum(squares[some] / np.square(total[some] / count[some]) - count[some], 0.0)
    before = np.concatenate([[_FIRST_SPREAD], (_FIRST_SPREAD + spread) / (count + 1.0)])[:-1]
    return Bets(np.minimum(np.sqrt(-2.0 * math.log(alpha) / (before * looks)), _LARGEST_BET), _ONE_LEVEL)
