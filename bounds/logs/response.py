"""One logged response: its policy tokens, checked.

Policy tokens are selected before anything is computed: what stands under mask 0 can be a filler of any size.
A missing value never counts as zero divergence.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import BoolArray, FloatArray, IntArray, refuse, reward_range

#: Log-probs at or below this are fillers for "missing" (-1000.0, -9999.0, -1e10, -inf), not probabilities.
SENTINEL = -999.0
#: How far above 0 a log-prob may lie, by the precision in which it was computed.
POSITIVE_TOLERANCE = {"float32": 1e-6, "float16": 2.0**-7, "bfloat16": 2.0**-4}
#: Exact divergences may be this much below 0 (rounding in the trainer); they are lifted to 0.
NEGATIVE_TOLERANCE = 1e-6

_PER_TOKEN = ("rollout_logprobs", "train_logprobs", "old_logprobs", "kl", "tv", "chi2")
EXACT_RANGE = {"kl": np.inf, "tv": 1.0, "chi2": np.inf}
#: The fields of a canonical record.
RECORD_FIELDS = (
    "prompt_id",
    "prompt_tokens",
    "reward",
    "rollout_logprobs",
    "train_logprobs",
    "old_logprobs",
    "mask",
    "kl",
    "tv",
    "chi2",
    "step",
    "weight_version",
    "environment",
    "tokens",
)
#: Fields that name a part of the run.
LABELS = ("step", "weight_version", "environment")
#: Prompt ids by which pandas says nothing.
NAMELESS = frozenset({"", "nan", "NaT", "<NA>"})


class TraceError(ValueError):
    """Something in a log that cannot be used as it is; the message names file, row, field and position."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is to be read.

    ``logprob_dtype`` is the precision in which log-probs were computed: it decides how positive one may be.
    ``on_missing="drop"`` leaves responses with missing values out, and reports them.
    """

    reward_range: tuple[float, float] = (0.0, 1.0)
    logprob_dtype: str = "float32"
    on_missing: str = "error"

    def __post_init__(self) -> None:
        if not isinstance(self.logprob_dtype, str) or self.logprob_dtype not in POSITIVE_TOLERANCE:
            refuse("logprob_dtype", "one of " + ", ".join(POSITIVE_TOLERANCE), self.logprob_dtype)
        if self.on_missing not in ("error", "drop"):
            refuse("on_missing", '"error" or "drop"', repr(self.on_missing))
        low, high = reward_range(self.reward_range)
        if high - low == np.inf:
            refuse("reward_range", "of a finite width", self.reward_range)


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The policy tokens of one logged response, checked."""

    where: str
    prompt: str | None
    reward: float | None
    position: IntArray  # of each policy token in the record
    columns: Mapping[str, FloatArray]  # rollout_logprobs, train_logprobs, and what else was logged
    masked: bool
    labels: Mapping[str, str] = field(default_factory=dict)  # step, weight_version, environment
    tokens: npt.NDArray[Any] | None = None  # ids or texts
    missing: str = ""  # why the response cannot be used, if it cannot
    padding: bool = False  # nothing but zeros, all masked: a row that fills a batch, and no response
    lifted: int = 0  # exact divergences slightly below 0, counted as 0

    @property
    def usable(self) -> bool:
        """Whether it has policy tokens, and nothing missing."""
        return not self.missing and self.position.size > 0

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str, reading: Reading) -> Self:
        """Check one canonical record.

        Raises
        ------
        TraceError
            Naming ``where``, the field and the position.
        """
        if not isinstance(record, Mapping):
            raise TypeError(
                f"{where}: a record must be a mapping of field names to values, got {record!r:.60} (of a DataFrame: "
                "TraceSet.from_frame)"
            )
        columns = {name: _floats(record[name], name, where) for name in _PER_TOKEN if record.get(name) is not None}
        for name in ("rollout_logprobs", "train_logprobs"):
            if name not in columns:
                raise TraceError(f"{where}: {_lacks(name, record)}")
        _refuse_other_masks(record, where)
        _refuse_other_rewards(record, where)
        size = columns["rollout_logprobs"].size
        for name, values in columns.items():
            if values.size != size:
                raise TraceError(f"{where}: {name} has {values.size} entries, rollout_logprobs has {size}")
        tokens = None if record.get("tokens") is None else np.asarray(record["tokens"])
        if tokens is not None and tokens.shape != (size,):
            raise TraceError(f"{where}: tokens has {len(tokens)} entries, rollout_logprobs has {size}")
        mask = _mask(record.get("mask"), size, where)
        position, rollout = np.flatnonzero(mask), columns["rollout_logprobs"]
        columns = {name: values[position] for name, values in columns.items()}
        missing = _check_logprobs(columns, position, where, reading)
        missing = missing or _missing_exact(columns, position, where, reading)
        lifted = 0 if missing else _check_exact(columns, position, where)
        return cls(
            where=where,
            prompt=_prompt_key(record),
            reward=_reward(record.get("reward"), where, reading),
            position=position,
            columns=columns,
            masked=record.get("mask") is not None,
            labels={name: plain_text(record[name]) for name in LABELS if record.get(name) is not None},
            tokens=None if tokens is None else tokens[position],
            missing=missing,
            padding=not position.size and rollout.size > 0 and not rollout.any(),
            lifted=lifted,
        )


def _lacks(name: str, record: Mapping[str, Any]) -> str:
    present = [k for k, v in record.items() if v is not None]
    close = difflib.get_close_matches(name, [k for k in present if k not in RECORD_FIELDS], n=1, cutoff=0.5)
    hint = f"; is it {close[0]!r}? Rename it" if close else ""
    return f"{name} is missing{hint} (the record has: {', '.join(present) or 'nothing'})"


def _refuse_other_masks(record: Mapping[str, Any], where: str) -> None:
    """A mask under another name would be ignored, and padding or tool tokens counted."""
    other = [name for name in record if name.endswith("mask") and name != "mask"]
    if other and record.get("mask") is None:
        raise TraceError(f"{where}: {other[0]} is not read; rename it to mask (1 on policy tokens)")


def _refuse_other_rewards(record: Mapping[str, Any], where: str) -> None:
    if "rewards" in record and record.get("reward") is None:
        raise TraceError(f"{where}: rewards is not read; rename it to reward (one number a response)")


def _floats(values: object, name: str, where: str) -> FloatArray:
    """A flat float64 array; null becomes NaN (judged later, under the mask)."""
    try:
        given = np.asarray(values)
        numeric = given.dtype.kind in "biuf" or (
            given.dtype == object and not any(isinstance(v, str | bytes) for v in given.flat)
        )
        result = given.astype(np.float64, copy=False) if numeric or given.size == 0 else None
    except Exception as error:  # whatever a list, a tensor or another library's array raises
        raise TraceError(f"{where}: {name} must be a list of numbers ({error})") from None
    if result is None:
        raise TraceError(f"{where}: {name} must be a list of numbers, got {str(values)[:60]}")
    if isinstance(values, np.ma.MaskedArray):
        raise TraceError(f"{where}: {name} is a masked array; pass plain numbers, and the mask as mask")
    if result.ndim != 1:
        raise TraceError(f"{where}: {name} must be a flat list of numbers, got shape {result.shape}")
    return result


def _mask(values: object, size: int, where: str) -> BoolArray:
    if values is None:
        return np.ones(size, dtype=np.bool_)
    mask = _floats(values, "mask", where)
    if mask.size != size:
        raise TraceError(f"{where}: mask has {mask.size} entries, rollout_logprobs has {size}")
    wrong = (mask != 0.0) & (mask != 1.0)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise TraceError(f"{where}: mask[{k}] must be 0 or 1, got {mask[k]}")
    return np.asarray(mask == 1.0)


def _check_logprobs(columns: Mapping[str, FloatArray], position: IntArray, where: str, reading: Reading) -> str:
    """Refuse impossible log-probs; return what is missing where the reading says to drop it."""
    tolerance = POSITIVE_TOLERANCE[reading.logprob_dtype]
    for name in ("rollout_logprobs", "train_logprobs", "old_logprobs"):
        values = columns.get(name, np.zeros(0))
        if not values.size or (values.min() > SENTINEL and values.max() <= tolerance):  # false for NaN
            continue
        missing = ~np.isfinite(values) | (values <= SENTINEL)
        if missing.any():
            return _missing(name, values, missing, position, where, reading)
        k = int(np.argmax(values > tolerance))
        raise TraceError(
            f"{where}: {name}[{position[k]}] must be a log-probability (at most 0), got {values[k]:g}; "
            f"{reading.logprob_dtype} explains up to {tolerance:g} (logprob_dtype, --logprob-dtype)"
        )
    return ""


def _missing_exact(columns: Mapping[str, FloatArray], position: IntArray, where: str, reading: Reading) -> str:
    for name in EXACT_RANGE:
        values = columns.get(name, np.zeros(0))
        missing = np.isnan(values) | (values <= SENTINEL)
        if missing.any():
            return _missing(name, values, missing, position, where, reading)
    return ""


def _missing(
    name: str, values: FloatArray, missing: BoolArray, position: IntArray, where: str, reading: Reading
) -> str:
    """Say what is missing, for the report of dropped responses; or refuse it."""
    k = int(np.argmax(missing))
    value = "null or NaN" if np.isnan(values[k]) else f"{values[k]:g}"
    what = f"{where}: {name}[{position[k]}] is {value}, which stands for a missing value"
    if reading.on_missing == "drop":
        return what
    raise TraceError(
        f"{what}; mask it if it is no policy token, or drop such responses "
        '(on_missing="drop", --drop-missing): what is said then assumes that they are like the others'
    )


def _check_exact(columns: dict[str, FloatArray], position: IntArray, where: str) -> int:
    """Refuse impossible exact divergences; lift rounding below 0 to 0 (upward), and count how often."""
    lifted = 0
    for name, top in EXACT_RANGE.items():
        if name in columns:
            values = columns[name]
            inside = (values >= -NEGATIVE_TOLERANCE) & (values <= top * (1.0 + NEGATIVE_TOLERANCE))
            if not inside.all():
                k = int(np.argmin(inside))
                domain = "a number >= 0" if np.isinf(top) else f"a number in [0, {top:g}]"
                raise TraceError(f"{where}: {name}[{position[k]}] must be {domain}, got {values[k]:g}")
            lifted += int((values < 0.0).sum())
            columns[name] = np.clip(values, 0.0, top)
    return lifted


def _reward(value: object, where: str, reading: Reading) -> float | None:
    if value is None:
        return None
    low, high = reading.reward_range
    try:
        reward = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TraceError(f"{where}: reward must be a number, got {value!r}") from None
    if not low <= reward <= high:
        raise TraceError(
            f"{where}: reward must be a number in [{low:g}, {high:g}], got {reward:g}; rewards of another "
            "range need reward_range=(lowest, highest), --reward-range (not a normalised advantage)"
        )
    return reward


def _prompt_key(record: Mapping[str, Any]) -> str | None:
    """What groups responses: the id as text (3 and 3.0 are one), else the prompt's tokens, else nothing."""
    value = record.get("prompt_id")
    if value is not None and str(value) not in NAMELESS:
        return _tokens_key(value) if np.ndim(value) else plain_text(value)
    tokens = record.get("prompt_tokens")
    return None if tokens is None else _tokens_key(tokens)


def plain_text(value: object) -> str:
    """A name as text; 3 and 3.0 are one."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def _tokens_key(tokens: object) -> str:
    return "tokens " + hashlib.blake2b(str(np.asarray(tokens).tolist()).encode(), digest_size=8).hexdigest()
