"""Figures and the paper's tables: those in the repository are those that the code makes, and they can be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import image, pyplot
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

import bounds
from bounds.figures import FIGURES, drawing, logs, style
from bounds.figures.logs import run_over_time_data
from bounds.figures.tables import TABLES
from bounds.figures.theory import comparison_data, scaling_data

ROOT = Path(__file__).parents[1]
NEED_MORE = {"context_shift_profile", "adaptive_profile", "martingale_chi2", "cauchy_schwarz", "first_order"}


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def said(path):
    """What a picture says is written in it."""
    with Image.open(path) as picture:
        words = picture.info["Description"]
    assert len(words) > 50
    return words


@pytest.mark.parametrize("name", list(FIGURES))
def test_the_figures_in_the_repository_are_the_ones_that_the_code_draws(name, tmp_path):
    *pictures, csv = bounds.figures.write([name], tmp_path)
    kept, drawn = (pd.read_csv(path) for path in (ROOT / "figures" / csv.name, csv))
    pd.testing.assert_frame_equal(kept, drawn, rtol=1e-9)
    assert [path.name for path in pictures] == [f"{name}{suffix}" for suffix in (".png", ".dark.png", ".pdf")]
    for path in pictures:
        stored = ROOT / "figures" / path.name
        assert 0.5 < stored.stat().st_size / path.stat().st_size < 2.0, "drawn anew, it is another figure"
        if path.suffix == ".png":
            pixels = image.imread(path)[..., :3]
            assert pixels.std() > 0.05  # something is drawn
            assert (pixels[0, 0].mean() < 0.2) == (".dark" in path.name)  # on an opaque ground of its own
            assert pixels.shape[1] == pytest.approx(300 * style.COLUMN, abs=2)
            assert said(stored) == said(path), "what is written in the stored picture is out of date"


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_figure_can_be_read_in_one_column(name, picture):
    figure = picture(name)
    with style.look("light"):
        figure.draw_without_rendering()
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert len(texts) > 10
        width, height = figure.get_size_inches() * figure.dpi
        axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
        ticks = {label for axis in axes for label in axis.get_ticklabels(which="both")}
        for text in texts:
            assert text.get_fontsize() >= 5.5, text.get_text()
            box = text.get_window_extent()
            if text not in ticks:  # labels of ticks outside the view are not drawn
                assert box.x0 >= 0, text.get_text()
                assert box.x1 <= width, text.get_text()
                assert box.y0 >= 0, text.get_text()
                assert box.y1 <= height, text.get_text()


@pytest.mark.parametrize("name", list(FIGURES))
def test_lines_have_colours_that_all_can_tell_apart(name, picture):
    with style.look("light"):
        allowed = {to_hex(c) for c in (*style.CYCLE[:-1], style.SHARP, style.ink(), style.muted())}
        allowed |= {to_hex(c) for c in drawing.FAMILY_COLOURS.values()}
    for ax in picture(name).axes:
        drawn = {to_hex(line.get_color()) for line in ax.get_lines()}
        drawn |= {to_hex(patch.get_facecolor()) for patch in ax.patches}
        drawn |= {to_hex(c) for collection in ax.collections for c in collection.get_facecolor()}
        assert drawn <= allowed


def test_comparison_holds_every_rule_at_both_inputs():
    frame = comparison_data().set_index(["inputs", "rule"])["value"]
    for inputs in ("KL only", "KL and TV"):
        assert set(frame[inputs].index) == {r.name for r in bounds.RULES} - NEED_MORE
    assert frame["KL only", "classical"] == pytest.approx(1677.312)
    assert frame["KL and TV", "mixed_tv"] == pytest.approx(4.096)
    assert frame["KL and TV", "trajectory_kl"] == pytest.approx(0.01)


def test_scaling_slopes():
    frame = scaling_data()
    assert (frame["T"].min(), frame["T"].max()) == (16, 10**6)
    slope = frame[frame["T"] == 4096].set_index("rule")["slope"]
    assert slope["classical"] == pytest.approx(2.0, abs=0.01)
    assert slope["pinsker_marginal_kl"] == pytest.approx(1.5, abs=0.01)
    assert slope["trajectory_kl"] == pytest.approx(1.0, abs=1e-9)


def test_what_is_drawn_is_the_data():
    frame = comparison_data()
    figure = bounds.figures.draw("comparison")
    assert sorted(p.get_width() for p in figure.axes[0].patches) == pytest.approx(sorted(frame["value"]))
    table = bounds.unified(T=4096, delta=1e-4)
    bars = bounds.plot_bounds(table)
    assert sorted(p.get_width() for p in bars.patches) == [b.value for b in table.sorted()]
    assert bounds.plot_bounds(table, ax=bars) is bars
    figure = bounds.figures.draw("scaling")
    lines = {line.get_label().split()[0]: line for line in figure.axes[0].get_lines() if "T^" in line.get_label()}
    assert set(lines) == {r.name for r in bounds.RULES if not r.name.startswith("halved_")} - NEED_MORE
    part = scaling_data().query("rule == 'coupling'")
    np.testing.assert_allclose(lines["coupling"].get_ydata(), part["value"])


def test_the_ladder_goes_from_classical_down_to_what_the_responses_show():
    certificate = bounds.certify(bounds.example_traces())
    frame = logs.ladder_frame(certificate)
    assert frame["value"].is_monotonic_decreasing
    assert frame["name"].iloc[0] == "classical"
    assert frame["optimistic"].iloc[0]
    assert frame["name"].iloc[-1] == "worst |Error|: estimate"
    values = frame.set_index("name")["value"]
    assert values["trajectory_kl"] == certificate.table["trajectory_kl"].value
    assert values["worst |Error|: estimate"] == certificate.estimates["worst_case_error"].value
    assert certificate.estimates["worst_case_error_measured"].high > 1.0  # says nothing, and is not drawn
    assert not any("every sample size" in name for name in frame["name"])
    ax = bounds.plot_ladder(certificate)
    assert [t.get_text() for t in ax.get_yticklabels()] == frame["name"].tolist()[::-1]


def test_the_ladder_sees_what_theta_does_where_roll_cannot_go():
    """Half of theta's mass is off roll's support: logged responses show no error, and there is one of 1/2."""
    rows = [{"prompt_id": str(i), "rollout_logprobs": [0.0, -0.7], "train_logprobs": [-0.6931471805599453, -0.7]}
            for i in range(40)]  # fmt: skip
    certificate = bounds.certify(bounds.TraceSet.from_records(rows, horizon=2), assume={"support_gap": 0.5})
    frame = logs.ladder_frame(certificate).set_index("name")
    assert certificate.estimates["worst_case_error"].value == pytest.approx(0.0)
    assert frame.loc["worst |Error|: estimate", "value"] == pytest.approx(0.5)


def test_plots_of_a_log_where_nothing_diverges():
    """No positive number, no scale: still a picture, without a warning."""
    rows = [{"prompt_id": str(i // 2), "rollout_logprobs": [-1.0, -0.5], "train_logprobs": [-1.0, -0.5],
             "reward": float(i % 2)} for i in range(8)]  # fmt: skip
    traces = bounds.TraceSet.from_records(rows, horizon=4)
    for axes in (
        [bounds.plot_ladder(bounds.certify(traces))],
        bounds.plot_by_position(bounds.by_position(traces)),
        bounds.plot_masks(bounds.mask_study(traces)),
    ):
        axes[0].figure.draw_without_rendering()
        assert all(ax.has_data() for ax in axes)


def test_a_run_is_drawn_with_its_limit_and_where_it_was_lost():
    frame = run_over_time_data()
    run = bounds.over_time(bounds.example_traces("run"), mask="seq_mean_k3<=0.001")
    assert frame["lost"].unique().tolist() == [run.lost] == ["4"]
    axes = bounds.plot_over_time(run)
    assert len(axes) == frame["panel"].nunique() == 6
    assert "cannot be excluded at step 4" in axes[0].get_title(loc="right")
    kl = frame[frame["panel"] == "kl_seq"]
    np.testing.assert_allclose(axes[0].get_lines()[0].get_ydata(), kl["value"])
    assert (kl["limit"] == run.limit).all()


# --- the paper's tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(TABLES))
def test_the_tables_in_the_repository_are_the_ones_that_the_code_writes(name, tmp_path):
    paths = bounds.figures.write([name], tmp_path)
    assert [p.suffix for p in paths] == [".csv", ".tex", ".md"]
    kept, made = (pd.read_csv(folder / f"{name}.csv") for folder in (ROOT / "figures", tmp_path))
    pd.testing.assert_frame_equal(kept, made, rtol=1e-12)
    for path in paths[1:]:
        assert path.read_text() == (ROOT / "figures" / path.name).read_text()
    latex = paths[1].read_text()
    for piece in (r"\begin{tabular}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert latex.count(piece) == 1
    assert latex.count(r"\\") == len(made) + 1
    assert paths[2].read_text().count("\n|") == len(made) + 2


def test_the_paper_s_numbers():
    """Those of 2512.23075v4 at (a) and (b), at large divergence, and of acceptance by length."""
    table = TABLES["table_bounds"].data().set_index("bound")
    expected = {
        "classical": (1677.312, 838.656), "linear": (115.85237502960395, 81.92),
        "coupling": (113.83820851246436, 79.91), "pinsker_marginal_kl": (34.946091886296671, 34.946091886296671),
        "pinsker_marginal_tv": (34.946091886296671, 24.710618548768564),
        "mixed_kl": (8.192, 8.192), "mixed_tv": (8.192, 4.096), "adaptive": (34.946091886296671, 24.710577127412327),
        "B*, published": (8.192, 4.096), "B*, this project": (0.01, 0.01),
    }  # fmt: skip
    for name, (kl, tv) in expected.items():
        assert table.loc[name].tolist() == pytest.approx([kl, tv], rel=1e-4), name
    assert table.loc["classical", "KL only"] / table.loc["B*, published", "KL and TV"] == pytest.approx(409.5, abs=0.1)
    large = TABLES["table_bounds_by_size"].data().set_index("bound").iloc[:, 1]
    assert large[["classical", "linear", "pinsker_marginal_kl", "mixed_kl"]].tolist() == pytest.approx(
        [16773120.0, 11585.2375, 11581.580648710902, 8192.0], rel=1e-7
    )
    acceptance = TABLES["table_length_bias"].data().set_index("T")
    assert acceptance["p = 0.001"].tolist()[:4] == pytest.approx([0.774, 0.359, 0.017, 0.0003], abs=5e-4)
    assert acceptance["p = 0.0001"].tolist() == pytest.approx([0.975, 0.903, 0.664, 0.441, 0.194], abs=5e-4)


def test_what_holds_for_every_sample_size_is_a_rung_where_it_says_something():
    rows = [{"prompt_id": str(i), "rollout_logprobs": [-0.7], "train_logprobs": [-0.7 + 1e-6 * (i % 2)]}
            for i in range(200)]  # fmt: skip
    certificate = bounds.certify(bounds.TraceSet.from_records(rows, horizon=1))
    value = logs.ladder_frame(certificate).set_index("name")["value"][
        "worst |Error|: upper limit for every sample size"
    ]
    assert value == certificate.estimates["worst_case_error_measured"].high < 1.0


@pytest.mark.parametrize("plot", ["plot_bounds", "plot_ladder", "plot_by_position", "plot_over_time", "plot_masks"])
def test_plots_say_what_they_plot(plot):
    with pytest.raises(TypeError, match=r"must be a \w+ \((from|of) .*, got int"):
        getattr(bounds, plot)(3)


def test_unknown_names_write_nothing(tmp_path):
    for name, meant in (("comparisom", "comparison"), ("table_bound", "table_bounds")):
        with pytest.raises(KeyError, match=f"did you mean '{meant}'"):
            bounds.figures.write([name], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_each_name_is_told_before_it_is_made(tmp_path):
    told = []
    bounds.figures.write(["table_bounds", "adaptive_routes"], tmp_path, on_start=told.append)
    assert told == ["table_bounds", "adaptive_routes"]


def test_an_svg_takes_the_colour_of_the_page():
    entry = FIGURES["adaptive_routes"]
    with style.look("page"):
        figure = entry.figure(entry.data())
    text = style.svg(figure, 'a "title" & more')
    assert text.startswith('<svg role="img" aria-label="a &quot;title&quot; &amp; more"')
    assert "currentColor" in text
    assert "#010203" not in text
    assert ">steps after the position" in text  # text stays text
    assert "http" not in text.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_are_stored_without_outputs_and_say_what_they_are_for(path):
    cells = json.loads(path.read_text())["cells"]
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells)
    assert "fter this notebook you can" in "".join(cells[0]["source"])
