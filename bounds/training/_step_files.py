"""The files of a run: one for each step and rank, written beside the training by a thread of its own."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from bounds.logs.batch import Batch, Ragged
from bounds.logs.canonical import write_parquet
from bounds.logs.traces import TraceSet, fingerprint

LOGGER = logging.getLogger("bounds.training")

#: A response: its fields by their canonical names, arrays [n] of those that have an entry for each token.
Record = Mapping[str, Any]

_WAITING = 2**31  # bytes that may wait for the disk; more say that it does not keep up
_REMEMBERED = 2**17  # responses by which a further pass over a batch is recognised
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # a disk says, as buckets do that are mounted
_FILE = re.compile(r"step_(\d+)_rank_(\d+)\.parquet")


class StepFiles:
    """Files ``step_N_rank_R.parquet`` of one process.

    The batches of a step become one file, which appears whole when the next step begins, or at :meth:`flush` or
    :meth:`close`, and never replaces another. What goes wrong is said once, and nothing more is written; only
    :meth:`close` waits for the disk.
    """

    def __init__(self, folder: Path, rank: int, horizon: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rank, self.horizon = folder, rank, horizon
        self._waiting: Queue[tuple[int, Record] | threading.Event] = Queue()
        self._given = self._taken = 0  # bytes, each counted by one thread
        self._said: set[str] = set()
        self._seen: dict[int, None] = {}
        self._step, self._records = -1, list[Record]()
        threading.Thread(target=self._work, name="trm-bounds", daemon=True).start()

    @property
    def next_step(self) -> int:
        """The number after the last step of this rank in the folder: a run that is started again goes on there."""
        found = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return max((int(f[1]) + 1 for f in found if f and int(f[2]) == self.rank), default=0)

    def add(self, step: int, grids: Record) -> None:
        """Take a batch of a step: arrays [B, L] and [B]."""
        if self._given - self._taken > _WAITING:
            self.say("failed", "nothing more is written, the training goes on (the disk does not keep up)")
            return
        self._given += _size(grids)
        self._waiting.put((step, grids))

    def flush(self) -> None:
        """Say that the step is complete."""
        self._waiting.put(threading.Event())

    def close(self, seconds: float | None = None) -> None:
        """Write what is not written yet, and wait for it, at most so long."""
        written = threading.Event()
        self._waiting.put(written)
        written.wait(seconds)

    def say(self, topic: str, text: str) -> None:
        """Say something once."""
        if topic not in self._said:
            self._said.add(topic)
            LOGGER.warning("%s: %s", self.folder, text)

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            try:
                if "failed" not in self._said:
                    self._take(item)
            except Exception as error:
                self.say("failed", f"nothing more is written, the training goes on ({type(error).__name__}: {error})")
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._taken += _size(item[1])

    def _take(self, item: tuple[int, Record] | threading.Event) -> None:
        if isinstance(item, threading.Event):
            self._write()
            return
        if item[0] != self._step:
            self._write()
        self._step = item[0]
        self._records += self._new(_records(item[1]), item[1]["rollout_logprobs"])

    def _new(self, records: Sequence[Record], drawn: Any) -> list[Record]:
        """Return the responses that were not there before: theta has learned from what comes again."""
        if not records:
            return []
        marks, whole = _marks(records), hash(drawn.tobytes())
        telling = [mark for mark in marks if mark]  # the others are likely enough to be drawn twice
        again = sum(mark in self._seen for mark in telling)
        if whole in self._seen or 2 * again > len(telling):
            new = []
        else:
            new = [r for r, mark in zip(records, marks, strict=True) if not mark or mark not in self._seen]
        if len(new) < len(records):
            self.say("again", "responses came again that are logged already (a further pass over a batch): left out")
        self._seen |= dict.fromkeys([*telling, whole])
        for old in list(islice(self._seen, max(len(self._seen) - _REMEMBERED, 0))):
            del self._seen[old]
        return new

    def _write(self) -> None:
        records, self._records = self._records, []
        if not records:
            return
        path = self.folder / f"step_{self._step:06d}_rank_{self.rank}.parquet"
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        try:
            write_parquet(_side_by_side(records), unfinished, dtype="float32", horizon=self.horizon, level=1)
            _put(unfinished, path)
        except FileExistsError:
            self.say(
                "exists",
                f"{path.name} is there already, of an earlier run or of another process that takes itself for rank "
                f"{self.rank} (rank= tells them apart): such steps are not logged again",
            )
        finally:
            unfinished.unlink(missing_ok=True)


def _put(unfinished: Path, path: Path) -> None:
    """Give a file its name, where no file has it (without hard links, none that is there already)."""
    try:
        os.link(unfinished, path)  # which, unlike a move, never replaces a file
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        unfinished.replace(path)


def _size(grids: Record) -> int:
    return sum(values.nbytes for values in grids.values() if isinstance(values, np.ndarray))


def _records(grids: Record) -> list[Record]:
    """Return the responses of a batch, from the first policy token of each to the last."""
    found: list[Record] = []
    for i, policy in enumerate(grids["mask"]):
        if policy.any():
            at = np.flatnonzero(policy)
            part = slice(at[0], at[-1] + 1)
            found.append({name: v[i, part] if np.ndim(v) == 2 else v[i] for name, v in grids.items()})
    return found


def _marks(records: Sequence[Record]) -> list[int]:
    """Return a number for each response, 0 for one that is likely enough to be drawn twice."""
    if not records:
        return []
    drawn = [record["rollout_logprobs"][record["mask"]].astype(np.float64) for record in records]
    values, starts = np.concatenate(drawn), np.cumsum([0, *(d.size for d in drawn)])
    rows = np.zeros(len(records), dtype=np.int64)
    return [int(mark) for mark in fingerprint(TraceSet(values, values, starts, rows, (), 0))]


def _side_by_side(records: Sequence[Record]) -> Batch:
    columns = {name: [record[name] for record in records] for name in records[0]}
    lists = {name: Ragged.of(values) for name, values in columns.items() if isinstance(values[0], np.ndarray)}
    return Batch([], lists, {name: values for name, values in columns.items() if name not in lists})
