"""Responses that stand in a log twice: a file copied, or chunks that repeat what earlier ones held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bounds.evidence.response import TraceError

_SLOTS = 2**20  # 12 MB however long the log; past a million responses some repeats go unseen
_SHORTEST = 8  # policy tokens: shorter answers are often the same by right
_FEWEST = 5


class Repeats:
    """Notices the same prompt with bitwise the same rollout log-probs, in constant memory."""

    def __init__(self) -> None:
        self._seen = np.zeros(_SLOTS, dtype=np.uint64)
        self._file = np.zeros(_SLOTS, dtype=np.int32)
        self._count = 0
        self._first = ""
        self._files: list[Path] = []
        self._rows = self._from_earlier = 0

    def begin(self, path: Path) -> None:
        """Rows of this file follow."""
        self._files.append(path)
        self._rows = self._from_earlier = 0

    def see(self, where: str, record: Mapping[str, Any]) -> None:
        """Look at one row."""
        number = _fingerprint(record)
        if number is None:
            return
        self._rows += 1
        slot, this = number % _SLOTS, len(self._files)
        if int(self._seen[slot]) == number:
            self._count += 1
            self._first = self._first or where
            self._from_earlier += int(self._file[slot]) != this
        else:
            self._seen[slot], self._file[slot] = number, this

    def end(self) -> None:
        """The file is read.

        Raises
        ------
        TraceError
            If most of it stood in earlier files.
        """
        if self._from_earlier >= _FEWEST and 2 * self._from_earlier >= self._rows:
            raise TraceError(
                f"{self._files[-1]}: {self._from_earlier} of its responses stand, bitwise the same, in files before it "
                "(chunks that repeat earlier ones?); give each response once"
            )

    def remark(self) -> str:
        """What to warn of, or ""."""
        if not self._count:
            return ""
        return (
            f"{self._count} responses stand in the log twice (same prompt, bitwise the same rollout log-probs; first: "
            f"{self._first}): if they were not drawn twice, intervals are too narrow"
        )


def _fingerprint(record: Mapping[str, Any]) -> int | None:
    """A 64-bit hash of the prompt and the rollout log-probs; None for a short or malformed row."""
    try:
        drawn = np.asarray(record["rollout_logprobs"], dtype=np.float64)
        if record.get("mask") is not None:
            drawn = drawn[np.asarray(record["mask"], dtype=np.float64) != 0.0]
        if drawn.size < _SHORTEST:
            return None
        state = hashlib.blake2b(repr(record.get("prompt_id")).encode(), digest_size=8)
        state.update(np.asarray(record.get("prompt_tokens"), dtype=np.float64).tobytes())
        state.update(drawn.tobytes())
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None  # what is wrong with it is said where the record is checked
    return int.from_bytes(state.digest(), "little") or 1
