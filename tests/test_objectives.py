"""The objectives of trainers, by their literal formulas."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

import bounds
from bounds.proof import CHECKS
from bounds.proof import objectives as proof
from bounds.proof.exact import Tree
from bounds.proof.objectives import of_groups
from bounds.questions.objectives import OBJECTIVES, deviation_weight, objectives


def make(prompts=30, group=4, spread=0.4, seed=0, rewards=True):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(prompts):
        for _ in range(group):
            n = int(rng.integers(1, 12))
            d = rng.normal(0.0, spread, n)
            row = {"prompt_id": f"p{i}", "rollout_logprobs": [-5.0] * n, "train_logprobs": (d - 5.0).tolist()}
            rows.append(row | ({"reward": float(rng.random() < 0.5)} if rewards else {}))
    return rows


def test_every_objective_is_its_formula():
    rows = make()
    found = objectives(trace_set(rows), mask="seq_max_k2<=0.3").objectives
    ratios = [np.exp(np.subtract(r["train_logprobs"], r["rollout_logprobs"])) for r in rows]
    reward = np.array([r["reward"] for r in rows])
    groups = reward.reshape(-1, 4)
    advantage = reward - (groups.sum(axis=1).repeat(4) - reward) / 3
    length = np.array([x.size for x in ratios])
    keep = np.array([(np.log(x) ** 2 / 2).max() <= 0.3 for x in ratios])
    expected = {
        "L'": [(r * (x - 1)).sum() for r, x in zip(reward, ratios, strict=True)],
        "token TIS": [(r * (np.minimum(x, 2.0) - 1)).sum() for r, x in zip(reward, ratios, strict=True)],
        "PPO clip": [
            (np.minimum(x * a, np.clip(x, 0.8, 1.28) * a) - a).sum() for a, x in zip(advantage, ratios, strict=True)
        ],
        "masked": [k * (r * (x - 1)).sum() for k, r, x in zip(keep, reward, ratios, strict=True)],
        "group mean": [
            (r - m) * (x - 1).sum() for r, m, x in zip(reward, groups.mean(axis=1).repeat(4), ratios, strict=True)
        ],
        "sequence mean": [length.mean() * (r * (x - 1)).mean() for r, x in zip(reward, ratios, strict=True)],
    }
    for name, values in expected.items():
        assert found[name]["value"].value == pytest.approx(np.mean(values), rel=1e-10), name
        if name != "PPO clip":
            difference = found["L'"]["value"].value - np.mean(values)
            assert found[name]["difference"].value == pytest.approx(difference, rel=1e-9, abs=1e-14), name
    clipped = np.mean([(a * (x - 1)).sum() for a, x in zip(advantage, ratios, strict=True)]) - np.mean(
        expected["PPO clip"]
    )
    assert found["PPO clip"]["difference"].value == pytest.approx(clipped, rel=1e-9)
    assert found["PPO clip"]["difference"].value >= 0.0
    for name in ("token mean", "std-normalised"):
        assert found[name] == {"value": None, "difference": None}


@pytest.mark.parametrize(("group", "sample", "epsilon"), [(2, True, 0.0), (3, False, 0.0), (4, True, 0.25)])
def test_the_weight_of_a_prompt_is_that_of_every_group(group, sample, epsilon):
    """Against groups that are written out one by one."""
    p, q = Fraction(3, 10), Fraction(2, 5)
    tree = Tree((np.array([[p, 1 - p]]),), (np.array([[q, 1 - q]]),))
    reward = np.array([Fraction(1), Fraction(0)])

    def normalised(rewards):
        values = np.array(rewards, dtype=float)
        return (values - values.mean()) / (values.std(ddof=int(sample)) + epsilon) if values.std() else 0 * values

    found = float(of_groups(tree, reward, group, normalised))
    assert found == pytest.approx(
        deviation_weight(0.3, group, sample=sample, epsilon=epsilon) * float(q - p), rel=1e-12
    )


def test_what_is_said_of_objectives_is_checked():
    said = [check for objective in OBJECTIVES.values() for check in objective.checks]
    assert {*said} == {c.name for c in CHECKS if c.name in vars(proof)}
    with pytest.raises(ValueError, match=r"success must be inside \(0, 1\), got success=1.0"):
        deviation_weight(1.0, 4)


def trace_set(rows):
    return bounds.TraceSet.from_records(rows, horizon=16)


def test_small_ratios_are_cut_nowhere():
    table = objectives(trace_set(make(spread=0.05)))
    assert table.objectives["token TIS"]["difference"].value == 0.0
    assert table.objectives["PPO clip"]["difference"].value == pytest.approx(0.0, abs=1e-3)
    json.loads(table.to_json())
    assert "misses J(theta) - J(roll) by at most |d| more" in table.sentence()


def test_overflow_is_infinite_and_rewards_are_needed():
    rows = [{**r, "rollout_logprobs": [-800.0], "train_logprobs": [-0.5]} for r in make(3)]
    found = objectives(trace_set(rows))  # no pair of policies has such ratios: it is said, and nothing is finite
    assert "refuted" in {f.kind for f in found.findings}
    assert found.to_frame().set_index("objective").loc["token TIS", "difference_high"] == math.inf
    with pytest.raises(bounds.TraceError, match="no rewards"):
        objectives(trace_set(make(rewards=False)))
