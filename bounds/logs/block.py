"""Records side by side, as columnar files hold them: where nothing is remarkable, they are checked all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.logs.response import EXACT_RANGE, POSITIVE_TOLERANCE, SENTINEL, Reading


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Canonical records of one file; the tokens of record i are ``starts[i]:starts[i+1]`` of each array."""

    path: str
    first_row: int
    starts: IntArray
    tokens: Mapping[str, FloatArray]  # the per-token fields; null is NaN
    ends: Mapping[str, tuple[float, float]]  # the least and the largest of each; NaN where there is one
    rows: Mapping[str, Sequence[Any]]  # the other fields, one entry a record

    def __len__(self) -> int:
        return self.starts.size - 1

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records one by one, each with its place."""
        for i, place in enumerate(self.places):
            tokens = slice(self.starts[i], self.starts[i + 1])
            fields = {name: values[tokens] for name, values in self.tokens.items()}
            yield place, fields | {name: values[i] for name, values in self.rows.items()}

    @property
    def places(self) -> Places:
        """Where each record stands."""
        return Places(self.path, range(self.first_row, self.first_row + len(self)))

    def column(self, name: str) -> Sequence[Any] | None:
        """A field that stands once in each record; None where no record has it."""
        values = self.rows.get(name)
        return None if values is None or values.count(None) == len(values) else values

    def unremarkable(self, reading: Reading) -> bool:
        """Whether checking its records one by one would find nothing to refuse, to leave out or to count."""
        if not {"rollout_logprobs", "train_logprobs"} <= self.tokens.keys() or "mask" in self.tokens:
            return False
        if len(self) == 0 or (np.diff(self.starts) == 0).any():
            return False
        tolerance = POSITIVE_TOLERANCE[reading.logprob_dtype]
        return all(  # all of this is false for NaN
            low >= 0.0 and high <= EXACT_RANGE[name] if name in EXACT_RANGE else low > SENTINEL and high <= tolerance
            for name, (low, high) in self.ends.items()
        )


@dataclass(frozen=True, slots=True)
class Places(Sequence[str]):
    """Where rows of one file stand; a text is made when it is asked for, which is seldom."""

    path: str
    rows: range

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> Places: ...
    def __getitem__(self, i: int | slice) -> str | Places:
        return Places(self.path, self.rows[i]) if isinstance(i, slice) else f"{self.path}: row {self.rows[i]}"
