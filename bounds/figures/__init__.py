"""Every figure: a name, the function that makes its data, the functions that draw it.

``trm-bounds figures`` and the notebooks draw from here. Each figure is written as PNG (for light and for dark
surroundings), as PDF, and as a CSV of exactly the numbers that are drawn; the paper's tables
(:mod:`bounds.figures.tables`) go beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bounds._checks import unknown
from bounds.figures import logs, theory
from bounds.figures.drawing import Draw, figure_of
from bounds.figures.style import look, save
from bounds.figures.tables import TABLES, TableEntry

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """How a figure is made.

    Attributes
    ----------
    title : str
        Stands above it; says what to see.
    data : callable
        The numbers; with several panels, a column ``panel`` says which each row belongs to.
    draws : tuple of callables
        ``draw(frame, ax) -> ax``, one for each panel, from top to bottom.
    height : float
        Inches; the width is one column of a paper.
    ratios : tuple of float
        Relative heights of the panels, if they differ.
    """

    title: str
    data: Callable[[], pd.DataFrame]
    draws: tuple[Draw, ...]
    height: float
    ratios: tuple[float, ...] = ()

    def figure(self, data: pd.DataFrame) -> Figure:
        """Draw these numbers, in the look of the moment."""
        figure = figure_of(data, self.draws, self.height, self.ratios)
        figure.suptitle(self.title, x=0.01, ha="left")
        return figure

    def write(self, stem: Path) -> list[Path]:
        """Write ``stem.png``, ``stem.dark.png``, ``stem.pdf`` and ``stem.csv``."""
        data = self.data()
        return save(lambda: self.figure(data), data, stem)


FIGURES: dict[str, FigureEntry] = {
    "comparison": FigureEntry(
        "The bound at the paper's inputs: T = 4096, δ = 1e-4, D = 0.01;\n"
        "with total variations ε = 5e-3 and 0.05 of a response",
        theory.comparison_data,
        (theory.draw_comparison,),
        6.2,
    ),
    "scaling": FigureEntry(
        "How the bounds grow with the horizon (δ = 1e-4, ε = 5e-3)",
        theory.scaling_data,
        (theory.draw_scaling,),
        4.0,
    ),
    "regimes": FigureEntry("Which rule is smallest", theory.regimes_data, (theory.draw_regimes,) * 3, 8.8),
    "adaptive_routes": FigureEntry(
        "The two routes of the adaptive bound cross\nat T − t = δ/(2ε²) = 200 (T = 4096, δ = 1e-4, ε = 5e-4)",
        theory.adaptive_routes_data,
        (theory.draw_routes,),
        2.6,
    ),
    "tightness": FigureEntry(
        "Worst error attained by known instances / bound\n(at T = 1 there is no error; 1.00 where the bound is 0, too)",
        theory.tightness_data,
        (theory.draw_tightness,),
        4.6,
    ),
    "length_bias": FigureEntry(
        "A maximum rejects long responses;\nLN-TRM weighs positions instead",
        theory.length_bias_data,
        (theory.draw_acceptance, theory.draw_weights),
        4.2,
    ),
    "certificate": FigureEntry(
        "One log: divergence of a token by position (95 % intervals),\nand bounds on the error at these estimates",
        logs.certificate_data,
        (logs.draw_positions,) * 3 + (logs.draw_ladder,),
        8.0,
        (1.0, 1.0, 1.0, 3.2),
    ),
    "run_over_time": FigureEntry(
        "A run whose mismatch nobody corrects, TRM-Avg at 0.001\n"
        "(95 %: acceptance and improvement for every sample size,\nthe others asymptotic)",
        logs.run_over_time_data,
        (logs.draw_over_time,) * 6,
        8.4,
    ),
    "mask_tradeoff": FigureEntry(
        "What masks keep, and what is left of the guarantee",
        logs.mask_tradeoff_data,
        (logs.draw_masks,) * 2,
        5.4,
    ),
}


def draw(name: str) -> Figure:
    """Draw one figure.

    Parameters
    ----------
    name : str
        A key of :data:`FIGURES`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    KeyError
        If there is no figure of this name; with the likely meant one.

    Examples
    --------
    >>> draw("adaptive_routes").axes[0].get_xlabel()
    'steps after the position, T − t'
    """
    if name not in FIGURES:
        raise KeyError(unknown("figure", name, FIGURES))
    with look("light"):
        return FIGURES[name].figure(FIGURES[name].data())


def write(
    names: Iterable[str] = (), out: str | Path = "figures", on_start: Callable[[str], None] | None = None
) -> list[Path]:
    """Write figures as PNG, PDF and CSV, and tables as LaTeX, Markdown and CSV.

    Parameters
    ----------
    names : iterable of str
        Keys of :data:`FIGURES` and :data:`bounds.figures.tables.TABLES`; all, if there is none.
    out : path
        The folder; it is made where it is missing.
    on_start : callable, optional
        Called with each name before it is made.

    Returns
    -------
    list of Path
        The files, in the order of writing. The CSV holds exactly the numbers that are drawn.

    Raises
    ------
    KeyError
        If there is no figure of a name; nothing is written then.
    """
    entries: dict[str, FigureEntry | TableEntry] = {**FIGURES, **TABLES}
    chosen = list(dict.fromkeys(names)) or list(entries)
    for name in chosen:
        if name not in entries:
            raise KeyError(unknown("figure", name, entries))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in chosen:
        if on_start is not None:
            on_start(name)
        paths += entries[name].write(folder / name)
    return paths
