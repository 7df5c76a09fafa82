"""Why a number may be believed, what was assumed, and an estimate with its interval."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bounds._show import finite, near, shown, shown_down


class Standing(enum.IntEnum):
    """Why a number may be believed; larger is weaker, and a result is as weak as its weakest input."""

    PROVED = 0
    MEASURED = 1
    ESTIMATED = 2
    ASSUMED = 3

    @property
    def label(self) -> str:
        """The word used in text and JSON."""
        return self.name.lower()


def weakest(standings: Iterable[Standing]) -> Standing:
    """The weakest of some standings (PROVED when there is none)."""
    return max(standings, default=Standing.PROVED)


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that somebody said and nobody proved."""

    what: str
    value: object
    why: str

    def __str__(self) -> str:
        return f"{self.what} = {self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with what surrounds it at a confidence; a side that nothing is known about is infinite."""

    value: float
    low: float
    high: float
    confidence: float
    standing: Standing
    method: str
    of: str = ""  # what was averaged

    def texts(self) -> tuple[str, str, str]:
        """Value, low and high for people: three digits, more where the ends would look equal; ends rounded outward."""
        for digits in range(3, 9):
            low, high = shown_down(self.low, digits), shown(self.high, digits)
            if low != high or self.low == self.high:
                break
        return near(self.value, digits), low, high

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; infinite and undefined numbers are null, an infinite value is also vacuous."""
        return {
            "value": finite(self.value),
            "low": finite(self.low),
            "high": finite(self.high),
            "confidence": self.confidence,
            "standing": self.standing.label,
            "method": self.method,
            "of": self.of,
            **({"vacuous": True} if math.isinf(self.value) else {}),
        }


def assumption_dicts(assumptions: Iterable[Assumption]) -> list[dict[str, Any]]:
    """Assumptions, JSON-ready."""
    return [{"what": a.what, "value": a.value, "why": a.why} for a in assumptions]
