"""Bytes in: decompressed as they are read, one record at a time, with a limit on how long one may be."""

from __future__ import annotations

import codecs
import io
import json
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from bounds.logs.batch import TraceError

#: Longest record in bytes: a file of one endless line must not fill the memory.
MAX_RECORD = 2**29

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PICKLE_NAMES = 2**24  # bytes of a torch file's pickle that are searched for names; it is never executed

T = TypeVar("T")


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


def opened(path: Path) -> BinaryIO:
    """Open a file to read from, decompressed on the way if it is gzip or zstd."""
    compression = _compression(path)
    if not compression:
        return path.open("rb")
    import pyarrow as pa

    return io.BufferedReader(cast(Any, pa.CompressedInputStream(pa.OSFile(str(path)), compression)))


def look(path: Path) -> Head:
    """See what stands at the beginning of a file."""
    compression = _compression(path)
    try:
        with opened(path) as file:
            magic = file.read(64)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if magic.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"[")):
        return Head("json", _json_keys(path), magic, compression)
    if compression:  # Parquet and torch files are compressed inside, and need random access
        return Head("", frozenset(), magic, compression)
    if magic.startswith(b"PAR1"):
        return Head("parquet", _parquet_keys(path), magic)
    if magic.startswith(b"PK\x03\x04") and (names := _torch_names(path)) is not None:
        return Head("torch", names, magic)
    return Head("pickle" if re.match(rb"\x80[\x02-\x05]", magic) else "", frozenset(), magic)


def documents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield where each JSON value of a file stands, and its text.

    One value a line; or one value, or one array of values, spread over many lines.
    """
    lines = _lines(path)
    for number, text in lines:
        start = text.strip()
        if number == 1 and (start == b"{" or start.startswith(b"[")):
            yield from _whole(path, chain([text], (t for _, t in lines)))
        elif start:
            yield f"{path}:{number}", text


def typed(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[str, T]]:
    """Yield where each JSON value of a file stands, and the value, decoded to the fields that are needed."""
    for row, (place, text) in enumerate(documents(path)):
        where = f"{place}: row {row}"
        yield where, decode(decoder, text, where)


def decode(decoder: msgspec.json.Decoder[T], text: bytes, where: str) -> T:
    """Decode one JSON value; NaN and Infinity, which Python's json writes, are read although they are not JSON."""
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return cast(T, msgspec.convert(json.loads(text), decoder.type))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise TraceError(f"{where}: {error}") from None


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, none of them None; while one is used, a thread reads the next.

    A thread reads one item and ends: there is nothing to be shut down, and so nothing to wait for, when the rest is not
    wanted. (A pool must be shut down; where the garbage collector does it, that may never end.)
    """
    following = _next_of(items)
    while (item := following.result()) is not None:
        following = _next_of(items)
        yield item


def _next_of(items: Iterator[T]) -> Future[T | None]:
    """Return the next item, while a thread reads it; None at the end."""
    item: Future[T | None] = Future()

    def read() -> None:
        try:
            item.set_result(next(items, None))
        except BaseException as error:
            item.set_exception(error)

    Thread(target=read).start()
    return item


def field_names(text: bytes) -> tuple[str, ...]:
    """Return the field names of a JSON object; none for anything else."""
    try:
        try:
            return tuple(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
        except msgspec.ValidationError:
            return ()
        except msgspec.DecodeError:
            return tuple(dict(json.loads(text)))
    except (ValueError, TypeError, RecursionError):
        return ()


def _compression(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(4)
    return next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), "")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, counted from 1, without a byte order mark."""
    number = 0
    try:
        with opened(path) as file:
            while text := file.readline(MAX_RECORD + 1):
                number += 1
                _refuse_longer(len(text), f"{path}:{number}")
                yield number, text.removeprefix(codecs.BOM_UTF8)
    except TraceError:
        raise
    except (OSError, ValueError) as error:  # a damaged stream; pyarrow's own errors are of these kinds
        raise TraceError(f"{path}: damaged after line {number}: {error}") from None


def _whole(path: Path, texts: Iterator[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the values of a file that is one JSON value, or an array of them."""
    body = bytearray()
    for text in texts:
        body += text
        _refuse_longer(len(body), str(path))
    if not body.lstrip().startswith(b"["):
        yield str(path), bytes(body)
        return
    try:
        try:
            values = [bytes(v) for v in msgspec.json.decode(body, type=list[msgspec.Raw])]
        except msgspec.DecodeError:
            values = [json.dumps(v).encode() for v in json.loads(body)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: {error}") from None
    if not values:
        raise TraceError(f"{path}: this is an empty JSON array")
    yield from ((str(path), v) for v in values)


def _refuse_longer(size: int, place: str) -> None:
    if size > MAX_RECORD:
        raise TraceError(f"{place}: longer than {MAX_RECORD >> 20} MiB without an end: write one response a line")


def _json_keys(path: Path) -> frozenset[str]:
    """Return the field names of the first record; none where it is no object."""
    try:
        _, text = next(documents(path))
    except (StopIteration, TraceError):
        return frozenset()  # what is wrong is said where the file is read
    return frozenset(field_names(text))


def _parquet_keys(path: Path) -> frozenset[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return frozenset(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):  # ValueError: a name that is not UTF-8
        return frozenset()


def _torch_names(path: Path) -> frozenset[str] | None:
    """Search the pickle of a torch.save file for its short texts, as bytes; None for another zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            with archive.open(name) as file:
                code = file.read(_PICKLE_NAMES)
    except Exception:  # whatever the zip module raises for a damaged archive
        return None
    found = re.findall(rb"X(.)\0\0\0([A-Za-z0-9_]+)", code, re.DOTALL)
    return frozenset(text[: size[0]].decode() for size, text in found)
