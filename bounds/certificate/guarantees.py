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
from bounds.certificate.guarantee import Claim, Guarantees
from bounds.certificate.kept import UnderMask
from bounds.certificate.moments import Moments
from bounds.certificate.statistics import times
from bounds.intervals import INTERVALS, betting, betting_these_prompts, clustered_mean, leave_one_out, prompt_means
from bounds.intervals.betting import LEVELS
from bounds.results import Interval, Standing
from bounds.rules.bound import Bound

_LARGEST = 1.0 - 2.0**-53  # confidence
_COMPARED = ("empirical_bernstein", "hoeffding")  # predictable bets depend on the order of the log
_ENDLESS = 1e12
_TRUNCATE_AT = 2.0  # of P, in the intervals that are shown for comparison; fixed beforehand


def guarantees(
    m: Moments,
    confidence: float,
    keep: BoolArray | None,
    *,
    support_gap: bool = False,
    cap: float | None = None,
) -> Guarantees:
    """Every interval of J(theta) - J(roll) that needs no bound.

    Parameters
    ----------
    keep : array [N] or None
        Which responses the mask keeps.
    support_gap : bool
        Whether theta has mass where roll has none: then what needs theta << roll is left out.
    cap : float or None
        An assumed cap on abs(log ratio), ``log_ratio_max``.
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
        masked=None if keep is None else masked(m, keep, confidence, cap),
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
        self.excess = excess(log_product)
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
            of="(R-b)(P-1), b from the other responses",
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
        low, high = (-1.0, 1.0) if self.vacuous else (lower.low, upper.high)
        if math.isfinite(value) and not low <= value <= high:  # heavy tails take a mean beyond what can be
            what += f", whose mean {self.spread * value:.3g} lies beyond and is cut"
        value = min(max(value, low), high) if math.isfinite(value) else math.inf
        if self.spread != 1.0:
            low, high = math.nextafter(self.spread * low, -math.inf), math.nextafter(self.spread * high, math.inf)
        standing = max(lower.standing, upper.standing, self.standing)
        method, of = f"{lower.method}, {what}", "R(P-1) and (1-R)(1-P)"
        return Interval(self.spread * value, low, high, self.confidence, standing, method, of)


def masked(m: Moments, keep: BoolArray, confidence: float, cap: float | None = None) -> Interval:
    """Both sides of the guarantee that looks at kept responses only.

    Each end is a one-sided clustered t-limit; or, under an assumed ``cap`` on abs(log ratio), the end of a bet, since
    log P is then at most ``cap`` times the horizon.
    """
    low, high = m.reading.reward_range
    spread, under = high - low, UnderMask(m, confidence)
    if cap is None:
        lower, upper = under.ends(keep)
        ends, standing = (lower.low, upper.high), Standing.ESTIMATED
    else:
        reach = 1.0 + m.horizon * cap * (1.0 + 2e-6)
        half = min(math.nextafter((1.0 + confidence) / 2.0, 1.0), _LARGEST)
        below, above = (prompt_means(v, m.prompt) for v in under.values(keep))
        lower = betting(below, half, low=-reach, high=reach, side="lower")
        upper = betting(above, half, low=-reach, high=reach, side="upper")
        ends, standing = (spread * lower.low, spread * upper.high), Standing.ASSUMED
        lower, upper = (replace(i, value=spread * i.value) for i in (lower, upper))
    value, of = (lower.value + upper.value) / 2.0, "M R log P - (1-M) R and its mirror"
    return Interval(value, max(ends[0], -spread), min(ends[1], spread), confidence, standing, lower.method, of)


def through_surrogate(gain: Interval, best: Bound, worst: Bound, confidence: float) -> Interval:
    """L' - B*, with L' at its lower limit and B* at the upper limits of what it uses."""
    low = gain.low - worst.value
    method = "the ends of several intervals, not joint"
    standing = max(gain.standing, best.standing)
    return Interval(gain.value - best.value, low, math.inf, confidence, standing, method, f"L' - {best.name}")


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


def excess(log_product: FloatArray) -> FloatArray:
    """P - 1, which may overflow to inf."""
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(log_product))


def _scaled(interval: Interval, spread: float, how: str) -> Interval:
    return replace(
        interval,
        value=spread * interval.value,
        low=spread * interval.low,
        high=math.inf,
        of=how,
    )
