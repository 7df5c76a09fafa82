"""The mixin over SkyRL's own trainer, whose workers are played: python run_skyrl.py LOG RECORD."""

from __future__ import annotations

import sys
import typing
from importlib.metadata import version
from types import SimpleNamespace

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # SkyRL 0.3 on Python 3.11, with a pydantic that refuses the other

import torch
from record import logged, write
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer

import bounds.training.skyrl

GROUPS, EACH = 3, 4
RULE = "seq_max_k2<=0.02"


class Trainer(bounds.training.skyrl.TrustRegion, RayPPOTrainer):
    """What `trm-bounds formats --recipe skyrl` prints."""


def generated() -> tuple[dict[str, list], list[list[float]]]:
    """What SkyRL's generator returns, with tool output inside the responses; and theta's log-probs of them."""
    torch.manual_seed(0)
    out = {name: [] for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs")}
    theta = []
    for k in range(GROUPS * EACH):
        n = 6 + k % 5
        mask = [int(not 2 <= t < 4) for t in range(n)]
        roll = -torch.rand(n) * 2 - 0.01
        theta.append((roll + 0.1 * torch.randn(n)).clamp_max(-1e-3).tolist())
        out["prompt_token_ids"].append([5 + k // EACH] * (3 + k // EACH))
        out["response_ids"].append(torch.randint(10, 50, (n,)).tolist())
        out["rewards"].append([0.0] * (n - 1) + [float(k % 3 == 0)])
        out["loss_masks"].append(mask)
        out["rollout_logprobs"].append([x * m for x, m in zip(roll.tolist(), mask, strict=True)])
    return out, theta


def main(log: str, record: str) -> None:
    """Go through SkyRL's own conversion and scoring, and record what it makes of them."""
    output, theta = generated()
    config = SkyRLTrainConfig()
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = GROUPS
    config.generator.n_samples_per_prompt = EACH
    config.trainer.algorithm.max_seq_len = 64
    config.generator.sampling_params.max_generate_length = 16
    config.trainer.algorithm.policy_loss_type = "rollout_is"  # for which SkyRL would skip the policy's forward pass
    config.generator.inference_engine.enable_ray_prometheus_stats = False
    config.trainer.recompute_old_logprobs_per_minibatch = False
    tokenizer = SimpleNamespace(pad_token_id=0)
    trainer = Trainer(config, None, tokenizer, None, None, None, trust_region=RULE, log_dir=log)
    trainer.global_step = 5

    def forward(model: str, batch: object) -> SimpleNamespace:
        width = batch.metadata["response_length"]
        rows = [theta[k] if k < len(theta) else [] for k in range(len(batch["sequences"]))]  # SkyRL fills a batch up
        rows = [[0.0] * (width - len(row)) + row for row in rows]
        return SimpleNamespace(loss_fn_outputs=[{"logprobs": row} for row in rows])

    trainer.dispatch = SimpleNamespace(forward=forward, empty_cache=lambda *names: None, get_lcm_dp_size=lambda: 8)
    uids = [f"uid-{k // EACH}" for k in range(GROUPS * EACH)]
    batch = trainer.convert_to_training_input(output, uids)
    before = batch["loss_mask"].clone()
    batch = trainer.fwd_logprobs_values_reward(batch)
    trainer._monitor.close()
    rows = logged(log)
    assert (len(rows), rows["prompt_id"].nunique(), set(rows["step"])) == (len(uids), GROUPS, {5})
    names = ("rollout_logprobs", "action_log_probs", "rewards")
    told = {
        "skyrl": version("skyrl"),
        "batch": {name: batch[name].tolist() for name in names} | {"loss_mask": before.tolist()},
        "uids": uids,
        "kept": batch["loss_mask"].tolist(),
        "metrics": trainer.all_metrics,
    }
    write(record, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
