"""What a log guarantees of J(theta) - J(roll): held against enumerated problems."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

import bounds
from bounds._text import shown
from bounds.certificate.estimates import estimate
from bounds.certificate.guarantees import HYPOTHESES, Gain, guarantees, masked, of_steps
from bounds.certificate.kept import acceptance, kept, scaled
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.intervals import betting, prompt_means
from bounds.intervals.planning import prompts_needed
from bounds.results import Standing
from tests.coverage_certificates import MASK, WORLDS, covered, too_few, world


def log(rows, base=-6.0, **options):
    """Rows of (prompt, reward, log-ratios)."""
    records = [
        {"prompt_id": p, "reward": r, "rollout_logprobs": [base] * len(d), "train_logprobs": [base + x for x in d]}
        for p, r, d in rows
    ]
    return bounds.TraceSet.from_records(records, horizon=8, train_policy="before-update", **options)


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("prompts", "group"), [(20, 1), (30, 4), (100, 2)])
def test_coverage_of_the_improvement(kind, prompts, group):
    """In 100 logs or 50 each; `make coverage` draws more of each kind, and more prompts."""
    logs = 50 if prompts == 100 else 100
    hits = covered(kind, prompts, group, logs, seed=prompts)
    for name in ("new prompts", "these prompts"):
        assert not too_few(hits[name], logs), (name, hits)


def test_the_coverage_test_can_fail():
    assert too_few(70, 100)
    assert not too_few(90, 100)


def test_theta_fitted_on_its_own_batch_breaks_it_and_fresh_prompts_do_not():
    """Responses of reward 1 made likelier, of 0 less likely, as an update does; the rewards mean nothing."""
    rng = np.random.default_rng(1)
    prompts, outcomes = 40, 2000
    roll = np.full(outcomes, 1.0 / outcomes)
    broken = {"own": 0, "fresh": 0}
    for _ in range(30):
        reward = (rng.random(outcomes) < 0.5).astype(float)
        own, fresh = rng.integers(outcomes, size=(2, prompts))
        theta = roll.copy()
        theta[own] *= np.exp(np.where(reward[own] == 1.0, 1.5, -1.5))
        theta /= theta.sum()
        truth = float(((theta - roll) * reward).sum())
        for name, batch in (("own", own), ("fresh", fresh)):
            rows = [(f"p{i}", reward[k], [math.log(theta[k] / roll[k])]) for i, k in enumerate(batch)]
            interval = guarantees(Summary.of(log(rows)), 0.9).intervals["improvement"]
            broken[name] += not interval.low <= truth <= interval.high
    assert broken["own"] == 30
    assert stats.binomtest(broken["fresh"], 30, 0.1, "greater").pvalue > 1e-4


@pytest.mark.parametrize("kind", WORLDS)
def test_both_sides_of_the_masked_guarantee_by_enumeration(kind):
    for seed in range(20):
        w = world(kind, seed)
        rng = np.random.default_rng(seed)
        below, above = [], []
        for tree, reward, logs in zip(w.problem.trees, w.rewards, w._logs, strict=True):
            mass = tree.roll_mass[-1]
            mask = rng.random(mass.size) < rng.random()
            with np.errstate(invalid="ignore"):
                log_p = np.where(mass > 0.0, (logs[1] - logs[0]).sum(axis=1), 0.0)
                low = np.where(mask, np.where(reward == 0.0, 0.0, reward * log_p), -reward)
                high = np.where(mask, np.where(reward == 1.0, 0.0, -(1.0 - reward) * log_p), 1.0 - reward)
            below.append(float(np.where(mass > 0.0, mass * np.where(mass > 0.0, low, 0.0), 0.0).sum()))
            above.append(float(np.where(mass > 0.0, mass * np.where(mass > 0.0, high, 0.0), 0.0).sum()))
        assert np.mean(below) <= w.truth + 1e-12
        assert w.truth <= np.mean(above) + 1e-12


def test_the_intervals_by_hand():
    rows = [("a", 1.0, [0.2, 0.1]), ("a", 0.0, [-0.1]), ("b", 1.0, [-0.3]), ("b", 0.0, [0.05])]
    keep = np.array([True, True, False, True])
    found = guarantees(Summary.of(log(rows)), 0.9, keep).intervals
    gain = [(math.expm1(0.3) + 0.0) / 2, (math.expm1(-0.3) + 0.0) / 2]
    loss = [(0.0 - math.expm1(-0.1)) / 2, (0.0 - math.expm1(0.05)) / 2]
    assert found["improvement"].value == pytest.approx((np.mean(gain) + np.mean(loss)) / 2)
    assert found["improvement_by_log_surrogate"].value == pytest.approx(np.mean([0.3 / 2, -0.3 / 2]))
    below = [(0.3 + 0.0) / 2, (-1.0 + 0.0) / 2]
    above = [(0.0 + 0.1) / 2, (0.0 - 0.05) / 2]
    assert found["improvement_under_mask"].value == pytest.approx((np.mean(below) + np.mean(above)) / 2)
    assert found["improvement_under_mask"].standing is Standing.ESTIMATED
    assert found["improvement"].standing is found["improvement_these_prompts"].standing is Standing.MEASURED


def test_they_are_in_units_of_the_reward():
    rng = np.random.default_rng(0)
    rows = [(f"p{i // 4}", float(rng.random() < 0.5), rng.normal(0.0, 0.1, 3)) for i in range(80)]
    one = bounds.certify(log(rows))
    ten = bounds.certify(log([(p, 10.0 * r - 5.0, d) for p, r, d in rows], reward_range=(-5.0, 5.0)))
    for name in ("improvement", "improvement_these_prompts"):
        assert getattr(ten, name).low == pytest.approx(10.0 * getattr(one, name).low)
        assert getattr(ten, name).high == pytest.approx(10.0 * getattr(one, name).high)


@pytest.mark.parametrize("assumed", [{}, {"log_ratio_max": 1.0}])
def test_a_side_that_was_declared_has_the_whole_error(assumed):
    """Its end is that of both sides at twice the error; the other end is that of the range."""
    summary = Summary.of(bounds.example_traces(), statistics=MASK.statistics)
    keep = kept(summary, MASK)

    def found(confidence, side):
        of_log = estimate(summary, confidence, assumed, side=side).intervals
        cap = assumed.get("log_ratio_max")
        of_gain = guarantees(summary, confidence, keep, cap=cap, side=side).intervals
        return {**of_log, **of_gain, "acceptance": acceptance(summary, MASK, keep, confidence, side=side)}

    both, lower, upper = found(0.9, "both"), found(0.95, "lower"), found(0.95, "upper")
    one_end = {"worst_case_error_measured", "max_k2"}
    for name in both.keys() - one_end:
        assert lower[name].low == pytest.approx(both[name].low, rel=1e-9), name
        assert upper[name].high == pytest.approx(both[name].high, rel=1e-9), name
        assert lower[name].high >= both[name].high, name
        assert upper[name].low <= both[name].low, name
    ranges = lower["improvement"].high, upper["improvement"].low, lower["acceptance"].high, lower["kl_seq_k1"].high
    assert ranges == (1.0, -1.0, 1.0, math.inf)
    assert upper["improvement_by_log_surrogate"].low == -math.inf


def _near(rng, prompts=128, group=8):
    """Log-normal P of KL .01, over eight unequal tokens, and a reward that does not look at it: the change is 0."""
    kl = 0.01
    reward, log_ratio = rng.random((prompts, group)) < 0.4, rng.normal(-kl, math.sqrt(2.0 * kl), (prompts, group))
    apart = np.array([0.02, -0.02, 0.012, -0.012, 0.006, -0.006, 0.003, -0.003])
    each = ((i, k) for i in range(prompts) for k in range(group))
    return [(f"p{i}", float(reward[i, k]), log_ratio[i, k] / 8.0 + apart) for i, k in each]


def test_a_declared_cap_on_whole_responses_halves_the_floor():
    traces = log(_near(np.random.default_rng(11)))
    plain, capped = (bounds.certify(traces, assume=a).improvement for a in ({}, {"response_ratio_max": 2.0}))
    assert (plain.standing, capped.standing) == (Standing.MEASURED, Standing.ASSUMED)
    assert capped.value == pytest.approx(plain.value)
    assert max(capped.value - capped.low, capped.high - capped.value) < 0.020
    assert capped.value - capped.low < 0.6 * (plain.value - plain.low)
    by_token = bounds.certify(traces, assume={"log_ratio_max": math.log(2.0) / 8.0 * 0.999})
    assert by_token.improvement.low == pytest.approx(capped.low, rel=0.01)
    refuted = bounds.certify(traces, assume={"response_ratio_max": 1.2})
    assert refuted.improvement is None or refuted.improvement.low == plain.low
    assert any("refutes response_ratio_max=1.2: one response has 1." in f.text for f in refuted.findings)
    with pytest.raises(ValueError, match="response_ratio_max must be a number in"):
        bounds.certify(traces, assume={"response_ratio_max": 0.5})


def test_coverage_under_a_declared_cap():
    """P is 2 or 2/3 with mean 1, and the reward goes with it or against it: both ends, by an exact binomial test."""
    rng, missed = np.random.default_rng(12), np.zeros(2)
    for sign in (0, 1):
        true = (0.25 * 2.0 - 0.25) * (1.0 if sign else -1.0)
        for _ in range(60):
            up = rng.random((20, 2)) < 0.25
            rows = [
                (f"p{i}", float(up[i, k] == bool(sign)), [math.log(2.0 if up[i, k] else 2.0 / 3.0)])
                for i in range(20)
                for k in range(2)
            ]
            found = guarantees(Summary.of(log(rows)), 0.8, ratio_max=2.0).intervals
            missed += [not (i := found[n]).low <= true <= i.high for n in ("improvement", "improvement_these_prompts")]
    assert all(stats.binomtest(int(m), 120, 0.2, "greater").pvalue > 1e-4 for m in missed)


@pytest.mark.parametrize("kind", ["largest ratios logged", "largest ratios and a gap"])
def test_the_stopped_ratio_has_mean_one_by_enumeration(kind):
    stops = 0
    for seed in range(8):
        w = world(kind, seed)
        for k, tree in enumerate(w.problem.trees):
            mass = tree.roll_mass[-1]
            tokens = [rows[mass > 0.0].ravel() for rows in (*w._logs[k], w._largest[k])]
            n = tokens[0].size // 3
            traces = bounds.TraceSet(
                tokens[0], tokens[1], np.arange(0, 3 * n + 1, 3), np.zeros(n, dtype=np.int64), ("x",), 3,
                exact={"max_log_ratio": tokens[2]}, where=("row",) * n,
            )  # fmt: skip
            stopped = np.exp(Summary.of(traces)["stopped_sum"])
            assert stopped.max() <= 2.0
            assert mass[mass > 0.0] @ stopped == pytest.approx(1.0, abs=1e-9)
            stops += np.count_nonzero(stopped != np.exp((tokens[1] - tokens[0]).reshape(n, 3).sum(axis=1)))
    assert stops > 100


def test_logged_largest_ratios_narrow_these_prompts_only():
    rng = np.random.default_rng(4)
    log_ratio = np.log(1.0 + 0.05 * rng.choice([-1.0, 1.0], (512, 64)))
    reward, names = (rng.random(512) < 0.8) * 1.0, [f"p{i // 8}" for i in range(512)]
    given = (np.full(log_ratio.shape, -5.0), log_ratio - 5.0)

    def found(column, **options):
        traces = bounds.TraceSet.from_arrays(
            *given, rewards=reward, prompt_ids=names, max_log_ratio=column, train_policy="held-out"
        )
        return guarantees(Summary.of(traces), 0.95, **options).intervals

    without, column = found(None), np.full(log_ratio.shape, math.log(1.06))
    ours = found(column)
    assert ours["improvement"] == without["improvement"]
    widths = [i["improvement_these_prompts"].high - i["improvement_these_prompts"].low for i in (ours, without)]
    assert widths[0] < 0.85 * widths[1]
    # neither where roll lacks tokens, nor where a sampled token is above the column
    name = "improvement_these_prompts"
    assert found(column, support_gap=True)[name] == without[name]
    assert found(0.1 * column)[name] == without[name]


def _steps(steps, prompts):
    """Reward and log P [steps, prompts, 8]: each step's theta gains about .005 at a KL of .01."""
    z = np.random.default_rng(14).normal(size=(steps, prompts, 8))
    reward = np.random.default_rng(15).random(z.shape) < 0.4 + 0.0353 * z
    return reward * 1.0, math.sqrt(0.02) * z - 0.01


def _run(steps, versions=None, policy="held-out"):
    reward, log_ratio = _steps(steps, 8)
    records = [
        {
            "prompt_id": f"{step}-{i}",
            "step": step,
            "reward": reward[step, i, k],
            "rollout_logprobs": [-5.0 - reward[step, i].mean() - 0.01 * k],
            "train_logprobs": [-5.0 - reward[step, i].mean() - 0.01 * k + log_ratio[step, i, k]],
        }
        | ({} if versions is None else {"weight_version": versions(step)})
        for step, i, k in np.ndindex(reward.shape)
    ]
    return Summary.of(bounds.TraceSet.from_records(records, horizon=1)).of_policy(policy)


def test_a_run_of_a_hundred_steps_is_certified_to_improve():
    """100 steps of 128 x 8 with chained weight versions, true total gain .5; the first step alone shows nothing."""
    reward, log_ratio = (values.ravel() for values in _steps(100, 128))
    step = tuple(str(i // 1024) for i in range(reward.size))
    traces = bounds.TraceSet(
        np.full(reward.size, -5.0), log_ratio - 5.0, np.arange(reward.size + 1), np.arange(reward.size) // 8,
        tuple(map(str, range(reward.size // 8))), 1,
        reward=reward, labels={"step": step, "weight_version": step}, where=step,
    )  # fmt: skip
    run = Summary.of(traces).of_policy("held-out")
    total = of_steps(run, Gain(run, 0.95))
    assert 0.3 < total.low < 0.5 < total.high
    assert (total.standing, "the run's gain" in total.of) == (Standing.MEASURED, True)
    assert Gain(run, 0.95, run["step"] == 0).new_prompts().low < 0.0


def test_a_sum_over_steps_that_ask_the_same_prompts_is_of_these_prompts():
    """Half of the prompts gain what the others lose: as new prompts at each of 20 steps, they would be missed often."""
    luck = np.random.default_rng(2).random(40) < 0.3
    records = [
        {
            "prompt_id": f"{i}", "step": step, "reward": 1.0, "rollout_logprobs": [-2.0],
            "train_logprobs": [-2.0 + (-0.05 if luck[i] else 0.05)],
        }
        for step, i in np.ndindex(20, 40)
    ]  # fmt: skip
    run = Summary.of(bounds.TraceSet.from_records(records, horizon=1)).of_policy("held-out")
    found = guarantees(run, 0.95).intervals
    as_new = Gain(run, 0.95).summed(run["step"].astype(np.int64), these=False)
    assert as_new.low > 0.0 > found["improvement"].low
    assert "these prompts" in found["improvement_of_steps"].method


def test_a_sum_over_steps_is_the_runs_gain_only_by_versions():
    run = _run(3, lambda k: 7 + k)
    total = guarantees(run, 0.95).intervals["improvement_of_steps"]
    parts = [Gain(run, 0.95, run["step"] == k) for k in range(3)]
    assert total.value == pytest.approx(sum(part.new_prompts().value for part in parts))
    assert -3.0 < total.low < total.value < total.high < 3.0
    assert (total.standing, "the run's gain" in total.of) == (Standing.MEASURED, True)
    assert bounds.over_time(run).improvement_of_steps == total
    for versions, policy in ((None, "held-out"), (lambda k: 2 * k, "held-out"), (lambda k: k, "before-update")):
        found = guarantees(_run(3, versions, policy), 0.95).intervals["improvement_of_steps"]
        assert found.of == "sum over steps, each of its own two policies"
    assert "improvement_of_steps" not in guarantees(_run(1), 0.95).intervals


def test_a_choice_among_candidates_spends_its_part_of_the_error(capsys):
    chosen = bounds.certify(bounds.example_traces(), confidence=0.9, candidates=4)
    alone = bounds.certify(bounds.example_traces(), confidence=0.975).improvement
    assert (chosen.improvement.low, chosen.improvement.high) == pytest.approx((alone.low, alone.high), rel=1e-6)
    assert chosen.improvement.confidence == pytest.approx(0.975)
    assert ("candidates", 4) in [(a.what, a.value) for a in chosen.assumptions]
    assert main(["certify", "--candidates", "4", "--confidence", ".9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["improvement"]["low"] == chosen.improvement.low
    with pytest.raises(ValueError, match="candidates must be a whole number"):
        bounds.certify(bounds.example_traces(), candidates=0)


def test_the_order_of_rows_matters_to_no_digit():
    rng = np.random.default_rng(3)
    rows = [
        {"prompt_id": f"p{i}", "reward": rng.random(), "rollout_logprobs": [-6.0] * 5, "train_logprobs": train.tolist()}
        for i in range(60)
        for train in rng.normal(-6.0, 0.1, (1 + i % 3, 5))
    ]
    both = (rows, [rows[k] for k in rng.permutation(len(rows))])
    one, two = (guarantees(Summary.of(bounds.TraceSet.from_records(r, horizon=5)), 0.95).intervals for r in both)
    for name in ("improvement", "improvement_these_prompts", "improvement_hoeffding"):
        assert (one[name].value, one[name].low, one[name].high) == (two[name].value, two[name].low, two[name].high)


def test_one_response_that_stands_alone_changes_little():
    """127 groups of eight and a prompt with one: it was as wide as with one response to each."""
    rng = np.random.default_rng(8)
    rows = [(f"p{i}", float(rng.random() < 0.4), rng.normal(-0.01, 0.14, 1)) for i in range(128) for _ in range(8)]
    whole, alone = (guarantees(Summary.of(log(some)), 0.95, side="lower").intervals for some in (rows, rows[:-7]))
    width, wider = (i["improvement_these_prompts"].value - i["improvement_these_prompts"].low for i in (whole, alone))
    assert width < wider < 0.014


def test_prompts_needed_is_where_the_lower_limit_turns_positive():
    rng = np.random.default_rng(2)
    gains = rng.normal(0.05, 0.3, 40).clip(-1.0)
    needed = prompts_needed(gains, 0.975, power=0.5)
    assert needed is not None
    for copies, positive in ((math.ceil(needed / 40) + 1, True), (needed // 40 - 1, False)):
        low = bounds.intervals.betting(np.tile(gains, copies), 0.975, low=-1.0, side="lower").low
        assert (low > 0.0) is positive
    assert prompts_needed(-np.abs(gains), 0.975) is None


def test_a_guaranteed_improvement_and_a_guaranteed_loss_are_said():
    rng = np.random.default_rng(4)
    wins = [(f"p{i}", float(r := i % 2), [0.4 if r else -0.7]) for i in range(400)]
    better = bounds.certify(log(wins))
    assert better.improvement.low > 0.0
    assert "an improvement is guaranteed" in better.sentence()
    worse = bounds.certify(log([(p, 1.0 - r, d) for p, r, d in wins]))
    assert worse.improvement.high < 0.0
    assert "a loss is guaranteed" in worse.sentence()
    even = bounds.certify(log([(f"p{i}", float(i % 2), [rng.normal(0.0, 0.1)]) for i in range(40)]))
    assert "no improvement is guaranteed yet" in even.sentence()


def test_the_sentence_says_what_would_do():
    c = bounds.certify(bounds.example_traces())
    assert "prompts (if all are like these 24)" in c.sentence()
    assert f"a KL per response below L' = {c.estimates['surrogate_gain'].value:.3g}" in c.sentence()
    for text in HYPOTHESES:
        assert text in " ".join(str(c).split())


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1.0, [0.1])],
        [("a", 1.0, [0.1]), ("a", 1.0, [0.2])],
        [("a", 1.0, [0.1]), ("b", 1.0, [0.2])],
        [("a", 0.0, [-0.1]), ("b", 0.0, [0.1])],
        [("a", 1.0, [390.0, 390.0]), ("b", 0.0, [-390.0, -390.0]), ("c", 0.0, [0.1])],
        [("a", 0.0, [390.0, 390.0]), ("b", 1.0, [390.0, 390.0]), ("c", 1.0, [-0.1])],
    ],
)
@pytest.mark.parametrize("mask", [None, "seq_max_k2<=1e-9", "seq_max_k2<=1e9"])
def test_edges_are_honest_and_never_an_exception(rows, mask):
    c = bounds.certify(log(rows, base=-400.0), mask=mask, assume={"absolutely_continuous": True})
    json.loads(c.to_json())
    assert c.sentence()
    assert str(c)
    i = c.improvement
    if max(map(max, (d for _, _, d in rows))) > 100.0:  # no two policies give such a log but by a miracle
        assert i is None or i.high - i.low > 1.0
    else:
        assert -1.0 <= i.low <= i.value <= i.high <= 1.0
        assert i.high - i.low > 0.5


def test_a_mean_ratio_of_responses_above_one_is_doubted():
    rows = [(f"p{i}", float(i % 2), [0.3, -0.1]) for i in range(90)]
    c = bounds.certify(log(rows), assume={"absolutely_continuous": True})
    assert any("above 1, which no pair of policies explains (a bet" in w for w in c.warnings)


def test_filtered_groups_are_doubted():
    rng = np.random.default_rng(0)
    kept = [(f"p{i}", float(k % 2), [rng.normal(0.0, 0.01)]) for i in range(100) for k in range(4)]
    doubt = "groups were filtered"
    assert any(f"the 100 {doubt}: 0 have equal rewards" in w for w in bounds.certify(log(kept)).warnings)
    honest = [(f"p{i}", float(rng.random() < 0.5), [rng.normal(0.0, 0.01)]) for i in range(100) for k in range(4)]
    assert not any(doubt in w for w in bounds.certify(log(honest)).warnings)


def test_advantages_are_no_rewards():
    rows = [(f"p{i}", r, [0.01 * r]) for i in range(30) for r in (-1.0, 1.0)]
    c = bounds.certify(log(rows, reward_range=(-1.0, 1.0)))
    assert any("these are advantages" in w for w in c.warnings)


def test_an_empty_interval_is_a_contradiction_not_a_result():
    """Rewards of 1 with a ratio above 1 throughout, which no two policies give: E P would be above 1."""
    rows = [(f"p{i}", float(i % 2), [0.9 if i % 2 else 0.7]) for i in range(600)]
    c = bounds.certify(log(rows), assume={"absolutely_continuous": True})
    assert c.improvement is None
    assert "not what the guarantees take it for" in c.reasons["improvement"]
    assert c.to_dict()["improvement"] is None


def test_ends_that_cross_refute_the_log_where_nothing_else_does():
    rows = [(f"p{i}", float(i % 2), [0.1 + 1e-4 * i]) for i in range(40)]
    c = bounds.certify(log(rows), confidence=0.5, assume={"absolutely_continuous": True})
    (found,) = [f for f in c.findings if f.kind.refutes]
    assert found.text.startswith("the lower limit 0.01")
    assert found.text in c.reasons["improvement"]
    assert not c.guarantees.intervals
    honest = [(f"p{i}", float(i % 2), [0.1 - 0.2 * (i % 4 // 2)]) for i in range(40)]
    assert bounds.certify(log(honest), confidence=0.5).improvement is not None


def test_a_mean_beyond_what_can_be_is_cut_and_said():
    """One response of ratio e^3 takes the mean gain of ten above the upper end; of ratio e it does not."""
    for d, cut in ((3.0, True), (1.0, False)):
        found = guarantees(Summary.of(log([(f"p{i}", 1.0, [d * (i == 0)]) for i in range(10)])), 0.9).intervals
        improvement = found["improvement"]
        assert ("lies beyond and is cut" in improvement.method) == cut
        mean = math.expm1(d) / 20.0  # of (R - 1/2)(P - 1)
        assert improvement.value == pytest.approx(improvement.high if cut else mean)
        assert improvement.low <= improvement.value <= improvement.high


def test_the_ends_under_a_mask_and_a_cap_by_hand():
    """Each is a bet at half of the error on R (M (1 + log P) - 1), or its mirror, in a range that the cap gives."""
    rng = np.random.default_rng(0)
    rows = [(f"p{i // 2}", float(rng.random() < 0.5), rng.normal(0.0, 0.1, 3)) for i in range(400)]
    summary = Summary.of(log(rows, reward_range=(0.0, 2.0)))
    keep, cap = np.arange(400) % 5 > 0, 0.05
    found = masked(summary, keep, 0.9, cap)
    reward = summary["reward"] / 2.0
    kept_mass = np.where(keep, 1.0 + summary["log_ratio_sum"], 0.0) - 1.0
    reach = 1.0 + 8 * cap * (1.0 + 2e-6)  # the horizon is 8
    means = [prompt_means(v * kept_mass, summary.prompt) for v in (reward, reward - 1.0)]
    low = betting(means[0], 0.95, low=-reach, high=reach, side="lower").low
    high = betting(means[1], 0.95, low=-reach, high=reach, side="upper").high
    assert (found.low, found.high) == pytest.approx((2.0 * low, 2.0 * high), rel=1e-9)
    assert -2.0 < found.low < found.value < found.high < 2.0
    assert found.value == pytest.approx(means[0].mean() + means[1].mean())


def test_the_papers_statement_is_shown_with_what_it_assumes():
    c = bounds.certify(bounds.example_traces())
    claim = c.guarantees.claim
    assert claim.optimistic
    assert not claim.holds
    assert (claim.rule, claim.b_star) == (c.best_published.name, c.best_published.value)
    assumed = bounds.certify(bounds.example_traces(), assume={"delta": 0.5}).guarantees.claim
    assert not assumed.optimistic
    assert "under the assumed suprema" in str(assumed)
    assert "promises an improvement" in str(replace(claim, surrogate_gain=100.0))


def test_requirements_see_the_far_end_of_the_improvement():
    c = bounds.certify(bounds.example_traces())
    assert c.quantity("improvement", upper=False) == c.improvement.low
    assert c.quantity("improvement", upper=True) == c.improvement.high
    assert c.quantity("improvement_these_prompts", upper=False) == c.improvement_these_prompts.low
    no_rewards = replace(bounds.example_traces(), reward=None)
    assert bounds.certify(no_rewards).quantity("improvement", upper=False) is None


# --- what a referee found --------------------------------------------------------------------------------------


def test_what_was_left_out_or_not_said_is_assumed_not_measured():
    rows = [("a", 1.0, [0.1]), ("b", 0.0, [-0.1]), ("c", 1.0, [0.05])]
    assert bounds.certify(log(rows)).improvement.standing is Standing.MEASURED
    unnamed = bounds.TraceSet.from_records(
        [{"reward": r, "rollout_logprobs": [-3.0], "train_logprobs": [-3.0 + d[0]]} for _, r, d in rows],
        horizon=4,
        train_policy="held-out",
    )
    c = bounds.certify(unnamed)
    assert c.improvement.standing is c.estimates["reward"].standing is Standing.ASSUMED
    assert ("ungrouped", 3) in [(a.what, a.value) for a in c.assumptions]
    records = [
        {"prompt_id": p, "reward": r, "rollout_logprobs": [-3.0], "train_logprobs": [-3.0 + d[0]], "mask": [r]}
        for p, r, d in rows
    ]
    c = bounds.certify(bounds.TraceSet.from_records(records, horizon=4), train_policy="held-out")
    assert c.improvement.standing is Standing.ASSUMED
    assert ("left_out", 1) in [(a.what, a.value) for a in c.assumptions]


def test_an_empty_prompt_id_is_none():
    rows = [{"prompt_id": "", "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for _ in range(5)]
    assert len(bounds.TraceSet.from_records(rows, horizon=4).prompt_ids) == 5


def test_a_mask_for_comparison_voids_nothing():
    rows = [(f"p{i}", 1.0, [math.log(1.1)]) for i in range(3)]
    plain = bounds.certify(log(rows), assume={"absolutely_continuous": True})
    masked = bounds.certify(log(rows), assume={"absolutely_continuous": True}, mask="seq_product_ratio>=0.001")
    assert masked.improvement == plain.improvement is not None


def test_the_kl_that_would_do_is_in_units_of_the_reward():
    rng = np.random.default_rng(0)
    rows = [(f"p{i}", 0.1 * float(rng.random() < 0.5), rng.normal(0.0, 0.2, 2)) for i in range(60)]
    c = bounds.certify(log(rows, reward_range=(0.0, 0.1)))
    gain, kl = c.estimates["surrogate_gain"].value, c.estimates["kl_seq"].value
    assert ("a KL per response below" in c.sentence()) is (0.0 < gain < 0.1 * kl)


def test_the_declared_range_is_printed():
    c = bounds.certify(log([("a", 1.0, [0.1]), ("b", -3.0, [0.0])], reward_range=(-5.0, 5.0)))
    assert "rewards are declared to lie in [-5, 5]" in " ".join(str(c).split())


def test_unequal_groups_are_doubted():
    rows = [("a", 1.0, [0.1]), ("b", 0.0, [0.1]), ("b", 1.0, [-0.1])]
    assert any("prompts have 1 to 2 responses and count alike" in w for w in bounds.certify(log(rows)).warnings)


RETURNING = [(f"p{j}", i) for i in range(3) for j in range(5 - i) for _ in range(4)]  # four draws at each of its steps
SPREAD = [(f"p{j}", k % 3) for j in range(5) for k in range(4)]  # four draws, whatever the step


@pytest.mark.parametrize("drawn", [RETURNING, SPREAD], ids=["prompts return", "groups are spread"])
def test_groups_over_several_steps_are_not_unequal(drawn):
    x = {"rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
    rows = [{"prompt_id": p, "step": step, "reward": i % 2, **x} for i, (p, step) in enumerate(drawn)]
    for some, doubted in ((rows, False), (rows[1:], True)):
        said = bounds.certify(bounds.TraceSet.from_records(some, horizon=4)).warnings
        assert any("count alike" in text for text in said) == doubted


def test_a_range_too_wide_for_float64_is_refused():
    with pytest.raises(ValueError, match="reward_range must be of a finite width"):
        log([("a", 1.0, [0.1])], reward_range=(-1.7e308, 1.7e308))


def test_groups_of_failures_are_no_advantages():
    rows = [("a", 0.0, [0.1]), ("a", 0.0, [0.1]), ("b", 1.0, [0.1]), ("c", 0.0, [0.1]), ("c", 0.0, [0.1])]
    c = bounds.certify(log(rows), assume={"absolutely_continuous": True})
    assert not any("advantages" in w for w in c.warnings)


def test_confidence_beyond_float64_is_vacuous_not_wrong():
    i = bounds.certify(log([("a", 1.0, [0.1]), ("b", 0.0, [-0.1])]), confidence=1.0 - 2.0**-53).improvement
    assert (i.low, i.high) == (-1.0, 1.0)


def test_these_prompts_weigh_prompts_alike():
    rows = [("a", 1.0, [0.5])] * 9 + [("b", 1.0, [-0.2])]
    found = guarantees(Summary.of(log(rows)), 0.9).intervals
    assert found["improvement_these_prompts"].value == pytest.approx(found["improvement"].value)


def test_printed_ends_are_rounded_outward():
    i = bounds.Interval(0.06, 0.0431926, 0.0753153, 0.95, Standing.MEASURED, "")
    assert i.texts() == ("0.06", "0.0431", "0.0754")
    assert bounds.Interval(0.0, -0.12345, -0.01234, 0.9, Standing.MEASURED, "").texts()[1:] == ("-0.124", "-0.0123")


def test_certain_tokens_refute_no_delta():
    """log-probs of -1.2e-6 and 0.0 are both 1 in float32."""
    rows = [
        {"prompt_id": f"p{i}", "rollout_logprobs": [-1.2e-6, -1.0], "train_logprobs": [0.0, -1.001]} for i in range(4)
    ]
    assert bounds.certify(bounds.TraceSet.from_records(rows, horizon=4), assume={"delta": 1e-3}).best is not None


def test_a_cap_on_ratios_bounds_exact_columns_too():
    c = bounds.certify(bounds.example_traces(), assume={"log_ratio_max": 1.0})
    for name in ("kl_seq", "tv_sum", "kl_seq_k3"):
        assert c.estimates[name].standing is Standing.ASSUMED
    assert c.table["trajectory_kl"].standing is Standing.ASSUMED
    plain, capped = (
        bounds.certify(bounds.example_traces(), mask="seq_max_k2<=0.05", assume=a).guarantees.intervals[
            "improvement_under_mask"
        ]
        for a in ({}, {"log_ratio_max": 1.0})
    )
    assert (plain.standing, capped.standing) == (Standing.ESTIMATED, Standing.ASSUMED)
    assert capped.value == pytest.approx(plain.value)
    assert capped.low <= plain.low
    assert capped.high >= plain.high
    with_bound = bounds.certify(bounds.example_traces()).estimates["worst_case_error_measured"]
    assert with_bound.standing is Standing.MEASURED
    assert with_bound.high > with_bound.value


@pytest.mark.parametrize("seed", range(20))
def test_ends_in_units_of_the_reward_are_rounded_outward(seed):
    """To the nearest float the spread, and each end times it, would be too small half of the time."""
    rng = np.random.default_rng(seed)
    lowest, highest = (float(x) for x in np.sort(rng.normal(0.0, 3.0, 2)))
    spread = Fraction(highest) - Fraction(lowest)
    rows = [
        {
            "prompt_id": f"p{k}",
            "reward": float(rng.choice([lowest, highest])),
            "rollout_logprobs": [-1.0, -2.0],
            "train_logprobs": (np.array([-1.0, -2.0]) + rng.normal(0.0, 0.01, 2)).tolist(),
        }
        for k in range(400)
    ]
    traces = bounds.TraceSet.from_records(rows, horizon=2, reward_range=(lowest, highest))
    assert Fraction(Summary.of(traces).reward_spread) >= spread
    ends = bounds.Interval(0.0, float(-rng.random()), float(rng.random()), 0.95, Standing.MEASURED, "")
    wider = scaled(ends, 1.7)
    assert Fraction(wider.low) <= Fraction(ends.low) * Fraction(1.7)
    assert Fraction(wider.high) >= Fraction(ends.high) * Fraction(1.7)
    unit = bounds.TraceSet.from_records([{**row, "reward": 0.0} for row in rows], horizon=2)
    error, of_unit = (bounds.certify(t).estimates["worst_case_error_measured"].high for t in (traces, unit))
    assert Fraction(error) >= Fraction(of_unit) * spread * (1 - Fraction(2) ** -52)  # of_unit is rounded up
    without = bounds.Interval(math.nan, -math.inf, math.inf, 0.95, Standing.ESTIMATED, "")
    assert (scaled(without, 1.7).low, scaled(without, 1.7).high) == (-math.inf, math.inf)


def test_one_prompt_is_spoken_of_by_itself():
    rng = np.random.default_rng(0)
    c = bounds.certify(log([("a", float(rng.random() < 0.5), rng.normal(0.0, 0.05, 2)) for _ in range(64)]))
    _, low, high = c.improvement_these_prompts.texts()
    assert f"between {low} and {high} at confidence 95%, for this one prompt" in c.sentence()
    assert "prompts (if all are like these" not in c.sentence()


@pytest.mark.parametrize(("prompts", "others", "said"), [(30, 8, False), (8, 3, True)])
def test_the_mask_that_would_do_is_said(prompts, others, said):
    """Where it rejects more reward than what is kept gains, and nothing is guaranteed."""
    rows = [(f"p{i}", float(i % 2), [0.3 if i % 2 else -0.4]) for i in range(prompts)]
    rows += [(f"q{i}", 1.0, [1.5, -1.5]) for i in range(others)]
    c = bounds.certify(log(rows), mask="seq_max_k2<=0.5", assume={"absolutely_continuous": True})
    kept, rejected = prompts / 2 * 0.3 / len(rows), others / len(rows)
    assert (c.guarantees.kept_gain, c.guarantees.rejected_reward) == pytest.approx((kept, rejected))
    text = f"a mask that rejects less reward than E[M R log P] = {kept:.3g} (it rejects {rejected:.3g})"
    assert (text in c.sentence()) is (c.improvement.low <= 0.0) is said
    at_the_upper = f"; at their upper 95% limits {shown(c.best_upper.value)}; the published B* is"
    assert at_the_upper in c.sentence()


def test_a_guarantee_that_rests_on_an_assumption_says_so():
    wins = [
        {"reward": float(i % 2), "rollout_logprobs": [-6.0], "train_logprobs": [-5.6 if i % 2 else -6.7]}
        for i in range(400)
    ]
    named = bounds.TraceSet.from_records([{**r, "prompt_id": f"p{i}"} for i, r in enumerate(wins)], horizon=4)
    unnamed = bounds.TraceSet.from_records([{**r, "step": 1} for r in wins], horizon=4)
    assert "under what is assumed" not in bounds.certify(named).sentence()
    assert "under what is assumed of the log: an improvement is guaranteed" in bounds.certify(unnamed).sentence()
    step = bounds.over_time(unnamed, mask="seq_max_k2<=0.05").steps["1"]
    assert step["acceptance"].standing is step["improvement"].standing is Standing.ASSUMED
    assert "under what is assumed" in bounds.over_time(unnamed).notes()[0]


def test_every_report_on_a_log_says_that_it_has_a_gap(tmp_path, capsys):
    path = tmp_path / "gap.jsonl"
    rows = [
        {"prompt_id": f"p{i}", "reward": float(i % 2), "rollout_logprobs": [-1.0] * 30, "train_logprobs": [-1.05] * 30}
        for i in range(40)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    for command in (["masks"], ["explain"], ["metrics"], ["objectives"]):
        main([command[0], str(path), *command[1:], "--horizon", "30"])
        assert "is clearly below 1" in " ".join(capsys.readouterr().out.split()), command
    assert "but for theta's mass where roll has none" in bounds.explain(bounds.read_traces(path, horizon=30)).kl_seq.of


def test_bets_on_a_mean_over_several_steps_rest_on_an_assumption():
    """A step's policies may depend on the responses of the one before: bets on a sum allow it."""
    rng = np.random.default_rng(3)
    rows = [
        {"prompt_id": f"p{k // 4}", "step": k // 80, "reward": float(rng.random() < 0.4), "rollout_logprobs": roll,
         "train_logprobs": [x + 0.02 * rng.standard_normal() for x in roll]}
        for k, roll in enumerate((-rng.random((160, 6)) - 0.5).tolist())
    ]  # fmt: skip
    read = partial(bounds.TraceSet.from_records, horizon=6, train_policy="before-update")
    both, one = bounds.certify(read(rows)), bounds.certify(read(rows[:80]))
    for name in ("improvement", "improvement_these_prompts", "improvement_hoeffding"):
        assert both.guarantees.intervals[name].standing is Standing.ASSUMED
        assert one.guarantees.intervals[name].standing is Standing.MEASURED
    assert both.guarantees.intervals["improvement_of_steps"].standing is Standing.MEASURED
    assert "steps" in {a.what for a in both.assumptions}
    assert "steps" not in {a.what for a in one.assumptions}
    assert "under what is assumed of the log" in both.sentence()
