"""The lab's task in a real TRL with a real vLLM: a log whose mismatch is that of an engine, and some staleness.

``python lab/real_engine.py FOLDER``, in the environment of ``make test-trainers``. The base policy is the lab's as a
GPT-2 of the Hugging Face form. vLLM samples in bfloat16 from weights that reach it every fourth step; the training is
in float32. FOLDER gets a file a step, in which ``old_logprobs`` are those of vLLM's weights in the training's
arithmetic: they say what of the mismatch is the engine and what is staleness. FOLDER.json gets what TRL showed at each
step, and the share of held-out problems that are solved after the last.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
    os.environ.setdefault(name, str(value))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
import vllm.model_executor.layers.utils as layers
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import bounds
import bounds.training.trl
from bounds.masks.statistics import Tokens, pooled
from bounds.training import Guard, Monitor
from lab.compare import BASE, HERE, IN_TRL, QUANTILE, as_text, summary
from lab.model import Transformer
from lab.task import CHARACTERS, END, VOCABULARY, Task, decode, is_right
from lab.train import new_model

EVERY = 4  # steps between two synchronisations of vLLM's weights
#: TRL's clip of each token's importance weight, and the trust region. Nothing is corrected where every weight is 1.
METHODS: dict[str, tuple[float | None, float, str | None]] = {
    "none": (1.0, 1.0 + 1e-6, None),
    "token-is": (None, 1e6, None),
    "clip": (0.8, 1.28, None),
    "trm-max": (None, 1e6, "seq_max_k2<=0.05"),
    "trm-avg": (None, 1e6, "seq_mean_k3<=0.00071"),
}


def _linear(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, w, b: torch.nn.functional.linear(x, w, b)


# vLLM on the CPU packs weights where TRL's synchronisation does not reach them; this keeps them where they are
layers.dispatch_cpu_unquantized_gemm = _linear


def as_gpt2(model: Transformer) -> GPT2LMHeadModel:
    """Return the same function of tokens as a GPT-2, whose head has no bias: it goes into the last normalisation."""
    width = model.shape.width
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=model.length,
        n_embd=width,
        n_layer=model.shape.layers,
        n_head=model.shape.heads,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
        tie_word_embeddings=False,
    )
    twin = GPT2LMHeadModel(config)
    weights = {"transformer.wte.weight": model.token.weight, "transformer.wpe.weight": model.position.weight}
    weights |= {"lm_head.weight": model.head.weight, "transformer.ln_f.weight": model.norm.weight}
    shift = torch.linalg.lstsq(model.head.weight, model.head.bias[:, None]).solution[:, 0]
    weights["transformer.ln_f.bias"] = model.norm.bias + shift
    for k, block in enumerate(model.blocks):
        for ours, theirs in {"norm1": "ln_1", "norm2": "ln_2"}.items():
            for part in ("weight", "bias"):
                weights[f"transformer.h.{k}.{theirs}.{part}"] = getattr(getattr(block, ours), part)
        for ours, theirs in {
            "qkv": "attn.c_attn",
            "mix": "attn.c_proj",
            "up": "mlp.c_fc",
            "down": "mlp.c_proj",
        }.items():
            weights[f"transformer.h.{k}.{theirs}.weight"] = getattr(block, ours).weight.T
            weights[f"transformer.h.{k}.{theirs}.bias"] = getattr(block, ours).bias
    twin.load_state_dict(weights, strict=True)
    return twin


def tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of the task: a character a token."""
    by_character = Tokenizer(models.WordLevel({c: k for k, c in enumerate(CHARACTERS)}, unk_token=None))
    by_character.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    by_character.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=by_character, eos_token=".", pad_token=".", padding_side="left")


class Scored(Monitor):
    """Monitor that also logs what the engine's weights say in the arithmetic of the training, and their version."""

    by_engine: torch.Tensor
    version = 0

    def __call__(self, *args: Any, **columns: Any) -> dict[str, float]:
        """Return the scalars of a batch."""
        versions = [self.version] * len(args[0])
        return super().__call__(*args, old_logprobs=self.by_engine, weight_versions=versions, **columns)


class Trainer(bounds.training.trl.TrustRegion, GRPOTrainer):
    """GRPO with an engine whose weights are up to three steps old."""

    def __init__(self, *args: Any, log_dir: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._monitor = Scored(horizon=self.max_completion_length, folder=log_dir)
        self._engine = copy.deepcopy(self.model).eval()
        synchronise = self.vllm_generation.sync_weights

        def sometimes() -> None:
            if self.state.global_step % EVERY == 0:
                self._engine.load_state_dict(self.model.state_dict())
                self._monitor.version = self.state.global_step
                synchronise()

        self.vllm_generation.sync_weights = sometimes

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        if self.model.training and not torch.is_grad_enabled():
            self._monitor.by_engine = super()._get_per_token_logps_and_entropies(self._engine, *args, **kwargs)[0]
        return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)


def solved(model: GPT2LMHeadModel, task: Task, count: int = 256) -> float:
    """Return the share of held-out problems that the training policy (float32) solves at temperature 1."""
    prompts, results = task.problems(np.random.default_rng(10**6), count)
    torch.manual_seed(10**6)
    tokens = torch.from_numpy(prompts)
    written = model.eval().generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=task.horizon, do_sample=True, top_k=0
    )
    answers = (decode(row[task.prompt_length :]) for row in written)
    ended = (text[: text.find(".") + 1] for text in answers)
    return float(np.mean([is_right(text, int(value)) for text, value in zip(ended, results, strict=True)]))


def thresholds(folder: Path) -> dict[str, float]:
    """Return the quantile of each statistic that lab.compare takes, over the first half of the steps of a run."""
    traces = bounds.read_traces(folder)
    step = np.array(traces.labels["step"], dtype=int)
    first = traces.select(step < (step.max() + 1) / 2)
    tokens = Tokens(first.log_ratio, first.starts)
    return {name: float(np.quantile(pooled(name, tokens), QUANTILE)) for name in ("seq_max_k2", "seq_mean_k3")}


def rows_of(runs: Iterable[Path]) -> pd.DataFrame:
    """Return what TRL showed of runs, a row a step, with the score of the last, as lab.compare has it."""
    found = []
    for path in runs:
        run = json.loads(path.read_text())
        for step in (row for row in run["history"] if "reward" in row):
            shown = {n.removeprefix("trust_region/"): v for n, v in step.items() if n.startswith("trust_region/")}
            same = {"method": run["method"], "seed": run["seed"], "step": step["step"], "reward": step["reward"]}
            found.append({**same, "acceptance": 1.0, **shown})
        found[-1]["score"] = run["score"]
    return pd.DataFrame(found)


def main() -> None:
    """Train the base policy on the task, and log every step; or look at runs that were made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--method", choices=METHODS, default="token-is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--prompts", type=int, default=8, help="of a step, with 4 responses to each")
    parser.add_argument("--guard", choices=("report", "guard", "certify"), help="judge every step on a quarter of them")
    parser.add_argument("--budget", type=float, default=0.5, help="of D, in nats, that the guard lets pass")
    parser.add_argument("--thresholds", action="store_true", help="of the masks, from the run that stands in FOLDER")
    parser.add_argument("--table", action="store_true", help="of the runs whose FOLDER begins so")
    given = parser.parse_args()
    if given.table:
        rows = rows_of(sorted(given.folder.parent.glob(f"{given.folder.name}*.json")))
        rows.to_csv(HERE / "results" / "real-engine.csv", index=False, float_format="%.5g")
        print(as_text(summary(rows), IN_TRL))
        return
    if given.thresholds:
        print(thresholds(given.folder))
        return
    task = Task()
    model = new_model(task)
    model.load_state_dict(torch.load(BASE, weights_only=True))
    twin = as_gpt2(model.float())
    tokens = torch.randint(0, VOCABULARY, (4, task.prompt_length + task.horizon))
    assert torch.allclose(model(tokens).log_softmax(-1), twin(tokens).logits.log_softmax(-1), atol=1e-4)
    base = given.folder.with_suffix(".base")
    twin.save_pretrained(base)
    tokenizer().save_pretrained(base)
    rng = np.random.default_rng(given.seed)
    problems = [task.problem(rng) for _ in range(given.steps * given.prompts)]

    def reward(completion_ids: list[list[int]], result: list[int], **others: Any) -> list[float]:
        return [float(is_right(decode(ids), value)) for ids, value in zip(completion_ids, result, strict=True)]

    low, high, region = METHODS[given.method]
    config = GRPOConfig(
        output_dir=str(given.folder.with_suffix(".out")),
        max_steps=given.steps,
        seed=given.seed,
        per_device_train_batch_size=4 * given.prompts,
        num_generations=4,
        max_completion_length=task.horizon,
        loss_type="dr_grpo",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        learning_rate=given.rate,
        lr_scheduler_type="constant",
        beta=0.0,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.1,
        vllm_max_model_length=task.prompt_length + task.horizon,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=high,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = Trainer(
        str(base),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text, "result": value} for text, value in problems]),
        trust_region=region,
        log_dir=str(given.folder),
        guard=None if given.guard is None else Guard(mode=given.guard, seed=given.seed, budget=given.budget),
    )
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    found = {**vars(given), "folder": given.folder.name, "seconds": seconds, "score": solved(trainer.model, task)}
    given.folder.with_suffix(".json").write_text(json.dumps({**found, "history": trainer.state.log_history}))


if __name__ == "__main__":
    main()
