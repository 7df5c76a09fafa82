"""The objectives that trainers optimise in place of L' = E[R S], and what they differ from it by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy.stats import binom

from bounds._checks import FloatArray, integer, number, refuse
from bounds._text import Cells, shown
from bounds.certificate.certify import certify
from bounds.certificate.findings import Finding, findings
from bounds.certificate.kept import kept
from bounds.certificate.statistics import prompt_weights, times
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_mean
from bounds.intervals.clustered import leave_one_out_baseline
from bounds.intervals.ends import prompt_sums
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


@dataclass(frozen=True, slots=True)
class Objective:
    """What trainers climb, what is proved of it, and the checks of ``trm-bounds verify`` that say so."""

    what: str
    says: str
    checks: tuple[str, ...] = ()


#: For every f of prompt and response E[f S] is the surrogate of E[f], and misses its change by at most D times the
#: spread of f. So what weighs a response by its length, or a prompt by its rewards, is bounded, but of another reward.
OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "L'": Objective("E[R sum (rho - 1)]", "the bound is about this one", ("any_function",)),
        "token TIS": Objective(f"E[R sum (min(rho, {_TIS:g}) - 1)]", _ADD),
        "PPO clip": Objective(
            f"E[sum min(rho A, clip(rho, {_CLIP_LOW:g}, {_CLIP_HIGH:g}) A) - A], A = R minus the others' mean",
            "never above L': J(theta) - J(roll) is at least this minus the bound, where theta << roll",
            ("pessimistic_minimum",),
        ),
        "token mask": Objective("", "nothing: it changes the objective within responses"),
        "masked": Objective("", _ADD),
        "group mean": Objective(
            "E[(R - the group's mean) sum (rho - 1)]",
            "(1 - 1/G) L' with G responses to each prompt: times G / (G - 1) it is L'",
            ("group_mean",),
        ),
        "std-normalised": Objective(
            "A divided by the standard deviation of the group's rewards",
            "for rewards 0 and 1 it is L' weighed by prompt (deviation_weight), so it bounds that mean and not J; for "
            "other rewards nothing",
            ("group_deviation", "reweighing", "three_rewards"),
        ),
        "token mean": Objective(
            "sum of R sum (rho - 1) over the tokens of the batch",
            "of many responses L' divided by the mean length: the same direction, and the bound divided by it; of few "
            "nothing about J",
            ("token_mean",),
        ),
        "sequence mean": Objective(
            "E[R sum (rho - 1) / length], times the mean length",
            "nothing about J: it is L' of the reward R / length (with a baseline (R - b) / length), so longer wrong "
            "answers raise it; " + _ADD,
            ("sequence_mean",),
        ),
    }
)


def deviation_weight(success: float, group: int, *, sample: bool = True, epsilon: float = 0.0) -> float:
    r"""Return what a group's own standard deviation multiplies the surrogate of a prompt by, for rewards 0 and 1.

    Parameters
    ----------
    success : float
        p, the prompt's probability of a reward of 1, in (0, 1).
    group : int
        G, responses to the prompt; all normalised by their own mean and deviation.
    sample : bool
        Whether the deviation divides by G - 1, as torch does, or by G.
    epsilon : float
        Added to the deviation.

    Returns
    -------
    float
        w with E[(1/G) sum_i A_i S_i] = w L', where theta << roll.

    Raises
    ------
    ValueError
        For arguments out of range.

    Notes
    -----
    Given that K rewards are 1, E of the sum is sigma^2 / d (E[S | R = 1] - E[S | R = 0]), with sigma^2 = K (G-K) / G^2
    and d what is divided by; and p E[S | 1] = L' = -(1 - p) E[S | 0]. So w = E[sigma^2 / d] / (p (1-p)), K ~ Bin(G, p).
    It tends to 1 / sqrt(p (1-p)): prompts that are nearly always or nearly never answered weigh most. Source: this
    project, check ``group_deviation``.

    Examples
    --------
    >>> [round(deviation_weight(p, 8), 2) for p in (0.5, 0.1)]
    [1.74, 2.18]
    """
    p, size = number("success", success, 0.0, 1.0), integer("group", group, 2, 2**20)
    if not 0.0 < p < 1.0:
        refuse("success", "inside (0, 1)", p)
    rewarded = np.arange(1, size)
    variance = rewarded * (size - rewarded) / size**2
    divisor = np.sqrt(variance * (size / (size - 1.0) if sample else 1.0)) + number("epsilon", epsilon, 0.0)
    return float((binom.pmf(rewarded, size, p) * variance / divisor).sum() / (p * (1.0 - p)))


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

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield how far an objective can miss the change of the mean reward, and which objectives differ from L'."""
        if self.b_star is None:
            yield "OFF BY ?", self.sentence()
        else:
            least, says = shown(self.b_star.value), self.b_star.standings
            yield f"OFF BY {least}", f"or less, the plain surrogate L' from the change of the mean reward ({says})"
            yield "  others", f"by at most {least} and their difference from L': the table"
        nothing = [name for name in self.objectives if str(self.objectives.facts[name]["says"]).startswith("nothing")]
        if nothing:
            yield "  careful", f"nothing is said of the change of the mean reward by: {', '.join(nothing)}"
        yield "  rests on", "estimates from this log; what each objective is: --full"

    def short(self) -> list[Cells]:
        """Return what decides of each objective: its difference, and what the guarantee says of it."""
        return [self.objectives.cells(facts={"says": "what the guarantee says"})]

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

    def add(name: str, value: FloatArray | None = None, difference: FloatArray | None = None, what: str = "") -> None:
        pair = {"value": value, "difference": difference}
        rows[name] = {k: None if v is None else clustered_mean(v, s.prompt, confidence) for k, v in pair.items()}
        facts[name] = {"what": what or OBJECTIVES[name].what, "says": OBJECTIVES[name].says}

    add("L'", gain, np.zeros(len(s)))
    cut = times(reward, s[_TIS_EXCESS])
    with np.errstate(invalid="ignore"):
        truncated = np.where(np.isfinite(gain), gain - cut, times(reward, length * (_TIS - 1.0)))
    add("token TIS", truncated, cut)
    clipped = np.where(advantage > 0.0, times(advantage, s[_HIGH_EXCESS]), -times(advantage, s[_LOW_EXCESS]))
    full = times(advantage, s["surrogate_sum"])
    with np.errstate(invalid="ignore"):
        pessimistic = np.where(np.isfinite(full), full - clipped, -math.inf)
    add("PPO clip", pessimistic, clipped)
    if mask is not None and mask.reweighing:
        add("token mask", what=",".join(map(str, mask.reweighing)))
    if mask is not None and mask.dropping:
        keep = kept(s, mask)
        masked, rest = np.where(keep, gain, 0.0), np.where(keep, 0.0, gain)
        add("masked", masked, rest, f"E[M R sum (rho - 1)], M: {Mask(mask.dropping)}")
    mean = (prompt_sums(reward, s.prompt) / np.bincount(s.prompt))[s.prompt]
    add("group mean", times(reward - mean, s["surrogate_sum"]), times(mean, s["surrogate_sum"]))
    add("std-normalised")
    add("token mean")
    relative = float(prompt_weights(s.prompt) @ length) / length
    add("sequence mean", gain * relative, times(1.0 - relative, gain))
    return IntervalTable("objective", rows, facts)
