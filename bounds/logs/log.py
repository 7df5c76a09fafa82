"""A log on disk: its files, and a stream of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bounds._checks import integer
from bounds._show import many
from bounds.logs.block import Block
from bounds.logs.find import LogFile, find
from bounds.logs.format import Records, Wanted
from bounds.logs.join import join
from bounds.logs.repeats import Repeats
from bounds.logs.response import TraceError


@dataclass(frozen=True, slots=True)
class Log:
    """Files of one run, found and recognised; open it with :meth:`open`, read it with :meth:`records`."""

    files: tuple[LogFile, ...]
    scored: tuple[LogFile, ...] = ()  # the other half, where the log is in two
    group_size: int | None = None
    found: tuple[str, ...] = ()  # what was left out when the files were looked for

    @classmethod
    def open(
        cls,
        paths: str | Path | Iterable[str | Path],
        *,
        format: str = "auto",
        train: str | Path | Iterable[str | Path] | None = None,
        group_size: int | None = None,
    ) -> Log:
        """Find the files; parameters and errors are those of :func:`bounds.read_traces`."""
        if group_size is not None:
            group_size = integer("group_size", group_size, 1, 2**31)
        files, found = find(paths, format)
        scored, left_out = ((), ()) if train is None else find(train)
        return cls(files, scored, group_size, (*found, *left_out))

    @property
    def horizon(self) -> int | None:
        """The generation cap that the files carry, if they do.

        Raises
        ------
        TraceError
            If they carry different ones.
        """
        said = {h for f in self.files if (h := f.format.horizon(f.path)) is not None}
        if len(said) > 1:
            raise TraceError(f"the files name different horizons ({', '.join(map(str, sorted(said)))}): give one")
        return next(iter(said), None)

    def records(self, notes: list[str]) -> Records:
        """Each record and where it stands; what is remarkable is added to ``notes`` by the end.

        Memory does not grow with the log, but for the disorder between two halves (:func:`join`).

        Raises
        ------
        TraceError
            Naming file and row.
        """
        for part in self.parts(notes, whole_blocks=False):
            yield from part.records() if isinstance(part, Block) else part

    def parts(
        self, notes: list[str], *, whole_blocks: bool = True, finished: Callable[[Path], None] = lambda path: None
    ) -> Iterator[Block | Records]:
        """The same records; those of columnar files in blocks, if they need not be joined or grouped.

        ``finished`` is called with each file of which all parts were gone through (never for a log in two halves).
        """
        notes += self.found
        repeats = Repeats()
        if self.scored:
            rows = join(chain.from_iterable(self._rows(f, repeats) for f in self.files), self._scored(), notes)
            yield _no_halves(rows)
        else:
            for file in self.files:
                if whole_blocks and file.format.blocks is not None and self.group_size is None:
                    yield from self._blocks(file, file.format.blocks(file.path), repeats)
                else:
                    yield _no_halves(self._rows(file, repeats))
                finished(file.path)

    def _rows(self, file: LogFile, repeats: Repeats) -> Records:
        """Rows of a file, with what their place says: the step, and which rows answer one prompt."""
        repeats.begin()
        rows = file.records(Wanted(prompts=self.group_size is None))
        if self.group_size is not None:
            rows = _grouped(rows, file.path, self.group_size)
        yield from _seen(rows, file, repeats)
        repeats.end(file.path)

    def _blocks(self, file: LogFile, parts: Iterator[Block | Records], repeats: Repeats) -> Iterator[Block | Records]:
        repeats.begin()
        step = file.step
        for part in parts:
            if not isinstance(part, Block) or (np.diff(part.starts) == 0).any():
                rows = part.records() if isinstance(part, Block) else part
                yield _no_halves(_seen(rows, file, repeats))
                continue
            said = part.column("step") or [None] * len(part)
            known = [step if its is None else its for its in said]
            repeats.see_block(part)
            yield replace(part, rows={**part.rows, "step": known})
        repeats.end(file.path)

    def _scored(self) -> Records:
        for file in self.scored:
            yield from file.records(Wanted(scored=True, prompts=False))


def _seen(rows: Records, file: LogFile, repeats: Repeats) -> Records:
    step = file.step
    for where, record in rows:
        if record.get("step") is None:
            record = {**record, "step": step}
        repeats.see(where, record)
        yield where, record


def _no_halves(rows: Records) -> Records:
    for where, record in rows:
        _refuse_half(where, record)
        yield where, record


def _grouped(rows: Records, path: Path, size: int) -> Records:
    """Every ``size`` rows of a file answer one prompt; what the rows say of prompts must agree."""
    said: object = None
    row = -1
    for row, (where, record) in enumerate(rows):
        own = record.get("prompt_id") if record.get("prompt_id") is not None else record.get("prompt_tokens")
        if row % size == 0:
            said = own
        elif not np.array_equal(np.asarray(own), np.asarray(said)):
            raise TraceError(f"{where}: group_size={size} puts it with rows of another prompt")
        yield where, {**record, "prompt_id": f"{path}: group {row // size}"}
    if (row + 1) % size:
        raise TraceError(f"{path}: {many(row + 1, 'row')}, which is no multiple of group_size={size}")


def _refuse_half(where: str, record: Mapping[str, Any]) -> None:
    """One policy's log-probs alone, where no misnamed field can be the other's."""
    if record.get("train_logprobs") is not None or record.get("rollout_logprobs") is None:
        return
    if all(value is not ... for value in record.values()):
        raise TraceError(
            f"{where}: the rollout policy's log-probs only: give the file in which the trained weights score the same "
            "tokens with train=, --train"
        )
