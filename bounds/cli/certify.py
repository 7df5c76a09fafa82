"""``trm-bounds certify``: estimates, guarantees and bounds from a log."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bounds._checks import confidence_level
from bounds.cli.options import add_confidence, add_json, command, emit, flag, number
from bounds.cli.progress import progress, reading_progress
from bounds.cli.reading import add_reading_options, reading_from, warn
from bounds.cli.requirements import assumption, requirement, unmet

if TYPE_CHECKING:
    from bounds.certificate.certificate import Certificate
    from bounds.certificate.moments import Moments
    from bounds.certificate.stream import Stream
    from bounds.masks.mask import Mask
    from bounds.questions.over_time import RunOverTime


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "certify",
        _certify,
        "estimates, guarantees and bounds from a log",
        "trm-bounds certify 'run/*.jsonl' --horizon 4096 --require 'b_star_upper<=0.2'",
        operands="[PATH ...]",
        more="Without PATH: the embedded example.",
    )
    add_reading_options(parser)
    add = parser.add_argument
    add_confidence(parser)
    add("--mask", metavar="M", help="what a mask keeps; see trm-bounds masks --help")
    add(
        "--assume",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what no sample shows: delta=1e-3 (repeatable)",
    )
    add(
        "--require",
        action="append",
        default=[],
        metavar="QUANTITY<=VALUE",
        help="exit 1 unless a whole interval does (repeatable)",
    )
    add("--noise-floor", metavar="FILE", rare=True, help="a log of the same weights, scored twice")
    add("--without-staleness", action="store_true", rare=True, help="old_logprobs as theta: the engine's part alone")
    add("--engine", choices=("local", "ray"), default="local", rare=True, help="ray: files are read by a cluster")
    add("--split", action="store_true", rare=True, help="only the prompts on which masks judges its choice")
    add("--by-step", action="store_true", help="a run over time: one row for each step")
    add("--limit", type=number, metavar="NATS", rare=True, help="by step: exit 1 unless kl_seq is below it")
    add("--time-uniform", action="store_true", rare=True, help="by step: all steps hold at once")
    add("--figure", metavar="FILE", rare=True, help="by step: draw it as PNG, PDF or SVG")
    add("--html", metavar="FILE", help="all of it as one page that needs no network")
    add("--force", action="store_true", rare=True, help="overwrite FILE of --html and --figure")
    add("--objectives", action="store_true", help="TIS, PPO clip, ... against L' instead")
    add("--resume", metavar="FILE", rare=True, help="keep what was read there, and go on from it")
    add_json(parser)


def _certify(arguments: argparse.Namespace) -> int:
    from bounds._files import check_free
    from bounds.certificate.certify import certify, checked_assumptions
    from bounds.certificate.stream import stream
    from bounds.masks.mask import Mask
    from bounds.questions.objectives import objectives

    requirements = [requirement(text) for text in arguments.require]
    assume = checked_assumptions(dict(assumption(text) for text in arguments.assume))
    confidence_level(arguments.confidence)
    mask = None if arguments.mask is None else Mask.parse(arguments.mask)
    _refuse_mixtures(arguments, bool(requirements or assume))
    for path in filter(None, (arguments.html, arguments.figure)):
        check_free(path, force=arguments.force)
    noise = None
    if arguments.noise_floor is not None:
        noise = stream(**{**reading_from(arguments), "paths": arguments.noise_floor, "train": None}).moments()
        warn(noise)
    log = _log(arguments)
    m = _moments(log, arguments, mask, bool(assume))
    if arguments.objectives:
        warn(m)
        emit(objectives(m, confidence=arguments.confidence, mask=mask), arguments.json)
        return 0
    if arguments.by_step:
        return _by_step(arguments, m, mask)
    result = certify(m, confidence=arguments.confidence, mask=mask, assume=assume, noise_floor=noise)
    not_so = [text for text in (unmet(result, *r) for r in requirements) if text]
    if arguments.html is not None:
        _write_page(arguments, m, mask, result)
    emit(result if arguments.json else replace(result, warnings=()), arguments.json)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for text in not_so:
        print(f"trm-bounds: required, but it does not hold: {text}", file=sys.stderr)
    return 1 if not_so else 0


def _refuse_mixtures(arguments: argparse.Namespace, conditions: bool) -> None:
    """Options that do not go together."""
    if arguments.by_step and arguments.objectives:
        raise ValueError("--by-step and --objectives exclude each other")
    for name in ("by_step", "objectives"):
        if getattr(arguments, name) and (conditions or arguments.noise_floor or arguments.html):
            raise ValueError(
                f"{flag(name)} does not go with --require, --assume, --noise-floor and --html "
                "(a page shows the steps of a log by itself)"
            )
    if not arguments.by_step and (arguments.time_uniform or arguments.figure or arguments.limit is not None):
        raise ValueError("--limit, --time-uniform and --figure go with --by-step")


def _by_step(arguments: argparse.Namespace, m: Moments, mask: Mask | None) -> int:
    """A run over time instead of one certificate."""
    from bounds.questions.over_time import over_time

    warn(m)
    run = over_time(
        m,
        confidence=arguments.confidence,
        mask=mask,
        **({} if arguments.limit is None else {"limit": arguments.limit}),
        time_uniform=arguments.time_uniform,
    )
    if arguments.figure is not None:
        _draw(run, arguments.figure, force=arguments.force)
    emit(run, arguments.json)
    return 1 if arguments.limit is not None and run.lost is not None else 0


def _write_page(arguments: argparse.Namespace, m: Moments, mask: Mask | None, result: Certificate) -> None:
    """The page, from what was kept of the log; only divergence by position needs another reading."""
    from bounds._files import whole_file
    from bounds.questions.by_position import by_position
    from bounds.questions.mask_study import mask_study
    from bounds.questions.over_time import over_time
    from bounds.report import page

    level = arguments.confidence
    with progress("reading again, by position, and writing the page"):
        text = page(
            result,
            by_position=by_position(m, confidence=level),
            masks=mask_study(m, mask=mask, confidence=level),
            run=over_time(m, mask=mask, confidence=level) if len(m.labels.get("step", ())) > 1 else None,
            command=arguments.command,
        )
    with whole_file(arguments.html, force=arguments.force) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    print(f"wrote {arguments.html}", file=sys.stderr)


def _draw(run: RunOverTime, path: str, *, force: bool) -> None:
    from matplotlib.figure import Figure

    from bounds._files import whole_file
    from bounds.figures.plots import over_time_frame, plot_over_time
    from bounds.figures.style import COLUMN, look

    panels = over_time_frame(run)["panel"].nunique()
    with look("light"), whole_file(path, force=force) as unfinished:
        figure = Figure(figsize=(COLUMN, 1.4 * panels), layout="constrained")
        plot_over_time(run, list(figure.subplots(panels, 1)))
        figure.savefig(unfinished, dpi=300)


def _log(arguments: argparse.Namespace) -> Stream:
    """The log as the options want it seen."""
    from bounds.certificate.stream import stream
    from bounds.logs.traces import TraceSet
    from bounds.questions.mask_study import judging

    log = stream(**reading_from(arguments, example="run" if arguments.by_step else "responses"))
    if arguments.without_staleness:
        log.through(TraceSet.engine)
    if arguments.split:
        log.through(judging)
    return log


def _moments(log: Stream, arguments: argparse.Namespace, mask: Mask | None, suprema: bool) -> Moments:
    """What is needed of the log, read once."""
    from bounds.masks.mask import Mask
    from bounds.questions.mask_study import DEFAULT, statistics_for
    from bounds.questions.objectives import STATISTICS

    statistics = (*(STATISTICS if arguments.objectives else ()), *(() if mask is None else mask.statistics))
    if arguments.html is not None:
        statistics = statistics_for(Mask.parse(DEFAULT) if mask is None else mask)
    if arguments.engine == "ray":
        from bounds.certificate.distributed import moments

        if arguments.resume is not None:
            raise ValueError("--resume goes with --engine local")
        return moments(log, statistics=statistics, suprema=suprema)
    with reading_progress() as progress:
        m = log.moments(statistics=statistics, suprema=suprema, progress=progress, resume=arguments.resume)
    if arguments.split:
        m.tally.name("notes", ["--split: only the half of the prompts on which masks judges what it chose"])
    return m
