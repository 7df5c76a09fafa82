"""What figures are put together from: headings, panels, bands, lines named at their ends, rows of dots beside numbers.

Nothing is computed here. Rows and lines carry their names themselves, so that no legend must be searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import near, shown
from bounds.figures.style import COLUMN, DASHES, SMALL, TEXT, TITLE, colour, shade

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Draws a frame on axes, and returns them.
Draw = Callable[["pd.DataFrame", "Axes"], "Axes"]
#: What a figure says of its numbers: a title of at most two lines, and of what, in which unit, at which confidence.
Told = tuple[str, str]

#: Colours of the families of bounds.
FAMILY_COLOURS = {"published": "published", "sharp": "ours", "measured": "good"}

#: Bounds under the names that a reader brings along, and the rules of which each takes the smallest.
NAMED_BOUNDS: dict[str, tuple[str, ...]] = {
    "Classical": ("classical",),
    "Linear": ("linear",),
    "Coupling": ("coupling",),
    "Adaptive": ("adaptive", "pinsker_marginal_kl", "pinsker_marginal_tv"),
    "TV of tokens": ("exact_tv", "trajectory_tv"),
    "Best published": ("mixed_kl", "mixed_tv"),
    "Best published, halved": ("halved_mixed_kl", "halved_mixed_tv"),
    "KL of a response": ("trajectory_kl",),
}
_EDGE = 0.06  # inches around everything


# --- numbers in pictures -----------------------------------------------------------------------------------------


def typeset(text: str) -> str:
    """Write numbers with a true minus."""
    return text.replace("-", "\N{MINUS SIGN}")


def signed(x: float) -> str:
    """Write a change: three digits and its sign."""
    return typeset(f"{'+' if x > 0 else ''}{near(x)}")


def upward(x: float) -> str:
    """Write a bound: rounded up, except the 1677 that the classical one is known by."""
    return "1677" if math.floor(x) == 1677 else shown(x)


def outward(low: float, high: float, decimals: int) -> str:
    """Write an interval of changes to so many decimals, so that it never looks narrower than it is.

    >>> outward(-0.16771, 0.1922, 3), outward(0.25, math.inf, 3)
    ('−0.168 to +0.193', 'at least +0.250')
    """
    unit = 10**decimals
    least = f"{math.floor(low * unit) / unit:+.{decimals}f}" if math.isfinite(low) else ""
    most = f"{math.ceil(high * unit) / unit:+.{decimals}f}" if math.isfinite(high) else ""
    if least and most:
        return typeset(f"{least} to {most}")
    return typeset(f"at least {least}" if least else f"at most {most}" if most else "says nothing")


def share_text(share: float, least: float = 0.0) -> str:
    """Write a share: three places, one digit where it is rarer, nothing below ``least``."""
    return f"{share:.3f}" if share >= 0.0005 else f"{share:.1g}" if share >= least else ""


def power(x: float) -> str:
    """Write a power of ten, or the number itself where that is short.

    >>> power(0.01), power(1e4), power(1e-8), power(1e6)
    ('0.01', '10,000', '$10^{-8}$', '1 million')
    """
    if 1e-3 <= x <= 1e5:
        return f"{x:,.0f}" if x >= 1 else f"{x:g}"
    return "1 million" if x == 1e6 else f"$10^{{{round(math.log10(x))}}}$"


# --- whole figures -----------------------------------------------------------------------------------------------


def figure_of(
    frame: pd.DataFrame,
    draws: Sequence[Draw],
    height: float,
    *,
    told: Told = ("", ""),
    columns: int = 1,
    ratios: Sequence[float] = (),
    hue: str = "ink",
    width: float = COLUMN,
) -> Figure:
    """Draw a frame in one column of a paper (or another width), in the look of the moment.

    Parameters
    ----------
    frame : DataFrame
        With several panels, a column ``panel`` says which each row belongs to, and is their title.
    draws : sequence of callables
        One for each panel, row by row.
    height : float
        Inches.
    told : pair of str
        Title and subtitle.
    columns : int
        How many panels stand beside each other.
    ratios : sequence of float
        Relative heights of panels that have nothing in common: each then has margins of its own.
    hue : str
        Colour of the title, a name of :data:`bounds.figures.style.PALETTE`.
    width : float
        Inches.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure_head(figure, told, hue)
    rows = -(-len(draws) // columns)
    if ratios:  # panels of different kinds, each with margins of its own
        parts = figure.subfigures(rows, 1, squeeze=False, height_ratios=ratios)
        axes = [part.subplots() for part in parts[:, 0]]
    else:
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
        for spare in axes[len(draws) :]:
            spare.remove()
        del axes[len(draws) :]
    if "panel" in frame:
        draw_panels(frame, draws, axes)
    else:
        draws[0](frame, axes[0])
    _say_once(axes, columns)
    return figure


def _say_once(axes: Sequence[Axes], columns: int) -> None:
    """Leave the label of the x axes to the last, where all have the same, and its numbers to the lowest row."""
    if len({ax.get_xlabel() for ax in axes}) == 1 and axes[0].get_xlabel():
        for ax in axes[:-1]:
            ax.set_xlabel("")
        for ax in axes[:-columns]:
            ax.tick_params(labelbottom=False)


def figure_head(figure: Figure, told: Told, hue: str = "ink") -> None:
    """Write title and subtitle, and leave what is below them to the panels."""
    width, height = figure.get_size_inches()
    used = 0.0
    for text, size, weight, shown_in in ((told[0], TITLE, "bold", hue), (told[1], TEXT, "normal", "soft")):
        if text:
            used += _EDGE if used == 0.0 else 0.04
            place: dict[str, Any] = {"x": _EDGE / width, "y": 1.0 - used / height, "va": "top", "in_layout": False}
            figure.text(s=text, size=size, weight=weight, color=shade(shown_in), linespacing=1.25, **place)
            used += (text.count("\n") + 1) * size * 1.27 / 72
    pads: dict[str, Any] = {"w_pad": _EDGE, "h_pad": _EDGE, "hspace": 0.04, "wspace": 0.04}
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, 1.0 - used / height), **pads)


def draw_panels(frame: pd.DataFrame, draws: Iterable[Draw], axes: Iterable[Axes]) -> None:
    """Draw each panel of a frame on its axes, titled as the frame says."""
    for ax, draw, (name, part) in zip(axes, draws, frame.groupby("panel", sort=False), strict=True):
        ax.set_title(str(name), loc="left", pad=3, size=SMALL)
        draw(part, ax)


# --- lines and bands ---------------------------------------------------------------------------------------------


def draw_bands(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw lines of ``value`` against ``x`` by ``series`` (if there is one), with bands from ``low`` to ``high``."""
    groups = frame.groupby("series", sort=False) if "series" in frame else [("", frame)]
    banded = "low" in frame
    finite = frame[["value", "low", "high"] if banded else ["value"]].to_numpy(np.float64)
    finite = finite[np.isfinite(finite)]
    room = 0.05 * (float(np.ptp(finite)) or abs(float(finite[0])) or 1.0) if finite.size else 0.0
    bottom, top = (finite.min() - room, finite.max() + room) if finite.size else (-math.inf, math.inf)
    for k, (series, part) in enumerate(groups):
        dash, mark = DASHES[k // 6], "o" if len(part) <= 40 else ""
        ax.plot(part["x"], part["value"], dash, color=colour(k), marker=mark, markersize=2.6, label=str(series))
        if banded:  # an end that is not finite leaves the panel
            low, high = part["low"].clip(lower=bottom), part["high"].clip(upper=top)
            ax.fill_between(part["x"], low, high, color=colour(k), alpha=0.22, linewidth=0)
    if banded and finite.size:
        ax.set_ylim(bottom, top)
    return ax


def few_ticks(ax: Axes, *, x: bool = False) -> None:
    """Keep a short axis readable: at most three or four ticks, written as a reader would."""
    from matplotlib.ticker import MaxNLocator

    axis = ax.xaxis if x else ax.yaxis
    axis.set_major_locator(MaxNLocator(4 if x else 3, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _: typeset(near(value + 0.0)))


def name_at_end(ax: Axes, text: str, x: float, y: float, hue: str, *, up: float = 0.0, bold: bool = False) -> None:
    """Write the name of a line at its right end, ``up`` points above it."""
    ax.annotate(
        text, (x, y), (4, up), textcoords="offset points", va="center", color=shade(hue), annotation_clip=False,
        weight="bold" if bold else "normal",
    )  # fmt: skip


def name_ends(ax: Axes, ends: Iterable[tuple[str, float, float, str]], gap: float) -> None:
    """Write names (text, x, y, colour) at the right ends of lines, apart by ``gap`` of the height of the axes."""
    place = ax.transData + ax.transAxes.inverted()
    rows = sorted(((place.transform((x, y))[1], text, hue) for text, x, y, hue in ends), key=lambda row: row[0])
    heights = np.array([height for height, *_ in rows])
    for _ in range(100):  # push neighbours apart until none is too near
        short = np.clip(gap - np.diff(heights), 0.0, None) / 2.0
        if short.max(initial=0.0) < 1e-3:
            break
        heights[1:] += short
        heights[:-1] -= short
    for height, (_, text, hue) in zip(heights, rows, strict=True):
        ax.annotate(
            text, (1.0, height), (4, 0), xycoords="axes fraction", textcoords="offset points", va="center", color=hue,
            annotation_clip=False,
        )  # fmt: skip


def says_nothing(ax: Axes, start: float, *, vertical: bool = False) -> None:
    """Wash the region in which a bound says nothing: from ``start`` on."""
    draw_span, draw_line = (ax.axvspan, ax.axvline) if vertical else (ax.axhspan, ax.axhline)
    low, high = ax.get_xlim() if vertical else ax.get_ylim()
    if high > start:
        draw_span(start, high, color=shade("wash"), linewidth=0, zorder=0)
        draw_line(start, color=shade("ink"), linewidth=0.8, zorder=1)
        (ax.set_xlim if vertical else ax.set_ylim)(low, high)


# --- rows: a name, a mark, numbers -------------------------------------------------------------------------------

#: Points from one right-aligned column of numbers to the next.
_NUMBERS_APART = 36.0


def name_rows(ax: Axes, names: Sequence[str], heroes: dict[str, str]) -> None:
    """Name rows from top to bottom; the heroes in their colour."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for label in ax.get_yticklabels():
        hue = heroes.get(label.get_text())
        label.set(color=shade(hue or "ink"), weight="bold" if hue else "normal", size=TEXT)


def write_numbers(
    ax: Axes, column: int, texts: Sequence[str], title: str = "", heroes: Mapping[int, str] = MappingProxyType({})
) -> None:
    """Write a right-aligned column of numbers beside the rows; those of heroes larger, in their colour."""
    place = ax.get_yaxis_transform()
    right = (column + 1) * _NUMBERS_APART
    for row, text in enumerate(texts):
        hue = heroes.get(row)
        ax.annotate(
            text, (1.0, row), (right, 0), xycoords=place, textcoords="offset points", ha="right", va="center",
            color=shade(hue or "soft"), weight="bold" if hue else "normal", size=TITLE if hue else TEXT,
            annotation_clip=False,
        )  # fmt: skip
    if title:
        ax.annotate(
            title, (1.0, 1.0), (right, 3), xycoords="axes fraction", textcoords="offset points", ha="right",
            color=shade("soft"), size=SMALL, annotation_clip=False,
        )  # fmt: skip


def on_log_rows(ax: Axes, values: np.ndarray[Any, Any], vacuous_from: float) -> None:
    """Set a logarithmic axis for dots, with the region in which a bound says nothing."""
    from matplotlib.ticker import LogLocator, NullLocator

    positive = values[np.isfinite(values) & (values > 0.0)]
    low, high = (positive.min(), positive.max()) if positive.size else (0.1, 1.0)
    ax.set(xscale="log", xlim=(min(low, vacuous_from) / 2.5, max(high, vacuous_from) * 2.5))
    ax.xaxis.set_major_locator(LogLocator(numticks=5))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda x, _: power(x))
    says_nothing(ax, vacuous_from, vertical=True)
    if ax.get_xlim()[1] > 20 * vacuous_from:
        place = (vacuous_from, 1.0)
        ax.annotate(
            "says nothing", place, (2, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
            color=shade("soft"), size=SMALL,
        )  # fmt: skip


def dot(ax: Axes, x: float, row: float, hue: str, *, filled: bool, size: float = 4.6) -> None:
    """Draw a dot: filled, or hollow for an estimate or for less knowledge."""
    fill = shade(hue if filled else "paper")
    ax.plot([x], [row], "o", markersize=size, color=shade(hue), markerfacecolor=fill, markeredgewidth=1.1, zorder=4)
