"""Summaries of parts of a log are the summary of the log, in any order, and survive a file."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import bounds
from bounds.certificate.findings import Look
from bounds.certificate.statistics import COLUMNS
from bounds.certificate.summary import Summary, _Store, weighed_positions
from bounds.logs.traces import Seen, TraceSet

MASK = "seq_max_k2<=0.05,seq_mean_k3<=0.001"
STATISTICS = ("seq_max_k2", "seq_mean_k3")


def records(sizes, seed=0):
    """One prompt for each size, with so many responses."""
    rng = np.random.default_rng(seed)
    for i, size in enumerate(sizes):
        for _ in range(size):
            n = int(rng.integers(1, 12))
            roll = -rng.exponential(1.0, n)
            yield {
                "prompt_id": f"p{i}",
                "reward": float(rng.random() < 0.4),
                "rollout_logprobs": roll,
                "train_logprobs": np.minimum(roll + rng.normal(0.0, 0.05, n), 0.0),
                "step": i % 3,
                "weight_version": "v1",
            }


def parts(rows, cuts):
    edges = [0, *cuts, len(rows)]
    return [TraceSet.from_records(rows[a:b], horizon=16) for a, b in itertools.pairwise(edges)]


def numbers(certificate):
    """Every number of a certificate, flat."""

    def walk(value):
        if isinstance(value, dict):
            for v in value.values():
                yield from walk(v)
        elif isinstance(value, list):
            for v in value:
                yield from walk(v)
        elif isinstance(value, int | float):
            yield float(value)

    return np.array(list(walk(certificate.to_dict())))


def same(a, b):
    assert np.allclose(numbers(a), numbers(b), rtol=1e-12, atol=1e-15)
    assert a.findings == b.findings
    assert [x.name for x in a.table.bounds] == [x.name for x in b.table.bounds]


SIZES = pytest.mark.parametrize("sizes", [[4] * 30, [1, 2, 3, 4, 5] * 6], ids=["equal groups", "unequal groups"])


@SIZES
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]])
def test_merging_in_any_order_is_the_whole(sizes, order):
    rows = list(records(sizes))
    whole = bounds.certify(TraceSet.from_records(rows, horizon=16), mask=MASK)
    pieces = parts(rows, [7, 8, 50])  # prompts are cut apart
    found = [Summary.of(piece, statistics=STATISTICS) for piece in pieces]
    merged = Summary(statistics=STATISTICS)
    for k in order:
        merged.merge(found[k])
    merged.weigh_positions(weighed_positions([pieces[k]], *merged.group_sizes()) for k in order)
    same(bounds.certify(merged, mask=MASK), whole)
    same(bounds.certify([pieces[k] for k in order], mask=MASK), whole)


class Counting:
    """A log that knows how often it was read."""

    def __init__(self, pieces):
        self.pieces, self.readings = pieces, 0

    def __iter__(self):
        self.readings += 1
        yield from self.pieces


@SIZES
def test_a_log_is_read_again_only_where_it_must(sizes):
    """Where weights of positions are not known, and for a statistic that was not kept; never without being asked."""
    rows = list(records(sizes))
    equal = len(set(sizes)) == 1
    log = Counting(parts(rows, [40]))
    summary = Summary.of(log)
    assert log.readings == 1
    means = summary.by_position()
    assert log.readings == (1 if equal else 2)
    assert means["k3"].sum() == pytest.approx(bounds.certify(summary).estimates["kl_seq_k3"].value, rel=1e-12)
    assert {"k3", "shortfall"} == set(means)
    assert {values.size for values in means.values()} == {16}
    before = log.readings
    assert Summary.of(summary) is summary
    assert Summary.of(summary, statistics=()) is summary
    assert log.readings == before
    more = Summary.of(summary, statistics=STATISTICS)
    assert log.readings == before + 1
    assert "seq_max_k2" in more
    assert "seq_max_k2" not in summary
    assert Summary.of(more, statistics=["seq_mean_k3"]) is more
    assert len(bounds.certify(summary, mask=MASK).mask.by_length) == 4


@SIZES
def test_a_summary_without_its_log_says_so_where_the_log_is_needed(tmp_path, sizes):
    summary = Summary.of(parts(list(records(sizes)), [9]))
    summary.save(tmp_path / "kept")
    for alone in (Summary.load(tmp_path / "kept"), pickle.loads(pickle.dumps(summary))):
        with pytest.raises(bounds.TraceError, match="kept without its log"):
            Summary.of(alone, statistics=STATISTICS)
        if len(set(sizes)) == 1:
            assert bounds.certify(alone).to_json() == bounds.certify(summary).to_json()
        else:
            with pytest.raises(bounds.TraceError, match="kept without its log"):
                bounds.certify(alone)


def test_what_is_no_log_is_refused_in_our_words():
    one_reading = (part for part in parts(list(records([1, 2, 3])), [2]))
    for wrong in (3, "run.jsonl", None, one_reading):
        with pytest.raises(TypeError, match="log must be a TraceSet or a Log"):
            bounds.certify(wrong)
    with pytest.raises(bounds.TraceError, match="the log has no response"):
        bounds.certify([])


def test_a_log_that_changes_between_two_readings_is_refused():
    pieces = parts(list(records([1, 2, 3])), [2])
    summary = Summary.of(pieces)
    pieces[0] = TraceSet.from_records([{**r, "prompt_id": "new"} for r in records([2])], horizon=16)
    with pytest.raises(bounds.TraceError, match="row 0: the log has changed since it was read first"):
        summary.by_position()


def test_a_saved_state_is_the_same(tmp_path):
    rows = list(records([3] * 12))
    first, second = parts(rows, [20])
    summary = Summary.of(first, statistics=STATISTICS)
    summary.save(tmp_path / "kept.parquet")
    loaded = Summary.load(tmp_path / "kept.parquet")
    loaded.see(second)
    summary.see(second)
    assert bounds.certify(loaded, mask=MASK).to_json() == bounds.certify(summary, mask=MASK).to_json()
    assert loaded.labels == summary.labels == {"step": ["0", "1", "2"], "weight_version": ["v1"]}
    assert loaded.looks == summary.looks
    assert loaded.left_out == summary.left_out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.parquet"]


def test_what_is_no_saved_state_is_refused(tmp_path):
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(bounds.TraceError, match=r"no\.parquet: no saved summary"):
        Summary.load(tmp_path / "no.parquet")
    bounds.example_traces().to_parquet(tmp_path / "log.parquet")
    with pytest.raises(bounds.TraceError, match=r"log\.parquet: no saved summary"):
        Summary.load(tmp_path / "log.parquet")


def test_parts_with_other_fields_do_not_merge():
    rows = list(records([2, 2]))
    bare = [{k: v for k, v in row.items() if k != "reward"} for row in rows]
    summary = Summary.of(TraceSet.from_records(rows, horizon=16))
    with pytest.raises(bounds.TraceError, match="reward is logged for some responses and not for others"):
        summary.see(TraceSet.from_records(bare, horizon=16))
    with pytest.raises(bounds.TraceError, match="row 0: read with other options than the parts before"):
        summary.see(TraceSet.from_records(rows, horizon=17))
    for other in (Summary.of(TraceSet.from_records(rows, horizon=17)), Summary(statistics=STATISTICS)):
        with pytest.raises(bounds.TraceError, match="different horizons, readings or statistics"):
            summary.merge(other)


def test_a_log_shifted_as_a_whole_is_noticed_over_its_parts():
    """One telling token a response: no response alone shows the shift."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(40):
        roll = -rng.exponential(1.0, 3)
        rows.append({"rollout_logprobs": roll, "train_logprobs": [*roll[1:], -0.5]})
    found = bounds.certify(parts(rows, [13, 27])).findings[0]
    assert found.kind == "misaligned"
    assert found.text == "over the whole log, train_logprobs stand 1 token earlier than rollout_logprobs"


def test_columns_by_hand():
    traces = bounds.example_traces()
    summary = Summary.of(traces, statistics=STATISTICS)
    i = 5
    tokens = slice(traces.starts[i], traces.starts[i + 1])
    d = traces.log_ratio[tokens]
    by_hand = {
        "length": d.size,
        "log_ratio_sum": d.sum(),
        "k3_sum": (np.exp(d) - 1 - d).sum(),
        "surrogate_sum": (np.exp(d) - 1).sum(),
        "shortfall_sum": np.maximum(1 - np.exp(d), 0).sum(),
        "max_k2": (d**2).max() / 2,
        "worst_case_error": max(0.0, (np.exp(d) - 1 - d).sum() - (np.exp(d.sum()) - 1 - d.sum())),
        "capped_mass": min(np.exp(d.sum()), 1 + (np.exp(d) - 1).sum()),
        "reward": traces.reward[i],
        **{f"{name}_sum": values[tokens].sum() for name, values in traces.exact.items()},
    }
    not_here = {
        "prompt",
        "fingerprint",
        "engine_sum",
        "max_log_ratio",
        "stopped_sum",
        "beginning",
        "prompt_number",
        "prompt_likeness",
    }
    not_here |= {"tail", "uncertain", "same", "close", "misaligned", "swapped", "unrelated"}
    by_hand["train_sum"] = traces.train[tokens].sum()
    assert set(by_hand) | not_here == set(COLUMNS)
    for name, value in by_hand.items():
        assert summary[name][i] == pytest.approx(value, rel=1e-10, abs=1e-14), name
    assert "engine_sum" not in summary  # no old_logprobs are logged
    with pytest.raises(KeyError, match="unknown column 'k3_summ'; did you mean 'k3_sum'"):
        summary["k3_summ"]


def test_rows_spill_and_come_back():
    spilling, holding = _Store(memory_rows=10), _Store()
    rng = np.random.default_rng(0)
    for size in (4, 9, 1, 30, 2):
        some = {"a": rng.random(size), "prompt": rng.integers(0, 2**63, size).astype(np.uint64)}
        spilling.append(some)
        holding.append(some)
    for _ in range(2):  # reading does not end the writing
        for name in ("a", "prompt"):
            assert np.array_equal(spilling[name], holding[name])
            assert spilling[name].dtype == holding[name].dtype
            assert np.array_equal(np.concatenate([b[name] for b in spilling.parts()]), holding[name])
        for store in (spilling, holding):
            store.append({"a": np.ones(11), "prompt": np.ones(11, dtype=np.uint64)})
    assert len(spilling) == len(holding) == 46 + 22


def test_looks_name_the_first_place_and_the_largest_value_in_any_order():
    one = Look(Seen(2, "log.jsonl:10: row 9"), {"n": 1.0}, {"k": (3.0, "here")})
    two = Look(Seen(1, "log.jsonl:9: row 8"), {"n": 2.0, "m": 1.0}, {"k": (4.0, "there"), "l": (np.inf, "")})
    for total in (one + two, two + one):
        assert total == Look(
            Seen(3, "log.jsonl:9: row 8"), {"n": 3.0, "m": 1.0}, {"k": (4.0, "there"), "l": (np.inf, "")}
        )
