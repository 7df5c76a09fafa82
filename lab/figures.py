"""The figures of the experiment, in the look of the package's own; each as PNG, PDF and CSV of what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bounds import RULES
from bounds.figures.drawing import few_ticks, figure_head, name_ends, says_nothing
from bounds.figures.style import COLUMN, SMALL, save, shade
from lab.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# in the order of METHODS: those that mask nothing, then the masks
_HUES = dict(zip(METHODS, ("soft", "published", "ours", "published", "ours", "good", "other", "open"), strict=True))
_LINES: dict[str, tuple[str, str, str, float]] = {
    "bound classical": ("Classical", "published", "-", 1.2),
    "bound b_star_published": ("Best published", "published", "--", 1.2),
    "bound b_star": ("Ours", "ours", "-", 1.6),
    "error": ("True error", "ink", "-", 1.2),
}


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


def plot_bands(frame: pd.DataFrame, axes: list[Axes]) -> None:
    """Draw a panel without and one with sequence masks; the band is the range over seeds, dots are held-out scores."""
    groups = ([m for m in METHODS if METHODS[m].rule is None], [m for m in METHODS if METHODS[m].rule is not None])
    for ax, methods, title in zip(axes, groups, ("no mask", "sequence masks"), strict=True):
        ends = []
        for method in (m for m in methods if m in set(frame["method"])):
            part, hue = frame[frame["method"] == method], shade(_HUES[method])
            lines = part.dropna(subset=["mean"])
            ax.plot(lines["step"], lines["mean"], color=hue, label=METHODS[method].title)
            ax.fill_between(lines["step"], lines["least"], lines["most"], color=hue, alpha=0.12, linewidth=0)
            if "score" in part:
                ax.scatter(part["step"], part["score"], s=8, color=hue, zorder=3, clip_on=False)
            ends.append((METHODS[method].title, lines["step"].iloc[-1], lines["mean"].iloc[-1], hue))
        ax.set_xlim(0, frame["step"].max())
        few_ticks(ax)
        name_ends(ax, ends, gap=0.17)
        ax.set_title(title, loc="left", size=SMALL)
        ax.set_xticks([0, frame["step"].max() // 2, frame["step"].max()])
    axes[0].tick_params(labelbottom=False)
    axes[1].set_xlabel("optimiser step")


def write_experiment(rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Write ``experiment_ppl_gap`` and ``experiment_score``."""
    seeds = rows["seed"].nunique()
    text = f"Running mean of 5 steps; mean and range over {seeds} seeds"
    gap = bands(rows, "log_ppl_abs_diff", window=5)
    held_out = rows.dropna(subset=["score"]).groupby(["method", "step"], as_index=False)["score"].mean()
    score = bands(rows, "reward", window=5).merge(held_out, on=["method", "step"], how="outer")
    paths = []
    for name, frame, title in (
        ("experiment_ppl_gap", gap, "How far the two policies are apart:\nlog-prob gap, nats a token"),
        ("experiment_score", score, "Share of problems solved: lines in training,\ndots on held-out problems"),
    ):
        paths += _write((title, text), partial(plot_bands, frame), frame, folder / name, sharey=True)
    return paths


def plot_bounds(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw four lines against the step, on a logarithmic scale: three bounds and the truth."""
    values = {column: frame[column].abs() for column in _LINES}
    ax.set(yscale="log", xlim=(frame["step"].min(), frame["step"].max()))
    for column, (label, hue, dash, width) in _LINES.items():
        positive = values[column].where(values[column] > 0)
        ax.plot(frame["step"], positive, dash, label=label, color=shade(hue), linewidth=width)
    says_nothing(ax, 1.0)
    last = frame["step"].max()
    name_ends(ax, [(look[0], last, values[c].iloc[-1], shade(look[1])) for c, look in _LINES.items()], gap=0.14)
    ax.minorticks_off()


def plot_improvement(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw the certificate's interval at each step, and the true improvement."""
    ends = frame["improvement_low"], frame["improvement_high"]
    ax.vlines(frame["step"], *ends, color=shade("published"), linewidth=1.4, alpha=0.75, label="interval")
    ax.scatter(frame["step"], frame["improvement"], s=5, color=shade("ours"), label="truth", zorder=3)
    ax.axhline(0.0, color=shade("ink"), linewidth=0.8)
    ax.set(xlabel="optimiser step", xlim=(frame["step"].min(), frame["step"].max()))
    few_ticks(ax)


def write_tiny(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write ``bound_vs_truth``."""
    inside = covered(frame, "improvement").sum()
    least = min((frame[f"bound {rule.name}"] - frame["worst_case_error"]).min() for rule in RULES)
    above = "Every bound lies above the truth" if least >= 0 else f"A bound lies {-least:.2g} below the truth"

    def draw(axes: list[Axes]) -> None:
        plot_bounds(frame, axes[0])
        plot_improvement(frame, axes[1])
        axes[0].set_title("Error of the surrogate and its bounds, in reward", loc="left", size=SMALL)
        axes[1].set_title("Change of the mean reward: interval and truth (dot)", loc="left", size=SMALL)

    title = f"{above}; of {len(frame)} intervals\n{inside} hold the true change of the reward"
    told = title, "A small enumerated problem, where the truth is known; 95%"
    return _write(told, draw, frame, folder / "bound_vs_truth", sharey=False)


def covered(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Return at which steps the truth lies in the interval of the certificate."""
    return (frame[f"{name}_low"] <= frame[name]) & (frame[name] <= frame[f"{name}_high"])


def _write(
    told: tuple[str, str], draw: Callable[[list[Axes]], None], data: pd.DataFrame, stem: Path, *, sharey: bool
) -> list[Path]:
    """Two panels below each other, in one column of a paper."""
    from matplotlib.figure import Figure

    def make() -> Figure:
        figure = Figure(figsize=(COLUMN, 3.1))
        figure_head(figure, told)
        draw(list(figure.subplots(2, 1, sharey=sharey)))
        return figure

    stem.parent.mkdir(parents=True, exist_ok=True)
    return save(make, data, stem)
