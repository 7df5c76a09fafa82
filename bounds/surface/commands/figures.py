"""``trm-bounds figures``: every figure as PNG, PDF and CSV."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.surface.commands.options import command


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "figures",
        _figures,
        "draw figures as PNG, PDF and CSV",
        "trm-bounds figures comparison --out figures",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="such as comparison, scaling, regimes, tightness; without a name: all"
    )
    parser.add_argument("--out", default="figures", metavar="DIR", help="default: figures")


def _figures(arguments: argparse.Namespace) -> int:
    from bounds.surface.figures import write

    for path in write(arguments.names, arguments.out):
        print(path)
    return 0
