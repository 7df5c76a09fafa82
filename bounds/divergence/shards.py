"""Exact divergences of rows whose vocabulary lies in shards, as tensor-parallel trainers hold their logits.

All sums of :mod:`bounds.divergence._logit_kernel` add up over shards, once these agree on the maxima of the rows and on
the difference c of the two log-normalisers; the largest log-ratio is the largest of theirs. The sums tell by how much c
was wrong, as they do for whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bounds._checks import FloatArray, refuse
from bounds.divergence.logits import NAMES, LogitDivergences, _divergences, _Rows, _rows_of, finite, numbers

_AT_ONCE = 2**20  # elements of all shards that are read at a time


@dataclass(frozen=True, slots=True)
class LogitShard:
    """A part of the vocabulary of rows of logits of both policies; made by :func:`from_logits_shard`."""

    _rollout: _Rows
    _train: _Rows

    def merge(self, *others: LogitShard, precise: bool = False) -> LogitDivergences:
        """Compute the divergences of the whole rows, of which this and the others are all parts.

        Parameters
        ----------
        *others : LogitShard
            The other parts of the same rows, in any order.
        precise : bool
            As in :func:`~bounds.divergence.from_logits`, with the same accuracy.

        Returns
        -------
        LogitDivergences
            NumPy arrays [n].

        Raises
        ------
        ValueError
            If the parts have different numbers of rows, or a whole row has NaN, +inf or only -inf.
        """
        shards = (self, *others)
        n, width = self._rollout.shape[0], sum(shard._rollout.shape[1] for shard in shards)
        for i, other in enumerate(others):
            if other._rollout.shape[0] != n:
                refuse(f"others[{i}]", f"a shard of {n} rows", f"{other._rollout.shape[0]} rows")
        rows = max(1, _AT_ONCE // width)
        sums = [_whole(shards, i, min(n, i + rows), precise) for i in range(0, n, rows)]
        return _divergences(np.concatenate([np.empty((0, 11)), *sums]), precise)


def from_logits_shard(rollout_logits: Any, train_logits: Any) -> LogitShard:
    """Take one part of the vocabulary of rows of logits; :meth:`LogitShard.merge` then gives what the whole rows give.

    Parameters
    ----------
    rollout_logits, train_logits : array [n, v]
        As in :func:`~bounds.divergence.from_logits`, but of v of the tokens: the same ones of both policies, and no
        softmax of their own. A part may have no mass at all.

    Returns
    -------
    LogitShard

    Raises
    ------
    ValueError
        If a type or shape is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> roll, theta = np.log([[.5, .3, .2]]), np.log([[.4, .4, .2]])
    >>> left, right = (from_logits_shard(roll[:, v], theta[:, v]) for v in (slice(0, 2), slice(2, 3)))
    >>> found = left.merge(right)
    >>> [round(float(x[0]), 6) for x in (found.kl, found.tv, found.chi2)]
    [0.025267, 0.1, 0.053333]
    """
    roll, theta = _rows_of("rollout_logits", rollout_logits), _rows_of("train_logits", train_logits)
    if roll.shape != theta.shape:
        refuse("train_logits", f"of the shape of rollout_logits {roll.shape}", f"shape {theta.shape}")
    return LogitShard(roll, theta)


def _whole(shards: Sequence[LogitShard], start: int, end: int, precise: bool) -> FloatArray:
    """Return the sums [rows, 11] of whole rows, from ``start`` to ``end``."""
    from bounds.divergence._logit_kernel import FAST, PRECISE, ROUNDS, converged, sweep_given

    taylor, tolerance = (PRECISE, 1e-13) if precise else (FAST, 5e-8)
    pairs = [[_read(rows, start, end) for rows in (shard._rollout, shard._train)] for shard in shards]
    maxima = np.max([[x.max(axis=1) for x in pair] for pair in pairs], axis=0)
    tops = np.stack([finite(name, top, start) for name, top in zip(NAMES, maxima, strict=True)])
    mass = [np.sum([np.exp(pair[k] - tops[k][:, None]).sum(axis=1) for pair in pairs], axis=0) for k in (0, 1)]
    c, mistake = np.zeros(end - start), np.log(mass[1] / mass[0])
    gap, low = _two_sum(tops[1], -tops[0])
    for _ in range(ROUNDS):
        c = c + mistake
        gap, lost = _two_sum(gap, mistake)
        low = low + lost
        parts = np.empty((len(pairs), end - start, 12))
        for (a, b), part in zip(pairs, parts, strict=True):
            sweep_given(a, b, tops, c, gap, low, taylor, part)
        sums: FloatArray = parts.sum(axis=0)
        sums[:, 10] = parts[..., 10].max(axis=0)
        mistake = np.log1p(sums[:, 4] / sums[:, 0])
        done = converged(sums, mistake, tolerance)
        if done.all():
            break
        mistake = np.where(done, 0.0, mistake)
    return sums[:, :11]


def _read(rows: _Rows, start: int, end: int) -> FloatArray:
    return np.ascontiguousarray(numbers(rows.read(start, end)), dtype=np.float64)


def _two_sum(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the float x + y and what was lost in rounding it (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)
