"""``trm-bounds explain``: where kl_seq comes from."""

from __future__ import annotations

import argparse
from typing import Any

from bounds.cli.options import add_confidence, add_json, command
from bounds.cli.reading import add_reading_options, answer


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "explain",
        _explain,
        "where kl_seq comes from: tokens, positions, prompts",
        "trm-bounds explain 'run/*.jsonl' --horizon 4096",
        operands="[PATH ...]",
        more="Without PATH: the embedded example.",
    )
    add_reading_options(parser)
    add_confidence(parser)
    add_json(parser)


def _explain(arguments: argparse.Namespace) -> int:
    from bounds.questions.explain import explain

    return answer(arguments, explain)
