"""Frames on axes: what the figures and the plots of results are drawn with. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import near, shown
from bounds.figures.style import DASHES, PUBLISHED, SHARP, colour, ink, muted, paper
from bounds.rules.unified import RULES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FAMILY_COLOURS = {"published": PUBLISHED, "sharp": SHARP, "measured": "#009E73"}
_LABEL = 4.0  # numbers and label of an axis are about so many lines high
SHARE_KEPT = "Share of the reward R and of the rest that is kept"
FAMILY_TITLES = {"published": "published", "sharp": "this project", "measured": "worst |Error|, from the log"}


def draw_bands(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Lines of ``value`` against ``x`` by ``series`` (if there is that column), with bands from ``low`` to ``high``."""
    groups = frame.groupby("series", sort=False) if "series" in frame else [("", frame)]
    finite = frame[["value", "low", "high"]].to_numpy() if "low" in frame else frame[["value"]].to_numpy()
    finite = finite[np.isfinite(finite)]
    room = 0.05 * (float(np.ptp(finite)) or abs(float(finite[0])) or 1.0) if finite.size else 0.0
    for k, (series, part) in enumerate(groups):
        dash, mark = DASHES[k % len(DASHES)], "o" if len(part) <= 40 else ""
        ax.plot(part["x"], part["value"], dash, color=colour(k), marker=mark, markersize=2, label=str(series))
        if "low" in part:  # an end that is not finite leaves the panel
            low = part["low"].clip(lower=finite.min() - room) if finite.size else part["low"]
            high = part["high"].clip(upper=finite.max() + room) if finite.size else part["high"]
            ax.fill_between(part["x"], low, high, color=colour(k), alpha=0.25, linewidth=0)
    if "low" in frame and finite.size:
        ax.set_ylim(finite.min() - room, finite.max() + room)
    return ax


def draw_bars(frame: pd.DataFrame, ax: Axes) -> Axes:
    """As :func:`draw_bands`, but with bars from ``low`` to ``high``, side by side where bands would hide each other."""
    draw_bands(frame.drop(columns=["low", "high"]), ax)
    for k, (_, part) in enumerate(frame.groupby("series", sort=False)):
        ax.vlines(part["x"] + 0.006 * k, part["low"], part["high"], color=colour(k), linewidth=0.7)
    return ax


def draw_positions(frame: pd.DataFrame, ax: Axes) -> Axes:
    """One divergence by position."""
    draw_bands(frame, ax).set_xlabel("position in the response (policy tokens)")
    return ax


def draw_over_time(frame: pd.DataFrame, ax: Axes) -> Axes:
    """One estimate step by step, and the limit that it had to keep."""
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


def draw_ladder(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Marks of ``value`` by ``name``, largest on top: filled, or open where ``optimistic``; whiskers up to ``high``."""
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
    from matplotlib.lines import Line2D

    families = [f for f in FAMILY_COLOURS if f in set(part["family"])]
    marks = [
        Line2D([], [], marker="o", linestyle="", color=FAMILY_COLOURS[f], markersize=4, label=FAMILY_TITLES[f])
        for f in families
    ]
    fills = {ink(): "filled: at estimates", "none": "open: at the largest divergence seen"}
    marks += [
        Line2D([], [], marker="o", linestyle="", color=ink(), markerfacecolor=fill, markersize=4, label=text)
        for fill, text in fills.items()
        if fill != "none" or part["optimistic"].any()
    ]
    legend_below(ax, 0.25, handles=marks, columnspacing=1.0)
    return ax


def draw_masks(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Lines against acceptance by ``series``; a line where every kind of response is kept alike."""
    of_masks = frame[frame["series"] != "no mask"]
    if frame["panel"].iloc[0] == SHARE_KEPT:
        draw_bars(of_masks, ax)
    else:
        draw_bands(of_masks, ax)
    low, high = ax.get_ylim()
    if frame["panel"].iloc[0] == SHARE_KEPT:
        ax.plot([0, 1], [0, 1], color=muted(), linewidth=0.8, zorder=0, label="all alike")
    for value in frame[frame["series"] == "no mask"]["value"]:
        ax.axhline(value, color=ink(), linewidth=0.8, linestyle=":", label="no mask, E[R (P − 1)]: no mask exceeds it")
        low, high = min(low, value), max(high, value + 0.05 * (high - low))
    ax.set_ylim(low, high)
    ax.set(xlim=(0.0, 1.02), xlabel="share of all responses that is kept")
    legend_below(ax, 0.4)
    return ax


def draw_comparison(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Bars of ``value`` by ``rule`` for the two kinds of ``inputs``, published beside sharp."""
    rules = list(dict.fromkeys(frame["rule"]))[::-1]
    kinds = list(dict.fromkeys(frame["inputs"]))
    height = 0.8 / len(kinds)
    for k, kind in enumerate(kinds):
        part = frame[frame["inputs"] == kind].set_index("rule").loc[rules]
        rows = [row + 0.2 - k * height for row in range(len(rules))]
        colours = [FAMILY_COLOURS[f] for f in part["family"]]
        for row, value, shade in zip(rows, part["value"], colours, strict=True):
            ax.barh(row, value, height=height, facecolor=(shade, (0.3, 1.0)[k % 2]), edgecolor=shade, linewidth=0.5)
        for row, value in zip(rows, part["value"], strict=True):
            number_beside(ax, value, row)
    ax.set_yticks(range(len(rules)), rules)
    ax.set_ylim(-0.6, len(rules) - 0.4)
    finish_bars(ax, 1.0)
    looks = [(f"{FAMILY_TITLES[f]}, {kind}", FAMILY_COLOURS[f], alpha)
             for f in ("published", "sharp") for kind, alpha in zip(kinds, (0.3, 1.0), strict=True)]  # fmt: skip
    family_legend(ax, looks)
    return ax


def draw_scaling(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Curves of ``value`` against ``T`` by ``rule``, each with its ``slope`` at T = 4096."""
    published = 0
    for name, part in frame.groupby("rule", sort=False):
        if str(name).startswith("halved_"):
            ax.plot(part["T"], part["value"], color=muted(), linewidth=0.6, zorder=1)
            continue
        if part["family"].iloc[0] == "sharp":
            shade, width, dash = SHARP, 2.0, "-" if name == "trajectory_kl" else "--"
        else:
            shade, width, dash = colour(published), 1.1, DASHES[published % 4]
            published += 1
        label = f"{name}  (T^{part.loc[part['T'] == 4096, 'slope'].iloc[0]:.2f})"
        ax.plot(part["T"], part["value"], label=label, color=shade, linewidth=width, linestyle=dash)
    ax.plot([], [], color=muted(), linewidth=0.6, label="halved_..., slopes as published")
    ax.axhline(1.0, color=ink(), linewidth=0.8)
    right = frame["T"].max()
    ax.annotate("vacuous above 1", (right, 1), (0, 2), textcoords="offset points", ha="right", fontsize="small")
    ax.set(xscale="log", yscale="log", xlabel="horizon T (tokens)", ylabel="bound on |Error|")
    legend_below(ax, 0.42, title="rule (slope at T = 4096)")
    return ax


def draw_regimes(frame: pd.DataFrame, ax: Axes) -> Axes:
    """One mark for each point (x, y), coloured by the ``rule`` that is smallest there."""
    order = [r.name for r in RULES]  # a rule looks the same in every panel
    for name, part in sorted(frame.groupby("rule"), key=lambda item: order.index(str(item[0]))):
        k = order.index(str(name))
        mark = "sov^DPX"[k // 6]
        ax.scatter(part["x"], part["y"], s=8, color=colour(k), marker=mark, label=str(name), linewidths=0)
    x, y = frame["panel"].iloc[0].split(": ")[1].split(",")[0].split(" × ")
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    legend_below(ax, 0.45, markerscale=1.5)
    return ax


def draw_routes(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Curves of ``contribution`` against the steps ``ahead``, by ``route``; a line where the routes ``cross``."""
    looks = ((colour(0), "--", 1.3), (colour(1), "-.", 1.3), (ink(), "-", 2.0))
    for (name, part), (shade, dash, width) in zip(frame.groupby("route", sort=False), looks, strict=True):
        ax.plot(part["ahead"], part["contribution"], label=str(name), color=shade, linestyle=dash, linewidth=width)
    crossing = frame["cross"].iloc[0]
    ax.axvline(crossing, color=ink(), linewidth=0.6)
    ax.annotate(
        f"{crossing:g}", (crossing, frame["contribution"].min()), (3, 2), textcoords="offset points", fontsize="small"
    )
    ax.set(xscale="log", yscale="log", xlabel="steps after the position, T − t", ylabel="contribution of the position")
    ax.legend()
    return ax


def draw_tightness(frame: pd.DataFrame, ax: Axes) -> Axes:
    """A table of ``ratio`` (attained / bound) by ``rule`` and ``T``, darker where a bound is nearly attained."""
    table = frame.pivot(index="rule", columns="T", values="ratio").loc[list(dict.fromkeys(frame["rule"]))]
    ratios = table.to_numpy(np.float64)
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("attained", [paper(), PUBLISHED])
    ax.imshow(ratios, cmap=shades, vmin=0.0, vmax=1.0, aspect="auto")
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            value = float(ratios[row, column])
            text = "1.00" if value > 0.9995 else f"{value:.3f}" if value >= 0.0005 else f"{value:.0g}"
            shade = "white" if value > 0.6 else ink()
            ax.text(column, row, text, ha="center", va="center", fontsize="small", color=shade)
    ax.set_yticks(range(len(table)), table.index)
    ax.set_xticks(range(table.shape[1]), [f"{T:,}" for T in table.columns])
    ax.set(xlabel="horizon T")
    return ax


def draw_acceptance(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Acceptance against length, a curve for each share of violating tokens, and the lengths of the paper's table."""
    curves, marked = frame[~frame["marked"]], frame[frame["marked"]]
    draw_bands(curves, ax)
    for k, (_, part) in enumerate(marked.groupby("series", sort=False)):
        ax.plot(part["x"], part["value"], "s", color=colour(k), markersize=3)
        for x, value in zip(part["x"].tolist(), part["value"].tolist(), strict=True):
            text = f"{value:.3f}" if value >= 0.0005 else f"{value:.1g}" if value >= 0.0001 else ""
            ax.annotate(text, (x, value), (3, 2), textcoords="offset points", fontsize="small")
    ax.set(xscale="log", xlabel="length of the response (tokens)", ylabel="share kept")
    ax.legend()
    return ax


def draw_weights(frame: pd.DataFrame, ax: Axes) -> Axes:
    """LN-TRM's weights against the position."""
    draw_bands(frame, ax).set(xlabel="position t (tokens)", ylabel="weight of |ρ − 1|")
    ax.legend()
    return ax


def number_beside(ax: Axes, place: float, row: float, text: str = "") -> None:
    """A number to the right of its bar: ``text``, or the place itself."""
    text = text or shown(place, 7)
    free = {"boxstyle": "square,pad=0.05", "facecolor": paper(), "edgecolor": "none"}  # of the line of vacuity
    ax.annotate(text, (place, row), (3, 0), textcoords="offset points", va="center", fontsize="small", bbox=free)


def finish_bars(ax: Axes, vacuous_from: float) -> None:
    """The scale of bounds, the line of vacuity, and room for the numbers."""
    ax.axvline(vacuous_from, color=ink(), linewidth=0.8)
    ax.set(xscale="log", xlabel=f"bound on |Error|  (vacuous from {vacuous_from:g} on)")
    low, high = ax.get_xlim()
    ax.set_xlim(low / 3, high * 10)


def family_legend(ax: Axes, looks: Iterable[tuple[str, str, float]], *, inside: bool = False) -> None:
    """Patches of a colour and an opacity; below the axes, unless bars leave a corner free."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=(shade, a), edgecolor=shade, linewidth=0.5, label=label) for label, shade, a in looks]
    if inside:
        ax.legend(handles=patches, loc="upper right")
    else:
        legend_below(ax, 0.25, handles=patches)


def legend_below(ax: Axes, centre: float, **options: Any) -> None:
    """A legend in two columns, under the label of the x axis whatever the height of the axes."""
    from matplotlib.transforms import ScaledTranslation

    inches = _LABEL * float(ax.xaxis.label.get_fontsize()) / 72.0
    down = ScaledTranslation(0.0, -inches, ax.figure.dpi_scale_trans)
    ax.legend(loc="upper center", bbox_to_anchor=(centre, 0.0), bbox_transform=ax.transAxes + down, ncols=2, **options)
