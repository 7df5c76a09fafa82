"""Options of every command that reads a log, declared once."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bounds.surface.commands.options import number, whole

if TYPE_CHECKING:
    from bounds.evidence.moments import Moments
    from bounds.evidence.stream import Stream
    from bounds.evidence.traces import TraceSet

#: Formats that are read; said here again, so that no command imports the readers to print its help.
READABLE = ("canonical", "nemo-rl", "prime-rl", "slime", "openai", "sglang")


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """PATH and what :func:`bounds.read_traces` can be told about it."""
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files of one run (.gz and .zst too), folders or globs")
    add("--format", default="auto", metavar="F", help="auto (by content), or one of: " + ", ".join(READABLE))
    add("--horizon", type=whole, metavar="T", help="the generation cap, in policy tokens")
    add("--train", nargs="+", metavar="PATH", help="the half that the trained weights scored, if PATH has the other")
    add("--group-size", type=whole, metavar="N", help="every N rows of a file answer one prompt")
    add("--reward-range", nargs=2, type=number, default=(0.0, 1.0), metavar=("LOW", "HIGH"), help="default: 0 1")
    add(
        "--logprob-dtype",
        default="float32",
        metavar="D",
        help="float32, float16 or bfloat16: how positive a log-prob may be",
    )
    add("--drop-missing", action="store_true", help="leave responses with missing values out, and say so")


def reading_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of :func:`bounds.read_traces`; without PATH, those of the example inside the package."""
    from bounds.evidence.readers import example_path

    if arguments.train is not None and not arguments.paths:
        raise ValueError("--train needs PATH, the half that the rollout policy sampled (write PATH first)")
    return {
        "paths": arguments.paths or example_path(),
        "format": arguments.format,
        "horizon": arguments.horizon,
        "train": arguments.train,
        "group_size": arguments.group_size,
        "reward_range": tuple(arguments.reward_range),
        "logprob_dtype": arguments.logprob_dtype,
        "on_missing": "drop" if arguments.drop_missing else "error",
    }


@contextlib.contextmanager
def reading_progress() -> Iterator[Callable[[Moments], None] | None]:
    """What to call after each part of a log: shows tokens and their rate on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, start = progress.add_task("reading"), time.monotonic()

        def show(m: Moments) -> None:
            rate = m.tokens / max(time.monotonic() - start, 1e-9)
            progress.update(task, description=f"{len(m):,} responses, {m.tokens:,} tokens, {rate:,.0f} a second")

        yield show


def warn(m: Moments) -> None:
    """What is remarkable about a log, on stderr."""
    from bounds.evidence.doubts import doubts
    from bounds.evidence.estimates import gap_remark
    from bounds.evidence.findings import findings

    for found in [*findings(m), *doubts(m), *gap_remark(m)]:
        print(f"warning: {found}", file=sys.stderr)


def watched(log: Stream) -> Moments:
    """Moments that see each part of a log as it is gone through."""
    from bounds.evidence.moments import Moments

    seen = Moments(horizon=log.horizon)

    def watch(part: TraceSet) -> TraceSet:
        seen.update(part)
        return part

    log.through(watch)
    return seen
