"""What is drawn is the frame: every place, length, colour, number and name of every picture."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

import bounds
from bounds._text import near, shown
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


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


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


def test_bars_run_from_low_to_high_beside_each_other(ax):
    frame = two_series()
    logs.draw_bars(frame, ax)
    starts = []
    for k, (series, part) in enumerate(frame.groupby("series")):
        assert curves(ax)[series] == (part["x"].tolist(), part["value"].tolist())
        segments = np.array(ax.collections[k].get_segments())
        assert segments[:, :, 1].tolist() == part[["low", "high"]].to_numpy().tolist()
        np.testing.assert_allclose(segments[:, 0, 0], part["x"], atol=0.01)
        assert to_hex(ax.collections[k].get_color()[0]) == to_hex(ax.get_lines()[k].get_color())
        starts.append(segments[0, 0, 0])
    assert starts[0] != starts[1]


def test_positions_are_a_line_in_its_band(ax):
    part = stored("certificate").query("panel.str.startswith('KL')")
    logs.draw_positions(part, ax)
    (line,) = ax.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == (part["x"].tolist(), part["value"].tolist())
    assert list(edges(ax.collections[0]).values()) == list(zip(part["low"], part["high"], strict=True))
    assert "position" in ax.get_xlabel()


def over_time(panel, limit=NAN, lost=None):
    frame = pd.DataFrame({"x": ["0", "5", "7"], "value": [0.1, -0.2, 0.3]})
    return frame.assign(panel=panel, low=frame["value"] - 0.05, high=frame["value"] + 0.1, limit=limit, lost=lost)


def test_a_run_shows_its_steps_its_limit_and_where_it_was_lost(ax):
    frame = over_time("kl_seq", 0.25, "7")
    logs.draw_over_time(frame, ax)
    assert list(ax.get_lines()[0].get_ydata()) == frame["value"].tolist()
    assert list(edges(ax.collections[0]).values()) == list(zip(frame["low"], frame["high"], strict=True))
    assert titles(ax.xaxis) == {0: "0", 1: "5", 2: "7"}
    assert across(ax, vertical=False) == [0.25]
    assert across(ax, vertical=True) == [2.0]
    assert re.findall(r"[\d.]+", ax.get_title("right")) == ["0.25", "7"]


@pytest.mark.parametrize(("panel", "lines"), [("improvement", [0.0]), ("surrogate_gain", [0.0]), ("acceptance", [])])
def test_only_what_may_be_negative_has_a_line_at_zero(ax, panel, lines):
    logs.draw_over_time(over_time(panel), ax)
    assert across(ax, vertical=False) == lines
    assert across(ax, vertical=True) == []
    assert ax.get_title("right") == ""


def ladder():
    names = ["open", "published", "sharp", "measured", "nothing"]
    return pd.DataFrame(
        {
            "name": names,
            "family": ["published", "published", "sharp", "measured", "sharp"],
            "value": [1677.312, 8.1921, 0.0104, 0.00231, 0.0],
            "high": [NAN, NAN, NAN, 0.0046, NAN],
            "optimistic": [True, False, False, False, False],
            "vacuous_from": 2.0,
        }
    )


def marks_of(ax):
    marks = [line for line in ax.get_lines() if line.get_marker() == "o"]
    return {titles(ax.yaxis)[line.get_ydata()[0]]: line for line in marks}


def test_a_rung_stands_at_its_value_and_says_it(ax):
    frame = ladder().set_index("name")
    logs.draw_ladder(ladder(), ax)
    assert list(titles(ax.yaxis).values()) == frame.index.tolist()[::-1]  # the largest on top
    assert titles(ax.yaxis)[4] == "open"
    places = {name: line.get_xdata()[0] for name, line in marks_of(ax).items()}
    assert places == {**frame["value"], "nothing": ax.get_xlim()[0]}
    beside = {titles(ax.yaxis)[row]: (x, text) for (x, row), text in written(ax).items()}
    assert beside["measured"] == (0.0046, near(0.00231))
    del beside["measured"]
    assert beside == {name: (places[name], shown(frame.loc[name, "value"])) for name in beside}
    assert len(beside) == 4
    assert scales(ax)[0] == "log"


def test_rungs_at_the_largest_divergence_seen_are_open_and_the_others_filled(ax):
    logs.draw_ladder(ladder(), ax)
    fills = {name: line.get_markerfacecolor() for name, line in marks_of(ax).items()}
    assert fills.pop("open") == "none"
    shades = {name: drawing.FAMILY_COLOURS[ladder().set_index("name").loc[name, "family"]] for name in fills}
    assert fills == shades
    handles = dict(zip(legend(ax), ax.get_legend().legend_handles, strict=True))
    by_fill = {name.partition(":")[0]: handle.get_markerfacecolor() for name, handle in handles.items()}
    assert by_fill["open"] == "none"
    assert by_fill["filled"] == style.ink()
    for family, title in drawing.FAMILY_TITLES.items():
        assert handles[title].get_color() == drawing.FAMILY_COLOURS[family]


def test_a_whisker_ends_at_the_upper_limit(ax):
    logs.draw_ladder(ladder(), ax)
    (whisker,) = (line for line in ax.get_lines() if line.get_linewidth() == 2.5)
    assert list(whisker.get_xdata()) == [0.00231, 0.0046]
    assert titles(ax.yaxis)[whisker.get_ydata()[0]] == "measured"


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_line_of_vacuity_stands_at_the_spread_of_the_rewards(ax, spread):
    logs.draw_ladder(ladder().assign(vacuous_from=spread), ax)
    assert across(ax, vertical=True) == [spread]
    assert f"vacuous from {spread:g} on" in ax.get_xlabel()
    bars = bounds.plot_bounds(bounds.unified(T=64, delta=1e-3, reward_range=(0.0, spread)), Figure().subplots())
    assert across(bars, vertical=True) == [spread]
    assert f"vacuous from {spread:g} on" in bars.get_xlabel()


def masks(panel, *extra):
    values = [("max", 0.25, 0.1), ("max", 0.75, 0.3), ("mean", 0.25, 0.2), ("mean", 0.75, 0.5), *extra]
    frame = pd.DataFrame(values, columns=["series", "x", "value"])
    return frame.assign(panel=panel, low=frame["value"] - 0.1, high=frame["value"] + 0.2)


def test_masks_are_drawn_beside_no_mask(ax):
    logs.draw_masks(masks("gain", ("no mask", 1.0, 0.87)), ax)
    assert curves(ax)["max"] == ([0.25, 0.75], [0.1, 0.3])
    assert curves(ax)["mean"] == ([0.25, 0.75], [0.2, 0.5])
    assert edges(ax.collections[1]) == {0.25: pytest.approx((0.1, 0.4)), 0.75: pytest.approx((0.4, 0.7))}
    assert across(ax, vertical=False) == [0.87]
    assert ax.get_ylim()[0] < 0.87 < ax.get_ylim()[1]
    assert [name.partition(",")[0] for name in legend(ax)] == ["max", "mean", "no mask"]


def test_shares_kept_are_drawn_beside_a_mask_that_keeps_all_alike(ax):
    logs.draw_masks(masks("Share of the reward R and of the rest that is kept"), ax)
    assert curves(ax) == {
        "max": ([0.25, 0.75], [0.1, 0.3]),
        "mean": ([0.25, 0.75], [0.2, 0.5]),
        "all alike": ([0, 1], [0, 1]),
    }
    ends = np.array(ax.collections[1].get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, [[0.1, 0.4], [0.4, 0.7]])
    assert across(ax, vertical=False) == []


def test_a_bar_is_as_long_as_its_bound_and_stands_beside_its_rule(ax):
    frame = stored("comparison")
    theory.draw_comparison(frame, ax)
    kinds = frame["inputs"].unique().tolist()
    found, numbers = {}, {}
    for (place, row), text in written(ax).items():
        numbers[titles(ax.yaxis)[round(row)], row > round(row)] = (place, text)
    for bar in ax.patches:
        row = bar.get_y() + bar.get_height() / 2
        name, first = titles(ax.yaxis)[round(row)], row > round(row)
        assert numbers[name, first] == (bar.get_width(), shown(bar.get_width(), 7))
        found[kinds[0] if first else kinds[1], name] = (bar.get_width(), bar.get_facecolor())
    alpha = dict(zip(kinds, (0.3, 1.0), strict=True))
    assert found == {
        (r.inputs, r.rule): (r.value, to_rgba(drawing.FAMILY_COLOURS[r.family], alpha[r.inputs]))
        for r in frame.itertuples()
    }
    assert list(titles(ax.yaxis).values()) == frame["rule"].drop_duplicates().tolist()[::-1]
    assert across(ax, vertical=True) == [1.0]
    assert scales(ax)[0] == "log"
    for text, handle in zip(legend(ax), ax.get_legend().legend_handles, strict=True):
        title, kind = text.rsplit(", ", 1)
        family = {title: family for family, title in drawing.FAMILY_TITLES.items()}[title]
        assert handle.get_facecolor() == to_rgba(drawing.FAMILY_COLOURS[family], alpha[kind])


def test_a_curve_of_scaling_is_its_rule_and_its_label_says_the_slope(ax):
    frame = stored("scaling")
    theory.draw_scaling(frame, ax)
    drawn = curves(ax)
    labelled = [name for name in frame["rule"].unique() if not name.startswith("halved_")]
    for name in labelled:
        part = frame[frame["rule"] == name]
        slope = part.set_index("T").loc[4096, "slope"]
        (label,) = (text for text in drawn if text.split()[0] == name)
        assert drawn[label] == (part["T"].tolist(), part["value"].tolist())
        assert label.split("(T^")[1] == f"{slope:.2f})"
    assert len(legend(ax)) == len(labelled) + 1
    halved = {tuple(line.get_ydata()) for line in ax.get_lines() if line.get_label().startswith("_child")}
    for name in set(frame["rule"]) - set(labelled):
        assert tuple(frame[frame["rule"] == name]["value"]) in halved
    assert across(ax, vertical=False) == [1.0]
    assert [place for place, text in written(ax).items() if "above 1" in text] == [(frame["T"].max(), 1)]
    assert scales(ax) == ("log", "log")


def test_a_point_of_the_regimes_wears_the_look_of_its_rule(ax):
    rows = [(1e-3, 8.0, "coupling"), (1e-2, 64.0, "trajectory_kl"), (1e-1, 512.0, "coupling"), (1.0, 4.0, "classical")]
    frame = pd.DataFrame(rows, columns=["x", "y", "rule"]).assign(panel="all: ε × T, χ² = 4ε²")
    theory.draw_regimes(frame, ax)
    found = {points.get_label(): points.get_offsets().tolist() for points in ax.collections}
    assert found == {name: part[["x", "y"]].to_numpy().tolist() for name, part in frame.groupby("rule")}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ε", "T")
    assert scales(ax) == ("log", "log")
    assert sorted(legend(ax)) == sorted(found)


def test_a_rule_looks_the_same_in_every_panel_of_the_regimes():
    frame, looks = stored("regimes"), {}
    with style.look("light"):
        for _, part in frame.groupby("panel"):
            for points in theory.draw_regimes(part, Figure().subplots()).collections:
                looks.setdefault(points.get_label(), set()).add(look_of(points))
    assert all(len(seen) == 1 for seen in looks.values())
    assert set(looks) == set(frame["rule"])
    assert len({look for seen in looks.values() for look in seen}) == len(looks)


def test_routes_are_their_contributions_and_cross_where_the_line_stands(ax):
    frame = stored("adaptive_routes")
    theory.draw_routes(frame, ax)
    routes = dict(list(frame.groupby("route", sort=False)))
    assert curves(ax) == {n: (p["ahead"].tolist(), p["contribution"].tolist()) for n, p in routes.items()}
    assert legend(ax) == list(routes)
    (crossing,) = frame["cross"].unique()
    assert across(ax, vertical=True) == [crossing]
    assert [(x, text) for (x, _), text in written(ax).items()] == [(crossing, f"{crossing:g}")]
    first, second, smaller = (p.set_index("ahead")["contribution"] for p in routes.values())
    assert ((first < second) == (first.index < crossing)).all()
    np.testing.assert_allclose(smaller, np.minimum(first, second))
    assert scales(ax) == ("log", "log")


def test_a_cell_of_tightness_says_its_ratio(ax):
    ratios = [1.0, 0.4996, 0.25, 0.0123, 2e-5, 0.75]
    frame = pd.DataFrame({"rule": ["later"] * 3 + ["earlier"] * 3, "T": [1, 64, 4096] * 2, "ratio": ratios})
    theory.draw_tightness(frame, ax)
    assert titles(ax.xaxis) == {0: "1", 1: "64", 2: "4,096"}
    assert titles(ax.yaxis) == {0: "later", 1: "earlier"}
    assert written(ax) == {(0, 0): "1.00", (1, 0): "0.500", (2, 0): "0.250", (0, 1): "0.012", (1, 1): "2e-05",
                           (2, 1): "0.750"}  # fmt: skip
    (image,) = ax.get_images()
    assert image.get_array().tolist() == [[1.0, 0.4996, 0.25], [0.0123, 2e-5, 0.75]]
    assert image.get_clim() == (0.0, 1.0)
    assert to_hex(image.cmap(1.0)) == to_hex(style.PUBLISHED)
    assert to_hex(image.cmap(0.0)) == "#ffffff"


def test_the_stored_tightness_is_what_is_written(picture):
    frame = stored("tightness").set_index(["rule", "T"])["ratio"]
    (ax,) = picture("tightness").axes
    for (column, row), text in written(ax).items():
        rule, T = titles(ax.yaxis)[row], int(titles(ax.xaxis)[column].replace(",", ""))
        assert float(text) == pytest.approx(frame[rule, T], abs=5.01e-4)
    assert len(ax.texts) == len(frame)


def test_acceptance_is_its_curve_and_the_paper_s_lengths_are_marked_with_their_numbers(ax):
    frame = stored("length_bias").query("panel == 'TRM-Max'").astype({"marked": bool})
    theory.draw_acceptance(frame, ax)
    marks = [line for line in ax.get_lines() if line.get_marker() == "s"]
    for (name, part), line in zip(frame.groupby("series", sort=False), marks, strict=True):
        curve, marked = part[~part["marked"]], part[part["marked"]]
        assert curves(ax)[name] == (curve["x"].tolist(), curve["value"].tolist())
        assert (list(line.get_xdata()), list(line.get_ydata())) == (marked["x"].tolist(), marked["value"].tolist())
        (same,) = (other for other in ax.get_lines() if other.get_label() == name)
        assert line.get_color() == same.get_color()
        np.testing.assert_allclose(curve["value"], (1.0 - float(name.split("= ")[1])) ** curve["x"])
        for place in zip(marked["x"], marked["value"], strict=True):
            text = written(ax)[place]
            assert float(text or 0.0) == pytest.approx(place[1], abs=5e-4 if place[1] > 5e-4 else 1e-4)
            assert text or place[1] < 1e-4
    assert set(frame[frame["marked"]]["x"]) == set(theory.PAPER_LENGTHS)
    assert legend(ax) == frame["series"].unique().tolist()
    assert scales(ax) == ("log", "linear")


def test_weights_are_their_curves(ax):
    frame = stored("length_bias").query("panel == 'LN-TRM'")
    theory.draw_weights(frame, ax)
    expected = {n: (p["x"].tolist(), p["value"].tolist()) for n, p in frame.groupby("series", sort=False)}
    assert curves(ax) == expected
    assert legend(ax) == list(expected)
    assert scales(ax) == ("linear", "linear")
    assert "position" in ax.get_xlabel()


# --- whole figures -----------------------------------------------------------------------------------------


def look_of(handle):
    """What tells an entry of a legend from another."""
    if hasattr(handle, "get_linestyle") and hasattr(handle, "get_marker"):
        fill = handle.get_markerfacecolor() if handle.get_marker() not in ("", "None") else ""
        return to_hex(handle.get_color()), handle.get_linestyle(), handle.get_marker(), fill
    if hasattr(handle, "get_paths"):
        return to_hex(handle.get_facecolor()[0]), handle.get_paths()[0].vertices.round(6).tobytes()
    return (handle.get_facecolor(),)


@pytest.mark.parametrize("name", list(FIGURES))
def test_what_a_legend_names_can_be_told_apart(name, picture):
    for ax in picture(name).axes:
        if ax.get_legend() is not None:
            looks = [look_of(handle) for handle in ax.get_legend().legend_handles]
            assert len(set(looks)) == len(looks) >= 2
        lines = [look_of(line)[:3] for line in ax.get_lines() if line.get_label() in curves(ax)]
        assert len(set(lines)) == len(lines)


def test_figures_with_several_series_have_a_legend(picture):
    names = [name for name in FIGURES if name != "regimes"]
    legends = {name: [ax.get_legend() is not None for ax in picture(name).axes] for name in names}
    named = {name for name, found in legends.items() if all(found)}
    assert named >= {"comparison", "scaling", "adaptive_routes", "length_bias", "mask_tradeoff"}
    assert legends["certificate"] == [False, False, False, True]


def in_title(name):
    """Inputs that a title names: T, delta, epsilon and D."""
    return {symbol: float(x) for symbol, x in re.findall(r"\b(T|δ|ε|D) = ([\d.]+(?:e-\d+)?)", FIGURES[name].title)}


def test_the_title_of_the_comparison_names_its_inputs():
    known = theory.PAPER_KL_AND_TV
    names = {"T": "T", "δ": "delta", "ε": "epsilon", "D": "kl_seq"}
    assert in_title("comparison") == {symbol: known[name] for symbol, name in names.items()}
    assert f"{known['tv_seq']:g} of a response" in FIGURES["comparison"].title
    assert known == {**theory.PAPER_KL_ONLY, "epsilon": known["epsilon"], "tv_seq": known["tv_seq"]}


def test_the_title_of_scaling_names_its_inputs():
    known, frame = in_title("scaling"), stored("scaling")
    table = bounds.unified(T=4096, delta=known["δ"], epsilon=known["ε"])
    drawn = frame[frame["T"] == 4096].set_index("rule")["value"]
    assert {b.name: b.value for b in table.bounds} == pytest.approx(drawn.to_dict())


def test_the_title_of_the_routes_names_its_inputs():
    known, frame = in_title("adaptive_routes"), stored("adaptive_routes")
    T, delta, epsilon = known["T"], known["δ"], known["ε"]
    (crossing,) = frame["cross"].unique()
    assert crossing == pytest.approx(delta / (2 * epsilon**2))
    assert f"δ/(2ε²) = {crossing:g} (" in FIGURES["adaptive_routes"].title
    assert frame["ahead"].max() == T - 1
    coupling, pinsker, _ = (part for _, part in frame.groupby("route", sort=False))
    np.testing.assert_allclose(
        coupling["contribution"], np.minimum(4 * epsilon * coupling["ahead"] * epsilon, 4 * epsilon)
    )
    np.testing.assert_allclose(pinsker["contribution"], 4 * epsilon * np.sqrt(pinsker["ahead"] * delta / 2))


def test_the_titles_of_the_logs_name_their_mask_and_their_confidence():
    level, threshold = re.search(r"at ([\d.]+)\n\((\d+) %", FIGURES["run_over_time"].title).group(2, 1)
    run = bounds.over_time(
        bounds.example_traces("run"), mask=f"seq_mean_k3<={threshold}", confidence=float(level) / 100
    )
    drawn = stored("run_over_time")
    ends = ["value", "low", "high"]
    np.testing.assert_allclose(logs.over_time_frame(run)[ends], drawn[ends], rtol=1e-9)
    level = re.search(r"(\d+) % intervals", FIGURES["certificate"].title).group(1)
    found = bounds.by_position(bounds.example_traces(), confidence=float(level) / 100)
    drawn = stored("certificate").query("panel != 'ladder'")
    np.testing.assert_allclose(logs.position_frame(found)[ends], drawn[ends], rtol=1e-9)


@pytest.mark.parametrize("name", list(FIGURES))
def test_each_panel_is_titled_as_its_numbers_are(name, picture):
    frame, figure = stored(name), picture(name)
    assert figure.get_suptitle() == FIGURES[name].title
    panels = frame["panel"].unique().tolist() if "panel" in frame else [""]
    assert [ax.get_title("left") for ax in figure.axes] == panels


def test_where_an_estimate_is_missing_there_is_no_band():
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 2.0, 3.0, 4.0], "value": [1.0, 1.0, np.nan, 2.0, 2.0], "low": [0.9, 0.9, np.nan, 1.9, 1.9],
         "high": [1.1, 1.1, np.nan, 2.1, 2.1]}
    )  # fmt: skip
    ax = drawing.draw_bands(frame, Figure().subplots())
    vertices = np.concatenate([path.vertices for c in ax.collections for path in c.get_paths()])
    assert set(vertices[:, 0]) == {0.0, 1.0, 3.0, 4.0}
    assert vertices[:, 1].min() == 0.9
