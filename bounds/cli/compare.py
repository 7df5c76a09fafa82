"""``trm-bounds compare A B``: how two logs differ."""

from __future__ import annotations

import argparse
from typing import Any

from bounds._checks import confidence_level
from bounds.cli.options import add_confidence, add_json, command, emit
from bounds.cli.progress import reading_progress
from bounds.cli.reading import add_reading_options, reading_from, warn


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "compare",
        _compare,
        "how two logs differ: two precisions, two engines",
        "trm-bounds compare bf16.jsonl fp16.jsonl --horizon 4096",
        operands="PATH PATH",
    )
    add_reading_options(parser)
    add_confidence(parser)
    add_json(parser)


def _compare(arguments: argparse.Namespace) -> int:
    from bounds.certificate.compare import compare
    from bounds.certificate.summary import Summary
    from bounds.logs import open_log

    if len(arguments.paths) != 2:
        raise ValueError(f"compare needs two logs, got {len(arguments.paths)} (write globs in quotes)")
    confidence_level(arguments.confidence)
    options = reading_from(arguments)
    logs = []
    for path in arguments.paths:
        with reading_progress() as progress:
            logs.append(Summary.of(open_log(**{**options, "paths": path}), progress=progress))
    for m in logs:
        warn(m)
    emit(compare(*logs, confidence=arguments.confidence), arguments.json)
    return 0
