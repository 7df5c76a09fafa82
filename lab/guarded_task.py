"""The arithmetic task with steps that are judged before they count, and with a learning rate that keeps to a budget.

Nothing is stale here: the engine samples in bfloat16 from the weights of now, so that a step that is rolled back
changes nothing. Whether a step harmed is measured, by problems that neither training nor guard sees: both policies
answer them with the same random numbers, so that most answers agree and the difference is known better than either.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from torch import Tensor

from bounds.training import Budget, Guard
from bounds.training.guard import Mode
from lab.guard import markdown
from lab.model import Transformer, engine
from lab.rollout import at, sample, training_law
from lab.train import Progress, Run, Start, Trainer


@dataclass(frozen=True)
class Kind:
    """Runs of one kind; ``held`` other prompts, of 4 responses, judge each step."""

    name: str
    mode: str = "report"
    rungs: int = 1
    most: float = 0.5  # D in nats that the guard lets pass
    memory: float | None = None  # of a Budget that sets the learning rate
    held: int = 16


RUN = Run(method="token-is", seed=0, steps=10, rate=3e-4, staleness=0, held_out=256, evaluate=10**6)
SEEDS = range(5)
KINDS = (
    Kind("no guard"),
    Kind("guard", mode="guard", rungs=6),
    Kind("guard, 0.05 nats", mode="guard", rungs=6, most=0.05),
    Kind("budget of D", memory=0.8),
    Kind("budget of D, no memory", memory=0.0),
    Kind("certify", mode="certify", rungs=6),
)


class GuardedTrainer(Trainer):
    """Training run each step of which is judged; ``row`` says what became of the last one."""

    def __init__(self, run: Run, start: Start, kind: Kind) -> None:
        super().__init__(run, start)
        self.kind = kind
        ladder = [2.0**-k for k in range(kind.rungs)]
        self.guard = Guard(mode=cast(Mode, kind.mode), ladder=ladder, budget=kind.most)
        self.budget = None if kind.memory is None else Budget(run.rate, low=1e-6, high=run.rate, memory=kind.memory)
        self.solved = self.answers()
        self.row: dict[str, Any] = {}

    def answers(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return which of the problems [n] that judge the judge are solved; the same random numbers at every call."""
        twin = engine(cast(Transformer, self.model), "float32")
        return sample(twin, self.task, np.random.default_rng(10**6), prompts=self.run.held_out, group=1).rewards.numpy()

    def take(self) -> None:
        """Let the guard take the step."""
        before, whole = self.solved, self.solved
        rng = np.random.default_rng([self.run.seed, self.step, 1])
        held = self.rollout(rng, self.kind.held, 4)
        ids = [f"{self.step}-{k}" for k in held.group.tolist()]
        spent = 0.0

        def step() -> None:
            nonlocal whole, spent
            self.optimiser.step()
            started = time.process_time()
            whole = self.answers()
            spent = time.process_time() - started

        def score() -> Tensor:
            return at(training_law(self.model, held), held.tokens)

        started = time.process_time()
        found = self.guard(step, self.model.parameters(), score, held.logprobs, held.mask, held.rewards, ids)
        seconds = time.process_time() - started - spent
        self.solved = {1.0: whole, 0.0: before}[found.kept] if found.kept in (0.0, 1.0) else self.answers()
        self.row = {"step": self.step + 1, "rate": self.optimiser.param_groups[0]["lr"], "kept": found.kept}
        for name, after in {"whole": whole, "change": self.solved}.items():
            change = after - before
            self.row |= {name: change.mean(), f"{name}_error": change.std(ddof=1) / len(change) ** 0.5}
        last = found.seen[0]  # of the whole step
        self.row |= {"score": self.solved.mean(), "low": last.improvement.low, "high": last.improvement.high}
        self.row |= {
            "kl_seq": last.kl_seq,
            "gain": last.surrogate_gain,
            "forwards": len(found.seen),
            "seconds": seconds,
        }
        if self.budget is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = self.budget(last.surrogate_gain, last.kl_seq)
            self.row["use"] = self.budget.use


def runs(
    run: Run, start: Start, kinds: Sequence[Kind], seeds: Sequence[int], path: Path, progress: Progress = print
) -> pd.DataFrame:
    """Make every run that the file does not hold yet; one row for each step of each."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"kind": [], "seed": []})
    for seed, kind in product(seeds, kinds):
        if ((done["kind"] == kind.name) & (done["seed"] == seed)).any():
            continue
        trainer = GuardedTrainer(replace(run, seed=seed), start, kind)
        first, rows = trainer.solved.mean(), []
        while trainer.step < run.steps:
            trainer.advance()
            rows.append({"kind": kind.name, "seed": seed, "first": first, **trainer.row})
            progress(f"{kind.name}, seed {seed}, step {trainer.step}: " + ", ".join(_texts(trainer.row)))
        done = pd.concat([done, pd.DataFrame(rows)], ignore_index=True) if len(done) else pd.DataFrame(rows)
        done.to_csv(path, index=False, float_format="%.5g")
    return done


def _texts(row: dict[str, Any]) -> list[str]:
    return [f"{name} {row[name]:.3g}" for name in ("kept", "score", "whole", "kl_seq", "gain", "rate")]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what became of the runs of each kind.

    A step harms, or is good, where its change of the score is beyond two of its standard errors.
    """
    table = []
    for kind, part in rows.groupby("kind", sort=False):
        last = part[part["step"] == part["step"].max()].sort_values("seed")
        table.append(
            {
                "kind": kind,
                "seeds": len(last),
                "steps": len(part),
                "harmful": int((part["whole"] < -2 * part["whole_error"]).sum()),
                "harm_kept": int((part["change"] < -2 * part["change_error"]).sum()),
                "good": int((good := part["whole"] > 2 * part["whole_error"]).sum()),
                "good_refused": int((good & (part["kept"] == 0)).sum()),
                "first": part["first"].mean(),
                "score": last["score"].mean(),
                "scores": " ".join(f"{x:.2f}" for x in last["score"]),
                "forwards": part["forwards"].mean(),
                "judging": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(table)


_SHOWN = {
    "kind": "run",
    "seeds": "seeds",
    "steps": "steps",
    "harmful": "that would harm",
    "harm_kept": "harmed",
    "good": "that would help",
    "good_refused": "of these refused",
    "score": "score, from {first:.2f}",
    "scores": "by seed",
    "forwards": "forwards",
    "judging": "s",
}


def as_text(rows: pd.DataFrame) -> str:
    """Return the Markdown of the summary."""
    return markdown(summary(rows), _SHOWN)
