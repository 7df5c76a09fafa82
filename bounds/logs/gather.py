"""What becomes of checked responses when they are put together: what is joined, counted and left out."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._text import many
from bounds.logs.response import LABELS, Response, TraceError, plain_text
from bounds.logs.tally import Tally


def remarks(tally: Tally) -> list[str]:
    """What was left out of a log or not said in it, in plain words."""
    seen = tally["responses"] + tally["empty"] + tally["dropped"]
    texts = sorted(tally.names.get("notes", ()))
    if n := tally["empty"]:
        texts.append(f"{n} of {seen} responses have no policy token and are left out (first: {tally.places['empty']})")
    if n := tally["dropped"]:
        texts.append(
            f"{n} of {seen} responses have missing values and were dropped, as asked: what is said holds for the "
            f"others only (first: {tally.places['dropped']})"
        )
    if n := tally["lifted"]:
        texts.append(f"{many(n, 'exact divergence')} slightly below 0 (rounding in the trainer), counted as 0")
    if n := tally["ungrouped"]:
        texts.append(
            f"{many(n, 'response')} without prompt_id: each counts as a prompt of its own "
            "(group_size, --group-size N: every N rows answer one prompt)"
        )
    if len(versions := sorted(tally.names.get("weight_version", ()))) > 1:
        some = ", ".join(versions[:5])
        texts.append(f"{len(versions)} weight versions are mixed ({some}): the rollout policy is not one policy")
    return texts


def left_out(seen: Sequence[Response]) -> Tally:
    """Count the responses that cannot be used, and why."""
    tally = Tally()
    for r in seen:
        if r.missing:
            tally.count("dropped", 1, r.missing)
        elif not r.position.size:
            tally.count("empty", 1, r.where)
            tally.count("padding", int(r.padding))
        tally.count("lifted", r.lifted)
    return tally


def tally_used(tally: Tally, used: Sequence[Response]) -> None:
    """Count the responses that are used, and what they do not say."""
    tally.count("responses", len(used))
    tally.count("masked", sum(r.masked for r in used))
    tally.count("ungrouped", sum(r.prompt is None for r in used))
    tally.name("weight_version", (r.labels["weight_version"] for r in used if "weight_version" in r.labels))


def texts_of(values: Sequence[Any]) -> tuple[str, ...]:
    """Names as text; few of them are different."""
    known = {value: plain_text(value) for value in set(values)}
    return tuple(known[value] for value in values)


def own_prompt(r: Response) -> str:
    """A name for the prompt of a response that says none; another row of the same place has other log-probs."""
    place = r.where.replace("\\", "/").rsplit("/", 1)[-1]  # however the folder is written
    return f"{place} {zlib.crc32(r.columns['rollout_logprobs'].tobytes()):08x}"


def labels_of(used: Sequence[Response]) -> list[str]:
    """The labels that any of them has."""
    return [name for name in LABELS if any(name in r.labels for r in used)]


def join_columns(used: Sequence[Response]) -> dict[str, FloatArray]:
    """Each per-token field, all tokens one after another.

    Raises
    ------
    TraceError
        If some responses have a mask or a field that others lack.
    """
    names = used[0].columns.keys()
    for r in used:
        if r.masked != used[0].masked:
            raise TraceError(
                f"{r.where}: mask is given for some responses and not for others (compare {used[0].where})"
            )
        if r.columns.keys() != names:
            odd = sorted(r.columns.keys() ^ names)
            raise TraceError(
                f"{r.where}: {', '.join(odd)} is logged for some responses and not for others (compare {used[0].where})"
            )
    return {name: np.concatenate([r.columns[name] for r in used]) for name in names}


def rewards_of(used: Sequence[Response]) -> FloatArray | None:
    """The reward of each, or None where no response has one.

    Raises
    ------
    TraceError
        If only some have one.
    """
    without = [r.where for r in used if r.reward is None]
    if without and len(without) < len(used):
        raise TraceError(f"{without[0]}: reward is missing, and other responses have one")
    return None if without else np.array([r.reward for r in used], dtype=np.float64)
