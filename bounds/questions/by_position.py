"""How divergence depends on the position in the response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds._text import Cells, span
from bounds.certificate.findings import Finding, findings
from bounds.certificate.summary import Summary
from bounds.divergence.rows import k3, shortfall
from bounds.intervals import clustered_ratio
from bounds.logs.traces import TraceSet
from bounds.results import Interval, IntervalTable, Result

_MOST = 32  # bins; more than half of them are used once a response is so long
#: Divergence -> what is averaged, and its value at each token: exact where logged, else of the sampled tokens.
_Kind = tuple[str, Callable[[TraceSet], FloatArray]]
_EXACT: dict[str, _Kind] = {
    "kl": ("exact KL(roll||theta) at sampled contexts", lambda part: part.exact["kl"]),
    "tv": ("exact TV at sampled contexts", lambda part: part.exact["tv"]),
    "chi2": ("exact chi2(theta||roll) at sampled contexts", lambda part: part.exact["chi2"]),
}
_SAMPLED: dict[str, _Kind] = {
    "kl": ("k3 of sampled tokens, which misses theta's mass where roll has none", lambda part: k3(part.log_ratio)),
    "tv": ("(1-rho)^+ of sampled tokens", lambda part: shortfall(part.log_ratio)),
}


@dataclass(frozen=True, slots=True, repr=False)
class ByPosition(Result):
    """Mean divergence of a token by its position in the response.

    Attributes
    ----------
    bins : IntervalTable
        Positions ``first`` to ``last`` (from 0), in order; all of one width, a power of two. Values are nats (kl) or
        plain numbers (tv, chi2) per token; ``reached`` is how many tokens a response has there, in the mean, over how
        many it could have.
    confidence : float
        Of the intervals: prompt-clustered, asymptotic.
    findings : tuple of Finding
        What is remarkable about the log.
    """

    bins: IntervalTable
    confidence: float
    findings: tuple[Finding, ...]

    def sentence(self) -> str:
        """Return where the divergence of a token is largest."""
        top = max(self.bins, key=lambda label: self.bins.estimate(label, "kl").value)
        value = self.bins.estimate(top, "kl").texts()[0]
        where = f"positions {top.replace('-', ' to ')}" if "-" in top else f"position {top}"
        return f"Counted from 0, the KL of a token is largest at {where}: {value} nats in the mean."

    def tables(self) -> list[Cells]:
        """Return one row for each bin."""
        return [self.bins.cells(facts={"reached": "reached"})]

    def notes(self) -> list[str]:
        """Return what was averaged."""
        first = self.bins[next(iter(self.bins))]
        sources = "; ".join(f"{name}: {i.of}" for name, i in first.items() if i is not None)
        intervals = f"Intervals ({100 * self.confidence:.6g}%) are clustered by prompt"
        return [f"Means over the tokens that responses have there; {sources}. {intervals}."]


def by_position(log: TraceSet | Iterable[TraceSet] | Summary, *, confidence: float = 0.95) -> ByPosition:
    """Estimate the mean KL, total variation and chi2 of a token, by its position.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Responses of the rollout policy. Exact columns are used where logged; else KL is k3 (which misses theta's mass
        where roll has none) and TV is (1-rho)^+; chi2 of sampled tokens is not shown. The log is read twice, and up to
        100 numbers are kept of each prompt.
    confidence : float
        Nominal coverage of the intervals, which are prompt-clustered and asymptotic.

    Returns
    -------
    ByPosition

    Raises
    ------
    TraceError
        If the log has no response, or its parts have different exact columns.

    Examples
    --------
    >>> import bounds
    >>> found = by_position(bounds.example_traces())
    >>> len(found.bins), found.bins.names, found.bins["0-7"]["kl"].of
    (32, ['kl', 'tv', 'chi2'], 'exact KL(roll||theta) at sampled contexts')
    """
    confidence = confidence_level(confidence)
    summary = Summary.of(log)
    longest = int(summary["length"].max())
    width = 1
    while longest > width * _MOST:
        width *= 2
    kinds = {**_SAMPLED, **{name: kind for name, kind in _EXACT.items() if f"{name}_sum" in summary}}
    sums = _sums(summary, kinds, width, -(-longest // width))
    responses = np.bincount(summary.prompt)
    rows: dict[str, dict[str, Interval | None]] = {}
    facts = {}
    for k, first in enumerate(range(0, longest, width)):
        size = min(width, longest - first)
        reached = np.clip(summary["length"] - first, 0.0, size)
        tokens = np.bincount(summary.prompt, weights=reached) / responses
        there = tokens > 0.0  # prompts without a response so long say nothing of it
        cluster = np.arange(np.count_nonzero(there))
        label = span(first, first + size - 1)
        rows[label] = {}
        for name, (of, _) in kinds.items():
            mean = (sums[name][:, k] / responses)[there]
            found = replace(clustered_ratio(mean, tokens[there], cluster, confidence, low=0.0), of=of)
            rows[label][name] = replace(found, high=min(found.high, 1.0)) if name == "tv" else found
        facts[label] = {"first": first, "last": first + size - 1, "reached": float(tokens.mean() / size)}
    return ByPosition(IntervalTable("position", rows, facts), confidence, findings(summary))


def _sums(summary: Summary, kinds: Mapping[str, _Kind], width: int, bins: int) -> dict[str, FloatArray]:
    """Return the sums over the tokens of each prompt in each bin [prompts, bins], of each kind."""
    sums = {name: np.zeros((summary.prompts, bins)) for name in kinds}
    for part, prompt in summary.again_by_prompt():
        cell = np.repeat(np.arange(len(part)), part.lengths) * bins + part.order // width
        for name, (_, values) in kinds.items():
            by_response = np.bincount(cell, weights=values(part), minlength=len(part) * bins)
            np.add.at(sums[name], prompt, by_response.reshape(len(part), bins))
    return sums
