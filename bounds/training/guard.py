r"""A step that is judged, on prompts that it did not learn from, before it counts.

Some prompts are never learned from: those whose hashed id says so. After an update the new policy scores the responses
that the sampler gave to the held-out prompts of the batch. With R in [0, 1] and P = new/sampler of a response,

    E[R (P - 1)] <= J(new) - J(sampler) <= E[(1 - R)(1 - P)]

(``bounds.certificate.guarantees``), and bets on both give one-sided limits at any sample size.

**Why held-out prompts are fresh.** Let F be all that was drawn before step k, and all of batch k but its held-out
responses. The sampler, the update and every point of the ladder are functions of F: the optimiser saw no held-out
response, the decisions at steps before k saw none of this batch, and the ladder is fixed. Which prompts are held out is
a function of their ids, and so is their number. Given F, the held-out responses are therefore still what the sampler
draws at prompts from the held-out population, independent of one another. So each limit fails with probability
a_k / n at most, given F, where n is the number of points on the ladder and a_k = alpha / (k (k+1)); by the union bound
over points and steps (the a_k sum to alpha) no limit of the whole run fails, at any point or step that was looked at,
with probability 1 - alpha at least. Decisions may depend on all earlier ones, and the run may stop whenever it likes.

It fails where held-out responses reach the update by another way: an advantage or a reward that is normalised over the
whole batch, a reward model that is trained on them, a held-out prompt that is also there under another id, a person who
tunes the run by what the guard says and starts it again (a new seed, then).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, confidence_level, integer, number, refuse, reward_range
from bounds._text import many
from bounds.certificate.kept import scaled
from bounds.certificate.statistics import times
from bounds.intervals import betting, prompt_means
from bounds.intervals.clustered import leave_one_out_baseline
from bounds.logs.split import set_aside
from bounds.results import Interval, Record, Standing
from bounds.training._step_files import LOGGER
from bounds.training._tensors import checked, k3, log_ratio

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["report", "guard", "certify"]
_LARGEST = 1.0 - 2.0**-53  # confidence


@dataclass(frozen=True, slots=True)
class Judgement(Record):
    """What held-out responses say of one policy.

    Attributes
    ----------
    improvement : Interval
        Of J(new) - J(sampler), in units of the reward; each end holds by itself at the level that was spent on it.
    surrogate_gain : float
        Estimate of L' = E[R S] of the new policy, in units of the reward.
    kl_seq : float
        Estimate of D = KL(sampler||new) of a response, in nats: times the reward's spread it bounds what L' misses.
    """

    improvement: Interval
    surrogate_gain: float
    kl_seq: float


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """What became of a step.

    Attributes
    ----------
    step : int
        Which step of the run was judged: 1, 2, ...
    kept : float
        The share of the step that was kept: 1 all of it, 0 none.
    seen : tuple of Judgement
        What was seen at each point of the ladder that was tried, the whole step first; none without held-out responses.
    prompts : int
        How many held-out prompts were scored.
    """

    step: int
    kept: float
    seen: tuple[Judgement, ...]
    prompts: int

    @property
    def action(self) -> str:
        """Say "accepted", "shrunk" or "rolled back"."""
        return {1.0: "accepted", 0.0: "rolled back"}.get(self.kept, "shrunk")

    def scalars(self) -> dict[str, float]:
        """Return what a logger wants: kept, and of the last policy that was tried low, high, kl_seq, surrogate_gain."""
        if not self.seen:
            return {"guard/kept": self.kept}
        last = self.seen[-1]
        numbers = {"low": last.improvement.low, "high": last.improvement.high, "kl_seq": last.kl_seq}
        numbers |= {"kept": self.kept, "surrogate_gain": last.surrogate_gain}
        return {f"guard/{name}": value for name, value in numbers.items()}

    def __str__(self) -> str:
        if not self.seen:
            return f"step {self.step} {self.action}: no held-out prompt in this batch"
        last = self.seen[-1]
        _, low, high = last.improvement.texts()
        how = f" to {self.kept:g} of it" if self.action == "shrunk" else ""
        return (
            f"step {self.step} {self.action}{how}: J(new) - J(sampler) is between {low} and {high} by "
            f"{many(self.prompts, 'held-out prompt')}, KL of a response about {last.kl_seq:.3g}"
        )


class Guard:
    """Judge of every step on held-out prompts: it is accepted, shrunk or rolled back.

    Parameters
    ----------
    mode : "report", "guard" or "certify"
        ``report`` never touches a step. ``guard`` rolls back what is shown to harm, and shrinks what exceeds the
        budget. ``certify`` keeps only what is shown to improve, within the budget, and else tries less of it.
    share : float
        Of the prompts, held out; never to be learned from.
    seed : int
        Of the hash that chooses them. Both are to be fixed before the run.
    confidence : float
        Over the whole run: with this probability no lower limit is above the truth, however many steps there are; so
        no step that was accepted by ``certify`` has J(new) < J(sampler). The same, by itself, for the upper limits: so
        no step was wrongly shown to harm.
    budget : float
        Of D in nats for each response; an infinite D exceeds every budget. It is compared with the estimate on the
        held-out prompts, which is no limit. What passes may miss L' by the budget times the reward's spread: where a
        step gains 0.02, leave it a few hundredths (``lab/README.md`` has runs that half a nat a step ruins).
    ladder : sequence of float
        Shares of the step that are tried, one after the other; the first that is not refused is kept.
    reward_range : pair of float
        All rewards lie there.
    step : int
        How many steps were judged before, where a run goes on; at any time the number of the last one.

    Notes
    -----
    It costs a forward of the held-out responses for each point that is tried, and the memory of one copy of the
    parameters. What is refused is refused against the *sampler*: the weights before the step, which come back, are not
    judged where they differ from it (staleness). The optimiser's moments keep the refused gradient. Where parameters
    are sharded, hand every process all held-out responses, so that all decide alike.

    Nothing in a batch makes it raise: a response whose reward or log-probs are not known counts as the worst that it
    could be, and as an infinite D. What ``take`` and ``score`` raise passes through; if ``score`` does, the weights are
    those before the step.

    Source: this module's proof; bets by Waudby-Smith and Ramdas 2024 (JRSS-B 86).

    Examples
    --------
    >>> import torch
    >>> logits, rng = torch.zeros(2, requires_grad=True), np.random.default_rng(0)
    >>> answers = torch.tensor(rng.integers(2, size=(2000, 1)))
    >>> guard, ids = Guard(mode="certify", share=0.5), np.arange(2000)
    >>> held = torch.from_numpy(guard.held_out(ids))
    >>> roll = torch.full((2000, 1), 0.5).log()
    >>> def take():
    ...     with torch.no_grad():
    ...         logits[1] += 0.5  # answer 1 is the right one
    >>> score = lambda: logits.log_softmax(0)[answers[held]]
    >>> found = guard(take, [logits], score, roll[held], torch.ones_like(roll[held]), answers[held, 0], ids[held])
    >>> found.action, found.seen[0].improvement.low > 0
    ('accepted', True)
    """

    def __init__(
        self,
        *,
        mode: Mode = "report",
        share: float = 0.25,
        seed: int = 0,
        confidence: float = 0.95,
        budget: float = 0.5,
        ladder: Sequence[float] = (1.0, 0.5, 0.25),
        reward_range: tuple[float, float] = (0.0, 1.0),
        step: int = 0,
    ) -> None:
        if mode not in get_args(Mode):
            refuse("mode", "'report', 'guard' or 'certify'", repr(mode))
        self.mode: Mode = mode
        self.share = number("share", share, 0.0, 1.0)
        self.seed = integer("seed", seed, 0, 2**63)
        self.confidence = confidence_level(confidence)
        self.budget = number("budget", budget, 0.0)
        self.ladder = tuple(number("ladder", part, 0.0, 1.0) for part in ladder)
        if self.ladder[:1] != (1.0,) or list(self.ladder) != sorted({*self.ladder} - {0.0}, reverse=True):
            refuse("ladder", "1, then smaller and smaller shares above 0", tuple(ladder))
        self.reward_range = _range(reward_range)
        self.step = integer("step", step, 0, 2**53)
        self._said = False

    def held_out(self, prompt_ids: Any) -> BoolArray:
        """Return which responses [B] are held out: those of prompts whose hash is below the share.

        Parameters
        ----------
        prompt_ids : [B] of str or int
            Equal ids are one prompt; 3 and "3" are.

        Returns
        -------
        array [B] of bool
            The same prompts at every step, in every process, and after a restart: those that ``trm-bounds split``
            sets aside with this share and seed.

        Examples
        --------
        >>> Guard(share=0.5).held_out([1, 1, 2, 3, 4, 5]).tolist()
        [True, True, False, False, False, True]
        """
        names = _names(prompt_ids)
        return np.array([set_aside(name, self.share, str(self.seed)) for name in names], dtype=np.bool_)

    def __call__(
        self,
        take: Callable[[], Any],
        parameters: Iterable[Tensor],
        score: Callable[[], Tensor],
        rollout_logprobs: Tensor,
        mask: Tensor,
        rewards: Any,
        prompt_ids: Any,
    ) -> Decision:
        """Take a step, judge it, and keep what may be kept.

        Parameters
        ----------
        take : callable
            The update: ``optimiser.step``, or all passes over the batch. It has not seen the held-out responses.
        parameters : iterable of tensors
            All that the update changes; shares of the step lie on the line between their values before and after.
        score : callable
            Returns the log-probs [n, L] that the parameters of now give the tokens of the held-out responses.
        rollout_logprobs, mask : tensors [n, L]
            Of the held-out responses, as the sampler gave them; all of them, none filtered.
        rewards, prompt_ids : [n]
            Raw rewards, and which prompt was answered.

        Returns
        -------
        Decision

        Raises
        ------
        ValueError
            For shapes that disagree, before the step is taken.
        """
        import torch

        checked(mask, rollout_logprobs=rollout_logprobs)
        names = _names(prompt_ids)
        reward = np.asarray(rewards.tolist() if hasattr(rewards, "tolist") else rewards, dtype=np.float64)
        for name, size in (("rewards", reward.shape), ("prompt_ids", (len(names),))):
            if size != tuple(mask.shape[:1]):
                refuse(name, f"one for each of the {mask.shape[0]} responses", f"shape {size}")
        prompt = np.unique(np.array(names, dtype=str), return_inverse=True)[1]
        kept = list(parameters)
        before = [] if self.mode == "report" else [p.detach().clone() for p in kept]
        take()
        self.step += 1
        found: list[Judgement] = []

        def move(part: float) -> None:
            for p, old in zip(kept, before, strict=True):
                p.copy_(old.lerp(p, part) if part else old)

        at = 1.0
        with torch.no_grad():
            for tried, lower in zip(self.ladder, (*self.ladder[1:], 0.0), strict=True):
                if names:
                    try:
                        found.append(self._scored(score(), rollout_logprobs, mask, reward, prompt))
                    except BaseException:
                        if before:
                            move(0.0)
                        raise
                verdict = self.verdict(found[-1] if found else None)
                if verdict == "keep":
                    break
                at = lower if verdict == "shrink" else 0.0
                move(at / tried)
                if not at:
                    break
        decision = Decision(self.step, at, tuple(found), len(set(names)))
        self._say(decision)
        return decision

    def verdict(self, judgement: Judgement | None) -> Literal["keep", "shrink", "roll back"]:
        """Return what becomes of a policy that was judged so (None: by no held-out response)."""
        if self.mode == "report":
            return "keep"
        if judgement is None:
            return "keep" if self.mode == "guard" else "roll back"
        if self.mode == "guard" and judgement.improvement.high < 0.0:
            return "roll back"
        shown = self.mode == "guard" or judgement.improvement.low > 0.0
        return "keep" if shown and judgement.kl_seq <= min(self.budget, sys.float_info.max) else "shrink"

    def judge(
        self,
        log_ratio_sum: FloatArray,
        surrogate_sum: FloatArray,
        k3_sum: FloatArray,
        rewards: FloatArray,
        prompt: IntArray,
    ) -> Judgement:
        """Judge a policy by its responses, at the level of the step ``step``.

        Parameters
        ----------
        log_ratio_sum, surrogate_sum, k3_sum : arrays [n]
            Of each response log P, S = sum (rho - 1) and sum k3(rho).
        rewards, prompt : arrays [n]
            Raw reward, and the number of the prompt: 0, 1, ...

        Returns
        -------
        Judgement
        """
        low, high = self.reward_range
        unit, spread = (rewards - low) / (high - low), high - low
        known = (log_ratio_sum < math.inf) & (unit >= 0.0) & (unit <= 1.0)  # what is NaN is not
        unit = np.where(known, unit, 0.0)
        with np.errstate(over="ignore"):
            excess = np.expm1(np.where(known, log_ratio_sum, 0.0))
        gain = np.where(known, times(unit, excess), -1.0)
        loss = np.where(known, -times(1.0 - unit, excess), 1.0)
        error = (1.0 - self.confidence) / (self.step * (self.step + 1.0)) / len(self.ladder)
        level = min(math.nextafter(1.0 - error, 1.0), _LARGEST)
        lower = betting(prompt_means(gain, prompt), level, low=-1.0, side="lower")
        upper = betting(prompt_means(loss, prompt), level, high=1.0, side="upper")
        value = (lower.value + upper.value) / 2.0
        method = f"{lower.method}, each end by itself; step {self.step} spends {error:.2g}"
        improvement = Interval(value, lower.low, upper.high, level, Standing.MEASURED, method)
        surrogate = times(unit - leave_one_out_baseline(unit, prompt), np.where(known, surrogate_sum, 0.0))
        divergence = np.where(known, k3_sum, math.inf)
        return Judgement(
            scaled(improvement, spread),
            spread * float(prompt_means(surrogate, prompt).mean()),
            float(prompt_means(divergence, prompt).mean()),
        )

    def _scored(self, train: Tensor, rollout: Tensor, mask: Tensor, reward: FloatArray, prompt: IntArray) -> Judgement:
        policy = checked(mask, score=train)
        d = log_ratio(rollout.double(), train.double(), policy)
        total, surrogate, divergence = (x.sum(dim=1).cpu().numpy() for x in (d, d.expm1(), k3(d)))
        return self.judge(total, surrogate, divergence, reward, prompt)

    def _say(self, decision: Decision) -> None:
        """Log what was not simply accepted, and once that nothing can be judged."""
        if not decision.seen and not self._said:
            self._said = True
            LOGGER.warning("%s; share=%g holds out too few", decision, self.share)
        elif decision.seen and decision.kept < 1.0:
            LOGGER.info("%s", decision)


_range = reward_range  # the parameter of a guard has its name


def _names(prompt_ids: Any) -> list[str]:
    """Return ids as texts, whether they come as a list, an array or a tensor."""
    return [str(name) for name in (prompt_ids.tolist() if hasattr(prompt_ids, "tolist") else prompt_ids)]
