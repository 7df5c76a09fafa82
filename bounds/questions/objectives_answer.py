"""What trainers really optimise, next to the surrogate that the bounds speak of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._text import Cells, shown
from bounds.results import Interval, Result
from bounds.rules.bound import Bound

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: its value, what L' exceeds it by, and what the guarantee says of it."""

    name: str
    what: str
    value: Interval | None
    difference: Interval | None
    says: str


@dataclass(frozen=True, slots=True, repr=False)
class ObjectiveTable(Result):
    """Objectives in use, and the bound on |J(theta) - J(roll) - L'|."""

    objectives: tuple[Objective, ...]
    best: Bound | None

    def sentence(self) -> str:
        """What the differences are for."""
        if self.best is None:
            return "No bound applies; the differences to L' stand by themselves."
        return (
            f"|J(theta) - J(roll) - L'| <= {shown(self.best.value)} ({self.best.name}); an objective that differs "
            "from L' by d misses J(theta) - J(roll) by at most |d| more."
        )

    def tables(self) -> list[Cells]:
        """One row for each objective."""
        rows = []
        for o in self.objectives:
            value, difference = (_cell(i) for i in (o.value, o.difference))
            rows.append(([o.name, value, difference, o.says, o.what], False))
        return [(["objective", "value", "L' - it", "what the guarantee says", "what it is"], rows)]

    def notes(self) -> list[str]:
        """Where the intervals come from."""
        return ["Intervals are clustered by prompt and asymptotic. Ratios are theta/roll of the sampled tokens."]

    def to_frame(self) -> pd.DataFrame:
        """One row for each objective; what cannot be estimated is left empty."""
        import pandas as pd

        rows = []
        for o in self.objectives:
            row: dict[str, Any] = {"name": o.name, "what": o.what, "says": o.says}
            for name, i in (("value", o.value), ("difference", o.difference)):
                ends = (None, None, None) if i is None else (i.value, i.low, i.high)
                row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
            rows.append(row)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "objectives": [
                {
                    "name": o.name,
                    "what": o.what,
                    "value": None if o.value is None else o.value.to_dict(),
                    "difference": None if o.difference is None else o.difference.to_dict(),
                    "says": o.says,
                }
                for o in self.objectives
            ],
            "b_star": None if self.best is None else self.best.to_dict(),
        }


def _cell(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    value, low, high = interval.texts()
    return value if low == high else f"{value} [{low}, {high}]"
