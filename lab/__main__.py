"""``python -m lab COMMAND``: pretrain, calibrate, train, compare, tiny, guard, guarded-task."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lab import compare as comparison
from lab import figures, guard, guarded_task
from lab.methods import METHODS
from lab.task import Task
from lab.tiny import TinyRun, run_steps
from lab.train import Pretraining, Run, Trainer, log_over_time, new_model, pretrain, score, train


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; results on stdout, progress on stderr."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(arguments.threads)
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lab: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _pretrain(arguments: argparse.Namespace) -> None:
    task, how = Task(), Pretraining(**_given(arguments, Pretraining))
    torch.manual_seed(how.seed)
    model = new_model(task)
    if arguments.start is not None:
        model.load_state_dict(comparison.load_base(arguments.start))
    pretrain(task, how, model, _progress)
    comparison.save_base(model.state_dict(), arguments.out)
    print(f"{arguments.out}: solves {score(model, task, 256):.1%} of 256 held-out problems")


def _calibrate(arguments: argparse.Namespace) -> None:
    run = comparison.PRESETS["full"].run
    thresholds = comparison.calibrate(comparison.shipped(arguments.base), run, _progress)
    comparison.THRESHOLDS.write_text(json.dumps(thresholds, indent=2) + "\n")
    print(json.dumps(thresholds))


def _train(arguments: argparse.Namespace) -> None:
    run = Run(**_given(arguments, Run))
    if arguments.log is not None:
        log_over_time(run, comparison.shipped(arguments.base), arguments.log, arguments.every, _progress)
        print(arguments.log)
        return
    trainer = Trainer(run, comparison.shipped(arguments.base))
    rows = train(trainer, arguments.folder / f"{run.method}-{run.seed}", _progress)
    print(f"score {rows[-1]['score']:.3f} after {run.steps} steps")


def _compare(arguments: argparse.Namespace) -> None:
    preset = comparison.PRESETS[arguments.preset]
    start = comparison.shipped(arguments.base)
    if arguments.finished:
        rows = comparison.finished(arguments.folder, preset)
    else:
        rows = comparison.compare(preset, start, arguments.folder, _progress, logs=arguments.logs)
    rows = pd.concat([comparison.step_zero(preset, start), rows], ignore_index=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(arguments.out / "metrics.parquet", compression="zstd")
    table = comparison.summary(rows)
    table.to_csv(arguments.out / "summary.csv", index=False, float_format="%.6g")
    print(comparison.as_text(table))
    for path in figures.write_experiment(rows, arguments.figures):
        print(path)


def _tiny(arguments: argparse.Namespace) -> None:
    frame = run_steps(TinyRun(**_given(arguments, TinyRun)), _progress)
    for name in ("improvement", "these_prompts"):
        print(f"{name}: the truth lies in {figures.covered(frame, name).sum()} of {len(frame)} intervals")
    for path in figures.write_tiny(frame, arguments.figures):
        print(path)


def _guard(arguments: argparse.Namespace) -> None:
    table = guard.study(_progress, arguments.scale)
    arguments.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out / "guard.csv", index=False, float_format="%.6g")
    print("\n".join(guard.as_text(table, name) for name in guard.STUDIES))


def _guarded_task(arguments: argparse.Namespace) -> None:
    start, seeds = comparison.shipped(arguments.base), guarded_task.SEEDS[: arguments.seeds]
    rows = guarded_task.runs(guarded_task.RUN, start, guarded_task.KINDS, seeds, arguments.table, _progress)
    print(guarded_task.as_text(rows))


def _given(arguments: argparse.Namespace, kind: type[Any]) -> dict[str, Any]:
    return {f.name: getattr(arguments, f.name) for f in fields(kind)}


def _options(parser: argparse.ArgumentParser, kind: type[Any], **defaults: Any) -> None:
    """Add one option for each field of a settings class."""
    for f in fields(kind):
        choices = sorted(METHODS) if f.name == "method" else None
        default = defaults.get(f.name, f.default)
        parser.add_argument(f"--{f.name.replace('_', '-')}", type=type(default), default=default, choices=choices)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--base", type=Path, default=comparison.BASE, help="pretrained weights")
        sub.add_argument("--folder", type=Path, default=Path("lab/runs"), help="where runs are kept, to be resumed")
        sub.add_argument("--figures", type=Path, default=Path("lab/runs/figures"), help="where figures go")
        return sub

    sub = command("pretrain", _pretrain, "make the base policy from generated text")
    sub.add_argument("--out", type=Path, default=comparison.BASE)
    sub.add_argument("--start", type=Path, help="weights to go on from")
    _options(sub, Pretraining)
    command("calibrate", _calibrate, "fix the thresholds on the calibration seed")
    sub = command("train", _train, "one training run")
    sub.add_argument("--log", type=Path, help="only a log of it over time, for trm-bounds steps")
    sub.add_argument("--every", type=int, default=2, help="with --log: every so many steps (default 2)")
    _options(sub, Run, method="trm-avg", seed=0)
    sub = command("compare", _compare, "all runs of a preset, the table and the figures")
    sub.add_argument("--preset", choices=sorted(comparison.PRESETS), default="quick")
    sub.add_argument("--out", type=Path, default=Path("lab/runs/results"), help="where the table goes")
    sub.add_argument("--logs", type=Path, default=None, help="write a log of one run of each method there")
    sub.add_argument("--finished", action="store_true", help="run nothing: report the runs that are done")
    _options(command("tiny", _tiny, "the enumerated problem: bounds against the truth"), TinyRun)
    sub = command("guard", _guard, "the enumerated problem: steps that are judged before they count")
    sub.add_argument("--out", type=Path, default=Path("lab/runs/results"), help="where the table goes")
    sub.add_argument("--scale", type=float, default=1.0, help="of runs and held-out prompts (default 1)")
    sub = command("guarded-task", _guarded_task, "the arithmetic task: steps that are judged before they count")
    sub.add_argument(
        "--table", type=Path, default=Path("lab/runs/guarded-task.csv"), help="what was run; it is gone on from"
    )
    sub.add_argument("--seeds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())
