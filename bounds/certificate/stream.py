"""A log of any size, a part at a time: memory does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from bounds._checks import MAX_HORIZON, integer
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
    def options(self) -> str:
        """How the log is read, as a saved summary remembers it."""
        changes = ", ".join(getattr(change, "__name__", "?") for change in self._through)
        halves = [str(f.path) for f in self._log.scored]
        return (
            f"{self._reading}, horizon={self._horizon}, group_size={self._log.group_size}, train={halves}, "
            f"through {changes or 'nothing'}"
        )

    @property
    def paths(self) -> list[Path]:
        """Its files (without those of the other half)."""
        return [f.path for f in self._log.files]

    def __iter__(self) -> Iterator[TraceSet]:
        """The parts.

        Raises
        ------
        TraceError
            Naming file, row, field and position; also for a log without a policy token.
        """
        left, empty = Tally(), True
        for part in self.parts():
            left.add(part.tally)
            if len(part):
                empty = False
                yield part
        if empty:
            raise TraceError("no response with a policy token: " + ("; ".join(remarks(left)) or "the log is empty"))

    def parts(
        self, skip: Collection[Path] = (), finished: Callable[[Path], None] = lambda path: None
    ) -> Iterator[TraceSet]:
        """The parts, changed; also those without a response that only say what was left out."""
        log = replace(self._log, files=tuple(f for f in self._log.files if f.path not in skip))
        for part in self._whole(log, finished):
            seen: TraceSet | None = part
            for change in self._through if len(part) else ():
                seen = None if seen is None else change(seen)
            if seen is not None:
                yield seen

    def _whole(self, log: Log, finished: Callable[[Path], None]) -> Iterator[TraceSet]:
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
                    yield self._without_response(left_out(responses))
        rest = Tally()
        rest.name("notes", noted)
        yield self._without_response(rest)

    def _without_response(self, tally: Tally) -> TraceSet:
        nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
        return TraceSet(nothing, nothing, np.zeros(1, dtype=np.int64), none, (), 1, reading=self._reading, tally=tally)

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
