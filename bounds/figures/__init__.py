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
from bounds.figures import data as figure_data
from bounds.figures import drawing
from bounds.figures.style import COLUMN, look
from bounds.figures.tables import TABLES, write_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Draw = Callable[["pd.DataFrame", "Axes"], "Axes"]


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
    draws: tuple[_Draw, ...]
    height: float
    ratios: tuple[float, ...] = ()


FIGURES: dict[str, FigureEntry] = {
    "comparison": FigureEntry(
        "The bound at the paper's inputs: T = 4096, δ = 1e-4, D = 0.01;\n"
        "with total variations ε = 5e-3 and 0.05 of a response",
        figure_data.comparison_data,
        (drawing.draw_comparison,),
        6.2,
    ),
    "scaling": FigureEntry(
        "How the bounds grow with the horizon (δ = 1e-4, ε = 5e-3)",
        figure_data.scaling_data,
        (drawing.draw_scaling,),
        4.0,
    ),
    "regimes": FigureEntry("Which rule is smallest", figure_data.regimes_data, (drawing.draw_regimes,) * 3, 8.8),
    "adaptive_routes": FigureEntry(
        "The two routes of the adaptive bound cross\nat T − t = δ/(2ε²) = 200 (T = 4096, δ = 1e-4, ε = 5e-4)",
        figure_data.adaptive_routes_data,
        (drawing.draw_routes,),
        2.6,
    ),
    "tightness": FigureEntry(
        "Worst error attained by known instances / bound\n(at T = 1 there is no error; 1.00 where the bound is 0, too)",
        figure_data.tightness_data,
        (drawing.draw_tightness,),
        4.6,
    ),
    "length_bias": FigureEntry(
        "A maximum rejects long responses;\nLN-TRM weighs positions instead",
        figure_data.length_bias_data,
        (drawing.draw_acceptance, drawing.draw_weights),
        4.2,
    ),
    "certificate": FigureEntry(
        "One log: divergence of a token by position (95 % intervals),\nand bounds on the error at these estimates",
        figure_data.certificate_data,
        (drawing.draw_positions,) * 3 + (drawing.draw_ladder,),
        8.0,
        (1.0, 1.0, 1.0, 3.2),
    ),
    "run_over_time": FigureEntry(
        "A run whose mismatch nobody corrects, TRM-Avg at 0.001\n"
        "(95 %: acceptance and improvement for every sample size,\nthe others asymptotic)",
        figure_data.run_over_time_data,
        (drawing.draw_over_time,) * 6,
        8.4,
    ),
    "mask_tradeoff": FigureEntry(
        "What masks keep, and what is left of the guarantee",
        figure_data.mask_tradeoff_data,
        (drawing.draw_masks,) * 2,
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
    >>> draw("scaling").axes[0].get_xlabel()
    'horizon T (tokens)'
    """
    if name not in FIGURES:
        raise KeyError(unknown("figure", name, FIGURES))
    with look("light"):
        return figure_of(FIGURES[name], FIGURES[name].data())


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
    chosen = list(dict.fromkeys(names)) or [*FIGURES, *TABLES]
    for name in chosen:
        if name not in FIGURES and name not in TABLES:
            raise KeyError(unknown("figure", name, [*FIGURES, *TABLES]))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in chosen:
        if on_start is not None:
            on_start(name)
        make = write_table if name in TABLES else _write_figure
        paths += make(name, folder)
    return paths


def _write_figure(name: str, folder: Path) -> list[Path]:
    entry = FIGURES[name]
    data = entry.data()
    return [*save(lambda: figure_of(entry, data), folder / name), write_csv(data, folder / f"{name}.csv")]


def save(make: Callable[[], Figure], stem: Path) -> list[Path]:
    """A figure as ``stem.png``, ``stem.dark.png`` (for dark surroundings) and ``stem.pdf``.

    Each says in its metadata what is written in it (:func:`words`), so that a stale one can be told.
    """
    paths = []
    for suffix, surroundings in ((".png", "light"), (".dark.png", "dark"), (".pdf", "light")):
        paths.append(stem.with_name(stem.name + suffix))
        with look(surroundings):
            figure = make()
            said = {"Description": words(figure)} if suffix != ".pdf" else {"Keywords": words(figure)}
            never = {"CreationDate": None} if suffix == ".pdf" else {}
            figure.savefig(paths[-1], dpi=300, metadata={**said, **never})
    return paths


def words(figure: Figure) -> str:
    """What is written in a figure; numbers on its scales only where they were set."""
    from matplotlib.ticker import FixedLocator

    found = [figure.get_suptitle()]
    for ax in figure.axes:
        legend = ax.get_legend()
        found += [*(ax.get_title(loc) for loc in ("left", "center", "right")), ax.get_xlabel(), ax.get_ylabel()]
        found += [text.get_text() for text in (*ax.texts, *(legend.get_texts() if legend else ()))]
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                found += [text.get_text() for text in axis.get_ticklabels()]
    return " | ".join(filter(None, found))


def write_csv(data: pd.DataFrame, path: Path) -> Path:
    """Exactly what is drawn."""
    data.to_csv(path, index=False)
    return path


def figure_of(entry: FigureEntry, data: pd.DataFrame) -> Figure:
    """A figure of these numbers, in the look of the moment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, entry.height), layout="constrained")
    figure.suptitle(entry.title, x=0.01, ha="left")
    count = len(entry.draws)
    axes = figure.subplots(count, 1, squeeze=False, height_ratios=entry.ratios or [1.0] * count)[:, 0]
    if count == 1:
        entry.draws[0](data, axes[0])
        return figure
    for ax, draw_panel, (panel, part) in zip(axes, entry.draws, data.groupby("panel", sort=False), strict=True):
        draw_panel(part, ax).set_title(str(panel))
    return figure
