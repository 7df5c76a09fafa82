"""Files as they come: pipes, links, damaged and hostile ones; what they hold never reaches a terminal raw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import writers

import bounds
from bounds._text import one_line, visible
from bounds.cli.main import main
from bounds.report import page

ROW = {"prompt_id": "p", "reward": 1.0, "rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.0, -2.5]}


def rows(n, *, seed=0, tokens=24, **more):
    """Rows of as many responses, four to a prompt."""
    rng = np.random.default_rng(seed)
    for k in range(n):
        rollout = -rng.exponential(1.0, tokens)
        train = rollout + rng.normal(0.0, 0.02, tokens) * np.abs(rollout)
        yield {
            "prompt_id": f"p{k // 4}", "reward": float(rng.integers(2)), "rollout_logprobs": rollout.tolist(),
            "train_logprobs": train.tolist(), **more,
        }  # fmt: skip


@pytest.fixture
def log(tmp_path):
    return writers.lines(tmp_path / "log.jsonl", list(rows(16)))


# --- what is no ordinary file -------------------------------------------------------------------------------------


def test_a_pipe_is_read_as_the_file_is(log, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(log.read_bytes()))
    writer.start()
    found = bounds.open_log(pipe, horizon=64)
    writer.join()
    assert len(found.read()) == len(found.read()) == 16
    np.testing.assert_array_equal(found.read().rollout, bounds.read_traces(log, horizon=64).rollout)


@pytest.mark.parametrize("how", ["/dev/stdin < log", "cat log | {} -", "<(cat log)"])
def test_standard_input_is_read(log, how):
    command = f"{sys.executable} -m bounds certify --horizon 64 --json"
    text = how.replace("log", str(log))
    text = text.format(command) if "{}" in text else f"{command} {text}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["responses"] == 16


def test_what_cannot_be_read_again_is_refused():
    with pytest.raises(bounds.TraceError, match=r"^/dev/null: neither a file nor a pipe"):
        bounds.open_log("/dev/null")


def test_a_link_that_leads_nowhere_is_named(log, tmp_path):
    link = tmp_path / "run" / "b.jsonl"
    link.parent.mkdir()
    link.symlink_to("gone.jsonl")
    for path in (link, link.parent / "*.jsonl"):
        with pytest.raises(bounds.TraceError, match=r"b.jsonl: a link to gone.jsonl, which is not there"):
            bounds.open_log(path)
    log.rename(link.parent / "a.jsonl")
    for path in (link.parent, link.parent / "*.jsonl"):
        found = bounds.open_log(path)
        assert len(found.files) == 1
        assert "left out: " in found.notes[0]
        assert "b.jsonl: a link to gone.jsonl, which is not there" in found.notes[0]


# --- what a file says twice, or so that it cannot be read --------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"rollout_logprobs": [-1], "train_logprobs": [-1], "reward": 0, "reward": 1}',
        '{"reward":0,"rollout_logprobs":[-1],"train_logprobs":[-1],"reward" : 1}',
        '{"note": {"reward": 3}, "reward": 0, "rollout_logprobs": [-1], "train_logprobs": [-1], "reward": NaN}',
    ],
)
def test_a_field_that_stands_twice_in_a_row_is_refused(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:1: row 0: reward stands twice in one object"):
        bounds.read_traces(path)
    path.write_text(
        '{"note": {"reward": 3}, "tokens": ["reward"], '
        + json.dumps({k: ROW[k][:1] if k[-1] == "s" else ROW[k] for k in ROW})[1:]
    )
    assert len(bounds.read_traces(path)) == 1


def test_what_libraries_say_is_one_line_without_control_characters(log, tmp_path, capsys):
    assert one_line("Invalid\n  data\x1b[2J") == r"Invalid data\x1b[2J"
    assert len(one_line("x" * 1000)) == 300
    path = tmp_path / "log.parquet"
    bounds.read_traces(log, horizon=64).to_parquet(path)
    whole, said = path.read_bytes(), set()
    rng = np.random.default_rng(3)
    for _ in range(60):
        damaged = bytearray(whole)
        for k in rng.integers(4, len(damaged) - 8, 8).tolist():
            damaged[k] = rng.integers(256)
        path.write_bytes(damaged)
        if main(["certify", str(path), "--horizon", "64", "--json"]):
            said.add(capsys.readouterr().err)
    assert len(said) > 5
    assert all(text.count("\n") == 1 and text[:-1].isprintable() for text in said)


def test_numbers_are_judged_alike_in_memory_and_in_files(tmp_path):
    """What one way of giving a record takes, every way takes; what it refuses, they all refuse."""
    taken = {
        "reward": [True, 0, 0.5],
        "rollout_logprobs": [[-1, -2], [-1e-300, -2.5]],
        "mask": [[1, 0], [1.0, 0.0], [True, False]],
        "tokens": [[1, 2], ["a", "b"]],
        "prompt_id": [1, 1.5, "x", [1, 2]],
        "step": [1, 1.5, "x"],
        "prompt_tokens": [[1, 2], ["a"], []],
    }  # fmt: skip
    refused = {
        "reward": ["1.0", [1.0], 1 + 1e-9, float("inf")],
        "rollout_logprobs": [[False, False], [-1, None], [[-1, -2]], -1.0, "-1,-2", [-1, float("nan")]],
        "mask": [["1", "0"], [2, 1], [1, None], "11"],
        "tokens": [[1.5, 2], [True, False], [None, 1], [[1], [2]], "ab"],
        "prompt_id": [True], "step": [True, [1, 2]], "prompt_tokens": [[1.5], "ab", [None]],
    }  # fmt: skip
    ways = {"json": writers.lines, "parquet": lambda path, records: pd.DataFrame(records).to_parquet(path) or path}
    for name, values in taken.items():
        for value in values:
            record = {**ROW, name: value}
            expected = bounds.TraceSet.from_records([record], horizon=4)
            for way, write in ways.items():
                found = bounds.read_traces(write(tmp_path / way, [record]), horizon=4)
                same = found.prompt_ids == expected.prompt_ids and dict(found.labels) == dict(expected.labels)
                assert same, (way, name, value)
                assert found.reward == expected.reward
                np.testing.assert_array_equal(found.rollout, expected.rollout)
    for name, values in refused.items():
        for value in values:
            record = {**ROW, name: value}
            with pytest.raises(bounds.TraceError, match=rf"row 0: .*{name}"):
                bounds.TraceSet.from_records([record], horizon=4)
            for way, write in ways.items():
                with pytest.raises(bounds.TraceError, match=rf"row 0: .*{name}"):
                    bounds.read_traces(write(tmp_path / way, [record]), horizon=4)


def test_a_value_just_outside_is_shown_as_it_is():
    with pytest.raises(bounds.TraceError, match=r"must be a number in \[0, 1\], got 1\.000000001;"):
        bounds.TraceSet.from_records([{**ROW, "reward": 1 + 1e-9}])
    with pytest.raises(bounds.TraceError, match=r"tv\[1\] must be a number in \[0, 1\], got 1\.0000021"):
        bounds.TraceSet.from_records([{**ROW, "tv": [0.1, 1.0000021]}])


def test_a_last_line_that_is_still_being_written_is_left_out_and_said(log, capsys):
    text = log.read_text()
    log.write_text(text + text.splitlines()[0][:-40])
    assert main(["certify", str(log), "--horizon", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["responses"] == 16
    assert [w for w in found["warnings"] if "log.jsonl:17: row 16" in w and "--drop-incomplete" in w]
    assert main(["certify", str(log), "--horizon", "64", "--json", "--drop-incomplete"]) == 0
    assert "17" not in str(json.loads(capsys.readouterr().out)["warnings"])
    log.write_text(text + text.splitlines()[0][:-40] + "\n" + text)  # in the middle, it is damaged
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:17: row 16"):
        bounds.read_traces(log)
    log.write_text(text[:-40])
    assert len(bounds.read_traces(log)) == 15
    log.write_text(text.splitlines()[0][:-40])
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:1: row 0"):
        bounds.read_traces(log)


def test_tables_are_drawn_in_ascii_where_there_is_no_unicode(log):
    command = [sys.executable, "-m", "bounds", "explain", str(log), "--horizon", "64"]
    for encoding, line in (("ascii", b"-----"), ("utf-8", "─".encode())):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, env=environment, check=True)
        assert line in done.stdout
        assert b"?" not in done.stdout


# --- a log that is read again with a file more --------------------------------------------------------------------


def answers(capsys, *arguments):
    code = main(["certify", *map(str, arguments), "--horizon", "128", "--json"])
    return (code, *capsys.readouterr())


def test_going_on_with_a_log_is_as_reading_it_at_once(tmp_path, capsys):
    """A second run of --resume says what one run over all files says, with its notes, or is refused with it."""
    run, kept = tmp_path / "run", tmp_path / "kept.parquet"
    masked = [{**r, "mask": [1] * 23 + [0]} for r in rows(24, seed=1)]
    writers.lines(run / "a.jsonl", [*masked, {**masked[0], "mask": [0] * 24}])
    (run / "notes.txt").write_text("no log")
    first = answers(capsys, run, "--resume", kept)
    assert first == answers(capsys, run) == answers(capsys, run, "--resume", kept)
    more = [{**r, "prompt_id": "q" + r["prompt_id"]} for r in masked]
    changed = [{**r, "rollout_logprobs": r["train_logprobs"], "train_logprobs": r["rollout_logprobs"]} for r in more]
    writers.lines(run / "b.jsonl", changed)
    again = answers(capsys, run, "--resume", kept)
    assert again[0] == 0
    assert again == answers(capsys, run)
    assert "notes.txt" in again[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "of its responses stand, bitwise the same, in"),
        ({"note": "added"}, "of its responses stand, bitwise the same, in"),
        ({"mask": [1] * 96}, "mask is given for some responses and not for others"),
    ],
)
def test_what_is_refused_at_once_is_refused_when_it_is_gone_on_with(tmp_path, capsys, change, message):
    run, kept = tmp_path / "run", tmp_path / "kept.parquet"
    seen = list(rows(24, seed=2, tokens=96))  # too improbable to be drawn twice
    writers.lines(run / "a.jsonl", seen)
    assert answers(capsys, run, "--resume", kept)[0] == 0
    fresh = [] if "mask" in change else seen[:12]
    writers.lines(run / "b.jsonl", [{**r, **change} for r in (fresh or rows(24, seed=3, tokens=96))])
    for options in ([], ["--resume", kept]):
        code, _, said = answers(capsys, run, *options)
        assert code == 2
        assert message in said


# --- what a log says of itself is shown, never sent ----------------------------------------------------------------

HOSTILE = ["\n\n", " the", "\x1b[31mX", "a\tb", "\x1b]0;owned\x07", "\u202eabc", "\r", "你好"]


@pytest.fixture
def hostile():
    rng = np.random.default_rng(5)
    records = list(rows(32, seed=5))
    for k, record in enumerate(records):
        record |= {
            "tokens": rng.choice(HOSTILE, 24).tolist(),
            "prompt_id": f"\x1b[2J{k // 4}\n",
            "environment": f"e\x07{k % 2}",
        }
    return bounds.TraceSet.from_records(records, horizon=64)


def test_no_text_of_a_log_reaches_a_terminal_raw(hostile):
    shown = bounds.explain(hostile)
    texts = {
        "terminal": str(shown), "html": shown.to_html(), "latex": shown.to_latex(),
        "page": page(bounds.certify(hostile)),
    }  # fmt: skip
    for name, text in texts.items():
        odd = {c for c in text if not c.isprintable()} - {"\n"}
        assert not odd, (name, odd)
    for token in ('"\\n\\n"', '" the"', '"\\x1b[31mX"', '"a\\tb"', '"\\u202eabc"', '"\\r"', '"你好"'):
        assert token in texts["terminal"], token
    assert r"\x1b[2J0\n" in texts["terminal"]
    assert {row["part"] for row in shown.to_dict()["splits"]["prompt"]} >= {"\x1b[2J0\n"}  # programs get it as it is


def test_what_is_printable_is_left_alone():
    assert visible("θ ≤ 你好 é") == "θ ≤ 你好 é"
    assert visible("a\x00\u2028\U000e0001") == r"a\x00\u2028\U000e0001"


def test_file_names_and_values_are_quoted_in_messages(tmp_path, capsys):
    path = tmp_path / "a\x1b[2Jb\n.jsonl"
    path.write_text('{"rollout_logprobs": [-1]}\n')
    assert main(["certify", str(path)]) == 2
    said = capsys.readouterr().err
    assert r"a\x1b[2Jb\n.jsonl:1: row 0" in said
    assert said[:-1].isprintable()


def test_what_the_system_refuses_is_a_sentence_with_the_path(tmp_path, monkeypatch, capsys, log):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    target = tmp_path / "page.html"
    assert main(["certify", str(log), "--horizon", "64", "--html", str(target)]) == 2
    assert capsys.readouterr().err == f"trm-bounds: error: {target}: no space left on device\n"
    assert main(["figures", "tightness", "--out", str(log / "figures")]) == 2
    assert capsys.readouterr().err == f"trm-bounds: error: {log / 'figures'}: not a directory\n"


def test_a_number_of_another_library_is_a_number():
    record = {**ROW, "reward": Decimal("0.5"), "rollout_logprobs": [Decimal(-1), np.float32(-2)]}
    assert bounds.TraceSet.from_records([record]).reward == [0.5]
