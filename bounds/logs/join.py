"""Two halves of one log: what the rollout policy sampled, and the same tokens scored by the trained weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from bounds._text import many
from bounds.logs.format import Records
from bounds.logs.response import TraceError

_PER_TOKEN = ("train_logprobs", "old_logprobs", "mask", "kl", "tv", "chi2")
_Row = tuple[str, Mapping[str, Any]]


def join(sampled: Records, scored: Records, notes: list[str]) -> Records:
    """Rows with both policies: by ``row_id`` where both halves have it, else by order.

    Rows wait for their partner, so memory is that of the disorder between the halves, not of the log. A
    scored text that is longer than the response begins with the prompt: it is joined at its end, where the
    token ids of both must be equal. They are checked wherever both halves have them.

    Raises
    ------
    TraceError
        If a row has no partner, or the two do not belong together.
    """
    unchecked = 0
    for ours, theirs in _pairs(sampled, scored):
        record, compared = _joined(ours, theirs)
        unchecked += not compared and None in (ours[1].get("row_id"), theirs[1].get("row_id"))
        yield f"{ours[0]} (scored: {theirs[0]})", record
    if unchecked:
        notes.append(
            f"{many(unchecked, 'row')} of the two halves joined by their order alone: no ids of rows or tokens"
        )


def _pairs(sampled: Records, scored: Records) -> Iterator[tuple[_Row, _Row]]:
    """The rows that belong together."""
    waiting: tuple[dict[Any, _Row], dict[Any, _Row]] = ({}, {})
    by_id: bool | None = None
    for k, pair in enumerate(zip_longest(sampled, scored)):
        if by_id is None:
            by_id = all(row is not None and row[1].get("row_id") is not None for row in pair)
        for side, row in enumerate(pair):
            if row is None:
                continue
            key = str(row[1].get("row_id")) if by_id else k
            if by_id and row[1].get("row_id") is None:
                raise TraceError(f"{row[0]}: row_id is missing, and other rows have one")
            if key in waiting[side]:
                raise TraceError(f"{row[0]}: row_id {key} stands in this half twice")
            waiting[side][key] = row
            if key in waiting[1 - side]:
                yield waiting[0].pop(key), waiting[1].pop(key)
    for side, name in enumerate(("sampled", "scored")):
        if waiting[side]:
            first = next(iter(waiting[side].values()))[0]
            raise TraceError(f"{first}: {many(len(waiting[side]), f'{name} row')} without a partner in the other half")


def _joined(sampled: _Row, scored: _Row) -> tuple[dict[str, Any], bool]:
    """One record of both, and whether token ids said that they belong together."""
    (where, ours), (other, theirs) = sampled, scored
    both = f"{where} (scored: {other})"
    if ours.get("rollout_logprobs") is None:
        raise TraceError(f"{where}: rollout_logprobs is missing: this is not the sampled half")
    if theirs.get("train_logprobs") is None:
        raise TraceError(f"{other}: train_logprobs is missing: this is not the scored half")
    if ours.get("train_logprobs") is not None:
        raise TraceError(f"{where}: has train_logprobs already; train=, --train is for logs that lack them")
    size, length = len(ours["rollout_logprobs"]), len(theirs["train_logprobs"])
    compared = _same_tokens(ours.get("tokens"), theirs.get("tokens"), size, both)
    if length != size and not (compared and length > size):
        raise TraceError(
            f"{both}: {size} sampled and {length} scored tokens; halves of different length need token ids in "
            "both, and are joined at their ends"
        )
    record = dict(ours)
    for name, value in theirs.items():
        cut = value[length - size :] if name in _PER_TOKEN and value is not None else value
        if record.get(name) is None and name != "tokens":
            record[name] = cut
        elif name in ("prompt_id", "reward") and value is not None and record[name] != value:
            raise TraceError(f"{both}: {name} is {record[name]} and {value}: the rows do not belong together")
    return record, compared


def _same_tokens(ours: Any, theirs: Any, size: int, where: str) -> bool:
    """Whether both halves have token ids, which must then be equal on the response."""
    if ours is None or theirs is None:
        return False
    a, b = np.asarray(ours), np.asarray(theirs)[max(len(theirs) - size, 0) :]
    if a.shape != b.shape or not np.array_equal(a, b):
        differ = int(np.argmax(a != b)) if a.shape == b.shape else min(a.size, b.size)
        raise TraceError(f"{where}: the token ids differ at position {differ}: the rows do not belong together")
    return True
