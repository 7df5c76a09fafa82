"""Asymptotic intervals: Student's t over prompts. They are labelled ESTIMATED; they are no certificate."""

from __future__ import annotations

import math

import numpy as np

from bounds._checks import FloatArray, IntArray, confidence_level, refuse
from bounds._text import many
from bounds.intervals.ends import Side, mean_of, prompt_means, prompt_numbers, prompt_sums, two_sided
from bounds.results import Interval, Standing


def student_t(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    r"""Return Student's t interval, cut at the range.

    Each end is mean -+ t_(N-1) (1 - alpha) s / sqrt(N), at error alpha.

    Parameters
    ----------
    values, confidence, low, high, side
        As in :func:`~bounds.intervals.betting`, with its refusals, except that the confidence is reached only as N
        grows: too late for skewed values.

    Returns
    -------
    Interval
        Of standing ESTIMATED.

    Examples
    --------
    >>> student_t(np.array([0.0, 1.0, 2.0]), 0.5).standing.label
    'estimated'
    """
    return two_sided(_t_end, values, confidence, low, high, side, Standing.ESTIMATED, "asymptotic, t")


def _t_end(values: FloatArray, low: float, high: float, alpha: float) -> float:
    from scipy.special import stdtrit

    with np.errstate(invalid="ignore", over="ignore"):
        mean = mean_of(values)
        error = _standard_error(np.sort(values) - mean)  # the order given does not matter, to the last bit
    if not (math.isfinite(mean) and math.isfinite(error)):
        return low
    return mean + float(stdtrit(values.size - 1, alpha)) * error


def leave_one_out(
    reward: FloatArray, product: FloatArray, prompt: IntArray, confidence: float, *, side: Side = "both"
) -> Interval:
    r"""Estimate J(theta) - J(roll) by a t-interval over prompts of (R - b)(P - 1), b the others' mean reward.

    Parameters
    ----------
    reward, product, prompt : arrays [N]
        Reward R, product P of the ratios (may be +inf), and prompt of each response.
    confidence : float
        Reached only as the number of prompts grows, and late where P has a heavy tail.
    side : "both", "lower" or "upper"
        Where the error may be; the other end is then infinite.

    Returns
    -------
    Interval
        Of standing ESTIMATED.

    Raises
    ------
    ValueError
        For arrays of different lengths or without entries, NaN, and a bad confidence or side.

    Notes
    -----
    b never contains the response's own reward: it is the mean reward of the *other* responses to its prompt. For a
    prompt with one response it is the mean over the *other prompts* of their mean reward, and 0 if there is none.
    Either way b is independent of the response given its prompt, so E[b (P - 1)] = 0 and nothing is biased, where
    theta << roll (E[P] = 1 for each prompt). With mass m of theta where roll has none, E[b (P - 1)] = -E[b m]: the
    interval is then for another quantity. A baseline that comes from other prompts makes their terms dependent, but
    in second order only: products of two terms differ in mean from independent ones by 1/N^2 of their size.
    Where the rewards of no prompt differ every term is 0 and so is the width: then nothing was learned.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> product, prompt = np.exp(rng.normal(-0.02, 0.2, 800)), np.repeat(np.arange(100), 8)
    >>> interval = leave_one_out((rng.random(800) < 0.4) * 1.0, product, prompt, 0.95)
    >>> interval.low < 0.0 < interval.high
    True
    """
    reward, product = np.asarray(reward, dtype=np.float64), np.asarray(product, dtype=np.float64)
    if reward.shape != product.shape:
        refuse("product", f"one number for each reward (shape {reward.shape})", f"shape {product.shape}")
    for name, given in (("reward", reward), ("product", product)):
        if np.isnan(given).any():
            first = int(np.argmax(np.isnan(given)))
            refuse(f"{name}[{first}]", "a number", "nan")
    group = prompt_numbers(reward, prompt)
    advantage = reward - leave_one_out_baseline(reward, group)
    with np.errstate(invalid="ignore"):
        terms = np.where(advantage == 0.0, 0.0, advantage * (product - 1.0))
    method = "asymptotic, leave-one-out baseline, t"
    if not np.isfinite(terms).all():
        confidence = confidence_level(confidence)
        return Interval(math.nan, -math.inf, math.inf, confidence, Standing.ESTIMATED, f"{method} (P overflows)")
    return two_sided(
        _t_end, prompt_means(terms, group), confidence, -math.inf, math.inf, side, Standing.ESTIMATED, method
    )


def leave_one_out_baseline(reward: FloatArray, group: IntArray) -> FloatArray:
    """Return for each response [N] the mean reward of the others to its prompt (of the other prompts, if alone)."""
    count = np.bincount(group)
    total = prompt_sums(reward, group)
    means = total / count
    others = (math.fsum(means) - means) / max(count.size - 1, 1)  # 0 if there is no other prompt
    within = (total[group] - reward) / np.maximum(count[group] - 1, 1)
    return np.where(count[group] > 1, within, others[group])


def clustered_mean(
    values: FloatArray,
    prompt: IntArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
) -> Interval:
    """Average over prompts the mean over a prompt's responses, with a t-interval over prompts.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt number (0, 1, ...) of each response.
    confidence : float
        Nominal coverage; reached only as the number of prompts grows.
    low, high : float
        Where the true mean lies for certain: the interval is cut there.
    side : "both", "lower" or "upper"
        Where the error may be; the other end is then that of the range.

    Returns
    -------
    Interval
        Of standing ESTIMATED.

    Notes
    -----
    Responses to one prompt are not independent; treating them as such covered .75 where .95 was said.
    """
    means = np.bincount(prompt, weights=values) / np.bincount(prompt)
    value = float(means.mean())
    residual = means - value if math.isfinite(value) else means
    return _t_interval(value, residual, confidence, low, high, side, "prompt mean, t")


def clustered_ratio(
    numerator: FloatArray,
    denominator: FloatArray,
    prompt: IntArray,
    confidence: float,
    *,
    low: float = -math.inf,
    side: Side = "both",
) -> Interval:
    """Estimate the pooled ratio sum(numerator) / sum(denominator), clustered by prompt (delta method).

    Parameters
    ----------
    numerator, denominator, prompt : arrays [N]
        Of each response; prompts are 0, 1, ...
    confidence, low, side
        As in :func:`clustered_mean`.

    Returns
    -------
    Interval
        Of standing ESTIMATED.
    """
    top = np.asarray(np.bincount(prompt, weights=numerator), dtype=np.float64)
    bottom = np.asarray(np.bincount(prompt, weights=denominator), dtype=np.float64)
    value = float(top.sum() / bottom.sum())
    residual = (top - value * bottom) / bottom.mean() if math.isfinite(value) else top
    return _t_interval(value, residual, confidence, low, math.inf, side, "pooled tokens, clustered t")


def _standard_error(residual: FloatArray) -> float:
    n = residual.size
    if n < 2 or not np.isfinite(residual).all():
        return math.inf
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.square(residual).sum()) / (n - 1) / n)


def _t_interval(
    value: float, residual: FloatArray, confidence: float, low: float, high: float, side: Side, method: str
) -> Interval:
    from scipy.special import stdtrit

    n, error, margin = residual.size, _standard_error(residual), math.inf
    if math.isfinite(value) and math.isfinite(error):
        margin = float(stdtrit(n - 1, (1.0 + confidence) / 2.0 if side == "both" else confidence)) * error
    high = math.inf if math.isinf(value) else high
    bottom = low if math.isinf(value) or side == "upper" else max(low, value - margin)
    top = high if side == "lower" else min(high, value + margin)
    return Interval(value, bottom, top, confidence, Standing.ESTIMATED, f"{method}, {many(n, 'prompt')}")
