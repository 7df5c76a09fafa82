"""A log of any size, a part at a time: memory does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Self

from bounds._checks import MAX_HORIZON, integer
from bounds.certificate.moments import Moments
from bounds.logs.block import Block
from bounds.logs.format import Records
from bounds.logs.gather import left_out, remarks
from bounds.logs.log import Log
from bounds.logs.response import Reading, Response, TraceError
from bounds.logs.tally import Tally
from bounds.logs.traces import TraceSet

#: Policy tokens of one part.
PART_TOKENS = 2**18
_Paths = str | Path | Iterable[str | Path]


def stream(
    paths: _Paths,
    *,
    format: str = "auto",
    horizon: int | None = None,
    train: _Paths | None = None,
    group_size: int | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    logprob_dtype: str = "float32",
    on_missing: str = "error",
) -> Stream:
    """A log on disk, to be seen in parts; parameters and errors are those of :func:`bounds.read_traces`.

    Examples
    --------
    >>> from bounds.logs import example_path
    >>> [len(part) for part in stream(example_path())]
    [96]
    """
    log = Log.open(paths, format=format, train=train, group_size=group_size)
    cap = log.horizon if horizon is None else integer("horizon", horizon, 1, MAX_HORIZON)
    return Stream(log, Reading(reward_range, logprob_dtype, on_missing), cap)


class Stream:
    """Parts of a log as TraceSets; may be gone through again."""

    def __init__(self, log: Log, reading: Reading, horizon: int | None) -> None:
        self._log = log
        self._reading = reading
        self._horizon = horizon
        self._through: list[Callable[[TraceSet], TraceSet | None]] = []

    def through(self, change: Callable[[TraceSet], TraceSet | None]) -> Self:
        """See each part through a function, such as :meth:`TraceSet.engine`; None leaves it out."""
        self._through.append(change)
        return self

    @property
    def horizon(self) -> int | None:
        """The generation cap, if it is known."""
        return self._horizon

    def files(self) -> list[Stream]:
        """The same log, a stream for each of its files (one, if it is in two halves)."""
        if self._log.scored:
            return [self]
        streams = []
        for k, file in enumerate(self._log.files):
            log = replace(self._log, files=(file,), found=self._log.found if k == 0 else ())
            streams.append(Stream(log, self._reading, self._horizon))
            streams[-1]._through = self._through
        return streams

    @property
    def _options(self) -> str:
        """How the log is read, as a saved state remembers it."""
        changes = ", ".join(getattr(change, "__name__", "?") for change in self._through)
        halves = [str(f.path) for f in self._log.scored]
        return f"{self._reading}, group_size={self._log.group_size}, train={halves}, through {changes or 'nothing'}"

    def __iter__(self) -> Iterator[TraceSet]:
        """The parts.

        Raises
        ------
        TraceError
            Naming file, row, field and position; also for a log without a policy token.
        """
        rest, empty = Tally(), True
        for part in self._parts(self._log, rest, lambda path: None):
            empty = False
            yield part
        if empty:
            _refuse_empty(rest)

    def moments(
        self,
        *,
        statistics: Iterable[str] = (),
        suprema: bool = False,
        progress: Callable[[Moments], None] | None = None,
        resume: str | Path | None = None,
    ) -> Moments:
        """What :func:`bounds.certify` needs of the log, read once.

        Parameters
        ----------
        statistics, suprema
            As in :class:`Moments`.
        progress : callable, optional
            Called with the moments so far, after each part.
        resume : path, optional
            A file that is kept up to date, after each file of the log; if it is there, files that it holds are not
            read again.

        Raises
        ------
        TraceError
            As when iterating; or if ``resume`` is something else.
        """
        m = Moments(statistics=statistics, suprema=suprema, horizon=self._horizon)
        m._log = self
        m.tally.name("options", [self._options])
        if resume is not None and Path(resume).exists():
            saved = Moments.load(resume)
            if saved.tally.names.get("options") != {self._options}:
                raise TraceError(f"{resume}: holds a log that was read with other options")
            m.merge(saved)
            self._refuse_other_files(saved.tally.names.get("files", set()), resume)
        rest = Tally()

        def finished(path: Path) -> None:
            rest.name("files", [_identity(path)])
            m.tally.add(rest)
            rest.clear()
            if resume is not None:
                m.save(resume)

        read = m.tally.names.get("files", set())
        log = replace(self._log, files=tuple(f for f in self._log.files if _identity(f.path) not in read))
        for part in self._parts(log, rest, finished) if log.files else ():
            m.update(part)
            if progress is not None:
                progress(m)
        m.tally.add(rest)
        if not len(m):
            _refuse_empty(m.tally)
        if not m.groups_are_equal:
            m.weigh_positions(self)
        return m

    def _refuse_other_files(self, read: set[str], resume: str | Path) -> None:
        """A file that has changed would count twice; one that is not of this log, without being named."""
        now = {_identity(f.path) for f in self._log.files}
        here = {str(f.path.resolve()) for f in self._log.files}
        for file in sorted(read - now):
            path = file.rsplit(" ", 2)[0]
            why = "has changed since" if path in here else "is not of this log, but"
            raise TraceError(f"{resume}: {path} {why} it was read into it; start with another file")

    def _parts(self, log: Log, rest: Tally, finished: Callable[[Path], None]) -> Iterator[TraceSet]:
        """The parts, changed; what is in none of them is added to ``rest``."""
        for part in self._whole(log, rest, finished):
            seen: TraceSet | None = part
            for change in self._through:
                seen = None if seen is None else change(seen)
            if seen is not None:
                yield seen

    def _whole(self, log: Log, rest: Tally, finished: Callable[[Path], None]) -> Iterator[TraceSet]:
        noted: list[str] = []
        for part in log.parts(noted, finished=finished):
            if isinstance(part, Block):
                whole = TraceSet.from_block(part, horizon=self._horizon, reading=self._reading)
                if whole is not None:
                    yield whole
                    continue
                part = part.records()
            while responses := self._next(part):
                if any(r.usable for r in responses):
                    yield TraceSet.from_responses(responses, horizon=self._horizon, reading=self._reading)
                else:
                    rest.add(left_out(responses))
        rest.name("notes", noted)

    def _next(self, records: Records) -> list[Response]:
        """The next responses: enough to fill a part, or what is left."""
        responses: list[Response] = []
        tokens = 0
        for where, record in records:
            responses.append(Response.from_record(record, where, self._reading))
            tokens += responses[-1].position.size + 1
            if tokens >= PART_TOKENS:
                break
        return responses


def _identity(path: Path) -> str:
    """A file as it is now."""
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def _refuse_empty(tally: Tally) -> NoReturn:
    raise TraceError("no response with a policy token: " + ("; ".join(remarks(tally)) or "the log is empty"))
