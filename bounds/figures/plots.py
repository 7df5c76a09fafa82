"""Plots of results. They compute nothing, and return the Axes that they drew on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds.certificate.certificate import Certificate
from bounds.figures.drawing import (
    FAMILY_COLOURS,
    FAMILY_TITLES,
    SHARE_KEPT,
    draw_ladder,
    draw_masks,
    draw_over_time,
    draw_positions,
    family_legend,
    finish_bars,
    number_beside,
)
from bounds.figures.style import COLUMN
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime
from bounds.results import Interval
from bounds.rules.bound import BoundTable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_bounds(table: BoundTable, ax: Axes | None = None) -> Axes:
    """Every finite bound of a table as a bar on a logarithmic scale, with the line of vacuity."""
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
    """Bounds from a log, largest first, down to the worst error that the responses show; open marks are optimistic."""
    _check("certificate", certificate, Certificate, " (from bounds.certify)")
    return draw_ladder(ladder_frame(certificate), _axes(ax))


def plot_by_position(found: ByPosition, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Mean divergence of a token by its position, one panel for each kind, with intervals."""
    _check("found", found, ByPosition, " (from bounds.by_position)")
    return _panels(position_frame(found), draw_positions, axes)


def plot_over_time(run: RunOverTime, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """A run step by step, one panel for each estimate; the limit of kl_seq, and where it was lost."""
    _check("run", run, RunOverTime, " (from bounds.over_time)")
    return _panels(over_time_frame(run), draw_over_time, axes)


def plot_masks(study: MaskStudy, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """What masks keep of rewarded and other responses, and what is left of the guarantee, against acceptance."""
    _check("study", study, MaskStudy, " (from bounds.mask_study)")
    return _panels(mask_frame(study), draw_masks, axes)


def ladder_frame(certificate: Certificate) -> pd.DataFrame:
    """Bounds and the measured worst error: columns name, family, value, high, optimistic, vacuous_from."""
    import pandas as pd

    rows = [
        {"name": b.name, "family": b.family, "value": b.value, "high": math.nan, "optimistic": b.optimistic}
        for b in (*certificate.table.bounds, *certificate.optimistic)
        if not b.name.startswith("halved_")
    ]
    # with a support gap the logged responses miss what theta does elsewhere; the other form sees it
    gap = not certificate.table.profile["absolutely_continuous"]
    worst = certificate.estimates["worst_case_error_with_gap" if gap else "worst_case_error"]
    limit = certificate.estimates["worst_case_error_measured"]
    seen = [("estimate", worst.value, worst.high)] if worst else []
    if limit and limit.high < certificate.table.reward_spread:  # else it says nothing
        seen.append(("upper limit for every sample size", limit.high, math.nan))
    rows += [
        {"name": f"worst |Error|: {name}", "family": "measured", "value": value, "high": high, "optimistic": False}
        for name, value, high in seen
    ]
    frame = pd.DataFrame(rows).assign(vacuous_from=certificate.table.reward_spread)
    return frame.sort_values("value", ascending=False, kind="stable", ignore_index=True)


_OF_A_TOKEN = {"kl": "KL of a token (nats)", "tv": "total variation of a token", "chi2": "chi2 of a token"}


def position_frame(found: ByPosition) -> pd.DataFrame:
    """Divergences by position: columns panel, x (middle of the bin), value, low, high."""
    bins = found.to_frame()
    middle = (bins["first"] + bins["last"]) / 2
    return _long({_OF_A_TOKEN[name]: found.bins.column(name) for name in found.bins.names}, middle.tolist())


def over_time_frame(run: RunOverTime) -> pd.DataFrame:
    """A run: columns panel, x (the step), value, low, high, limit and lost (of kl_seq)."""
    frame = _long({name: run.steps.column(name) for name in run.steps.names}, list(run.steps))
    frame["limit"] = np.where(frame["panel"] == "kl_seq", run.limit, np.nan)
    return frame.assign(lost=run.lost)


def mask_frame(study: MaskStudy) -> pd.DataFrame:
    """Masks: columns panel, series, x (acceptance), mask, value, low, high."""
    kept = {"acceptance_high_reward": ", of R", "acceptance_low_reward": ", of 1 − R"}
    gain = "J(θ) − J(roll) is at least (an estimate)"
    panels = {SHARE_KEPT: kept, gain: {"lower": ""}}
    rows = []
    for panel, names in panels.items():
        for name, series in names.items():
            for terms in sorted(study.by_threshold, key=lambda t: t.acceptance.value):
                i = getattr(terms, name)
                if i is not None:
                    kind = terms.mask.partition("<")[0]
                    row = {"panel": panel, "series": f"{kind}{series}", "x": terms.acceptance.value}
                    rows.append({**row, "mask": terms.mask, "value": i.value, "low": i.low, "high": i.high})
    if study.gain_without_mask is not None:
        i = study.gain_without_mask
        row = {"panel": gain, "series": "no mask", "x": 1.0, "mask": ""}
        rows.append({**row, "value": i.value, "low": i.low, "high": i.high})
    import pandas as pd

    return pd.DataFrame(rows, columns=["panel", "series", "x", "mask", "value", "low", "high"])


def _long(panels: Mapping[str, Sequence[Interval | None]], x: Sequence[object]) -> pd.DataFrame:
    import pandas as pd

    ends = ("value", "low", "high")
    return pd.DataFrame(
        [
            {"panel": panel, "x": place, **{end: math.nan if i is None else getattr(i, end) for end in ends}}
            for panel, intervals in panels.items()
            for place, i in zip(x, intervals, strict=True)
        ]
    )


def _check(name: str, value: object, kind: type, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}{hint}, got {type(value).__name__}")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _panels(
    frame: pd.DataFrame, draw: Callable[[pd.DataFrame, Axes], Axes], axes: Sequence[Axes] | None
) -> Sequence[Axes]:
    """One panel below the other, titled as the frame says."""
    if axes is None:
        from matplotlib import pyplot as plt

        panels = frame["panel"].nunique()
        size = (2 * COLUMN, 2.0 * panels)
        axes = list(plt.subplots(panels, 1, squeeze=False, figsize=size, layout="constrained")[1][:, 0])
    for ax, (name, panel) in zip(axes, frame.groupby("panel", sort=False), strict=True):
        draw(panel, ax).set_title(str(name), loc="left")
    return axes
