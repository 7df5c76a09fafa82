"""The figures of the experiment, in the look of the package's own; each as PNG, PDF and CSV of what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bounds import RULES
from lab.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, as in bounds.surface.plots; methods that mask nothing are dashed
_COLOURS = ("#000000", "#56B4E9", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#8B5A2B")
_LOOKS = {
    method: (colour, "-" if entry.rule is not None else "--")
    for colour, (method, entry) in zip(_COLOURS, METHODS.items(), strict=True)
}
_FAMILIES = {"published": "published", "sharp": "this project"}
_LINES = {
    "bound classical": ("classical", "#999999", ":", 1.2),
    "bound b_star_published": ("B*, published", "#0072B2", "--", 1.4),
    "bound trajectory_kl": ("trajectory_kl: D", "#E69F00", "-.", 1.4),
    "bound b_star": ("B*, this project", "#D55E00", "-", 2.0),
    "worst_case_error": ("worst |Error| of any reward", "#009E73", "-", 1.2),
    "error": ("|Error|", "#000000", "-", 1.6),
}


def bands(rows: pd.DataFrame, column: str, *, window: int) -> pd.DataFrame:
    """Mean, smallest and largest over seeds of a running mean: columns method, step, mean, least, most, seeds."""
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
    """One panel without and one with sequence masks; the band is the range over seeds, dots are held-out scores."""
    groups = ([m for m in METHODS if METHODS[m].rule is None], [m for m in METHODS if METHODS[m].rule is not None])
    for ax, methods, title in zip(axes, groups, ("no mask", "sequence masks"), strict=True):
        for k, method in enumerate(m for m in methods if m in set(frame["method"])):
            part = frame[frame["method"] == method]
            colour, dash = _LOOKS[method]
            ax.plot(part["step"], part["mean"], color=colour, linestyle=dash, label=METHODS[method].title)
            ax.fill_between(part["step"], part["least"], part["most"], color=colour, alpha=0.12, linewidth=0)
            if "score" in part:  # side by side, so that equal scores do not hide one another
                ax.scatter(part["step"] + 0.25 * k, part["score"], s=14, color=colour, zorder=3, clip_on=False)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_xlabel("optimiser step")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=7, frameon=False)
    axes[0].set_ylim(bottom=0.0)
    axes[0].set_ylabel(ylabel)


def write_experiment(rows: pd.DataFrame, folder: Path) -> list[Path]:
    """``experiment_ppl_gap`` and ``experiment_score``."""
    seeds = rows["seed"].nunique()
    text = f"running mean of 5 steps, mean over {seeds} seeds; the band is their range"
    gap = bands(rows, "log_ppl_abs_diff", window=5)
    held_out = rows.dropna(subset=["score"]).groupby(["method", "step"], as_index=False)["score"].mean()
    score = bands(rows, "reward", window=5).merge(held_out, on=["method", "step"], how="outer")
    paths = []
    for name, frame, title, ylabel in (
        ("experiment_ppl_gap", gap, f"How far the two policies are apart\n({text})", "PPL gap"),
        (
            "experiment_score",
            score,
            f"Problems solved: lines by the stale engine in training, dots by the policy on held-out ones\n({text})",
            "share solved",
        ),
    ):
        figure, axes = _axes((7.2, 3.4), title, sharey=True)
        plot_bands(frame, axes, ylabel)
        paths += _write(figure, frame, folder / name)
    return paths


def plot_bounds(frame: pd.DataFrame, ax: Axes) -> None:
    """Every rule's bound and the truth against the step, on a logarithmic scale."""
    for family, colour in (("published", "#0072B2"), ("sharp", "#D55E00")):
        for k, rule in enumerate(r for r in RULES if r.family == family):
            label = None if k else f"each rule, {_FAMILIES[family]}"
            values = frame[f"bound {rule.name}"]
            ax.plot(frame["step"], values.where(values > 0), color=colour, linewidth=0.5, alpha=0.35, label=label)
    for column, (label, colour, dash, width) in _LINES.items():
        values = frame[column].abs()
        ax.plot(frame["step"], values.where(values > 0), label=label, color=colour, linestyle=dash, linewidth=width)
    ax.axhline(1.0, color="#444444", linewidth=0.8)
    ax.set(yscale="log", xlabel="optimiser step", ylabel="|Error| and its bounds")
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def plot_improvement(frame: pd.DataFrame, ax: Axes) -> None:
    """The certificate's interval at each step, and the true improvement."""
    middle = (frame["improvement_low"] + frame["improvement_high"]) / 2
    reach = (frame["improvement_high"] - frame["improvement_low"]) / 2
    ax.errorbar(frame["step"], middle, reach, fmt="none", ecolor="#0072B2", elinewidth=1.2, alpha=0.6, label="interval")
    ax.scatter(frame["step"], frame["improvement"], s=7, color="#D55E00", label="truth", zorder=3)
    ax.axhline(0.0, color="#444444", linewidth=0.8)
    ax.set(xlabel="optimiser step", ylabel="J(θ) − J(roll)")
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def write_tiny(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """``bound_vs_truth``."""
    inside = covered(frame, "improvement").sum()
    figure, axes = _axes((7.2, 3.8), "A real run in which every response is enumerated", sharey=False)
    plot_bounds(frame, axes[0])
    plot_improvement(frame, axes[1])
    least = min((frame[f"bound {rule.name}"] - frame["worst_case_error"]).min() for rule in RULES)
    above = "every bound lies above the truth" if least >= 0 else f"a bound lies {-least:.2g} below the truth"
    axes[0].set_title(above, fontsize=9, loc="left")
    axes[1].set_title(f"95 % intervals: the truth inside in {inside} of {len(frame)}", fontsize=9, loc="left")
    return _write(figure, frame, folder / "bound_vs_truth")


def covered(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """At which steps the truth lies in the interval of the certificate."""
    return (frame[f"{name}_low"] <= frame[name]) & (frame[name] <= frame[f"{name}_high"])


def _axes(size: tuple[float, float], title: str, *, sharey: bool) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    return figure, list(figure.subplots(1, 2, sharey=sharey))


def _write(figure: Figure, data: pd.DataFrame, stem: Path) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_suffix(s) for s in (".png", ".pdf", ".csv")]
    figure.savefig(paths[0], dpi=200)
    figure.savefig(paths[1], metadata={"CreationDate": None})
    data.to_csv(paths[2], index=False, float_format="%.12g")
    return paths
