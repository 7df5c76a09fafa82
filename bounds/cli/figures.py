"""``trm-bounds figures``: every figure as PNG, PDF and CSV, every table as LaTeX, Markdown and CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from bounds.cli.options import command
from bounds.cli.progress import counting_progress

#: Said here again, so that no command imports the figures to print its help.
_NAMES = """
Figures: comparison, scaling, regimes, adaptive_routes, tightness, length_bias,
certificate, run_over_time, mask_tradeoff.
Tables: table_bounds, table_bounds_by_size, table_length_bias.
"""


def names() -> Iterable[str]:
    """Figures and tables that there are."""
    from bounds.figures import FIGURES
    from bounds.figures.tables import TABLES

    return [*FIGURES, *TABLES]


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "figures",
        _figures,
        "draw figures and the tables of the paper",
        "trm-bounds figures comparison scaling --out figures",
        operands="[NAME ...]",
        more=_NAMES,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", suggest=names, help="which figures; without a name: all")
    parser.add_argument("--out", default="figures", metavar="DIR", help="default: figures")


def _figures(arguments: argparse.Namespace) -> int:
    from bounds.figures import write

    with counting_progress("drawing", len(set(arguments.names)) or len(list(names()))) as on_start:
        written = write(arguments.names, arguments.out, on_start)
    for path in written:
        print(path)
    return 0
