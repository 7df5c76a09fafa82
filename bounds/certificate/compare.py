"""How two logs differ: two precisions, two engines, a run and its noise floor."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds.certificate.estimates import kl_of_responses
from bounds.certificate.explanation import Comparison
from bounds.certificate.summary import Summary
from bounds.divergence.rows import shortfall
from bounds.intervals import clustered_mean, prompt_means
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.results import Interval, Standing


def compare(
    first: TraceSet | Iterable[TraceSet] | Summary,
    second: TraceSet | Iterable[TraceSet] | Summary,
    *,
    confidence: float = 0.95,
) -> Comparison:
    """Estimates of two logs, and their differences with intervals.

    Parameters
    ----------
    first, second : TraceSet, Log or Summary
        A prompt that both answer (by id) is one unit, so that logs of the same prompts are compared prompt by prompt.
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
    >>> c.shared, c.difference["kl_seq"].value
    (24, 0.0)
    """
    confidence = confidence_level(confidence)
    a, b = Summary.of(first), Summary.of(second)
    if a.reading.reward_range != b.reading.reward_range:
        raise TraceError(f"the logs have rewards in {a.reading.reward_range} and in {b.reading.reward_range}")
    of_a, of_b = _values(a), _values(b)
    both = [name for name in of_a if name in of_b]
    place = _Places(a, b)
    return Comparison(
        {name: clustered_mean(of_a[name], a.prompt, confidence) for name in both},
        {name: clustered_mean(of_b[name], b.prompt, confidence) for name in both},
        {name: place.difference(of_a[name], of_b[name], confidence) for name in both},
        place.shared,
    )


def _values(m: Summary) -> dict[str, FloatArray]:
    """What is compared, one value a response."""
    low, high = m.reading.reward_range
    exact = {"kl_seq": kl_of_responses(m)[0], "tv_sum": m["tv_sum"] if "tv_sum" in m else m["shortfall_sum"]}
    rewards = {"surrogate_gain": m.surrogate, "reward": m["reward"]} if "reward" in m else {}
    return {
        **exact,
        "kl_seq_k1": -m["log_ratio_sum"],
        "tv_seq": shortfall(m["log_ratio_sum"]),
        "worst_case_error": (high - low) * m["worst_case_error"],
        "ppl_gap": np.abs(m["log_ratio_sum"]) / m["length"],
        "max_k2_of_a_response": m["max_k2"],
        "mean_length": m["length"],
        **rewards,
    }


class _Places:
    """The prompts of two logs, and which of them are the same."""

    def __init__(self, a: Summary, b: Summary) -> None:
        self._logs = a, b
        keys = [m["prompt"][np.unique(m.prompt, return_index=True)[1]] for m in (a, b)]
        _, places = np.unique(np.concatenate(keys), return_inverse=True)
        self._places = np.split(places, [keys[0].size])
        self._all = int(places.max()) + 1
        self.shared = keys[0].size + keys[1].size - self._all

    def difference(self, first: FloatArray, second: FloatArray, confidence: float) -> Interval:
        """Second minus first; a prompt of both logs moves both means at once."""
        from scipy.special import stdtrit

        a, b = (prompt_means(v, m.prompt) for v, m in zip((first, second), self._logs, strict=True))
        value = float(b.mean() - a.mean())
        moves = np.zeros(self._all)
        for means, places, sign in ((a, self._places[0], -1.0), (b, self._places[1], 1.0)):
            n = means.size
            with np.errstate(invalid="ignore"):
                moves[places] += sign * (means - means.mean()) / math.sqrt(n * (n - 1)) if n > 1 else math.inf
        least = min(a.size, b.size)
        with np.errstate(invalid="ignore", over="ignore"):
            error = math.sqrt(float(np.square(moves).sum())) if least > 1 else math.inf
        margin = float(stdtrit(least - 1, (1.0 + confidence) / 2.0)) * error if math.isfinite(error) else math.inf
        ends = (value - margin, value + margin) if math.isfinite(value) else (-math.inf, math.inf)
        how = f"t, {a.size} and {b.size} prompts, {self.shared} of both logs"
        return Interval(value, *ends, confidence, Standing.ESTIMATED, how)
