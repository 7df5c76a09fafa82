"""How two logs differ: two precisions, two engines, a run and its noise floor."""

from __future__ import annotations

import math

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds.evidence.confidence import clustered_mean, prompt_means
from bounds.evidence.moments import Moments, shortfall
from bounds.evidence.response import TraceError
from bounds.evidence.traces import TraceSet
from bounds.results import Comparison, Interval, Standing


def compare(first: TraceSet | Moments, second: TraceSet | Moments, *, confidence: float = 0.95) -> Comparison:
    """Estimates of two logs, and their differences with intervals.

    Parameters
    ----------
    first, second : TraceSet or Moments
        If both answer the same prompts (by id), the difference is taken prompt by prompt.
    confidence : float
        Nominal coverage; the intervals are asymptotic.

    Raises
    ------
    TraceError
        If the rewards of the two have different ranges.

    Examples
    --------
    >>> import bounds
    >>> c = compare(bounds.example_traces(), bounds.example_traces())
    >>> c.paired, c.difference["kl_seq"].value
    (True, 0.0)
    """
    confidence = confidence_level(confidence)
    a, b = (m if isinstance(m, Moments) else Moments.of(m) for m in (first, second))
    if a.reading.reward_range != b.reading.reward_range:
        raise TraceError(f"the logs have rewards in {a.reading.reward_range} and in {b.reading.reward_range}")
    paired = bool(np.array_equal(np.unique(a["prompt"]), np.unique(b["prompt"])))
    of_a, of_b = _values(a), _values(b)
    both = [name for name in of_a if name in of_b]
    return Comparison(
        {name: clustered_mean(of_a[name], a.prompt, confidence) for name in both},
        {name: clustered_mean(of_b[name], b.prompt, confidence) for name in both},
        {n: _difference(_by_prompt(a, of_a[n]), _by_prompt(b, of_b[n]), paired, confidence) for n in both},
        paired,
    )


def _values(m: Moments) -> dict[str, FloatArray]:
    """What is compared, one value a response."""
    exact = {"kl_seq": m["kl"] if "kl" in m else m["phi"], "tv_sum": m["tv"] if "tv" in m else m["deficit"]}
    rewards = {"surrogate_gain": m.surrogate, "reward": m["reward"]} if "reward" in m else {}
    return {
        **exact,
        "kl_seq_k1": -m["log_product"],
        "tv_seq": shortfall(m["log_product"]),
        "worst_case_error": m["worst_error"],
        "ppl_gap": np.abs(m["log_product"]) / m["length"],
        "max_k2": m["max_k2"],
        "mean_length": m["length"],
        **rewards,
    }


def _by_prompt(m: Moments, values: FloatArray) -> FloatArray:
    """Prompt means in the order of the prompts' keys, which is the same for both logs."""
    order = np.argsort(m["prompt"], kind="stable")
    return prompt_means(values[order], m.prompt[order])


def _difference(a: FloatArray, b: FloatArray, paired: bool, confidence: float) -> Interval:
    from scipy.special import stdtrit

    value = float(b.mean() - a.mean())
    if paired:
        error, freedom = _variance(b - a), a.size - 1.0
    else:
        one, two = _variance(a), _variance(b)
        error = one + two
        least = one**2 / max(a.size - 1, 1) + two**2 / max(b.size - 1, 1)
        freedom = error**2 / least if 0.0 < least < math.inf else float(min(a.size, b.size) - 1)  # Welch
    margin = math.inf
    if freedom > 0.0 and math.isfinite(error):
        margin = float(stdtrit(freedom, (1.0 + confidence) / 2.0)) * math.sqrt(error)
    how = f"paired t, {a.size} prompts" if paired else f"Welch's t, {a.size} and {b.size} prompts"
    return Interval(value, value - margin, value + margin, confidence, Standing.ESTIMATED, how)


def _variance(means: FloatArray) -> float:
    """Of the mean of independent values; inf of a single one."""
    return float(means.var(ddof=1) / means.size) if means.size > 1 else math.inf
