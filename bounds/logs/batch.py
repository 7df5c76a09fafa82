"""Rows of a log side by side, as every reader yields them: numbers are numbers, and nothing else is checked yet."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._checks import BoolArray, FloatArray, IntArray, number, refuse
from bounds._text import one_line

#: Tokens of a batch that is put together row by row, or a little more.
BATCH_TOKENS = 2**18

#: Fields with a number for each token of a record.
NUMBERS = ("rollout_logprobs", "train_logprobs", "old_logprobs", "mask", "kl", "tv", "chi2", "max_log_ratio")
#: Fields that name a part of the run.
LABELS = ("step", "rank", "weight_version", "environment", "train_policy")
#: The fields of a canonical record.
RECORD_FIELDS = ("prompt_id", "prompt_tokens", "reward", *NUMBERS, *LABELS, "tokens")
#: Fields that a record has once; ``row_id`` joins two halves of a log, ``file`` is the number of the file it is from.
ROW_FIELDS = ("prompt_id", "prompt_tokens", "reward", *LABELS, "row_id", "file")

#: Where ``weight_version`` goes if a row has one for each token; the row's own says from which to which.
VERSIONS = "weight_versions"
#: Texts of tokens, as servers give them beside ids, or in place of them.
TEXTS = "token_texts"

#: Prompt ids by which pandas says nothing.
_NAMELESS = frozenset({"", "nan", "NaT", "<NA>"})

#: Where a record stands ("file:line: row 3"), and the record, in the canonical names.
Row = tuple[str, Mapping[str, Any]]


class TraceError(ValueError):
    """Something in a log that cannot be used as it is; the message names file, row, field and position."""


class IncompleteError(TraceError):
    """The last line of a file ends within a record: it is still being written, or was cut."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file may be: its longest record in MiB, and how many times as large as on disk it may become.

    The numbers of a record take up to sixteen times its size in memory.
    """

    max_line: float = 64.0
    max_ratio: float = 200.0

    def __post_init__(self) -> None:
        for name, most in (("max_line", 2.0**20), ("max_ratio", np.inf)):
            if not number(name, getattr(self, name), 0.0, most) > 0.0:
                refuse(name, "above 0", getattr(self, name))


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a reader.

    ``scored`` asks for the half in which the trained weights score the tokens; ``prompts=False`` says that
    responses are grouped otherwise, so that nothing need be decoded to tell prompts apart.
    """

    scored: bool = False
    prompts: bool = True
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Lists of different lengths, one after the other: that of row i is ``values[starts[i]:starts[i + 1]]``."""

    values: npt.NDArray[Any]
    starts: IntArray
    given: BoolArray  # [rows]; where a row has no list, its length is 0

    @classmethod
    def of(cls, lists: Sequence[npt.NDArray[Any] | None]) -> Ragged:
        """Put lists together; None where a row has none."""
        given = np.array([values is not None for values in lists])
        sizes = [0 if values is None else values.size for values in lists]
        full = [values for values in lists if values is not None and values.size]  # an empty list has no dtype
        return cls(np.concatenate(full or [np.zeros(0)]), np.concatenate([[0], np.cumsum(sizes)]), given)

    @property
    def lengths(self) -> IntArray:
        """Entries of each list [rows]."""
        return np.diff(self.starts)

    def __getitem__(self, row: int) -> npt.NDArray[Any] | None:
        return self.values[self.starts[row] : self.starts[row + 1]] if self.given[row] else None

    def head(self, rows: int) -> Ragged:
        """Return the first lists."""
        return Ragged(self.values[: self.starts[rows]], self.starts[: rows + 1], self.given[:rows])

    def without(self, rows: BoolArray, *, given: bool) -> Ragged:
        """Return the lists with nothing in some rows: an empty list if ``given``, else none."""
        lengths = np.where(rows, 0, self.lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(self.values[np.repeat(~rows, self.lengths)], starts, np.where(rows, given, self.given))

    def aligned(self, lengths: IntArray, filler: float) -> npt.NDArray[Any]:
        """Return the values with a list of fillers, of these lengths, where a row has none."""
        if self.given.all():
            return self.values
        values = np.full(lengths.sum(), filler, dtype=self.values.dtype)
        values[np.repeat(self.given, lengths)] = self.values
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Records of a log in the canonical names.

    ``tokens`` holds the fields with an entry for each token, ``rows`` those that a record has once (None where
    it lacks one), and ``others`` the names of fields that are not read, with the first row that has each.
    """

    places: Sequence[str]
    tokens: Mapping[str, Ragged]
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.places)

    def row_field(self, name: str) -> Sequence[Any]:
        """Return a field that a record has once [rows]; None where it lacks it."""
        return self.rows[name] if name in self.rows else [None] * len(self)

    def head(self, rows: int) -> Batch:
        """Return the first rows."""
        return replace(
            self,
            places=self.places[:rows],
            tokens={name: lists.head(rows) for name, lists in self.tokens.items()},
            rows={name: values[:rows] for name, values in self.rows.items()},
            others={name: first for name, first in self.others.items() if first < rows},
        )

    def without(self, rows: BoolArray, empty: Collection[str]) -> Batch:
        """Return the batch with nothing in some rows [rows] but these columns, which are empty."""
        return replace(
            self,
            tokens={name: lists.without(rows, given=name in empty) for name, lists in self.tokens.items()},
            rows={
                name: [None if out else value for value, out in zip(values, rows, strict=True)]
                for name, values in self.rows.items()
            },
        )

    def records(self) -> Iterator[Row]:
        """Yield the rows one by one; the first row that has a field that is not read has ``...`` there."""
        fields: dict[str, Any] = {**self.tokens, **self.rows}
        for i, place in enumerate(self.places):
            unread = {name: ... for name, first in self.others.items() if first == i}
            yield place, {name: values[i] for name, values in fields.items()} | unread


def prompt_name(name: object, tokens: object) -> str | None:
    """Return what a row says of its prompt: its id as text (3 and 3.0 are one), else its tokens, else None."""
    if isinstance(name, str) and name not in _NAMELESS:
        return name
    if name is not None and str(name) not in _NAMELESS:
        return _of_tokens(name) if np.ndim(name) else plain_text(name)  # type: ignore[arg-type]
    return None if tokens is None else _of_tokens(tokens)


def _of_tokens(tokens: object) -> str:
    return "tokens " + hashlib.blake2b(str(np.asarray(tokens).tolist()).encode(), digest_size=8).hexdigest()


def natural(text: str) -> list[tuple[str, int]]:
    """Sort step_2 before step_10."""
    parts = re.findall(r"(\D*)(\d*)", text, re.ASCII)
    return [(word, int(number[:18] or -1)) for word, number in parts]


def plain_text(value: object) -> str:
    """Return a name as text; 3 and 3.0 are one."""
    if type(value) is str:
        return value
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def in_batches(records: Iterable[Row]) -> Iterator[Batch]:
    """Put records side by side, each field converted once.

    Where a record cannot be converted, or there is an error in ``records``, the batch before it comes first: so
    what is wrong with an earlier row is said first.
    """
    rows: list[Row] = []
    tokens = 0  # and rows, so that rows without tokens fill a batch too
    try:
        for place, record in records:
            rows.append((place, _converted(place, record)))
            tokens += 1 + max((rows[-1][1][name].size for name in NUMBERS if name in rows[-1][1]), default=0)
            if tokens >= BATCH_TOKENS:
                yield _side_by_side(rows)
                rows, tokens = [], 0
    except Exception:
        if rows:
            yield _side_by_side(rows)
        raise
    if rows:
        yield _side_by_side(rows)


def by_rows(rows: Callable[[Path, Wanted], Iterator[Row]]) -> Callable[[Path, Wanted], Iterator[Batch]]:
    """Make a reader of a function that yields the rows of a file one by one."""

    @functools.wraps(rows)
    def read(path: Path, wanted: Wanted) -> Iterator[Batch]:
        return in_batches(rows(path, wanted))

    return read


def _converted(place: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields that are read; the others have ``...``."""
    if not isinstance(record, Mapping):
        raise TypeError(
            f"{place}: a record must be a mapping of field names to values, got {record!r:.60} (of a DataFrame: "
            "TraceSet.from_frame)"
        )
    unread = {name: ... for name in record if name not in _CONVERTED}
    versions = record.get("weight_version")
    if isinstance(versions, list | tuple | np.ndarray) and np.ndim(versions):  # each token was drawn by one
        versions = _ids(versions, "weight_version", place)
        record = {**record, VERSIONS: versions, "weight_version": _range(versions)}
    given = ((name, record.get(name)) for name in _CONVERTED)
    return unread | {name: _CONVERTED[name](value, name, place) for name, value in given if value is not None}


def _range(versions: npt.NDArray[Any]) -> str:
    """Name several versions as one: the first and the last of them, in their order."""
    ends = sorted(set(versions.tolist()), key=lambda v: natural(str(v)))
    return "-".join(str(v) for v in dict.fromkeys((*ends[:1], *ends[-1:])))


def _side_by_side(rows: Sequence[Row]) -> Batch:
    first: dict[str, int] = {}  # field -> the first row that has it
    for i, (_, record) in enumerate(rows):
        for name in record:
            first.setdefault(name, i)
    columns = {name: [record.get(name) for _, record in rows] for name in _CONVERTED if name in first}
    return Batch(
        [place for place, _ in rows],
        {name: Ragged.of(lists) for name, lists in columns.items() if name not in ROW_FIELDS},
        {name: values for name, values in columns.items() if name in ROW_FIELDS},
        {name: i for name, i in first.items() if name not in _CONVERTED},
    )


def numbers(values: object, name: str, where: str) -> FloatArray:
    """Return a list of numbers as a flat float64 array; null becomes NaN, which is judged later, under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TraceError(f"{where}: {name} is a masked array; pass plain numbers, and the mask as mask")
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.ndim == 1:
        return values
    if isinstance(values, list) and (packed := _packed(values)) is not None:
        negative = packed.size > 0 and packed.max() < 0.0  # most log-probs are, and no truth value
        if negative or not (((packed == 0.0) | (packed == 1.0)).any() and _has_bools(values, name)):
            return packed
    try:
        given = np.asarray(values)
        numeric = given.dtype.kind in "biuf" or (
            given.dtype == object and not any(isinstance(v, str | bytes) for v in given.flat)
        )
        result = given.astype(np.float64, copy=False) if numeric or not given.size else None
    except Exception as error:  # whatever a list, a tensor or another library's array raises
        raise TraceError(f"{where}: {name} must be a list of numbers ({one_line(error)})") from None
    if result is None:
        raise TraceError(f"{where}: {name} must be a list of numbers, got {str(values)[:60]}")
    if result.ndim != 1:
        raise TraceError(f"{where}: {name} must be a flat list of numbers, got shape {result.shape}")
    mixed = given is not values or given.dtype == object  # only these can hold truth values among numbers
    if name not in _MAY_BE_BOOL and (given.dtype.kind == "b" or (mixed and _has_bools(given.tolist(), name))):
        raise TraceError(f"{where}: {name} must be a list of numbers, got {str(values)[:60]}")
    return result


def _has_bools(values: list[Any], name: str) -> bool:
    """Say whether there are truth values among what must be numbers."""
    return name not in _MAY_BE_BOOL and bool in set(map(type, values))


def _packed(values: list[Any]) -> FloatArray | None:
    """Convert a list of nothing but numbers and null, several times as fast as NumPy does."""
    for known in (values, (math.nan if value is None else value for value in values)):
        try:
            packed = np.empty(len(values))
            struct.pack_into(f"{packed.size}d", packed.data, 0, *known)
            return packed
        except Exception:  # null, or whatever an object of another library raises
            continue
    return None


def _ids(values: object, name: str, where: str) -> npt.NDArray[Any]:
    """Return token ids or texts."""
    try:
        ids = _whole(values)
    except ValueError as error:  # lists of different lengths
        raise TraceError(f"{where}: {name} must be a flat list ({one_line(error)})") from None
    if ids.dtype.kind == "f" and np.array_equal(ids, np.trunc(ids)):
        ids = ids.astype(np.int64)
    known = ids.dtype.kind in "iuSU" or (ids.dtype.kind == "O" and set(map(type, ids.flat)) <= {int, str})
    if ids.ndim != 1 or not (known or not ids.size):
        raise TraceError(f"{where}: {name} must be a flat list of ids or texts, got {str(values)[:60]}")
    return ids


def _whole(values: Any) -> npt.NDArray[Any]:
    """Return an array; of a list of whole numbers, several times as fast as NumPy does."""
    if isinstance(values, list) and values and type(values[0]) is int:
        try:
            packed = np.empty(len(values), dtype=np.int64)
            struct.pack_into(f"{packed.size}q", packed.data, 0, *values)
            return packed
        except Exception:  # something else among them, or whatever an object of another library raises
            pass
    return np.asarray(values)


def _number(value: Any, name: str, where: str) -> float:
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except Exception:  # whatever an object of another library raises
        pass
    raise TraceError(f"{where}: {name} must be a number, got {value!r:.60}")


def _name(value: Any, name: str, where: str) -> Any:
    """Return what names a prompt, a row or a part of the run: a text or a number; a prompt also by its tokens."""
    listed = bool(np.ndim(value)) and name != "prompt_id"
    if isinstance(value, bool | np.bool_ | Mapping) or listed:
        raise TraceError(f"{where}: {name} must be a text or a number, got {value!r:.60}")
    return value


#: Masks, and fields of trainers that may be written as truth values.
_MAY_BE_BOOL = frozenset({"mask", "token_loss_mask", "loss_mask", "loss_masks"})


#: Every field that is read, and how it is converted.
_CONVERTED = {
    **dict.fromkeys(NUMBERS, numbers),
    "tokens": _ids,
    VERSIONS: _ids,
    TEXTS: _ids,
    **dict.fromkeys(ROW_FIELDS, _name),
    "prompt_tokens": _ids,
    "reward": _number,
}
