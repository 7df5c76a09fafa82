"""``trm-bounds certify``: estimates, guarantees and bounds from a log."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bounds._checks import confidence_level, parse_number
from bounds.surface.commands.options import add_confidence, add_json, command, emit, flag, number
from bounds.surface.commands.progress import reading_progress
from bounds.surface.commands.reading import add_reading_options, reading_from, warn

if TYPE_CHECKING:
    from bounds.evidence.moments import Moments
    from bounds.results import Certificate, RunOverTime
    from bounds.theory.masking import Mask


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
    add("--force", action="store_true", rare=True, help="overwrite FILE of --figure")
    add("--objectives", action="store_true", help="TIS, PPO clip, ... against L' instead")
    add("--resume", metavar="FILE", rare=True, help="keep what was read there, and go on from it")
    add_json(parser)


def _certify(arguments: argparse.Namespace) -> int:
    from bounds.evidence.certify import certify, checked_assumptions
    from bounds.evidence.objectives import objectives
    from bounds.evidence.over_time import over_time
    from bounds.evidence.stream import stream
    from bounds.theory.masking import Mask

    requirements = [_requirement(text) for text in arguments.require]
    assume = checked_assumptions(dict(_assumption(text) for text in arguments.assume))
    confidence_level(arguments.confidence)
    mask = None if arguments.mask is None else Mask.parse(arguments.mask)
    for name in ("by_step", "objectives"):
        if getattr(arguments, name) and (requirements or assume or arguments.noise_floor):
            raise ValueError(f"{flag(name)} does not go with --require, --assume and --noise-floor")
    if not arguments.by_step and (arguments.time_uniform or arguments.figure or arguments.limit is not None):
        raise ValueError("--limit, --time-uniform and --figure go with --by-step")
    if arguments.by_step and arguments.objectives:
        raise ValueError("--by-step and --objectives exclude each other")
    noise = None
    if arguments.noise_floor is not None:
        noise = stream(**{**reading_from(arguments), "paths": arguments.noise_floor, "train": None}).moments()
        warn(noise)
    log = _moments(arguments, mask, bool(assume))
    if arguments.objectives or arguments.by_step:
        warn(log)
    if arguments.objectives:
        emit(objectives(log, confidence=arguments.confidence, mask=mask), arguments.json)
        return 0
    if arguments.by_step:
        run = over_time(
            log,
            confidence=arguments.confidence,
            mask=mask,
            limit=1.0 if arguments.limit is None else arguments.limit,
            time_uniform=arguments.time_uniform,
        )
        if arguments.figure is not None:
            _draw(run, arguments.figure, force=arguments.force)
        emit(run, arguments.json)
        return 1 if arguments.limit is not None and run.lost is not None else 0
    result = certify(log, confidence=arguments.confidence, mask=mask, assume=assume, noise_floor=noise)
    unmet = [text for text in (_unmet(result, *r) for r in requirements) if text]
    emit(result if arguments.json else replace(result, warnings=()), arguments.json)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for text in unmet:
        print(f"trm-bounds: required, but it does not hold: {text}", file=sys.stderr)
    return 1 if unmet else 0


def _draw(run: RunOverTime, path: str, *, force: bool) -> None:
    from matplotlib.figure import Figure

    from bounds.evidence.whole_file import whole_file
    from bounds.surface.plots import plot_over_time

    rows = sum(any(s.intervals()[name] is not None for s in run.steps) for name in run.steps[0].intervals())
    figure = Figure(figsize=(6.0, 1.5 * rows), layout="constrained")
    plot_over_time(run, list(figure.subplots(rows, 1, sharex=True)))
    with whole_file(path, force=force) as unfinished:
        figure.savefig(unfinished, dpi=150)


def _moments(arguments: argparse.Namespace, mask: Mask | None, suprema: bool) -> Moments:
    """What is needed of the log, read once."""
    from bounds.evidence.masks import second_half
    from bounds.evidence.objectives import STATISTICS
    from bounds.evidence.stream import stream
    from bounds.evidence.traces import TraceSet

    log = stream(**reading_from(arguments))
    if arguments.without_staleness:
        log.through(TraceSet.engine)
    if arguments.split:
        log.through(second_half)
    statistics = (*(STATISTICS if arguments.objectives else ()), *(() if mask is None else mask.statistics))
    if arguments.engine == "ray":
        from bounds.evidence.distributed import moments

        if arguments.resume is not None:
            raise ValueError("--resume goes with --engine local")
        return moments(log, statistics=statistics, suprema=suprema)
    with reading_progress() as progress:
        m = log.moments(statistics=statistics, suprema=suprema, progress=progress, resume=arguments.resume)
    if arguments.split:
        m.tally.name("notes", ["--split: only the half of the prompts on which masks judges what it chose"])
    return m


def _assumption(text: str) -> tuple[str, float | bool]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"--assume must be NAME=VALUE such as delta=1e-3, got {text!r}")
    field, word = name.strip().replace("-", "_"), value.strip().lower()
    if word in ("true", "false"):
        return field, word == "true"
    try:
        return field, parse_number(word)
    except ValueError as error:
        raise ValueError(f"--assume {field} {error}") from None


def _requirement(text: str) -> tuple[str, str, float]:
    for sign in ("<=", ">="):
        name, mark, value = text.partition(sign)
        if mark:
            limit = parse_number(value.strip())
            if limit != limit:
                raise ValueError(f"--require needs a number to compare with, got {text!r}")
            return name.strip(), sign, limit
    raise ValueError(f"--require must be QUANTITY<=VALUE or QUANTITY>=VALUE, got {text!r}")


def _unmet(result: Certificate, name: str, sign: str, limit: float) -> str:
    """What was found instead, or "" where the requirement holds."""
    found = result.quantity(name, upper=sign == "<=")
    if found is not None and (found <= limit if sign == "<=" else found >= limit):
        return ""
    end = "" if name.startswith("b_star") else "its upper limit " if sign == "<=" else "its lower limit "
    nothing = result.reasons.get(name, "nothing that is more than optimistic")
    what = nothing if found is None else f"{end}{found:.6g}"
    return f"{name}{sign}{limit:g}, found {what}"
