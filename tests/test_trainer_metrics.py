"""What each trainer shows, under its own names: against its own functions
(tests/trainers/write_trainers.py), and where they cannot be had, against what its source computes, written again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bounds
from bounds.cli.main import main
from bounds.questions.trainer_metrics import TRAINER_METRICS, trainer_metrics

TRAINERS = json.loads(Path(__file__).with_name("data").joinpath("trainers.json").read_text())
GIVEN = TRAINERS["inputs"]
MU, PI = np.array(GIVEN["rollout"]), np.array(GIVEN["train"])
MASK = np.array([[x == "1" for x in row] for row in GIVEN["mask"]])
D = PI - MU
SHOWN = {
    package.split()[0].removesuffix("-cookbook"): of["metrics"]
    for package, of in TRAINERS["packages"].items()
    if of["metrics"]
}


def log(rows=slice(None)):
    prompts = [f"p{i // 4}" for i in range(len(MASK))][rows]
    arrays = (x[rows] for x in (MU, PI))
    return bounds.TraceSet.from_arrays(*arrays, mask=MASK[rows], rewards=GIVEN["reward"][rows], prompt_ids=prompts)


def k3(d):
    return np.exp(d) - 1.0 - d


def tokens(x):
    return x[MASK].mean()


def samples(x):
    return np.mean((x * MASK).sum(axis=1) / MASK.sum(axis=1))


@pytest.mark.parametrize("trainer", SHOWN)
def test_as_the_trainers_own_function_shows(trainer):
    found, shown = trainer_metrics(log(), trainer), SHOWN[trainer]
    assert set(found.metrics) == set(shown) - {"training/rollout_probs_diff_valid"}  # 1: there are tokens
    for name in found.metrics:
        assert found[name] == pytest.approx(shown[name], rel=1e-6, abs=1e-9), name


SHIFT = np.exp(PI) - np.exp(MU)
REWARD = np.array(GIVEN["reward"])
ADVANTAGE = (REWARD - REWARD.reshape(-1, 4).mean(axis=1).repeat(4))[:, None]
PRODUCT = np.exp((D * MASK).sum(axis=1))
LOG_MIXTURE = np.log(0.5 * np.exp(PI) + 0.5 * np.exp(MU))
#: From the sources at NeMo-RL 7ea279abf, slime 624b824a8, miles 31f1ca961, prime-rl 559b44772 and AReaL 1.0.4 (where it
#: is no function of its own).
RESTATED = {
    "nemo-rl": {
        "token_mult_prob_error": tokens(np.exp(np.abs(MU - PI))),
        "gen_kl_error": tokens(k3(PI - MU)),
        "policy_kl_error": tokens(k3(MU - PI)),
        "js_divergence_error": tokens(0.5 * k3(PI - LOG_MIXTURE) + 0.5 * k3(MU - LOG_MIXTURE)),
        "sampling_importance_ratio": tokens(np.exp(PI - MU)),
    },
    "slime": {
        "train_rollout_logprob_abs_diff": samples(np.abs(D)),
        "tis": samples(np.exp(D)),
        "tis_abs": samples(np.abs(np.exp(D) - 1.0)),
        "tis_clipfrac": samples(np.exp(D) > 2.0),
        "mis_training_ppl": np.mean(np.exp(-(PI * MASK).sum(axis=1) / MASK.sum(axis=1))),
        "mis_training_log_ppl": -samples(PI),
        "mis_rollout_ppl": np.mean(np.exp(-(MU * MASK).sum(axis=1) / MASK.sum(axis=1))),
        "mis_rollout_log_ppl": -samples(MU),
        "mis_kl": samples(MU - PI),
        "mis_k3_kl": samples(k3(D)),
        "mis_log_ppl_diff": samples(MU - PI),
        "mis_log_ppl_abs_diff": np.mean(np.abs((D * MASK).sum(axis=1) / MASK.sum(axis=1))),
        "mis_ppl_ratio": np.mean(np.exp(-(D * MASK).sum(axis=1) / MASK.sum(axis=1))),
        "mis_chi2_token": samples(np.exp(2.0 * D) - 1.0),
        "mis_chi2_seq": np.mean(PRODUCT**2) - 1.0,
    },
    "miles": {
        "train_rollout_logprob_abs_diff": samples(np.abs(D)),
        "train_rollout_kl": samples(np.minimum(k3(np.clip(D, -20.0, 20.0)), 10.0)),
    },
    "prime-rl": {
        "mismatch_kl/all/mean": tokens(k3(D)),
        "mismatch_kl/all/std": k3(D)[MASK].std(ddof=1),
        "mismatch_kl/all/min": k3(D)[MASK].min(),
        "mismatch_kl/all/max": k3(D)[MASK].max(),
        "is_masked/mean": samples(np.where(ADVANTAGE > 0.0, SHIFT > 0.2, SHIFT < -0.2)),
        "is_masked_low/mean": samples((ADVANTAGE < 0.0) & (SHIFT < -0.2)),
        "is_masked_high/mean": samples((ADVANTAGE > 0.0) & (SHIFT > 0.2)),
    },
    "areal": {
        "behave_approx_kl/avg": tokens(D),
        "behave_imp_weight/avg": tokens(np.exp(D)),
        "behave_imp_weight/min": np.exp(D)[MASK].min(),
        "behave_imp_weight/max": np.exp(D)[MASK].max(),
    },
}


@pytest.mark.parametrize("trainer", RESTATED)
def test_as_the_trainers_source_computes(trainer):
    found = trainer_metrics(log(), trainer)
    assert set(found.metrics) == set(RESTATED[trainer])
    for name, value in RESTATED[trainer].items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_every_trainer_is_tried():
    assert set(TRAINER_METRICS) == set(SHOWN) | set(RESTATED)


@pytest.mark.parametrize("trainer", TRAINER_METRICS)
def test_a_log_in_parts_shows_the_same(trainer):
    whole, parts = trainer_metrics(log(), trainer), trainer_metrics([log(slice(0, 61)), log(slice(61, 200))], trainer)
    for name in whole.metrics:
        assert parts[name] == pytest.approx(whole[name], rel=1e-9, abs=1e-14), name


def test_what_a_trainer_clamps_is_clamped_and_said():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-31.0, -1.0], "train_logprobs": [-1.0, -2.0]}]
    far = bounds.TraceSet.from_records(rows)
    assert trainer_metrics(far, "verl")["rollout_corr/chi2_token"] == pytest.approx((np.exp(40) + np.exp(-2)) / 2 - 1)
    assert trainer_metrics(far, "miles")["train_rollout_kl"] == pytest.approx((10.0 + k3(-1.0)) / 2)
    other = bounds.TraceSet.from_records(
        [{**rows[0], "rollout_logprobs": [-1.0, -1.0], "train_logprobs": [-9.0, -2.0]}]
    )
    assert trainer_metrics(other, "miles")["train_rollout_kl"] == pytest.approx((k3(-8.0) + k3(-1.0)) / 2)
    assert trainer_metrics(far, "slime")["tis"] == pytest.approx((np.exp(30) + np.exp(-1)) / 2)
    for trainer, name in (("verl", "rollout_corr/chi2_token"), ("miles", "train_rollout_kl")):
        assert "clamped" in trainer_metrics(far, trainer).metrics.facts[name]["note"]


def test_without_rewards_what_needs_advantages_is_not_known():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-1.0], "train_logprobs": [-1.5]}]
    shown = trainer_metrics(bounds.TraceSet.from_records(rows), "prime-rl")
    assert np.isnan(shown["is_masked/mean"])
    assert {row["metric"]: row["value"] for row in shown.to_dict()["metrics"]}["is_masked/mean"] is None


def test_far_apart_policies_overflow_without_a_warning():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-800.0, -1.0], "train_logprobs": [-1.0, -1.0]}]
    for trainer in TRAINER_METRICS:
        shown = trainer_metrics(bounds.TraceSet.from_records(rows), trainer)
        json.loads(shown.to_json())
    assert trainer_metrics(bounds.TraceSet.from_records(rows), "trl")["sampling/importance_sampling_ratio/max"] == 0.0


def test_the_command(tmp_path, capsys):
    assert main(["metrics", "--as", "NeMo_RL"]) == 0
    out = capsys.readouterr().out
    assert "js_divergence_error" in out
    assert "As nemo-rl computes them, of 13961 tokens, 96 responses as one batch." in out
    assert main(["metrics", "--as", "tinker", "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["metrics"]
    assert first["metric"] == "optim/kl_sample_train_v1"
    assert first["value"] == pytest.approx(bounds.metrics(bounds.example_traces())["kl"].value)
    assert main(["metrics", "--as", "nanotune"]) == 2
    assert "unknown trainer 'nanotune'" in capsys.readouterr().err
