"""Options of every command that reads a log, declared once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bounds._checks import confidence_level
from bounds.cli.options import emit, number, whole
from bounds.cli.parser import Parser
from bounds.cli.progress import reading_progress

if TYPE_CHECKING:
    from bounds.certificate.summary import Summary
    from bounds.logs.traces import TraceSet

#: Formats that are read; said here again, so that no command imports the readers to print its help.
READABLE = ("canonical", "nemo-rl", "prime-rl", "slime", "openai", "sglang")
_DTYPES = ("float32", "float16", "bfloat16")  # how positive a log-prob may be


def add_reading_options(parser: Parser) -> None:
    """PATH and what :func:`bounds.read_traces` can be told about it."""
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files (.gz, .zst), folders, globs of one run")
    add("--horizon", type=whole, metavar="T", help="the generation cap, in policy tokens")
    add(
        "--reward-range",
        nargs=2,
        type=number,
        default=(0.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="of a reward; default: 0 1",
    )
    add("--train", nargs="+", metavar="PATH", help="the half that the trained weights scored")
    formats = ("auto", *READABLE)
    add(
        "--format", default="auto", metavar="F", suggest=lambda: formats, rare=True, help=f"one of {', '.join(formats)}"
    )
    add("--group-size", type=whole, metavar="N", rare=True, help="every N rows of a file answer one prompt")
    add("--logprob-dtype", default="float32", metavar="D", suggest=lambda: _DTYPES, rare=True, help=", ".join(_DTYPES))
    add("--drop-missing", action="store_true", rare=True, help="leave responses with missing values out, and say so")


def reading_from(arguments: argparse.Namespace, example: str = "responses") -> dict[str, Any]:
    """Keyword arguments of :func:`bounds.read_traces`; without PATH, those of an example inside the package."""
    from bounds.logs import example_path

    if arguments.train is not None and not arguments.paths:
        raise ValueError("--train needs PATH, the half that the rollout policy sampled (write PATH first)")
    return {
        "paths": arguments.paths or example_path(example),
        "format": arguments.format,
        "horizon": arguments.horizon,
        "train": arguments.train,
        "group_size": arguments.group_size,
        "reward_range": tuple(arguments.reward_range),
        "logprob_dtype": arguments.logprob_dtype,
        "on_missing": "drop" if arguments.drop_missing else "error",
    }


def warn(m: Summary, *, by_step: bool = False) -> None:
    """What is remarkable about a log, on stderr."""
    from bounds.certificate.findings import findings

    for found in findings(m, by_step=by_step):
        print(f"warning: {found}", file=sys.stderr)


def answer(arguments: argparse.Namespace, question: Callable[..., Any]) -> int:
    """Ask ``question(log, confidence=...)`` of a log, with progress, and show its result and what is remarkable."""
    from bounds.certificate.summary import Summary
    from bounds.logs import open_log

    confidence = confidence_level(arguments.confidence)
    log = open_log(**reading_from(arguments))
    seen = Summary()
    with reading_progress() as progress:

        def watch(part: TraceSet) -> TraceSet:
            seen.see(part)
            if progress is not None:
                progress(seen)
            return part

        result = question(log.filter(watch), confidence=confidence)
    warn(seen)
    emit(result, arguments.json)
    return 0
