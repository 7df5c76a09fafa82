"""``trm-bounds compare A B``: how two logs differ."""

from __future__ import annotations

import argparse
from typing import Any

from bounds._checks import confidence_level
from bounds.surface.commands.options import command, emit, number
from bounds.surface.commands.reading import add_reading_options, reading_from, warn


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "compare",
        _compare,
        "how two logs differ: two precisions, two engines, a run and its noise floor",
        "trm-bounds compare bf16.jsonl fp16.jsonl --horizon 4096",
    )
    add_reading_options(parser)
    parser.add_argument("--confidence", type=number, default=0.95, metavar="C", help="default: 0.95")
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _compare(arguments: argparse.Namespace) -> int:
    from bounds.evidence.compare import compare
    from bounds.evidence.stream import stream

    if len(arguments.paths) != 2:
        raise ValueError(f"compare needs two logs, got {len(arguments.paths)} (write globs in quotes)")
    confidence_level(arguments.confidence)
    options = reading_from(arguments)
    first, second = (stream(**{**options, "paths": path}).moments() for path in arguments.paths)
    for m in (first, second):
        warn(m)
    emit(compare(first, second, confidence=arguments.confidence), arguments.json)
    return 0
