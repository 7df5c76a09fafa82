"""A log on disk: its files found, its halves joined, its rows grouped, read in parts; memory does not grow with it."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, integer
from bounds._text import many
from bounds.logs.batch import (
    DEFAULT_LIMITS,
    Batch,
    IncompleteError,
    Limits,
    Row,
    TraceError,
    Wanted,
    in_batches,
    natural,
)
from bounds.logs.checks import Checked, Checker, Reading, Shape, paired, same
from bounds.logs.decode import look
from bounds.logs.formats import FORMATS, Format, detect, named, recognised
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
    leave_out: tuple[str, ...] = (),
    train_policy: str | None = None,
    max_line: float = DEFAULT_LIMITS.max_line,
    max_ratio: float = DEFAULT_LIMITS.max_ratio,
    drop_incomplete: bool = False,
) -> Log:
    """Find the logged responses of any trainer, of any size; they are read when they are needed.

    Parameters
    ----------
    paths : path, folder, glob, or several
        Files of one run, plain, gzip or zstd. Folders are searched through. A pipe, such as ``/dev/stdin``, is
        first written to a temporary file, which is removed at the end.
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
    reward_range, logprob_dtype, on_missing, leave_out, train_policy
        As in :meth:`bounds.TraceSet.from_records`.
    max_line, max_ratio : float
        The longest record in MiB (numbers take up to sixteen times as much memory), and how many times as large as on
        disk a compressed file may be; above 0.
    drop_incomplete : bool
        A last line that ends within a record (it is still being written) is left out with a warning; True: without.

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
    reading = Reading(reward_range, logprob_dtype, on_missing, train_policy, tuple(leave_out))
    if group_size is not None:
        group_size = integer("group_size", group_size, 1, 2**31)
    limits = Limits(max_line, max_ratio)
    files, notes = _find("paths", paths, named(format), limits)
    scored, more = ((), ()) if train is None else _find("train", train, None, limits)
    cap = _horizon(files) if horizon is None else integer("horizon", horizon, 1, MAX_HORIZON)
    return Log(files, scored, group_size, cap, reading, limits, (*notes, *more), drop_incomplete=drop_incomplete)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log, and what it is."""

    path: Path
    format: Format

    def __reduce__(self) -> tuple[Any, ...]:
        return _log_file, (self.path, self.format.name)  # formats are of functions, which are not sent

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield its rows."""
        if self.format.read is None:
            raise TraceError(f"{self.path}: {self.format.answer(self.path)}")
        return self.format.read(self.path, wanted)

    @property
    def step(self) -> int | None:
        """The training step that its name, or that of the two folders around it, says."""
        said = (_STEP.findall(part) for part in reversed(self.path.parts[-3:]))
        return next((int(numbers[-1]) for numbers in said if numbers), None)


def _log_file(path: Path, format: str) -> LogFile:
    return LogFile(path, FORMATS[format])


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
    limits : Limits
        How large files may be.
    notes : tuple of str
        What was left out when the files were found.
    changes : tuple of functions
        What each part goes through.
    drop_incomplete : bool
        Whether a last line that ends within a record is no matter.
    before : int or None
        Of one file of a log, which may be without a response: how many bytes stand before it.
    """

    files: tuple[LogFile, ...]
    scored: tuple[LogFile, ...]
    group_size: int | None
    horizon: int | None
    reading: Reading
    limits: Limits = DEFAULT_LIMITS
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    drop_incomplete: bool = False
    before: int | None = None

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

    def rows(self) -> Iterator[Row]:
        """Yield where each row stands, and the row in our names, as files say it: unchecked, also of one half."""
        return chain.from_iterable(_rows(self._batches(file)) for file in self.files)

    def filter(self, change: Change) -> Log:
        """Return the log with each part seen through a function, such as ``TraceSet.engine``; None leaves it out."""
        return replace(self, changes=(*self.changes, change))

    def split(self) -> list[Log]:
        """Return a log for each of its files; one, if it is in two halves."""
        if self.scored:
            return [self]
        sizes = accumulate((f.path.stat().st_size for f in self.files), initial=self.before or 0)
        return [
            replace(self, files=(file,), notes=() if k else self.notes, before=before)
            for k, (file, before) in enumerate(zip(self.files, sizes, strict=False))
        ]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(f.path.stat().st_size for f in (*self.files, *self.scored))

    def shape(self) -> Shape | None:
        """Return what the first response has of what all or none must have; the first part is read for it."""
        first = Drawn(None)
        next(self.parts(first), None)
        return first.shape

    @property
    def options(self) -> str:
        """How the log is read, in words; what was kept of a log that was read otherwise is of no use."""
        changes = ", ".join(getattr(change, "__name__", "?") for change in self.changes)
        halves = [str(f.path) for f in self.scored]
        return f"{self.reading}, group_size={self.group_size}, train={halves}, through {changes or 'nothing'}"

    def parts(self, trail: Trail | None = None) -> Iterator[TraceSet]:
        """Yield the parts, and also such without a response, which only say what was left out.

        Parameters
        ----------
        trail : Trail, optional
            What is remembered of the files before; it goes on.

        Raises
        ------
        TraceError
            As when iterating.
        """
        trail, notes = Trail() if trail is None else trail, list(self.notes)
        checker = Checker(self.reading, self.horizon, trail.shape)
        left_out, responses = LeftOut(), 0
        for file, batches in self._sources(notes):
            for batch in batches if file is None else self._complete(batches, notes):
                seen = checker.check(batch)
                whole = TraceSet.of_checked(seen)
                trail.see(whole, seen, file)
                if (part := self._changed(whole)) is not None:
                    left_out, responses = left_out + part.left_out, responses + len(part)
                    yield part
            trail.refuse_chunks()
        if not responses and self.before is None:
            raise no_response(left_out)
        yield TraceSet.nothing(self.reading, self.horizon, LeftOut(notes=tuple(notes)))

    def _complete(self, batches: Iterator[Batch], notes: list[str]) -> Iterator[Batch]:
        """Yield the batches of a file up to a last line that ends within a record, if it is not the only one."""
        rows = 0
        try:
            for batch in batches:
                yield batch
                rows += len(batch)
        except IncompleteError as error:
            if not rows:
                raise
            if not self.drop_incomplete:
                notes.append(
                    f"{error}: the last line ends within a record (still being written, or cut?) and is left out "
                    "(drop_incomplete, --drop-incomplete: then without this warning)"
                )

    def _changed(self, part: TraceSet) -> TraceSet | None:
        for change in self.changes:
            changed = change(part) if len(part) else part
            if changed is None:
                return None
            part = changed
        return part

    def _sources(self, notes: list[str]) -> Iterator[tuple[LogFile | None, Iterator[Batch]]]:
        """Yield each file and its batches; of a log in two halves None, and rows that say their file."""
        if self.scored:
            sampled = (
                (place, {**record, "file": str(f.path)})
                for f in self.files
                for place, record in _rows(self._batches(f))
            )
            wanted = Wanted(scored=True, prompts=False, limits=self.limits)
            scored = chain.from_iterable(_rows(f.batches(wanted)) for f in self.scored)
            yield None, in_batches(_join(sampled, scored, notes))
            return
        for file in self.files:
            yield file, self._batches(file)

    def _batches(self, file: LogFile) -> Iterator[Batch]:
        """Yield the batches of a file, with what its place and format say: step, prompt, how theta relates to it."""
        batches = file.batches(Wanted(prompts=self.group_size is None, limits=self.limits))
        if self.group_size is not None:
            batches = in_batches(_grouped(_rows(batches), file.path, self.group_size))
        said = {"step": file.step, "train_policy": file.format.train_policy}
        for batch in batches:
            rows = {n: [v if its is None else its for its in batch.row_field(n)] for n, v in said.items()}
            yield replace(batch, rows={**batch.rows, **rows})


# --- finding files ----------------------------------------------------------------------------------------------


def _find(
    name: str, paths: Paths, format: Format | None, limits: Limits
) -> tuple[tuple[LogFile, ...], tuple[str, ...]]:
    """Find the log files of paths, and say what was left out.

    Files in a folder that are no log are ignored, and counted. In folders and globs a file that its trainer has not
    finished is left out, and said; a file named by itself is refused.
    """
    files: list[LogFile] = []
    notes: list[str] = []
    for path in _listed(name, paths):
        if path.is_dir():
            files += _finished(_in_folder(path, format, limits, notes), path, notes)
        elif path.exists() or path.is_symlink():
            files.append(_readable(_regular(path), format, limits))
            if reason := files[-1].format.unfinished(path):
                raise TraceError(f"{reason}; wait for it, or create STABLE there if it is complete")
        else:
            files += _in_glob(path, format, limits, notes)
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


def _regular(path: Path) -> Path:
    """Return a file that can be read again and again: of a pipe, what it holds, in a temporary file."""
    if path.is_symlink() and not path.exists():
        raise TraceError(_leads_nowhere(path))
    if path.is_file():
        return path
    if not path.is_fifo():
        raise TraceError(f"{path}: neither a file nor a pipe (a terminal, a device?): nothing can be read from it")
    folder = Path(mkdtemp(prefix="trm-bounds-"))
    weakref.finalize(_regular, shutil.rmtree, folder, ignore_errors=True)  # at the end
    held = folder / (path.name if path.name != "0" else "stdin")
    with path.open("rb") as pipe, held.open("wb") as file:
        shutil.copyfileobj(pipe, file)
    return held


def _leads_nowhere(path: Path) -> str:
    return f"{path}: a link to {path.readlink()}, which is not there"


def _readable(path: Path, format: Format | None, limits: Limits) -> LogFile:
    found = format or detect(look(path, limits), path)
    if found.read is None:
        raise TraceError(f"{path}: {found.answer(path)}")
    return LogFile(path, found)


def _in_glob(pattern: Path, format: Format | None, limits: Limits, notes: list[str]) -> list[LogFile]:
    places = [Path(p) for p in sorted(glob.glob(str(pattern), recursive=True), key=natural)]
    if not places:
        raise FileNotFoundError(f"{pattern}: no such file (a glob such as 'run/*.jsonl' is allowed)")
    there = _there(places, notes)
    files = [_readable(p, format, limits) for p in there if p.is_file()]
    inside = [f for p in there if p.is_dir() and "**" not in str(pattern) for f in _in_folder(p, format, limits, notes)]
    if not files and not inside:
        raise TraceError(
            f"{pattern}: {'; '.join(map(_leads_nowhere, places[:1]))}" if not there else f"{pattern}: no log"
        )
    return _finished([*files, *inside], pattern, notes)


def _there(places: Iterable[Path], notes: list[str]) -> list[Path]:
    """Leave out links that lead nowhere, and say so."""
    every = list(places)
    notes += [f"left out: {_leads_nowhere(p)}" for p in every if not p.exists()]
    return [p for p in every if p.exists()]


def _in_folder(folder: Path, format: Format | None, limits: Limits, notes: list[str]) -> list[LogFile]:
    """Find the logs below a folder, all of one format."""
    every = sorted(folder.rglob("*"), key=lambda p: natural(str(p)))
    places = [p for p in _there(every, notes) if p.is_file()]
    found = [(p, recognised(look(p, limits), p)) for p in places]
    files = [LogFile(p, f) for p, f in found if f is not None and f.read is not None and format in (None, f)]
    if not files:
        advised = [f"{p}: {f.answer(p)}" for p, f in found if f is not None and f.advice]
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
    """Give every ``size`` rows of a file one prompt; what the rows say of prompts must agree.

    Ids that all differ name the responses, and say nothing of prompts: where the first two rows have two ids, no id may
    come again, nor a prompt, if its tokens are logged, in a group of another.
    """
    said: object = None
    tokens: object = None
    prompts: set[int] = set()
    ids: set[int] | None = None  # hashes of those that were seen, where they name responses
    row = -1
    for row, (where, record) in enumerate(rows):
        name = record.get("prompt_id")
        own = record.get("prompt_tokens") if name is None else name
        if row == 1 < size and None not in (name, said) and not same(name, said):
            ids = {hash(str(said))}
        if row % size == 0:
            said, tokens = own, record.get("prompt_tokens")
        again = _met_again(prompts, record.get("prompt_tokens"))
        elsewhere = again and not same(record.get("prompt_tokens"), tokens)
        if (row % size and not same(own, said)) if ids is None else elsewhere or hash(str(name)) in ids:
            raise TraceError(f"{where}: group_size={size} puts it with rows of another prompt")
        if ids is not None:
            ids.add(hash(str(name)))
        yield where, {**record, "prompt_id": f"{path}: group {row // size}"}
    if (row + 1) % size:
        raise TraceError(f"{path}: {many(row + 1, 'row')}, which is no multiple of group_size={size}")


def _met_again(prompts: set[int], tokens: object) -> bool:
    """Remember the tokens of a prompt, and return whether they were there."""
    before = len(prompts)
    prompts.add(hash(np.asarray(tokens).tobytes()))
    return tokens is not None and len(prompts) == before


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


class _Kept(msgspec.Struct):
    """What a :class:`Trail` writes: its shape, its files, the slots that are taken, and what it counted."""

    shape: Shape | None
    files: list[str]
    slots: bytes
    seen: bytes
    file: bytes
    rows: dict[int, int]
    again: list[tuple[tuple[int, int], int]]


class Trail:
    """What going through a log remembers from file to file, in constant memory: what all responses have, and repeats.

    A file repeats an earlier one if it has bitwise the same log-probs of the same prompts.
    """

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self._files: dict[str, int] = {}
        self._seen = np.zeros(_SLOTS, dtype=np.uint64)
        self._file = np.zeros(_SLOTS, dtype=np.int64)
        self._rows: Counter[int] = Counter()  # of each file, those that were looked at
        self._again: Counter[tuple[int, int]] = Counter()  # of an earlier and a later file, rows that stand in both

    def see(self, part: TraceSet, seen: Checked, file: LogFile | None) -> None:
        """Look at responses of a file, taken from these rows; None where each row says its file."""
        self.shape = seen.shape
        drawn = fingerprint(part)
        rows = np.flatnonzero(seen.used)[drawn > 0]
        prompts = [seen.prompts[row] for row in rows.tolist()]
        codes = {prompt: zlib.crc32(str(prompt).encode()) for prompt in dict.fromkeys(prompts)}
        of_prompts = np.fromiter(map(codes.__getitem__, prompts), np.uint64, rows.size)
        number = np.maximum(drawn[drawn > 0] + of_prompts, np.uint64(1))
        names = [str(file.path)] * rows.size if file is not None else [seen.batch.rows["file"][row] for row in rows]
        self.remember(number, names)

    def remember(self, number: npt.NDArray[np.uint64], names: list[str]) -> None:
        """Remember the numbers of responses, and the names of their files."""
        for name in dict.fromkeys(names):
            self._files.setdefault(name, len(self._files))
        files = np.array([self._files[name] for name in names], dtype=np.int64)
        slot = number % np.uint64(_SLOTS)
        again = self._seen[slot] == number
        pairs = zip(self._file[slot[again]].tolist(), files[again].tolist(), strict=True)
        self._again.update((earlier, later) for earlier, later in pairs if earlier != later)
        self._rows.update(files.tolist())
        self._seen[slot[~again]], self._file[slot[~again]] = number[~again], files[~again]

    def refuse_chunks(self) -> None:
        """Refuse a file if half of it stood in an earlier one, or half of an earlier one stands in it."""
        for (earlier, later), again in self._again.items():
            if again >= _FEWEST and 2 * again >= min(self._rows[earlier], self._rows[later]):
                one, other = (list(self._files)[k] for k in (later, earlier))
                raise TraceError(
                    f"{one}: {again} of its responses stand, bitwise the same, in {other} (chunks that repeat earlier "
                    "ones?); give each response once"
                )

    def to_bytes(self) -> bytes:
        """Return what is remembered."""
        taken = np.flatnonzero(self._seen)
        arrays = (taken.tobytes(), self._seen[taken].tobytes(), self._file[taken].tobytes())
        return msgspec.msgpack.encode(
            _Kept(self.shape, list(self._files), *arrays, dict(self._rows), list(self._again.items()))
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Trail:
        """Return what :meth:`to_bytes` wrote; ValueError for anything else."""
        kept, trail = msgspec.msgpack.decode(data, type=_Kept), cls()
        trail.shape, trail._files = kept.shape, {name: k for k, name in enumerate(kept.files)}
        taken = np.frombuffer(kept.slots, dtype=np.int64)
        trail._seen[taken] = np.frombuffer(kept.seen, dtype=np.uint64)
        trail._file[taken] = np.frombuffer(kept.file, dtype=np.int64)
        trail._rows, trail._again = Counter(kept.rows), Counter(dict(kept.again))
        return trail


class Drawn(Trail):
    """What a trail is to remember of one file that is read elsewhere, or not yet in its turn."""

    def __init__(self, shape: Shape | None) -> None:
        self.shape = shape
        self._drawn: list[tuple[npt.NDArray[np.uint64], list[str]]] = []

    def remember(self, number: npt.NDArray[np.uint64], names: list[str]) -> None:
        """Keep them until their turn has come."""
        self._drawn.append((number, names))

    def refuse_chunks(self) -> None:
        """Refuse nothing yet."""

    def add_to(self, trail: Trail) -> None:
        """Let a trail remember it, which may refuse it."""
        trail.shape = trail.shape or self.shape
        for number, names in self._drawn:
            trail.remember(number, names)
        trail.refuse_chunks()
