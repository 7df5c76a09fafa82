"""True mean minus the lower end at 95 % (one-sided), mean over repetitions: the tables in README.md.

The second table holds what was aimed at beside what was found, and exits 1 where an aim is missed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.certificate.guarantees import Gain
from bounds.certificate.kept import acceptance
from bounds.certificate.summary import Summary
from bounds.intervals import INTERVALS, betting_sum, betting_these_prompts, leave_one_out, prompt_means, star
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask

CONFIDENCE, RESPONSES, CAP, DECLARED = 0.95, 8, 4.0, 2.0
TOKENS = 64  # of a response in a whole log
Widths = dict[str, float]


def _improvement(rng: np.random.Generator, n: int, kl: float) -> Widths:
    """J(theta) - J(roll) = 0: mean reward .4, log-normal P of that KL, eight responses; n prompts."""
    prompt = np.repeat(np.arange(n), RESPONSES)
    product = np.exp(rng.normal(-kl, math.sqrt(2.0 * kl), prompt.size))
    reward = (rng.random(prompt.size) < 0.4) * 1.0
    gain = reward * (product - 1.0)
    capped = prompt_means(reward * (np.minimum(product, CAP) - 1.0), prompt)  # its mean is not above the gain's
    widths = _widths(prompt_means(gain, prompt), 0.0, -1.0, math.inf)
    widths |= {
        m: w for m, w in _widths(capped, 0.0, -1.0, CAP - 1.0).items() if m in ("empirical_bernstein", "hoeffding")
    }
    widths["these prompts"] = -betting_these_prompts(gain, prompt, CONFIDENCE, low=-1.0, side="lower").low
    if product.max() <= DECLARED:
        centred = prompt_means((reward - 1.0 / DECLARED) * (product - 1.0), prompt)
        floor = 1.0 / DECLARED - 1.0
        widths["new, P <= 2 declared"] = -star(centred, CONFIDENCE, low=floor, side="lower").low
    widths["leave_one_out"] = -leave_one_out(reward, product, prompt, CONFIDENCE, side="lower").low
    return widths


def _unequal(rng: np.random.Generator, n: int, sizes: Callable[[np.random.Generator, int], IntArray]) -> Widths:
    """Return the width of these prompts as in :func:`_improvement` at a KL of .01, with unequal groups."""
    prompt = np.repeat(np.arange(n), sizes(rng, n))
    product = np.exp(rng.normal(-0.01, math.sqrt(0.02), prompt.size))
    gain = (rng.random(prompt.size) < 0.4) * (product - 1.0)
    return {"these prompts": -betting_these_prompts(gain, prompt, CONFIDENCE, low=-1.0, side="lower").low}


def _run(rng: np.random.Generator, n: int) -> Widths:
    """Return the width of the sum over a hundred such steps of n prompts at a KL of .01, divided by 100."""
    product = np.exp(rng.normal(-0.01, math.sqrt(0.02), (100 * n, RESPONSES)))
    gain = ((rng.random(product.shape) < 0.4) * (product - 1.0)).mean(axis=1)
    found = betting_sum(gain, np.full(gain.size, 1.0 / n), float(n), CONFIDENCE, low=-1.0, side="lower")
    return {"a hundred steps": -found.low / 100.0}


def _log(rng: np.random.Generator, n: int, kl: float, mean_reward: float) -> Widths:
    """Return widths from whole logs of 64 tokens a response, without and with a column of the largest log-ratio.

    rho = 1 +- a with equal chances, and what else the vocabulary has is up to 1.3. Also one-sided widths of the share
    that a mask keeps, one response a prompt, beside Clopper and Pearson's.
    """
    log_ratio = np.log1p(math.sqrt(2.0 * kl / TOKENS) * rng.choice([-1.0, 1.0], (n * RESPONSES, TOKENS)))
    reward = (rng.random(n * RESPONSES) < mean_reward) * 1.0
    largest = np.full(log_ratio.shape, math.log(1.3))
    prompt, single = np.repeat(np.arange(n), RESPONSES), np.arange(n * RESPONSES)

    def taken(prompt: IntArray, **columns: FloatArray) -> Summary:
        roll = np.full(log_ratio.shape, -5.0)
        return Summary.of(TraceSet.from_arrays(roll, roll + log_ratio, rewards=reward, prompt_ids=prompt, **columns))

    without, beside = taken(prompt), taken(prompt, max_log_ratio=largest)
    found = {}
    for name, summary, cap in (("", without, None), (", column", beside, None), (", declared", without, DECLARED)):
        if cap is None or log_ratio.sum(axis=1).max() <= math.log(cap):
            gain = Gain(summary, CONFIDENCE, ratio_max=cap)
            found[f"new prompts{name}"] = -gain.new_prompts().low
            found[f"these prompts{name}"] = -gain.these_prompts().low
    keep = reward == 1.0
    share = acceptance(taken(single), Mask.parse("seq_max_k2<=1"), keep, CONFIDENCE, side="lower").low
    exact = INTERVALS["clopper_pearson"](keep * 1.0, CONFIDENCE, low=0.0, high=1.0, side="lower").low
    return found | {"share / Clopper-Pearson": (keep.mean() - share) / (keep.mean() - exact)}


def _widths(values: FloatArray, mean: float, low: float, high: float) -> Widths:
    """Return the width of every method that takes such values."""
    binary = bool(np.isin(values, (low, high)).all())
    return {
        name: mean - interval(values, CONFIDENCE, low=low, high=high, side="lower").low
        for name, interval in INTERVALS.items()
        if binary or name != "clopper_pearson"
    }


def _simple(
    draw: Callable[[np.random.Generator, int], FloatArray], mean: float, low: float, high: float
) -> Callable[[np.random.Generator, int], Widths]:
    return lambda rng, n: _widths(draw(rng, n), mean, low, high)


DATA: dict[str, Callable[[np.random.Generator, int], Widths]] = {
    "R(P-1), KL .01": partial(_improvement, kl=0.01),
    "R(P-1), KL .05": partial(_improvement, kl=0.05),
    "R(P-1), KL .5": partial(_improvement, kl=0.5),
    "KL .01, one of n with a single response": partial(_unequal, sizes=lambda rng, n: np.where(np.arange(n), 8, 1)),
    "KL .01, ten with a single response": partial(_unequal, sizes=lambda rng, n: np.where(np.arange(n) < 10, 1, 8)),
    "KL .01, 1 to 8 responses": partial(_unequal, sizes=lambda rng, n: rng.integers(1, 9, n)),
    "KL .01, a step of a hundred": _run,
    "uniform": _simple(lambda rng, n: rng.random(n), 0.5, 0.0, 1.0),
    "0/1, mean .1": _simple(lambda rng, n: (rng.random(n) < 0.1) * 1.0, 0.1, 0.0, 1.0),
    "beta(10, 30)": _simple(lambda rng, n: rng.beta(10, 30, n), 0.25, 0.0, 1.0),
    "log-normal, sd of log 2": _simple(lambda rng, n: np.exp(rng.normal(-2.0, 2.0, n)), 1.0, 0.0, math.inf),
}
LOG, STRAGGLER = "whole log, KL .01", "KL .01, one of n with a single response"
#: What was aimed at: values, N, method, the largest width (a number, or that of another method).
AIMS: tuple[tuple[str, int, str, float | str], ...] = (
    ("R(P-1), KL .05", 128, "star", 0.030),
    ("R(P-1), KL .05", 512, "star", 0.0095),
    (LOG, 128, "new prompts, declared", 0.020),
    (LOG, 128, "new prompts, column", "new prompts"),
    (LOG, 128, "these prompts, column", "these prompts"),
    (LOG, 128, "share / Clopper-Pearson", 1.05),
    (STRAGGLER, 128, "these prompts", 0.014),
)
LOGS: dict[str, Callable[[np.random.Generator, int], Widths]] = {
    LOG: partial(_log, kl=0.01, mean_reward=0.4),
    "whole log, KL .05": partial(_log, kl=0.05, mean_reward=0.4),
    "whole log, KL .05, mean reward .8": partial(_log, kl=0.05, mean_reward=0.8),
}
METHODS = (*INTERVALS, "new, P <= 2 declared", "these prompts", "a hundred steps", "leave_one_out")


def aims(repetitions: int) -> bool:
    """Print what was aimed at beside what was found, two-sided where a whole log is read; return whether all is met."""
    found: dict[tuple[str, int], Widths] = {}
    met = []
    print("| values | N | interval | width | at most |\n|---|---|---|---|---|")
    for name, n, method, most in AIMS:
        if (name, n) not in found:
            rng = np.random.default_rng(0)
            drawn = [(DATA | LOGS)[name](rng, n) for _ in range(repetitions)]
            found[name, n] = {m: float(np.mean([w[m] for w in drawn])) for m in drawn[0]}
        width, limit = found[name, n][method], most if isinstance(most, float) else found[name, n][most]
        met.append(width <= limit)
        aim = f"{limit:.4g}" if isinstance(most, float) else f"{limit:.4g} ({most})"
        print(f"| {name} | {n} | {method} | {width:.4g} | {aim}{'' if met[-1] else ', missed'} |", flush=True)
    return all(met)


def main() -> int:
    """Print the tables as Markdown; 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 128, 512, 2048])
    chosen = parser.parse_args()
    repetitions = chosen.repetitions
    print(f"| values | N | {' | '.join(METHODS)} |")
    print("|---" * (2 + len(METHODS)) + "|")
    for name, draw in DATA.items():
        for n in chosen.sizes:
            rng = np.random.default_rng(0)
            found = [draw(rng, n) for _ in range(repetitions)]
            cells = [f"{np.mean([w[m] for w in found]):.3g}" if all(m in w for w in found) else "" for m in METHODS]
            print(f"| {name} | {n} | {' | '.join(cells)} |", flush=True)
    print()
    return 0 if aims(repetitions) else 1


if __name__ == "__main__":
    raise SystemExit(main())
