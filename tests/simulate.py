"""Logs of enumerated problems, where the truth is known."""

from __future__ import annotations

import numpy as np

from bounds.logs.traces import TraceSet
from bounds.proof.exact import Problem


class World:
    """A population of prompts (the trees of a problem, equally likely) with a fixed reward of each response.

    With ``exact`` its logs have the largest log-ratio of the vocabulary at each token.
    """

    def __init__(
        self, problem: Problem, rng: np.random.Generator, *, success: float = 0.4, exact: bool = False
    ) -> None:
        self.problem, self.exact = problem, exact
        tree = problem.trees[0]
        self.horizon, self.width = len(tree.roll), tree.roll[0].shape[-1]
        self.rewards = [(rng.random(t.roll_mass[-1].size) < success).astype(float) for t in problem.trees]
        self.truth = problem.objective("theta", self.rewards) - problem.objective("roll", self.rewards)
        self.by_prompt = np.array(
            [((t.theta_mass[-1] - t.roll_mass[-1]) * r).sum() for t, r in zip(problem.trees, self.rewards, strict=True)]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            self._logs = [tuple(np.log(self._rows(p)) for p in (t.roll, t.theta)) for t in problem.trees]
            largest = [
                tuple(np.broadcast_to(np.nanmax(q / p, axis=1, keepdims=True), p.shape) for p, q in pairs)
                for pairs in (zip(t.roll, t.theta, strict=True) for t in problem.trees)
            ]
            self._largest = [np.log(self._rows(ratios)) for ratios in largest]

    def _rows(self, policy: tuple[np.ndarray, ...]) -> np.ndarray:
        """Probability of each token of each whole response [V^T, T]."""
        leaves = np.arange(self.width**self.horizon)
        columns = []
        for t, rows in enumerate(policy):
            prefix = leaves // self.width ** (self.horizon - t)
            token = leaves // self.width ** (self.horizon - t - 1) % self.width
            columns.append(rows[prefix, token].astype(float))
        return np.stack(columns, axis=1)

    def draw(self, rng: np.random.Generator, prompts: int, group: int) -> tuple[TraceSet, np.ndarray]:
        """A log, and which kind of prompt each of its prompts is."""
        kinds = rng.integers(len(self.problem.trees), size=prompts)
        rollout, train, reward, largest = [], [], [], []
        for kind in kinds:
            mass = self.problem.trees[kind].roll_mass[-1].astype(float)
            leaf = rng.choice(mass.size, size=group, p=mass / mass.sum())
            rollout.append(self._logs[kind][0][leaf])
            train.append(np.maximum(self._logs[kind][1][leaf], -700.0))  # a probability of 0, in a log
            reward.append(self.rewards[kind][leaf])
            largest.append(self._largest[kind][leaf])
        n, T = prompts * group, self.horizon
        traces = TraceSet(
            rollout=np.concatenate(rollout).ravel(),
            train=np.concatenate(train).ravel(),
            starts=np.arange(0, n * T + 1, T),
            prompt=np.repeat(np.arange(prompts), group),
            prompt_ids=tuple(map(str, range(prompts))),
            horizon=T,
            reward=np.concatenate(reward),
            exact={"max_log_ratio": np.concatenate(largest).ravel()} if self.exact else {},
            where=tuple(map(str, range(n))),
        )
        return traces, kinds
