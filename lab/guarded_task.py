"""The arithmetic task with steps that are judged before they count, and with a learning rate that keeps to a budget.

Nothing is stale here: the engine samples in bfloat16 from the weights of now, so that a step that is rolled back
changes nothing. Whether a step harmed is measured, by problems that neither training nor guard sees: both policies
answer them with the same random numbers, so that most answers agree and the difference is known better than either.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch

from bounds.training import Budget, Guard
from bounds.training.guard import Mode
from lab.compare import shipped
from lab.model import Transformer, engine
from lab.rollout import at, sample, training_law
from lab.train import Progress, Run, Start, Trainer


@dataclass(frozen=True)
class Kind:
    """Runs of one kind; ``held`` other prompts, of 4 responses, judge each step."""

    name: str
    mode: str = "report"
    rungs: int = 1
    budget: bool = False
    held: int = 32


KINDS = (
    Kind("no guard"),
    Kind("guard", mode="guard", rungs=6),
    Kind("budget of D", budget=True),
    Kind("certify", mode="certify", rungs=6),
)


class GuardedTrainer(Trainer):
    """Training run each step of which is judged; ``row`` says what became of the last one."""

    def __init__(self, run: Run, start: Start, kind: Kind) -> None:
        super().__init__(run, start)
        self.kind = kind
        self.guard = Guard(mode=cast(Mode, kind.mode), ladder=[2.0**-k for k in range(kind.rungs)])
        self.budget = Budget(run.rate, low=1e-6, high=run.rate) if kind.budget else None
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

        def score() -> torch.Tensor:
            return at(training_law(self.model, held), held.tokens)

        started = time.process_time()
        found = self.guard(step, self.model.parameters(), score, held.logprobs, held.mask, held.rewards, ids)
        seconds = time.process_time() - started - spent
        self.solved = {1.0: whole, 0.0: before}.get(found.kept) if found.kept in (0.0, 1.0) else self.answers()
        self.row = {"step": self.step + 1, "rate": self.optimiser.param_groups[0]["lr"], "kept": found.kept}
        for name, after in {"whole": whole, "change": self.solved}.items():
            change = after - before
            self.row |= {name: change.mean(), f"{name}_error": change.std(ddof=1) / len(change) ** 0.5}
        last = found.seen[0]
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


def runs(run: Run, kinds: Sequence[Kind], seeds: Sequence[int], path: Path, progress: Progress = print) -> pd.DataFrame:
    """Make every run that the file does not hold yet; one row for each step of each."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"kind": [], "seed": []})
    start = shipped()
    for kind in kinds:
        for seed in seeds:
            if ((done["kind"] == kind.name) & (done["seed"] == seed)).any():
                continue
            torch.manual_seed(seed)
            trainer = GuardedTrainer(replace(run, seed=seed), start, kind)
            first, rows, started = trainer.solved.mean(), [], time.process_time()
            while trainer.step < run.steps:
                trainer.advance()
                rows.append({"kind": kind.name, "seed": seed, "first": first, **trainer.row})
                progress(f"{kind.name}, seed {seed}, step {trainer.step}: " + ", ".join(_texts(trainer.row)))
            here = pd.DataFrame(rows).assign(run_seconds=time.process_time() - started)
            done = pd.concat([done, here], ignore_index=True) if len(done) else here
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
