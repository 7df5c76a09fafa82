"""Commands on logs: certify, steps, masks, objectives, explain, compare, metrics, plan."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

import bounds
from bounds.cli import following, reading
from bounds.cli.command import FILE, command, number, option, suggest, whole, writes
from bounds.cli.output import answer, emit, progress, show

if TYPE_CHECKING:
    from bounds.certificate.gate import Gate


def _assumptions(ctx: click.Context, _: click.Parameter, texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE, one for each ``--assume``."""
    from bounds._checks import parse_number
    from bounds.certificate.certify import checked_assumptions

    assume: dict[str, Any] = {}
    for text in texts:
        name, mark, value = (part.strip() for part in text.partition("="))
        if not mark:
            raise ValueError(f"--assume must be NAME=VALUE such as delta=1e-3, got {text!r}")
        try:
            known = {"true": True, "false": False}.get(value.lower())
            assume[name.replace("-", "_")] = parse_number(value) if known is None else known
        except ValueError as error:
            raise ValueError(f"--assume {name} {error}") from None
    return checked_assumptions(assume)


def _requirements(ctx: click.Context, _: click.Parameter, texts: Sequence[str]) -> list[tuple[str, str, float]]:
    """Read QUANTITY<=VALUE or QUANTITY>=VALUE, one for each ``--require``."""
    from bounds._checks import parse_number

    require = []
    for text in texts:
        found = re.fullmatch(r"(.*?)([<>]=)(.*)", text, re.DOTALL)
        if found is None:
            meant = re.sub(r"(?<![<>])([<>])(?!=)|==?", lambda m: f"{m[1] or '<'}=", text)
            hint = f"; did you mean {meant!r}?" if re.fullmatch(r"[^<>=]+[<>]=[^<>=]+", meant) else ""
            raise ValueError(f"--require must be QUANTITY<=VALUE or QUANTITY>=VALUE, got {text!r}{hint}")
        name, sign, value = (part.strip() for part in found.groups())
        try:
            limit = parse_number(value)
        except ValueError as error:
            raise ValueError(f"--require {name}{sign}: {error}") from None
        if limit != limit:
            raise ValueError(f"--require needs a number to compare with, got {text!r}")
        require.append((name, sign, limit))
    return require


@command("certify", "trm-bounds certify 'run/*.jsonl' --horizon 4096 --require 'b_star_upper<=.2'", reading.PATHS)
@reading.log
@reading.mask()
@option("--assume", multiple=True, callback=_assumptions, metavar="NAME=VALUE",
        help="what no sample shows: delta=1e-3 (repeatable)")  # fmt: skip
@option("--require", multiple=True, callback=_requirements, metavar="QUANTITY<=VALUE",
        help="else exit 1, or 3 if undecided; 0 where all hold")  # fmt: skip
@option("--candidates", type=int, default=1, metavar="K", rare=True,
        help="one of K policies is chosen by these responses: each spends 1/K of the error")  # fmt: skip
@option("--noise-floor", type=FILE, metavar="FILE", rare=True, help="a log of the same weights, scored twice")
@reading.looking
@following.options
@option("--full", is_flag=True, help="estimates, intervals, bounds, conditions: everything")
@option("--quiet", is_flag=True, rare=True, help="one line: verdict and interval")
@writes("--html", "all of it as one page that needs no network")
def certify(
    confidence: float,
    mask: bounds.Mask | None,
    assume: dict[str, Any],
    require: list[tuple[str, str, float]],
    candidates: int,
    noise_floor: str | None,
    follow: str | None,
    poll: float,
    html: str | None,
    force: bool,
    full: bool,
    quiet: bool,
    as_json: bool,
    **log: Any,
) -> int:
    """Print the verdict or all of it; 1 where the log shows the contrary of what is required, 3 where it is open."""
    from bounds.certificate.gate import exit_code
    from bounds.certificate.verdict import in_one_line
    from bounds.questions.mask_study import DEFAULT, statistics_for

    noise = None
    if noise_floor is not None:
        as_it_is = {
            "train": (),
            "without_staleness": False,
            "split": False,
            "engine": "local",
            "resume": None,
            "jobs": 1,
        }
        noise = reading.open_log(**{**log, **as_it_is, "paths": (noise_floor,)}).summary()
    statistics = () if html is None else statistics_for(bounds.Mask.parse(DEFAULT) if mask is None else mask)
    asked: dict[str, Any] = {"mask": mask, "assume": assume, "candidates": candidates}
    if follow is not None:

        def look(confidence: float, **log: Any) -> Callable[[], None] | None:
            source = reading.open_log(**log)
            m = source.summary(mask=mask, statistics=statistics, suprema=bool(assume))
            result = bounds.certify(m, confidence=confidence, noise_floor=noise, **asked)
            steps = m.labels_in_order("step")[0] if "step" in m else []
            print(f"{f'step {steps[-1]}: ' if steps else ''}{in_one_line(result)}", flush=True)
            if html is None:
                return None
            gates = _gates(m, require, confidence=confidence, **asked)
            write = partial(_write_page, html, result, source, m, gates, mask=mask, confidence=confidence, force=True)
            write(reload=math.ceil(poll))
            return write

        return following.follow(follow, poll, look, confidence=confidence, written=(html,), **log)
    source = reading.open_log(**log)
    m = source.summary(mask=mask, statistics=statistics, suprema=bool(assume))
    source.tell()
    asked["confidence"] = confidence
    result = bounds.certify(m, noise_floor=noise, **asked)
    gates = _gates(m, require, **asked)
    if html is not None:
        _write_page(html, result, source, m, gates, mask=mask, confidence=confidence, force=force)
    if as_json or full:
        emit(result, as_json)
    elif quiet:
        print(in_one_line(result))
    else:
        word = result.verdict.word
        answer(result.block(), f"bold {word.colour}", len(word) + 2)
    for each in gates:
        print(f"required: {each}", file=sys.stderr if as_json or quiet else sys.stdout)
    return exit_code(gates)


def _gates(m: Any, require: list[tuple[str, str, float]], **asked: Any) -> list[Gate]:
    """Say of each requirement whether it is met; the side was declared, so all of the error is there."""
    from bounds.certificate.gate import gate

    if not require:
        return []
    lower, upper = (bounds.certify(m, side=side, **asked) for side in ("lower", "upper"))
    return [gate(lower, upper, *each) for each in require]


def _write_page(
    path: str,
    result: bounds.Certificate,
    source: reading.Source,
    m: Any,
    gates: list[Gate],
    *,
    force: bool,
    reload: int = 0,
    **asked: Any,
) -> None:
    """Write the page, from what was kept of the log; only divergence by position needs another reading."""
    from bounds._files import whole_file
    from bounds.report import page

    with progress("reading again, by position, and writing the page"):
        text = page(
            result,
            by_position=bounds.by_position(source.log, confidence=asked["confidence"]),
            masks=bounds.mask_study(m, **asked),
            run=bounds.over_time(m, **asked) if len(m.labels.get("step", ())) > 1 else None,
            gates=gates,
            name=source.name,
            command=click.get_current_context().obj,
            reload=reload,
        )
    with whole_file(path, force=force) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    if not reload:
        print(f"wrote {path}", file=sys.stderr)


@command("steps", "trm-bounds steps 'run/*.jsonl' --horizon 4096 --limit 0.5", reading.PATHS)
@reading.log
@reading.mask()
@option("--limit", type=number, metavar="NATS", help="exit 1 where kl_seq is above it, 3 where that is open")
@option("--time-uniform", is_flag=True, help="all steps hold at once, also if looked at after each")
@option("--full", is_flag=True, rare=True, help="every estimate of every step")
@following.options
@reading.looking
@writes("--figure", "draw it as PNG, PDF or SVG")
def steps(
    confidence: float,
    mask: bounds.Mask | None,
    limit: float | None,
    time_uniform: bool,
    follow: str | None,
    poll: float,
    figure: str | None,
    full: bool,
    force: bool,
    as_json: bool,
    **log: Any,
) -> int:
    """Print a run over time; 1 where it leaves the limit that was given, 3 where that is open."""
    from bounds._text import TerminalTable

    limits = {} if limit is None else {"limit": limit}
    if follow is not None:
        told: set[str] = set()

        def look(confidence: float, **log: Any) -> None:
            m = reading.open_log(**log).summary(mask=mask)
            run = bounds.over_time(m, confidence=confidence, mask=mask, time_uniform=True, **limits)
            titles, rows = run.short_cells()
            for cells, _ in rows:
                if cells[0] not in told:
                    told.add(cells[0])
                    print(
                        "; ".join(f"{title} {cell}".strip() for title, cell in zip(titles, cells, strict=True) if cell),
                        flush=True,
                    )

        return following.follow(follow, poll, look, confidence=confidence, **log)
    source = reading.open_log(example="run", **log)
    m = source.summary(mask=mask)
    source.tell()
    run = bounds.over_time(m, confidence=confidence, mask=mask, time_uniform=time_uniform, **limits)
    if figure is not None:
        from bounds.figures import logs as figures

        frame = figures.over_time_frame(run)
        draws = [figures.draw_over_time] * frame["panel"].nunique()
        if "promised_so_far" in run.steps.names:
            frame, draws = figures.with_ledger(frame, run), [*draws, figures.draw_ledger_of_steps]
        _draw(figure, frame, draws, 1.4, force=force)
    if as_json or full:
        emit(run, as_json)
    else:
        colour = "yellow" if run.against else "green" if run.lost is None else "red"
        answer(run.block(), f"bold {colour}", 11)
        show(TerminalTable(*run.short_cells()))
    return 0 if limit is None else {True: 0, False: 1, None: 3}[run.within]


def _draw(path: str, frame: Any, draws: Any, height: float, *, force: bool, told: Any = ("", "")) -> None:
    """Draw a frame, one panel below the other."""
    from bounds._files import whole_file
    from bounds.figures.drawing import figure_of
    from bounds.figures.style import look

    with look("light"), whole_file(path, force=force) as unfinished:
        figure_of(frame, draws, height * len(draws), told=told).savefig(unfinished, dpi=300)


@command(
    "plan",
    "trm-bounds plan --gain 0.02 --kl-seq 0.05 --reward 0.4 --responses 8",
    "PATH: a log whose like is planned; without: the example.",
)
@option("--gain", type=number, metavar="G", help="of the mean reward, to be shown; default: that of the log")
@option("--prompts", type=whole, metavar="N", help="also say what N prompts show")
@option("--responses", type=whole, metavar="N", help="to each prompt")
@option("--kl-seq", type=number, metavar="D", help="KL of a response, in nats")
@option("--reward", type=number, metavar="R", help="its mean, in [0, 1]: no log is read")
@option(
    "--power",
    type=number,
    default="0.8",
    metavar="P",
    rare=True,
    help="how often the gain is to be shown; default: 0.8",
)
@option("--runs", type=whole, default="200", metavar="N", rare=True, help="that are simulated; default: 200")
@reading.log
@writes("--figure", "draw it as PNG, PDF or SVG")
def plan(
    gain: float | None,
    prompts: int | None,
    responses: int | None,
    kl_seq: float | None,
    reward: float | None,
    power: float,
    runs: int,
    figure: str | None,
    force: bool,
    confidence: float,
    as_json: bool,
    **log: Any,
) -> None:
    """Print how many prompts it takes, and what logs can show."""
    asked: dict[str, Any] = {"gain": gain, "prompts": prompts, "responses": responses, "kl_seq": kl_seq}
    m = None if reward is not None and not log["paths"] else reading.open_log(**log).summary()
    with progress("simulating"):
        found = bounds.plan(m, **asked, reward=reward, power=power, confidence=confidence, runs=runs)
    if figure is not None:
        from bounds.figures.logs import draw_plan, plan_frame, plan_told

        frame = plan_frame(found)
        _draw(figure, frame, [draw_plan], 2.4, force=force, told=plan_told(frame))
    emit(found, as_json, full=False)


@command(
    "masks",
    "trm-bounds masks 'run/*.jsonl' --horizon 4096 --mask 'seq_mean_k3<=0.001'",
    f"{reading.PATHS} M is criteria: 'seq_max_k2<=0.05,seq_mean_k3<=0.001', or a trainer's options: "
    "'verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001' (also slime, miles, trl, skyrl, nemo-rl, "
    "prime-rl, ms-swift, openrlhf, areal, roll), a block of YAML as it is pasted.",
)
@reading.log
@reading.mask("default: the paper's TRM-Max with TRM-Avg")
@reading.full
@writes("--write", "write which responses are kept, as Parquet")
def masks(
    mask: bounds.Mask | None, confidence: float, write: str | None, force: bool, full: bool, as_json: bool, **log: Any
) -> None:
    """Print what a mask keeps and costs."""
    from bounds.questions.mask_study import DEFAULT, statistics_for, write_masks

    mask = bounds.Mask.parse(DEFAULT) if mask is None else mask
    source = reading.open_log(**log)
    study = bounds.mask_study(source.summary(statistics=statistics_for(mask)), mask=mask, confidence=confidence)
    if write is not None:
        write_masks(source.log, mask, write, force=force)
    source.tell()
    emit(study, as_json, full)


@command("objectives", "trm-bounds objectives 'run/*.jsonl' --horizon 4096", reading.PATHS)
@reading.log
@reading.mask()
@reading.looking
@reading.full
def objectives(**asked: Any) -> None:
    """Print what trainers optimise, against L'."""
    from bounds.questions.objectives import STATISTICS, objectives

    reading.answer(objectives, statistics=STATISTICS, **asked)


@command("explain", "trm-bounds explain 'run/*.jsonl' --horizon 4096", reading.PATHS)
@reading.log
@reading.full
def explain(**asked: Any) -> None:
    """Print where kl_seq comes from."""
    reading.answer(bounds.explain, **asked)


@command("compare", "trm-bounds compare bf16.jsonl fp16.jsonl --horizon 4096", "Each PATH is one log.")
@reading.log
@reading.full
@writes("--figure", "draw it as PNG, PDF or SVG")
def compare(
    paths: tuple[str, ...], figure: str | None, force: bool, full: bool, confidence: float, as_json: bool, **log: Any
) -> None:
    """Print how logs differ from the first."""
    if len(paths) < 2:
        raise ValueError(f"compare needs two logs, got {len(paths)} (write globs in quotes)")
    logs = [reading.open_log(paths=(path,), **log).summary() for path in paths]
    names = [path if path not in paths[:k] else f"{path} ({k + 1})" for k, path in enumerate(paths)]
    named: dict[str, Any] = {"names": names} if len(paths) > 2 else {}
    found = bounds.compare(*logs, **named, confidence=confidence)
    if figure is not None:
        from bounds.figures.logs import comparison_frame, comparison_told, draw_comparison

        frame = comparison_frame(found)
        draws, height = [draw_comparison] * frame["panel"].nunique(), 0.45 + 0.15 * len(names)
        _draw(figure, frame, draws, height, force=force, told=comparison_told(found))
    emit(found, as_json, full)


def _trainers() -> Iterable[str]:
    from bounds.questions.trainer_metrics import TRAINER_METRICS

    return TRAINER_METRICS


@command("metrics", "trm-bounds metrics 'run/*.jsonl' --as verl", reading.PATHS)
@option("--as", "trainer", metavar="TRAINER", shell_complete=suggest(_trainers),
        help="its own names, equal to its own numbers: verl, trl, nemo-rl, slime, miles, skyrl, prime-rl, openrlhf, "
             "tinker, ms-swift, areal")  # fmt: skip
@reading.log
@reading.full
def metrics(trainer: str | None, **asked: Any) -> None:
    """Print the scalars that trainers log."""
    from bounds.questions.metrics import STATISTICS, metrics
    from bounds.questions.trainer_metrics import needs, trainer_metrics

    if trainer is None:
        reading.answer(metrics, statistics=STATISTICS, **asked)
    else:
        question = lambda summary, confidence: trainer_metrics(summary, trainer)  # noqa: E731
        reading.answer(question, statistics=needs(trainer), **asked)
