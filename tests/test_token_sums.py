"""One look at the tokens: NumPy's passes and the compiled kernel against a loop in Python, and against each other."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bounds
from bounds.certificate import statistics, summary
from bounds.certificate.statistics import token_signs, token_sums
from bounds.certificate.summary import Summary
from bounds.divergence import rows
from tests.test_summary import MASK, STATISTICS, numbers, records

WAYS = pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "kernel"])


@st.composite
def logs(draw):
    """Responses of ordinary tokens, with what is odd strewn in: zeros, copies, shifts, far and impossible values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1e-9, 0.005, 0.05, 0.5, 3.0]))
    rolls, thetas = [], []
    for _ in range(draw(st.integers(1, 12))):
        n = draw(st.integers(1, 70))
        roll = -rng.exponential(1.0, n)
        theta = np.minimum(roll + rng.normal(0.0, spread, n), 0.0)
        kind = draw(st.integers(0, 8))
        if kind == 1:  # padding
            theta[n // 2 :] = roll[n // 2 :] = draw(st.sampled_from([0.0, -7.0]))
        elif kind == 2:
            theta = np.append(roll[1:], -0.5)
        elif kind == 3:
            theta = np.append(-0.5, roll[:-1])
        elif kind == 4:
            roll[rng.integers(0, n)] = -900.0
            theta[rng.integers(0, n)] = -900.0
        elif kind == 5:
            roll[rng.random(n) < 0.3] = 0.0
            theta[rng.random(n) < 0.3] = 0.0
        elif kind == 6:
            theta[rng.integers(0, n)] = 1e-5
        rolls.append(roll)
        thetas.append(theta)
    starts = np.concatenate([[0], np.cumsum([r.size for r in rolls])])
    return np.concatenate(rolls), np.concatenate(thetas), starts, rng.random(len(rolls))


def one_by_one(x, y):
    """Every number of one response as its definition says, token by token."""
    d = [b - a for a, b in zip(x, y, strict=True)]
    excess = [math.expm1(v) if v < 709.0 else math.inf for v in d]
    k3 = [
        g - v if abs(v) > 1.0 else math.fsum(v**k / math.factorial(k) for k in range(2, 25))
        for g, v in zip(excess, d, strict=True)
    ]
    row = {"log_ratio_sum": math.fsum(d), "k3_sum": sum(k3), "surrogate_sum": sum(excess)}
    row |= {"shortfall_sum": math.fsum(max(-g, 0.0) for g in excess), "d": math.fsum(d)}
    row |= {"least": min(d), "largest": max(d), "uncertain": sum(v < -1e-3 for v in x)}
    for name, share in (("same", 1e-5), ("close", 1e-4)):
        row[name] = sum(a < -1e-3 and abs(v) <= -share * a for a, v in zip(x, d, strict=True))
    empty = [
        (abs(v) <= 0.01 and (a == 0.0 or b == 0.0)) or (v == 0.0 and a == x[-1] < -5.0)
        for a, b, v in zip(x, y, d, strict=True)
    ]
    tail = len(list(itertools.takewhile(bool, reversed(empty))))
    if 0 < tail < len(x) and abs(x[-tail - 1] - x[-tail]) <= 0.05:
        tail = 0
    pairs = list(zip(x, y, strict=True))
    return row | {
        "tail": tail,
        "x": math.fsum(x),
        "xx": math.fsum(v * v for v in x),
        "dd": math.fsum(v * v for v in d),
        "xd": math.fsum(a * v for a, v in zip(x, d, strict=True)),
        "unequal": sum(v != 0.0 for v in d),
        "rollout_numbers": sum(v != 0.0 for v in x),
        "train_numbers": sum(v != 0.0 for v in y),
        "rollout_zeros": sum(a == 0.0 and b < -1e-3 for a, b in pairs),
        "train_zeros": sum(b == 0.0 and a < -1e-3 for a, b in pairs),
        "positive": sum(a > 1e-6 or b > 1e-6 for a, b in pairs),
        "told": sum(a < -1e-3 and b < -1e-3 for a, b in pairs),
        "scale": max(1.0, math.fsum(map(abs, d)), math.fsum(abs(g) for g in excess if g < math.inf)),
        "k3s": k3,
        "shortfalls": [max(-g, 0.0) for g in excess],
    }


@WAYS
@given(log=logs())
def test_every_number_is_what_it_says(log, compiled):
    roll, theta, starts, weights = log
    expected = [one_by_one(roll[a:b].tolist(), theta[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    found = token_sums(roll, theta, starts, weights, compiled=compiled)
    seen = token_signs(roll, theta, starts, compiled=compiled)
    for i, row in enumerate(expected):
        assert found.responses["least"][i] == row["least"]
        assert found.responses["largest"][i] == row["largest"]
        for name in ("k3_sum", "shortfall_sum"):  # of terms of one sign
            assert found.responses[name][i] == pytest.approx(row[name], rel=1e-12, abs=0.0)
        for name in ("log_ratio_sum", "surrogate_sum"):
            assert found.responses[name][i] == pytest.approx(row[name], rel=1e-12, abs=1e-12 * row["scale"])
        for name in statistics.SIGNS.names:
            assert seen.responses[name][i] == row[name], name
    for name in statistics.TOTALS.names:
        value = seen.totals[name][0]
        if seen.totals[name].dtype == np.int64:
            assert value == sum(row[name] for row in expected), name
        else:
            scale = sum(abs(row[name]) for row in expected) + sum(row["scale"] for row in expected)
            assert value == pytest.approx(math.fsum(row[name] for row in expected), rel=1e-12, abs=1e-12 * scale), name
    for sums, name in ((found.k3, "k3s"), (found.shortfall, "shortfalls")):
        assert sums.size == np.diff(starts).max()
        for t, value in enumerate(sums):
            terms = [w * row[name][t] for w, row in zip(weights, expected, strict=True) if t < len(row[name])]
            assert value == pytest.approx(sum(terms), rel=1e-12, abs=0.0)


@given(log=logs())
def test_pieces_are_the_whole(log):
    """NumPy looks at some responses at a time; a response longer than that by itself."""
    roll, theta, starts, weights = log
    whole = token_sums(roll, theta, starts, weights, compiled=False), token_signs(roll, theta, starts, compiled=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_PIECE", 50)
        cut = token_sums(roll, theta, starts, weights, compiled=False), token_signs(roll, theta, starts, compiled=False)
    for a, b in zip((*whole[0], *whole[1]), (*cut[0], *cut[1]), strict=True):
        for name in a.dtype.names or [...]:
            assert np.allclose(a[name], b[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", [[4] * 20, [1, 2, 3, 4, 5] * 5], ids=["equal groups", "unequal groups"])
def test_certificates_of_both_ways_agree(monkeypatch, sizes):
    traces = bounds.TraceSet.from_records(records(sizes), horizon=16)
    by_numpy = bounds.certify(Summary.of(traces, statistics=STATISTICS), mask=MASK)
    used = []
    kernel = statistics._kernel
    monkeypatch.setattr(summary, "WORTH_COMPILING", -1)
    monkeypatch.setattr(statistics, "_kernel", lambda compiled: used.append(compiled) or kernel(compiled))
    by_kernel = bounds.certify(Summary.of(traces, statistics=STATISTICS), mask=MASK)
    assert used
    assert all(used)
    assert np.allclose(numbers(by_kernel), numbers(by_numpy), rtol=1e-12, atol=1e-15)
    assert by_kernel.warnings == by_numpy.warnings


def test_long_logs_are_compiled_for(monkeypatch):
    """From some number of tokens on, not before; and a part is seen in one way only."""
    ways = []
    monkeypatch.setattr(summary, "WORTH_COMPILING", 100)
    monkeypatch.setattr(statistics, "_kernel", ways.append)
    found = Summary()
    for seed in range(6):
        found.see(bounds.TraceSet.from_records(records([4] * 2, seed), horizon=16))
    assert len(ways) == 12
    assert ways[::2] == ways[1::2] == sorted(ways[::2])
    assert ways[0] is False
    assert ways[-1] is True


def test_a_kernel_that_is_kept_is_of_this_series():
    """What numba keeps on disk is used as long as the kernel's own file is unchanged."""
    from bounds.certificate import _kernel

    series = inspect.getsource(rows.k3_series), rows._SERIES, rows.SERIES_RADIUS
    assert hashlib.sha256(repr(series).encode()).hexdigest()[:16] == _kernel.SERIES
