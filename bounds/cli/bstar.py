"""``trm-bounds bstar``: every bound for given divergences."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.cli.fields import add_fields, fields_from
from bounds.cli.options import add_json, command, emit, flag, whole
from bounds.rules.fields import FIELDS, is_array

#: What is shown where nothing is asked for: the inputs of the paper, as they are typed.
_PAPER = {"T": "4096", "delta": "1e-4", "epsilon": "5e-3", "kl_seq": ".01", "tv_seq": ".05"}
_COMMAND = " ".join(["trm-bounds bstar", *(f"{flag(name)} {value}" for name, value in _PAPER.items())])
_EXPLAINED = f"""\
How wrong the surrogate L' of an LLM-RL step can be: every bound that follows
from T, the cap on a response's tokens, and from how far apart the two policies
are in KL and total variation. The paper's example is the same as

{_COMMAND}"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "bstar",
        _bstar,
        "every bound on |Error| for given divergences, and B*",
        "trm-bounds bstar --T 4096 --delta 1e-4 --kl-seq 0.01",
        more="Without options: the paper's example, explained.",
    )
    parser.add_argument("--T", type=whole, metavar="N", help="horizon: the cap on policy tokens of a response")
    add_fields(parser)
    arrays = ", ".join(name for name in FIELDS if is_array(name))
    parser.add_argument("--profile", metavar="FILE", help=f"CSV, Parquet, JSON or NPZ with arrays [T]: {arrays}")
    add_json(parser)


def _bstar(arguments: argparse.Namespace) -> int:
    from bounds.rules.profile import Profile
    from bounds.rules.unified import unified

    known = {**fields_from(arguments), **({} if arguments.T is None else {"T": arguments.T})}
    if arguments.profile is None and not known and not arguments.json:
        print(_EXPLAINED)
        known = {name: float(value) for name, value in _PAPER.items()}
    if arguments.profile is None and "T" not in known:
        raise ValueError(f"bstar needs --T and a divergence, or --profile FILE; for example: {_COMMAND}")
    profile = Profile(**known) if arguments.profile is None else Profile.read(arguments.profile, **known)
    emit(unified(profile), arguments.json)
    return 0
