"""The script that makes the second half of a log, on a small random model; needs transformers, and fails without it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import writers
from transformers import AutoModelForCausalLM, LlamaConfig

import bounds
from bounds.cli.main import main
from bounds.logs.formats import recipe

VOCABULARY = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random model of some 20,000 parameters."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model")
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def log_probs(model, ids):
    """One sequence at a time, in float64: what the script must say."""
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)(torch.tensor([ids])).logits[0]
    return logits[:-1].log_softmax(-1).gather(-1, torch.tensor(ids)[1:, None]).squeeze(-1).tolist()


@pytest.fixture(scope="module")
def sampled(model):
    """Prompts and responses of different lengths, with the log-probs of the model itself."""
    torch.manual_seed(4)
    rows = []
    for k, (before, n) in enumerate([(3, 5), (1, 9), (7, 2), (4, 17), (2, 1)]):
        ids = torch.randint(VOCABULARY, (before + n,)).tolist()
        rows.append((f"r{k}", ids[:before], ids[before:], log_probs(model, ids)[before - 1 :]))
    return rows


def completions(folder, sampled):
    """As vLLM answers."""
    rows = [
        {"choices": [{"prompt_token_ids": prompt, "token_ids": ids, "row_id": name, "reward": 1.0, "logprobs": {
            "tokens": [f"t{t}" for t in ids], "token_logprobs": values}}]}
        for name, prompt, ids, values in sampled
    ]  # fmt: skip
    return writers.lines(folder / "sampled.jsonl", rows)


def run(monkeypatch, *arguments):
    """Run what is printed, here and not in another process, which would load transformers again."""
    monkeypatch.setattr(sys, "argv", ["score.py", *map(str, arguments), "--device", "cpu"])
    namespace = {"__name__": "score", "__doc__": ""}
    exec(recipe("score"), namespace)
    namespace["main"]()


@pytest.mark.parametrize("batch", [1, 4])
def test_the_second_half_is_that_of_one_sequence_at_a_time(tmp_path, monkeypatch, model, sampled, batch):
    log, scored = completions(tmp_path, sampled), tmp_path / "scored.jsonl"
    run(monkeypatch, model, log, scored, "--batch", batch)
    for line, (name, _, ids, values) in zip(scored.read_text().splitlines(), sampled, strict=True):
        row = json.loads(line)
        assert (row["row_id"], row["tokens"]) == (name, ids)
        assert row["train_logprobs"] == pytest.approx(values, abs=2e-5)
    traces = bounds.read_traces(log, train=scored, horizon=32)
    assert len(traces) == len(sampled)
    assert abs(traces.log_ratio).max() < 2e-5
    with pytest.raises(FileExistsError):
        run(monkeypatch, model, log, scored)


def test_it_runs_as_a_script_of_its_own(tmp_path, model, sampled):
    script, log, scored = tmp_path / "score.py", completions(tmp_path, sampled), tmp_path / "scored.jsonl"
    script.write_text(recipe("score"))
    command = [sys.executable, str(script), str(model), str(log), str(scored), "--dtype", "bfloat16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    traces = bounds.read_traces(log, train=scored, horizon=32)
    assert 2e-5 < abs(traces.log_ratio).max() < 0.2


def test_a_temperature_divides_the_logits(tmp_path, monkeypatch, model, sampled):
    log, scored = completions(tmp_path, sampled[:1]), tmp_path / "scored.jsonl"
    run(monkeypatch, model, log, scored, "--temperature", "0.5")
    values = json.loads(scored.read_text())["train_logprobs"]
    assert values != pytest.approx(sampled[0][3], abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": None}, "row 0: no token ids of the prompt: ask the server"),
        ({"prompt_token_ids": []}, "row 0: no token ids of the prompt"),
        ({"token_ids": None}, "row 0: no token ids of the response"),
        ({"token_ids": [1, 2, 3, 4, VOCABULARY]}, f"row 0: {VOCABULARY} in the response is no token id of this model"),
        ({"token_ids": [1, 2]}, "row 0: 2 ids and 5 log-probs in this response"),
    ],
)
def test_what_cannot_be_scored_is_named(tmp_path, monkeypatch, model, sampled, change, message):
    log = completions(tmp_path, sampled[:2])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows[0]["choices"][0] |= change
    with pytest.raises((SystemExit, bounds.TraceError), match=message):
        run(monkeypatch, model, writers.lines(log, rows), tmp_path / "scored.jsonl")


def test_the_recipe_is_printed(capsys):
    assert main(["formats", "--recipe", "score"]) == 0
    assert capsys.readouterr().out == recipe("score")
