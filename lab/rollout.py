"""Sampling: prompts go in, responses come out, with the law that sampled every token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.model import KeyValueCache, Transformer
from lab.task import END, Task, decode, is_right


@dataclass(frozen=True)
class Rollout:
    """Responses of a sampling engine to prompts, several to each.

    ``log_law`` [B, L, V] holds, in float32, the log-probs of the whole vocabulary that each token was drawn from.
    """

    prompts: Tensor  # [B, P]
    tokens: Tensor  # [B, L]
    mask: Tensor  # [B, L], False after the end
    log_law: Tensor
    rewards: Tensor  # [B], 0 or 1
    group: Tensor  # [B], number of the prompt

    @property
    def logprobs(self) -> Tensor:
        """Return the log-probs of the sampled tokens [B, L]."""
        return at(self.log_law, self.tokens)


def at(log_law: Tensor, tokens: Tensor) -> Tensor:
    """Return the entry of each row [.., V] that belongs to its token [..]."""
    return log_law.gather(-1, tokens[..., None]).squeeze(-1)


def sample(engine: Transformer, task: Task, rng: np.random.Generator, *, prompts: int, group: int) -> Rollout:
    """Draw ``prompts`` problems and ``group`` responses to each, at temperature 1, with a key-value cache."""
    tokens, results = task.problems(rng, prompts)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    repeated = torch.from_numpy(tokens).repeat_interleave(group, 0)
    drawn, laws = _draw(engine, repeated, task.horizon, generator)
    ended = (drawn == END).cumsum(1)
    mask = ended - (drawn == END).long() == 0  # the full stop itself is a token of the response
    rewards = [
        float(is_right(decode(row[keep]), int(result)))
        for row, keep, result in zip(drawn, mask, np.repeat(results, group), strict=True)
    ]
    number = torch.arange(prompts).repeat_interleave(group)
    return Rollout(repeated, drawn, mask, laws, torch.tensor(rewards), number)


@torch.no_grad()
def _draw(engine: Transformer, prompts: Tensor, horizon: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    cache = KeyValueCache(engine, prompts.shape[0])
    running = torch.ones(prompts.shape[0], dtype=torch.bool)
    tokens, laws = [], []
    step = prompts
    for _ in range(horizon):
        law = engine(step, cache)[:, -1].float().log_softmax(-1)
        # Gumbel's trick: the largest of log-prob + noise is a draw from the law
        noise = -torch.empty_like(law).exponential_(generator=generator).log()
        chosen = (law + noise).argmax(-1)
        tokens.append(chosen)
        laws.append(law)
        running &= chosen != END
        if not running.any():
            break
        step = chosen[:, None]
    return torch.stack(tokens, 1), torch.stack(laws, 1)


def training_law(model: Transformer, rollout: Rollout) -> Tensor:
    """Return the training policy's log-probs of the whole vocabulary at every context of the responses [B, L, V]."""
    everything = torch.cat([rollout.prompts, rollout.tokens[:, :-1]], 1)
    first = rollout.prompts.shape[1] - 1
    return model(everything)[:, first:].log_softmax(-1)
