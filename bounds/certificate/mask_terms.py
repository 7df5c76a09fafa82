"""The terms of the guarantee that holds for any mask, estimated from a log."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds._text import many
from bounds.certificate.mask_parts import MaskTerms
from bounds.certificate.statistics import prompt_weights, times
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_mean, clustered_ratio
from bounds.masks.mask import Mask
from bounds.results import Interval, Standing


def no_mask(confidence: float) -> Interval:
    """Acceptance where nothing is rejected."""
    return Interval(1.0, 1.0, 1.0, confidence, Standing.PROVED, "no mask")


def unit_reward(m: Summary) -> FloatArray:
    """Rewards [N], mapped from their declared range to [0, 1]."""
    low, high = m.reading.reward_range
    return np.asarray((m["reward"] - low) / (high - low))


class Terms:
    """Terms of the guarantee of masks on one log.

    Parameters
    ----------
    m : Summary
        The log; without rewards, acceptance is all that can be said.
    confidence : float
        Nominal coverage of the intervals, which are asymptotic and prompt-clustered.
    rows : array [N] of bool, optional
        The responses to look at (whole prompts).

    Notes
    -----
    S - Phi = log P on every response, so the lower end is E[R (M (1 + log P) - 1)]: nothing cancels or overflows.
    """

    def __init__(self, m: Summary, confidence: float, rows: BoolArray | None = None) -> None:
        here = slice(None) if rows is None else rows
        self._confidence = confidence
        self._prompt: IntArray = np.unique(m.prompt[here], return_inverse=True)[1]
        self._weights = prompt_weights(self._prompt)
        self._rewarded = "reward" in m
        self._reward = (unit_reward(m) if self._rewarded else np.zeros(len(m)))[here]
        low, high = m.reading.reward_range
        self._spread = high - low
        self._score, self._phi, self._log_product = (m[n][here] for n in ("surrogate_sum", "k3_sum", "log_ratio_sum"))

    def mean(self, values: FloatArray, low: float = -math.inf, high: float = math.inf) -> Interval:
        """Mean over prompts of the mean over a prompt's responses."""
        return clustered_mean(values, self._prompt, self._confidence, low=low, high=high)

    def of(self, mask: Mask, keep: BoolArray) -> MaskTerms:
        """All terms of one mask."""
        acceptance = self.share(keep.astype(np.float64)) if mask.dropping else no_mask(self._confidence)
        if not self._rewarded:
            return MaskTerms(str(mask), acceptance)
        reward, rest, spread = self._reward, 1.0 - self._reward, self._spread
        return MaskTerms(
            str(mask),
            acceptance,
            acceptance_high_reward=self._kept_share(keep, reward),
            acceptance_low_reward=self._kept_share(keep, rest),
            surrogate=self.mean(spread * times(keep * reward, self._score)),
            penalty=self.mean(spread * times(keep * reward, self._phi), 0.0),
            rejected_reward=_scaled(self.share(~keep * reward), spread),
            rejected_rest=_scaled(self.share(~keep * rest), spread),
            lower=self.ends(keep)[0],
            upper=self.ends(keep)[1],
        )

    def values(self, keep: BoolArray) -> tuple[FloatArray, FloatArray]:
        """What the lower end and its mirror are the means of [N], for rewards in [0, 1]."""
        return self._gain(keep, self._reward), -self._gain(keep, 1.0 - self._reward)

    def ends(self, keep: BoolArray) -> tuple[Interval, Interval]:
        """Intervals of the lower end and of its mirror."""
        return self.lower(keep), self.mean(-self._spread * self._gain(keep, 1.0 - self._reward))

    def lower(self, keep: BoolArray) -> Interval:
        """Interval of E[M R S] - E[M R Phi] - E[(1-M) R]."""
        return self.mean(self._spread * self._gain(keep, self._reward))

    def lower_value(self, keep: BoolArray) -> float:
        """Its estimate alone."""
        return float(self._weights @ (self._spread * self._gain(keep, self._reward)))

    def gain_without_mask(self) -> Interval | None:
        """Interval of E[R (P-1)], at least -E[R]."""
        if not self._rewarded:
            return None
        with np.errstate(over="ignore"):
            return self.mean(self._spread * times(self._reward, np.expm1(self._log_product)), -self._spread)

    def _gain(self, keep: BoolArray, reward: FloatArray) -> FloatArray:
        """R (M (1 + log P) - 1)."""
        return reward * (np.where(keep, 1.0 + self._log_product, 0.0) - 1.0)

    def share(self, values: FloatArray) -> Interval:
        """Mean of values in [0, 1]."""
        return share_of(self._weights * values, self._weights, self._prompt, self._confidence)

    def _kept_share(self, keep: BoolArray, reward: FloatArray) -> Interval | None:
        """E[M R] / E[R]; None where no response has that reward."""
        weighed = self._weights * reward
        return share_of(keep * weighed, weighed, self._prompt, self._confidence) if reward.any() else None


def share_of(part: FloatArray, whole: FloatArray, prompt: IntArray, confidence: float) -> Interval:
    """Pooled share sum(part) / sum(whole) of 0 <= part <= whole.

    If part is all or nothing everywhere, t would give an interval of no width. But a share x of a prompt is 1 with
    probability at most E x, so that all of n prompts show 1 with probability at most (E x)^n; likewise for 0.
    """
    prompts = np.unique(prompt[whole > 0.0]).size
    least = (1.0 - confidence) ** (1.0 / prompts)
    if not part.any():
        return Interval(0.0, 0.0, 1.0 - least, confidence, Standing.ESTIMATED, f"none in {many(prompts, 'prompt')}")
    if (part == whole).all():
        return Interval(1.0, least, 1.0, confidence, Standing.ESTIMATED, f"all in {many(prompts, 'prompt')}")
    interval = clustered_ratio(part, whole, prompt, confidence, low=0.0)
    return replace(interval, high=min(interval.high, 1.0), method=f"share, clustered t, {many(prompts, 'prompt')}")


def _scaled(interval: Interval, factor: float) -> Interval:
    value, low, high = (factor * x for x in (interval.value, interval.low, interval.high))
    return replace(interval, value=value, low=low, high=high)
