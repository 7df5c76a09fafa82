"""How fast a log is read and looked at, beside a bare read of what is needed of it.

Run with ``make bench``; README.md in this folder keeps a table of the ratios. Nothing here can fail on time.
"""

from __future__ import annotations

import json
import time

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from memory_study import write_log

from bounds import open_log
from bounds.certificate import summary
from bounds.certificate.summary import Summary

TOKENS, ROUNDS = 2 * 10**7, 5
COLUMNS = ["prompt_id", "reward", "rollout_logprobs", "train_logprobs"]
BATCH = 478  # rows: the batches that the reader takes of this log


def read_parquet(path, table=False):
    """Every column that is needed, by pyarrow alone: at once, or in batches and in memory that does not grow."""
    if table:
        return pq.read_table(path, columns=COLUMNS).num_rows
    file = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16)
    return sum(batch.num_rows for batch in file.iter_batches(columns=COLUMNS, batch_size=BATCH))


class NeMoRow(msgspec.Struct):
    """The fields that are needed, in the types that a healthy file has."""

    generation_logprobs: list[list[float]]
    prev_logprobs: list[list[float]]
    token_loss_mask: list[list[float]]
    sample_loss_mask: list[float]
    rewards: list[float]
    token_ids: list[list[int]]


def decode_nemo(path):
    decoder = msgspec.json.Decoder(NeMoRow)
    with path.open("rb") as file:
        return sum(len(decoder.decode(line).rewards) for line in file)


def write_nemo(path, rows, prompt=200, tokens=1000):
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for i in range(rows):
            roll = -rng.exponential(0.5, prompt + tokens).astype(np.float32)
            theta = -np.abs(roll + rng.normal(0.0, 0.02, roll.size)).astype(np.float32)
            ids = [*([i // 8] * prompt), *rng.integers(0, 150_000, tokens).tolist()]
            row = {
                "content": ["x" * 4 * tokens],
                "rewards": [float(rng.integers(0, 2))],
                "input_lengths": [roll.size],
                "token_ids": [ids],
                "token_loss_mask": [[0.0] * prompt + [1.0] * tokens],
                "sample_loss_mask": [1.0],
                "advantages": [[0.5] * roll.size],
                "generation_logprobs": [roll.astype(float).tolist()],
                "prev_logprobs": [theta.astype(float).tolist()],
            }
            file.write(json.dumps(row) + "\n")


def by(worth, path, horizon):
    """The summary of a log of which the part beyond ``worth`` tokens is looked at by the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "WORTH_COMPILING", worth)
        return len(Summary.of(open_log(path, horizon=horizon)))


def report(title, tokens, runs):
    """Each called once before it is timed; then in turn, so that what else the machine does meets all alike."""
    for run in runs.values():
        run()
    best = dict.fromkeys(runs, (np.inf, np.inf))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = tuple(map(min, best[name], spent))
    print(f"\n{title}: ns a token, and the share of the speed of {next(iter(runs))}")
    wall, cpu = next(iter(best.values()))
    for name, (its_wall, its_cpu) in best.items():
        each = f"wall {its_wall / tokens * 1e9:6.1f} ns ({wall / its_wall:4.0%})"
        print(f"  {name:40} {each}, CPU {its_cpu / tokens * 1e9:6.1f} ns ({cpu / its_cpu:4.0%})")


def test_parquet(tmp_path):
    path = tmp_path / "log.parquet"
    write_log(path, TOKENS)
    report(
        f"canonical Parquet, {TOKENS} tokens, float32",
        TOKENS,
        {
            "pyarrow alone, the same batches": lambda: read_parquet(path),
            "pyarrow alone, the whole table": lambda: read_parquet(path, table=True),
            "summary": lambda: by(summary.WORTH_COMPILING, path, 512),
            "summary, without numba": lambda: by(2**60, path, 512),
        },
    )


def test_nemo_rl(tmp_path):
    path = tmp_path / "train_data_step1.jsonl"
    write_nemo(path, 600)
    report(
        "NeMo-RL JSONL, 600 responses of 1000 tokens",
        600_000,
        {
            "a bare typed decode": lambda: decode_nemo(path),
            "summary": lambda: by(summary.WORTH_COMPILING, path, 1024),
        },
    )
