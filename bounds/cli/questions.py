"""Commands that ask one question of a log: steps, masks, objectives, explain, compare, metrics."""

from __future__ import annotations

from typing import Any

import bounds
from bounds.cli import options
from bounds.cli.command import FILE, command, number, option
from bounds.cli.output import emit
from bounds.cli.reading import answer, open_log


@command("steps", "trm-bounds steps 'run/*.jsonl' --horizon 4096 --limit 0.5", options.PATHS)
@options.log
@options.mask()
@option("--limit", type=number, metavar="NATS", help="exit 1 unless kl_seq stays below it")
@option("--time-uniform", is_flag=True, help="all steps hold at once, also if looked at after each")
@options.looking
@option("--figure", type=FILE, metavar="FILE", help="draw it as PNG, PDF or SVG")
@options.force
def steps(
    confidence: float,
    mask: bounds.Mask | None,
    limit: float | None,
    time_uniform: bool,
    figure: str | None,
    force: bool,
    as_json: bool,
    **log: Any,
) -> int:
    """Print a run over time; 1 where it leaves the limit that was given."""
    from bounds._files import check_free

    if figure is not None:
        check_free(figure, force=force)
    m = open_log(example="run", **log).summary(mask=mask)
    limits = {} if limit is None else {"limit": limit}
    run = bounds.over_time(m, confidence=confidence, mask=mask, time_uniform=time_uniform, **limits)
    if figure is not None:
        _draw(run, figure, force=force)
    emit(run, as_json)
    return 1 if limit is not None and run.lost is not None else 0


def _draw(run: Any, path: str, *, force: bool) -> None:
    from matplotlib.figure import Figure

    from bounds._files import whole_file
    from bounds.figures.logs import over_time_frame
    from bounds.figures.plots import plot_over_time
    from bounds.figures.style import COLUMN, look

    panels = over_time_frame(run)["panel"].nunique()
    with look("light"), whole_file(path, force=force) as unfinished:
        figure = Figure(figsize=(COLUMN, 1.4 * panels), layout="constrained")
        plot_over_time(run, list(figure.subplots(panels, 1)))
        figure.savefig(unfinished, dpi=300)


@command(
    "masks",
    "trm-bounds masks 'run/*.jsonl' --horizon 4096 --mask 'seq_mean_k3<=0.001'",
    f"{options.PATHS} A mask M is criteria, such as 'seq_max_k2<=0.05,seq_mean_k3<=0.001', or a trainer's own options, "
    "such as 'verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001' (also slime, trl, skyrl, nemo-rl, prime-rl, "
    "ms-swift).",
)
@options.log
@options.mask("default: the paper's TRM-Max with TRM-Avg")
@option("--write", type=FILE, metavar="FILE", help="write which responses are kept, as Parquet")
@options.force
def masks(
    mask: bounds.Mask | None, confidence: float, write: str | None, force: bool, as_json: bool, **reading: Any
) -> None:
    """Print what a mask keeps and costs."""
    from bounds._files import check_free
    from bounds.questions.mask_study import DEFAULT, statistics_for, write_masks

    mask = bounds.Mask.parse(DEFAULT) if mask is None else mask
    if write is not None:
        check_free(write, force=force)
    source = open_log(**reading)
    study = bounds.mask_study(source.summary(statistics=statistics_for(mask)), mask=mask, confidence=confidence)
    if write is not None:
        write_masks(source.log, mask, write, force=force)
    emit(study, as_json)


@command("objectives", "trm-bounds objectives 'run/*.jsonl' --horizon 4096", options.PATHS)
@options.log
@options.mask()
@options.looking
def objectives(**asked: Any) -> None:
    """Print what trainers optimise, against L'."""
    from bounds.questions.objectives import STATISTICS, objectives

    answer(objectives, statistics=STATISTICS, **asked)


@command("explain", "trm-bounds explain 'run/*.jsonl' --horizon 4096", options.PATHS)
@options.log
def explain(**asked: Any) -> None:
    """Print where kl_seq comes from."""
    answer(bounds.explain, **asked)


@command("compare", "trm-bounds compare bf16.jsonl fp16.jsonl --horizon 4096", "Each PATH is one log.")
@options.log
def compare(paths: tuple[str, ...], confidence: float, as_json: bool, **reading: Any) -> None:
    """Print how two logs differ."""
    if len(paths) != 2:
        raise ValueError(f"compare needs two logs, got {len(paths)} (write globs in quotes)")
    logs = [open_log(paths=(path,), **reading).summary() for path in paths]
    emit(bounds.compare(*logs, confidence=confidence), as_json)


@command("metrics", "trm-bounds metrics 'run/*.jsonl' --json", options.PATHS)
@options.log
def metrics(**asked: Any) -> None:
    """Print the scalars that trainers log."""
    from bounds.questions.metrics import STATISTICS, metrics

    answer(metrics, statistics=STATISTICS, **asked)
