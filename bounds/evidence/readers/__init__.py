"""Logs on disk. One module for each format; only here are the names of trainers known."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from bounds._checks import unknown
from bounds.evidence.readers import canonical
from bounds.evidence.response import Reading, Response, TraceError
from bounds.evidence.traces import TraceSet

#: Format name -> module with ``recognises(path)``, ``records(path)`` and ``horizon(path)``.
FORMATS = {"canonical": canonical}


def read_traces(
    paths: str | Path | Iterable[str | Path],
    *,
    format: str = "auto",  # the public name
    horizon: int | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    logprob_dtype: str = "float32",
    on_missing: str = "error",
) -> TraceSet:
    """Read logged responses from files, detecting the format from their content.

    Parameters
    ----------
    paths : path, folder, glob, or several
        Files of one run: JSONL or Parquet with the canonical names.
    format : str
        "auto", or the name of a format.
    horizon : int, optional
        Generation cap in policy tokens; else what the file says, else the longest response (noted).
    reward_range, logprob_dtype, on_missing
        As in :meth:`TraceSet.from_records`.

    Raises
    ------
    TraceError
        Naming file, row, field and position.
    FileNotFoundError
        If a path or glob matches nothing.
    """
    files = [f for p in ([paths] if isinstance(paths, str | Path) else paths) for f in _expand(p)]
    twice = [f for f, n in Counter(f.resolve() for f in files).items() if n > 1]
    if twice:
        raise TraceError(f"{twice[0]}: given more than once, which would count its responses twice")
    reading = Reading(reward_range, logprob_dtype, on_missing)
    readers = [_reader(f, format) for f in files]
    if horizon is None:
        said = {h for r, f in zip(readers, files, strict=True) if (h := r.horizon(f)) is not None}
        if len(said) > 1:
            raise TraceError(f"the files name different horizons ({', '.join(map(str, sorted(said)))}): give one")
        horizon = next(iter(said), None)

    def responses() -> Iterator[Response]:
        for reader, file in zip(readers, files, strict=True):
            for where, record in reader.records(file):
                yield Response.from_record(record, where, reading)

    return TraceSet.from_responses(responses(), horizon=horizon, reading=reading)


def example_path() -> Path:
    """The example log inside the package; bounds/data/README.md says what it is."""
    return Path(str(resources.files("bounds").joinpath("data", "example.parquet")))


def example_traces() -> TraceSet:
    """The example log inside the package, read."""
    return read_traces(example_path())


def _expand(path: str | Path) -> list[Path]:
    """The files that a path, a folder or a glob names."""
    if Path(path).is_dir():
        found = sorted(p for p in Path(path).iterdir() if p.suffix in (".jsonl", ".parquet"))
        if not found:
            raise FileNotFoundError(f"{path}: no .jsonl or .parquet file in this folder")
        return found
    if Path(path).is_file():
        return [Path(path)]
    found = sorted(Path(p) for p in glob.glob(str(path)) if Path(p).is_file())
    if not found:
        raise FileNotFoundError(f"{path}: no such file (a glob such as 'run/*.jsonl' is allowed)")
    return found


def _reader(path: Path, name: str) -> Any:
    if name != "auto":
        if name not in FORMATS:
            raise ValueError(unknown("format", name, ("auto", *FORMATS)))
        return FORMATS[name]
    for reader in FORMATS.values():
        if reader.recognises(path):
            return reader
    raise TraceError(f"{path}: {_what_it_is(path)}; a log is JSONL (one JSON object a line) or Parquet")


def _what_it_is(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(64)
    kinds = {
        b"\x1f\x8b": "this is gzip, which is not read yet: decompress it",
        b"\x28\xb5\x2f\xfd": "this is zstd, which is not read yet: decompress it",
        b"[": "this is a JSON array",
        b"\xff\xfe": "this is UTF-16 text",
        b"PK": "this is a zip archive",
        b"\x80": "this is a pickle, which is never opened",
    }
    if not head.strip():
        return "the file is empty"
    return next((what for magic, what in kinds.items() if head.lstrip().startswith(magic)), "no known format")
