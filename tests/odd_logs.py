"""Logs that are odd in one way each: read with a remark, or refused. ``snapshots.py`` asks what becomes of them.

As in ``writers``, nothing of ``bounds`` is imported here.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import writers

NAN, INF = math.nan, math.inf


def record(rollout, train, **more):
    return {"prompt_id": "p0", "reward": 1.0, "rollout_logprobs": rollout, "train_logprobs": train, **more}


GOOD = record([-1.0, -0.5, -2.0], [-1.1, -0.4, -2.0])
TOOL = ([-0.5, 0.0, 0.0, -0.7], [-0.6, -8.0, -9.0, -0.8])
FILLED = record([-0.2] * 2 + [-100.0] * 9, [-0.25, -0.3] + [-100.0] * 9)


def noisy(responses, length, shift=0, bits=32):
    """Responses whose two log-probs differ by noise, shifted by some tokens."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(responses):
        mu = -rng.exponential(1.5, length)
        pi = np.roll(np.minimum(mu + rng.normal(0, 0.02, length), 0.0), shift)
        if bits == 16:
            mu = (mu.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
        rows.append(record(mu.tolist(), pi.tolist(), prompt_id=str(k // 2), reward=k % 2))
    return rows


def top_p():
    rng = np.random.default_rng(2)
    drawn = [np.where(rng.random(6) < 2 / 3, 0.6, 0.3) for _ in range(30)]
    return [record(np.log(p / 0.9).tolist(), np.log(p).tolist(), prompt_id=str(k)) for k, p in enumerate(drawn)]


#: Logs that are read, and remarked upon; or refused by what their numbers say.
ODD = {
    "good": [GOOD],
    **{f"filler {x} under the mask": [record([-1.0, 0.0], [-1.1, x], mask=[1, 0])] for x in (-1e10, NAN, -INF, None)},
    "tool tokens": [record(*TOOL)],
    "tool tokens of theta": [record(*TOOL[::-1])],
    "tool tokens masked": [record(*TOOL, mask=[1.0, 0.0, 0.0, 1.0])],
    "tool tokens masked by booleans": [record(*TOOL, mask=[True, False, False, True])],
    "empty responses": [
        record([-0.1, -0.2], [-0.1, -0.3], mask=[0, 0]), record([-0.1, -0.2], [-0.1, -0.3], mask=[1, 1]), record([], [])
    ],
    "zeros": [record([-0.2, 0.0, 0.0], [-0.2, -3.0, -5.0]), record([-0.3, -1.0], [-0.3, -1.1])],
    "true zeros": [record([-0.2, 0.0, 0.0], [-0.21, -1e-7, 0.0])],
    "padding": [FILLED, FILLED],
    "responses of zeros": [GOOD, record([0.0, 0.0], [0.0, 0.0])],
    "padding before": [record([0.0] * 6 + r["rollout_logprobs"], [0.0] * 6 + r["train_logprobs"]) for r in noisy(4, 9)],
    "no policy draws it": [record([-0.5, -100.0], [-0.5, -0.4])],
    "theta is a filler": [*noisy(4, 9), record([-1.0, -0.2], [-1.0, -100.0])],
    "identical": [record([-0.2, -0.5], [-0.2, -0.5], prompt_id=str(k)) for k in range(5)],
    "signed means cancel": [record([-1.0] * 4, [-1.2, -0.8, -1.2, -0.8])],
    "exact slightly below 0": [record([-0.2, -0.1], [-0.2, -0.1], kl=[-2.9e-8, 0.01])],
    "exact columns": [record([-0.5, -0.5], [-0.6, -0.5], kl=[0.1, 0.2], tv=[0.1, 0.2], chi2=[0.1, 0.3])],
    "exact kl refuted": [record([-0.5, -0.5], [-0.5, -0.9], kl=[0.0, 0.0])],
    "exact tv refuted": [record([-0.5, -0.5], [-0.5, -0.9], tv=[0.0, 0.0])],
    "exact kl disagrees": [{**r, "kl": [1.0] * 9} for r in noisy(30, 9)],
    "prompts by tokens": [{**GOOD, "prompt_id": None, "prompt_tokens": t} for t in ([1, 2], [1, 2], [3])],
    "no prompts": [{k: v for k, v in GOOD.items() if k != "prompt_id"}] * 2,
    "prompt ids of numbers": [{**GOOD, "prompt_id": k} for k in (3, 4, 3)],
    "no rewards": [{k: v for k, v in r.items() if k != "reward"} for r in noisy(8, 9)],
    "weight versions": [{**r, "weight_version": k // 2, "environment": "ab"[k % 2]} for k, r in enumerate(noisy(4, 9))],
    "steps": [{**r, "step": k // 4} for k, r in enumerate(noisy(24, 9))],
    "old log-probs": [record([-1.0, -1.0], [-1.3, -1.0], old_logprobs=[-1.1, -1.0])],
    "ratios above one": [record([-1.0] * 5, [-0.9] * 5, prompt_id=str(k)) for k in range(5)],
    "top-p": top_p(),
    "earlier by one": noisy(12, 40, shift=-1),
    "later by one": noisy(12, 40, shift=1),
    "bfloat16": noisy(6, 40, bits=16),
    "beyond any exponential": [record([-800.0, -800.0], [-0.0, -0.0])],
    "far below": [record([-1.0] * 300, [-1.4] * 300)],
    "twice": [*noisy(8, 40), *noisy(2, 40)],
    "one response": noisy(1, 20),
    "noise": noisy(40, 16),
}  # fmt: skip


BAD = {
    "lengths differ": record([-1.0], [-1.0, -2.0]),
    "no train": record([-1.0], None),
    "no rollout": record(None, [-1.0]),
    "neither": {"prompt_id": "p"},
    "mask too short": record([-1.0, -2.0], [-1.0, -2.0], mask=[1]),
    "mask of 2": record([-1.0, -2.0], [-1.0, -2.0], mask=[1, 2]),
    "mask of NaN": record([-1.0, -2.0], [-1.0, -2.0], mask=[1, NAN]),
    "mask of half": record([-1.0, -2.0], [-1.0, -2.0], mask=[1, 0.5]),
    "mask is a number": record([-1.0], [-1.0], mask=NAN),
    "mask of some": {**GOOD, "mask": [1, 1, 0]},
    **{
        f"{field} has {x}": {**GOOD, field: [-0.2, x, -0.4]}
        for field in ("rollout_logprobs", "train_logprobs", "old_logprobs")
        for x in (None, NAN, -9999.0, -1000.0, -1e10, -INF, INF, 0.03, 1e-7)
    },
    "two are wrong": record([-0.2, NAN, 0.3], [0.5, -0.1, -0.2]),
    "kl below 0": record([-0.2], [-0.2], kl=[-0.1]),
    "kl of NaN": record([-0.2], [-0.2], kl=[NAN]),
    "kl too short": record([-0.2, -0.1], [-0.2, -0.1], kl=[0.1]),
    "kl infinite": record([-0.2], [-0.2], kl=[INF]),
    "kl of some": record([-0.2], [-0.2], kl=[0.1]),
    "tv above 1": record([-0.2], [-0.2], tv=[1.1]),
    "chi2 of NaN": record([-0.2], [-0.2], chi2=[NAN]),
    "old of some": record([-0.2], [-0.2], old_logprobs=[-0.2]),
    "reward of 7": {**GOOD, "reward": 7.0},
    "reward below 0": {**GOOD, "reward": -0.5},
    "reward missing": {**GOOD, "reward": None},
    "reward of NaN": {**GOOD, "reward": NAN},
    "reward of text": {**GOOD, "reward": "high"},
    "reward of a list": {**GOOD, "reward": [1.0, 1.0]},
    "rewards": {**GOOD, "rewards": 1.0},
    "longer than the horizon": record([-0.2] * 17, [-0.2] * 17),
    "text for a number": record(["x"], [-0.2]),
    "number as text": record(["-1.0"], [-0.2]),
    "nested": record([[-0.2]], [[-0.2]]),
    "ragged": record([[-1.0], [-1.0, -2.0]], [-1.0, -1.0]),
    "an object": record({"a": 1}, [-1.0]),
    "a number": record(-1.0, -1.0),
    "text": record("abc", [-1.0]),
    "booleans": record([True, False], [-1.0, -1.0]),
    "too large": record([-1.0, 10**400, -1.0], [-1.0] * 3),
    "tokens too short": {**GOOD, "tokens": [1, 2]},
    "tokens nested": {**GOOD, "tokens": [[1], [2], [3]]},
    "response_mask": {**GOOD, "response_mask": [1, 1, 0]},
    "loss_mask": {**GOOD, "loss_mask": [1, 1, 0]},
    "names of verl": {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "uid": "a"},
    "no policy token": record([-0.1], [-0.1], mask=[0]),
    "empty lists": record([], []),
    "step of a list": {**GOOD, "step": [1]},
    "prompt of a list": {**GOOD, "prompt_id": [1, 2]},
    "unknown field": {**GOOD, "note": "ignored"},
    "no mapping": 5,
}  # fmt: skip
#: Options of bounds.read_traces that do not go; each with a good log.
BAD_OPTIONS = {
    "logprob_dtype": {"logprob_dtype": "int8"},
    "on_missing": {"on_missing": "ignore"},
    "horizon 0": {"horizon": 0},
    "horizon 2": {"horizon": 2},
    "horizon of text": {"horizon": "x"},
    "reward_range": {"reward_range": (1.0, 0.0)},
    "reward_range infinite": {"reward_range": (0.0, INF)},
    "reward_range beside": {"reward_range": (2.0, 3.0)},
}
BAD_ARRAYS = {
    "good": {},
    "train of another shape": {"train_logprobs": np.full((2, 4), -1.0)},
    "train flat": {"train_logprobs": np.full(3, -1.0)},
    "train of text": {"train_logprobs": [["a"] * 3] * 2},
    "train ragged": {"train_logprobs": [[-1.0], [-1.0, -1.0]]},
    "train masked": {"train_logprobs": np.ma.array(np.full((2, 3), -1.0))},
    "train has NaN": {"train_logprobs": np.array([[-1.0] * 3, [-1.0, NAN, -1.0]])},
    "NaN under the mask": {
        "train_logprobs": np.array([[-1.0] * 3, [-1.0, NAN, -1.0]]), "mask": np.array([[1] * 3, [1, 0, 1]])
    },
    "train positive": {"train_logprobs": np.array([[-1.0] * 3, [-1.0, -1.0, 0.2]])},
    "mask flat": {"mask": np.ones(3)},
    "mask of 2": {"mask": np.array([[1, 1, 2], [1, 1, 1]])},
    "mask of zeros": {"mask": np.zeros((2, 3))},
    "one reward": {"rewards": [1.0]},
    "reward of 7": {"rewards": [1.0, 7.0]},
    "reward of NaN": {"rewards": [1.0, NAN]},
    "one prompt": {"prompt_ids": ["a"]},
    "kl of another shape": {"kl": np.zeros((2, 4))},
    "kl below 0": {"kl": np.full((2, 3), -1.0)},
    "horizon 2": {"horizon": 2},
    "horizon 0": {"horizon": 0},
    "unknown": {"rewads": [1.0, 1.0]},
}  # fmt: skip
BAD_TEXTS = {
    "text among numbers": '{"rollout_logprobs": [-1, "a"], "train_logprobs": [-1, -1]}',
    "cut": '{"rollout_logprobs": [-1], "train_logprobs": [-1]',
    "reward of text": '{"reward": "high", "rollout_logprobs": [-1], "train_logprobs": [-1]}',
    "NaN": '{"rollout_logprobs": [-1, NaN], "train_logprobs": [-1, -1]}',
    "NaN under the mask": '{"rollout_logprobs": [-1, NaN], "train_logprobs": [-1, -Infinity], "mask": [1, 0]}\n',
    "no JSON": "not json",
    "nothing": "",
    "empty array": "[]",
    "blank lines": "\n\n" + json.dumps(GOOD) + "\n\n",
    "an array": json.dumps([GOOD, GOOD]),
    "an array, row 1": json.dumps([GOOD, {**GOOD, "reward": 7}]),
    "a byte beyond ASCII": "\x80",
    "deep": '{"x": ' + "[" * 100_000,
    "empty object": "{}\n",
    "byte order mark": "\ufeff" + json.dumps(GOOD),
    "second line is cut": json.dumps(GOOD) + '\n{"rollout_logprobs": [-1',
    "second line is an array": json.dumps(GOOD) + "\n[1]\n",
    "of two formats": json.dumps({**GOOD, "inference_logprobs": [-1.0], "trainer_logprobs": [-1.0]}),
    "text beside others": '{"prompt": "a", "completion": "b", "rollout_log_probs": [-1.0]}',
    "another table": '{"a": 1}',
}
BAD_HALVES = {
    "tokens differ": ([{"tokens": [1, 2]}], [{"tokens": [1, 3]}]),
    "more sampled": ([{}, {}], [{}]),
    "more scored": ([{}], [{}, {}]),
    "other row ids": ([{"row_id": 1}], [{"row_id": 2}]),
    "row id twice": ([{"row_id": 1}, {"row_id": 1}], [{"row_id": 2}, {"row_id": 1}]),
    "row id missing": ([{"row_id": 1}, {}], [{"row_id": 1}, {"row_id": 2}]),
    "longer": ([{}], [{"train_logprobs": [-1, -1, -1]}]),
    "shorter": ([{"tokens": [1, 2]}], [{"tokens": [2], "train_logprobs": [-1]}]),
    "rewards differ": ([{}], [{"reward": 0.0}]),
    "scored already": ([{"train_logprobs": [-1, -1]}], [{}]),
    "not scored": ([{}], [{"train_logprobs": None, "rollout_logprobs": [-1.0, -1.0]}]),
    "by order": ([{}], [{}]),
    "by tokens": ([{"tokens": [1, 2]}], [{"tokens": [9, 1, 2], "train_logprobs": [None, -1.1, -0.4]}]),
    "by row ids": ([{"row_id": "b"}, {"row_id": "a", "reward": 0.0}], [{"row_id": "a"}, {"row_id": "b"}]),
}


def plain(name):
    """A name as that of a file."""
    return re.sub(r"[^\w.-]+", "_", name)


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- files and folders


def bad_files(example):
    """Name -> paths and options of files and folders in the current one; ``example`` is a whole log as records."""
    few = example[:5]
    found = {}
    for name, text in BAD_TEXTS.items():
        path = Path("text", plain(name), "log.jsonl")
        path.parent.mkdir(parents=True)
        path.write_text(text)
        found[name] = path, {}
    for name, (sampled, scored) in BAD_HALVES.items():
        base = {"prompt_id": "p", "reward": 1.0, "rollout_logprobs": [-1.0, -0.5]}
        mu = jsonl(Path("halves", plain(name), "mu.jsonl"), [{**base, **row} for row in sampled])
        pi = jsonl(Path("halves", plain(name), "pi.jsonl"), [{"train_logprobs": [-1.1, -0.4], **row} for row in scored])
        found[f"halves: {name}"] = mu, {"train": pi}
        found[f"half alone: {name}"] = pi, {}
    found |= {f"nemo-rl: {name}": (path, {}) for name, path in changed_nemo_rl(few).items()}
    found |= {f"prime-rl: {name}": (path, {}) for name, path in changed_prime_rl(few).items()}
    found |= changed_servers(few)
    good = jsonl(Path("good", "log.jsonl"), few)
    data = good.read_bytes()
    for name, content in {
        "pickle.jsonl": b"\x80\x04K\x01.",
        "nonsense.parquet": b"PAR1nonsense",
        "cut.jsonl": gzip.compress(data)[:-9],
        "zip.jsonl": b"PK\x03\x04 and no more",
    }.items():
        Path("odd").mkdir(exist_ok=True)
        Path("odd", name).write_bytes(content)
        found[name] = Path("odd", name), {}
    whole = Path("damaged.parquet")
    pd.DataFrame(example).to_parquet(whole)
    damaged = bytearray(whole.read_bytes())
    damaged[1000:1064] = bytes(64)
    whole.write_bytes(damaged)
    Path("copies").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        shutil.copy(good, Path("copies", name))
    for k in range(3):
        jsonl(Path("chunks", f"{k}.jsonl"), example[: 24 * (k + 1)])
    jsonl(Path("mixed", "log.jsonl"), few)
    writers.nemo_rl(Path("mixed", "other"), few)
    Path("empty").mkdir()
    for k in (8, 9):
        pd.DataFrame(few).to_parquet(f"horizon{k}.parquet")
    found |= {
        "damaged parquet": (whole, {}),
        "no such file": (Path("nowhere.jsonl"), {}),
        "no such glob": ("nowhere/*.jsonl", {}),
        "given twice": ([good, good], {}),
        "copies": (Path("copies"), {}),
        "chunks": (sorted(Path("chunks").iterdir()), {}),
        "several formats": (Path("mixed"), {}),
        "several formats, one said": (Path("mixed"), {"format": "nemo-rl"}),
        "empty folder": (Path("empty"), {}),
        "unknown format": (good, {"format": "canonica"}),
        "format that is not read": (good, {"format": "pickle"}),
        "forced nemo-rl": (good, {"format": "nemo-rl"}),
        "forced prime-rl": (good, {"format": "prime-rl"}),
        "group_size 3": (good, {"group_size": 3}),
        "group_size 5": (good, {"group_size": 5}),
        "group_size 0": (good, {"group_size": 0}),
        "horizon 10": (good, {"horizon": 10}),
        "two tables": (["horizon8.parquet", "horizon9.parquet"], {}),
    }
    return found


def changed(path, name, **fields):
    """A copy of a JSON Lines file whose second row has other fields; a function changes a field's value."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for field, value in fields.items():
        rows[1][field] = value(rows[1][field]) if callable(value) else value
        if rows[1][field] is ...:
            del rows[1][field]
    return jsonl(path.parents[1] / plain(name) / path.name, rows)


def first_kept(values, mask, value):
    """Values with the first one under mask 1 replaced."""
    k = mask.index(1)
    return [*values[:k], value, *values[k + 1 :]]


def changed_nemo_rl(records):
    path = writers.nemo_rl(Path("nemo", "good"), records, nested=False)
    mask = json.loads(path.read_text().splitlines()[1])["token_loss_mask"]
    return {
        name: changed(path, name, **fields)
        for name, fields in {
            "as it is": {},
            "no prev": {"prev_logprobs": ...},
            "no generation": {"generation_logprobs": ...},
            "no mask": {"token_loss_mask": ...},
            "NaN": {"prev_logprobs": lambda v: first_kept(v, mask, NAN)},
            "filler": {"generation_logprobs": lambda v: first_kept(v, mask, -9999.0)},
            "positive": {"prev_logprobs": lambda v: first_kept(v, mask, 0.5)},
            "too short": {"prev_logprobs": lambda v: v[:-1]},
            "mask of 2": {"token_loss_mask": lambda v: first_kept(v, mask, 2)},
            "mask too short": {"token_loss_mask": lambda v: v[:-1]},
            "sample mask of half": {"sample_loss_mask": 0.5},
            "sample mask of infinity": {"sample_loss_mask": INF},
            "sample mask of text": {"sample_loss_mask": "x"},
            "reward of 7": {"rewards": 7.0},
            "rewards": {"rewards": [1.0, 0.0]},
            "token ids too short": {"token_ids": lambda v: v[:-1]},
            "first token kept": {"token_loss_mask": lambda v: [1, *v[1:]]},
            "an object": {"generation_logprobs": {"a": 1}},
            "twice nested": {"generation_logprobs": lambda v: [[v]]},
        }.items()
    }


def changed_prime_rl(records):
    path = writers.prime_rl(Path("prime"), records, ranks=1) / "step_0" / "rank_0.jsonl"
    mask = json.loads(path.read_text().splitlines()[1])["loss_mask"]
    found = {
        name: changed(path, name, **fields)
        for name, fields in {
            "as it is": {},
            "no trainer": {"trainer_logprobs": ...},
            "no mask": {"loss_mask": ...},
            "null": {"inference_logprobs": lambda v: first_kept(v, mask, None)},
            "positive": {"trainer_logprobs": lambda v: first_kept(v, mask, 0.5)},
            "too short": {"trainer_logprobs": lambda v: v[:-1]},
            "mask of text": {"loss_mask": "x"},
            "weights too short": {"ref_kl_weights": [1.0]},
            "weights of zero": {"rl_weights": lambda v: [0.0] * len(v)},
            "first token kept": {"loss_mask": lambda v: [True, *v[1:]]},
            "token ids of text": {"token_ids": lambda v: ["x"] * len(v)},
        }.items()
    }
    for made in found.values():
        (made.parent / "STABLE").touch()
    return {**found, "not STABLE": changed(path, "not STABLE")}


def changed_servers(records):
    """Server responses without what is needed."""
    sampled, scored = writers.openai(Path("openai", "good"), records)
    Path("sglang").mkdir()
    native = writers.sglang(Path("sglang"), records)
    for path in native:
        jsonl(Path("sglang", "lines", f"{path.stem}.jsonl"), json.loads(path.read_text()))
    native_sampled, native_scored = (Path("sglang", "lines", f"{n}.jsonl") for n in ("sampled", "scored"))

    def choice(**more):
        return lambda choices: [{**choices[0], **more}]

    def without(key):
        return lambda meta: {k: v for k, v in meta.items() if k != key}

    openai = {
        "no choices": {"choices": []},
        "null choices": {"choices": None},
        "no logprobs": {"choices": choice(logprobs=None)},
        "text for a logprob": {"choices": choice(logprobs={"content": [{"token": "a", "logprob": "x"}]})},
        "positive": {"choices": choice(logprobs={"content": [{"token": "a", "logprob": 0.5}]}, token_ids=[1])},
        "fewer token ids": {"choices": choice(token_ids=[1])},
        "reward of 7": {"choices": choice(reward=7.0)},
    }
    scores = {
        "no prompt_logprobs": {"prompt_logprobs": None},
        "shorter": {"prompt_logprobs": lambda v: v[:-1]},
        "null inside": {"prompt_logprobs": lambda v: [*v[:-1], None]},
        "several tokens": {"prompt_logprobs": lambda v: [*v[:-1], {"5": {"logprob": -1.0}, "6": {"logprob": -2.0}}]},
        "no id": {"prompt_logprobs": lambda v: [*v[:-1], {"x": {"logprob": -1.0}}]},
        "positive": {"prompt_logprobs": lambda v: [*v[:-1], {k: {"logprob": 0.5} for k in v[-1]}]},
    }
    samples = {
        "no meta_info": {"meta_info": None},
        "no output": {"meta_info": without("output_token_logprobs")},
        "output of text": {"meta_info": lambda m: {**m, "output_token_logprobs": "x"}},
        "null inside": {"meta_info": lambda m: {**m, "output_token_logprobs": [[None, 1, "a"]]}},
        "reward of 7": {"reward": 7.0},
    }
    marks = {
        "no input": {"meta_info": without("input_token_logprobs")},
        "shorter": {"meta_info": lambda m: {**m, "input_token_logprobs": m["input_token_logprobs"][:-1]}},
    }
    return {
        **{f"openai: {n}": (changed(sampled, n, **c), {"train": scored}) for n, c in openai.items()},
        **{f"openai scored: {n}": (sampled, {"train": changed(scored, n, **c)}) for n, c in scores.items()},
        **{f"sglang: {n}": (changed(native_sampled, n, **c), {"train": native_scored}) for n, c in samples.items()},
        **{
            f"sglang scored: {n}": (native_sampled, {"train": changed(native_scored, n, **c)}) for n, c in marks.items()
        },
    }


# --- made by chance


def odd_rows(rng):
    """Up to six rows of which one or two values are odd."""
    rows = []
    optional = [name for name in ("mask", "kl", "tv", "chi2", "old_logprobs", "tokens", "step") if rng.random() < 0.2]
    for k in range(rng.randint(1, 6)):
        size = rng.randint(1, 6)
        mu = [-rng.expovariate(1) for _ in range(size)]
        more = {
            "mask": [int(rng.random() < 0.8) for _ in mu],
            "kl": [0.5 * rng.random() for _ in mu],
            "tv": [0.5 + 0.5 * rng.random() for _ in mu],
            "chi2": [rng.random() for _ in mu],
            "old_logprobs": [min(x + rng.gauss(0, 0.01), 0.0) for x in mu],
            "tokens": [rng.randrange(50) for _ in mu],
            "step": k // 3,
        }
        pi = [min(x + rng.gauss(0, 0.1), 0.0) for x in mu]
        rows.append(record(mu, pi, **{n: more[n] for n in optional}) | {"prompt_id": f"p{k // 2}", "reward": k % 2})
    for _ in range(rng.randint(1, 2)):
        odd_value(rng.choice(rows), rng)
    return rows


def odd_value(row, rng):
    """Make one value of a row odd."""
    field = rng.choice([*row, "rollout_logprobs", "train_logprobs"])
    if not isinstance(row[field], list):
        row[field] = rng.choice([None, NAN, 2.0, -1.0, 0.5, "", "x", 7])
    elif rng.random() < 0.15 or not row[field]:
        row[field] = rng.choice([None, [], row[field][:-1], [*row[field], -0.5]])
    else:
        row[field][rng.randrange(len(row[field]))] = rng.choice(
            [None, NAN, INF, -INF, -9999.0, -1000.0, -998.0, -1e10, 1e-7, 0.01, 0.5, 2, 1, 0, 0.0, -1e-8, -1.0, -90.0]
        )
