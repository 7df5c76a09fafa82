"""Responses that stand in a log twice: a file copied, or chunks that repeat what earlier ones held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.evidence.block import Block
from bounds.evidence.response import TraceError

_SLOTS = 2**20  # 12 MB however long the log; past a million responses some repeats go unseen
_PROBABLE = -30.0  # log-probability of a whole response: less probable ones are not drawn twice
_FEWEST = 5


class Repeats:
    """Notices the same prompt with bitwise the same rollout log-probs, in constant memory."""

    def __init__(self) -> None:
        self._seen = np.zeros(_SLOTS, dtype=np.uint64)
        self._file = np.zeros(_SLOTS, dtype=np.int32)
        self._rows: list[int] = []  # of each file, those that were looked at
        self._again: Counter[int] = Counter()  # of each earlier file, rows that stand in this one too
        self._count = 0
        self._first = ""

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
            prompt = repr(record.get("prompt_id")) + repr(record.get("prompt_tokens"))
            if drawn.size:
                self._see(where, prompt, _total(drawn, [0])[0], drawn[0], drawn[-1], drawn.size)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            return  # what is wrong with it is said where the record is checked

    def see_block(self, block: Block) -> None:
        """Look at all rows of a block, none of them empty."""
        drawn, starts = block.tokens["rollout_logprobs"], block.starts
        total = _total(drawn, starts[:-1])
        ends = zip(total, drawn[starts[:-1]].tolist(), drawn[starts[1:] - 1].tolist(), strict=True)
        lengths = np.diff(starts).tolist()
        prompts = block.column("prompt_id") or [None] * len(block)
        for i, (numbers, size, prompt) in enumerate(zip(ends, lengths, prompts, strict=True)):
            self._see(block.place(i), repr(prompt) + "None", *numbers, size)

    def _see(self, where: str, prompt: str, total: float, first: float, last: float, size: int) -> None:
        """Sum, ends and length of the log-probs stand for all of them: other responses do not agree to the last bit."""
        if not total < _PROBABLE:
            return
        number = hash((prompt, total, float(first), float(last), size)) % 2**64 or 1
        self._rows[-1] += 1
        slot, this = number % _SLOTS, len(self._rows) - 1
        if int(self._seen[slot]) == number:
            self._count += 1
            self._first = self._first or where
            self._again[int(self._file[slot])] += 1
        else:
            self._seen[slot], self._file[slot] = number, this

    def end(self, path: Path) -> None:
        """The file is read.

        Raises
        ------
        TraceError
            If half of it stood in an earlier file, or half of an earlier file stands in it.
        """
        this = len(self._rows) - 1
        for file, again in self._again.items():
            if file != this and again >= _FEWEST and 2 * again >= min(self._rows[file], self._rows[this]):
                raise TraceError(
                    f"{path}: {again} of its responses stand, bitwise the same, in a file before it (chunks that "
                    "repeat earlier ones?); give each response once"
                )

    def remark(self) -> str:
        """What to warn of, or ""."""
        if not self._count:
            return ""
        return (
            f"{self._count} responses stand in the log twice (same prompt, bitwise the same rollout log-probs; first: "
            f"{self._first}), too improbable to be drawn twice: they count twice here, and intervals are too narrow"
        )


def _total(drawn: FloatArray, starts: Sequence[int] | IntArray) -> list[float]:
    """Sums from each start to the next."""
    with np.errstate(invalid="ignore"):  # of inf and -inf, which are no log-probs
        return list(np.add.reduceat(drawn, starts).tolist())
