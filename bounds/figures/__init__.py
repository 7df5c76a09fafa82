"""Every figure: a name, the function that makes its data, the functions that draw it.

``trm-bounds figures`` and the notebooks draw from here. Each figure is written as PNG (for light and for dark
surroundings), as PDF, and as a CSV of exactly the numbers that are drawn; the paper's tables
(:mod:`bounds.figures.tables`) go beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds._checks import unknown
from bounds.figures import logs, theory
from bounds.figures.drawing import Draw, Told, figure_of
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
    told : callable or pair of str
        Title and subtitle: what to see, and of what. A callable reads them off the numbers.
    data : callable
        The numbers; with several panels, a column ``panel`` says which each row belongs to.
    draws : tuple of callables
        ``draw(frame, ax) -> ax``, one for each panel, row by row.
    height : float
        Inches; the width is one column of a paper.
    columns : int
        How many panels stand beside each other.
    ratios : tuple of float
        Relative heights of panels that have nothing in common, each with margins of its own.
    hue : callable, optional
        The colour of the title, where the numbers decide it.
    """

    told: Told | Callable[[pd.DataFrame], Told]
    data: Callable[[], pd.DataFrame]
    draws: tuple[Draw, ...]
    height: float
    columns: int = 1
    ratios: tuple[float, ...] = ()
    hue: Callable[[pd.DataFrame], str] = lambda _: "ink"

    def says(self, data: pd.DataFrame) -> Told:
        """Return title and subtitle of these numbers."""
        return self.told(data) if callable(self.told) else self.told

    def figure(self, data: pd.DataFrame) -> Figure:
        """Draw these numbers, in the look of the moment."""
        shape: dict[str, Any] = {"columns": self.columns, "ratios": self.ratios, "hue": self.hue(data)}
        return figure_of(data, self.draws, self.height, told=self.says(data), **shape)

    def write(self, stem: Path) -> list[Path]:
        """Write ``stem.png``, ``stem.dark.png``, ``stem.pdf`` and ``stem.csv``."""
        data = self.data()
        return save(lambda: self.figure(data), data, stem)


_AT_PAPER = "$T$ = 4096 tokens, KL of a token up to $10^{-4}$"

FIGURES: dict[str, FigureEntry] = {
    "comparison": FigureEntry(theory.comparison_told, theory.comparison_data, (theory.draw_comparison,), 2.6),
    "verdict": FigureEntry(
        lambda frame: logs.verdict_told(frame)[0],
        logs.example_verdict,
        (logs.draw_verdict,),
        2.2,
        hue=lambda frame: logs.verdict_told(frame)[1],
    ),
    "scaling": FigureEntry(theory.scaling_told, theory.scaling_data, (theory.draw_scaling,), 2.3),
    "regimes": FigureEntry(
        ("Which bound is smallest, and where none helps", "Pale, beyond the line: it is above 1 and says nothing"),
        theory.regimes_data,
        (theory.draw_regimes,) * 3,
        2.1,
        columns=3,
    ),
    "adaptive_routes": FigureEntry(
        (
            "Near the end of a response TV bounds what a\nposition adds, 200 tokens before it KL does",
            f"{_AT_PAPER}, TV up to 0.0005",
        ),
        theory.adaptive_routes_data,
        (theory.draw_routes,),
        2.2,
    ),
    "tightness": FigureEntry(theory.tightness_told, theory.tightness_data, (theory.draw_tightness,), 2.9),
    "length_bias": FigureEntry(
        (
            "A mask on the largest divergence rejects\nresponses for being long",
            "Top: each token violates with probability p.\nBottom: $T$ = 4096, KL up to $10^{-4}$, TV up to 0.0005",
        ),
        theory.length_bias_data,
        (theory.draw_acceptance, theory.draw_weights),
        3.1,
    ),
    "certificate": FigureEntry(
        lambda frame: logs.verdict_told(frame)[0],
        logs.certificate_data,
        (logs.draw_verdict, logs.draw_positions, logs.draw_ladder),
        4.9,
        ratios=(1.7, 0.8, 1.7),
        hue=lambda frame: logs.verdict_told(frame)[1],
    ),
    "run_over_time": FigureEntry(
        logs.over_time_told, logs.run_over_time_data, (logs.draw_over_time,) * 6, 3.1, columns=2
    ),
    "mask_tradeoff": FigureEntry(
        (
            "Masks reject rewarded and other responses\nalike, and none shows more gain than no mask",
            "Each dot is a threshold; 95% intervals",
        ),
        logs.mask_tradeoff_data,
        (logs.draw_masks,) * 2,
        3.1,
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
    'tokens that follow, T − t'
    """
    if name not in FIGURES:
        raise KeyError(unknown("figure", name, FIGURES))
    with look("light"):
        return FIGURES[name].figure(FIGURES[name].data())


def write(
    names: Iterable[str] = (),
    out: str | Path = "figures",
    on_start: Callable[[str], None] | None = None,
    jobs: int = 1,
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
    jobs : int
        How many processes make them, each a file of its own; above 1 a script must be safe to import.

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
    with _mapped(min(jobs, len(chosen))) as mapped:
        files = iter(mapped(partial(_write, folder), chosen))
        paths = []
        for name in chosen:
            if on_start is not None:
                on_start(name)
            paths += next(files)
    return paths


@contextmanager
def _mapped(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Give out ``map``, or that of so many processes."""
    if jobs == 1:
        yield map
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield pool.map


def _write(folder: Path, name: str) -> list[Path]:
    entries: dict[str, FigureEntry | TableEntry] = {**FIGURES, **TABLES}
    return entries[name].write(folder / name)
