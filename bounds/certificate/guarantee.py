"""What a log guarantees of J(theta) - J(roll), and how far it is from guaranteeing an improvement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bounds._text import shown
from bounds.results import Interval, Standing, jsonable

#: What every guarantee from a log rests on; none of it can be read off the log.
HYPOTHESES = (
    "theta, the mask and every tuning constant were fixed without looking at these responses (after an update on "
    "them: score held-out prompts)",
    "all sampled responses were logged, before any filtering (dynamic sampling, dropped groups, overlong ones)",
    "rollout_logprobs are those of the law that sampled (temperature, top-p renormalised)",
    "the reward is the raw one, not a normalised advantage, and always in its declared range",
    "prompts are independent draws with an id for each draw (ids count alike, however often a prompt was drawn), and "
    "the responses to one are independent, their number fixed beforehand",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The paper's guarantee, as the paper would read it off this log: L' > B* where delta holds everywhere."""

    surrogate_gain: float
    b_star: float
    rule: str
    optimistic: bool
    derived: ClassVar = ("holds",)

    @property
    def holds(self) -> bool:
        """Whether it would promise an improvement."""
        return self.surrogate_gain > self.b_star

    def __str__(self) -> str:
        verdict = "promises an improvement" if self.holds else "promises nothing"
        numbers = f"L' = {self.surrogate_gain:.3g}, B* = {shown(self.b_star)} ({self.rule})"
        if self.optimistic:
            return (
                f"The paper's statement {verdict}: {numbers}, if no divergence is larger than the largest that was seen"
            )
        return f"The paper's statement {verdict}: {numbers}, under the assumed suprema"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Intervals of J(theta) - J(roll), in units of the reward.

    Attributes
    ----------
    new_prompts : Interval or None
        Of the population that the prompts were drawn from; MEASURED: true at its confidence for every sample size.
    these_prompts : Interval or None
        Averaged over the prompts of this log only.
    asymptotic : Interval or None
        Leave-one-out and prompt-clustered; ESTIMATED, narrower, needs theta << roll and many prompts.
    others : mapping of name to Interval
        Other finite-sample intervals of the same, wider as a rule, for comparison.
    surrogate, log_surrogate : Interval or None
        Lower values through the surrogate, L' - B* and L' - E[R Phi] = E[R log P]; ESTIMATED.
    masked : Interval or None
        What is left of the guarantee when rejected responses are not looked at; ESTIMATED.
    claim : Claim or None
        The paper's statement.
    kept_gain, rejected_reward : float or None
        E[M R log P] and E[(1-M) R]: the masked lower value is their difference.
    prompts_needed : int or None
        How many prompts would show an improvement, if all were like these; None where no number would.
    """

    new_prompts: Interval | None = None
    these_prompts: Interval | None = None
    asymptotic: Interval | None = None
    others: Mapping[str, Interval] = field(default_factory=dict)
    surrogate: Interval | None = None
    log_surrogate: Interval | None = None
    masked: Interval | None = None
    claim: Claim | None = None
    kept_gain: float | None = None
    rejected_reward: float | None = None
    prompts_needed: int | None = None

    def intervals(self) -> dict[str, Interval]:
        """All intervals that there are, by name."""
        named = {
            "improvement": self.new_prompts,
            "improvement_these_prompts": self.these_prompts,
            "improvement_asymptotic": self.asymptotic,
            **self.others,
            "improvement_by_surrogate": self.surrogate,
            "improvement_by_log_surrogate": self.log_surrogate,
            "improvement_under_mask": self.masked,
        }
        return {name: interval for name, interval in named.items() if interval is not None}

    def without_empty(self) -> Guarantees:
        """Without those for comparison whose ends cross (Student's t on equal values has no width)."""
        masked = self.masked if self.masked is None or self.masked.low <= self.masked.high else None
        return replace(self, masked=masked, others={n: i for n, i in self.others.items() if i.low <= i.high})

    def headline(self, prompts: int) -> Interval | None:
        """The interval that the sentence is about: of prompts like these, or of the one that there is."""
        return self.these_prompts if prompts == 1 and self.these_prompts is not None else self.new_prompts

    def sentence(self, prompts: int, kl_seq: Interval | None, spread: float) -> str:
        """What is guaranteed; otherwise how far it is from being guaranteed."""
        i = self.headline(prompts)
        whose = "for prompts like these" if i is self.new_prompts else "for this one prompt"
        if i is None:
            return "Nothing is guaranteed of J(theta) - J(roll)."
        _, low, high = i.texts()
        level = f"{100 * i.confidence:.6g}%"
        text = f"J(theta) - J(roll) is between {low} and {high} at confidence {level}, {whose}"
        if i.standing is Standing.ASSUMED:
            text += ", under what is assumed of the log"
        if i.low > 0.0:
            return text + ": an improvement is guaranteed."
        if i.high < 0.0:
            return text + ": a loss is guaranteed."
        return text + f": no improvement is guaranteed yet.{self._what_would_do(prompts, kl_seq, spread)}"

    def _what_would_do(self, prompts: int, kl_seq: Interval | None, spread: float) -> str:
        ways = []
        if self.prompts_needed is not None and prompts > 1:
            ways.append(f"about {_round_up(self.prompts_needed)} prompts (if all are like these {prompts})")
        if self.claim is not None and kl_seq is not None and 0.0 < self.claim.surrogate_gain < spread * kl_seq.value:
            least = self.claim.surrogate_gain / spread
            name = "L'" if spread == 1.0 else f"L' / {spread:g}"
            ways.append(f"a KL per response below {name} = {least:.3g} (it is {kl_seq.value:.3g})")
        if (
            self.kept_gain is not None
            and self.rejected_reward is not None
            and 0 < self.kept_gain < self.rejected_reward
        ):
            ways.append(
                f"a mask that rejects less reward than E[M R log P] = {self.kept_gain:.3g} (it rejects "
                f"{self.rejected_reward:.3g})"
            )
        if not ways:
            return " More prompts like these would not show one."
        return f" At these estimates it would take {', or '.join(ways)}."

    def to_dict(self) -> dict[str, Any]:
        """Return every interval by its name, JSON-ready, and what they need."""
        intervals = jsonable(self.intervals())
        for name in _TARGETS.keys() & intervals.keys():
            intervals[name]["target"] = _TARGETS[name]
        rest = ("claim", "kept_gain", "rejected_reward", "prompts_needed")
        return {**intervals, **{name: jsonable(getattr(self, name)) for name in rest}}


#: What is no estimate of J(theta) - J(roll), but of an end, or the middle between two.
ENDS_ONLY = ("improvement_by_surrogate", "improvement_by_log_surrogate", "improvement_under_mask")
_TARGETS = {"improvement": "new_prompts", "improvement_these_prompts": "these_prompts"}


def _round_up(n: int) -> str:
    """Two digits, rounded up."""
    unit = 10 ** max(len(str(n)) - 2, 0)
    return f"{-(-n // unit) * unit:,}"
