"""Data and a confidence go in, an interval comes out. The unit is the prompt.

The intervals here are asymptotic: Student's t over prompts. They are labelled ESTIMATED; they are no
certificate.
"""

from __future__ import annotations

import math

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.results import Interval, Standing


def clustered_mean(
    values: FloatArray, prompt: IntArray, confidence: float, *, low: float = -math.inf, high: float = math.inf
) -> Interval:
    """Mean over prompts of the mean over a prompt's responses, with a t-interval over prompts.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt number (0, 1, ...) of each response.
    confidence : float
        Nominal coverage; reached only as the number of prompts grows.
    low, high : float
        Where the true mean lies for certain: the interval is cut there.

    Notes
    -----
    Responses to one prompt are not independent; treating them as such covered .75 where .95 was said.
    """
    means = np.bincount(prompt, weights=values) / np.bincount(prompt)
    value = float(means.mean())
    residual = means - value if math.isfinite(value) else means
    return _t_interval(value, _standard_error(residual), means.size, confidence, low, high, "prompt mean, t")


def clustered_ratio(
    numerator: FloatArray,
    denominator: FloatArray,
    prompt: IntArray,
    confidence: float,
    *,
    low: float = -math.inf,
) -> Interval:
    """Pooled ratio sum(numerator) / sum(denominator), clustered by prompt (delta method)."""
    top = np.asarray(np.bincount(prompt, weights=numerator), dtype=np.float64)
    bottom = np.asarray(np.bincount(prompt, weights=denominator), dtype=np.float64)
    value = float(top.sum() / bottom.sum())
    residual = (top - value * bottom) / bottom.mean() if math.isfinite(value) else top
    return _t_interval(
        value, _standard_error(residual), top.size, confidence, low, math.inf, "pooled tokens, clustered t"
    )


def _standard_error(residual: FloatArray) -> float:
    n = residual.size
    if n < 2 or not np.isfinite(residual).all():
        return math.inf
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.square(residual).sum()) / (n - 1) / n)


def _t_interval(
    value: float, error: float, n: int, confidence: float, low: float, high: float, method: str
) -> Interval:
    from scipy.special import stdtrit

    margin = math.inf
    if math.isfinite(value) and math.isfinite(error):
        margin = float(stdtrit(n - 1, (1.0 + confidence) / 2.0)) * error
    bottom = low if math.isinf(value) else max(low, value - margin)
    top = math.inf if math.isinf(value) else min(high, value + margin)
    return Interval(value, bottom, top, confidence, Standing.ESTIMATED, f"{method}, {n} prompts")
