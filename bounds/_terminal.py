"""Tables for a terminal: they break between words only, and leave out what a narrow one has no room for."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

#: A column is not squeezed below this, nor for longer words than that (the first two, of names and numbers, never).
_FLOOR, _CEILING = 12, 24
#: What stays together: "0.1 to 0.2" and "[0.1, 0.2]".
_ONE_WORD = re.compile(r"\S*\d%? to -?(?:inf|\d)\S*|\[[^][ ]+, [^][ ]+\]")
_NUMBER = re.compile(r"-?(?:[0-9]|inf|nan|$)")
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class TerminalTable:
    """Rows under titles, and whether each row is marked; numbers in the second column go to the right."""

    titles: list[str]
    rows: list[tuple[list[str], bool]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        lines = [[_ONE_WORD.sub(lambda m: m[0].replace(" ", _SPACE), c) for c in cells] for cells in self._cells()]
        widths, gap = _widths(lines, options.max_width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1) if gap == 3 else (0, 1, 0, 0))
        title, *rows = ([_wrapped(cell, width) for cell, width in zip(cells, widths, strict=False)] for cells in lines)
        for k, (text, width) in enumerate(zip(title, widths, strict=True)):
            right = k == 1 and all(_NUMBER.match(cells[1]) for cells, _ in self.rows)
            table.add_column(Text(text), justify="right" if right else "left", width=width, overflow="fold")
        for cells, (_, marked) in zip(rows, self.rows, strict=True):
            table.add_row(*map(Text, cells), style="bold green" if marked else None)
        yield table
        if dropped := [name for name in self.titles[len(widths) :] if name]:
            yield Text(f" (a wider terminal shows: {', '.join(dropped)})", style="dim")

    def _cells(self) -> list[list[str]]:
        return [self.titles, *(cells for cells, _ in self.rows)]


def _widths(lines: list[list[str]], room: int) -> tuple[list[int], int]:
    """A width for each column that there is room for, and the gap between two."""
    columns = list(zip(*lines, strict=True))
    natural = [max(map(len, column)) for column in columns]
    words = [max(len(word) for cell in column for word in _breakable(cell).split(" ")) for column in columns]
    words[2:] = [min(longest, _CEILING) for longest in words[2:]]
    least = [max(longest, min(full, _FLOOR)) for longest, full in zip(words, natural, strict=True)]
    if sum(natural) + 3 * len(natural) - 1 <= room:
        return natural, 3
    while len(least) > 2 and sum(least) + 2 * len(least) > room:
        least.pop()
    widths = natural[: len(least)]
    while sum(widths) + 2 * len(widths) > room:
        loose = [k for k in range(len(widths)) if widths[k] > least[k]]
        if not loose:
            break
        # numbers last, and the widest first
        widths[max(loose, key=lambda k: (k != 1, widths[k]))] -= 1
    return widths, 2


def _breakable(text: str) -> str:
    """With a space after each comma and colon, where ``a<=1,b<=2`` and ``check:rule`` may break."""
    return re.sub(r"([,:])(?=\S)", r"\1 ", text)


def _wrapped(text: str, width: int) -> str:
    """Text in lines of that width."""
    if len(text) > width:
        words = " ".join(part for word in _breakable(text).split(" ") for part in _parts(word, width))
        text = "\n".join(textwrap.wrap(words, width, break_on_hyphens=False))
    return text.replace(_SPACE, " ")


def _parts(word: str, width: int) -> list[str]:
    """A word that is too long for a line, in parts that end after a slash, dot or underscore where there is one."""
    parts = [""]
    for piece in re.split(r"(?<=[/._])", word) if len(word) > width else [word]:
        if len(parts[-1] + piece) <= width:
            parts[-1] += piece
        else:
            parts.append(piece)
    return parts


def plain(renderable: object, width: int = 118) -> str:
    """What a rich renderable looks like without a terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
