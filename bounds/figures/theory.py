"""Figures of the bounds themselves: what each is of, and below it how that is drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import BoolArray
from bounds.figures.drawing import (
    FAMILY_COLOURS,
    NAMED_BOUNDS,
    Told,
    dot,
    draw_bands,
    name_at_end,
    name_rows,
    on_log_rows,
    power,
    says_nothing,
    share_text,
    upward,
    write_numbers,
)
from bounds.figures.style import SMALL, colour, shade
from bounds.masks.statistics import unviolated
from bounds.rules.bound import Bound
from bounds.rules.profile import Profile
from bounds.rules.rule import Rule
from bounds.rules.sums import remaining_weights
from bounds.rules.unified import RULES, unified
from bounds.rules.unified import rule as rule_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: The inputs of the paper's table (2512.23075v4): T = 4096, delta = 1e-4, D = 0.01; and with total variations.
PAPER_KL_ONLY: dict[str, Any] = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
PAPER_KL_AND_TV: dict[str, Any] = {**PAPER_KL_ONLY, "epsilon": 5e-3, "tv_seq": 0.05}
#: Shares of violating tokens and lengths of the paper's table of acceptance.
PAPER_VIOLATIONS = (1e-3, 1e-4)
PAPER_LENGTHS = (256, 1024, 4096, 8192, 16384)


#: Inputs of the figure of growth, and the D that its lowest line knows.
GROWTH: dict[str, Any] = {"delta": 1e-4, "epsilon": 5e-3}
GROWTH_KL_SEQ = 0.01


def comparison_data() -> pd.DataFrame:
    """Evaluate the bounds at the paper's inputs: columns bound, inputs, rule, family, value; largest first."""
    import pandas as pd

    rows = []
    for inputs, known in (("KL", PAPER_KL_ONLY), ("KL and TV", PAPER_KL_AND_TV)):
        table = unified(**known)
        for bound, rules in NAMED_BOUNDS.items():
            least = min((table[name] for name in rules), key=lambda b: b.value)
            rows.append(
                {"bound": bound, "inputs": inputs, "rule": least.name, "family": least.family, "value": least.value}
            )
    frame = pd.DataFrame(rows)
    known_all = frame[frame["inputs"] == "KL and TV"].set_index("bound")["value"]
    return frame.sort_values("bound", key=lambda names: -known_all[names].to_numpy(), kind="stable", ignore_index=True)


def comparison_told(frame: pd.DataFrame) -> Told:
    """Say the three numbers of the story."""
    value = frame.set_index(["bound", "inputs"])["value"].to_dict()
    classical, published = value["Classical", "KL"], value["Best published", "KL and TV"]
    ours = value["KL of a response", "KL and TV"]
    return (
        f"One mismatch, three answers: the error is at\nmost {upward(classical)}, at most {upward(published)}, "
        f"at most {upward(ours)}",
        f"Rewards lie in [0, 1]: only the last says something ({ours:.0%})",
    )


def draw_comparison(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a row for each ``bound``: a hollow dot where only KL is known, a filled one with total variations."""
    table = frame.pivot(index="bound", columns="inputs", values="value").loc[list(dict.fromkeys(frame["bound"]))]
    hues = {name: FAMILY_COLOURS[family] for name, family in zip(frame["bound"], frame["family"], strict=True)}
    names = list(table.index)
    told = {"Classical": 0, "Best published": 1, "KL of a response": 1}  # the column of each number of the story
    name_rows(ax, names, {name: hues[name] for name in told})
    on_log_rows(ax, table.to_numpy(), 1.0)
    for row, (name, values) in enumerate(table.iterrows()):
        ax.plot(values, [row, row], color=shade(hues[str(name)]), linewidth=1.2, zorder=2)
        dot(ax, values["KL"], row, hues[str(name)], filled=False)
        dot(ax, values["KL and TV"], row, hues[str(name)], filled=True)
    for column, (title, inputs) in enumerate((("\N{WHITE CIRCLE} KL", "KL"), ("\N{BLACK CIRCLE} + TV", "KL and TV"))):
        heroes = {names.index(name): hues[name] for name, where in told.items() if where == column}
        write_numbers(ax, column, [upward(x) for x in table[inputs]], title, heroes)
    return ax


def scaling_data() -> pd.DataFrame:
    """Evaluate four bounds by T at delta = 1e-4, epsilon = 5e-3: columns T, bound, family, value, slope (log-log).

    The last knows D = 0.01 of a response, too, whatever T is.
    """
    import pandas as pd

    def four(T: int) -> dict[tuple[str, str], float]:
        table, known = unified(T=T, **GROWTH), unified(T=T, kl_seq=GROWTH_KL_SEQ)
        lines = {
            ("Classical", "published"): table["classical"],
            ("Best published", "published"): table.best_published,
            ("Ours, KL of tokens", "sharp"): table.best,
            ("Ours, KL of response", "sharp"): known.best,
        }
        return {name: bound.value for name, bound in lines.items() if bound is not None}

    rows = []
    for T in sorted({4096, *np.unique(np.geomspace(16, 10**6, 61).round().astype(int)).tolist()}):
        beyond = T + max(1, T // 100)
        ahead = four(beyond)
        for (bound, family), value in four(T).items():
            slope = np.log(ahead[bound, family] / value) / np.log(beyond / T)
            rows.append({"T": T, "bound": bound, "family": family, "value": value, "slope": slope})
    return pd.DataFrame(rows)


def last_below(frame: pd.DataFrame, bound: str, limit: float = 1.0) -> float:
    """Return the horizon at which a bound of :func:`scaling_data` reaches the limit, between points of its curve."""
    part = frame[frame["bound"] == bound]
    return float(np.exp(np.interp(np.log(limit), np.log(part["value"]), np.log(part["T"]))))


def scaling_told(frame: pd.DataFrame) -> Told:
    """Say where the classical bound ends, and where ours does."""
    classical, ours = last_below(frame, "Classical"), last_below(frame, "Ours, KL of tokens")
    return (
        f"Beyond {math.floor(classical)} tokens the classical bound says\nnothing; ours goes on to {round(ours):,}",
        "Error up to; KL of a token $10^{-4}$, TV 0.005; of a response 0.01",
    )


def draw_scaling(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw curves of ``value`` against ``T``, named at their ends with the power of T that they grow with."""
    ax.set(xscale="log", yscale="log", xlim=(frame["T"].min(), frame["T"].max()), ylim=(2e-3, 1e5))
    says_nothing(ax, 1.0)
    ax.annotate(
        "says nothing",
        (frame["T"].min(), 4e4),
        (3, 0),
        textcoords="offset points",
        va="center",
        color=shade("soft"),
        size=SMALL,
    )
    seen: set[str] = set()
    for name, part in frame.groupby("bound", sort=False):
        bound, family = str(name), part["family"].iloc[0]
        hue, dash = FAMILY_COLOURS[family], "--" if family in seen else "-"
        seen.add(family)
        ax.plot(part["T"], part["value"], dash, color=shade(hue), label=bound, zorder=2)
        slope = round(2.0 * part.loc[part["T"] == 4096, "slope"].iloc[0]) / 2.0
        grows = "" if slope == 0.0 else " ~ $T$" if slope == 1.0 else f" ~ $T^{{{slope:g}}}$"
        if bound == "Classical":  # it leaves the picture above
            last = part[part["value"] <= 1e5].iloc[-1]
            ax.annotate(
                f"{bound}{grows}",
                (last["T"], 1e3),
                (-30, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                color=shade(hue),
            )
        else:
            name_at_end(ax, f"{bound}{grows}", part["T"].iloc[-1], part["value"].iloc[-1], hue)
        if part["value"].iloc[-1] > 1.0 > part["value"].iloc[0]:
            ax.plot([last_below(frame, bound)], [1.0], "o", color=shade(hue), markersize=3.6, zorder=4)
    ax.set_xticks([100, 1e4, 1e6], ["100", "10,000", "1 million"])
    ax.set_yticks([1e-2, 1, 1e2, 1e4], ["0.01", "1", "100", "10,000"])
    ax.minorticks_off()
    ax.set_xlabel("longest response T, tokens")
    return ax


#: What the regions of the figure of regimes are called; a rule that is not here is called by its title.
_IN_WORDS = {
    "mixed_tv": "mixed", "mixed_kl": "mixed", "adaptive": "adaptive", "trajectory_kl": "KL of a\nresponse",
    "martingale_chi2": "$\\chi^2$\nmartingale", "first_order": "first\norder", "exact_tv": "TV of\ntokens",
}  # fmt: skip


def regimes_data() -> pd.DataFrame:
    """Find the rule that gives B*: columns panel, x_name, y_name, x, y, rule, value.

    The paper's six are compared over delta x T (epsilon and D set well below what delta implies), all rules over
    epsilon x T where only epsilon and chi2 = 4 epsilon^2 are known, and over epsilon x D at T = 4096. Of rules
    that are equal to 1e-12 the last in RULES is named.
    """
    import pandas as pd

    rows = []

    def add(panel: str, x: tuple[str, float], y: tuple[str, float], rules: Iterable[Rule], **known: Any) -> None:
        profile = Profile(**known)
        bounds = [found for r in rules if isinstance(found := r.evaluate(profile), Bound)]
        *_, last = (b for b in bounds if b.value <= min(c.value for c in bounds) * (1 + 1e-12))
        where = {"x_name": x[0], "y_name": y[0], "x": x[1], "y": y[1]}
        rows.append({"panel": panel, **where, "rule": last.name, "value": last.value})

    six = [r for r in RULES if r.in_b_star]
    for T in np.unique(np.geomspace(4, 10**6, 25).round().astype(int)).tolist():
        tokens = ("tokens", float(T))
        for delta in np.geomspace(1e-8, 10.0, 28).tolist():
            epsilon, kl_seq = min(1.0, np.sqrt(delta / 2) / 3), T * delta / 50
            add("Published", ("KL of a token", delta), tokens, six, T=T, delta=delta, epsilon=epsilon, kl_seq=kl_seq)
        for epsilon in np.geomspace(1e-7, 0.5, 28).tolist():
            by_chi2 = {"epsilon": epsilon, "chi2_max": 4 * epsilon**2}
            add("$\\chi^2$ known too", ("TV of a token", epsilon), tokens, RULES, T=T, **by_chi2)
    for epsilon in np.geomspace(1e-8, 0.5, 28).tolist():
        for kl_seq in np.geomspace(1e-6, 100.0, 28).tolist():
            x, y = ("TV of a token", epsilon), ("KL of a response", kl_seq)
            add("All, $T$ = 4096", x, y, RULES, T=4096, epsilon=epsilon, kl_seq=kl_seq)
    return pd.DataFrame(rows)


def draw_regimes(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Fill the region of each ``rule``, pale where its ``value`` is above 1, and name the large ones inside."""
    from matplotlib.colors import ListedColormap

    rules = sorted(set(frame["rule"]), key=lambda name: -int((frame["rule"] == name).sum()))
    which = frame.pivot(index="y", columns="x", values="rule").map(rules.index)
    value = frame.pivot(index="y", columns="x", values="value").to_numpy(np.float64)
    x, y = which.columns.to_numpy(np.float64), which.index.to_numpy(np.float64)
    fills = ListedColormap([colour(k) for k in range(len(rules))])
    ax.set(xscale="log", yscale="log")
    limits: dict[str, Any] = {"vmin": -0.5, "vmax": len(rules) - 0.5}
    ax.pcolormesh(
        x, y, which.to_numpy(), cmap=fills, alpha=0.42, linewidth=0, shading="nearest", rasterized=True, **limits
    )
    if value.max() > 1.0:
        ax.contourf(x, y, np.log(value), levels=[0.0, 1e3], colors=[shade("paper")], alpha=0.66)
        ax.contour(x, y, np.log(value), levels=[0.0], colors=[shade("ink")], linewidths=0.9)
    for k, rule in enumerate(rules):
        where = which.to_numpy() == k
        if where.mean() >= 0.06:
            row, column = _roomiest(where, value <= 1.0)
            words = _IN_WORDS.get(rule) or "\n".join(textwrap.wrap(rule_of(rule).title.lower(), 9))
            ax.text(
                x[column], y[row], words, ha="center", va="center", size=SMALL, linespacing=1.05, color=shade("ink")
            )
    for spine in ("top", "right"):
        ax.spines[spine].set_visible(True)
    for axis, ends in ((ax.xaxis, x), (ax.yaxis, y)):
        low, high = np.ceil(np.log10(ends[0])), np.floor(np.log10(ends[-1]))
        places = [10.0**p for p in np.linspace(low, high, 3).round()]
        axis.set_ticks(places, [f"$10^{{{math.log10(p):.0f}}}$" for p in places])
    ax.minorticks_off()
    ax.tick_params(pad=1.5, length=2)
    ax.set_xlabel(frame["x_name"].iloc[0], size=SMALL)
    ax.set_title(f"{ax.get_title('left')}\n", loc="left", weight="bold", pad=1)
    ax.annotate(
        frame["y_name"].iloc[0],
        (0, 1),
        (0, 2),
        xycoords="axes fraction",
        textcoords="offset points",
        size=SMALL,
        color=shade("soft"),
    )
    return ax


def _roomiest(region: BoolArray, says_something: BoolArray) -> tuple[int, int]:
    """Return the place of a region, or of its larger part, that is farthest from every edge; words are wide."""
    from scipy.ndimage import distance_transform_edt

    parts = [region & says_something, region & ~says_something]
    inside = np.pad(max(parts, key=np.sum), 1)
    room = distance_transform_edt(inside, sampling=(1.0, 0.4))[1:-1, 1:-1]
    row, column = np.unravel_index(room.argmax(), room.shape)
    return int(row), int(column)


def adaptive_routes_data() -> pd.DataFrame:
    """Say what each position adds to the adaptive bound, by steps ahead: columns ahead, route, contribution, cross.

    T = 4096, delta = 1e-4, epsilon = 5e-4: the routes cross at delta / (2 epsilon^2) = 200 steps ahead.
    """
    import pandas as pd

    T, delta, epsilon = 4096, 1e-4, 5e-4
    routes = {
        "by coupling": remaining_weights(T, epsilon=epsilon),
        "by KL": remaining_weights(T, delta=delta),
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
    """Draw ``contribution`` against the steps ``ahead``, by ``route``, named at its end; they ``cross`` at a line."""
    crossing = frame["cross"].iloc[0]
    ax.axvline(crossing, color=shade("soft"), linewidth=0.6, zorder=1)
    looks = (("published", "-", 1.2), ("good", "-", 1.2), ("ours", "--", 2.0))
    for (name, part), (hue, dash, width) in zip(frame.groupby("route", sort=False), looks, strict=True):
        ax.plot(part["ahead"], part["contribution"], dash, label=str(name), color=shade(hue), linewidth=width)
        last = part[part["ahead"] == part["ahead"].max()].iloc[0]
        name_at_end(ax, str(name), last["ahead"], last["contribution"], hue, up=-9.0 if dash == "--" else 2.0)
    ax.set(xscale="log", yscale="log", xlabel="tokens that follow, T \N{MINUS SIGN} t")
    ax.set_title("what the position adds to the bound", size=SMALL, color=shade("soft"), loc="left")
    ax.set_xticks([1, 10, crossing, 4095], ["1", "10", f"{crossing:g}", "4095"])
    ax.yaxis.set_major_formatter(lambda y, _: power(y))
    ax.minorticks_off()
    return ax


def tightness_data() -> pd.DataFrame:
    """Say how much of the best bound is attained, by what is known: see :func:`bounds.proof.worst_case.tightness`."""
    import pandas as pd

    from bounds.proof.worst_case import tightness

    return pd.DataFrame(tightness()).drop(columns="open")


def tightness_told(frame: pd.DataFrame) -> Told:
    """Count for how much knowledge the best bound is known to be the best there can be."""
    exact = frame.groupby("information", sort=False)["exact"].all()
    return (
        f"{exact.sum()} of {exact.size} bounds, each the best for\nwhat is known, cannot be improved",
        "Each dot is a case with a known error",
    )


def draw_tightness(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a row of dots at ``ratio`` for each ``information``, filled and "exact" where bound and truth meet."""
    rows = [part for _, part in frame.groupby("information", sort=False)]
    name_rows(ax, [f"{part['information'].iloc[0]}\n{part['rule'].iloc[0]}" for part in rows], {})
    for row, part in enumerate(rows):
        for ratio, exact in zip(part["ratio"], part["exact"], strict=True):
            dot(ax, ratio, row, FAMILY_COLOURS["sharp" if exact else "published"], filled=exact)
    write_numbers(ax, 0, ["exact" if part["exact"].all() else "open" for part in rows])
    ax.set(xlim=(0.0, 1.05), xlabel="error attained / best bound")
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
            frames.append(
                pd.DataFrame({"panel": "Share kept by a maximum, (1 − p)$^T$", "series": f"p = {p:g}", **kept})
            )
    t = np.unique(np.concatenate([np.linspace(1, 4096, 100).round(), np.arange(3697, 4097, 10)])).astype(int)
    by_tv, by_kl = {"epsilon": 5e-4}, {"delta": 1e-4}
    for series, known in (("by TV", by_tv), ("by KL", by_kl), ("the smaller", by_tv | by_kl)):
        weights = remaining_weights(4096, **known)[t - 1]
        frames.append(
            pd.DataFrame({"panel": "Weights of LN-TRM", "series": series, "x": t, "value": weights, "marked": False})
        )
    return pd.concat(frames, ignore_index=True)


def draw_acceptance(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw acceptance against length, a curve for each share of violating tokens; marks at the paper's lengths."""
    curves, marked = frame[~frame["marked"]], frame[frame["marked"]]
    draw_bands(curves, ax)
    for k, (name, part) in enumerate(marked.groupby("series", sort=False)):
        ax.plot(part["x"], part["value"], "s", color=colour(k), markersize=3)
        for x, value in zip(part["x"].tolist(), part["value"].tolist(), strict=True):
            text = share_text(value, least=0.0005)
            ax.annotate(text, (x, value), (3, 3), textcoords="offset points", size=SMALL, color=colour(k))
        last = part.iloc[-1]
        ax.annotate(
            str(name), (last["x"], last["value"]), (5, -1), textcoords="offset points", va="top", color=colour(k)
        )
    ax.set(xscale="log", ylim=(-0.03, 1.15), xlabel="length of the response, tokens", yticks=[0, 0.5, 1])
    ax.set_xticks([100, 1000, 10000], ["100", "1000", "10,000"])
    ax.minorticks_off()
    return ax


def draw_weights(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw LN-TRM's weights against the position."""
    looks = (("published", "-", 1.2), ("good", "-", 1.2), ("ours", "--", 2.0))
    for (name, part), (hue, dash, width) in zip(frame.groupby("series", sort=False), looks, strict=True):
        ax.plot(part["x"], part["value"], dash, label=str(name), color=shade(hue), linewidth=width)
        first = part.iloc[0]
        ax.annotate(
            str(name),
            (first["x"], first["value"]),
            (4, 4 if dash == "-" else -9),
            textcoords="offset points",
            color=shade(hue),
        )
    ax.set(xlabel="position t of the token", ylim=(-0.03, 1.35), yticks=[0, 0.5, 1])
    ax.set_xticks([1, 2000, 4096], ["1", "2000", "4096"])
    return ax
