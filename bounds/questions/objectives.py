"""The objectives that trainers optimise in place of L' = E[R S], and what they differ from it by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bounds._checks import FloatArray
from bounds._text import Cells, shown
from bounds.certificate.certify import certify
from bounds.certificate.findings import Finding, findings
from bounds.certificate.kept import kept
from bounds.certificate.statistics import prompt_weights, times
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_mean
from bounds.intervals.clustered import leave_one_out_baseline
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.results import Interval, IntervalTable, Result
from bounds.rules.bound import Bound

_TIS, _CLIP_LOW, _CLIP_HIGH = 2.0, 0.8, 1.28
_TIS_EXCESS, _HIGH_EXCESS = f"ratio_above({_TIS:g})", f"ratio_above({_CLIP_HIGH:g})"
_LOW_EXCESS = f"ratio_below({_CLIP_LOW:g})"
#: What is needed of each response.
STATISTICS = (_TIS_EXCESS, _HIGH_EXCESS, _LOW_EXCESS)
_ADD = "adds its difference to the bound"
_LESS = "never above E[A sum (rho - 1)], which has the mean of L' where theta << roll"


@dataclass(frozen=True, slots=True, repr=False)
class ObjectiveTable(Result):
    """Objectives in use, and the bound on |J(theta) - J(roll) - L'|.

    Attributes
    ----------
    objectives : IntervalTable
        Of each objective its ``value`` and ``difference``, what L' exceeds it by (None: cannot be estimated); ``what``
        it is, and what the guarantee ``says`` of it.
    b_star : Bound or None
        The smallest bound at the estimates.
    findings : tuple of Finding
        What is remarkable about the log.
    """

    objectives: IntervalTable
    b_star: Bound | None
    findings: tuple[Finding, ...]

    def sentence(self) -> str:
        """Return what the differences are for."""
        if self.b_star is None:
            return "No bound applies; the differences to L' stand by themselves."
        return (
            f"|J(theta) - J(roll) - L'| <= {shown(self.b_star.value)} ({self.b_star.name}); an objective that differs "
            "from L' by d misses J(theta) - J(roll) by at most |d| more."
        )

    def tables(self) -> list[Cells]:
        """Return one row for each objective."""
        return [self.objectives.cells(facts={"says": "what the guarantee says", "what": "what it is"})]

    def notes(self) -> list[str]:
        """Return where the intervals come from."""
        return [
            "The difference is L' minus the objective. Intervals are clustered by prompt and asymptotic. Ratios are "
            "theta/roll of the sampled tokens."
        ]


def objectives(
    log: TraceSet | Iterable[TraceSet] | Summary, *, confidence: float = 0.95, mask: str | Mask | None = None
) -> ObjectiveTable:
    """Estimate each objective's value and its difference to L', with intervals.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        A log with rewards.
    confidence : float
        Nominal coverage; intervals are clustered by prompt and asymptotic.
    mask : str or Mask, optional
        A sequence mask, whose masked surrogate is one of the objectives.

    Returns
    -------
    ObjectiveTable

    Raises
    ------
    TraceError
        If the log has no rewards, or is refused.

    Examples
    --------
    >>> import bounds
    >>> list(objectives(bounds.example_traces()).objectives)[:2]
    ["L'", 'token TIS']
    """
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    summary = Summary.of(log, statistics=(*STATISTICS, *(chosen.statistics if chosen else ())))
    if "reward" not in summary:
        raise TraceError("the log has no rewards, which every objective weighs")
    best = certify(summary, confidence=confidence).best
    return ObjectiveTable(_table(summary, chosen, confidence), best, findings(summary))


def _table(s: Summary, mask: Mask | None, confidence: float) -> IntervalTable:
    reward, length, gain = s["reward"], s["length"], s.surrogate
    advantage = reward - leave_one_out_baseline(reward, s.prompt)
    rows: dict[str, dict[str, Interval | None]] = {}
    facts: dict[str, dict[str, str]] = {}

    def add(
        name: str, what: str, says: str, value: FloatArray | None = None, difference: FloatArray | None = None
    ) -> None:
        pair = {"value": value, "difference": difference}
        rows[name] = {k: None if v is None else clustered_mean(v, s.prompt, confidence) for k, v in pair.items()}
        facts[name] = {"what": what, "says": says}

    add("L'", "E[R sum (rho - 1)]", "the bound is about this one", gain, np.zeros(len(s)))
    cut = times(reward, s[_TIS_EXCESS])
    with np.errstate(invalid="ignore"):
        truncated = np.where(np.isfinite(gain), gain - cut, times(reward, length * (_TIS - 1.0)))
    add("token TIS", f"E[R sum (min(rho, {_TIS:g}) - 1)]", _ADD, truncated, cut)
    clipped = np.where(advantage > 0.0, times(advantage, s[_HIGH_EXCESS]), -times(advantage, s[_LOW_EXCESS]))
    full = times(advantage, s["surrogate_sum"])
    with np.errstate(invalid="ignore"):
        pessimistic = np.where(np.isfinite(full), full - clipped, -math.inf)
    clip = f"E[sum min(rho A, clip(rho, {_CLIP_LOW:g}, {_CLIP_HIGH:g}) A) - A], A = R minus the others' mean"
    add("PPO clip", clip, _LESS, pessimistic, clipped)
    if mask is not None and mask.reweighing:
        rules = ",".join(map(str, mask.reweighing))
        add("token mask", rules, "nothing: it changes the objective within responses")
    if mask is not None and mask.dropping:
        keep = kept(s, mask)
        masked, rest = np.where(keep, gain, 0.0), np.where(keep, 0.0, gain)
        add("masked", f"E[M R sum (rho - 1)], M: {Mask(mask.dropping)}", _ADD, masked, rest)
    add(
        "token mean",
        "sum of R sum (rho - 1) over the tokens of the batch",
        "L' divided by the mean length: the same direction, and the bound divided by it",
    )
    relative = float(prompt_weights(s.prompt) @ length) / length
    add(
        "sequence mean",
        "E[R sum (rho - 1) / length], times the mean length",
        _ADD + "; weighs short responses more",
        gain * relative,
        times(1.0 - relative, gain),
    )
    add(
        "std-normalised",
        "A divided by the standard deviation of the prompt's rewards",
        "nothing about J: it is L' of the reward R / std(prompt), which weighs prompts anew",
    )
    return IntervalTable("objective", rows, facts)
