"""A search that tries to exceed a rule: hill climbing over small trees, and many random problems (``make attack``)."""

from __future__ import annotations

import itertools
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds.proof.exact import Problem, Tree, random_problem
from bounds.rules.bound import Withheld
from bounds.rules.profile import FIELDS
from bounds.rules.unified import RULES, rule, unified

RANGES = ((0.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (2.0, 5.0), (-3.0, -1.0))
#: Bounds below this are left out: float64 trees are exact to a millionth of it only.
_NOISE = 1e-7
_EVERYTHING = tuple(n for n in FIELDS if n not in ("log_ratio_max", "support_gap", "mean_reward", "reward_sd_within"))


def attack(
    rule_name: str,
    rng: np.random.Generator,
    *,
    horizon: int,
    vocabulary: int,
    tries: int,
    known: tuple[str, ...] = (),
    gaps: bool = False,
) -> float:
    """Climb from a random small tree toward the largest worst error / bound.

    The rule is given the whole true profile, or what ``known`` names; with ``gaps`` roll never emits what it would emit
    rarely, and the gap is declared.

    Returns
    -------
    float
        The largest ratio that was seen; more than 1 (plus rounding) refutes the rule.
    """
    own = rule(rule_name)
    contexts = sum(vocabulary**t for t in range(horizon))
    shape = (2, contexts, vocabulary)
    declared = ("support_gap",) if gaps else ()

    def ratio(logits: FloatArray) -> float:
        problem = _problem(logits, horizon, vocabulary, rarely=0.02 if gaps else 0.0)
        bound = own.evaluate(problem.profile(*(known or _EVERYTHING), *declared))
        if isinstance(bound, Withheld) or bound.value < _NOISE:
            return 0.0
        return (float(problem.worst_error) - 1e-6 * _NOISE) / bound.value

    point = rng.normal(0, 3.0, shape)
    best, step = ratio(point), 2.0
    for _ in range(tries):
        trial = point + rng.normal(0, step, shape) * (rng.random(shape) < 0.4)
        value = ratio(trial)
        if value >= best:  # on a plateau, too: walk on
            point, best, step = trial, value, min(step * 1.5, 8.0)
        else:
            step = max(step * 0.97, 0.05)
    return best


def ways(name: str) -> tuple[dict[str, Any], ...]:
    """Return what to attack with: all inputs, only what the rule needs, and (where it survives them) support gaps."""
    own = rule(name)
    least = tuple(n for n in own.needs if n != "reward_sd")
    every: tuple[dict[str, Any], ...] = ({}, {"known": least}, {"gaps": True}, {"known": least, "gaps": True})
    return every if own.gap_term else every[:2]


def _problem(logits: FloatArray, horizon: int, width: int, rarely: float = 0.0) -> Problem:
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    rows = np.maximum(rows / rows.sum(axis=-1, keepdims=True), 1e-12)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    rows[0][rows[0] < rarely] = 0.0
    rows[0] = rows[0] / rows[0].sum(axis=-1, keepdims=True)
    edges = np.cumsum([0] + [width**t for t in range(horizon)])
    roll, theta = (tuple(part[a:b] for a, b in itertools.pairwise(edges)) for part in rows)
    return Problem((Tree(roll, theta),), (1.0,))


def enumerate_random(count: int, seed: int) -> dict[str, float]:
    """Return the largest error / bound of each rule on ``count`` small problems (above 1: it is refuted).

    Ordinary and near-deterministic rows, rows with zeros, every second problem near processes that attain bounds; gaps
    that are declared or not, rewards in several ranges (the worst, or in every third problem some with a known mean and
    spread within prompts), one to three prompts, and what is known of them: all, or few fields.
    """
    rng = np.random.default_rng(seed)
    inputs = (
        (),
        ("delta",),
        ("epsilon",),
        ("kl_seq",),
        ("delta", "epsilon", "kl_seq", "tv_seq"),
        ("chi2_max", "mean_length"),
        ("epsilon", "mean_tv", "mean_kl"),
        ("max_tv", "mean_tv", "max_kl", "mean_length"),
        ("max_tv", "mean_tv", "mean_kl", "tv_seq"),
        ("max_chi2", "mean_kl"),
        ("chi2_sum", "tv_seq"),
        ("max_tv", "tv_seq", "log_ratio_max"),
        ("kl_seq", "log_ratio_max"),
    )
    largest = dict.fromkeys((own.name for own in RULES), 0.0)
    for number in range(count):
        horizon, prompts = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        if number % 2:
            problem = _rare_tokens(rng, horizon, prompts)
        else:
            problem = random_problem(
                rng,
                horizon=horizon,
                vocabulary=int(rng.integers(2, 4)),
                distance=float(10.0 ** -rng.uniform(0, 4)),
                concentration=float(10.0 ** rng.uniform(-1.5, 1)),
                zeros_theta=float(rng.choice([0.0, 0.3])),
                zeros_roll=float(rng.choice([0.0, 0.0, 0.3])),
                prompts=prompts,
                ends=bool(rng.integers(2)),
            )
        low, high = RANGES[int(rng.integers(len(RANGES)))]
        known = problem.profile(*inputs[int(rng.integers(len(inputs)))]).known()
        declared = problem.profile("support_gap").known() if rng.integers(2) else {}
        if number % 3:
            error = float(problem.worst_error_in(low, high))
        else:
            rewards = [low + (high - low) * _unit_rewards(rng, tree) for tree in problem.trees]
            error = abs(float(problem.error(rewards)))
            masses = [tree.roll_mass[-1] for tree in problem.trees]
            means = [float(mass @ r) for mass, r in zip(masses, rewards, strict=True)]
            squares = [float(mass @ (r - m) ** 2) for mass, r, m in zip(masses, rewards, means, strict=True)]
            mean, off = float(problem.mean(means)), 1e-12 * (high - low)
            declared |= {"mean_reward": (max(low, mean - off), min(high, mean + off))}
            declared |= {"reward_sd_within": math.sqrt(problem.mean(squares)) + off}
        error = error * (1 - 1e-12) - 2e-15 * (abs(low) + abs(high))
        if error > 0.0:
            for bound in unified(**{**known, **declared, "reward_range": (low, high)}).bounds:
                ratio = error / bound.value if bound.value else math.inf
                largest[bound.name] = max(largest[bound.name], ratio)
    return largest


def _rare_tokens(rng: np.random.Generator, horizon: int, prompts: int) -> Problem:
    """Draw near the processes that attain bounds: a token that roll emits rarely, theta at times, and more after one.

    At every step one policy (most often theta) has it with probability e, the other with eta < e; where it was emitted
    before, with beta in place of e.
    """
    trees = []
    for _ in range(prompts):
        e, eta = 10.0 ** -rng.uniform(0, 3, 2) * (1.0, 10.0 ** -rng.uniform(0, 6))
        after = rng.choice([e, rng.random(), 1.0 - eta])
        seen, pairs = np.zeros(1, dtype=bool), []
        for _ in range(horizon):
            often = np.clip(np.where(seen, after, e) * rng.choice([1.0, rng.random()]), 1e-12, 1.0 - 1e-9)
            rare = np.minimum(often, eta)
            pair = [np.stack([1.0 - p, p], axis=-1) for p in (rare, often)]
            pairs.append(pair[:: rng.choice([1, 1, 1, -1])])
            seen = (seen[:, None] | np.array([False, True])).ravel()
        roll, theta = zip(*pairs, strict=True)
        trees.append(Tree(roll, theta))
    return Problem(tuple(trees), (1.0 / prompts,) * prompts)


def _unit_rewards(rng: np.random.Generator, tree: Tree) -> FloatArray:
    """Return rewards in [0, 1] of every response: the worst on either side, or some of them changed."""
    worst = (tree.error_weight > 0.0) == bool(rng.integers(2))
    return np.where(rng.random(worst.size) < rng.choice([0.0, 0.3]), rng.random(worst.size), worst * 1.0)


def main() -> int:
    """Enumerate 100,000 problems, then attack every rule for longer (``make attack``); 1 if a rule is refuted."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else int(time.time())
    print(f"seed {seed} (give it as the argument to repeat)", flush=True)
    with ProcessPoolExecutor() as pool:
        parts = list(pool.map(enumerate_random, [1000] * 100, range(seed, seed + 100)))
    enumerated = {own.name: max(part[own.name] for part in parts) for own in RULES}
    rng = np.random.default_rng(seed)
    print(f"{'largest worst error / bound':28} 100,000 problems   climbing", flush=True)
    refuted = 0
    for own in RULES:
        climbed = max(
            attack(own.name, rng, horizon=T, vocabulary=V, tries=1000, **way)
            for way in ways(own.name)
            for T, V in ((1, 2), (2, 2), (3, 2), (2, 3))
        )
        found = max(enumerated[own.name], climbed)
        refuted += found > 1.0
        mark = "  REFUTED" if found > 1.0 else ""
        print(f"{own.name:28} {enumerated[own.name]:16.6f} {climbed:10.6f}{mark}", flush=True)
    return int(refuted > 0)


if __name__ == "__main__":
    raise SystemExit(main())
