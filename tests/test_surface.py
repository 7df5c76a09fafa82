"""Tables of results, the public names, and that importing stays light."""

from __future__ import annotations

import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import bounds

ROOT = Path(__file__).parents[1]


# --- tables ------------------------------------------------------------------------------------------------


def test_a_table_is_read_at_a_glance():
    table = bounds.unified(T=4096, delta=1e-4, epsilon=5e-3, kl_seq=0.01, tv_seq=0.05)
    lines = [line.split() for line in str(table).splitlines()]
    names = [line[0] for line in lines if line and line[0] in {r.name for r in bounds.RULES}]
    assert names == [b.name for b in table.sorted()]
    winner = next(line for line in lines if line[:1] == ["trajectory_kl"])
    assert "B*" in winner
    assert "vacuous" not in winner
    assert "vacuous," in next(line for line in lines if line[:1] == ["mixed_tv"])
    html = table._repr_html_()
    assert html.count("<tr") == 1 + len(table.bounds)
    assert "Assumed: absolutely_continuous = True" in html


def test_frame_and_json_agree():
    table = bounds.unified(T=64, delta=1e-3, mean_length=20)
    frame = table.to_frame().set_index("name")["value"].to_dict()
    assert frame == {b["name"]: b["value"] for b in json.loads(table.to_json())["bounds"]}
    inputs = {i["name"]: i for i in table["trajectory_kl"].to_dict()["inputs"]}
    assert inputs["kl_seq"]["how"] == "delta mean_length"
    assert inputs["kl_seq"]["used"] == ["mean_length", "delta"]


def test_tables_answer_for_what_is_not_in_them():
    table = bounds.unified(T=64, kl_seq=0.1)
    assert "coupling" not in table
    with pytest.raises(KeyError, match="rule 'coupling' was not evaluated: needs epsilon"):
        table["coupling"]
    with pytest.raises(KeyError, match="unknown rule 'nothing'"):
        table["nothing"]
    assert table.best_published is None
    assert json.loads(table.to_json())["b_star_published"] is None


def test_markup_in_names_is_text():
    traces = bounds.TraceSet.from_records(
        [
            {"prompt_id": "a", "rollout_logprobs": [-1.0], "train_logprobs": [-1.1], "weight_version": v}
            for v in ("[b]", "<i>")
        ],
        horizon=4,
    )
    result = bounds.certify(traces)
    assert "[b]" in str(result)
    assert "&lt;i&gt;" in result.to_html()


# --- names and imports -------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_listed():
    assert len(bounds.__all__) == len(set(bounds.__all__)) > 20
    assert dir(bounds) == sorted(bounds.__all__)
    for name in bounds.__all__:
        assert getattr(bounds, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bounds.nothing  # noqa: B018


def test_importing_is_light():
    """`import bounds` loads none of the heavy libraries, and a bound needs mpmath at most."""
    heavy = ["scipy", "sympy", "mpmath", "matplotlib", "pandas", "pyarrow", "msgspec", "rich", "torch", "ray", "numba"]
    code = (
        f"import sys, bounds; loaded = lambda: [m for m in {heavy} if m in sys.modules]; print(loaded());"
        "bounds.unified(T=4096, delta=1e-4).to_json(); print(loaded())"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n['mpmath']\n"
    )


def test_commands_start_light():
    """A bound needs none of the heavy libraries at the command line either; a log does, but a small one not numba."""
    for command, never in (("bstar --T 10 --delta 1e-4", "numba|scipy|pandas"), ("certify", "numba")):
        run = [sys.executable, "-X", "importtime", "-m", "bounds", *command.split()]
        imported = subprocess.run(run, capture_output=True, text=True, check=True).stderr
        assert "bounds.cli.main" in imported
        assert not re.search(rf"\| +({never})$", imported, re.MULTILINE), command


def test_the_old_home_of_the_training_hooks_is_the_new_one():
    """Whichever way it is imported first; and torch is not asked for."""
    for code in (
        "import bounds.surface.training; found = bounds.surface.training.Monitor",
        "from bounds.surface.training import Monitor as found",
        "from bounds.surface import training; found = training.Monitor",
    ):
        asked = (
            f"import sys; {code}; from bounds.training import Monitor; print(found is Monitor, 'torch' in sys.modules)"
        )
        out = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
        assert out == "True False\n", code


def test_every_public_callable_is_documented():
    for name in bounds.__all__:
        assert (getattr(bounds, name).__doc__ or "").strip(), name


def test_nothing_in_the_package_needs_files_outside_it():
    for path in (ROOT / "bounds").rglob("*.py"):
        assert "shared/" not in path.read_text(), path


def test_what_is_no_profile_and_no_record_is_told_where_to_go():
    with pytest.raises(TypeError, match=r"profile must be a Profile, got 4096 \(fields are given by name"):
        bounds.unified(4096)
    with pytest.raises(ValueError, match=r"got only T=10"):
        bounds.unified(T=10)
    with pytest.raises(TypeError, match=r"a record must be a mapping .* \(of a DataFrame: TraceSet.from_frame\)"):
        bounds.TraceSet.from_records(bounds.example_traces().prompt_ids, horizon=4)


def test_no_file_imports_itself_by_way_of_others():
    """Also through imports inside functions; those for type checkers alone do not count."""
    graph = grimp.build_graph("bounds", exclude_type_checking_imports=True)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
    graphlib.TopologicalSorter(imported).prepare()
