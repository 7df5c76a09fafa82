"""The paper's tables, recomputed: as CSV in full precision, as LaTeX (booktabs) and as Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds._text import latex_table, markdown_table, shown
from bounds.figures.drawing import share_text
from bounds.figures.theory import PAPER_KL_AND_TV, PAPER_KL_ONLY, PAPER_LENGTHS, PAPER_VIOLATIONS
from bounds.masks.statistics import unviolated
from bounds.rules.unified import unified

if TYPE_CHECKING:
    import pandas as pd

PAPER_LARGE: dict[str, Any] = {"T": 4096, "delta": 1.0, "kl_seq": 1.0}


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table.

    Attributes
    ----------
    title : str
        What it says.
    data : callable
        The numbers; the first column names the rows.
    text : callable
        How a number is written for people.
    """

    title: str
    data: Callable[[], pd.DataFrame]
    text: Callable[[float], str]

    def write(self, stem: Path) -> list[Path]:
        """Write ``stem.csv``, ``stem.tex`` (a tabular for booktabs) and ``stem.md``."""
        data = self.data()
        titles = [str(column) for column in data.columns]
        rows = [[str(first), *map(self.text, others)] for first, *others in data.itertuples(index=False)]
        paths = [stem.with_suffix(suffix) for suffix in (".csv", ".tex", ".md")]
        data.to_csv(paths[0], index=False)
        paths[1].write_text(f"% {self.title}\n{latex_table(titles, rows)}\n", encoding="utf-8")
        paths[2].write_text(f"{self.title}\n\n{markdown_table(titles, rows)}\n", encoding="utf-8")
        return paths


def _bounds_at(columns: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Evaluate the published rules and both B* at several inputs, one column each."""
    import pandas as pd

    tables = {title: unified(**known) for title, known in columns.items()}
    published = dict.fromkeys(b.name for table in tables.values() for b in table if b.family == "published")
    rows = [{"bound": name, **{title: table[name].value for title, table in tables.items()}} for name in published]
    for bound, best in (("B*, published", "best_published"), ("B*, this project", "best")):
        rows.append({"bound": bound, **{title: getattr(table, best).value for title, table in tables.items()}})
    return pd.DataFrame(rows)


def table_bounds_data() -> pd.DataFrame:
    """Evaluate the published bounds from KL alone, and from KL and total variations."""
    return _bounds_at({"KL only": PAPER_KL_ONLY, "KL and TV": PAPER_KL_AND_TV})


def table_bounds_by_size_data() -> pd.DataFrame:
    """Evaluate the published bounds at small (delta = 1e-4, D = 0.01) and at large divergence (delta = 1, D = 1)."""
    return _bounds_at({"small: δ = 1e-4, D = 0.01": PAPER_KL_ONLY, "large: δ = 1, D = 1": PAPER_LARGE})


def table_length_bias_data() -> pd.DataFrame:
    """Say what TRM-Max keeps of responses of a length, were violations independent: (1-p)^T."""
    import pandas as pd

    kept = {f"p = {p:g}": unviolated(p, PAPER_LENGTHS) for p in PAPER_VIOLATIONS}
    return pd.DataFrame({"T": PAPER_LENGTHS, **kept})


def _bound_text(value: float) -> str:
    """Round up, as bounds are."""
    return shown(value, 6)


TABLES: dict[str, TableEntry] = {
    "table_bounds": TableEntry(
        "Bounds on |Error| at T = 4096, δ = 1e-4, D = 0.01; with total variations ε = 5e-3 and 0.05 of a response",
        table_bounds_data,
        _bound_text,
    ),
    "table_bounds_by_size": TableEntry(
        "Bounds on |Error| at T = 4096 for small and for large divergence", table_bounds_by_size_data, _bound_text
    ),
    "table_length_bias": TableEntry(
        "Share of responses of T tokens that TRM-Max keeps, where a token violates with probability p",
        table_length_bias_data,
        share_text,
    ),
}
