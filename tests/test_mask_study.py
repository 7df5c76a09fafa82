"""What masks keep of a log and cost in the guarantee: against direct computation, and at the edges."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

import bounds
from bounds.certificate.kept import UnderMask
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.proof.exact import random_problem
from bounds.questions.mask_study import BEST, DEFAULT, choosing, mask_study, statistics_for, write_masks
from bounds.results import jsonable

KEYS = {
    "responses", "prompts", "tokens", "horizon", "confidence", "mask", "effect", "gain_without_mask", "reference",
    "by_threshold", "length_bias", "reweighing", "groups_mixed", "groups_rejected", "chosen", "reasons", "findings",
    "warnings",
}  # fmt: skip


def records(sizes, seed=0, scale=0.15, reward=None):
    """One prompt for each size, with so many responses."""
    rng = np.random.default_rng(seed)
    for i, size in enumerate(sizes):
        for _ in range(size):
            n = int(rng.integers(1, 12))
            roll = -rng.exponential(1.0, n) - 0.7
            yield {
                "prompt_id": f"p{i}",
                "reward": float(rng.random() < 0.4) if reward is None else reward(rng),
                "rollout_logprobs": roll,
                "train_logprobs": np.minimum(roll + rng.normal(-(scale**2) / 2, scale, n), 0.0),
            }


def traces(rows, **options):
    return TraceSet.from_records(list(rows), horizon=16, train_policy="held-out", **options)


def brute(rows, mask, low=0.0, high=1.0):
    """Every mean from its definition, response by response: prompt means first."""
    by_prompt = {}
    for row in rows:
        d = np.asarray(row["train_logprobs"]) - row["rollout_logprobs"]
        keep = float(Mask.parse(mask).keep(d, np.array([0, d.size]))[0])
        r, spread = (row["reward"] - low) / (high - low), high - low
        s, phi, product = (np.exp(d) - 1).sum(), (np.exp(d) - 1 - d).sum(), np.exp(d.sum())
        by_prompt.setdefault(row["prompt_id"], []).append(
            {
                "acceptance": keep,
                "surrogate": spread * keep * r * s,
                "penalty": spread * keep * r * phi,
                "rejected_reward": spread * (1 - keep) * r,
                "rejected_rest": spread * (1 - keep) * (1 - r),
                "upper": spread * (keep * r * s - keep * s + keep * (1 - r) * phi + (1 - keep) * (1 - r)),
                "gain": spread * r * (product - 1),
                "kept reward": keep * r,
                "reward": r,
                "mixed": keep,
            }
        )
    prompts = [{k: np.mean([v[k] for v in each]) for k in each[0]} for each in by_prompt.values()]
    means = {k: np.mean([p[k] for p in prompts]) for k in prompts[0]}
    means["mixed"] = np.mean([0 < p["mixed"] < 1 for p in prompts])
    means["lower"] = means["surrogate"] - means["penalty"] - means["rejected_reward"]
    return means


@pytest.mark.parametrize("sizes", [[4] * 20, [1, 2, 3, 4, 5] * 5])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 3.0)])
def test_terms_from_their_definitions(sizes, low, high):
    mask = "seq_max_k2<=0.04,seq_mean_k3<=0.01"
    rows = list(records(sizes, reward=lambda rng: float(rng.choice([low, high, (low + high) / 2]))))
    study = mask_study(traces(rows, reward_range=(low, high)), mask=mask)
    expected = brute(rows, mask, low, high)
    for name in ("acceptance", "surrogate", "penalty", "rejected_reward", "rejected_rest", "lower", "upper"):
        interval = getattr(study.effect, name)
        assert interval.value == pytest.approx(expected[name], rel=1e-11, abs=1e-14), name
        assert interval.low < interval.value < interval.high
        assert interval.standing.label == ("measured" if name == "acceptance" else "estimated")
    assert study.gain_without_mask.value == pytest.approx(expected["gain"], rel=1e-11)
    assert study.effect.acceptance_high_reward.value == pytest.approx(expected["kept reward"] / expected["reward"])
    kept_rest = expected["acceptance"] - expected["kept reward"]
    assert study.effect.acceptance_low_reward.value == pytest.approx(kept_rest / (1 - expected["reward"]))
    assert study.groups_mixed.value == pytest.approx(expected["mixed"])


def test_every_row_of_the_grid_is_the_study_of_its_mask():
    rows = traces(records([3] * 15))
    study = mask_study(rows, mask="seq_mean_k1=0.9_1.1")
    assert {t.mask.partition("<")[0].partition("=")[0] for t in study.by_threshold} == {
        "seq_mean_k1", "seq_max_k2", "seq_mean_k3",
    }  # fmt: skip
    for effect in study.by_threshold:
        assert mask_study(rows, mask=effect.mask).effect == effect
    for kind in ("seq_mean_k1", "seq_max_k2", "seq_mean_k3"):
        kept = [t.acceptance.value for t in study.by_threshold if t.mask.startswith(kind)]
        assert kept == sorted(kept)
        assert kept[-1] == 1.0


def test_no_mask_exceeds_the_gain_without_one_and_one_is_best():
    """R (P-1) >= R (M (1 + log P) - 1) on every response; M = [P >= 1/e] is the best M for every reward."""
    study = mask_study(traces(records([4] * 30, scale=0.9)), mask="seq_max_k2<=0.5")
    best = next(t for t in study.reference if t.mask == BEST)
    assert 0.0 < best.acceptance.value < 1.0
    everything = [study.effect, *study.reference, *study.by_threshold]
    assert max(t.lower.value for t in everything) == best.lower.value < study.gain_without_mask.value
    assert [t.title for t in study.reference][-1] == "no mask"


def tree_terms(tree, keep, reward):
    """Both ends of the guarantee of a mask on one enumerated tree, from the definitions."""
    mass, score, phi = tree.roll_mass[-1], tree.score, tree.phi
    on = mass > 0  # elsewhere nothing is sampled

    def mean(values):
        return float((mass[on] * values[on]).sum())

    with np.errstate(invalid="ignore"):
        penalty = np.where(keep * reward > 0, keep * reward * phi, 0.0)
        rest = np.where(keep * (1 - reward) > 0, keep * (1 - reward) * phi, 0.0)
    low = mean(keep * reward * score) - mean(penalty) - mean((1 - keep) * reward)
    high = mean(keep * reward * score) - mean(keep * score) + mean(rest) + mean((1 - keep) * (1 - reward))
    return low, high


@pytest.mark.parametrize("zeros", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (0.3, 0.3)])
def test_the_guarantee_of_any_mask_on_enumerated_trees(zeros):
    """J(theta) - J(roll) lies between both ends for random masks and rewards, under support gaps either way, too."""
    rng = np.random.default_rng(7)
    without_rejected, tight = 0, math.inf
    for trial in range(150):
        problem = random_problem(
            rng, horizon=int(rng.integers(1, 5)), vocabulary=3, distance=float(rng.random()), concentration=0.7,
            zeros_roll=zeros[0], zeros_theta=zeros[1], ends=bool(trial % 2),
        )  # fmt: skip
        tree = problem.trees[0]
        reward = rng.random(tree.roll_mass[-1].size) ** rng.choice([0.01, 1.0, 5.0])
        reward = np.round(reward) if trial % 3 == 0 else reward
        gain = float(problem.objective("theta", [reward]) - problem.objective("roll", [reward]))
        for share in (0.0, 0.5, 1.0):
            keep = (rng.random(reward.size) < share).astype(float)
            low, high = tree_terms(tree, keep, reward)
            assert low <= gain + 1e-12
            assert gain <= high + 1e-12
            tight = min(tight, gain - low)
            without_rejected += low + float((tree.roll_mass[-1] * (1 - keep) * reward).sum()) > gain + 1e-9
    assert without_rejected > 50  # the rejected reward mass cannot be left out
    assert tight < 0.05


def test_estimates_are_the_expectations_of_an_enumerated_tree():
    """A log that holds every response as often as its probability says."""
    roll, theta = np.array([0.25, 0.5, 0.25]), np.array([0.5, 0.25, 0.25])
    rows = []
    for a in range(3):
        for b in range(3):
            for _ in range(round(16 * roll[a] * roll[b])):
                row = {"prompt_id": str(len(rows)), "reward": float(a != b), "rollout_logprobs": np.log(roll[[a, b]])}
                rows.append(row | {"train_logprobs": np.log(theta[[a, b]])})
    study = mask_study(TraceSet.from_records(rows, horizon=2), mask="seq_product_ratio<=1.5")
    gain = sum((theta[a] * theta[b] - roll[a] * roll[b]) * (a != b) for a in range(3) for b in range(3))
    assert study.gain_without_mask.value == pytest.approx(gain, abs=1e-14)
    assert study.effect.lower.value < gain < study.effect.upper.value


def test_both_denominators_and_a_third():
    scores = [1.11, 0.22, 2.23, 5e-5, 1.35]  # R S of responses of one token, the fourth of two
    rows = [
        {"prompt_id": str(k), "reward": 1.0, "rollout_logprobs": [-3.0], "train_logprobs": [-3.0 + math.log1p(s)]}
        for k, s in enumerate(scores)
    ]
    rows[3]["rollout_logprobs"], rows[3]["train_logprobs"] = [-3.0, -1.0], [-3.0 + math.log1p(5e-5), -1.0]
    study = mask_study(TraceSet.from_records(rows, horizon=2), mask="seq_max_k2<=0.4")
    kept = 1.11 + 0.22 + 5e-5 + 1.35
    assert study.mask.surrogate_gain.value == pytest.approx(kept / 5)
    assert study.mask.surrogate_gain_per_accepted.value == pytest.approx(kept / 4)
    assert study.mask.surrogate_gain_per_accepted_token.value == pytest.approx(kept / 5)
    assert "over all responses (as in the paper)" in str(study)


def test_length_bias_is_that_of_the_paper():
    """One of 1000 tokens violates the maximum: (1-p)^T as the paper tabulates it."""
    rows = [
        {"prompt_id": str(k), "reward": 1.0, "rollout_logprobs": [-1.0] * 10, "train_logprobs": [-1.0] * 10}
        for k in range(100)
    ]
    rows[7]["train_logprobs"] = [-1.0] * 9 + [-2.0]
    study = mask_study(TraceSet.from_records(rows, horizon=4096), mask="seq_max_k2<=0.05,seq_mean_k3<=0.4")
    (bias,) = study.length_bias
    assert bias.violation.value == pytest.approx(1e-3)
    found = bias.at_length
    assert [found[T] for T in (256, 1024, 4096, 8192)] == pytest.approx([0.774, 0.359, 0.0166, 2.76e-4], rel=2e-3)
    assert [i.value for i in bias.by_length.column("acceptance")] == pytest.approx([0.99])
    predicted = pytest.approx(0.999**10)
    assert bias.by_length.facts == {"10": {"shortest": 10, "longest": 10, "responses": 100, "predicted": predicted}}


@pytest.mark.parametrize(
    ("mask", "counted"), [("seq_max_ratio<=1.1", "token_ratio>1.1"), ("seq_min_ratio>=0.9", "token_ratio<0.9")]
)
def test_length_bias_of_either_end(mask, counted):
    rows = traces(records([3] * 12))
    (bias,) = mask_study(rows, mask=mask).length_bias
    beyond = np.exp(rows.log_ratio) > 1.1 if ">" in counted else np.exp(rows.log_ratio) < 0.9
    assert bias.violation.value == pytest.approx(beyond.mean())
    assert counted in statistics_for(Mask.parse(mask))
    kept = sum(row["acceptance"]["value"] * row["responses"] for row in jsonable(bias.by_length)) / len(rows)
    assert kept == pytest.approx(mask_study(rows, mask=mask).effect.acceptance.value)


def test_rules_of_tokens_are_counted_and_keep_everything():
    rows = traces(records([3] * 12, scale=0.5))
    d, shift = rows.log_ratio, np.exp(rows.train) - np.exp(rows.rollout)
    study = mask_study(
        rows, mask="token_k2<=0.1,clip_token_ratio<=1.2,clip_seq_product_ratio<=1.5,token_shift=-0.1_0.1"
    )
    shares = [r.share.value for r in study.reweighing]
    product = np.add.reduceat(d, rows.starts[:-1])
    expected = [(d**2 / 2 > 0.1).mean(), (np.exp(d) > 1.2).mean(), (product > math.log(1.5)).mean()]
    assert shares == pytest.approx([*expected, (np.abs(shift) > 0.1).mean()])
    assert [r.unit for r in study.reweighing] == ["tokens", "tokens' weights", "responses' weights", "tokens"]
    assert study.effect.acceptance.value == 1.0
    assert any("drops no response but changes the objective" in w for w in study.warnings)
    assert not any("does nothing" in w for w in study.warnings)
    assert study.reasons["length_bias"] == "no criterion that one token can violate"


def test_the_rule_that_looks_at_the_advantage():
    """prime-rl: the upper end counts where the reward is above the mean of its prompt, else the lower."""
    rows = list(records([3] * 12, scale=0.8))
    log = traces(rows)
    (found,) = mask_study(log, mask="prime-rl:type=default").reweighing
    shift, reward = np.exp(log.train) - np.exp(log.rollout), np.array([r["reward"] for r in rows])
    advantage = np.repeat(reward - np.repeat(reward.reshape(-1, 3).mean(axis=1), 3), log.lengths)
    dropped = np.where(advantage > 0, shift > 0.2, shift < -0.2)
    assert found.share.value == pytest.approx(dropped.mean())
    assert 0 < dropped.mean() < ((shift > 0.2) | (shift < -0.2)).mean()
    bare = traces({k: v for k, v in row.items() if k != "reward"} for row in rows)
    (found,) = mask_study(bare, mask="prime-rl:type=default").reweighing
    assert (found.share, found.reason) == (None, "it looks at the advantage, and the log has no rewards")


def test_the_choice_sees_one_half_of_the_prompts_only():
    rows = list(records([4] * 40, scale=0.7))
    log = traces(rows)
    study = mask_study(log)
    first = choosing(Summary.of(log))
    assert study.chosen.prompts_choosing + study.chosen.prompts_judging == 40
    assert study.chosen.prompts_choosing == np.unique(log.prompt[first]).size
    assert mask_study(traces(rows[::-1])).chosen.mask == study.chosen.mask
    judged = {row["prompt_id"] for row, here in zip(rows, first, strict=True) if not here}
    changed = [row | {"reward": 1.0 - row["reward"]} if row["prompt_id"] in judged else row for row in rows]
    other = mask_study(traces(changed)).chosen
    assert (other.mask, other.value_choosing) == (study.chosen.mask, study.chosen.value_choosing)
    assert other.lower.value != study.chosen.lower.value
    kept = [row for row in rows if row["prompt_id"] in judged]
    mask = study.chosen.mask or "seq_max_k2<=1e9"
    assert study.chosen.lower.value == pytest.approx(brute(kept, mask)["lower"], rel=1e-11)
    assert study.chosen.lower_without.value == pytest.approx(brute(kept, "seq_max_k2<=1e9")["lower"], rel=1e-11)


def test_the_choice_is_the_best_candidate_of_its_half():
    rows = list(records([4] * 40, scale=0.7))
    first = choosing(Summary.of(traces(rows)))
    half = [row for row, here in zip(rows, first, strict=True) if here]
    study, of_half = mask_study(traces(rows)), mask_study(traces(half))
    candidates = {t.mask: t.lower.value for t in (*of_half.by_threshold, *of_half.reference) if t.mask != BEST}
    assert study.chosen.mask == max(candidates, key=candidates.get)
    assert study.chosen.candidates == len(candidates)
    assert study.chosen.value_choosing == pytest.approx(max(candidates.values()), rel=1e-12)


def test_a_summary_is_enough_and_reads_again_for_what_it_lacks():
    rows, mask = list(records([3] * 14)), Mask.parse("seq_max_k2<=0.05,token_k3<=0.01")
    readings = []

    class Log(list):
        def __iter__(self):
            readings.append(1)
            return super().__iter__()

    summary = Summary.of(Log([traces(rows[:9]), traces(rows[9:])]), statistics=statistics_for(mask))
    assert mask_study(summary, mask=mask).to_dict() == mask_study(traces(rows), mask=mask).to_dict()
    assert len(readings) == 1
    other = "seq_mean_k2<=0.01"  # the log is read again
    assert mask_study(summary, mask=other).to_dict() == mask_study(traces(rows), mask=other).to_dict()
    assert len(readings) == 2


@pytest.mark.parametrize("mask", ["seq_max_k2<=0.05", "seq_max_k2<=1e9", "token_k2<=0.05"])
def test_acceptance_has_one_interval_wherever_it_is_asked_for(mask):
    log = traces({**row, "step": 3} for row in records([4] * 20))
    study, certificate = mask_study(log, mask=mask), bounds.certify(log, mask=mask)
    found = study.effect.acceptance
    assert found == study.mask.acceptance == certificate.estimates["acceptance"] == certificate.mask.acceptance
    assert found == bounds.over_time(log, mask=mask).steps["3"]["acceptance"]
    assert found.standing.label == ("proved" if mask.startswith("token") else "measured")
    assert study.mask == certificate.mask
    for effect in (*study.reference, *study.by_threshold):
        assert (
            effect.acceptance
            == bounds.certify(log, mask=Mask.parse(effect.mask) if effect.mask else None).estimates["acceptance"]
        )


def test_the_acceptance_of_the_example():
    found = mask_study(bounds.example_traces(), mask="seq_max_k2<=0.05").mask.acceptance
    assert (found.value, found.low, found.high) == pytest.approx((0.969, 0.797, 0.998), abs=6e-4)
    assert str(found) == "0.969 [0.796, 0.999]"  # ends rounded outward


# --- edges -------------------------------------------------------------------------------------------------------


def test_json_keys():
    found = json.loads(mask_study(bounds.example_traces()).to_json())
    assert found.keys() == KEYS
    assert found["effect"]["mask"] == DEFAULT
    assert found["effect"].keys() == {
        "mask", "title", "acceptance", "acceptance_high_reward", "acceptance_low_reward", "surrogate", "penalty",
        "rejected_reward", "rejected_rest", "lower", "upper",
    }  # fmt: skip
    assert found["effect"]["lower"].keys() == {"value", "low", "high", "confidence", "standing", "method", "of"}
    assert found["length_bias"][0].keys() == {"criterion", "violation", "by_length", "at_length"}
    assert found["length_bias"][0]["by_length"][0].keys() == {
        "tokens", "shortest", "longest", "responses", "acceptance", "predicted",
    }  # fmt: skip
    assert found["mask"].keys() == {
        "rule", "acceptance", "by_length", "median_rule", "surrogate_gain", "surrogate_gain_per_accepted",
        "surrogate_gain_per_accepted_token",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [list(records([1])), list(records([8]))])
def test_one_prompt_gives_no_interval(rows):
    study = mask_study(traces(rows), mask="seq_max_k2<=1e6")
    assert (study.effect.lower.low, study.effect.lower.high) == (-math.inf, math.inf)
    assert (study.effect.acceptance.value, study.effect.acceptance.high) == (1.0, 1.0)
    assert 0.0 < study.effect.acceptance.low < 0.025  # no more than one prompt can say
    assert study.chosen is None
    assert "second half" in study.reasons["chosen"]
    assert any("one prompt" in w for w in study.warnings)
    assert json.loads(study.to_json())["effect"]["lower"]["low"] is None
    assert "No chosen" in str(study)


def test_all_kept_and_none_kept_are_not_certain():
    """Where nothing varies, t has no width; what n prompts can say is (least share)^n = 1 - confidence."""
    log = traces(records([4] * 20))
    everything = mask_study(log, mask="seq_max_k2<=1e6")
    nothing = mask_study(log, mask="seq_max_k2<=1e-300")
    least = 0.05 ** (1 / 20)
    accepted = everything.mask.by_length.column("acceptance") + nothing.mask.by_length.column("acceptance")
    assert all(i.high - i.low > 0.1 for i in accepted)
    accepted, rejected = everything.effect.acceptance, nothing.effect.acceptance
    assert (accepted.value, accepted.high, rejected.low, rejected.value) == (1.0, 1.0, 0.0, 0.0)
    assert 1.0 - rejected.high == pytest.approx(accepted.low)
    assert 0.7 < accepted.low < 0.025 ** (1 / 20)  # each end may fail with half of the error
    assert any("does nothing" in w for w in everything.warnings)
    assert any("keeps no response" in w for w in nothing.warnings)
    assert (nothing.groups_rejected.value, everything.groups_rejected.value) == (1.0, 0.0)
    assert nothing.mask.surrogate_gain.value == 0.0
    assert nothing.mask.surrogate_gain_per_accepted is None
    mean_reward = bounds.certify(log).estimates["reward"].value
    assert nothing.effect.lower.value == pytest.approx(-mean_reward)
    assert everything.effect.rejected_reward.high == pytest.approx(1 - least)
    nothing.to_json()
    assert "Masked surrogate: 0 over all responses (as in the paper)." in str(nothing)
    assert "per accepted token" in " ".join(str(everything).split())


def test_a_log_without_rewards():
    log = traces({k: v for k, v in row.items() if k != "reward"} for row in records([3] * 8))
    study = mask_study(log)
    assert study.effect.lower is study.gain_without_mask is study.mask.surrogate_gain is study.chosen is None
    assert study.reasons["gain_without_mask"] == "the log has no rewards"
    assert 0.0 <= study.effect.acceptance.value <= 1.0
    assert "No gain_without_mask: the log has no rewards" in str(study)
    assert json.loads(study.to_json())["mask"]["surrogate_gain"] is None


def test_equal_rewards_have_one_kind_of_acceptance_and_a_warning():
    study = mask_study(traces(records([3] * 8, reward=lambda rng: 1.0)))
    assert study.effect.acceptance_low_reward is None
    assert study.effect.acceptance_high_reward.value == study.effect.acceptance.value
    assert any("all rewards are equal" in w for w in study.warnings)


def test_equal_policies_have_no_grid():
    rows = [{**row, "train_logprobs": row["rollout_logprobs"]} for row in records([3] * 8)]
    study = mask_study(traces(rows))
    assert study.by_threshold == ()
    assert study.effect.lower is study.chosen is None  # copies show nothing
    assert "bitwise identical" in study.reasons["gain_without_mask"]


def test_overflowing_ratios_are_said_not_clamped():
    rows = list(records([3] * 8))
    rows[5] |= {"reward": 1.0, "rollout_logprobs": [-800.0], "train_logprobs": [-1.0]}
    study = mask_study(traces(rows), mask="seq_max_k2<=1e9")
    under = UnderMask(Summary.of(traces(rows), statistics=["seq_max_k2"]), 0.95)
    assert under.gain_without_mask().value == math.inf
    assert math.isfinite(under.effect(Mask.parse("seq_max_k2<=1e9")).lower.value)  # 1 + log P is finite
    assert study.gain_without_mask is None  # no pair of policies explains such a ratio
    assert "not what the guarantees take it for" in study.reasons["gain_without_mask"]
    assert any("clamp it there" in w for w in study.warnings)


def test_what_is_refused():
    log = traces(records([3] * 8))
    with pytest.raises(ValueError, match="needs the exact kl column"):
        mask_study(log, mask="seq_max_kl<=0.01")
    with pytest.raises(bounds.TraceError, match="no response"):
        mask_study([])
    with pytest.raises(ValueError, match="confidence must be"):
        mask_study(log, confidence=1.0)
    with pytest.raises(ValueError, match="a response has 11 policy tokens, T=4"):
        mask_study(log, mask="ln_trm(T=4,delta=1)<=0.1")


def test_exact_kl_is_used_where_logged():
    rows = [row | {"kl": np.full(len(row["rollout_logprobs"]), 1 + k)} for k, row in enumerate(records([2] * 8))]
    study = mask_study(traces(rows), mask="seq_max_kl<=6")
    assert study.effect.acceptance.value == pytest.approx(6 / 16)
    assert study.length_bias[0].violation.value > 0.5


def test_frame_and_html():
    study = bounds.mask_study(bounds.example_traces(), mask="seq_max_k2<=0.05")
    frame = study.to_frame()
    assert frame["mask"][0] == "seq_max_k2<=0.05"
    assert frame["acceptance_low"][0] < frame["acceptance"][0] < frame["acceptance_high"][0]
    assert "<table>" in study._repr_html_()
    assert "keeps 96.9%" in repr(study)


# --- the file and the command ------------------------------------------------------------------------------------


def test_masks_on_disk(tmp_path):
    log, mask = traces(records([3] * 9)), Mask.parse("seq_max_k2<=0.05,seq_product_ratio<=1.2,token_k3<=0.01")
    write_masks(log, mask, tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.column_names == [
        "row", "place", "prompt_id", "keep", "seq_max_k2", "log_seq_product_ratio", "token_k3>0.01",
    ]  # fmt: skip
    assert table["keep"].to_pylist() == mask.keep(log.log_ratio, log.starts).tolist()
    assert table["place"].to_pylist() == list(log.where)
    assert table["prompt_id"].to_pylist() == [f"p{k // 3}" for k in range(27)]
    assert table["row"].to_pylist() == list(range(27))
    assert table["log_seq_product_ratio"].to_numpy() == pytest.approx(np.add.reduceat(log.log_ratio, log.starts[:-1]))
    assert table.schema.metadata[b"trm_bounds.mask"].decode() == str(mask)
    parts = [TraceSet.from_records(list(records([3] * 9))[a:b], horizon=16) for a, b in ((0, 10), (10, 27))]
    write_masks(parts, mask, tmp_path / "parts.parquet")
    again = pq.read_table(tmp_path / "parts.parquet").drop_columns("place")
    assert again.equals(table.drop_columns("place"))


def test_no_file_is_overwritten_or_left_half(tmp_path):
    log, mask, path = traces(records([3] * 4)), Mask.parse("seq_max_k2<=0.05"), tmp_path / "m.parquet"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="exists; another name"):
        write_masks(log, mask, path)
    with pytest.raises(ValueError, match="needs the exact kl column"):
        write_masks(log, Mask.parse("seq_max_kl<=0.05"), path, force=True)

    def broken():
        yield log
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_masks(broken(), mask, path, force=True)
    assert path.read_bytes() == b"mine"
    assert [p.name for p in tmp_path.iterdir()] == ["m.parquet"]
    write_masks(log, mask, path, force=True)
    assert pq.read_table(path).num_rows == 12
    with pytest.raises(NotADirectoryError, match="no such folder"):
        write_masks(log, mask, tmp_path / "no" / "m.parquet")
    with pytest.raises(FileExistsError):
        write_masks(log, mask, tmp_path, force=True)


def test_the_command(capsys, tmp_path):
    out = tmp_path / "m.parquet"
    command = ["masks", "--mask", "verl:rollout_rs=seq_max_k2,rollout_rs_threshold=0.01"]
    assert main([*command, "--json", "--write", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == KEYS
    assert found["effect"]["mask"] == "seq_max_k2<=0.01"
    keep = pq.read_table(out)["keep"].to_numpy(zero_copy_only=False)
    assert keep.mean() == pytest.approx(found["effect"]["acceptance"]["value"])
    assert main([*command, "--write", str(out)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "--force" in captured.err
    assert main([*command, "--write", str(out), "--force"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("KEEPS 56.2%  of the responses (37.9% to 74.3%, guaranteed), by seq_max_k2<=0.01\n")
    assert "96 responses to 24 prompts" in text
    assert "the paper's TRM-Max" in text
    assert "seq_max_k2<=0.00" not in text  # thresholds are shown with everything else
    assert main([*command, "--full"]) == 0
    text += (full := capsys.readouterr().out)
    assert "seq_max_k2<=0.00" in full
    assert max(map(len, text.splitlines())) <= 118
    assert main(["masks", "--mask", "seq_max_k2<=1e9"]) == 0
    captured = capsys.readouterr()
    assert "Warning: the mask seq_max_k2<=1e+09 keeps every response" in captured.out
    assert captured.err == "no PATH: this is the embedded log example.parquet\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mask", "seq_mean_k3<=1.001"], "looks like a bound on a ratio"),
        (["--mask", "trl:mode=x"], "unknown option of trl 'mode'"),
        (["--write", "nowhere/m.parquet"], "nowhere: no such folder"),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--mask", "ln_trm(T=64,delta=1)<=1"], "policy tokens, T=64"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert main(["masks", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
