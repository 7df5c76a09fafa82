"""How numbers and tables are shown: for people in text and HTML, for programs in JSON."""

from __future__ import annotations

import html
import json
import math
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

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
#: A number for people, also such as 1.5e-05, 28.1% or no number at all.
_NUMBER = re.compile(r"[-−+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?|[-−+]?inf|nan|-|")
#: What LaTeX would read otherwise, longest first: scientific notation, comparisons, minus signs, single characters.
_LATEX_SPECIAL = re.compile(
    r"(?P<mantissa>-?[0-9][0-9.]*)e(?P<exponent>[-+]?[0-9]+)(?![0-9A-Za-z])"
    r"|^[\[*]|<=|>=|(?<![0-9A-Za-z)\]])-(?=[0-9]|inf)|(?<= )-(?= )|--+|[^ 0-9A-Za-z.,;:!?()\[\]/*+='`@-]"
)
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[*"},  # at the start of a row they would belong to the command before it
    **{c: f"${c}$" for c in "|<>"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': "''", "-": "$-$"},
    **{"<=": r"$\leq$", ">=": r"$\geq$", "≤": r"$\leq$", "≥": r"$\geq$", "≪": r"$\ll$", "≈": r"$\approx$"},
    **{"−": "$-$", "–": "--", "—": "---", "×": r"$\times$", "·": r"$\cdot$", "±": r"$\pm$", "√": r"$\surd$"},
    **{"∞": r"$\infty$", "‖": r"$\|$", "∏": r"$\prod$", "∑": r"$\sum$", "′": r"$'$", "…": r"\ldots{}"},
    **{"²": "$^2$", "³": "$^3$", "½": "$1/2$", "∈": r"$\in$", "→": r"$\to$", "\n": " ", "\t": " "},
    **{"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "ζ": r"$\zeta$"},
    **{"η": r"$\eta$", "θ": r"$\theta$", "ι": r"$\iota$", "κ": r"$\kappa$", "λ": r"$\lambda$", "μ": r"$\mu$"},
    **{"ν": r"$\nu$", "ξ": r"$\xi$", "π": r"$\pi$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$"},
    **{"υ": r"$\upsilon$", "φ": r"$\varphi$", "χ": r"$\chi$", "ψ": r"$\psi$", "ω": r"$\omega$"},
    **{"Γ": r"$\Gamma$", "Δ": r"$\Delta$", "Θ": r"$\Theta$", "Λ": r"$\Lambda$", "Ξ": r"$\Xi$", "Π": r"$\Pi$"},
    **{"Σ": r"$\Sigma$", "Υ": r"$\Upsilon$", "Φ": r"$\Phi$", "Ψ": r"$\Psi$", "Ω": r"$\Omega$"},
}


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


def latex_table(titles: list[str], rows: list[list[str]]) -> str:
    r"""A LaTeX tabular (booktabs) of plain text: special characters are escaped, mathematical ones become math.

    >>> print(latex_table(["rule", "≤ ε"], [["mixed_tv", "1.5e-05"]]))
    \begin{tabular}{lr}
    \toprule
    rule & $\leq$ $\varepsilon$ \\
    \midrule
    mixed\_tv & $1.5 \times 10^{-5}$ \\
    \bottomrule
    \end{tabular}
    """
    head, *body = (" & ".join(map(_latex, cells)) + r" \\" for cells in (titles, *rows))
    columns = "".join("r" if right else "l" for right in _numeric(titles, rows))
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}"])


def markdown_table(titles: list[str], rows: list[list[str]]) -> str:
    r"""A Markdown table of plain text, as GitHub and MyST read it.

    >>> print(markdown_table(["rule", "|Error|"], [["mixed_tv", "4.1"]]))
    | rule     | \|Error\| |
    |:---------|----------:|
    | mixed_tv |       4.1 |
    """
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
    """Which columns hold numbers only, and go to the right."""
    columns = [[cells[k] for cells in rows] for k in range(len(titles))]
    return [any(column) and all(_NUMBER.fullmatch(cell) for cell in column) for column in columns]


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*]|<(?=[A-Za-z/!]))", r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return _LATEX_SPECIAL.sub(_latex_special, text)


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
