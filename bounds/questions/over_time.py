"""A run step by step: every step has its own two policies, and its own certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from bounds._checks import BoolArray, FloatArray, confidence_level, number, refuse
from bounds._text import Cells, Row, many, near, shown
from bounds.certificate.estimates import kl_of_responses
from bounds.certificate.findings import (
    DOUBTS,
    Finding,
    Kind,
    advised,
    closes,
    findings,
    harmless,
    policy_findings,
    refuting,
)
from bounds.certificate.guarantees import Gain, of_steps
from bounds.certificate.kept import acceptance, kept, scaled
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_mean
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.results import Interval, IntervalTable, Result, Standing

_LEAST = 1e-15  # an error probability that 1 - error can still say
_LEDGER = {"promised_so_far": "surrogate_gain", "error_so_far": "worst_case_error"}  # of what each is the sum
_TABLES = (
    ("kl_seq", "limit_used", "worst_case_error", "ppl_gap"),
    ("acceptance", "surrogate_gain", "improvement"),
    tuple(_LEDGER),
)


@dataclass(frozen=True, slots=True, repr=False)
class RunOverTime(Result):
    """Steps in order, and the trust region that was to hold.

    Attributes
    ----------
    steps : IntervalTable
        Of each step kl_seq, limit_used (kl_seq as a share of ``limit``), worst_case_error, ppl_gap, acceptance,
        surrogate_gain, improvement; promised_so_far and error_so_far, the sums of surrogate_gain and worst_case_error;
        how many ``responses`` and ``prompts``.
    limit : float
        The trust region: expected KL per response at most this.
    time_uniform : bool
        Whether the intervals of an estimate hold at all steps at once, so that looking after every step is honest.
    reward_spread : float
        Largest minus smallest reward: |Error| is at most this times kl_seq.
    findings : tuple of Finding
        What is remarkable about the log.
    improvement_of_steps : Interval or None
        The sum over steps of J(theta) - J(roll), each of its own two policies, at all times at once.
    against : Finding or None
        What speaks against what kl_seq rests on: then it is open whether the limit holds.
    lost : str or None
        The first step at which the upper limit of kl_seq was above ``limit``.
    """

    steps: IntervalTable
    limit: float
    time_uniform: bool
    confidence: float
    reward_spread: float
    findings: tuple[Finding, ...]
    improvement_of_steps: Interval | None = None
    against: Finding | None = field(default=None, metadata={"json": False})
    derived: ClassVar = ("lost",)

    @property
    def lost(self) -> str | None:
        """The first step where the trust region could not be certified."""
        return next((name for name in self.steps if self.steps.estimate(name, "kl_seq").high > self.limit), None)

    @property
    def within(self) -> bool | None:
        """Whether every step is within the limit; False where one is shown not to be, None where that is open."""
        if self.against is not None:
            return None
        if any(self.steps.estimate(name, "kl_seq").low > self.limit for name in self.steps):
            return False
        return True if self.lost is None else None

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield what is said of the run, each with its label."""
        names, region = list(self.steps), f"{self.limit:g}"
        highs = {name: self.steps.estimate(name, "kl_seq").high for name in names}
        if self.against is not None:
            what = self.against.kind.replace("_", " ")
            yield "◇ UNDECIDED", f"what the KL of a response rests on is contradicted, or not said ({what})"
        elif self.lost is None:
            yield "▲ WITHIN", f"the KL of a response is at most {region} at all {len(names)} steps (estimates)"
        else:
            before = names[: names.index(self.lost)]
            was = f" (up to {shown(highs[before[-1]])} at step {before[-1]})" if before else ""
            yield f"▼ LOST AT {self.lost}", f"KL of a response may be above {region} at step {self.lost}{was}"
            after = names[names.index(self.lost) + 1 :]
            if after:
                above, low = [name for name in after if highs[name] > self.limit], min(after, key=highs.__getitem__)
                said = (
                    f"{len(above)} of {many(len(after), 'later step')}, last at {above[-1]}"
                    if above
                    else "no later step"
                )
                yield "  since", f"above it at {said} (lowest at step {low}: up to {shown(highs[low])})"
        changes = [i for i in self.steps.column("improvement") if i is not None]
        if changes:
            helps, harms = sum(i.low > 0.0 for i in changes), sum(i.high < 0.0 for i in changes)
            said = f"{helps} of {len(changes)} steps are shown to help, {harms} to harm"
            yield "  reward", said if helps or harms else "no step is shown to help or harm"
        promised, off = (self.steps[names[-1]][name] for name in _LEDGER)
        if promised is not None and off is not None:
            steps, sums = many(len(names), "step"), f"{shown(off.high)}"
            yield "  ledger", f"{steps} promised {near(promised.value)} in all, and can be off by {sums} (estimates)"
        gravest = self.against or next(iter(self.findings), None)
        if self.lost is not None and self.against is None:
            from_ = f"resume from step {before[-1]}, and sync" if before else "sync"
            yield "  to do", f"{from_} the weights more often: see trm-bounds explain"
        elif gravest is not None:
            yield "  to do", f"look at {gravest.look} ({gravest.command})"
        else:
            yield "  to do", "go on"
        if gravest is not None:
            yield "  warning", gravest.text
        each = "all steps at once" if self.time_uniform else "each step by itself (all at once: --time-uniform)"
        yield "  sure", f"the change of the reward, at {100 * self.confidence:.6g}%, {each}; the rest is estimated"

    def short_cells(self) -> Cells:
        """Return what decides: KL of a response with its upper end, the error and how the reward changes."""
        rows: list[Row] = []
        for name in self.steps:
            row = self.steps[name]
            kl, error, change = self.steps.estimate(name, "kl_seq"), row["worst_case_error"], row["improvement"]
            beyond = f"> {self.limit:g}" if kl.high > self.limit else ""
            up, down = ("" if error is None else shown(error.high)), ("" if change is None else change.span())
            rows.append(([name, near(kl.value), shown(kl.high), beyond, up, down], name == self.lost))
        return ["step", "KL of a response", "up to", "", "error up to", "reward changes by"], rows

    def sentence(self) -> str:
        """Return where the trust region was lost, if it was."""
        region = f"kl_seq <= {self.limit:g}, so |Error| <= {shown(self.limit * self.reward_spread)}"
        limits = f"upper {100 * self.confidence:.6g}% limits (asymptotic)"
        if self.lost is None:
            return f"By {limits}, {region}, at {many(len(self.steps), 'step')}, all there are."
        return f"By {limits}, {region}, cannot be said at step {self.lost}, and could before."

    def tables(self) -> list[Cells]:
        """Return divergences, what the steps bring, and its sums so far; one row for each step."""
        return [self.steps.cells(names, {"prompts": "prompts"}, marked=self.lost) for names in _TABLES]

    def notes(self) -> list[str]:
        """Return whether one may look after every step."""
        intervals = (i for row in self.steps.rows.values() for i in row.values())
        assumed = any(i is not None and i.standing is Standing.ASSUMED for i in intervals)
        condition = " under what is assumed of the log (certify says what)" if assumed else ""
        total = []
        if (i := self.improvement_of_steps) is not None:
            total = [f"Summed over {many(len(self.steps), 'step')}, J(theta) - J(roll) is {i.span()}: {i.of}."]
        known = f"acceptance and improvement hold for every sample size{condition}, the others are asymptotic."
        if self.time_uniform:
            held = f"The intervals of one estimate hold at all steps at once (step k spends 1/(k (k+1))); {known}"
            return [held, *total]
        return [
            f"Each interval holds by itself ({known[:-1]}); to look after every step, ask for time-uniform ones "
            "(time_uniform=True, --time-uniform).",
            *total,
        ]


def over_time(
    log: TraceSet | Iterable[TraceSet] | Summary,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    limit: float = 0.5,
    time_uniform: bool = False,
) -> RunOverTime:
    """Estimate divergence, acceptance and guaranteed improvement at each ``step`` of a log.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        A log whose records name their ``step``.
    confidence : float
        Of each interval; with ``time_uniform``, of all of them at once.
    mask : str or Mask, optional
        Whose acceptance is followed.
    limit : float
        The trust region in nats per response: kl_seq at most this, which bounds the surrogate's error by this times
        the reward's spread. Its upper limits are asymptotic. (At 1 the bound would say nothing.)
    time_uniform : bool
        Whether step k = 1, 2, ... spends 1/(k (k+1)) of the error, so that the intervals of one estimate hold at all
        steps at once, however long the run is.

    Returns
    -------
    RunOverTime

    Raises
    ------
    TraceError
        If the log names no steps, or is refused.

    Examples
    --------
    >>> import bounds
    >>> rows = [{"prompt_id": f"p{i}", "step": i // 20, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
    ...         for i in range(40)]
    >>> list(over_time(bounds.TraceSet.from_records(rows, horizon=4)).steps)
    ['0', '1']
    """
    confidence, limit = confidence_level(confidence), number("limit", limit, 0.0)
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    summary = Summary.of(log, statistics=chosen.statistics if chosen else ())
    if "step" not in summary:
        raise TraceError("the log names no steps (field step)")
    keep = np.ones(len(summary), dtype=np.bool_) if chosen is None else kept(summary, chosen)
    kl, _ = kl_of_responses(summary)
    seen = (*findings(summary, by_step=True), *(advised(f, summary) for f in policy_findings(summary)))
    refuted = refuting(seen) is not None
    names, codes = summary.labels_in_order("step")
    summed = of_steps(summary, Gain(summary, confidence)) if "reward" in summary and not refuted else None
    rows: dict[str, dict[str, Interval | None]] = {}
    facts = {}
    for k, name in enumerate(names):
        error = (1.0 - confidence) / ((k + 1.0) * (k + 2.0) if time_uniform else 1.0)
        if error < _LEAST:
            refuse("confidence", f"below 1 - {_LEAST:g} x k (k+1) of its {len(names)} steps", confidence)
        here = codes == k
        accepted = acceptance(summary, chosen, keep, 1.0 - error, here)
        rows[name] = _step(summary, here, kl, 1.0 - error, accepted, refuted=refuted)
        used = rows[name]["kl_seq"]
        rows[name]["limit_used"] = scaled(used, 1.0 / limit) if used and limit else None
        facts[name] = {"responses": int(here.sum()), "prompts": np.unique(summary.prompt[here]).size}
    _add_up(rows)
    return RunOverTime(
        IntervalTable("step", rows, facts),
        limit,
        time_uniform,
        confidence,
        summary.reward_spread,
        seen,
        summed,
        _against(summary, seen),
    )


def _against(summary: Summary, seen: Iterable[Finding]) -> Finding | None:
    """Return what stands against kl_seq of steps; not that prompts are few, nor what doubts a guaranteed gain."""
    waived = harmless(summary, {}) | dict.fromkeys((*DOUBTS, Kind.FEW_PROMPTS), "")
    return next((f for f in seen if closes(f.kind, "kl_seq", waived)), None)


def _add_up(rows: Mapping[str, dict[str, Interval | None]]) -> None:
    """Add to each step what it and the steps before promised, and how far that can be off."""
    for total, name in _LEDGER.items():
        so_far: Interval | None = None
        for k, row in enumerate(rows.values()):
            i = row[name]
            if k == 0 or i is None or so_far is None:
                so_far = i
            else:
                ends = {end: getattr(so_far, end) + getattr(i, end) for end in ("value", "low", "high")}
                so_far = replace(i, **ends, standing=max(i.standing, so_far.standing), method="sums of the steps' ends")
            row[total] = so_far


def _step(
    s: Summary, here: BoolArray, kl: FloatArray, confidence: float, accepted: Interval, *, refuted: bool
) -> dict[str, Interval | None]:
    """Return what is estimated of some responses."""
    prompt = np.unique(s.prompt[here], return_inverse=True)[1]

    def mean(values: FloatArray, low: float = 0.0) -> Interval:
        return clustered_mean(values, prompt, confidence, low=low)

    rewarded = "reward" in s
    again = partial(Gain.new_prompts, looked_at_again=True)  # a step may still grow while it is looked at
    improvement = Gain.these_prompts if s.prompts_return else again
    return {
        "kl_seq": mean(kl[here]),
        "worst_case_error": mean(s.reward_spread * s["worst_case_error"][here]),
        "ppl_gap": mean(np.abs(s["log_ratio_sum"][here]) / s["length"][here]),
        "acceptance": accepted,
        "surrogate_gain": mean(s.surrogate[here], -math.inf) if rewarded else None,
        "improvement": improvement(Gain(s, confidence, here)) if rewarded and not refuted else None,
    }
