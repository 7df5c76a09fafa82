"""The lab in its smallest form: every part against what it claims, and the commands end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bounds
from lab import __main__ as command
from lab import compare as comparison
from lab import figures, guard, guarded_task, tiny
from lab.compare import Preset, calibrate, compare, finished, summary
from lab.methods import METHODS, Batch
from lab.model import KeyValueCache, Shape, engine
from lab.rollout import at, sample, training_law
from lab.task import CHARACTERS, END, Task, decode, encode, is_right, working
from lab.train import (
    Pretraining,
    Run,
    Start,
    Trainer,
    group_advantages,
    log_over_time,
    new_model,
    pretrain,
    score,
    train,
)

LAB = Path(comparison.__file__).parent
TASK, SHAPE = Task(2, 4), Shape(width=16, layers=2)
RUN = Run("trm-avg", 0, steps=4, prompts=3, group=4, rate=1e-2, staleness=2, evaluate=2, held_out=8)


def quiet(text: str) -> None:
    """No progress."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def start():
    torch.manual_seed(0)
    model = new_model(TASK, SHAPE)
    pretrain(TASK, Pretraining(steps=60, rows=16, rate=1e-2, mistakes=0.05), model, quiet)
    plain = Start(model.state_dict(), {}, TASK)
    return replace(plain, thresholds=calibrate(plain, RUN, quiet))


def model_of(start):
    model = new_model(TASK, SHAPE)
    model.load_state_dict(start.base)
    return model


# --- task ----------------------------------------------------------------------------------------------------------


def test_right_working_is_right_and_a_mistake_never_heals():
    rng = np.random.default_rng(0)
    for _ in range(200):
        prompt, result = Task().problem(rng)
        assert len(prompt) == Task().prompt_length
        answer = working(prompt, rng, 0.0)
        assert is_right(answer, result)
        assert 64 <= len(answer) <= Task().horizon
        assert decode(encode(answer)) == answer
        lines = answer[:-1].split(";")
        assert all(eval(line.split("=")[0]) % 7 == int(line[-1]) for line in lines)
        k = int(rng.integers(len(lines)))
        wrong = [*lines[:k], *_from(lines[k:], int(rng.integers(1, 7)))]
        assert not is_right(";".join(wrong) + ".", result)
    assert not is_right("3+5=1", 1)


def _from(lines, offset):
    """The same operations after a first result that is off."""
    value = (int(lines[0][-1]) + offset) % 7
    out = [lines[0][:-1] + str(value)]
    for line in lines[1:]:
        value, head = eval(f"{value}{line[1:3]}") % 7, f"{value}{line[1:4]}"
        out.append(head + str(value))
    return out


def test_the_text_has_mistakes_at_the_rate_that_is_asked_for():
    rng = np.random.default_rng(0)
    lines = [x for _ in range(300) for x in working(Task().problem(rng)[0], rng, 0.1)[:-1].split(";")]
    wrong = np.mean([eval(x.split("=")[0]) % 7 != int(x[-1]) for x in lines])
    assert abs(wrong - 0.1) < 4 * np.sqrt(0.09 / len(lines))


# --- engine and rollouts -------------------------------------------------------------------------------------------


def test_the_cache_changes_nothing_but_rounding(start):
    model = model_of(start)
    tokens = torch.randint(0, len(CHARACTERS), (3, 15), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model(tokens)
        cache = KeyValueCache(model, 3)
        parts = [model(tokens[:, :6], cache), *(model(tokens[:, k : k + 1], cache) for k in range(6, 15))]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)


def test_engines_are_close_copies_in_their_precision(start):
    model = model_of(start)
    distances = []
    for precision in ("float32", "bfloat16", "int8"):
        drawn = sample(engine(model, precision), TASK, np.random.default_rng(0), prompts=16, group=2)
        with torch.no_grad():
            law = training_law(model, drawn)
        distances.append((law - drawn.log_law)[drawn.mask].abs().max().item())
    assert distances[0] < 1e-4
    assert 1e-4 < distances[1] < distances[2] < 2
    with pytest.raises(ValueError, match="precision must be float32, bfloat16 or int8"):
        engine(model, "fp4")


def test_a_rollout_is_drawn_from_the_law_that_it_reports(start):
    """Every reported row is a distribution, and the sampled tokens' frequencies agree with it."""
    drawn = sample(engine(model_of(start), "bfloat16"), TASK, np.random.default_rng(1), prompts=400, group=1)
    assert torch.allclose(drawn.log_law.exp().sum(-1), torch.ones(1), atol=1e-5)
    law = drawn.log_law.exp()
    hot = torch.nn.functional.one_hot(drawn.tokens, law.shape[-1])
    excess = ((hot - law) * drawn.mask[..., None]).sum((0, 1))
    spread = ((law * (1 - law)) * drawn.mask[..., None]).sum((0, 1)).sqrt()
    assert (excess.abs() <= 4.5 * spread + 1e-3).all()
    for row, keep, prompt, reward in zip(drawn.tokens, drawn.mask, drawn.prompts, drawn.rewards, strict=True):
        answer = decode(row[keep])
        assert "." not in answer[:-1]
        value = eval_chain(decode(prompt))
        assert reward == float(is_right(answer, value))
    assert 0 < drawn.rewards.mean() < 1


def eval_chain(prompt):
    text = prompt.rstrip(" :")
    value = int(text[0])
    for k in range(1, len(text), 2):
        value = eval(f"{value}{text[k : k + 2]}") % 7
    return value


def test_a_threshold_is_a_quantile_of_the_calibration_run(start, monkeypatch):
    assert start.thresholds["horizon"] == TASK.horizon
    monkeypatch.setattr(comparison, "QUANTILE", 1.0)
    largest = calibrate(start, RUN, quiet)
    monkeypatch.setattr(comparison, "QUANTILE", 0.0)
    smallest = calibrate(start, RUN, quiet)
    for name in ("seq_max_k2", "seq_mean_k3", "ser", "ln_trm"):
        assert smallest[name] < start.thresholds[name] < largest[name]
    trainer = Trainer(
        replace(RUN, method="trm-max", seed=comparison.CALIBRATION_SEED), replace(start, thresholds=largest)
    )
    assert [trainer.advance()["acceptance"] for _ in range(2)] == [1.0, 1.0]


# --- methods and training ------------------------------------------------------------------------------------------


def test_advantages_are_group_normalised():
    found = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]), 4)
    assert found[:4].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-4)
    assert found[4:].tolist() == [0.0] * 4


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(0)
    roll = -torch.rand(6, 5, generator=g)
    train_ = (roll + 0.4 * torch.randn(6, 5, generator=g)).requires_grad_()
    return Batch(roll, train_, torch.ones(6, 5, dtype=torch.bool), torch.randn(6, generator=g))


def gradient(batch, name, keep=None):
    keep = torch.ones(6, dtype=torch.bool) if keep is None else keep
    return torch.autograd.grad(METHODS[name].loss(batch, keep), batch.train)[0]


def test_gradients_of_the_unmasked_methods(batch):
    rho, advantage = (batch.train - batch.rollout).exp().detach(), batch.advantages[:, None]
    assert torch.allclose(gradient(batch, "none"), -advantage.expand(6, 5) / 6)
    assert torch.allclose(gradient(batch, "token-is"), -advantage * rho / 6)
    stopped = ((advantage > 0) & (rho > 1.28)) | ((advantage < 0) & (rho < 0.8))
    assert 0 < stopped.sum() < 30
    assert torch.allclose(gradient(batch, "clip"), torch.where(stopped, 0.0, -advantage * rho / 6))


def test_masked_methods_keep_what_their_rule_keeps(batch):
    thresholds = {"seq_max_k2": 0.1, "seq_mean_k3": 0.06, "ser": 0.3, "ln_trm": 0.3}
    thresholds |= {"epsilon": 0.1, "delta": 0.1, "horizon": 5}
    everything = torch.ones(6, dtype=torch.bool)
    for name in ("trm-max", "trm-avg", "trm-both", "ln-trm", "ser"):
        keep = METHODS[name].keep(batch, thresholds)
        assert 0 < keep.sum() < 6, name
        found = gradient(batch, name, keep)
        assert torch.equal(found, torch.where(keep[:, None], gradient(batch, "token-is", everything), 0.0))
    both = METHODS["trm-both"].keep(batch, {**thresholds, "seq_max_k2": 0.05, "seq_mean_k3": 0.03})
    assert torch.equal(both, METHODS["trm-max"].keep(batch, thresholds) & METHODS["trm-avg"].keep(batch, thresholds))


def test_rollouts_are_as_stale_as_said(start):
    trainer = Trainer(RUN, start)
    weights = [trainer.model.head.bias.detach().clone()]
    for _ in range(4):
        trainer.advance()
        weights.append(trainer.model.head.bias.detach().clone())
    assert torch.equal(trainer.past[0]["head.bias"], weights[4 - RUN.staleness])
    assert torch.equal(trainer.past[-1]["head.bias"], weights[4])


def test_rollouts_come_from_the_stale_weights(start):
    trainer = Trainer(replace(RUN, precision="float32"), start)
    for _ in range(4):
        trainer.advance()
    drawn = trainer.rollout(np.random.default_rng(0), 4, 2)
    stale = new_model(TASK, SHAPE)
    stale.load_state_dict(trainer.past[0])
    with torch.no_grad():
        distances = [(training_law(m, drawn) - drawn.log_law)[drawn.mask].abs().max() for m in (stale, trainer.model)]
    assert distances[0] < 1e-4 < 1e-2 < distances[1]


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(start, tmp_path):
    run = replace(RUN, steps=12)
    whole = train(Trainer(run, start), tmp_path / "whole", quiet)
    told = []

    def stop(text):
        told.append(text)
        if len(told) == 11:  # one step after the checkpoint, whose row must be dropped and made again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Trainer(run, start), tmp_path / "parts", stop)
    resumed = train(Trainer(run, start), tmp_path / "parts", told.append)
    assert resumed == whole
    assert len(told) == 13
    assert "step 11/12" in told[10]
    assert "step 11/12" in told[11]
    with pytest.raises(ValueError, match="is of another run"):
        train(Trainer(replace(run, rate=1.0), start), tmp_path / "parts", quiet)


def test_training_unlearns_the_mistakes_of_the_text():
    """One line with a mistake in 30 % of the text: the base policy has learned them, and a short run drops them."""
    task = Task(2, 2)
    torch.manual_seed(0)
    model = new_model(task, Shape(width=32, layers=2))
    pretrain(task, Pretraining(steps=500, rows=64, rate=5e-3, mistakes=0.3), model, quiet)
    before = score(model, task, 400)
    trainer = Trainer(
        replace(RUN, method="token-is", steps=30, prompts=16, group=8, rate=1e-3), Start(model.state_dict(), {}, task)
    )
    while trainer.step < 30:
        trainer.advance()
    assert 0.4 < before < 0.8
    assert score(trainer.model, task, 400) > before + 0.1


def test_the_log_of_a_run_is_certified(start, tmp_path):
    trainer = Trainer(RUN, start)
    for _ in range(3):
        trainer.advance()
    trainer.log(tmp_path / "logs" / "one.parquet")
    traces = bounds.read_traces(tmp_path / "logs" / "one.parquet")
    assert (len(traces), traces.horizon) == (128, TASK.horizon)
    found = bounds.certify(traces, assume={"absolutely_continuous": True})
    assert found.estimates["kl_seq"].value > 0
    assert found.best.name in ("trajectory_kl", "trajectory_tv", "first_order", "cauchy_schwarz")


def test_the_log_of_a_run_has_its_steps_and_is_of_that_run(start, tmp_path):
    """Step by step the weights of a training run, scored on prompts of their own; exact columns are left out."""
    log_over_time(RUN, start, tmp_path / "run.parquet", 2, quiet)
    traces = bounds.read_traces(tmp_path / "run.parquet")
    assert traces.horizon == TASK.horizon
    assert traces.exact == {}
    run = bounds.over_time(traces)
    assert {step: dict(run.steps.facts_of(step)) for step in run.steps} == {
        str(k): {"responses": 48, "prompts": 24} for k in (0, 2, 4)
    }
    trainer = Trainer(RUN, start)
    for _ in range(2):
        trainer.advance()
    fresh = trainer.records(24, 2, draw=10**6 + 2)
    here = traces.select(np.array(traces.labels["step"]) == "2")
    wanted = np.concatenate([np.array(r["train_logprobs"])[np.array(r["mask"], dtype=bool)] for r in fresh])
    np.testing.assert_allclose(here.train, wanted, rtol=1e-6)
    assert command.main(["train", "--log", str(tmp_path / "no" / "x"), "--base", str(tmp_path / "missing.pt")]) == 2


def test_a_comparison_its_table_and_its_figures(start, tmp_path):
    preset = Preset(("token-is", "clip", "trm-avg"), (0, 1), RUN)
    rows = compare(preset, start, tmp_path / "runs", quiet, logs=tmp_path / "logs")
    assert len(rows) == 3 * 2 * RUN.steps
    assert sorted(p.stem for p in (tmp_path / "logs").iterdir()) == ["clip", "token-is", "trm-avg"]
    again = compare(preset, start, tmp_path / "runs", pytest.fail)  # everything is done: no step, no progress
    pd.testing.assert_frame_equal(rows, again)
    (tmp_path / "runs" / "clip-1" / "metrics.jsonl").write_text("")
    assert len(finished(tmp_path / "runs", preset)) == 5 * RUN.steps
    table = summary(rows)
    part = rows[(rows["method"] == "clip") & (rows["step"] > 2)]
    row = table[table["method"] == "clip"].iloc[0]
    assert row["log_ppl_abs_diff"] == pytest.approx(part.groupby("seed")["log_ppl_abs_diff"].mean().mean())
    last = rows[rows["step"] == 4].pivot(index="seed", columns="method", values="score")
    assert row["gain"] == pytest.approx((last["clip"] - last["token-is"]).mean())
    assert row["score"] == pytest.approx(part[part["step"] == 4]["score"].mean())
    assert "PPO clip [0.8, 1.28] | 2 |" in comparison.as_text(table)
    paths = figures.write_experiment(rows, tmp_path / "figures")
    assert {p.name for p in paths} >= {"experiment_score.png", "experiment_ppl_gap.pdf", "experiment_ppl_gap.csv"}
    drawn = pd.read_csv(tmp_path / "figures" / "experiment_score.csv")
    assert set(drawn["method"]) == {"token-is", "clip", "trm-avg"}
    assert (drawn["least"] <= drawn["mean"]).all()


# --- the enumerated problem ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def enumerated():
    return tiny.run_steps(tiny.TinyRun(steps=24, prompts=64, seed=3), quiet)


def test_every_bound_lies_above_the_truth_at_every_step(enumerated):
    bounds_ = [c for c in enumerated if c.startswith("bound ")]
    assert len(bounds_) == len(bounds.RULES) + 2
    for column in bounds_:
        assert (enumerated[column] >= enumerated["error"].abs()).all(), column
        assert (enumerated[column] >= enumerated["worst_case_error"]).all(), column
    assert (enumerated["worst_case_error"] >= enumerated["error"].abs()).all()
    assert enumerated["error"].abs().max() > 1e-4
    assert enumerated["J_theta"].iloc[-1] > enumerated["J_theta"].iloc[0] + 0.2


@pytest.mark.parametrize("target", ["improvement", "these_prompts"])
def test_the_certificate_holds_the_truth(enumerated, target):
    """At 95 % for each step; that 24 intervals miss more than 5 times has probability below 1e-3 then."""
    assert (~figures.covered(enumerated, target)).sum() <= 5
    width = enumerated[f"{target}_high"] - enumerated[f"{target}_low"]
    assert width.max() < 1.0
    assert width.min() < 0.2
    assert enumerated[target].max() > 0.02


def test_enumeration_agrees_with_sampling():
    torch.manual_seed(0)
    theta, run = tiny.Policy(), tiny.TinyRun(prompts=4000, group=1)
    drawn = tiny.sample(theta, np.random.default_rng(0), run)
    truth = tiny.enumerate_truth(theta, theta)
    assert abs(drawn.rewards.mean() - truth["J_roll"]) < 4 * np.sqrt(0.25 / 4000)
    assert abs(drawn.mask.sum(1).double().mean().item() - truth["mean_length"]) < 0.15
    assert truth["error"] == truth["worst_case_error"] == 0.0


# --- guarded runs of it --------------------------------------------------------------------------------------------


def test_a_sum_over_states_is_one_over_responses():
    torch.manual_seed(1)
    policy = tiny.Policy()
    layers = policy.layers[0].weight.T, policy.layers[0].bias, policy.layers[2].weight.T, policy.layers[2].bias
    log_law = guard.law([x.detach().double()[None] for x in layers])
    assert guard.objective(log_law).item() == pytest.approx(tiny.enumerate_truth(policy, policy)["J_theta"], rel=1e-6)
    drawn = guard.draw(log_law, 4000, 1, np.random.default_rng(0))
    assert abs(drawn.rewards.mean() - guard.objective(log_law)) < 4 * np.sqrt(0.25 / 4000)


def test_certified_steps_harm_as_rarely_as_said_and_others_do_not():
    """The study of README in small: of runs in which two of five steps harm."""
    rows = {}
    for mode in ("certify", "report"):
        settings = replace(guard.STUDIES["alpha"][0], mode=mode, runs=16, steps=4)
        rows[mode] = guard.summary(settings, guard.simulate(settings, quiet))
    assert rows["certify"]["p_value"] > 1e-3
    assert rows["certify"]["kept"] > 0.1
    assert rows["report"]["p_value"] < 1e-6
    assert rows["report"]["harmful"] > 0.1


def test_where_an_unguarded_run_collapses_a_guarded_one_goes_on():
    unguarded, *_, certified = guard.STUDIES["collapse"]
    guarded = guard.STUDIES["collapse"][2]
    ends = {}
    for settings in (unguarded, guarded, certified):
        short = replace(settings, runs=5, steps=6)
        found = guard.summary(short, guard.simulate(short, quiet))
        ends[settings] = found["J_last"] - found["J_first"]
    assert ends[unguarded] < -0.1
    assert ends[guarded] > 0.05
    assert ends[certified] >= 0.0


def test_the_tables_of_guarded_runs_are_the_committed_ones():
    table = pd.read_csv(LAB / "results" / "guard.csv")
    text = (LAB / "README.md").read_text(encoding="utf-8")
    for name, kinds in guard.STUDIES.items():
        part = table[table["study"] == name]
        assert guard.as_text(table, name) in text
        for column, field in (("mode", "mode"), ("held_out", "held"), ("runs", "runs"), ("steps", "steps")):
            assert part[column].tolist() == [getattr(kind, field) for kind in kinds]
    certified = table[table["mode"] == "certify"]
    assert (certified["p_value"] > 0.01).all()


# --- guarded runs of the arithmetic task ------------------------------------------------------------------------------


def test_guarded_runs_of_the_task(start, tmp_path):
    run = replace(RUN, method="token-is", staleness=0, steps=2, evaluate=99, held_out=40, rate=0.05)
    path = tmp_path / "rows.csv"
    rows = guarded_task.runs(run, start, guarded_task.KINDS, range(1), path, quiet)
    by_kind = dict(list(rows.groupby("kind")))
    assert {name: len(part) for name, part in by_kind.items()} == {kind.name: 2 for kind in guarded_task.KINDS}
    first = rows[rows["step"] == 1].pivot(index="seed", columns="kind", values="whole")
    assert (first.sub(first["no guard"], axis=0) == 0).all(
        axis=None
    )  # a seed takes the same first step, whoever judges
    assert (by_kind["no guard"]["kept"] == 1).all()
    assert (by_kind["guard, 0.05 nats"]["kept"] < 1).all()
    refused = by_kind["certify"]  # 16 prompts show nothing
    assert (refused[["kept", "change"]] == 0).all(axis=None)
    assert (refused["score"] == refused["first"]).all()
    budget = by_kind["budget of D"].set_index(["seed", "step"])["rate"].unstack()
    assert (budget[1] == run.rate).all()
    assert (budget[2] < run.rate).all()  # D is far above what L' pays for
    guarded_task.runs(run, start, guarded_task.KINDS, range(1), path, pytest.fail)  # everything is done
    told = guarded_task.summary(rows).set_index("kind")
    assert told["score"]["certify"] == told["first"]["certify"] == refused["first"].mean()
    assert told["harm_kept"]["certify"] == 0
    assert (told["harm_kept"] == told["harmful"])["no guard"]


def test_the_table_of_guarded_runs_of_the_task_is_the_committed_one():
    rows = pd.read_csv(LAB / "results" / "guarded-task.csv")
    text = (LAB / "README.md").read_text(encoding="utf-8")
    assert guarded_task.as_text(rows) in text
    assert set(rows["kind"]) <= {kind.name for kind in guarded_task.KINDS}


def test_the_table_of_methods_in_a_real_engine_is_the_committed_one():
    rows = pd.read_csv(LAB / "results" / "real-engine.csv")
    text = (LAB / "README.md").read_text(encoding="utf-8")
    assert comparison.as_text(summary(rows), comparison.IN_TRL) in text
    assert rows.groupby(["method", "seed"])["step"].max().eq(40).all()


# --- commands ------------------------------------------------------------------------------------------------------


def test_the_commands(start, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "THRESHOLDS", tmp_path / "thresholds.json")
    monkeypatch.setattr(comparison, "PRESETS", {"quick": Preset(("clip", "trm-max"), (0, 1), RUN)})
    monkeypatch.setattr(comparison, "shipped", lambda base: start)
    (tmp_path / "thresholds.json").write_text(json.dumps(start.thresholds))
    common = ["--folder", str(tmp_path / "runs"), "--figures", str(tmp_path / "figures")]
    assert command.main(["compare", *common, "--out", str(tmp_path / "out")]) == 0
    assert "| TRM-Max | 2 |" in capsys.readouterr().out
    assert len(pd.read_parquet(tmp_path / "out" / "metrics.parquet")) == 4 * (1 + RUN.steps)
    again = ["compare", *common, "--out", str(tmp_path / "again"), "--finished"]
    assert command.main(again) == 0
    texts = [(tmp_path / k / "summary.csv").read_text() for k in ("out", "again")]
    assert texts[0] == texts[1]
    assert command.main(["tiny", *common, "--steps", "2", "--prompts", "8"]) == 0
    assert (tmp_path / "figures" / "bound_vs_truth.png").exists()
    assert command.main(["guard", *common, "--out", str(tmp_path / "out"), "--scale", "0.002"]) == 0
    assert "| certify |" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "out" / "guard.csv")) == sum(map(len, guard.STUDIES.values()))
    options = ["--method", "ser", "--steps", "2", "--prompts", "2", "--group", "2", "--held-out", "4"]
    assert command.main(["train", *common, *options]) == 0
    assert "after 2 steps" in capsys.readouterr().out
    assert command.main(["train", *common, *options, "--rate", "1"]) == 2
    assert "is of another run" in capsys.readouterr().err


def test_weights_ship_in_half_the_bytes(start, tmp_path):
    comparison.save_base(start.base, tmp_path / "base.pt")
    loaded = comparison.load_base(tmp_path / "base.pt")
    assert loaded.keys() == start.base.keys()
    assert all(torch.allclose(loaded[n], v, rtol=1e-2, atol=1e-6) for n, v in start.base.items())
    assert CHARACTERS.index(".") == END
    assert at(torch.arange(6.0).view(1, 2, 3), torch.tensor([[2, 0]])).tolist() == [[2.0, 3.0]]


# --- what is committed ---------------------------------------------------------------------------------------------


def test_the_table_of_the_readme_is_the_committed_one():
    """Made by the commands that the README names, from runs at the shipped settings."""
    table = pd.read_csv(LAB / "results" / "summary.csv")
    assert comparison.as_text(table) in (LAB / "README.md").read_text(encoding="utf-8")
    rows = pd.read_parquet(LAB / "results" / "metrics.parquet")
    pd.testing.assert_frame_equal(summary(rows), table, rtol=1e-5)
    preset = comparison.PRESETS["full"]
    assert set(rows["method"]) == set(METHODS)
    assert (rows.groupby(["method", "seed"])["step"].max() == preset.run.steps).all()
    assert comparison.CALIBRATION_SEED not in set(rows["seed"])


@pytest.mark.parametrize("method", METHODS)
def test_the_committed_logs_can_be_certified(method):
    path = LAB / "logs" / f"{method}.parquet"
    assert path.stat().st_size < 300_000
    found = bounds.certify(bounds.read_traces(path))
    rules = {b.name for b in found.table.bounds}
    assert rules >= {"trajectory_kl", "trajectory_tv", "cauchy_schwarz", "first_order"}
    assert found.improvement.low < found.improvement.high
    assert not any("may be off by one" in w for w in found.warnings)


def test_a_committed_run_is_what_the_code_does():
    """The first two steps again, from the shipped weights: as good as equal, on whatever machine this is."""
    rows = pd.read_parquet(LAB / "results" / "metrics.parquet")
    trainer = Trainer(Run("trm-avg", 0), comparison.shipped())
    expected = rows[(rows["method"] == "trm-avg") & (rows["seed"] == 0) & rows["step"].between(1, 2)]
    for row in expected.to_dict("records"):
        seen = trainer.advance()
        assert seen["kl_seq"] == pytest.approx(row["kl_seq"], rel=0.5)
        assert seen["log_ppl_abs_diff"] == pytest.approx(row["log_ppl_abs_diff"], rel=0.5)


def test_the_experiment_s_figures_are_those_of_the_committed_results(tmp_path):
    rows = pd.read_parquet(LAB / "results" / "metrics.parquet")
    for path in figures.write_experiment(rows, tmp_path):
        kept = LAB.parent / "figures" / path.name
        assert kept.exists()
        if path.suffix == ".csv":
            pd.testing.assert_frame_equal(pd.read_csv(kept), pd.read_csv(path), rtol=1e-9)
