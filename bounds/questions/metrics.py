"""The scalars that trainers log, under their names: unclamped, with sample sizes and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds._text import many
from bounds.divergence.rows import k1, k3
from bounds.intervals import clustered_ratio
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.questions.metrics_answer import MetricsTable, MetricValue


@dataclass(frozen=True, slots=True)
class Metric:
    """A scalar: the mean over all tokens of a token's value, or over all responses of a response's."""

    values: Callable[[TraceSet], FloatArray]
    of_tokens: bool
    meaning: str
    note: str = ""


def _sums(traces: TraceSet) -> FloatArray:
    return np.asarray(np.add.reduceat(traces.log_ratio, traces.starts[:-1]))


def _excess(log_ratio: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(log_ratio))


def _probability_gap(traces: TraceSet) -> FloatArray:
    return np.asarray(np.abs(np.exp(traces.train) - np.exp(traces.rollout)))


#: Name -> scalar, with d = log pi - log mu of a sampled token (pi scores, mu sampled).
METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "kl": Metric(lambda t: k1(t.log_ratio), True, "-d", "KL(mu||pi) by k1; verl rollout_corr/kl"),
        "k3_kl": Metric(lambda t: k3(t.log_ratio), True, "exp(d) - 1 - d", "KL(mu||pi) by k3; verl"),
        "kl_k3": Metric(
            lambda t: k3(-t.log_ratio),
            True,
            "exp(-d) - 1 + d",
            "AReaL; other direction than k3_kl, and not of samples of pi: it estimates neither KL",
        ),
        "chi2_token": Metric(lambda t: _excess(2.0 * t.log_ratio), True, "exp(2d) - 1", "verl"),
        "chi2_seq": Metric(
            lambda t: _excess(2.0 * _sums(t)),
            False,
            "exp(2 sum d) - 1",
            "verl; ms-swift logs chi2_seq_by_mean under this name",
        ),
        "chi2_seq_by_mean": Metric(
            lambda t: _excess(2.0 * _sums(t) / t.lengths), False, "exp(2 mean d) - 1", "ms-swift calls it chi2_seq"
        ),
        "log_ppl_abs_diff": Metric(
            lambda t: np.abs(_sums(t)) / t.lengths, False, "|mean d|", "verl; the paper's PPL gap"
        ),
        "probs_diff": Metric(_probability_gap, True, "|exp(log pi) - exp(log mu)|", "verl rollout_probs_diff_mean"),
    }
)


def metrics(traces: TraceSet | Iterable[TraceSet], *, confidence: float = 0.95) -> MetricsTable:
    """Every scalar of :data:`METRICS` with an interval.

    Parameters
    ----------
    traces : TraceSet, or several parts of a log
        Logged responses.
    confidence : float
        Nominal coverage; intervals are clustered by prompt and asymptotic.

    Raises
    ------
    TraceError
        If there are no responses.

    Notes
    -----
    Log-ratios are not clamped: what overflows is inf, where verl shows a number that is too small.

    Examples
    --------
    >>> import bounds
    >>> table = metrics(bounds.example_traces())
    >>> table["k3_kl"].interval.value > 0.0, table["k3_kl"].sample
    (True, '13961 tokens')
    """
    confidence = confidence_level(confidence)
    sums: dict[str, list[FloatArray]] = {name: [] for name in METRICS}
    lengths: list[FloatArray] = []
    prompts: list[str] = []
    for part in [traces] if isinstance(traces, TraceSet) else traces:
        lengths.append(part.lengths.astype(np.float64))
        prompts += [part.prompt_ids[k] for k in part.prompt]
        for name, metric in METRICS.items():
            values = metric.values(part)
            sums[name].append(np.add.reduceat(values, part.starts[:-1]) if metric.of_tokens else values)
    if not prompts:
        raise TraceError("no response with a policy token")
    numbers = {name: k for k, name in enumerate(dict.fromkeys(prompts))}
    prompt, length = np.array([numbers[name] for name in prompts]), np.concatenate(lengths)
    found = {}
    for name, metric in METRICS.items():
        weight = length if metric.of_tokens else np.ones(length.size)
        interval = clustered_ratio(np.concatenate(sums[name]), weight, prompt, confidence)
        sample = many(int(weight.sum()), "token" if metric.of_tokens else "response")
        found[name] = MetricValue(interval, sample, metric.meaning, metric.note)
    return MetricsTable(found)
