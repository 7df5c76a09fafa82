"""The monitor's scalars arrive in the loggers that people have, under the names that the docs show."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest
import torch

from bounds.training import Monitor


@pytest.fixture
def scalars():
    """What a monitor says of a small batch, as the docs prefix it."""
    torch.manual_seed(0)
    roll = -torch.rand(8, 16) - 0.1
    found = Monitor(horizon=16, rule="seq_max_k2<=0.05")(roll, roll - 0.02 * torch.rand(8, 16), torch.ones(8, 16))
    named = {f"trust_region/{name}": value for name, value in found.items()}
    assert {"trust_region/kl_seq", "trust_region/acceptance", "trust_region/acceptance_by_length/13_16"} <= set(named)
    return named


def logged_offline(path):
    """Every step that an offline run wrote: a log of LevelDB's form, whose records are messages of its protocol."""
    from wandb.proto import wandb_internal_pb2 as messages

    data, at, whole, steps = path.read_bytes(), 7, b"", {}
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:  # the end of a block is filled with zeros
            at += room
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a record that is whole, or its last part
            record = messages.Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                steps[items["_step"]] = items
    return steps


def test_weights_and_biases(scalars, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    with wandb.init(mode="offline", dir=str(tmp_path), project="trm", settings=wandb.Settings(disable_git=True)) as run:
        run.log(scalars, step=7, commit=True)  # a step of its own number is otherwise sent with the next one
        folder = Path(run.dir).parent
    (file,) = folder.glob("*.wandb")
    end = time.monotonic() + 30
    while 7 not in logged_offline(file) and time.monotonic() < end:  # another process writes it
        time.sleep(0.1)
    seen = logged_offline(file)[7]
    assert {name: seen[name] for name in scalars} == pytest.approx(scalars)


def test_tensorboard(scalars, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in scalars.items():
            writer.add_scalar(name, value, global_step=7)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == set(scalars)
    for name, value in scalars.items():
        (event,) = events.Scalars(name)
        assert (event.step, event.value) == (7, pytest.approx(value, rel=1e-6))


def test_mlflow(scalars, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("trm")
    with mlflow.start_run() as run:
        mlflow.log_metrics(scalars, step=7)
    assert mlflow.get_run(run.info.run_id).data.metrics == pytest.approx(scalars)
