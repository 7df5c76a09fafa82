"""Options of every command that reads a log, declared once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bounds._checks import confidence_level
from bounds.cli.options import emit, number, whole
from bounds.cli.parser import Parser
from bounds.cli.progress import reading_progress

if TYPE_CHECKING:
    from bounds.certificate.moments import Moments

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


def warn(m: Moments) -> None:
    """What is remarkable about a log, on stderr."""
    from bounds.certificate.doubts import doubts
    from bounds.certificate.estimates import gap_remark
    from bounds.certificate.findings import findings

    for found in [*findings(m), *doubts(m), *gap_remark(m)]:
        print(f"warning: {found}", file=sys.stderr)


def answer(arguments: argparse.Namespace, question: Callable[..., Any], statistics: Iterable[str] = ()) -> int:
    """Ask ``question(log, confidence=...)`` of a log, with progress, and show its result and what is remarkable."""
    from bounds.certificate.stream import stream

    confidence = confidence_level(arguments.confidence)
    log = stream(**reading_from(arguments))
    with reading_progress() as progress:
        summary = log.moments(statistics=statistics, progress=progress)
        result = question(summary, confidence=confidence)
    warn(summary)
    emit(result, arguments.json)
    return 0
