"""One self-contained HTML page about a log: what is guaranteed, what was seen, and how the page was made.

The page asks no network for anything and runs no code of the log: every text is escaped, pictures are inline SVG.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata, resources
from typing import TYPE_CHECKING

from bounds._text import Cells, visible_lines
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import Comparison
from bounds.certificate.guarantees import HYPOTHESES
from bounds.figures import logs
from bounds.figures.drawing import Draw, figure_of
from bounds.figures.style import look, svg
from bounds.masks.mask import PAPER
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime

if TYPE_CHECKING:
    import pandas as pd

_LIBRARIES = ("trm-bounds", "numpy", "scipy", "pandas", "matplotlib", "pyarrow")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: paragraphs, a picture (SVG), a list, tables; with a picture, tables fold behind it."""

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    picture: str = ""
    points: tuple[str, ...] = ()
    tables: tuple[tuple[str, Cells], ...] = ()  # caption, cells


def page(
    certificate: Certificate,
    *,
    by_position: ByPosition | None = None,
    masks: MaskStudy | None = None,
    run: RunOverTime | None = None,
    command: str = "",
) -> str:
    """Write the page about a log.

    Parameters
    ----------
    certificate : Certificate
        From :func:`bounds.certify`.
    by_position, masks, run : results, optional
        Of the same log, from :func:`bounds.by_position`, :func:`bounds.mask_study` and :func:`bounds.over_time`.
    command : str
        The command that made the page, shown as it is.

    Returns
    -------
    str
        HTML that needs no other file.

    Examples
    --------
    >>> import bounds
    >>> text = page(bounds.certify(bounds.example_traces()))
    >>> text.startswith("<!DOCTYPE html>"), "J(theta) - J(roll) is between" in text
    (True, True)
    """
    import jinja2

    c = certificate
    sections = [
        _guaranteed(c),
        _ladder(c),
        Section(
            "estimates",
            "Estimates",
            (f"{c.of_intervals()} KL is in nats, of a response unless the name says token.",),
            tables=(("Estimates", c.estimate_cells()),),
        ),
        _seen(c),
        *([] if by_position is None else [_positions(by_position)]),
        *([] if masks is None else [_masks(masks, c.warnings)]),
        *([] if run is None else [_over_time(run)]),
        *([] if c.noise_floor is None else [_noise_floor(c.noise_floor)]),
        _made(c, command),
    ]
    text = resources.files("bounds").joinpath("report.html").read_text("utf-8")
    template: jinja2.Template = jinja2.Template(
        text, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    return template.render(heading=c.heading(), verdict=_verdict(c), sentence=c.sentence(), sections=sections)


def _shown(value: object) -> object:
    """Escape what is not printable in text; what was made as HTML is left as it is."""
    return visible_lines(value) if type(value) is str else value


def _verdict(c: Certificate) -> str:
    """Return what the colour of the sentence says, too: gain, loss or open."""
    i = c.guarantees.headline(c.prompts)
    if i is None or c.doubted:
        return "open"
    return "gain" if i.low > 0.0 else "loss" if i.high < 0.0 else "open"


def _guaranteed(c: Certificate) -> Section:
    low, high = c.table.profile["reward_range"]
    tables = (
        ("J(theta) - J(roll), at this confidence for every sample size", c.guarantee_cells(measured=True)),
        ("J(theta) - J(roll), estimated: asymptotic, no guarantee", c.guarantee_cells(measured=False)),
    )
    return Section(
        "guaranteed",
        "What is guaranteed",
        ("It rests on this, none of which can be read off the log:",),
        points=(*HYPOTHESES, f"rewards lie in their declared range, {low:g} to {high:g}"),
        tables=tuple((caption, cells) for caption, cells in tables if cells[1]),
    )


def _ladder(c: Certificate) -> Section:
    frame = logs.ladder_frame(c)
    best = "no bound applies" if c.best is None else f"the smallest bound is {c.best.name}"
    title = f"Bounds on the error of the surrogate, largest first; {best}. The table behind has every number."
    claim = () if c.guarantees.claim is None else (f"{c.guarantees.claim}. That is no guarantee.",)
    return Section(
        "bounds",
        "How wrong the surrogate can be",
        (
            "From above, bounds on |J(theta) - J(roll) - L'|, at estimates and so estimates themselves; then the worst "
            "error of any reward that these responses show. Open marks need a largest divergence, which no sample "
            "shows: they stand at the largest one seen, and guarantee nothing.",
            *claim,
        ),
        picture=_picture("bounds", frame, logs.draw_ladder, title, 0.6 + 0.19 * len(frame)),
        tables=(("Every bound, smallest first", c.bound_cells()),),
    )


def _seen(c: Certificate) -> Section:
    return Section(
        "log",
        "What was seen in the log",
        () if c.findings else ("Nothing remarkable was seen.",),
        points=c.warnings,
        tables=(("What was seen, and what it does", c.finding_cells()),) if c.findings else (),
    )


def _positions(found: ByPosition) -> Section:
    kinds, sentence = ", ".join(found.bins.names), found.sentence()
    title = f"Mean divergence of a token ({kinds}) by its position in the response. {sentence}"
    return Section(
        "positions",
        "Where in the response",
        (sentence, *found.notes()),
        picture=_picture("positions", logs.kl_by_position(found), logs.draw_positions, title, 1.4),
        tables=_captioned(found.tables(), "Divergence of a token by position"),
    )


def _masks(study: MaskStudy, said: tuple[str, ...]) -> Section:
    asked = "" if study.mask.rule not in PAPER.values() else " (the paper's)"
    frame, title = logs.mask_frame(study), "What masks keep, and what is left of the guarantee."
    terms = () if study.effect.lower is None else ("Terms of this mask",)
    return Section(
        "masks",
        "What masks would do",
        (
            f"Looked at: {study.mask.rule}{asked}. {study.sentence()}",
            "A mask changes no bound: it changes neither policy.",
        ),
        picture="" if frame.empty else _picture("masks", frame, logs.draw_masks, f"{title} {study.sentence()}", 1.5),
        points=(*study.notes(), *(warning for warning in study.warnings if warning not in said)),
        tables=_captioned(study.tables(), "Masks: what is kept, and the gain", *terms, "By length"),
    )


def _over_time(run: RunOverTime) -> Section:
    title, frame = f"The run step by step. {run.sentence()}", logs.over_time_frame(run)
    return Section(
        "steps",
        "Step by step",
        (run.sentence(), *run.notes()),
        picture=_picture("steps", frame, logs.draw_over_time, title, 0.9, columns=2),
        tables=_captioned(run.tables(), "Divergences by step", "What the steps bring", "What was promised so far"),
    )


def _noise_floor(noise: Comparison) -> Section:
    return Section(
        "noise",
        "Against the noise floor",
        ("First: two forward passes of the same weights. Second: this log.", noise.sentence()),
        tables=_captioned(noise.tables(), "Noise floor and this log"),
    )


def _made(c: Certificate, command: str) -> Section:
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in _LIBRARIES}}
    cells: Cells = ["library", "version"], [([name, version], False) for name, version in versions.items()]
    return Section(
        "made",
        "What was assumed, and how this page was made",
        (f"Command: {command}",) if command else (),
        points=tuple(c.details()),
        tables=(("Versions", cells),),
    )


def _captioned(tables: list[Cells], *captions: str) -> tuple[tuple[str, Cells], ...]:
    return tuple(zip(captions, tables, strict=True))


def _picture(anchor: str, frame: pd.DataFrame, draw: Draw, title: str, height: float, columns: int = 1) -> str:
    """Draw a frame as SVG; its height is that of a row of panels, in inches."""
    panels = frame["panel"].nunique() if "panel" in frame else 1
    with look("page"):
        figure = figure_of(frame, (draw,) * panels, height * -(-panels // columns), columns=columns)
        return svg(figure, title, f"{anchor}-")
