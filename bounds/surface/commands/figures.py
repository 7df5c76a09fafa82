"""``trm-bounds figures``: every figure as PNG, PDF and CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from bounds.surface.commands.options import command


def names() -> Iterable[str]:
    """Figures that there are."""
    from bounds.surface.figures import FIGURES

    return FIGURES


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "figures",
        _figures,
        "draw figures as PNG, PDF and CSV",
        "trm-bounds figures comparison scaling --out figures",
        operands="[NAME ...]",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", suggest=names, help="which figures; without a name: all")
    parser.add_argument("--out", default="figures", metavar="DIR", help="default: figures")


def _figures(arguments: argparse.Namespace) -> int:
    from bounds.surface.figures import write

    for path in write(arguments.names, arguments.out):
        print(path)
    return 0
