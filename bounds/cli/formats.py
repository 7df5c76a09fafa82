"""``trm-bounds formats``: the logs that are read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from bounds.cli.options import command, show


def recipes() -> Iterable[str]:
    """Trainers that a recipe is there for."""
    from bounds.logs.recipes import RECIPES

    return RECIPES


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "formats",
        _formats,
        "the logs that are read, and how to export them",
        "trm-bounds formats --recipe verl",
    )
    parser.add_argument(
        "--recipe", metavar="TRAINER", suggest=recipes, help="print what exports from verl, skyrl or trl"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _formats(arguments: argparse.Namespace) -> int:
    from rich.text import Text

    from bounds.logs import formats

    if arguments.recipe is not None:
        print(formats.recipe(arguments.recipe), end="")
    elif arguments.json:
        print(json.dumps(formats.to_dict()))
    else:
        for table in formats.tables():
            show(table)
        show(Text(formats.MEMORY_ONLY))
    return 0
