"""A log on disk: its files found, its halves joined, its rows grouped, read in parts; memory does not grow with it."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bounds._checks import MAX_HORIZON, integer
from bounds._text import many
from bounds.logs.batch import Batch, Row, TraceError, Wanted, in_batches, natural
from bounds.logs.checks import Checked, Checker, Reading, paired, same
from bounds.logs.decode import look
from bounds.logs.formats import Format, detect, named, recognised
from bounds.logs.traces import LeftOut, TraceSet, fingerprint, no_response

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Change = Callable[[TraceSet], TraceSet | None]

_STEP = re.compile(r"(?:step|rollout)[_-]?(\d{1,15})(?!\d)", re.ASCII)


def open_log(
    paths: Paths,
    *,
    format: str = "auto",  # the public name
    horizon: int | None = None,
    train: Paths | None = None,
    group_size: int | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    logprob_dtype: str = "float32",
    on_missing: str = "error",
    train_policy: str | None = None,
) -> Log:
    """Find the logged responses of any trainer, of any size; they are read when they are needed.

    Parameters
    ----------
    paths : path, folder, glob, or several
        Files of one run, plain, gzip or zstd. Folders are searched through.
    format : str
        "auto", which detects it from the content, or the name of a format (``trm-bounds formats`` lists them).
    horizon : int, optional
        Generation cap in policy tokens; else what the file says, else the longest response (noted).
    train : path, folder, glob, or several, optional
        Where ``paths`` hold the rollout policy's log-probs only: the files in which the trained weights score
        the same tokens, in any format. Joined by ``row_id`` (``custom_id`` of batch output), else by order; token ids
        must be equal where both have them.
    group_size : int, optional
        Every so many rows of a file answer one prompt. Without it, rows of one ``prompt_id`` or of the same
        prompt tokens do.
    reward_range, logprob_dtype, on_missing, train_policy
        As in :meth:`bounds.TraceSet.from_records`.

    Returns
    -------
    Log
        Whose parts may be gone through again and again.

    Raises
    ------
    TraceError
        For a file that is no log, saying what would help.
    FileNotFoundError
        If a path or glob matches nothing.
    ValueError
        For an unknown format, with the likely meant one.

    Examples
    --------
    >>> import bounds
    >>> log = open_log(bounds.logs.example_path())
    >>> log, [len(part) for part in log]
    (Log(1 file, canonical, horizon 256), [96])
    """
    reading = Reading(reward_range, logprob_dtype, on_missing, train_policy)
    if group_size is not None:
        group_size = integer("group_size", group_size, 1, 2**31)
    files, notes = _find("paths", paths, named(format))
    scored, more = ((), ()) if train is None else _find("train", train, None)
    cap = _horizon(files) if horizon is None else integer("horizon", horizon, 1, MAX_HORIZON)
    return Log(files, scored, group_size, cap, reading, (*notes, *more))


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log, and what it is."""

    path: Path
    format: Format

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield its rows."""
        if self.format.read is None:
            raise TraceError(f"{self.path}: {self.format.advice}")
        return self.format.read(self.path, wanted)

    @property
    def step(self) -> int | None:
        """The training step that its name, or that of the two folders around it, says."""
        said = (_STEP.findall(part) for part in reversed(self.path.parts[-3:]))
        return next((int(numbers[-1]) for numbers in said if numbers), None)


@dataclass(frozen=True, slots=True, repr=False)
class Log:
    """Logged responses in files, read in parts; open it with :func:`bounds.open_log`.

    Attributes
    ----------
    files, scored : tuple of LogFile
        The files, and those of the other half where the log is in two.
    group_size : int or None
        How many rows of a file answer one prompt.
    horizon : int or None
        The generation cap, if it is known.
    reading : Reading
        What is refused.
    notes : tuple of str
        What was left out when the files were found.
    changes : tuple of functions
        What each part goes through.
    """

    files: tuple[LogFile, ...]
    scored: tuple[LogFile, ...]
    group_size: int | None
    horizon: int | None
    reading: Reading
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def __repr__(self) -> str:
        formats = ", ".join(dict.fromkeys(f.format.name for f in self.files))
        return f"Log({', '.join(filter(None, [many(len(self.files), 'file'), formats]))}, horizon {self.horizon})"

    def __iter__(self) -> Iterator[TraceSet]:
        """Yield the parts, of about 2^18 tokens each.

        Raises
        ------
        TraceError
            Naming file, row, field and position; also for a log without a policy token.
        """
        return (part for part in self.parts() if len(part))

    def read(self) -> TraceSet:
        """Return all of it in memory; errors are those of going through it."""
        return TraceSet.joined(self.parts())

    def filter(self, change: Change) -> Log:
        """Return the log with each part seen through a function, such as ``TraceSet.engine``; None leaves it out."""
        return replace(self, changes=(*self.changes, change))

    def split(self) -> list[Log]:
        """Return a log for each of its files; one, if it is in two halves."""
        if self.scored:
            return [self]
        return [replace(self, files=(f,), notes=() if k else self.notes) for k, f in enumerate(self.files)]

    @property
    def options(self) -> str:
        """How the log is read, in words; what was kept of a log that was read otherwise is of no use."""
        changes = ", ".join(getattr(change, "__name__", "?") for change in self.changes)
        halves = [str(f.path) for f in self.scored]
        return f"{self.reading}, group_size={self.group_size}, train={halves}, through {changes or 'nothing'}"

    def parts(
        self, skip: Collection[Path] = (), finished: Callable[[Path], None] = lambda path: None
    ) -> Iterator[TraceSet]:
        """Yield the parts, and also such without a response, which only say what was left out.

        Parameters
        ----------
        skip : paths
            Files that are not read.
        finished : callable
            Called with each file of which all parts were gone through (never for a log in two halves).

        Raises
        ------
        TraceError
            As when iterating.
        """
        checker, repeats, notes = Checker(self.reading, self.horizon), _Repeats(), list(self.notes)
        left_out, responses = LeftOut(), 0
        for file, batches in self._sources(skip, notes):
            for batch in batches:
                seen = checker.check(batch)
                whole = TraceSet.of_checked(seen)
                repeats.see(whole, seen, file)
                if (part := self._changed(whole)) is not None:
                    left_out, responses = left_out + part.left_out, responses + len(part)
                    yield part
            repeats.refuse_chunks([f.path for f in self.files])
            if file is not None:
                finished(self.files[file].path)
        if not responses and not skip:
            raise no_response(left_out)
        yield TraceSet.nothing(self.reading, self.horizon, LeftOut(notes=tuple(notes)))

    def _changed(self, part: TraceSet) -> TraceSet | None:
        for change in self.changes:
            changed = change(part) if len(part) else part
            if changed is None:
                return None
            part = changed
        return part

    def _sources(self, skip: Collection[Path], notes: list[str]) -> Iterator[tuple[int | None, Iterator[Batch]]]:
        """Yield the number of each file and its batches; of a log in two halves None, and rows that say their file."""
        if self.scored:
            sampled = (
                (place, {**record, "file": k})
                for k in range(len(self.files))
                for place, record in _rows(self._batches(k))
            )
            wanted = Wanted(scored=True, prompts=False)
            scored = chain.from_iterable(_rows(f.batches(wanted)) for f in self.scored)
            yield None, in_batches(_join(sampled, scored, notes))
            return
        for k, file in enumerate(self.files):
            if file.path not in skip:
                yield k, self._batches(k)

    def _batches(self, number: int) -> Iterator[Batch]:
        """Yield the batches of a file, with what its place and format say: step, prompt, how theta relates to it."""
        file = self.files[number]
        batches = file.batches(Wanted(prompts=self.group_size is None))
        if self.group_size is not None:
            batches = in_batches(_grouped(_rows(batches), file.path, self.group_size))
        said = {"step": file.step, "train_policy": file.format.train_policy}
        for batch in batches:
            rows = {n: [v if its is None else its for its in batch.row_field(n)] for n, v in said.items()}
            yield replace(batch, rows={**batch.rows, **rows})


# --- finding files ----------------------------------------------------------------------------------------------


def _find(name: str, paths: Paths, format: Format | None) -> tuple[tuple[LogFile, ...], tuple[str, ...]]:
    """Find the log files of paths, and say what was left out.

    Files in a folder that are no log are ignored, and counted. In folders and globs a file that its trainer has not
    finished is left out, and said; a file named by itself is refused.
    """
    files: list[LogFile] = []
    notes: list[str] = []
    for path in _listed(name, paths):
        if path.is_dir():
            files += _finished(_in_folder(path, format, notes), path, notes)
        elif path.is_file():
            files.append(_readable(path, format))
            if reason := files[-1].format.unfinished(path):
                raise TraceError(f"{reason}; wait for it, or create STABLE there if it is complete")
        else:
            files += _in_glob(path, format, notes)
    twice = [f for f, n in Counter(f.path.resolve() for f in files).items() if n > 1]
    if twice:
        raise TraceError(f"{twice[0]}: given more than once, which would count its responses twice")
    _refuse_copies([f.path for f in files])
    return tuple(files), tuple(notes)


def _listed(name: str, paths: Any) -> list[Path]:
    try:
        return [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    except TypeError:
        raise TypeError(f"{name} must be a path, a folder, a glob, or several, got {name}={paths!r:.60}") from None


def _horizon(files: Iterable[LogFile]) -> int | None:
    """Return the generation cap that the files carry, if they do."""
    said = {cap for f in files if (cap := f.format.horizon(f.path)) is not None}
    if len(said) > 1:
        raise TraceError(f"the files name different horizons ({', '.join(map(str, sorted(said)))}): give one")
    return next(iter(said), None)


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


def _readable(path: Path, format: Format | None) -> LogFile:
    found = format or detect(look(path), path)
    if found.read is None:
        raise TraceError(f"{path}: {found.advice}")
    return LogFile(path, found)


def _in_glob(pattern: Path, format: Format | None, notes: list[str]) -> list[LogFile]:
    places = [Path(p) for p in sorted(glob.glob(str(pattern), recursive=True), key=natural)]
    if not places:
        raise FileNotFoundError(f"{pattern}: no such file (a glob such as 'run/*.jsonl' is allowed)")
    files = [_readable(p, format) for p in places if p.is_file()]
    inside = [f for p in places if p.is_dir() and "**" not in str(pattern) for f in _in_folder(p, format, notes)]
    return _finished([*files, *inside], pattern, notes)


def _in_folder(folder: Path, format: Format | None, notes: list[str]) -> list[LogFile]:
    """Find the logs below a folder, all of one format."""
    places = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: natural(str(p)))
    found = [(p, recognised(look(p), p)) for p in places]
    files = [LogFile(p, f) for p, f in found if f is not None and f.read is not None and format in (None, f)]
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
    logs = {f.path for f in files}
    others = [p for p in places if p not in logs and not (p.name == "STABLE" and not p.stat().st_size)]
    if others:
        notes.append(
            f"{folder}: {len(others)} of {len(places)} files are no {files[0].format.name} log and are ignored "
            f"(first: {others[0].name})"
        )
    return files


def _finished(files: list[LogFile], given: Path, notes: list[str]) -> list[LogFile]:
    """Leave out those that their trainer may still be writing."""
    reasons = {f.path: f.format.unfinished(f.path) for f in files}
    left_out = list(dict.fromkeys(r for r in reasons.values() if r))
    if files and all(reasons.values()):
        raise TraceError(f"{given}: nothing that is complete: {left_out[0]}")
    notes += [f"left out: {reason}" for reason in left_out]
    return [f for f in files if not reasons[f.path]]


# --- rows that belong together ----------------------------------------------------------------------------------


def _rows(batches: Iterable[Batch]) -> Iterator[Row]:
    return chain.from_iterable(batch.records() for batch in batches)


def _grouped(rows: Iterable[Row], path: Path, size: int) -> Iterator[Row]:
    """Give every ``size`` rows of a file one prompt; what the rows say of prompts must agree."""
    said: object = None
    row = -1
    for row, (where, record) in enumerate(rows):
        own = record.get("prompt_id") if record.get("prompt_id") is not None else record.get("prompt_tokens")
        if row % size == 0:
            said = own
        elif not same(own, said):
            raise TraceError(f"{where}: group_size={size} puts it with rows of another prompt")
        yield where, {**record, "prompt_id": f"{path}: group {row // size}"}
    if (row + 1) % size:
        raise TraceError(f"{path}: {many(row + 1, 'row')}, which is no multiple of group_size={size}")


def _join(sampled: Iterator[Row], scored: Iterator[Row], notes: list[str]) -> Iterator[Row]:
    """Join what the rollout policy sampled to the same tokens scored by the trained weights."""
    unchecked = 0
    for ours, theirs in _pairs(sampled, scored):
        record, compared = paired(ours, theirs)
        unchecked += not compared and None in (ours[1].get("row_id"), theirs[1].get("row_id"))
        yield f"{ours[0]} (scored: {theirs[0]})", record
    if unchecked:
        notes.append(
            f"{many(unchecked, 'row')} of the two halves joined by their order alone: no ids of rows or tokens"
        )


def _pairs(sampled: Iterator[Row], scored: Iterator[Row]) -> Iterator[tuple[Row, Row]]:
    """Pair the rows that belong together: by ``row_id`` where both halves have it, else by order.

    Rows wait for their partner, so memory is that of the disorder between the halves, not of the log.
    """
    waiting: tuple[dict[Any, Row], dict[Any, Row]] = ({}, {})
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


# --- files that stand there twice -------------------------------------------------------------------------------

_SLOTS = 2**20  # 16 MB however long the log; past a million responses some repeats go unseen
_FEWEST = 5


class _Repeats:
    """Notices files that repeat an earlier one: bitwise the same log-probs of the same prompts; in constant memory."""

    def __init__(self) -> None:
        self._seen = np.zeros(_SLOTS, dtype=np.uint64)
        self._file = np.zeros(_SLOTS, dtype=np.int64)
        self._rows: Counter[int] = Counter()  # of each file, those that were looked at
        self._again: Counter[tuple[int, int]] = Counter()  # of an earlier and a later file, rows that stand in both

    def see(self, part: TraceSet, seen: Checked, file: int | None) -> None:
        """Look at responses of a file, taken from these rows; None where each row says its file."""
        drawn = fingerprint(part)
        rows = np.flatnonzero(seen.used)[drawn > 0]
        prompts = np.array([hash(seen.prompts[row]) for row in rows.tolist()], dtype=np.int64).view(np.uint64)
        number = np.maximum(drawn[drawn > 0] + prompts, np.uint64(1))
        files = np.full(rows.size, file) if file is not None else np.array(seen.batch.rows["file"])[rows]
        slot = number % np.uint64(_SLOTS)
        again = self._seen[slot] == number
        pairs = zip(self._file[slot[again]].tolist(), files[again].tolist(), strict=True)
        self._again.update((earlier, later) for earlier, later in pairs if earlier != later)
        self._rows.update(files.tolist())
        self._seen[slot[~again]], self._file[slot[~again]] = number[~again], files[~again]

    def refuse_chunks(self, paths: list[Path]) -> None:
        """Refuse a file if half of it stood in an earlier one, or half of an earlier one stands in it."""
        for (earlier, later), again in self._again.items():
            if again >= _FEWEST and 2 * again >= min(self._rows[earlier], self._rows[later]):
                raise TraceError(
                    f"{paths[later]}: {again} of its responses stand, bitwise the same, in a file before it (chunks "
                    "that repeat earlier ones?); give each response once"
                )
