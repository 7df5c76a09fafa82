"""``trm-bounds metrics``: the scalars that trainers log."""

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
        "metrics",
        _metrics,
        "the scalars that verl and ms-swift log, unclamped, with intervals (without PATH: the embedded example)",
        "trm-bounds metrics run/*.jsonl --json",
    )
    add_reading_options(parser)
    parser.add_argument("--confidence", type=number, default=0.95, metavar="C", help="default: 0.95")
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _metrics(arguments: argparse.Namespace) -> int:
    from bounds.evidence.metrics import metrics
    from bounds.evidence.stream import stream

    log = stream(**reading_from(arguments))
    seen = watched(log)
    result = metrics(log, confidence=confidence_level(arguments.confidence))
    warn(seen)
    emit(result, arguments.json)
    return 0
