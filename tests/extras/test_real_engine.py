"""The embedded run of a real TRL with a real vLLM (lab/real_engine.py): what of its mismatch is the engine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import bounds
from lab.task import CHARACTERS, Task

LAB = Path(__file__).parents[2] / "lab"


def test_the_run_inside_the_package_is_the_one_that_is_described():
    run, traces = bounds.over_time(bounds.example_traces("run")), bounds.example_traces("run")
    assert list(run.steps) == [str(k) for k in range(0, 200, 5)]
    assert all(run.steps.facts_of(step) == {"responses": 32, "prompts": 8} for step in run.steps)
    assert traces.horizon == Task().horizon
    step, version = (np.array(traces.labels[name], dtype=int) for name in ("step", "weight_version"))
    assert (version == step - step % 4).all()
    assert set(traces.tokens) <= set(range(len(CHARACTERS)))


@pytest.fixture(scope="module")
def by_age():
    """Age of vLLM's weights in steps -> k3 of a response by the engine alone, and in all, as means over responses."""
    traces = bounds.example_traces("run")
    step, version = (np.array(traces.labels[name], dtype=int) for name in ("step", "weight_version"))
    sums = [
        np.add.reduceat(np.expm1(d) - d, traces.starts[:-1]) for d in (traces.old - traces.rollout, traces.log_ratio)
    ]
    return {age: [values[step - version == age].mean() for values in sums] for age in range(4)}


def test_fresh_weights_leave_the_engine_alone_and_staleness_adds_to_it(by_age):
    engine, total = (np.array([by_age[age][k] for age in range(4)]) for k in range(2))
    assert total[0] == pytest.approx(engine[0], rel=1e-3)  # theta are vLLM's weights
    assert (engine < 2e-3).all()
    assert (np.diff(total) > 0).all()
    assert (total[1:] > 10 * engine[1:]).all()


def test_the_labs_readme_says_what_the_log_says(by_age):
    text = (LAB / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    assert [int(age) for age, *_ in rows] == list(by_age)
    for age, *said in rows:
        assert [float(x) for x in said] == [float(f"{x:.2g}") for x in by_age[int(age)]]
