"""Options that commands share, declared once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bounds.cli.command import FILE, Decorator, group, number, option, suggest, whole
from bounds.cli.reading import READABLE

if TYPE_CHECKING:
    from bounds.masks.mask import Mask

_FORMATS = ("auto", *READABLE)
_DTYPES = ("float32", "float16", "bfloat16")  # how positive a log-prob may be
#: What help says about PATH.
PATHS = "Each PATH is a file (.gz, .zst), a folder or a glob of one run; without PATH: the embedded example."


def _confidence(ctx: click.Context, _: click.Parameter, value: float) -> float:
    from bounds._checks import confidence_level

    return confidence_level(value)


def _mask(ctx: click.Context, _: click.Parameter, text: str | None) -> Mask | None:
    from bounds.masks.mask import Mask

    return None if text is None else Mask.parse(text)


def reward_range(default: tuple[str, str] | None) -> Decorator:
    """Declare the lowest and the highest reward."""
    return option(
        "--reward-range", nargs=2, type=number, default=default, metavar="LOW HIGH", help="of a reward; default: 0 1"
    )


def mask(help: str = "what a mask keeps; see trm-bounds masks --help") -> Decorator:
    """Declare a mask."""
    return option("--mask", callback=_mask, metavar="M", help=help)


as_json = option("--json", "as_json", is_flag=True, help="one JSON object, full precision")
force = option("--force", is_flag=True, help="overwrite FILE")

#: What every command on a log has: PATH, what :func:`bounds.read_traces` can be told about it (by its names), and how
#: the answer is given.
log = group(
    click.argument("paths", nargs=-1, type=FILE, metavar="[PATH ...]"),
    option("--horizon", type=whole, metavar="T", help="the generation cap, in policy tokens"),
    reward_range(("0", "1")),
    option("--train", several=True, type=FILE, metavar="PATH ...", help="the half that the trained weights scored"),
    option("--format", default="auto", metavar="F", shell_complete=suggest(lambda: _FORMATS), rare=True,
           help=f"one of {', '.join(_FORMATS)}"),
    option("--group-size", type=whole, metavar="N", rare=True, help="every N rows of a file answer one prompt"),
    option("--logprob-dtype", default="float32", metavar="D", shell_complete=suggest(lambda: _DTYPES), rare=True,
           help=", ".join(_DTYPES)),
    option("--drop-missing", "on_missing", flag_value="drop", default="error", rare=True,
           help="leave responses with missing values out, and say so"),
    option("--confidence", type=number, default="0.95", callback=_confidence, metavar="C",
           help="of intervals; default: 0.95"),
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
