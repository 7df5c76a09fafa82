"""Each trainer's rule, against ours by its own option names: what its own functions did
(tests/trainers/write_trainers.py), and where they cannot be had, written again from what its source computes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import bounds
from bounds.certificate.kept import kept as kept_of
from bounds.certificate.summary import Summary
from bounds.masks.mask import Mask
from bounds.masks.statistics import Tokens, pooled


def padded(seed, scale, shape=(200, 12)):
    """mu, pi and a mask [B, L] with holes, as trainers hold them; every row has a policy token."""
    rng = np.random.default_rng(seed)
    mu = -rng.exponential(1.0, shape)
    pi = np.minimum(mu + scale * rng.standard_t(3, shape), -1e-9)
    mask = rng.random(shape) < 0.7
    mask[:, 0] = True
    return mu, pi, mask


def as_tokens(mu, pi, mask):
    starts = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    return Tokens((pi - mu)[mask], starts, rollout=mu[mask])


def clamp(x):
    return np.clip(x, -20.0, 20.0)


def mean(x, mask):
    return (x * mask).sum(axis=1) / mask.sum(axis=1)


def kept(text, mu, pi, mask):
    tokens = as_tokens(mu, pi, mask)
    return Mask.parse(text).keep(tokens.log_ratio, tokens.starts)


def dropped_tokens(text, mu, pi, mask):
    """How many tokens of each response a rule of tokens drops."""
    tokens = as_tokens(mu, pi, mask)
    (rule,) = Mask.parse(text).reweighing
    return np.sum([pooled(name, tokens) for name in rule.columns], axis=0)


TRAINERS = json.loads(Path(__file__).with_name("data").joinpath("trainers.json").read_text())
OWN = [(text, dropped) for of in TRAINERS["packages"].values() for text, dropped in of["masks"].items()]


def real_batch():
    """What the trainers' own functions were given, as a log: 200 padded responses with holes, four of a prompt."""
    given = TRAINERS["inputs"]
    mask = np.array([[x == "1" for x in row] for row in given["mask"]])
    prompts = [f"p{i // 4}" for i in range(len(mask))]
    return bounds.TraceSet.from_arrays(
        np.array(given["rollout"]), np.array(given["train"]), mask=mask, rewards=given["reward"], prompt_ids=prompts
    )


@pytest.fixture(scope="module")
def own_log():
    return Summary.of(real_batch(), statistics=[name for text, _ in OWN for name in Mask.parse(text).statistics])


@pytest.mark.parametrize(("text", "dropped"), OWN, ids=[text for text, _ in OWN])
def test_as_the_trainers_own_function(own_log, text, dropped):
    rule = Mask.parse(text)
    (criterion,) = rule.criteria
    if criterion.drops_responses:
        found = np.where(kept_of(own_log, rule), 0.0, own_log["length"])
    else:
        below, above = (own_log[name] for name in criterion.columns) if len(criterion.columns) == 2 else (
            0.0, own_log[criterion.columns[0]]
        )  # fmt: skip
        found = np.where(own_log.advantage > 0.0, above, below) if criterion.by_advantage else below + above
    assert found.tolist() == dropped
    assert 0 < sum(dropped) < own_log.tokens


PRESETS = TRAINERS["packages"]["verl 0.9.1"]["presets"]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_verl(name):
    """A preset is its options; one that drops and truncates nothing is refused as they are."""
    options = PRESETS[name]
    if not options.keys() & {"rollout_rs", "rollout_is"}:
        with pytest.raises(ValueError, match="drop and truncate nothing"):
            Mask.parse(f"verl:{name}")
        return
    mask = Mask.parse(f"verl:RolloutCorrectionConfig.{name}()")
    assert mask == Mask.from_trainer("verl", **options) == Mask.from_trainer("verl", preset=name)
    assert ("bypass_mode=true" in mask.aside) == options.get("bypass_mode", False)


def test_a_preset_takes_its_arguments():
    assert str(Mask.parse("verl:decoupled_k3_rs(rs_threshold=0.02)")) == "seq_mean_k3<=0.02"
    both = "verl:RolloutCorrectionConfig.decoupled_k3_rs_seq_tis(is_threshold=4.0, rs_threshold=0.02)"
    assert str(Mask.parse(both)) == "seq_mean_k3<=0.02,clip_seq_product_ratio<=4"
    assert str(Mask.parse("verl:decoupled_seq_is(threshold=3)")) == "clip_seq_product_ratio<=3"


BLOCK = """
  rollout_correction:
    # what people paste
    rollout_is: token             # null, token, sequence
    rollout_is_threshold: "0.5_2.0"
    rollout_is_batch_normalize: true
    rollout_rs: seq_mean_k3,seq_max_k2
    rollout_rs_threshold: 0.001,0.05
    bypass_mode: false
    loss_type: ppo_clip
"""


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        "{rollout_is: token, rollout_is_threshold: 0.5_2.0, rollout_rs: 'seq_mean_k3,seq_max_k2', "
        "rollout_rs_threshold: '0.001,0.05', bypass_mode: false, loss_type: ppo_clip, "
        "rollout_is_batch_normalize: true}",
        "rollout_is=token,rollout_is_threshold=0.5_2.0,rollout_is_batch_normalize=true,rollout_rs=seq_mean_k3,seq_max_k2,"
        "rollout_rs_threshold=0.001,0.05,bypass_mode=false,loss_type=ppo_clip",
        "++algorithm.rollout_correction.rollout_is=token ++algorithm.rollout_correction.rollout_is_threshold=0.5_2.0 "
        "++algorithm.rollout_correction.rollout_rs='seq_mean_k3,seq_max_k2' "
        "++algorithm.rollout_correction.rollout_rs_threshold='0.001,0.05' "
        "++algorithm.rollout_correction.bypass_mode=false ++algorithm.rollout_correction.loss_type=ppo_clip "
        "++algorithm.rollout_correction.rollout_is_batch_normalize=true",
    ],
)
def test_the_whole_block_of_verl_as_it_is_pasted(text):
    mask = Mask.parse(f"verl:{text}")
    assert str(mask) == "seq_mean_k3<=0.001,seq_max_k2<=0.05,token_ratio=0.5_2"
    assert sorted(mask.aside) == ["bypass_mode=false", "loss_type=ppo_clip", "rollout_is_batch_normalize=true"]
    (said,) = [f.text for f in bounds.certify(real_batch(), mask=mask).findings if "set aside" in f.text]
    assert said == f"{', '.join(mask.aside)}: no part of a mask, set aside"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        (
            "verl:rollout_is: ~\nrollout_rs: [seq_max_k2, seq_mean_k3]\nrollout_rs_threshold: 0.01",
            "seq_max_k2<=0.01,seq_mean_k3<=0.01",
        ),
        ("slime:--use-tis --tis-clip 3", "clip_token_ratio<=3"),
        ("slime:use_tis=true tis_clip_low=0.5 tis_batch_normalize=true", "clip_token_ratio=0.5_2"),
        ("slime:--use-tis --tis-clip-low 0.5 --custom-tis-function-path slime.icepop_function", "token_ratio=0.5_2"),
        ("slime:--use-rs", "token_ratio=0.5_2"),
        ("slime:--use-rs --tis-upper-bound 0", "token_ratio=0.5_2"),  # not set
        ("miles:--use-opsm", "off_policy_gap<=0.0001"),
        ("slime:--use-tis --use-opsm --opsm-delta 1e-3", "off_policy_gap<=0.001,clip_token_ratio<=2"),
        (
            "slime:use_tis: true\nuse_rs: true\ntis_level: token\nrs_level: geometric\ntis_mode: truncate\n"
            "tis_upper_bound: 2.0\nrs_lower_bound: 0.999\nrs_upper_bound: 1.001\nrs_veto_threshold: 1.0e-4",
            "clip_token_ratio<=2,seq_geometric_ratio=0.999_1.001,seq_min_ratio>=0.0001",
        ),
        ("slime:use_tis=true use_rs=false rs_level=token tis_mode=clip", "clip_token_ratio=0.5_2"),
        ("trl:vllm_importance_sampling_correction=true", "seq_product_ratio<=3"),
        (
            "trl:off_policy_mask_threshold=0.5 vllm_importance_sampling_mode=token_truncate",
            "clip_token_ratio<=3,off_policy_gap<=0.5",
        ),
        ("trl:divergence_type=binary_tv", "token_shift_by_advantage=-0.15_0.15"),
        ("trl:divergence_type=binary_kl epsilon=0.04 epsilon_high=0.05", "token_binary_kl_by_advantage=-0.04_0.05"),
        ("openrlhf:is_correction_level=token is_correction_mode=clip", "clip_token_ratio=0.5_5"),
        ("openrlhf:--algo.advantage.is_correction_enable", "clip_token_ratio=0.5_5"),
        (
            "openrlhf:--algo.advantage.is_correction_enable --algo.advantage.is_correction_type seq-mask-tis "
            "--algo.advantage.is_correction_threshold 0.999 1.002",
            "seq_geometric_ratio=0.999_1.002",
        ),
        ("areal:level=token action=clamp upper=2", "clip_token_ratio<=2"),
        ("areal:level=sequence action=clamp upper=2 lower=0.5", "clip_seq_geometric_ratio=0.5_2"),
        ("areal:level=sequence metric=kl_k3 upper=2.0", "seq_mean_k3_inverse<=2"),
        (
            "roll:train_infer_correction:\n  is_weight:\n    enabled: true\n    upper_bound: 1.5\n  filters:\n"
            "    - enabled: true\n      agg_type: geometric\n      ratio_low: 0.8\n      ratio_high: 1.05\n"
            "    - enabled: false\n      agg_type: token\n    - enabled: true\n      ratio_enabled: false\n"
            "      diff_enabled: true",
            "clip_token_ratio<=1.5,seq_geometric_ratio=0.8_1.05,token_shift=-0.2_0.2",
        ),
        (
            "roll:train_infer_correction.filters[0].enabled=true train_infer_correction.filters[0].agg_type=sequence",
            "seq_product_ratio=0.8_1.2",
        ),
    ],
)
def test_what_options_mean(text, own):
    assert str(Mask.parse(text)) == own


def test_blocks_from_python():
    filters = [{"enabled": True, "agg_type": "geometric", "ratio_enabled": False, "diff_enabled": True}]
    own = Mask.from_trainer("roll", train_infer_correction={"filters": filters})
    assert str(own) == "seq_mean_shift=-0.2_0.2"
    assert str(Mask.from_trainer("areal", rejection_sampling={"level": "sequence", "upper": 2.0})) == (
        "seq_geometric_ratio<=2"
    )
    assert str(Mask.from_trainer("openrlhf", is_correction_level="seq", is_correction_threshold=[0.5, 2.0])) == (
        "seq_geometric_ratio=0.5_2"
    )


@pytest.mark.parametrize("agg", ["token", "geometric", "sequence"])
@pytest.mark.parametrize("what", ["ratio", "diff"])
def test_roll(agg, what):
    """8eb27cc2d: pi/mu or pi - mu of a token, its mean (of logs) over a response, or its product (sum)."""
    mu, pi, mask = padded(16, 0.05)
    values = pi - mu if what == "ratio" else np.exp(pi) - np.exp(mu)
    if agg != "token":
        values = (mean(values, mask) if agg == "geometric" else (values * mask).sum(axis=1))[:, None]
    values = np.exp(values) if what == "ratio" else values
    low, high = {"ratio": (0.97, 1.04), "diff": (-0.02, 0.03)}[what]
    expected = (~((values >= low) & (values <= high)) & mask).sum(axis=1)
    on = f"{{enabled: true, agg_type: {agg}, ratio_enabled: {what == 'ratio'}, diff_enabled: {what == 'diff'}"
    rule = Mask.parse(f"roll:filters: [{on}, {what}_low: {low}, {what}_high: {high}}}]")
    if agg == "token":
        assert dropped_tokens(str(rule), mu, pi, mask).tolist() == expected.tolist()
    else:
        tokens = as_tokens(mu, pi, mask)
        keep = rule.keep(tokens.log_ratio, tokens.starts, rollout=tokens.rollout)
        assert np.where(keep, 0, tokens.lengths).tolist() == expected.tolist()
    assert 0 < expected.sum() < mask.sum()


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_off_policy_sequence_masking_of_slime_and_miles(advantage):
    """624b824a8, 31f1ca961: dropped where the advantage is below 0 and the mean of -d above opsm_delta."""
    mu, pi, mask = padded(17, 0.05)
    tokens = as_tokens(mu, pi, mask)
    rule, advantages = Mask.parse("slime:--use-opsm --opsm-delta 0.01"), np.full(len(mask), advantage)
    keep = rule.keep(tokens.log_ratio, tokens.starts, advantage=advantages)
    assert keep.tolist() == (~((advantages < 0.0) & (mean(mu - pi, mask) > 0.01))).tolist()
    assert (~keep).any() == (advantage < 0.0)


def test_the_advantage_is_the_reward_minus_the_mean_of_its_prompt_and_0_within_rounding():
    rows = [
        {"prompt_id": "a", "reward": reward, "rollout_logprobs": [-1.0], "train_logprobs": [-2.0]}
        for reward in (0.1, 0.2, 0.3)
    ]
    summary = Summary.of(bounds.TraceSet.from_records(rows))
    assert np.sign(summary.advantage).tolist() == [-1.0, 0.0, 1.0]  # .1 + .2 + .3 > .6 in floats
    rule = Mask.parse("miles:--use-opsm")
    assert kept_of(summary, rule).tolist() == [False, True, True]
    (said,) = [f.text for f in bounds.certify(bounds.TraceSet.from_records(rows), mask=rule).findings
               if "the advantage" in f.text]  # fmt: skip
    assert "the reward minus the mean of its prompt" in said
    bare = [{key: row[key] for key in row if key != "reward"} for row in rows]
    with pytest.raises(ValueError, match=r"off_policy_gap needs the advantage \(a reward\), and the log has none"):
        bounds.certify(bounds.TraceSet.from_records(bare), mask=rule)


def test_a_file_of_masks_knows_the_advantage(tmp_path):
    import pandas as pd

    from bounds.questions.mask_study import write_masks

    log, rule = real_batch(), Mask.parse("trl:off_policy_mask_threshold=0.01")
    write_masks(log, rule, tmp_path / "masks.parquet")
    written = pd.read_parquet(tmp_path / "masks.parquet")
    assert written["keep"].tolist() == kept_of(Summary.of(log), rule).tolist()
    assert 0 < written["keep"].sum() < len(written)


def verl(option, low, high, mu, pi, mask):
    """keep [B] or keep [B, L] for a k1 in [log low, log high], else a statistic <= high."""
    d = clamp(pi - mu)
    k = {"k1": -d, "k2": d * d / 2.0, "k3": np.exp(d) - 1.0 - d}[option[-2:]]
    ends = (math.log(low), math.log(high)) if option.endswith("k1") else (-math.inf, high)
    if option.startswith("token"):
        return (k >= ends[0]) & (k <= ends[1])
    pool = option.split("_")[1]
    statistic = {
        "sum": (k * mask).sum(axis=1),
        "mean": mean(k, mask),
        "max": np.where(mask, k, -math.inf).max(axis=1),
    }[pool]
    return (statistic >= ends[0]) & (statistic <= ends[1])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("option", "threshold"),
    [
        ("seq_sum_k1", "0.5_1.4"),
        ("seq_sum_k1", "1.3"),
        ("seq_sum_k2", "0.05"),
        ("seq_sum_k3", "0.05"),
        ("seq_mean_k1", "0.99_1.02"),
        ("seq_mean_k1", 1.01),
        ("seq_mean_k2", 0.003),
        ("seq_mean_k3", 0.003),
        ("seq_max_k2", "0.02"),
        ("seq_max_k3", "0.02"),
    ],
)
def test_verl_sequences(option, threshold, seed):
    arrays = padded(seed, 0.06)
    low, _, high = str(threshold).rpartition("_")
    high = float(high)
    expected = verl(option, float(low) if low else 1.0 / high, high, *arrays)
    own = kept(f"verl:rollout_rs={option},rollout_rs_threshold={threshold}", *arrays)
    assert own.tolist() == expected.tolist()
    assert 0 < own.sum() < own.size
    again = Mask.from_trainer("verl", rollout_rs=option, rollout_rs_threshold=threshold)
    assert again == Mask.parse(f"verl:rollout_rs={option} rollout_rs_threshold={threshold}")


@pytest.mark.parametrize(("option", "threshold"), [("token_k1", "0.9_1.1"), ("token_k2", "0.01"), ("token_k3", "0.01")])
def test_verl_tokens(option, threshold):
    mu, pi, mask = padded(4, 0.1)
    low, _, high = threshold.rpartition("_")
    keep = verl(option, float(low or 1.0), float(high), mu, pi, mask)
    own = dropped_tokens(f"verl:rollout_rs={option},rollout_rs_threshold={threshold}", mu, pi, mask)
    assert own.tolist() == (~keep & mask).sum(axis=1).tolist()
    assert own.sum() > 0


def test_verl_options_are_anded_and_may_share_a_threshold():
    arrays = padded(5, 0.06)
    both = kept("verl:rollout_rs=seq_max_k2,seq_mean_k3,rollout_rs_threshold=0.02,0.002", *arrays)
    assert both.tolist() == (verl("seq_max_k2", 0, 0.02, *arrays) & verl("seq_mean_k3", 0, 0.002, *arrays)).tolist()
    shared = Mask.parse("verl:rollout_rs='seq_max_k2,seq_max_k3' rollout_rs_threshold='0.02'")
    assert str(shared) == "seq_max_k2<=0.02,seq_max_k3<=0.02"
    listed = Mask.from_trainer("verl", rollout_rs=["seq_max_k2", "seq_max_k3"], rollout_rs_threshold=[0.02, 0.02])
    assert listed == shared


@pytest.mark.parametrize("level", ["sequence", "geometric"])
@pytest.mark.parametrize(("low", "high"), [(None, 1.02), (0.95, 1.1)])
def test_slime_sequences(level, low, high):
    """pi/mu in [low, high], low 1/high unless given; a token with pi/mu below the veto drops the response."""
    mu, pi, mask = padded(6, 0.06)
    d = pi - mu
    pooled_d = (d * mask).sum(axis=1) if level == "sequence" else mean(d, mask)
    ratio = np.exp(clamp(pooled_d))
    veto = 0.8
    vetoed = ((d < math.log(veto)) & mask).any(axis=1)
    expected = (ratio >= (1.0 / high if low is None else low)) & (ratio <= high) & ~vetoed
    lower = "" if low is None else f" --rs-lower-bound={low}"
    bounds = f"--tis-upper-bound={high} --tis-lower-bound={1 / high!r}" if low is None else f"--rs-upper-bound={high}"
    text = f"slime:--rs-level={level} {bounds}{lower} --rs-veto-threshold={veto}"
    assert kept(text, mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size
    assert vetoed.any()


@pytest.mark.parametrize("text", ["slime:rs_level=token rs_lower_bound=0.9 rs_upper_bound=1.2"])
def test_slime_tokens(text):
    mu, pi, mask = padded(7, 0.1)
    ratio = np.exp(clamp(pi - mu))
    expected = (((ratio < 0.9) | (ratio > 1.2)) & mask).sum(axis=1)
    assert dropped_tokens(text, mu, pi, mask).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ("vllm_importance_sampling_clip_max=1.2", -math.inf, 1.2),
        ("vllm_importance_sampling_mode=sequence_mask", -math.inf, 3.0),
        ("vllm_importance_sampling_cap=1.1 vllm_importance_sampling_clip_min=0.9", 0.9, 1.1),
        ("vllm_importance_sampling_clip_max=None vllm_importance_sampling_clip_min=0.9", 0.9, math.inf),
    ],
)
def test_trl_sequences(options, low, high):
    mu, pi, mask = padded(8, 0.2)
    ratio = np.exp(((pi - mu) * mask).sum(axis=1))
    expected = ~((ratio < low) | (ratio > high))
    assert kept(f"trl:{options}", mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size


def test_trl_tokens_and_truncation():
    mu, pi, mask = padded(9, 0.1)
    ratio = np.exp((pi - mu) * mask)
    beyond = (ratio > 1.1) & mask
    masked = "trl:vllm_importance_sampling_mode=token_mask vllm_importance_sampling_clip_max=1.1"
    assert dropped_tokens(masked, mu, pi, mask).tolist() == beyond.sum(axis=1).tolist()
    truncated = Mask.parse(masked.replace("token_mask", "token_truncate"))
    assert str(truncated) == "clip_token_ratio<=1.1"
    assert dropped_tokens(str(truncated), mu, pi, mask).tolist() == beyond.sum(axis=1).tolist()
    assert str(Mask.parse("trl:vllm_importance_sampling_mode=sequence_truncate")) == "clip_seq_product_ratio<=3"


@pytest.mark.parametrize("metric", ["product", "geometric"])
def test_skyrl(metric):
    mu, pi, mask = padded(10, 0.08)
    d = pi - mu
    ratio = np.exp(clamp((d * mask).sum(axis=1) if metric == "product" else mean(d, mask)))
    low, high = (0.5, 2.0) if metric == "product" else (0.99, 1.01)  # its defaults
    token = np.exp(clamp(d))
    inside = (((token >= 0.7) & (token <= 1.3)) | ~mask).all(axis=1)
    expected = ~(ratio > high) & ~(ratio < low) & inside
    text = f"skyrl:sequence_mask_metric={metric} outlier_token_is_threshold_low=0.7 outlier_token_is_threshold_high=1.3"
    assert kept(text, mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size


def test_skyrl_tokens_and_truncation():
    mu, pi, mask = padded(11, 0.1)
    ratio = np.exp(clamp(pi - mu))
    expected = (~((ratio >= 0.9) & (ratio <= 1.1)) & mask).sum(axis=1)
    text = "skyrl:token_mask_is_threshold_low=0.9 token_mask_is_threshold_high=1.1"
    assert dropped_tokens(text, mu, pi, mask).tolist() == expected.tolist()
    assert str(Mask.parse("skyrl:tis_ratio_type=sequence")) == "clip_seq_product_ratio<=5"
    assert str(Mask.parse("skyrl:tis_ratio_type=token")) == "clip_token_ratio<=2"
    with pytest.raises(ValueError, match="computed over the tokens that are left"):
        Mask.parse(text + " sequence_mask_metric=product")


def test_nemo_rl():
    mu, pi, mask = padded(12, 0.1)
    error = mean(np.exp(np.abs(mu - pi) * mask), mask)
    expected = error <= 1.15
    assert kept("nemo-rl:seq_logprob_error_threshold=1.15", mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size
    options = "truncated_importance_sampling_ratio=1.02 truncated_importance_sampling_ratio_min=0.97"
    geometric = np.exp(mean(pi - mu, mask))
    expected = (geometric >= 0.97) & (geometric <= 1.02)
    text = f"nemo-rl:truncated_importance_sampling_type=seq-mask-tis {options}"
    assert kept(text, mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size
    ratio = np.exp(pi - mu)
    expected = (~((ratio >= 0.97) & (ratio <= 1.02)) & mask).sum(axis=1)
    text = f"nemo-rl:truncated_importance_sampling_type=icepop {options}"
    assert dropped_tokens(text, mu, pi, mask).tolist() == expected.tolist()
    tis = "nemo-rl:truncated_importance_sampling_type=tis truncated_importance_sampling_ratio=2"
    assert str(Mask.parse(tis)) == "clip_token_ratio<=2"
    product = tis.replace("type=tis", "type=icepop") + options[len("truncated_importance_sampling_ratio=1.02") :]
    assert str(Mask.parse(product + " sequence_level_importance_ratios=True")) == "seq_product_ratio=0.97_2"


def test_prime_rl():
    """pi - mu beyond +-0.2: the upper end counts where the advantage is positive, else the lower."""
    mu, pi, mask = padded(13, 1.0)
    shift = np.exp(pi) - np.exp(mu)
    mask_rule = Mask.parse("prime-rl:dppo_mask_high=0.1")
    assert str(mask_rule) == "token_shift_by_advantage=-0.2_0.1"
    below, above = (pooled(name, as_tokens(mu, pi, mask)) for name in mask_rule.criteria[0].columns)
    assert above.tolist() == ((shift > 0.1) & mask).sum(axis=1).tolist()
    assert below.tolist() == ((shift < -0.2) & mask).sum(axis=1).tolist()
    assert above.sum() * below.sum() > 0
    expected = ((np.abs(shift) > 0.1) & mask).sum(axis=1)
    assert dropped_tokens("prime-rl:type=ipo", mu, pi, mask).tolist() == expected.tolist()


def test_ms_swift_calls_a_geometric_mean_sequence():
    mu, pi, mask = padded(14, 0.1)
    ratio = np.exp(mean(np.log(np.maximum(np.exp(clamp(pi - mu)), 1e-10)), mask))
    text = "ms-swift:rollout_importance_sampling_mode=sequence_mask rollout_importance_sampling_threshold=1.01"
    expected = ratio <= 1.01
    assert kept(text, mu, pi, mask).tolist() == expected.tolist()
    assert 0 < expected.sum() < expected.size
    token = "ms-swift:rollout_importance_sampling_mode=token_mask"
    beyond = ~(np.exp(clamp(pi - mu)) <= 2.0) & mask
    assert dropped_tokens(token, mu, pi, mask).tolist() == beyond.sum(axis=1).tolist()
    truncated = token.replace("token_mask", "sequence_truncate")
    assert str(Mask.parse(truncated)) == "clip_seq_geometric_ratio<=2"


def test_the_clamp_of_verl_is_not_ours():
    """One token of 3000 with d = -30: clamped it is 19 nats, in truth 29; the mean falls on two sides of .008."""
    d = np.zeros(3000)
    d[7] = -30.0
    arrays = np.full((1, 3000), -50.0), (np.full(3000, -50.0) + d)[None], np.ones((1, 3000), dtype=bool)
    assert verl("seq_mean_k3", 0, 0.008, *arrays).tolist() == [True]
    assert kept("verl:rollout_rs=seq_mean_k3 rollout_rs_threshold=0.008", *arrays).tolist() == [False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=1.001", "verl would apply .* looks like a bound on a ratio"),
        ("verl:rollout_rs=seq_mean_k1,rollout_rs_threshold=0.001", "for a divergence .* write seq_mean_k3<=0.001"),
        ("verl:rollout_rs=seq_mean_k3", "one threshold for all or one for each of the 1"),
        ("verl:rollout_rs=seq_max_k2,seq_mean_k3 rollout_rs_threshold=1,2,3", "got 3"),
        ("verl:rollout_rs=seq_max_k1 rollout_rs_threshold=2", "unknown rollout_rs 'seq_max_k1'; did you mean"),
        ("verl:rollout_rs=seq_sum_k1 rollout_rs_threshold=x", "rollout_rs_threshold must be a number, got 'x'"),
        ("verl:rollout_rs=seq_sum_k1 rollout_rs_threshold=-1", "takes bounds LOW_HIGH on roll/theta"),
        ("verl:rollout_rs=geometric rollout_rs_threshold=1.1", "verl: unknown rollout_rs 'geometric'"),
        ("verl:rollout_rz=1", "unknown option of verl 'rollout_rz'; did you mean 'rollout_rs'"),
        ("verl:rollout_is=geometric", "unknown rollout_is 'geometric'"),
        ("verl:rollout_rs=none", "these options of verl drop and truncate nothing"),
        ("verl:rollout_rs=seq_max_k2 rollout_rs=seq_max_k2", "option rollout_rs is given twice"),
        ("verl:seq_max_k2", "must be TRAINER:OPTION=VALUE"),
        ("verl: x rollout_rs=seq_max_k2", "must be TRAINER:OPTION=VALUE"),
        ("slime:rs_level=geometric rs_upper_bound=x", "slime: rs_upper_bound must be a number, got 'x'"),
        ("slime:rs_level=geometric rs_upper_bound=0.001", "0 < LOW < 1 < HIGH"),
        ("trl:vllm_importance_sampling_mode=mask", "trl: unknown vllm_importance_sampling_mode 'mask'"),
        ("trl:vllm_importance_sampling_clip_max=none", "a bound on seq_product_ratio is missing"),
        ("nemo-rl:truncated_importance_sampling_type=icepop", "icepop needs truncated_importance_sampling_ratio"),
        ("nemo-rl:seq_logprob_error_threshold=0.05", "which is at least 1"),
        ("trl:divergence_type=topk_tv", "topk_tv needs the log-probs of k tokens at each place, which no log holds"),
        (
            "roll:filters: [{enabled: true, agg_type: segment}]",
            "agg_type segment needs to know where a tool's output was",
        ),
        ("areal:level=sequence metric=kl_k2 upper=1 lower=0.1", "a mask with kl_k2 takes upper only"),
        ("areal:level=sequence agg=max upper=2 lower=0.5", "lower bounds the largest ratio of a response from below"),
        ("areal:level=sequence action=clamp metric=kl_k3", "is no mask and is not offered here"),
        ("openrlhf:is_correction_level=seq is_correction_gating=tv is_correction_threshold=0.1,0.2", "tv takes HIGH"),
        ("openrlhf:is_correction_level=seq is_correction_mode=clip", "requires is_correction_level=token"),
        ("verl:bypass_mode=true", "drop and truncate nothing .* bypass_mode=true: no part of a mask"),
        ("verl:decoupled_k4_rs", "must be TRAINER:OPTION=VALUE"),
        ("slime:use_opsm=yes", "unknown use_opsm 'yes'"),
        ("nanotune:x=1", "unknown trainer 'nanotune'"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Mask.parse(text)


def test_options_as_they_are_pasted():
    for text in (
        "verl:algorithm.rollout_correction.rollout_rs=seq_max_k2 algorithm.rollout_rs_threshold=0.05",
        'VERL: rollout_rs="seq_max_k2"; rollout_rs_threshold="0.05"',
        "verl:rollout_rs=seq_max_k2,rollout_rs_threshold=0.05,rollout_is=null",
    ):
        assert str(Mask.parse(text)) == "seq_max_k2<=0.05"
    assert Mask.from_trainer("prime_rl") == Mask.parse("prime-rl:type=default")


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("verl:rollout_is=token", "clip_token_ratio<=2"),
        ("verl:rollout_is=sequence", "clip_seq_product_ratio<=2"),
        ("verl:loss_mode=dppo_tv", "token_shift_by_advantage=-0.2_0.2"),
        ("roll:is_weight.enabled=true", "clip_token_ratio<=1.2"),
        ("slime:use_tis=true tis_mode=truncate", "clip_token_ratio<=2"),
        ("slime:use_rs=true", "token_ratio=0.5_2"),
        ("trl:vllm_importance_sampling_correction=true", "seq_product_ratio<=3"),
        ("trl:vllm_importance_sampling_mode=token_truncate", "clip_token_ratio<=3"),
        ("skyrl:sequence_mask_metric=product", "seq_product_ratio=0.5_2"),
        ("skyrl:sequence_mask_metric=geometric", "seq_geometric_ratio=0.99_1.01"),
        ("skyrl:tis_ratio_type=token", "clip_token_ratio<=2"),
        ("skyrl:tis_ratio_type=sequence", "clip_seq_product_ratio<=5"),
        ("prime-rl:type=default", "token_shift_by_advantage=-0.2_0.2"),
        ("prime-rl:type=ipo", "token_shift=-0.1_0.1"),
        ("ms-swift:rollout_importance_sampling_mode=token_mask", "token_ratio<=2"),
        ("openrlhf:is_correction_level=token", "token_ratio=0.5_5"),
        ("areal:level=token", "token_ratio<=5"),
    ],
)
def test_what_is_not_given_is_what_the_trainer_takes(text, mask):
    """The defaults of their sources, which no option says."""
    assert str(Mask.parse(text)) == mask
