"""What people see: results on stdout, one line about long work on stderr."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any


def emit(result: Any, as_json: bool, full: bool = True) -> None:
    """Print a result: for people, all of it or the answer with the tables that decide; or as one JSON object."""
    if as_json:
        print(result.to_json())
    else:
        show(result if full else result.brief())


_ASCII = str.maketrans("▲▼△▽◇○", "^v^v?o")


def answer(lines: list[str], style: str, marked: int) -> None:
    """Print the few lines that answer, so many characters in a style of their own; in ASCII where there is no more."""
    from rich.text import Text

    text = "\n".join(lines)
    if (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8":
        text = text.translate(_ASCII)
    said = Text(text)
    said.stylize(style, 0, marked)
    show(said)


def show(renderable: object) -> None:
    """Print in colour on a terminal (rich honours NO_COLOR and FORCE_COLOR), plain when piped."""
    from rich.console import Console

    from bounds._text import plain

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(renderable)
    else:
        print(plain(renderable, encoding=sys.stdout.encoding or "utf-8"))


@contextlib.contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Give what to call with a new line of text."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(first)
        yield lambda text: shown.update(task, description=text)


@contextlib.contextmanager
def counting_progress(doing: str, total: int) -> Iterator[Callable[[str], None]]:
    """Give what to call with the name of each thing before it is done: "checking 12 of 80: name"."""
    numbers = itertools.count(1)
    with progress(doing) as say:
        yield lambda name: say(f"{doing} {next(numbers)} of {total}: {name}")
