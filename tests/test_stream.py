"""A log seen in parts is the log: blocks, chunks, files, resumed; in bounded memory."""

from __future__ import annotations

import json
import math
import threading
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bounds
from bounds import open_log, read_traces
from bounds.certificate import summary as summary_module
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.logs import batch as batch_module
from bounds.logs.decode import ahead
from tests.test_summary import MASK, STATISTICS, numbers, records

T = 16


def rows_of(sizes, seed=0):
    return [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in r.items()} for r in records(sizes, seed)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))


def write_parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)


def same(a, b):
    assert np.allclose(numbers(a), numbers(b), rtol=1e-12, atol=1e-15)
    assert a.warnings == b.warnings
    assert [x.name for x in a.table.bounds] == [x.name for x in b.table.bounds]


@pytest.fixture(params=[[4] * 12, [1, 2, 3, 4, 5] * 3], ids=["equal groups", "unequal groups"])
def rows(request):
    return rows_of(request.param)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "small row groups", "float32"])
def test_parts_are_the_log(tmp_path, monkeypatch, rows, kind):
    monkeypatch.setattr(batch_module, "BATCH_TOKENS", 50)
    path = tmp_path / "log"
    if kind == "jsonl":
        write_jsonl(path, rows)
    elif kind == "float32":
        schema = pa.schema(
            [("prompt_id", pa.string()), ("reward", pa.float64())]
            + [(n, pa.list_(pa.float32())) for n in ("rollout_logprobs", "train_logprobs")]
        )
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    else:
        write_parquet(path, rows, **({"row_group_size": 7} if kind == "small row groups" else {}))
    whole = bounds.certify(read_traces(path, horizon=T), mask=MASK)
    same(bounds.certify(Summary.of(open_log(path, horizon=T), statistics=STATISTICS), mask=MASK), whole)


def test_blocks_that_need_a_closer_look_are_read_row_by_row(tmp_path, rows):
    """A mask, an empty response, a missing value, a null list: nothing gets past the checks."""
    changed = [dict(r) for r in rows]
    changed[3]["mask"] = [1] * (len(changed[3]["rollout_logprobs"]) - 1) + [0]
    for r in changed:
        r.setdefault("mask", [1] * len(r["rollout_logprobs"]))
    changed[5]["mask"] = [0] * len(changed[5]["rollout_logprobs"])
    write_parquet(tmp_path / "masked.parquet", changed)
    whole = bounds.certify(read_traces(tmp_path / "masked.parquet", horizon=T))
    streamed = bounds.certify(Summary.of(open_log(tmp_path / "masked.parquet", horizon=T)))
    same(streamed, whole)
    assert any("1 of" in w and "no policy token" in w for w in streamed.warnings)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("train_logprobs", None, "row 9: train_logprobs is missing .*: these are the rollout policy.s log-probs only"),
        ("train_logprobs", float("nan"), r"row 9: train_logprobs\[0\] is null or NaN"),
        ("rollout_logprobs", -9999.0, r"row 9: rollout_logprobs\[0\] is -9999"),
        ("train_logprobs", 0.1, r"row 9: train_logprobs\[0\] must be a log-probability"),
        ("reward", 2.0, r"row 9: reward must be a number in \[0, 1\]"),
        ("reward", None, "row 9: reward is given for some responses and not for others"),
    ],
)
def test_what_is_wrong_in_a_block_is_named_by_row(tmp_path, rows, field, value, message):
    bad = dict(rows[9])
    if isinstance(bad[field], list) and value is not None:
        bad[field] = [value, *bad[field][1:]]
    else:
        bad[field] = value
    path = tmp_path / "log.parquet"
    write_parquet(path, [*rows[:9], bad, *rows[10:]])
    with pytest.raises(bounds.TraceError, match=message):
        Summary.of(open_log(path, horizon=T))


def test_a_block_longer_than_the_horizon_is_refused(tmp_path, rows):
    write_parquet(tmp_path / "log.parquet", rows)
    with pytest.raises(bounds.TraceError, match="policy tokens, more than horizon=3"):
        Summary.of(open_log(tmp_path / "log.parquet", horizon=3))


def test_without_a_horizon_the_longest_of_all_parts_is_taken(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(batch_module, "BATCH_TOKENS", 50)
    write_jsonl(tmp_path / "log.jsonl", rows)
    m = Summary.of(open_log(tmp_path / "log.jsonl"))
    assert m.horizon == max(len(r["rollout_logprobs"]) for r in rows)
    assert any("no horizon was given" in w for w in bounds.certify(m).warnings)


def test_the_same_responses_twice_are_noticed_in_blocks(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {"prompt_id": f"p{i}", "rollout_logprobs": (-rng.exponential(8.0, 10)).tolist(), "train_logprobs": [-1.0] * 10}
        for i in range(20)
    ]
    for r in rows:
        r["train_logprobs"] = [x * 1.001 for x in r["rollout_logprobs"]]
    write_parquet(tmp_path / "twice.parquet", [*rows, *rows[:4]])
    for log in (Summary.of(open_log(tmp_path / "twice.parquet", horizon=T)), read_traces(tmp_path / "twice.parquet")):
        assert any("4 responses standing in the log twice" in w for w in bounds.certify(log).warnings)


def test_an_empty_log_is_refused(tmp_path, rows):
    (tmp_path / "empty.jsonl").write_text(json.dumps({**rows[0], "mask": [0] * len(rows[0]["rollout_logprobs"])}))
    with pytest.raises(bounds.TraceError, match="no response with a policy token: 1 of 1 responses"):
        Summary.of(open_log(tmp_path / "empty.jsonl", horizon=T))
    with pytest.raises(bounds.TraceError, match="no response with a policy token: 1 of 1 responses"):
        list(open_log(tmp_path / "empty.jsonl", horizon=T))


def test_reading_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """After the second of three files somebody presses Ctrl-C; the third call reads the third file only."""
    parts = [rows_of([4] * 5, seed) for seed in (1, 2, 3)]
    for k, rows in enumerate(parts):
        write_jsonl(tmp_path / f"step_{k}.jsonl", [{**r, "prompt_id": f"{k}-{r['prompt_id']}"} for r in rows])
    glob, state = str(tmp_path / "step_*.jsonl"), tmp_path / "state"
    seen = []

    def interrupt(responses, tokens):
        seen.append(responses)
        if responses > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Summary.of(open_log(glob, horizon=T), progress=interrupt, resume=state)
    assert len(Summary.load(state)) == 40
    assert sorted(p.name for p in tmp_path.iterdir() if "state" in p.name) == ["state"]
    seen.clear()
    resumed = Summary.of(open_log(glob, horizon=T), progress=lambda n, tokens: seen.append(n), resume=state)
    assert seen == [60]
    same(bounds.certify(resumed), bounds.certify(Summary.of(open_log(glob, horizon=T))))
    again = Summary.of(open_log(glob, horizon=T), progress=lambda n, tokens: seen.append(n), resume=state)
    assert seen == [60]
    assert len(again) == 60


def test_a_state_of_another_horizon_does_not_resume(tmp_path, rows):
    write_jsonl(tmp_path / "log.jsonl", rows)
    Summary.of(open_log(tmp_path / "log.jsonl", horizon=T), resume=tmp_path / "state")
    with pytest.raises(bounds.TraceError, match="holds a log that was read with other options"):
        Summary.of(open_log(tmp_path / "log.jsonl", horizon=T + 1), resume=tmp_path / "state")


def test_a_state_knows_how_and_what_it_read(tmp_path):
    rows = rows_of([4] * 6)
    log, state = tmp_path / "log.jsonl", tmp_path / "state"
    write_jsonl(log, rows)
    Summary.of(open_log(log, horizon=T), resume=state)
    for other in (open_log(log, horizon=T, reward_range=(0.0, 2.0)), open_log(log, horizon=T).filter(lambda p: p)):
        with pytest.raises(bounds.TraceError, match="holds a log that was read with other options"):
            Summary.of(other, resume=state)
    write_jsonl(tmp_path / "other.jsonl", rows_of([4] * 3, seed=8))
    with pytest.raises(bounds.TraceError, match=r"log.jsonl is not of this log, but it was read into it"):
        Summary.of(open_log(tmp_path / "other.jsonl", horizon=T), resume=state)
    write_jsonl(log, rows[:20])
    with pytest.raises(bounds.TraceError, match=r"log.jsonl has changed since it was read into it"):
        Summary.of(open_log(log, horizon=T), resume=state)


def test_files_of_a_log_keep_its_changes(tmp_path, rows):
    from bounds.questions.mask_study import judging

    for k in (0, 1):
        write_jsonl(tmp_path / f"{k}.jsonl", [{**r, "prompt_id": f"{k}{r['prompt_id']}"} for r in rows])
    log = open_log(tmp_path, horizon=T).filter(judging)
    assert sum(len(Summary.of(f)) for f in log.split()) == len(Summary.of(log)) < 2 * len(rows)


def test_a_log_may_be_gone_through_again_and_filtered(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(batch_module, "BATCH_TOKENS", 50)
    write_jsonl(tmp_path / "log.jsonl", rows)
    log = open_log(tmp_path / "log.jsonl", horizon=T)
    once, again = list(log), list(log)
    assert len(once) > 2
    assert [p.where for p in once] == [p.where for p in again]
    assert sum(map(len, once)) == len(log.read()) == len(rows)
    few = log.filter(lambda p: p.select(np.arange(len(p)) == 0)).filter(lambda p: p if "row 0" in p.where[0] else None)
    assert [len(part) for part in few] == [1]
    assert sum(map(len, log)) == len(rows)
    with pytest.raises(bounds.TraceError, match="no response with a policy token"):
        list(log.filter(lambda p: None))


@pytest.mark.parametrize("read", [open_log, read_traces])
def test_what_is_no_path_is_refused(read):
    for wrong in (3, None, [3], b"log"):
        with pytest.raises(TypeError, match=r"paths must be a path, a folder, a glob, or several, got paths="):
            read(wrong)
    with pytest.raises(TypeError, match="train must be a path"):
        read("log.jsonl" if read is None else bounds.logs.example_path(), train=3)


@pytest.mark.parametrize("name", ["mask", "kl", "reward"])
def test_files_that_log_other_fields_are_refused(tmp_path, rows, name):
    """Consistency is one check, also across the parts of a log."""
    with_it = [{**r, "mask": [1] * len(r["rollout_logprobs"]), "kl": [0.1] * len(r["rollout_logprobs"])} for r in rows]
    write_jsonl(tmp_path / "0.jsonl", with_it)
    write_parquet(tmp_path / "1.parquet", [{k: v for k, v in r.items() if k != name} for r in with_it])
    with pytest.raises(bounds.TraceError, match=rf"1.parquet: row 0: {name} is given for some responses and not for o"):
        open_log(tmp_path, horizon=T).read()


def test_lists_of_fixed_size_and_null_lists(tmp_path):
    values = pa.array([-1.0, -2.0, -3.0, None, -1.0, -1.0])
    for mask in ([None, False, False], [None, True, False]):
        fixed = pa.FixedSizeListArray.from_arrays(values, 2, mask=pa.array([bool(m) for m in mask]))
        table = pa.table({"rollout_logprobs": fixed, "train_logprobs": fixed, "mask": [[1, 1], [1, 0], [1, 1]]})
        pq.write_table(table, tmp_path / "log.parquet")
        if mask[1]:
            with pytest.raises(bounds.TraceError, match="row 1: rollout_logprobs is missing"):
                read_traces(tmp_path / "log.parquet")
        else:
            assert read_traces(tmp_path / "log.parquet").rollout.tolist() == [-1.0, -2.0, -3.0, -1.0, -1.0]


def test_leaving_a_log_waits_for_nothing():
    """The garbage collector may do it, at any moment and in any thread: where it waited, it could wait for itself."""
    go_on = threading.Event()

    def items():
        yield 1
        go_on.wait()
        yield 2

    left = ahead(items())
    assert next(left) == 1
    closing = threading.Thread(target=left.close)
    closing.start()
    closing.join(10)
    waits = closing.is_alive()
    go_on.set()
    closing.join()
    assert not waits
    assert list(ahead(iter([1, 2, 3]))) == [1, 2, 3]


def test_a_copy_under_another_name_is_refused(tmp_path, rows):
    for name in ("a.jsonl", "b.jsonl"):
        write_jsonl(tmp_path / name, rows)
    with pytest.raises(bounds.TraceError, match=r"b.jsonl: the same, byte for byte, as .*a.jsonl"):
        open_log(tmp_path, horizon=T)


@pytest.mark.parametrize(
    "name", [lambda i: [i, 7], lambda i: math.nan if i == 3 else float(i)], ids=["tokens", "NaN among numbers"]
)
def test_prompt_ids_mean_the_same_in_blocks_and_in_rows(tmp_path, rows, name):
    for row in rows:
        row["prompt_id"] = name(int(row["prompt_id"][1:]))
    table = pa.Table.from_pylist(rows)
    assert not table.column("prompt_id").null_count
    pq.write_table(table, tmp_path / "blocks.parquet")
    masks = pa.array([[1] * len(r["rollout_logprobs"]) for r in rows])
    pq.write_table(table.append_column("mask", masks), tmp_path / "rows.parquet")
    blocks, one_by_one = (Summary.of(open_log(tmp_path / f"{n}.parquet", horizon=T)) for n in ("blocks", "rows"))
    assert blocks.prompts == one_by_one.prompts
    assert np.array_equal(blocks.prompt, one_by_one.prompt)


def plain_log(folder, responses, tokens=200):
    rng = np.random.default_rng(0)
    path = folder / f"{responses}.parquet"
    writer = None
    for first in range(0, responses, 500):
        roll = -rng.exponential(0.5, (500, tokens))
        table = pa.table(
            {
                "prompt_id": [f"p{(first + i) // 5}" for i in range(500)],
                "rollout_logprobs": list(roll),
                "train_logprobs": list(np.minimum(roll + rng.normal(0.0, 0.01, roll.shape), 0.0)),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()
    return path


def test_pyarrow_does_not_keep_what_was_read(tmp_path):
    """By default it keeps every row group that it has read, until the last."""
    peaks = []
    for responses in (2000, 10000):
        before, peak = pa.total_allocated_bytes(), 0
        for part in open_log(plain_log(tmp_path, responses), horizon=200):
            peak = max(peak, pa.total_allocated_bytes() - before)
            del part
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 0.2 * 8000 * 200 * 8 * 2


def test_memory_does_not_grow_with_the_log(tmp_path, monkeypatch):
    """Ten times the responses take little more; a study of 50 million tokens is in benchmarks/README.md."""
    monkeypatch.setattr(summary_module, "WORTH_COMPILING", 2**60)  # what a compiler takes, it takes once
    small, large = plain_log(tmp_path, 1000), plain_log(tmp_path, 10000)
    peaks = []
    for path in (small, small, large):  # the first imports
        tracemalloc.start()
        Summary.of(open_log(path, horizon=200))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    whole = 10000 * 200 * 8 * 2
    assert peaks[2] < peaks[1] + 0.3 * whole
    assert peaks[2] < 2 * peaks[1] + 9000 * 400


def test_only_the_half_on_which_no_mask_is_chosen(rows):
    from bounds.questions.mask_study import choosing, judging

    traces = bounds.TraceSet.from_records(rows, horizon=T)
    half = judging(traces)
    m = Summary.of(traces)
    assert len(half) == int((~choosing(m)).sum())
    assert set(half.prompt_ids) < set(traces.prompt_ids)
    assert bounds.certify(half).responses == len(half)


# --- the command line ------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_commands_on_a_log(tmp_path, capsys, rows):
    write_jsonl(tmp_path / "log.jsonl", rows)
    log = tmp_path / "log.jsonl"
    for command, key in (("certify", "b_star"), ("explain", "splits"), ("metrics", "metrics"), ("masks", "effect")):
        code, out, _ = run(capsys, command, log, "--horizon", T, "--json")
        assert code == 0
        assert key in json.loads(out)
    code, out, _ = run(capsys, "compare", log, log, "--horizon", T, "--json")
    assert json.loads(out)["prompts_of_both"] == len({r["prompt_id"] for r in rows})
    code, out, _ = run(capsys, "certify", log, "--horizon", T, "--by-step", "--time-uniform", "--json")
    assert [s["step"] for s in json.loads(out)["steps"]] == ["0", "1", "2"]
    code, out, _ = run(capsys, "certify", log, "--horizon", T, "--noise-floor", log, "--full")
    assert "Noise floor: two forward passes" in out
    code, out, _ = run(capsys, "certify", log, "--horizon", T, "--split", "--json")
    assert json.loads(out)["responses"] < len(rows)
    code, _, err = run(capsys, "compare", log)
    assert code == 2
    assert "compare needs two logs, got 1" in err
    code, _, err = run(capsys, "certify", log, "--by-step", "--assume", "delta=1")
    assert code == 2
    assert "unknown option '--assume'" in err
    for wrong in (("--limit", 1), ("--time-uniform",), ("--figure", "x.png")):
        code, _, err = run(capsys, "certify", log, *wrong)
        assert code == 2
        assert f"unknown option '{wrong[0]}'" in err
    assert run(capsys, "certify", log, "--horizon", T, "--by-step", "--limit", 1e-9)[0] == 1
    assert run(capsys, "certify", log, "--horizon", T, "--require", "kl_seq<=nan")[0] == 2
    code, out, _ = run(capsys, "explain", log)
    assert "no horizon was given" in out
    code, _, err = run(capsys, "certify", log, "--without-staleness", "--horizon", T)
    assert code == 2
    assert "no old_logprobs" in err


def test_the_engine_alone(tmp_path, capsys, rows):
    rng = np.random.default_rng(5)
    with_old = [
        {**r, "old_logprobs": np.minimum(r["rollout_logprobs"] + rng.normal(0.0, 0.001, len(r["rollout_logprobs"])), 0)}
        for r in rows
    ]
    traces = bounds.TraceSet.from_records(with_old, horizon=T)
    whole, engine = bounds.certify(traces), bounds.certify(traces.engine())
    assert engine.estimates["kl_seq"].value < 0.01 * whole.estimates["kl_seq"].value
    assert engine.estimates["kl_seq_k1"].value == pytest.approx(whole.estimates["kl_seq_engine"].value)


# --- metrics ---------------------------------------------------------------------------------------------------


def test_metrics_by_hand(rows):
    from bounds.questions.metrics import metrics

    table = metrics(bounds.TraceSet.from_records(rows, horizon=T))
    d = [np.subtract(r["train_logprobs"], r["rollout_logprobs"]) for r in rows]
    tokens = np.concatenate(d)
    gap = np.concatenate([np.abs(np.exp(r["train_logprobs"]) - np.exp(r["rollout_logprobs"])) for r in rows])
    expected = {
        "kl": -tokens.mean(),
        "k3_kl": (np.exp(tokens) - 1 - tokens).mean(),
        "kl_k3": (np.exp(-tokens) - 1 + tokens).mean(),
        "chi2_token": (np.exp(2 * tokens) - 1).mean(),
        "chi2_seq": np.mean([np.exp(2 * x.sum()) - 1 for x in d]),
        "chi2_seq_by_mean": np.mean([np.exp(2 * x.mean()) - 1 for x in d]),
        "log_ppl_abs_diff": np.mean([abs(x.mean()) for x in d]),
        "probs_diff": gap.mean(),
        "logprob_abs_diff": np.abs(tokens).mean(),
        "ratio_outside": ((np.exp(tokens) < 0.5) | (np.exp(tokens) > 2.0)).mean(),
    }
    assert set(table.metrics.rows) == set(expected)
    for name, value in expected.items():
        assert table[name].value == pytest.approx(value, rel=1e-9, abs=1e-15), name
        assert table[name].low <= value <= table[name].high
    facts = table.metrics.facts
    assert facts["kl"]["sample"] == f"{tokens.size} tokens"
    assert facts["chi2_seq"]["sample"] == f"{len(rows)} responses"
    assert "ms-swift" in facts["chi2_seq"]["note"]


def test_metrics_are_not_clamped():
    from bounds.questions.metrics import metrics

    rows = [
        {"prompt_id": f"p{i}", "rollout_logprobs": [-1.5] * 2000, "train_logprobs": [-1.0] * 2000} for i in range(3)
    ]
    table = metrics(bounds.TraceSet.from_records(rows, horizon=2000))
    assert table["chi2_seq"].value == np.inf
    (row,) = [row for row in table.to_dict()["metrics"] if row["metric"] == "chi2_seq"]
    assert row["value"]["value"] is None
    assert row["value"]["vacuous"] is True
