"""A summary by a real local Ray is that of one process."""

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


def test_the_same_certificate(folder):
    mask = "seq_max_k2<=0.05,seq_mean_k3<=0.001"
    local, cluster = (run(folder, "--mask", mask, "--engine", engine) for engine in ("local", "ray"))
    assert (local.returncode, cluster.returncode) == (0, 0), cluster.stderr
    assert cluster.stdout == local.stdout  # to the last bit
    assert json.loads(cluster.stdout)["responses"] == 95
    assert "ray" not in cluster.stderr.lower()


def test_what_is_found_across_files_is_found(tmp_path):
    falling = np.arange(40) / 99
    rows = [
        json.dumps(
            {
                "prompt_id": f"p{k}",
                "rollout_logprobs": (-1.0 - k / 7 - falling).tolist(),
                "train_logprobs": (-1.1 - k / 5 - falling).tolist(),
            }
        )
        for k in range(8)
    ]
    for k in range(2):
        (tmp_path / f"step_{k}.jsonl").write_text("\n".join(rows) + "\n" * (k + 1))
    found = run(tmp_path / "step_0.jsonl", tmp_path / "step_1.jsonl", "--engine", "ray", "--horizon", "64")
    assert found.returncode == 2
    assert "8 of its responses stand, bitwise the same, in" in found.stderr


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
