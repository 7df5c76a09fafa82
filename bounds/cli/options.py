"""What commands share: how they are declared, how numbers are read, how results are shown."""

from __future__ import annotations

import argparse
from typing import Any

from bounds._checks import parse_number
from bounds._text import plain
from bounds.cli.parser import Parser


def command(
    commands: Any, name: str, run: Any, help: str, example: str, *, operands: str = "", more: str = ""
) -> Parser:
    """Declare a command: ``run(arguments)`` returns the exit code; ``operands`` is what the usage line starts with."""
    usage = " ".join(filter(None, ("trm-bounds", name, operands, "[options]")))
    description = f"{help[0].upper()}{help[1:]}.\n{more}".strip()
    parser: Parser = commands.add_parser(
        name, help=help, description=description, usage=usage, epilog=f"example:\n  {example}"
    )
    parser.set_defaults(run=run)
    return parser


def add_confidence(parser: Parser) -> None:
    """The level of intervals."""
    parser.add_argument("--confidence", type=number, default=0.95, metavar="C", help="of intervals; default: 0.95")


def add_json(parser: Parser) -> None:
    """Text for people, or one JSON object."""
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def flag(name: str) -> str:
    """The option of a field."""
    return "--" + name.replace("_", "-")


def number(text: str) -> float:
    """A number, as an argument."""
    try:
        return parse_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole(text: str) -> float:
    """A whole number, as an argument; beyond 2^53 it must not be rounded before it is checked."""
    return int(text) if text.isascii() and text.isdigit() else number(text)


def emit(result: Any, as_json: bool) -> None:
    """A result on stdout: for people, or as one JSON object."""
    if as_json:
        print(result.to_json())
    else:
        show(result)


def show(renderable: object) -> None:
    """In colour on a terminal (rich honours NO_COLOR and FORCE_COLOR), plain when piped."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(renderable)
    else:
        print(plain(renderable))
