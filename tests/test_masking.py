"""Mask strings: what they keep, and thresholds of the wrong kind."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bounds
from bounds.masks.mask import STATISTICS, Mask
from bounds.masks.statistics import TOKEN, TOKEN_STATISTICS, Tokens, pooled

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


def written(name):
    """Some criterion of a statistic."""
    if name.endswith("k1"):
        return f"{name}=0.9_1.1"
    if name.endswith("shift") or name.endswith("advantage"):
        return f"{name}=-0.2_0.1"
    if name == "seq_min_ratio":
        return "seq_min_ratio>=0.5"
    return f"{name}<=1.01" if name.endswith(("_ratio", "prob_error")) else f"{name}<=0.01"


@pytest.mark.parametrize("name", [*STATISTICS, *TOKEN_STATISTICS])
def test_every_statistic_parses_and_prints(name):
    text = written(name)
    assert str(Mask.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "seq_product_ratio<=3",
        "seq_product_ratio>=0.3333333333333333",
        "seq_min_ratio>=0.0001,seq_max_ratio<=100",
        "seq_max_k2<=0.050000000000000003,token_k1=0.6_1.4",
        "clip_token_ratio<=2,clip_seq_product_ratio=0.5_5",
        "ln_trm(T=4096,epsilon=0.005,delta=0.0001)<=0.03,seq_mean_ratio_deviation<=0.05",
        "ln_trm(T=8,delta=0.01)<=0.03",
    ],
)
def test_text_reads_back_as_the_same_mask(text):
    mask = Mask.parse(text)
    assert Mask.parse(str(mask)) == mask
    assert Mask.parse(text.replace(",", " , ").replace("<=", " <= ")) == mask


def test_a_threshold_keeps_all_its_digits():
    mask = Mask.parse("seq_max_k2<=0.12345678901234567")
    assert mask.criteria[0].high == 0.12345678901234567 == Mask.parse(str(mask)).criteria[0].high


RATIOS = np.log([2.0, 0.5, 1.0, 1.5, 0.1])  # responses (2, .5), (1), (1.5, .1): products 1, 1, .15


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("seq_product_ratio<=1.1", [True, True, True]),
        ("seq_product_ratio>=0.2", [True, True, False]),
        ("seq_geometric_ratio=0.38_1.1", [True, True, True]),
        ("seq_geometric_ratio=0.39_1.1", [True, True, False]),
        ("seq_max_ratio<=1.9", [False, True, True]),
        ("seq_min_ratio>=0.4", [True, True, False]),
        ("seq_mean_ratio_deviation<=0.49", [False, True, False]),  # .75, 0, .7
        ("seq_mean_mult_prob_error<=2.001", [True, True, False]),  # 2, 1, 5.75
        ("token_ratio<=1.1", [True, True, True]),
        ("clip_seq_product_ratio<=1.1,seq_min_ratio>=0.4", [True, True, False]),
    ],
)
def test_what_ratio_criteria_keep(text, kept):
    assert Mask.parse(text).keep(RATIOS, np.array([0, 2, 3, 5])).tolist() == kept


@pytest.mark.parametrize(("statistic", "value"), [("seq_max_k2", 0.125), ("seq_sum_k2", 0.25), ("seq_mean_k2", 0.125)])
def test_a_value_on_the_boundary_is_kept(statistic, value):
    d, starts = np.array([0.5, -0.5]), np.array([0, 2])
    assert Mask.parse(f"{statistic}<={value!r}").keep(d, starts).tolist() == [True]
    below = math.nextafter(value, 0.0)
    assert Mask.parse(f"{statistic}<={below!r}").keep(d, starts).tolist() == [False]


def test_ratio_boundaries_are_closed_at_both_ends():
    d, starts = np.array([math.log(1.25), math.log(0.8)]), np.array([0, 1, 2])
    assert Mask.parse("seq_product_ratio=0.8_1.25").keep(d, starts).tolist() == [True, True]
    assert Mask.parse("seq_product_ratio=0.801_1.249").keep(d, starts).tolist() == [False, False]
    assert Mask.parse("seq_mean_k1=0.8_1.25").keep(np.array([-math.log(0.8), -math.log(1.25)]), starts).all()


def test_ln_trm_by_hand():
    """T = 4, epsilon = .4, delta = .18: weights for t = 1..4 are min(1, (4-t) .4, .3 sqrt(4-t))."""
    weights = [min(1.0, 3 * 0.4, 0.3 * 3**0.5), min(1.0, 2 * 0.4, 0.3 * 2**0.5), min(1.0, 0.4, 0.3), 0.0]
    ratios = np.array([1.1, 0.8, 1.3, 0.5, 1.2])  # a response of four tokens, and one of one
    expected = [
        (0.1 * weights[0] + 0.2 * weights[1] + 0.3 * weights[2]) / sum(weights),
        0.2 * weights[0] / sum(weights),
    ]
    name = "ln_trm(T=4,epsilon=0.4,delta=0.18)"
    found = pooled(name, Tokens(np.log(ratios), np.array([0, 4, 5])))
    assert found == pytest.approx(expected, rel=1e-12)
    assert Mask.parse(f"{name}<=0.14").keep(np.log(ratios), np.array([0, 4, 5])).tolist() == [False, True]


def test_ln_trm_weighs_by_the_cap_not_by_the_realised_length():
    short = Tokens(np.log([1.5, 1.5]), np.array([0, 2]))
    with_cap = pooled("ln_trm(T=100,epsilon=0.01)", short)[0]
    weights = 0.01 * np.arange(99, -1, -1)
    assert with_cap == pytest.approx(0.5 * weights[:2].sum() / weights.sum(), rel=1e-12)
    with pytest.raises(ValueError, match="ln_trm needs T, the generation cap: a response has 3 policy tokens, T=2"):
        Mask.parse("ln_trm(T=2,delta=1)<=0.1").keep(np.zeros(3), np.array([0, 3]))


def test_an_overflowing_last_token_has_weight_0_in_ln_trm():
    assert pooled("ln_trm(T=2,epsilon=0.1)", Tokens(np.array([0.0, 800.0]), np.array([0, 2]))).tolist() == [0.0]


def test_rules_of_tokens_are_no_mask():
    mask = Mask.parse("seq_max_k2<=0.05,token_k2<=0.01,clip_token_ratio<=2,clip_seq_product_ratio<=3")
    assert [str(c) for c in mask.dropping] == ["seq_max_k2<=0.05"]
    assert [str(c) for c in mask.reweighing] == ["token_k2<=0.01", "clip_token_ratio<=2", "clip_seq_product_ratio<=3"]
    assert mask.statistics == ("seq_max_k2", "token_k2>0.01", "token_ratio>2", "seq_product_ratio")
    assert Mask.parse("token_k2<=0.000001").keep(D, STARTS).tolist() == [True, True, True]


def test_counts_of_tokens_beyond_a_threshold():
    tokens = Tokens(D, STARTS, rollout=np.log([0.5, 0.9, 0.3, 0.2, 0.2, 0.8]))
    shift = np.exp(tokens.rollout + D) - np.exp(tokens.rollout)
    for name, beyond in {
        "token_k2>0.04": D**2 / 2 > 0.04,
        "token_ratio<0.9": np.exp(D) < 0.9,
        "token_ratio>1.05": np.exp(D) > 1.05,
        "token_k1>1.3": np.exp(-D) > 1.3,
        "token_shift<-0.2": shift < -0.2,
        "token_shift_by_advantage>0.05": shift > 0.05,
    }.items():
        assert pooled(name, tokens).tolist() == np.add.reduceat(beyond.astype(float), STARTS[:-1]).tolist(), name
    assert pooled("token_shift<-0.2", tokens).sum() > 0
    on_the_edge = Tokens(np.array([0.5, -0.5, np.log(0.9)]), np.array([0, 3]))  # ranges are closed
    assert [pooled(name, on_the_edge).tolist() for name in ("token_k2>0.125", "token_ratio<0.9")] == [[0.0], [1.0]]
    with pytest.raises(ValueError, match="needs the rollout log-probs"):
        pooled("token_shift<-0.2", Tokens(D, STARTS))
    with pytest.raises(ValueError, match="unknown mask statistic 'seq_max_k4'; did you mean"):
        pooled("seq_max_k4", tokens)


def test_what_ratios_exceed_a_limit_by_is_summed_response_by_response():
    """Ratios 2, .5 of one response, 1 of the next, 1.5, .1 of the last."""
    tokens = Tokens(RATIOS, np.array([0, 2, 3, 5]))
    assert pooled("ratio_above(1.25)", tokens) == pytest.approx([0.75, 0.0, 0.25])
    assert pooled("ratio_below(0.75)", tokens) == pytest.approx([0.25, 0.0, 0.65])


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("seq_max_k2<=0.05", lambda k2: k2 == 0.0),
        ("seq_product_ratio<=3", lambda log: log <= 0.0),
        ("seq_min_ratio>=0.1", lambda log: log >= 0.0),
        ("seq_mean_k1=0.5_2", lambda log: log == 0.0),
    ],
)
def test_reach_is_the_threshold_at_which_a_value_just_holds(text, agrees):
    """No threshold drops what agrees; each other value has one."""
    kind = Mask.parse(text).criteria[0]
    values = pooled(kind.statistic, Tokens(np.append(RATIOS, np.log([3.0, 2.0])), np.array([0, 2, 3, 5, 7])))
    for k, reach in enumerate(kind.reach(values).tolist()):
        assert (kind.at(reach) is None) == agrees(values[k])
        if not agrees(values[k]):
            assert kind.at(reach * (1 + 1e-12)).holds(values)[k]
            assert not kind.at(reach * (1 - 1e-9)).holds(values)[k]


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
        ("token_k4<=0.1", "unknown mask statistic 'token_k4'"),
        ("seq_mean_kl<=1.001", "looks like a bound on a ratio"),
        ("seq_mean_ratio_deviation<=1.05", "looks like a bound on a ratio"),
        ("seq_mean_k1=1.001", "for a factor either way write seq_mean_k1=0.999001_1.001"),
        ("seq_geometric_ratio<=0.001", "bound on theta/roll above 1.*; for a divergence .* write seq_mean_k3<=0.001"),
        ("seq_product_ratio<=0.01", "for a divergence threshold write seq_sum_k3<=0.01"),
        ("seq_min_ratio<=1.5", "seq_min_ratio takes one bound, seq_min_ratio>=NUMBER, got seq_min_ratio<=1.5"),
        ("seq_max_ratio=0.5_2", "seq_max_ratio takes one bound, seq_max_ratio<=NUMBER"),
        ("seq_min_ratio>=1.5", "bound on theta/roll below 1"),
        ("seq_product_ratio=2_3", "0 < LOW < 1 < HIGH"),
        ("seq_mean_mult_prob_error<=0.05", "at least 1; .* write seq_mean_ratio_deviation<=0.05"),
        ("seq_max_k2>=0.1", "takes an upper bound only"),
        ("seq_max_k2<=0.5_2", "bounds LOW_HIGH belong to k1 and ratio"),
        ("token_shift<=0.2", "takes bounds LOW_HIGH on theta - roll such as -0.2_0.2"),
        ("token_shift=0.1_0.2", "LOW < 0 < HIGH"),
        ("clip_seq_max_k2<=1", "clip_ truncates a ratio"),
        ("ln_trm<=0.1", "unknown mask statistic 'ln_trm'"),
        ("ln_trm(epsilon=0.1)<=0.1", "LN-TRM must be written"),
        ("ln_trm(T=8)<=0.1", "LN-TRM must be written"),
        ("ln_trm(T=8,eps=0.1)<=0.1", "LN-TRM must be written"),
        ("ln_trm(T=1,delta=0.1)<=0.1", "T of ln_trm must be a whole number in"),
        ("ln_trm(T=8,epsilon=2)<=0.1", r"epsilon of ln_trm must be a number in \[0, 1\]"),
        ("ln_trm(T=8,delta=0)<=0.1", "delta of ln_trm must be above 0"),
        ("seq_max_k2", "mask criterion must be NAME<=NUMBER"),
        ("", "mask criterion must be NAME<=NUMBER"),
        ("seq_max_k2<=0.1,", "mask criterion must be NAME<=NUMBER"),
    ],
)
def test_refused_with_what_was_likely_meant(text, message):
    with pytest.raises(ValueError, match=message):
        Mask.parse(text)


@pytest.mark.parametrize(
    "text", ["seq_mean_k3<=0.6", "seq_mean_k2<=0.5", "seq_mean_kl<=0.89", "seq_mean_ratio_deviation<=0.6"]
)
def test_a_large_divergence_is_a_threshold(text):
    assert str(Mask.parse(text)) == text


@pytest.mark.parametrize("starts", [[0, 1, 5], [0, 0, 2], [1, 2], [0], [[0, 2]]])
def test_responses_that_do_not_fit_the_tokens_are_refused(starts):
    with pytest.raises(ValueError, match="starts must be an array that rises from 0 to the number of tokens, 2, got"):
        Mask.parse("seq_max_k2<=0.1").keep([0.1, 0.9], starts)
    assert Mask.parse("seq_max_k2<=0.1").keep([0.1, 0.9], [0, 1, 2]).tolist() == [True, False]
    with pytest.raises(ValueError, match="log_ratio must be an array of numbers"):
        Mask.parse("seq_max_k2<=0.1").keep(["a"], [0, 1])


def test_a_mask_object_is_accepted_by_certify():
    mask = Mask.parse("seq_max_k2<=0.05")
    traces = bounds.example_traces()
    assert bounds.certify(traces, mask=mask).mask == bounds.certify(traces, mask=str(mask)).mask


def test_certify_says_that_a_rule_of_tokens_is_no_mask():
    found = bounds.certify(bounds.example_traces(), mask="token_k2<=0.0001")
    assert found.mask.acceptance.value == 1.0
    assert "token_k2<=0.0001 drops no response but changes the objective" in " ".join(found.warnings)
    assert "does nothing" not in " ".join(found.warnings)


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


@pytest.mark.parametrize(("theta", "roll"), [(0.3, 0.5), (0.9, 0.2), (1.0, 1.0 - 1e-9), (0.5, 1.0), (1e-9, 0.5)])
def test_the_divergences_of_one_token_or_another_are_literally_those(theta, roll):
    """KL of two outcomes, kept in [1e-6, 1 - 1e-6]; signed, with 1e-8 added to what is left for others."""
    tokens = Tokens(np.log([theta / roll]), np.array([0, 1]), rollout=np.log([roll]))
    p, q = (min(max(x, 1e-6), 1.0 - 1e-6) for x in (roll, theta))
    plain = p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    others = (1.0 - roll) * math.log((1.0 - roll + 1e-8) / (1.0 - theta + 1e-8))
    signed = math.copysign(1.0, theta - roll) * (roll * math.log(roll / theta) + others)
    for name, expected in (("binary_kl", plain), ("binary_kl_by_advantage", signed)):
        assert TOKEN[name].values(tokens)[0] == pytest.approx(expected, rel=1e-6, abs=1e-15), name
