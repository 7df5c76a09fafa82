"""Every format, by name; and which one a file is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bounds._checks import unknown
from bounds.logs.canonical import CANONICAL
from bounds.logs.format import Format, Head
from bounds.logs.nemo_rl import NEMO_RL
from bounds.logs.openai import OPENAI
from bounds.logs.prime_rl import PRIME_RL
from bounds.logs.response import TraceError
from bounds.logs.sglang import SGLANG
from bounds.logs.slime import SLIME
from bounds.logs.unreadable import UNREADABLE

_READ = (CANONICAL, NEMO_RL, PRIME_RL, SLIME, OPENAI, SGLANG)

#: Format name -> format, in the order in which they are shown.
FORMATS: Mapping[str, Format] = MappingProxyType({f.name: f for f in (*_READ, *UNREADABLE)})

_KINDS = {b"\xff\xfe": "this is UTF-16 text", b"PK": "this is a zip archive, and no torch file"}


def named(name: str) -> Format | None:
    """The format of that name; None for "auto".

    Raises
    ------
    ValueError
        For a name that is not known, with the likely meant one; for a format that is recognised only, with what helps.
    """
    if name == "auto":
        return None
    if name not in FORMATS:
        raise ValueError(unknown("format", name, ("auto", *(f.name for f in FORMATS.values() if f.records))))
    if FORMATS[name].records is None:
        raise ValueError(f"format {name!r} is not read: {FORMATS[name].advice}")
    return FORMATS[name]


def recognised(head: Head, path: Path) -> Format | None:
    """The one format that recognises a file; None where none does.

    Raises
    ------
    TraceError
        If several do.
    """
    found = [f for f in FORMATS.values() if f.recognises(head)]
    if len(found) > 1:
        raise TraceError(f"{path}: recognised as {', '.join(f.name for f in found)}: say which (format=, --format)")
    return found[0] if found else None


def detect(head: Head, path: Path) -> Format:
    """As :func:`recognised`; a table of unknown fields is read as canonical, which says what it lacks.

    Raises
    ------
    TraceError
        For what is no log at all.
    """
    format = recognised(head, path)
    if format is None and head.container in ("json", "parquet"):
        return CANONICAL
    if format is None:
        raise TraceError(f"{path}: {_what_it_is(head)}; a log is JSON, Parquet or slime's .pt (`trm-bounds formats`)")
    return format


def _what_it_is(head: Head) -> str:
    if not head.magic.strip():
        return "the file is empty"
    if head.compression:
        return f"this is {head.compression}, and there is no JSON in it"
    if head.container == "torch":
        return "this is a torch file, but not slime's train_data dump"
    return next((what for magic, what in _KINDS.items() if head.magic.startswith(magic)), "no known format")
