"""How figures look (on light paper, on a dark page, inside a page that may be either), and how they are written."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: One column of a paper, in inches.
COLUMN = 3.45
#: Sizes of type, in points: titles, text, and the smallest that a figure has.
TITLE, TEXT, SMALL = 8.5, 7.0, 6.5

#: What each colour is for, and what it is on light and on dark paper. All but the last three carry text: their contrast
#: to the paper is 4.5 or more. "line" is of axes, "wash" of regions in which a bound says nothing.
PALETTE = {
    "ink": ("#1a1a1a", "#ececec"),
    "soft": ("#595959", "#a8a8a8"),
    "published": ("#0069A5", "#62B5E8"),
    "ours": ("#B84A00", "#FF9B57"),
    "good": ("#00734F", "#3CCB96"),
    "bad": ("#B3261E", "#FF8A80"),
    "open": ("#7A5C00", "#E2B84A"),
    "other": ("#8A4B8C", "#D59AD8"),
    "line": ("#c8c8c8", "#484848"),
    "wash": ("#f0f0f0", "#232323"),
    "paper": ("#ffffff", "#121212"),
}
#: Colours of series, in this order; where there are more, dashes tell them apart.
CYCLE = ("published", "ours", "good", "other", "open", "soft")
DASHES = ("-", "--", "-.", ":")

# inside a page a colour is the page's own: these stand for it until the SVG is written
_STANDS_FOR = {name: f"#0{k:x}0{k:x}0{k:x}" for k, name in enumerate(PALETTE, 1)}
_LOOKS = {
    "light": {name: light for name, (light, _) in PALETTE.items()},
    "dark": {name: dark for name, (_, dark) in PALETTE.items()},
    "page": _STANDS_FOR,
}
_LOOK: ContextVar[str] = ContextVar("look", default="")
_OF_INK = ("text.color", "axes.titlecolor")
_OF_SOFT = ("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
_OF_LINE = ("axes.edgecolor", "xtick.color", "ytick.color")
_OF_PAPER = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
_SETTINGS = {
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.titlesize": TEXT,
    "figure.titlesize": TITLE,
    "figure.titleweight": "bold",
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.unicode_minus": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xaxis.labellocation": "left",
    **{f"{axis}tick.{size}.{what}": value for axis in "xy" for size, what, value in (
        ("major", "size", 2.5), ("major", "width", 0.6), ("minor", "size", 0.0))},
}  # fmt: skip


@contextmanager
def look(name: str = "") -> Iterator[None]:
    """Draw and save inside: "light", "dark" or "page" (transparent, in the colours of the page around).

    Without a name the look stays that of the surroundings; where there is none it is light or dark as the axes of
    matplotlib's settings are.
    """
    import matplotlib

    name = name or _surroundings()
    shades = _LOOKS[name]
    colours = {
        **dict.fromkeys(_OF_INK, shades["ink"]),
        **dict.fromkeys(_OF_SOFT, shades["soft"]),
        **dict.fromkeys(_OF_LINE, shades["line"]),
        **dict.fromkeys(_OF_PAPER, shades["paper"]),
    }
    settings: dict[Any, Any] = {**_SETTINGS, **colours, "svg.hashsalt": "trm-bounds"}
    token = _LOOK.set(name)
    try:
        with matplotlib.rc_context(settings):
            yield
    finally:
        _LOOK.reset(token)


def _surroundings() -> str:
    """Return the look of the moment."""
    if _LOOK.get():
        return _LOOK.get()
    import matplotlib
    from matplotlib.colors import to_rgb

    return "dark" if sum(to_rgb(matplotlib.rcParams["axes.facecolor"])) < 1.5 else "light"


def shade(name: str) -> str:
    """Return a colour of :data:`PALETTE` in the look of the moment."""
    return _LOOKS[_surroundings()][name]


def colour(k: int) -> str:
    """Return the k-th colour of a series."""
    return shade(CYCLE[k % len(CYCLE)])


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

    found = [text.get_text() for text in figure.texts]
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
    text = text[text.index("<svg") :]
    for name, sign in _STANDS_FOR.items():
        text = text.replace(sign, f"var(--{name}, {PALETTE[name][0]})")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", text)
    size = r' (width|height)="[^"]*"'
    head, rest = text.split(">", 1)
    return re.sub(size, "", head).replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1) + ">" + rest
