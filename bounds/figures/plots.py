"""Plots of results. They compute nothing, and return the Axes that they drew on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds._text import shown
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import Comparison, Comparisons
from bounds.figures import logs
from bounds.figures.drawing import FAMILY_COLOURS, Draw, dot, draw_panels, name_rows, on_log_rows, write_numbers
from bounds.figures.style import COLUMN, look
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime
from bounds.questions.plan import Plan
from bounds.rules.bound import BoundTable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_bounds(table: BoundTable, ax: Axes | None = None) -> Axes:
    """Draw every finite bound of a table as a dot on a logarithmic scale; where it is washed, they say nothing.

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
    with look():
        ax = _axes(ax)
        found = [b for b in table.sorted()[::-1] if math.isfinite(b.value)]
        name_rows(ax, [b.name for b in found], {b.name: FAMILY_COLOURS[b.family] for b in found[-1:]})
        on_log_rows(ax, np.array([b.value for b in found]), table.reward_spread)
        for row, b in enumerate(found):
            dot(ax, max(b.value, ax.get_xlim()[0]), row, FAMILY_COLOURS[b.family], filled=True)
        write_numbers(ax, 0, [shown(b.value) for b in found], "at most")
        ax.set_xlabel("error of the surrogate")
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
    with look():
        return logs.draw_ladder(logs.ladder_frame(certificate), _axes(ax))


def plot_verdict(certificate: Certificate, ax: Axes | None = None) -> Axes:
    """Draw every interval of J(theta) - J(roll) against 0, with the surrogate's promise and its error as a band.

    Parameters
    ----------
    certificate : Certificate
        From :func:`bounds.certify`, of a log with rewards.
    ax : Axes, optional
        New ones, if there are none.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``certificate`` is something else.
    ValueError
        If the log has no rewards.
    """
    _check("certificate", certificate, Certificate, " (from bounds.certify)")
    frame = logs.verdict_frame(certificate)
    if frame.empty:
        raise ValueError("certificate must have intervals of J(theta) - J(roll), got one of a log without rewards")
    with look():
        return logs.draw_verdict(frame, _axes(ax))


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
    ValueError
        If it withholds what would be drawn: the log speaks against it.
    """
    _check("study", study, MaskStudy, " (from bounds.mask_study)")
    if logs.mask_frame(study).empty:
        raise ValueError("study must have intervals to draw, got one that withholds them (its findings say why)")
    return _panels(logs.mask_frame(study), logs.draw_masks, axes)


def plot_comparison(found: Comparison | Comparisons, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw how each log differs from the first, one panel for each estimate, a row for each log.

    Parameters
    ----------
    found : Comparison or Comparisons
        From :func:`bounds.compare`.
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
    _check("found", found, (Comparison, Comparisons), " (from bounds.compare)")
    return _panels(logs.comparison_frame(found), logs.draw_comparison, axes)


def plot_plan(plan: Plan, ax: Axes | None = None) -> Axes:
    """Draw the smallest gain that can be shown against the number of prompts, and what was planned as a dot.

    Parameters
    ----------
    plan : Plan
        From :func:`bounds.plan`.
    ax : Axes, optional
        New ones, if there are none.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        If ``plan`` is something else.
    """
    _check("plan", plan, Plan, " (from bounds.plan)")
    with look():
        return logs.draw_plan(logs.plan_frame(plan), _axes(ax))


def _check(name: str, value: object, kind: type | tuple[type, ...], hint: str) -> None:
    if not isinstance(value, kind):
        first = kind[0] if isinstance(kind, tuple) else kind
        raise TypeError(f"{name} must be a {first.__name__}{hint}, got {type(value).__name__}")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _panels(frame: pd.DataFrame, draw: Draw, axes: Sequence[Axes] | None) -> Sequence[Axes]:
    """Draw the panels of a frame, one below the other."""
    count = frame["panel"].nunique()
    with look():
        if axes is None:
            from matplotlib import pyplot as plt

            size = (2 * COLUMN, 2.0 * count)
            axes = list(plt.subplots(count, 1, squeeze=False, figsize=size, layout="constrained")[1][:, 0])
        draw_panels(frame, (draw,) * count, axes)
    return axes
