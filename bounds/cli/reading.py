"""How commands read logs: their options, and the one file here that knows what logs and summaries are made of."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bounds.cli.command import FILE, Decorator, as_json, group, number, option, reward_range, suggest, whole
from bounds.cli.output import emit, progress

if TYPE_CHECKING:
    from bounds.certificate.summary import Pool, Summary
    from bounds.logs.log import Log
    from bounds.masks.mask import Mask

#: Formats that are read; said here again, so that no command imports the readers to print its help.
READABLE = (
    *("canonical", "nemo-rl", "prime-rl", "slime", "miles", "miles-loss"),
    *("verifiers", "nemo-gym", "atropos", "responses", "openai", "sglang"),
)
_FORMATS = ("auto", *READABLE)
_POLICIES = ("before-update", "held-out", "unknown")
_DTYPES = ("float32", "float16", "bfloat16")  # how positive a log-prob may be
#: What help says about PATH.
PATHS = (
    "Each PATH is a file (.gz, .zst), a folder or a glob of one run, or - for standard input; without PATH: the "
    "embedded example."
)


def _confidence(ctx: click.Context, _: click.Parameter, value: float) -> float:
    from bounds._checks import confidence_level

    return confidence_level(value)


def _mask(ctx: click.Context, _: click.Parameter, text: str | None) -> Mask | None:
    from bounds.masks.mask import Mask

    return None if text is None else Mask.parse(text)


def mask(help: str = "what a mask keeps; see trm-bounds masks --help") -> Decorator:
    """Declare a mask."""
    return option("--mask", callback=_mask, metavar="M", help=help)


#: What every command on a log has: PATH, what :func:`bounds.read_traces` can be told about it (by its names), and how
#: the answer is given.
log = group(
    click.argument("paths", nargs=-1, type=FILE, metavar="[PATH ...]"),
    option("--horizon", type=whole, metavar="T", help="the generation cap, in policy tokens"),
    reward_range("0", "1"),
    option("--train", several=True, type=FILE, metavar="PATH ...", help="the half that the trained weights scored"),
    option("--format", default="auto", metavar="F", shell_complete=suggest(lambda: _FORMATS), rare=True,
           help=f"one of {', '.join(_FORMATS)}"),
    option("--group-size", type=whole, metavar="N", rare=True, help="every N rows of a file answer one prompt"),
    option("--logprob-dtype", default="float32", metavar="D", shell_complete=suggest(lambda: _DTYPES), rare=True,
           help=", ".join(_DTYPES)),
    option("--drop-missing", "on_missing", flag_value="drop", default="error", rare=True,
           help="leave responses with missing values out, and say so"),
    option("--leave-out", several=True, metavar="ROW ...", rare=True,
           help="rows that are not looked at, as findings name them: log.jsonl:41"),
    option("--train-policy", metavar="P", shell_complete=suggest(lambda: _POLICIES), rare=True,
           help=f"how theta relates to the responses: {', '.join(_POLICIES)}"),
    option("--drop-incomplete", is_flag=True, rare=True, help="no warning of a last line that is still being written"),
    option("--max-line", type=number, default="64", metavar="MIB", rare=True, help="the longest record of a file"),
    option("--max-ratio", type=number, default="200", metavar="X", rare=True,
           help="how many times as large as on disk a file may be, unpacked"),
    option("--confidence", type=number, default="0.95", callback=_confidence, metavar="C",
           help="of intervals; default: 0.95"),
    option("--jobs", type=whole, metavar="N", rare=True,
           help="processes that read the files; default: the cores, at most 8, one for a small log"),
    as_json,
)  # fmt: skip

#: Which part of a log is looked at, and how it is gone through.
looking = group(
    option("--without-staleness", is_flag=True, rare=True, help="old_logprobs as theta: the engine's part alone"),
    option("--split", is_flag=True, rare=True, help="only the prompts on which masks judges its choice"),
    option("--engine", type=click.Choice(["local", "ray"]), default="local", rare=True,
           help="ray: files are read by a cluster"),
    option("--resume", type=FILE, metavar="FILE", rare=True, help="keep what was read there, and go on from it"),
)  # fmt: skip


#: How much of the answer is printed.
full = option("--full", is_flag=True, help="everything that is known, not the answer alone")


@dataclass(frozen=True)
class Source:
    """A log, and how it is gone through."""

    name: str
    embedded: bool
    log: Log
    split: bool
    engine: str
    resume: str | None
    jobs: int | None

    def summary(self, *, mask: Mask | None = None, statistics: Iterable[str] = (), suprema: bool = False) -> Summary:
        """Read the log once, with progress, and return what was kept of it."""
        from bounds.certificate.summary import Summary

        start = time.monotonic()
        with progress("reading") as say:
            m = Summary.of(
                self.log,
                statistics=(*statistics, *(() if mask is None else mask.statistics)),
                suprema=suprema,
                progress=lambda responses, tokens: say(_rate(responses, tokens, start)),
                resume=self.resume,
                pool=self._pool(),
            )
        if self.split:
            m.note("--split: only the half of the prompts on which masks judges what it chose")
        return m

    def tell(self) -> None:
        """Say which log this is, where nobody named one."""
        if self.embedded:
            print(f"no PATH: this is the {self.name}", file=sys.stderr)

    def _pool(self) -> Pool:
        """Return what reads the files."""
        from bounds.certificate.distributed import cluster, jobs_for, processes

        if self.engine == "local":
            return processes(jobs_for(self.log) if self.jobs is None else self.jobs)
        if self.resume is not None or self.jobs is not None:
            raise ValueError(f"--{'jobs' if self.resume is None else 'resume'} goes with --engine local")
        return cluster()


def _rate(responses: int, tokens: int, start: float) -> str:
    """Say what was read since a start of the clock, and how fast."""
    rate = tokens / max(time.monotonic() - start, 1e-9)
    return f"{responses:,} responses, {tokens:,} tokens, {rate:,.0f} a second"


def open_log(
    *,
    paths: tuple[str, ...],
    train: tuple[str, ...],
    example: str = "responses",
    without_staleness: bool = False,
    split: bool = False,
    engine: str = "local",
    resume: str | None = None,
    jobs: int | None = None,
    **reading: Any,
) -> Source:
    """Open the log that options name; without a path, an example inside the package."""
    from bounds import logs
    from bounds._checks import integer
    from bounds.logs.traces import TraceSet

    if train and not paths:
        raise ValueError("--train needs PATH, the half that the rollout policy sampled (write PATH first)")
    log = logs.open_log(_named(paths) or logs.example_path(example), train=_named(train) or None, **reading)
    if without_staleness:
        log = log.filter(TraceSet.engine)
    if split:
        from bounds.questions.mask_study import judging

        log = log.filter(judging)
    if jobs is not None:
        integer("--jobs", jobs, 1, 2**10)
    name = ", ".join(paths) or f"embedded log {logs.example_path(example).name}"
    return Source(name, not paths, log, split, engine, resume, jobs)


def _named(paths: tuple[str, ...]) -> list[str]:
    """Return paths, with - as standard input."""
    if "-" in paths and sys.stdin.isatty():
        raise ValueError("- is standard input, which is a terminal: pipe a log into it")
    return ["/dev/stdin" if path == "-" else path for path in paths]


def answer(
    question: Callable[..., Any],
    *,
    as_json: bool,
    full: bool,
    confidence: float,
    mask: Mask | None = None,
    statistics: Iterable[str] = (),
    **log: Any,
) -> None:
    """Ask ``question(summary, confidence=...)`` of a log, and print its answer."""
    source = open_log(**log)
    summary = source.summary(mask=mask, statistics=statistics)
    source.tell()
    emit(question(summary, confidence=confidence, **({} if mask is None else {"mask": mask})), as_json, full)
