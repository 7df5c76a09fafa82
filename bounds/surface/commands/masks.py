"""``trm-bounds masks``: what a mask keeps of a log, and what it costs in the guarantee."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bounds.surface.commands.options import command, emit, number
from bounds.surface.commands.reading import add_reading_options, reading_from


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "masks",
        _masks,
        "what a mask keeps by threshold, length and reward, and its cost (without PATH: the embedded example)",
        "trm-bounds masks run/*.jsonl --horizon 4096 --mask 'verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001'",
    )
    add_reading_options(parser)
    parser.add_argument(
        "--mask",
        metavar="M",
        help="criteria such as 'seq_max_k2<=0.05,seq_mean_k3<=0.001', or a trainer's options, TRAINER:NAME=VALUE "
        "(verl, slime, trl, skyrl, nemo-rl, prime-rl, ms-swift); default: the paper's TRM-Max with TRM-Avg",
    )
    parser.add_argument("--confidence", type=number, default=0.95, metavar="C", help="default: 0.95")
    parser.add_argument("--write", metavar="FILE", help="write which responses are kept, as Parquet")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _masks(arguments: argparse.Namespace) -> int:
    from bounds.evidence.mask_file import write_masks
    from bounds.evidence.masks import DEFAULT, mask_study
    from bounds.evidence.readers import read_traces
    from bounds.evidence.whole_file import check_free
    from bounds.theory.masking import Mask

    mask = Mask.parse(DEFAULT if arguments.mask is None else arguments.mask)
    if arguments.write is not None:
        check_free(arguments.write, force=arguments.force)
    traces = read_traces(**reading_from(arguments))
    study = mask_study(traces, mask=mask, confidence=arguments.confidence)
    if arguments.write is not None:
        write_masks(traces, mask, arguments.write, force=arguments.force)
    emit(study if arguments.json else replace(study, warnings=()), arguments.json)
    for warning in study.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 0
