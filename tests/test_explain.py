"""Where kl_seq comes from, how two logs differ, and a run over time."""

from __future__ import annotations

import json
import math
import re
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from scipy import stats

import bounds
from bounds._text import near, shown
from bounds.certificate.guarantees import Gain
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.divergence.rows import k3
from bounds.figures.logs import _IN_REWARD, _OF_A_STEP, draw_ledger_of_steps, over_time_frame, with_ledger
from bounds.questions.explain import _Concentration
from bounds.questions.metrics import metrics
from bounds.questions.objectives import objectives
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
        assert sum(parts.facts[label]["kl"] for label in parts) == pytest.approx(e.kl_seq.value, rel=1e-12), name
        assert sum(parts.values("share")) == pytest.approx(1.0, rel=1e-12), name
        assert sum(parts.facts[label]["tokens"] for label in parts) == pytest.approx(1.0, rel=1e-12), name
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
    parts = {name: {label: split.facts[label]["kl"] for label in split} for name, split in e.splits.items()}
    assert parts["position"]["0"] == pytest.approx(first, rel=1e-12)
    assert parts["probability"]["0 to 0.001"] == pytest.approx(rare, rel=1e-12)
    assert parts["environment"]["code"] == pytest.approx(code, rel=1e-12)
    assert list(parts["step"]) == ["0", "1", "2", "3"]


def test_parts_of_a_log_are_the_log(rows, traces):
    pieces = [bounds.TraceSet.from_records(rows[a:b], horizon=64) for a, b in ((0, 17), (17, 60), (60, 100))]
    whole, found = bounds.explain(traces), bounds.explain(pieces)
    assert [list(split) for split in found.splits.values()] == [list(split) for split in whole.splits.values()]
    numbers = whole.to_frame().select_dtypes("number")
    np.testing.assert_allclose(found.to_frame()[numbers.columns], numbers, rtol=1e-12, atol=1e-15)
    assert (found.tokens_of_50_percent, found.tokens_of_80_percent) == pytest.approx(
        (whole.tokens_of_50_percent, whole.tokens_of_80_percent), rel=1e-4
    )


def test_the_concentration_names_the_few_tokens():
    """One token in a hundred carries nearly everything."""
    d = np.full(100, 1e-4)
    d[7] = 1.0
    rows = [
        {"prompt_id": f"p{i}", "rollout_logprobs": [-5.0] * 100, "train_logprobs": (d - 5.0).tolist()} for i in range(5)
    ]
    e = bounds.explain(bounds.TraceSet.from_records(rows, horizon=100))
    assert (e.tokens_of_50_percent, e.tokens_of_80_percent) == (0.006, 0.01)  # 3 and 5 of 500 tokens
    assert e.sentence().startswith("80% of kl_seq")
    assert "1% of the tokens" in e.sentence()


def test_the_concentration_weighs_tokens_as_kl_seq_does(traces):
    e = bounds.explain(traces)
    size = np.bincount(traces.prompt)
    weight = np.repeat(1.0 / size[traces.prompt], traces.lengths)
    kl = k3(traces.log_ratio)
    mass = np.cumsum(-np.sort(-weight * kl))
    for share, found in ((0.5, e.tokens_of_50_percent), (0.8, e.tokens_of_80_percent)):
        least = (int(np.searchsorted(mass, share * mass[-1])) + 1) / kl.size
        assert found == pytest.approx(least, rel=1e-4)


def test_exact_divergences_are_explained_where_logged():
    e = bounds.explain(bounds.example_traces())
    assert "exact" in e.kl_seq.of
    assert "exact" in str(e)
    assert e.kl_seq.value == bounds.certify(bounds.example_traces()).estimates["kl_seq"].value


def test_identical_policies_have_nothing_to_explain():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.0, -2.0]}] * 2
    e = bounds.explain(bounds.TraceSet.from_records(rows, horizon=4))
    assert e.splits == {}
    assert e.sentence() == "kl_seq = 0: there is nothing to split."
    assert json.loads(e.to_json())["tokens_of_50_percent"] is None
    assert str(e)


def test_ids_and_texts_of_tokens_are_split_alike_and_only_if_every_response_has_them(rows):
    with_texts = [{**r, "tokens": [f"t{t}" for t in r["tokens"]]} for r in rows]
    of_ids, of_texts = (
        bounds.explain(bounds.TraceSet.from_records(some, horizon=64)).splits["token"] for some in (rows, with_texts)
    )
    assert [f"t{label}" for label in list(of_ids)[:-1]] == list(of_texts)[:-1]
    assert list(of_ids)[-1] == list(of_texts)[-1] == "all others"
    assert of_ids.values("share") == pytest.approx(of_texts.values("share"), rel=1e-12)
    bare = [{k: v for k, v in r.items() if k != "tokens"} for r in rows[:50]]
    pieces = [bounds.TraceSet.from_records(some, horizon=64) for some in (bare, rows[50:])]
    assert "token" not in bounds.explain(pieces).splits


def test_the_largest_prompts_and_tokens_are_named_and_their_shares_are_of_this_log(rows, traces):
    e = bounds.explain(traces)
    totals = {}
    for row, kl in zip(rows, np.split(k3(traces.log_ratio), traces.starts[1:-1]), strict=True):
        size = sum(r["prompt_id"] == row["prompt_id"] for r in rows)
        totals[row["prompt_id"]] = totals.get(row["prompt_id"], 0.0) + kl.sum() / size
    assert list(e.splits["prompt"]) == [*sorted(totals, key=totals.get, reverse=True)[:8], "all others"]
    assert all(i.low == i.value == i.high for i in e.splits["prompt"].column("share"))
    share = e.splits["token"].estimate(next(iter(e.splits["token"])), "share")
    assert share.low < share.value < share.high
    named = [{**r, "prompt_id": "all others"} if r["prompt_id"] == next(iter(e.splits["prompt"])) else r for r in rows]
    labels = list(bounds.explain(bounds.TraceSet.from_records(named, horizon=64)).splits["prompt"])
    assert (labels[0], labels[-1]) == ("all others", "(all others)")


def test_few_tokens_are_counted_to_a_ten_thousandth():
    """Against sorting, for shares of very different size, and where all are alike."""
    rng = np.random.default_rng(0)
    for kl in (np.exp(rng.normal(0.0, 4.0, 300_000)), np.full(1000, 0.3), rng.random(7) ** 9, [2.0**-70, 1.0, 0.0]):
        shares = np.asarray(kl) / np.sum(kl)
        found = _Concentration()
        for piece in np.array_split(shares, 3):
            found.add(piece)
        mass = np.cumsum(np.sort(shares)[::-1])
        for share in (0.1, 0.5, 0.8, 0.999):
            least = (np.searchsorted(mass, share * mass[-1] * (1.0 - 1e-12)) + 1) / shares.size
            assert found.tokens_of(share) == pytest.approx(least, rel=1e-4)


def test_memory_does_not_grow_with_the_tokens(tmp_path):
    """Four times as long responses to the same prompts: every question that reads a log again."""
    path, peaks = {}, {}
    rng = np.random.default_rng(0)
    for n in (250, 1000):
        roll = -rng.exponential(1.0, (800, n))
        train = np.minimum(roll + rng.normal(0.0, 0.1, roll.shape), 0.0)
        columns = {"rollout_logprobs": list(roll), "train_logprobs": list(train), "tokens": list(roll.astype(int))}
        path[n] = tmp_path / f"{n}.parquet"
        pq.write_table(
            pa.table({"prompt_id": [f"p{i // 8}" for i in range(800)], **columns}), path[n], row_group_size=100
        )
    for question in (bounds.explain, bounds.by_position, metrics, bounds.mask_study):
        for n in (250, 250, 1000):  # the first imports
            tracemalloc.start()
            question(bounds.open_log(path[n], horizon=1000))
            peaks[n] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peaks[1000] < peaks[250] + 0.5 * 800 * 750 * 8 * 2, question


@pytest.mark.parametrize("later", [[("q0", 30)], [("p0", 4)]])
def test_a_log_that_has_changed_is_not_read_again(later):
    class Changing(list):
        def __iter__(self):
            self.append(self.pop(0))
            return iter(self[:1])

    def log(prompts):
        rows = [{**r, "prompt_id": name} for name, size in prompts for r in records([size])]
        return bounds.TraceSet.from_records(rows, horizon=64)

    for question in (bounds.explain, bounds.by_position):
        with pytest.raises(bounds.TraceError, match="the log has changed since it was read first"):
            question(Changing([log(later), log([("p0", 5), ("p1", 5)])]))


# --- compare -----------------------------------------------------------------------------------------------


def test_a_log_against_itself_differs_by_nothing(traces):
    c = bounds.compare(traces, traces)
    assert c.prompts_of_both == 40
    assert all(i.value == i.low == i.high == 0.0 for i in (e.difference for e in c.estimates.values()))
    assert c.sentence() == "No difference is clear at this confidence."


def test_the_same_prompts_are_compared_prompt_by_prompt(traces):
    other = bounds.TraceSet.from_records(list(records([4, 3, 2, 1] * 10, seed=1, spread=0.1)), horizon=64)
    c = bounds.compare(traces, other)
    assert c.prompts_of_both == 40
    means = []
    for t in (traces, other):
        phi = np.add.reduceat(k3(t.log_ratio), t.starts[:-1])
        by_prompt = np.bincount(t.prompt, weights=phi) / np.bincount(t.prompt)
        means.append(dict(zip(t.prompt_ids, by_prompt, strict=True)))
    differences = [means[1][p] - means[0][p] for p in means[0]]
    low, high = stats.t.interval(0.95, 39, np.mean(differences), stats.sem(differences))
    i = c["kl_seq"].difference
    assert (i.value, i.low, i.high) == pytest.approx((np.mean(differences), low, high))
    assert i.standing is Standing.ESTIMATED
    assert "kl_seq is higher in the second" in c.sentence()
    assert f"kl_seq is higher in the second ({i.texts()[0]})" in c.sentence()
    shown = {cells[0]: cells[1:] for cells, _ in c.tables()[0][1]}["kl_seq"]
    assert shown == [str(i), c["kl_seq"].first.texts()[0], c["kl_seq"].second.texts()[0]]


def test_other_prompts_are_compared_as_independent(traces):
    rows = [{**r, "prompt_id": "q" + r["prompt_id"]} for r in records([2] * 25, seed=2)]
    other = bounds.TraceSet.from_records(rows, horizon=64)
    c = bounds.compare(traces, other)
    assert c.prompts_of_both == 0
    length = [np.bincount(t.prompt, weights=t.lengths) / np.bincount(t.prompt) for t in (traces, other)]
    error = math.hypot(stats.sem(length[0]), stats.sem(length[1]))
    margin = stats.t.ppf(0.975, 24) * error  # the degrees of freedom of the smaller log: no fewer than Welch's
    i = c["mean_length"].difference
    assert (i.low, i.high) == pytest.approx((i.value - margin, i.value + margin))
    assert margin >= np.ptp(stats.ttest_ind(length[1], length[0], equal_var=False).confidence_interval(0.95)) / 2
    json.loads(c.to_json())
    assert list(c.to_frame().name) == list(c.estimates)


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
    assert c.prompts_of_both == 58
    i = c["reward"].difference
    assert i.value == pytest.approx((level[59] - level[0]) / 59)
    assert i.high - i.low < 0.1 * (c["reward"].first.high - c["reward"].first.low) + 0.1


def test_several_logs_are_held_against_the_first(traces):
    further, near_by = (list(records([4, 3, 2, 1] * 10, seed=1, spread=s)) for s in (0.1, 0.05))
    logs = [bounds.TraceSet.from_records(rows, horizon=64) for rows in (further, near_by)]
    many = bounds.compare(traces, *logs, names=["now", "further", "near"])
    assert many.others["near"].to_dict() == bounds.compare(traces, logs[1]).to_dict()
    assert many.told_apart("kl_seq", all_of_them=False) == "higher in further"
    assert [row[0][0] for row in many.short()[0][1]] == ["now", "further, less that", "near, less that"]
    cells, clear = next((cells, clear) for cells, clear in many.tables()[0][1] if cells[0] == "kl_seq")
    assert (cells[2:], clear) == ([str(c["kl_seq"].difference) for c in many.others.values()], True)
    assert [c["kl_seq"].clear for c in many.others.values()] == [True, False]
    by_prompt = np.bincount(traces.prompt, -np.add.reduceat(traces.log_ratio, traces.starts[:-1]))
    k1 = (by_prompt / np.bincount(traces.prompt)).mean()
    assert many.others["near"]["kl_seq_k1"].first.value == pytest.approx(k1)
    titles = [ax.get_title("left") for ax in bounds.plot_comparison(many)]
    assert len(titles) == 3
    assert all(title.endswith(" in now") for title in titles)
    with pytest.raises(ValueError, match="names must be 3 names that differ"):
        bounds.compare(traces, *logs, names=["a", "a", "b"])
    with pytest.raises(TypeError, match="two logs or more, got one"):
        bounds.compare(traces)


def test_one_prompt_has_no_interval_and_other_ranges_no_difference():
    one = bounds.TraceSet.from_records(list(records([3])), horizon=64)
    i = bounds.compare(one, one)["kl_seq"].difference
    assert (i.low, i.high) == (-math.inf, math.inf)
    two = bounds.TraceSet.from_records(list(records([3, 3])), horizon=64)
    other = bounds.TraceSet.from_records(list(records([3, 3], seed=1)), horizon=64)
    of_two = bounds.compare(two, other)["kl_seq"].difference
    assert -math.inf < of_two.low < of_two.high < math.inf
    other = bounds.TraceSet.from_records(list(records([3])), horizon=64, reward_range=(0.0, 2.0))
    with pytest.raises(bounds.TraceError, match="rewards in"):
        bounds.compare(one, other)


def test_every_answer_says_what_is_remarkable_about_the_log():
    few = bounds.TraceSet.from_records(list(records([2] * 5)), horizon=64)
    for question in (bounds.explain, bounds.by_position, bounds.over_time, bounds.mask_study, metrics, objectives):
        assert any("only 5 prompts" in str(f) for f in question(few).findings), question
    several = bounds.example_traces("run")
    assert any("steps" in str(f) for f in metrics(several).findings)
    assert not any("steps" in str(f) for f in bounds.over_time(several).findings)
    c = bounds.compare(few, bounds.example_traces())
    said = [any("only 5 prompts" in str(f) for f in c.findings[which]) for which in ("first", "second")]
    assert said == [True, False]


def test_what_is_no_log_is_refused():
    for question in (bounds.explain, bounds.by_position, bounds.over_time, bounds.mask_study, metrics, objectives):
        with pytest.raises(TypeError, match=r"must be a TraceSet or a Log, .*, got 3"):
            question(3)
        with pytest.raises(TypeError, match="must be a TraceSet or a Log"):
            question("log.jsonl")
    for pair in ((bounds.example_traces(), 3), (3, bounds.example_traces())):
        with pytest.raises(TypeError, match=r"must be a TraceSet or a Log, .*, got 3"):
            bounds.compare(*pair)


# --- over time ---------------------------------------------------------------------------------------------


def test_each_step_is_certified_by_itself(rows, traces):
    run = bounds.over_time(traces, mask="seq_max_k2<=0.005", limit=0.05)
    assert list(run.steps) == ["0", "1", "2", "3"]
    for k, s in enumerate(run.steps.rows.values()):
        mine = bounds.TraceSet.from_records([r for r in rows if r["step"] == k], horizon=64)
        c = bounds.certify(mine, mask="seq_max_k2<=0.005")
        assert run.steps.facts[str(k)] == {"responses": c.responses, "prompts": c.prompts}
        for name in ("kl_seq", "acceptance", "surrogate_gain"):
            assert s[name].value == pytest.approx(c.estimates[name].value, rel=1e-12)
            assert s[name].high == pytest.approx(c.estimates[name].high, rel=1e-12)
        growing = Gain(Summary.of(mine), 0.95).new_prompts(looked_at_again=True)  # a step may grow: no STaR bets
        assert s["improvement"] == growing
        assert growing.low < c.improvement.low < c.improvement.high < growing.high


def test_the_step_where_the_trust_region_was_lost_is_named():
    calm, wild = list(records([2] * 20)), list(records([2] * 20, spread=0.4))
    rows = [{**r, "step": 9} for r in calm] + [{**r, "step": 10} for r in wild] + [{**r, "step": 11} for r in calm]
    run = bounds.over_time(bounds.TraceSet.from_records(rows, horizon=64), limit=0.5)
    assert list(run.steps) == ["9", "10", "11"]
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
    spent = [1.0 - i.confidence for i in run.steps.column("kl_seq")]
    assert spent == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12, 0.05 / 20])
    single = bounds.over_time(traces)
    for a, b in zip(run.steps.rows.values(), single.steps.rows.values(), strict=True):
        assert a["kl_seq"].high > b["kl_seq"].high
        assert a["improvement"].low <= b["improvement"].low


def test_a_log_without_steps_or_rewards(rows):
    bare = [{k: v for k, v in r.items() if k not in ("step",)} for r in rows]
    with pytest.raises(bounds.TraceError, match="names no steps"):
        bounds.over_time(bounds.TraceSet.from_records(bare, horizon=64))
    unrewarded = [{k: v for k, v in r.items() if k != "reward"} for r in rows]
    run = bounds.over_time(bounds.TraceSet.from_records(unrewarded, horizon=64))
    assert run.steps["0"]["improvement"] is None
    assert all("improvement" not in titles for titles, _ in run.tables())


def test_the_figure_of_a_run(traces):
    run = bounds.over_time(traces, limit=1e-6)
    axes = bounds.plot_over_time(run)
    titles = [ax.get_title(loc="left") for ax in axes]
    names = [next(name for name, title in _OF_A_STEP.items() if title == shown) for shown in titles]
    assert names == ["kl_seq", "worst_case_error", "surrogate_gain", "ppl_gap", "improvement"]  # no mask, no acceptance
    for ax, name in zip(axes, names, strict=True):
        line = next(x for x in ax.lines if len(x.get_xdata()) == 4)
        if name != "improvement":  # what is guaranteed is the interval
            assert line.get_ydata().tolist() == run.steps.values(name)
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert band.min() == max(min(i.low for i in run.steps.column(name)), -1.0 if name in _IN_REWARD else -math.inf)
        assert band.max() == min(max(i.high for i in run.steps.column(name)), 1.0 if name in _IN_REWARD else math.inf)
    assert [text.get_text() for text in axes[0].texts if "lost" in text.get_text()] == [f"lost at step {run.lost}"]


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
    for step in run.steps.rows.values():
        assert (step["acceptance"].low, step["acceptance"].high, step["acceptance"].method) == (1.0, 1.0, "no mask")
        assert step["improvement"].low <= step["improvement"].value <= step["improvement"].high
    study = bounds.mask_study(bounds.example_traces())
    (everything,) = (t for t in study.reference if not t.mask)
    assert (everything.acceptance.low, everything.acceptance.high) == (1.0, 1.0)


def test_weights_that_change_within_a_response_are_split_by_token(rows):
    """Each token says which weights drew it: shares by version and by how old it is, against sums over the tokens."""
    rng = np.random.default_rng(8)
    versions = [np.sort(rng.integers(3, 6, len(r["rollout_logprobs"]))) + 10 * (k % 2) for k, r in enumerate(rows)]
    records = [
        {**r, "weight_version": v.tolist(), "step": k % 2} for k, (r, v) in enumerate(zip(rows, versions, strict=True))
    ]
    traces = bounds.TraceSet.from_records(records, horizon=64)
    shown = bounds.explain(traces)
    assert list(shown.splits["weight_version"]) == ["3", "4", "5", "13", "14", "15"]
    assert list(shown.splits["staleness"]) == ["0", "1", "2"]
    k3 = np.expm1(traces.log_ratio) - traces.log_ratio
    weights = 1.0 / np.bincount(traces.prompt)[traces.prompt]
    by_token = np.repeat(weights, traces.lengths) * k3
    old = np.repeat([5 + 10 * (k % 2) for k in range(len(rows))], traces.lengths) - np.concatenate(versions)
    for age in range(3):
        share = shown.splits["staleness"].estimate(str(age), "share").value
        assert share == pytest.approx(by_token[old == age].sum() / by_token.sum(), rel=1e-9)
    texts = [{**r, "weight_version": [f"v{v}" for v in r["weight_version"]]} for r in records]
    named = bounds.explain(bounds.TraceSet.from_records(texts, horizon=64)).splits
    assert "staleness" not in named
    assert list(named["weight_version"]) == ["v3", "v4", "v5", "v13", "v14", "v15"]


def test_versions_by_token_are_read_from_files_as_from_memory(tmp_path):
    record = {
        "rollout_logprobs": [-1.0, -1, -1],
        "train_logprobs": [-1.1, -1, -0.9],
        "weight_version": [1, 1, 2],
        "rank": 3,
    }
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record))
    traces = bounds.read_traces(path, horizon=8)
    assert (traces.versions.tolist(), dict(traces.labels)) == ([1, 1, 2], {"rank": ("3",), "weight_version": ("1-2",)})
    traces.to_parquet(tmp_path / "log.parquet")
    again = bounds.read_traces(tmp_path / "log.parquet")
    assert (again.versions.tolist(), again.labels) == ([1, 1, 2], traces.labels)
    with pytest.raises(bounds.TraceError, match="weight_versions has 2 entries, rollout_logprobs has 3"):
        bounds.TraceSet.from_records([{**record, "weight_version": [1, 2]}])
    masked = bounds.TraceSet.from_records([{**record, "mask": [1, 0, 1]}])
    assert masked.versions.tolist() == [1, 2]
    mixed = [{**record, "prompt_id": 0}, {**record, "prompt_id": 1, "weight_version": 7}]
    assert bounds.TraceSet.from_records(mixed).versions is None


def test_the_largest_log_ratio_of_the_vocabulary_is_read_and_held_against_the_tokens():
    record = {"rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.1, -1.5], "max_log_ratio": [0.3, 0.7]}
    traces = bounds.TraceSet.from_records([record] * 2, horizon=4)
    assert traces.exact["max_log_ratio"].tolist() == [0.3, 0.7] * 2
    summary = Summary.of(traces)
    assert summary["max_log_ratio"].tolist() == [0.7, 0.7]
    assert "max_log_ratio" not in summary.by_position()
    impossible = bounds.TraceSet.from_records([{**record, "max_log_ratio": [0.3, 0.1]}])
    found = bounds.certify(impossible).against("b_star")
    assert "max_log_ratio[1] is 0.1, but the sampled token alone implies at least 0.5" in found.text
    with pytest.raises(bounds.TraceError, match=r"max_log_ratio\[0\] must be a number >= 0, got -1"):
        bounds.TraceSet.from_records([{**record, "max_log_ratio": [-1, 0.7]}])
    said = bounds.certify(traces, assume={"log_ratio_max": 0.6}).findings
    (found,) = (f for f in said if f.kind == "contradiction")
    assert re.search(r"refutes log_ratio_max=0.6: .*max_log_ratio\[1\] is 0.7", found.text)


def test_the_largest_log_ratio_is_held_against_a_cap_on_responses():
    """Both responses have ratio exp(0.4), but one that takes another last token has exp(-0.1 + 0.7)."""
    record = {"rollout_logprobs": [-1.0, -2.0], "train_logprobs": [-1.1, -1.5], "max_log_ratio": [0.3, 0.7]}
    gap = {**record, "max_log_ratio": [0.3, math.inf]}  # roll never draws that token

    def texts(records, cap):
        traces = bounds.TraceSet.from_records(records, horizon=4)
        return " ".join(f.text for f in bounds.certify(traces, assume={"response_ratio_max": cap}).findings)

    refuted = r"refutes response_ratio_max=1.8: .*1: what begins as up to max_log_ratio\[1\] has 1.82212"
    assert re.search(refuted, texts([gap, record], 1.8))
    assert "refutes" not in texts([gap, record], 1.83)
    assert "refutes response_ratio_max=1.48: one response has 1.49182" in texts([gap] * 2, 1.48)


def test_the_worst_tokens_and_responses_are_named_with_their_places(rows):
    texts = [{**r, "tokens": [f" w{t}\n" for t in r["tokens"]]} for r in rows]
    roll = texts[5]["rollout_logprobs"].copy()
    roll[3] -= 6.0
    texts[5] = {**texts[5], "rollout_logprobs": roll}
    shown = bounds.explain(bounds.TraceSet.from_records(texts, horizon=64))
    worst, row = shown.worst_tokens[0], texts[5]
    assert (worst.where, worst.position, worst.token) == ("row 5", 3, row["tokens"][3])
    assert worst.before == tuple(row["tokens"][:3])
    assert worst.rollout_logprob == roll[3]
    assert [t.share for t in shown.worst_tokens] == sorted((t.share for t in shown.worst_tokens), reverse=True)
    response = shown.worst_responses[0]
    d = np.subtract(row["train_logprobs"], roll)
    assert (response.where, response.tokens, response.prompt) == ("row 5", d.size, row["prompt_id"])
    assert response.d["90%"] == pytest.approx(np.percentile(d, 90))
    text = str(shown)
    assert "row 5, 3" in text
    assert f'" w{rows[5]["tokens"][3]}\\n"' in text
    parts = [bounds.TraceSet.from_records(texts[k : k + 4], horizon=64) for k in range(0, len(texts), 4)]
    shares = [t.share for t in bounds.explain(parts).worst_tokens]
    assert shares == pytest.approx([t.share for t in shown.worst_tokens])


def test_model_calls_of_a_response_are_told_apart(rows):
    """A gap in the policy tokens is a turn of the environment; what came after it is another call."""
    records, expected = [], np.zeros(2)
    for r in rows:
        n = len(r["rollout_logprobs"])
        half = n // 2
        mask = [1] * half + [0, 0] + [1] * (n - half) if half else [1] * n
        fill = [0.0, 0.0] if half else []
        columns = {c: [*r[c][:half], *fill, *r[c][half:]] for c in ("rollout_logprobs", "train_logprobs")}
        records.append({"prompt_id": r["prompt_id"], "reward": r["reward"], "mask": mask, **columns})
    traces = bounds.TraceSet.from_records(records, horizon=64)
    shown = bounds.explain(traces).splits["call"]
    weights = np.repeat(1.0 / np.bincount(traces.prompt)[traces.prompt], traces.lengths) * k3(traces.log_ratio)
    for i, (a, b) in enumerate(zip(traces.starts[:-1], traces.starts[1:], strict=True)):
        half = len(rows[i]["rollout_logprobs"]) // 2
        expected += [weights[a : a + half].sum(), weights[a + half : b].sum()] if half else [weights[a:b].sum(), 0.0]
    assert list(shown) == ["0", "1"]
    assert shown.values("share") == pytest.approx((expected / expected.sum()).tolist(), rel=1e-9)
    assert "call" not in bounds.explain(bounds.TraceSet.from_records(rows, horizon=64)).splits


def test_a_checklist_says_what_was_looked_for_and_what_passed(rows, tmp_path):
    def passed(records, **options):
        shown = bounds.explain(bounds.TraceSet.from_records(records, horizon=64, **options))
        return {check.what: check.passed for check in shown.checks}

    assert passed(rows)["mask"] is False  # some of their log-probs are cut at 0
    rows = [{**r, "train_logprobs": np.minimum(r["train_logprobs"], -1e-3)} for r in rows]
    clean = passed(rows)
    assert clean == {"ids": None, "shift": True, "mask": True, "temperature": True, "weights": True, "version": None,
                     "template": True}  # fmt: skip
    first = [{**r, "train_logprobs": [r["train_logprobs"][0] - 9.0, *r["train_logprobs"][1:]]} for r in rows]
    assert passed(first)["template"] is False
    assert passed([{**r, "train_logprobs": r["rollout_logprobs"]} for r in rows])["weights"] is False
    assert passed([{**r, "weight_version": 3} for r in rows])["version"] is True
    assert passed([{**r, "weight_version": k % 2} for k, r in enumerate(rows)])["version"] is False
    halves = [tmp_path / "mu.jsonl", tmp_path / "pi.jsonl"]
    for path, names in zip(halves, (("rollout_logprobs", "prompt_id"), ("train_logprobs",)), strict=True):
        texts = ({n: np.asarray(r[n]).tolist() for n in (*names, "tokens")} for r in rows)
        path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    log = bounds.open_log(halves[0], train=halves[1], horizon=64)
    assert bounds.explain(log).checks[0].passed is True
    assert "parity of" in str(bounds.explain(log))


def test_a_run_adds_up_what_was_promised_and_what_can_be_off():
    run = bounds.over_time(bounds.example_traces("run"))
    for row in run.steps.rows.values():
        assert row["limit_used"].high == pytest.approx(row["kl_seq"].high / run.limit, rel=1e-12)
    for total, name in (("promised_so_far", "surrogate_gain"), ("error_so_far", "worst_case_error")):
        each, sums = run.steps.column(name), run.steps.column(total)
        for end in ("value", "low", "high"):
            np.testing.assert_allclose([getattr(i, end) for i in sums], np.cumsum([getattr(i, end) for i in each]))
    last = run.steps[list(run.steps)[-1]]
    said = next(line for line in run.block() if line.startswith("  ledger"))
    assert f"40 steps promised {near(last['promised_so_far'].value)} in all" in said
    assert f"off by {shown(last['error_so_far'].high)}" in said


def test_a_run_without_rewards_promises_nothing():
    rows = [
        {"prompt_id": f"p{i}", "step": i // 4, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]} for i in range(8)
    ]
    run = bounds.over_time(bounds.TraceSet.from_records(rows, horizon=4))
    assert "promised_so_far" not in run.steps.names
    assert not any(line.startswith("  ledger") for line in run.block())


def test_the_picture_of_a_run_ends_with_what_was_promised(tmp_path):
    run = bounds.over_time(bounds.example_traces("run"))
    frame = with_ledger(over_time_frame(run), run)
    ledger = frame[frame["panel"] == frame["panel"].iloc[-1]]
    assert ledger["value"].tolist() == run.steps.values("promised_so_far")
    ax = draw_ledger_of_steps(ledger, Figure().subplots())
    assert ax.lines[0].get_ydata().tolist() == ledger["value"].tolist()
    assert main(["steps", "--figure", str(tmp_path / "run.svg")]) == 0
    assert (tmp_path / "run.svg").stat().st_size > 5000


def test_many_logs_are_compared_with_the_first(tmp_path, capsys):
    for name, seed in (("a", 0), ("b", 1), ("c", 2)):
        plain = (
            {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in r.items()} for r in records([4] * 6, seed)
        )
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, plain)))
    paths = [str(tmp_path / f"{name}.jsonl") for name in "abc"]
    assert main(["compare", *paths, "--horizon", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["compare", paths[0], paths[2], "--horizon", "64", "--json"]) == 0
    assert found["others"][paths[2]] == json.loads(capsys.readouterr().out)
    assert list(found["others"]) == paths[1:]
    assert main(["compare", *paths, "--horizon", "64", "--figure", str(tmp_path / "differences.svg")]) == 0
    assert capsys.readouterr().out.startswith("COMPARED     the KL of a response is ")
    assert (tmp_path / "differences.svg").stat().st_size > 1000
    assert main(["compare", *paths, "--horizon", "64", "--full"]) == 0
    assert "kl_seq_k1" in capsys.readouterr().out
