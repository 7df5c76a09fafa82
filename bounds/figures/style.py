"""How figures look (on light paper, on a dark page, inside a page that may be either), and how they are written."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: One column of a paper, in inches.
COLUMN = 3.45

# Okabe and Ito's hues, which every kind of colour vision tells apart, where they are too light made darker: each has a
# contrast of 3 to white and to black. Blue and vermillion are the two families of bounds, the others come in this order
PUBLISHED, SHARP = "#0072B2", "#D55E00"
CYCLE = (PUBLISHED, "#BD7A00", "#009E73", "#C06C9B", "#2E95CF", "ink")
DASHES = ("-", "--", "-.", ":")

_PAGE_INK, _PAGE_PAPER = "#010203", "#040506"  # stand for the page's own colours, until the SVG is written
_LOOKS = {"light": ("#1a1a1a", "#ffffff"), "dark": ("#e6e6e6", "#121212"), "page": (_PAGE_INK, _PAGE_PAPER)}
_MUTED = {"light": "#999999", "dark": "#777777", "page": "#888888"}
_INKS = "text.color axes.labelcolor axes.edgecolor axes.titlecolor xtick.color ytick.color"
_PAPERS = "figure.facecolor axes.facecolor savefig.facecolor"
_SIZES = {
    "font.size": 7.0,
    "axes.labelsize": 7.0,
    "axes.titlesize": 7.0,
    "figure.titlesize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.0,
    "legend.title_fontsize": 6.0,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
}


@contextmanager
def look(name: str) -> Iterator[None]:
    """Draw and save inside: "light", "dark" or "page" (transparent, in the colours of the page around)."""
    import matplotlib

    ink, paper = _LOOKS[name]
    colours = dict.fromkeys(_INKS.split(), ink) | dict.fromkeys(_PAPERS.split(), paper)
    settings: dict[Any, Any] = {**_SIZES, **colours, "grid.color": _MUTED[name], "svg.hashsalt": "trm-bounds"}
    with matplotlib.rc_context(settings):
        yield


def ink() -> str:
    """Return the colour of text and axes in this look."""
    return _setting("text.color")


def paper() -> str:
    """Return the colour behind everything."""
    return _setting("axes.facecolor")


def muted() -> str:
    """Return the colour of what stays in the background."""
    return _setting("grid.color")


def _setting(name: Any) -> str:
    import matplotlib

    return str(matplotlib.rcParams[name])


def colour(k: int) -> str:
    """Return the k-th colour of a series."""
    found = CYCLE[k % len(CYCLE)]
    return ink() if found == "ink" else found


def save(make: Callable[[], Figure], data: pd.DataFrame, stem: Path) -> list[Path]:
    """Write a figure as ``stem.png``, ``stem.dark.png`` (for dark surroundings) and ``stem.pdf``, its data as CSV.

    Each picture says in its metadata what is written in it (:func:`words`), so that a stale one can be told.

    Parameters
    ----------
    make : callable
        Draws the figure, in the look of the moment.
    data : DataFrame
        Exactly what is drawn.
    stem : Path
        The files without their suffixes.

    Returns
    -------
    list of Path
        The four files.
    """
    paths = []
    for suffix, surroundings in ((".png", "light"), (".dark.png", "dark"), (".pdf", "light")):
        paths.append(stem.with_suffix(suffix))
        with look(surroundings):
            figure = make()
            text = words(figure)
            said = {"Keywords": text, "CreationDate": None} if suffix == ".pdf" else {"Description": text}
            figure.savefig(paths[-1], dpi=300, metadata=said)
    paths.append(stem.with_suffix(".csv"))
    data.to_csv(paths[-1], index=False)
    return paths


def words(figure: Figure) -> str:
    """Return what is written in a figure; numbers on its scales only where they were set."""
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


def svg(figure: Figure, title: str, prefix: str = "") -> str:
    """Write a figure that was drawn in the look "page" as an SVG element: text stays text, and a title describes it.

    Parameters
    ----------
    figure : Figure
    title : str
        What the picture shows, for those who cannot see it.
    prefix : str
        Keeps the names inside apart from those of other figures in the page.

    Returns
    -------
    str
    """
    import html

    import matplotlib

    buffer = io.StringIO()
    with look("page"), matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_PAGE_INK, "currentColor").replace(_PAGE_PAPER, "var(--paper, white)")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", text)
    size = r' (width|height)="[^"]*"'
    head, rest = text.split(">", 1)
    return re.sub(size, "", head).replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1) + ">" + rest
