"""Every figure: a name, the function that makes its data, the function that draws it.

``trm-bounds figures`` and the notebooks draw from here; each figure is written as PNG, PDF, and a CSV of
exactly the numbers that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import unknown
from bounds.surface import plots
from bounds.theory.unified import unified

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The inputs of the paper's table (2512.23075v4): T = 4096, delta = 1e-4, D = 0.01; and with total variations.
PAPER_KL_ONLY: dict[str, Any] = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
PAPER_KL_AND_TV: dict[str, Any] = {**PAPER_KL_ONLY, "epsilon": 5e-3, "tv_seq": 0.05}


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """How a figure is made."""

    title: str
    data: Callable[[], pd.DataFrame]
    draw: Callable[[pd.DataFrame, Axes], Axes]
    size: tuple[float, float]  # inches


def comparison_data() -> pd.DataFrame:
    """Every rule at the paper's inputs: columns inputs, rule, family, value, vacuous."""
    import pandas as pd

    rows = [
        {"inputs": label, "rule": b.name, "family": b.family, "value": b.value, "vacuous": b.vacuous}
        for label, known in (("KL only", PAPER_KL_ONLY), ("KL and TV", PAPER_KL_AND_TV))
        for b in unified(**known).bounds
    ]
    return pd.DataFrame(rows)


def scaling_data() -> pd.DataFrame:
    """Every rule against T at delta = 1e-4, epsilon = 5e-3: columns T, rule, family, value, slope (d log / d log T)."""
    import pandas as pd

    horizons = sorted({4096, *np.unique(np.geomspace(16, 10**6, 61).round().astype(int)).tolist()})
    rows = []
    for T in horizons:
        ahead = {b.name: b.value for b in unified(T=T + max(1, T // 100), delta=1e-4, epsilon=5e-3).bounds}
        for b in unified(T=T, delta=1e-4, epsilon=5e-3).bounds:
            slope = np.log(ahead[b.name] / b.value) / np.log((T + max(1, T // 100)) / T)
            rows.append({"T": T, "rule": b.name, "family": b.family, "value": b.value, "slope": slope})
    return pd.DataFrame(rows)


FIGURES: dict[str, FigureEntry] = {
    "comparison": FigureEntry(
        "The bound at the paper's inputs\n(T = 4096, δ = 1e-4, D = 0.01; with total variations ε = 5e-3, TV = 0.05)",
        comparison_data,
        plots.plot_comparison,
        (7.2, 8.4),
    ),
    "scaling": FigureEntry(
        "How the bounds grow with the horizon (δ = 1e-4, ε = 5e-3)",
        scaling_data,
        plots.plot_scaling,
        (7.2, 4.4),
    ),
}


def draw(name: str) -> Figure:
    """Draw one figure.

    Raises
    ------
    KeyError
        If there is no figure of this name; with the likely meant one.
    """
    entry = _entry(name)
    return _draw(entry, entry.data())


def write(names: Iterable[str] = (), out: str | Path = "figures") -> list[Path]:
    """Write figures (all, if none is named) as PNG, PDF and CSV into a folder; returns the paths."""
    entries = {name: _entry(name) for name in list(names) or FIGURES}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, entry in entries.items():
        data = entry.data()
        figure = _draw(entry, data)
        for suffix, options in ((".png", {"dpi": 200}), (".pdf", {"metadata": {"CreationDate": None}})):
            figure.savefig(folder / f"{name}{suffix}", **options)
            paths.append(folder / f"{name}{suffix}")
        data.to_csv(folder / f"{name}.csv", index=False, float_format="%.12g")
        paths.append(folder / f"{name}.csv")
    return paths


def _entry(name: str) -> FigureEntry:
    if name not in FIGURES:
        raise KeyError(unknown("figure", name, FIGURES))
    return FIGURES[name]


def _draw(entry: FigureEntry, data: pd.DataFrame) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=entry.size, layout="constrained")
    ax = entry.draw(data, figure.subplots())
    ax.set_title(entry.title, fontsize=9, loc="left")
    return figure
