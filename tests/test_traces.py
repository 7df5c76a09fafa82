"""Logs in: what is read, what is refused and how it is said, and the troubles that public trackers report."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import bounds
from bounds.logs.traces import LeftOut, Seen, TraceSet, beginning


def record(rollout, train, **more):
    return {"prompt_id": "p0", "reward": 1.0, "rollout_logprobs": rollout, "train_logprobs": train, **more}


def trace_set(*records, horizon=16, **options):
    return bounds.TraceSet.from_records(records, horizon=horizon, **options)


def certified(*records, **options):
    return bounds.certify(trace_set(*records), **options)


GOOD = record([-1.0, -0.5, -2.0], [-1.1, -0.4, -2.0])


def files(tmp_path, records):
    """The same records as JSONL and as Parquet."""
    jsonl, parquet = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    jsonl.write_text("".join(json.dumps(r) + "\n" for r in records))
    pd.DataFrame(records).to_parquet(parquet)
    return jsonl, parquet


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record([-1.0], [-1.0, -2.0]), "row 1: train_logprobs has 2 entries, rollout_logprobs has 1"),
        (record([-1.0], None), "row 1: train_logprobs is missing .the record has: prompt_id, reward, rollout_logprobs"),
        (record([-1.0, -2.0], [-1.0, -2.0], mask=[1]), "row 1: mask has 1 entries"),
        (record([-1.0, -2.0], [-1.0, -2.0], mask=[1, 2]), r"row 1: mask\[1\] must be 0 or 1, got 2"),
        (
            record([-0.2, None, -0.4], [-0.2, -0.1, -0.4]),
            r"row 1: rollout_logprobs\[1\] is null or NaN, which stands for a m",
        ),
        (record([-0.2, math.nan], [-0.2, -0.1]), r"row 1: rollout_logprobs\[1\] is null or NaN"),
        (record([-0.2, -9999.0], [-0.2, -0.1]), r"row 1: rollout_logprobs\[1\] is -9999, which stands for a missing"),
        (record([-0.2, -0.1], [-0.2, -math.inf]), r"row 1: train_logprobs\[1\] is -inf"),
        (record([-0.2, -0.1], [-0.2, 0.03]), r"row 1: train_logprobs\[1\] must be a log-probability .* got 0.03"),
        (record([-0.2], [-0.2], kl=[-0.1]), r"row 1: kl\[0\] must be a number >= 0, got -0.1"),
        (record([-0.2], [-0.2], tv=[1.1]), r"row 1: tv\[0\] must be a number in \[0, 1\], got 1.1"),
        (record([-0.2], [-0.2], chi2=[math.nan]), r"row 1: chi2\[0\] is null or NaN"),
        (
            {**record([-0.2], [-0.2]), "reward": 7.0},
            r"row 1: reward must be a number in \[0, 1\], got 7; .*reward_range",
        ),
        (
            {**record([-0.2], [-0.2]), "reward": None},
            "row 1: reward is given for some responses and not for others .compare row 0",
        ),
        (record([-0.2] * 17, [-0.2] * 17), "row 1: 17 policy tokens, more than horizon=16"),
        (record([-0.2], [-0.2], kl=[0.1]), "row 1: kl is given for some responses and not for others"),
        (record(["x"], [-0.2]), "row 1: rollout_logprobs must be a list of numbers"),
        (record([[-0.2]], [[-0.2]]), "row 1: rollout_logprobs must be a flat list of numbers"),
    ],
)
def test_refused_by_row_field_and_position(bad, message):
    first = {**GOOD, **({k: [0.0] * 3 for k in ("tv", "chi2") if k in bad})}
    if "kl" in bad and bad["kl"] != [0.1]:
        first["kl"] = [0.0] * 3
    with pytest.raises(bounds.TraceError, match=message):
        trace_set(first, bad)


@pytest.mark.parametrize("kind", [0, 1], ids=["jsonl", "parquet"])
def test_files_are_read_and_their_errors_name_the_file(tmp_path, kind):
    path = files(tmp_path, [GOOD, {**GOOD, "prompt_id": "p1"}])[kind]
    traces = bounds.read_traces(path, horizon=8)
    assert (len(traces), traces.prompt_ids, traces.horizon) == (2, ("p0", "p1"), 8)
    np.testing.assert_allclose(traces.log_ratio, [-0.1, 0.1, 0.0] * 2)
    bad = files(tmp_path, [GOOD, record([-1.0, None], [-1.0, -1.0])])[kind]
    where = r"log.jsonl:2: row 1" if kind == 0 else r"log.parquet: row 1"
    with pytest.raises(bounds.TraceError, match=where + r": rollout_logprobs\[1\] is null or NaN"):
        bounds.read_traces(bad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rollout_logprobs": [-1, "a"], "train_logprobs": [-1, -1]}', r":1: row 0: .*rollout_logprobs\[1\]"),
        ('{"rollout_logprobs": [-1], "train_logprobs": [-1]', ":1: row 0: "),
        ('{"reward": "high", "rollout_logprobs": [-1], "train_logprobs": [-1]}', r":1: row 0: .*reward"),
        (
            '{"rollout_logprobs": [-1, NaN], "train_logprobs": [-1, -1]}',
            r":1: row 0: rollout_logprobs\[1\] is null or NaN",
        ),
        ("not json", "no known format"),
        ("", "the file is empty"),
        ("[]", "this is an empty JSON array"),
        ("\x80", "no known format"),
        ('{"x": ' + "[" * 100_000, ":1: row 0: "),
        ("{}\n", ":1: row 0: rollout_logprobs is missing"),
    ],
)
def test_malformed_jsonl(tmp_path, text, message):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(bounds.TraceError, match=f"log.jsonl.*{message}"):
        bounds.read_traces(path)


def test_malformed_parquet_and_unknown_formats(tmp_path):
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1nonsense")
    with pytest.raises(bounds.TraceError, match=r"log.parquet: cannot be read as Parquet"):
        bounds.read_traces(path)
    with pytest.raises(ValueError, match="unknown format 'canonica'; did you mean 'canonical'"):
        bounds.read_traces(path, format="canonica")
    with pytest.raises(FileNotFoundError, match="no such file"):
        bounds.read_traces(tmp_path / "*.jsonl")


def test_numbers_beyond_json_are_fine_under_the_mask(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"rollout_logprobs": [-1, NaN], "train_logprobs": [-1, -Infinity], "mask": [1, 0]}\n')
    assert bounds.read_traces(path, horizon=4).rollout.tolist() == [-1.0]


def test_globs_and_several_files(tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.jsonl").write_text(json.dumps({**GOOD, "prompt_id": k}) + "\n\n")
    assert len(bounds.read_traces(tmp_path / "*.jsonl", horizon=8)) == 3
    assert len(bounds.read_traces([tmp_path / "0.jsonl", tmp_path / "2.jsonl"], horizon=8)) == 2


def test_parquet_round_trip_keeps_everything(tmp_path):
    traces = bounds.example_traces()
    traces.to_parquet(tmp_path / "copy.parquet")
    copy = bounds.read_traces(tmp_path / "copy.parquet")
    assert copy.horizon == traces.horizon == 256  # from the file's metadata
    for name in ("rollout", "train", "starts", "prompt", "reward"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(traces, name))
    for name in ("kl", "tv", "chi2"):
        np.testing.assert_array_equal(copy.exact[name], traces.exact[name])
    assert bounds.certify(copy).to_dict()["estimates"] == bounds.certify(traces).to_dict()["estimates"]


@pytest.mark.parametrize("tokens", [[5, 6, 7], ["a", " b", "c"]])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_labels_and_tokens_survive_files(tmp_path, tokens, kind):
    said = {"step": 3, "weight_version": "v2", "environment": "maths", "tokens": tokens, "mask": [1, 1, 0]}
    rows = [{**GOOD, **said}, {**GOOD, **said, "step": 4, "environment": "code"}]
    if kind == "jsonl":
        (tmp_path / "log").write_text("".join(json.dumps(r) + "\n" for r in rows))
    else:
        trace_set(*rows).to_parquet(tmp_path / "log")
    read = bounds.read_traces(tmp_path / "log")
    expected = {"step": ("3", "4"), "weight_version": ("v2", "v2"), "environment": ("maths", "code")}
    assert read.labels == expected
    assert read.tokens.tolist() == tokens[:2] * 2


@pytest.mark.parametrize("batch", [2**18, 1])
@pytest.mark.parametrize("tokens", [[5, 6, 7], ["a", " b", "c"]])
def test_what_only_left_out_responses_lack_is_no_lack(monkeypatch, tokens, batch):
    monkeypatch.setattr("bounds.logs.batch.BATCH_TOKENS", batch)
    empty = {**GOOD, "mask": [0, 0, 0]}
    full = {**GOOD, "mask": [1, 1, 0], "tokens": tokens, "kl": [0.1, 0.2, 0.3], "old_logprobs": [-1.0, -0.4, -2.0]}
    traces = trace_set(empty, full, {**empty, "reward": None}, full)
    assert traces.tokens.tolist() == tokens[:2] * 2
    assert traces.exact["kl"].tolist() == [0.1, 0.2] * 2
    assert traces.old.tolist() == [-1.0, -0.4] * 2
    assert traces.left_out.empty == Seen(2, "row 0")
    assert trace_set(full, {**GOOD, "mask": [1, 1, 1], "kl": full["kl"], "old_logprobs": [-1.0] * 3}).tokens is None


def test_files_that_name_different_horizons(tmp_path):
    trace_set(GOOD, horizon=8).to_parquet(tmp_path / "a.parquet")
    trace_set(GOOD, horizon=9).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(bounds.TraceError, match=r"different horizons \(8, 9\)"):
        bounds.read_traces(tmp_path / "*.parquet")
    assert bounds.read_traces(tmp_path / "*.parquet", horizon=9).horizon == 9


def test_from_arrays_and_from_frame_are_from_records():
    rollout = np.array([[-1.0, -0.5, 7.0], [-0.3, -0.2, -0.1]])
    train = np.array([[-1.1, -0.4, np.nan], [-0.3, -0.3, -0.1]])
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    arrays = bounds.TraceSet.from_arrays(
        rollout, train, mask=mask, rewards=[0.0, 1.0], prompt_ids=["a", "b"], horizon=3
    )
    records = trace_set(
        record([-1.0, -0.5], [-1.1, -0.4], prompt_id="a", reward=0.0),
        record([-0.3, -0.2, -0.1], [-0.3, -0.3, -0.1], prompt_id="b"),
        horizon=3,
    )
    frame = pd.DataFrame(
        {
            "prompt_id": ["a", "b"],
            "reward": [0.0, 1.0],
            "rollout_logprobs": list(rollout),
            "train_logprobs": list(train),
            "mask": list(mask),
            "note": ["ignored", "too"],
        }
    )
    for other in (arrays, bounds.TraceSet.from_frame(frame, horizon=3)):
        np.testing.assert_array_equal(other.log_ratio, records.log_ratio)
        assert bounds.certify(other).to_dict() == bounds.certify(records).to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_logprobs": np.zeros((2, 4))}, "train_logprobs must be an array"),
        ({"mask": np.zeros(3)}, "mask must be an array"),
        ({"rewards": [1.0]}, "reward must have one entry for each of the 2 responses, got 1"),
        ({"prompt_ids": ["a"]}, "prompt_id must have one entry"),
    ],
)
def test_from_arrays_refuses_shapes(arguments, message):
    given = {"rollout_logprobs": np.zeros((2, 3)), "train_logprobs": np.zeros((2, 3)), **arguments}
    with pytest.raises(bounds.TraceError, match=message):
        bounds.TraceSet.from_arrays(given.pop("rollout_logprobs"), given.pop("train_logprobs"), **given)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="logprob_dtype must be one of float32"):
        trace_set(GOOD, logprob_dtype="int8")
    with pytest.raises(ValueError, match="on_missing must be"):
        trace_set(GOOD, on_missing="ignore")
    with pytest.raises(ValueError, match="horizon must be a whole number"):
        trace_set(GOOD, horizon=0)
    with pytest.raises(ValueError, match="reward_range must be"):
        trace_set(GOOD, reward_range=(1.0, 0.0))


# --- troubles that public trackers report, as kinds ----------------------------------------------------------


@pytest.mark.parametrize("filler", [-1e10, 1e10, math.nan, -math.inf, math.inf, None, -9999.0, 0.0])
def test_fillers_under_the_mask_poison_nothing(filler):
    result = certified(record([-1.0, 0.0], [-1.1, filler], mask=[1, 0]))
    assert result.estimates["kl_seq"].value == pytest.approx(0.0048374, abs=1e-7)


@pytest.mark.parametrize("mask", [[1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0], [True, False, False, True]])
def test_tool_tokens(mask):
    tool = ([-0.5, 0.0, 0.0, -0.7], [-0.6, -8.0, -9.0, -0.8])
    masked = certified(record(*tool, mask=mask))
    assert masked.estimates["kl_seq_k1"].value / 2 == pytest.approx(0.1)
    assert not any("exactly 0" in w for w in masked.warnings)
    plain = certified(record(*tool))
    warning = next(w for w in plain.warnings if "exactly 0" in w)
    assert "2 tokens" in warning
    assert "no mask is given" in warning
    assert "row 0, positions 1, 2" in warning
    swapped = certified(record(tool[1], tool[0]), assume={"absolutely_continuous": True})
    assert any("train_logprobs is exactly 0 on 2 tokens" in w for w in swapped.warnings)


def test_empty_responses_are_left_out_and_counted():
    full = record([-0.1, -0.2], [-0.1, -0.3], mask=[1, 1])
    result = certified(record([-0.1, -0.2], [-0.1, -0.3], mask=[0, 0]), full, record([], []))
    assert result.responses == 1
    assert any("2 of 3 responses have no policy token and are left out" in w for w in result.warnings)
    assert result.estimates["mean_ratio"].value == pytest.approx((1 + math.exp(-0.1)) / 2)
    with pytest.raises(bounds.TraceError, match=r"no response with a policy token: 1 of 1 responses"):
        trace_set(record([-0.1], [-0.1], mask=[0]))
    with pytest.raises(bounds.TraceError, match="the log is empty"):
        trace_set()


@pytest.mark.parametrize("direction", [1, -1])
def test_off_by_one_is_named_not_repaired(direction):
    mu, pi = [-0.1, -2.3, -0.7, -4.0, -0.2], [-2.3, -0.7, -4.0, -0.2, -1.0]
    pair, side = ((mu, pi), "earlier") if direction == 1 else ((pi, mu), "later")
    said = certified(record(*pair)).warnings[0]
    assert said.endswith(f"(first: row 0: shifted as a whole: train_logprobs stand 1 token {side})")


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("shifted_rows", [1, 12])
def test_off_by_one_with_engine_noise(direction, shifted_rows):
    rng = np.random.default_rng(0)
    records = []
    for k in range(12):
        mu = -rng.exponential(1.5, 40)
        pi = np.minimum(mu + rng.normal(0, 0.02, 40), 0.0)
        if k < shifted_rows:
            pi = np.roll(pi, direction)
        records.append(record(mu.tolist(), pi.tolist(), prompt_id=str(k)))
    found = bounds.certify(trace_set(*records, horizon=40)).findings[0]
    assert (found.kind, found.count) == ("misaligned", shifted_rows)
    assert f"stand 1 token {'later' if direction == 1 else 'earlier'}" in found.text


def sampled_log(rng, responses, length, spread, noise, certain=0.0):
    """A log sampled from a Markov policy over 50 tokens, scored by a noisy copy; some rows near-deterministic."""
    logits = rng.normal(0, spread, (50, 50))
    logits[np.arange(50), rng.integers(50, size=50)] += certain * (rng.random(50) < 0.8)
    policies = [
        z - np.log(np.exp(z).sum(axis=1, keepdims=True)) for z in (logits, logits + rng.normal(0, noise, (50, 50)))
    ]
    roll, theta = policies
    records = []
    for k in range(responses):
        state, mu, pi = int(rng.integers(50)), [], []
        for _ in range(int(rng.integers(1, length))):
            token = int(rng.choice(50, p=np.exp(roll[state]) / np.exp(roll[state]).sum()))
            mu.append(float(roll[state, token]))
            pi.append(float(theta[state, token]))
            state = token
        records.append(record(mu, pi, prompt_id=str(k)))
    return records


@pytest.mark.parametrize("certain", [0.0, 8.0, 14.0])
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5, 1.5])
def test_honest_logs_are_not_called_shifted(noise, certain):
    rng = np.random.default_rng(int(100 * noise + certain))
    for _ in range(3):
        bounds.certify(trace_set(*sampled_log(rng, 100, 40, 1.0, noise, certain), horizon=40))


def test_one_outlier_before_certain_tokens_is_not_a_shift():
    bounds.certify(trace_set(record([-1e-5] * 6, [-0.5] + [-1e-5] * 5), record([-0.5] + [-1e-5] * 5, [-1e-5] * 6)))


def test_shifts_of_a_few_short_responses_are_noticed():
    rng = np.random.default_rng(7)
    records = sampled_log(rng, 200, 14, 1.5, 0.05)
    for r in records[::10]:
        r["train_logprobs"] = np.roll(r["train_logprobs"], 1).tolist()
    found = bounds.certify(trace_set(*records)).findings[0]
    assert found.kind == "misaligned"
    assert "train_logprobs stand 1 token later" in found.text


def test_top_p_is_flagged_as_a_support_gap():
    """p = [.6, .3, .1], top-p .9: every d is log .9 and theta has 10 % of its mass where roll has none."""
    rng = np.random.default_rng(2)
    records = []
    for k in range(30):
        p = np.where(rng.random(6) < 2 / 3, 0.6, 0.3)
        records.append(record(np.log(p / 0.9).tolist(), np.log(p).tolist(), prompt_id=str(k)))
    result = bounds.certify(trace_set(*records))
    assert result.estimates["mean_ratio"].value == pytest.approx(0.9)
    assert any("of a token, 0.9, is clearly below 1" in w for w in result.warnings)
    assert any("log theta - log roll is -0.1054 on every token" in w for w in result.warnings)
    assert {b.name for b in result.table.bounds} == {"linear", "halved_linear", "trajectory_kl", "trajectory_tv"}
    assert result.optimistic == ()
    assert result.estimates["kl_seq"].value == pytest.approx(6 * math.log(1 / 0.9))  # k1: k3 misses the gap
    assert result.estimates["kl_seq_k3"].value < result.estimates["kl_seq"].value
    assert result.estimates["worst_case_error"].value < result.estimates["worst_case_error_with_gap"].value


def test_a_mean_ratio_above_one_refutes_the_log_where_chance_does_not_explain_it():
    """Its divergences are wrong: with every d >= 0, (1 - rho)^+ is 0 although theta is not roll."""
    rng = np.random.default_rng(0)
    few, many = (
        [record(roll, roll + rng.uniform(0.05, 0.15, 5), prompt_id=str(k)) for k in range(n)]
        for n, roll in ((5, -rng.uniform(1.0, 2.0, 5)), (200, -rng.uniform(1.0, 2.0, 5)))
    )
    assert not [f for f in certified(*few).findings if f.kind == "refuted"]
    result = certified(*many)
    assert [f.kind for f in result.findings if f.kind == "refuted"]
    assert any("above 1, which no pair of policies explains" in w for w in result.warnings)
    assert result.improvement is None


def test_top_p_on_one_prompt_is_seen_from_ratios_that_never_exceed_one():
    rng = np.random.default_rng(8)
    d = np.log(rng.uniform(0.9, 1.0, 100))
    result = bounds.certify(trace_set(record([-1.0] * 100, (d - 1).tolist()), horizon=100))
    assert any("clearly below 1" in w for w in result.warnings)
    assert result.optimistic == ()


@pytest.mark.parametrize("missing", [None, math.nan, -9999.0, -1000.0, -1e10, -math.inf, math.inf])
@pytest.mark.parametrize("field", ["rollout_logprobs", "train_logprobs"])
def test_missing_values_are_errors_or_dropped_and_reported(missing, field):
    bad = {**GOOD, field: [-0.2, missing, -0.4]}
    with pytest.raises(bounds.TraceError, match=rf"row 1: {field}\[1\] is .*missing value.*--drop-missing"):
        trace_set(GOOD, bad)
    masked = {**bad, "mask": [1, 0, 1]}
    assert len(trace_set(masked, masked)) == 2
    dropped = trace_set(GOOD, bad, on_missing="drop")
    assert len(dropped) == 1
    result = bounds.certify(dropped)
    assert result.responses == 1
    assert result.estimates["kl_seq"].value == bounds.certify(trace_set(GOOD)).estimates["kl_seq"].value
    assert any("1 of 2 responses have missing values and were dropped" in w for w in result.warnings)
    with pytest.raises(bounds.TraceError, match="no response with a policy token: 1 of 1 responses have missing"):
        trace_set(bad, on_missing="drop")


def test_missing_filled_with_zero_is_warned_of_and_true_zeros_are_not():
    filled = certified(record([-0.2, 0.0, 0.0], [-0.2, -3.0, -5.0], mask=[1, 1, 1]))
    assert any("exactly 0 on 2 tokens" in w and "no mask" not in w for w in filled.warnings)
    true_zero = certified(record([-0.2, 0.0, 0.0], [-0.21, -1e-7, 0.0]))
    assert not any("exactly 0" in w for w in true_zero.warnings)


def test_overflow_is_infinite_not_clamped():
    up = record([-1.0] * 2000, [-0.5] * 2000)
    result = bounds.certify(trace_set(up, horizon=2000), assume={"absolutely_continuous": True})
    assert result.estimates["chi2_seq"].value == math.inf
    assert result.to_dict()["estimates"]["chi2_seq"]["value"] is None
    assert result.to_dict()["estimates"]["chi2_seq"]["vacuous"] is True
    assert any("overflows float64" in w for w in result.warnings)
    assert result.estimates["worst_case_error"].value == 0.0  # P is far above 1 + S
    down = record([-1.0] * 300, [-1.0 + math.log(0.7)] * 300)
    result = bounds.certify(trace_set(down, horizon=300), assume={"absolutely_continuous": True})
    assert result.estimates["tv_seq"].value == pytest.approx(1.0)
    assert result.estimates["chi2_seq"].value == pytest.approx(-1.0)
    assert result.estimates["kl_seq_k1"].value == pytest.approx(-300 * math.log(0.7))


def test_beyond_any_exponential():
    result = certified(record([-800.0, -800.0], [-0.0, -0.0]), assume={"absolutely_continuous": True})
    assert result.estimates["kl_seq_k3"].value == math.inf
    assert result.estimates["worst_case_error"].value == 0.0  # P = e^1600 is far above 1 + S
    assert result.best.name == "trajectory_tv"
    json.loads(result.to_json())


@pytest.mark.parametrize(
    ("mask", "warning"),
    [("seq_max_k2<=5", "keeps every response: it does nothing"), ("seq_max_k2<=1e-9", "keeps no response")],
)
def test_masks_that_do_nothing_or_everything_are_warned_of(mask, warning):
    assert any(warning in w for w in certified(GOOD, mask=mask).warnings)


def test_bfloat16_and_positive_logprobs():
    assert trace_set(record([-0.2, 1e-7], [-0.2, 0.0])).rollout[1] == 1e-7
    positive = record([-0.2, -0.1], [-0.2, 0.03])
    with pytest.raises(bounds.TraceError, match=r"float32 explains up to 1e-06 .*--logprob-dtype"):
        trace_set(positive)
    result = bounds.certify(trace_set(positive, logprob_dtype="bfloat16"))
    assert any("1 positive log-prob, as bfloat16 rounding explains" in w for w in result.warnings)
    rng = np.random.default_rng(3)
    mu = -rng.exponential(2.0, 100).astype(np.float32)
    quantised = (mu.view(np.uint32) & 0xFFFF0000).view(np.float32)
    result = bounds.certify(trace_set(record(quantised.tolist(), mu.tolist()), horizon=100))
    assert any("rollout_logprobs are bfloat16 numbers" in w for w in result.warnings)
    assert not any("train_logprobs are bfloat16" in w for w in result.warnings)


def test_padding_with_equal_values_in_both_columns_is_warned_of():
    """Right padding without a mask: 0.0, or any filler that both columns share; rows of nothing but filler."""
    for filler in (0.0, -100.0, math.log(1 / 5000)):
        padded = record([-0.2, -0.3] + [filler] * 9, [-0.25, -0.3] + [filler] * 9)
        warning = next(w for w in certified(padded, padded).warnings if "over and over" in w)
        assert "2 responses ending in tokens" in warning
        assert "18 in all" in warning  # the second real token is equal by chance
    assert any("over, 4 in all" in w for w in certified(GOOD, record([0.0] * 4, [0.0] * 4)).warnings)
    assert not any("bitwise equal" in w for w in certified(GOOD).warnings)


def test_samples_that_no_policy_draws_are_warned_of():
    result = certified(record([-0.5, -100.0], [-0.5, -0.4]), assume={"absolutely_continuous": True})
    assert any("rollout log-probs below -40" in w and "row 0, position 1" in w for w in result.warnings)


def test_a_mask_under_another_name_or_in_some_rows_only_is_refused(tmp_path):
    with pytest.raises(bounds.TraceError, match="row 0: response_mask is not read; rename it to mask"):
        trace_set({**GOOD, "response_mask": [1, 1, 0]})
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({**GOOD, "loss_mask": [1, 1, 0]}))
    with pytest.raises(bounds.TraceError, match=r"log.jsonl:1: row 0: loss_mask is not read"):
        bounds.read_traces(path)
    for field, value in (("loss_mask", [1, 1, 0]), ("rewards", 1.0)):
        later = {name: x for name, x in GOOD.items() if name != "reward"} | {field: value}
        path.write_text(json.dumps(GOOD) + "\n" + json.dumps(later))
        with pytest.raises(bounds.TraceError, match=rf"log.jsonl:2: row 1: {field} is not read"):
            bounds.read_traces(path)
    pd.DataFrame([{**GOOD, "token_mask": [1, 1, 0]}]).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(bounds.TraceError, match="token_mask is not read"):
        bounds.read_traces(tmp_path / "log.parquet")
    with pytest.raises(bounds.TraceError, match="row 1: mask is given for some responses and not for others"):
        trace_set(GOOD, {**GOOD, "mask": [1, 1, 0]})
    with pytest.raises(bounds.TraceError, match="rollout_logprobs is a masked array"):
        trace_set({**GOOD, "rollout_logprobs": np.ma.array([-1.0, -0.5, -2.0])})


@pytest.mark.parametrize("kind", ["records", "jsonl", "parquet"])
def test_names_of_trainers_are_pointed_out(tmp_path, kind):
    verl = {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "uid": "a"}
    with pytest.raises(bounds.TraceError, match=r"is it 'rollout_log_probs'\? Rename it \(the record has: .*uid"):
        trace_set(verl) if kind == "records" else bounds.read_traces(files(tmp_path, [verl])[kind == "parquet"])


def test_exact_columns_that_the_samples_refute():
    """A kl or tv that is less than the sampled token alone implies, or that disagrees on average."""
    for column in ("kl", "tv"):
        found = certified(record([-0.5, -0.5], [-0.5, -0.9], **{column: [0.0, 0.0]})).against("b_star")
        assert (found.kind, found.count) == ("impossible_column", 1)
        assert re.search(rf"row 0: {column}\[1\] is 0, but the sampled token alone implies", found.text)
    rng = np.random.default_rng(4)
    records = sampled_log(rng, 60, 16, 1.0, 0.05)
    for r in records:
        r["kl"] = [1.0] * len(r["train_logprobs"])
    assert any("kl (" in w and "disagree clearly" in w for w in bounds.certify(trace_set(*records)).warnings)
    assert not any("disagree" in w for w in bounds.certify(bounds.example_traces()).warnings)


def test_a_file_given_twice_and_folders(tmp_path):
    jsonl, parquet = files(tmp_path, [GOOD])
    with pytest.raises(bounds.TraceError, match="given more than once"):
        bounds.read_traces([jsonl, tmp_path / "*.jsonl"])
    assert len(bounds.read_traces(tmp_path, horizon=4)) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no log among the 0 files in this folder"):
        bounds.read_traces(tmp_path / "empty")
    assert parquet.exists()


def test_prompt_ids_of_any_kind():
    def ids(*values):
        return trace_set(*({**GOOD, "prompt_id": v} for v in values)).prompt_ids

    assert ids(3, 3.0, "3", np.int64(3)) == ("3",)
    assert len(ids(math.nan, math.nan, None)) == 3
    assert len(ids([1, 2], [1, 2], (1, 3))) == 2
    long = np.arange(3000)
    assert len(ids(long, np.where(long == 1500, 0, long))) == 2
    assert ids(2**53 + 1, 2**53) == (str(2**53 + 1), str(2**53))


@pytest.mark.parametrize(
    "bad",
    [
        {"rollout_logprobs": [-1.0, 10**400, -1.0]},
        {"rollout_logprobs": ["-1.0", "-2.0", "-1.0"]},
        {"rollout_logprobs": [-1.0 + 1j, -1.0, -1.0]},
        {"rollout_logprobs": np.array(["2020-01-01"] * 3, dtype="datetime64[D]")},
        {"rollout_logprobs": [[-1.0], [-1.0, -2.0]]},
        {"tokens": [1, 2]},
        {"mask": math.nan},
    ],
)
def test_strange_values_are_refused_by_row_and_field(bad):
    with pytest.raises(bounds.TraceError, match=f"row 0: {next(iter(bad))}"):
        trace_set({**GOOD, **bad})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"reward": "1.0"}, "row 0: reward must be a number, got '1.0'"),
        ({"reward": [1.0]}, "row 0: reward must be a number"),
        ({"tokens": 5}, "row 0: tokens must be a flat list of ids or texts"),
        ({"tokens": [[1], [1, 2], [3]]}, "row 0: tokens must be a flat list"),
    ],
)
def test_a_number_is_a_number_in_memory_as_in_files(bad, message):
    with pytest.raises(bounds.TraceError, match=message):
        trace_set({**GOOD, **bad})


FAULTS = {
    "not a number": {"train_logprobs": ["x"]},
    "lacks": {"train_logprobs": None},
    "misnamed": {"loss_mask": [1, 1, 1]},
    "length": {"kl": [0.1]},
    "mask": {"mask": [1, 1, 2]},
    "missing": {"rollout_logprobs": [-1.0, None, -1.0]},
    "positive": {"rollout_logprobs": [-1.0, 0.5, -1.0]},
    "divergence": {"kl": [0.1, -1.0, 0.1]},
    "reward": {"reward": 2.0},
    "long": {name: [-1.0] * 5 for name in ("rollout_logprobs", "train_logprobs", "kl", "mask")},
    "in some rows only": {"kl": None},
}


@pytest.mark.parametrize("tokens", [2**18, 4], ids=["one batch", "many"])
@pytest.mark.parametrize("first", FAULTS)
def test_the_first_bad_row_is_named_whatever_is_wrong_with_it(monkeypatch, first, tokens):
    monkeypatch.setattr("bounds.logs.batch.BATCH_TOKENS", tokens)
    good = {**GOOD, "kl": [0.1, 0.3, 0.1], "mask": [1, 1, 0]}
    bad = {**good, **({"mask": None} if first == "misnamed" else {}), **FAULTS[first]}
    if first == "long":
        bad = {**bad, "kl": [0.1] * 5, "mask": [1] * 5}
    for later in FAULTS.values():
        with pytest.raises(bounds.TraceError, match=r"^row 2: ") as alone:
            trace_set(good, good, bad, horizon=4)
        with pytest.raises(bounds.TraceError) as both:
            trace_set(good, good, bad, {**good, **later}, horizon=4)
        assert str(both.value) == str(alone.value)


def test_what_was_left_out_of_parts_adds_up():
    a = LeftOut(empty=Seen(2, "row 10"), padding=1, notes=("a",))
    b = LeftOut(empty=Seen(1, "row 9"), dropped=Seen(1, "row 3"), lifted=2, notes=("b",))
    assert a + b == LeftOut(Seen(3, "row 9"), 1, Seen(1, "row 3"), 2, Seen(), 0, ("a", "b"))
    assert Seen() + Seen() == Seen()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.certify("good.jsonl"), "log must be a TraceSet"),
        (lambda: bounds.certify(trace_set(GOOD), mask=5), "mask must be a string"),
        (lambda: bounds.Mask("seq_max_k2<=1"), "criteria must be a tuple of Criterion"),
        (lambda: bounds.TraceSet.from_records(GOOD), "row 0: a record must be a mapping"),
        (lambda: bounds.TraceSet.from_frame(None), "frame must be a pandas DataFrame"),
        (lambda: bounds.plot_bounds(certified(GOOD)), "table must be a BoundTable"),
    ],
)
def test_wrong_kinds_of_arguments(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_damaged_parquet(tmp_path):
    path = tmp_path / "log.parquet"
    bounds.example_traces().to_parquet(path)
    data = bytearray(path.read_bytes())
    data[1000:1064] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(bounds.TraceError, match=r"log.parquet: damaged after row"):
        bounds.read_traces(path)
    pd.DataFrame({"rollout_logprobs": [{"a": 1}], "train_logprobs": [[-1.0]]}).to_parquet(path)
    with pytest.raises(bounds.TraceError, match="row 0: rollout_logprobs must be a list of numbers"):
        bounds.read_traces(path)


def test_a_byte_order_mark_is_no_part_of_the_log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert len(bounds.read_traces(path, horizon=4)) == 1


def test_identical_policies_prove_nothing():
    result = certified(record([-0.2, -0.5], [-0.2, -0.5]))
    assert any("bitwise identical" in w and "proves nothing" in w for w in result.warnings)


def test_signed_means_cancel_and_all_three_are_shown():
    result = certified(record([-1.0] * 4, [-1.2, -0.8, -1.2, -0.8]))
    assert result.estimates["kl_seq_k1"].value == pytest.approx(0.0, abs=1e-12)
    assert result.estimates["kl_seq_k3"].value / 4 == pytest.approx(0.02007, abs=1e-5)
    assert result.estimates["max_k2"].value == pytest.approx(0.02)


def test_exact_divergences_slightly_below_zero_count_as_zero_and_are_reported():
    result = certified(record([-0.2, -0.1], [-0.2, -0.1], kl=[-2.9e-8, 0.01]))
    assert result.estimates["kl_seq"].value == pytest.approx(0.01)
    assert any("1 exact divergence slightly below 0" in w for w in result.warnings)


def test_the_horizon_is_given_or_an_assumption_that_is_said():
    traces = bounds.TraceSet.from_records([GOOD])
    assert traces.horizon == 3
    assert any("no horizon was given: the longest response, 3 tokens" in w for w in bounds.certify(traces).warnings)
    assert not any("horizon" in w for w in certified(GOOD).warnings)


def test_prompts_are_ids_else_identical_tokens_else_each_its_own():
    bare = {k: v for k, v in GOOD.items() if k != "prompt_id"}
    by_tokens = [{**bare, "prompt_tokens": [1, 2]}, {**bare, "prompt_tokens": [1, 2]}, {**bare, "prompt_tokens": [1]}]
    assert len(trace_set(*by_tokens).prompt_ids) == 2
    result = certified(bare, bare)
    assert result.prompts == 2
    assert any("2 responses without prompt_id" in w for w in result.warnings)
    assert len(trace_set({**GOOD, "prompt_id": 7}, {**GOOD, "prompt_id": "7"}).prompt_ids) == 1


def test_mixed_weight_versions_are_said():
    result = certified({**GOOD, "weight_version": 1}, {**GOOD, "weight_version": 2})
    assert any("2 weight versions are mixed (1 to 2)" in w for w in result.warnings)


def test_old_logprobs_split_the_mismatch():
    result = certified(record([-1.0, -1.0], [-1.3, -1.0], old_logprobs=[-1.1, -1.0]))
    engine, stale = result.estimates["kl_seq_engine"].value, result.estimates["kl_seq_staleness"].value
    assert (engine, stale) == (pytest.approx(0.1), pytest.approx(0.2))
    assert engine + stale == pytest.approx(result.estimates["kl_seq_k1"].value)


def test_other_reward_ranges():
    traces = trace_set({**GOOD, "reward": -1.0}, {**GOOD, "prompt_id": "p1"}, reward_range=(-1.0, 1.0))
    assert bounds.certify(traces).best.value == pytest.approx(2 * certified(GOOD).best.value)


def test_padding_before_the_response_and_fillers_of_theta_are_warned_of():
    rng = np.random.default_rng(0)
    rows = []
    for i in range(10):
        roll = -rng.exponential(1.0, 20)
        theta = np.minimum(roll + rng.normal(0.0, 0.01, 20), 0.0)
        padding = np.zeros(6)
        rows.append(record([*padding, *roll], [*padding, *theta], prompt_id=f"p{i}"))
    result = bounds.certify(trace_set(*rows, horizon=32))
    assert any(
        "both log-probs are exactly 0 on 60 of 260 tokens (first: row 0, position 0)" in w for w in result.warnings
    )
    masked = [{**r, "mask": [0] * 6 + [1] * 20} for r in rows]
    assert not any("both log-probs" in w for w in bounds.certify(trace_set(*masked, horizon=32)).warnings)
    masked[3]["train_logprobs"] = [*masked[3]["train_logprobs"][:-1], -100.0]
    filled = bounds.certify(trace_set(*masked, horizon=32), assume={"absolutely_continuous": True})
    assert any("1 sampled tokens have train log-probs below -80: fillers?" in w for w in filled.warnings)


def test_findings_say_on_how_much_and_to_what_effect():
    rows = [record([-0.2, 0.0, 0.0], [-0.2, -3.0, -5.0]), record([-0.3, -1.0], [-0.3, -1.1])]
    result = certified(*rows)
    zeros = next(f for f in result.findings if f.kind == "forced_tokens")
    assert (zeros.count, zeros.unit, zeros.rows) == (2, "tokens", ("row 0, positions 1, 2",))
    assert zeros.text in result.warnings
    assert "divergences are too large" in zeros.effect
    assert result.to_dict()["findings"][0].keys() == {
        *("kind", "text", "count", "unit", "effect", "rows", "causes", "look", "command")
    }
    titles = [titles[0] for titles, _ in result.tables()]
    assert "seen in the log" in titles


def test_a_response_has_the_same_beginning_wherever_it_stands():
    """Also where its sum reaches the limit but for rounding, and where it takes many tokens to tell."""
    rng = np.random.default_rng(0)
    rows = [np.round(-rng.exponential(mean, n), 1) for mean in (0.02, 0.3, 3.0) for n in (1, 95, 97, 400, 3000)]
    rows += [np.tile([-0.1 * k, -0.1 * k - 0.1], 250) for k in range(1, 10)]

    def beginnings(values):
        starts = np.concatenate([[0], np.cumsum([v.size for v in values])])
        roll = np.concatenate(values)
        return beginning(TraceSet(roll, roll, starts, np.arange(len(values)), (), 0)).tolist()

    alone = [beginnings([row])[0] for row in rows]
    assert beginnings(20 * rows) == 20 * alone
    known = [key for key in alone if key]
    assert 6 <= len(set(known)) == len(known) < len(rows)
