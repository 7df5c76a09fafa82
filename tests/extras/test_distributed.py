"""A summary by a real local Ray are those of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bounds

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six files: the example log cut by prompts, one response missing, so that groups are unequal."""
    path = tmp_path_factory.mktemp("log")
    traces = bounds.example_traces()
    for k in range(6):
        keep = traces.prompt % 6 == k
        if k == 2:
            keep[np.flatnonzero(keep)[0]] = False
        traces.select(keep).to_parquet(path / f"part_{k}.parquet")
    return path


def run(*arguments):
    """The command in a process of its own: Ray's threads and warnings stay there."""
    command = [sys.executable, "-m", "bounds", "certify", *map(str, arguments), "--json"]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT, check=False)


def numbers(value):
    if isinstance(value, dict):
        return [x for v in value.values() for x in numbers(v)]
    if isinstance(value, list):
        return [x for v in value for x in numbers(v)]
    return [float(value)] if isinstance(value, int | float) else []


def test_the_same_certificate(folder):
    mask = "seq_max_k2<=0.05,seq_mean_k3<=0.001"
    local, cluster = (run(folder, "--mask", mask, "--engine", engine) for engine in ("local", "ray"))
    assert (local.returncode, cluster.returncode) == (0, 0), cluster.stderr
    one, many = json.loads(local.stdout), json.loads(cluster.stdout)
    assert np.allclose(numbers(many), numbers(one), rtol=1e-12, atol=1e-15)
    assert many["warnings"] == one["warnings"]
    assert [b["name"] for b in many["bounds"]] == [b["name"] for b in one["bounds"]]
    assert many["responses"] == 95


def test_errors_name_the_file(folder, tmp_path):
    (tmp_path / "good.jsonl").write_text('{"rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}\n')
    (tmp_path / "bad.jsonl").write_text('{"rollout_logprobs": [-1.0], "train_logprobs": [null]}\n')
    found = run(tmp_path, "--engine", "ray", "--horizon", "4")
    assert found.returncode == 2
    assert "bad.jsonl:1: row 0: train_logprobs[0] is null or NaN" in found.stderr
    assert "Traceback" not in found.stderr.split("trm-bounds: error")[-1]


def test_resuming_is_for_one_process(folder, tmp_path):
    found = run(folder, "--engine", "ray", "--resume", tmp_path / "state")
    assert found.returncode == 2
    assert "--resume goes with --engine local" in found.stderr
