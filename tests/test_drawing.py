"""What is drawn is the frame: every place, length, colour, number and name of every picture."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import bounds
from bounds._text import shown
from bounds.figures import FIGURES, drawing, logs, style, theory

ROOT = Path(__file__).parents[1]
NAN = math.nan


@pytest.fixture
def ax():
    with style.look("light"):
        yield Figure(layout="constrained").subplots()


def stored(name):
    return pd.read_csv(ROOT / "figures" / f"{name}.csv")


def curves(ax):
    """Labelled lines: x and y."""
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in ax.get_lines()
        if not line.get_label().startswith("_") and len(line.get_xdata())
    }


def across(ax, *, vertical):
    """Where lines cross the whole axes."""
    transform = ax.get_xaxis_transform() if vertical else ax.get_yaxis_transform()
    found = [line for line in ax.get_lines() if line.get_transform() == transform]
    return [float((line.get_xdata() if vertical else line.get_ydata())[0]) for line in found]


def written(ax):
    """Texts by their place."""
    return {getattr(text, "xy", text.get_position()): text.get_text() for text in ax.texts}


def titles(axis):
    """Labels of ticks by their place."""
    return dict(zip(axis.get_ticklocs().tolist(), [t.get_text() for t in axis.get_ticklabels()], strict=True))


def dots(ax):
    """Dots by their row: from left to right, place and whether it is filled."""
    found = {}
    for line in ax.get_lines():
        if line.get_marker() == "o" and len(line.get_xdata()) == 1:
            filled = to_hex(line.get_markerfacecolor()) == to_hex(line.get_color())
            found.setdefault(line.get_ydata()[0], []).append((line.get_xdata()[0], filled, to_hex(line.get_color())))
    return {row: sorted(marks) for row, marks in found.items()}


def scales(ax):
    return ax.get_xscale(), ax.get_yscale()


def edges(collection):
    """Lowest and highest y of a band at each x."""
    (path,) = collection.get_paths()
    x, y = path.vertices.T
    return {float(place): (y[x == place].min(), y[x == place].max()) for place in np.unique(x)}


def two_series():
    return pd.DataFrame(
        {
            "series": ["a"] * 3 + ["b"] * 3,
            "x": [1.0, 2.0, 4.0] * 2,
            "value": [0.2, 0.3, 0.5, 0.7, 0.6, 0.9],
            "low": [0.1, 0.25, 0.4, 0.6, 0.5, 0.8],
            "high": [0.25, 0.4, 0.7, 0.9, 0.65, 1.1],
        }
    )


# --- one frame, one panel ----------------------------------------------------------------------------------


def test_bands_run_from_low_to_high_around_their_line(ax):
    frame = two_series()
    drawing.draw_bands(frame, ax)
    for k, (series, part) in enumerate(frame.groupby("series")):
        assert curves(ax)[series] == (part["x"].tolist(), part["value"].tolist())
        ends = zip(part["low"], part["high"], strict=True)
        assert edges(ax.collections[k]) == dict(zip(part["x"], ends, strict=True))
        shades = {to_hex(ax.get_lines()[k].get_color()), to_hex(ax.collections[k].get_facecolor()[0])}
        assert shades == {to_hex(style.colour(k))}
    assert len(ax.collections) == 2
    assert scales(ax) == ("linear", "linear")


def test_a_band_without_an_end_leaves_the_panel(ax):
    frame = pd.DataFrame({"x": [1.0, 2.0], "value": [0.2, 0.3], "low": [-math.inf, 0.1], "high": [math.inf, 0.4]})
    drawing.draw_bands(frame, ax)
    assert edges(ax.collections[0])[1.0] == pytest.approx(ax.get_ylim())
    assert edges(ax.collections[0])[2.0] == (0.1, 0.4)
    assert ax.get_ylim() == pytest.approx((0.1, 0.4), abs=0.02)


def test_positions_are_a_line_in_its_band(ax):
    part = stored("certificate").query("panel.str.startswith('KL')")
    logs.draw_positions(part, ax)
    (line,) = ax.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == (part["x"].tolist(), part["value"].tolist())
    assert list(edges(ax.collections[0]).values()) == list(zip(part["low"], part["high"], strict=True))
    assert "position" in ax.get_xlabel()
    assert ax.get_ylim()[0] == 0.0


def over_time(quantity, limit=NAN, lost=None):
    frame = pd.DataFrame({"x": ["0", "5", "7"], "value": [0.1, -0.2, 0.3]})
    ends = {"low": frame["value"] - 0.05, "high": frame["value"] + 0.1}
    return frame.assign(quantity=quantity, **ends, limit=limit, lost=lost, spread=1.0)


def test_a_run_shows_its_steps_its_limit_and_where_it_was_lost(ax):
    frame = over_time("kl_seq", 0.25, "7")
    logs.draw_over_time(frame, ax)
    assert list(ax.get_lines()[0].get_ydata()) == frame["value"].tolist()
    assert list(edges(ax.collections[0]).values()) == list(zip(frame["low"], frame["high"], strict=True))
    assert titles(ax.xaxis) == {0: "0", 1: "5", 2: "7"}
    assert across(ax, vertical=False) == [0.25]
    assert titles(ax.yaxis)[0.25] == "0.25"
    assert across(ax, vertical=True) == [2.0]
    assert list(written(ax).values()) == ["lost at step 7"]


@pytest.mark.parametrize(("quantity", "lines"), [("improvement", [0.0]), ("surrogate_gain", [0.0]), ("acceptance", [])])
def test_only_what_may_be_negative_has_a_line_at_zero(ax, quantity, lines):
    logs.draw_over_time(over_time(quantity), ax)
    assert across(ax, vertical=False) == lines
    assert across(ax, vertical=True) == []
    assert not written(ax)


def test_noise_beyond_the_range_of_the_rewards_is_no_spike(ax):
    frame = over_time("surrogate_gain").assign(value=[0.1, -7.0, 0.3], low=[0.0, -9.0, 0.2], high=[0.2, 3.0, 0.4])
    logs.draw_over_time(frame, ax)
    assert list(ax.get_lines()[0].get_ydata()) == [0.1, -1.0, 0.3]
    assert list(edges(ax.collections[0]).values()) == [(0.0, 0.2), (-1.0, 1.0), (0.2, 0.4)]


def test_of_what_is_guaranteed_only_the_interval_is_drawn(ax):
    frame = over_time("improvement")
    logs.draw_over_time(frame, ax)
    assert np.isnan(ax.get_lines()[0].get_ydata()).all()
    assert list(edges(ax.collections[0]).values()) == list(zip(frame["low"], frame["high"], strict=True))


def intervals(*rows):
    frame = pd.DataFrame(rows, columns=["name", "standing", "value", "low", "high"])
    return frame.assign(promise=0.02, error=0.01, word="UNDECIDED", change="it may rise or fall", confidence=0.95)


OPEN = ("Prompts like these", "guaranteed", 0.01, -0.1234, 0.2001)
LIKELY = ("Likely range", "estimate", 0.0, -0.03, 0.04)
LEAST = ("Surrogate minus error", "estimate", NAN, 0.01, math.inf)


def test_each_interval_has_a_strip_and_is_written_beside_it_rounded_outward(ax):
    logs.draw_verdict(intervals(OPEN, LIKELY, LEAST), ax)
    lines = {line.get_ydata()[0]: list(line.get_xdata()) for line in ax.get_lines()
             if len(line.get_xdata()) == 2 and len(set(line.get_ydata())) == 1}  # fmt: skip
    assert [lines[row + 0.62] for row in (0, 1)] == [[-0.1234, 0.2001], [-0.03, 0.04]]
    assert lines[2.62] == [0.01, ax.get_xlim()[1]]  # an open end goes to the edge, with an arrow
    assert [line.get_marker() for line in ax.get_lines() if line.get_marker() in "<>"] == [">"]
    texts = [text.get_text() for text in ax.texts]
    assert texts[::3] == ["Prompts like these", "Likely range", "Surrogate minus error"]
    assert texts[1::3] == ["guaranteed", "estimate", "estimate"]
    assert texts[2::3] == ["\N{MINUS SIGN}0.124 to +0.201", "\N{MINUS SIGN}0.030 to +0.040", "at least +0.010"]


def test_what_is_guaranteed_is_filled_and_thick_and_an_estimate_hollow_and_thin(ax):
    logs.draw_verdict(intervals(OPEN, LIKELY), ax)
    assert [marks[0][1] for _, marks in sorted(dots(ax).items())] == [True, False]
    widths = [line.get_linewidth() for line in ax.get_lines() if line.get_zorder() == 3]
    assert widths[0] > widths[1]


def test_the_band_is_the_promise_and_its_error(ax):
    logs.draw_verdict(intervals(OPEN), ax)
    (band,) = ax.collections
    assert (band.get_paths()[0].vertices[:, 0].min(), band.get_paths()[0].vertices[:, 0].max()) == (0.01, 0.03)
    assert "+0.02 \N{PLUS-MINUS SIGN} 0.01 (estimate)" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("low", "high", "word", "hue"),
    [(0.01, 0.2, "IMPROVES", "good"), (-0.2, -0.01, "HARMS", "bad"), (-0.1, 0.1, "UNDECIDED", "open"),
     (0.0, 0.1, "UNDECIDED", "open"), (-0.1, 0.0, "UNDECIDED", "open")],
)  # fmt: skip
def test_the_title_says_the_verdict_in_its_colour(ax, low, high, word, hue):
    frame = intervals(("Prompts like these", "guaranteed", (low + high) / 2, low, high)).assign(word=word)
    (title, _), colour = logs.verdict_told(frame)
    assert word in title
    assert colour == hue
    logs.draw_verdict(frame, ax)
    assert to_hex(ax.texts[0].get_color()) == to_hex(style.shade(hue))


def ladder():
    names = ["open", "published", "sharp", "measured", "nothing"]
    return pd.DataFrame(
        {
            "name": names,
            "family": ["published", "published", "sharp", "measured", "measured"],
            "value": [1677.312, 8.1921, 0.0104, 0.00231, 0.0],
            "high": [NAN, NAN, 0.012, 0.0046, NAN],
            "optimistic": [True, False, False, False, False],
            "vacuous_from": 2.0,
        }
    )


def test_a_rung_stands_at_its_value_and_says_it(ax):
    frame = ladder()
    logs.draw_ladder(frame, ax)
    assert titles(ax.yaxis) == dict(enumerate(frame["name"]))  # the largest on top
    assert ax.yaxis_inverted()
    floor = ax.get_xlim()[0]
    assert {row: [place for place, *_ in marks] for row, marks in dots(ax).items()} == {
        row: [max(value, floor)] for row, value in enumerate(frame["value"])
    }
    texts = [text.get_text() for text in ax.texts]
    assert [upward for upward in map(drawing.upward, frame["value"]) if upward not in texts] == []
    assert {"1677", "8.2", shown(0.012), shown(0.0046), "estimate", "up to", "says nothing"} <= set(texts)
    assert scales(ax)[0] == "log"


def test_rungs_at_the_largest_divergence_seen_are_hollow(ax):
    frame = ladder()
    logs.draw_ladder(frame, ax)
    for row, ((_, filled, hue),) in dots(ax).items():
        assert filled is not bool(frame["optimistic"][row])
        assert hue == to_hex(style.shade(drawing.FAMILY_COLOURS[frame["family"][row]]))
    assert "hollow" in ax.get_xlabel()


def test_a_line_ends_at_the_upper_limit(ax):
    logs.draw_ladder(ladder(), ax)
    whiskers = {line.get_ydata()[0]: list(line.get_xdata()) for line in ax.get_lines() if line.get_linewidth() == 2.4}
    assert whiskers == {2: [0.0104, 0.012], 3: [0.00231, 0.0046]}


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_where_a_bound_says_nothing_starts_at_the_spread_of_the_rewards(ax, spread):
    logs.draw_ladder(ladder().assign(vacuous_from=spread), ax)
    assert across(ax, vertical=True) == [spread]
    rows = bounds.plot_bounds(bounds.unified(T=64, delta=1e-3, reward_range=(0.0, spread)), Figure().subplots())
    assert across(rows, vertical=True) == [spread]


def masks(panel, *extra):
    values = [("max", 0.25, 0.1), ("max", 0.75, 0.3), ("mean", 0.25, 0.2), ("mean", 0.75, 0.95), *extra]
    frame = pd.DataFrame(values, columns=["series", "x", "value"])
    return frame.assign(panel=panel, of="all", low=frame["value"] - 0.15, high=frame["value"] + 0.2)


def test_masks_are_drawn_beside_no_mask(ax):
    logs.draw_masks(masks("gain", ("no mask", 1.0, 0.87)), ax)
    assert curves(ax) == {"max, all": ([0.25, 0.75], [0.1, 0.3]), "mean, all": ([0.25, 0.75], [0.2, 0.95])}
    assert np.array(ax.collections[1].get_segments())[:, :, 1] == pytest.approx(np.array([[0.05, 0.4], [0.8, 1.15]]))
    assert across(ax, vertical=False) == [0.87]
    assert list(written(ax).values()) == ["no mask: +0.87"]


def test_shares_kept_are_drawn_on_their_bars_within_0_and_1(ax):
    frame = masks(logs._SHARE_KEPT)
    logs.draw_masks(pd.concat([frame.assign(of="rewarded"), frame.assign(of="others", value=0.5)]), ax)
    assert curves(ax)["mean, rewarded"] == ([0.25, 0.75], [0.2, 0.95])
    assert curves(ax)["mean, others"] == ([0.25, 0.75], [0.5, 0.5])
    ends = np.concatenate([np.array(c.get_segments())[:, :, 1] for c in ax.collections])
    places = np.concatenate([np.array(c.get_segments())[:, 0, 0] for c in ax.collections])
    assert set(places) == {0.25, 0.75}  # a bar stands at its dot
    assert (ends.min(), ends.max()) == (0.0, 1.0)
    fills = {line.get_label(): to_hex(line.get_markerfacecolor()) for line in ax.get_lines() if "," in line.get_label()}
    assert fills["max, rewarded"] == to_hex(style.colour(0))
    assert fills["max, others"] == fills["mean, others"] == to_hex(style.shade("paper"))


def test_a_row_of_the_comparison_has_both_dots_and_both_numbers(ax):
    frame = stored("comparison")
    theory.draw_comparison(frame, ax)
    table = frame.pivot(index="bound", columns="inputs", values="value")
    names = titles(ax.yaxis)
    assert list(names.values()) == frame["bound"].drop_duplicates().tolist()
    assert table.loc[list(names.values()), "KL and TV"].is_monotonic_decreasing
    for row, marks in dots(ax).items():
        known = table.loc[names[row]]
        assert sorted(place for place, *_ in marks) == sorted(known)
        assert all(place == (known["KL and TV"] if filled else known["KL"]) for place, filled, _ in marks[:1])
    texts = [text.get_text() for text in ax.texts]
    for inputs in ("KL", "KL and TV"):
        for value in table[inputs]:
            assert drawing.upward(value) in texts
    assert across(ax, vertical=True) == [1.0]
    assert scales(ax)[0] == "log"


def test_a_curve_of_scaling_is_its_bound_and_is_named_with_its_power(ax):
    frame = stored("scaling")
    theory.draw_scaling(frame, ax)
    drawn = curves(ax)
    names = frame["bound"].unique().tolist()
    for name in names:
        part = frame[frame["bound"] == name]
        assert drawn[name] == (part["T"].tolist(), part["value"].tolist())
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["says nothing", "Classical ~ $T^{2}$", "Best published ~ $T^{1.5}$", f"{names[2]} ~ $T$", names[3]]
    assert across(ax, vertical=False) == [1.0]
    assert scales(ax) == ("log", "log")


def test_a_region_is_filled_for_its_rule_and_pale_where_the_bound_says_nothing(ax):
    x, y = [1e-3, 1e-2, 1e-1, 1.0], [4.0, 8.0, 64.0, 512.0]
    rows = [(a, b, "trajectory_kl" if a < 0.05 else "mixed_tv", 0.1 if a < 0.5 else 7.0) for a in x for b in y]
    frame = pd.DataFrame(rows, columns=["x", "y", "rule", "value"]).assign(x_name="TV of a token", y_name="tokens")
    theory.draw_regimes(frame, ax)
    fills = ax.collections[0].get_array().reshape(4, 4)
    assert (fills[:, :2] == fills[0, 0]).all()
    assert (fills[:, 2:] == 1 - fills[0, 0]).all()
    assert {text.get_text() for text in ax.texts} == {"KL of a\nresponse", "mixed", "tokens"}
    assert ax.get_xlabel() == "TV of a token"
    assert scales(ax) == ("log", "log")
    line = ax.collections[-1]
    assert to_hex(line.get_edgecolor()[0]) == to_hex(style.shade("ink"))
    assert 0.1 < line.get_paths()[0].vertices[:, 0].min() < 1.0


def test_routes_are_their_contributions_and_cross_where_the_line_stands(ax):
    frame = stored("adaptive_routes")
    theory.draw_routes(frame, ax)
    routes = dict(list(frame.groupby("route", sort=False)))
    assert curves(ax) == {n: (p["ahead"].tolist(), p["contribution"].tolist()) for n, p in routes.items()}
    assert [text.get_text() for text in ax.texts] == list(routes)
    (crossing,) = frame["cross"].unique()
    assert across(ax, vertical=True) == [crossing]
    assert titles(ax.xaxis)[crossing] == f"{crossing:g}"
    first, second, smaller = (p.set_index("ahead")["contribution"] for p in routes.values())
    assert ((first < second) == (first.index < crossing)).all()
    np.testing.assert_allclose(smaller, np.minimum(first, second))
    assert scales(ax) == ("log", "log")


def test_what_is_known_has_its_dots_filled_where_bound_and_truth_meet(ax):
    rows = [("D", "trajectory_kl", 0.9995, True), ("T and δ", "trajectory_kl", 0.5, False),
            ("T and δ", "trajectory_kl", 0.7, False)]  # fmt: skip
    theory.draw_tightness(pd.DataFrame(rows, columns=["information", "rule", "ratio", "exact"]), ax)
    drawn = {row: [mark[:2] for mark in marks] for row, marks in dots(ax).items()}
    assert drawn == {0: [(0.9995, True)], 1: [(0.5, False), (0.7, False)]}
    assert titles(ax.yaxis) == {0: "D\ntrajectory_kl", 1: "T and δ\ntrajectory_kl"}
    assert [text.get_text() for text in ax.texts] == ["exact", "open"]


def test_what_is_called_exact_is_attained():
    frame = stored("tightness")
    assert (frame["ratio"] <= 1.0).all()
    assert (frame.loc[frame["exact"], "ratio"] > 1.0 - 1e-3).all()
    assert set(frame["exact"]) == {True, False}


def test_acceptance_is_its_curve_and_the_paper_s_lengths_are_marked_with_their_numbers(ax):
    frame = stored("length_bias").query("panel.str.startswith('Share')").astype({"marked": bool})
    theory.draw_acceptance(frame, ax)
    marks = [line for line in ax.get_lines() if line.get_marker() == "s"]
    for (name, part), line in zip(frame.groupby("series", sort=False), marks, strict=True):
        curve, marked = part[~part["marked"]], part[part["marked"]]
        assert curves(ax)[name] == (curve["x"].tolist(), curve["value"].tolist())
        assert (list(line.get_xdata()), list(line.get_ydata())) == (marked["x"].tolist(), marked["value"].tolist())
        (same,) = (other for other in ax.get_lines() if other.get_label() == name)
        assert line.get_color() == same.get_color()
        np.testing.assert_allclose(curve["value"], (1.0 - float(name.split("= ")[1])) ** curve["x"])
        numbers = {text.xy: text.get_text() for text in ax.texts if not text.get_text().startswith("p")}
        for place in zip(marked["x"], marked["value"], strict=True):
            text = numbers.get(place, "")
            assert float(text or 0.0) == pytest.approx(place[1], abs=5e-4)
    assert set(frame[frame["marked"]]["x"]) == set(theory.PAPER_LENGTHS)
    named = [text.get_text() for text in ax.texts if text.get_text().startswith("p")]
    assert named == frame["series"].unique().tolist()
    assert scales(ax) == ("log", "linear")


def test_weights_are_their_curves(ax):
    frame = stored("length_bias").query("panel.str.startswith('Weights')")
    theory.draw_weights(frame, ax)
    expected = {n: (p["x"].tolist(), p["value"].tolist()) for n, p in frame.groupby("series", sort=False)}
    assert curves(ax) == expected
    assert [text.get_text() for text in ax.texts] == list(expected)
    assert scales(ax) == ("linear", "linear")
    assert "position" in ax.get_xlabel()


# --- whole figures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FIGURES))
def test_no_legend_must_be_searched(name, picture):
    assert all(ax.get_legend() is None for ax in picture(name).axes)
    for ax in picture(name).axes:
        looks = [(to_hex(line.get_color()), line.get_linestyle(), to_hex(line.get_markerfacecolor()))
                 for line in ax.get_lines() if line.get_label() in curves(ax)]  # fmt: skip
        assert len(set(looks)) == len(looks) <= 5


@pytest.mark.parametrize("name", list(FIGURES))
def test_the_title_is_read_off_the_numbers(name, picture):
    entry, figure = FIGURES[name], picture(name)
    told = entry.says(entry.data())
    assert [text.get_text() for text in figure.texts] == list(told)
    assert told[0].count("\n") <= 1


def test_the_titles_name_the_inputs():
    known = theory.PAPER_KL_AND_TV
    assert known == {**theory.PAPER_KL_ONLY, "epsilon": known["epsilon"], "tv_seq": known["tv_seq"]}
    title, _ = theory.comparison_told(stored("comparison"))
    assert re.findall(r"most ([\d.]+)", title) == ["1677", "4.1", "0.01"]
    frame = stored("scaling")
    assert theory.GROWTH == {"delta": 1e-4, "epsilon": 0.005}
    assert "$10^{-4}$" in theory.scaling_told(frame)[1]
    assert "0.005" in theory.scaling_told(frame)[1]
    assert theory.scaling_told(frame)[0].startswith("Beyond 141 tokens")
    last, beyond = (bounds.unified(T=T, **theory.GROWTH)["classical"].value for T in (141, 142))
    assert last <= 1.0 < beyond
    assert bounds.unified(T=10000, **theory.GROWTH).best.value == pytest.approx(1.0)


def test_the_routes_are_those_of_their_title():
    frame, (title, inputs) = stored("adaptive_routes"), FIGURES["adaptive_routes"].told
    (crossing,) = frame["cross"].unique()
    assert crossing == pytest.approx(1e-4 / (2 * 5e-4**2))
    assert f"{crossing:g} tokens" in title
    assert "4096" in inputs
    assert frame["ahead"].max() == 4095
    coupling, pinsker, _ = (part for _, part in frame.groupby("route", sort=False))
    np.testing.assert_allclose(coupling["contribution"], np.minimum(4 * 5e-4 * coupling["ahead"] * 5e-4, 4 * 5e-4))
    np.testing.assert_allclose(pinsker["contribution"], 4 * 5e-4 * np.sqrt(pinsker["ahead"] * 1e-4 / 2))


def test_the_title_of_a_run_says_where_it_was_lost():
    frame = stored("run_over_time").astype({"x": str, "lost": str})
    kl = frame[frame["quantity"] == "kl_seq"].set_index("x")
    title, _ = logs.over_time_told(frame)
    assert f"lost at step {kl['lost'].iloc[0]}" in title
    assert shown(kl.loc[kl["lost"].iloc[0], "high"]) in title
    kept, _ = logs.over_time_told(frame.assign(lost=None))
    assert "stays below 0.5" in kept


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "regimes"])
def test_each_panel_is_titled_as_its_numbers_are(name, picture):
    frame, figure = stored(name), picture(name)
    if "panel" in frame:
        assert [ax.get_title("left") for ax in figure.axes] == frame["panel"].fillna("").drop_duplicates().tolist()


def test_neighbours_at_the_ends_of_lines_are_named_apart(ax):
    ax.set_ylim(0.0, 1.0)
    drawing.name_ends(ax, [("a", 1.0, 0.5, "k"), ("b", 1.0, 0.51, "k"), ("c", 1.0, 0.9, "k")], gap=0.2)
    heights = {text.get_text(): text.xy[1] for text in ax.texts}
    assert heights["b"] - heights["a"] >= 0.198
    assert heights["c"] - heights["b"] >= 0.198
    assert heights["a"] < heights["b"] < heights["c"]


def test_where_an_estimate_is_missing_there_is_no_band():
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 2.0, 3.0, 4.0], "value": [1.0, 1.0, np.nan, 2.0, 2.0], "low": [0.9, 0.9, np.nan, 1.9, 1.9],
         "high": [1.1, 1.1, np.nan, 2.1, 2.1]}
    )  # fmt: skip
    ax = drawing.draw_bands(frame, Figure().subplots())
    vertices = np.concatenate([path.vertices for c in ax.collections for path in c.get_paths()])
    assert set(vertices[:, 0]) == {0.0, 1.0, 3.0, 4.0}
    assert vertices[:, 1].min() == 0.9
