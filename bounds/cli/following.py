"""A run that grows: its folder is looked at again and again, until Ctrl-C; all looks hold together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bounds.cli.command import FOLDER, group, number, option

#: The options of a command that can follow a run.
options = group(
    option("--follow", type=FOLDER, metavar="FOLDER", rare=True, help="look again whenever it grows, until Ctrl-C"),
    option("--poll", type=number, default="2", metavar="SECONDS", rare=True, help="between looks; default: 2"),
)


def follow(
    folder: str,
    poll: float,
    look: Callable[..., Callable[[], None] | None],
    *,
    confidence: float,
    written: tuple[str | None, ...] = (),
    **log: Any,
) -> int:
    """Look at a folder whenever its files have changed; return 0 when that is stopped.

    ``look(confidence=, **log)`` is asked with what :func:`bounds.cli.reading.open_log` is to be told; what it returns
    is called at the end. Look k spends 1/(k (k+1)) of the error. ``written`` are files that the looks write themselves.
    Of several files only the last is read again when it grows, else all are; between looks it waits at least as long as
    a look takes, so that reading never takes more than half of the time.
    """
    from bounds._checks import number as checked
    from bounds.logs.batch import TraceError

    if log["paths"]:
        raise ValueError("--follow names the folder of the run: no PATH goes with it")
    checked("poll", poll, 0.01, 1e6)
    ours = {Path(path).resolve() for path in written if path is not None}
    before, looks, said, finish = None, 0, "", None
    with TemporaryDirectory(prefix="trm-bounds-") as scratch:
        kept = Path(scratch) / "read.parquet" if log["resume"] is None else Path(log["resume"])
        asked = {**log, "paths": (folder,), "drop_incomplete": True, "resume": str(kept)}
        try:
            while True:
                now, start = _files(Path(folder), ours), time.monotonic()
                if now != before:
                    before = now
                    spent = (1.0 - confidence) / ((looks + 1.0) * (looks + 2.0))
                    try:
                        finish = _looked(look, kept, 1.0 - spent, asked) or finish
                        looks, said = looks + 1, ""
                    except (TraceError, OSError) as error:  # nothing is written yet, or just now
                        if str(error) != said:
                            said = str(error)
                            print(f"waiting: {said}", file=sys.stderr, flush=True)
                time.sleep(max(poll, time.monotonic() - start))
        except KeyboardInterrupt:
            if finish is not None:
                finish()
            print(f"stopped after {looks} looks", file=sys.stderr)
            return 0


def _looked(look: Callable[..., Any], kept: Path, confidence: float, asked: dict[str, Any]) -> Any:
    """Look, with what was read before; read all again where a file that was read has grown since."""
    from bounds.logs.batch import TraceError

    try:
        return look(confidence=confidence, **asked)
    except TraceError as error:
        if not kept.exists() or not str(error).startswith(f"{kept}: "):
            raise
        kept.unlink()
        return look(confidence=confidence, **asked)


def _files(folder: Path, ours: set[Path]) -> list[tuple[str, int, int]]:
    """Return the files of a folder as they are now."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.resolve() not in ours and ".unfinished" not in path.suffixes:
            state = path.stat()
            found.append((str(path), state.st_size, state.st_mtime_ns))
    return found
