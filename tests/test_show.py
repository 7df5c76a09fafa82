"""Tables in LaTeX and Markdown, and that every result shows itself in every way."""

from __future__ import annotations

import re

import pytest

from bounds._show import latex_table, markdown_table


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("seq_max_k2<=0.05", r"seq\_max\_k2$\leq$0.05"),
        ("|Error| ≤ 2 ε·δ", r"$|$Error$|$ $\leq$ 2 $\varepsilon$$\cdot$$\delta$"),
        ("KL(roll‖θ) ≪ T²", r"KL(roll$\|$$\theta$) $\ll$ T$^2$"),
        ("-0.168 to 0.193", r"$-$0.168 to 0.193"),
        ("E[M R S] - E[M]", r"E[M R S] $-$ E[M]"),
        ("[-0.1, 0.2]", r"{[}$-$0.1, 0.2]"),  # else an argument of the \\ before it
        ("-1.5e-05", r"$-1.5 \times 10^{-5}$"),
        ("1e+06", r"$10^{6}$"),
        (
            r"50% & $a_b #{c} ~^\ --x",
            r"50\% \& \$a\_b \#\{c\} \textasciitilde{}\textasciicircum{}\textbackslash{} {-}{-}x",
        ),
        ("é 你\n", "é {[}U+4F60] "),  # the second has no place in LaTeX's own fonts
    ],
)
def test_text_in_latex(text, latex):
    assert latex_table([text], [[text]]).count(latex + r" \\") == 2


def test_a_latex_table_is_a_booktabs_tabular():
    lines = latex_table(["rule", "value", "how"], [["a_b", "1e-05", "x"], ["c", "-", ""]]).split("\n")
    assert lines == [
        r"\begin{tabular}{lrl}", r"\toprule", r"rule & value & how \\", r"\midrule",
        r"a\_b & $10^{-5}$ & x \\", r"c & - &  \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_a_markdown_table_keeps_its_columns():
    lines = markdown_table(["rule", "|Error|"], [["a*b", "0.1"], ["<i>\n", "28.1%"]]).split("\n")
    assert lines == [
        r"| rule | \|Error\| |", "|:-----|----------:|", r"| a\*b |       0.1 |", r"| \<i> |     28.1% |",
    ]  # fmt: skip
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)
