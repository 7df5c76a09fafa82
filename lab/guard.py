"""Guarded training on the enumerated problem: many runs side by side, and the truth of every step.

The task and the network are those of :mod:`lab.tiny`. What the network looks at (prompt, position, last token, digit
sum) is all that a response depends on, so J of a policy is a sum over those states, exact like one over responses.
Every run has a :class:`bounds.training.Guard` of its own, on the weights of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest
from torch import Tensor

from bounds.training import Decision, Guard
from lab.tiny import END, HORIZON, MODULUS, TARGETS, WIDTH
from lab.train import group_advantages

SIZES = (len(TARGETS), HORIZON, WIDTH + 1, MODULUS)
ALPHA = 0.05
_AT_ONCE = 125  # runs
_LADDER = (1.0, 0.5, 0.25)
_LONG = tuple(2.0**-k for k in range(6))


@dataclass(frozen=True)
class Guarded:
    """Runs of one kind; each step learns from ``prompts`` prompts and is judged on ``held`` others.

    Before the first step that counts there are ``warm`` unguarded ones, at a learning rate of ``warm_rate``.
    """

    mode: str = "certify"
    runs: int = 1000
    steps: int = 8
    rate: float = 0.05
    held: int = 256
    prompts: int = 64
    group: int = 4
    warm: int = 0
    warm_rate: float = 0.05
    ladder: tuple[float, ...] = _LADDER
    budget: float = 0.5
    seed: int = 0
    hidden: int = 24


def initial(settings: Guarded, runs: int) -> list[Tensor]:
    """Draw weights [runs, ...] as torch does for one network."""
    shapes = ((sum(SIZES), settings.hidden), (settings.hidden,), (settings.hidden, WIDTH), (WIDTH,))
    limits = (sum(SIZES), sum(SIZES), settings.hidden, settings.hidden)
    return [
        ((2 * torch.rand(runs, *shape, dtype=torch.float64) - 1) / math.sqrt(n)).requires_grad_()
        for shape, n in zip(shapes, limits, strict=True)
    ]


def law(weights: Sequence[Tensor]) -> Tensor:
    """Return log-probs [runs, prompt, position, last token, digit sum, token]; once ended, the full stop repeats."""
    first, bias, second, last = weights
    hidden = bias[:, None, None, None, None]
    for axis, part in enumerate(first.split(SIZES, dim=1)):
        shape = [1] * len(SIZES)
        shape[axis] = SIZES[axis]
        hidden = hidden + part.reshape(len(part), *shape, -1)
    logits = torch.einsum("rptlsh,rhv->rptlsv", hidden.tanh(), second) + last[:, None, None, None, None]
    only_end = torch.full((WIDTH,), -math.inf, dtype=torch.float64)
    only_end[END] = 0.0
    ended = (torch.arange(WIDTH + 1) == END)[:, None, None]
    return torch.where(ended, only_end, logits.log_softmax(-1))


def _after(total: Any, token: Any) -> Any:
    return (total + token * (token != END)) % MODULUS


def objective(log_law: Tensor) -> Tensor:
    """Return J [runs], summed over all states that a response can be in."""
    probabilities = log_law.detach().exp()
    mass = torch.zeros(len(log_law), len(TARGETS), WIDTH + 1, MODULUS, dtype=torch.float64)
    mass[:, :, WIDTH, 0] = 1.0
    for t in range(HORIZON):
        moved = torch.zeros_like(mass)
        for token in range(WIDTH):
            arrived = (mass * probabilities[:, :, t, :, :, token]).sum(dim=2)
            moved[:, :, token] += arrived[
                :, :, torch.tensor([(s - token * (token != END)) % MODULUS for s in range(5)])
            ]
        mass = moved
    right = [mass[:, k, END, target % MODULUS] for k, target in enumerate(TARGETS)]
    return torch.stack(right).mean(dim=0)


@dataclass(frozen=True)
class Drawn:
    """Responses [runs, B]: where their tokens [runs, B, T] stand in a flat law, which count, and rewards."""

    place: Tensor
    mask: Tensor
    logprobs: Tensor
    rewards: Tensor

    def scored(self, log_law: Tensor) -> Tensor:
        """Return the log-probs of the tokens under another law."""
        return log_law.reshape(len(log_law), -1).gather(1, self.place.reshape(len(log_law), -1)).view(self.place.shape)

    def of(self, run: int) -> Drawn:
        """Return the responses of one run, as of a study of one."""
        return Drawn(*(x[run : run + 1] for x in (self.place, self.mask, self.logprobs, self.rewards)))


def draw(log_law: Tensor, prompts: int, group: int, rng: np.random.Generator) -> Drawn:
    """Draw prompts at random, several responses to each."""
    runs = len(log_law)
    prompt = rng.integers(len(TARGETS), size=(runs, prompts)).repeat(group, axis=1)
    total, last, flat = np.zeros_like(prompt), np.full_like(prompt, WIDTH), log_law.detach().exp().numpy()
    rows, places, going = np.arange(runs)[:, None], [], []
    for t in range(HORIZON):
        choice = flat[rows, prompt, t, last, total].cumsum(axis=2)
        token = (rng.random(prompt.shape)[..., None] * choice[..., -1:] >= choice).sum(axis=2)
        places.append(np.ravel_multi_index((prompt, t, last, total, token), (*SIZES, WIDTH)))
        going.append(last != END)
        total, last = _after(total, token), token
    right = (last == END) & (total == np.array(TARGETS)[prompt] % MODULUS)
    place, mask = (torch.from_numpy(np.stack(x, axis=2)) for x in (places, going))
    found = Drawn(place, mask, torch.zeros(()), torch.from_numpy(right.astype(np.float64)))
    return replace(found, logprobs=found.scored(log_law.detach()))


def simulate(settings: Guarded, progress: Callable[[str], None] = print) -> pd.DataFrame:
    """Return one row for each step of each run: what was kept; J before, of the whole step and of what was kept."""
    chunks = range(0, settings.runs, _AT_ONCE)
    frames = []
    for first in chunks:
        frames.append(_chunk(settings, first, min(_AT_ONCE, settings.runs - first)))
        progress(f"{settings.mode}, {settings.held} held out: {len(frames)} of {len(chunks)} parts")
    return pd.concat(frames, ignore_index=True)


def _chunk(settings: Guarded, first: int, runs: int) -> pd.DataFrame:
    torch.manual_seed(first + 10_000 * settings.seed)
    rng = np.random.default_rng([settings.seed, first])
    weights = initial(settings, runs)
    warm, optimiser = (torch.optim.Adam(weights, lr=rate) for rate in (settings.warm_rate, settings.rate))
    for _ in range(settings.warm):
        _gradient(weights, law(weights), settings, rng)
        warm.step()
    guards = [
        Guard(mode=settings.mode, confidence=1.0 - ALPHA, budget=settings.budget, ladder=settings.ladder)
        for _ in range(runs)
    ]
    ids = np.arange(settings.held).repeat(settings.group)
    rows = []
    for step in range(1, settings.steps + 1):
        log_law = law(weights)
        _gradient(weights, log_law, settings, rng)
        held = draw(log_law, settings.held, settings.group, rng)
        before = [w.detach().clone() for w in weights]
        optimiser.step()
        after = [w.detach().clone() for w in weights]
        started = time.process_time()
        with torch.no_grad():
            for w, old in zip(weights, before, strict=True):
                w.copy_(old)
            decisions = [_judged(guard, weights, after, held, run, ids) for run, guard in enumerate(guards)]
            seconds = (time.process_time() - started) / runs
            ends = {"J_before": objective(log_law), "J_whole": objective(law(after)), "J_kept": objective(law(weights))}
        rows.append(
            pd.DataFrame(
                {
                    "run": first + np.arange(runs),
                    "step": step,
                    **{name: values.numpy() for name, values in ends.items()},
                    "kept": [d.kept for d in decisions],
                    "low": [d.seen[0].improvement.low for d in decisions],
                    "high": [d.seen[0].improvement.high for d in decisions],
                    "kl_seq": [d.seen[0].kl_seq for d in decisions],
                    "forwards": [len(d.seen) for d in decisions],
                    "seconds": seconds,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def _judged(
    guard: Guard, weights: list[Tensor], after: list[Tensor], held: Drawn, run: int, ids: np.ndarray[Any, Any]
) -> Decision:
    """Let one run take its step, and its guard decide."""
    mine, one = [w[run : run + 1] for w in weights], held.of(run)

    def take() -> None:
        for w, new in zip(mine, after, strict=True):
            w.copy_(new[run : run + 1])

    def score() -> Tensor:
        return one.scored(law(mine))[0]

    return guard(take, mine, score, one.logprobs[0], one.mask[0], one.rewards[0], ids)


def _gradient(weights: list[Tensor], log_law: Tensor, settings: Guarded, rng: np.random.Generator) -> None:
    """Set the gradient of the surrogate on a batch that is drawn for it."""
    drawn = draw(log_law, settings.prompts, settings.group, rng)
    advantages = group_advantages(drawn.rewards.reshape(-1), settings.group).view(drawn.rewards.shape)
    ratios = ((drawn.scored(log_law) - drawn.logprobs).exp() * drawn.mask).sum(dim=2)
    for w in weights:
        w.grad = None
    (-(ratios * advantages).mean(dim=1).sum()).backward()


def summary(settings: Guarded, rows: pd.DataFrame) -> dict[str, Any]:
    """Return what became of the runs of one kind.

    ``runs_harmed`` counts those in which a step that was kept, or a part of it, lowered J; ``p_value`` is that of as
    many where each run has the probability alpha. ``good_refused`` is the share of the steps that would raise J of
    which nothing was kept. ``J_first`` and ``J_last`` are means over runs; ``milliseconds`` of the judging of one step.
    """
    harmed = rows[(rows["kept"] > 0) & (rows["J_kept"] < rows["J_before"])]["run"].nunique()
    good = rows["J_whole"] > rows["J_before"]
    last = rows[rows["step"] == rows["step"].max()]["J_kept"]
    return {
        "mode": settings.mode,
        "rate": settings.rate,
        "held_out": settings.held,
        "budget": settings.budget,
        "rungs": len(settings.ladder),
        "runs": settings.runs,
        "steps": settings.steps,
        "harmful": float((~good).mean()),
        "kept": float((rows["kept"] > 0).mean()),
        "runs_harmed": harmed,
        "p_value": float(binomtest(harmed, settings.runs, ALPHA, alternative="greater").pvalue),
        "good_refused": float((rows["kept"][good] == 0).mean()),
        "J_first": float(rows[rows["step"] == 1]["J_before"].mean()),
        "J_last": float(last.mean()),
        "J_five": " ".join(f"{J:.2f}" for J in last[:5]),
        "forwards": float(rows["forwards"].mean()),
        "milliseconds": 1000.0 * float(rows["seconds"].mean()),
    }


_NEAR = Guarded(rate=0.2, budget=math.inf)  # two of five steps harm, and most are small
_COLLAPSE = Guarded(rate=0.5, warm=10, steps=30, runs=20, seed=1)
#: What the tables of README show.
STUDIES: dict[str, tuple[Guarded, ...]] = {
    "alpha": (_NEAR, replace(_NEAR, mode="guard", budget=0.5, runs=250), replace(_NEAR, mode="report", runs=250)),
    "prompts": tuple(
        Guarded(rate=0.02, held=held, runs=60, steps=6, ladder=(1.0,)) for held in (32, 128, 512, 2048, 8192)
    ),
    "collapse": (
        replace(_COLLAPSE, mode="report", ladder=(1.0,)),
        *(replace(_COLLAPSE, mode=mode, ladder=ladder) for mode in ("guard", "certify") for ladder in (_LADDER, _LONG)),
    ),
}
_SHOWN: dict[str, dict[str, str]] = {
    "alpha": {
        "mode": "mode",
        "runs": "runs",
        "harmful": "steps that harm",
        "kept": "steps kept, or a part",
        "runs_harmed": "runs harmed",
        "p_value": "p (5 %)",
        "good_refused": "good steps refused",
        "J_last": "J, from {J_first:.2f}",
        "milliseconds": "ms",
    },
    "prompts": {
        "held_out": "held-out prompts",
        "good_refused": "good steps refused",
        "J_last": "J after 6 steps, from {J_first:.2f}",
        "milliseconds": "ms",
    },
    "collapse": {
        "mode": "mode",
        "rungs": "ladder",
        "kept": "steps kept, or a part",
        "runs_harmed": "runs harmed, of 20",
        "J_last": "J, from {J_first:.2f}",
        "J_five": "the first five seeds",
        "forwards": "forwards",
    },
}


def study(progress: Callable[[str], None] = print, scale: float = 1.0) -> pd.DataFrame:
    """Run everything that README shows: one row for each kind of run; ``scale`` shortens it for a test."""
    rows = []
    for name, kinds in STUDIES.items():
        for kind in kinds:
            small = replace(kind, runs=max(2, round(kind.runs * scale)), held=max(16, round(kind.held * scale)))
            rows.append({"study": name, **summary(small, simulate(small, progress))})
    return pd.DataFrame(rows)


def as_text(table: pd.DataFrame, name: str) -> str:
    """Return the Markdown of one study."""
    return markdown(table[table["study"] == name], _SHOWN[name])


def markdown(part: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Return a table of some columns, whose titles may quote the first row."""
    first = part.iloc[0]
    lines = [[title.format(**first) for title in titles.values()], ["---"] * len(titles)]
    for row in part.to_dict("records"):
        shown = (row[column] for column in titles)
        lines.append([f"{x:.3g}" if isinstance(x, float) else str(x) for x in shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
