"""slime's torch files, and the export recipes on real tensors; needs torch, and fails without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import fuzz_readers
import numpy as np
import pytest
import torch
import writers
from test_readers import example, said, same, truth

import bounds
from bounds.logs import FORMATS
from bounds.logs.decode import look


def dump(path, payload=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(writers.slime_payload(example(), vector) if payload is None else payload, path, **options)
    return path


def vector(values):
    """As slime keeps them: ids and masks whole numbers, log-probs of any precision (here exact)."""
    return torch.tensor(values, dtype=torch.float64 if isinstance(values[0], float) else torch.long)


def test_slime_gives_the_certificate_of_the_canonical_file(tmp_path):
    same(said(dump(tmp_path / "train_data" / "3.pt")), truth())


def test_slime_in_float32_gives_that_of_the_rounded_log(tmp_path):
    def single(values):
        return torch.tensor(values, dtype=torch.float32 if isinstance(values[0], float) else torch.int)

    def rounded(record):
        logs = {
            k: torch.tensor(record[k], dtype=torch.float32).tolist() for k in ("rollout_logprobs", "train_logprobs")
        }
        return {**record, **logs}

    path = dump(tmp_path / "3.pt", writers.slime_payload(example(), single))
    same(said(path), said(bounds.TraceSet.from_records(map(rounded, example()), horizon=256)))


def test_slime_rewards_are_the_raw_ones_else_those_of_the_samples(tmp_path):
    payload = writers.slime_payload(example(), vector)
    del payload["raw_reward"]
    with pytest.raises(bounds.TraceError, match=r"row 0: reward must be a number in \[0, 1\], got -0.37"):
        bounds.read_traces(dump(tmp_path / "3.pt", payload))
    for sample, record in zip(payload["samples"], example(), strict=True):
        sample["rewards"] = record["reward"]
    same(said(dump(tmp_path / "3.pt", payload)), truth())


def test_a_torch_file_is_recognised_by_its_content(tmp_path):
    rollout = {"samples": [{"rollout_log_probs": [-1.0], "tokens": [1]}], "rollout_id": 3}
    for payload, expected in ((None, ["slime"]), (rollout, ["slime-rollout"]), ({"weights": torch.ones(2)}, [])):
        path = dump(tmp_path / "nameless", payload)
        assert [f.name for f in FORMATS.values() if f.recognises(look(path))] == expected
    with pytest.raises(bounds.TraceError, match="a torch file, but not slime's train_data dump"):
        bounds.read_traces(path)
    with pytest.raises(bounds.TraceError, match=r"read train_data/\{rollout_id\}.pt"):
        bounds.read_traces(dump(tmp_path / "nameless", rollout))
    with zipfile.ZipFile(tmp_path / "other", "w") as archive:
        archive.writestr("a.txt", "b")
    with pytest.raises(bounds.TraceError, match="a zip archive, and no torch file"):
        bounds.read_traces(tmp_path / "other")


def test_the_folder_that_dump_details_writes(tmp_path):
    dump(tmp_path / "train_data" / "3.pt")
    dump(tmp_path / "rollout_data" / "3.pt", {"samples": [{"rollout_log_probs": [-1.0]}]})
    traces = bounds.read_traces(tmp_path, horizon=256)
    assert len(traces) == 96
    assert any("1 of 2 files are no slime log" in n for n in traces.left_out.notes)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_a_torch_file_is_never_run(tmp_path):
    proof = tmp_path / "it_ran"
    payload = writers.slime_payload(example()[:1], vector)
    path = dump(tmp_path / "3.pt", {**payload, "extra": Malicious(proof)})
    with pytest.raises(bounds.TraceError, match=r"torch's safe loading refuses it .*nothing in it was run"):
        bounds.read_traces(path)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists()  # so the file was malicious


def test_a_tensor_that_claims_more_numbers_than_it_stores_is_refused(tmp_path):
    payload = writers.slime_payload(example()[:1], vector)
    payload["samples"][0]["log_probs"] = torch.zeros(1).expand(10**12)
    with pytest.raises(bounds.TraceError, match="row 0: log_probs must be a plain tensor"):
        bounds.read_traces(dump(tmp_path / "3.pt", payload))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(samples={"log_probs": 1}), "must be a dict with a list `samples`"),
        (lambda p: p["samples"].insert(0, 5), r"samples\[0\] must be a dict, got int"),
        (lambda p: p["samples"][0].pop("loss_masks"), "row 0: loss_masks is missing .the sample has: "),
        (lambda p: p["samples"][0].update(loss_masks="x"), "row 0: loss_masks must be a list of numbers"),
    ],
)
def test_other_dicts(tmp_path, change, message):
    payload = writers.slime_payload(example()[:2], vector)
    change(payload)
    with pytest.raises(bounds.TraceError, match=message):
        bounds.read_traces(dump(tmp_path / "3.pt", payload), format="slime")


def test_without_torch_the_error_says_what_to_install(tmp_path):
    path = dump(tmp_path / "3.pt")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from bounds.cli.main import main; sys.exit(main(['certify', sys.argv[1]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 2
    assert 'reading torch files needs torch: pip install "trm-bounds[torch]"' in done.stderr


def test_damaged_torch_files_give_a_result_or_a_clear_error(tmp_path):
    outcomes = fuzz_readers.fuzz("slime", 300, tmp_path)
    assert sum(outcomes.values()) == 300
    assert min(outcomes["read"], outcomes["refused"]) >= 5


def test_miles_columns_give_the_certificate_of_the_canonical_file(tmp_path):
    path = dump(tmp_path / "3.pt", writers.miles_payload(example(), vector))
    assert [f.name for f in FORMATS.values() if f.recognises(look(path))] == ["miles"]
    same(said(path), truth())
    assert set(bounds.read_traces(path).labels["step"]) == {"3"}
    payload = writers.miles_payload(example()[:4], vector)
    payload["rollout_data"]["loss_masks"].pop()
    with pytest.raises(bounds.TraceError, match=r"rollout_data\['loss_masks'\] must have one entry for each of the 4"):
        bounds.read_traces(dump(tmp_path / "4.pt", payload))
    payload = {"rollout_data": {"tokens": []}}
    with pytest.raises(bounds.TraceError, match="rollout_data has no list rollout_log_probs"):
        bounds.read_traces(dump(tmp_path / "5.pt", payload), format="miles")


def test_what_miles_writes_of_its_loss_is_read_without_rewards(tmp_path):
    path = dump(tmp_path / "rank_0_call_0.pt", writers.miles_loss_payload(example(), vector))
    assert [f.name for f in FORMATS.values() if f.recognises(look(path))] == ["miles-loss"]
    traces = bounds.read_traces(path, horizon=256)
    assert traces.reward is None
    expected = bounds.TraceSet.from_records(example(), horizon=256)
    np.testing.assert_array_equal(traces.log_ratio, expected.log_ratio)
    payload = writers.miles_loss_payload(example()[:1], vector)
    payload["samples"][0]["response_length"] += 7
    with pytest.raises(
        bounds.TraceError, match=r"of a response's \d+ tokens: ranks of context parallelism hold a piece"
    ):
        bounds.read_traces(dump(tmp_path / "piece.pt", payload))
