"""Every trainer's layout gives the certificate of the canonical file; what is no log is answered, never run."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import subprocess
import sys
import time
from functools import cache

import fuzz_readers
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import writers

import bounds
from bounds import open_log
from bounds.cli.main import main
from bounds.cli.reading import READABLE
from bounds.logs import FORMATS
from bounds.logs.decode import look
from bounds.logs.formats import RECIPES, recognised


@cache
def example():
    """The example log as plain records, without its exact columns (few trainers log them)."""
    frame = pd.read_parquet(bounds.logs.example_path())
    names = ["prompt_id", "reward", "rollout_logprobs", "train_logprobs"]
    return [
        {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in zip(names, row, strict=True)}
        for row in frame[names].itertuples(index=False, name=None)
    ]


def said(source, **options):
    """What a certificate says in numbers."""
    if not isinstance(source, bounds.TraceSet):
        source = bounds.read_traces(source, horizon=256, **options)
    found = bounds.certify(source, assume={"delta": 5.0}).to_dict()
    return {k: found[k] for k in ("responses", "prompts", "tokens", "estimates", "bounds", "b_star", "b_star_upper")}


@cache
def truth(rewards=True):
    records = example() if rewards else [{k: v for k, v in r.items() if k != "reward"} for r in example()]
    return said(bounds.TraceSet.from_records(records, horizon=256))


def same(found, expected):
    """Equal, numbers to 1e-12 relative."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        where_it_stands = {"standing", "rests_on"}  # some layouts have rows that are left out, which is assumed
        for key in expected.keys() - where_it_stands:
            same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)
    else:
        assert found == expected


def warnings_of(source, **options):
    return bounds.certify(bounds.read_traces(source, horizon=256, **options)).warnings


def export(recipe, folder, *batch):
    """Run a recipe's own text on a batch."""
    namespace, path = {}, folder / "log.jsonl"
    exec(RECIPES[recipe], namespace)
    namespace["export"](*batch, path)
    return path


BOTH = {
    "canonical": lambda folder: writers.canonical(folder, example()),
    "nemo-rl": lambda folder: writers.nemo_rl(folder, example()),
    "nemo-rl flat, masks of floats": lambda folder: writers.nemo_rl(folder, example(), nested=False, floats=True),
    "openrlhf recipe": lambda folder: export("openrlhf", folder, writers.openrlhf_experiences(example())),
    "ms-swift recipe": lambda folder: export("ms-swift", folder, *writers.swift_batch(example())),
    "prime-rl": lambda folder: writers.prime_rl(folder, example()),
}
HALVES = {
    "canonical halves": lambda folder: writers.canonical_halves(folder, example()),
    "openai": lambda folder: writers.openai(folder, example()),
    "openai, ids as text": lambda folder: writers.openai(folder, example(), ids="text"),
    "openai batch": lambda folder: writers.openai(folder, example(), batch=True),
    "sglang": lambda folder: writers.sglang(folder, example()),
    "sglang pairs": lambda folder: writers.sglang(folder, example(), elements=2),
    "sglang chat": lambda folder: writers.sglang_forms(folder, example(), form="chat"),
    "sglang values": lambda folder: writers.sglang_forms(folder, example(), form="values"),
    "sglang objects": lambda folder: writers.sglang_forms(folder, example(), form="objects"),
    "completions": lambda folder: writers.completions(folder, example()),
    "completions, texts only": lambda folder: writers.completions(folder, example(), ids=False),
    "completions with echo": lambda folder: writers.completions_with_echo(folder, example()),
    "verifiers": lambda folder: writers.verifiers(folder, example()),
    "nemo-gym": lambda folder: writers.nemo_gym(folder, example()),
    "atropos": lambda folder: writers.atropos(folder, example()),
    "responses": lambda folder: writers.responses_api(folder, example()),
    "responses batch": lambda folder: writers.responses_api(folder, example(), batch=True),
}
WITHOUT_REWARD = ("prime-rl",)


@pytest.mark.parametrize("layout", BOTH)
def test_every_layout_gives_the_certificate_of_the_canonical_file(tmp_path, layout):
    same(said(BOTH[layout](tmp_path)), truth(layout not in WITHOUT_REWARD))


@pytest.mark.parametrize("layout", HALVES)
def test_halves_give_the_certificate_of_the_canonical_file(tmp_path, layout):
    sampled, scored = HALVES[layout](tmp_path)
    same(said(sampled, train=scored), truth())
    with pytest.raises(
        bounds.TraceError, match=r"train_logprobs is missing .*the rollout policy's log-probs only; .* train=, --train"
    ):
        bounds.read_traces(sampled)
    with pytest.raises(
        bounds.TraceError, match=r"no log-probs of sampled tokens|rollout_logprobs is missing|policy's log-probs only"
    ):
        bounds.read_traces(scored)


def one_of_each(folder):
    """A small file of every format that needs no torch, by the format's name."""
    few = example()[:5]
    sampled, scored = writers.openai(folder / "openai", few)
    native = writers.sglang(writers_folder(folder / "sglang"), few)
    table = folder / "t.parquet"
    pd.DataFrame(writers.TRL_TABLE).to_parquet(table)
    pickled = folder / "batch.pkl"
    pickled.write_bytes(pickle.dumps({"rollout_log_probs": [1.0]}))
    parquet = folder / "log.parquet"
    pd.DataFrame(few).to_parquet(parquet)
    texts = [(name, writers.lines(folder / name / "x.jsonl", [row])) for name, row in writers.TEXT_DUMPS.items()]
    return [
        ("canonical", writers.canonical(folder / "c", few)),
        ("canonical", parquet),
        *(("canonical", half) for half in writers.canonical_halves(folder / "h", few)),
        *((n, BOTH[n](folder / n)) for n in FORMATS if n in BOTH and n not in ("canonical", "prime-rl")),
        ("prime-rl", writers.prime_rl(folder / "p", few, ranks=1) / "step_0" / "rank_0.jsonl"),
        ("openai", sampled),
        ("openai", scored),
        ("openai", writers.openai(folder / "batch", few, batch=True)[0]),
        *(("sglang", half) for half in native),
        *((n, HALVES[n](folder / n)[0]) for n in FORMATS if n in HALVES and n not in ("openai", "sglang")),
        ("openai", writers.completions(folder / "completions", few)[0]),
        ("openai", writers.completions_with_echo(folder / "echo", few)[0]),
        *(("sglang", writers.sglang_forms(folder / form, few, form=form)[0]) for form in ("values", "objects")),
        ("openai", writers.sglang_forms(folder / "chat", few, form="chat")[0]),
        ("trl-text", table),
        *texts,
        ("pickle", pickled),
    ]


def writers_folder(path):
    path.mkdir()
    return path


def test_each_file_is_recognised_by_exactly_one_format_whatever_its_name(tmp_path):
    seen = set()
    for k, (name, path) in enumerate(one_of_each(tmp_path)):
        nameless = tmp_path / f"file{k}"
        path.rename(nameless)
        assert [f.name for f in FORMATS.values() if f.recognises(look(nameless))] == [name]
        seen.add(name)
    assert seen == FORMATS.keys() - {"slime", "slime-rollout", "miles", "miles-loss"}  # these are in tests/extras


def test_a_file_that_two_formats_recognise_needs_a_name(tmp_path):
    both = writers.lines(tmp_path / "x", [{**example()[0], "inference_logprobs": [-1.0], "trainer_logprobs": [-1.0]}])
    with pytest.raises(bounds.TraceError, match="recognised as canonical, prime-rl: say which"):
        bounds.read_traces(both)
    assert len(bounds.read_traces(both, format="canonical")) == 1


@pytest.mark.parametrize("compress", [gzip.compress, lambda b: pa.compress(b, codec="zstd", asbytes=True)])
@pytest.mark.parametrize("layout", ["canonical", "nemo-rl"])
def test_compressed_files_are_read_as_they_are(tmp_path, layout, compress):
    path = BOTH[layout](tmp_path)
    data = path.read_bytes()
    half = data.index(b"\n", len(data) // 2) + 1
    path.write_bytes(compress(data[:half]) + compress(data[half:]))  # two members, as appended logs have
    same(said(path), truth())
    path.write_bytes(compress(data)[:-9])
    with pytest.raises(bounds.TraceError, match=r"damaged after line \d+|cannot be read"):
        bounds.read_traces(path)


def test_what_compressed_files_may_not_hold(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(bounds.logs.example_path().read_bytes()))
    with pytest.raises(bounds.TraceError, match="this is gzip, and there is no JSON in it"):
        bounds.read_traces(path)


def test_forced_formats(tmp_path):
    path = BOTH["nemo-rl"](tmp_path)
    same(said(path, format="nemo-rl"), truth())
    (tmp_path / "STABLE").touch()
    with pytest.raises(bounds.TraceError, match="row 0: Expected `int`, got `array`"):
        bounds.read_traces(path, format="prime-rl")
    with pytest.raises(ValueError, match="unknown format 'nemo_rl'; did you mean 'nemo-rl'"):
        bounds.read_traces(path, format="nemo_rl")
    with pytest.raises(ValueError, match=r"format 'pickle' is not read: .* never opened.* canonical rows"):
        bounds.read_traces(path, format="pickle")
    with pytest.raises(ValueError, match=r"unknown format 'pickl' \(known: auto, canonical, .*, sglang\)"):
        bounds.read_traces(path, format="pickl")


@pytest.mark.parametrize("name", ["verl-text", "areal-text", "ms-swift-text", "trl-text"])
def test_dumps_of_text_are_answered_with_the_switch_that_would_help(tmp_path, name):
    path = dict(one_of_each(tmp_path))[name]
    switch = {
        "verl-text": "actor_rollout_ref.rollout.calculate_log_probs=True, then .* --recipe verl",
        "trl-text": "use_vllm=True .* --recipe trl",
        "areal-text": "actor.recompute_logprob=true",
        "ms-swift-text": "log_rollout_offpolicy_metrics=true .* --recipe ms-swift",
    }[name]
    for given in (path, path.parent if name != "trl-text" else path):
        with pytest.raises(bounds.TraceError, match=f"holds? text and no log-probs.*{switch}"):
            bounds.read_traces(given)


# --- what is there is named, and what is not ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"optim/kl_sample_train_v2": 9e-5, "step": 0},
            r"v2 = 9e-05 is a mean over tokens of k2.* so 0.369 nats a response of "
            r"4096 tokens .*would be at most 0.369.* guarantees nothing",
        ),
        (
            {"step": 1, "data": {"rollout_corr/k3_kl": 0.00033, "response_length/mean": 1605.0}},
            r"rollout_corr/k3_kl = 0.00033 is a mean over tokens of k3, so 0.53 nats a response of 1605 tokens",
        ),
        ({"step": 1, "data": {"actor/pg_loss": 0.1}}, "scalars, no log: none of them compares the two policies"),
        ({"train/mismatch_kl": 0.01, "step": 3}, "41 nats a response of 4096 tokens .if they have that many."),
        ({"sampling/sampling_logp_difference/max": 3.0}, "the largest .d. that was sampled, no supremum"),
    ],
)
def test_scalars_of_trainers_are_told_for_what_they_are(tmp_path, row, message):
    path = writers.lines(tmp_path / "metrics.jsonl", [row, row])
    for given in (path, tmp_path):
        with pytest.raises(bounds.TraceError, match=message):
            bounds.read_traces(given)


def test_a_table_of_scalars_is_told_for_what_it_is(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text('"Step","run - rollout_corr/kl"\n"1","0.0012"\n"2","0.00002"\n')
    with pytest.raises(
        bounds.TraceError, match=r"run - rollout_corr/kl = 2e-05 is a mean over tokens of k1, which may cancel"
    ):
        bounds.read_traces(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(bounds.TraceError, match="no known format"):
        bounds.read_traces(path)


MU, PI = [-0.5, -1.0], [-0.6, -0.9]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"sampling_per_token_logps": MU, "old_per_token_logps": PI},
            "rollout_logprobs is missing; is it 'sampling_per_token_logps'",
        ),
        ({"old_per_token_logps": PI, "reward": 1.0}, r"rollout_logprobs is missing \("),
        ({"rollout_logprobs": MU, "rollout_log_probs": MU, "ref_logprobs": PI}, r"train_logprobs is missing \("),
        ({"rollout_logprobs": MU, "old_log_probs": PI}, "train_logprobs is missing; is it 'old_log_probs'"),
        ({"rollout_logprobs": MU, "trainlogprobs": PI}, "train_logprobs is missing; is it 'trainlogprobs'"),
        ({"train_logprobs": PI, "rolloutlogprobs": MU}, "rollout_logprobs is missing; is it 'rolloutlogprobs'"),
        ({"rollout_logprobs": MU, "train_rollout_log_ratio": PI}, r"train_logprobs is missing \("),
    ],
)
def test_a_hint_never_names_a_column_of_the_other_policy(row, message):
    with pytest.raises(bounds.TraceError, match=message):
        bounds.TraceSet.from_records([row])


def test_rewards_and_prompts_under_another_name_are_pointed_at(tmp_path):
    rows = [
        {"uid": f"u{k // 4}", "reward_score": 1.0, **{n: r[n] for n in r if n.endswith("probs")}}
        for k, r in enumerate(example()[:8])
    ]
    said = warnings_of(writers.lines(tmp_path / "log.jsonl", rows))
    assert sum("no reward, but reward_score, which is not read" in w for w in said) == 1
    assert sum("no prompt_id, but uid, which is not read" in w for w in said) == 1
    row = {
        "token_loss_mask": [[0, 1, 1]],
        "generation_logprobs": [[0, *MU]],
        "prev_logprobs": [[0, *PI]],
        "reward": 1.0,
    }
    assert bounds.read_traces(writers.lines(tmp_path / "nemo.jsonl", [row]), horizon=4).reward == [1.0]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([5], "1 ids and 2 log-probs in this response: the server takes the stop token off its ids only"),
        ([5, 6, 7, 8], "4 ids and 2 log-probs in this response: tokens .of a tool call"),
    ],
)
def test_tokens_that_are_in_one_list_only_are_counted(tmp_path, ids, message):
    content = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]
    forms = {
        "chat": {"choices": [{"token_ids": ids, "logprobs": {"content": content}}]},
        "completions": {"choices": [{"token_ids": ids, "logprobs": {"tokens": ["a", "b"], "token_logprobs": MU}}]},
        "sglang": {"meta_info": {"output_token_logprobs_val": MU, "output_token_logprobs_idx": ids}},
        "verifiers": {"trajectory": [{"tokens": {"completion_ids": ids, "completion_logprobs": MU}}]},
        "nemo-gym": {
            "responses_create_params": {},
            "response": {"output": [{"generation_token_ids": ids, "generation_log_probs": MU}]},
        },
    }
    for name, row in forms.items():
        with pytest.raises(bounds.TraceError, match=f"{name}.jsonl:1: row 0: {message}"):
            bounds.read_traces(writers.lines(tmp_path / f"{name}.jsonl", [row]))


def test_the_agent_of_nemo_gym_is_the_environment(tmp_path):
    path = BOTH["nemo-rl"](tmp_path)
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    agents = [{"type": "responses_api_agents", "name": f"agent{k % 2}"} for k in range(len(rows))]
    writers.lines(path, [{**row, "agent_ref": agent} for row, agent in zip(rows, agents, strict=True)])
    assert set(bounds.read_traces(path).labels["environment"]) == {"agent0", "agent1"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"trajectory": [{"tokens": None}]}, r"trajectory\[0\] has no tokens.completion_logprobs"),
        ({"trajectory": []}, "no model call with token ids and log-probs"),
        (
            {"custom_id": "c", "response": {"body": {"error": {}}}},
            "no choices in this response .did the request",
        ),
        (
            {"responses_create_params": {}, "response": {"output": [{"type": "function_call_output"}]}},
            "no model call with",
        ),
        ({"tokens": [[1]], "masks": [[1]], "scores": [1.0]}, "the group has no inference_logprobs"),
        (
            {"tokens": [[1]], "masks": [[1]], "scores": [], "inference_logprobs": [[-1.0]]},
            "must be of as many responses",
        ),
        (
            {"object": "response", "output": [{"type": "reasoning"}]},
            r"output\[0\] \(reasoning\) has none; tokens of reasoning",
        ),
        (
            {"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None, -1.0]}}]},
            "it holds scored text, the other half",
        ),
        (
            {"meta_info": {"output_token_logprobs": [[-0.1]]}},
            r"output_token_logprobs\[0\] must be a log-prob and a token id",
        ),
    ],
)
def test_rollouts_without_what_is_needed(tmp_path, row, message):
    with pytest.raises(bounds.TraceError, match=rf"x.jsonl:1: row 0: .*{message}"):
        bounds.read_traces(writers.lines(tmp_path / "x.jsonl", [row]))


def test_texts_of_tokens_join_halves_of_different_length_or_not_at_all(tmp_path):
    sampled, scored = writers.completions(tmp_path, example()[:4], ids=False)
    assert len(bounds.read_traces(sampled, train=scored)) == 4
    scored.write_text(scored.read_text().replace('"t', '"u', 9))
    with pytest.raises(bounds.TraceError, match="halves of different length need token ids"):
        bounds.read_traces(sampled, train=scored)


@pytest.mark.parametrize("layout", ["nemo-rl", "prime-rl"])
def test_token_ids_of_trainers_feed_explain(tmp_path, layout):
    traces = bounds.read_traces(BOTH[layout](tmp_path), horizon=256)
    expected = [t for r in example() for t in writers.response_tokens(r)]
    assert sorted(traces.tokens.tolist()) == sorted(expected)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_are_never_opened(tmp_path, protocol):
    path, proof = tmp_path / "log.jsonl", tmp_path / "it_ran"
    path.write_bytes(pickle.dumps(Malicious(proof), protocol=protocol))
    message = "this is a pickle, which is never opened" if protocol > 1 else "no known format"
    with pytest.raises(bounds.TraceError, match=message):
        bounds.read_traces(path)
    for name in READABLE:
        with pytest.raises((bounds.TraceError, ValueError)):
            bounds.read_traces(path, format=name)
    assert not proof.exists()
    pickle.loads(path.read_bytes())
    assert proof.exists()  # so the file was malicious


# --- what each trainer does that others do not ------------------------------------------------------------


def test_nemo_rl_groups_by_prompt_tokens_or_by_size(tmp_path):
    path = BOTH["nemo-rl"](tmp_path)
    assert len(bounds.read_traces(path, horizon=256).prompt_ids) == 24
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    bare = writers.lines(tmp_path / "bare.jsonl", [{k: v for k, v in r.items() if k != "token_ids"} for r in rows[:96]])
    with_size = bounds.read_traces(bare, horizon=256, group_size=4)
    same(said(with_size), truth())
    assert any("96 responses without prompt_id" in w for w in warnings_of(bare))
    with pytest.raises(bounds.TraceError, match="96 rows, which is no multiple of group_size=5"):
        bounds.read_traces(bare, group_size=5)
    canonical = writers.canonical(tmp_path, example())
    with pytest.raises(bounds.TraceError, match=r"row 4: group_size=8 puts it with rows of another prompt"):
        bounds.read_traces(canonical, group_size=8)
    same(said(canonical, group_size=2) | {"prompts": 24}, said(canonical, group_size=2) | {"prompts": 24})
    with pytest.raises(ValueError, match="group_size must be a whole number"):
        bounds.read_traces(canonical, group_size=0)


def test_nemo_rl_masked_samples_are_counted_as_empty(tmp_path):
    assert any("1 of 97 responses have no policy token" in w for w in warnings_of(BOTH["nemo-rl"](tmp_path)))


@pytest.mark.parametrize("kept", [0.5, math.inf])
def test_nemo_rl_sample_masks_are_0_or_1(tmp_path, kept):
    path = BOTH["nemo-rl"](tmp_path)
    row = json.loads(path.read_text().splitlines()[0])
    with pytest.raises(bounds.TraceError, match="row 0: sample_loss_mask must be 0 or 1, got"):
        bounds.read_traces(writers.lines(path, [{**row, "sample_loss_mask": [kept]}]))


def test_nemo_rl_with_dynamic_sampling_uses_the_rewards_of_the_rows(tmp_path):
    path = BOTH["nemo-rl"](tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    writers.lines(path, [{**r, "rewards": [0.123], "filtered_rewards": r["rewards"]} for r in rows])
    same(said(path), truth())


@pytest.mark.parametrize("layout", ["nemo-rl", "prime-rl"])
def test_the_first_token_of_a_sequence_has_no_logprob(tmp_path, layout):
    """What stands there is a filler: under mask 1 it is missing, not a divergence."""
    path = BOTH[layout](tmp_path)
    path = path if path.is_file() else path / "step_0" / "rank_0.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    mask = row["token_loss_mask"][0] if layout == "nemo-rl" else row["loss_mask"]
    mask[0] = 1
    writers.lines(path, [row])
    with pytest.raises(bounds.TraceError, match=r"rollout_logprobs\[0\] is null or NaN"):
        bounds.read_traces(path)


def test_nemo_rl_python_json_with_nan(tmp_path):
    path = BOTH["nemo-rl"](tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["generation_logprobs"][0][-1] = math.nan  # padding
    same(said(writers.lines(path, rows)), truth())
    rows[3]["prev_logprobs"][0][rows[3]["token_loss_mask"][0].index(1)] = -math.inf
    with pytest.raises(bounds.TraceError, match=r"step7.jsonl:4: row 3: train_logprobs\[\d+\] is -inf"):
        bounds.read_traces(writers.lines(path, rows))


def test_nemo_rl_long_lines_are_decoded_without_their_content(tmp_path):
    """A line of 30 MB: faster than json reads it, and in memory of a few times the line."""
    content = [{"role": "user", "content": "x" * 60, "n": [1.5, 2.5]} for _ in range(270_000)]
    small = writers.nemo_rl(tmp_path / "small", example()[:1])
    line = json.dumps({**json.loads(small.read_text().splitlines()[0]), "content": [content]})
    path = tmp_path / "long.jsonl"
    path.write_text(line)
    assert len(line) > 28e6
    start = time.process_time()
    json.loads(line)
    naive = time.process_time() - start
    start = time.process_time()
    traces = bounds.read_traces(path, format="nemo-rl", horizon=256)
    assert time.process_time() - start < naive
    assert traces.lengths.tolist() == [len(example()[0]["rollout_logprobs"])]
    code = (
        "import resource, sys; from bounds import read_traces\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "read_traces(sys.argv[2]); before = peak()\n"
        "read_traces(sys.argv[1]); print(peak() - before)"
    )
    out = subprocess.run([sys.executable, "-c", code, path, small], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 4 * len(line) / 2**20


def test_prime_rl_steps_without_stable_are_left_out_or_refused(tmp_path):
    folder = writers.prime_rl(tmp_path, example(), steps=2)
    assert len(bounds.read_traces(folder, horizon=256)) == 96
    assert sum("2 steps" in w for w in warnings_of(folder)) == 1
    (folder / "step_1" / "STABLE").unlink()
    for given in (folder, folder / "step_*" / "rank_*.jsonl", folder / "step_*"):
        traces = bounds.read_traces(given, horizon=256)
        assert len(traces) == 48
        assert sum("left out" in n and "step_1: no empty file STABLE" in n for n in traces.left_out.notes) == 1
    for given in (folder / "step_1", folder / "step_1" / "*.jsonl", folder / "step_1" / "rank_0.jsonl"):
        with pytest.raises(bounds.TraceError, match="step_1: no empty file STABLE"):
            bounds.read_traces(given)
    (folder / "step_1" / "STABLE").write_text("not empty")
    with pytest.raises(bounds.TraceError, match="no empty file STABLE"):
        bounds.read_traces(folder / "step_1")


def test_prime_rl_tokens_of_a_frozen_model_are_no_policy_tokens(tmp_path):
    path = writers.prime_rl(tmp_path, example()[:1], ranks=1) / "step_0" / "rank_0.jsonl"
    row = json.loads(path.read_text())
    first = row["loss_mask"].index(True)
    row["rl_weights"] = [float(m) for m in row["loss_mask"]]
    row["rl_weights"][first] = 0.0
    row["inference_logprobs"][first] = 0.0
    traces = bounds.read_traces(writers.lines(path, [row]), horizon=256)
    assert traces.kept.tolist() == [k for k, m in enumerate(row["loss_mask"]) if m and k != first]
    row["ref_kl_weights"] = [1.0] * len(row["loss_mask"])
    assert bounds.read_traces(writers.lines(path, [row]), horizon=256).rollout.size == sum(row["loss_mask"])
    with pytest.raises(bounds.TraceError, match="ref_kl_weights has 1 entries"):
        bounds.read_traces(writers.lines(path, [{**row, "ref_kl_weights": [1.0]}]))


# --- halves ------------------------------------------------------------------------------------------------


def pair(folder, sampled, scored):
    base = {"prompt_id": "p", "reward": 1.0, "rollout_logprobs": [-1.0, -0.5]}
    rows = [{**base, **s} for s in sampled], [{"train_logprobs": [-1.1, -0.4], **s} for s in scored]
    return writers.lines(folder / "mu.jsonl", rows[0]), writers.lines(folder / "pi.jsonl", rows[1])


@pytest.mark.parametrize(
    ("sampled", "scored", "message"),
    [
        ([{"tokens": [1, 2]}], [{"tokens": [1, 3]}], "token ids differ at position 1: the rows do not belong"),
        ([{}, {}], [{}], "1 sampled row without a partner"),
        ([{}], [{}, {}], "1 scored row without a partner"),
        ([{"row_id": 1}], [{"row_id": 2}], "1 sampled row without a partner"),
        ([{"row_id": 1}, {"row_id": 1}], [{"row_id": 2}, {"row_id": 1}], "row_id 1 stands in this half twice"),
        ([{"row_id": 1}, {}], [{"row_id": 1}, {"row_id": 2}], "row_id is missing, and other rows have one"),
        ([{}], [{"train_logprobs": [-1, -1, -1]}], "2 sampled and 3 scored tokens; halves of different length need"),
        ([{"tokens": [1, 2]}], [{"tokens": [2], "train_logprobs": [-1]}], "token ids differ"),
        ([{}], [{"reward": 0.0}], "reward is 1.0 and 0.0: the rows do not belong together"),
        ([{"train_logprobs": [-1, -1]}], [{}], "has train_logprobs already"),
        ([{}], [{"train_logprobs": None, "rollout_logprobs": [-1.0, -1.0]}], "this is not the scored half"),
    ],
)
def test_halves_that_do_not_belong_together(tmp_path, sampled, scored, message):
    mu, pi = pair(tmp_path, sampled, scored)
    with pytest.raises(bounds.TraceError, match=message):
        bounds.read_traces(mu, train=pi)


def test_halves_are_checked_by_tokens_or_said_to_be_unchecked(tmp_path):
    mu, pi = pair(tmp_path, [{}], [{}])
    assert any("1 row of the two halves joined by their order alone" in w for w in warnings_of(mu, train=pi))
    mu, pi = pair(tmp_path, [{"tokens": [1, 2]}], [{"tokens": [9, 1, 2], "train_logprobs": [None, -1.1, -0.4]}])
    traces = bounds.read_traces(mu, train=pi, horizon=4)
    np.testing.assert_allclose(traces.log_ratio, [-0.1, 0.1])
    assert not any("order alone" in n for n in traces.left_out.notes)
    mu, pi = pair(tmp_path, [{"row_id": "b"}, {"row_id": "a", "reward": 0.0}], [{"row_id": "a"}, {"row_id": "b"}])
    assert bounds.read_traces(mu, train=pi, horizon=4).reward.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        ("openai", lambda r: r.update(choices=[]), "no choices in this response"),
        ("openai", lambda r: r["choices"][0].update(logprobs=None), r"ask the server for them \(logprobs: true\)"),
        ("sglang", lambda r: r.update(meta_info=None), "meta_info is missing"),
        ("sglang", lambda r: r["meta_info"].pop("output_token_logprobs"), "it holds scored text, the other half"),
    ],
)
def test_server_responses_without_what_is_needed(tmp_path, layout, change, message):
    sampled, scored = HALVES[layout](tmp_path)
    rows = json.loads(sampled.read_text()) if layout == "sglang" else [json.loads(sampled.read_text().splitlines()[0])]
    change(rows[0])
    with pytest.raises(bounds.TraceError, match=f"row 0: .*{message}"):
        bounds.read_traces(writers.lines(sampled, rows), train=scored)


def test_an_empty_response_of_a_server_is_counted_as_empty(tmp_path):
    sampled, scored = HALVES["sglang"](tmp_path)
    rows = [json.loads(path.read_text()) for path in (sampled, scored)]
    rows[0][0]["meta_info"]["output_token_logprobs"] = []
    cut = len(rows[0][0]["meta_info"]["input_token_logprobs"])
    del rows[1][0]["meta_info"]["input_token_logprobs"][cut:]
    for path, values in zip((sampled, scored), rows, strict=True):
        path.write_text(json.dumps(values))
    traces = bounds.read_traces(sampled, train=scored, horizon=256)
    assert len(traces) == 95
    assert traces.left_out.empty.count == 1
    assert traces.left_out.empty.first.startswith(f"{sampled}: row 0")


def test_prompt_logprobs_of_several_tokens_need_the_ids(tmp_path):
    entries = [None, {"5": {"logprob": -1.0}, "6": {"logprob": -2.0}}, {"7": {"logprob": -0.5}}]
    mu, _ = pair(tmp_path, [{"tokens": [6, 7]}], [{}])
    answer = {"choices": [{"prompt_logprobs": entries}]}
    with pytest.raises(bounds.TraceError, match="several tokens and no prompt_token_ids"):
        bounds.read_traces(mu, train=writers.lines(tmp_path / "pi", [answer]))
    answer["prompt_token_ids"] = [1, 6, 7]
    traces = bounds.read_traces(mu, train=writers.lines(tmp_path / "pi", [answer]), horizon=4)
    assert traces.train.tolist() == [-2.0, -0.5]


# --- folders, steps, repeats -------------------------------------------------------------------------------


def test_folders_are_searched_through_and_what_is_no_log_is_counted(tmp_path):
    run = tmp_path / "run"
    for k in range(12):
        writers.canonical(
            run / f"global_step_{k}",
            [{**r, "prompt_id": f"{k}:{i}"} for i, r in enumerate(example()[8 * k : 8 * k + 8])],
        )
    (run / "config.yaml").write_text("a: 1")
    (run / "config.json").write_text('{"lr": 1e-6}')
    (run / "events").write_bytes(b"")
    traces = bounds.read_traces(run, horizon=256)
    assert len(traces) == 96
    assert [w.split("global_step_")[1].split("/")[0] for w in traces.where[::8]] == [str(k) for k in range(12)]
    assert any(
        "3 of 15 files are no canonical log and are ignored (first: config.json)" in n for n in traces.left_out.notes
    )
    (warning,) = [w for w in warnings_of(run) if " steps" in w]
    assert "the log holds 12 steps (0 to 11)" in warning
    assert traces.labels["step"][::8] == tuple(map(str, range(12)))
    writers.nemo_rl(run / "other", example()[:4])
    with pytest.raises(bounds.TraceError, match=r"logs of several formats \(canonical, nemo-rl\): say which"):
        bounds.read_traces(run)
    assert len(bounds.read_traces(run, format="nemo-rl", horizon=256)) == 4
    assert len(open_log(run / "**" / "log.jsonl").files) == 12


def test_steps_are_read_from_names_and_never_invented(tmp_path):
    def step(*parts, **more):
        path = writers.lines(tmp_path.joinpath(*parts), [{**example()[0], **more}])
        return bounds.read_traces(path, horizon=256).labels.get("step")

    assert step("global_step_3", "step12.jsonl") == ("12",)
    assert step("rollout_4", "rank_1.jsonl") == ("4",)
    assert step("step_8", "a", "b", "c", "log.jsonl") is None  # too far away to speak of this file
    assert step("step_9", "log.jsonl", step=2) == ("2",)
    assert step("step_" + "9" * 30, "log.jsonl") is None


def test_repeated_responses_are_noticed(tmp_path):
    """Cumulative chunks (each holds what the earlier ones held) are refused, single repeats said."""
    chunks = [writers.lines(tmp_path / f"{k}.jsonl", example()[: 24 * (k + 1)]) for k in range(3)]
    with pytest.raises(bounds.TraceError, match=r"1.jsonl: 22 of its responses stand, bitwise the same, in .*0.jsonl"):
        bounds.read_traces(chunks)
    twice = writers.lines(tmp_path / "twice.jsonl", [*example(), *example()[:2]])
    (warning,) = [w for w in warnings_of(twice) if "standing in the log twice" in w]
    assert warning.startswith("2 responses")
    assert "twice.jsonl:97" in warning
    assert not any("twice" in w for w in warnings_of(writers.canonical(tmp_path, example())))
    probable = [r for r in example() if sum(r["rollout_logprobs"]) > -30]
    assert len(probable) > 3
    assert not any("twice" in w for w in warnings_of(writers.canonical(tmp_path, [*probable, *probable])))
    other = [{**r, "prompt_id": "another"} for r in example()]
    (warning,) = [w for w in warnings_of(writers.canonical(tmp_path, [*example(), *other])) if "twice" in w]
    assert warning.endswith("have another prompt_id")


@pytest.mark.parametrize("floor", [-1000.0, -9999.0, -1e10, -math.inf, None, math.nan])
@pytest.mark.parametrize("layout", ["nemo-rl", "prime-rl"])
def test_fillers_of_any_floor_count_nowhere_and_are_missing_under_the_mask(tmp_path, layout, floor):
    path = BOTH[layout](tmp_path)
    path = path if path.is_file() else path / "step_0" / "rank_0.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    keys = ("generation_logprobs", "token_loss_mask") if layout == "nemo-rl" else ("inference_logprobs", "loss_mask")
    before = said(path)
    for row in rows:
        values, mask = (row[k][0] if layout == "nemo-rl" else row[k] for k in keys)
        values[:] = [v if m else floor for v, m in zip(values, mask, strict=True)]
    same(said(writers.lines(path, rows)), before)
    values, mask = (rows[2][k][0] if layout == "nemo-rl" else rows[2][k] for k in keys)
    values[mask.index(1)] = floor
    writers.lines(path, rows)
    with pytest.raises(bounds.TraceError, match=r"row 2: rollout_logprobs\[\d+\] is .* stands for a missing value"):
        bounds.read_traces(path)
    assert any("1 of" in w and "were dropped" in w for w in warnings_of(path, on_missing="drop"))


def test_a_file_is_limited_in_its_lines_and_in_what_it_unpacks_to(tmp_path, monkeypatch):
    """A small file must not fill the memory: each limit is named with its option, and may be raised."""
    path = writers.canonical(tmp_path, example()[:8])
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:1: a record of more than 0.002 MiB.*--max-line"):
        bounds.read_traces(path, max_line=0.002)
    array = tmp_path / "array.json"
    array.write_text(json.dumps(example()[:8]))
    assert len(bounds.read_traces(array)) == 8
    with pytest.raises(bounds.TraceError, match=r"array.json: row \d: a record of more than 0.002 MiB"):
        bounds.read_traces(array, max_line=0.002)
    monkeypatch.setattr("bounds.logs.decode._UNPACKED_FREELY", 1000)
    packed = tmp_path / "packed.jsonl.gz"
    with gzip.open(packed, "wt") as file:
        file.write((json.dumps(example()[0]) + " " * 10000 + "\n") * 100)
    with pytest.raises(bounds.TraceError, match=r"unpacked it is more than 50 times as large as on disk.*--max-ratio"):
        bounds.read_traces(packed, max_ratio=50)
    assert len(bounds.read_traces(packed, max_ratio=5000)) == 100
    many = tmp_path / "many.parquet"  # a hundred responses of 20,000 zeros each, in some kilobytes
    zeros = {name: np.zeros(20000) for name in ("rollout_logprobs", "train_logprobs")}
    bounds.TraceSet.from_records([zeros] * 100, horizon=20000).to_parquet(many)
    assert many.stat().st_size < 20000
    with pytest.raises(bounds.TraceError, match=r"many.parquet: unpacked it is more than 50 times as large as on disk"):
        bounds.read_traces(many, max_ratio=50)
    assert len(bounds.read_traces(many, max_ratio=1e5)) == 100
    with pytest.raises(ValueError, match="max_line must be above 0, got max_line=0"):
        bounds.read_traces(path, max_line=0)


def test_empty_lines_without_an_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bounds.logs.decode.MAX_EMPTY", 50)
    rows = path = tmp_path / "log.jsonl"
    row = json.dumps(example()[0]) + "\n"
    path.write_text((row + "\n" * 50) * 2)
    assert len(bounds.read_traces(rows)) == 2
    path.write_text(row + "\n" * 51)
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:52: 50 empty lines in a row: this is no log"):
        bounds.read_traces(path)


def test_parts_come_before_the_rest_is_read(tmp_path, monkeypatch):
    """What is wrong with a row is said once all rows before it are there."""
    path = writers.canonical(tmp_path, example())
    with path.open("a") as file:
        file.write("not json\n")
    for tokens in (2**18, 1):
        monkeypatch.setattr("bounds.logs.batch.BATCH_TOKENS", tokens)
        parts = iter(open_log(path, horizon=256))
        before = sum(len(next(parts)) for _ in range(1 if tokens > 1 else 96))
        assert before == 96
        with pytest.raises(bounds.TraceError, match=r"log.jsonl:97: row 96"):
            next(parts)


# --- the command -------------------------------------------------------------------------------------------


def command(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_formats_lists_every_format_and_prints_recipes(capsys):
    code, out, err = command(capsys, "formats")
    assert (code, err) == (0, "")
    for name in FORMATS:
        assert name in out
    code, out, _ = command(capsys, "formats", "--json")
    listed = {f["name"]: f for f in json.loads(out)["formats"]}
    assert listed.keys() == FORMATS.keys()
    assert tuple(name for name, f in listed.items() if f["read"]) == READABLE
    assert all(bool(f["advice"]) != f["read"] for f in listed.values())
    for trainer, source in RECIPES.items():
        code, out, _ = command(capsys, "formats", "--recipe", trainer)
        assert out == source
        assert sum(bool(line.strip()) and not line.startswith("#") for line in source.splitlines()) <= 10
    code, _, err = command(capsys, "formats", "--recipe", "veril")
    assert code == 2
    assert "unknown recipe 'veril'; did you mean 'verl'" in err


def test_certify_reads_halves_and_groups(capsys, tmp_path):
    sampled, scored = HALVES["sglang"](tmp_path)
    code, out, err = command(
        capsys, "certify", sampled, "--train", scored, "--group-size", 4, "--horizon", 256, "--json"
    )
    assert code == 0
    assert json.loads(out)["prompts"] == 24
    assert command(capsys, "certify", "--train", scored)[0] == 2
    code, _, err = command(capsys, "certify", sampled, "--format", "sglan")
    assert code == 2
    assert "did you mean 'sglang'" in err


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fuzz_readers.WITHOUT_TORCH)
def test_damaged_files_give_a_result_or_a_clear_error(tmp_path, name):
    outcomes = fuzz_readers.fuzz(name, 300, tmp_path)
    assert sum(outcomes.values()) == 300
    assert min(outcomes["read"], outcomes["refused"]) >= 5  # so both were tried


def test_nothing_known_is_decoded_by_an_unbounded_type():
    """A row's fields are typed: an object where a number should be is an error, not a structure that is built."""
    from bounds.logs.trainers import _NemoRow

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"prev_logprobs": {"a": [1]}}', type=_NemoRow)


def test_null_is_not_an_empty_list(tmp_path):
    """A cell of Parquet without a list is missing; it is no response of length 0."""
    path = tmp_path / "x.parquet"
    pd.DataFrame({"rollout_logprobs": [[-1.0], [-1.0]], "train_logprobs": [[-1.0], None]}).to_parquet(path)
    with pytest.raises(bounds.TraceError, match=r"row 1: train_logprobs is missing"):
        bounds.read_traces(path)


def test_text_beside_logprobs_of_another_name_is_no_dump_of_text(tmp_path):
    path = writers.lines(tmp_path / "x", [{"prompt": "a", "completion": "b", "rollout_log_probs": [-1.0]}])
    with pytest.raises(bounds.TraceError, match=r"is it 'rollout_log_probs'\? Rename it"):
        bounds.read_traces(path)


def test_recognition_says_nothing_of_other_tables(tmp_path):
    path = writers.lines(tmp_path / "x.jsonl", [{"a": 1}])
    assert recognised(look(path), path) is None
