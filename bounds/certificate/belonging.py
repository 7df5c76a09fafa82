"""Whether both log-probs at a position are of one token: stretches of a response that belong elsewhere, by evidence.

Compared are v = log(0.05 - log-prob), so that noise of a few per cent counts alike for all tokens. Evidence is the
logarithm of a likelihood ratio, in nats: theta's value was drawn near roll's at another place (of the same response, or
in another one), against the better of two rivals, token by token: near roll's value here, at whatever scale, or
unrelated to it, drawn from the values of all tokens. Under any mixture of the rivals a stretch that starts at a given
place has evidence above z with probability e^-z at most (Ville), however it ends; starts and places tried are
subtracted as logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds._text import many, span
from bounds.logs.traces import TraceSet

#: A response with a smaller sum of k3 has no stretch that belongs elsewhere.
LEAST_K3 = 0.5
#: Responses of a part of a log that are searched through, the most unlike first.
SEARCHED = 128

_SHORT = 0.05  # log-probs nearer to 0 than this are alike
_BIN = 0.1
_BINS = 80  # of v, from log(_SHORT) on
_NEAR = 0.1  # values no farther from each other than this are as good as equal
_NOISE = (0.02, 0.1)
_WORTH_SAYING = 8.0
_LAGS = (1, -1, 2, -2)  # tried on every response
_ALL_LAGS = 256  # a longer response is not tried at every lag
_PEAKS = 8
_COMPARED = 256  # tokens of other responses
_CELLS = 2**22  # tokens of other responses, in all
_SAMPLED = 2**15


def _scale(logprobs: FloatArray) -> FloatArray:
    return np.asarray(np.log(_SHORT + np.maximum(-logprobs, 0.0)))


def _cauchy(apart: FloatArray, *scales: float) -> FloatArray:
    """Return the mean of Cauchy densities of these scales."""
    square = np.square(apart)
    return np.asarray(sum(s / (np.pi * (s * s + square)) for s in scales) / len(scales))


@dataclass(frozen=True, slots=True)
class _Values:
    """Densities over the tokens of a log: of v under both policies, and of how far they are apart.

    Each is the largest of neighbouring bins, so that none is too small; a tenth of ``height`` is the same everywhere.
    """

    height: FloatArray
    apart: FloatArray

    @classmethod
    def of(cls, traces: TraceSet) -> Self:
        some = slice(None, None, 1 + traces.rollout.size // _SAMPLED)
        roll, theta = _scale(traces.rollout[some]), _scale(traces.train[some])
        height = cls._shares(cls.bin(np.concatenate([roll, theta])), 0.5)
        return cls(0.9 * height + 0.1 / _BINS / _BIN, cls._shares(cls._far(theta - roll), 0.0) / 2.0)

    @staticmethod
    def _shares(bins: IntArray, more: float) -> FloatArray:
        counts = np.bincount(bins, minlength=_BINS) + more
        wide = np.pad(counts, 1)
        return np.asarray(np.max([wide[:-2], wide[1:-1], wide[2:]], axis=0) / (counts.sum() * _BIN))

    @staticmethod
    def _far(gap: FloatArray) -> IntArray:
        return np.asarray(np.minimum(np.abs(gap) / _BIN, _BINS - 1), dtype=np.int64)

    @staticmethod
    def bin(v: FloatArray) -> IntArray:
        """Return the bins of values."""
        return np.asarray(np.clip((v - np.log(_SHORT)) / _BIN, 0, _BINS - 1), dtype=np.int64)

    def at(self, v: FloatArray) -> FloatArray:
        """Return the density at these values."""
        return np.asarray(self.height[self.bin(v)])

    def elsewhere(self, here: FloatArray, there: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the evidence of each token that theta's value belongs to roll's ``there``, not to that ``here``."""
        free, beyond = self.at(theta), np.maximum(np.abs(theta - here) - _NEAR, 0.0)
        any_scale = 0.5 / np.pi / (beyond + _NEAR)
        rivals = np.maximum(np.maximum(_cauchy(beyond, *_NOISE), any_scale), free)
        return np.asarray(np.log((0.9 * _cauchy(theta - there, *_NOISE) + 0.1 * free) / rivals))

    def unrelated(self, here: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the evidence of each token that theta's value is not one near roll's here; beyond that of the log."""
        free, gap = self.at(theta), theta - here
        near = sum(2.0 * s**3 / (np.pi * np.square(s * s + gap * gap)) for s in (*_NOISE, 0.4)) / 3.0
        usual = np.maximum(near, self.apart[self._far(gap)])
        odd, more = (np.log(free / (0.95 * density + 0.05 * free)) for density in (near, usual))
        return odd, more


@dataclass(frozen=True, slots=True)
class Belonging:
    """Evidence [N], in nats, that a stretch of theta's log-probs in a response belongs elsewhere.

    ``misaligned`` to another place of the response, ``swapped`` to another response, ``unrelated`` not here, though
    those of other responses do. ``said`` names one of the three and says where, by row, for those that were searched;
    ``lagged`` is the evidence of all tokens that were looked at for each lag that is tried on every response, ``odd``
    that none belongs here.
    """

    misaligned: FloatArray
    swapped: FloatArray
    unrelated: FloatArray
    lagged: Mapping[int, float]
    odd: float
    said: Mapping[int, tuple[str, str]]


def belonging(traces: TraceSet, k3_sum: FloatArray) -> Belonging:
    """Look at every response that is not too alike, as its sum of k3 [N] says."""
    misaligned, swapped, unrelated = np.zeros((3, len(traces)))
    lagged: dict[int, float] = dict.fromkeys(_LAGS, 0.0)
    said: dict[int, tuple[str, str]] = {}
    total = 0.0
    rows = np.flatnonzero((k3_sum > LEAST_K3) & (traces.lengths > 1))
    if rows.size:
        values, some = _Values.of(traces), _Some.of(traces, rows)
        odd, more = values.unrelated(some.roll, some.theta)
        total, unrelated[rows] = float(odd.sum()), some.best(more) - 2.0 * np.log(some.size)
        for lag in _LAGS:
            evidence = values.elsewhere(some.roll, some.lagged(lag), some.theta)
            lagged[lag] = float(evidence.sum())
            misaligned[rows] = np.maximum(misaligned[rows], some.best(evidence) - np.log(len(_LAGS) * some.size))
        heads = _heads(traces)
        most = np.maximum(unrelated, misaligned)[rows]
        worst = np.argsort(-most, kind="stable")[: min(SEARCHED, np.count_nonzero(most > 0.0))]
        for k in worst.tolist():
            row, (x, y) = int(rows[k]), some.row(k)
            alone = _Stretch.of(values.unrelated(x, y)[1][None] * _first_times(x, y))
            (own, lag), (other, whose) = _own_lag(values, x, y, alone), _other_row(values, x, y, heads, row)
            unrelated[row] = alone.evidence - np.log(x.size)
            misaligned[row], swapped[row] = own.evidence, other.evidence
            if max(own.evidence, other.evidence) < _WORTH_SAYING:
                said[row] = "unrelated", f"unlike rollout_logprobs {alone.place(traces, row)}"
            elif other.evidence > own.evidence:
                misaligned[row], said[row] = 0.0, ("swapped", f"train_logprobs are those of {traces.where[whose]}")
            else:
                swapped[row] = 0.0
                side = "later" if lag > 0 else "earlier"
                place = own.place(traces, row, abs(lag))
                said[row] = "misaligned", f"shifted {place}: train_logprobs stand {many(abs(lag), 'token')} {side}"
    return Belonging(misaligned, swapped, unrelated, lagged, total, said)


@dataclass(frozen=True, slots=True)
class _Some:
    """Some responses of a log, on the scale on which they are compared."""

    roll: FloatArray
    theta: FloatArray
    starts: IntArray

    @classmethod
    def of(cls, traces: TraceSet, rows: IntArray) -> Self:
        chosen = np.zeros(len(traces), dtype=np.bool_)
        chosen[rows] = True
        tokens = np.repeat(chosen, traces.lengths)
        starts = np.concatenate([[0], np.cumsum(traces.lengths[rows])])
        return cls(_scale(traces.rollout[tokens]), _scale(traces.train[tokens]), starts)

    @property
    def size(self) -> IntArray:
        return np.diff(self.starts)

    def row(self, k: int) -> tuple[FloatArray, FloatArray]:
        its = slice(self.starts[k], self.starts[k + 1])
        return self.roll[its], self.theta[its]

    def lagged(self, lag: int) -> FloatArray:
        """Return roll's value that many tokens before; infinity beyond the ends of a response."""
        there = np.roll(self.roll, lag)
        at = np.arange(there.size) - lag - np.repeat(self.starts[:-1], self.size)
        there[(at < 0) | (at >= np.repeat(self.size, self.size))] = np.inf
        return there

    def best(self, evidence: FloatArray) -> FloatArray:
        """Return the largest sum over a stretch of each response."""
        total = np.cumsum(evidence)
        before, row = total - evidence, np.repeat(np.arange(self.size.size), self.size)
        apart = 2.0 * np.ptp(before) + 1.0  # so that a minimum is not of an earlier response
        least = np.minimum.accumulate(before - apart * row) + apart * row
        return np.asarray(np.maximum.reduceat(total - least, self.starts[:-1]))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The tokens from ``start`` to before ``stop`` of a response, with the most evidence, and for which alternative."""

    evidence: float
    which: int
    start: int
    stop: int

    @classmethod
    def of(cls, evidence: FloatArray) -> Self:
        """Find it in the evidence of each token for some alternatives [alternatives, tokens]."""
        total = np.cumsum(evidence, axis=1)
        before = total - evidence
        sums = total - np.minimum.accumulate(before, axis=1)
        which, last = np.unravel_index(int(np.argmax(sums)), sums.shape)
        start = int(np.argmin(before[which, : last + 1]))
        return cls(float(sums[which, last] - np.log(evidence.size)), int(which), start, int(last) + 1)

    def place(self, traces: TraceSet, row: int, slack: int = 0) -> str:
        """Say where it stands in a response."""
        first, n = int(traces.starts[row]), int(traces.lengths[row])
        start, last = (traces.locate(first + t)[1] for t in (self.start, self.stop - 1))
        if self.stop + slack + 2 < n:
            return f"at positions {span(start, last)}"
        return f"from position {start} on" if self.start > slack + 2 else "as a whole"


def _first_times(*values: FloatArray) -> BoolArray:
    """Return where values of a token come together for the first time: a loop says once what it says."""
    _, first = np.unique(np.stack([_Values.bin(v) for v in values]), axis=1, return_index=True)
    return np.isin(np.arange(values[0].size), first)


def _own_lag(values: _Values, x: FloatArray, y: FloatArray, odd: _Stretch) -> tuple[_Stretch, int]:
    """Find the stretch of a response that belongs to other positions of it, and how many tokens before.

    In a long response, lags are those at which theta's values on an odd stretch resemble roll's.
    """
    n, size = x.size, 2 * x.size
    lags = np.arange(1 - n, n)
    if n > _ALL_LAGS:
        part = np.zeros(n)
        part[odd.start : odd.stop] = y[odd.start : odd.stop] - y[odd.start : odd.stop].mean()
        product = np.fft.irfft(np.fft.rfft(part, size) * np.conj(np.fft.rfft(x - x.mean(), size)), size)
        lags = (np.unique([*np.argsort(-product)[:_PEAKS], *range(-_PEAKS, _PEAKS + 1)]) + n) % size - n
    found = []
    for some in (np.array(_LAGS), lags[lags != 0]):
        at = np.arange(n) - some[:, None]
        there = np.where((at >= 0) & (at < n), x[np.clip(at, 0, n - 1)], np.inf)
        evidence = values.elsewhere(x, there, y)
        best = _Stretch.of(evidence).which
        once = _Stretch.of((evidence[best] * _first_times(x, there[best], y))[None])
        found.append((replace(once, evidence=once.evidence - np.log(some.size)), int(some[best])))
    return max(found, key=lambda stretch_lag: stretch_lag[0].evidence)


def _heads(traces: TraceSet) -> FloatArray:
    """Return the first of roll's values of each response [N, compared], infinity after its end."""
    n = len(traces)
    wide = min(_COMPARED, int(traces.lengths.max()), max(8, _CELLS // n))
    at = traces.starts[:-1, None] + np.arange(wide)
    inside = at < traces.starts[1:, None]
    return np.where(inside, _scale(traces.rollout)[np.where(inside, at, 0)], np.inf)


def _other_row(values: _Values, x: FloatArray, y: FloatArray, heads: FloatArray, row: int) -> tuple[_Stretch, int]:
    """Find the response whose values roll's should be."""
    wide = min(x.size, heads.shape[1])
    apart = np.minimum(np.abs(heads[:, :wide] - y[:wide]), 1.0).sum(axis=1)
    apart[row] = np.inf
    other = int(np.argmin(apart))
    x, there, y = x[:wide], heads[other, :wide], y[:wide]
    found = _Stretch.of((values.elsewhere(x, there, y) * _first_times(x, there, y))[None])
    return replace(found, evidence=found.evidence - np.log(len(heads))), other
