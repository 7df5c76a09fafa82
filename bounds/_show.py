"""How numbers and tables are shown: for people in text and HTML, for programs in JSON."""

from __future__ import annotations

import html
import io
import json
import math
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

#: Cells of one row, and whether the row is marked as the winner.
Row = tuple[list[str], bool]
#: Column titles, and rows.
Cells = tuple[list[str], list[Row]]


class Shown:
    """A result that shows itself as text, HTML and JSON, from its heading, tables, sentence and notes."""

    __slots__ = ()

    def heading(self) -> str:
        """A line above the tables, or nothing."""
        return ""

    def tables(self) -> list[Cells]:
        """Tables for people."""
        raise NotImplementedError

    def sentence(self) -> str:
        """The result in words."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Lines under the sentence."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        raise NotImplementedError

    def to_json(self) -> str:
        """One JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(
            *([Text(self.heading())] if self.heading() else []),
            *(rich_table(*cells) for cells in self.tables()),
            Text(self.sentence(), style="bold"),
            *(Text(line, style="yellow" if line.startswith("Warning") else "dim") for line in self.notes()),
        )

    def __str__(self) -> str:
        return plain(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    def to_html(self) -> str:
        """An HTML fragment (what a notebook shows)."""
        heading = html_lines([self.heading()], "span") if self.heading() else ""
        tables = "".join(html_table(*cells) for cells in self.tables())
        return heading + tables + html_lines([self.sentence()], "b") + html_lines(self.notes(), "small")

    def _repr_html_(self) -> str:
        return self.to_html()


def finite(x: float) -> float | None:
    """``x``, or None where JSON has no number for it."""
    return float(x) if math.isfinite(x) else None


def jsonable(value: object) -> object:
    """A profile field as JSON: arrays become lists, infinities null."""
    if isinstance(value, np.ndarray):
        return [finite(x) for x in value.tolist()]
    if isinstance(value, tuple):
        return [jsonable(x) for x in value]
    return finite(value) if isinstance(value, float) else value


def many(n: int, noun: str) -> str:
    """A number of things.

    >>> many(1, "prompt"), many(2, "prompt")
    ('1 prompt', '2 prompts')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def shown(x: float, digits: int = 7) -> str:
    """An upper bound for people: its last digit is rounded up, unless it agrees with ``x`` to 1e-12.

    >>> shown(34.946091886), shown(0.4096), shown(1e-9), shown(-0.12345, 3)
    ('34.9461', '0.4096', '1e-09', '-0.123')
    """
    return _rounded(x, digits, up=True)


def shown_down(x: float, digits: int = 7) -> str:
    """A lower bound for people, likewise rounded down.

    >>> shown_down(0.04319, 3), shown_down(-0.12345, 3)
    ('0.0431', '-0.124')
    """
    return _rounded(x, digits, up=False)


def _rounded(x: float, digits: int, *, up: bool) -> str:
    text = f"{x:.{digits}g}"
    if not math.isfinite(x) or x == 0.0:
        return text
    beyond = float(text) < x if up else float(text) > x
    if beyond and abs(float(text) - x) > 1e-12 * abs(x):
        step = Fraction(10) ** (math.floor(math.log10(abs(x))) - digits + 1)
        moved = Fraction(text) + (step if up else -step)
        text = f"{float(moved):.{digits}g}" if abs(moved) < sys.float_info.max else f"{x:.17g}"
    return text


def round_toward_zero(x: float, digits: int = 6) -> float:
    """A number of that many digits that is not above ``x`` >= 0 (unless it agrees with it to 1e-12).

    >>> round_toward_zero(2 / 3), round_toward_zero(0.1)
    (0.666666, 0.1)
    """
    return float(shown_down(x, digits))


def rich_table(titles: list[str], rows: list[Row]) -> Table:
    """A table for the terminal; numbers (second column) to the right, winners in bold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, title in enumerate(titles):
        table.add_column(title, justify="right" if k == 1 else "left", no_wrap=k <= 1, overflow="fold")
    for cells, winner in rows:
        table.add_row(*map(Text, cells), style="bold green" if winner else None)
    return table


def plain(renderable: object, width: int = 118) -> str:
    """What a rich renderable looks like without a terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def html_table(titles: list[str], rows: list[Row]) -> str:
    """A table for a notebook."""
    head = "".join(f"<th style='text-align:left'>{html.escape(t)}</th>" for t in titles)
    body = "".join(
        f"<tr{' style=font-weight:bold' if winner else ''}>"
        + "".join(
            f"<td style='text-align:{'right' if k == 1 else 'left'}'>{html.escape(c)}</td>" for k, c in enumerate(cells)
        )
        + "</tr>"
        for cells, winner in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str], tag: str) -> str:
    """Lines of text for a notebook."""
    return "".join(f"<div><{tag}>{html.escape(line)}</{tag}></div>" for line in lines)
