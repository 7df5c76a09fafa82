"""Plots of results. They compute nothing, and return the Axes that they drew on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bounds.certificate.certificate import Certificate
from bounds.figures import logs
from bounds.figures.drawing import (
    FAMILY_COLOURS,
    FAMILY_TITLES,
    Draw,
    draw_panels,
    family_legend,
    finish_bars,
    number_beside,
)
from bounds.figures.style import COLUMN
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime
from bounds.rules.bound import BoundTable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_bounds(table: BoundTable, ax: Axes | None = None) -> Axes:
    """Draw every finite bound of a table as a bar on a logarithmic scale, with the line of vacuity.

    Parameters
    ----------
    table : BoundTable
        From :func:`bounds.unified`, or the ``table`` of a certificate.
    ax : Axes, optional
        New ones, if there are none.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``table`` is something else.

    Examples
    --------
    >>> import bounds
    >>> plot_bounds(bounds.unified(T=512, delta=1e-3)).get_xscale()
    'log'
    """
    _check("table", table, BoundTable, " (of a certificate: its .table)")
    ax = _axes(ax)
    bounds = [b for b in table.sorted()[::-1] if math.isfinite(b.value)]
    ax.barh([b.name for b in bounds], [b.value for b in bounds], color=[FAMILY_COLOURS[b.family] for b in bounds])
    for row, b in enumerate(bounds):
        number_beside(ax, b.value, row)
    finish_bars(ax, table.reward_spread)
    family_legend(ax, [(FAMILY_TITLES[f], FAMILY_COLOURS[f], 1.0) for f in ("published", "sharp")], inside=True)
    return ax


def plot_ladder(certificate: Certificate, ax: Axes | None = None) -> Axes:
    """Draw bounds from a log, largest first, down to the worst error that the responses show.

    Open marks are optimistic: at the largest divergence that was seen.

    Parameters
    ----------
    certificate : Certificate
        From :func:`bounds.certify`.
    ax : Axes, optional
        New ones, if there are none.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``certificate`` is something else.
    """
    _check("certificate", certificate, Certificate, " (from bounds.certify)")
    return logs.draw_ladder(logs.ladder_frame(certificate), _axes(ax))


def plot_by_position(found: ByPosition, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw the mean divergence of a token by its position, one panel for each kind, with intervals.

    Parameters
    ----------
    found : ByPosition
        From :func:`bounds.by_position`.
    axes : sequence of Axes, optional
        One for each panel; new ones, if there are none.

    Returns
    -------
    sequence of matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``found`` is something else.
    """
    _check("found", found, ByPosition, " (from bounds.by_position)")
    return _panels(logs.position_frame(found), logs.draw_positions, axes)


def plot_over_time(run: RunOverTime, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw a run step by step, one panel for each estimate; the limit of kl_seq, and where it was lost.

    Parameters
    ----------
    run : RunOverTime
        From :func:`bounds.over_time`.
    axes : sequence of Axes, optional
        One for each panel; new ones, if there are none.

    Returns
    -------
    sequence of matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``run`` is something else.
    """
    _check("run", run, RunOverTime, " (from bounds.over_time)")
    return _panels(logs.over_time_frame(run), logs.draw_over_time, axes)


def plot_masks(study: MaskStudy, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw what masks keep of rewarded and other responses, and what is left of the guarantee, against acceptance.

    Parameters
    ----------
    study : MaskStudy
        From :func:`bounds.mask_study`.
    axes : sequence of Axes, optional
        One for each panel; new ones, if there are none.

    Returns
    -------
    sequence of matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``study`` is something else.
    """
    _check("study", study, MaskStudy, " (from bounds.mask_study)")
    return _panels(logs.mask_frame(study), logs.draw_masks, axes)


def _check(name: str, value: object, kind: type, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}{hint}, got {type(value).__name__}")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _panels(frame: pd.DataFrame, draw: Draw, axes: Sequence[Axes] | None) -> Sequence[Axes]:
    """Draw the panels of a frame, one below the other."""
    count = frame["panel"].nunique()
    if axes is None:
        from matplotlib import pyplot as plt

        size = (2 * COLUMN, 2.0 * count)
        axes = list(plt.subplots(count, 1, squeeze=False, figsize=size, layout="constrained")[1][:, 0])
    draw_panels(frame, (draw,) * count, axes)
    return axes
