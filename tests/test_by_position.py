"""Divergence by position: means and intervals as a plain computation gives them, whatever the parts of the log."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import stats

import bounds
from bounds.divergence.rows import k3
from bounds.logs import example_path
from bounds.rules.arrays import curve_array


def log(lengths_by_prompt, seed=0, **fields):
    rng = np.random.default_rng(seed)
    records = []
    for name, lengths in lengths_by_prompt.items():
        for n in lengths:
            roll = -rng.exponential(1.0, n) - 0.01
            train = np.minimum(roll + rng.normal(0.0, 0.1, n), -1e-6)
            records.append({"prompt_id": name, "rollout_logprobs": roll, "train_logprobs": train, **fields})
    return bounds.TraceSet.from_records(records, horizon=400)


def plain(traces, width, k, values):
    """Ratio of prompt means in bin k, and its t-interval, without any of the code that is tested."""
    top, bottom = [], []
    for p in range(traces.prompt.max() + 1):
        mine = [slice(traces.starts[i], traces.starts[i + 1]) for i in np.flatnonzero(traces.prompt == p)]
        pieces = [values[s][k * width : (k + 1) * width] for s in mine]
        if sum(map(len, pieces)):
            top.append(sum(x.sum() for x in pieces) / len(mine))
            bottom.append(sum(map(len, pieces)) / len(mine))
    top, bottom = np.array(top), np.array(bottom)
    value = top.sum() / bottom.sum()
    if len(top) < 2:
        return value, -math.inf, math.inf
    error = np.std((top - value * bottom) / bottom.mean(), ddof=1) / math.sqrt(len(top))
    margin = stats.t.ppf(0.975, len(top) - 1) * error
    return value, value - margin, value + margin


@pytest.mark.parametrize(("longest", "width"), [(6, 1), (32, 1), (33, 2), (256, 8), (300, 16)])
def test_means_and_intervals_against_a_plain_computation(longest, width):
    traces = log({"a": [longest, 2], "b": [longest - 1], "c": [5, 1, longest // 2 + 1], "d": [longest]})
    found = bounds.by_position(traces)
    assert [(b["first"], b["last"]) for b in found.bins.facts.values()] == [
        (k * width, min((k + 1) * width, longest) - 1) for k in range(math.ceil(longest / width))
    ]
    for k, row in enumerate(found.bins.rows.values()):
        for name, values in (("kl", k3(traces.log_ratio)), ("tv", np.maximum(-np.expm1(traces.log_ratio), 0.0))):
            value, low, high = plain(traces, width, k, values)
            i = row[name]
            assert i.value == pytest.approx(value)
            assert i.low == pytest.approx(max(low, 0.0), abs=1e-12)
            assert i.high == pytest.approx(min(high, 1.0) if name == "tv" else high)
    assert {name: i.of for name, i in row.items()} == {
        "kl": "k3 of sampled tokens, which misses theta's mass where roll has none",
        "tv": "(1-rho)^+ of sampled tokens",
    }


def test_the_parts_of_a_log_add_up_and_exact_columns_are_used():
    whole = bounds.example_traces()
    halves = [whole.select(np.arange(len(whole)) % 2 == k) for k in range(2)]
    short = whole.select(whole.lengths < 100)
    assert 0 < len(short) < len(whole)
    rest = whole.select(whole.lengths >= 100)
    expected = bounds.by_position(whole)
    for parts in ([whole], halves, [short, rest], [rest, short], bounds.open_log(example_path())):
        found = bounds.by_position(parts)
        assert list(found.bins) == list(expected.bins)
        for label, row in expected.bins.rows.items():
            assert found.bins.facts[label] == pytest.approx(expected.bins.facts[label])
            for name in ("kl", "tv", "chi2"):
                assert found.bins[label][name].high == pytest.approx(row[name].high)
    frame = expected.to_frame()
    total = (frame["kl"] * frame["reached"] * (frame["last"] - frame["first"] + 1)).sum()
    assert total == pytest.approx(bounds.certify(whole).estimates["kl_seq"].value)


def test_one_prompt_alone_says_nothing_of_others():
    found = bounds.by_position(log({"a": [40], "b": [10]}))
    first, *_, last = found.bins.rows.values()
    assert math.isfinite(first["kl"].high)
    assert (last["kl"].low, last["kl"].high) == (0.0, math.inf)
    assert last["tv"].high == 1.0


def test_frame_json_and_words_agree():
    found = bounds.by_position(bounds.example_traces())
    frame = found.to_frame()
    assert list(frame.columns[:7]) == ["position", "first", "last", "reached", "kl", "kl_low", "kl_high"]
    assert len(frame) == len(found.to_dict()["bins"]) == len(found.bins)
    top = frame.loc[frame["kl"].idxmax()]
    assert "Counted from 0" in found.sentence()
    assert f"positions {top['first']:.0f} to {top['last']:.0f}" in found.sentence()


def test_bad_input():
    with pytest.raises(ValueError, match="confidence must be a number strictly between 0 and 1"):
        bounds.by_position(bounds.example_traces(), confidence=95)
    with pytest.raises(bounds.TraceError, match="the log has no response"):
        bounds.by_position([])


def test_parts_that_log_different_columns_are_refused_by_their_place():
    whole = bounds.example_traces()
    with pytest.raises(bounds.TraceError, match=r".*: chi2, kl, tv is logged for some responses and not for others"):
        bounds.by_position([whole, replace(whole, exact={})])


def test_the_tangents_of_the_curve_lie_above_it_where_they_touch_it():
    """At r = (k + 1/2) / 256, by mpmath: above the largest TV of the KL 2 r^2, by less than forty roundings."""

    def kl_and_tv(s):
        shift = mpmath.coth(s) - 1 / s
        kl = mpmath.log(s / mpmath.sinh(s)) + s * mpmath.coth(s) - (s / mpmath.sinh(s)) ** 2
        return kl, s / 2 * (1 - shift**2)

    with mpmath.workdps(40):
        kls = 2.0 * ((np.arange(5, 340, 12) + 0.5) / 256.0) ** 2
        for kl, found in zip(kls.tolist(), curve_array(kls).tolist(), strict=True):
            s = mpmath.findroot(lambda s, kl=kl: kl_and_tv(s)[0] - kl, (1e-3, 60), solver="anderson", tol=1e-70)
            assert kl_and_tv(s)[1] < found < kl_and_tv(s)[1] * (1 + 40 * mpmath.mpf(2) ** -53)
