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
from bounds.certificate.guarantees import Gain
from bounds.certificate.summary import Summary
from bounds.proof.exact import random_problem
from bounds.questions.plan import Plan
from tests.simulate import World

POWER = 0.8
LEVEL = 1e-4
Draw = Callable[[np.random.Generator, int], bounds.TraceSet]


def numbers(gain: float, kl_seq: float, reward: float, responses: int, runs: int) -> tuple[Plan, Draw]:
    """A plan from numbers, and logs as they say: rewards grow with the log-ratio (their shares stay within [0, 1])."""

    def draw(rng: np.random.Generator, prompts: int) -> bounds.TraceSet:
        aside = rng.standard_normal(prompts * responses)
        log_ratio = np.sqrt(2 * kl_seq) * aside - kl_seq
        slope = gain / stats.norm.expect(lambda z: np.tanh(z + np.sqrt(2 * kl_seq)))  # E[tanh(z) P], and E[tanh(z)] = 0
        rewards = rng.random(aside.size) < reward + slope * np.tanh(aside)
        sampled = np.full((aside.size, 1), -5.0)
        return bounds.TraceSet.from_arrays(
            sampled, sampled + log_ratio[:, None], rewards=rewards * 1.0,
            prompt_ids=[f"p{i // responses}" for i in range(aside.size)], horizon=1,
        )  # fmt: skip

    return bounds.plan(gain=gain, kl_seq=kl_seq, reward=reward, responses=responses, power=POWER, runs=runs), draw


def like_a_log(distance: float, runs: int) -> tuple[Plan, Draw]:
    """A plan from a log of an enumerated problem, and logs of the same."""
    rng = np.random.default_rng(3)
    w = World(random_problem(rng, horizon=3, vocabulary=3, prompts=4, distance=distance), rng)
    if w.truth < 0.0:
        w.rewards, w.truth = [1.0 - r for r in w.rewards], -w.truth
    return bounds.plan(w.draw(rng, 1000, 4)[0], gain=w.truth, power=POWER, runs=runs), lambda r, n: w.draw(r, n, 4)[0]


CASES: dict[str, Callable[[int], tuple[Plan, Draw]]] = {
    "numbers, KL .01, gain .04": lambda runs: numbers(0.04, 0.01, 0.5, 8, runs),
    "numbers, KL .1, gain .1": lambda runs: numbers(0.1, 0.1, 0.5, 4, runs),
    "like a log": lambda runs: like_a_log(0.4, runs),
}


def shown(draw: Draw, prompts: int, logs: int, seed: int = 1) -> int:
    """In how many logs the verdict comes in."""
    rng = np.random.default_rng(seed)
    return sum(Gain(Summary.of(draw(rng, prompts)), 0.95).new_prompts().low > 0.0 for _ in range(logs))


def too_few(hits: int, logs: int) -> bool:
    """Whether it came in significantly less often than planned."""
    return bool(stats.binomtest(hits, logs, POWER, "less").pvalue < LEVEL)


def main() -> int:
    """Print the table; 1 if a plan did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=1000)
    logs, failed = parser.parse_args().logs, 0
    print(f"a power of {POWER} was planned; {logs} logs each")
    for name, case in CASES.items():
        found, draw = case(400)
        hits = shown(draw, found.prompts, logs)
        failed += too_few(hits, logs)
        print(f"{name}: {found.prompts} prompts, shown in {hits / logs:.3f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
