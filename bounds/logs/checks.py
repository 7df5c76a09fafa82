"""Every refusal of what a log holds: a table of checks, each of which looks at a whole batch at once.

Policy tokens are selected before anything is computed: what stands under mask 0 can be a filler of any size.
A missing value never counts as zero divergence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, refuse, reward_range
from bounds.logs.batch import NUMBERS, RECORD_FIELDS, TEXTS, VERSIONS, Batch, Row, TraceError, plain_text, prompt_name

#: Log-probs at or below this are fillers for "missing" (-1000.0, -9999.0, -1e10, -inf), not probabilities.
SENTINEL = -999.0
#: How far above 0 a log-prob may lie, by the precision in which it was computed.
POSITIVE_TOLERANCE = {"float32": 1e-6, "float16": 2.0**-7, "bfloat16": 2.0**-4}
#: Exact divergences may be this much outside their range (rounding in the trainer).
RANGE_TOLERANCE = 1e-6
#: Exact divergences, and the largest value of each.
EXACT_RANGE = {"kl": np.inf, "tv": 1.0, "chi2": np.inf, "max_log_ratio": np.inf}

#: How theta relates to the responses: it scored them before it learned from them; it learned, but not from their
#: prompts; or nobody said.
TRAIN_POLICIES = ("before-update", "held-out", "unknown")

_TELLING = 8  # values that tell what a column is
_LOGPROBS = ("rollout_logprobs", "train_logprobs", "old_logprobs")
_REQUIRED = _LOGPROBS[:2]
#: What all responses of a log have, or none.
_OPTIONAL = ("mask", "old_logprobs", *EXACT_RANGE, "reward")

#: The first bad row of a batch, and what is wrong with it.
Found = tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is to be read.

    ``logprob_dtype`` is the precision in which log-probs were computed: it decides how positive one may be.
    ``on_missing="drop"`` leaves responses with missing values out, and reports them. ``train_policy`` is one of
    :data:`TRAIN_POLICIES`, whatever rows say. ``leave_out`` names rows that are not looked at, as errors and findings
    name them: ``"log.jsonl:41: row 40"``, or only ``"log.jsonl:41"``.
    """

    reward_range: tuple[float, float] = (0.0, 1.0)
    logprob_dtype: str = "float32"
    on_missing: str = "error"
    train_policy: str | None = None
    leave_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.logprob_dtype, str) or self.logprob_dtype not in POSITIVE_TOLERANCE:
            refuse("logprob_dtype", "one of " + ", ".join(POSITIVE_TOLERANCE), self.logprob_dtype)
        if self.on_missing not in ("error", "drop"):
            refuse("on_missing", '"error" or "drop"', repr(self.on_missing))
        if self.train_policy not in (None, *TRAIN_POLICIES):
            refuse("train_policy", "one of " + ", ".join(TRAIN_POLICIES), self.train_policy)
        low, high = reward_range(self.reward_range)
        if high - low == np.inf:
            refuse("reward_range", "of a finite width", self.reward_range)

    def names_of(self, place: str) -> set[str]:
        """Return the names in ``leave_out`` of the row that stands at a place."""
        return {place, place.split(": ")[0]}.intersection(self.leave_out)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the first response of a log has of what all or none must have."""

    place: str
    has: Mapping[str, bool]


class Checker:
    """Looks at the batches of one log, in their order; each must have the fields of the first."""

    def __init__(self, reading: Reading, horizon: int | None, shape: Shape | None = None) -> None:
        self.reading = reading
        self.horizon = horizon
        self.shape = shape

    def check(self, batch: Batch) -> Checked:
        """Return the batch with its policy tokens selected."""
        out = np.zeros(len(batch), np.bool_)
        if self.reading.leave_out:
            out[:] = [bool(self.reading.names_of(place)) for place in batch.places]
        batch = batch.without(out, _REQUIRED) if out.any() else batch
        seen = Checked(batch, self, out)
        refusal = None
        for check in CHECKS:
            if (found := check(seen)) is not None:  # rows before it may be refused by the checks that follow
                row, text = found
                refusal = TraceError(f"{batch.places[row]}: {text}")
                if row == 0:
                    break
                seen = Checked(batch.head(row), self, out[:row])
        if refusal is not None:
            raise refusal
        self.shape = seen.shape
        return seen


class Checked:
    """A batch and what is computed of it, once and when it is needed; a later check relies on those before it."""

    def __init__(self, batch: Batch, checker: Checker, asked: BoolArray) -> None:
        self.batch = batch
        self.asked = asked  # which rows were left out, as asked [rows]
        self.reading = checker.reading
        self.horizon = checker.horizon
        self._known_shape = checker.shape
        self._columns: dict[str, Any] = {}
        self._ends: dict[str, tuple[float, float]] = {}  # least and largest of a column

    def __len__(self) -> int:
        return len(self.batch)

    def given(self, name: str) -> BoolArray:
        """Return whether each row has a field [rows]."""
        if name in self.batch.tokens:
            return self.batch.tokens[name].given
        if name in self.batch.rows:
            return np.array([value is not None for value in self.batch.rows[name]], dtype=np.bool_)
        return np.zeros(len(self), dtype=np.bool_)

    @cached_property
    def policy(self) -> BoolArray | None:
        """Whether each token counts [tokens]; None where all do."""
        if not self.given("mask").any():
            return None
        tokens = self.batch.tokens
        return np.asarray(tokens["mask"].aligned(tokens["rollout_logprobs"].lengths, 1.0) == 1.0)

    @cached_property
    def starts(self) -> IntArray:
        """Where the policy tokens of each row start [rows + 1]."""
        starts = self.batch.tokens["rollout_logprobs"].starts
        return starts if self.policy is None else np.concatenate([[0], np.cumsum(self.policy)])[starts]

    @property
    def lengths(self) -> IntArray:
        """Policy tokens of each row [rows]."""
        return np.diff(self.starts)

    @cached_property
    def kept(self) -> IntArray | None:
        """Position of each policy token in its row; None where all tokens are policy tokens."""
        if self.policy is None:
            return None
        first = self.batch.tokens["rollout_logprobs"].starts[:-1]
        return np.asarray(np.flatnonzero(self.policy) - np.repeat(first, self.lengths))

    def column(self, name: str) -> Any:
        """Return a field of each policy token, a filler in rows without it; None where no row has it."""
        if name not in self._columns and self.given(name).any():
            tokens = self.batch.tokens
            filler = np.nan if name in NUMBERS else 0
            values = tokens[name].aligned(tokens["rollout_logprobs"].lengths, filler)
            self._columns[name] = values if self.policy is None else values[self.policy]
        return self._columns.get(name)

    def locate(self, token: int) -> tuple[int, int]:
        """Return the row of a policy token, and its position there."""
        row = int(np.searchsorted(self.starts, token, side="right")) - 1
        return row, int(token - self.starts[row] if self.kept is None else self.kept[token])

    def missing(self, name: str) -> BoolArray | None:
        """Return which policy tokens lack a value that their row says it has; None where none does."""
        lowest, highest = np.nextafter(SENTINEL, 0.0), np.inf if name in EXACT_RANGE else np.finfo(np.float64).max
        return self.outside(name, lowest, highest, self.given(name))

    def outside(self, name: str, low: float, high: float, rows: BoolArray) -> BoolArray | None:
        """Return which policy tokens of some rows have a value outside a range, or NaN; None where none of all has."""
        values = self.column(name)
        if values is None or not values.size:
            return None
        if name not in self._ends:
            self._ends[name] = values.min(), values.max()
        if low <= self._ends[name][0] and self._ends[name][1] <= high:
            return None
        return np.asarray(~((values >= low) & (values <= high)) & np.repeat(rows, self.lengths))

    @cached_property
    def dropped(self) -> BoolArray:
        """Which rows are left out for what they lack [rows]."""
        rows = np.zeros(len(self), dtype=np.bool_)
        if self.reading.on_missing == "drop":
            for name in (*_LOGPROBS, *EXACT_RANGE):
                if (missing := self.missing(name)) is not None:
                    rows[np.searchsorted(self.starts, np.flatnonzero(missing), side="right") - 1] = True
        return rows

    @property
    def first_dropped(self) -> str:
        """What the first row that is left out lacks, and where."""
        found = (_missing(self, name) for name in (*_LOGPROBS, *EXACT_RANGE))
        row, text = min((f for f in found if f is not None), key=lambda f: f[0])
        return f"{self.batch.places[row]}: {text}"

    @cached_property
    def used(self) -> BoolArray:
        """Which rows are responses with a policy token and nothing missing [rows]."""
        return (self.lengths > 0) & ~self.dropped

    @cached_property
    def reward(self) -> FloatArray:
        """Reward of each row [rows], NaN where it has none."""
        return np.array(self.batch.row_field("reward"), dtype=np.float64)

    @cached_property
    def prompts(self) -> list[str | None]:
        """What each row says of its prompt [rows]."""
        return list(map(prompt_name, self.batch.row_field("prompt_id"), self.batch.row_field("prompt_tokens")))

    @property
    def shape(self) -> Shape | None:
        """What the first response of the log has of what all or none must have."""
        if self._known_shape is not None or not self.used.any():
            return self._known_shape
        first = int(np.argmax(self.used))
        return Shape(self.batch.places[first], {name: bool(self.given(name)[first]) for name in _OPTIONAL})


def _first(bad: BoolArray) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _lacks(seen: Checked, name: str) -> Found:
    """Find a policy's log-probs missing; they may stand under another name, or in another file."""
    row = _first(~seen.given(name))
    if row is None:
        return None
    others = [other for other, first in seen.batch.others.items() if first <= row]
    present = [n for n in (*RECORD_FIELDS, "row_id") if seen.given(n)[row]]
    meant = _meant(name, others)
    hint = f"; is it {meant!r}? Rename it" if meant else ""
    unread = f"; not read: {', '.join(others)}" if others else ""
    text = f"{name} is missing{hint} (the record has: {', '.join(present) or 'nothing'}{unread})"
    if name == "train_logprobs" and (ratio := next((other for other in others if "ratio" in other), "")):
        text += (
            f": {ratio} is theta/roll; train_logprobs = rollout_logprobs + log {ratio}, if that is the ratio before it "
            "was truncated"
        )
    if name == "train_logprobs" and not others:
        text += (
            ": these are the rollout policy's log-probs only; give the file in which the trained weights score the "
            "same tokens with train=, --train (trm-bounds formats --recipe score makes it)"
        )
    return row, text


#: What trainers call the log-probs of each policy, and words that say whose they are.
_TRAINERS = {
    "rollout_logprobs": (
        "sampling_per_token_logps rollout_log_probs rollout_per_token_logps generation_logprobs inference_logprobs "
        "sampling_logprobs behavior_logprobs vllm_logprobs logprobs",
        r"rollout|sampl|generat|infer|behav|vllm|sglang|engine",
    ),
    "train_logprobs": (
        "old_per_token_logps old_log_probs action_log_probs trainer_logprobs prev_logprobs per_token_logps prox_logp "
        "policy_logprobs train_log_probs log_probs",
        r"train|old|prev|policy|actor|prox|action|theta",
    ),
}


def _meant(name: str, others: Sequence[str]) -> str | None:
    """Return the field that is likely meant, never one of the other policy's or of a third."""
    known, _ = _TRAINERS[name]
    (theirs, whose) = next(words for other, words in _TRAINERS.items() if other != name)
    listed = [other for other in known.split() if other in others]
    strangers = [o for o in others if o not in theirs.split() and not re.search(f"ref|teacher|ratio|{whose}", o)]
    return next(iter([*listed, *difflib.get_close_matches(name, strangers, n=1, cutoff=0.5)]), None)


def other_names(seen: Checked) -> tuple[str, ...]:
    """Say which fields, that are not read, may be what no row has."""
    notes = []
    for name, others in _OTHER_NAMES.items():
        found = [(seen.batch.others[o], o) for o in others.split() if o in seen.batch.others]
        if found and not seen.given(name).any():
            row, other = min(found)
            notes.append(
                f"{seen.batch.places[row]}: no {name}, but {other}, which is not read: rename it if that is it"
            )
    return tuple(notes)


#: What others call a field that a log may lack.
_OTHER_NAMES = {
    "reward": "reward_score score scores token_level_scores raw_reward final_reward return",
    "prompt_id": "uid uids prompt_uid group_id prompt_idx question_id problem_id example_id",
}


def _misnamed(seen: Checked, name: str, is_meant: Callable[[str], bool], what: str) -> Found:
    """Find a field under another name, which would be ignored."""
    lacking = ~seen.given(name)
    for other, first in seen.batch.others.items():
        if is_meant(other) and lacking[first]:
            return first, f"{other} is not read; rename it to {name} ({what})"
    return None


def _other_length(seen: Checked, name: str) -> Found:
    """Find a field that has not one entry for each token."""
    if name not in seen.batch.tokens:
        return None
    rollout, lists = seen.batch.tokens["rollout_logprobs"], seen.batch.tokens[name]
    row = _first(lists.given & (lists.lengths != rollout.lengths))
    if row is None:
        return None
    return row, f"{name} has {lists.lengths[row]} entries, rollout_logprobs has {rollout.lengths[row]}"


def _no_mask(seen: Checked) -> Found:
    """Find a mask that is neither 0 nor 1."""
    if "mask" not in seen.batch.tokens:
        return None
    mask = seen.batch.tokens["mask"]
    k = _first((mask.values != 0.0) & (mask.values != 1.0))
    if k is None:
        return None
    row = int(np.searchsorted(mask.starts, k, side="right")) - 1
    return row, f"mask[{k - mask.starts[row]}] must be 0 or 1, got {mask.values[k]}"


def _missing(seen: Checked, name: str) -> Found:
    """Find null, NaN, or a filler that trainers write for what they do not have."""
    missing = seen.missing(name)
    if missing is None or (k := _first(missing)) is None:
        return None
    row, position = seen.locate(k)
    value = seen.column(name)[k]
    said = "null or NaN" if np.isnan(value) else f"{value:g}"
    return row, f"{name}[{position}] is {said}, which stands for a missing value"


def _refused_missing(seen: Checked, name: str) -> Found:
    if seen.reading.on_missing == "drop" or (found := _missing(seen, name)) is None:
        return None
    row, text = found
    return row, (
        f"{text}; mask it if it is no policy token, or drop such responses "
        '(on_missing="drop", --drop-missing): what is said then assumes that they are like the others'
    )


def _impossible(seen: Checked, name: str) -> Found:
    """Find a log-probability above 0 or an exact divergence outside its range, but for rounding."""
    low, high, domain, why = _domain(name, seen.reading.logprob_dtype)
    bad = seen.outside(name, low, high, seen.given(name) & ~seen.dropped)
    if bad is None or (k := _first(bad)) is None:
        return None
    row, position = seen.locate(k)
    got = f"got {plain_text(seen.column(name)[k])}{_taken_for(seen, name)}"
    return row, f"{name}[{position}] must be {domain}, {got}{why}"


def _taken_for(seen: Checked, name: str) -> str:
    """Say what a column of log-probs looks like that has nothing below 0."""
    values = seen.column(name)
    if name in EXACT_RANGE or values.size < _TELLING or values.min() < 0.0:
        return ""
    if values.max() <= 1.0:
        return " (these look like probabilities: take their natural logarithm)"
    other = seen.column("train_logprobs" if name == "rollout_logprobs" else "rollout_logprobs")
    if np.median(np.abs(values + other)) < np.median(np.abs(values - 1.0)):
        return " (these look like negated log-probs, as a loss has them: change their sign)"
    return " (these look like ratios theta/roll: train_logprobs = rollout_logprobs + log of the ratio)"


def _domain(name: str, dtype: str) -> tuple[float, float, str, str]:
    """Return the least and the largest value, what that is called, and what may be done about another."""
    if name in EXACT_RANGE:
        top = EXACT_RANGE[name]
        called = "a number >= 0" if np.isinf(top) else f"a number in [0, {top:g}]"
        return -RANGE_TOLERANCE, top * (1.0 + RANGE_TOLERANCE), called, ""
    tolerance = POSITIVE_TOLERANCE[dtype]
    why = f"; {dtype} explains up to {tolerance:g} (logprob_dtype, --logprob-dtype)"
    return -np.inf, tolerance, "a log-probability (at most 0)", why


def _reward(seen: Checked) -> Found:
    low, high = seen.reading.reward_range
    row = _first(seen.given("reward") & ~((seen.reward >= low) & (seen.reward <= high)))
    if row is None:
        return None
    return row, (
        f"reward must be a number in [{low:g}, {high:g}], got {plain_text(seen.reward[row])}; rewards of another "
        "range need reward_range=(lowest, highest), --reward-range (not a normalised advantage)"
    )


def _policy(seen: Checked) -> Found:
    """Find a train_policy that is none."""
    if not seen.given("train_policy").any():
        return None
    said = seen.batch.rows["train_policy"]
    row = _first(np.array([value not in (None, *TRAIN_POLICIES) for value in said]))
    return None if row is None else (row, f"train_policy must be one of {', '.join(TRAIN_POLICIES)}, got {said[row]!r}")


def _too_long(seen: Checked) -> Found:
    if seen.horizon is None:
        return None
    row = _first(seen.used & (seen.lengths > seen.horizon))
    return None if row is None else (row, f"{seen.lengths[row]} policy tokens, more than horizon={seen.horizon}")


def _in_some_rows_only(seen: Checked, name: str) -> Found:
    """Find what is given for some responses and not for others."""
    shape = seen.shape
    row = None if shape is None else _first(seen.used & (seen.given(name) != shape.has[name]))
    if shape is None or row is None:
        return None
    return row, f"{name} is given for some responses and not for others (compare {shape.place})"


#: Every check of a row, in the order in which they look at it.
CHECKS: tuple[Callable[[Checked], Found], ...] = (
    *(partial(_lacks, name=name) for name in _REQUIRED),
    partial(_misnamed, name="mask", is_meant=lambda other: other.endswith("mask"), what="1 on policy tokens"),
    partial(_misnamed, name="reward", is_meant=lambda other: other == "rewards", what="one number a response"),
    *(partial(_other_length, name=name) for name in (*NUMBERS, "tokens", TEXTS, VERSIONS)),
    _no_mask,
    *(partial(check, name=name) for name in _LOGPROBS for check in (_refused_missing, _impossible)),
    *(partial(_refused_missing, name=name) for name in EXACT_RANGE),
    *(partial(_impossible, name=name) for name in EXACT_RANGE),
    _reward,
    _policy,
    _too_long,
    *(partial(_in_some_rows_only, name=name) for name in _OPTIONAL),
)


def paired(sampled: Row, scored: Row) -> tuple[dict[str, Any], bool]:
    """Return the record of both halves, and whether token ids said that they belong together.

    A scored text that is longer than the response begins with the prompt: it is joined at its end, where the token
    ids of both must be equal. They are compared wherever both halves have them.
    """
    (where, ours), (other, theirs) = sampled, scored
    both = f"{where} (scored: {other})"
    if ours.get("rollout_logprobs") is None:
        raise TraceError(f"{where}: rollout_logprobs is missing: this is not the sampled half")
    if theirs.get("train_logprobs") is None:
        raise TraceError(f"{other}: train_logprobs is missing: this is not the scored half")
    if ours.get("train_logprobs") is not None:
        raise TraceError(f"{where}: has train_logprobs already; train=, --train is for logs that lack them")
    size, length = ours["rollout_logprobs"].size, theirs["train_logprobs"].size
    compared = _same_tokens(ours.get("tokens"), theirs.get("tokens"), size, both)
    if not compared and ours.get(TEXTS) is not None and theirs.get(TEXTS) is not None:
        compared = np.array_equal(ours[TEXTS], theirs[TEXTS][max(length - size, 0) :])
    if length != size and not (compared and length > size):
        raise TraceError(
            f"{both}: {size} sampled and {length} scored tokens; halves of different length need token ids (or "
            "the same texts of tokens) in both, and are joined at their ends"
        )
    record = dict(ours)
    for name, value in theirs.items():
        if record.get(name) is None and name not in ("tokens", TEXTS):
            record[name] = value[length - size :] if name in NUMBERS and value is not None else value
        elif name in ("prompt_id", "reward") and value is not None and not same(record[name], value):
            raise TraceError(f"{both}: {name} is {record[name]} and {value}: the rows do not belong together")
    return record, compared


def same(a: object, b: object) -> bool:
    """Say whether two fields of records are equal, also lists of numbers."""
    return bool(np.asarray(a).tolist() == np.asarray(b).tolist())


def _same_tokens(ours: Any, theirs: Any, size: int, where: str) -> bool:
    """Say whether both halves have token ids, which must then be equal on the response."""
    if ours is None or theirs is None:
        return False
    end = theirs[max(theirs.size - size, 0) :]
    if not np.array_equal(ours, end):
        differ = int(np.argmax(ours != end)) if ours.shape == end.shape else min(ours.size, end.size)
        raise TraceError(f"{where}: the token ids differ at position {differ}: the rows do not belong together")
    return True
