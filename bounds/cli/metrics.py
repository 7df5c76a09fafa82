"""``trm-bounds metrics``: the scalars that trainers log."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.cli.options import add_confidence, add_json, command
from bounds.cli.reading import add_reading_options, answer


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "metrics",
        _metrics,
        "what verl and ms-swift log, with intervals",
        "trm-bounds metrics 'run/*.jsonl' --json",
        operands="[PATH ...]",
        more="Without PATH: the embedded example.",
    )
    add_reading_options(parser)
    add_confidence(parser)
    add_json(parser)


def _metrics(arguments: argparse.Namespace) -> int:
    from bounds.questions.metrics import STATISTICS, metrics

    return answer(arguments, metrics, STATISTICS)
