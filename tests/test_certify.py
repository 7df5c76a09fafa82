"""The certificate: estimates by hand, standings, what is optimistic, what is assumed, what is refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import bounds
from bounds.intervals import betting, clustered_mean, clustered_ratio
from bounds.proof.exact import random_problem
from bounds.results import Standing

ESTIMATES = {
    "kl_seq",
    "kl_seq_k1",
    "kl_seq_k3",
    "tv_seq",
    "tv_sum",
    "worst_case_error",
    "worst_case_error_with_gap",
    "surrogate_gain",
    "mean_ratio",
    "mean_kl_token",
    "max_k2",
    "acceptance",
    "mean_length",
    "reward",
}


@pytest.fixture(scope="module")
def example():
    return bounds.example_traces()


@pytest.fixture(scope="module")
def certificate(example):
    return bounds.certify(example, mask="seq_max_k2<=0.05,seq_mean_k3<=0.001")


def responses(traces):
    """Log-ratios, prompt, reward of each response: the slow way, for comparison."""
    for i in range(len(traces)):
        tokens = slice(traces.starts[i], traces.starts[i + 1])
        yield traces.log_ratio[tokens], int(traces.prompt[i]), float(traces.reward[i]), tokens


def by_prompt(traces, value):
    """Mean over prompts of the mean over a prompt's responses of value(d, reward, tokens)."""
    groups: dict[int, list[float]] = {}
    for d, prompt, reward, tokens in responses(traces):
        groups.setdefault(prompt, []).append(value(d, reward, tokens))
    return np.mean([np.mean(v) for v in groups.values()])


BY_HAND = {
    "kl_seq_k1": lambda d, r: -d.sum(),
    "kl_seq_k3": lambda d, r: (np.exp(d) - 1 - d).sum(),
    "tv_seq": lambda d, r: max(0.0, 1 - np.exp(d.sum())),
    "worst_case_error": lambda d, r: max(0.0, 1 + (np.exp(d) - 1).sum() - np.exp(d.sum())),
    "worst_case_error_with_gap": lambda d, r: 1 - min(np.exp(d.sum()), 1 + (np.exp(d) - 1).sum()),
    "error_above": lambda d, r: r * (np.exp(d.sum()) - 1 - d.sum()),
    "error_below": lambda d, r: (r - 1) * (np.exp(d.sum()) - 1 - d.sum()),
    "surrogate_gain": lambda d, r: r * (np.exp(d) - 1).sum(),
    "mean_length": lambda d, r: d.size,
    "reward": lambda d, r: r,
    "chi2_seq": lambda d, r: np.exp(2 * d.sum()) - 1,
}


@pytest.mark.parametrize("name", list(BY_HAND))
def test_estimates_by_hand(example, certificate, name):
    by_hand = by_prompt(example, lambda d, r, tokens: BY_HAND[name](d, r))
    assert certificate.estimates[name].value == pytest.approx(by_hand, rel=1e-10, abs=1e-12)


def test_the_spread_of_rewards_to_one_prompt(example, certificate):
    """Its estimate by hand; its upper limit stands in the profile; without two responses there is none."""
    found = certificate.estimates["reward_sd_within"]
    groups = [example.reward[example.prompt == k] for k in range(certificate.prompts)]
    assert found.value == pytest.approx(math.sqrt(np.mean([g.var(ddof=1) for g in groups])))
    assert certificate.table.profile["reward_sd_within"] == found.high < 0.5
    of_first_order = {i.name: i.value for i in certificate.table["first_order"].inputs}
    assert of_first_order["reward_sd"] == pytest.approx(found.high)
    assert certificate.to_dict()["reward_interval"]["low"] < certificate.estimates["reward"].low
    first = np.zeros(len(example), dtype=bool)
    first[np.unique(example.prompt, return_index=True)[1]] = True
    alone = bounds.certify(example.select(first))
    assert alone.estimates["reward_sd_within"] is None
    assert alone.reasons["reward_sd_within"] == "it needs two responses to every prompt"


def test_the_tail_of_a_one_sided_end_is_watched():
    rows = [
        {"prompt_id": f"p{i}", "reward": i % 2, "rollout_logprobs": [-3.0 - i / 40], "train_logprobs": [-3.1]}
        for i in range(40)
    ]
    quiet = bounds.TraceSet.from_records(rows, horizon=4)
    rows[1] |= {"rollout_logprobs": [-9.0], "train_logprobs": [-5.0]}
    loud = bounds.TraceSet.from_records(rows, horizon=4)
    assume = {"absolutely_continuous": True}
    quiet, loud = (bounds.certify(log, assume=assume).estimates["error_above"].of for log in (quiet, loud))
    assert quiet == "R k3(P)"
    assert re.search(r"one response is \d\d% of it, so the tail is not seen", loud)
    gap = bounds.certify(bounds.example_traces(), assume={"support_gap": 0.1})
    assert gap.reasons["error_below"] == "it needs theta << roll"


def test_one_sided_ends_are_in_units_of_the_reward():
    rows = [
        {"prompt_id": f"p{i}", "reward": i % 2, "rollout_logprobs": [-1.0 - i / 400], "train_logprobs": [-1.05]}
        for i in range(40)
    ]
    wide = [{**row, "reward": 4 * row["reward"]} for row in rows]
    logs = (bounds.TraceSet.from_records(of, horizon=4, reward_range=(0, top)) for of, top in ((rows, 1), (wide, 4)))
    assume = {"absolutely_continuous": True}
    one, four = (bounds.certify(log, assume=assume).estimates for log in logs)
    for name in ("error_above", "error_below"):
        assert four[name].value == pytest.approx(4 * one[name].value)
        assert one[name].value != 0.0


def test_total_variation_of_sampled_tokens_has_a_range_under_a_cap():
    rows = [{"prompt_id": f"p{i}", "rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.1, -1.9]} for i in range(40)]
    log = bounds.TraceSet.from_records(rows, horizon=4)
    found = bounds.certify(log, assume={"log_ratio_max": 0.2}).estimates["tv_sum"]
    assert (found.standing, found.of) == (Standing.ASSUMED, "sum (1-rho)^+, under log_ratio_max=0.2")
    top = 4 * -math.expm1(-0.2)  # each of at most four tokens
    as_said = betting(np.full(40, -math.expm1(-0.1)), 0.95, low=0.0, high=top)
    assert (found.low, found.high) == pytest.approx((as_said.low, as_said.high), rel=1e-5)


def test_exact_columns_are_used_and_said(example, certificate):
    for name, column in (("kl_seq", "kl"), ("tv_sum", "tv"), ("chi2_sum", "chi2")):
        by_hand = by_prompt(example, lambda d, r, tokens, c=column: example.exact[c][tokens].sum())
        assert certificate.estimates[name].value == pytest.approx(by_hand, rel=1e-10)
        assert "exact" in certificate.estimates[name].of


def test_without_exact_columns_sampled_tokens_are_used_and_said(example):
    records = [
        {"prompt_id": str(p), "reward": r, "rollout_logprobs": example.rollout[t], "train_logprobs": example.train[t]}
        for _, p, r, t in responses(example)
    ]
    sampled = bounds.certify(bounds.TraceSet.from_records(records, horizon=256))
    assert sampled.estimates["kl_seq"] == sampled.estimates["kl_seq_k3"]
    assert "k3 of sampled tokens" in sampled.estimates["kl_seq"].of
    by_hand = by_prompt(example, lambda d, r, tokens: np.maximum(0, 1 - np.exp(d)).sum())
    assert sampled.estimates["tv_sum"].value == pytest.approx(by_hand, rel=1e-10)
    assert "chi2_sum" not in sampled.estimates


def test_pooled_token_means(example, certificate):
    d = example.log_ratio
    assert certificate.estimates["mean_ratio"].value == pytest.approx(np.exp(d).mean(), rel=1e-12)
    assert certificate.estimates["mean_kl_token"].value == pytest.approx(example.exact["kl"].mean(), rel=1e-10)
    assert certificate.estimates["max_k2"].value == pytest.approx((d**2).max() / 2, rel=1e-12)
    assert certificate.estimates["max_k2"].high == math.inf


def test_every_estimate_is_named_labelled_and_inside_its_interval(certificate):
    assert set(certificate.estimates) >= ESTIMATES
    for name, interval in certificate.estimates.items():
        names = ("tv_seq", "mean_length", "reward", "reward_sd_within", "worst_case_error_measured")
        measured = dict.fromkeys(names, Standing.MEASURED)
        assert interval.standing is {**measured, "acceptance": Standing.MEASURED}.get(name, Standing.ESTIMATED), name
        assert interval.low <= interval.value <= interval.high, name
        assert interval.confidence == 0.95


def test_a_sharp_bound_below_one_where_the_published_one_is_above(certificate):
    assert certificate.best.name == "trajectory_kl"
    assert certificate.best.value == certificate.estimates["kl_seq"].value < 1.0
    assert certificate.best_upper.value == pytest.approx(certificate.estimates["kl_seq"].high)
    assert certificate.best_published.value > 1.0
    assert certificate.best_published.vacuous


def test_sample_maxima_are_optimistic_and_never_enter_b_star(example, certificate):
    assert certificate.best_published.optimistic
    assert {b.name for b in certificate.optimistic} == {
        r.name for r in bounds.RULES if r.family == "published" and r.name != "linear"
    }
    assert all(b.optimistic and b.standing is Standing.ESTIMATED for b in certificate.optimistic)
    assert not any(b.optimistic for b in certificate.table.bounds)
    delta, epsilon = (float(example.exact[c].max()) for c in ("kl", "tv"))
    direct = bounds.unified(
        T=256, delta=delta, epsilon=epsilon, kl_seq=certificate.estimates["kl_seq"].value,
        tv_seq=certificate.estimates["tv_seq"].value, mean_length=certificate.estimates["mean_length"].value,
    )  # fmt: skip
    for name in ("classical", "coupling", "pinsker_marginal_kl", "mixed_kl", "mixed_tv"):
        found = next(b for b in certificate.optimistic if b.name == name)
        assert found.value == direct[name].value
    assert certificate.to_dict()["b_star_published"]["optimistic"] is True


def test_optimism_without_exact_columns_takes_max_k2():
    traces = bounds.TraceSet.from_records(
        [{"prompt_id": "a", "rollout_logprobs": [-1.0, -1.0], "train_logprobs": [-1.2, -0.9]}], horizon=2
    )
    found = next(b for b in bounds.certify(traces).optimistic if b.name == "classical")
    assert {i.name: i.value for i in found.inputs}["epsilon"] == pytest.approx(0.1)  # sqrt(max k2 / 2)


def test_assumed_suprema_are_labelled(example):
    result = bounds.certify(example, assume={"delta": 0.05})
    assert result.optimistic == ()
    assert result.best_published.standing is Standing.ASSUMED
    assert result.table["trajectory_kl"].standing is Standing.ESTIMATED
    assert result.table["coupling"].standing is Standing.ASSUMED  # epsilon was filled from delta
    assert next((a.what, a.value) for a in result.assumptions) == ("delta", 0.05)
    assert result.to_dict()["b_star_published"]["optimistic"] is False


@pytest.mark.parametrize(
    ("assume", "message"),
    [
        ({"delta": 0.03}, r"the log refutes delta=0.03: .*row \d+: kl\[\d+\] is 0.0381863"),
        ({"epsilon": 0.1}, r"the log refutes epsilon=0.1: .*row \d+: tv\[\d+\] is 0.123"),
        ({"chi2_max": 0.01}, r"the log refutes chi2_max=0.01: .*row \d+: chi2\[\d+\]"),
    ],
)
def test_one_context_refutes_a_supremum(example, assume, message):
    refuted(bounds.certify(example, assume=assume), message, assume)


def refuted(c, message, assume):
    """An assumption that the log refutes is reported, takes no part in anything, and no requirement is met."""
    assert any(re.search(message, f.text) for f in c.findings if f.kind == "contradiction")
    assert c.table.profile.keys().isdisjoint(assume)
    assert {a.what for a in c.assumptions}.isdisjoint(assume)
    assert c.against("b_star").kind == "contradiction"


def noisy_log(scale, prompts=40):
    rng = np.random.default_rng(11)
    d = rng.normal(0, scale, (prompts, 4)) - scale**2 / 2
    rows = [
        {"prompt_id": str(k), "rollout_logprobs": [-1.0] * 4, "train_logprobs": (x - 1).tolist()}
        for k, x in enumerate(d)
    ]
    return bounds.TraceSet.from_records(rows, horizon=4)


def test_assumptions_that_the_sampled_tokens_refute():
    """No exact columns: the sampled token implies a least divergence, and the estimate has a lower limit."""
    traces = noisy_log(0.05)
    for assume in ({"delta": 1e-9}, {"epsilon": 1e-4}, {"log_ratio_max": 1e-3}, {"chi2_max": 1e-9}):
        name = next(iter(assume))
        refuted(bounds.certify(traces, assume=assume), f"the log refutes {name}", assume)
    assert bounds.certify(traces, assume={"delta": 0.05}).best_published.standing is Standing.ASSUMED


def test_an_assumption_below_the_lower_limit_of_the_estimate_is_refuted():
    """p = .5: the sampled token allows delta = 0.02, the estimate of D, about 4 * 0.02, does not allow 0.015."""
    rows = [
        {
            "prompt_id": str(k),
            "rollout_logprobs": [math.log(0.5)] * 4,
            "train_logprobs": [math.log(0.6), math.log(0.4)] * 2,
        }
        for k in range(30)
    ]
    traces = bounds.TraceSet.from_records(rows, horizon=4)
    assert bounds.certify(traces, assume={"delta": 0.021}).best.value <= 4 * 0.021
    c = bounds.certify(traces, assume={"delta": 0.019})
    refuted(c, "the log refutes delta=0.019", ["delta"])
    rare = [
        {
            **r,
            "rollout_logprobs": [math.log(0.01)] * 2,
            "train_logprobs": [math.log(0.01) + 0.45, math.log(0.01) - 0.45],
        }
        for r in rows
    ]
    c = bounds.certify(bounds.TraceSet.from_records(rare, horizon=4), assume={"delta": 0.01})
    refuted(c, "the log refutes delta=0.01 at confidence 0.95, by the lower limit of kl_seq", ["delta"])


def test_an_estimate_above_an_assumption_by_chance_is_left_out_with_a_warning():
    """Prompts differ so much that the lower limit stays below: not refuted, but said."""
    rows = [
        {"prompt_id": str(k), "rollout_logprobs": [math.log(0.01)] * 4, "train_logprobs": [math.log(0.01) + d] * 4}
        for k, d in enumerate([0.0, 0.0, 0.45, -0.45])
    ]
    traces = bounds.TraceSet.from_records(rows, horizon=4)
    result = bounds.certify(traces, assume={"delta": 0.04})
    assert any(
        w.startswith("kl_seq is left out of the bounds; the log contradicts an assumption") for w in result.warnings
    )
    assert result.table["trajectory_kl"].standing is Standing.ASSUMED


def test_a_signed_mean_below_zero_is_no_negative_divergence():
    """Under an assumed gap KL is taken from k1, unless it is below k3, which is then noise; limits keep their order."""
    result = bounds.certify(noisy_log(0.05), assume={"absolutely_continuous": False})
    assert result.estimates["kl_seq"].value == max(
        result.estimates["kl_seq_k1"].value, result.estimates["kl_seq_k3"].value
    )
    assert result.best_upper.value >= result.best.value > 0.0
    assert not any("contradicts" in w for w in result.warnings)


@pytest.mark.parametrize(
    ("assume", "message"),
    [
        ({"delt": 0.1}, "unknown assumption 'delt'; did you mean 'delta'"),
        ({"delta": -1.0}, "delta must be"),
        ({"kl_seq": 0.1}, "unknown assumption 'kl_seq'"),
    ],
)
def test_bad_assumptions(example, assume, message):
    with pytest.raises(ValueError, match=message):
        bounds.certify(example, assume=assume)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1, 2, math.nan, "x"])
def test_bad_confidence(example, confidence):
    with pytest.raises(ValueError, match="confidence must be"):
        bounds.certify(example, confidence=confidence)


def test_without_rewards_the_trust_region_reading_remains():
    traces = bounds.TraceSet.from_records(
        [{"prompt_id": k, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for k in "ab"], horizon=4
    )
    result = bounds.certify(traces, mask="seq_max_k2<=1")
    assert result.estimates["reward"] is None
    assert result.estimates["surrogate_gain"] is None
    assert result.improvement is None
    assert result.reasons["reward"] == result.reasons["surrogate_gain"] == "the log has no rewards"
    assert result.best.value > 0
    assert result.mask.surrogate_gain is None
    assert json.loads(result.to_json())["estimates"]["reward"] is None
    assert "No reward: the log has no rewards" in str(result)


def test_without_rewards_improvement_is_null_with_the_reason(example):
    result = bounds.certify(replace(example, reward=None))
    assert result.improvement is None
    assert result.reasons["improvement"] == "the log has no rewards"
    assert result.to_dict()["improvement"] is None


def test_mask_report(example, certificate):
    def keep(d):
        return (d**2).max() / 2 <= 0.05 and (np.exp(d) - 1 - d).mean() <= 0.001

    def gain(d, r):
        return r * (np.exp(d) - 1).sum()

    report = certificate.mask
    kept = [keep(d) for d, _, _, _ in responses(example)]
    assert report.acceptance.value == pytest.approx(by_prompt(example, lambda d, r, t: keep(d)))
    assert certificate.estimates["acceptance"] == report.acceptance
    assert report.surrogate_gain.value == pytest.approx(by_prompt(example, lambda d, r, t: keep(d) * gain(d, r)))
    accepted = [gain(d, r) for d, _, r, _ in responses(example) if keep(d)]
    assert report.surrogate_gain_per_accepted.value == pytest.approx(np.mean(accepted))
    quarters = report.by_length.to_frame()
    assert quarters["responses"].sum() == len(example)
    assert (quarters["responses"] * quarters["acceptance"]).sum() == pytest.approx(sum(kept))
    assert (quarters["longest"][:-1].to_numpy() < quarters["shortest"][1:].to_numpy()).all()
    shown = certificate.to_dict()["mask"]
    assert set(shown["surrogate_gain"]) >= {"value", "low", "high", "standing", "method"}
    everything = bounds.certify(example, mask="seq_max_k2<=5")
    assert everything.mask.surrogate_gain.value == everything.estimates["surrogate_gain"].value


def test_the_adaptive_bound_on_a_log_by_hand(example, certificate):
    """4 sum_t Dbar_t min(1, (T-t) eps, sqrt((T-t) delta/2)) with prompt-weighted Dbar_t, at the sample maxima."""
    dbar = np.zeros(256)
    weights = 1.0 / np.bincount(example.prompt)[example.prompt] / len(example.prompt_ids)
    for (_, _, _, tokens), weight in zip(responses(example), weights, strict=True):
        tv = example.exact["tv"][tokens]
        dbar[: tv.size] += weight * tv
    ahead = 256 - np.arange(1, 257)
    delta, epsilon = example.exact["kl"].max(), example.exact["tv"].max()
    by_hand = 4 * (dbar * np.minimum(1, np.minimum(ahead * epsilon, np.sqrt(ahead * delta / 2)))).sum()
    assert next(b for b in certificate.optimistic if b.name == "adaptive").value == pytest.approx(by_hand, rel=1e-10)


def test_an_assumed_epsilon_leaves_the_rules_that_need_delta_optimistic(example):
    result = bounds.certify(example, assume={"epsilon": 0.2})
    assert result.table["coupling"].standing is Standing.ASSUMED
    assert {b.name for b in result.optimistic} == {
        "pinsker_marginal_kl", "pinsker_marginal_tv", "mixed_kl", "adaptive_kl",
    }  # fmt: skip
    assert result.best_published.standing is Standing.ASSUMED


def test_what_is_not_evaluated_is_listed():
    rows = [{"prompt_id": k, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for k in "ab"]
    result = bounds.certify(bounds.TraceSet.from_records(rows), assume={"absolutely_continuous": False})
    assert {w["name"] for w in result.to_dict()["withheld"]} >= {"exact_tv", "cauchy_schwarz"}
    assert "Not evaluated (needs epsilon): classical, coupling" in str(result)
    assert ("horizon", 1) in [(a.what, a.value) for a in result.assumptions]
    assert result.estimates["chi2_seq"] is None
    with pytest.raises(ValueError, match="support_gap above 0 contradicts absolutely_continuous=True"):
        bounds.certify(bounds.TraceSet.from_records(rows), assume={"support_gap": 0.1, "absolutely_continuous": True})


def test_length_bias_is_shown():
    """d = .002 on 10, 100, 1000 tokens: a bound on the product rejects by length, one on the mean does not."""
    records = [
        {"prompt_id": str(n), "rollout_logprobs": [-1.0] * n, "train_logprobs": [-0.998] * n} for n in (10, 100, 1000)
    ]
    traces, insist = bounds.TraceSet.from_records(records, horizon=1000), {"absolutely_continuous": True}
    by_product = bounds.certify(traces, mask="seq_sum_k1=0.9_1.1", assume=insist).mask.by_length
    assert by_product.values("acceptance") == [1.0, 0.0, 0.0]
    assert bounds.certify(traces, mask="seq_mean_k1=0.9_1.1", assume=insist).mask.acceptance.value == 1.0


def test_json_keys(certificate):
    found = json.loads(certificate.to_json())
    assert set(found) >= {
        "responses", "prompts", "tokens", "horizon", "estimates", "bounds", "b_star", "b_star_published",
        "b_star_upper", "improvement", "mask", "warnings", "assumptions",
    }  # fmt: skip
    assert set(found["estimates"]["kl_seq"]) >= {"value", "low", "high", "standing", "method"}
    assert set(found["bounds"][0]) >= {"name", "value", "family", "source", "standing", "assumes", "vacuous"}
    assert found["estimates"]["max_k2"]["high"] is None
    assert (found["responses"], found["prompts"], found["tokens"], found["horizon"]) == (96, 24, 13961, 256)


def test_text_frame_and_html_say_the_same(certificate):
    text, html, frame = str(certificate), certificate.to_html(), certificate.to_frame()
    for name, interval in certificate.estimates.items():
        assert name in text
        assert name in html
        assert frame.set_index("name").loc[name, "value"] == interval.value
    for part in (text, html):
        assert "Standing: estimated" in part
        assert "absolutely_continuous = True" in part
        assert "trajectory_kl" in part
    assert certificate._repr_html_() == html


def test_one_prompt_gives_no_interval():
    traces = bounds.TraceSet.from_records(
        [
            {"prompt_id": "a", "reward": 1.0, "rollout_logprobs": [-1.0], "train_logprobs": [-1.0 - k / 10]}
            for k in range(5)
        ],
        horizon=4,
    )
    result = bounds.certify(traces)
    assert (result.estimates["kl_seq"].low, result.estimates["kl_seq"].high) == (0.0, math.inf)
    assert result.best_upper.value == math.inf
    assert any("one prompt" in w for w in result.warnings)


def test_few_prompts_are_warned_of():
    traces = bounds.TraceSet.from_records(
        [{"prompt_id": k, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for k in "abc"], horizon=4
    )
    assert any("only 3 prompts" in w for w in bounds.certify(traces).warnings)


# --- intervals ---------------------------------------------------------------------------------------------


def test_clustered_mean_is_the_t_interval_of_prompt_means():
    rng = np.random.default_rng(0)
    prompt = np.sort(rng.integers(0, 12, 90))
    values = rng.normal(size=90) + prompt
    means = [values[prompt == k].mean() for k in range(12)]
    interval = clustered_mean(values, prompt, 0.9)
    low, high = stats.t.interval(0.9, 11, loc=np.mean(means), scale=stats.sem(means))
    assert (interval.low, interval.value, interval.high) == pytest.approx((low, np.mean(means), high))


def test_clustered_ratio_of_equal_prompts_is_their_mean():
    rng = np.random.default_rng(1)
    prompt, length = np.repeat(np.arange(15), 4), np.full(60, 7.0)
    values = rng.normal(size=60)
    pooled, mean = clustered_ratio(values, length, prompt, 0.95), clustered_mean(values / 7, prompt, 0.95)
    assert (pooled.low, pooled.high) == pytest.approx((mean.low, mean.high))


def test_clustered_intervals_cover_where_pooled_ones_would_not():
    """Eight responses that repeat their prompt's value: coverage is nominal by an exact binomial test."""
    rng = np.random.default_rng(2)
    covered = pooled = 0
    for _ in range(400):
        prompt = np.repeat(np.arange(30), 8)
        values = np.repeat(rng.normal(size=30), 8)
        interval = clustered_mean(values, prompt, 0.95)
        covered += interval.low <= 0.0 <= interval.high
        pooled += abs(values.mean()) <= stats.t.ppf(0.975, 239) * stats.sem(values)
    assert pooled < 300
    assert stats.binomtest(covered, 400, 0.95).pvalue > 1e-3


# --- against the truth -------------------------------------------------------------------------------------


def test_estimates_agree_with_an_enumerated_problem():
    """Sample a problem whose divergences are known; all true values lie in intervals at 1 - 1e-6."""
    rng = np.random.default_rng(3)
    problem = random_problem(rng, horizon=4, vocabulary=3, distance=0.2, prompts=1)
    tree = problem.trees[0]
    records = []
    for k in range(4000):
        context, rollout, train = 0, [], []
        for p, q in zip(tree.roll, tree.theta, strict=True):
            token = int(rng.choice(3, p=p[context]))
            rollout.append(math.log(p[context, token]))
            train.append(math.log(q[context, token]))
            context = context * 3 + token
        records.append({"prompt_id": str(k), "rollout_logprobs": rollout, "train_logprobs": train})
    result = bounds.certify(bounds.TraceSet.from_records(records, horizon=4), confidence=1 - 1e-6)
    truth = {
        "kl_seq": sum(problem.per_position["mean_kl"]),
        "kl_seq_k1": sum(problem.per_position["mean_kl"]),
        "tv_sum": sum(problem.per_position["mean_tv"]),
        "tv_seq": problem.tv_seq,
        "worst_case_error": problem.worst_error,
        "worst_case_error_with_gap": problem.worst_error,
        "mean_ratio": 1.0,
        "mean_length": 4.0,
    }
    for name, value in truth.items():
        assert result.estimates[name].low <= value <= result.estimates[name].high, name
    assert result.estimates["worst_case_error"].value <= result.estimates["kl_seq_k3"].value


@pytest.mark.parametrize("d", [[-701 + 300.7 + 400.3], [300.7], [800.0, 0.0, 0.0], [0.3], [-0.4]])
def test_one_token_alone_has_no_surrogate_error(d):
    """W = P - 1 - S is 0 for one token, also where the ratio overflows."""
    rows = [{"prompt_id": "a", "rollout_logprobs": [-900.0] * len(d), "train_logprobs": [x - 900.0 for x in d]}]
    result = bounds.certify(bounds.TraceSet.from_records(rows, horizon=4), assume={"absolutely_continuous": True})
    assert result.estimates["worst_case_error"].value == 0.0


def test_the_worst_error_does_not_cancel():
    d = np.array([-3.3e-10, 1.7e-7])
    rows = [{"prompt_id": "a", "rollout_logprobs": [-1.0, -1.0], "train_logprobs": (d - 1).tolist()}]
    traces = bounds.TraceSet.from_records(rows, horizon=4)
    d = [float(x) for x in traces.log_ratio]
    import mpmath

    with mpmath.workdps(60):
        rho = [mpmath.exp(mpmath.mpf(x)) for x in d]
        truth = float(max(0, 1 + sum(r - 1 for r in rho) - rho[0] * rho[1]))
    assert bounds.certify(traces).estimates["worst_case_error"].value == pytest.approx(truth, rel=1e-6, abs=1e-30)


def test_no_interval_is_upside_down():
    rng = np.random.default_rng(5)
    for d in (0.1 + 0.001 * np.arange(30)[:, None], np.where(rng.random((30, 20)) < 0.5, 0.1, -0.1)):
        rows = [
            {"prompt_id": str(k), "rollout_logprobs": [-1.0] * x.size, "train_logprobs": (x - 1).tolist()}
            for k, x in enumerate(d)
        ]
        result = bounds.certify(bounds.TraceSet.from_records(rows, horizon=20), assume={"absolutely_continuous": True})
        for name, interval in result.estimates.items():
            assert interval is None or interval.low <= interval.value <= interval.high, name


def test_worst_errors_and_bounds_are_in_units_of_the_reward():
    rows = [
        {"prompt_id": k, "reward": 9.0, "rollout_logprobs": [-1.0, -1.0], "train_logprobs": [-1.2, -0.9]} for k in "ab"
    ]
    wide = bounds.certify(bounds.TraceSet.from_records(rows, horizon=4, reward_range=(0, 10)))
    narrow = bounds.certify(bounds.TraceSet.from_records([{**r, "reward": 0.9} for r in rows], horizon=4))
    for name in ("worst_case_error", "worst_case_error_with_gap", "reward", "surrogate_gain"):
        assert wide.estimates[name].value == pytest.approx(10 * narrow.estimates[name].value)
    assert wide.best.value == pytest.approx(10 * narrow.best.value)


def test_a_log_whose_mean_ratio_is_below_one_takes_the_larger_kl_whatever_is_assumed():
    rng = np.random.default_rng(6)
    rows = [
        {
            "prompt_id": str(k),
            "rollout_logprobs": [-1.0] * 20,
            "train_logprobs": (math.log(0.7) - 1 + rng.normal(0, 0.05, 20)).tolist(),
        }
        for k in range(60)
    ]
    traces = bounds.TraceSet.from_records(rows, horizon=20)
    for assume in ({}, {"support_gap": 0.0}, {"absolutely_continuous": True}):
        result = bounds.certify(traces, assume=assume)
        assert result.estimates["kl_seq"] == result.estimates["kl_seq_k1"]
        assert any("of a token, 0.7" in w for w in result.warnings)


def test_a_mask_on_sampled_tokens_is_no_cap_on_the_vocabulary(example):
    """TRM-Max on k2 says nothing of unsampled tokens: no bound changes, and no cap appears."""
    plain, masked = bounds.certify(example), bounds.certify(example, mask="seq_max_k2<=0.02")
    assert plain.to_dict()["bounds"] == masked.to_dict()["bounds"]
    assert "log_ratio_max" not in masked.table.profile


@pytest.mark.parametrize("rewards", [(-3.0, -1.0), (-1.0, 1.0), (5.0, 6.0)])
def test_the_mean_reward_of_a_log_enters_its_bounds_in_any_range(example, rewards):
    """first_order uses sd(R) <= sqrt(mu (1-mu)) of the reward mapped to [0, 1], whatever its range."""
    low, high = rewards
    rows = [
        {
            "prompt_id": str(k), "reward": low + (high - low) * r, "rollout_logprobs": example.rollout[t],
            "train_logprobs": example.train[t], "chi2": example.exact["chi2"][t],
        }
        for k, (_, _, r, t) in enumerate(responses(example))
    ]  # fmt: skip
    result = bounds.certify(bounds.TraceSet.from_records(rows, horizon=256, reward_range=rewards))
    worst = (min(max((low + high) / 2, result.estimates["reward"].low), result.estimates["reward"].high) - low) / (
        high - low
    )
    assert worst != 0.5
    sd = {i.name: i.value for i in result.table["first_order"].inputs}["reward_sd"]
    assert sd == pytest.approx(math.sqrt(worst * (1 - worst)), rel=1e-9)
    assert not any("left out" in w for w in result.warnings)


def all_right(prompts=60):
    """A log of four tokens a response whose rewards are all 1."""
    rng = np.random.default_rng(17)
    rows = [
        {"prompt_id": str(k), "reward": 1.0, "rollout_logprobs": [-1.0] * 4, "train_logprobs": (d - 1).tolist()}
        for k, d in enumerate(rng.normal(0, 0.05, (prompts, 4)))
    ]
    return bounds.TraceSet.from_records(rows, horizon=4)


def test_equal_rewards_prove_no_error_of_zero():
    """The interval of the mean reward, .926 to 1, is what is known: not that rewards never vary."""
    result = bounds.certify(all_right(), assume={"chi2_max": 2.0})
    reward, found = result.estimates["reward"], result.table["martingale_chi2"]
    assert (reward.value, reward.high) == (1.0, 1.0)
    assert result.table.profile["mean_reward"] == (reward.low, 1.0)
    assert {i.name: i.value for i in found.inputs}["reward_sd"] == pytest.approx(
        math.sqrt(reward.low * (1 - reward.low))
    )
    assert found.value > result.estimates["worst_case_error"].value
    assert result.best.name == "trajectory_kl"


def test_an_assumption_hides_no_estimate():
    result = bounds.certify(all_right(), assume={"chi2_max": 2.0})
    found = result.table["martingale_chi2"]
    assert found.standing is Standing.ASSUMED
    assert dict(found.rests_on) == {"chi2_max": Standing.ASSUMED, "mean_reward": Standing.ESTIMATED}
    assert "(sharp, estimated and assumed, vacuous)" in str(found)
    shown = next(b for b in json.loads(result.to_json())["bounds"] if b["name"] == "martingale_chi2")
    assert (shown["standing"], shown["rests_on"]) == ("assumed", {"chi2_max": "assumed", "mean_reward": "estimated"})
    assert result.to_dict()["b_star"]["rests_on"] == {"kl_seq": "estimated"}
    assert bounds.unified(T=4, delta=0.1).best.to_dict()["rests_on"] == {"delta": "proved"}
    row = result.table.to_frame().set_index("name").loc["martingale_chi2"]
    assert row["rests_on"] == "chi2_max assumed, mean_reward estimated"


def test_the_improvement_through_the_surrogate_is_of_one_bound():
    """Rewards are known to vary little at the estimates, which the upper limits do not use: another rule wins there."""
    result = bounds.certify(all_right(1000), assume={"chi2_max": 0.02})
    found, upper, gain = (
        result.guarantees.intervals["improvement_by_surrogate"],
        result.best_upper,
        result.estimates["surrogate_gain"],
    )
    assert (result.best.name, upper.name) == ("martingale_chi2", "trajectory_kl")
    assert found.of == "L' - trajectory_kl (estimated)"
    assert found.low == gain.low - upper.value
    assert found.value == gain.value - result.table["trajectory_kl"].value
    assert found.standing is Standing.ESTIMATED


def test_an_uncertain_length_refutes_nothing():
    """kl_seq is above delta times the mean length by chance, not at its lower limit: a warning, no refusal."""
    rng = np.random.default_rng(13)
    rows = []
    for k in range(12):
        n = int(rng.integers(1, 40))
        d = rng.normal(0, 0.03 if k % 2 else 0.2, n)
        rows.append({"prompt_id": str(k), "rollout_logprobs": [-5.0] * n, "train_logprobs": (d - 5).tolist()})
    traces = bounds.TraceSet.from_records(rows, horizon=40)
    plain = bounds.certify(traces, assume={"absolutely_continuous": True})
    kl, length = plain.estimates["kl_seq"], plain.estimates["mean_length"]
    delta = kl.value / length.value * 0.97
    assert kl.low < delta * length.high
    result = bounds.certify(traces, assume={"delta": delta, "absolutely_continuous": True})
    assert any(w.startswith("kl_seq is left out of the bounds") for w in result.warnings)


def test_a_certificate_of_several_steps_says_so():
    (mixture,) = bounds.certify(bounds.example_traces("run")).findings
    assert mixture.kind == "mixture"
    assert mixture.text.startswith("the log holds 40 steps (0 to 195), each with its own two policies")


def test_an_estimate_by_another_name_is_answered_with_the_likely_meant_one(certificate):
    for name in ("kl", "kl_sequence"):
        with pytest.raises(KeyError, match=f"unknown estimate '{name}'; did you mean 'kl_seq'"):
            certificate.estimates[name]
    assert certificate.estimates.get("kl") is None
