"""The plug-in that verl found, in its own training loop with played workers, and in its rollout correction alone.

``python run_verl.py LOG RECORD``, with TRM_BOUNDS_LOG=LOG and TRM_BOUNDS_HORIZON=12.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from record import logged, write
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo import rollout_corr_helper as helper
from verl.trainer.ppo.ray_trainer import RayPPOTrainer

B, L, EACH = 24, 12, 4
CONFIG = {
    "rollout_is": "token",
    "rollout_is_threshold": 2.0,
    "rollout_rs": "seq_max_k2",
    "rollout_rs_threshold": 0.02,
    "bypass_mode": False,
}


def batch(seed: int = 0) -> DataProto:
    """A DataProto as both trainers hold it when they correct: two rows of padding, rewards on the last tokens."""
    g = torch.Generator().manual_seed(seed)
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


class Trainer(RayPPOTrainer):
    """verl's trainer, whose loop is its own; what is generated, scored and learned is played."""

    def __init__(self, steps: int) -> None:
        rules = [f"algorithm.rollout_correction.{name}={value}" for name, value in CONFIG.items()]
        told = ["trainer.val_before_train=False", "trainer.balance_batch=False", "trainer.save_freq=-1"]
        told += ["trainer.logger=[]", "algorithm.adv_estimator=grpo", f"actor_rollout_ref.rollout.n={EACH}"]
        with initialize_config_dir(str(Path(verl.__file__).parent / "trainer/config"), version_base=None):
            self.config = compose("ppo_trainer", overrides=told + rules)
        self.use_rm = self.use_reference_policy = self.use_critic = False
        self.actor_rollout_wg = self.train_dataset = object()
        self._dump_executor = SimpleNamespace(_shutdown=False)
        self.checkpoint_manager = SimpleNamespace(update_weights=lambda step: None, sleep_replicas=lambda: None)
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.async_rollout_manager = SimpleNamespace(generate_sequences=self.generate)
        prompts = {"data_source": np.array(["sums"] * (B // EACH), dtype=object), "length": torch.ones(B // EACH, 1)}
        self.train_dataloader, self.total_training_steps = [prompts] * steps, steps
        self.learned: list[int] = []

    def generate(self, prompts: DataProto) -> DataProto:
        """Answer what verl asks, in its order."""
        self.drawn = batch(self.global_steps)
        given = {name: self.drawn.batch[name] for name in ("responses", "response_mask", "rollout_log_probs")}
        whole = torch.cat([torch.ones(B, 1, dtype=torch.long), given["response_mask"]], dim=1)
        given |= {"prompts": whole[:, :1], "attention_mask": whole, "rm_scores": self.drawn.batch["token_level_scores"]}
        images = {"multi_modal_inputs": np.array([{}] * B, dtype=object)}
        return DataProto.from_dict(given, non_tensors=images, meta_info={"timing": {}})

    def _compute_old_log_prob(self, given: DataProto) -> tuple[DataProto, float]:
        theta = self.drawn.batch["old_log_probs"]
        return DataProto.from_dict({"old_log_probs": theta, "entropys": torch.zeros_like(theta)}), 0.0

    def _update_actor(self, given: DataProto) -> DataProto:
        self.learned.append(int(given.batch["response_mask"].any(dim=1).sum()))
        return DataProto(meta_info={"metrics": {}})

    def _load_checkpoint(self) -> None: ...
    def _start_profiling(self, do: bool) -> None: ...
    def _stop_profiling(self, do: bool, run_command: bool = False) -> None: ...
    def _shutdown_dump_executor(self) -> None: ...


def main(log: str, record: str) -> None:
    """Train two steps, correct a batch, and record what verl was given and made of it."""
    trainer = Trainer(2)
    trainer.fit()
    given = batch()
    told = {"verl": version("verl"), "config": CONFIG, "uid": given.non_tensor_batch["uid"].tolist()}
    told["batch"] = {name: values.tolist() for name, values in given.batch.items()}
    corrected, metrics = helper.compute_rollout_correction_and_add_to_batch(given, OmegaConf.create(CONFIG))
    told |= {"kept": corrected.batch["response_mask"].tolist(), "metrics": metrics}
    write(record, told)
    given_rows = [any(mask) for mask in told["batch"]["response_mask"]]
    wait_until = time.monotonic() + 60
    while len(list(Path(log).glob("*.parquet"))) < 3 and time.monotonic() < wait_until:
        time.sleep(0.1)
    rows = logged(log)
    assert rows["step"].value_counts().to_dict() == dict.fromkeys((0, 1, 7), sum(given_rows))
    assert sum(given_rows) > sum(any(mask) for mask in told["kept"])
    trained = rows[rows["step"] < 7]
    assert set(trained["environment"]) == {"sums"}
    assert trained["prompt_id"].nunique() == 2 * B // EACH  # each draw of a prompt has an id of its own
    assert trained["reward"].sum() == sum(batch(step).batch["token_level_scores"][:-2].sum() for step in (1, 2))
    assert all(0 < kept < sum(given_rows) for kept in trainer.learned), "nothing was rejected, or all"
    from verl.trainer.ppo.v1 import trainer_base

    same = helper.compute_rollout_correction_and_add_to_batch
    assert trainer_base.compute_rollout_correction_and_add_to_batch is same, "the V1 trainer has another function"
    assert same.__module__ == "bounds.training.verl"
    assert core_algos.get_policy_loss_fn("bypass_mode")


if __name__ == "__main__":
    main(*sys.argv[1:])
