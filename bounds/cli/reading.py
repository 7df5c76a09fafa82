"""How commands read logs: the one file here that knows what logs, summaries and their warnings are made of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds.cli.output import emit, progress, warn

if TYPE_CHECKING:
    from bounds.certificate.moments import Moments
    from bounds.certificate.stream import Stream
    from bounds.logs.traces import TraceSet
    from bounds.masks.mask import Mask

#: Formats that are read; said here again, so that no command imports the readers to print its help.
READABLE = ("canonical", "nemo-rl", "prime-rl", "slime", "openai", "sglang")


@dataclass(frozen=True)
class Source:
    """A log, and how it is gone through."""

    log: Stream
    split: bool
    engine: str
    resume: str | None

    def summary(self, *, mask: Mask | None = None, statistics: Iterable[str] = (), suprema: bool = False) -> Moments:
        """Read the log once, with progress, and return what was kept of it."""
        statistics = (*statistics, *(() if mask is None else mask.statistics))
        if self.engine == "ray":
            from bounds.certificate.distributed import moments

            if self.resume is not None:
                raise ValueError("--resume goes with --engine local")
            return moments(self.log, statistics=statistics, suprema=suprema)
        with _reading_progress() as show:
            m = self.log.moments(statistics=statistics, suprema=suprema, progress=show, resume=self.resume)
        if self.split:
            m.tally.name("notes", ["--split: only the half of the prompts on which masks judges what it chose"])
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
    from bounds.certificate.stream import stream
    from bounds.logs import example_path
    from bounds.logs.traces import TraceSet
    from bounds.questions.mask_study import second_half

    if train and not paths:
        raise ValueError("--train needs PATH, the half that the rollout policy sampled (write PATH first)")
    log = stream(paths or example_path(example), train=train or None, **reading)
    if without_staleness:
        log.through(TraceSet.engine)
    if split:
        log.through(second_half)
    return Source(log, split, engine, resume)


def answer(question: Callable[..., Any], *, as_json: bool, confidence: float, **reading: Any) -> None:
    """Ask ``question(log, confidence=...)`` in one reading, and print its answer and what is remarkable."""
    from bounds.certificate.moments import Moments

    log = open_log(**reading).log
    seen = Moments(horizon=log.horizon)
    with _reading_progress() as show:

        def watch(part: TraceSet) -> TraceSet:
            seen.update(part)
            show(seen)
            return part

        result = question(log.through(watch), confidence=confidence)
    warn_about(seen)
    emit(result, as_json)


def warn_about(m: Moments) -> None:
    """Print what is remarkable about a log."""
    from bounds.certificate.doubts import doubts
    from bounds.certificate.estimates import gap_remark
    from bounds.certificate.findings import findings

    warn([*findings(m), *doubts(m), *gap_remark(m)])


@contextlib.contextmanager
def _reading_progress() -> Iterator[Callable[[Moments], None]]:
    """Give what to call after each part of a log: it shows tokens and their rate."""
    start = time.monotonic()
    with progress("reading") as say:
        yield lambda m: say(
            f"{len(m):,} responses, {m.tokens:,} tokens, {m.tokens / max(time.monotonic() - start, 1e-9):,.0f} a second"
        )
