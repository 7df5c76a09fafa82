"""How often intervals contain the mean, on distributions whose mean is known. ``make coverage`` prints the table.

Every interval is asked for with its error on both sides, on the lower and on the upper one. A guarantee is judged as
one: the misses of each end, and of both, must not be significantly more than allowed, by an exact one-sided binomial
test at level 1e-4. The seed is fixed. The tests run a short form of the same study.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np
from scipy import stats

from bounds._checks import FloatArray
from bounds.intervals import INTERVALS, Side, betting_sum, betting_these_prompts, confidence_sequence, prompt_means
from bounds.results import Interval

LEVEL = 1e-4
SIDES = get_args(Side)
UNEQUAL = ((2, 3, 4, 5, 6, 7, 8), (1, 8), (1, 1, 1, 2, 30))
Method = Callable[..., Interval]


@dataclass(frozen=True)
class Scenario:
    """Independent values with a known mean in a declared range."""

    name: str
    draw: Callable[[np.random.Generator, int], FloatArray]  # (rng, N) -> values [N]
    mean: Callable[[int], float]  # of one value, where N values are drawn
    low: float = 0.0
    high: float = 1.0

    def takes(self, method: str) -> bool:
        """Whether the method is meant for such data."""
        return method != "clopper_pearson" or self.name.startswith("two-point")


def _two_point(name: str, share: Callable[[int], float], low: float = 0.0, high: float = 1.0) -> Scenario:
    def draw(rng: np.random.Generator, n: int) -> FloatArray:
        return np.where(rng.random(n) < share(n), high, low)

    return Scenario(f"two-point, {name}", draw, lambda n: low + share(n) * (high - low), low, high)


def _gains(rng: np.random.Generator, n: int, sizes: tuple[int, ...] = (8,)) -> FloatArray:
    """R(P-1), R = 1[P > 1], of a number of responses to each prompt, which decides the KL: prompt means."""
    prompt = np.repeat(np.arange(n), rng.choice(sizes, n))
    sigma = rng.choice([0.2, 0.8], size=n)[prompt]
    product = np.exp(rng.normal(-np.square(sigma) / 2, sigma))
    return prompt_means(np.maximum(product - 1.0, 0.0), prompt)


_GAIN = float(np.mean([2.0 * stats.norm.cdf(sigma / 2) - 1.0 for sigma in (0.2, 0.8)]))


def _shares(rng: np.random.Generator, n: int) -> FloatArray:
    """Shares of one or two responses that are right, the prompt deciding how likely that is."""
    responses = rng.integers(1, 3, n)
    return rng.binomial(responses, rng.beta(0.3, 0.7, n)) / responses


def _log_normal(rng: np.random.Generator, n: int) -> FloatArray:
    return np.exp(rng.normal(-2.0, 2.0, size=n))


SCENARIOS = (
    Scenario("uniform", lambda rng, n: rng.random(n), lambda n: 0.5),
    Scenario("arcsine", lambda rng, n: rng.beta(0.5, 0.5, n), lambda n: 0.5),
    Scenario("skewed right", lambda rng, n: rng.beta(0.05, 0.95, n), lambda n: 0.05),
    Scenario("skewed left", lambda rng, n: rng.beta(0.95, 0.05, n), lambda n: 0.95),
    Scenario("Pareto cut at 100", lambda rng, n: np.minimum(1.0 + rng.pareto(1.2, n), 100.0),
             lambda n: 6.0 - 5.0 * 100.0**-0.2, 0.0, 100.0),
    Scenario("log-normal, no upper range", _log_normal, lambda n: 1.0, 0.0, math.inf),
    Scenario("its mirror, no lower range", lambda rng, n: 1.0 - _log_normal(rng, n), lambda n: 0.0, -math.inf, 1.0),
    Scenario("R(P-1), 8 responses a prompt", _gains, lambda n: _GAIN, -1.0, math.inf),
    Scenario("R(P-1), 1 to 30 responses", partial(_gains, sizes=UNEQUAL[2]), lambda n: _GAIN, -1.0, math.inf),
    Scenario("shares of one or two responses", _shares, lambda n: 0.3),
    _two_point("fair", lambda n: 0.5, -1.0, 1.0),
    _two_point("rare", lambda n: 0.1 / n),
    _two_point("all high with probability .05", lambda n: 0.05 ** (1.0 / n)),
    _two_point("all low with probability .05", lambda n: 1.0 - 0.05 ** (1.0 / n), 0.0, 1e6),
)  # fmt: skip


@dataclass(frozen=True)
class Misses:
    """How often the mean was below the lower end, and above the upper one."""

    low: int
    high: int
    repetitions: int
    confidence: float
    side: Side = "both"  # where the error may be: half of it at each end, or all of it at one

    @property
    def coverage(self) -> float:
        """Share of the intervals that contained the mean."""
        return 1.0 - (self.low + self.high) / self.repetitions

    @property
    def p_value(self) -> float:
        """Of the guarantee, from the worst of: lower end, upper end, both."""
        alpha = 1.0 - self.confidence
        counts = [(self.low + self.high, alpha)]
        if self.side == "both":
            counts += [(self.low, alpha / 2), (self.high, alpha / 2)]
        return min(float(stats.binom.sf(k - 1, self.repetitions, error)) for k, error in counts)

    @property
    def holds(self) -> bool:
        """Whether the guarantee is not refuted."""
        return self.p_value >= LEVEL


def misses(
    method: Method,
    scenario: Scenario,
    n: int,
    repetitions: int,
    confidence: float,
    seed: int,
    side: Side = "both",
) -> Misses:
    """Misses of intervals on fresh samples."""
    rng = np.random.default_rng([seed, n])
    mean, low, high = scenario.mean(n), 0, 0
    for _ in range(repetitions):
        found = method(scenario.draw(rng, n), confidence, low=scenario.low, high=scenario.high, side=side)
        low += found.low > mean
        high += found.high < mean
    return Misses(low, high, repetitions, confidence, side)


def misses_these_prompts(
    prompts: int,
    repetitions: int,
    confidence: float,
    seed: int,
    sizes: tuple[int, ...] = UNEQUAL[0],
    side: Side = "both",
) -> Misses:
    """The prompts of a batch are fixed, with means of their own and a number of responses; only these are drawn."""
    rng = np.random.default_rng([seed, prompts])
    mean = rng.beta(0.3, 0.7, prompts)
    prompt = np.repeat(np.arange(prompts), rng.choice(sizes, prompts))
    low = high = 0
    for _ in range(repetitions):
        values = (rng.random(prompt.size) < mean[prompt]) * 1.0
        found = betting_these_prompts(values, prompt, confidence, low=0.0, high=1.0, side=side)
        low += found.low > mean.mean()
        high += found.high < mean.mean()
    return Misses(low, high, repetitions, confidence, side)


def misses_of_steps(size: int, repetitions: int, confidence: float, seed: int, side: Side = "both") -> Misses:
    """Misses of the sum over steps of unequal size, whose mean depends on the step before: after one step at least."""
    rng = np.random.default_rng([seed, size])
    low = high = 0
    for _ in range(repetitions):
        values, weights, target, share, below, above = np.zeros(0), np.zeros(0), 0.0, 0.5, False, False
        for n in (size, 2 * size, size // 2, size, size + 3, 3):
            wins = (rng.random(n) < share) * 1.0
            values, weights = np.append(values, wins), np.append(weights, np.full(n, 1.0 / n))
            target += share
            found = betting_sum(values, weights, float(size), confidence, low=0.0, high=1.0, side=side)
            below, above = below or found.low > target, above or found.high < target
            share = 0.9 if wins.mean() > 0.5 else 0.1
        low, high = low + below, high + above
    return Misses(low, high, repetitions, confidence, side)


def misses_at_any_time(
    scenario: Scenario, n: int, repetitions: int, confidence: float, seed: int, side: Side = "both"
) -> Misses:
    """Misses of a confidence sequence: the mean left it at one time at least."""
    rng = np.random.default_rng([seed, n])
    low = high = 0
    for _ in range(repetitions):
        found = confidence_sequence(scenario.draw(rng, n), confidence, low=scenario.low, high=scenario.high, side=side)
        low += found.low[-1] > scenario.mean(n)  # ends are running intersections
        high += found.high[-1] < scenario.mean(n)
    return Misses(low, high, repetitions, confidence, side)


def cells() -> dict[str, tuple[Callable[..., Misses], int]]:
    """What is studied: how to count its misses, and how many times fewer repetitions it gets, since it is slow."""
    found: dict[str, tuple[Callable[..., Misses], int]] = {}
    for (name, method), scenario, n in itertools.product(INTERVALS.items(), SCENARIOS, (5, 20, 100, 500)):
        if scenario.takes(name):
            fewer = {100: 10, 500: 20}.get(n, 1) if name == "star" else 1  # one takes a quarter of a second at 500
            found[f"{name}, {scenario.name}, N = {n}"] = partial(misses, method, scenario, n), fewer
    for prompts, sizes in itertools.product((5, 20, 100), UNEQUAL):
        label = f"betting_these_prompts, {prompts} prompts of {sizes} responses"
        found[label] = partial(misses_these_prompts, prompts, sizes=sizes), 1
    for size in (5, 40):
        found[f"betting_sum, after each of six steps of {size} or so that look back"] = (
            partial(misses_of_steps, size),
            2,
        )
    for scenario in (SCENARIOS[2], SCENARIOS[7]):
        label = f"confidence_sequence, {scenario.name}, at all times up to 100"
        found[label] = partial(misses_at_any_time, scenario, 100), 4
    return found


def _row(label: str, repetitions: int, confidence: float) -> list[Misses]:
    """Misses of one cell, by where the error may be (worker process)."""
    count, fewer = cells()[label]
    return [count(max(repetitions // fewer, 1), confidence, seed=0, side=side) for side in SIDES]


def main() -> int:
    """Print coverage of every method on every distribution; 1 if a guarantee is refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--confidence", type=float, default=0.95)
    chosen = parser.parse_args()
    started, lowest, refuted = time.perf_counter(), dict[str, list[float]](), 0
    row = partial(_row, repetitions=chosen.repetitions, confidence=chosen.confidence)
    print(f"coverage at {chosen.confidence}, up to {chosen.repetitions} repetitions; error on both sides, lower, upper")
    print(f"'too low': refuted at level {LEVEL:g} (student_t promises nothing)")
    with ProcessPoolExecutor() as pool:
        for label, found in zip(cells(), pool.map(row, cells()), strict=True):
            marks = (f"{m.coverage:.4f}{'' if m.holds else ' too low'}" for m in found)
            print(f"{label:78}{'  '.join(marks)}", flush=True)
            method = label.split(",")[0]
            if method != "student_t":
                refuted += sum(not m.holds for m in found)
            lowest.setdefault(method, []).extend(m.coverage for m in found)
    for method, coverages in lowest.items():
        print(f"{method:24}{len(coverages)} cells, coverage {min(coverages):.4f} to {max(coverages):.4f}")
    print(f"{refuted} guarantees refuted; {time.perf_counter() - started:.0f} s")
    return 1 if refuted else 0


if __name__ == "__main__":
    raise SystemExit(main())
