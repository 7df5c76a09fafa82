"""The scalar fields of a profile as options."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.cli.options import flag, number
from bounds.cli.parser import Parser
from bounds.rules.fields import FIELDS, is_array


def add_fields(parser: Parser) -> None:
    """The scalar fields of a profile as options."""
    for name, field in FIELDS.items():
        if not is_array(name):
            parser.add_argument(flag(name), type=number, metavar="X", help=field.meaning, rare=field.rare)
    parser.add_argument(
        "--reward-range", nargs=2, type=number, metavar=("LOW", "HIGH"), help="of a reward; default: 0 1"
    )
    parser.add_argument(
        "--support-may-differ",
        action="store_true",
        help="theta << roll need not hold (top-p, top-k)",
    )


def fields_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    known: dict[str, Any] = {n: v for n in FIELDS if not is_array(n) and (v := getattr(arguments, n)) is not None}
    if arguments.reward_range is not None:
        known["reward_range"] = tuple(arguments.reward_range)
    if arguments.support_may_differ:
        known["absolutely_continuous"] = False
    return known
