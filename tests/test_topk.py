"""Brackets from top-k lists: the truth of the whole distributions, at 40 digits and more, is always inside."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hard_logits import INF, drawn, drawn_pairs, softmax, truth
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import real

from bounds.divergence import from_topk


def lists(row, k: int, dtype=np.float64):
    """The k most probable tokens of a row of logits, as a server logs them."""
    with mpmath.workdps(100):
        logs = np.array([float(mpmath.log(p)) if p else -INF for p in softmax(row)])
    ids = np.argsort(-logs, kind="stable")[:k]
    return ids[None], logs[ids][None].astype(dtype)


def pairs():
    """Two rows of logits, hashable."""
    return drawn_pairs(drawn((-9.0, 9.0), (-900.0, 0.0)), 9).map(lambda pair: tuple(tuple(x.tolist()) for x in pair))


@given(pair=pairs(), k=st.integers(1, 9), other=st.integers(1, 9), dtype=st.sampled_from([np.float64, np.float32]))
def test_the_truth_is_inside(pair, k, other, dtype):
    roll, theta = pair
    b = from_topk(*lists(roll, k, dtype), *lists(theta, other, dtype))
    exact = truth(roll, theta)
    assert real(b.tv_low[0]) <= exact["tv"] <= real(b.tv_high[0])
    assert real(b.kl_low[0]) <= exact["kl"]
    assert b.kl_high[0] == INF
    assert b.assumptions == ()


def declared(roll, theta):
    """The best floor and cap that hold: rounded down and up."""
    with mpmath.workdps(100):
        p, q = softmax(roll), softmax(theta)
        assume(all(b for a, b in zip(p, q, strict=True) if a))
        floor = float(min(b for a, b in zip(p, q, strict=True) if a)) * (1 - 1e-15)
        both = all(bool(a) == bool(b) for a, b in zip(p, q, strict=True))
        ratios = [abs(mpmath.log(b / a)) for a, b in zip(p, q, strict=True) if a and b]
    return floor, max(float(max(ratios)) * (1 + 1e-15), 1e-9) if both else None


@given(pair=pairs(), k=st.integers(1, 9), other=st.integers(1, 9), dtype=st.sampled_from([np.float64, np.float32]))
def test_upper_values_of_kl_hold_under_what_was_declared(pair, k, other, dtype):
    floor, cap = declared(*pair)
    given_lists = *lists(pair[0], k, dtype), *lists(pair[1], other, dtype)
    exact = truth(*pair)["kl"]
    options = [{"train_floor": floor}] * (floor > 1e-300) + [{"log_ratio_cap": cap}] * (cap is not None)
    for option in options:
        b = from_topk(*given_lists, **option)
        assert exact <= real(b.kl_high[0])
        assert [(a.what, a.why) for a in b.assumptions] == [(*option, "declared")]
        assert math.isfinite(b.kl_high[0])


@given(pair=pairs())
def test_longer_lists_know_more_and_whole_ones_all(pair):
    floor, _ = declared(*pair)
    assume(floor > 1e-200)
    width = len(pair[0])
    steps = [from_topk(*lists(pair[0], k), *lists(pair[1], k), train_floor=floor) for k in range(1, width + 1)]
    for less, more in pairwise(steps):
        assert more.tv_low[0] >= less.tv_low[0] - 1e-12
        assert more.tv_high[0] <= less.tv_high[0] + 1e-12
        assert more.kl_low[0] >= less.kl_low[0] * (1 - 1e-9) - 1e-12
        assert more.kl_high[0] <= less.kl_high[0] * (1 + 1e-9) + 1e-9
    exact = truth(*pair)
    assert steps[-1].tv_high[0] - steps[-1].tv_low[0] < 2e-12
    assert steps[-1].kl_low[0] >= float(exact["kl"]) * (1 - 1e-9) - 1e-11
    assert steps[-1].kl_high[0] <= float(exact["kl"]) * (1 + 1e-9) + 1e-9


def rows_of(p, q, k: int, other: int):
    """Lists of distributions that are given as probabilities."""
    return *lists(tuple(math.log(x) for x in p), k), *lists(tuple(math.log(x) for x in q), other)


def test_brackets_of_tv_are_attained():
    b = from_topk([[0]], [[math.log(0.5)]], [[1]], [[math.log(0.4)]])
    assert b.tv_low[0] == pytest.approx(0.1, abs=1e-12)  # roll (.5, .4, .1), theta (.4, .4, .2)
    assert b.tv_high[0] == 1.0  # nothing in common
    b = from_topk([[0, 1]], np.log([[0.5, 0.3]]), [[1, 2]], np.log([[0.6, 0.3]]))
    assert b.tv_low[0] == pytest.approx(0.4, abs=1e-12)  # theta's token 0 has at most the .1 that it does not list
    assert b.tv_high[0] == pytest.approx(0.7, abs=1e-12)


def test_the_lower_value_of_kl_is_the_optimum():
    """Token 0 of roll is not in theta's list: its q is capped. Filled as the multiplier says, the bound is attained."""
    p_list, q_list = {0: 0.5, 1: 0.2, 2: 0.15}, {1: 0.3, 3: 0.25, 2: 0.2}
    b = from_topk([list(p_list)], np.log([list(p_list.values())]), [list(q_list)], np.log([list(q_list.values())]))

    def kl(q0: float, p3: float) -> float:
        p = [0.5, 0.2, 0.15, p3, 0.15 - p3]
        q = [q0, 0.3, 0.2, 0.25, 0.25 - q0]
        return sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))

    grid = [(x, y) for x in np.linspace(0.15, 0.2, 201) for y in np.linspace(0.05, 0.1499, 400)]
    best = min(kl(x, y) for x, y in grid)
    assert best - 1e-4 <= b.kl_low[0] <= best
    coarse = 0.2 * math.log(0.2 / 0.3) + 0.15 * math.log(0.15 / 0.2) + 0.65 * math.log(0.65 / 0.5)
    assert b.kl_low[0] > coarse + 1e-3


def test_float32_lists_of_one_policy_prove_nothing():
    rng = np.random.default_rng(0)
    logs = np.log(rng.dirichlet(np.ones(200), size=50)).astype(np.float32)
    ids = np.argsort(-logs, axis=1)[:, :20]
    kept = np.take_along_axis(logs, ids, axis=1)
    b = from_topk(ids, kept, ids[:, ::-1], kept[:, ::-1])
    assert (b.tv_low == 0).all()
    assert (b.kl_low < 1e-10).all()
    np.testing.assert_allclose(b.tv_high, 1 - np.exp(kept.astype(float)).sum(1), atol=2e-6)


def test_padding_is_absent():
    plain = from_topk([[5, 2]], [[-0.7, -1.6]], [[5, 3]], [[-0.6, -1.7]])
    padded = from_topk([[5, 0, 2, 0]], [[-0.7, -INF, -1.6, -9999.0]], [[5, 3, 3]], [[-0.6, -1.7, -1e9]])
    nothing = from_topk([[0, 0]], [[-9999.0, -INF]], [[5, 3]], [[-0.6, -1.7]], train_floor=1e-6)
    for name in ("tv_low", "tv_high", "kl_low", "kl_high"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(padded, name))
    assert (nothing.tv_low[0], nothing.tv_high[0]) == (0.0, 1.0)
    assert nothing.kl_high[0] == pytest.approx(math.log(1e6), abs=1.0)


def test_rows_are_each_their_own():
    rng = np.random.default_rng(3)
    p, q = (np.log(rng.dirichlet(np.ones(30), size=40)) for _ in range(2))
    ids = [np.argsort(-x, axis=1)[:, :k] for x, k in ((p, 6), (q, 9))]
    given_lists = ids[0], np.take_along_axis(p, ids[0], 1), ids[1], np.take_along_axis(q, ids[1], 1)
    whole = from_topk(*given_lists, train_floor=1e-9)
    for i in range(40):
        alone = from_topk(*(x[i : i + 1] for x in given_lists), train_floor=1e-9)
        for name in ("tv_low", "tv_high", "kl_low", "kl_high"):
            assert getattr(alone, name)[0] == pytest.approx(getattr(whole, name)[i], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: [[1, 2], [4, 4]]}, r"rollout_ids\[1\] must be a list without repeated ids, got .*4 twice"),
        (
            {1: [[-1.0, -1.0], [-1.0, math.nan]]},
            r"rollout_logprobs\[1\] must be log-probs of at most 0, got .*nan at 1",
        ),
        ({3: [[-1.0, -1.0], [0.25, -2.0]]}, r"train_logprobs\[1\] must be log-probs of at most 0, got .*0.25 at 0"),
        (
            {3: [[-1.0, -1.0], [-0.5, -0.5]]},
            r"train_logprobs\[1\] must be log-probs of a mass of at most 1, got .*1\.21",
        ),
        ({1: [[-1.0, -1.0]]}, r"rollout_logprobs must be an array of floats of the shape of rollout_ids \(2, 2\)"),
        ({1: [[-1, -1], [-1, -1]]}, "rollout_logprobs must be an array of floats"),
        ({2: [[1.0, 2.0], [1.0, 2.0]]}, r"train_ids must be an array \[n, k\] of whole numbers"),
        ({2: [1, 2], 3: [-1.0, -1.0]}, r"train_ids must be .* got train_ids=int64 of shape \(2,\)"),
        ({2: [[1, 2]], 3: [[-1.0, -1.0]]}, r"train_ids must be of as many rows as rollout_ids \(2\)"),
        ({"train_floor": 0.2}, "train_floor must be at most what theta gives roll's tokens in row 1"),
        ({"train_floor": 0.0}, "train_floor must be a number in"),
        ({"log_ratio_cap": 0.5}, r"log_ratio_cap must be at least the 1 that row 1 shows"),
        ({"log_ratio_cap": math.nan}, "log_ratio_cap must be a number"),
    ],
)
def test_bad_lists_are_refused(change, message):
    arguments = [[[1, 2], [1, 2]], [[-1.0, -1.0], [-1.0, -1.0]], [[1, 2], [1, 3]], [[-1.0, -1.0], [-1.0, -2.0]]]
    options = {k: v for k, v in change.items() if isinstance(k, str)}
    for k, v in change.items():
        if isinstance(k, int):
            arguments[k] = v
    with pytest.raises(ValueError, match=message):
        from_topk(*arguments, **options)


def test_a_mass_slightly_above_one_is_an_error_of_the_log():
    b = from_topk([[1, 2]], [[math.log(0.5), math.log(0.5 + 5e-7)]], [[1, 2]], [[math.log(0.5)] * 2])
    assert b.tv_low[0] < 1e-6
    assert 1e-7 < b.tv_high[0] < 1e-6
