"""How divergence depends on the position in the response, from one reading of the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bounds._checks import FloatArray, confidence_level
from bounds.certificate.statistics import prompt_number
from bounds.divergence.rows import k3, shortfall
from bounds.intervals import clustered_ratio
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.questions.by_position_answer import ByPosition, PositionBin

_MOST = 32  # bins; more than half of them are used once a response is so long
_EXACT = {
    "kl": "exact KL(roll||theta) at sampled contexts",
    "tv": "exact TV at sampled contexts",
    "chi2": "exact chi2(theta||roll) at sampled contexts",
}
_SAMPLED = {
    "kl": "k3 of sampled tokens, which misses theta's mass where roll has none",
    "tv": "(1-rho)^+ of sampled tokens",
}


def by_position(traces: TraceSet | Iterable[TraceSet], *, confidence: float = 0.95) -> ByPosition:
    """Mean KL, total variation and chi2 of a token, by its position.

    Parameters
    ----------
    traces : TraceSet, or the parts of a log
        Responses of the rollout policy. Exact columns are used where logged; else KL is k3 (which misses theta's mass
        where roll has none) and TV is (1-rho)^+; chi2 of sampled tokens is not shown.
    confidence : float
        Nominal coverage of the intervals, which are prompt-clustered and asymptotic.

    Raises
    ------
    TraceError
        If the log has no response, or its parts have different exact columns.

    Examples
    --------
    >>> import bounds
    >>> found = by_position(bounds.example_traces())
    >>> found.bins[0].first, found.bins[-1].last, list(found.how)
    (0, 255, ['kl', 'tv', 'chi2'])
    """
    confidence = confidence_level(confidence)
    sums = _Sums()
    for part in [traces] if isinstance(traces, TraceSet) else traces:
        sums.update(part)
    return sums.result(confidence)


class _Sums:
    """Sums over the tokens of each prompt in each bin; bins double their width when they do not reach far enough."""

    def __init__(self) -> None:
        self._width = 1
        self._prompts: dict[int, int] = {}  # number of each prompt, which is its row
        self._longest = 0
        self._responses = np.zeros(0)
        self._sums: dict[str, FloatArray] = {}  # [rows, bins]; "tokens" counts them
        self._how: dict[str, str] = {}

    def update(self, traces: TraceSet) -> None:
        """Take in a part of the log."""
        exact = {name: how for name, how in _EXACT.items() if name in traces.exact}
        how = {name: exact.get(name) or _SAMPLED[name] for name in _EXACT if name in exact or name in _SAMPLED}
        if self._how not in ({}, how):
            raise TraceError(f"{traces.where[0]}: exact divergences are logged for some responses and not for others")
        self._how = how
        sampled = {"kl": k3, "tv": shortfall}
        by_token = {n: traces.exact[n] if n in exact else sampled[n](traces.log_ratio) for n in self._how}
        self._longest = max(self._longest, int(traces.lengths.max()))
        while self._longest > self._width * _MOST:
            self._double()
        rows = np.array([self._prompts.setdefault(prompt_number(p), len(self._prompts)) for p in traces.prompt_ids])
        self._make_room(len(self._prompts))
        np.add.at(self._responses, rows[traces.prompt], 1.0)
        cell = np.repeat(traces.prompt, traces.lengths) * _MOST + traces.order // self._width
        for name, values in {**by_token, "tokens": np.ones(cell.size)}.items():
            added = np.bincount(cell, weights=values, minlength=rows.size * _MOST).reshape(rows.size, _MOST)
            np.add.at(self._sums[name], rows, added)

    def _make_room(self, rows: int) -> None:
        """Rows of zeros below, at least as many as there are: a log of many parts does not copy them each time."""
        size = self._responses.size
        if rows <= size:
            return
        more = max(rows - size, size)
        self._responses = np.pad(self._responses, (0, more))
        for name in (*self._how, "tokens"):
            self._sums[name] = np.pad(self._sums.get(name, np.zeros((size, _MOST))), ((0, more), (0, 0)))

    def _double(self) -> None:
        self._width *= 2
        for name, sums in self._sums.items():
            pairs = sums.reshape(len(sums), _MOST // 2, 2).sum(axis=2)
            self._sums[name] = np.concatenate([pairs, np.zeros_like(pairs)], axis=1)

    def result(self, confidence: float) -> ByPosition:
        """Means over prompts of means over their responses, in each bin that a response reaches."""
        prompts = len(self._prompts)
        if not prompts:
            raise TraceError("the log has no response")
        mean = {name: sums[:prompts] / self._responses[:prompts, None] for name, sums in self._sums.items()}
        tokens = mean.pop("tokens")
        bins = []
        for k in np.flatnonzero(tokens.any(axis=0)).tolist():
            there = tokens[:, k] > 0.0  # prompts without a response so long say nothing of it
            cluster = np.arange(np.count_nonzero(there))
            found = {
                name: clustered_ratio(mean[name][there, k], tokens[there, k], cluster, confidence, low=0.0)
                for name in self._how
            }
            found |= {"tv": replace(found["tv"], high=min(found["tv"].high, 1.0))}
            first, last = k * self._width, min((k + 1) * self._width, self._longest) - 1
            bins.append(PositionBin(first, last, float(tokens[:, k].mean() / (last + 1 - first)), found))
        return ByPosition(tuple(bins), self._how, confidence)
