r"""Guarantees of J(theta) - J(roll) from logged responses.

With R in [0, 1] and P = theta/roll of a response, for any two policies

    E[R (P - 1)] <= J(theta) - J(roll) <= E[(1 - R)(1 - P)],

since theta may put mass where roll has none, and the reward there is in [0, 1]. The left variable is at least -1 and
the right at most 1, which is all that betting needs: no truncation, no cap on the ratios. With log P = S - Phi, and any
mask M of the prompt and the response,

    E[M R log P] - E[(1 - M) R] <= J(theta) - J(roll) <= E[(1 - M)(1 - R)] - E[M (1 - R) log P].
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, refuse
from bounds.evidence.confidence import (
    INTERVALS,
    betting,
    betting_these_prompts,
    clustered_mean,
    leave_one_out,
    prompt_means,
)
from bounds.evidence.confidence.bets import LEVELS
from bounds.evidence.mask_terms import Terms, times
from bounds.evidence.moments import Moments
from bounds.results import Bound, Claim, Finding, Guarantees, Interval, Standing

_LARGEST = 1.0 - 2.0**-53  # confidence
_COMPARED = ("empirical_bernstein", "hoeffding")  # predictable bets depend on the order of the log
_ENDLESS = 1e12
_DOUBT = "what is guaranteed rests on what this speaks against"
_TRUNCATE_AT = 2.0  # of P, in the intervals that are shown for comparison; fixed beforehand


def guarantees(m: Moments, confidence: float, keep: BoolArray | None, *, support_gap: bool = False) -> Guarantees:
    """Every interval of J(theta) - J(roll) that needs no bound.

    Parameters
    ----------
    keep : array [N] or None
        Which responses the mask keeps.
    support_gap : bool
        Whether theta has mass where roll has none: then what needs theta << roll is left out.
    """
    if "reward" not in m:
        return Guarantees()
    spread = m.reading.reward_range[1] - m.reading.reward_range[0]
    data = _Data(m["reward"], m["log_product"], m.prompt, m.reading.reward_range, confidence, m.standing)
    return Guarantees(
        new_prompts=data.new_prompts(),
        these_prompts=data.these_prompts(),
        asymptotic=None if support_gap else data.asymptotic(),
        others={f"improvement_{name}": data.truncated(name) for name in _COMPARED},
        log_surrogate=_scaled(
            clustered_mean(times(data.reward, m["log_product"]), m.prompt, confidence), spread, "R log P"
        ),
        masked=None if keep is None else masked(m, keep, confidence),
        kept_gain=None if keep is None else data.mean(times(keep * data.reward, m["log_product"])),
        rejected_reward=None if keep is None else data.mean(~keep * data.reward),
        prompts_needed=prompts_needed(prompt_means(data.gain, m.prompt), data.half),
    )


def improvement(
    reward: FloatArray,
    log_product: FloatArray,
    prompt: IntArray,
    reward_range: tuple[float, float],
    confidence: float,
    standing: Standing = Standing.MEASURED,
) -> Interval:
    """J(theta) - J(roll) for new prompts: finite-sample, with no assumption on the policies.

    Parameters
    ----------
    reward, log_product, prompt : arrays [N]
        Raw reward, log P and prompt of each response.
    reward_range : (float, float)
        Smallest and largest possible reward.
    confidence : float
        Of the whole interval: each end may fail with half of the error.
    standing : Standing
        Of the log: ASSUMED where something about it had to be assumed (:attr:`Moments.standing`).

    Raises
    ------
    ValueError
        For a reward outside the range.

    Examples
    --------
    >>> i = improvement(np.ones(500), np.full(500, -0.1), np.arange(500), (0.0, 1.0), 0.95)
    >>> round(i.low, 2), round(i.high, 2)
    (-0.1, 0.01)
    """
    return _Data(reward, log_product, prompt, reward_range, confidence, standing).new_prompts()


class _Data:
    """R(P-1) and (1-R)(1-P) of each response, R mapped to [0, 1]; intervals in units of the reward."""

    def __init__(
        self,
        reward: FloatArray,
        log_product: FloatArray,
        prompt: IntArray,
        reward_range: tuple[float, float],
        confidence: float,
        standing: Standing,
    ) -> None:
        low, high = reward_range
        if outside := reward[~((reward >= low) & (reward <= high))].tolist():
            refuse("reward", f"in [{low:g}, {high:g}]", outside[0])
        self.spread, self.standing = high - low, standing
        self.reward = np.clip((reward - low) / self.spread, 0.0, 1.0)
        self.excess = _excess(log_product)
        self.gain, self.loss = times(self.reward, self.excess), -times(1.0 - self.reward, self.excess)
        self.prompt, self.confidence = prompt, confidence
        self.half = min(math.nextafter((1.0 + confidence) / 2.0, 1.0), _LARGEST)
        self.vacuous = 1.0 - self.half > (1.0 - confidence) / 2.0  # half of the error is less than float64 can say

    def mean(self, values: FloatArray) -> float:
        """Over prompts, in units of the reward."""
        return self.spread * float(prompt_means(values, self.prompt).mean())

    def new_prompts(self) -> Interval:
        gain, loss = prompt_means(self.gain, self.prompt), prompt_means(self.loss, self.prompt)
        return self._joined(
            betting(gain, self.half, low=-1.0, side="lower"),
            betting(loss, self.half, high=1.0, side="upper"),
            "new prompts",
        )

    def these_prompts(self) -> Interval:
        return self._joined(
            betting_these_prompts(self.gain, self.prompt, self.half, low=-1.0, side="lower"),
            betting_these_prompts(self.loss, self.prompt, self.half, high=1.0, side="upper"),
            "these prompts",
        )

    def asymptotic(self) -> Interval:
        """Leave-one-out, clustered by prompt; needs theta << roll."""
        with np.errstate(over="ignore"):
            found = leave_one_out(self.reward, self.excess + 1.0, self.prompt, self.confidence)
        return replace(
            found,
            value=self.spread * found.value,
            low=self.spread * found.low,
            high=self.spread * found.high,
            method=f"(R-b)(P-1), b from the other responses; {found.method}",
        )

    def truncated(self, name: str) -> Interval:
        """By another method, which needs P to be cut on both sides."""
        most = _TRUNCATE_AT - 1.0
        capped = np.minimum(self.excess, most)
        gain, loss = (prompt_means(v, self.prompt) for v in (self.reward * capped, (self.reward - 1.0) * capped))
        return self._joined(
            INTERVALS[name](gain, self.half, low=-1.0, high=most, side="lower"),
            INTERVALS[name](loss, self.half, low=-most, high=1.0, side="upper"),
            f"P cut at {_TRUNCATE_AT:g}",
        )

    def _joined(self, lower: Interval, upper: Interval, what: str) -> Interval:
        value = (lower.value + upper.value) / 2.0  # of (R - 1/2)(P - 1): its mean lies between, for any supports
        value = value if math.isfinite(value) else math.inf
        low, high = (-1.0, 1.0) if self.vacuous else (lower.low, upper.high)
        if self.spread != 1.0:
            low, high = math.nextafter(self.spread * low, -math.inf), math.nextafter(self.spread * high, math.inf)
        standing = max(lower.standing, upper.standing, self.standing)
        method = f"R(P-1) and (1-R)(1-P); {lower.method}, {what}"
        return Interval(self.spread * value, low, high, self.confidence, standing, method)


def masked(m: Moments, keep: BoolArray, confidence: float) -> Interval:
    """Both sides of the guarantee that looks at kept responses only, each end a one-sided clustered t-limit."""
    low, high = m.reading.reward_range
    spread = high - low
    lower, upper = Terms(m, confidence).ends(keep)
    return Interval(
        (lower.value + upper.value) / 2.0,
        max(lower.low, -spread),
        min(upper.high, spread),
        confidence,
        Standing.ESTIMATED,
        f"M R log P - (1-M) R and its mirror; {lower.method}",
    )


def through_surrogate(gain: Interval, best: Bound, worst: Bound, confidence: float) -> Interval:
    """L' - B*, with L' at its lower limit and B* at the upper limits of what it uses."""
    low = gain.low - worst.value
    method = f"L' - {best.name}; the ends of several intervals, not joint"
    standing = max(gain.standing, best.standing)
    return Interval(gain.value - best.value, low, math.inf, confidence, standing, method)


def claim(gain: Interval | None, published: Bound | None) -> Claim | None:
    """The paper's statement, from the surrogate and the published B*."""
    if gain is None or published is None:
        return None
    return Claim(gain.value, published.value, published.name, published.optimistic)


def prompts_needed(gains: FloatArray, confidence: float) -> int | None:
    """How many prompts, if all were like these, would push the lower limit above 0; None if no number would.

    At m = 0 the wealth of k copies of the sample is mean_f exp(k sum_i log(1 + f Z_i)).
    """
    with np.errstate(over="ignore"):
        logs = np.log1p(LEVELS[:, None] * np.minimum(gains, 1e300)).sum(axis=1)
    if logs.max() <= 0.0:
        return None
    target = -math.log(1.0 - confidence)

    def enough(copies: float) -> bool:
        return float(np.logaddexp.reduce(copies * logs)) - math.log(logs.size) >= target

    few, many = 0.0, 1.0
    while not enough(many):
        few, many = many, 2.0 * many
        if many > _ENDLESS:
            return None
    for _ in range(40):
        middle = (few + many) / 2.0
        few, many = (few, middle) if enough(middle) else (middle, many)
    return math.ceil(many * gains.size)


def refuted(m: Moments, confidence: float = 0.999) -> str:
    """Why the hypotheses of the guarantees cannot be true of this log: E P is at most 1."""
    product = betting(prompt_means(1.0 + _excess(m["log_product"]), m.prompt), confidence, low=0.0, side="lower")
    if product.low <= 1.0:
        return ""
    return (
        f"the mean ratio of whole responses is above {product.low:.4g} at confidence {confidence:g} (it cannot exceed "
        "1): theta was fitted to these responses, or rollout_logprobs are not those of the law that sampled"
    )


def doubts(m: Moments, confidence: float = 0.999) -> list[Finding]:
    """What in the log speaks against the hypotheses of its guarantees."""
    if "reward" not in m:
        return []
    texts = (_unequal(m), _filtered(m, confidence), _normalised(m), _constant(m))
    return [Finding("hypotheses", text, len(m), "responses", _DOUBT) for text in texts if text]


def _unequal(m: Moments) -> str:
    size = np.bincount(m.prompt)
    if np.ptp(size) == 0:
        return ""
    return (
        f"prompts have {size.min()} to {size.max()} responses and count alike: were some drawn more often, or sampled "
        "until they succeeded? Then give each draw an id of its own, and log all responses"
    )


def _constant(m: Moments) -> str:
    if np.ptp(m["reward"]) > 0.0:
        return ""
    return "all rewards are equal: asymptotic intervals of the gain rest on no variation, and are too narrow"


def _filtered(m: Moments, confidence: float) -> str:
    """Whether groups of equal 0/1 rewards are missing: of n responses one in 2^(n-1) groups has them at least."""
    reward, prompt = m["reward"], m.prompt
    low, high = m.reading.reward_range
    if not np.isin(reward, (low, high)).all():
        return ""
    size = np.bincount(prompt)
    top = np.bincount(prompt, weights=(reward == high).astype(np.float64))
    groups = size[size > 1]
    if ((top == 0) | (top == size))[size > 1].any() or not groups.size:
        return ""
    if np.log1p(-np.exp2(1.0 - groups)).sum() > math.log1p(-confidence):
        return ""
    return (
        f"no group of the {groups.size} has equal rewards, which hardly happens by chance: were such groups filtered "
        "out (dynamic sampling)? Then the guarantees speak of the prompts that were left"
    )


def _normalised(m: Moments) -> str:
    """Whether rewards differ within groups and yet sum to 0 in every one, as advantages do."""
    reward, prompt = m["reward"], m.prompt
    size, sums = np.bincount(prompt), np.bincount(prompt, weights=reward)
    sizes = np.bincount(prompt, weights=np.abs(reward))
    telling = (size > 1) & (sizes > 0.0)
    if telling.sum() < 2 or (np.abs(sums) > 1e-4 * sizes)[sizes > 0.0].any():
        return ""
    return "rewards sum to 0 in every group: these are advantages, not raw rewards; the guarantees need raw rewards"


def _excess(log_product: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(log_product))


def _scaled(interval: Interval, spread: float, how: str) -> Interval:
    return replace(
        interval,
        value=spread * interval.value,
        low=spread * interval.low,
        high=math.inf,
        method=f"{how}; {interval.method}",
    )
