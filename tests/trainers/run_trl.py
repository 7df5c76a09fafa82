"""README's two lines in a real TRL with a real vLLM on the CPU.

``python run_trl.py MODEL LOG STEPS TRUST_REGION RECORD``: a tiny model, where the log goes, and where is recorded what
TRL handed over and what it showed, for the tests that run without it. ``torchrun`` starts it in several processes.
"""

from __future__ import annotations

import os
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
    os.environ.setdefault(name, str(value))

import torch
import trl
import vllm
import vllm.model_executor.layers.utils as layers


def _linear(layer: object, remove_weight: object) -> None:
    layer.cpu_linear = lambda x, w, b: torch.nn.functional.linear(x, w, b)


# vLLM on the CPU packs weights where TRL's synchronisation does not reach them; this keeps them where they are
layers.dispatch_cpu_unquantized_gemm = _linear

from accelerate.utils import gather_object
from datasets import Dataset
from record import logged, write
from trl import GRPOConfig, GRPOTrainer

import bounds.training.trl

#: What the mixin reads of TRL's batch.
READ = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "sampling_per_token_logps",
    "old_per_token_logps",
    "importance_sampling_ratio",
)


class Recorded(GRPOTrainer):
    """TRL's trainer, which remembers what it hands over."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[dict[str, object]] = []

    def _calculate_rewards(self, inputs: list, *args: object) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, *args)
        self.calls.append({"step": self.state.global_step, "inputs": inputs, "rewards": rewards.tolist()})
        return rewards

    def _generate_and_score_completions(self, inputs: list) -> dict[str, torch.Tensor]:
        batch = super()._generate_and_score_completions(inputs)
        self.calls[-1]["batch"] = {name: batch[name].tolist() for name in READ}
        self.calls[-1]["shown"] = {n: v[-1] for n, v in self._metrics["train"].items() if n.startswith("sampling/")}
        return batch


class Trainer(bounds.training.trl.TrustRegion, Recorded):
    """README's two lines."""


def reward(completions: list[str], **others: object) -> list[float]:
    """Reward the letter e."""
    return [min(1.0, text.count("e") / 5) for text in completions]


def main(model: str, log: str, steps: str, trust_region: str, record: str) -> None:
    """Train."""
    random.seed(0)
    torch.manual_seed(0)
    prompts = [f"add {random.randint(1, 9)} + {random.randint(1, 9)} = " for _ in range(64)]
    config = GRPOConfig(
        output_dir=f"{log}.out",
        max_steps=int(steps),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=24,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        learning_rate=1e-3,
        beta=0.01,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.1,
        vllm_max_model_length=128,
    )
    trainer = Trainer(
        model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        trust_region=trust_region,
        log_dir=log,
    )
    trainer.train()
    trainer._monitor.close()
    calls = gather_object([[{"inputs": call["inputs"]} for call in trainer.calls]])  # which waits for all files, too
    processes, rows = trainer.accelerator.num_processes, logged(log)
    assert sorted(rows["step"].unique()) == list(range(int(steps)))
    assert sorted(rows["rank"].unique()) == list(range(processes))
    assert len(rows) == 16 * processes * int(steps)
    assert rows["prompt_id"].nunique() == len({x["prompt"] for own in calls for call in own for x in call["inputs"]})
    rewards = torch.tensor([reward for call in trainer.calls for reward in call["rewards"]])[:, 0]
    assert torch.equal(torch.tensor(rows["reward"]).sort().values.float(), rewards.sort().values)
    if not trainer.accelerator.is_main_process:
        return
    said = {"trl": trl.__version__, "vllm": vllm.__version__, "torch": torch.__version__}
    weights = trainer.reward_weights.tolist()
    history = [
        {n: v for n, v in row.items() if n.startswith(("trust", "sampling"))} for row in trainer.state.log_history[:2]
    ]
    told = {**said, "weights": weights, "calls": trainer.calls[:2], "history": history}
    write(record, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
