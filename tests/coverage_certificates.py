"""How often certificates hold on enumerated problems, whose J is known. ``make coverage`` prints the table.

Guarantees are judged by an exact binomial test; asymptotic intervals are only shown. The tests run a short form.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from bounds.certificate.guarantees import guarantees
from bounds.certificate.kept import kept
from bounds.certificate.summary import Summary
from bounds.masks.mask import Mask
from bounds.proof.exact import random_problem
from tests.simulate import World

CONFIDENCE = 0.9
LEVEL = 1e-4
MASK = Mask.parse("seq_max_k2<=0.1,seq_mean_k3<=0.05")
NAMES = {
    "new prompts": "improvement",
    "these prompts": "improvement_these_prompts",
    "asymptotic": "improvement_asymptotic",
    "under a mask": "improvement_under_mask",
}
WORLDS = {
    "near": {"distance": 0.1},
    "far": {"distance": 0.6},
    "support gap": {"distance": 0.3, "zeros_roll": 0.3},
    "theta lacks tokens": {"distance": 0.3, "zeros_theta": 0.3},
    "nearly certain": {"distance": 0.2, "concentration": 0.1},
    "largest ratios logged": {"distance": 0.3},
    "largest ratios and a gap": {"distance": 0.3, "zeros_roll": 0.3},
}


def world(kind: str, seed: int = 0) -> World:
    """A population of four kinds of prompts, three tokens of three words each."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, horizon=3, vocabulary=3, prompts=4, **WORLDS[kind])
    return World(problem, rng, exact="largest" in kind)


def covered(kind: str, prompts: int, group: int, repetitions: int, seed: int) -> dict[str, int]:
    """In how many logs each interval contains the truth."""
    w, rng = world(kind), np.random.default_rng(seed)
    hits = dict.fromkeys(NAMES, 0)
    for _ in range(repetitions):
        traces, kinds = w.draw(rng, prompts, group)
        summary = Summary.of(traces, statistics=MASK.statistics)
        found = guarantees(summary, CONFIDENCE, kept(summary, MASK)).intervals
        truth = {"these prompts": w.by_prompt[kinds].mean()}
        for name, key in NAMES.items():
            hits[name] += found[key].low <= truth.get(name, w.truth) <= found[key].high
    return hits


def too_few(hits: int, repetitions: int) -> bool:
    """Whether a guarantee held significantly less often than it says."""
    return bool(stats.binomtest(hits, repetitions, CONFIDENCE, "less").pvalue < LEVEL)


def main() -> int:
    """Print the table; 1 if a guarantee did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400, help="at 50 prompts and fewer; more have fewer")
    parser.add_argument("--prompts", type=int, nargs="+", default=[20, 100, 500])
    arguments = parser.parse_args()
    cases = list(product(WORLDS, arguments.prompts, (1, 4)))
    logs = [max(arguments.repetitions * 50 // max(prompts, 50), 1) for _, prompts, _ in cases]
    failed = 0
    print(f"coverage where {CONFIDENCE} is said")
    with ProcessPoolExecutor() as pool:
        for (kind, prompts, group), n, hits in zip(cases, logs, pool.map(_case, cases, logs), strict=True):
            shares = ", ".join(f"{name} {k / n:.3f}" for name, k in hits.items())
            broken = [name for name in ("new prompts", "these prompts") if too_few(hits[name], n)]
            failed += len(broken)
            print(f"{kind}, {prompts} prompts x {group}, {n} logs: {shares}{'  FAILED' if broken else ''}", flush=True)
    return 1 if failed else 0


def _case(case: tuple[str, int, int], repetitions: int) -> dict[str, int]:
    return covered(*case, repetitions, seed=1)


if __name__ == "__main__":
    raise SystemExit(main())
