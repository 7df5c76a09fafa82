r"""Guarantees of J(theta) - J(roll) from logged responses, and how far a log is from guaranteeing an improvement.

With R in [0, 1] and P = theta/roll of a response, for any two policies

    E[R (P - 1)] <= J(theta) - J(roll) <= E[(1 - R)(1 - P)],

since theta may put mass where roll has none, and the reward there is in [0, 1]. The left variable is at least -1 and
the right at most 1, which is all that betting needs: no truncation, no cap on the ratios. With log P = S - Phi, and any
mask M of the prompt and the response,

    E[M R log P] - E[(1 - M) R] <= J(theta) - J(roll) <= E[(1 - M)(1 - R)] - E[M (1 - R) log P].

Where it is declared that P <= c for every response that either policy can give, E P = 1, and b(1 - P) may be added to
the left variable: (R - b)(P - 1) has the same mean, and is at least -max(1 - b, b(c - 1)) = -(1 - 1/c) for b = 1/c. So
has its mirror (R - 1 + b)(P - 1) on the right. That no larger P was seen is not enough: it must be known beforehand.

Where M(c), the largest ratio of the whole vocabulary, is logged at each context c, let Q be P before the first token
with P M(c) > 2. Whether to stop is known before the token, and M(c) is infinite where roll lacks a token of theta; so
E Q = 1 for every prompt, and Q <= 2. Therefore R(P - 1) + (1 - Q)/2 has the mean of the left variable, but mostly less
variance; it is at least -3/2, and its mirror (1 - R)(1 - P) - (1 - Q)/2 at most 3/2. For the prompts of the log, half
of the wealth is bet on that. For new prompts the range counts more than the variance below some 2,000 of them: half of
the error without and half with it would make their interval a sixth wider at 128 prompts, so they go without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds._text import many, round_up_whole, shown
from bounds.certificate.kept import UnderMask, scaled
from bounds.certificate.statistics import STOP_AT, times
from bounds.certificate.summary import Summary
from bounds.intervals import (
    INTERVALS,
    Side,
    betting,
    betting_sum,
    betting_these_prompts,
    clustered_mean,
    leave_one_out,
    prompt_means,
    star,
)
from bounds.intervals.ends import mean_of, prompt_sums
from bounds.intervals.planning import POWER, RUNS, fewest_prompts
from bounds.results import Interval, Standing, jsonable
from bounds.rules.bound import Bound, in_words

#: What every guarantee from a log rests on; none of it can be read off the log.
HYPOTHESES = (
    "theta, the mask and every tuning constant were fixed without looking at these responses (after an update on "
    "them: score held-out prompts), and for new prompts without looking at these prompts",
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
        where = "under the assumed suprema"
        if self.optimistic:
            where = "if no divergence is larger than the largest that was seen"
        numbers = f"L' = {self.surrogate_gain:.3g}, B* = {shown(self.b_star)} ({self.rule})"
        return f"The paper's statement {verdict}: {numbers}, {where}"


@dataclass(frozen=True)
class Guarantees:
    """Intervals of J(theta) - J(roll), in units of the reward.

    Attributes
    ----------
    intervals : mapping of name to Interval
        ``improvement``: of the population that the prompts were drawn from; MEASURED, true at its confidence for every
        sample size. ``improvement_these_prompts``: averaged over the prompts of this log only.
        ``improvement_asymptotic``: leave-one-out and prompt-clustered; narrower, needs theta << roll and many prompts.
        ``improvement_empirical_bernstein``, ``improvement_hoeffding``: wider as a rule, for comparison.
        ``improvement_of_steps``: the sum over the steps of a run of J(theta) - J(roll), each of its own two policies.
        ``improvement_by_surrogate``, ``improvement_by_log_surrogate``: lower values, L' - B* and E[R log P].
        ``improvement_under_mask``: what is left when rejected responses are not looked at.
    claim : Claim or None
        The paper's statement.
    kept_gain, rejected_reward : float or None
        E[M R log P] and E[(1-M) R]: the masked lower value is their difference.
    condition : str
        What the sentence says that it rests on, if anything.
    gains, losses : array [prompts] or None
        Means over each prompt's responses of R(P-1) and of (1-R)(P-1); None where theta may have learned from prompts.
    end : float
        The confidence of one end.
    """

    intervals: Mapping[str, Interval] = field(default_factory=dict)
    claim: Claim | None = None
    kept_gain: float | None = None
    rejected_reward: float | None = None
    condition: str = ""
    gains: FloatArray | None = field(default=None, repr=False, compare=False)
    losses: FloatArray | None = field(default=None, repr=False, compare=False)
    end: float = 0.0

    @cached_property
    def prompts_needed(self) -> int | None:
        """How many prompts like these show an improvement, as :func:`bounds.plan` says; None where no number does."""
        return None if self.gains is None else fewest_prompts(self.gains, self.end, POWER, RUNS)

    @cached_property
    def prompts_needed_for_harm(self) -> int | None:
        """The same for a loss."""
        return None if self.losses is None else fewest_prompts(self.losses, self.end, POWER, RUNS)

    def headline(self, prompts: int) -> Interval | None:
        """Return the interval that the sentence is about: of prompts like these, or of these where no other speaks."""
        these = self.intervals.get("improvement_these_prompts")
        return these if prompts == 1 else self.intervals.get("improvement", these)

    def sentence(self, prompts: int, kl_seq: Interval | None, spread: float) -> str:
        """Return what is guaranteed; otherwise how far it is from being guaranteed."""
        i = self.headline(prompts)
        if i is None:
            return "Nothing is guaranteed of J(theta) - J(roll)."
        like = "improvement" in self.intervals
        whose = "for this one prompt" if prompts == 1 else f"for {'prompts like these' if like else 'these prompts'}"
        _, low, high = i.texts()
        text = f"J(theta) - J(roll) is between {low} and {high} at confidence {100 * i.confidence:.6g}%, {whose}"
        text += self.condition
        if i.low > 0.0:
            return text + ": an improvement is guaranteed."
        if i.high < 0.0:
            return text + ": a loss is guaranteed."
        return text + f": no improvement is guaranteed yet.{self._what_would_do(prompts, kl_seq, spread)}"

    def _what_would_do(self, prompts: int, kl_seq: Interval | None, spread: float) -> str:
        ways = []
        if self.prompts_needed is not None and prompts > 1:
            ways.append(f"about {round_up_whole(self.prompts_needed)} prompts (if all are like these {prompts})")
        if self.claim is not None and kl_seq is not None and 0.0 < self.claim.surrogate_gain < spread * kl_seq.value:
            least = self.claim.surrogate_gain / spread
            name = "L'" if spread == 1.0 else f"L' / {spread:g}"
            ways.append(f"a KL per response below {name} = {least:.3g} (it is {kl_seq.value:.3g})")
        kept, rejected = self.kept_gain, self.rejected_reward
        if kept is not None and rejected is not None and 0.0 < kept < rejected:
            ways.append(f"a mask that rejects less reward than E[M R log P] = {kept:.3g} (it rejects {rejected:.3g})")
        if not ways:
            return " More prompts like these would not show one."
        return f" At these estimates it would take {', or '.join(ways)}."

    def to_dict(self) -> dict[str, Any]:
        """Return every interval by its name, JSON-ready, and what they need."""
        found = jsonable(self.intervals)
        for name in _TARGETS.keys() & found.keys():
            found[name]["target"] = _TARGETS[name]
        rest = ("claim", "kept_gain", "rejected_reward", "prompts_needed")
        return {**found, **{name: jsonable(getattr(self, name)) for name in rest}}


#: What is no estimate of J(theta) - J(roll), but of an end, or the middle between two.
ENDS_ONLY = ("improvement_by_surrogate", "improvement_by_log_surrogate", "improvement_under_mask")
#: Every interval that there can be.
NAMES = (
    *("improvement", "improvement_these_prompts", "improvement_asymptotic", "improvement_of_steps"),
    *("improvement_empirical_bernstein", "improvement_hoeffding", *ENDS_ONLY),
)
_TARGETS = {"improvement": "new_prompts", "improvement_these_prompts": "these_prompts"}
_COMPARED = ("empirical_bernstein", "hoeffding")
_LARGEST = 1.0 - 2.0**-53  # confidence
_WORTH_ASSUMING = 4.0  # a larger cap on P that follows from one on tokens narrows less than it rests on
_TRUNCATE_AT = 2.0  # of P, in the intervals that are shown for comparison; fixed beforehand


# --- from a log ----------------------------------------------------------------------------------------------------


def _condition(summary: Summary) -> str:
    """Return what a sentence says that it rests on."""
    said = []
    if summary.train_policy == "unknown":
        said.append(", if the training policy did not learn from these responses")
    if summary.assumptions or summary.several_steps:
        said.append(", under what is assumed of the log")
    return "".join(said)


#: Intervals that speak of new prompts, of which nothing is guaranteed where theta has learned from these prompts.
_OF_NEW_PROMPTS = ("improvement", *(f"improvement_{name}" for name in _COMPARED))


def guarantees(
    summary: Summary,
    confidence: float,
    keep: BoolArray | None = None,
    *,
    support_gap: bool = False,
    cap: float | None = None,
    by_surrogate: Interval | None = None,
    claim: Claim | None = None,
    side: Side = "both",
    ratio_max: float | None = None,
) -> Guarantees:
    """Return every interval of J(theta) - J(roll), each at that confidence; without rewards nothing is guaranteed.

    ``side`` is where the error of each may be: a gate that was declared to ask for one end has it at the full level,
    and the other end is that of the range. ``ratio_max`` is an assumed cap on P, for all responses there can be.

    ``keep`` [N] says which responses a mask keeps; under a support gap, what needs theta << roll is left out; ``cap``
    is an assumed one on abs(log ratio). ``by_surrogate`` is what the bounds say, ``claim`` what the paper would.
    """
    if "reward" not in summary:
        return Guarantees()
    gain = Gain(summary, confidence, side=side, ratio_max=ratio_max, support_gap=support_gap)
    log_ratio, prompt = summary["log_ratio_sum"], summary.prompt
    by_log = clustered_mean(gain.spread * times(gain.reward, log_ratio), prompt, confidence, side=side)
    found = {
        "improvement": gain.new_prompts(),
        "improvement_these_prompts": gain.these_prompts(),
        "improvement_asymptotic": None if support_gap else gain.asymptotic(),
        **{f"improvement_{name}": gain.truncated(name) for name in _COMPARED},
        "improvement_of_steps": of_steps(summary, gain),
        "improvement_by_surrogate": by_surrogate,
        "improvement_by_log_surrogate": replace(by_log, high=math.inf, of="R log P"),
        "improvement_under_mask": None if keep is None else masked(summary, keep, confidence, cap, side),
    }
    withheld = _OF_NEW_PROMPTS if summary.prompts_return else ()
    if summary.several_steps:  # bets on a mean want policies that were fixed before all of it; those on a sum do not
        of_a_mean = ("improvement", "improvement_these_prompts", *(f"improvement_{name}" for name in _COMPARED))
        found.update({n: replace(i, standing=Standing.ASSUMED) for n in of_a_mean if (i := found.get(n)) is not None})
    return Guarantees(
        {name: interval for name, interval in found.items() if interval is not None and name not in withheld},
        claim,
        kept_gain=None if keep is None else gain.mean(times(keep * gain.reward, log_ratio)),
        rejected_reward=None if keep is None else gain.mean(~keep * gain.reward),
        gains=None if withheld else np.sort(prompt_means(gain.gain / gain.most, prompt)),
        losses=None if withheld else np.sort(prompt_means(-gain.loss / gain.most, prompt)),
        end=gain.end,
        condition=_condition(summary),
    )


def largest_ratio(summary: Summary, assumed: Mapping[str, Any]) -> float | None:
    """Return the cap on P that is declared, or follows from one on the log ratio of tokens, if that is worth it."""
    if "response_ratio_max" in assumed:
        return float(assumed["response_ratio_max"])
    reach = summary.horizon * assumed.get("log_ratio_max", math.inf) * (1.0 + 2e-6)
    return math.exp(reach) * (1.0 + 1e-12) if reach <= math.log(_WORTH_ASSUMING) else None


def of_steps(summary: Summary, gain: Gain) -> Interval | None:
    """Return the sum over steps of J(theta) - J(roll), each of that step's policies; None of less than two steps.

    It is what the run gained only where the policy that a step trained draws the responses of the next, which weight
    versions that rise by one say of an updated theta; ``of`` says what it is. Of prompts that were answered at several
    steps it is the sum for these prompts: as draws of new ones they would count as often as they were answered.
    """
    if "step" not in summary or not summary.several_steps:
        return None
    _, step = summary.labels_in_order("step")
    found = gain.summed(step, these=summary.prompts_recur)
    run = "the run's gain: each step draws with the policy that the step before trained"
    return replace(found, of=run if _telescopes(summary, step) else "sum over steps, each of its own two policies")


def _telescopes(summary: Summary, step: IntArray) -> bool:
    """Return whether theta is the updated policy, on new prompts, and each step's version is one more than the last."""
    names = summary.labels.get("weight_version", [])
    if summary.train_policy != "held-out" or summary.prompts_recur or not names or not all(map(str.isdigit, names)):
        return False
    version = np.array([int(name) for name in names])[summary["weight_version"].astype(np.int64)]
    one = np.array([version[step == k].min() for k in range(int(step.max()) + 1)])
    return bool((version == one[step]).all() and (np.diff(one) == 1).all())


class Gain:
    """R(P-1) and (1-R)(1-P) of responses, R mapped to [0, 1]; intervals of J(theta) - J(roll) in units of the reward.

    ``confidence`` is that of each interval as a whole: each end may fail with half of the error, or the one that
    ``side`` names with all of it. ``rows`` [N] are the responses to look at (whole prompts). Under an assumed cap
    ``ratio_max`` = c on P, b = 1/c is taken off the reward in both; under a ``support_gap``, where the largest ratios
    of the vocabulary would be infinite, logged ones are not used.

    Examples
    --------
    >>> import bounds
    >>> i = Gain(Summary.of(bounds.example_traces()), 0.95).new_prompts()
    >>> round(i.low, 2), round(i.high, 2), i.standing.label
    (-0.15, 0.17, 'measured')
    """

    def __init__(
        self,
        summary: Summary,
        confidence: float,
        rows: BoolArray | None = None,
        *,
        side: Side = "both",
        ratio_max: float | None = None,
        support_gap: bool = False,
    ) -> None:
        here = slice(None) if rows is None else rows
        self.spread, self.standing = summary.reward_spread, summary.standing
        self.prompt, self.confidence, self.side = summary.prompt[here], confidence, side
        self._keys = summary["prompt"][here]
        self.reward = summary.unit_reward[here]
        with np.errstate(over="ignore"):
            self.excess = np.expm1(summary["log_ratio_sum"][here])  # P - 1
        base = 0.0 if ratio_max is None else 1.0 / ratio_max
        self.gain, self.loss = times(self.reward - base, self.excess), -times(1.0 - self.reward - base, self.excess)
        #: The largest loss of both, rounded up.
        self.most = 1.0 if ratio_max is None else min(max(1.0 - base, base * (ratio_max - 1.0)) + 1e-12, 1.0)
        self.of = "R(P-1) and (1-R)(1-P)"
        if ratio_max is not None:
            self.of, self.standing = f"(R-b)(P-1), b = {base:.3g}, and its mirror, under P <= 1/b", Standing.ASSUMED
        #: (1 - Q)/2, if the log has it and nothing speaks against it.
        self.control: FloatArray | None = None
        if "stopped_sum" in summary and ratio_max is None and not support_gap:
            stopped = np.exp(summary["stopped_sum"][here])
            self.control = (1.0 - stopped) / 2.0 if stopped.max() <= STOP_AT else None
        self.end = one_end(confidence, side)
        self.vacuous = side == "both" and 1.0 - self.end > (1.0 - confidence) / 2.0  # less than float64 can say

    def mean(self, values: FloatArray) -> float:
        """Average over prompts, in units of the reward."""
        return self.spread * float(prompt_means(values, self.prompt).mean())

    def new_prompts(self, *, looked_at_again: bool = False) -> Interval:
        """Bound it for new prompts, at every sample size, with no assumption on the policies.

        STaR bets need a number of prompts that was fixed beforehand; what is ``looked_at_again`` while a log grows is
        bounded by order-free ones alone, which hold at all those times at once.
        """
        method: Callable[..., Interval] = betting
        if not looked_at_again:
            first = np.sort(np.unique(self.prompt, return_index=True)[1])
            method = partial(star, keys=self._keys[first])
        return self._joined(self._of_means(method), self.gain, self.loss, "new prompts", least=self.most)

    def these_prompts(self) -> Interval:
        """Bound its average over these prompts, likewise."""
        method, what = partial(betting_these_prompts, control=self.control), "these prompts"
        if self.control is not None:
            what += ", half of it with P stopped at 2"
        return self._joined(method, self.gain, self.loss, what, least=self.most)

    def summed(self, step: IntArray, *, these: bool) -> Interval:
        """Bound its sum over steps, at all times at once; ``step`` [rows] is the number of each response's step.

        Each step's policies may depend on the steps before, but not on its own responses. Of new prompts, a value is
        the mean over a prompt's responses at a step; of ``these`` prompts, it is that of a response.
        """
        pairs, unit = np.unique(step * (self.prompt.max() + 1) + self.prompt, return_inverse=True)
        step_of_pair = pairs // (self.prompt.max() + 1)
        prompts, responses = np.bincount(step_of_pair), np.bincount(unit)
        of_step = step if these else step_of_pair  # of each value
        weight = 1.0 / prompts[of_step] / (responses[unit] if these else 1.0)
        scale = float(np.count_nonzero(of_step == 0))

        def units(values: FloatArray) -> FloatArray:
            return values if these else prompt_sums(values, unit) / responses

        def mean(values: FloatArray) -> float:
            return prompts.size * mean_of(units(values) * weight * (weight.size / prompts.size))

        def method(values: FloatArray, _: IntArray, confidence: float, **range_and_side: Any) -> Interval:
            return betting_sum(units(values), weight, scale, confidence, **range_and_side)

        whose = f"{'these' if these else 'new'} prompts, summed over {many(prompts.size, 'step')}"
        return self._joined(method, self.gain, self.loss, whose, least=self.most, steps=prompts.size, mean=mean)

    def asymptotic(self) -> Interval:
        """Estimate by leave-one-out, clustered by prompt; needs theta << roll."""
        with np.errstate(over="ignore"):
            found = leave_one_out(self.reward, self.excess + 1.0, self.prompt, self.confidence, side=self.side)
        return replace(scaled(found, self.spread), of="(R-b)(P-1), b from the other responses")

    def truncated(self, name: str) -> Interval:
        """Bound by another method, which needs P to be cut on both sides."""
        most = _TRUNCATE_AT - 1.0
        capped = np.minimum(self.excess, most)
        gain, loss = self.reward * capped, (self.reward - 1.0) * capped
        return self._joined(self._of_means(INTERVALS[name]), gain, loss, f"P cut at {_TRUNCATE_AT:g}", most)

    def _mean(self, values: FloatArray) -> float:
        return mean_of(prompt_means(values, self.prompt))

    def _of_means(self, method: Callable[..., Interval]) -> Callable[..., Interval]:
        """Return a method that takes responses and their prompts, by the means of these."""

        def of_responses(values: FloatArray, prompt: IntArray, confidence: float, **range_and_side: Any) -> Interval:
            return method(prompt_means(values, prompt), confidence, **range_and_side)

        return of_responses

    def _joined(
        self,
        method: Callable[..., Interval],
        gain: FloatArray,
        loss: FloatArray,
        what: str,
        most: float = math.inf,
        least: float = 1.0,
        steps: int = 1,
        mean: Callable[[FloatArray], float] | None = None,
    ) -> Interval:
        """Join the lower end of the mean gain and the upper end of the mean loss, or of the range if not asked for."""
        low, high, standing, how = -float(steps), float(steps), self.standing, ""
        if self.side != "upper" and not self.vacuous:
            lower = method(gain, self.prompt, self.end, low=-least, high=most, side="lower")
            low, standing, how = max(lower.low, low), max(lower.standing, standing), lower.method
        if self.side != "lower" and not self.vacuous:
            upper = method(loss, self.prompt, self.end, low=-most, high=least, side="upper")
            high, standing, how = min(upper.high, high), max(upper.standing, standing), upper.method
        # of (R - 1/2)(P - 1): its mean lies between, for any supports
        value = sum((mean or self._mean)(v) for v in (gain, loss)) / 2.0
        if math.isfinite(value) and not low <= value <= high:  # heavy tails take a mean beyond what can be
            what += f", whose mean {self.spread * value:.3g} lies beyond and is cut"
        value = min(max(value, low), high) if math.isfinite(value) else math.inf
        how = f"{how or 'no data is enough'}, {what}"
        return scaled(Interval(value, low, high, self.confidence, standing, how, self.of), self.spread)


def one_end(confidence: float, side: Side) -> float:
    """Return the confidence of one end: each may fail with half of the error, or the one that is asked with all."""
    return min(math.nextafter((1.0 + confidence) / 2.0, 1.0), _LARGEST) if side == "both" else confidence


def masked(
    summary: Summary, keep: BoolArray, confidence: float, cap: float | None = None, side: Side = "both"
) -> Interval:
    """Return both sides of the guarantee that looks at kept responses only.

    Each end is a one-sided clustered t-limit; or, under an assumed ``cap`` on abs(log ratio), the end of a bet, since
    log P is then at most ``cap`` times the horizon.
    """
    spread, under = summary.reward_spread, UnderMask(summary, confidence, side=side)
    if cap is None:
        (lower, upper), standing = under.ends(keep), Standing.ESTIMATED
    else:
        reach, end = 1.0 + summary.horizon * cap * (1.0 + 2e-6), one_end(confidence, side)
        below, above = (prompt_means(v, summary.prompt) for v in under.values(keep))
        lower = betting(below, end, low=-reach, high=reach, side="lower")
        upper = betting(above, end, low=-reach, high=reach, side="upper")
        lower, upper, standing = scaled(lower, spread), scaled(upper, spread), Standing.ASSUMED
    value, of = (lower.value + upper.value) / 2.0, "M R log P - (1-M) R and its mirror"
    low = -spread if side == "upper" else max(lower.low, -spread)
    high = spread if side == "lower" else min(upper.high, spread)
    return Interval(value, low, high, confidence, standing, lower.method, of)


def through_surrogate(gain: Interval, bound: Bound, upper: Bound, confidence: float) -> Interval:
    """Return L' minus a bound; ``upper`` is the same rule at the upper limits of what it uses, for L' at its lower."""
    standings = (gain.standing, *upper.rests_on.values())
    method = "the ends of several intervals, not joint"
    of = f"L' - {upper.name} ({in_words(standings)})"
    return Interval(gain.value - bound.value, gain.low - upper.value, math.inf, confidence, max(standings), method, of)
