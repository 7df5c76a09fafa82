"""Pretraining on worked examples with mistakes in them, and GRPO on responses of a stale, coarser engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bounds.training import Monitor, divergences_from_logits
from lab.methods import METHODS, Batch
from lab.model import SHAPE, Shape, Transformer, engine
from lab.rollout import Rollout, at, sample, training_law
from lab.task import VOCABULARY, Task, encode, working

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Pretraining:
    """Settings of the base policy; ``mistakes`` in its text leave room to improve."""

    steps: int = 800
    rows: int = 32
    rate: float = 1e-3
    mistakes: float = 0.04
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """One training run."""

    method: str
    seed: int
    steps: int = 20
    prompts: int = 4
    group: int = 8
    rate: float = 1e-4
    staleness: int = 4
    precision: str = "bfloat16"
    evaluate: int = 10  # every so many steps, on held-out prompts
    held_out: int = 128

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got method={self.method}")


def new_model(task: Task, shape: Shape = SHAPE) -> Transformer:
    """Make an untrained model for the task."""
    return Transformer(VOCABULARY, task.prompt_length + task.horizon, shape)


def pretrain(task: Task, how: Pretraining, model: Transformer, progress: Progress = print) -> Transformer:
    """Make the base policy: next-token prediction of the answers; the model is changed in place."""
    rng = np.random.default_rng(how.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=how.rate, weight_decay=0.01)
    width, first = model.length, task.prompt_length
    for step in range(how.steps):
        for group in optimiser.param_groups:
            group["lr"] = how.rate * min(1.0, (step + 1) / 50) * max(0.02, 1.0 - step / how.steps)
        prompts = [task.problem(rng)[0] for _ in range(how.rows)]
        rows = torch.tensor([encode((p + working(p, rng, how.mistakes)).ljust(width)) for p in prompts])
        target = rows[:, first:]
        written = target != encode(" ")[0]
        loss = functional.cross_entropy(model(rows[:, :-1])[:, first - 1 :][written], target[written])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 49:
            progress(f"pretrain {step + 1}/{how.steps}: loss {loss.item():.4f} nats a token")
    return model


def group_advantages(rewards: Tensor, group: int) -> Tensor:
    """Return GRPO's (R - mean) / (standard deviation) within the responses to a prompt; 0 where all are equal."""
    by_prompt = rewards.view(-1, group)
    centred = by_prompt - by_prompt.mean(dim=1, keepdim=True)
    return (centred / (by_prompt.std(dim=1, keepdim=True) + 1e-6)).reshape(-1)


def score(model: Transformer, task: Task, count: int, seed: int = 10**6) -> float:
    """Return the share of ``count`` held-out problems that the training policy (float32) solves at temperature 1."""
    twin = engine(model, "float32")
    return sample(twin, task, np.random.default_rng(seed), prompts=count, group=1).rewards.mean().item()


@dataclass(frozen=True)
class Start:
    """Start of every run of a comparison."""

    base: Mapping[str, Tensor]
    thresholds: Mapping[str, float]
    task: Task = field(default_factory=Task)


class Trainer:
    """One run that can be stopped after any step and resumed from its folder."""

    def __init__(self, run: Run, start: Start) -> None:
        self.run, self.task, self.thresholds = run, start.task, start.thresholds
        self.method = METHODS[run.method]
        self.model = new_model(self.task, shape_of(start.base))
        self.model.load_state_dict(start.base)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=run.rate)
        self.past = [_copy(self.model)] * (run.staleness + 1)  # weights after the last steps, oldest first
        self.step = 0
        self.monitor = Monitor(horizon=self.task.horizon)

    def rollout(self, rng: np.random.Generator, prompts: int, group: int) -> Rollout:
        """Draw responses of the engine, with the weights of ``staleness`` optimiser steps ago."""
        old = new_model(self.task, self.model.shape)
        old.load_state_dict(self.past[0])
        return sample(engine(old, self.run.precision), self.task, rng, prompts=prompts, group=group)

    def take(self) -> None:
        """Move the weights along the gradient."""
        self.optimiser.step()

    def advance(self) -> dict[str, float]:
        """Take one step, and return what was seen before its update."""
        run = self.run
        rng = np.random.default_rng([run.seed, self.step])  # the same prompts for every method
        drawn = self.rollout(rng, run.prompts, run.group)
        law = training_law(self.model, drawn)
        exact = divergences_from_logits(drawn.log_law, law)
        batch = Batch(drawn.logprobs, at(law, drawn.tokens), drawn.mask, group_advantages(drawn.rewards, run.group))
        keep = self.method.keep(batch, self.thresholds)
        seen = self.monitor(batch.rollout, batch.train.detach(), batch.mask, exact=exact, keep=keep)
        loss = self.method.loss(batch, keep)
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
        self.take()
        self.past = [*self.past[1:], _copy(self.model)]
        self.step += 1
        seen |= {"reward": drawn.rewards.mean().item(), "length": drawn.mask.sum(1).float().mean().item()}
        seen |= {"gradient_norm": norm}
        if self.step % run.evaluate == 0 or self.step == run.steps:
            seen["score"] = score(self.model, self.task, run.held_out)
        return {"step": self.step, **seen}

    def records(self, prompts: int = 32, group: int = 4, draw: int = 10**6) -> list[dict[str, Any]]:
        """Draw responses of the stale engine, scored by the weights of now, with exact divergences, as a log has them.

        ``draw`` names which prompts and responses.
        """
        with torch.no_grad():
            drawn = self.rollout(np.random.default_rng([self.run.seed, draw]), prompts, group)
            law = training_law(self.model, drawn)
            exact = divergences_from_logits(drawn.log_law, law)
        by_token = {"rollout_logprobs": drawn.logprobs, "train_logprobs": at(law, drawn.tokens), "mask": drawn.mask}
        by_token |= {"kl": exact.kl, "tv": exact.tv, "chi2": exact.chi2}
        return [
            {
                "prompt_id": str(number),
                "reward": drawn.rewards[i].item(),
                **{name: values[i].tolist() for name, values in by_token.items()},
            }
            for i, number in enumerate(drawn.group.tolist())
        ]

    def log(self, path: Path) -> None:
        """Write a canonical log of :meth:`records`."""
        write_log(self.records(), self.task.horizon, path)

    def save(self, path: Path) -> None:
        """Write everything that the next step depends on."""
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "past": self.past}
        torch.save({**state, "step": self.step, "run": asdict(self.run)}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Go on from :meth:`save`.

        Raises
        ------
        ValueError
            If the file is of a run with other settings.
        """
        state = torch.load(path, weights_only=True)
        if state["run"] != asdict(self.run):
            raise ValueError(f"{path} is of another run ({state['run']}); remove it or name another folder")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.past, self.step = state["past"], state["step"]


def train(trainer: Trainer, folder: Path, progress: Progress = print) -> list[dict[str, Any]]:
    """Run to the end, resuming what the folder holds; one row of numbers for each step (``metrics.jsonl``)."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics, checkpoint = folder / "metrics.jsonl", folder / "checkpoint.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
    rows = [row for row in read_rows(metrics) if row["step"] <= trainer.step]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    while trainer.step < trainer.run.steps:
        row = trainer.advance()
        rows.append(row)
        with metrics.open("a") as file:
            file.write(json.dumps(row) + "\n")
        progress(_sentence(trainer.run, row))
        if trainer.step % 10 == 0 or trainer.step == trainer.run.steps:
            trainer.save(checkpoint)
    return rows


def write_log(records: list[dict[str, Any]], horizon: int, path: Path) -> None:
    """Write one Parquet file in the canonical form."""
    from bounds import TraceSet

    path.parent.mkdir(parents=True, exist_ok=True)
    TraceSet.from_records(records, horizon=horizon, train_policy="before-update").to_parquet(path, dtype="float32")


def log_over_time(run: Run, start: Start, path: Path, every: int, progress: Progress = print) -> None:
    """Write one log of a whole run: at every so many steps, 2 responses to each of 24 new prompts; log-probs only."""
    trainer, records = Trainer(run, start), []
    while True:
        if trainer.step % every == 0:
            for record in trainer.records(24, 2, draw=10**6 + trainer.step):
                kept = {n: v for n, v in record.items() if n not in ("kl", "tv", "chi2")}
                records.append({**kept, "step": trainer.step, "prompt_id": f"{trainer.step}-{record['prompt_id']}"})
        if trainer.step == run.steps:
            break
        progress(_sentence(run, {"step": trainer.step + 1, **trainer.advance()}))
    write_log(records, trainer.task.horizon, path)


def _sentence(run: Run, row: Mapping[str, Any]) -> str:
    text = f"{run.method} seed {run.seed} step {row['step']}/{run.steps}: reward {row['reward']:.3f}"
    text += f", PPL gap {row['log_ppl_abs_diff']:.2e}, kl_seq {row['kl_seq']:.4f}, kept {row['acceptance']:.0%}"
    return text + (f", score {row['score']:.3f}" if "score" in row else "")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows that a run has written so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _copy(model: Transformer) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def shape_of(weights: Mapping[str, Tensor]) -> Shape:
    """Return the sizes of a model with these weights."""
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    return Shape(width=weights["token.weight"].shape[1], layers=layers)
