"""What a log says about two policies."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from bounds._checks import unknown
from bounds._text import Cells, Row, many, shown
from bounds.certificate.compare import Comparison
from bounds.certificate.estimates import ESTIMATES
from bounds.certificate.findings import DOUBTS, Finding, Kind, closes
from bounds.certificate.guarantees import ENDS_ONLY, HYPOTHESES, NAMES, Guarantees
from bounds.certificate.kept import MaskReport
from bounds.certificate.verdict import Verdict, block, verdict
from bounds.results import Assumption, Interval, Result, Standing, jsonable
from bounds.rules.bound import Bound, BoundTable, Withheld, withheld_lines

if TYPE_CHECKING:
    import pandas as pd


#: How theta relates to the responses, in words.
TRAIN_POLICY_WORDS = {
    "before-update": "the policy before this update, against its sampler",
    "held-out": "the updated policy, on prompts that it did not learn from",
    "unknown": "nobody says whether it learned from these responses (--train-policy)",
}


#: Kinds that come with others, which say more of what is wrong.
_SAYING_LESS = {Kind.MISALIGNED: 1, Kind.REFUTED: 2}


@dataclass(frozen=True, slots=True, repr=False)
class Certificate(Result):
    """What a log says about two policies: estimates, bounds at them, and what was assumed.

    Attributes
    ----------
    train_policy : str
        How theta relates to these responses: "before-update", "held-out" or "unknown".
    estimates : mapping of name to Interval or None
        Divergences in nats, per response or per token as the name says; None with the reason in ``reasons``.
    table : BoundTable
        Bounds at the point estimates, in units of the reward.
    optimistic : tuple of Bound
        Published rules as if the largest divergence that was seen were the supremum, which no sample shows.
    b_star_upper, b_star_published : Bound or None
        B* at the upper confidence limits; that of the paper's six families, at assumed suprema, else at sample maxima
        (then optimistic). Also :attr:`best_upper` and :attr:`best_published`.
    mask : MaskReport or None
        What the mask that was asked about keeps.
    noise_floor : Comparison or None
        This log against one of a repeated forward pass of the same weights.
    guarantees : Guarantees
        Intervals of J(theta) - J(roll), also as :attr:`improvement` and :attr:`improvement_these_prompts`.
    findings : tuple of Finding
        What is remarkable about the log, on how much of it, and what it does to the result.
    reasons : mapping of name to text
        Why something cannot be estimated or guaranteed.
    assumptions : tuple of Assumption
        What was taken for granted.
    waived : mapping of Kind to pattern
        Kinds of findings that do no harm here, by what was assumed or is not used, and to what: how its names begin.
    unsaid : tuple of Kind
        Kinds of findings that say what nobody declared, and nothing against it.
    rounding : float
        What half precision adds to the KL of a response, and may move a gain by, in units of the reward's range.

    Examples
    --------
    >>> import bounds
    >>> c = bounds.certify(bounds.example_traces())
    >>> round(c.estimates["kl_seq"].value, 3), c.estimates["kl_seq"].standing.label
    (0.072, 'estimated')
    """

    responses: int
    prompts: int
    tokens: int
    horizon: int
    at_horizon: float
    confidence: float
    train_policy: str
    estimates: Mapping[str, Interval | None]
    # what is marked so stands in JSON in parts
    table: BoundTable = field(metadata={"json": False})
    optimistic: tuple[Bound, ...] = field(metadata={"json": False})
    b_star_upper: Bound | None
    b_star_published: Bound | None
    b_star_lower: Bound | None = field(metadata={"json": False})
    mask: MaskReport | None
    guarantees: Guarantees = field(metadata={"json": False})
    noise_floor: Comparison | None
    reasons: Mapping[str, str]
    findings: tuple[Finding, ...]
    assumptions: tuple[Assumption, ...]
    waived: Mapping[Kind, str] = field(default_factory=dict, metadata={"json": False})
    unsaid: tuple[Kind, ...] = field(default=(), metadata={"json": False})
    rounding: float = field(default=0.0, metadata={"json": False})
    schema_version: ClassVar = 1
    derived: ClassVar = (
        "schema_version", "verdict", "bounds", "withheld", "b_star", "reward_interval", "improvement", "hypotheses",
        "warnings",
    )  # fmt: skip

    @property
    def verdict(self) -> Verdict:
        """Whether the step is safe, how sure that is, and what to do."""
        return verdict(self)

    @property
    def headline(self) -> Interval | None:
        """The interval that the verdict is about: of prompts like these, or of these where no other speaks."""
        return self.guarantees.headline(self.prompts)

    def block(self) -> list[str]:
        """Return the answer in a few lines: the verdict, how sure it is, what to do."""
        return block(self)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Bounds at the estimates, and optimistic ones."""
        return (*self.table.bounds, *self.optimistic)

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What every guarantee rests on."""
        return HYPOTHESES

    @property
    def b_star(self) -> Bound | None:
        """B*: the smallest bound at the point estimates; optimistic maxima never enter it."""
        return self.table.best

    best = b_star

    @property
    def reward_interval(self) -> Interval | None:
        """Where J(theta) lies by kl(J(roll) || J(theta)) <= D: at kl_seq as estimated, for all of reward's interval."""
        return self.table.reward_interval

    @property
    def best_upper(self) -> Bound | None:
        """B* at the upper confidence limits."""
        return self.b_star_upper

    @property
    def best_published(self) -> Bound | None:
        """B* of the paper's six families, at assumed suprema, else at sample maxima (then optimistic)."""
        return self.b_star_published

    @property
    def improvement(self) -> Interval | None:
        """J(theta) - J(roll) for new prompts like these: finite-sample, with no assumption on the policies."""
        return self.guarantees.intervals.get("improvement")

    @property
    def improvement_these_prompts(self) -> Interval | None:
        """J(theta) - J(roll), averaged over the prompts of this log."""
        return self.guarantees.intervals.get("improvement_these_prompts")

    @property
    def doubted(self) -> bool:
        """Whether something in the log speaks against the hypotheses of a gain or loss that would be guaranteed."""
        i = self.headline
        claimed = i is not None and (i.low > 0.0 or i.high < 0.0)
        return claimed and any(f.kind in DOUBTS for f in self.findings)

    @property
    def shows_nothing(self) -> bool:
        """Whether both policies' log-probs are copies, and no supremum was assumed."""
        return Kind.COPIED not in self.waived and any(f.kind is Kind.COPIED for f in self.findings)

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        """Rules that were evaluated neither at the estimates nor optimistically."""
        shown_names = {b.name for b in self.optimistic}
        return tuple(w for w in self.table.withheld if w.name not in shown_names)

    def quantity(self, name: str, *, upper: bool) -> float | None:
        """Return the upper or lower end of a named number; B* at the upper or lower limits, None if optimistic.

        Raises
        ------
        KeyError
            For an unknown name, with the likely meant one.
        """
        winners = {
            "b_star": self.best_upper if upper else self.b_star_lower,
            "b_star_upper": self.best_upper if upper else self.b_star_lower,
            "b_star_published": self.best_published,
        }
        if name in winners:
            bound = winners[name]
            return None if bound is None or bound.optimistic else bound.value
        intervals = {**dict.fromkeys((*ESTIMATES, *NAMES)), **self.estimates, **self.guarantees.intervals}
        if name not in intervals:
            raise KeyError(unknown("quantity", name, [*winners, *intervals]))
        interval = intervals[name]
        return None if interval is None else interval.high if upper else interval.low

    def against(self, name: str, beside: Collection[Kind] = ()) -> Finding | None:
        """Return the gravest finding, of no kind in ``beside``, that speaks against what a quantity rests on.

        One that refutes the log comes before others, and one that says what is wrong before one that says only that
        something is.
        """
        told = (f for f in self.findings if f.kind not in beside and closes(f.kind, name, self.waived))
        return min(told, key=lambda f: (not f.kind.refutes, _SAYING_LESS.get(f.kind, 0)), default=None)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each estimate, and for each interval of J(theta) - J(roll)."""
        import pandas as pd

        intervals = {**self.estimates, **self.guarantees.intervals}
        rows = [{"name": n, **i.to_dict()} for n, i in intervals.items() if i is not None]
        return pd.DataFrame(rows).drop(columns="vacuous", errors="ignore")

    def to_dict(self) -> dict[str, Any]:
        """Return what ``trm-bounds certify --json`` prints: what is guaranteed stands beside the estimates."""
        return {**jsonable(self), **self.guarantees.to_dict()}

    def sentence(self) -> str:
        """Return what is guaranteed; and, in a second sentence, how wrong the surrogate can be."""
        kl_seq, spread = self.estimates["kl_seq"], self.table.reward_spread
        doubt = (
            " But something in the log speaks against what this rests on (see what was seen)." if self.doubted else ""
        )
        return f"{self.guarantees.sentence(self.prompts, kl_seq, spread)}{doubt} {self._error_sentence()}"

    def _error_sentence(self) -> str:
        if self.shows_nothing:
            return (
                "How wrong the surrogate can be was not measured: both policies' log-probs are bitwise identical, as "
                "copies are."
            )
        if self.best is None:
            return "No bound applies to this log."
        text = f"At the estimates, |J(theta) - J(roll) - L'| <= {shown(self.best.value)} ({self.best.name})"
        if self.best_upper is not None:
            text += f"; at their upper {100 * self.confidence:.6g}% limits {shown(self.best_upper.value)}"
        if self.best_published is not None:
            where = " at the largest divergence seen (optimistic)" if self.best_published.optimistic else ""
            text += f"; the published B* is {shown(self.best_published.value)}{where}"
        return text + f". Standing: {self.best.standings}."

    def heading(self) -> str:
        """Return what was logged."""
        return (
            f"{many(self.responses, 'response')} to {many(self.prompts, 'prompt')}, "
            f"{many(self.tokens, 'policy token')}, horizon "
            f"{self.horizon} ({self.at_horizon:.1%} of the responses reach it)"
        )

    def tables(self) -> list[Cells]:
        """Return what was seen, estimates, guarantees, bounds."""
        guaranteed = [self.guarantee_cells()] if self.improvement else []
        seen = [self.finding_cells()] if self.findings else []
        return [*seen, self.estimate_cells(), *guaranteed, self.bound_cells()]

    def finding_cells(self) -> Cells:
        """Return what was seen in the log."""
        rows: list[Row] = [([f.kind.replace("_", " "), str(f.count), f.unit, f.effect], False) for f in self.findings]
        return ["seen in the log", "on", "of what", "what it does"], rows

    def estimate_cells(self) -> Cells:
        """Return every estimate with its interval."""
        rows: list[Row] = []
        for name, i in self.estimates.items():
            if i is None:
                rows.append(([name, "-", "", "", self.reasons.get(name, "")], False))
            else:
                empty = name.startswith("worst_case_error") and i.low == -math.inf
                span = "says nothing" if empty and i.high > self.table.reward_spread else i.span()
                rows.append(([name, i.texts()[0], span, i.standing.label, i.of or i.method], False))
        return ["estimate", "value", f"{100 * self.confidence:.6g}% interval", "standing", "how"], rows

    def guarantee_cells(self, *, measured: bool | None = None) -> Cells:
        """Return intervals of J(theta) - J(roll): all, or those that hold for every sample size, or estimated ones."""
        rows: list[Row] = []
        for name, i in self.guarantees.intervals.items():
            if measured is None or measured == (i.standing is not Standing.ESTIMATED):
                value = "-" if name in ENDS_ONLY else i.texts()[0]
                rows.append(([name, value, i.span(), i.standing.label, i.of], False))
        return ["J(theta) - J(roll)", "value", f"{100 * self.confidence:.6g}% interval", "standing", "from"], rows

    def bound_cells(self) -> Cells:
        """Return bounds at the estimates, and optimistic ones."""
        return replace(self.table, bounds=self.bounds).cells(best=self.best, published=self.best_published)

    def notes(self) -> list[str]:
        """Return what the numbers rest on, what was assumed, what is remarkable."""
        low, high = self.table.profile["reward_range"]
        declared = f"(rewards are declared to lie in [{low:g}, {high:g}])"
        lines = [self.of_intervals(), f"What is guaranteed rests on: {'; '.join(HYPOTHESES)} {declared}."]
        lines += [] if self.guarantees.claim is None else [f"{self.guarantees.claim}."]
        return [*lines, *self.details()]

    def of_intervals(self) -> str:
        """Return what the intervals are."""
        return (
            f"Estimated intervals are Student's t over {many(self.prompts, 'prompt')}: asymptotic, no certificates. "
            "Measured ones hold for every sample size."
        )

    def details(self) -> list[str]:
        """Return noise floor and mask, what could not be said, what was assumed."""
        lines = []
        if self.noise_floor is not None:
            kl = self.noise_floor["kl_seq"]
            lines.append(
                f"Noise floor: two forward passes of the same weights alone give kl_seq = {kl.first.texts()[0]}; what "
                f"is above it is {kl.difference.texts()[0]} ({kl.difference.span()})."
            )
        lines += [] if self.mask is None else [str(self.mask)]
        lines += [f"No {name}: {reason}" for name, reason in self.reasons.items()]
        lines += withheld_lines(self.withheld)
        lines += [f"Assumed: {a}" for a in self.assumptions]
        lines += [f.advice for f in self.findings if f.causes]
        return [
            *lines,
            f"theta is the policy that scored train_logprobs: {TRAIN_POLICY_WORDS[self.train_policy]}.",
        ]
