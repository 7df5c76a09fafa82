"""The tokens and the responses of a log that carry most of kl_seq, with their places; and its model calls."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.logs.traces import TraceSet
from bounds.results import Record

_TOP = 8
_BEFORE = 4  # tokens that are shown before a token
_PERCENTS = (1, 10, 50, 90, 99)


@dataclass(frozen=True, slots=True)
class WorstToken(Record):
    """A token, where it stands (rows and positions count from 0), and its ``share`` in kl_seq.

    ``token`` is its id or text where that is logged, ``before`` what precedes it.
    """

    where: str
    position: int
    token: str
    before: tuple[str, ...]
    rollout_logprob: float
    train_logprob: float
    share: float


@dataclass(frozen=True, slots=True)
class WorstResponse(Record):
    """A response, its ``share`` in kl_seq, and percentiles of d = log theta - log roll over its tokens."""

    where: str
    prompt: str
    tokens: int
    share: float
    d: Mapping[str, float]


class Worst:
    """Keeps the worst of the parts of a log that it sees."""

    def __init__(self) -> None:
        self._tokens: list[WorstToken] = []
        self._responses: list[WorstResponse] = []
        self._calls = 1

    def see(self, part: TraceSet, share: FloatArray) -> None:
        """Look at a part, with the share of kl_seq of each token."""
        tokens = (_token(part, k, float(share[k])) for k in _largest(share))
        self._tokens = heapq.nlargest(_TOP, [*self._tokens, *tokens], key=lambda token: token.share)
        totals = np.add.reduceat(share, part.starts[:-1])
        responses = (_response(part, i, float(totals[i])) for i in _largest(totals))
        self._responses = heapq.nlargest(_TOP, [*self._responses, *responses], key=lambda response: response.share)
        self._calls = max(self._calls, int(calls(part).max()) + 1)

    @property
    def tokens(self) -> tuple[WorstToken, ...]:
        """Tokens, worst first."""
        return tuple(self._tokens)

    @property
    def responses(self) -> tuple[WorstResponse, ...]:
        """Responses, worst first."""
        return tuple(self._responses)

    @property
    def call_names(self) -> list[str]:
        """Names of model calls: 0, 1, ..., and one for all that are later."""
        names = [str(k) for k in range(min(self._calls, _TOP))]
        return names if self._calls <= _TOP else [*names[:-1], f"{names[-1]} or later"]


def calls(part: TraceSet) -> IntArray:
    """Return which model call of its response drew each token [tokens]: what is no policy token stands between two."""
    if part.kept is None:
        return np.zeros(part.rollout.size, dtype=np.int64)
    first = part.starts[:-1]
    begins = np.diff(part.kept, prepend=part.kept[:1]) != 1
    begins[first] = False
    number = np.cumsum(begins)
    return np.asarray(np.minimum(number - np.repeat(number[first], part.lengths), _TOP - 1))


def _largest(values: FloatArray) -> list[int]:
    """Return the places of the largest, in their order."""
    top = np.argpartition(-values, _TOP)[:_TOP] if values.size > _TOP else np.arange(values.size)
    return [int(k) for k in np.sort(top)]


def _token(part: TraceSet, k: int, share: float) -> WorstToken:
    where, position = part.locate(k)
    start = int(part.starts[np.searchsorted(part.starts, k, side="right") - 1])
    names = [] if part.tokens is None else [str(t) for t in part.tokens[max(start, k - _BEFORE) : k + 1].tolist()]
    token, before = (names[-1], tuple(names[:-1])) if names else ("", ())
    return WorstToken(where, position, token, before, float(part.rollout[k]), float(part.train[k]), share)


def _response(part: TraceSet, i: int, share: float) -> WorstResponse:
    d = part.log_ratio[part.starts[i] : part.starts[i + 1]]
    percentiles = dict(zip((f"{p}%" for p in _PERCENTS), np.percentile(d, _PERCENTS).tolist(), strict=True))
    return WorstResponse(part.where[i], part.prompt_ids[part.prompt[i]], d.size, share, percentiles)
