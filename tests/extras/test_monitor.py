"""What a Monitor writes within a training: steps, ranks, restarts, repeats, and what goes wrong; needs torch."""

from __future__ import annotations

import errno
import logging
import math
import os
import subprocess
import sys
import threading

import pytest
import torch

import bounds
from bounds.training import Monitor, divergences_from_logits

B, L, V = 16, 12, 7


def batch(seed=0, length=L):
    """Log-probs [B, L] of two policies at random logits, the mask, the ids, and the logits; a hole in two rows."""
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, length, V, generator=g)
    logits = logits, logits + 0.1 * torch.randn(B, length, V, generator=g)
    tokens = torch.randint(0, V, (B, length), generator=g)
    roll, train = (x.log_softmax(-1).gather(-1, tokens[..., None])[..., 0] for x in logits)
    mask = torch.ones(B, length)
    mask[:2, 3:5] = 0
    mask[1, 9:] = 0
    return roll, train, mask, tokens, logits


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def rows(folder):
    import pandas as pd

    return pd.concat([pd.read_parquet(folder / name) for name in names(folder)], ignore_index=True)


@pytest.fixture
def said(caplog):
    """What the monitor says, as a list of messages."""
    caplog.set_level(logging.WARNING, logger="bounds.training")
    return lambda: [r.getMessage() for r in caplog.records]


def test_the_file_of_a_step_is_a_log_that_certify_reads(tmp_path):
    roll, train, mask, tokens, logits = batch()
    exact = divergences_from_logits(*logits)
    monitor = Monitor(horizon=L, folder=tmp_path / "run")
    given = {"rewards": (torch.arange(B) % 2).float(), "prompt_ids": torch.arange(B) // 4, "exact": exact}
    seen = monitor(roll, train, mask, tokens=tokens, environments=["sums"] * B, **given)
    monitor.close()
    assert names(tmp_path / "run") == ["step_000000_rank_0.parquet"]
    traces = bounds.read_traces(tmp_path / "run")
    assert (len(traces), traces.horizon, len(traces.prompt_ids)) == (B, L, B // 4)
    assert bounds.certify(traces).estimates["kl_seq"].value == pytest.approx(seen["kl_seq"], rel=1e-5)
    assert traces.labels["environment"] == ("sums",) * B
    assert traces.tokens.tolist() == tokens[mask > 0].tolist()
    assert traces.reward.tolist() == given["rewards"].tolist()
    assert traces.exact["max_log_ratio"].tolist() == exact.max_log_ratio[mask > 0].tolist()
    written = rows(tmp_path / "run")
    assert set(written["train_policy"]) == {"before-update"}
    assert set(written["rank"]) == set(written["step"]) == {0}
    assert [len(x) for x in written["mask"][:3]] == [L, 9, L]  # holes stay, padding goes


def test_calls_of_one_step_are_one_step(tmp_path):
    monitor = Monitor(horizon=L, folder=tmp_path)
    for call in range(6):
        monitor(*batch(call)[:3], step=10 + call // 3)
    monitor.flush()
    monitor.close()
    assert names(tmp_path) == ["step_000010_rank_0.parquet", "step_000011_rank_0.parquet"]
    assert rows(tmp_path)["step"].value_counts().to_dict() == {10: 3 * B, 11: 3 * B}


def test_evaluation_and_further_passes_are_not_logged(tmp_path, said):
    monitor = Monitor(horizon=L, folder=tmp_path)
    roll, train, mask = batch()[:3]
    monitor(roll, train, mask, step=0)
    assert monitor(roll - 0.5, train, mask, step=0, evaluation=True)["kl"] != 0
    shuffled = torch.randperm(B, generator=torch.Generator().manual_seed(1))
    for step, order in enumerate((shuffled[:8], shuffled[8:])):  # a second pass, in other micro-batches
        monitor(roll[order], train[order] - 0.01, mask[order], step=step)
    monitor(*batch(1)[:3], step=2)
    monitor.close()
    assert names(tmp_path) == ["step_000000_rank_0.parquet", "step_000002_rank_0.parquet"]
    assert len(rows(tmp_path)) == 2 * B
    assert len(said()) == 1
    assert "further pass" in said()[0]


def test_short_answers_drawn_twice_are_logged_twice(tmp_path, said):
    """Answers of one token come again by chance: only a whole batch that comes again is a further pass."""
    monitor = Monitor(horizon=1, folder=tmp_path)
    g = torch.Generator().manual_seed(0)
    for step in range(3):
        roll = torch.tensor([-0.2, -1.8])[torch.randint(0, 2, (B, 1), generator=g)]
        monitor(roll, roll - 0.01, torch.ones(B, 1), step=step)
    monitor(roll, roll - 0.02, torch.ones(B, 1), step=3)
    monitor.close()
    assert len(rows(tmp_path)) == 3 * B
    assert len(said()) == 1


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_restart_goes_on_and_overwrites_nothing(hard_links, tmp_path, said, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not hard_links:
        monkeypatch.setattr(os, "link", refused)
    for seed in (0, 1):
        monitor = Monitor(horizon=L, folder=tmp_path)
        monitor(*batch(seed)[:3])
        monitor.close()
    assert names(tmp_path) == ["step_000000_rank_0.parquet", "step_000001_rank_0.parquet"]
    before = [(tmp_path / name).read_bytes() for name in names(tmp_path)]
    again = Monitor(horizon=L, folder=tmp_path)  # from a checkpoint of step 1: it is sampled again, and differs
    for step in (1, 2):
        again(*batch(5 + step)[:3], step=step)
    again.close()
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)][:2] == before
    assert rows(tmp_path)["step"].value_counts().to_dict() == {0: B, 1: B, 2: B}
    assert len(said()) == 1
    assert "step_000001_rank_0.parquet is there already" in said()[0]


WORK = """
import sys, torch
from bounds.training import Monitor
seed, folder = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(seed)
torch.set_num_threads(1)
monitor = Monitor(horizon=64, folder=folder)
for step in range(5):
    roll = -torch.rand(64, 64) - 0.01
    ids = [f"{seed}-{step}-{i // 8}" for i in range(64)]
    monitor(roll, roll - 0.02 * torch.rand(64, 64), torch.ones(64, 64), rewards=torch.ones(64), prompt_ids=ids)
"""


def processes(folder, ranks):
    """Two processes that log into one folder, and what they say; the end of the process closes their logs."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(k), str(folder)],
            env={name: v for name, v in os.environ.items() if name != "RANK"} | ({"RANK": str(k)} if ranks else {}),
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(2)
    ]
    said = [process.communicate(timeout=100)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    return said


def test_two_processes_write_into_one_folder(tmp_path):
    assert processes(tmp_path / "run", ranks=True) == ["", ""]
    assert names(tmp_path / "run") == sorted(f"step_{s:06d}_rank_{r}.parquet" for s in range(5) for r in range(2))
    certificate = bounds.certify(bounds.read_traces(tmp_path / "run"))
    assert (certificate.responses, certificate.prompts) == (640, 80)


def test_two_processes_that_both_take_themselves_for_rank_0_damage_nothing(tmp_path):
    said = processes(tmp_path / "run", ranks=False)
    whole = rows(tmp_path / "run")
    assert set(whole["step"].value_counts()) == {64}
    assert len(whole) < 640
    assert any("rank= tells them apart" in text for text in said)


def test_nothing_is_raised_within_a_training(tmp_path, said):
    (tmp_path / "file").write_text("")
    bad = Monitor(horizon=L, folder=tmp_path / "file" / "run")
    roll, train, mask = batch()[:3]
    assert bad(roll, train, mask) == {}
    assert bad(roll, train, mask) == {}
    bad.close()
    assert len(said()) == 1
    assert "nothing more is logged" in said()[0]
    assert Monitor(horizon=L)(roll, train[:1], mask) == {}
    assert len(said()) == 2


WRONG = {
    "rewards": {"rewards": torch.ones(3)},
    "reward": {"rewards": torch.ones(B, 1)},
    "prompt_id": {"prompt_ids": ["a"] * (B + 1)},
    "tokens": {"tokens": torch.ones(B, L + 2)},
    "step": {"step": -1},
    "size of tensor": {"keep": torch.ones(3)},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_once_and_not_written(tmp_path, said, name):
    monitor = Monitor(horizon=L, folder=tmp_path)
    for _ in range(2):
        assert monitor(*batch()[:3], **WRONG[name]) == {}
    monitor.close()
    assert names(tmp_path) == []
    assert len(said()) == 1
    assert name.removesuffix("s") in said()[0]


def test_a_batch_without_a_token_shows_nothing_and_is_no_pass_over_another(tmp_path, said):
    """As where a trainer masks whatever was cut off."""
    monitor = Monitor(horizon=L, rule="seq_max_k2<=0.05", folder=tmp_path)
    roll, train, mask = batch()[:3]
    assert monitor(roll, train, 0 * mask) == monitor(roll[:0], train[:0], mask[:0]) == {}
    assert monitor(roll, train, mask)["acceptance"] > 0
    monitor.close()
    assert names(tmp_path) == ["step_000002_rank_0.parquet"]
    assert not said()


def test_a_disk_that_hangs_costs_no_time_no_memory_and_no_scalar(tmp_path, said, monkeypatch):
    from bounds.training import _step_files

    hangs = threading.Event()
    monkeypatch.setattr(_step_files, "write_parquet", lambda *given, **options: hangs.wait(60))
    monkeypatch.setattr(_step_files, "_WAITING", 100_000)
    monitor = Monitor(horizon=L, folder=tmp_path)
    for step in range(100):
        assert monitor(*batch(step)[:3], step=step)["kl"] != 0
    assert monitor._files._given < 110_000
    assert said() == [f"{tmp_path}: nothing more is written, the training goes on (the disk does not keep up)"]
    monitor._files.close(seconds=0.01)
    hangs.set()
    monitor.close()
    assert len(said()) == 1


def test_a_disk_that_fails_is_said_once_and_costs_no_scalar(tmp_path, said, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *names: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    monitor = Monitor(horizon=L, folder=tmp_path)
    for step in range(3):
        assert monitor(*batch(step)[:3], step=step)["kl"] != 0
    monitor.close()
    assert names(tmp_path) == []
    assert len(said()) == 1
    assert "No space left" in said()[0]


def test_a_mask_that_keeps_next_to_nothing_is_said_loudly(said):
    roll, train, mask = batch()[:3]
    monitor = Monitor(horizon=L, rule="seq_max_k2<=1e-9,seq_mean_k1=0.5_2")
    for _ in range(3):
        assert monitor(roll, train, mask)["acceptance"] == 0.0
    (text,) = said()
    assert text.startswith("the trust region keeps 0.0 % of the responses: next to nothing is learned")
    assert "guarantees nothing of it" in text
    (half,) = (part.split()[0] for part in text.split(", ") if part.endswith(" 50%") and "seq_max_k2" in part)
    assert 0.3 < Monitor(horizon=L, rule=half)(roll, train, mask)["acceptance"] < 0.7


def test_a_rule_on_advantages_takes_those_of_the_trainer_else_rewards_of_a_prompt_less_their_mean(said):
    roll, train, mask = batch()[:3]
    rule = "slime:--use-opsm --opsm-delta 1e-9"
    gap = ((roll - train) * mask).sum(1) / mask.sum(1)
    given = {"rewards": 0.1 * (torch.arange(B) % 3), "prompt_ids": [k // 4 for k in range(B)]}
    given["rewards"][:4] = 0.1  # a group of equal rewards has no advantage, whatever the rounding
    advantage = given["rewards"] - given["rewards"].reshape(-1, 4).mean(1).repeat_interleave(4)
    advantage[:4] = 0
    kept = ((advantage >= 0) | (gap <= 0)).double().mean().item()
    assert 0.3 < kept < 0.9
    assert kept != ((advantage < 0) | (gap <= 0)).double().mean().item()
    monitor = Monitor(horizon=L, rule=rule)
    assert monitor(roll, train, mask, **given)["acceptance"] == kept
    assert monitor(roll, train, mask, advantages=advantage)["acceptance"] == kept
    assert monitor(roll, train, mask, **given, advantages=advantage.abs())["acceptance"] == 1.0
    assert not said()
    assert monitor(roll, train, mask, rewards=given["rewards"]) == {}
    assert "advantages must be a tensor [16], one for each response, got advantages=None" in said()[0]


def test_what_cannot_be_known_is_written_and_found_by_the_reader(tmp_path):
    roll, train, mask = batch()[:3]
    roll[3, 2] = math.nan
    monitor = Monitor(horizon=L, folder=tmp_path)
    monitor(roll, train, mask)
    monitor.close()
    with pytest.raises(ValueError, match="null or NaN"):
        bounds.read_traces(tmp_path)
    assert len(bounds.read_traces(tmp_path, on_missing="drop")) == B - 1
