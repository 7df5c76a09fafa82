"""One self-contained HTML page about a log: what is guaranteed, what was seen, and how the page was made.

The page asks no network for anything and runs no code of the log: every text is escaped, pictures are inline SVG.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from typing import TYPE_CHECKING

from bounds._text import Cells, Row
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import Comparison
from bounds.certificate.guarantee import HYPOTHESES
from bounds.figures import plots
from bounds.figures.style import COLUMN, look, svg
from bounds.masks.mask import PAPER
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """The page as HTML text.

    Parameters
    ----------
    certificate : Certificate
        From :func:`bounds.certify`.
    by_position, masks, run : results, optional
        Of the same log, from :func:`bounds.by_position`, :func:`bounds.mask_study` and :func:`bounds.over_time`.
    command : str
        The command that made the page, shown as it is.

    Examples
    --------
    >>> import bounds
    >>> text = page(bounds.certify(bounds.example_traces()))
    >>> text.startswith("<!DOCTYPE html>"), "J(theta) - J(roll) is between" in text
    (True, True)
    """
    import jinja2

    sections = [
        _guaranteed(certificate),
        _ladder(certificate),
        _estimates(certificate),
        _seen(certificate),
        *([] if by_position is None else [_positions(by_position)]),
        *([] if masks is None else [_masks(masks, certificate.warnings)]),
        *([] if run is None else [_over_time(run)]),
        *([] if certificate.noise_floor is None else [_noise_floor(certificate.noise_floor)]),
        _made(certificate, command),
    ]
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(resources.files("bounds").joinpath("report.html").read_text("utf-8"))
    return template.render(
        heading=certificate.heading(), verdict=_verdict(certificate), sentence=certificate.sentence(), sections=sections
    )


def _verdict(certificate: Certificate) -> str:
    """What the colour of the sentence says, too: gain, loss or open."""
    i = certificate.guarantees.headline(certificate.prompts)
    if i is None or certificate.doubted:
        return "open"
    return "gain" if i.low > 0.0 else "loss" if i.high < 0.0 else "open"


def _guaranteed(c: Certificate) -> Section:
    kinds = (
        (True, "J(theta) - J(roll), at this confidence for every sample size"),
        (False, "J(theta) - J(roll), estimated: asymptotic, no guarantee"),
    )
    found = ((caption, c.guarantee_cells(measured=measured)) for measured, caption in kinds)
    low, high = c.table.profile["reward_range"]
    return Section(
        "guaranteed",
        "What is guaranteed",
        ("It rests on this, none of which can be read off the log:",),
        points=(*HYPOTHESES, f"rewards lie in their declared range, {low:g} to {high:g}"),
        tables=tuple((caption, cells) for caption, cells in found if cells[1]),
    )


def _ladder(c: Certificate) -> Section:
    def draw(axes: Sequence[Axes]) -> None:
        plots.plot_ladder(c, axes[0])

    rungs = len(plots.ladder_frame(c))
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
        picture=_picture("bounds", draw, title, 1.0 + 0.19 * rungs),
        tables=(("Every bound, smallest first", c.bound_cells()),),
    )


def _estimates(c: Certificate) -> Section:
    text = f"{c.of_intervals()} KL is in nats, of a response unless the name says token."
    return Section("estimates", "Estimates", (text,), tables=(("Estimates", c.estimate_cells()),))


def _seen(c: Certificate) -> Section:
    extra = [w for w in c.warnings if w not in {f.text for f in c.diagnosis}]
    if not c.diagnosis and not extra:
        return Section("log", "What was seen in the log", ("Nothing remarkable was seen.",))
    tables = (("What was seen, and what it does", c.diagnosis_cells()),) if c.diagnosis else ()
    return Section(
        "log",
        "What was seen in the log",
        points=(*(f.text for f in c.diagnosis), *extra),
        tables=tables,
    )


def _positions(found: ByPosition) -> Section:
    def draw(axes: Sequence[Axes]) -> None:
        plots.plot_by_position(found, axes)

    kinds = ", ".join(found.bins.names)
    title = f"Mean divergence of a token ({kinds}) by its position in the response. {found.sentence()}"
    return Section(
        "positions",
        "Where in the response",
        (found.sentence(), *found.notes()),
        picture=_picture("positions", draw, title, 1.6 * len(found.bins.names), panels=len(found.bins.names)),
        tables=(("Divergence of a token by position", found.tables()[0]),),
    )


def _masks(study: MaskStudy, said: tuple[str, ...]) -> Section:
    panels = plots.mask_frame(study)["panel"].nunique()

    def draw(axes: Sequence[Axes]) -> None:
        plots.plot_masks(study, axes)

    news = (w for w in study.warnings if w not in said)
    asked = "" if study.mask.rule not in PAPER.values() else " (the paper's)"
    title = f"What masks keep, and what is left of the guarantee. {study.sentence()}"
    captions = ("Masks: what is kept, and the gain", "Terms of this mask", "By length")
    cells = study.tables()
    chosen = captions if len(cells) == len(captions) else (captions[0], captions[2])
    return Section(
        "masks",
        "What masks would do",
        (
            f"Looked at: {study.mask.rule}{asked}. {study.sentence()}",
            "A mask changes no bound: it changes neither policy.",
        ),
        picture=_picture("masks", draw, title, 2.4 * panels, panels=panels) if panels else "",
        points=(*(n for n in study.notes() if not n.startswith("Warning")), *news),
        tables=tuple(zip(chosen, cells, strict=True)),
    )


def _over_time(run: RunOverTime) -> Section:
    panels = plots.over_time_frame(run)["panel"].nunique()

    def draw(axes: Sequence[Axes]) -> None:
        plots.plot_over_time(run, axes)

    return Section(
        "steps",
        "Step by step",
        (run.sentence(), *run.notes()),
        picture=_picture("steps", draw, f"The run step by step. {run.sentence()}", 1.4 * panels, panels=panels),
        tables=tuple(zip(("Divergences by step", "What the steps bring"), run.tables(), strict=False)),
    )


def _noise_floor(noise: Comparison) -> Section:
    return Section(
        "noise",
        "Against the noise floor",
        ("First: two forward passes of the same weights. Second: this log.", noise.sentence()),
        tables=(("Noise floor and this log", noise.tables()[0]),),
    )


def _made(c: Certificate, command: str) -> Section:
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    rows: list[Row] = [
        ([name, version], False) for name, version in {"python": platform.python_version(), **versions}.items()
    ]
    return Section(
        "made",
        "What was assumed, and how this page was made",
        (f"Command: {command}",) if command else (),
        points=tuple(c.details()),
        tables=(("Versions", (["library", "version"], rows)),),
    )


def _picture(anchor: str, draw: Callable[[Sequence[Axes]], None], title: str, height: float, *, panels: int = 1) -> str:
    from matplotlib.figure import Figure

    with look("page"):
        figure = Figure(figsize=(COLUMN, height), layout="constrained")
        draw(list(figure.subplots(panels, 1, squeeze=False)[:, 0]))
        return svg(figure, title, f"{anchor}-")
