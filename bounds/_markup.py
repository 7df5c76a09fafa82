"""Tables of plain text for pages and papers: HTML, LaTeX and Markdown, with whatever they hold escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

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


def html_table(titles: list[str], rows: Iterable[tuple[list[str], bool]]) -> str:
    """A table for a notebook; marked rows are bold."""
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
