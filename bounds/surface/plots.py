"""Plots of results. They compute nothing, and return the Axes that they drew on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds._show import shown
from bounds.results import BoundTable, RunOverTime
from bounds.theory.unified import RULES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Okabe and Ito's colours: distinct for every kind of colour vision
_PUBLISHED, _SHARP, _LINE = "#0072B2", "#D55E00", "#444444"
_CYCLE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_ENDS = ("value", "low", "high")


def plot_bounds(table: BoundTable, ax: Axes | None = None) -> Axes:
    """Every finite bound of a table as a bar on a logarithmic scale, with the line of vacuity."""
    if not isinstance(table, BoundTable):
        raise TypeError(f"table must be a BoundTable (of a certificate: its .table), got {type(table).__name__}")
    ax = _axes(ax)
    bounds = [b for b in table.sorted()[::-1] if math.isfinite(b.value)]
    colours = [_SHARP if b.family == "sharp" else _PUBLISHED for b in bounds]
    ax.barh([b.name for b in bounds], [b.value for b in bounds], color=colours)
    for row, b in enumerate(bounds):
        ax.annotate(shown(b.value), (b.value, row), (3, 0), textcoords="offset points", va="center", fontsize=8)
    _finish_bars(ax, table.reward_spread)
    _family_legend(ax, {"published": _PUBLISHED, "this project": _SHARP}, top=True)
    return ax


def plot_comparison(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Bars of ``value`` by ``rule`` for the two kinds of ``inputs``, published beside sharp."""
    ax = _axes(ax)
    rules = list(dict.fromkeys(frame["rule"]))[::-1]
    kinds = list(dict.fromkeys(frame["inputs"]))
    height = 0.8 / len(kinds)
    for k, kind in enumerate(kinds):
        part = frame[frame["inputs"] == kind].set_index("rule").loc[rules]
        rows = [row + 0.2 - k * height for row in range(len(rules))]
        colours = [_SHARP if f == "sharp" else _PUBLISHED for f in part["family"]]
        ax.barh(rows, part["value"], height=height, color=colours, alpha=(0.5, 1.0)[k % 2])
        for row, value in zip(rows, part["value"], strict=True):
            ax.annotate(shown(value), (value, row), (3, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks(range(len(rules)), rules)
    _finish_bars(ax, 1.0)
    _family_legend(
        ax,
        {
            f"published, {kinds[0]}": (_PUBLISHED, 0.5),
            f"published, {kinds[1]}": (_PUBLISHED, 1.0),
            f"this project, {kinds[0]}": (_SHARP, 0.5),
            f"this project, {kinds[1]}": (_SHARP, 1.0),
        },
    )
    return ax


def plot_scaling(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Curves of ``value`` against ``T`` by ``rule``, each with its ``slope`` at T = 4096."""
    ax = _axes(ax)
    published = 0
    for name, part in frame.groupby("rule", sort=False):
        if str(name).startswith("halved_"):
            ax.plot(part["T"], part["value"], color="#BBBBBB", linewidth=0.7, zorder=1)
            continue
        if part["family"].iloc[0] == "sharp":
            colour, width, dash = _SHARP, 2.2, "-" if name == "trajectory_kl" else "--"
        else:
            colour, width, dash = _CYCLE[published % 6], 1.2, _DASHES[published % 4]
            published += 1
        label = f"{name}  (T^{part.loc[part['T'] == 4096, 'slope'].iloc[0]:.2f})"
        ax.plot(part["T"], part["value"], label=label, color=colour, linewidth=width, linestyle=dash)
    ax.plot([], [], color="#BBBBBB", linewidth=0.7, label="halved_..., slopes as published")
    ax.axhline(1.0, color=_LINE, linewidth=1)
    right = frame["T"].max()
    ax.annotate("vacuous above 1", (right, 1), (0, 3), textcoords="offset points", ha="right", fontsize=8, color=_LINE)
    ax.set(xscale="log", yscale="log", xlabel="horizon T (tokens)", ylabel="bound on |Error|")
    ax.legend(
        fontsize=7,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title="rule (slope at T = 4096)",
        title_fontsize=8,
    )
    return ax


def plot_regimes(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """One mark for each point (x, y), coloured by the ``rule`` that is smallest there."""
    ax = _axes(ax)
    order = [r.name for r in RULES]  # a rule looks the same in every panel
    for name, part in sorted(frame.groupby("rule"), key=lambda item: order.index(str(item[0]))):
        k = order.index(str(name))
        colour, mark = _CYCLE[k % len(_CYCLE)], "sov^DPX"[k // len(_CYCLE)]
        ax.scatter(part["x"], part["y"], s=14, color=colour, marker=mark, label=str(name), linewidths=0)
    x, y = frame["panel"].iloc[0].split(": ")[1].split(",")[0].split(" × ")
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, markerscale=1.5)
    return ax


def plot_routes(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Curves of ``contribution`` against the steps ``ahead``, by ``route``; a line where the routes ``cross``."""
    ax = _axes(ax)
    looks = ((_CYCLE[0], "--", 1.5), (_CYCLE[1], "-.", 1.5), (_CYCLE[5], "-", 2.5))
    for (name, part), (colour, dash, width) in zip(frame.groupby("route", sort=False), looks, strict=True):
        ax.plot(part["ahead"], part["contribution"], label=str(name), color=colour, linestyle=dash, linewidth=width)
    crossing = frame["cross"].iloc[0]
    ax.axvline(crossing, color=_LINE, linewidth=0.8)
    ax.annotate(
        f"{crossing:g}", (crossing, frame["contribution"].min()), (3, 2), textcoords="offset points", fontsize=8
    )
    ax.set(xscale="log", yscale="log", xlabel="steps after the position, T − t", ylabel="contribution of the position")
    ax.legend(fontsize=8, frameon=False)
    return ax


def plot_tightness(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """A table of ``ratio`` (attained / bound) by ``rule`` and ``T``, darker where a bound is nearly attained."""
    ax = _axes(ax)
    table = frame.pivot(index="rule", columns="T", values="ratio").loc[list(dict.fromkeys(frame["rule"]))]
    ax.imshow(table.to_numpy(), cmap="Blues", vmin=0.0, vmax=1.3, aspect="auto")
    for (row, column), ratio in np.ndenumerate(table.to_numpy()):
        if not math.isnan(ratio):
            colour = "white" if ratio > 0.8 else "black"
            ax.annotate(f"{ratio:.2f}", (column, row), ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(range(table.shape[1]), [str(T) for T in table.columns])
    ax.set_yticks(range(table.shape[0]), list(table.index), fontsize=8)
    ax.set(xlabel="horizon T")
    return ax


def plot_over_time(run: RunOverTime, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """A run step by step, one panel for each estimate; the limit of kl_seq, and where it was lost."""
    names = [name for name in run.steps[0].intervals() if any(s.intervals()[name] is not None for s in run.steps)]
    if axes is None:
        import matplotlib.pyplot as plt

        axes = list(plt.subplots(len(names), 1, sharex=True, figsize=(6.0, 1.5 * len(names)))[1])
    places = np.arange(len(run.steps))
    for ax, name in zip(axes, names, strict=True):
        found = [s.intervals()[name] for s in run.steps]
        value, low, high = (np.array([getattr(i, end) if i else np.nan for i in found]) for end in _ENDS)
        ends = np.concatenate([value, low, high])
        ends = ends[np.isfinite(ends)]
        room = 0.05 * max(float(np.ptp(ends)), 1e-12)
        floor, top = ends.min() - room, ends.max() + room  # an end that is not finite leaves the panel
        ax.fill_between(places, np.maximum(low, floor), np.minimum(high, top), color=_PUBLISHED, alpha=0.2, linewidth=0)
        ax.set_ylim(floor, top)
        ax.plot(places, value, color=_PUBLISHED, marker="o", markersize=3)
        ax.set_ylabel(name, fontsize=7)
        ax.tick_params(labelsize=8)
        if name in ("surrogate_gain", "improvement"):
            ax.axhline(0.0, color=_LINE, linewidth=0.8)
    if run.lost is not None:
        lost = [s.name for s in run.steps].index(run.lost)
        for ax in axes:
            ax.axvline(lost, color=_SHARP, linestyle="--", linewidth=1.0)
        text = f"kl_seq <= {run.limit:g} not certifiable at step {run.lost}"
        axes[0].set_title(text, fontsize=8, color=_SHARP, loc="right")
    stride = max(len(places) // 10, 1)
    axes[-1].set_xticks(places[::stride], [s.name for s in run.steps[::stride]])
    axes[-1].set_xlabel("step")
    return axes


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _finish_bars(ax: Axes, vacuous_from: float) -> None:
    ax.axvline(vacuous_from, color=_LINE, linewidth=1)
    ax.set(xscale="log", xlabel=f"bound on |Error|  (vacuous from {vacuous_from:g} on)")
    low, high = ax.get_xlim()
    ax.set_xlim(low, high * 4)  # room for the numbers
    ax.spines[["top", "right"]].set_visible(False)


def _family_legend(ax: Axes, entries: dict[str, str] | dict[str, tuple[str, float]], *, top: bool = False) -> None:
    from matplotlib.patches import Patch

    patches = []
    for label, look in entries.items():
        colour, alpha = (look, 1.0) if isinstance(look, str) else look
        patches.append(Patch(color=colour, alpha=alpha, label=label))
    if top:
        ax.legend(handles=patches, fontsize=8, frameon=False, loc="upper right")
    else:  # below the axes: bars may reach any corner
        ax.legend(handles=patches, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.06), ncols=2)
