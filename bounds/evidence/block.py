"""Records side by side, as columnar files hold them: where nothing is remarkable, they are checked all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.evidence.response import EXACT_RANGE, POSITIVE_TOLERANCE, SENTINEL, Reading


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Canonical records of one file; the tokens of record i are ``starts[i]:starts[i+1]`` of each array."""

    path: str
    first_row: int
    starts: IntArray
    tokens: Mapping[str, FloatArray]  # the per-token fields; null is NaN
    rows: Mapping[str, Sequence[Any]]  # the other fields, one entry a record

    def __len__(self) -> int:
        return self.starts.size - 1

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records one by one, each with its place."""
        for i in range(len(self)):
            tokens = slice(self.starts[i], self.starts[i + 1])
            fields = {name: values[tokens] for name, values in self.tokens.items()}
            yield self.place(i), fields | {name: values[i] for name, values in self.rows.items()}

    def place(self, i: int) -> str:
        """Where record i stands."""
        return f"{self.path}: row {self.first_row + i}"

    def column(self, name: str) -> Sequence[Any] | None:
        """A field that stands once in each record; None where no record has it."""
        values = self.rows.get(name)
        return None if values is None or all(v is None for v in values) else values

    def unremarkable(self, reading: Reading) -> bool:
        """Whether checking its records one by one would find nothing to refuse, to leave out or to count."""
        if not {"rollout_logprobs", "train_logprobs"} <= self.tokens.keys() or "mask" in self.tokens:
            return False
        if len(self) == 0 or (np.diff(self.starts) == 0).any():
            return False
        tolerance = POSITIVE_TOLERANCE[reading.logprob_dtype]
        return all(
            _inside(values, 0.0, EXACT_RANGE[name])
            if name in EXACT_RANGE
            else bool(values.min() > SENTINEL and values.max() <= tolerance)
            for name, values in self.tokens.items()
        )


def _inside(values: FloatArray, low: float, high: float) -> bool:
    return bool(values.min() >= low and values.max() <= high)  # both false for NaN
