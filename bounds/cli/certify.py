"""``trm-bounds certify``: estimates, guarantees and bounds from a log."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import bounds
from bounds.cli import options
from bounds.cli.command import FILE, command, option
from bounds.cli.output import emit, progress
from bounds.cli.reading import Source, open_log

if TYPE_CHECKING:
    pass


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
            raise ValueError(f"--require must be QUANTITY<=VALUE or QUANTITY>=VALUE, got {text!r}")
        name, sign, value = (part.strip() for part in found.groups())
        if (limit := parse_number(value)) != limit:
            raise ValueError(f"--require needs a number to compare with, got {text!r}")
        require.append((name, sign, limit))
    return require


@command("certify", "trm-bounds certify 'run/*.jsonl' --horizon 4096 --require 'b_star_upper<=.2'", options.PATHS)
@options.log
@options.mask()
@option("--assume", multiple=True, callback=_assumptions, metavar="NAME=VALUE",
        help="what no sample shows: delta=1e-3 (repeatable)")  # fmt: skip
@option("--require", multiple=True, callback=_requirements, metavar="QUANTITY<=VALUE",
        help="exit 1 unless a whole interval does (repeatable)")  # fmt: skip
@option("--noise-floor", type=FILE, metavar="FILE", rare=True, help="a log of the same weights, scored twice")
@options.looking
@option("--html", type=FILE, metavar="FILE", help="all of it as one page that needs no network")
@options.force
def certify(
    confidence: float,
    mask: bounds.Mask | None,
    assume: dict[str, Any],
    require: list[tuple[str, str, float]],
    noise_floor: str | None,
    html: str | None,
    force: bool,
    as_json: bool,
    **log: Any,
) -> int:
    """Print the certificate; 1 unless all that is required holds."""
    from bounds._files import check_free
    from bounds.questions.mask_study import DEFAULT, statistics_for

    if html is not None:
        check_free(html, force=force)
    noise = None
    if noise_floor is not None:
        as_it_is = {"train": (), "without_staleness": False, "split": False, "engine": "local", "resume": None}
        noise = open_log(**{**log, **as_it_is, "paths": (noise_floor,)}).summary()
    source = open_log(**log)
    statistics = () if html is None else statistics_for(bounds.Mask.parse(DEFAULT) if mask is None else mask)
    m = source.summary(mask=mask, statistics=statistics, suprema=bool(assume))
    result = bounds.certify(m, confidence=confidence, mask=mask, assume=assume, noise_floor=noise)
    not_so = [text for text in (_unmet(result, *r) for r in require) if text]
    if html is not None:
        _write_page(html, result, source, m, mask=mask, confidence=confidence, force=force)
    emit(result, as_json)
    for text in not_so:
        print(f"trm-bounds: required, but it does not hold: {text}", file=sys.stderr)
    return 1 if not_so else 0


def _unmet(result: bounds.Certificate, name: str, sign: str, limit: float) -> str:
    """Say what was found instead, or nothing where the requirement holds."""
    found = result.quantity(name, upper=sign == "<=")
    if found is not None and (found <= limit if sign == "<=" else found >= limit):
        return ""
    end = "" if name.startswith("b_star") else "its upper limit " if sign == "<=" else "its lower limit "
    nothing = result.reasons.get(name, "nothing that is more than optimistic")
    if result.shows_nothing:
        nothing = "both policies' log-probs bitwise identical, as copies are (the same for certain: --assume delta=0)"
    what = nothing if found is None else f"{end}{found:.6g}"
    return f"{name}{sign}{limit:g}, found {what}"


def _write_page(path: str, result: bounds.Certificate, source: Source, m: Any, *, force: bool, **asked: Any) -> None:
    """Write the page, from what was kept of the log; only divergence by position needs another reading."""
    from bounds._files import whole_file
    from bounds.report import page

    with progress("reading again, by position, and writing the page"):
        text = page(
            result,
            by_position=bounds.by_position(source.log, confidence=asked["confidence"]),
            masks=bounds.mask_study(m, **asked),
            run=bounds.over_time(m, **asked) if len(m.labels.get("step", ())) > 1 else None,
            command=click.get_current_context().obj,
        )
    with whole_file(path, force=force) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    print(f"wrote {path}", file=sys.stderr)
