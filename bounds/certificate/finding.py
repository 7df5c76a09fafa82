"""Something remarkable about a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, in words; on how much of the log; what it does to the result."""

    name: str
    text: str
    count: int
    unit: str
    effect: str

    def __str__(self) -> str:
        return self.text
