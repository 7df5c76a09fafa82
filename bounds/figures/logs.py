"""Figures of what a log says: the numbers of an answer, and below them how they are drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import near, shown
from bounds.figures.drawing import FAMILY_COLOURS, FAMILY_TITLES, draw_bands, finish_bars, legend_below, number_beside
from bounds.figures.style import SHARP, colour, ink, muted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bounds.certificate.certificate import Certificate
    from bounds.questions.by_position import ByPosition
    from bounds.questions.mask_study import MaskStudy
    from bounds.questions.over_time import RunOverTime


def ladder_frame(certificate: Certificate) -> pd.DataFrame:
    """List bounds and the measured worst error: columns name, family, value, high, optimistic, vacuous_from."""
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


def draw_ladder(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw ``value`` by ``name``, largest on top: filled, or open where ``optimistic``; whiskers up to ``high``."""
    part = frame[np.isfinite(frame["value"])].iloc[::-1]
    values, highs = part["value"].to_numpy(np.float64), part["high"].to_numpy(np.float64)
    floor = float(values[values > 0.0].min()) / 3 if (values > 0.0).any() else 1e-3  # 0 has no place on this scale
    for row, (family, optimistic) in enumerate(zip(part["family"].tolist(), part["optimistic"].tolist(), strict=True)):
        shade, value = FAMILY_COLOURS[family], float(values[row])
        place, high = max(value, floor), max(float(highs[row]), floor)  # NaN: there is no upper limit
        ax.plot([floor, place], [row, row], color=shade, linewidth=0.6)
        ax.plot(place, row, "o", color=shade, markersize=4, markerfacecolor="none" if optimistic else shade)
        if math.isfinite(high):
            ax.plot([place, high], [row, row], color=shade, linewidth=2.5, alpha=0.4)
            number_beside(ax, high, row, near(value))
        else:
            number_beside(ax, place, row, shown(value))
    ax.set_yticks(range(len(part)), part["name"])
    finish_bars(ax, frame["vacuous_from"].iloc[0])
    ax.set(xlim=(floor, ax.get_xlim()[1]), xlabel=f"|Error|  (vacuous from {frame['vacuous_from'].iloc[0]:g} on)")
    looks = [(FAMILY_TITLES[f], shade, shade) for f, shade in FAMILY_COLOURS.items() if f in set(part["family"])]
    looks.append(("filled: at estimates", ink(), ink()))
    if part["optimistic"].any():
        looks.append(("open: at the largest divergence seen", ink(), "none"))
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], marker="o", linestyle="", color=shade, markerfacecolor=fill, markersize=4, label=text)
        for text, shade, fill in looks
    ]
    legend_below(ax, 0.25, handles=marks, columnspacing=1.0)
    return ax


_OF_A_TOKEN = {"kl": "KL of a token (nats)", "tv": "total variation of a token", "chi2": "chi2 of a token"}


def position_frame(found: ByPosition) -> pd.DataFrame:
    """List divergences by position: columns panel, x (middle of the bin), value, low, high."""
    frame = found.to_frame()
    return _by_panel(frame, (frame["first"] + frame["last"]) / 2).replace({"panel": _OF_A_TOKEN})


def draw_positions(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw one divergence by position."""
    draw_bands(frame, ax).set_xlabel("position in the response (policy tokens)")
    return ax


def over_time_frame(run: RunOverTime) -> pd.DataFrame:
    """List a run's estimates by step: columns panel, x (the step), value, low, high, limit and lost (of kl_seq)."""
    frame = run.to_frame()
    panels = _by_panel(frame, frame["step"])
    return panels.assign(limit=np.where(panels["panel"] == "kl_seq", run.limit, np.nan), lost=run.lost)


def draw_over_time(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw one estimate step by step, and the limit that it had to keep."""
    steps = frame["x"].astype(str).tolist()
    draw_bands(frame.assign(x=np.arange(len(steps))), ax)
    name, limit, lost = frame["panel"].iloc[0], frame["limit"].iloc[0], frame["lost"].iloc[0]
    if name in ("surrogate_gain", "improvement"):
        ax.axhline(0.0, color=ink(), linewidth=0.6)
    if math.isfinite(limit):
        ax.axhline(limit, color=SHARP, linestyle="--", linewidth=0.8)
    if isinstance(lost, str):
        ax.axvline(steps.index(lost), color=SHARP, linestyle=":", linewidth=0.8)
    if math.isfinite(limit) and isinstance(lost, str):
        ax.set_title(f"above {limit:g} cannot be excluded at step {lost}", loc="right")
    stride = max(len(steps) // 10, 1)
    ax.set_xticks(range(0, len(steps), stride), steps[::stride])
    ax.set_xlabel("step")
    return ax


def _by_panel(frame: pd.DataFrame, x: pd.Series[Any]) -> pd.DataFrame:
    """Put every column that has an interval below the others: columns panel, x, value, low, high."""
    import pandas as pd

    parts = [
        {"panel": n, "x": x, "value": frame[n], "low": frame[f"{n}_low"], "high": frame[f"{n}_high"]}
        for n in frame
        if f"{n}_low" in frame
    ]
    return pd.concat(map(pd.DataFrame, parts), ignore_index=True)


_SHARE_KEPT = "Share of the reward R and of the rest that is kept"
_GAIN = "J(θ) − J(roll) is at least (an estimate)"


def mask_frame(study: MaskStudy) -> pd.DataFrame:
    """List masks by acceptance: columns panel, series, x (acceptance), mask, value, low, high."""
    import pandas as pd

    rows = [
        (panel, terms.mask.partition("<")[0] + kept, terms.acceptance.value, terms.mask, getattr(terms, name))
        for panel, name, kept in (
            (_SHARE_KEPT, "acceptance_high_reward", ", of R"),
            (_SHARE_KEPT, "acceptance_low_reward", ", of 1 − R"),
            (_GAIN, "lower", ""),
        )
        for terms in sorted(study.by_threshold, key=lambda t: t.acceptance.value)
    ]
    rows.append((_GAIN, "no mask", 1.0, "", study.gain_without_mask))
    known = [(*where, i.value, i.low, i.high) for *where, i in rows if i is not None]
    return pd.DataFrame(known, columns=["panel", "series", "x", "mask", "value", "low", "high"])


def draw_masks(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw lines against acceptance by ``series``, and one where every kind of response is kept alike."""
    of_masks, no_mask = frame[frame["series"] != "no mask"], frame[frame["series"] == "no mask"]
    shares = frame["panel"].iloc[0] == _SHARE_KEPT
    (draw_bars if shares else draw_bands)(of_masks, ax)
    low, high = ax.get_ylim()
    if shares:
        ax.plot([0, 1], [0, 1], color=muted(), linewidth=0.8, zorder=0, label="all alike")
    for value in no_mask["value"]:
        ax.axhline(value, color=ink(), linewidth=0.8, linestyle=":", label="no mask, E[R (P − 1)]: no mask exceeds it")
        low, high = min(low, value), max(high, value + 0.05 * (high - low))
    ax.set_ylim(low, high)
    ax.set(xlim=(0.0, 1.02), xlabel="share of all responses that is kept")
    legend_below(ax, 0.4)
    return ax


def draw_bars(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw lines as :func:`draw_bands`, with bars from ``low`` to ``high`` where bands would hide each other."""
    draw_bands(frame.drop(columns=["low", "high"]), ax)
    for k, (_, part) in enumerate(frame.groupby("series", sort=False)):
        ax.vlines(part["x"] + 0.006 * k, part["low"], part["high"], color=colour(k), linewidth=0.7)
    return ax


def certificate_data() -> pd.DataFrame:
    """Ask the embedded log: divergences by position (panel, x, value, low, high), and the ladder of bounds."""
    import pandas as pd

    import bounds

    log = bounds.example_traces()
    frames = [position_frame(bounds.by_position(log)), ladder_frame(bounds.certify(log)).assign(panel="ladder")]
    return pd.concat(frames, ignore_index=True)


def run_over_time_data() -> pd.DataFrame:
    """Ask the embedded run (nothing corrects its mismatch), under TRM-Avg: see :func:`bounds.plot_over_time`."""
    import bounds

    return over_time_frame(bounds.over_time(bounds.example_traces("run"), mask="seq_mean_k3<=0.001"))


def mask_tradeoff_data() -> pd.DataFrame:
    """Ask the embedded log about masks, by threshold: see :func:`bounds.plot_masks`."""
    import bounds

    return mask_frame(bounds.mask_study(bounds.example_traces()))
