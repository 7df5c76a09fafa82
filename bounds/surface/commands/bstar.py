"""``trm-bounds bstar``: every bound for given divergences."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.surface.commands.fields import add_fields, fields_from
from bounds.surface.commands.options import command, emit, whole
from bounds.theory.fields import FIELDS, is_array

_PAPER = "trm-bounds bstar --T 4096 --delta 1e-4 --epsilon 5e-3 --kl-seq 0.01 --tv-seq 0.05"


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "bstar", _bstar, "every bound on |Error| for given divergences, and B*", _PAPER)
    parser.add_argument("--T", type=whole, metavar="N", help="horizon: the cap on policy tokens of a response")
    add_fields(parser)
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="CSV, Parquet, JSON or NPZ; columns named as the options, and per-position arrays: "
        + ", ".join(n for n in FIELDS if is_array(n)),
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _bstar(arguments: argparse.Namespace) -> int:
    from bounds.theory.profile import Profile
    from bounds.theory.unified import unified

    known = {**fields_from(arguments), **({} if arguments.T is None else {"T": arguments.T})}
    if arguments.profile is None and "T" not in known:
        raise ValueError(f"bstar needs --T and a divergence, or --profile FILE; for example: {_PAPER}")
    profile = Profile(**known) if arguments.profile is None else Profile.read(arguments.profile, **known)
    emit(unified(profile), arguments.json)
    return 0
