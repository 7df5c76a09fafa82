"""Logs on disk. One module for each format; only here are the names of trainers known."""

from __future__ import annotations

import glob
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
    paths : path, glob, or several
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
    raise TraceError(f"{path}: no known format; known are {', '.join(FORMATS)} (JSONL or Parquet)")
