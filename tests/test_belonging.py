"""Whether both columns of a response belong together: damaged logs are named by row and place, honest ones are not."""

from __future__ import annotations

import math
from types import SimpleNamespace

import corruptions
import honest_logs
import numpy as np
import pytest
from scipy.stats import binomtest

import bounds
from bounds.certificate.belonging import _Some, _Stretch, belonging
from bounds.certificate.findings import Kind, findings
from bounds.certificate.statistics import token_sums
from bounds.certificate.summary import Summary


def rows(responses=96, tokens=60, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    for k in range(responses):
        roll = -0.1 - rng.exponential(1.0, tokens)
        theta = np.minimum(roll + rng.normal(0.0, noise, tokens), 0.0)
        yield {"prompt_id": f"p{k // 4}", "reward": rng.random(), "rollout_logprobs": roll, "train_logprobs": theta}


def found(log, **options):
    """Kinds that are found, with how many there are, their places and text."""
    traces = bounds.TraceSet.from_records(log, horizon=600, **options)
    return {f.kind: f for f in findings(Summary.of(traces)) if f.kind not in (Kind.FEW_PROMPTS, Kind.HEAVY_TAIL)}


def scores(roll, theta):
    traces = bounds.TraceSet.from_arrays(roll, theta, horizon=roll.shape[1])
    k3 = token_sums(traces.rollout, traces.train, traces.starts, np.ones(len(traces)), compiled=False)
    return belonging(traces, k3.responses["k3_sum"])


def test_a_shift_of_two_responses_is_named_with_its_position():
    """Rollout log-probs are one longer than the tokens from position 30 on."""
    log = list(rows(seed=2))
    for k in (7, 40):
        log[k]["rollout_logprobs"] = np.insert(log[k]["rollout_logprobs"], 30, -1.9)[:60]
    (finding,) = found(log).values()
    assert (finding.kind, finding.count, finding.rows) == (Kind.MISALIGNED, 2, ("row 7", "row 40"))
    assert finding.kind.refutes
    assert "row 7: shifted from position 30 on: train_logprobs stand 1 token earlier" in finding.text
    assert bounds.certify(bounds.TraceSet.from_records(log, horizon=60)).estimates["kl_seq"].value > 0.0


def test_positions_are_those_of_the_record():
    log = [{**row, "mask": np.repeat([0, 1], [20, 40])} for row in rows(24)]
    log[5]["train_logprobs"] = np.insert(log[5]["train_logprobs"], 45, -0.9)[:60]
    assert "row 5: shifted from position 46 on: train_logprobs stand 1 token later" in found(log)[Kind.MISALIGNED].text


@pytest.mark.parametrize("size", [60, 600])
def test_a_stretch_is_found_at_any_lag(size):
    """Tokens 20 to 49 stand where those before them stood."""
    log = list(rows(8, size))
    theta = log[3]["train_logprobs"]
    theta[20:50] = theta[3:33].copy()
    place = "at positions 20-49" if size > 60 else "from position 20 on"  # few are left
    assert f"row 3: shifted {place}: train_logprobs stand 17 tokens later" in found(log)[Kind.MISALIGNED].text


def test_rows_are_left_out_by_name():
    """Whatever is in them; what is said then assumes that they are like the others."""
    log = list(rows())
    log[40]["train_logprobs"] = np.roll(log[40]["train_logprobs"], 1)
    log[41] |= {"reward": 7.0, "train_logprobs": np.full(60, np.nan)}
    said = found(log, leave_out=("row 40", "row 41"))
    assert said.keys() == {Kind.LEFT_OUT, Kind.UNEQUAL_GROUPS}
    assert said[Kind.LEFT_OUT].text.startswith("2 of 96 responses are left out, as asked by 2 names")
    assert said[Kind.LEFT_OUT].rows == ("row 40",)
    summary = Summary.of(bounds.TraceSet.from_records(log, horizon=60, leave_out=("row 40", "row 41")))
    assert (len(summary), summary.standing) == (94, bounds.Standing.ASSUMED)
    with pytest.raises(bounds.TraceError, match=r"'row 96' is no row of this log \(leave_out, --leave-out\)"):
        found(log, leave_out=("row 40", "row 41", "row 96"))
    with pytest.raises(bounds.TraceError, match="2 of 2 responses were left out, as asked"):
        bounds.TraceSet.from_records(log[:2], leave_out=("row 0", "row 1"))


def test_two_rows_that_are_exchanged_are_named():
    log = list(rows())
    log[10]["train_logprobs"], log[11]["train_logprobs"] = log[11]["train_logprobs"], log[10]["train_logprobs"]
    finding = found(log)[Kind.SWAPPED]
    assert (finding.count, finding.rows) == (2, ("row 10", "row 11"))
    assert "row 10: train_logprobs are those of row 11" in finding.text


def test_scores_of_other_tokens_are_named_though_nobody_has_their_rollout():
    log = list(rows())
    log[20]["train_logprobs"][25:] = -np.random.default_rng(5).exponential(1.0, 35)
    finding = found(log)[Kind.MISALIGNED]
    assert (finding.count, finding.rows) == (1, ("row 20",))
    assert "unlike rollout_logprobs from position 2" in finding.text


def test_far_policies_are_no_other_tokens():
    """Noise as large as the spread in every response."""
    rng = np.random.default_rng(0)
    roll = -rng.exponential(1.0, (96, 60))
    theta = roll * np.exp(rng.normal(0.0, 0.7, roll.shape))
    log = [{**row, "rollout_logprobs": x, "train_logprobs": y} for row, x, y in zip(rows(), roll, theta, strict=True)]
    assert not found(log).keys() & {Kind.MISALIGNED, Kind.SWAPPED, Kind.WRONG_MODEL}


def test_worse_than_uniform_is_another_model():
    rng = np.random.default_rng(0)
    log = [{**row, "train_logprobs": rng.uniform(-20.0, -8.0, 60)} for row in rows(64)]
    said = found(log)
    assert said[Kind.WRONG_MODEL].count == 64
    assert "worse than uniform" in said[Kind.WRONG_MODEL].text
    assert Kind.SUPPORT_GAP not in said
    assert Kind.MISALIGNED not in said


def test_copies_of_all_tokens_but_one_are_copies():
    log = [{**row, "train_logprobs": row["rollout_logprobs"]} for row in rows()]
    log[0]["train_logprobs"] = log[0]["train_logprobs"] - np.eye(1, 60, 0)[0] * 0.01
    (finding,) = found(log).values()
    assert (finding.kind, finding.count) == (Kind.COPIED, 96 * 60 - 2)
    assert "99.98% of the uncertain tokens" in finding.text


def test_a_loop_through_one_state_is_no_copy():
    """All 50 tokens are the same one, on which the policies happen to agree."""
    log = list(rows(tokens=50))
    for k in range(0, 96, 2):
        log[k] |= {
            name: np.where(np.arange(50) < 5, log[k][name], -0.02) for name in ("rollout_logprobs", "train_logprobs")
        }
    assert found(log) == {}


@pytest.mark.parametrize("noise", [0.0, 1e-6, 3e-5])
def test_copies_of_single_responses_are_named(noise):
    rng = np.random.default_rng(1)
    log = list(rows(tokens=20))
    for k in (30, 31):
        log[k]["train_logprobs"] = np.minimum(log[k]["rollout_logprobs"] * (1.0 + noise * rng.uniform(-1, 1, 20)), 0.0)
    (finding,) = found(log).values()
    assert (finding.kind, finding.rows) == (Kind.COPIED, ("row 30",))
    assert "2 responses whose log-probs are the same" in finding.text


def test_a_loop_whose_policies_agree_is_no_copy():
    """Half of two responses is one token, on which the policies agree to 5e-5 by chance."""
    log = list(rows())
    for k in (30, 31):
        log[k]["rollout_logprobs"][30:] = -0.7
        log[k]["train_logprobs"][30:] = -0.7 * (1.0 + 5e-5)
    assert found(log) == {}


def test_old_logprobs_that_are_a_copy_tell_nothing_of_staleness():
    """The log itself is not doubted; where both parts are known they are estimated."""
    for column in ("rollout_logprobs", "train_logprobs"):
        log = [{**row, "old_logprobs": row[column]} for row in rows()]
        finding = found(log)[Kind.COPIED_OLD]
        assert f"old_logprobs are those of {column}" in finding.text
        assert not finding.kind.refutes
        estimates = bounds.certify(bounds.TraceSet.from_records(log, horizon=60)).estimates
        assert estimates["kl_seq_staleness"] is estimates["kl_seq_engine"] is None
    log = [{**row, "old_logprobs": row["train_logprobs"] * 1.001} for row in rows()]
    assert found(log) == {}
    assert bounds.certify(bounds.TraceSet.from_records(log, horizon=60)).estimates["kl_seq_staleness"] is not None


def test_a_line_through_a_few_far_tokens_is_no_temperature():
    """They decide the regression; the order of the others says nothing of a slope."""
    log = list(rows())
    for row in log[:20]:
        row["rollout_logprobs"][7], row["train_logprobs"][7] = -14.0, -15.5
    assert Kind.TEMPERATURE not in found(log)
    assert found([{**r, "train_logprobs": r["train_logprobs"] * 1.3} for r in log]).keys() >= {Kind.TEMPERATURE}


def test_half_precision_makes_some_tokens_equal_by_chance():
    log = [{n: honest_logs.half(v) if n.endswith("probs") else v for n, v in row.items()} for row in rows(noise=0.001)]
    share = np.mean([np.mean(r["rollout_logprobs"] == r["train_logprobs"]) for r in log])
    assert share > 0.5
    assert found(log).keys() == {Kind.ROUNDING}


def test_padding_of_one_policy_is_padding_of_both():
    log = list(rows(64, 40))
    for k, row in enumerate(log):
        pads = 10 + k % 20
        row["rollout_logprobs"][-pads - 1] = row["train_logprobs"][-pads - 1] = -0.7
        row["rollout_logprobs"][-pads:], row["train_logprobs"][-pads:] = 0.0, -1e-4
    finding = found(log)[Kind.PADDING]
    assert finding.count == sum(10 + k % 20 for k in range(64))


def test_sure_answers_are_accepted():
    """One answer in 33 is another: none in 32 responses has probability .38."""
    answer = {"reward": 1.0, "rollout_logprobs": [math.log(0.97)], "train_logprobs": [math.log(0.995)]}
    assert found([{**answer, "prompt_id": k} for k in range(32)]).keys() == {Kind.EQUAL_REWARDS}


def test_a_loop_that_gets_surer_is_no_shift():
    """Theta is ahead by one step: its values are those of the next token, to a thousandth."""
    log = list(rows(256, 24))
    loop = -0.36 * 0.88 ** np.arange(25)
    log[100] |= {"rollout_logprobs": loop[:-1], "train_logprobs": loop[1:] * 1.0001}
    assert found(log) == {}


@pytest.mark.parametrize("theta", ["unrelated", "near", "often far"])
def test_evidence_is_as_rare_as_it_says(theta):
    """Columns of no relation, of noise at any scale, and of both by turns: evidence above z has probability e^-z."""
    rng = np.random.default_rng(3)
    roll, other = -rng.exponential(1.0, (2, 3000, 24))
    near = roll * np.exp(rng.normal(0.0, rng.choice([0.01, 0.3, 1.0], (3000, 1)), roll.shape))
    far = rng.random(roll.shape) < {"unrelated": 1.0, "near": 0.0, "often far": 0.4}[theta]
    found = scores(roll, np.where(far, other, near))
    for evidence in (found.misaligned, found.swapped):
        for z in (2.0, 4.0, 6.0):
            assert binomtest(int((evidence >= z).sum()), 3000, math.exp(-z), alternative="greater").pvalue > 1e-4


def test_honest_logs_are_read_and_not_remarked_upon():
    """The short form of benchmarks/honest_logs.py."""
    said = honest_logs.study(5, seed=1).values()
    assert sum(one.refused for one in said) == 0
    assert sum(one.remarked for one in said) <= 1


def test_damaged_logs_are_seen_to_be():
    """The short form of benchmarks/corruptions.py, where few responses are damaged."""
    counts = [
        seen_of for by_rate in corruptions.study(1, seed=1, rates=(0.02,)).values() for seen_of in by_rate.values()
    ]
    seen, of = np.sum(counts, axis=0)
    assert of >= 15
    assert seen >= 0.9 * of


def test_a_log_of_unrelated_columns_says_so():
    log = list(rows(64))
    for row, other in zip(log, rows(64, seed=1), strict=True):
        row["train_logprobs"] = other["train_logprobs"]
    (finding,) = (f for kind, f in found(log).items() if kind is Kind.MISALIGNED)
    assert finding.text.startswith("over the whole log, train_logprobs tell nothing of rollout_logprobs")


@pytest.mark.parametrize(
    ("start", "stop", "said"),
    [(0, 20, "as a whole"), (5, 20, "as a whole"), (6, 20, "from position 6 on"), (6, 15, "from position 6 on"),
     (6, 14, "at positions 6-13")],
)  # fmt: skip
def test_where_a_stretch_stands(start, stop, said):
    """Of twenty tokens, at ends that are known within three: five of them say nothing about the rest."""
    log = bounds.TraceSet.from_records(rows(1, 20))
    assert _Stretch(1.0, 0, start, stop).place(log, 0, slack=3) == said


def test_the_best_stretch_is_of_one_response():
    """A hundred lost in the first response are no gain of the second."""
    two = SimpleNamespace(size=np.array([2, 2]), starts=np.array([0, 2, 4]))
    assert _Some.best(two, np.array([-100.0, 50.0, 3.0, -5.0])).tolist() == [50.0, 3.0]
