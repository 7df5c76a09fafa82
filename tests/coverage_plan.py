"""How often a planned number of prompts shows the gain that it was planned for. ``make coverage`` prints the table.

Judged by an exact binomial test against the power that was asked; the tests run a short form.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

import bounds
from bounds.certificate.guarantees import one_end
from bounds.intervals import star

POWER = 0.8
LEVEL = 1e-4
#: Log-ratios and rewards of the responses of some runs, each [runs, prompts, responses].
Runs = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, int, int], Runs]


def promised(kl_seq: float | np.ndarray) -> float:
    """Return E[tanh(z) P] at log P = sqrt(2 D) z - D, averaged over some D; E[tanh(z)] is 0."""
    z = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    return float(np.tanh(z[:, None] + np.sqrt(2.0 * np.atleast_1d(kl_seq))).mean())


class Numbers:
    """Plans from numbers, and runs as they say: rewards grow with the log-ratio (their shares stay within [0, 1])."""

    def __init__(self, gain: float, kl_seq: float, reward: float, responses: int) -> None:
        self.known = {"gain": gain, "kl_seq": kl_seq, "reward": reward, "responses": responses}
        self.slope = gain / promised(kl_seq)

    def plan(self, _: int) -> int:
        """Return how many prompts are planned."""
        return bounds.plan(**self.known, power=POWER, around=False).prompts

    def draw(self, rng: np.random.Generator, runs: int, prompts: int) -> Runs:
        """Draw runs."""
        z = rng.standard_normal((runs, prompts, self.known["responses"]))
        log_ratio = np.sqrt(2 * self.known["kl_seq"]) * z - self.known["kl_seq"]
        return log_ratio, (rng.random(z.shape) < self.known["reward"] + self.slope * np.tanh(z)).astype(float)


class LikeALog:
    """Plans from logs of 200 prompts, easy and hard ones at various KLs, and runs of further ones of their kind."""

    gain, responses = 0.03, 4
    kl_by_prompt = stats.gamma(4.0, scale=0.05 / 4.0)

    def __init__(self) -> None:
        self.slope = self.gain / promised(self.kl_by_prompt.ppf((np.arange(200) + 0.5) / 200)) / (4 / 6)  # E[4 r (1-r)]

    def plan(self, seed: int) -> int:
        """Return how many prompts are planned, by another log for each seed."""
        (log_ratio, rewards), *_ = zip(*self.draw(np.random.default_rng([2, seed]), 1, 200), strict=True)
        return bounds.plan(log_of(log_ratio, rewards), gain=self.gain, power=POWER, around=False).prompts

    def draw(self, rng: np.random.Generator, runs: int, prompts: int) -> Runs:
        """Draw runs: the chance of a reward is r + 4 r (1-r) slope tanh(z), z the log-ratio in standard units."""
        kl = self.kl_by_prompt.rvs((runs, prompts, 1), random_state=rng)
        z = rng.standard_normal((runs, prompts, self.responses))
        rate = rng.random((runs, prompts, 1))
        share = rate + 4 * rate * (1 - rate) * self.slope * np.tanh(z)
        return np.sqrt(2 * kl) * z - kl, (rng.random(z.shape) < share).astype(float)


CASES: dict[str, Numbers | LikeALog] = {
    "numbers, KL .01, gain .04": Numbers(0.04, 0.01, 0.5, 8),
    "numbers, KL .1, gain .1": Numbers(0.1, 0.1, 0.5, 4),
    "numbers, KL .05, gain .03, rare rewards": Numbers(0.03, 0.05, 0.2, 8),
    "like a log, another for each 50 runs": LikeALog(),
}


def log_of(log_ratio: np.ndarray, rewards: np.ndarray) -> bounds.TraceSet:
    """Return the log of a run, of arrays [prompts, responses]."""
    sampled = np.full((rewards.size, 1), -5.0)
    ids = [f"p{k // rewards.shape[1]}" for k in range(rewards.size)]
    scored = sampled + log_ratio.reshape(-1, 1)
    return bounds.TraceSet.from_arrays(sampled, scored, rewards=rewards.ravel(), prompt_ids=ids, horizon=1)


def shown(runs: Runs) -> int:
    """In how many runs the interval that ``certify`` has of new prompts is above 0."""
    log_ratio, rewards = runs
    gains = (rewards * np.expm1(log_ratio)).mean(axis=2)
    return sum(star(values, one_end(0.95, "both"), low=-1.0, side="lower").low > 0.0 for values in gains)


def too_few(hits: int, runs: int) -> bool:
    """Whether it came in significantly less often than planned."""
    return bool(stats.binomtest(hits, runs, POWER, "less").pvalue < LEVEL)


def main() -> int:
    """Print the table; 1 if a plan did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    runs, failed = parser.parse_args().runs, 0
    print(
        f"a power of {POWER} was planned; {runs} runs each, and the exact 95% interval of the share that shows the gain"
    )
    for name, case in CASES.items():
        plans = 1 if isinstance(case, Numbers) else max(runs // 50, 1)
        rng, numbers = np.random.default_rng(1), [case.plan(k) for k in range(plans)]
        hits = sum(shown(case.draw(rng, runs // plans, n)) for n in numbers)
        exact = stats.binomtest(hits, runs, POWER).proportion_ci(0.95)
        failed += too_few(hits, runs)
        of = f"{min(numbers):,}" + (f" to {max(numbers):,}" if plans > 1 else "")
        print(f"{name}: {of} prompts, shown in {hits / runs:.3f} ({exact.low:.3f} to {exact.high:.3f})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
