"""Responses that stand in a log twice: a file copied, or chunks that repeat what earlier ones held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray
from bounds.logs.block import Block
from bounds.logs.response import TraceError

_SLOTS = 2**20  # 12 MB however long the log; past a million responses some repeats go unseen
_PROBABLE = -30.0  # log-probability of a whole response: less probable ones are not drawn twice
_FEWEST = 5
_AT_ONCE = 256
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Repeats:
    """Notices the same prompt with bitwise the same rollout log-probs, in constant memory."""

    def __init__(self) -> None:
        self._seen = np.zeros(_SLOTS, dtype=np.uint64)
        self._file = np.zeros(_SLOTS, dtype=np.int32)
        self._rows: list[int] = []  # of each file, those that were looked at
        self._again: Counter[int] = Counter()  # of each earlier file, rows that stand in this one too
        self._waiting: list[tuple[Any, ...]] = []  # rows that were looked at, but not compared yet

    def begin(self) -> None:
        """Rows of another file follow."""
        self._rows.append(0)
        self._again.clear()

    def see(self, where: str, record: Mapping[str, Any]) -> None:
        """Look at one row."""
        try:
            drawn = np.asarray(record["rollout_logprobs"], dtype=np.float64)
            if record.get("mask") is not None:
                drawn = drawn[np.asarray(record["mask"], dtype=np.float64) != 0.0]
            if drawn.ndim == 1 and drawn.size:
                prompt = hash(repr(record.get("prompt_id")) + repr(record.get("prompt_tokens")))
                self._waiting.append((where, prompt, _totals(drawn, [0])[0], drawn[0], drawn[-1], drawn.size))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            return  # what is wrong with it is said where the record is checked
        if len(self._waiting) >= _AT_ONCE:
            self._see_waiting()

    def _see_waiting(self) -> None:
        if self._waiting:
            where, *columns = zip(*self._waiting, strict=True)
            self._waiting.clear()
            self._see(where, *map(np.array, columns))

    def see_block(self, block: Block) -> None:
        """Look at all rows of a block, none of them empty."""
        self._see_waiting()
        drawn, starts = block.tokens["rollout_logprobs"], block.starts
        prompts = block.column("prompt_id") or [None] * len(block)
        hashes = np.array([hash(repr(prompt) + "None") for prompt in prompts])
        first, last = drawn[starts[:-1]], drawn[starts[1:] - 1]
        self._see(block.places, hashes, _totals(drawn, starts[:-1]), first, last, np.diff(starts))

    def _see(self, where: Sequence[str], prompt: IntArray, total: FloatArray, *rest: npt.NDArray[Any]) -> None:
        """Sum, ends and length of the log-probs stand for all of them: other responses do not agree to the last bit."""
        rows = np.flatnonzero(total < _PROBABLE)
        number = _mixed(*(column[rows] for column in (prompt, total, *rest)))
        slot, this = number % np.uint64(_SLOTS), len(self._rows) - 1
        again = self._seen[slot] == number
        for file, times in Counter(self._file[slot[again]].tolist()).items():
            self._again[file] += times
        self._rows[-1] += rows.size
        self._seen[slot[~again]], self._file[slot[~again]] = number[~again], this

    def end(self, path: Path) -> None:
        """The file is read.

        Raises
        ------
        TraceError
            If half of it stood in an earlier file, or half of an earlier file stands in it.
        """
        self._see_waiting()
        this = len(self._rows) - 1
        for file, again in self._again.items():
            if file != this and again >= _FEWEST and 2 * again >= min(self._rows[file], self._rows[this]):
                raise TraceError(
                    f"{path}: {again} of its responses stand, bitwise the same, in a file before it (chunks that "
                    "repeat earlier ones?); give each response once"
                )


def _totals(drawn: FloatArray, starts: IntArray | list[int]) -> FloatArray:
    """Sums from each start to the next."""
    with np.errstate(invalid="ignore"):  # of inf and -inf, which are no log-probs
        return np.asarray(np.add.reduceat(drawn, starts))


def _mixed(*columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """A number, not 0, for each row of some columns of 64 bits; equal rows have equal numbers."""
    number = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        number = (number ^ column.view(np.uint64)) * _ODD
        number ^= number >> np.uint64(32)
    return np.maximum(number, np.uint64(1))
