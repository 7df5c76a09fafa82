"""Paths, folders and globs in; the log files that they name, each with its format, out."""

from __future__ import annotations

import glob
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bounds.logs.decode import look
from bounds.logs.format import Format, Records, Wanted
from bounds.logs.registry import detect, named, recognised
from bounds.logs.response import TraceError

_STEP = re.compile(r"(?:step|rollout)[_-]?(\d{1,15})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log, and what it is."""

    path: Path
    format: Format

    def records(self, wanted: Wanted) -> Records:
        """Its records, in the canonical names."""
        if self.format.records is None:
            raise TraceError(f"{self.path}: {self.format.advice}")
        return self.format.records(self.path, wanted)

    @property
    def step(self) -> int | None:
        """The training step that its name, or that of the two folders around it, says."""
        said = (_STEP.findall(part) for part in reversed(self.path.parts[-3:]))
        return next((int(numbers[-1]) for numbers in said if numbers), None)


def find(paths: str | Path | Iterable[str | Path], name: str = "auto") -> tuple[tuple[LogFile, ...], tuple[str, ...]]:
    """The log files of paths, and notes on what was left out.

    Folders are searched through; files there that are no log are ignored, and counted. In folders and globs
    a file that its trainer has not finished is left out, and said; a file named by itself is refused.

    Raises
    ------
    FileNotFoundError
        If a path, folder or glob has no log.
    TraceError
        For a file that is given twice or cannot be a log, or a folder with logs of several formats.
    """
    format = named(name)
    files: list[LogFile] = []
    notes: list[str] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if Path(path).is_dir():
            files += _finished(_in_folder(Path(path), format, notes), path, notes)
        elif Path(path).is_file():
            files.append(_by_itself(Path(path), format))
        else:
            files += _in_glob(str(path), format, notes)
    twice = [f for f, n in Counter(f.path.resolve() for f in files).items() if n > 1]
    if twice:
        raise TraceError(f"{twice[0]}: given more than once, which would count its responses twice")
    _refuse_copies([f.path for f in files])
    return tuple(files), tuple(notes)


def _refuse_copies(paths: list[Path]) -> None:
    """Refuse a file that stands there twice under two names, byte for byte."""
    sizes = Counter(p.stat().st_size for p in paths)
    seen: dict[tuple[int, bytes], Path] = {}
    for path in (p for p in paths if sizes[p.stat().st_size] > 1):
        with path.open("rb") as file:
            key = path.stat().st_size, hashlib.file_digest(file, "blake2b").digest()
        if key in seen:
            raise TraceError(f"{path}: the same, byte for byte, as {seen[key]}: its responses would count twice")
        seen[key] = path


def _by_itself(path: Path, format: Format | None) -> LogFile:
    file = _readable(path, format)
    if reason := file.format.unfinished(path):
        raise TraceError(f"{reason}; wait for it, or create STABLE there if it is complete")
    return file


def _readable(path: Path, format: Format | None) -> LogFile:
    found = format or detect(look(path), path)
    if found.records is None:
        raise TraceError(f"{path}: {found.advice}")
    return LogFile(path, found)


def _in_glob(pattern: str, format: Format | None, notes: list[str]) -> list[LogFile]:
    places = sorted((Path(p) for p in glob.glob(pattern, recursive=True)), key=_natural)
    if not places:
        raise FileNotFoundError(f"{pattern}: no such file (a glob such as 'run/*.jsonl' is allowed)")
    files = [_readable(p, format) for p in places if p.is_file()]
    inside = [f for p in places if p.is_dir() and "**" not in pattern for f in _in_folder(p, format, notes)]
    return _finished([*files, *inside], pattern, notes)


def _in_folder(folder: Path, format: Format | None, notes: list[str]) -> list[LogFile]:
    """The logs below a folder, all of one format."""
    places = sorted((p for p in folder.rglob("*") if p.is_file()), key=_natural)
    found = [(p, recognised(look(p), p)) for p in places]
    files = [LogFile(p, f) for p, f in found if f is not None and f.records is not None and format in (None, f)]
    if not files:
        advised = [f"{p}: {f.advice}" for p, f in found if f is not None and f.advice]
        if advised:
            raise TraceError(advised[0])
        raise FileNotFoundError(
            f"{folder}: no log among the {len(places)} files in this folder (name one to learn why)"
        )
    kinds = dict.fromkeys(f.format.name for f in files)
    if len(kinds) > 1:
        raise TraceError(f"{folder}: logs of several formats ({', '.join(kinds)}): say which (format=, --format)")
    others = [
        p for p in places if p not in {f.path for f in files} and not (p.name == "STABLE" and not p.stat().st_size)
    ]
    if others:
        notes.append(
            f"{folder}: {len(others)} of {len(places)} files are no {files[0].format.name} log and are ignored "
            f"(first: {others[0].name})"
        )
    return files


def _finished(files: list[LogFile], given: str | Path, notes: list[str]) -> list[LogFile]:
    """Without those that their trainer may still be writing."""
    reasons = {f.path: f.format.unfinished(f.path) for f in files}
    left_out = list(dict.fromkeys(r for r in reasons.values() if r))
    if files and all(reasons.values()):
        raise TraceError(f"{given}: nothing that is complete: {left_out[0]}")
    notes += [f"left out: {reason}" for reason in left_out]
    return [f for f in files if not reasons[f.path]]


def _natural(path: Path) -> list[tuple[str, int]]:
    """Sorts step_2 before step_10."""
    parts = re.findall(r"(\D*)(\d*)", str(path), re.ASCII)
    return [(text, int(number[:18] or -1)) for text, number in parts]
