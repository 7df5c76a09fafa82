"""Figures and the paper's tables: those in the repository are those that the code makes, and they can be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import image, pyplot
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from PIL import Image

import bounds
from bounds.figures import FIGURES, drawing, logs, style
from bounds.figures.logs import run_over_time_data
from bounds.figures.tables import TABLES
from bounds.figures.theory import PAPER_KL_AND_TV, PAPER_KL_ONLY, comparison_data, scaling_data

ROOT = Path(__file__).parents[1]


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
            assert text.get_fontsize() >= style.SMALL * 0.7 if "$" in text.get_text() else style.SMALL, text.get_text()
            box = text.get_window_extent()
            if text not in ticks:  # labels of ticks outside the view are not drawn
                assert box.x0 >= 0, text.get_text()
                assert box.x1 <= width, text.get_text()
                assert box.y0 >= 0, text.get_text()
                assert box.y1 <= height, text.get_text()


@pytest.mark.parametrize("name", list(FIGURES))
def test_lines_have_colours_that_all_can_tell_apart(name, picture):
    with style.look("light"):
        figure, allowed = picture(name), {to_hex(style.shade(hue)) for hue in style.PALETTE}
    for ax in figure.axes:
        drawn = {to_hex(line.get_color()) for line in ax.get_lines()}
        drawn |= {to_hex(patch.get_facecolor()) for patch in ax.patches}
        drawn |= {to_hex(text.get_color()) for text in ax.texts}
        assert drawn <= allowed


def luminance(hue):
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(hue)]
    return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_colours_that_carry_text_can_be_read(kind):
    with style.look(kind):
        paper = luminance(style.shade("paper"))
        for hue in set(style.PALETTE) - {"line", "wash", "paper"}:
            low, high = sorted((luminance(style.shade(hue)), paper))
            assert (high + 0.05) / (low + 0.05) >= 4.5, hue


def test_the_comparison_takes_the_smallest_of_each_family():
    frame = comparison_data().set_index(["inputs", "bound"])["value"]
    tables = {"KL": bounds.unified(**PAPER_KL_ONLY), "KL and TV": bounds.unified(**PAPER_KL_AND_TV)}
    for (inputs, bound), value in frame.items():
        assert value == min(tables[inputs][name].value for name in drawing.NAMED_BOUNDS[bound])
    assert frame["KL", "Classical"] == pytest.approx(1677.312)
    assert frame["KL and TV", "Best published"] == pytest.approx(4.096)
    assert frame["KL and TV", "Best published"] == tables["KL and TV"].best_published.value
    assert frame["KL and TV", "KL of a response"] == tables["KL and TV"].best.value == pytest.approx(0.01)


def test_scaling_slopes():
    frame = scaling_data()
    assert (frame["T"].min(), frame["T"].max()) == (16, 10**6)
    slope = frame[frame["T"] == 4096].set_index("bound")["slope"]
    assert slope.tolist() == pytest.approx([2.0, 1.5, 1.0, 0.0], abs=0.1)


def test_what_is_drawn_is_the_data():
    table = bounds.unified(T=4096, delta=1e-4)
    rows = bounds.plot_bounds(table)
    drawn = [line.get_xdata()[0] for line in rows.get_lines() if line.get_marker() == "o"]
    assert sorted(drawn) == [b.value for b in table.sorted()]
    assert bounds.plot_bounds(table, ax=rows) is rows


def test_the_ladder_goes_from_classical_down_to_what_the_responses_show():
    certificate = bounds.certify(bounds.example_traces())
    frame = logs.ladder_frame(certificate)
    assert frame["value"].is_monotonic_decreasing
    assert frame["name"].iloc[0] == "Classical"
    assert frame["optimistic"].iloc[0]
    assert frame["name"].iloc[-1] == "Worst error seen"
    row = frame.set_index("name").loc["KL of a response"]
    assert (row["value"], row["high"]) == (certificate.best.value, certificate.best_upper.value)
    assert frame.set_index("name").loc["Worst error seen", "value"] == certificate.estimates["worst_case_error"].value
    assert certificate.estimates["worst_case_error_measured"].high > 1.0  # says nothing, and is not drawn
    assert "Worst error, guaranteed" not in set(frame["name"])
    ax = bounds.plot_ladder(certificate)
    assert [t.get_text() for t in ax.get_yticklabels()] == frame["name"].tolist()


def test_the_verdict_has_every_interval_and_the_promise():
    certificate = bounds.certify(bounds.example_traces())
    frame = logs.verdict_frame(certificate).set_index("name")
    intervals = certificate.guarantees.intervals
    ends = certificate.improvement.low, certificate.improvement.high
    assert tuple(frame.loc["Prompts like these", ["low", "high"]]) == ends
    assert frame.loc["Likely range", "low"] == intervals["improvement_asymptotic"].low
    assert frame.loc["Surrogate minus error", "low"] == intervals["improvement_by_surrogate"].low
    assert frame["promise"].unique() == [certificate.estimates["surrogate_gain"].value]
    assert frame["error"].unique() == [certificate.best.value]
    assert len(bounds.plot_verdict(certificate).texts) == 3 * len(frame) == 12


def test_a_log_without_rewards_has_no_verdict_to_draw():
    rows = [{"prompt_id": str(i), "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for i in range(4)]
    with pytest.raises(ValueError, match="without rewards"):
        bounds.plot_verdict(bounds.certify(bounds.TraceSet.from_records(rows, horizon=4)))


def test_the_ladder_sees_what_theta_does_where_roll_cannot_go():
    """Half of theta's mass is off roll's support: logged responses show no error, and there is one of 1/2."""
    rows = [{"prompt_id": str(i), "rollout_logprobs": [0.0, -0.7], "train_logprobs": [-0.6931471805599453, -0.7]}
            for i in range(40)]  # fmt: skip
    certificate = bounds.certify(bounds.TraceSet.from_records(rows, horizon=2), assume={"support_gap": 0.5})
    frame = logs.ladder_frame(certificate).set_index("name")
    assert certificate.estimates["worst_case_error"].value == pytest.approx(0.0)
    assert frame.loc["Worst error seen", "value"] == pytest.approx(0.5)


def test_plots_of_a_log_where_nothing_diverges():
    """No positive number, no scale: still a picture, without a warning."""
    rows = [{"prompt_id": str(i // 2), "rollout_logprobs": [-1.0, -0.5], "train_logprobs": [-1.0, -0.5],
             "reward": float(i % 2)} for i in range(8)]  # fmt: skip
    traces = bounds.TraceSet.from_records(rows, horizon=4)
    for axes in (
        [bounds.plot_ladder(bounds.certify(traces))],
        bounds.plot_by_position(bounds.by_position(traces)),
    ):
        axes[0].figure.draw_without_rendering()
        assert all(ax.has_data() for ax in axes)
    with pytest.raises(ValueError, match="withholds"):  # these are copies: nothing was measured
        bounds.plot_masks(bounds.mask_study(traces))


def test_a_run_is_drawn_with_its_limit_and_where_it_was_lost():
    frame = run_over_time_data()
    run = bounds.over_time(bounds.example_traces("run"), mask="seq_mean_k3<=0.001")
    assert frame["lost"].unique().tolist() == [run.lost] == ["15"]
    axes = bounds.plot_over_time(run)
    assert len(axes) == frame["panel"].nunique() == 6
    assert "lost at step 15" in [text.get_text() for text in axes[0].texts]
    kl = frame[frame["quantity"] == "kl_seq"]
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
    value = logs.ladder_frame(certificate).set_index("name")["value"]["Worst error, guaranteed"]
    assert value == certificate.estimates["worst_case_error_measured"].high < 1.0


@pytest.mark.parametrize("plot", [name for name in bounds.__all__ if name.startswith("plot_")])
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
    assert "var(--ink, #1a1a1a)" in text
    assert "#010101" not in text
    assert ">tokens that follow" in text  # text stays text
    assert "http" not in text.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_are_stored_without_outputs_and_say_what_they_are_for(path):
    cells = json.loads(path.read_text())["cells"]
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells)
    assert "fter this notebook you can" in "".join(cells[0]["source"])
