"""Figures of what a log says: the numbers of an answer, and below them how they are drawn."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import many, near, round_up_whole, shown
from bounds.certificate.verdict import Word
from bounds.figures.drawing import (
    FAMILY_COLOURS,
    NAMED_BOUNDS,
    Told,
    dot,
    draw_bands,
    few_ticks,
    name_ends,
    name_rows,
    on_log_rows,
    outward,
    power,
    signed,
    typeset,
    upward,
    write_numbers,
)
from bounds.figures.style import SMALL, colour, shade
from bounds.results import Standing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bounds.certificate.certificate import Certificate
    from bounds.certificate.compare import Comparison, Comparisons
    from bounds.questions.by_position import ByPosition
    from bounds.questions.mask_study import MaskStudy
    from bounds.questions.over_time import RunOverTime
    from bounds.questions.plan import Plan

# --- the verdict: every interval of J(train) - J(rollout) against 0 ----------------------------------------------

#: The intervals, in words; the one that decides comes first. "guaranteed" ones hold for every sample size.
_INTERVALS = {
    "improvement": "Prompts like these",
    "improvement_these_prompts": "{these}",
    "improvement_asymptotic": "Likely range",
    "improvement_by_surrogate": "Surrogate minus error",
}

_SURE = {Standing.MEASURED: "guaranteed", Standing.ESTIMATED: "estimate", Standing.ASSUMED: "assumed"}
#: Names in the palette of the colours of verdicts.
HUES = {"green": "good", "red": "bad", "yellow": "open"}
_TITLE_WIDTH = 46  # characters of a bold title in one column


def verdict_frame(certificate: Certificate) -> pd.DataFrame:
    """List intervals of J(theta) - J(roll), the one that decides first: columns name, standing, value, low, high.

    The same in all rows: promise and error of the surrogate; word, change and confidence of the verdict. It has no
    rows where the log has no rewards.
    """
    import pandas as pd

    c = certificate
    gain, error, intervals = c.estimates["surrogate_gain"], c.best, c.guarantees.intervals
    rows = [
        {
            "name": words.format(these="This one prompt" if c.prompts == 1 else f"These {c.prompts} prompts"),
            "standing": _SURE[i.standing],
            "value": math.nan if name == "improvement_by_surrogate" else i.value,
            "low": i.low,
            "high": i.high,
        }
        for name, words in sorted(_INTERVALS.items(), key=lambda entry: intervals.get(entry[0]) is not c.headline)
        if (i := intervals.get(name)) is not None
    ]
    columns = ["name", "standing", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).assign(
        promise=math.nan if gain is None else gain.value,
        error=math.nan if error is None else error.value,
        word=c.verdict.word.value,
        change=c.verdict.change,
        confidence=c.confidence,
    )


def verdict_told(frame: pd.DataFrame) -> tuple[Told, str]:
    """Say the verdict of intervals, and the colour that it has."""
    first = frame.iloc[0]
    word = Word[first["word"].replace(" ", "_")]
    title = "\n".join(textwrap.wrap(f"{word.sign} {word}: {first['change']}", _TITLE_WIDTH))
    under = f"Mean reward, training minus rollout policy, at {100 * first['confidence']:.6g}%"
    return (title, under), HUES[word.colour]


def verdict_span(frame: pd.DataFrame) -> tuple[float, float]:
    """Return from where to where intervals, promise and 0 are drawn."""
    promise, error = frame["promise"].iloc[0], frame["error"].iloc[0]
    ends = [x for x in (*frame["low"], *frame["high"], promise - error, promise + error, 0.0) if math.isfinite(x)]
    room = 0.04 * (max(ends) - min(ends) or 1.0)
    return min(ends) - room, max(ends) + room


def verdict_numbers(frame: pd.DataFrame) -> list[str]:
    """Write each interval, rounded outward, to the decimals that the first needs for three digits."""
    largest = max((abs(x) for x in frame.iloc[0][["low", "high"]] if math.isfinite(x)), default=1.0)
    decimals = max(0, 2 - math.floor(math.log10(max(largest, 1e-9))))
    return [outward(low, high, decimals) for low, high in zip(frame["low"], frame["high"], strict=True)]


def promised(frame: pd.DataFrame) -> str:
    """Say what the surrogate promises, and how far that can be off."""
    promise, error = frame["promise"].iloc[0], frame["error"].iloc[0]
    off = f" \N{PLUS-MINUS SIGN} {shown(error)}" if math.isfinite(error) else ", and nothing bounds its error"
    return f"Band: the surrogate's promise, {signed(promise)}{off} (estimate)"


def draw_verdict(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw each interval in a strip of its own against 0, named above it; the promise and its error are a band.

    A thick line with a filled dot is guaranteed, a thin one with a hollow dot is an estimate, an arrow an open end.
    """
    promise, error = frame["promise"].iloc[0], frame["error"].iloc[0]
    left, right = verdict_span(frame)
    ax.set(xlim=(left, right), ylim=(len(frame) - 0.05, -0.08), yticks=[])
    ax.spines["left"].set_visible(False)
    for row, (i, numbers) in enumerate(zip(frame.to_dict("records"), verdict_numbers(frame), strict=True)):
        top, middle, bottom = row + 0.38, row + 0.62, row + 0.86
        sure, decides = i["standing"] != "estimate", row == 0
        hue = (verdict_told(frame)[1] if decides else "ink") if sure else "soft"
        if math.isfinite(promise):
            band = (promise - error, promise + error) if math.isfinite(error) else (left, right)
            ax.fill_betweenx([top, bottom], *band, color=shade("published"), alpha=0.18, linewidth=0)
            ax.plot([promise] * 2, [top, bottom], color=shade("published"), linewidth=1.0)
        ax.plot([0.0, 0.0], [top, bottom], color=shade("ink"), linewidth=0.9)
        ends_here = [end if math.isfinite(end) else edge for end, edge in ((i["low"], left), (i["high"], right))]
        width = 2.8 if decides and sure else 2.0 if sure else 1.1
        ax.plot(ends_here, [middle] * 2, color=shade(hue), linewidth=width, solid_capstyle="butt", zorder=3)
        for end, edge, mark in ((i["low"], left, "<"), (i["high"], right, ">")):
            if not math.isfinite(end):
                ax.plot([edge], [middle], mark, color=shade(hue), markersize=4.5, clip_on=False, zorder=4)
        if math.isfinite(i["value"]):
            dot(ax, i["value"], middle, hue, filled=sure)
        bold: dict[str, Any] = {"weight": "bold" if decides else "normal", "color": shade(hue if decides else "ink")}
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
        name = ax.annotate(i["name"], (0.0, row + 0.14), **place, **bold)
        ax.annotate(i["standing"], (1.0, 0.5), (5, 0), xycoords=name, textcoords="offset points", va="center",
                    size=SMALL, color=shade("soft"), annotation_clip=False)  # fmt: skip
        ax.annotate(numbers, (1.0, row + 0.14), ha="right", **place, **bold)
    few_ticks(ax, x=True)
    ax.xaxis.set_major_formatter(lambda x, _: "0" if abs(x) < 1e-12 else signed(x))
    if math.isfinite(promise):
        ax.set_xlabel(promised(frame), color=shade("published"))
    return ax


# --- bounds on the error, from the classical one down to what the responses show ---------------------------------

_WORST = "Worst error seen"


def ladder_frame(certificate: Certificate) -> pd.DataFrame:
    """List bounds under their names, and the measured worst error, largest first.

    Columns name, family, value, high, optimistic, vacuous_from.
    """
    import pandas as pd

    c = certificate
    table = {b.name: b for b in (*c.optimistic, *c.table.bounds)}
    rows = []
    for name, rules in NAMED_BOUNDS.items():
        if found := [table[rule] for rule in rules if rule in table]:
            b = min(found, key=lambda b: b.value)
            high = c.best_upper.value if c.best_upper is not None and b.name == c.best_upper.name else math.nan
            rows.append((name, b.family, b.value, high, b.optimistic))
    # with a support gap the logged responses miss what theta does elsewhere; the other form sees it
    gap = not c.table.profile["absolutely_continuous"]
    worst = c.estimates["worst_case_error_with_gap" if gap else "worst_case_error"]
    limit = c.estimates["worst_case_error_measured"]
    rows += [(_WORST, "measured", worst.value, worst.high, False)] if worst else []
    if limit and limit.high < c.table.reward_spread:  # else it says nothing
        rows.append(("Worst error, guaranteed", "measured", limit.high, math.nan, False))
    frame = pd.DataFrame(rows, columns=["name", "family", "value", "high", "optimistic"])
    frame = frame.assign(vacuous_from=c.table.reward_spread)
    return frame.sort_values("value", ascending=False, kind="stable", ignore_index=True)


def draw_ladder(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a dot at ``value`` by ``name``, largest on top: hollow where ``optimistic``; a line up to ``high``."""
    part = frame[np.isfinite(frame["value"])]
    names = part["name"].tolist()
    best = part[part["family"] != "measured"].iloc[-1:]
    name_rows(ax, names, {row["name"]: FAMILY_COLOURS[row["family"]] for _, row in best.iterrows()})
    on_log_rows(ax, part[["value", "high"]].to_numpy(np.float64), float(frame["vacuous_from"].iloc[0]))
    floor = ax.get_xlim()[0]  # 0 has no place on this scale
    for row, r in enumerate(part.itertuples(index=False)):
        hue = FAMILY_COLOURS[r.family]
        if math.isfinite(r.high):
            ax.plot([max(r.value, floor), max(r.high, floor)], [row, row], color=shade(hue), linewidth=2.4, alpha=0.45)
        dot(ax, max(r.value, floor), row, hue, filled=not r.optimistic)
    heroes = {names.index(n): FAMILY_COLOURS[f] for n, f in zip(best["name"], best["family"], strict=True)}
    write_numbers(ax, 0, [upward(x) for x in part["value"]], "estimate", heroes)
    write_numbers(ax, 1, [shown(x) if math.isfinite(x) else "" for x in part["high"]], "up to")
    if ax.get_title("left"):  # above what is written over the columns
        ax.set_title(ax.get_title("left"), loc="left", pad=13)
    if part["optimistic"].any():
        ax.set_xlabel("hollow: at the largest divergence seen", size=SMALL)
    return ax


# --- by position -------------------------------------------------------------------------------------------------

_OF_A_TOKEN = {"kl": "KL of a token, nats", "tv": "Total variation of a token", "chi2": "$\\chi^2$ of a token"}


def position_frame(found: ByPosition) -> pd.DataFrame:
    """List divergences by position: columns panel, x (middle of the bin), value, low, high."""
    frame = found.to_frame()
    return _by_panel(frame, (frame["first"] + frame["last"]) / 2).replace({"panel": _OF_A_TOKEN})


def draw_positions(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw one divergence by position, from 0 up."""
    draw_bands(frame, ax).set_xlabel("position of the token in the response")
    low, high = ax.get_ylim()
    ax.set_ylim(min(0.0, low), high)
    few_ticks(ax)
    return ax


def kl_by_position(found: ByPosition) -> pd.DataFrame:
    """Keep the first divergence of :func:`position_frame`: KL where it is known."""
    frame = position_frame(found)
    return frame.groupby("panel", sort=False).get_group(frame["panel"].iloc[0]).reset_index(drop=True)


# --- a run, step by step -----------------------------------------------------------------------------------------

_OF_A_STEP = {
    "kl_seq": "KL of a response, nats",
    "acceptance": "Kept by the mask, share",
    "worst_case_error": "Worst error, reward",
    "surrogate_gain": "Promised by the surrogate",
    "ppl_gap": "Log-prob gap, nats a token",
    "improvement": "Reward gain, guaranteed",
}
#: What is measured in units of the reward cannot leave the range of the rewards: what does is noise, and not drawn.
_IN_REWARD = ("worst_case_error", "surrogate_gain", "improvement")


def over_time_frame(run: RunOverTime) -> pd.DataFrame:
    """List a run's estimates by step: columns panel, quantity, x (the step), value, low, high, limit, lost, spread.

    ``limit`` is of kl_seq; without a mask there is no acceptance to show.
    """
    frame = run.to_frame()
    panels = _by_panel(frame, frame["step"]).rename(columns={"panel": "quantity"})
    panels = panels[panels["quantity"].isin(_OF_A_STEP)]
    shown_in = panels[(panels["quantity"] != "acceptance") | (panels["low"] < 1.0)]
    order = [name for name in _OF_A_STEP if name in set(shown_in["quantity"])]
    ordered = shown_in.sort_values("quantity", key=lambda names: names.map(order.index), kind="stable")
    limit = np.where(ordered["quantity"] == "kl_seq", run.limit, np.nan)
    extra = {"limit": limit, "lost": run.lost, "spread": run.reward_spread}
    return ordered.assign(panel=ordered["quantity"].map(_OF_A_STEP), **extra).reset_index(drop=True)


def over_time_told(frame: pd.DataFrame) -> Told:
    """Say where the trust region was lost."""
    kl = frame[frame["quantity"] == "kl_seq"]
    kl = kl.set_index(kl["x"].astype(str))
    limit, lost = kl["limit"].iloc[0], kl["lost"].iloc[0]
    under = "Line: mean over prompts; band: 95% interval"
    if not isinstance(lost, str):
        return f"The KL of a response stays below {limit:g}", under
    up_to = shown(kl["high"].to_dict()[lost])
    return f"Trust region lost at step {lost}: the KL of a\nresponse may be {up_to}, the limit is {limit:g}", under


def draw_over_time(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw one estimate step by step, the limit that it had to keep, and where that was lost."""
    steps, quantity = frame["x"].astype(str).tolist(), frame["quantity"].iloc[0]
    limit, lost, spread = frame["limit"].iloc[0], frame["lost"].iloc[0], frame["spread"].iloc[0]
    numbers = frame[["value", "low", "high"]]
    if quantity == "improvement":  # what is guaranteed is the interval
        numbers = numbers.assign(value=np.nan)
    if quantity in _IN_REWARD:
        numbers = numbers.clip(-spread, spread)
    draw_bands(frame.assign(x=np.arange(len(steps)), **numbers), ax)
    few_ticks(ax)
    if quantity == "acceptance":
        ax.set_ylim(-0.05, 1.1)
    if quantity in ("surrogate_gain", "improvement"):
        ax.axhline(0.0, color=shade("ink"), linewidth=0.7, zorder=1)
    if isinstance(lost, str):
        ax.axvline(steps.index(lost), color=shade("bad"), linewidth=0.9, zorder=1)
    if math.isfinite(limit):
        ax.axhline(limit, color=shade("bad"), linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        ticks = [limit, *(y for y in ax.get_yticks() if y > 2.0 * limit and y < ax.get_ylim()[1])]
        ax.set_yticks(ticks, [typeset(near(y)) for y in ticks])
        ax.yaxis.get_ticklabels()[0].set(color=shade("bad"), weight="bold")
        if isinstance(lost, str):
            ax.annotate(
                f"lost at step {lost}", (steps.index(lost), 1.0), (3, -2), xycoords=("data", "axes fraction"),
                textcoords="offset points", va="top", size=SMALL, color=shade("bad"), weight="bold",
            )  # fmt: skip
    return _name_steps(steps, ax)


def with_ledger(frame: pd.DataFrame, run: RunOverTime) -> pd.DataFrame:
    """Add a panel to a run's: what the steps promised so far, between how far that can be off on both sides."""
    import pandas as pd

    steps = run.to_frame()
    promised, off = steps["promised_so_far"], steps["error_so_far_high"]
    ends = {"value": promised, "low": promised - off, "high": promised + off}
    panel = steps[[]].assign(panel="Promised so far, and how far off that can be", x=steps["step"], **ends)
    return pd.concat([frame, panel], ignore_index=True)


def draw_ledger_of_steps(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the sum of promises step by step, with a band as wide as they can be off together."""
    steps = frame["x"].astype(str).tolist()
    draw_bands(frame.assign(x=np.arange(len(steps))), ax)
    ax.axhline(0.0, color=shade("ink"), linewidth=0.7, zorder=1)
    few_ticks(ax)
    return _name_steps(steps, ax)


def _name_steps(steps: list[str], ax: Axes) -> Axes:
    """Write at most six of the names of steps below."""
    stride = max(-(-len(steps) // 6), 1)
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


# --- masks -------------------------------------------------------------------------------------------------------

_SHARE_KEPT = "Share of rewarded (filled), others kept"
_GAIN = "Gain shown at least, in reward (estimate)"
_MASKS = {"seq_max_k2": "largest token", "seq_mean_k3": "mean of tokens"}


def mask_frame(study: MaskStudy) -> pd.DataFrame:
    """List masks by acceptance: columns panel, series, of, x (acceptance), mask, value, low, high."""
    import pandas as pd

    rows = [
        (panel, terms.mask.partition("<")[0], of, terms.acceptance.value, terms.mask, getattr(terms, name))
        for panel, name, of in (
            (_SHARE_KEPT, "acceptance_high_reward", "rewarded"),
            (_SHARE_KEPT, "acceptance_low_reward", "others"),
            (_GAIN, "lower", "all"),
        )
        for terms in sorted(study.by_threshold, key=lambda t: t.acceptance.value)
    ]
    rows.append((_GAIN, "no mask", "all", 1.0, "", study.gain_without_mask))
    known = [(*where, i.value, i.low, i.high) for *where, i in rows if i is not None]
    return pd.DataFrame(known, columns=["panel", "series", "of", "x", "mask", "value", "low", "high"])


def draw_masks(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw dots with their error bars against acceptance by ``series``, and what no mask would do."""
    of_masks, no_mask = frame[frame["series"] != "no mask"], frame[frame["series"] == "no mask"]
    shares = frame["panel"].iloc[0] == _SHARE_KEPT
    kinds = list(dict.fromkeys(of_masks["series"]))
    for k, series in enumerate(kinds):
        for j, of in enumerate(dict.fromkeys(of_masks["of"])):
            part = of_masks[(of_masks["series"] == series) & (of_masks["of"] == of)]
            ends = part[["low", "high"]].clip(0.0, 1.0) if shares else part[["low", "high"]]
            ax.vlines(part["x"], ends["low"], ends["high"], color=colour(k), linewidth=0.8, alpha=0.7)
            fill = colour(k) if j == 0 else shade("paper")
            look: dict[str, Any] = {"markersize": 3.6, "markerfacecolor": fill, "linewidth": 0.9}
            ax.plot(
                part["x"], part["value"], "o-" if j == 0 else "o:", color=colour(k), label=f"{series}, {of}", **look
            )
    if shares:
        ax.plot([0, 1], [0, 1], color=shade("line"), linewidth=0.8, zorder=0)
        for k, series in enumerate(kinds):
            name, place = f"mask on {_MASKS.get(str(series), series)}", (0.02, 0.95 - 0.13 * k)
            bold: dict[str, Any] = {"color": colour(k), "size": SMALL, "weight": "bold", "va": "top"}
            ax.annotate(name, place, xycoords="axes fraction", **bold)
        ax.set_ylim(-0.04, 1.08)
    ax.margins(y=0.15)
    for value in no_mask["value"]:
        ax.axhline(value, color=shade("ink"), linewidth=0.8, linestyle=":", zorder=1)
        ax.annotate(
            f"no mask: {signed(value)}",
            (0.0, value),
            (2, 2),
            textcoords="offset points",
            size=SMALL,
            color=shade("ink"),
        )
    few_ticks(ax)
    ax.set(xlim=(0.0, 1.03), xlabel="share of all responses that is kept")
    return ax


# --- logs against the first --------------------------------------------------------------------------------------

_OF_A_LOG = {n: _OF_A_STEP[n] for n in ("kl_seq", "worst_case_error")} | {"reward": "Mean reward"}


def comparison_frame(found: Comparison | Comparisons) -> pd.DataFrame:
    """List how logs differ from the first: columns panel, name, value, low, high."""
    import pandas as pd

    every, rows = _against_first(found), []
    for quantity, said in _OF_A_LOG.items():
        for name, c in every.others.items():
            if quantity in c.estimates and math.isfinite((d := c[quantity].difference).value):
                panel = f"{said}: {near(c[quantity].first.value)} in {_short(every.first)}"
                rows.append((panel, _short(name), d.value, d.low, d.high))
    return pd.DataFrame(rows, columns=["panel", "name", "value", "low", "high"])


def comparison_told(found: Comparison | Comparisons) -> Told:
    """Say in which logs the KL of a response differs from that of the first."""
    every = _against_first(found)
    differs = every.told_apart("kl_seq", all_of_them=False)
    title = f"The KL of a response is {differs}" if differs else "No log has clearly another KL of a response"
    under = f"Differences from {_short(every.first)}, prompt by prompt; filled: clear"
    return "\n".join(textwrap.wrap(title, 48, max_lines=2, placeholder=" ...")), under


def _against_first(found: Comparison | Comparisons) -> Comparisons:
    from bounds.certificate.compare import Comparison, Comparisons

    return Comparisons("the first", {"the second": found}) if isinstance(found, Comparison) else found


def draw_comparison(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw how one estimate of each log differs from that of the first, a row for each; what is clear is filled."""
    clear = ((frame["low"] > 0.0) | (frame["high"] < 0.0)).tolist()
    name_rows(ax, frame["name"].tolist(), {})
    ax.axvline(0.0, color=shade("ink"), linewidth=0.9, zorder=1)
    for row, (i, sure) in enumerate(zip(frame.to_dict("records"), clear, strict=True)):
        hue = "ours" if sure else "soft"
        ends, width = [i["low"], i["high"]], 2.0 if sure else 1.1
        ax.plot(ends, [row, row], color=shade(hue), linewidth=width, solid_capstyle="butt")
        dot(ax, i["value"], row, hue, filled=sure)
    largest = max(abs(frame["value"]).max(), 1e-9)
    decimals = max(0, 2 - math.floor(math.log10(largest)))
    write_numbers(ax, 0, [typeset(f"{x:+.{decimals}f}") for x in frame["value"]])
    few_ticks(ax, x=True)
    ax.xaxis.set_major_formatter(lambda x, _: "0" if abs(x) < 1e-12 else signed(x))
    return ax


def _short(name: str) -> str:
    """Keep the end of a long name, which tells files apart."""
    return name if len(name) <= 18 else f"\N{HORIZONTAL ELLIPSIS}{name[-17:]}"


# --- a plan ------------------------------------------------------------------------------------------------------


def plan_frame(plan: Plan) -> pd.DataFrame:
    """List the smallest gains by prompts: columns x (prompts), kl_seq, value; planned and gain, responses and power."""
    frame = plan.to_frame().rename(columns={"prompts": "x", "gain": "value"}).dropna()
    facts = {"planned": plan.prompts, "gain": plan.gain, "responses": plan.responses, "power": plan.power}
    return frame.assign(at=plan.kl_seq, **facts)


def plan_told(frame: pd.DataFrame) -> Told:
    """Say what the planned number of prompts shows."""
    first = frame.iloc[0]
    each = many(int(first["responses"]), "response")
    under = f"Smallest gain that {100 * first['power']:g}% of runs show, {each} to a prompt"
    if first["planned"] is None or not first["planned"] > 0:
        return "How small a gain can be shown", under
    return f"{round_up_whole(int(first['planned']))} prompts show a gain of {near(first['gain'])}", under


def draw_plan(frame: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the smallest gain that is shown against the number of prompts, a line for each KL, and the plan as a dot."""
    from matplotlib.ticker import NullLocator

    first = frame.iloc[0]
    ax.set(xscale="log", yscale="log", xlabel="prompts", ylabel="gain of the mean reward")
    ends = []
    for k, (_, part) in enumerate(frame.groupby("kl_seq", sort=False)):
        ax.plot(part["x"], part["value"], "o-", color=colour(k), markersize=2.6)
        ends.append((f"KL {near(part['kl_seq'].iloc[0])}", part["x"].iloc[-1], part["value"].iloc[-1], colour(k)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda x, _: power(x))
        axis.set_minor_locator(NullLocator())
    if first["planned"] is not None and first["planned"] > 0:
        dot(ax, first["planned"], first["gain"], "ink", filled=True)
    ax.autoscale_view()  # so that it is known where the lines end
    name_ends(ax, ends, 0.1)
    return ax


# --- what is drawn in the repository -----------------------------------------------------------------------------


def example_verdict() -> pd.DataFrame:
    """Ask the embedded log for its intervals of J(theta) - J(roll)."""
    import bounds

    return verdict_frame(bounds.certify(bounds.example_traces()))


def certificate_data() -> pd.DataFrame:
    """Ask the embedded log: intervals against 0, KL by position, and the ladder of bounds, each a ``panel``."""
    import pandas as pd

    import bounds

    log = bounds.example_traces()
    c, kl = bounds.certify(log), kl_by_position(bounds.by_position(log))
    change, error = "Change of the mean reward", "How far off the surrogate can be"
    parts = [verdict_frame(c).assign(panel=change), kl, ladder_frame(c).assign(panel=error)]
    return pd.concat(parts, ignore_index=True)


def run_over_time_data() -> pd.DataFrame:
    """Ask the embedded run, under TRM-Avg: see :func:`bounds.plot_over_time`."""
    import bounds

    return over_time_frame(bounds.over_time(bounds.example_traces("run"), mask="seq_mean_k3<=0.001"))


def mask_tradeoff_data() -> pd.DataFrame:
    """Ask the embedded log about masks, by threshold: see :func:`bounds.plot_masks`."""
    import bounds

    return mask_frame(bounds.mask_study(bounds.example_traces()))
