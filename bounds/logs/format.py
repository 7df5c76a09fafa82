"""What a reader is: one frozen entry of the registry, and what it is recognised and asked by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bounds.logs.block import Block

#: Where each record stands ("file:line: row 3"), and the record, in the canonical names.
Records = Iterator[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, by which a format recognises it; never its name."""

    container: str  # "json", "parquet", "torch", "pickle", or "" where it is none of them
    keys: frozenset[str] = frozenset()  # of the first record (of a torch file: all names in it)
    magic: bytes = b""  # the first bytes, decompressed
    compression: str = ""  # "gzip" or "zstd"

    @property
    def has_logprobs(self) -> bool:
        """Whether any field is named like log-probs, by anybody."""
        return any(word in key for key in self.keys for word in ("logprob", "log_prob", "logps"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a reader.

    ``scored`` asks for the half in which the trained weights score the tokens; ``prompts=False`` says that
    responses are grouped otherwise, so that nothing need be decoded to tell prompts apart.
    """

    scored: bool = False
    prompts: bool = True


def _finished(path: Path) -> str:
    return ""


def _unsaid(path: Path) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Format:
    """One layout of logs.

    ``recognises`` looks at the head of a file. ``records`` yields where each record stands, and the record
    with canonical names (:data:`bounds.logs.response.RECORD_FIELDS`, and ``row_id``, by which halves are
    joined); it is None for what is recognised only to say, in ``advice``, what would help. ``horizon`` is
    the generation cap where the file carries it, ``unfinished`` why a file must not be read yet. ``blocks``,
    where a format has it, gives the same records as ``records``, many at once.
    """

    name: str
    title: str
    trainer: str
    file: str
    keys: str
    recognises: Callable[[Head], bool]
    records: Callable[[Path, Wanted], Records] | None
    horizon: Callable[[Path], int | None] = _unsaid
    unfinished: Callable[[Path], str] = _finished
    advice: str = ""
    blocks: Callable[[Path], Iterator[Block | Records]] | None = None
