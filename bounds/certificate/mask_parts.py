"""Parts of a study of masks: terms of the guarantee, acceptance by length, and what is no mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bounds.results import Interval, IntervalTable


@dataclass(frozen=True, slots=True)
class MaskTerms:
    """What a mask M keeps, and the terms of what it guarantees of J(theta) - J(roll), in units of the reward.

    Attributes
    ----------
    mask, title : str
        In the form of :class:`bounds.Mask` ("" where there is none), and a name that people know it by.
    acceptance : Interval
        E[M].
    acceptance_high_reward, acceptance_low_reward : Interval or None
        E[M R] / E[R] and E[M (1-R)] / E[1-R]: of the responses with reward 1, and of those with 0.
    surrogate, penalty : Interval or None
        E[M R S] and E[M R Phi].
    rejected_reward, rejected_rest : Interval or None
        E[(1-M) R] and E[(1-M)(1-R)].
    lower : Interval or None
        E[M R S] - E[M R Phi] - E[(1-M) R] <= J(theta) - J(roll).
    upper : Interval or None
        E[M R S] - E[M S] + E[M (1-R) Phi] + E[(1-M)(1-R)] >= J(theta) - J(roll).

    Notes
    -----
    R is mapped to [0, 1], and the terms back to the declared range. None: no rewards (or none of that kind).
    """

    mask: str
    acceptance: Interval
    acceptance_high_reward: Interval | None = None
    acceptance_low_reward: Interval | None = None
    surrogate: Interval | None = None
    penalty: Interval | None = None
    rejected_reward: Interval | None = None
    rejected_rest: Interval | None = None
    lower: Interval | None = None
    upper: Interval | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class LengthBias:
    """A rule that one token can violate, by length: what is kept, and (1-p)^length if tokens were independent.

    ``violation`` is p, the share of all tokens that violate the criterion; ``predicted`` in ``by_length`` the mean of
    (1-p)^length there; ``at_length`` what (1-p)^T would keep of responses of T tokens, by T.
    """

    criterion: str
    violation: Interval
    by_length: IntervalTable
    at_length: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Reweighing:
    """A rule that drops or truncates tokens or weights: the share of ``unit`` that it touches.

    Guarantees speak of masks M(x, y) of whole responses; this rule changes the objective instead.
    """

    rule: str
    unit: str
    share: Interval | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Denominators:
    """The masked surrogate sum M R S over three denominators; the paper's is all responses."""

    surrogate_gain: Interval
    surrogate_gain_per_accepted: Interval | None
    surrogate_gain_per_accepted_token: Interval | None


@dataclass(frozen=True, slots=True)
class ChosenMask:
    """The mask whose ``lower`` is largest on one half of the prompts, and what it is worth on the other half.

    ``lower`` is judged on prompts that had no part in the choice, and so is ``lower_without``, that of no mask.
    """

    mask: str
    candidates: int
    prompts_choosing: int
    prompts_judging: int
    value_choosing: float
    lower: Interval
    lower_without: Interval


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """Acceptance among responses of ``shortest`` to ``longest`` tokens."""

    shortest: int
    longest: int
    responses: int
    acceptance: float


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What a sequence mask keeps.

    ``surrogate_gain`` divides by all responses, as the paper does; ``surrogate_gain_per_accepted`` does not.
    """

    rule: str
    acceptance: Interval
    by_length: tuple[LengthBucket, ...]
    surrogate_gain: Interval | None
    surrogate_gain_per_accepted: Interval | None

    def __str__(self) -> str:
        buckets = ", ".join(f"{b.acceptance:.1%} of {b.shortest}-{b.longest}" for b in self.by_length)
        text = f"Mask {self.rule} keeps {self.acceptance.value:.1%} of the responses; by length in tokens: {buckets}. "
        if self.surrogate_gain is not None and self.surrogate_gain_per_accepted is not None:
            text += (
                f"Masked surrogate {self.surrogate_gain.value:.3g} over all responses (as in the paper), "
                f"{self.surrogate_gain_per_accepted.value:.3g} per accepted one. "
            )
        return text + "It changes no bound: a mask changes neither policy."
