"""What long work shows meanwhile: one line on stderr, if that is a terminal."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bounds.certificate.summary import Summary


@contextlib.contextmanager
def progress(first: str) -> Iterator[Callable[[str], None] | None]:
    """What to call with a new line of text; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(first)
        yield lambda text: shown.update(task, description=text)


@contextlib.contextmanager
def reading_progress() -> Iterator[Callable[[Summary], None] | None]:
    """What to call after each part of a log: shows tokens and their rate."""
    with progress("reading") as say:
        start = time.monotonic()

        def show(m: Summary) -> None:
            if say is not None:
                rate = m.tokens / max(time.monotonic() - start, 1e-9)
                say(f"{len(m):,} responses, {m.tokens:,} tokens, {rate:,.0f} a second")

        yield None if say is None else show


@contextlib.contextmanager
def counting_progress(doing: str, total: int) -> Iterator[Callable[[str], None] | None]:
    """What to call with the name of each thing before it is done: "checking 12 of 80: name"."""
    with progress(doing) as say:
        numbers = itertools.count(1)
        yield None if say is None else lambda name: say(f"{doing} {next(numbers)} of {total}: {name}")
