"""Figures of the bounds themselves: what each is of, and below it how that is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.figures.drawing import (
    FAMILY_COLOURS,
    FAMILY_TITLES,
    draw_bands,
    family_legend,
    finish_bars,
    legend_below,
    number_beside,
    share_text,
)
from bounds.figures.style import DASHES, PUBLISHED, SHARP, colour, ink, muted, paper
from bounds.masks.statistics import unviolated
from bounds.rules.bound import Bound
from bounds.rules.profile import Profile
from bounds.rules.rule import Rule
from bounds.rules.sums import remaining_weights
from bounds.rules.unified import RULES, unified

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: The inputs of the paper's table (2512.23075v4): T = 4096, delta = 1e-4, D = 0.01; and with total variations.
PAPER_KL_ONLY: dict[str, Any] = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
PAPER_KL_AND_TV: dict[str, Any] = {**PAPER_KL_ONLY, "epsilon": 5e-3, "tv_seq": 0.05}
#: Shares of violating tokens and lengths of the paper's table of acceptance.
PAPER_VIOLATIONS = (1e-3, 1e-4)
PAPER_LENGTHS = (256, 1024, 4096, 8192, 16384)


def comparison_data() -> pd.DataFrame:
    """Evaluate every rule at the paper's inputs: columns inputs, rule, family, value, vacuous."""
    import pandas as pd

    rows = [
        {"inputs": label, "rule": b.name, "family": b.family, "value": b.value, "vacuous": b.vacuous}
        for label, known in (("KL only", PAPER_KL_ONLY), ("KL and TV", PAPER_KL_AND_TV))
        for b in unified(**known).bounds
    ]
    return pd.DataFrame(rows)


def draw_comparison(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw bars of ``value`` by ``rule`` for the two kinds of ``inputs``, published beside sharp."""
    rules = list(dict.fromkeys(frame["rule"]))[::-1]
    opacities = dict(zip(dict.fromkeys(frame["inputs"]), (0.3, 1.0), strict=True))
    height = 0.8 / len(opacities)
    for k, kind in enumerate(opacities):
        part = frame[frame["inputs"] == kind].set_index("rule").loc[rules]
        for row, (family, value) in enumerate(zip(part["family"], part["value"], strict=True)):
            place, shade = row + 0.2 - k * height, FAMILY_COLOURS[family]
            ax.barh(place, value, height=height, facecolor=(shade, opacities[kind]), edgecolor=shade, linewidth=0.5)
            number_beside(ax, value, place)
    ax.set_yticks(range(len(rules)), rules)
    ax.set_ylim(-0.6, len(rules) - 0.4)
    finish_bars(ax, 1.0)
    families = ("published", "sharp")
    looks = ((f"{FAMILY_TITLES[f]}, {kind}", FAMILY_COLOURS[f], a) for f in families for kind, a in opacities.items())
    family_legend(ax, looks)
    return ax


def scaling_data() -> pd.DataFrame:
    """Evaluate every rule by T at delta = 1e-4, epsilon = 5e-3: columns T, rule, family, value, slope (log-log)."""
    import pandas as pd

    horizons = sorted({4096, *np.unique(np.geomspace(16, 10**6, 61).round().astype(int)).tolist()})
    rows = []
    for T in horizons:
        beyond = T + max(1, T // 100)
        ahead = unified(T=beyond, delta=1e-4, epsilon=5e-3)
        for b in unified(T=T, delta=1e-4, epsilon=5e-3):
            slope = np.log(ahead[b.name].value / b.value) / np.log(beyond / T)
            rows.append({"T": T, "rule": b.name, "family": b.family, "value": b.value, "slope": slope})
    return pd.DataFrame(rows)


def draw_scaling(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw curves of ``value`` against ``T`` by ``rule``, each with its ``slope`` at T = 4096."""
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


def regimes_data() -> pd.DataFrame:
    """Find the rule that gives B*: columns panel, x, y, rule, value.

    The paper's six are compared over delta x T (epsilon and D set well below what delta implies), all rules over
    epsilon x T where only epsilon and chi2 = 4 epsilon^2 are known, and over epsilon x D at T = 4096. Of rules
    that are equal to 1e-12 the last in RULES is named.
    """
    import pandas as pd

    rows = []

    def add(panel: str, x: float, y: float, rules: Iterable[Rule], **known: Any) -> None:
        profile = Profile(**known)
        bounds = [found for r in rules if isinstance(found := r.evaluate(profile), Bound)]
        *_, last = (b for b in bounds if b.value <= min(c.value for c in bounds) * (1 + 1e-12))
        rows.append({"panel": panel, "x": x, "y": y, "rule": last.name, "value": last.value})

    six = [r for r in RULES if r.in_b_star]
    for T in np.unique(np.geomspace(4, 10**6, 25).round().astype(int)).tolist():
        for delta in np.geomspace(1e-8, 10.0, 28).tolist():
            epsilon, kl_seq = min(1.0, np.sqrt(delta / 2) / 3), T * delta / 50
            panel = "published: δ × T, ε = sqrt(δ/2)/3, D = Tδ/50"
            add(panel, delta, float(T), six, T=T, delta=delta, epsilon=epsilon, kl_seq=kl_seq)
        for epsilon in np.geomspace(1e-7, 0.5, 28).tolist():
            add("all: ε × T, χ² = 4ε²", epsilon, float(T), RULES, T=T, epsilon=epsilon, chi2_max=4 * epsilon**2)
    for epsilon in np.geomspace(1e-8, 0.5, 28).tolist():
        for kl_seq in np.geomspace(1e-6, 100.0, 28).tolist():
            add("all: ε × D, T = 4096", epsilon, kl_seq, RULES, T=4096, epsilon=epsilon, kl_seq=kl_seq)
    return pd.DataFrame(rows)


def draw_regimes(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a mark for each point (x, y), coloured by the ``rule`` that is smallest there."""
    order = [r.name for r in RULES]  # a rule looks the same in every panel
    for name, part in sorted(frame.groupby("rule"), key=lambda item: order.index(str(item[0]))):
        k = order.index(str(name))
        mark = "sov^DPX"[k // 6]
        ax.scatter(part["x"], part["y"], s=8, color=colour(k), marker=mark, label=str(name), linewidths=0)
    x, y = frame["panel"].iloc[0].split(": ")[1].split(",")[0].split(" × ")
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    legend_below(ax, 0.45, markerscale=1.5)
    return ax


def adaptive_routes_data() -> pd.DataFrame:
    """Say what each position adds to the adaptive bound, by steps ahead: columns ahead, route, contribution, cross.

    T = 4096, delta = 1e-4, epsilon = 5e-4: the routes cross at delta / (2 epsilon^2) = 200 steps ahead.
    """
    import pandas as pd

    T, delta, epsilon = 4096, 1e-4, 5e-4
    routes = {
        "coupling: (T-t) ε": remaining_weights(T, epsilon=epsilon),
        "Pinsker: sqrt((T-t) δ/2)": remaining_weights(T, delta=delta),
        "adaptive: the smaller": remaining_weights(T, epsilon=epsilon, delta=delta),
    }
    ahead = np.arange(T - 1, -1, -1)
    keep = np.isin(ahead, np.unique(np.geomspace(1, T - 1, 300).round().astype(int)))
    frames = [
        pd.DataFrame({"ahead": ahead[keep], "route": name, "contribution": 4 * epsilon * w[keep]})
        for name, w in routes.items()
    ]
    return pd.concat(frames, ignore_index=True).assign(cross=delta / (2 * epsilon**2))


def draw_routes(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw ``contribution`` against the steps ``ahead``, by ``route``, and a line where the routes ``cross``."""
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


def tightness_data() -> pd.DataFrame:
    """Find for each rule and T the instance that comes nearest: see :func:`bounds.proof.worst_case.tightness`."""
    import pandas as pd

    from bounds.proof.worst_case import tightness

    return pd.DataFrame(tightness())


def draw_tightness(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a table of ``ratio`` (attained / bound) by ``rule`` and ``T``, darker where a bound is nearly attained."""
    table = frame.pivot(index="rule", columns="T", values="ratio").loc[list(dict.fromkeys(frame["rule"]))]
    ratios = table.to_numpy(np.float64)
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("attained", [paper(), PUBLISHED])
    ax.imshow(ratios, cmap=shades, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), value in np.ndenumerate(ratios):
        text = "1.00" if value > 0.9995 else share_text(value)
        ax.text(column, row, text, ha="center", va="center", fontsize="small", color="white" if value > 0.6 else ink())
    ax.set_yticks(range(len(table)), table.index)
    ax.set_xticks(range(table.shape[1]), [f"{T:,}" for T in table.columns])
    ax.set(xlabel="horizon T")
    return ax


def length_bias_data() -> pd.DataFrame:
    """Say what a maximum keeps by length, and LN-TRM's weights: columns panel, series, x, value, marked.

    Acceptance is (1-p)^T, were violations independent; the lengths of the paper's table are marked. The weights are
    min(1, (T-t) epsilon, sqrt((T-t) delta/2)) at T = 4096, epsilon = 5e-4, delta = 1e-4 (2512.23075v2).
    """
    import pandas as pd

    frames = []
    for marked, lengths in ((False, np.unique(np.geomspace(64, 16384, 65).round())), (True, np.array(PAPER_LENGTHS))):
        for p in PAPER_VIOLATIONS:
            kept = {"x": lengths, "value": unviolated(p, lengths), "marked": marked}
            frames.append(pd.DataFrame({"panel": "TRM-Max", "series": f"(1−p)^T, p = {p:g}", **kept}))
    t = np.unique(np.concatenate([np.linspace(1, 4096, 100).round(), np.arange(3697, 4097, 10)])).astype(int)
    by_tv, by_kl = {"epsilon": 5e-4}, {"delta": 1e-4}
    for series, known in (("(T−t) ε", by_tv), ("sqrt((T−t) δ/2)", by_kl), ("min of both", by_tv | by_kl)):
        weights = remaining_weights(4096, **known)[t - 1]
        frames.append(pd.DataFrame({"panel": "LN-TRM", "series": series, "x": t, "value": weights, "marked": False}))
    return pd.concat(frames, ignore_index=True)


def draw_acceptance(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw acceptance against length, a curve for each share of violating tokens; marks at the paper's lengths."""
    curves, marked = frame[~frame["marked"]], frame[frame["marked"]]
    draw_bands(curves, ax)
    for k, (_, part) in enumerate(marked.groupby("series", sort=False)):
        ax.plot(part["x"], part["value"], "s", color=colour(k), markersize=3)
        for x, value in zip(part["x"].tolist(), part["value"].tolist(), strict=True):
            text = share_text(value, least=0.0001)
            ax.annotate(text, (x, value), (3, 2), textcoords="offset points", fontsize="small")
    ax.set(xscale="log", xlabel="length of the response (tokens)", ylabel="share kept")
    ax.legend()
    return ax


def draw_weights(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw LN-TRM's weights against the position."""
    draw_bands(frame, ax).set(xlabel="position t (tokens)", ylabel="weight of |ρ − 1|")
    ax.legend()
    return ax
