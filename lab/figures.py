"""The figures of the experiment, in the look of the package's own; each as PNG, PDF and CSV of what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bounds import RULES
from bounds.figures.drawing import FAMILY_TITLES, legend_below
from bounds.figures.style import COLUMN, PUBLISHED, SHARP, colour, ink, muted, save
from lab.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# methods that mask nothing are dashed
_COLOURS = (5, 4, SHARP, 0, 2, 3, 1, "#8B5A2B")
_LOOKS = {
    method: (shade, "-" if entry.rule is not None else "--")
    for shade, (method, entry) in zip(_COLOURS, METHODS.items(), strict=True)
}
_LINES: dict[str, tuple[str, int | str, str, float]] = {
    "bound classical": ("classical", "muted", ":", 1.2),
    "bound b_star_published": ("B*, published", PUBLISHED, "--", 1.2),
    "bound trajectory_kl": ("trajectory_kl: D", 1, "-.", 1.2),
    "bound b_star": ("B*, this project", SHARP, "-", 1.8),
    "worst_case_error": ("worst |Error| of any reward", 2, "-", 1.0),
    "error": ("|Error|", 5, "-", 1.4),
}


def _shade(name: int | str) -> str:
    """Return a colour, by its number in the package's cycle, or itself."""
    if isinstance(name, int):
        return colour(name)
    return muted() if name == "muted" else name


def bands(rows: pd.DataFrame, column: str, *, window: int) -> pd.DataFrame:
    """Take mean, smallest and largest over seeds of a running mean: columns method, step, mean, least, most, seeds."""
    parts = []
    for method in (m for m in METHODS if m in set(rows["method"])):
        part = rows[rows["method"] == method].dropna(subset=[column])
        by_step = part.pivot(index="step", columns="seed", values=column).rolling(window, min_periods=1).mean()
        parts.append(
            pd.DataFrame(
                {
                    "method": method,
                    "step": by_step.index,
                    "mean": by_step.mean(axis=1).to_numpy(),
                    "least": by_step.min(axis=1).to_numpy(),
                    "most": by_step.max(axis=1).to_numpy(),
                    "seeds": by_step.shape[1],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def plot_bands(frame: pd.DataFrame, axes: list[Axes], ylabel: str) -> None:
    """Draw a panel without and one with sequence masks; the band is the range over seeds, dots are held-out scores."""
    groups = ([m for m in METHODS if METHODS[m].rule is None], [m for m in METHODS if METHODS[m].rule is not None])
    for ax, methods, title in zip(axes, groups, ("no mask", "sequence masks"), strict=True):
        for k, method in enumerate(m for m in methods if m in set(frame["method"])):
            part = frame[frame["method"] == method]
            shade, dash = _shade(_LOOKS[method][0]), _LOOKS[method][1]
            ax.plot(part["step"], part["mean"], color=shade, linestyle=dash, label=METHODS[method].title)
            ax.fill_between(part["step"], part["least"], part["most"], color=shade, alpha=0.12, linewidth=0)
            if "score" in part:  # side by side, so that equal scores do not hide one another
                ax.scatter(part["step"] + 0.25 * k, part["score"], s=8, color=shade, zorder=3, clip_on=False)
        ax.set_title(title)
        ax.set(xlabel="optimiser step", ylabel=ylabel)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(ncols=2, loc="upper left")
    axes[0].set_ylim(0.0, 1.2 * axes[0].get_ylim()[1])  # room for the legend


def write_experiment(rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Write ``experiment_ppl_gap`` and ``experiment_score``."""
    seeds = rows["seed"].nunique()
    text = f"(running mean of 5 steps; mean and range over {seeds} seeds)"
    gap = bands(rows, "log_ppl_abs_diff", window=5)
    held_out = rows.dropna(subset=["score"]).groupby(["method", "step"], as_index=False)["score"].mean()
    score = bands(rows, "reward", window=5).merge(held_out, on=["method", "step"], how="outer")
    paths = []
    for name, frame, title, ylabel in (
        ("experiment_ppl_gap", gap, "How far the two policies are apart", "PPL gap"),
        (
            "experiment_score",
            score,
            "Problems solved: lines by the stale engine in training,\ndots by the policy on held-out ones",
            "share solved",
        ),
    ):
        draw = partial(plot_bands, frame, ylabel=ylabel)
        paths += _write(f"{title}\n{text}", draw, frame, folder / name, sharey=True)
    return paths


def plot_bounds(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw every rule's bound and the truth against the step, on a logarithmic scale."""
    for family, shade in (("published", PUBLISHED), ("sharp", SHARP)):
        for k, rule in enumerate(r for r in RULES if r.family == family):
            label = None if k else f"each rule, {FAMILY_TITLES[family]}"
            values = frame[f"bound {rule.name}"]
            ax.plot(frame["step"], values.where(values > 0), color=shade, linewidth=0.4, alpha=0.7, label=label)
    for column, (label, shade, dash, width) in _LINES.items():
        values = frame[column].abs()
        line = {"color": _shade(shade), "linestyle": dash, "linewidth": width}
        ax.plot(frame["step"], values.where(values > 0), label=label, **line)
    ax.axhline(1.0, color=ink(), linewidth=0.8)
    ax.set(yscale="log", xlabel="optimiser step", ylabel="|Error| and its bounds")
    legend_below(ax, 0.45)


def plot_improvement(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw the certificate's interval at each step, and the true improvement."""
    middle = (frame["improvement_low"] + frame["improvement_high"]) / 2
    reach = (frame["improvement_high"] - frame["improvement_low"]) / 2
    ax.errorbar(frame["step"], middle, reach, fmt="none", ecolor=PUBLISHED, elinewidth=1.0, alpha=0.6, label="interval")
    ax.scatter(frame["step"], frame["improvement"], s=5, color=SHARP, label="truth", zorder=3)
    ax.axhline(0.0, color=ink(), linewidth=0.8)
    ax.set(xlabel="optimiser step", ylabel="J(θ) − J(roll)")
    legend_below(ax, 0.45)


def write_tiny(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write ``bound_vs_truth``."""
    inside = covered(frame, "improvement").sum()
    least = min((frame[f"bound {rule.name}"] - frame["worst_case_error"]).min() for rule in RULES)
    above = "every bound lies above the truth" if least >= 0 else f"a bound lies {-least:.2g} below the truth"

    def draw(axes: list[Axes]) -> None:
        plot_bounds(frame, axes[0])
        plot_improvement(frame, axes[1])
        axes[0].set_title(above)
        axes[1].set_title(f"95 % intervals: the truth inside in {inside} of {len(frame)}")

    title = "A real run in which every response is enumerated"
    return _write(title, draw, frame, folder / "bound_vs_truth", sharey=False)


def covered(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Return at which steps the truth lies in the interval of the certificate."""
    return (frame[f"{name}_low"] <= frame[name]) & (frame[name] <= frame[f"{name}_high"])


def _write(
    title: str, draw: Callable[[list[Axes]], None], data: pd.DataFrame, stem: Path, *, sharey: bool
) -> list[Path]:
    """Two panels below each other, in one column of a paper."""
    from matplotlib.figure import Figure

    def make() -> Figure:
        figure = Figure(figsize=(COLUMN, 5.6), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        draw(list(figure.subplots(2, 1, sharey=sharey)))
        return figure

    stem.parent.mkdir(parents=True, exist_ok=True)
    return save(make, data, stem)
