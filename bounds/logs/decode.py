"""Bytes in: decompressed as they are read, one record at a time, with limits on what a small file may become."""

from __future__ import annotations

import codecs
import csv
import functools
import io
import json
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from bounds._text import one_line
from bounds.logs.batch import DEFAULT_LIMITS, IncompleteError, Limits, TraceError

#: Longest file in bytes that is one JSON array, or one value spread over many lines: it is held in memory.
MAX_DOCUMENT = 2**29
#: Empty lines in a row.
MAX_EMPTY = 10**6
#: What a compressed file may become whatever it was packed from.
_UNPACKED_FREELY = 2**24

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_COLON = re.compile(rb"\s*:")
_PICKLE_NAMES = 2**24  # bytes of a torch file's pickle that are searched for names; it is never executed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, by which a format recognises it; never its name."""

    container: str  # "json", "parquet", "torch", "pickle", "csv", or "" where it is none of them
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


def look(path: Path, limits: Limits = DEFAULT_LIMITS) -> Head:
    """See what stands at the beginning of a file."""
    compression = _compression(path)
    try:
        with opened(path) as file:
            magic = file.read(64)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {one_line(error)}") from None
    if magic.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"[")):
        return Head("json", _json_keys(path, limits), magic, compression)
    if not magic.startswith(b"PAR1") and (columns := _csv_names(path, magic)):
        return Head("csv", columns, magic, compression)
    if compression:  # Parquet and torch files are compressed inside, and need random access
        return Head("", frozenset(), magic, compression)
    if magic.startswith(b"PAR1"):
        return Head("parquet", _parquet_keys(path), magic)
    if magic.startswith(b"PK\x03\x04") and (names := _torch_names(path)) is not None:
        return Head("torch", names, magic)
    return Head("pickle" if re.match(rb"\x80[\x02-\x05]", magic) else "", frozenset(), magic)


def documents(path: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[str, bytes]]:
    """Yield where each JSON value of a file stands (lines count from 1, rows from 0), and its text.

    One value a line; or one value, or one array of values, spread over many lines.
    """
    lines = _lines(path, limits)
    row = empty = 0
    for number, text in lines:
        start = text.strip()
        if number == 1 and (start == b"{" or start.startswith(b"[")):
            values = _whole(path, chain([text], (t for _, t in lines)), limits)
            yield from ((f"{path}: row {k}", value) for k, value in enumerate(values))
        elif start:
            yield f"{path}:{number}: row {row}", text
            row, empty = row + 1, 0
        else:
            empty += 1
            if empty > MAX_EMPTY:
                raise TraceError(f"{path}:{number}: {MAX_EMPTY:,} empty lines in a row: this is no log")


def typed(path: Path, decoder: msgspec.json.Decoder[T], limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[str, T]]:
    """Yield where each JSON value of a file stands, and the value, decoded to the fields that are needed."""
    for where, text in documents(path, limits):
        yield where, decode(decoder, text, where)


def decode(decoder: msgspec.json.Decoder[T], text: bytes, where: str) -> T:
    """Decode one JSON value; NaN and Infinity, which Python's json writes, are read although they are not JSON.

    A field of the decoder's type that stands there twice is refused: which of the two is meant, nobody knows.
    """
    try:
        known, parts = _names(cast(Any, decoder.type)), text.split(b'"')
        names = [name for name, after in pairwise(parts) if name in known and _COLON.match(after)]
        if len(set(names)) < len(names):  # perhaps in objects inside
            _refuse_twice(text)
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return cast(T, msgspec.convert(json.loads(text), decoder.type))
    except json.JSONDecodeError as error:
        cut = text.lstrip().startswith(b"{") and not text.endswith((b"\n", b"}"))
        raise (IncompleteError if cut else TraceError)(f"{where}: {one_line(error)}") from None
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise TraceError(f"{where}: {one_line(error)}") from None


@functools.cache
def _names(kind: Any) -> frozenset[bytes]:
    """Return the names of a type's fields."""
    return frozenset(f.encode_name.encode() for f in msgspec.structs.fields(kind))


def _refuse_twice(text: bytes) -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for k, name in enumerate(names) if name in names[:k])
            raise ValueError(f"{twice} stands twice in one object")
        return seen

    json.loads(text, object_pairs_hook=once)


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


def _lines(path: Path, limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, counted from 1, without a byte order mark; an array on one line may be long."""
    number = size = 0
    longest = int(limits.max_line * 2**20)
    most = most_unpacked(path, limits)
    packed = bool(_compression(path))
    try:
        with opened(path) as file:
            array = cast(Any, file).peek(64).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
            while text := file.readline((MAX_DOCUMENT if array else longest) + 1):
                number, size = number + 1, size + len(text)
                if packed and size > most:
                    raise too_packed(f"{path}:{number}", limits)
                if len(text) > longest and not array:
                    raise _too_long(f"{path}:{number}", limits)
                yield number, text.removeprefix(codecs.BOM_UTF8)
    except TraceError:
        raise
    except (OSError, ValueError) as error:  # a damaged stream; pyarrow's own errors are of these kinds
        raise TraceError(f"{path}: damaged after line {number}: {one_line(error)}") from None


def most_unpacked(path: Path, limits: Limits) -> int:
    """Return how many bytes a packed file may become."""
    return max(int(path.stat().st_size * limits.max_ratio), _UNPACKED_FREELY)


def too_packed(place: Path | str, limits: Limits) -> TraceError:
    """Make the error for a file that would become more."""
    return TraceError(
        f"{place}: unpacked it is more than {limits.max_ratio:g} times as large as on disk; if it is a log all the "
        "same, allow more (max_ratio, --max-ratio)"
    )


def _too_long(place: str, limits: Limits) -> TraceError:
    return TraceError(
        f"{place}: a record of more than {limits.max_line:g} MiB: write one response a line, or allow more (max_line, "
        "--max-line)"
    )


def _whole(path: Path, texts: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    """Yield the values of a file that is one JSON value, or an array of them."""
    body = bytearray()
    for text in texts:
        body += text
        if len(body) > MAX_DOCUMENT:
            raise TraceError(f"{path}: one JSON value of more than {MAX_DOCUMENT >> 20} MiB: write one response a line")
    if not body.lstrip().startswith(b"["):
        yield bytes(body)
        return
    try:
        try:
            values = [bytes(v) for v in msgspec.json.decode(body, type=list[msgspec.Raw])]
        except msgspec.DecodeError:
            values = [json.dumps(v).encode() for v in json.loads(body)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: {one_line(error)}") from None
    if not values:
        raise TraceError(f"{path}: this is an empty JSON array")
    for row, value in enumerate(values):
        if len(value) > limits.max_line * 2**20:
            raise _too_long(f"{path}: row {row}", limits)
        yield value


def _json_keys(path: Path, limits: Limits) -> frozenset[str]:
    """Return the field names of the first record; none where it is no object."""
    try:
        _, text = next(documents(path, limits))
    except (StopIteration, TraceError):
        return frozenset()  # what is wrong is said where the file is read
    return frozenset(field_names(text))


def _csv_names(path: Path, magic: bytes) -> frozenset[str]:
    """Return the names of a table's columns, if its first line can be that."""
    if b"," not in magic or not re.fullmatch(rb"(?:\xef\xbb\xbf)?[\"A-Za-z_][^\x00-\x08\x0e-\x1f]*", magic):
        return frozenset()
    with opened(path) as file:
        line = file.readline(2**16)
    try:
        return frozenset(next(csv.reader([line.decode("utf-8-sig")]), ()))
    except (UnicodeDecodeError, csv.Error):
        return frozenset()


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
