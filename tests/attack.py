"""A search that tries to exceed a rule: hill climbing over small trees, and many random problems (``make attack``)."""

from __future__ import annotations

import itertools
import sys
import time
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


def enumerate_random(count: int, rng: np.random.Generator) -> int:
    """Count the rules below the worst error of ``count`` random problems (0, or something is refuted).

    Ordinary and near-deterministic rows, rows with zeros, gaps that are declared or not, rewards in several ranges, one
    to three prompts, and what is known of them: all, or few fields.
    """
    inputs = (
        (),
        ("delta",),
        ("epsilon",),
        ("delta", "epsilon", "kl_seq", "tv_seq"),
        ("chi2_max", "mean_length"),
        ("epsilon", "mean_tv", "mean_kl"),
        ("max_tv", "mean_tv", "max_kl", "mean_length"),
        ("max_tv", "tv_seq", "log_ratio_max"),
        ("kl_seq", "log_ratio_max"),
    )
    violations = 0
    for _ in range(count):
        problem = random_problem(
            rng,
            horizon=int(rng.integers(1, 5)),
            vocabulary=int(rng.integers(2, 4)),
            distance=float(10.0 ** -rng.uniform(0, 4)),
            concentration=float(10.0 ** rng.uniform(-1.5, 1)),
            zeros_theta=float(rng.choice([0.0, 0.3])),
            zeros_roll=float(rng.choice([0.0, 0.0, 0.3])),
            prompts=int(rng.integers(1, 4)),
            ends=bool(rng.integers(2)),
        )
        low, high = RANGES[int(rng.integers(len(RANGES)))]
        worst = float(problem.worst_error_in(low, high)) * (1 - 1e-12) - 1e-15 * (abs(low) + abs(high))
        known = problem.profile(*inputs[int(rng.integers(len(inputs)))]).known()
        declared = problem.profile("support_gap").known() if rng.integers(2) else {}
        table = unified(**{**known, **declared, "reward_range": (low, high)})
        violations += sum(b.value < worst for b in table.bounds)
    return violations


def main() -> int:
    """Attack every rule for longer, and ten thousand random trees (``make attack``); 1 if a rule is refuted."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else int(time.time())
    print(f"seed {seed} (give it as the argument to repeat)", flush=True)
    rng = np.random.default_rng(seed)
    refuted = enumerate_random(10_000, rng)
    print(f"10000 random problems: {refuted} bounds below the worst error", flush=True)
    for own in RULES:
        found = max(
            attack(own.name, rng, horizon=T, vocabulary=V, tries=1000, **way)
            for way in ways(own.name)
            for T, V in ((1, 2), (2, 2), (3, 2), (2, 3))
        )
        refuted += found > 1.0
        print(f"{own.name:28} largest worst error / bound: {found:.6f}{'  REFUTED' if found > 1.0 else ''}", flush=True)
    return int(refuted > 0)


if __name__ == "__main__":
    raise SystemExit(main())
