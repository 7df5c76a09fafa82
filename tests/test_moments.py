"""Moments of parts of a log are the moments of the log, in any order, and survive a file."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import bounds
from bounds.certificate.columns import Columns
from bounds.certificate.moments import Moments
from bounds.certificate.tally import Tally
from bounds.logs.traces import TraceSet

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


@pytest.mark.parametrize("sizes", [[4] * 30, [1, 2, 3, 4, 5] * 6])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]])
def test_merging_in_any_order_is_the_whole(sizes, order):
    rows = list(records(sizes))
    whole = bounds.certify(TraceSet.from_records(rows, horizon=16), mask=MASK)
    pieces = parts(rows, [7, 8, 50])  # prompts are cut apart
    moments = []
    for piece in pieces:
        moments.append(Moments(statistics=STATISTICS, horizon=16))
        moments[-1].update(piece)
    merged = Moments(statistics=STATISTICS, horizon=16)
    for k in order:
        merged.merge(moments[k])
    merged.weigh_positions(pieces[k] for k in order)
    again = bounds.certify(merged, mask=MASK)
    assert np.allclose(numbers(again), numbers(whole), rtol=1e-12, atol=1e-15)
    assert again.warnings == whole.warnings
    assert [b.name for b in again.table.bounds] == [b.name for b in whole.table.bounds]


def test_positions_of_unequal_groups_need_a_second_look():
    pieces = parts(list(records([1, 2, 3])), [2])
    m = Moments(horizon=16)
    for piece in pieces:
        m.update(piece)
    assert m.position_means() is None
    assert "context_shift_profile" not in {b.name for b in bounds.certify(m).table.bounds}
    m.weigh_positions(pieces)
    means = m.position_means()
    assert means["k3"].sum() == pytest.approx(bounds.certify(m).estimates["kl_seq_k3"].value, rel=1e-12)


def test_a_saved_state_is_the_same(tmp_path):
    rows = list(records([3] * 12))
    first, second = parts(rows, [20])
    m = Moments(statistics=STATISTICS, horizon=16)
    m.update(first)
    m.save(tmp_path / "half.parquet")
    loaded = Moments.load(tmp_path / "half.parquet")
    loaded.update(second)
    m.update(second)
    assert bounds.certify(loaded, mask=MASK).to_json() == bounds.certify(m, mask=MASK).to_json()
    assert loaded.labels == m.labels == {"step": ["0", "1", "2"], "weight_version": ["v1"]}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half.parquet"]


def test_what_is_no_saved_state_is_refused(tmp_path):
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(bounds.TraceError, match=r"no\.parquet: no saved moments"):
        Moments.load(tmp_path / "no.parquet")
    bounds.example_traces().to_parquet(tmp_path / "log.parquet")
    with pytest.raises(bounds.TraceError, match=r"log\.parquet: no saved moments"):
        Moments.load(tmp_path / "log.parquet")


def test_parts_with_other_fields_do_not_merge():
    rows = list(records([2, 2]))
    bare = [{k: v for k, v in row.items() if k != "reward"} for row in rows]
    m = Moments.of(TraceSet.from_records(rows, horizon=16))
    with pytest.raises(bounds.TraceError, match="reward is logged for some responses and not for others"):
        m.update(TraceSet.from_records(bare, horizon=16))
    with pytest.raises(bounds.TraceError, match="different horizons"):
        m.merge(Moments.of(TraceSet.from_records(rows, horizon=17)))


def test_a_log_shifted_as_a_whole_is_noticed_over_its_parts():
    """One telling token a response: no response alone shows the shift."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(40):
        roll = -rng.exponential(1.0, 3)
        rows.append({"rollout_logprobs": roll, "train_logprobs": [*roll[1:], -0.5]})
    m = Moments(horizon=8)
    for piece in parts(rows, [13, 27]):
        m.update(piece)
    with pytest.raises(bounds.TraceError, match="over the whole log: train_logprobs stand one token earlier"):
        bounds.certify(m)


def test_columns_spill_and_come_back():
    spilling, holding = Columns(memory_rows=10), Columns()
    rng = np.random.default_rng(0)
    for size in (4, 9, 1, 30, 2):
        block = {"a": rng.random(size), "prompt": rng.integers(0, 2**63, size).astype(np.uint64)}
        spilling.append(block)
        holding.append(block)
    for _ in range(2):  # reading does not end the writing
        for name in ("a", "prompt"):
            assert np.array_equal(spilling[name], holding[name])
            assert spilling[name].dtype == holding[name].dtype
            assert np.array_equal(np.concatenate([b[name] for b in spilling.blocks()]), holding[name])
        for columns in (spilling, holding):
            columns.append({"a": np.ones(11), "prompt": np.ones(11, dtype=np.uint64)})
    assert len(spilling) == len(holding) == 46 + 22


def test_tallies_name_the_first_place_in_any_order():
    one, two = Tally(), Tally()
    one.count("x", 2, "log.jsonl:10: row 9")
    two.count("x", 1, "log.jsonl:9: row 8")
    two.peak("y", math.inf, "there")
    two.name("v", ["a"])
    for a, b in ((one, two), (two, one)):
        total = Tally()
        total.add(a)
        total.add(b)
        assert (total["x"], total.places["x"]) == (3, "log.jsonl:9: row 8")
        assert Tally.from_dict(total.to_dict()) == total
