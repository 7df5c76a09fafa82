"""A problem so small that every response is enumerated: a real training run beside its exact truth.

Digits 0 to 2 and a full stop, at most T = 6 tokens; a response is right if it has ended and its digits sum to the
prompt's number modulo 5. The policy is a small network; rollouts come from its weights of some steps ago, rounded to
bfloat16. At every step J, L', Error and all divergences are computed by summing over all responses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import bounds
from bounds.proof.exact import Problem, Tree
from bounds.training import masked_surrogate_loss
from lab.train import group_advantages

HORIZON, WIDTH, END, MODULUS = 6, 4, 3, 5
TARGETS = (0, 2, 3)


@dataclass(frozen=True)
class TinyRun:
    """One run; each step draws ``prompts`` prompts at random, with ``group`` responses to each."""

    steps: int = 80
    prompts: int = 256
    group: int = 4
    rate: float = 0.02
    staleness: int = 2
    seed: int = 0
    confidence: float = 0.95


@cache
def contexts(t: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return all contexts [V^t, t] of position t, in the order of :class:`bounds.proof.exact.Tree`."""
    return np.stack(np.unravel_index(np.arange(WIDTH**t), (WIDTH,) * t), axis=1) if t else np.zeros((1, 0), np.int64)


def has_ended(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether a full stop stands in each row."""
    return (tokens == END).any(axis=1)


@cache
def rewards(target: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Reward each response [V^T]; after the full stop only full stops count (others are never reached)."""
    everything = contexts(HORIZON)
    total = np.where(everything == END, 0, everything).sum(axis=1)
    return np.where(has_ended(everything) & (total % MODULUS == target), 1.0, 0.0)


class Policy(nn.Module):
    """Prompt, position, last token and digit sum in; logits of the next token out."""

    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        features = len(TARGETS) + HORIZON + WIDTH + 1 + MODULUS
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, WIDTH))

    def forward(self, prompt: int, tokens: np.ndarray[Any, Any]) -> Tensor:
        """Return log-probs [n, V] after the contexts [n, t]; once ended, the full stop repeats with probability 1."""
        n, t = tokens.shape
        columns = np.zeros((n, 4), dtype=np.int64)
        columns[:, 0], columns[:, 1] = prompt, t
        columns[:, 2] = tokens[:, -1] if t else WIDTH
        columns[:, 3] = np.where(tokens == END, 0, tokens).sum(axis=1) % MODULUS
        sizes = (len(TARGETS), HORIZON, WIDTH + 1, MODULUS)
        hot = [nn.functional.one_hot(torch.from_numpy(c), k) for c, k in zip(columns.T, sizes, strict=True)]
        weight = self.layers[0].weight
        law = self.layers(torch.cat(hot, dim=1).to(weight.dtype)).double().log_softmax(-1)
        only_end = torch.full_like(law, -math.inf)
        only_end[:, END] = 0.0
        return torch.where(torch.from_numpy(has_ended(tokens))[:, None], only_end, law)

    def tree_rows(self, prompt: int) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the probabilities [V^t, V] of each position."""
        with torch.no_grad():
            return tuple(self(prompt, contexts(t)).exp().numpy() for t in range(HORIZON))


def coarse(policy: Policy) -> Policy:
    """Make the engine's copy: weights rounded to bfloat16."""
    twin = Policy()
    twin.load_state_dict({n: v.to(torch.bfloat16).float() for n, v in policy.state_dict().items()})
    return twin


def enumerate_truth(roll: Policy, theta: Policy) -> dict[str, Any]:
    """Enumerate J of both policies, L', Error, every divergence, and every rule's bound on |Error|."""
    trees = tuple(Tree(roll.tree_rows(k), theta.tree_rows(k), END) for k in range(len(TARGETS)))
    problem = Problem(trees, (1.0 / len(TARGETS),) * len(TARGETS))
    reward = [rewards(target) for target in TARGETS]
    truth = {
        "J_theta": problem.objective("theta", reward),
        "J_roll": problem.objective("roll", reward),
        "improvement": problem.objective("theta", reward) - problem.objective("roll", reward),
        **{
            f"improvement of {target}": float(((tree.theta_mass[-1] - tree.roll_mass[-1]) * r).sum())
            for target, tree, r in zip(TARGETS, trees, reward, strict=True)
        },
        "surrogate_gain": problem.surrogate(reward),
        "error": problem.error(reward),
        "worst_case_error": problem.worst_error,
    }
    profile = problem.profile()
    scalars = ("delta", "epsilon", "chi2_max", "kl_seq", "tv_seq", "tv_sum", "mean_length")
    table = bounds.unified(profile)
    return {
        **truth,
        **{name: getattr(profile, name) for name in scalars},
        **{
            f"{name}_{t + 1}": v for name in ("mean_kl", "mean_tv", "mean_chi2") for t, v in _by_position(profile, name)
        },
        **{f"bound {b.name}": b.value for b in table.bounds},
        "bound b_star": table.best.value,
        "bound b_star_published": table.best_published.value,
    }


def _by_position(profile: bounds.Profile, name: str) -> Any:
    return enumerate(getattr(profile, name).tolist())


@dataclass(frozen=True)
class Sampled:
    """Responses of the engine: tokens [B, T], True in ``mask`` up to the full stop, and what they are worth."""

    prompt: np.ndarray[Any, Any]
    tokens: np.ndarray[Any, Any]
    mask: Tensor
    logprobs: Tensor
    rewards: np.ndarray[Any, Any]
    group: np.ndarray[Any, Any]


def sample(roll: Policy, rng: np.random.Generator, run: TinyRun) -> Sampled:
    """Draw prompts at random, several responses to each."""
    prompt = np.repeat(rng.integers(len(TARGETS), size=run.prompts), run.group)
    tokens = np.zeros((prompt.size, 0), dtype=np.int64)
    with torch.no_grad():
        for _ in range(HORIZON):
            law = _by_prompt(roll, prompt, tokens).exp().numpy().cumsum(axis=1)
            chosen = (rng.random(prompt.size)[:, None] * law[:, -1:] >= law).sum(axis=1)
            tokens = np.column_stack([tokens, chosen])
        logprobs = logprobs_of(roll, prompt, tokens)
    mask = np.cumsum(tokens == END, axis=1) - (tokens == END) == 0
    index = tokens @ (WIDTH ** np.arange(HORIZON)[::-1])
    value = np.array([rewards(TARGETS[p])[i] for p, i in zip(prompt, index, strict=True)])
    return Sampled(prompt, tokens, torch.from_numpy(mask), logprobs, value, np.arange(prompt.size) // run.group)


def _by_prompt(policy: Policy, prompt: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> Tensor:
    law = torch.zeros((prompt.size, WIDTH), dtype=torch.float64)
    for k in np.unique(prompt):
        law = torch.where(torch.from_numpy(prompt == k)[:, None], policy(int(k), tokens), law)
    return law


def logprobs_of(policy: Policy, prompt: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> Tensor:
    """Return the log-probs of sampled tokens [B, T]."""
    columns = [
        _by_prompt(policy, prompt, tokens[:, :t]).gather(1, torch.from_numpy(tokens[:, t : t + 1]))
        for t in range(tokens.shape[1])
    ]
    return torch.cat(columns, dim=1)


def certificate(drawn: Sampled, train_logprobs: Tensor, confidence: float) -> dict[str, float]:
    """Return the intervals of J(theta) - J(roll) that ``certify`` gives on a batch which theta has not seen.

    For new prompts, and for the average over the prompts of this batch. NaN where a certificate is withheld.
    """
    traces = bounds.TraceSet.from_arrays(
        drawn.logprobs.numpy(),
        train_logprobs.detach().numpy(),
        mask=drawn.mask.numpy(),
        rewards=drawn.rewards,
        prompt_ids=drawn.group.tolist(),
        horizon=HORIZON,
    )
    found = bounds.certify(traces, confidence=confidence)
    intervals = {"improvement": found.improvement, "these_prompts": found.improvement_these_prompts}
    ends = {"low": math.nan, "high": math.nan}
    return {f"{n}_{end}": getattr(i, end, nothing) for n, i in intervals.items() for end, nothing in ends.items()}


def run_steps(run: TinyRun, progress: Callable[[str], None] = print) -> pd.DataFrame:
    """Train, and write down at each step what is true and what the batch said; one row for each step.

    The interval of a step is about the policies before its update, on a batch drawn after they were fixed.
    """
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    theta = Policy()
    optimiser = torch.optim.Adam(theta.parameters(), lr=run.rate)
    past = [coarse(theta)] * (run.staleness + 1)
    rows = []
    for step in range(run.steps):
        roll = past[0]
        drawn = sample(roll, rng, run)
        train = logprobs_of(theta, drawn.prompt, drawn.tokens)
        truth = enumerate_truth(roll, theta)
        by_prompt = np.array([truth[f"improvement of {target}"] for target in TARGETS])
        truth["these_prompts"] = by_prompt[drawn.prompt].mean()
        rows.append({"step": step, "seed": run.seed, **truth, **certificate(drawn, train, run.confidence)})
        advantages = group_advantages(torch.from_numpy(drawn.rewards), run.group)
        keep = torch.ones(len(advantages), dtype=torch.bool)
        loss = masked_surrogate_loss(drawn.logprobs, train, drawn.mask, advantages, keep)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        past = [*past[1:], coarse(theta)]
        if step % 10 == 9:
            progress(f"tiny seed {run.seed} step {step + 1}/{run.steps}: J(theta) {truth['J_theta']:.3f}")
    return pd.DataFrame(rows)
