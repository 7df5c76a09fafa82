"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def check_free(path: str | Path, *, force: bool) -> Path:
    """Return the path if a file may be written there: its folder exists, and it does not (unless ``force``)."""
    target = Path(path)
    if target.exists() and not (force and target.is_file()):
        raise FileExistsError(f"{target} exists; another name, or force (--force) to overwrite a file")
    if not target.parent.is_dir():
        raise NotADirectoryError(f"{target.parent}: no such folder")
    return target


@contextlib.contextmanager
def whole_file(path: str | Path, *, force: bool) -> Iterator[Path]:
    """Give a place to write to, which becomes the file when all is written, and is gone when something fails."""
    target = check_free(path, force=force)
    unfinished = target.with_name(f"{target.stem}.unfinished{target.suffix}")
    try:
        yield unfinished
        check_free(path, force=force)
        unfinished.replace(target)
    except OSError as error:
        if error.filename is None and error.strerror is not None:  # a full disk does not say where it is full
            raise type(error)(error.errno, error.strerror, str(target)) from None
        raise
    finally:
        unfinished.unlink(missing_ok=True)
