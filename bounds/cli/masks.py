"""``trm-bounds masks``: what a mask keeps of a log, and what it costs in the guarantee."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bounds._checks import confidence_level
from bounds.cli.options import add_confidence, add_json, command, emit
from bounds.cli.progress import reading_progress
from bounds.cli.reading import add_reading_options, reading_from


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "masks",
        _masks,
        "what a mask keeps of a log, and what that costs",
        "trm-bounds masks 'run/*.jsonl' --horizon 4096 --mask 'seq_mean_k3<=0.001'",
        operands="[PATH ...]",
        more="Without PATH: the embedded example. A mask M is criteria, such as\n"
        "'seq_max_k2<=0.05,seq_mean_k3<=0.001', or a trainer's own options, such as\n"
        "'verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001' (also slime, trl,\n"
        "skyrl, nemo-rl, prime-rl, ms-swift).",
    )
    add_reading_options(parser)
    parser.add_argument("--mask", metavar="M", help="default: the paper's TRM-Max with TRM-Avg")
    add_confidence(parser)
    parser.add_argument("--write", metavar="FILE", help="write which responses are kept, as Parquet")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    add_json(parser)


def _masks(arguments: argparse.Namespace) -> int:
    from bounds._files import check_free
    from bounds.certificate.stream import stream
    from bounds.masks.mask import Mask
    from bounds.questions.mask_study import DEFAULT, mask_study, statistics_for, write_masks

    mask = Mask.parse(DEFAULT if arguments.mask is None else arguments.mask)
    if arguments.write is not None:
        check_free(arguments.write, force=arguments.force)
    confidence_level(arguments.confidence)
    log = stream(**reading_from(arguments))
    with reading_progress() as progress:
        m = log.moments(statistics=statistics_for(mask), progress=progress)
    study = mask_study(m, mask=mask, confidence=arguments.confidence)
    if arguments.write is not None:
        write_masks(log, mask, arguments.write, force=arguments.force)
    emit(study if arguments.json else replace(study, findings=()), arguments.json)
    for warning in study.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 0
