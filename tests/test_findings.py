"""Every kind of finding: what shows it, on how much, where; in parts, by step and after an interruption."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import bounds
from bounds.certificate.findings import CHECKS, Kind, findings, mask_findings
from bounds.certificate.summary import Summary
from bounds.logs import open_log
from bounds.masks.mask import Mask


def log(prompts=24, group=4, tokens=12, noise=0.05, seed=0, **more):
    """Rows that nothing is remarkable about; fields of ``more`` are functions of prompt and response."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(prompts):
        for k in range(group):
            roll = -0.2 - rng.exponential(1.0, tokens)
            theta = np.minimum(roll + rng.normal(0.0, noise, tokens), 0.0)
            row = {"prompt_id": f"p{i}", "reward": float(rng.random() < 0.4), "rollout_logprobs": roll}
            rows.append({**row, "train_logprobs": theta, **{name: value(i, k) for name, value in more.items()}})
    return rows


def changed(rows, change):
    return [{**row, **change(k, row)} for k, row in enumerate(rows)]


def theta(of, **options):
    """Train log-probs as a function of the rollout's."""
    return changed(log(**options), lambda k, r: {"train_logprobs": np.minimum(of(r["rollout_logprobs"], k), 0.0)})


def with_value(field, rows, position, value):
    """One token of some rows is changed."""

    def change(k, row):
        values = np.array(row[field])
        values[position] = value
        return {field: values} if k in rows else {}

    return changed(log(), change)


def summary_of(rows, parts=1, **options):
    cuts = np.linspace(0, len(rows), parts + 1).astype(int)
    options = {"horizon": 64, **options}
    pieces = (rows[a:b] for a, b in itertools.pairwise(cuts))
    return Summary.of([bounds.TraceSet.from_records(piece, **options) for piece in pieces])


def half(values):
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)


def padded(row):
    zeros = np.zeros(20)
    return {name: np.concatenate([row[name], zeros]) for name in ("rollout_logprobs", "train_logprobs")}


LOG3 = math.log(3.0)


def cut_off(k, row, least=-math.inf, most=LOG3):
    """Train log-probs of far policies, made from a ratio that was cut off."""
    roll = row["rollout_logprobs"] - 3.0
    d = np.clip(np.random.default_rng(k).normal(0.0, 0.6, roll.size), least, most)
    return {"rollout_logprobs": roll, "train_logprobs": roll + d}


def swapped(rows, a, b):
    return changed(rows, lambda k, r: {TRAIN: rows[{a: b, b: a}.get(k, k)][TRAIN]})


ROLL, TRAIN = "rollout_logprobs", "train_logprobs"
TOO_SMALL = (
    "row 0: kl[0] is 0.001, but the sampled token alone implies at least 0.00438: not these policies, or not "
    "KL(roll||theta)"
)
LONG = log(tokens=40)
UNNAMED = [{n: v for n, v in r.items() if n != "prompt_id"} for r in log()]
GONE = "row 2: train_logprobs[1] is null or NaN, which stands for a missing value"
#: Kind -> rows that show it, how they are read, and the count, unit and place that are said.
SHOWN = {
    Kind.SUPPORT_GAP: (theta(lambda x, k: x - 0.1 - 0.001 * k), {}, (1152, "tokens", "")),
    Kind.REFUTED: (theta(lambda x, k: x + 0.2, tokens=1), {}, (96, "responses", "")),
    Kind.MISALIGNED: (
        changed(LONG, lambda k, r: {TRAIN: np.append(r[TRAIN][:10], r[TRAIN][9:-1])} if k in (7, 9) else {}), {},
        (2, "responses", "row 7", "row 9"),
    ),
    Kind.SWAPPED: (swapped(LONG, 5, 8), {}, (2, "responses", "row 5", "row 8")),
    Kind.WRONG_MODEL: (changed(LONG, lambda k, r: {TRAIN: -9.0 - LONG[-1 - k][ROLL]**2} if k == 4 else {}), {},
        (1, "responses", "row 4"),
    ),
    Kind.COPIED: (theta(lambda x, k: x), {}, (1152, "tokens", "")),
    Kind.COPIED_OLD: (
        changed(log(), lambda k, r: {"old_logprobs": r[TRAIN]}), {}, (1152, "tokens", "")),
    Kind.CENSORED: (changed(log(), cut_off), {}, (28, "tokens", "row 3, position 0")),
    Kind.NOTHING_RECOMPUTED: (
        changed(log(), lambda k, r: {TRAIN: np.zeros(12)}),
        {},
        (1152, "tokens", "row 0, positions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"),
    ),
    Kind.OTHER_BASE: (theta(lambda x, k: x / math.log(10.0)), {}, (1152, "tokens", "")),
    Kind.REPEATED: (log(tokens=60) + log(tokens=60)[:3], {}, (3, "responses", "row 96")),
    Kind.TEMPERATURE: (theta(lambda x, k: 1.3 * x), {}, (1152, "tokens", "")),
    Kind.MIXTURE: (log(step=lambda i, k: i % 3), {}, (96, "responses", "")),
    Kind.UNEQUAL_GROUPS: (log()[:-1], {}, (95, "responses", "")),
    Kind.FILTERED: (log(prompts=60, reward=lambda i, k: float(k % 2)), {}, (240, "responses", "")),
    Kind.ADVANTAGES: (
        log(reward=lambda i, k: 0.1 * i * (-1.0) ** k), {"reward_range": (-9, 9)}, (96, "responses", "")
    ),
    Kind.EQUAL_REWARDS: (log(reward=lambda i, k: 1.0), {}, (96, "responses", "")),
    Kind.FORCED_TOKENS: (with_value(ROLL, (5, 9), 7, 0.0), {}, (2, "tokens", "row 5, positions 7")),
    Kind.PADDING: (changed(log(), lambda k, r: padded(r) if k > 2 else {}), {}, (1860, "tokens", "row 3")),
    Kind.FILLERS: (with_value(TRAIN, (4,), 3, -90.0), {}, (1, "tokens", "row 4, position 3")),
    Kind.IMPOSSIBLE_COLUMN: (changed(log(), lambda k, r: {"kl": np.full(12, 0.001)}), {}, (203, "tokens", TOO_SMALL)),
    Kind.EXACT_COLUMNS: (changed(log(), lambda k, r: {"kl": np.full(12, 0.5)}), {}, (96, "responses", "")),
    Kind.HEAVY_TAIL: (with_value(TRAIN, (7,), 3, -9.0), {}, (1, "tokens", "row 7, position 3")),
    Kind.OVERFLOW: (with_value(ROLL, (1,), slice(0, 12), -70.0), {}, (1, "responses", "")),
    Kind.READING: (log(), {}, (96, "responses", "")),
    Kind.LEFT_OUT: (changed(log(), lambda k, r: {"mask": np.full(12, float(k != 2))}), {}, (1, "responses", "row 2")),
    Kind.MISSING: (with_value(TRAIN, (2,), 1, math.nan), {"on_missing": "drop"}, (1, "responses", GONE)),
    Kind.UNGROUPED: (UNNAMED, {}, (96, "responses", "")),
    Kind.HORIZON: (log(), {"horizon": None}, (96, "responses", "")),
    Kind.ROUNDING: (changed(log(), lambda k, r: {ROLL: half(r[ROLL])}), {}, (1152, "tokens", "")),
    Kind.FEW_PROMPTS: (log(prompts=4), {}, (4, "prompts", "")),
}  # fmt: skip
ASKED = {
    Kind.MASK,
    Kind.CONTRADICTION,
    Kind.TRAIN_POLICY_UNKNOWN,
    Kind.PROMPTS_RETURN,
}  # said of what was asked


def test_every_kind_is_here():
    assert SHOWN.keys() | ASKED == set(Kind)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_nothing_is_found_in_a_clean_log():
    assert findings(summary_of(log())) == ()


@pytest.mark.parametrize("kind", SHOWN, ids=str)
def test_what_shows_it(kind):
    rows, options, (count, unit, *places) = SHOWN[kind]
    summary = summary_of(rows, **options)
    if kind is Kind.READING:
        summary.note("half of it was read")
    found = [f for f in findings(summary) if f.kind is kind]
    assert len(found) == 1
    assert (found[0].count, found[0].unit, found[0].rows) == (count, unit, tuple(filter(None, places)))
    assert found[0].effect == kind.effect
    assert places[0] in found[0].text


@pytest.mark.parametrize("kind", SHOWN, ids=str)
def test_parts_show_the_same(kind):
    """Rows of a part are numbered anew, so only their places differ."""
    rows, options, _ = SHOWN[kind]
    whole, parts = (findings(summary_of(rows, parts=n, **options)) for n in (1, 3))
    assert [(f.kind, f.count, len(f.rows)) for f in whole] == [(f.kind, f.count, len(f.rows)) for f in parts]


def test_the_most_severe_comes_first_and_warnings_are_the_texts():
    rows = changed(SHOWN[Kind.SUPPORT_GAP][0], lambda k, r: {"step": k % 2})
    certificate = bounds.certify(bounds.TraceSet.from_records(rows, horizon=64))
    assert certificate.findings[0].kind is Kind.SUPPORT_GAP
    assert certificate.warnings == tuple(f.text for f in certificate.findings)
    said = certificate.to_dict()
    assert said["warnings"] == list(certificate.warnings)
    assert [set(f) for f in said["findings"]] == [
        {"kind", "text", "count", "unit", "effect", "rows", "causes", "look", "command"}
    ] * len(certificate.findings)
    assert said["findings"][0]["kind"] == "support_gap"
    assert "support gap" in str(certificate)


def test_steps_are_a_mixture_once_unless_each_is_looked_at_by_itself():
    """Versions that differ between steps only are those of the steps; within a step they are mixed."""
    each = summary_of(log(step=lambda i, k: i % 12, weight_version=lambda i, k: f"v{i % 12}"))
    (mixture,) = findings(each)
    assert mixture.text.startswith("the log holds 12 steps (0 to 11)")
    assert findings(each, by_step=True) == ()
    within = summary_of(log(step=lambda i, k: i % 2, weight_version=lambda i, k: i % 7 - 1))
    assert [f.kind for f in findings(within)] == [Kind.MIXTURE] * 2
    (versions,) = findings(within, by_step=True)
    assert versions.text.startswith("7 weight versions are mixed (-1 to 5)")


@pytest.mark.parametrize(
    ("last", "said"), [(1, []), (2, ["responses drawn by several weight versions each (first: row 0)"])]
)
def test_responses_that_several_versions_drew_are_counted(last, said):
    rows = log(weight_version=lambda i, k: [])
    for row in rows:
        row["weight_version"] = [1] * (len(row["rollout_logprobs"]) - 1) + [last]
    assert [f.text for f in findings(summary_of(rows))] == [f"{len(rows)} {text}" for text in said]


def test_repeats_are_of_one_prompt_and_improbable():
    def repeated(rows):
        return [f.count for f in findings(summary_of(rows)) if f.kind is Kind.REPEATED]

    rows, short = log(tokens=60), log(tokens=3)
    assert repeated(rows + rows[:2]) == [2]
    assert repeated(rows + changed(rows[:2], lambda k, r: {"prompt_id": "another"})) == [2]
    assert repeated(short + short[:2]) == []
    assert repeated([{n: v for n, v in r.items() if n != "prompt_id"} for r in rows + rows[:2]]) == [2]


def test_after_an_interruption_the_same_is_found(tmp_path):
    """Repeats across files, steps, versions and what was left out, whether the log is read at once or in two goes."""
    rows = log(tokens=60, step=lambda i, k: i % 3, weight_version=lambda i, k: k)
    rows = [{**r, "mask": np.full(60, float(k % 40 != 1))} for k, r in enumerate(rows)]
    chunks = [rows[:32], rows[32:64] + rows[:2], rows[64:]]
    folder, state = tmp_path / "run", tmp_path / "state"
    folder.mkdir()
    for k, chunk in enumerate(chunks):
        lines = ({n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in r.items()} for r in chunk)
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.yaml").write_text("a: 1")
    whole = findings(Summary.of(open_log(folder, horizon=64)))
    assert {f.kind for f in whole} >= {Kind.REPEATED, Kind.MIXTURE, Kind.LEFT_OUT, Kind.READING}

    def interrupt(responses, tokens):
        if tokens > 40 * 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Summary.of(open_log(folder, horizon=64), progress=interrupt, resume=state)
    for _ in range(2):  # on from there, and from the end
        resumed = Summary.of(open_log(folder, horizon=64), resume=state)
        assert findings(resumed) == whole


def test_masks_are_spoken_of_when_they_are_asked_about():
    summary = summary_of(log())
    rules = ("seq_max_k2<=9", "seq_max_k2<=1e-12", "token_k2<=0.05")
    said = [
        [f.text for f in mask_findings(summary, Mask.parse(m), a)] for m, a in zip(rules, (1.0, 0.0, 1.0), strict=True)
    ]
    parts = ("keeps every response: it does nothing", "keeps no response", "changes the objective")
    assert [(len(texts), part in texts[0]) for texts, part in zip(said, parts, strict=True)] == [(1, True)] * 3
    certificate = bounds.certify(summary, mask="seq_max_k2<=9", train_policy="held-out")
    assert [f.kind for f in certificate.findings] == [Kind.MASK]
