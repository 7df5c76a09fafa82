"""Files of a log that are read by several processes: the same to the last bit, and what one process finds."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import bounds
from bounds.certificate import distributed
from bounds.certificate.distributed import jobs_for, processes
from bounds.certificate.findings import Kind, findings
from bounds.certificate.summary import Summary


@pytest.fixture
def folder(tmp_path):
    """Four files of unequal groups and lengths: the third repeats the first, and is of another step."""
    traces = bounds.example_traces()
    for k in range(4):
        keep = (traces.prompt % 3 == k % 3) & (np.arange(len(traces)) % (5 + k) > 0)
        traces.select(keep).to_parquet(tmp_path / f"step_{k}.parquet")
    return tmp_path


def test_the_same_to_the_last_bit(folder, monkeypatch):
    monkeypatch.setattr(distributed, "cores", lambda: 3)
    log = bounds.open_log(sorted(folder.iterdir())[:3])
    one, two = (Summary.of(log, statistics=["seq_max_k2"], pool=pool) for pool in (map, processes(2)))
    assert bounds.certify(one).to_json() == bounds.certify(two).to_json()
    assert [f.kind for f in findings(two)] == [f.kind for f in findings(one)]
    assert Kind.MIXTURE in {f.kind for f in findings(two)}
    for name, values in one.by_position().items():
        assert (values == two.by_position()[name]).all(), name
    assert jobs_for(log) == 1
    monkeypatch.setattr(distributed, "WORTH_A_POOL", 1)
    assert jobs_for(log) == 3


def test_what_is_found_across_files_is_found(folder, tmp_path):
    """A file that repeats another, and a field that only one file lacks."""
    with pytest.raises(bounds.TraceError) as one:
        Summary.of(bounds.open_log(folder))
    with pytest.raises(bounds.TraceError) as two:
        Summary.of(bounds.open_log(folder), pool=processes(2))
    assert "step_3.parquet" in str(one.value)
    assert "bitwise the same" in str(one.value)
    assert str(one.value) == str(two.value)
    row = {"rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for file, more in zip(files, ({"reward": 1.0}, {"reward": 0.0}, {}), strict=True):
        file.write_text(json.dumps({**row, "prompt_id": file.stem, **more}))
    with pytest.raises(bounds.TraceError, match=r"c\.jsonl:1: row 0: reward is given for some .*a\.jsonl:1"):
        Summary.of(bounds.open_log(files, horizon=4), pool=processes(2))


def kills(file):
    """Work that ends its process: for one file always, for another once."""
    path = file.files[0].path
    if path.stem == "step_1":
        os._exit(1)
    if path.stem == "step_2" and not (path.parent / "seen").exists():
        (path.parent / "seen").touch()
        os._exit(1)
    return path.stem


def test_a_file_that_kills_its_worker_is_named(folder):
    files = {file.files[0].path.stem: file for file in bounds.open_log(folder).split()}
    bad = files.pop("step_1")
    assert list(processes(2)(kills, list(files.values()))) == list(files)
    with pytest.raises(bounds.TraceError, match=r"step_1\.parquet: reading it killed a worker 3 times"):
        list(processes(2)(kills, [bad]))


def test_figures_and_tables_are_the_same_from_other_processes(tmp_path):
    names = ["table_bounds", "table_length_bias"]
    one, two = (bounds.figures.write(names, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
