"""Counts of what was seen in a log, with places; tallies of parts of a log add up, in any order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class Tally:
    """How often each thing was seen and where first, what was largest and where, which names occurred."""

    counts: dict[str, float] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    peaks: dict[str, tuple[float, str]] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)

    def __getitem__(self, what: str) -> int:
        """How often it was seen."""
        return int(self.counts.get(what, 0))

    def count(self, what: str, times: float, place: str = "") -> None:
        """Add to a count; ``place`` is where it was seen first in this part."""
        if times:
            self.counts[what] = self.counts.get(what, 0) + times
            if place:
                self.places[what] = min(self.places.get(what, place), place, key=_natural)

    def peak(self, what: str, value: float, place: str = "") -> None:
        """Keep the largest value, and its place."""
        if what not in self.peaks or value > self.peaks[what][0]:
            self.peaks[what] = (float(value), place)

    def name(self, what: str, names: Iterable[str]) -> None:
        """Add to a set of names."""
        self.names.setdefault(what, set()).update(names)

    def add(self, other: Self) -> None:
        """Add what was seen in another part of the log."""
        for what, times in other.counts.items():
            self.count(what, times, other.places.get(what, ""))
        for what, (value, place) in other.peaks.items():
            self.peak(what, value, place)
        for what, names in other.names.items():
            self.name(what, names)

    def clear(self) -> None:
        """Forget everything."""
        for part in (self.counts, self.places, self.peaks, self.names):
            part.clear()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        names = {what: sorted(found) for what, found in self.names.items()}
        return {"counts": self.counts, "places": self.places, "peaks": self.peaks, "names": names}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What :meth:`to_dict` gave."""
        peaks = {what: (float(value), str(place)) for what, (value, place) in saved["peaks"].items()}
        names = {what: set(found) for what, found in saved["names"].items()}
        return cls(dict(saved["counts"]), dict(saved["places"]), peaks, names)


def _natural(place: str) -> list[tuple[int, str]]:
    """Row 9 stands before row 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", place)]
