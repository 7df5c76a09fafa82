"""What a mask keeps of a log, and what is left of the guarantee when rejected responses are not looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds._rounding import exact, round_down, round_up
from bounds._text import many, span
from bounds.certificate.statistics import prompt_weights, times
from bounds.certificate.summary import Summary
from bounds.intervals import Side, betting, clopper_pearson, clustered_mean, clustered_ratio, prompt_means
from bounds.masks.mask import Mask
from bounds.results import Interval, IntervalTable, Standing


def kept(summary: Summary, mask: Mask) -> BoolArray:
    """Return which responses [N] a mask keeps."""
    if not mask.dropping:
        return np.ones(len(summary), dtype=np.bool_)
    return mask.holds({name: summary[name] for name in mask.statistics})


# --- how much is kept ----------------------------------------------------------------------------------------------


def acceptance(
    summary: Summary,
    mask: Mask | None,
    keep: BoolArray,
    confidence: float,
    rows: BoolArray | None = None,
    *,
    side: Side = "both",
) -> Interval:
    """Return the share of the responses (of those ``rows`` [N]) that a mask keeps, for every sample size.

    ``keep`` [N] says which, ``side`` where the error may be; where no mask drops a response, 1 is no estimate.
    """
    if mask is None or not mask.dropping:
        return no_mask(confidence)
    here = slice(None) if rows is None else rows
    means = prompt_means(keep[here].astype(np.float64), summary.prompt[here])
    # a mask keeps a response or not, so that one response a prompt makes it a binomial share, known beforehand
    method = clopper_pearson if means.size == keep[here].size else betting
    found = method(means, confidence, low=0.0, high=1.0, side=side)
    return replace(found, standing=summary.standing, of="responses that are kept")


def no_mask(confidence: float) -> Interval:
    """Return the acceptance where nothing is rejected."""
    return Interval(1.0, 1.0, 1.0, confidence, Standing.PROVED, "no mask")


def length_quarters(length: FloatArray) -> tuple[list[str], IntArray]:
    """Return the ranges of the quarters of some lengths, and the quarter of each [N]; fewer where many are equal."""
    edges = np.unique(np.quantile(length, [0.25, 0.5, 0.75], method="lower"))
    quarter = np.unique(np.searchsorted(edges, length), return_inverse=True)[1]
    inside = [length[quarter == k] for k in range(int(quarter.max()) + 1)]
    return [span(int(x.min()), int(x.max())) for x in inside], quarter


def by_length(summary: Summary, keep: BoolArray, confidence: float, **means: FloatArray) -> IntervalTable:
    """Return the acceptance in each quarter of the lengths: estimates, since the log itself says where quarters end.

    ``means`` [N] are averaged there, too.
    """
    length = summary["length"]
    labels, quarter = length_quarters(length)
    rows, facts = {}, {}
    for k, label in enumerate(labels):
        here = quarter == k
        shortest, longest = int(length[here].min()), int(length[here].max())
        rows[label] = {"acceptance": share_of(keep & here, here.astype(np.float64), summary.prompt, confidence)}
        facts[label] = {
            "shortest": shortest, "longest": longest, "responses": int(here.sum()),
            **{name: float(values[here].mean()) for name, values in means.items()},
        }  # fmt: skip
    return IntervalTable("tokens", rows, facts)


def share_of(part: FloatArray, whole: FloatArray, prompt: IntArray, confidence: float) -> Interval:
    """Estimate the pooled share sum(part) / sum(whole) of 0 <= part <= whole.

    If part is all or nothing everywhere, t would give an interval of no width. But a share x of a prompt is 1 with
    probability at most E x, so that all of n prompts show 1 with probability at most (E x)^n; likewise for 0.
    """
    prompts = int(np.count_nonzero(np.bincount(prompt[whole > 0.0])))
    least = (1.0 - confidence) ** (1.0 / prompts)
    if not part.any():
        return Interval(0.0, 0.0, 1.0 - least, confidence, Standing.ESTIMATED, f"none in {many(prompts, 'prompt')}")
    if (part == whole).all():
        return Interval(1.0, least, 1.0, confidence, Standing.ESTIMATED, f"all in {many(prompts, 'prompt')}")
    interval = clustered_ratio(part, whole, prompt, confidence, low=0.0)
    return replace(interval, high=min(interval.high, 1.0), method=f"share, clustered t, {many(prompts, 'prompt')}")


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit, its ends rounded outward."""
    low, high = (
        rounded(exact(end) * exact(factor)) if math.isfinite(end) else end
        for end, rounded in ((interval.low, round_down), (interval.high, round_up))
    )
    return replace(interval, value=factor * interval.value, low=low, high=high)


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What a sequence mask keeps, and the surrogate of it, E[M R S], over three denominators.

    ``surrogate_gain`` divides by all responses, as the paper does; the others by accepted responses, by their tokens.
    ``median_rule`` has the criteria at the medians of what they look at: each by itself would keep half of these
    responses. It is for later steps: a threshold that is chosen on these responses voids what is guaranteed by them.
    """

    rule: str
    acceptance: Interval
    by_length: IntervalTable
    median_rule: str
    surrogate_gain: Interval | None = None
    surrogate_gain_per_accepted: Interval | None = None
    surrogate_gain_per_accepted_token: Interval | None = None

    def __str__(self) -> str:
        of_lengths = zip(self.by_length, self.by_length.values("acceptance"), strict=True)
        quarters = ", ".join(f"{value:.1%} of {label}" for label, value in of_lengths)
        text = f"Mask {self.rule} keeps {self.acceptance.value:.1%} of the responses; by length in tokens: {quarters}. "
        return f"{text}{self.surrogates()}It changes no bound: a mask changes neither policy."

    def surrogates(self) -> str:
        """Return what the surrogate is over each denominator, in words."""
        if self.surrogate_gain is None:
            return ""
        per = (self.surrogate_gain_per_accepted, "response"), (self.surrogate_gain_per_accepted_token, "token")
        others = [f"{i.value:.3g} per accepted {unit}" for i, unit in per if i is not None]
        said = ", ".join([f"{self.surrogate_gain.value:.3g} over all responses (as in the paper)", *others])
        return f"Masked surrogate: {said}. "


def mask_report(summary: Summary, mask: Mask, keep: BoolArray, confidence: float) -> MaskReport:
    """Return what a mask keeps; ``keep`` [N] says which responses."""
    gains: list[Interval | None] = []
    if "reward" in summary:
        gain, ones, prompt = np.where(keep, summary.surrogate, 0.0), keep.astype(np.float64), summary.prompt
        gains = [clustered_mean(gain, prompt, confidence)]
        if keep.any():
            gains += [clustered_ratio(gain, d, prompt, confidence) for d in (ones, ones * summary["length"])]
    accepted = acceptance(summary, mask, keep, confidence)
    medians = (c.at(float(f"{np.nanmedian(c.reach(summary[c.statistic])):.2g}")) for c in mask.dropping)
    rule = ",".join(str(c) for c in medians if c is not None)
    return MaskReport(str(mask), accepted, by_length(summary, keep, confidence), rule, *gains)


# --- what it costs in the guarantee --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MaskEffect:
    """What a mask M keeps, and the parts of what it guarantees of J(theta) - J(roll), in units of the reward.

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
    R is mapped to [0, 1], and the parts back to the declared range. None: no rewards (or none of that kind).
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


class UnderMask:
    """The guarantee of J(theta) - J(roll) under masks, on one log.

    Without rewards, or where the log is ``refuted``, acceptance is all that can be said; the other intervals are
    asymptotic and prompt-clustered.
    ``rows`` [N] are the responses to look at (whole prompts), ``side`` is where the error of a mean may be.

    Notes
    -----
    S - Phi = log P on every response, so the lower end is E[R (M (1 + log P) - 1)]: nothing cancels or overflows.
    """

    def __init__(
        self,
        summary: Summary,
        confidence: float,
        rows: BoolArray | None = None,
        *,
        side: Side = "both",
        refuted: bool = False,
    ) -> None:
        self._side = side
        self._rows, here = rows, slice(None) if rows is None else rows
        self._summary, self._confidence, self._spread = summary, confidence, summary.reward_spread
        self._prompt: IntArray = np.unique(summary.prompt[here], return_inverse=True)[1]
        self._weights = prompt_weights(self._prompt)
        self._rewarded = "reward" in summary and not refuted
        self._reward = (summary.unit_reward if self._rewarded else np.zeros(len(summary)))[here]
        self._surrogate, self._phi, self._log_product = (
            summary[name][here] for name in ("surrogate_sum", "k3_sum", "log_ratio_sum")
        )

    def effect(self, mask: Mask, title: str = "") -> MaskEffect:
        """Return everything about one mask."""
        keep = kept(self._summary, mask)
        accepted = acceptance(self._summary, mask, keep, self._confidence, self._rows)
        keep = keep if self._rows is None else keep[self._rows]
        if not self._rewarded:
            return MaskEffect(str(mask), accepted, title=title)
        reward, rest, spread = self._reward, 1.0 - self._reward, self._spread
        lower, upper = self.ends(keep)
        return MaskEffect(
            str(mask),
            accepted,
            acceptance_high_reward=self._kept_share(keep, reward),
            acceptance_low_reward=self._kept_share(keep, rest),
            surrogate=self._mean(spread * times(keep * reward, self._surrogate)),
            penalty=self._mean(spread * times(keep * reward, self._phi), 0.0),
            rejected_reward=self._scaled_share(~keep * reward),
            rejected_rest=self._scaled_share(~keep * rest),
            lower=lower,
            upper=upper,
            title=title,
        )

    def values(self, keep: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return what the lower end and its mirror are the means of [N], for rewards in [0, 1]."""
        return self._gain(keep, self._reward), -self._gain(keep, 1.0 - self._reward)

    def ends(self, keep: BoolArray) -> tuple[Interval, Interval]:
        """Return intervals of the lower end, E[M R S] - E[M R Phi] - E[(1-M) R], and of its mirror."""
        lower, upper = self.values(keep)
        return self._mean(self._spread * lower), self._mean(self._spread * upper)

    def lower_value(self, keep: BoolArray) -> float:
        """Return the estimate of the lower end alone."""
        return float(self._weights @ (self._spread * self._gain(keep, self._reward)))

    def gain_without_mask(self) -> Interval | None:
        """Return the interval of E[R (P-1)], at least -E[R]."""
        if not self._rewarded:
            return None
        with np.errstate(over="ignore"):
            return self._mean(self._spread * times(self._reward, np.expm1(self._log_product)), -self._spread)

    def _gain(self, keep: BoolArray, reward: FloatArray) -> FloatArray:
        """Return R (M (1 + log P) - 1)."""
        return reward * (np.where(keep, 1.0 + self._log_product, 0.0) - 1.0)

    def _mean(self, values: FloatArray, low: float = -math.inf) -> Interval:
        return clustered_mean(values, self._prompt, self._confidence, low=low, side=self._side)

    def _scaled_share(self, values: FloatArray) -> Interval:
        """Return the mean of values in [0, 1], in units of the reward."""
        return scaled(share_of(self._weights * values, self._weights, self._prompt, self._confidence), self._spread)

    def _kept_share(self, keep: BoolArray, reward: FloatArray) -> Interval | None:
        """Return E[M R] / E[R]; None where no response has that reward."""
        weighed = self._weights * reward
        return share_of(keep * weighed, weighed, self._prompt, self._confidence) if reward.any() else None
