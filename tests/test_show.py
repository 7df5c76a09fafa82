"""Tables in LaTeX and Markdown, and that every result shows itself in every way."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest

import bounds
from bounds._text import latex_table, markdown_table
from bounds.questions.metrics import metrics
from bounds.questions.objectives import objectives
from bounds.questions.trainer_metrics import trainer_metrics
from bounds.results import Interval, IntervalTable, Result, Standing, jsonable


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("seq_max_k2<=0.05", r"seq\_max\_k2$\leq$0.05"),
        ("|Error| ≤ 2 ε·δ", r"$|$Error$|$ $\leq$ 2 $\varepsilon$$\cdot$$\delta$"),
        ("KL(roll‖θ) ≪ T²", r"KL(roll$\|$$\theta$) $\ll$ T$^2$"),
        ("-0.168 to 0.193", r"$-$0.168 to 0.193"),
        ("E[M R S] - E[M]", r"E[M R S] $-$ E[M]"),
        ("[-0.1, 0.2]", r"{[}$-$0.1, 0.2]"),  # else an argument of the \\ before it
        ("-1.5e-05", r"$-1.5 \times 10^{-5}$"),
        ("1e+06", r"$10^{6}$"),
        (
            r"50% & $a_b #{c} ~^\ --x",
            r"50\% \& \$a\_b \#\{c\} \textasciitilde{}\textasciicircum{}\textbackslash{} {-}{-}x",
        ),
        ("é 你\n", "é {[}U+4F60] "),  # the second has no place in LaTeX's own fonts
    ],
)
def test_text_in_latex(text, latex):
    assert latex_table([text], [[text]]).count(latex + r" \\") == 2


def test_a_latex_table_is_a_booktabs_tabular():
    lines = latex_table(["rule", "value", "how"], [["a_b", "1e-05", "x"], ["c", "-", ""]]).split("\n")
    assert lines == [
        r"\begin{tabular}{lrl}", r"\toprule", r"rule & value & how \\", r"\midrule",
        r"a\_b & $10^{-5}$ & x \\", r"c & - &  \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_a_markdown_table_keeps_its_columns():
    lines = markdown_table(["rule", "|Error|"], [["a*b", "0.1"], ["<i>\n", "28.1%"]]).split("\n")
    assert lines == [
        r"| rule | \|Error\| |", "|:-----|----------:|", r"| a\*b |       0.1 |", r"| \<i> |     28.1% |",
    ]  # fmt: skip
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)


# --- results -----------------------------------------------------------------------------------------------


def a_run():
    records = [
        {"prompt_id": f"p{k % 6}", "step": k % 3, "reward": k % 2, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
        for k in range(36)
    ]
    return bounds.TraceSet.from_records(records, horizon=4)


RESULTS = {
    "BoundTable": lambda: bounds.unified(T=4096, delta=1e-4),
    "Certificate": lambda: bounds.certify(bounds.example_traces(), mask="seq_max_k2<=0.05"),
    "Explanation": lambda: bounds.explain(bounds.example_traces()),
    "Comparison": lambda: bounds.compare(bounds.example_traces(), bounds.example_traces()),
    "Comparisons": lambda: bounds.compare(*[bounds.example_traces()] * 3),
    "Plan": lambda: bounds.plan(gain=0.04, kl_seq=0.01, reward=0.5, runs=20),
    "MaskStudy": lambda: bounds.mask_study(bounds.example_traces()),
    "RunOverTime": lambda: bounds.over_time(a_run()),
    "ByPosition": lambda: bounds.by_position(bounds.example_traces()),
    "MetricsTable": lambda: metrics(bounds.example_traces()),
    "TrainerMetrics": lambda: trainer_metrics(bounds.example_traces(), "verl"),
    "ObjectiveTable": lambda: objectives(bounds.example_traces()),
}


def test_every_result_is_tried():
    for make in RESULTS.values():
        make()  # its class is there only when its module is
    assert {kind.__name__ for kind in Result.__subclasses__()} == set(RESULTS)


@pytest.mark.parametrize("name", list(RESULTS))
def test_results_as_frame_json_html_and_latex(name):
    result = RESULTS[name]()
    assert type(result).__name__ == name
    tables = result.tables()
    assert len(result.to_frame()) >= len(tables[0][1]) > 0
    found = json.loads(result.to_json())
    assert found == json.loads(json.dumps(result.to_dict()))
    assert name in ("BoundTable", "Certificate", "Plan") or "findings" in found

    page = result._repr_html_()
    assert page.count("<table") == len(tables)
    assert html.escape(result.sentence()) in page

    latex = result.to_latex()
    assert latex.startswith(f"% {result.sentence()}\n\n\\begin{{tabular}}")
    for mark in (r"\begin{tabular}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert latex.count(mark) == len(tables), mark
    typeset = latex.split("\n", 1)[1]
    assert typeset.isascii()
    for (titles, rows), tabular in zip(tables, typeset.split("\n\n\\begin")[0:], strict=True):
        lines = [line for line in tabular.split("\n") if line.endswith(r" \\")]
        assert len(lines) == 1 + len(rows)
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(titles) - 1 for line in lines)
        assert not re.search(r"(?<!\\)[_#%]|<|>|(?<!\$)\|", "\n".join(lines).replace("$<$", "").replace("$>$", ""))


# --- by reflection -------------------------------------------------------------------------------------------------


def interval(value=0.5, low=0.25, high=1.0):
    return Interval(value, low, high, 0.95, Standing.ESTIMATED, "t, 3 prompts", "what was averaged")


def test_fields_are_keys_and_what_json_has_no_number_for_is_null():
    assert jsonable(interval()) == {
        "value": 0.5, "low": 0.25, "high": 1.0, "confidence": 0.95, "standing": "estimated", "method": "t, 3 prompts",
        "of": "what was averaged",
    }  # fmt: skip
    endless = interval(np.inf, 0.0, np.inf).to_dict()
    assert (endless["value"], endless["high"], endless["vacuous"]) == (None, None, True)
    assert jsonable(interval(low=-np.inf))["low"] is None
    found = jsonable({"a": (np.float64("nan"), np.arange(2), np.int64(3)), 4: [None, True, "x"]})
    assert found == {"a": [None, [0, 1], 3], "4": [None, True, "x"]}
    assert type(found["a"][2]) is int


def test_left_out_and_derived_keys():
    table = bounds.unified(T=4096, delta=1e-4)
    found = table.to_dict()
    assert "published_b_star" not in found
    assert (found["b_star"]["name"], found["b_star"]["value"]) == (table.best.name, table.best.value)
    assert found["b_star_published"] == table.best_published.to_dict()


def test_a_table_of_intervals_says_the_same_in_every_way():
    rows = {
        "0": {"kl": interval(), "gain": None},
        "1": {"kl": interval(0.3, 0.2, 0.4), "gain": interval(2.0, 2.0, 2.0)},
    }
    table = IntervalTable("step", rows, {"0": {"responses": 8, "share": 0.12345}, "1": {"responses": 9, "share": 1.0}})
    assert (len(table), list(table), table.names) == (2, ["0", "1"], ["kl", "gain"])
    assert table.column("kl") == [rows["0"]["kl"], rows["1"]["kl"]]
    assert [row["step"] for row in jsonable(table)] == ["0", "1"]
    first = {"step": "0", "responses": 8, "share": 0.12345, "kl": jsonable(interval()), "gain": None}
    assert jsonable(table)[0] == first
    frame = table.to_frame()
    ends = [f"{name}{end}" for name in ("kl", "gain") for end in ("", "_low", "_high")]
    assert frame.columns.tolist() == ["step", "responses", "share", *ends]
    assert frame["kl_high"].tolist() == [1.0, 0.4]
    assert frame["gain"].isna().tolist() == [True, False]
    titles, cells = table.cells(marked="1")
    assert titles == ["step", "kl", "gain", "responses", "share"]
    assert cells == [(["0", "0.5 [0.25, 1]", "-", "8", "0.123"], False), (["1", "0.3 [0.2, 0.4]", "2", "9", "1"], True)]
    assert table.cells(["gain"], {"responses": "of them"})[0] == ["step", "gain", "of them"]
    assert table.estimate("1", "gain") == rows["1"]["gain"]
    with pytest.raises(KeyError, match="gain of step 0 cannot be estimated"):
        table.estimate("0", "gain")
