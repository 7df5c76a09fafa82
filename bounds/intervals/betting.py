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

from bounds._checks import FloatArray, IntArray, refuse
from bounds._rounding import largest_float, round_down
from bounds._text import many
from bounds.intervals.ends import Side, checked_values, error_level, mean_of, prompt_means, prompt_numbers, two_sided
from bounds.results import Interval, Standing

#: Levels f = 1/(1 + 2^k), k = -12..12, of the order-free bets: dense near 0 (long samples) and near 1 (quiet ones).
LEVELS: FloatArray = 1.0 / (1.0 + np.exp2(-np.arange(-12.0, 12.5)))
_BY_SIZE = 0.9  # of the wealth is for prompts that stake no more than their responses are worth
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
    control: FloatArray | None = None,
) -> Interval:
    r"""Bet, in any order, on the average over the prompts of this batch of each prompt's mean.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt of each response; the responses to a prompt are independent of one another, and of the others.
    confidence, low, high, side
        As in :func:`betting`.
    control : array [N], optional
        In [-1/2, 1/2], and of mean 0 at every prompt whatever the policies: half of the wealth bets on values that have
        it added at the lower end and taken off at the upper one.

    Returns
    -------
    Interval
        Of standing MEASURED.

    Raises
    ------
    ValueError
        As in :func:`betting`; also if ``prompt`` or ``control`` has another length, or a control is out of its range.

    Notes
    -----
    Every response is a factor of its own, 1 - s_i + r_i (Z - a) / (m - a), with s_i <= 1 and r_i = kappa / n_i for a
    prompt with n_i responses, fixed before the values are seen. With v_i the mean of (Z - a) / (m - a) at prompt i and
    n = sum n_i, the inequality of arithmetic and geometric means gives

        E prod = prod_i (1 - s_i + r_i v_i)^n_i <= (1 + (1/n) sum_i (kappa v_i - n_i s_i))^n,

    at most 1 at the target, where the v_i have the average 1, if the n_i s_i / kappa have it, too. Two grids of kappa
    share the wealth. In the one, s_i = r_i, so that a prompt with one response keeps all bets small. In the other, a
    prompt stakes no more than its responses are worth, s_i = min(c r_i, 1), with c >= 1 such that the average is 1;
    kappa is as large as sum_i n_i log^+(kappa / n_i) = log(1/alpha) allows, which is about what those prompts can lose.
    All are for this fixed n, not for all times at once; they decrease in m.

    Examples
    --------
    >>> values, prompt = np.tile([0.0, 0.2], 64), np.repeat(np.arange(16), 8)
    >>> round(betting_these_prompts(values, prompt, 0.95, low=-1.0, side="lower").low, 3)
    0.063
    """
    group = prompt_numbers(np.asarray(values), prompt)
    size = np.bincount(group)
    if control is not None and (control.shape != np.shape(values) or not (np.abs(control) <= 0.5).all()):
        refuse("control", f"numbers in [-1/2, 1/2], shape {np.shape(values)}", f"shape {control.shape}")

    def bets_on(data: FloatArray, low: float, alpha: float) -> _BetsOn:
        of_value = size[group]
        order = np.lexsort((data, of_value))
        of_value, data = of_value[order], data[order]
        first = np.flatnonzero(np.append(True, (data[1:] != data[:-1]) | (np.diff(of_value) != 0)))
        count = np.diff(first, append=data.size)
        return data[first], low, prompt_bets(size, of_value[first].astype(np.float64), count, alpha)

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        plain = bets_on(data, low, alpha)
        if control is None or math.isinf(low):
            return lower_limit(*plain, alpha)
        return _limit_of_both((plain, bets_on(data + control, low - 0.5, alpha)), alpha)

    method = f"order-free betting, {many(int(group.max()) + 1, 'prompt')} of this batch"
    interval = two_sided(lower_end, values, confidence, low, high, side, Standing.MEASURED, method)
    return replace(interval, value=mean_of(prompt_means(np.asarray(values, dtype=np.float64), prompt)))


def betting_sum(
    values: FloatArray,
    weight: FloatArray,
    scale: float,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Bet on a weighted sum of means, each fixed by what was before: of the steps of a run, at all times at once.

    Parameters
    ----------
    values, weight : arrays [N]
        Values, and the positive weight of the mean of each, given all values of the steps before: 1 / (values of its
        step) for a sum over steps. In any order within a step.
    scale : float
        1 / (weight of an ordinary value), fixed before the first: the number of values of the first step.
    confidence, low, high, side
        As in :func:`betting`; ``low`` and ``high`` are those of a value.

    Returns
    -------
    Interval
        Of the sum of weight times mean; of standing MEASURED.

    Raises
    ------
    ValueError
        As in :func:`betting`; also if ``weight`` has another length, or is not positive.

    Notes
    -----
    With f_j = f scale w_j and v_j = mean - a, given what was before, the product of (1 + f_j (Z_j - a)) / (1 + f_j v_j)
    is a martingale of mean 1 for every f > 0. By the inequality of arithmetic and geometric means, the denominators
    multiply to at most (1 + (f scale / N) sum w_j v_j)^N. So the mean over f of

        K(G) = prod (1 + f_j (Z_j - a)) / (1 + f scale G / N)^N

    is at most that martingale at G = sum w_j v_j, and exceeds 1/alpha at any time at all with probability alpha at
    most. It decreases in G. Here f = 2^k, k = -12..12, over the range's unit: bets may not look at the sum itself (bets
    of the form f / (m - a) have a mean wealth of up to 1.33 where a step's policy depends on the steps before).

    Examples
    --------
    >>> steps = np.repeat([0.1, 0.2], 200)
    >>> round(betting_sum(steps, np.full(400, 1 / 200), 200.0, 0.95, low=-1.0, side="lower").low, 2)
    0.28
    """
    weight = np.asarray(weight, dtype=np.float64)
    if weight.shape != np.shape(values) or not (weight > 0.0).all():
        refuse("weight", f"a positive number for each value (shape {np.shape(values)})", f"shape {weight.shape}")
    total = math.fsum(weight)

    def lower_end(data: FloatArray, low: float, high: float, alpha: float) -> float:
        if math.isinf(low):
            return -math.inf
        levels = LEVELS / (1.0 - LEVELS) / (high - low if math.isfinite(high - low) else abs(low) or 1.0)
        stakes = np.sort(np.minimum(gains(data, low), _LARGEST_WIN) * (weight * scale))
        won = np.array([np.log1p(f * stakes).sum() for f in levels.tolist()]) * (1.0 - 256.0 * _UNIT)
        needed = -math.log(alpha) + math.log(levels.size) + 1e-12

        def enough(found: float) -> bool:
            lost = data.size * np.log1p(levels * (found * (scale / data.size))) * (1.0 + 64.0 * _UNIT)
            return float(np.logaddexp.reduce(won - lost)) * (1.0 - 1e-14) >= needed

        gap = largest_float(enough, 0.0, _LARGEST_WIN) or 0.0
        whole = Fraction(low) * Fraction(total)  # weights such as 1/3 are off by an ulp
        return round_down(whole + Fraction(gap) - (abs(whole) + Fraction(gap)) / 2**50)

    data, low, high = checked_values(values, low, high)
    alpha = error_level(confidence, side)
    bottom, top = low * total, high * total
    if side != "upper":
        bottom = max(bottom, lower_end(data, low, high, alpha))
    if side != "lower":
        top = min(top, -lower_end(-data, -high, -low, alpha))
    value = math.fsum(data * weight) if np.isfinite(data).all() else float((data * weight).sum())
    method = f"order-free betting on a sum, valid at all times, {data.size} values"
    return Interval(value, bottom, top, confidence, Standing.MEASURED, method)


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
    """Factors 1 - s + r (Z - a)/(m - a) of G wealths on N values, r_(g, i) = level_g share_i; s = r < 1 if not raised.

    The wealth is the mean of the G wealths by their ``weight``.
    """

    share: FloatArray  # [N], in (0, 1]
    level: FloatArray  # [G], above 0
    count: FloatArray | float = 1.0  # [N], how many equal values each value stands for: its factor has that exponent
    raised: FloatArray | None = None  # [G], 1 or more: s is r times it, or LEVELS' largest, whichever is less
    weight: FloatArray | None = None  # [G], of sum 1

    def rates(self, some: slice) -> tuple[FloatArray, FloatArray]:
        """Return s and r [G, block] of some of the values."""
        rate = self.level[:, None] * self.share[some]
        return rate if self.raised is None else np.minimum(rate * self.raised[:, None], LEVELS[-1]), rate


_BetsOn = tuple[FloatArray, float, Bets]  # values, their least value, the bets


def order_free(n: int) -> Bets:
    """Return the same bet on each of n values, at each of :data:`LEVELS`: the order does not matter."""
    return Bets(np.ones(n), LEVELS)


def prompt_bets(size: IntArray, of_value: FloatArray, count: IntArray, alpha: float) -> Bets:
    """Return bets on these prompts, of ``size`` [P] responses each (see :func:`betting_these_prompts`).

    ``of_value`` [N] is how many responses the prompt of each value has, ``count`` [N] how many values are equal to it.
    """
    least = float(size.min())
    equal = Bets(least / of_value, LEVELS, count.astype(np.float64))
    if least == size.max():
        return equal
    sizes, prompts = np.unique(size, return_counts=True)
    kappa = LEVELS * min(_largest_kappa(sizes, prompts, alpha), LEVELS[-1] * float(size.mean()))
    raised = np.array([_raised(sizes / k * LEVELS[-1], prompts) for k in kappa])
    weight = np.repeat([1.0 - _BY_SIZE, _BY_SIZE], LEVELS.size) / LEVELS.size
    levels, both = np.concatenate([LEVELS, kappa / least]), np.concatenate([np.ones(LEVELS.size), raised])
    return replace(equal, level=levels, raised=both, weight=weight)


def _largest_kappa(sizes: IntArray, prompts: IntArray, alpha: float) -> float:
    """Return the kappa where the sum over prompts of n log^+(kappa / n), n = size, is log(1 / alpha)."""
    weights = np.cumsum(prompts * sizes)
    found = np.exp((np.cumsum(prompts * sizes * np.log(sizes)) - math.log(alpha)) / weights)
    return float(found[np.argmax(found <= np.append(sizes[1:], np.inf))])


def _raised(most: FloatArray, prompts: IntArray) -> float:
    """Return the c >= 1 where min(c, most) [sizes, increasing] has the average 1 over prompts, rounded up."""
    filled = np.cumsum(prompts * most) - prompts * most
    left = prompts.sum() - np.cumsum(prompts) + prompts
    found = (prompts.sum() - filled) / left  # where the smaller sizes are at their most, and no others
    return float(found[np.argmax(found <= most)]) * (1.0 + 2e-12)


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


def _limit_of_both(both: tuple[_BetsOn, _BetsOn], alpha: float) -> float:
    """Return the m where the mean of two wealths is 1/alpha, or a little less: each alone is 2/alpha at less."""
    found, above = (max(lower_limit(*bets, error) for bets in both) for error in (alpha / 2.0, alpha))
    gain = [gains(values, low) for values, low, _ in both]
    target = -math.log(alpha) + math.log(2.0) + 1e-12
    for _ in range(20):
        middle = found + (above - found) / 2.0
        if not found < middle < above:
            break
        gaps = (math.nextafter(middle - low, math.inf) for _, low, _ in both)
        logs = [log_wealth_down(g, bets, gap) for g, (_, _, bets), gap in zip(gain, both, gaps, strict=True)]
        found, above = (middle, above) if np.logaddexp(logs[0], logs[1]) >= target else (found, middle)
    return found


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
        stake, rate = bets.rates(block)
        with np.errstate(over="ignore", under="ignore"):
            won = rate * np.minimum(gain[block] / gap, _LARGEST_WIN)
        yield (1.0 - stake) + won, won, count[block]


def _log_wealth(gain: FloatArray, bets: Bets, gap: float) -> tuple[float, float]:
    """Return the log of the wealth, and its derivative by log(gap)."""
    logs, slopes = np.zeros(bets.level.size), np.zeros(bets.level.size)
    for factor, won, count in _factors(gain, bets, gap):
        logs += (count * np.log(factor)).sum(axis=1)
        slopes -= (count * (won / factor)).sum(axis=1)
    with np.errstate(under="ignore"):
        part = _weighted(np.exp(logs - logs.max()), bets)
        return float(logs.max() + math.log(part.sum())), float(part @ slopes / part.sum())


def _weighted(wealths: FloatArray, bets: Bets) -> FloatArray:
    """Return the wealths [G] times their weights."""
    return wealths / wealths.size if bets.weight is None else wealths * bets.weight


def log_wealth_slope(gain: FloatArray, bets: Bets, gap: float) -> float:
    """Return the derivative of the log of the wealth by log(gap)."""
    return _log_wealth(gain, bets, gap)[1]


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
    steady = 1.0 - bets.rates(slice(at := int(np.argmax(bets.share)), at + 1))[0][:, 0]
    depth = 300 + gain.size // _BLOCK
    values = float(np.broadcast_to(bets.count, gain.shape).sum())
    logs -= _UNIT * (8.0 * values / steady + 2.0 * depth * sizes)
    largest = float(logs.max())
    with np.errstate(under="ignore"):
        mean = float(_weighted(np.exp(logs - largest), bets).sum())
    return largest + math.log(mean) - 64.0 * _UNIT * (1.0 + abs(largest))
