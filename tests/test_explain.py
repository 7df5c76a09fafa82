"""Where kl_seq comes from, how two logs differ, and a run over time."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import bounds
from bounds.cli.main import main
from bounds.divergence.rows import k3
from bounds.results import Standing


def records(sizes, seed=0, spread=0.05, **more):
    rng = np.random.default_rng(seed)
    for i, size in enumerate(sizes):
        for _ in range(size):
            n = int(rng.integers(1, 40))
            roll = -rng.exponential(1.0, n)
            yield {
                "prompt_id": f"p{i}",
                "reward": float(rng.random() < 0.4),
                "rollout_logprobs": roll,
                "train_logprobs": np.minimum(roll + rng.normal(0.0, spread, n), 0.0),
                "tokens": rng.integers(0, 30, n),
                "step": i // 10,
                "environment": "maths" if i % 2 else "code",
                **more,
            }


@pytest.fixture(scope="module")
def rows():
    return list(records([1, 2, 3, 4] * 10))


@pytest.fixture(scope="module")
def traces(rows):
    return bounds.TraceSet.from_records(rows, horizon=64)


# --- explain -----------------------------------------------------------------------------------------------


def test_the_parts_of_every_split_sum_to_kl_seq(traces):
    e = bounds.explain(traces)
    assert set(e.splits) == {"position", "probability", "token", "length", "prompt", "step", "environment"}
    for name, parts in e.splits.items():
        assert sum(p.kl for p in parts) == pytest.approx(e.kl_seq.value, rel=1e-12), name
        assert sum(p.share.value for p in parts) == pytest.approx(1.0, rel=1e-12), name
        assert sum(p.tokens for p in parts) == pytest.approx(1.0, rel=1e-12), name
    assert e.kl_seq.value == bounds.certify(traces).estimates["kl_seq"].value


def test_parts_by_hand(rows, traces):
    weight = {f"p{i}": 1.0 / (40 * size) for i, size in enumerate([1, 2, 3, 4] * 10)}
    first, rare, code = 0.0, 0.0, 0.0
    for row in rows:
        kl = k3(np.asarray(row["train_logprobs"]) - row["rollout_logprobs"])
        w = weight[row["prompt_id"]]
        first += w * kl[0]
        rare += w * kl[np.exp(row["rollout_logprobs"]) < 0.001].sum()
        code += w * kl.sum() * (row["environment"] == "code")
    e = bounds.explain(traces)
    parts = {name: {p.label: p.kl for p in split} for name, split in e.splits.items()}
    assert parts["position"]["0"] == pytest.approx(first, rel=1e-12)
    assert parts["probability"]["0 to 0.001"] == pytest.approx(rare, rel=1e-12)
    assert parts["environment"]["code"] == pytest.approx(code, rel=1e-12)
    assert list(parts["step"]) == ["0", "1", "2", "3"]


def test_parts_of_a_log_are_the_log(rows, traces):
    pieces = [bounds.TraceSet.from_records(rows[a:b], horizon=64) for a, b in ((0, 17), (17, 60), (60, 100))]
    assert bounds.explain(iter(pieces)).to_json() == bounds.explain(traces).to_json()


def test_the_concentration_names_the_few_tokens():
    """One token in a hundred carries nearly everything."""
    d = np.full(100, 1e-4)
    d[7] = 1.0
    rows = [
        {"prompt_id": f"p{i}", "rollout_logprobs": [-5.0] * 100, "train_logprobs": (d - 5.0).tolist()} for i in range(5)
    ]
    e = bounds.explain(bounds.TraceSet.from_records(rows, horizon=100))
    assert (e.half, e.most) == (0.006, 0.01)  # 3 and 5 of 500 tokens
    assert e.sentence().startswith("80% of kl_seq")
    assert "1% of the tokens" in e.sentence()


def test_the_concentration_weighs_tokens_as_kl_seq_does(traces):
    e = bounds.explain(traces)
    size = np.bincount(traces.prompt)
    weight = np.repeat(1.0 / size[traces.prompt], traces.lengths)
    kl = k3(traces.log_ratio)
    mass = np.cumsum(-np.sort(-weight * kl))
    for share, found in ((0.5, e.half), (0.8, e.most)):
        least = (int(np.searchsorted(mass, share * mass[-1])) + 1) / kl.size
        assert found == pytest.approx(least, abs=2 / kl.size)


def test_exact_divergences_are_explained_where_logged():
    e = bounds.explain(bounds.example_traces())
    assert "exact" in e.how
    assert "exact" in str(e)
    assert e.kl_seq.value == bounds.certify(bounds.example_traces()).estimates["kl_seq"].value


def test_identical_policies_have_nothing_to_explain():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.0, -2.0]}] * 2
    e = bounds.explain(bounds.TraceSet.from_records(rows, horizon=4))
    assert e.splits == {}
    assert e.sentence() == "kl_seq = 0: there is nothing to split."
    json.loads(e.to_json())
    assert str(e)


# --- compare -----------------------------------------------------------------------------------------------


def test_a_log_against_itself_differs_by_nothing(traces):
    c = bounds.compare(traces, traces)
    assert c.shared == 40
    assert all(i.value == i.low == i.high == 0.0 for i in c.difference.values())
    assert c.sentence() == "No difference is clear at this confidence."


def test_the_same_prompts_are_compared_prompt_by_prompt(traces):
    other = bounds.TraceSet.from_records(list(records([4, 3, 2, 1] * 10, seed=1, spread=0.1)), horizon=64)
    c = bounds.compare(traces, other)
    assert c.shared == 40
    means = []
    for t in (traces, other):
        phi = np.add.reduceat(k3(t.log_ratio), t.starts[:-1])
        by_prompt = np.bincount(t.prompt, weights=phi) / np.bincount(t.prompt)
        means.append(dict(zip(t.prompt_ids, by_prompt, strict=True)))
    differences = [means[1][p] - means[0][p] for p in means[0]]
    low, high = stats.t.interval(0.95, 39, np.mean(differences), stats.sem(differences))
    i = c.difference["kl_seq"]
    assert (i.value, i.low, i.high) == pytest.approx((np.mean(differences), low, high))
    assert i.standing is Standing.ESTIMATED
    assert "kl_seq is higher in the second" in c.sentence()


def test_other_prompts_are_compared_as_independent(traces):
    rows = [{**r, "prompt_id": "q" + r["prompt_id"]} for r in records([2] * 25, seed=2)]
    other = bounds.TraceSet.from_records(rows, horizon=64)
    c = bounds.compare(traces, other)
    assert c.shared == 0
    length = [np.bincount(t.prompt, weights=t.lengths) / np.bincount(t.prompt) for t in (traces, other)]
    error = math.hypot(stats.sem(length[0]), stats.sem(length[1]))
    margin = stats.t.ppf(0.975, 24) * error  # the degrees of freedom of the smaller log: no fewer than Welch's
    i = c.difference["mean_length"]
    assert (i.low, i.high) == pytest.approx((i.value - margin, i.value + margin))
    assert margin >= np.ptp(stats.ttest_ind(length[1], length[0], equal_var=False).confidence_interval(0.95)) / 2
    json.loads(c.to_json())
    assert list(c.to_frame().name) == list(c.difference)


def test_a_prompt_of_both_logs_moves_both_means():
    """Rewards that rise together with the other log's: nearly no difference, and an interval that knows it."""
    rng = np.random.default_rng(3)
    level = rng.random(60)
    logs = []
    for first in (0, 1):
        rows = [
            {"prompt_id": f"p{i}", "reward": float(level[i]), "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
            for i in range(first, 59 + first)
        ]
        logs.append(bounds.TraceSet.from_records(rows, horizon=4))
    c = bounds.compare(*logs)
    assert c.shared == 58
    i = c.difference["reward"]
    assert i.value == pytest.approx((level[59] - level[0]) / 59)
    assert i.high - i.low < 0.1 * (c.first["reward"].high - c.first["reward"].low) + 0.1


def test_one_prompt_has_no_interval_and_other_ranges_no_difference():
    one = bounds.TraceSet.from_records(list(records([3])), horizon=64)
    i = bounds.compare(one, one).difference["kl_seq"]
    assert (i.low, i.high) == (-math.inf, math.inf)
    other = bounds.TraceSet.from_records(list(records([3])), horizon=64, reward_range=(0.0, 2.0))
    with pytest.raises(bounds.TraceError, match="rewards in"):
        bounds.compare(one, other)


# --- over time ---------------------------------------------------------------------------------------------


def test_each_step_is_certified_by_itself(rows, traces):
    run = bounds.over_time(traces, mask="seq_max_k2<=0.005", limit=0.05)
    assert [s.name for s in run.steps] == ["0", "1", "2", "3"]
    for k, s in enumerate(run.steps):
        mine = bounds.TraceSet.from_records([r for r in rows if r["step"] == k], horizon=64)
        c = bounds.certify(mine, mask="seq_max_k2<=0.005")
        assert (s.responses, s.prompts) == (c.responses, c.prompts)
        for name in ("kl_seq", "acceptance", "surrogate_gain"):
            assert getattr(s, name).value == pytest.approx(c.estimates[name].value, rel=1e-12)
            assert getattr(s, name).high == pytest.approx(c.estimates[name].high, rel=1e-12)
        assert (s.improvement.low, s.improvement.high) == pytest.approx((c.improvement.low, c.improvement.high))


def test_the_step_where_the_trust_region_was_lost_is_named():
    calm, wild = list(records([2] * 20)), list(records([2] * 20, spread=0.4))
    rows = [{**r, "step": 9} for r in calm] + [{**r, "step": 10} for r in wild] + [{**r, "step": 11} for r in calm]
    run = bounds.over_time(bounds.TraceSet.from_records(rows, horizon=64), limit=0.5)
    assert [s.name for s in run.steps] == ["9", "10", "11"]
    assert run.lost == "10"
    assert "kl_seq <= 0.5, so |Error| <= 0.5" in run.sentence()
    assert "cannot be said at step 10, and could before" in run.sentence()
    assert "asymptotic" in run.sentence()
    calm_run = bounds.over_time(bounds.TraceSet.from_records([{**r, "step": 1} for r in calm], horizon=64), limit=0.5)
    assert calm_run.lost is None
    json.loads(run.to_json())
    assert len(run.to_frame()) == 3
    assert str(run)


def test_time_uniform_intervals_spend_the_error_over_steps(traces):
    run = bounds.over_time(traces, time_uniform=True)
    spent = [1.0 - s.kl_seq.confidence for s in run.steps]
    assert spent == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12, 0.05 / 20])
    single = bounds.over_time(traces)
    for a, b in zip(run.steps, single.steps, strict=True):
        assert a.kl_seq.high > b.kl_seq.high
        assert a.improvement.low <= b.improvement.low


def test_a_log_without_steps_or_rewards(rows):
    bare = [{k: v for k, v in r.items() if k not in ("step",)} for r in rows]
    with pytest.raises(bounds.TraceError, match="names no steps"):
        bounds.over_time(bounds.TraceSet.from_records(bare, horizon=64))
    unrewarded = [{k: v for k, v in r.items() if k != "reward"} for r in rows]
    run = bounds.over_time(bounds.TraceSet.from_records(unrewarded, horizon=64))
    assert run.steps[0].improvement is None
    assert all("improvement" not in titles for titles, _ in run.tables())


def test_the_figure_of_a_run(traces):
    run = bounds.over_time(traces, limit=1e-6)
    axes = bounds.plot_over_time(run)
    names = ["kl_seq", "worst_case_error", "ppl_gap", "acceptance", "surrogate_gain", "improvement"]
    assert [ax.get_title(loc="left") for ax in axes] == names
    for ax, name in zip(axes, names, strict=True):
        line = next(x for x in ax.lines if len(x.get_xdata()) == 4)
        assert line.get_ydata().tolist() == [s.intervals()[name].value for s in run.steps]
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert band.min() == min(s.intervals()[name].low for s in run.steps)
        assert band.max() == max(s.intervals()[name].high for s in run.steps)
    assert "cannot be excluded at step 0" in axes[0].get_title(loc="right")


def test_the_figure_is_written_whole_and_never_over_another(tmp_path, rows, capsys):
    log, figure = tmp_path / "log.jsonl", tmp_path / "run.png"
    with log.open("w") as file:
        for r in rows:
            plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in r.items()}
            file.write(json.dumps(plain) + "\n")
    command = ["certify", str(log), "--horizon", "64", "--by-step", "--figure", str(figure)]
    assert main(command) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main(command) == 2
    assert "exists; another name, or force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.jsonl", "run.png"]


def test_without_a_mask_everything_is_kept_and_estimates_lie_in_their_intervals():
    run = bounds.over_time(bounds.example_traces("run"))
    for step in run.steps:
        assert (step.acceptance.low, step.acceptance.high, step.acceptance.method) == (1.0, 1.0, "no mask")
        assert step.improvement.low <= step.improvement.value <= step.improvement.high
    study = bounds.mask_study(bounds.example_traces())
    (everything,) = (t for t in study.reference if not t.mask)
    assert (everything.acceptance.low, everything.acceptance.high) == (1.0, 1.0)
