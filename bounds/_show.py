"""How numbers and tables are shown: for people in text and HTML, for programs in JSON."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._markup import html_lines, html_table, latex_table
from bounds._terminal import TerminalTable, plain

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

#: Cells of one row, and whether the row is marked as the winner.
Row = tuple[list[str], bool]
#: Column titles, and rows.
Cells = tuple[list[str], list[Row]]

#: From here on, numbers are shown as 1.5e+06.
_SCIENTIFIC = 1e6


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

    def to_frame(self) -> pd.DataFrame:
        """Its numbers as a table for programs, at full precision."""
        raise NotImplementedError

    def to_json(self) -> str:
        """One JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(
            *([Text(self.heading())] if self.heading() else []),
            *(TerminalTable(*cells) for cells in self.tables()),
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

    def to_latex(self) -> str:
        r"""The tables as LaTeX tabulars, one after another, under the result in words as a comment.

        They need ``\usepackage{booktabs}`` only.
        """
        words = "\n".join(f"% {line}" for line in self.sentence().splitlines())
        return (
            "\n\n".join([words, *(latex_table(titles, [c for c, _ in rows]) for titles, rows in self.tables())]) + "\n"
        )

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


def near(x: float, digits: int = 3) -> str:
    """A number for people: that many significant digits, its integer part whole (below a million).

    >>> near(0.072416), near(34.94), near(1677.312), near(2.5e7)
    ('0.0724', '34.9', '1677', '2.5e+07')
    """
    return _text(x, _places(x, digits))


def shown(x: float, digits: int = 3) -> str:
    """An upper bound for people: as :func:`near`, but rounded up unless it agrees with ``x`` to 1e-12.

    >>> shown(4.0961), shown(838.656), shown(1677.312), shown(34.946091886, 7), shown(-0.12345)
    ('4.1', '839', '1678', '34.9461', '-0.123')
    """
    return _rounded(x, digits, up=True)


def shown_down(x: float, digits: int = 3) -> str:
    """A lower bound for people, likewise rounded down.

    >>> shown_down(0.04319), shown_down(1677.312), shown_down(-0.12345)
    ('0.0431', '1677', '-0.124')
    """
    return _rounded(x, digits, up=False)


def _rounded(x: float, digits: int, *, up: bool) -> str:
    places = _places(x, digits)
    text = _text(x, places)
    if not math.isfinite(x) or x == 0.0:
        return text
    beyond = float(text) < x if up else float(text) > x
    if beyond and abs(float(text) - x) > 1e-12 * abs(x):
        step = Fraction(10) ** (math.floor(math.log10(abs(x))) - places + 1)
        moved = Fraction(text) + (step if up else -step)
        text = _text(float(moved), places) if abs(moved) < sys.float_info.max else f"{x:.17g}"
    return text


def _places(x: float, digits: int) -> int:
    """How many significant digits ``x`` is shown with."""
    return max(digits, len(str(int(abs(x))))) if abs(x) < _SCIENTIFIC else digits


def _text(x: float, places: int) -> str:
    text = f"{x:.{places}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(float(text)) < _SCIENTIFIC else text


def round_toward_zero(x: float, digits: int = 3) -> float:
    """A number of that many digits that is not above ``x`` >= 0, by not even one unit in its last place.

    >>> round_toward_zero(2 / 3), round_toward_zero(0.1), round_toward_zero(0.0049999999999999996)
    (0.666, 0.1, 0.00499)
    """
    down = float(shown_down(x, digits))
    return down if down <= x else float(shown_down(x * (1.0 - 2e-12), digits))
