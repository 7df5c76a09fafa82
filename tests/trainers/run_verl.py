"""verl's own rollout correction with the plug-in that it found: with TRM_BOUNDS_LOG and TRM_BOUNDS_HORIZON=12."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from record import logged, write
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo import rollout_corr_helper as helper

B, L, EACH = 24, 12, 4
CONFIG = {
    "rollout_is": "token",
    "rollout_is_threshold": 2.0,
    "rollout_rs": "seq_max_k2",
    "rollout_rs_threshold": 0.02,
    "bypass_mode": False,
}


def batch() -> DataProto:
    """A DataProto as both trainers hold it when they correct: two rows of padding, rewards on the last tokens."""
    g = torch.Generator().manual_seed(0)
    roll = -torch.rand(B, L, generator=g) * 2 - 0.01
    theta = (roll + 0.1 * torch.randn(B, L, generator=g)).clamp_max(-1e-3)
    mask = (torch.arange(L)[None] < torch.randint(4, L + 1, (B, 1), generator=g)).long()
    mask[::5, 1] = 0
    mask[-2:] = 0
    scores = torch.zeros(B, L)
    scores[:, 3] = (torch.arange(B) % 3 == 0).float()
    tensors = {"rollout_log_probs": roll * mask, "old_log_probs": theta * mask, "response_mask": mask}
    tensors |= {"token_level_scores": scores, "responses": torch.randint(10, 50, (B, L), generator=g)}
    names = {"uid": np.array([f"uid-{k // EACH}" for k in range(B)], dtype=object)}
    return DataProto.from_dict(tensors, non_tensors=names, meta_info={"global_steps": 7})


def main(log: str, record: str) -> None:
    """Correct a batch, and record what verl was given and made of it."""
    given = batch()
    told = {"verl": version("verl"), "config": CONFIG, "uid": given.non_tensor_batch["uid"].tolist()}
    told["batch"] = {name: values.tolist() for name, values in given.batch.items()}
    corrected, metrics = helper.compute_rollout_correction_and_add_to_batch(given, OmegaConf.create(CONFIG))
    told |= {"kept": corrected.batch["response_mask"].tolist(), "metrics": metrics}
    write(record, told)
    given_rows = [any(mask) for mask in told["batch"]["response_mask"]]
    wait_until = time.monotonic() + 60
    while not list(Path(log).glob("*.parquet")) and time.monotonic() < wait_until:
        time.sleep(0.1)
    rows = logged(log)
    assert len(rows) == sum(given_rows) > sum(any(mask) for mask in told["kept"])
    assert set(rows["step"]) == {7}
    from verl.trainer.ppo.v1 import trainer_base

    same = helper.compute_rollout_correction_and_add_to_batch
    assert trainer_base.compute_rollout_correction_and_add_to_batch is same, "the V1 trainer has another function"
    assert same.__module__ == "bounds.training.verl"
    assert core_algos.get_policy_loss_fn("bypass_mode")


if __name__ == "__main__":
    main(*sys.argv[1:])
