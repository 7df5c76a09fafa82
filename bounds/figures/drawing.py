"""What figures are put together from: panels, bands, bars, numbers and legends. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import shown
from bounds.figures.style import COLUMN, DASHES, PUBLISHED, SHARP, colour, ink, paper

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Draws a frame on axes, and returns them.
Draw = Callable[["pd.DataFrame", "Axes"], "Axes"]

FAMILY_COLOURS = {"published": PUBLISHED, "sharp": SHARP, "measured": "#009E73"}
FAMILY_TITLES = {"published": "published", "sharp": "this project", "measured": "worst |Error|, from the log"}
_LABEL = 4.0  # numbers and label of an axis are about so many lines high


def figure_of(frame: pd.DataFrame, draws: Sequence[Draw], height: float, ratios: Sequence[float] = ()) -> Figure:
    """Draw a frame in one column of a paper, in the look of the moment.

    Parameters
    ----------
    frame : DataFrame
        With several panels, a column ``panel`` says which each row belongs to, and is their title.
    draws : sequence of callables
        One for each panel, from top to bottom.
    height : float
        Inches.
    ratios : sequence of float
        Relative heights of the panels, if they differ.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, height), layout="constrained")
    axes = figure.subplots(len(draws), 1, squeeze=False, height_ratios=ratios or [1.0] * len(draws))[:, 0]
    if "panel" in frame:
        draw_panels(frame, draws, axes)
    else:
        draws[0](frame, axes[0])
    return figure


def draw_panels(frame: pd.DataFrame, draws: Iterable[Draw], axes: Iterable[Axes]) -> None:
    """Draw each panel of a frame on its axes, titled as the frame says."""
    for ax, draw, (name, part) in zip(axes, draws, frame.groupby("panel", sort=False), strict=True):
        draw(part, ax).set_title(str(name), loc="left")


def draw_bands(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw lines of ``value`` against ``x`` by ``series`` (if there is one), with bands from ``low`` to ``high``."""
    groups = frame.groupby("series", sort=False) if "series" in frame else [("", frame)]
    banded = "low" in frame
    finite = frame[["value", "low", "high"] if banded else ["value"]].to_numpy()
    finite = finite[np.isfinite(finite)]
    room = 0.05 * (float(np.ptp(finite)) or abs(float(finite[0])) or 1.0) if finite.size else 0.0
    bottom, top = (finite.min() - room, finite.max() + room) if finite.size else (-math.inf, math.inf)
    for k, (series, part) in enumerate(groups):
        dash, mark = DASHES[k % len(DASHES)], "o" if len(part) <= 40 else ""
        ax.plot(part["x"], part["value"], dash, color=colour(k), marker=mark, markersize=2, label=str(series))
        if banded:  # an end that is not finite leaves the panel
            low, high = part["low"].clip(lower=bottom), part["high"].clip(upper=top)
            ax.fill_between(part["x"], low, high, color=colour(k), alpha=0.25, linewidth=0)
    if banded and finite.size:
        ax.set_ylim(bottom, top)
    return ax


def number_beside(ax: Axes, place: float, row: float, text: str = "") -> None:
    """Write a number to the right of its bar: ``text``, or the place itself."""
    text = text or shown(place, 7)
    free = {"boxstyle": "square,pad=0.05", "facecolor": paper(), "edgecolor": "none"}  # of the line of vacuity
    ax.annotate(text, (place, row), (3, 0), textcoords="offset points", va="center", fontsize="small", bbox=free)


def share_text(share: float, least: float = 0.0) -> str:
    """Return a share for people: three places, one digit where it is rarer, nothing below ``least``."""
    return f"{share:.3f}" if share >= 0.0005 else f"{share:.1g}" if share >= least else ""


def finish_bars(ax: Axes, vacuous_from: float) -> None:
    """Draw the scale of bounds and the line of vacuity, and leave room for the numbers."""
    ax.axvline(vacuous_from, color=ink(), linewidth=0.8)
    ax.set(xscale="log", xlabel=f"bound on |Error|  (vacuous from {vacuous_from:g} on)")
    low, high = ax.get_xlim()
    ax.set_xlim(low / 3, high * 10)


def family_legend(ax: Axes, looks: Iterable[tuple[str, str, float]], *, inside: bool = False) -> None:
    """Explain patches of a colour and an opacity; below the axes, unless bars leave a corner free."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=(shade, a), edgecolor=shade, linewidth=0.5, label=label) for label, shade, a in looks]
    if inside:
        ax.legend(handles=patches, loc="upper right")
    else:
        legend_below(ax, 0.25, handles=patches)


def legend_below(ax: Axes, centre: float, **options: Any) -> None:
    """Put a legend in two columns under the label of the x axis, whatever the height of the axes."""
    from matplotlib.transforms import ScaledTranslation

    inches = _LABEL * float(ax.xaxis.label.get_fontsize()) / 72.0
    down = ScaledTranslation(0.0, -inches, ax.figure.dpi_scale_trans)
    ax.legend(loc="upper center", bbox_to_anchor=(centre, 0.0), bbox_transform=ax.transAxes + down, ncols=2, **options)
