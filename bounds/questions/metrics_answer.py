"""The scalars that trainers log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._text import Cells
from bounds.results import Interval, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One scalar, over which sample, what is averaged, and who calls it so."""

    interval: Interval
    sample: str
    meaning: str
    note: str


@dataclass(frozen=True, slots=True, repr=False)
class MetricsTable(Result):
    """Scalars by name."""

    metrics: Mapping[str, MetricValue]

    def __getitem__(self, name: str) -> MetricValue:
        return self.metrics[name]

    def sentence(self) -> str:
        """What they are of."""
        return f"Of {self.metrics['kl'].sample}, {self.metrics['chi2_seq'].sample}; log-ratios are not clamped."

    def tables(self) -> list[Cells]:
        """One row for each scalar."""
        rows = []
        for name, m in self.metrics.items():
            value, low, high = m.interval.texts()
            rows.append(([name, value, f"{low} to {high}", f"mean of {m.meaning} over {m.sample}", m.note], False))
        level = f"{100 * self.metrics['kl'].interval.confidence:.6g}% interval"
        return [(["metric", "value", level, "what", "known from"], rows)]

    def notes(self) -> list[str]:
        """Signs and intervals."""
        return ["d = log pi - log mu of a sampled token. Intervals are clustered by prompt and asymptotic."]

    def to_frame(self) -> pd.DataFrame:
        """One row for each scalar."""
        import pandas as pd

        rows = [
            {"name": n, "value": m.interval.value, "low": m.interval.low, "high": m.interval.high, "sample": m.sample,
             "mean_of": m.meaning, "note": m.note}
            for n, m in self.metrics.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "metrics": {
                name: {**m.interval.to_dict(), "sample": m.sample, "mean_of": m.meaning, "note": m.note}
                for name, m in self.metrics.items()
            }
        }
