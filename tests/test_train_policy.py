"""Which policy theta is: what was said of it and where, what it withholds; prompts set aside before a training."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import writers

import bounds
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.logs.split import split
from bounds.results import Standing


def rows(prompts=60, group=4, **fields):
    """Responses of which theta prefers the right ones: an improvement is guaranteed."""
    rng = np.random.default_rng(3)
    for i in range(prompts):
        for k in range(group):
            right = float(rng.random() < 0.5)
            roll = -1.0 - rng.exponential(1.0, 3)
            d = rng.normal(0.0, 0.01, 3) + np.array([0.0, 0.0, 0.4 if right else -0.6])
            row = {"prompt_id": f"p{i}", "reward": right, "rollout_logprobs": roll, "train_logprobs": roll + d}
            yield {**row, **{name: value(i, k) for name, value in fields.items()}}


def log(policy=None, **fields):
    return bounds.TraceSet.from_records(rows(**fields), horizon=8, train_policy=policy)


@pytest.mark.parametrize(
    ("policy", "standing"),
    [("before-update", Standing.MEASURED), ("held-out", Standing.MEASURED), ("unknown", Standing.ASSUMED)],
)
def test_what_was_said_of_it_and_where(policy, standing):
    """When it is read, when it is asked, or in each row: the same; without a word it is unknown."""
    said = [bounds.certify(log(policy)), bounds.certify(log(train_policy=lambda i, k: policy))]
    said += [
        bounds.certify(log(), train_policy=policy),
        bounds.certify(Summary.of(log("held-out")), train_policy=policy),
    ]
    said += [bounds.certify(log())] if policy == "unknown" else []
    for c in said:
        assert c.train_policy == c.to_dict()["train_policy"] == policy
        assert c.improvement.standing is c.estimates["tv_seq"].standing is standing
        assert c.improvement.low > 0.0
        assert c.estimates["reward"].standing is Standing.MEASURED
        assert c.improvement == said[0].improvement
        unknown = policy == "unknown"
        assert (", if the training policy did not learn from these responses:" in c.sentence()) is unknown
        assert ("train_policy" in [a.what for a in c.assumptions]) is unknown
        assert ("train_policy_unknown" in [f.kind for f in c.findings]) is unknown


def test_rows_that_differ_say_nothing():
    assert bounds.certify(log(train_policy=lambda i, k: "held-out" if k else "before-update")).train_policy == "unknown"
    assert bounds.certify(log(train_policy=lambda i, k: "held-out" if k else None)).train_policy == "unknown"


def test_what_is_no_policy_is_refused():
    with pytest.raises(bounds.TraceError, match="row 0: train_policy must be one of before-update, held-out, unknown"):
        log(train_policy=lambda i, k: "before")
    with pytest.raises(ValueError, match="train_policy must be one of before-update"):
        log("before")
    with pytest.raises(ValueError, match="train_policy must be one of before-update"):
        bounds.certify(log(), train_policy="after")


@pytest.mark.parametrize("name", ["nemo_rl", "prime_rl", "canonical"])
def test_dumps_of_trainers_say_it_and_an_option_overrides(tmp_path, capsys, name):
    """A trainer's dump holds scores from before the update, unless somebody knows better."""
    records = [{n: np.asarray(v).tolist() if n.endswith("logprobs") else v for n, v in row.items()} for row in rows(6)]
    path = getattr(writers, name)(tmp_path, records)
    said = bounds.certify(bounds.open_log(path, horizon=300)).train_policy
    assert said == ("unknown" if name == "canonical" else "before-update")
    assert main(["certify", str(path), "--train-policy", "held-out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train_policy"] == "held-out"


def test_it_is_kept_in_files(tmp_path):
    for k, traces in enumerate((log("held-out"), log(train_policy=lambda i, k: "held-out"))):
        traces.to_parquet(tmp_path / f"{k}.parquet")
        assert bounds.certify(bounds.read_traces(tmp_path / f"{k}.parquet")).train_policy == "held-out"


@pytest.mark.parametrize("policy", ["before-update", "held-out", "unknown"])
def test_prompts_that_return_are_of_these_prompts_at_most(policy):
    """At its second step theta has learned from the prompts of the first, unless they were held out."""
    c = bounds.certify(log(policy, step=lambda i, k: k // 2))
    run = bounds.over_time(log(policy, step=lambda i, k: k // 2))
    returned = policy != "held-out"
    assert (c.improvement is None) is returned
    assert ("improvement_hoeffding" not in c.guarantees.intervals) is returned
    assert ("for these prompts" in c.sentence()) is ("earlier step" in c.reasons.get("improvement", "")) is returned
    assert ("these prompts" in run.steps["1"]["improvement"].method) is returned
    for result in (c, run):
        assert ("prompts_return" in [f.kind for f in result.findings]) is returned
    assert bounds.certify(log(policy, step=lambda i, k: i % 2)).improvement is not None


# --- setting prompts aside -----------------------------------------------------------------------------------------


def questions(tmp_path, name="prompts.jsonl"):
    path = tmp_path / name
    lines = [json.dumps({"prompt": f"Q{i % 100}", "n": i}) for i in range(200)]
    path.write_text("\n".join(lines))
    return path, lines


def test_a_split_is_by_prompt_and_by_nothing_else(tmp_path):
    path, lines = questions(tmp_path)
    train, held_out = (p.read_text().splitlines() for p in split(path, share=0.3))
    assert sorted(train + held_out, key=lines.index) == lines
    assert train == sorted(train, key=lines.index)
    names = [{json.loads(line)["prompt"] for line in side} for side in (train, held_out)]
    assert names[0].isdisjoint(names[1])
    assert 15 <= len(names[1]) <= 45
    path.write_text("\n".join(lines[::-1]))  # another order
    assert split(path, share=0.3, force=True)[1].read_text().splitlines() == held_out[::-1]
    assert split(path, share=0.3, seed=1, force=True)[1].read_text().splitlines() != held_out[::-1]
    larger = split(path, share=0.5, force=True)[1].read_text().splitlines()
    assert set(held_out) < set(larger)


def test_parquet_is_split_as_jsonl_is(tmp_path, capsys):
    traces = log()
    traces.to_parquet(tmp_path / "log.parquet")
    assert main(["split", str(tmp_path / "log.parquet"), "--seed", "7", "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)
    sides = [pq.read_table(paths[side]) for side in ("train", "held_out")]
    ids = [set(side["prompt_id"].to_pylist()) for side in sides]
    assert (ids[0].isdisjoint(ids[1]), ids[0] | ids[1]) == (True, set(traces.prompt_ids))
    path = tmp_path / "same.jsonl"
    path.write_text("".join(json.dumps({"prompt_id": name}) + "\n" for name in traces.prompt_ids))
    names = [json.loads(line)["prompt_id"] for line in split(path, seed=7)[1].read_text().splitlines()]
    assert set(names) == ids[1]
    assert len(bounds.read_traces(paths["held_out"])) == sides[1].num_rows


def test_what_cannot_be_split_leaves_no_file(tmp_path, capsys):
    path, _ = questions(tmp_path)
    assert main(["split", str(path), "--by", "question"]) == 2
    assert "prompts.jsonl:1: row 0: has no question: name the field of its prompt (--by)" in capsys.readouterr().err
    assert main(["split", str(path), "--share", "1e-9"]) == 2
    assert "all of its 200 rows are on one side" in capsys.readouterr().err
    assert main(["split", str(path), "--share", "2"]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["prompts.jsonl"]
    for more in ([], ["--force"]):
        assert main(["split", str(path), *more]) == 0
    assert main(["split", str(path)]) == 2
    assert "exists" in capsys.readouterr().err
