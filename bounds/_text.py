"""Numbers and tables for people: rounded to the safe side, on a terminal, in HTML, LaTeX and Markdown."""

from __future__ import annotations

import html
import io
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

#: Cells of one row, and whether the row is marked as the winner.
Row = tuple[list[str], bool]
#: Column titles, and rows.
Cells = tuple[list[str], list[Row]]

# --- numbers -----------------------------------------------------------------------------------------------------

#: From here on, numbers are shown as 1.5e+06.
_SCIENTIFIC = 1e6


def many(n: int, noun: str) -> str:
    """Name a number of things: 1 prompt, 2 prompts."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def span(low: int, high: int) -> str:
    """Name a range of whole numbers, ends included: 4-7, or 4."""
    return f"{low}" if low == high else f"{low}-{high}"


def near(x: float, digits: int = 3) -> str:
    """Show a number: that many significant digits, its integer part whole (below a million).

    >>> near(0.072416), near(34.94), near(1677.312), near(2.5e7)
    ('0.0724', '34.9', '1677', '2.5e+07')
    """
    return _text(x, _places(x, digits))


def shown(x: float, digits: int = 3) -> str:
    """Show an upper bound: as :func:`near`, but rounded up unless it agrees with ``x`` to 1e-12.

    >>> shown(4.0961), shown(838.656), shown(1677.312), shown(34.946091886, 7), shown(-0.12345)
    ('4.1', '839', '1678', '34.9461', '-0.123')
    """
    return _rounded(x, digits, up=True)


def shown_down(x: float, digits: int = 3) -> str:
    """Show a lower bound, likewise rounded down.

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
    """Return how many significant digits ``x`` is shown with."""
    return max(digits, len(str(int(abs(x))))) if abs(x) < _SCIENTIFIC else digits


def _text(x: float, places: int) -> str:
    text = f"{x:.{places}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(float(text)) < _SCIENTIFIC else text


def round_up_whole(n: int) -> str:
    """Show a whole number with two digits, rounded up.

    >>> round_up_whole(93761), round_up_whole(7)
    ('94,000', '7')
    """
    unit = 10 ** max(len(str(n)) - 2, 0)
    return f"{-(-n // unit) * unit:,}"


def round_toward_zero(x: float, digits: int = 3) -> float:
    """Return a number of that many digits that is not above ``x`` >= 0, by not even one unit in its last place.

    >>> round_toward_zero(2 / 3), round_toward_zero(0.1), round_toward_zero(0.0049999999999999996)
    (0.666, 0.1, 0.00499)
    """
    down = float(shown_down(x, digits))
    return down if down <= x else float(shown_down(x * (1.0 - 2e-12), digits))


# --- text from elsewhere ------------------------------------------------------------------------------------------


def visible(text: str) -> str:
    r"""Show text from a log or a library: what is no printable character is escaped, never sent to a terminal.

    >>> print(visible("a\x1b[2Jb"), visible("two\nlines"))
    a\x1b[2Jb two\nlines
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def visible_lines(text: str) -> str:
    """Show sentences that name places in a log, with their own ends of lines."""
    return "\n".join(map(visible, text.split("\n")))


def quoted(text: str) -> str:
    r"""Show a text whose spaces matter, such as a token.

    >>> print(quoted(" the"), quoted("\n"))
    " the" "\n"
    """
    return '"' + visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def one_line(error: object, most: int = 300) -> str:
    r"""Show what a library says in one line of bounded length.

    >>> one_line("Invalid data\n  in page 3.\n")
    'Invalid data in page 3.'
    """
    text = visible(" ".join(str(error).split()))
    return text if len(text) <= most else text[: most - 3] + "..."


# --- answers in a few lines ---------------------------------------------------------------------------------------

_LINE, _INDENT = 80, 13


def labelled(label: str, text: str) -> list[str]:
    """Break text into lines of 80 characters beside its label.

    >>> labelled("  to do", "keep the step")
    ['  to do      keep the step']
    """
    first = f"{label:<{_INDENT - 2}}  "
    return textwrap.wrap(
        text,
        _LINE,
        initial_indent=first,
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


# --- tables on a terminal ----------------------------------------------------------------------------------------

#: A column is not squeezed below this, nor for longer words than that (the first two, of names and numbers, never).
_FLOOR, _CEILING = 12, 24
#: What stays together: "0.1 to 0.2" and "[0.1, 0.2]".
_ONE_WORD = re.compile(r"\S*\d%? to -?(?:inf|\d)\S*|\[[^][ ]+, [^][ ]+\]")
_STARTS_AS_NUMBER = re.compile(r"-?(?:[0-9]|inf|nan|$)")
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class TerminalTable:
    """Rows under titles, and whether each row is marked; numbers in the second column go to the right.

    It breaks between words only, and leaves out (and names) the last columns that a narrow terminal has no room for.
    """

    titles: list[str]
    rows: list[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        lines = [
            [_ONE_WORD.sub(lambda m: m[0].replace(" ", _SPACE), visible(cell)) for cell in cells]
            for cells in (self.titles, *(cells for cells, _ in self.rows))
        ]
        widths, gap = _widths(lines, options.max_width)
        title, *rows = ([_wrapped(cell, width) for cell, width in zip(cells, widths, strict=False)] for cells in lines)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1) if gap == 3 else (0, 1, 0, 0))
        for k, (text, width) in enumerate(zip(title, widths, strict=True)):
            right = k == 1 and all(_STARTS_AS_NUMBER.match(cells[1]) for cells, _ in self.rows)
            table.add_column(Text(text), justify="right" if right else "left", width=width, overflow="fold")
        for cells, (_, marked) in zip(rows, self.rows, strict=True):
            table.add_row(*map(Text, cells), style="bold green" if marked else None)
        yield table
        if dropped := [name for name in self.titles[len(widths) :] if name]:
            yield Text(f" (a wider terminal shows: {', '.join(dropped)})", style="dim")


def _widths(lines: list[list[str]], room: int) -> tuple[list[int], int]:
    """Return a width for each column that there is room for, and the gap between two."""
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
    """Put a space after each comma and colon, where ``a<=1,b<=2`` and ``check:rule`` may break."""
    return re.sub(r"([,:])(?=\S)", r"\1 ", text)


def _wrapped(text: str, width: int) -> str:
    """Break text into lines of that width."""
    if len(text) > width:
        words = " ".join(part for word in _breakable(text).split(" ") for part in _parts(word, width))
        text = "\n".join(textwrap.wrap(words, width, break_on_hyphens=False))
    return text.replace(_SPACE, " ")


def _parts(word: str, width: int) -> list[str]:
    """Split a word that is too long for a line, after a slash, dot or underscore where there is one."""
    parts = [""]
    for piece in re.split(r"(?<=[/._])", word) if len(word) > width else [word]:
        if len(parts[-1] + piece) <= width:
            parts[-1] += piece
        else:
            parts.append(piece)
    return parts


class _Paper(io.StringIO):
    """Text that is written for something of an encoding: where that is not UTF-8, rich draws lines in ASCII."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding."""
        return self._encoding


def plain(renderable: object, width: int = 118, encoding: str = "utf-8") -> str:
    """Return what a rich renderable looks like without a terminal; what is not UTF-8 gets tables in ASCII."""
    from rich.console import Console

    text = _Paper(encoding)
    Console(file=text, width=width, color_system=None, highlight=False).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


# --- tables for pages and papers, with whatever they hold escaped --------------------------------------------------

#: A number for people, also such as 1.5e-05, 28.1% or no number at all.
_NUMBER = re.compile(r"[-−+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?|[-−+]?inf|nan|-|")
#: What LaTeX would read otherwise, longest first: scientific notation, comparisons, minus signs, single characters.
_LATEX_SPECIAL = re.compile(
    r"(?P<mantissa>-?[0-9][0-9.]*)e(?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])"
    r"|^[\[*]|<=|>=|(?<![0-9A-Za-z)\]])-(?=[0-9]|inf)|(?<= )-(?= )|--+|[^ 0-9A-Za-z.,;:!?()\[\]/*+='`@-]"
)
_GREEK = """alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon varphi
chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"""
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[*"},  # at the start of a row they would belong to the command before it
    **{c: f"${c}$" for c in "|<>"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': "''", "-": "$-$"},
    **{"<=": r"$\leq$", ">=": r"$\geq$", "≤": r"$\leq$", "≥": r"$\geq$", "≪": r"$\ll$", "≈": r"$\approx$"},
    **{"−": "$-$", "–": "--", "—": "---", "×": r"$\times$", "·": r"$\cdot$", "±": r"$\pm$", "√": r"$\surd$"},
    **{"∞": r"$\infty$", "‖": r"$\|$", "∏": r"$\prod$", "∑": r"$\sum$", "′": r"$'$", "…": r"\ldots{}"},
    **{"²": "$^2$", "³": "$^3$", "½": "$1/2$", "∈": r"$\in$", "→": r"$\to$"},
    **{c: f"$\\{name}$" for c, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)},
}


def html_table(titles: list[str], rows: Iterable[Row]) -> str:
    """Write a table for a notebook; marked rows are bold."""
    head = "".join(f"<th style='text-align:left'>{html.escape(visible(t))}</th>" for t in titles)
    body = "".join(
        f"<tr{' style=font-weight:bold' if winner else ''}>"
        + "".join(
            f"<td style='text-align:{'right' if k == 1 else 'left'}'>{html.escape(visible(c))}</td>"
            for k, c in enumerate(cells)
        )
        + "</tr>"
        for cells, winner in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Iterable[str], tag: str) -> str:
    """Write lines of text for a notebook."""
    return "".join(f"<div><{tag}>{html.escape(visible_lines(line))}</{tag}></div>" for line in lines)


def latex_table(titles: list[str], rows: list[list[str]]) -> str:
    """Write a LaTeX tabular (booktabs): special characters are escaped, mathematical ones become math."""
    head, *body = (" & ".join(map(_latex, cells)) + r" \\" for cells in (titles, *rows))
    columns = "".join("r" if right else "l" for right in _numeric(titles, rows))
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}"])


def markdown_table(titles: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table of plain text, as GitHub and MyST read it."""
    lines = [[_markdown(cell) for cell in cells] for cells in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = _numeric(titles, rows)
    filled = [
        "| " + " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)) + " |"
        for cells in lines
    ]
    rule = "|" + "|".join("-" * (w + 1) + ":" if r else ":" + "-" * (w + 1) for w, r in zip(widths, right, strict=True))
    return "\n".join([filled[0], rule + "|", *filled[1:]])


def _numeric(titles: list[str], rows: list[list[str]]) -> list[bool]:
    """Return which columns hold numbers only, and go to the right."""
    columns = [[cells[k] for cells in rows] for k in range(len(titles))]
    return [any(column) and all(_NUMBER.fullmatch(cell) for cell in column) for column in columns]


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*]|<(?=[A-Za-z/!]))", r"\\\1", visible(" ".join(text.split())))


def _latex(text: str) -> str:
    return _LATEX_SPECIAL.sub(_latex_special, visible(" ".join(text.split("\n"))))


def _latex_special(found: re.Match[str]) -> str:
    text = found.group()
    if found["mantissa"]:
        times = "" if found["mantissa"] == "1" else rf"{found['mantissa']} \times "
        return f"${times}10^{{{int(found['exponent'])}}}$"
    if text in _LATEX:
        return _LATEX[text]
    if text.startswith("--"):
        return "{-}" * len(text)  # no dash
    if "À" <= text <= "ÿ" and text not in "ÐðÞþ":
        return text  # every LaTeX has these
    return f"{{[}}U+{ord(text):04X}]"  # what the fonts lack, such as a Chinese token
