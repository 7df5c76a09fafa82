"""Logs in: what is read, what is refused and how it is said, and the troubles that public trackers report."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import bounds


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
        (record([-0.2, None, -0.4], [-0.2, -0.1, -0.4]), r"row 1: rollout_logprobs\[1\] is nan, which stands for a m"),
        (record([-0.2, math.nan], [-0.2, -0.1]), r"row 1: rollout_logprobs\[1\] is nan"),
        (record([-0.2, -9999.0], [-0.2, -0.1]), r"row 1: rollout_logprobs\[1\] is -9999, which stands for a missing"),
        (record([-0.2, -0.1], [-0.2, -math.inf]), r"row 1: train_logprobs\[1\] is -inf"),
        (record([-0.2, -0.1], [-0.2, 0.03]), r"row 1: train_logprobs\[1\] must be a log-probability .* got 0.03"),
        (record([-0.2], [-0.2], kl=[-0.1]), r"row 1: kl\[0\] must be a number >= 0, got -0.1"),
        (record([-0.2], [-0.2], tv=[1.1]), r"row 1: tv\[0\] must be a number in \[0, 1\], got 1.1"),
        (record([-0.2], [-0.2], chi2=[math.nan]), r"row 1: chi2\[0\] must be a number >= 0, got nan"),
        (
            {**record([-0.2], [-0.2]), "reward": 7.0},
            r"row 1: reward must be a number in \[0, 1\], got 7; .*reward_range",
        ),
        ({**record([-0.2], [-0.2]), "reward": None}, "row 1: reward is missing, and other responses have one"),
        (record([-0.2] * 17, [-0.2] * 17), "row 1: 17 policy tokens, more than horizon=16"),
        (record([-0.2], [-0.2], kl=[0.1]), "row 1: kl is logged for some responses and not for others"),
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
    with pytest.raises(bounds.TraceError, match=where + r": rollout_logprobs\[1\] is nan"):
        bounds.read_traces(bad)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rollout_logprobs": [-1, "a"], "train_logprobs": [-1, -1]}', r":1: row 0: .*rollout_logprobs\[1\]"),
        ('{"rollout_logprobs": [-1], "train_logprobs": [-1]', ":1: row 0: "),
        ('{"reward": "high", "rollout_logprobs": [-1], "train_logprobs": [-1]}', r":1: row 0: .*reward"),
        ('{"rollout_logprobs": [-1, NaN], "train_logprobs": [-1, -1]}', r":1: row 0: rollout_logprobs\[1\] is nan"),
        ("not json", "no known format"),
        ("", "no known format"),
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


# --- the table of FORMATS, row by row: whole kinds ---------------------------------------------------------


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
def test_off_by_one_is_refused_not_repaired(direction):
    mu, pi = [-0.1, -2.3, -0.7, -4.0, -0.2], [-2.3, -0.7, -4.0, -0.2, -1.0]
    pair = (mu, pi) if direction == 1 else (pi, mu)
    with pytest.raises(bounds.TraceError, match=r"row 0: train_logprobs stand one token (earlier|later)"):
        certified(record(*pair))


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
    with pytest.raises(bounds.TraceError, match="stand one token"):
        bounds.certify(trace_set(*records, horizon=40))


def test_honest_logs_are_not_called_shifted():
    rng = np.random.default_rng(1)
    for scale in (0.001, 0.05, 0.5, 2.0):
        records = []
        for k in range(200):
            mu = -rng.exponential(1.5, int(rng.integers(1, 30)))
            records.append(
                record(mu.tolist(), np.minimum(mu + rng.normal(0, scale, mu.size), 0.0).tolist(), prompt_id=str(k))
            )
        bounds.certify(trace_set(*records, horizon=40))


def test_top_p_is_flagged_as_a_support_gap():
    """p = [.6, .3, .1], top-p .9: every d is log .9 and theta has 10 % of its mass where roll has none."""
    rng = np.random.default_rng(2)
    records = []
    for k in range(30):
        p = np.where(rng.random(6) < 2 / 3, 0.6, 0.3)
        records.append(record(np.log(p / 0.9).tolist(), np.log(p).tolist(), prompt_id=str(k)))
    result = bounds.certify(trace_set(*records))
    assert result.estimates["mean_ratio"].value == pytest.approx(0.9)
    assert any("mean rho = 0.9 is clearly below 1" in w for w in result.warnings)
    assert any("log theta - log roll is -0.1054 on every token" in w for w in result.warnings)
    assert {b.name for b in result.table.bounds} == {"linear", "trajectory_kl", "trajectory_tv"}
    assert result.optimistic == ()
    assert result.estimates["kl_seq"].value == pytest.approx(6 * math.log(1 / 0.9))  # k1: k3 misses the gap
    assert result.estimates["kl_seq_k3"].value < result.estimates["kl_seq"].value
    assert result.estimates["worst_case_error"].value < result.estimates["worst_case_error_with_gap"].value


def test_mean_ratio_above_one_is_flagged():
    records = [record([-1.0] * 5, [-0.9] * 5, prompt_id=str(k)) for k in range(5)]
    result = certified(*records)
    assert any("clearly above 1, which no pair of policies explains" in w for w in result.warnings)


@pytest.mark.parametrize("missing", [None, math.nan, -9999.0, -1e10, -math.inf, math.inf])
@pytest.mark.parametrize("field", ["rollout_logprobs", "train_logprobs"])
def test_missing_values_are_errors_or_dropped_and_reported(missing, field):
    bad = {**GOOD, field: [-0.2, missing, -0.4]}
    with pytest.raises(bounds.TraceError, match=rf"row 1: {field}\[1\] is .*missing value.*--drop-missing"):
        trace_set(GOOD, bad)
    masked = {**bad, "mask": [1, 0, 1]}
    assert len(trace_set(GOOD, masked)) == 2
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
    result = certified(record([-800.0, -800.0], [-0.0, -0.0]))
    assert result.estimates["kl_seq_k3"].value == math.inf
    assert result.estimates["worst_case_error"].value == math.inf
    assert result.best_upper.value == math.inf
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
    assert any("1 log-probs are positive, as bfloat16 rounding explains" in w for w in result.warnings)
    rng = np.random.default_rng(3)
    mu = -rng.exponential(2.0, 100).astype(np.float32)
    quantised = (mu.view(np.uint32) & 0xFFFF0000).view(np.float32)
    result = bounds.certify(trace_set(record(quantised.tolist(), mu.tolist()), horizon=100))
    assert any("rollout_logprobs are bfloat16 numbers" in w for w in result.warnings)
    assert not any("train_logprobs are bfloat16" in w for w in result.warnings)


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
    assert any("1 exact divergences are slightly below 0" in w for w in result.warnings)


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
    assert any("2 responses have no prompt_id" in w for w in result.warnings)
    assert len(trace_set({**GOOD, "prompt_id": 7}, {**GOOD, "prompt_id": "7"}).prompt_ids) == 1


def test_mixed_weight_versions_are_said():
    result = certified({**GOOD, "weight_version": 1}, {**GOOD, "weight_version": 2})
    assert any("2 weight versions are mixed (1, 2)" in w for w in result.warnings)


def test_old_logprobs_split_the_mismatch():
    result = certified(record([-1.0, -1.0], [-1.3, -1.0], old_logprobs=[-1.1, -1.0]))
    engine, stale = result.estimates["kl_seq_engine"].value, result.estimates["kl_seq_staleness"].value
    assert (engine, stale) == (pytest.approx(0.1), pytest.approx(0.2))
    assert engine + stale == pytest.approx(result.estimates["kl_seq_k1"].value)


def test_other_reward_ranges():
    traces = trace_set({**GOOD, "reward": -1.0}, {**GOOD, "prompt_id": "p1"}, reward_range=(-1.0, 1.0))
    assert bounds.certify(traces).best.value == pytest.approx(2 * certified(GOOD).best.value)
