"""How commands read logs: the one file here that knows what logs and summaries are made of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds.cli.output import emit, progress

if TYPE_CHECKING:
    from bounds.certificate.summary import Summary
    from bounds.logs.log import Log
    from bounds.masks.mask import Mask

#: Formats that are read; said here again, so that no command imports the readers to print its help.
READABLE = ("canonical", "nemo-rl", "prime-rl", "slime", "openai", "sglang")


@dataclass(frozen=True)
class Source:
    """A log, and how it is gone through."""

    log: Log
    split: bool
    engine: str
    resume: str | None

    def summary(self, *, mask: Mask | None = None, statistics: Iterable[str] = (), suprema: bool = False) -> Summary:
        """Read the log once, with progress, and return what was kept of it."""
        from bounds.certificate.summary import Summary

        statistics = (*statistics, *(() if mask is None else mask.statistics))
        if self.engine == "ray":
            from bounds.certificate.distributed import summary

            if self.resume is not None:
                raise ValueError("--resume goes with --engine local")
            return summary(self.log, statistics=statistics, suprema=suprema)
        with _reading_progress() as show:
            m = Summary.of(self.log, statistics=statistics, suprema=suprema, progress=show, resume=self.resume)
        if self.split:
            m.note("--split: only the half of the prompts on which masks judges what it chose")
        return m


def open_log(
    *,
    paths: tuple[str, ...],
    train: tuple[str, ...],
    example: str = "responses",
    without_staleness: bool = False,
    split: bool = False,
    engine: str = "local",
    resume: str | None = None,
    **reading: Any,
) -> Source:
    """Open the log that options name; without a path, an example inside the package."""
    from bounds import logs
    from bounds.logs.traces import TraceSet
    from bounds.questions.mask_study import judging

    if train and not paths:
        raise ValueError("--train needs PATH, the half that the rollout policy sampled (write PATH first)")
    log = logs.open_log(paths or logs.example_path(example), train=train or None, **reading)
    if without_staleness:
        log = log.filter(TraceSet.engine)
    if split:
        log = log.filter(judging)
    return Source(log, split, engine, resume)


def answer(
    question: Callable[..., Any],
    *,
    as_json: bool,
    confidence: float,
    mask: Mask | None = None,
    statistics: Iterable[str] = (),
    **log: Any,
) -> None:
    """Ask ``question(summary, confidence=...)`` of a log, and print its answer."""
    summary = open_log(**log).summary(mask=mask, statistics=statistics)
    emit(question(summary, confidence=confidence, **({} if mask is None else {"mask": mask})), as_json)


@contextlib.contextmanager
def _reading_progress() -> Iterator[Callable[[Summary], None]]:
    """Give what to call after each part of a log: it shows tokens and their rate."""
    start = time.monotonic()
    with progress("reading") as say:
        yield lambda m: say(
            f"{len(m):,} responses, {m.tokens:,} tokens, {m.tokens / max(time.monotonic() - start, 1e-9):,.0f} a second"
        )
