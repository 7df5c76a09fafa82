"""Mask strings: what they keep, and thresholds of the wrong kind."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bounds
from bounds.theory.masking import STATISTICS, Mask

D = np.array([0.1, -0.3, 0.0, 0.002, 0.002, -0.5])
STARTS = np.array([0, 3, 5, 6])
K3 = np.exp(D) - 1 - D


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("seq_max_k2<=0.05", [True, True, False]),
        ("seq_max_k2<=0.04", [False, True, False]),
        (f"seq_mean_k3<={K3[:3].mean() * 1.0001}", [True, True, False]),
        ("seq_sum_k3<=0.1", [True, True, False]),
        ("seq_max_k3<=1e-3", [False, True, False]),
        ("seq_sum_k2<=1.0", [True, True, True]),
        ("seq_mean_k2<=0.02", [True, True, False]),
        ("seq_mean_k1=0.9_1.1", [True, True, False]),
        ("seq_sum_k1=0.5_1.2", [False, True, False]),
        ("seq_max_k2<=0.05,seq_mean_k3<=1e-5", [False, True, False]),
        (" seq_max_k2 <= 0.05 , seq_sum_k3<=10 ", [True, True, False]),
    ],
)
def test_what_is_kept(text, kept):
    assert Mask.parse(text).keep(D, STARTS).tolist() == kept


def test_k1_bounds_the_ratio_of_roll_to_theta():
    """verl's "0.1_1.2" keeps theta/roll in [1/1.2, 10]."""
    mask = Mask.parse("seq_mean_k1=0.1_1.2")
    for ratio, kept in ((1 / 1.2 + 1e-9, True), (1 / 1.2 - 1e-9, False), (9.999, True), (10.001, False)):
        assert mask.keep(np.array([math.log(ratio)]), np.array([0, 1])).tolist() == [kept]


def test_exact_kl_criteria_need_the_column():
    mask = Mask.parse("seq_max_kl<=0.01")
    assert mask.keep(D, STARTS, kl=np.array([0, 0.02, 0, 0, 0.01, 0])).tolist() == [False, True, True]
    with pytest.raises(ValueError, match="needs the exact kl column"):
        mask.keep(D, STARTS)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_parses_and_prints(name):
    text = f"{name}=0.9_1.1" if name.endswith("k1") else f"{name}<=0.01"
    assert str(Mask.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seq_mean_k3<=1.001", r"looks like a bound on a ratio; for that write seq_mean_k1=0.999\d*_1.001"),
        ("seq_mean_k2<=0.9", "looks like a bound on a ratio"),
        ("seq_mean_k1<=0.001", r"takes bounds LOW_HIGH on roll/theta .* for a divergence .* write seq_mean_k3<=0.001"),
        ("seq_mean_k1=0.0001_0.001", "must have bounds LOW_HIGH with 0 < LOW < 1 < HIGH"),
        ("seq_max_k2<=-1", "the threshold of seq_max_k2 must be a positive number, got '-1'"),
        ("seq_max_k2<=nan", "must be a positive number"),
        ("seq_max_k2<=0.5_2", "must be a positive number, got '0.5_2'"),
        ("seq_mean_k1=0.5_1_5", "must be a positive number"),
        ("seq_max_k2<=x", "must be a positive number"),
        ("seq_maxk2<=0.1", "unknown mask statistic 'seq_maxk2'; did you mean 'seq_max_k2'"),
        ("token_k3<=0.1", "unknown mask statistic 'token_k3'"),
        ("seq_max_k2", "mask criterion must be NAME<=NUMBER"),
        ("", "mask criterion must be NAME<=NUMBER"),
        ("seq_max_k2<=0.1,", "mask criterion must be NAME<=NUMBER"),
    ],
)
def test_refused_with_what_was_likely_meant(text, message):
    with pytest.raises(ValueError, match=message):
        Mask.parse(text)


def test_a_mask_object_is_accepted_by_certify():
    mask = Mask.parse("seq_max_k2<=0.05")
    traces = bounds.example_traces()
    assert bounds.certify(traces, mask=mask).mask == bounds.certify(traces, mask=str(mask)).mask


def test_the_two_denominators():
    """The paper divides by all responses; per accepted stands beside it under its own name."""
    scores = [1.11, 0.22, 2.23, 5e-5, 1.35]  # R S of five responses of one token
    rows = [
        {"prompt_id": str(k), "reward": 1.0, "rollout_logprobs": [-3.0], "train_logprobs": [-3.0 + math.log1p(s)]}
        for k, s in enumerate(scores)
    ]
    traces = bounds.TraceSet.from_records(rows, horizon=1)
    mask = Mask.parse("seq_max_k2<=0.4")  # log(1 + s)^2 / 2 is .28, .02, .69, 0, .36
    report = bounds.certify(traces, mask=mask, assume={"absolutely_continuous": True}).mask
    assert report.acceptance.value == pytest.approx(0.8)
    assert report.surrogate_gain.value == pytest.approx((1.11 + 0.22 + 5e-5 + 1.35) / 5)
    assert report.surrogate_gain_per_accepted.value == pytest.approx((1.11 + 0.22 + 5e-5 + 1.35) / 4)
    assert "over all responses (as in the paper)" in str(report)
