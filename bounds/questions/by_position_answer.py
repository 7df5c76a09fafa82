"""Divergences by position in the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._text import Cells, Row
from bounds.results import Interval, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class PositionBin:
    """Positions ``first`` to ``last`` (from 0): mean divergence of a token there, of each kind.

    ``reached``: how many tokens a response has there, in the mean, over how many it could have.
    """

    first: int
    last: int
    reached: float
    divergences: Mapping[str, Interval]


@dataclass(frozen=True, slots=True, repr=False)
class ByPosition(Result):
    """Mean divergence of a token by its position in the response.

    Attributes
    ----------
    bins : tuple of PositionBin
        In order; all of one width, a power of two. Values are nats (kl) or plain numbers (tv, chi2) per token.
    how : mapping of name to text
        Where each divergence comes from: an exact column, or the sampled tokens.
    confidence : float
        Of the intervals: prompt-clustered, asymptotic.
    """

    bins: tuple[PositionBin, ...]
    how: Mapping[str, str]
    confidence: float

    def sentence(self) -> str:
        """Where the divergence of a token is largest."""
        top = max(self.bins, key=lambda b: b.divergences["kl"].value)
        where = f"position {top.first}" if top.first == top.last else f"positions {top.first} to {top.last}"
        value = top.divergences["kl"].texts()[0]
        return f"Counted from 0, the KL of a token is largest at {where}: {value} nats in the mean."

    def tables(self) -> list[Cells]:
        """One row for each bin."""
        rows: list[Row] = []
        for b in self.bins:
            name = f"{b.first}" if b.first == b.last else f"{b.first}-{b.last}"
            cells = [name, f"{b.reached:.1%}"]
            for i in b.divergences.values():
                value, low, high = i.texts()
                cells += [value, f"{low} to {high}"]
            rows.append((cells, False))
        level = f"{100 * self.confidence:.6g}% interval"
        return [(["position", "reached", *(t for name in self.how for t in (name, level))], rows)]

    def to_frame(self) -> pd.DataFrame:
        """One row for each bin: first, last, reached, and value, low and high of each divergence."""
        import pandas as pd

        rows = []
        for b in self.bins:
            row: dict[str, Any] = {"first": b.first, "last": b.last, "reached": b.reached}
            for name, i in b.divergences.items():
                row |= {name: i.value, f"{name}_low": i.low, f"{name}_high": i.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "confidence": self.confidence,
            "how": dict(self.how),
            "bins": [
                {
                    "first": b.first,
                    "last": b.last,
                    "reached": b.reached,
                    **{name: i.to_dict() for name, i in b.divergences.items()},
                }
                for b in self.bins
            ],
        }

    def notes(self) -> list[str]:
        """What was averaged."""
        sources = "; ".join(f"{name}: {how}" for name, how in self.how.items())
        return [f"Means over the tokens that responses have there; {sources}. Intervals are clustered by prompt."]
