"""The scalars that trainers log, under their names: unclamped, with sample sizes and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds._text import Cells, many, near
from bounds.certificate.findings import Finding, findings
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_ratio
from bounds.logs.traces import TraceSet
from bounds.results import Interval, IntervalTable, Result


@dataclass(frozen=True, slots=True)
class Metric:
    """A scalar: the mean over all tokens, or all responses, of what ``values`` sums up for each response [N]."""

    values: Callable[[Summary], FloatArray]
    of_tokens: bool
    meaning: str
    note: str = ""


#: What is needed of each response.
STATISTICS = (
    "k3_inverse_sum", "chi2_token_sum", "probability_gap_sum", "log_ratio_abs_sum", "token_ratio<0.5", "token_ratio>2",
)  # fmt: skip

#: Name -> scalar, with d = log pi - log mu of a sampled token (pi scores, mu sampled).
METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "kl": Metric(lambda s: -s["log_ratio_sum"], True, "-d", "KL(mu||pi) by k1; verl rollout_corr/kl"),
        "k3_kl": Metric(lambda s: s["k3_sum"], True, "exp(d) - 1 - d", "KL(mu||pi) by k3; verl"),
        "kl_k3": Metric(
            lambda s: s["k3_inverse_sum"],
            True,
            "exp(-d) - 1 + d",
            "AReaL; other direction than k3_kl, and not of samples of pi: it estimates neither KL",
        ),
        "chi2_token": Metric(lambda s: s["chi2_token_sum"], True, "exp(2d) - 1", "verl"),
        "chi2_seq": Metric(
            lambda s: _excess(2.0 * s["log_ratio_sum"]),
            False,
            "exp(2 sum d) - 1",
            "verl; ms-swift logs chi2_seq_by_mean under this name",
        ),
        "chi2_seq_by_mean": Metric(
            lambda s: _excess(2.0 * s["log_ratio_sum"] / s["length"]),
            False,
            "exp(2 mean d) - 1",
            "ms-swift calls it chi2_seq",
        ),
        "log_ppl_abs_diff": Metric(
            lambda s: np.abs(s["log_ratio_sum"]) / s["length"], False, "|mean d|", "verl; the paper's PPL gap"
        ),
        "probs_diff": Metric(
            lambda s: s["probability_gap_sum"],
            True,
            "|exp(log pi) - exp(log mu)|",
            "verl rollout_probs_diff_mean",
        ),
        "logprob_abs_diff": Metric(
            lambda s: s["log_ratio_abs_sum"], True, "|d|", "TRL, slime, SkyRL; no bound rests on it"
        ),
        "ratio_outside": Metric(
            lambda s: s["token_ratio<0.5"] + s["token_ratio>2"], True, "whether rho is outside [1/2, 2]", "both tails"
        ),
    }
)


def _excess(log_ratio: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(log_ratio))


@dataclass(frozen=True, slots=True, repr=False)
class MetricsTable(Result):
    """Scalars by name.

    Attributes
    ----------
    tokens, responses : int
        How many were logged.
    metrics : IntervalTable
        Of each scalar its ``value``; what it is the ``mean_of``, over which ``sample``, and a ``note`` on who calls it
        so.
    findings : tuple of Finding
        What is remarkable about the log.
    """

    tokens: int
    responses: int
    metrics: IntervalTable
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Interval:
        return self.metrics.estimate(name, "value")

    def sentence(self) -> str:
        """Return what they amount to."""
        kl, length = self["k3_kl"].value, self.tokens / self.responses
        return (
            f"A KL of {near(kl)} a token (k3_kl) is one of {near(kl * length)} a response of {near(length)} tokens: "
            "the surrogate is off by at most that (an estimate)."
        )

    def short(self) -> list[Cells]:
        """Return one row for each scalar, without formulas."""
        return [self.metrics.cells(facts={"note": "known from"})]

    def tables(self) -> list[Cells]:
        """Return one row for each scalar."""
        return [self.metrics.cells(facts={"mean_of": "mean of", "sample": "over", "note": "known from"})]

    def notes(self) -> list[str]:
        """Return signs and intervals."""
        level = f"{100 * self['kl'].confidence:.6g}%"
        return [
            f"d = log pi - log mu of a sampled token, not clamped. Intervals ({level}) are clustered by prompt and "
            "asymptotic."
        ]


def metrics(log: TraceSet | Iterable[TraceSet] | Summary, *, confidence: float = 0.95) -> MetricsTable:
    """Estimate every scalar of :data:`bounds.questions.metrics.METRICS`, with an interval.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Logged responses.
    confidence : float
        Nominal coverage; intervals are clustered by prompt and asymptotic.

    Returns
    -------
    MetricsTable

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
    >>> table["k3_kl"].value > 0.0, table.metrics.facts["k3_kl"]["sample"]
    (True, '13961 tokens')
    """
    confidence = confidence_level(confidence)
    summary = Summary.of(log, statistics=STATISTICS)
    rows, facts = {}, {}
    for name, metric in METRICS.items():
        size = summary["length"] if metric.of_tokens else np.ones(len(summary))
        rows[name] = {"value": clustered_ratio(metric.values(summary), size, summary.prompt, confidence)}
        sample = many(int(size.sum()), "token" if metric.of_tokens else "response")
        facts[name] = {"mean_of": metric.meaning, "sample": sample, "note": metric.note}
    return MetricsTable(summary.tokens, len(summary), IntervalTable("metric", rows, facts), findings(summary))
