"""Forms that a fault takes, each beside an honest log that looks like it; and what is said to be their cause."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import writers
from test_findings import changed, cut_off, half, log, summary_of, with_value

import bounds
from bounds.certificate.causes import ADVICE, likely
from bounds.certificate.findings import Kind, _beyond_rate, _bfloat16, findings, mask_findings
from bounds.cli import COMMANDS
from bounds.masks.mask import Mask

ROLL, TRAIN = "rollout_logprobs", "train_logprobs"
WIDE = {"reward_range": (-9.0, 9.0)}


def kinds(rows, **options):
    return {f.kind for f in findings(summary_of(rows, **options))}


def each(field, value, rows=None):
    """Rows with one field changed; ``value`` is a function of number and row."""
    return changed(log() if rows is None else rows, lambda k, row: {field: value(k, row)})


def rewarded(reward, prompts=32, group=8, seed=0):
    """A log with rewards that are a function of those of 0 and 1 [prompts, group]; prompts differ in difficulty."""
    rng = np.random.default_rng(seed)
    raw = rng.random((prompts, group)) < rng.beta(0.5, 0.5, (prompts, 1))
    values = np.asarray(reward(raw.astype(float)), dtype=float).ravel()
    return each("reward", lambda k, row: values[k], log(prompts=prompts, group=group, tokens=2))


def within(raw, scale=1.0, shift=0.0):
    return scale * (raw - raw.mean(axis=1, keepdims=True)) + shift


def of_groups(raw):
    return within(raw) / (raw.std(axis=1, keepdims=True) + 1e-6)


ADVANTAGES = {
    "without the mean": within,
    "without the mean, plus a half": lambda raw: within(raw, shift=0.5),
    "scaled to [0, 1]": lambda raw: within(raw, 0.5, 0.5),
    "by the deviation of a group": of_groups,
    "by the deviation of a group, moved": lambda raw: 0.1 * of_groups(raw) + 0.5,
    "by the deviation of the batch": lambda raw: (raw - raw.mean()) / raw.std(),
    "ranks": lambda raw: np.argsort(np.argsort(raw + 1e-3 * np.arange(raw.shape[1]), axis=1), axis=1) / 7.0,
}
RAW = {
    "0 and 1": lambda raw: raw,
    "-1 and 1": lambda raw: 2.0 * raw - 1.0,
    "graded": lambda raw: np.random.default_rng(1).integers(0, 5, raw.shape) / 4.0,
    "continuous": lambda raw: raw * np.random.default_rng(1).random(raw.shape),
}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_in_every_form(name):
    assert Kind.ADVANTAGES in kinds(rewarded(ADVANTAGES[name]), **WIDE)


@pytest.mark.parametrize("name", RAW)
def test_raw_rewards_are_no_advantages(name):
    for seed in range(3):
        assert not kinds(rewarded(RAW[name], seed=seed), **WIDE)


def test_few_groups_of_one_mean_are_chance():
    """Two pairs with a success each; and as many as chance does not explain, of rewards that are not at the ends."""
    pairs = [np.tile([0.25, 0.75], (n, 1)) for n in (2, 13, 14)]
    found = [kinds(rewarded(lambda raw, r=r: r, len(r), 2)) for r in pairs]
    assert [Kind.ADVANTAGES in seen for seen in found] == [False, False, True]


# --- groups ----------------------------------------------------------------------------------------------------------

OWN_ID = {"prompt_id": lambda i, k: f"{i}-{k}"}


def prompt(i, k=0):
    """Tokens of a prompt: a template, a text of its own, the end of the template."""
    return [1, 2, 3, *np.random.default_rng(i).integers(9, 99, 20).tolist(), 4, 5]


def with_path(i, k):
    """The same with a path that a harness draws for each response, of two or three tokens."""
    rng = np.random.default_rng(1000 * i + k)
    return [*prompt(i)[:8], *rng.integers(100, 999, rng.integers(2, 4)).tolist(), *prompt(i)[8:]]


UNGROUPED = {
    "ids of responses": log(**OWN_ID, prompt_tokens=prompt),
    "in another order": [log(**OWN_ID, prompt_tokens=prompt)[k] for k in np.random.default_rng(0).permutation(96)],
    "a path in the prompt": log(**OWN_ID, prompt_tokens=with_path),
    "rewards alike": each("prompt_id", lambda k, row: f"r{k}", rewarded(lambda raw: raw)),
}
GROUPED = {
    "ids of prompts": log(prompt_tokens=prompt),
    "an id for each draw of a prompt": log(prompt_tokens=lambda i, k: prompt(i % 6)),
    "prompts once": log(**OWN_ID, prompt_tokens=lambda i, k: prompt(4 * i + k)),
    "one template": log(**OWN_ID, prompt_tokens=lambda i, k: [1, 2, 3, 4 * i + k, 4, 5]),
    "without tokens": log(**OWN_ID),
    "rewards in another order": each(
        "prompt_id",
        lambda k, row: f"r{k}",
        [rewarded(lambda raw: raw)[k] for k in np.random.default_rng(0).permutation(256)],
    ),
    "rewards that drift": each("reward", lambda k, row: float(k > 120), log(prompts=256, group=1, tokens=2)),
}


def half_even(values):
    """Round to the nearest number of 8 bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(float)


@pytest.mark.parametrize("name", UNGROUPED)
def test_ids_that_name_responses(name):
    found = [f for f in findings(summary_of(UNGROUPED[name])) if f.kind is Kind.UNGROUPED]
    assert len(found) == 1
    assert found[0].count == len(UNGROUPED[name])
    assert "--group-size N" in found[0].command


@pytest.mark.parametrize("name", GROUPED)
def test_ids_that_name_prompts(name):
    assert Kind.UNGROUPED not in kinds(GROUPED[name])


def test_rows_are_grouped_on_request_though_each_has_an_id(tmp_path):
    """And the answer is that of a log whose ids name prompts; ids that name prompts are still held against it."""
    path, by_prompt = (
        writers.lines(tmp_path / name, rows)
        for name, rows in (("a", listed(UNGROUPED["ids of responses"])), ("b", listed(GROUPED["ids of prompts"])))
    )
    ours, theirs = bounds.read_traces(path, horizon=64, group_size=4), bounds.read_traces(by_prompt, horizon=64)
    assert ours.prompt.tolist() == theirs.prompt.tolist()
    mixed = writers.lines(tmp_path / "d", listed(UNGROUPED["in another order"]))
    with pytest.raises(bounds.TraceError, match="group_size=4 puts it with rows of another prompt"):
        bounds.read_traces(mixed, horizon=64, group_size=4)
    paths = writers.lines(tmp_path / "e", listed(UNGROUPED["a path in the prompt"]))
    assert len(bounds.read_traces(paths, horizon=64, group_size=4).prompt_ids) == 24
    again = writers.lines(tmp_path / "c", listed(log(prompt_id=lambda i, k: f"p{k}")))
    with pytest.raises(bounds.TraceError, match="row 4: group_size=2 puts it with rows of another prompt"):
        bounds.read_traces(again, horizon=64, group_size=2)


@pytest.mark.parametrize("name", ["ids of responses", "in another order"])
@pytest.mark.parametrize("responses", [96, 95])
def test_tokens_of_prompts_that_return_group_responses_whose_ids_differ(tmp_path, name, responses):
    """Every answer is that of a log whose ids name prompts; but it is assumed, and said, and meets no gate."""
    rows = UNGROUPED[name][:responses]
    named = [{**row, "prompt_id": str(row["prompt_tokens"])} for row in rows]
    read = partial(bounds.TraceSet.from_records, horizon=64, train_policy="held-out")
    ours, theirs = bounds.certify(read(rows)), bounds.certify(read(named))
    assert ours.prompts == theirs.prompts == 24
    for of in ("improvement_these_prompts", "improvement"):
        mine, other = ours.guarantees.intervals[of], theirs.guarantees.intervals[of]
        assert (mine.low, mine.high) == pytest.approx((other.low, other.high), abs=0.02)  # star looks at keys' order
        assert mine.standing is bounds.Standing.ASSUMED
    assert ours.estimates["kl_seq"] == theirs.estimates["kl_seq"]
    assert "grouped" in [a.what for a in ours.assumptions]
    assert ours.against("kl_seq").kind is Kind.UNGROUPED
    assert bounds.by_position(read(rows)).to_frame().equals(bounds.by_position(read(named)).to_frame())
    assert bounds.explain(read(rows)).kl_seq == bounds.explain(read(named)).kl_seq
    path = writers.lines(tmp_path / "log.jsonl", listed(rows))
    assert bounds.certify(bounds.open_log(path, horizon=64, train_policy="held-out")).estimates == ours.estimates


def listed(rows):
    return [{n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in row.items()} for row in rows]


def test_longer_and_shorter_forms_of_a_response_are_one():
    rows = log(prompts=8, tokens=90)
    chunks = [{**row, ROLL: row[ROLL][:n], TRAIN: row[TRAIN][:n]} for row in rows for n in (50, 70, 90)]
    (found,) = [f for f in findings(summary_of(chunks, horizon=90)) if f.kind is Kind.REPEATED]
    assert (found.count, found.rows) == (64, ("row 1",))
    assert "64 are longer or shorter" in found.text
    other = changed(rows, lambda k, row: {"prompt_id": f"again {k}"})
    (found,) = [f for f in findings(summary_of(rows + other, horizon=90)) if f.kind is Kind.REPEATED]
    assert found.count == 32
    assert "32 are copies, 32 have another prompt_id" in found.text


def choices(draw=0, prompts=64, group=4):
    """Answers of one token out of four: many to a prompt are the same, and so are some in a row."""
    policies, rng = np.random.default_rng(0), np.random.default_rng(draw)
    for i in range(prompts):
        roll, theta = (np.log(policies.dirichlet(np.full(4, 0.4)) + 1e-6) - 1e-5 for _ in range(2))
        for token in rng.choice(4, group, p=np.exp(roll) / np.exp(roll).sum()):
            yield {"prompt_id": f"p{i}", "reward": float(token == 0), ROLL: roll[[token]], TRAIN: theta[[token]]}


def test_short_responses_stand_again_if_many_in_a_row_do():
    """Under other ids too; one by one they are often drawn again, and by a second pass over the prompts half are."""
    once, again = list(choices()), [{**row, "prompt_id": f"again {row['prompt_id']}"} for row in choices()]
    (found,) = [f for f in findings(summary_of(once + again[20:])) if f.kind is Kind.REPEATED]
    assert (found.count, found.rows) == (236, ("row 256",))
    assert "236 responses in a row stand as 236 rows before, bitwise" in found.text
    assert Kind.REPEATED not in kinds(once + again[20:24])
    for draw in range(1, 40):
        assert Kind.REPEATED not in kinds([*once, *choices(draw)])


@pytest.mark.parametrize("probabilities", [(0.5, 0.5), (0.25, 0.25, 0.25, 0.25), (0.3, 0.7), (0.2, 0.2, 0.6)])
def test_a_tiny_vocabulary_repeats_nothing(probabilities):
    """Tokens that are as likely as others cannot be told apart by their log-probs."""
    rng = np.random.default_rng(0)
    drawn = np.log(rng.choice(probabilities, (400, 60), p=probabilities))
    rows = [{"prompt_id": f"p{k % 50}", "reward": 0.0, ROLL: x, TRAIN: x} for k, x in enumerate(drawn)]
    assert Kind.REPEATED not in kinds(rows)


def test_tokens_that_are_about_as_likely_are_not_told_apart_in_half_precision():
    """Log-probs of an untrained model: there are a few numbers of 8 bits near log(1/32000)."""
    near = log(tokens=90, rollout_logprobs=lambda i, k: half(np.random.default_rng((i, k)).normal(-10.4, 0.1, 90)))
    rows = [{**row, TRAIN: row[ROLL] + 0.01 * np.cos(np.arange(90.0) + k)} for k, row in enumerate(near)]
    assert Kind.REPEATED not in kinds(rows, horizon=90)
    assert Kind.REPEATED in kinds(rows + [{**row, "prompt_id": "again"} for row in rows[:3]], horizon=90)


WRITTEN = {
    "bfloat16": half_even,
    "float16": lambda values: values.astype(np.float16).astype(float),
    **{f"{places} decimals": partial(np.round, decimals=places) for places in (2, 3, 4)},
}


@pytest.mark.parametrize("column", [ROLL, TRAIN])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_copy_with_fewer_digits_is_a_copy(name, column):
    """And scores that are written with fewer digits are none."""
    write, other = WRITTEN[name], TRAIN if column == ROLL else ROLL
    (found,) = [f for f in findings(summary_of(each(column, lambda k, row: write(row[other])))) if f.kind.refutes]
    assert (found.kind, found.count) == (Kind.COPIED, 1152)
    assert "the same, but for rounding, on 100% of the uncertain tokens" in found.text
    assert Kind.COPIED not in kinds(each(column, lambda k, row: write(row[column])))


# --- columns ---------------------------------------------------------------------------------------------------------

LOG2 = math.log(2.0)


def rounded(row):
    return {name: np.round(row[name], 4) for name in (ROLL, TRAIN)}


def floored(k, row, least):
    return {ROLL: np.maximum(cut_off(k, row, most=9.0)[TRAIN] - 2.0, least), TRAIN: cut_off(k, row, most=9.0)[TRAIN]}


CENSORED = {
    "a ratio of 2": (lambda k, row: cut_off(k, row, most=LOG2), "exactly log 2"),
    "a ratio of 1.28": (lambda k, row: cut_off(k, row, most=math.log(1.28)), "exactly log 1.28"),
    "a ratio of 1/2": (lambda k, row: cut_off(k, row, least=-LOG2, most=9.0), "log roll - log theta is exactly log 2"),
    "in single precision": (
        lambda k, row: {n: v.astype(np.float32) for n, v in cut_off(k, row, most=LOG2).items()}, "exactly log 2",
    ),
    "in four decimals": (lambda k, row: rounded(cut_off(k, row, most=LOG2)), "exactly log 2"),
    "20 nats": (
        lambda k, row: {ROLL: cut_off(k, row)[ROLL], TRAIN: cut_off(k, row)[ROLL] - (20.0 if k % 2 else 0.1)},
        "log roll - log theta is exactly 20",
    ),
    "a least log-prob": (lambda k, row: floored(k, row, -6.5), "-rollout_logprobs is exactly 6.5 on"),
}  # fmt: skip
UNCENSORED = {
    "nothing cut off": lambda k, row: cut_off(k, row, most=9.0),
    "in half precision": lambda k, row: {n: half(v) for n, v in cut_off(k, row, most=9.0).items()},
    "a tiny vocabulary": lambda k, row: dict(
        zip(
            (ROLL, TRAIN),
            np.log([[0.1, 0.9], [0.3, 0.7]])[:, np.random.default_rng(k).choice(2, 12, p=(0.1, 0.9))],
            strict=True,
        )
    ),
}


@pytest.mark.parametrize("name", CENSORED)
def test_values_that_were_cut_off(name):
    change, text = CENSORED[name]
    summary = summary_of(changed(log(), change))
    (found,) = [f for f in findings(summary) if f.kind is Kind.CENSORED]
    assert text in found.text
    assert found.kind.refutes
    kl_seq = bounds.certify(summary, assume={"absolutely_continuous": True}).estimates["kl_seq"]
    assert kl_seq.low <= kl_seq.value < kl_seq.high == math.inf
    assert kl_seq.of.endswith("a lower limit, values were cut off")


@pytest.mark.parametrize("name", UNCENSORED)
def test_values_that_were_not(name):
    assert Kind.CENSORED not in kinds(changed(log(), UNCENSORED[name]))


@pytest.mark.parametrize("base", [2.0, 10.0])
@pytest.mark.parametrize("field", [ROLL, TRAIN])
def test_logarithms_of_another_base(field, base):
    rows = each(field, lambda k, row: row[field] / math.log(base))
    (found,) = [f for f in findings(summary_of(rows)) if f.kind is Kind.OTHER_BASE]
    assert found.text.endswith(f"{field} are of base {base:g}")
    assert found.causes[0] == f"{field} are of base {base:g}"
    warmer = each(field, lambda k, row: row[field] / math.log(base) - 0.3)  # of a normalising constant
    assert kinds(warmer) & {Kind.TEMPERATURE, Kind.OTHER_BASE} == {Kind.TEMPERATURE}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda row: {TRAIN: np.exp(row[TRAIN])}, "look like probabilities"),
        (lambda row: {TRAIN: np.exp(row[TRAIN] - row[ROLL])}, "look like ratios"),
        (lambda row: {TRAIN: -row[TRAIN]}, "look like negated log-probs"),
        (lambda row: {ROLL: -row[ROLL]}, "look like negated log-probs"),
        (lambda row: {TRAIN: np.where(np.arange(12) == 3, 0.1, row[TRAIN])}, "got 0.1; float32 explains"),
    ],
)  # fmt: skip
def test_columns_of_something_else_are_named(change, text):
    with pytest.raises(bounds.TraceError, match=text):
        summary_of(changed(log(), lambda k, row: change(row)))


def test_a_ratio_in_place_of_a_policy_is_pointed_at():
    rows = [{ROLL: [-1.0, -2.0], "importance_sampling_ratio": [3.0, 1.1]}]
    with pytest.raises(bounds.TraceError, match=r"rollout_logprobs \+ log importance_sampling_ratio, if that is"):
        summary_of(rows)


# --- tokens ----------------------------------------------------------------------------------------------------------


def certain(where):
    """A log with both log-probs exactly 0 at some positions of each response, of 60."""

    def change(k, row):
        zero = where(np.random.default_rng(k))
        return {name: np.where(zero, 0.0, row[name]) for name in (ROLL, TRAIN)}

    return changed(log(tokens=60), change)


def test_certain_tokens_are_padding_only_in_blocks():
    scattered, blocks = (
        [f for f in findings(summary_of(certain(where))) if "exactly 0" in f.text]
        for where in (lambda rng: (rng.random(60) < 0.5) & (np.arange(60) < 59), lambda rng: np.arange(60) // 20 == 1)
    )
    assert [(f.kind, "scattered" in f.text) for f in scattered] == [(Kind.ROUNDING, True)]
    assert [(f.kind, "in blocks" in f.text) for f in blocks] == [(Kind.PADDING, True)]


def test_tokens_that_were_forced_are_told_from_a_sure_policy():
    """Of a probability that float32 calls 1, where theta has nearly none; theta a little less sure is no sign."""
    forced = with_value(ROLL, range(0, 96, 2), 6, -1.2e-7)
    forced = changed(forced, lambda k, row: {TRAIN: np.where(row[ROLL] > -1e-6, -9.0, row[TRAIN])})
    (found,) = [f for f in findings(summary_of(forced)) if f.kind is Kind.FORCED_TOKENS]
    assert found.count == 48
    assert "0, but for rounding, on 48 tokens" in found.text
    sure = changed(forced, lambda k, row: {TRAIN: np.where(row[TRAIN] == -9.0, -0.01, row[TRAIN])})
    assert Kind.FORCED_TOKENS not in kinds(sure)


def test_one_token_that_no_policy_explains_is_named():
    rows = each(TRAIN, lambda k, row: np.where((np.arange(12) == 7) & (k == 5), 0.0, row[TRAIN]))
    rows = each(ROLL, lambda k, row: np.where((np.arange(12) == 7) & (k == 5), -25.0, row[ROLL]), rows)
    (found,) = [f for f in findings(summary_of(rows)) if f.kind is Kind.REFUTED]
    assert (found.count, found.rows) == (1, ("row 5, position 7",))
    assert "of 1 in 96 responses" in found.text
    assert "e^25 (row 5, position 7)" in found.text


# --- causes ----------------------------------------------------------------------------------------------------------


def far(of, tokens=40):
    """Rows with train log-probs that are a function of those of the rollout and of a random generator."""

    def change(k, row):
        return {TRAIN: np.minimum(of(row[ROLL], np.random.default_rng(k)), -0.002)}

    return changed(log(tokens=tokens), change)


#: What was done -> what must be named first.
CAUSED = {
    "another temperature": (far(lambda x, rng: 1.4 * x + 0.2), "another temperature"),
    "another base": (far(lambda x, rng: x / math.log(10.0)), "of base 10"),
    "top-p": (far(lambda x, rng: x + np.log(rng.uniform(0.9, 1.0, 40))), "top-p"),
    "another template": (
        far(lambda x, rng: x - np.where(np.arange(40) < 3, rng.exponential(2.0, 40), 0.0)), "another template",
    ),
    "forced tokens": (
        each(TRAIN, lambda k, row: np.where(np.arange(40) == 9, -8.0, row[TRAIN]),
             each(ROLL, lambda k, row: np.where(np.arange(40) == 9, 0.0, row[ROLL]), log(tokens=40))),
        "no policy chose",
    ),
    "another model": (far(lambda x, rng: -0.2 - rng.exponential(1.0, 40)), "another model"),
    "worse than uniform": (far(lambda x, rng: -14.0 + rng.normal(0.0, 1.0, 40)), "not the scores of this model"),
    "stale weights": (far(lambda x, rng: x + rng.normal(-0.05, 0.3, 40)), "stale weights"),
    "quantised weights": (far(lambda x, rng: x + rng.normal(0.0, 0.08, 40)), "quantised weights"),
    "a ratio cut off": (changed(log(), lambda k, row: cut_off(k, row, most=LOG2)), "cut off"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSED)
def test_the_likeliest_cause_comes_first(name):
    rows, cause = CAUSED[name]
    assert cause in likely(summary_of(rows))[0][0]


def test_every_kind_has_causes_or_finds_them_and_a_command_that_exists():
    assert set(ADVICE) >= set(Kind)
    for advice in ADVICE.values():
        name, command = advice.command.split()[:2]
        assert name == "trm-bounds"
        assert command in COMMANDS
    summary = summary_of(CAUSED["top-p"][0])
    gap = next(f for f in findings(summary) if f.kind is Kind.SUPPORT_GAP)
    assert gap.causes == tuple(text for text, _ in likely(summary))
    assert gap.look == likely(summary)[0][1]
    assert gap.advice.startswith("support gap: top-p or top-k")
    assert gap.advice.endswith("(trm-bounds explain LOG).")


def test_half_precision_says_its_floor_beside_kl_seq():
    rows = changed(log(), lambda k, row: {ROLL: half(row[ROLL])})
    summary = summary_of(rows)
    (found,) = findings(summary)
    step = np.abs(np.concatenate([row[ROLL] for row in rows])).mean() / 256.0
    assert f"{12 * step**2 / 6:.2g} per response, where kl_seq (k3) is {summary['k3_sum'].mean():.2g}" in found.text


def test_numbers_between_two_of_half_precision_go_to_the_even_one():
    """With 8 bits there is nothing between 1, 1 + 2/256 and 1 + 4/256."""
    between = 1.0 + np.array([1.0, 2.0, 3.0, 0.99, 1.01]) / 256.0
    assert _bfloat16(between).tolist() == (1.0 + np.array([0.0, 2.0, 4.0, 0.0, 2.0]) / 256.0).tolist()
    assert half_even(between)[3:].tolist() == _bfloat16(between)[3:].tolist()


def test_hits_beyond_the_usual_by_hand():
    """The evidence is n KL(share || rate), rate the one whose odds are eight times the usual, or a twentieth."""
    few, one = np.array([0.0, 0.0, 10.0, 0.0]), np.array([1.0, 0.0, 0.0])
    many = np.array([10.0, 10.0, 100.0, 10.0])
    found = [_beyond_rate(few, np.full(4, 100.0)), _beyond_rate(many, np.full(4, 100.0))]
    ten_of_hundred = 100.0 * (0.1 * math.log(0.1 / 0.05) + 0.9 * math.log(0.9 / 0.95))
    assert found[0] == pytest.approx(np.array([0.0, 0.0, ten_of_hundred, 0.0]))
    assert found[1] == pytest.approx(np.array([0.0, 0.0, 100.0 * math.log(1.7 / 0.8), 0.0]))
    assert _beyond_rate(one, np.array([1.0, 100.0, 100.0])) == pytest.approx([math.log(20.0), 0.0, 0.0])


def test_mass_that_is_missing_shows_through_noise():
    """Theta gave a twentieth of its mass to tokens that roll never draws; at other tokens both differ either way."""

    def lowered(k, row):
        d = np.random.default_rng(k).normal(math.log(0.95) - 0.005, 0.1, row["rollout_logprobs"].size)
        return {
            name: row["rollout_logprobs"] - 1.0 + by for name, by in (("rollout_logprobs", 0.0), ("train_logprobs", d))
        }

    rows = changed(log(prompts=64, group=8), lowered)
    ratio = np.mean([np.exp(row["train_logprobs"] - row["rollout_logprobs"]).mean() for row in rows])
    (found,) = (f.text for f in findings(summary_of(rows)) if f.kind is Kind.SUPPORT_GAP)
    assert found.startswith(f"the mean ratio theta/roll of a token, {ratio:.6g}, is clearly below 1: theta has mass")


def test_prompts_that_lack_a_response_are_counted():
    rows = [row for k, row in enumerate(log(prompts=200, group=4, tokens=2)) if k not in (3, 7)]
    (found,) = (f for f in findings(summary_of(rows)) if f.kind is Kind.MISSING)
    assert (found.count, found.text[:31]) == (2, "2 of 200 prompts have fewer or ")


def test_pairs_of_one_prompt_with_paths_are_ungrouped():
    pairs = log(prompts=40, group=2, **OWN_ID, prompt_tokens=with_path)
    assert [f.count for f in findings(summary_of(pairs)) if f.kind is Kind.UNGROUPED] == [80]


def test_rows_without_the_tokens_of_their_prompt_are_not_grouped_by_them():
    some = log(**OWN_ID, prompt_tokens=lambda i, k: prompt(i) if k else None)
    assert summary_of(log(**OWN_ID, prompt_tokens=prompt)).by_tokens
    assert not summary_of(some).by_tokens


@pytest.mark.parametrize(("tokens", "one_ratio"), [(2, False), (3, True)])
def test_one_ratio_at_three_tokens_is_no_chance(tokens, one_ratio):
    roll = -1.0 - np.arange(tokens)
    row = {"prompt_id": "a", "reward": 1.0, "rollout_logprobs": roll, "train_logprobs": roll - 0.5}
    assert (Kind.SUPPORT_GAP in kinds([row])) is one_ratio


def test_one_version_of_the_weights_is_no_mixture():
    one, two = (log(weight_version=lambda i, k, of=of: f"v{i % of}") for of in (1, 2))
    assert [summary_of(rows).several_steps for rows in (one, two)] == [False, True]


def test_only_a_token_that_trainers_clamp_is_said_of_a_mask():
    """They clamp |d| at 20."""
    mask, roll = Mask.parse("seq_max_k2<=0.05"), log()[0]["rollout_logprobs"][1]
    for d, clamped in ((19.0, False), (21.0, True)):
        found = mask_findings(summary_of(with_value("train_logprobs", (0,), 1, roll - d)), mask, 0.5)
        far = [f for f in found if "a token has |d| > 20" in f.text]
        assert bool(far) is clamped
