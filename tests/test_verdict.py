"""The answer first: verdicts, what they say, what to do, in a few lines and in JSON."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import bounds
from bounds.certificate.findings import Kind
from bounds.certificate.verdict import _BROKEN, Word, in_one_line
from bounds.cli.main import main


def rows(prompts=60, group=4, tilt=0.0, seed=1, noise=0.01, prefers=1.0, reward=None):
    """Responses of four tokens; theta raises those whose reward is ``prefers``, and lowers the others."""
    rng = np.random.default_rng(seed)
    for i in range(prompts):
        for _ in range(group):
            right = float(rng.random() < 0.5) if reward is None else reward
            roll = -4.0 - rng.exponential(1.0, 4)
            d = rng.normal(-(noise**2) / 2, noise, 4)
            d[-1] += np.log(1.0 + (tilt if right == prefers else -tilt))
            row = {"prompt_id": f"p{i}", "rollout_logprobs": roll.tolist(), "train_logprobs": (roll + d).tolist()}
            yield row if reward is None and prefers is None else {**row, "reward": right}


def log(policy="held-out", **options):
    return bounds.TraceSet.from_records(rows(**options), horizon=4, train_policy=policy)


CASES = {
    Word.IMPROVES: log(tilt=0.15, prompts=300),
    Word.HARMS: log(tilt=0.15, prompts=300, prefers=0.0),
    Word.LIKELY_IMPROVES: log(tilt=0.02),
    Word.LIKELY_HARMS: log(tilt=0.02, prefers=0.0),
    Word.UNDECIDED: bounds.example_traces(),
    Word.NO_REWARDS: log(prefers=None),
    Word.NOTHING_MEASURED: bounds.TraceSet.from_records(
        ({**r, "train_logprobs": r["rollout_logprobs"]} for r in rows()), horizon=4
    ),
}
NUMBER = r"[0-9.e-]+"
SAID = {
    Word.IMPROVES: rf"the mean reward rises by {NUMBER} to {NUMBER} \(updated policy, on prompts that it did not learn",
    Word.HARMS: rf"the mean reward falls by {NUMBER} to {NUMBER} \(updated policy",
    Word.LIKELY_IMPROVES: rf"the mean reward probably rises by {NUMBER} to {NUMBER} \(estimate at 95%, not g",
    Word.LIKELY_HARMS: rf"the mean reward probably falls by {NUMBER} to {NUMBER} \(estimate",
    Word.UNDECIDED: r"the mean reward may fall by 0.15 or rise by 0.175 \(policy before this update, against its sampl",
    Word.NO_REWARDS: r"how far the surrogate can be off is all that can be said \(updated policy",
    Word.NOTHING_MEASURED: r"both policies' log-probs are the same numbers",
}
TO_DO = {
    Word.IMPROVES: r"keep the step; its error is at most 1/\d+ of its promise \(estimate\)",
    Word.HARMS: r"do not keep this step: go back to the weights that sampled",
    Word.LIKELY_IMPROVES: r"score about [0-9,]+ prompts like these: 60 are too few",
    Word.LIKELY_HARMS: r"score about [0-9,]+ prompts like these: 60 are too few",
    Word.UNDECIDED: r"score about 890 prompts: 24 leave even the promise's sign open",
    Word.NO_REWARDS: r"log the rewards, to learn whether the step helps",
    Word.NOTHING_MEASURED: r"log what the training engine computes: trm-bounds formats --recipe verl",
}


@pytest.mark.parametrize("word", CASES, ids=str)
def test_every_verdict(word):
    c = bounds.certify(CASES[word])
    v = c.verdict
    assert v.word is word
    assert re.match(SAID[word], v.sentence)
    assert re.fullmatch(TO_DO[word], v.action)
    lines = c.block()
    assert lines[0].startswith(f"{word.sign} {word}  ")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 15
    labels = [line[2:12].strip() for line in lines[1:] if line[2] != " "]
    assert labels[-1] == "rests on"
    assert v.action.split()[0] in " ".join(lines[:5]).partition(" to do ")[2]  # in what head -5 shows
    assert ("surrogate" in labels) is (v.surrogate is not None) is (word is not Word.NOTHING_MEASURED)
    assert ("why" in labels) is (word is Word.NOTHING_MEASURED)
    assert " ".join(" ".join(lines).split()).count(v.action) == 1


def test_a_looser_threshold_is_offered_for_later_steps_where_a_mask_keeps_little():
    traces = bounds.example_traces()
    v = bounds.certify(traces, mask="seq_max_k2<=1e-6").verdict
    rule = re.search(
        r"the mask keeps 0%, (seq_max_k2<=\S+) would keep about half \(for later steps only: chosen on", v.action
    )
    assert 0.4 < bounds.certify(traces, mask=rule[1]).mask.acceptance.value < 0.6
    assert "later steps" not in bounds.certify(traces, mask="seq_max_k2<=0.05").verdict.action


def test_what_refutes_a_log_is_said_before_what_only_closes_it():
    """Forced tokens close a guarantee, another base refutes the log; that nobody logged rewards is not so."""
    several = list(rows(prompts=100, noise=0.05))
    for row in several:
        row["rollout_logprobs"] = (np.array(row["rollout_logprobs"]) / np.log(2.0)).tolist()
        row["train_logprobs"][0] = 0.0
    v = bounds.certify(bounds.TraceSet.from_records(several, horizon=4, train_policy="held-out")).verdict
    assert v.word is Word.NOTHING_MEASURED
    assert "reward" not in v.action


@pytest.mark.parametrize("word", CASES, ids=str)
def test_in_json_and_in_one_line(word):
    c = bounds.certify(CASES[word])
    found = json.loads(c.to_json())
    assert found["schema_version"] == 1
    assert set(found["verdict"]) == {"word", "sentence", "action", "policy", "surrogate"}
    assert (found["verdict"]["word"], found["verdict"]["policy"]) == (str(word), c.train_policy)
    if found["verdict"]["surrogate"]:
        assert found["verdict"]["surrogate"] == {"word": "TIGHT", "value": c.best.value, "upper": c.best_upper.value}
    line = in_one_line(c)
    assert line.startswith(f"{word} ")
    assert "\n" not in line
    if c.improvement is not None:
        low, high = (float(x) for x in re.findall(r"[-+][0-9.e-]+", line)[:2])
        assert low <= c.improvement.low < c.improvement.high <= high
        assert line.endswith(f"guaranteed 95% {c.prompts} prompts")


def test_the_numbers_are_on_the_safe_side():
    for word in (Word.IMPROVES, Word.HARMS, Word.UNDECIDED):
        c = bounds.certify(CASES[word])
        low, high = sorted(abs(x) for x in (c.improvement.low, c.improvement.high))
        said = sorted(map(float, re.findall(r"(?:by|to) ([0-9.]+)", c.verdict.sentence)))
        assert len(said) == 2
        assert said[1] >= high
        assert said[0] >= low if word is Word.UNDECIDED else said[0] <= low


def test_which_policy_is_compared_is_in_the_first_line():
    c = bounds.certify(CASES[Word.IMPROVES], train_policy="unknown")
    assert c.verdict.sentence.endswith(", if the training policy did not learn from these responses")
    assert c.verdict.action.startswith("say how the training policy relates to these responses: --train-policy")
    text = " ".join(" ".join(c.block()).split())
    assert "sure at 95% for prompts like these 300 (1200 responses), under 2 assumptions" in text
    assert in_one_line(c).endswith("assumed 95% 300 prompts")
    c = bounds.certify(CASES[Word.HARMS], train_policy="before-update")
    assert c.verdict.sentence.endswith("(policy before this update, against its sampler)")
    assert c.verdict.action.startswith("sync the weights before training on")


def test_the_surrogate_in_units_of_the_range():
    tight, lost = log(noise=0.01), log(noise=0.9)
    assert bounds.certify(tight).verdict.surrogate.word == "TIGHT"
    c = bounds.certify(lost)
    assert (c.verdict.surrogate.word, c.verdict.surrogate.upper > 1.0) == ("LOST", True)
    assert "so it says nothing" in " ".join(" ".join(c.block()).split())
    wide = bounds.TraceSet.from_records(
        ({**r, "reward": 10.0 * r["reward"]} for r in rows(noise=0.1)), horizon=4, reward_range=(0.0, 10.0)
    )
    c = bounds.certify(wide)
    assert c.verdict.surrogate.upper == c.best_upper.value / 10.0


def test_a_lower_kl_is_advised_only_where_the_promise_has_a_sign():
    """And never more prompts than fifty times the log."""
    for seed in range(4):
        c = bounds.certify(log(tilt=0.05, noise=0.4, seed=seed))
        gain, v = c.estimates["surrogate_gain"], c.verdict
        if "lower the KL of a response" in v.action:
            assert not gain.low <= 0.0 <= gain.high
    c = bounds.certify(log(noise=0.001, seed=2))
    assert c.verdict.action.startswith("judge it by an evaluation: 3,000 prompts would not show a change this small")
    c = bounds.certify(log(tilt=0.06, noise=0.2, prompts=200))
    gain, kl = c.estimates["surrogate_gain"], c.estimates["kl_seq"]
    assert 0.0 < gain.low < gain.value < kl.value
    assert c.verdict.action.startswith("lower the KL of a response (kl_seq) below ")


def test_what_speaks_against_the_hypotheses_comes_first():
    centred = ({**r, "reward": (-1.0) ** k} for k, r in enumerate(rows()))
    c = bounds.certify(bounds.TraceSet.from_records(centred, horizon=4, reward_range=(-9, 9), train_policy="held-out"))
    assert c.verdict.word is Word.UNDECIDED
    assert c.verdict.sentence == "the log speaks against what a guarantee rests on (advantages)"
    text = " ".join(" ".join(c.block()).split())
    assert "promises" not in text
    assert "sure nothing, while that stands" in text
    assert "look at which field the export takes for the reward" in text
    assert in_one_line(c) == "UNDECIDED advantages"


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_the_block_or_all_or_one_line(capsys):
    c = bounds.certify(bounds.example_traces())
    embedded = "no PATH: this is the embedded log example.parquet\n"
    assert run(capsys, "certify") == (0, "\n".join(c.block()) + "\n", embedded)
    code, full, err = run(capsys, "certify", "--full")
    assert (code, err) == (0, embedded)
    assert full.startswith("\n".join(c.block()))
    assert "trajectory_kl" in full
    assert run(capsys, "certify", "--quiet") == (0, "UNDECIDED -0.15 +0.175 guaranteed 95% 24 prompts\n", embedded)
    assert json.loads(run(capsys, "certify", "--json")[1])["verdict"]["word"] == "UNDECIDED"


def test_warnings_and_requirements_stand_with_the_answer(capsys, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows(prompts=24)))
    code, out, err = run(capsys, "certify", path, "--require", "b_star<=1")
    assert (code, err) == (0, "")
    assert re.search(r"\d warnings, the gravest: \w", " ".join(out.split()))
    assert out.splitlines()[-1].startswith("required: b_star<=1 holds: ")
    code, out, err = run(capsys, "certify", path, "--quiet", "--require", "improvement>=0")
    assert (code, out.count("\n")) == (3, 1)
    assert err.startswith("required: improvement>=0 is undecided: nobody says whether theta learned")


def test_what_measures_nothing_says_what_is_wrong():
    assert set(_BROKEN) == {kind for kind in Kind if kind.refutes}


def test_rows_in_another_order_are_called_so_first():
    some = [{**row, "rollout_logprobs": (noise := -1.0 - np.random.default_rng(k).exponential(1.0, 40)).tolist(),
             "train_logprobs": (noise + 0.01).tolist()} for k, row in enumerate(rows())]  # fmt: skip
    for row, other in zip(some, [dict(row) for row in reversed(some)], strict=True):
        row["train_logprobs"] = other["train_logprobs"]
    certificate = bounds.certify(bounds.TraceSet.from_records(some, horizon=40))
    assert certificate.findings[0].kind is Kind.SWAPPED
    assert certificate.verdict.sentence == "the log is broken: train_logprobs are of other responses"
    assert certificate.verdict.action.startswith("look at the order of rows in the export")
