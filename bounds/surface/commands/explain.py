"""``trm-bounds explain``: where kl_seq comes from."""

from __future__ import annotations

import argparse
from typing import Any

from bounds._checks import confidence_level
from bounds.surface.commands.options import command, emit, number
from bounds.surface.commands.reading import add_reading_options, reading_from, warn, watched


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "explain",
        _explain,
        "where kl_seq, which bounds the error, comes from: tokens, positions, prompts (without PATH: the example)",
        "trm-bounds explain run/*.jsonl --horizon 4096",
    )
    add_reading_options(parser)
    parser.add_argument("--confidence", type=number, default=0.95, metavar="C", help="default: 0.95")
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _explain(arguments: argparse.Namespace) -> int:
    from bounds.evidence.explain import explain
    from bounds.evidence.stream import stream

    log = stream(**reading_from(arguments))
    seen = watched(log)
    result = explain(log, confidence=confidence_level(arguments.confidence))
    warn(seen)
    emit(result, arguments.json)
    return 0
