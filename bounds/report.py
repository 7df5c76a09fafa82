"""One self-contained HTML page about a log: the answer, what to do, why, everything.

The page asks no network for anything and runs no code of the log: every text is escaped, pictures are rows of HTML or
inline SVG.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._text import Cells, shown, visible_lines
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import Comparison
from bounds.certificate.gate import Gate
from bounds.certificate.guarantees import HYPOTHESES
from bounds.certificate.verdict import Word, lines
from bounds.figures import logs
from bounds.figures.drawing import FAMILY_COLOURS, Draw, figure_of, signed, typeset, upward
from bounds.figures.style import PALETTE, look, svg
from bounds.glossary import GLOSSARY
from bounds.masks.mask import PAPER
from bounds.questions.by_position import ByPosition
from bounds.questions.mask_study import MaskStudy
from bounds.questions.over_time import RunOverTime
from bounds.results import Standing

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

_LIBRARIES = ("trm-bounds", "numpy", "scipy", "pandas", "matplotlib", "pyarrow")
#: Inches of a picture beside its text's fixed size: where it fills a page's column, and a phone's.
_WIDE, _PHONE = 5.5, 2.3
#: Columns that are told under the name of a row, so that those which decide fit a phone.
_UNDER_THE_NAME = ("family", "standing", "how", "from", "filled in", "what it does")
#: What a log says first, in words.
_FIRST = {
    "improvement": "Change of the mean reward",
    "surrogate_gain": "Promise of the surrogate",
    "kl_seq": "KL of a response, nats",
    "worst_case_error": "Worst error of the surrogate",
    "tv_seq": "Total variation of a response",
    "reward": "Mean reward of the rollout policy",
    "mean_length": "Length of a response, tokens",
}
_CHANGES = ("improvement", "surrogate_gain")
_STANDINGS = {standing.label for standing in Standing}
_STANDING = {Standing.MEASURED: "guaranteed", Standing.ESTIMATED: "estimate", Standing.ASSUMED: "assumed"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a picture: an interval, a point, numbers; every place in percent of the axis."""

    name: str
    note: str
    numbers: tuple[str, ...]
    hue: str
    filled: bool  # a filled dot and a thick line, else an estimate
    first: bool = False  # the one that decides
    low: float | None = None
    high: float | None = None
    at: float | None = None
    opens: tuple[str, ...] = ()  # sides on which it goes on for ever: "left", "right"


@dataclass(frozen=True, slots=True)
class Rows:
    """A picture whose rows share an axis, as HTML: its text keeps its size on a phone."""

    label: str
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    caption: str
    marks: tuple[str, str]  # what filled and hollow marks say
    titles: tuple[str, ...] = ()
    zero: float | None = None
    promise: float | None = None
    band: tuple[float, float] | None = None
    wash: float | None = None  # from here on a bound says nothing


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: paragraphs, a picture, a list, tables; with a picture, tables fold behind it."""

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    rows: Rows | None = None
    drawn: tuple[str, ...] = ()  # SVG: for a wide column, for a phone
    points: tuple[str, ...] = ()
    tables: tuple[tuple[str, Cells], ...] = ()  # caption, cells
    command: str = ""


def page(
    certificate: Certificate,
    *,
    by_position: ByPosition | None = None,
    masks: MaskStudy | None = None,
    run: RunOverTime | None = None,
    gates: Sequence[Gate] = (),
    name: str = "",
    command: str = "",
    reload: int = 0,
) -> str:
    """Write the page about a log.

    Parameters
    ----------
    certificate : Certificate
        From :func:`bounds.certify`.
    by_position, masks, run : results, optional
        Of the same log, from :func:`bounds.by_position`, :func:`bounds.mask_study` and :func:`bounds.over_time`.
    gates : sequence of Gate
        What was required of the log, and whether it holds.
    name : str
        What the log is called.
    command : str
        The command that made the page, shown as it is.
    reload : int
        After so many seconds the page reads itself again, while it follows a run; 0: never.

    Returns
    -------
    str
        HTML that needs no other file.

    Examples
    --------
    >>> import bounds
    >>> text = page(bounds.certify(bounds.example_traces()))
    >>> text.startswith("<!DOCTYPE html>"), "UNDECIDED" in text
    (True, True)
    """
    import jinja2

    c, v = certificate, certificate.verdict
    sections = [
        _first(c),
        _rests(c),
        _seen(c),
        _ladder(c),
        *([] if by_position is None else [_positions(by_position)]),
        *([] if masks is None else [_masks(masks, c.warnings)]),
        *([] if run is None else [_over_time(run)]),
        *([] if c.noise_floor is None else [_noise_floor(c.noise_floor)]),
        _everything(c),
        _made(c, command),
    ]
    links, now = _Links(), datetime.now()
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters |= {"linked": links, "folded": _folded, "code": _code, "formula": formula}
    environment.globals["zip"] = zip
    text = resources.files("bounds").joinpath("report.html").read_text("utf-8")
    return environment.from_string(text).render(
        reload=reload,
        name=name,
        date=f"{now.day} {now:%B %Y}",
        certificate=c,
        verdict=v,
        hue=logs.HUES[v.word.colour],
        said=dict(lines(c, v)),
        picture=_verdict(c),
        gates=gates,
        sections=sections,
        terms=links.terms,
        palette=PALETTE,
    )


# --- text ----------------------------------------------------------------------------------------------------------

#: As figures have it: (theta, a minus sign before a number or between two things, comparisons), not within options.
_SET = (
    (re.compile(r"\btheta\b"), "\N{GREEK SMALL LETTER THETA}"),
    (re.compile(r"(?<![\w.)\]-])-(?=\.?\d|inf\b)|(?<= )-(?= )"), "\N{MINUS SIGN}"),
    (re.compile(r"(?<= )<=(?= |$)"), "\N{LESS-THAN OR EQUAL TO}"),
    (re.compile(r"(?<= )>=(?= |$)"), "\N{GREATER-THAN OR EQUAL TO}"),
    (re.compile(r"(?<=\b1)-(?=(?:[A-Z]|p|rho)\b|\()|(?<=\b[A-Z])-(?=[1b]\b)|(?<![\w)])-(?=\()"), "\N{MINUS SIGN}"),
    (re.compile(r"<<"), "\N{MUCH LESS-THAN}"),
    (re.compile(r"\|\|"), "\N{DOUBLE VERTICAL LINE}"),
)
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_NUMBER = re.compile(r"[-+(\[]?(?:[0-9]|inf|nan)|-?$")


def typeset_text(text: str) -> str:
    """Write mathematics in sentences as figures do.

    >>> typeset_text("J(theta) - J(roll) <= -0.1 by max-k2 at seq_max_k2<=0.05")
    'J(θ) − J(roll) ≤ −0.1 by max-k2 at seq_max_k2<=0.05'
    """
    for pattern, sign in _SET:
        text = pattern.sub(sign, text)
    return text


def _shown(value: object) -> object:
    """Escape what is not printable in text, and typeset it; what was made as HTML is left as it is."""
    return typeset_text(visible_lines(value)) if type(value) is str else value


_SIGNS = {
    **{"epsilon": "ε", "delta": "δ", "Delta": "Δ", "tau": "τ", "theta": "θ", "sum": "∑", "prod": "∏", "Vert": "‖"},
    **{"min": " min", "le": " ≤ "},
}
_OF_LATEX = (
    (r"\\(?:mathrm|mathbb)\{([^{}]*)\}", r"\1"),
    (r"\\tfrac\{1\}\{2\}", "\N{VULGAR FRACTION ONE HALF}"),
    (r"\\bar (\w)", "\\1\N{COMBINING MACRON}"),
    (r"([_^])\{([^{}]*)\}", r"\1(\2)"),
    (r"_\((\w+)\)", r"_\1"),
    (r"\\(?:left|right|textstyle) ?", ""),
    (r"\\[, ]", " "),
    *((rf"\\{name}(?![a-z]) ?", sign) for name, sign in _SIGNS.items()),
    *[(r"\\sqrt\{([^{}]*)\}", r"√(\1)")] * 2,  # one within the other
)  # fmt: skip


def formula(text: str) -> str:
    r"""Write the LaTeX of a bound as text.

    >>> formula(r"4\sum_t \bar D_t\min(1,\sqrt{(T-t)\delta/2})")
    '4∑_t D̄_t min(1,√((T−t)δ/2))'
    """
    for pattern, sign in _OF_LATEX:
        text = re.sub(pattern, sign, text)
    return typeset(text).strip()


def _code(text: str) -> Markup:
    """Escape what is not printable in what a program reads: nothing there is typeset."""
    from markupsafe import escape

    return escape(visible_lines(text))


class _Links:
    """Links names to their meaning in the glossary part of the page, and keeps which were used."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def __call__(self, text: str, *, exact: bool = False) -> Markup:
        """Link a name that is all of the text, or each that can be no other word."""
        from markupsafe import Markup, escape

        if exact and text in GLOSSARY and text not in _STANDINGS:
            return self._link(text)
        parts, end = [], 0
        for found in _NAME.finditer(text):
            if found[0] in GLOSSARY:
                parts += [escape(_shown(text[end : found.start()])), self._link(found[0])]
                end = found.end()
        return Markup("").join([*parts, escape(_shown(text[end:]))])

    def _link(self, name: str) -> Markup:
        from markupsafe import Markup

        self._used.add(name)
        return Markup('<a class="term" href="#term-{0}">{0}</a>').format(name)

    def terms(self) -> list[tuple[str, Any]]:
        """Return the names that were linked, with their meaning."""
        return [(name, term) for name, term in GLOSSARY.items() if name in self._used]


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of a table: its name, what is told under it, other cells with whether they are numbers."""

    name: str
    under: tuple[str, ...]
    cells: tuple[tuple[str, bool], ...]
    winner: bool


def _folded(cells: Cells) -> tuple[list[tuple[str, bool]], list[_Line]]:
    """Return titles with whether they stand over numbers, and rows, which tell under their name what decides not."""
    titles, rows = cells
    under = [k for k, title in enumerate(titles) if title in _UNDER_THE_NAME]
    numbers = {k: k > 0 and all(_NUMBER.match(row[k]) for row, _ in rows) for k in range(len(titles)) if k not in under}
    lines = [
        _Line(
            row[0],
            tuple(row[k] for k in under if row[k]),
            tuple((row[k], is_number) for k, is_number in numbers.items() if k > 0),
            winner,
        )
        for row, winner in rows
    ]
    return [(titles[k], is_number) for k, is_number in numbers.items()], lines


# --- pictures ------------------------------------------------------------------------------------------------------


def _verdict(c: Certificate) -> Rows | None:
    """Put every interval of J(train) - J(rollout) against 0; nothing where nothing was measured, or without rewards."""
    frame = logs.verdict_frame(c)
    if frame.empty or c.verdict.word is Word.NOTHING_MEASURED:
        return None
    left, right = logs.verdict_span(frame)
    place, hue = _scale(left, right), logs.verdict_told(frame)[1]
    promise, error = frame["promise"].iloc[0], frame["error"].iloc[0]
    rows = tuple(
        Row(
            i["name"],
            i["standing"],
            (numbers,),
            (hue if k == 0 else "ink") if i["standing"] != "estimate" else "soft",
            i["standing"] != "estimate",
            k == 0,
            place(i["low"]),
            place(i["high"]),
            place(i["value"]) if math.isfinite(i["value"]) else None,
            (*(["left"] if i["low"] == -math.inf else []), *(["right"] if i["high"] == math.inf else [])),
        )
        for k, (i, numbers) in enumerate(zip(frame.to_dict("records"), logs.verdict_numbers(frame), strict=True))
    )
    known = math.isfinite(promise)
    about = f"Mean reward of the training policy minus that of the rollout policy, {100 * c.confidence:.6g}% intervals"
    return Rows(
        f"{about}: {'; '.join(f'{row.name} {row.numbers[0]} ({row.note})' for row in rows)}",
        rows,
        _ticks(left, right, lambda x: "0" if abs(x) < 1e-12 else signed(x)),
        f"{about}.{' ' + logs.promised(frame) + '.' if known else ''}",
        ("guaranteed", "estimate"),
        zero=place(0.0),
        promise=place(promise) if known else None,
        band=(place(promise - error), place(promise + error)) if known and math.isfinite(error) else None,
    )


def _bars(c: Certificate) -> Rows:
    """Put bounds on the error under each other, on a logarithmic axis."""
    frame = logs.ladder_frame(c)
    frame = frame[np.isfinite(frame["value"])]
    vacuous = float(frame["vacuous_from"].iloc[0])
    positive = [x for x in (*frame["value"], *frame["high"], vacuous) if 0.0 < x < math.inf]
    left, right = math.log10(min(positive) / 2.5), math.log10(max(positive) * 2.5)
    scale = _scale(left, right)

    def place(x: float) -> float:
        return scale(math.log10(x)) if x > 0.0 else 0.0

    rows = tuple(
        Row(
            r.name,
            "at the largest seen" if r.optimistic else "",
            (upward(r.value), shown(r.high) if math.isfinite(r.high) else ""),
            FAMILY_COLOURS[r.family],
            not r.optimistic,
            c.best is not None and r.value == c.best.value,
            place(r.value),
            place(r.high) if math.isfinite(r.high) else place(r.value),
            place(r.value),
        )
        for r in frame.itertuples()
    )
    decades = range(math.ceil(left), math.floor(right) + 1)
    step = -(-len(decades) // 5)
    return Rows(
        f"Bounds on the error, largest first: {'; '.join(f'{row.name} {row.numbers[0]}' for row in rows)}",
        rows,
        tuple((scale(k), f"{10.0**k:,.0f}" if 0 <= k < 6 else f"{10.0**k:g}") for k in decades[::step]),
        "Error of the surrogate, on a logarithmic scale; where the ground is grey a bound says nothing.",
        ("at what was estimated", "at the largest divergence seen"),
        titles=("estimate", "up to"),
        wash=place(vacuous),
    )


def _scale(left: float, right: float) -> Callable[[float], float]:
    """Return what gives the place of a number in percent of the axis; what lies beyond it stands at its end."""
    return lambda x: round(min(max(100.0 * (x - left) / (right - left), 0.0), 100.0), 2)


def _ticks(left: float, right: float, write: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    from matplotlib.ticker import MaxNLocator

    place = _scale(left, right)
    at = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(left, right)
    return tuple((place(x), write(x)) for x in at if left <= x <= right)


def _drawn(
    anchor: str, frame: pd.DataFrame, draw: Draw, title: str, height: float, columns: int = 1
) -> tuple[str, ...]:
    """Draw a frame as SVG for a wide column and for a phone; its height is that of a row of panels, in inches."""
    panels = frame["panel"].nunique() if "panel" in frame else 1
    pictures = []
    with look("page"):
        for where, width, beside in (("wide", _WIDE, columns), ("phone", _PHONE, 1)):
            figure = figure_of(frame, (draw,) * panels, height * -(-panels // beside), columns=beside, width=width)
            pictures.append(svg(figure, title, f"{anchor}-{where}-"))
    return tuple(pictures)


# --- sections ------------------------------------------------------------------------------------------------------


def _first(c: Certificate) -> Section:
    rows = []
    for name, words in _FIRST.items():
        i = c.headline if name == "improvement" else c.estimates.get(name)
        if i is not None:
            texts = [_signed(text) if name in _CHANGES else text for text in i.texts()]
            rows.append(([words, *texts, _STANDING[i.standing], name], False))
    caption = f"The numbers that matter first, with {100 * c.confidence:.6g}% intervals"
    titles = ["quantity", "value", "at least", "at most", "standing", "how"]
    return Section("measured", "What was measured", tables=((caption, (titles, rows)),))


def _signed(text: str) -> str:
    return text if text.startswith("-") or text == "0" else f"+{text}"


def _rests(c: Certificate) -> Section:
    low, high = c.table.profile["reward_range"]
    return Section(
        "rests",
        "What it rests on",
        ("No log can show that:",),
        points=(
            *HYPOTHESES,
            f"rewards lie in their declared range, {low:g} to {high:g}",
            *(f"Assumed: {a}" for a in c.assumptions),
        ),
    )


def _ladder(c: Certificate) -> Section:
    claim = () if c.guarantees.claim is None else (f"{c.guarantees.claim}. That is no guarantee.",)
    return Section(
        "bounds",
        "How wrong the surrogate can be",
        (
            "From above, bounds on |J(theta) - J(roll) - L'|, at estimates and so estimates themselves; then the worst "
            "error of any reward that these responses show. Hollow marks need a largest divergence, which no sample "
            "shows: they stand at the largest one seen, and guarantee nothing.",
            *claim,
        ),
        rows=_bars(c),
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
        drawn=_drawn("positions", logs.kl_by_position(found), logs.draw_positions, title, 1.5),
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
        drawn=() if frame.empty else _drawn("masks", frame, logs.draw_masks, f"{title} {study.sentence()}", 1.9, 2),
        points=(*study.notes(), *(warning for warning in study.warnings if warning not in said)),
        tables=_captioned(study.tables(), "Masks: what is kept, and the gain", *terms, "By length"),
    )


def _over_time(run: RunOverTime) -> Section:
    title, frame = f"The run step by step. {run.sentence()}", logs.over_time_frame(run)
    return Section(
        "steps",
        "Step by step",
        (run.sentence(), *run.notes()),
        drawn=_drawn("steps", frame, logs.draw_over_time, title, 1.1, 2),
        tables=_captioned(run.tables(), "Divergences by step", "What the steps bring", "What was promised so far"),
    )


def _noise_floor(noise: Comparison) -> Section:
    return Section(
        "noise",
        "Against the noise floor",
        ("First: two forward passes of the same weights. Second: this log.", noise.sentence()),
        tables=_captioned(noise.tables(), "Noise floor and this log"),
    )


def _everything(c: Certificate) -> Section:
    tables = (
        ("J(theta) - J(roll), at this confidence for every sample size", c.guarantee_cells(measured=True)),
        ("J(theta) - J(roll), estimated: asymptotic, no guarantee", c.guarantee_cells(measured=False)),
        ("Estimates", c.estimate_cells()),
    )
    return Section(
        "everything",
        "Every interval",
        (c.sentence(), f"{c.of_intervals()} KL is in nats, of a response unless the name says token."),
        tables=tuple((caption, cells) for caption, cells in tables if cells[1]),
    )


def _made(c: Certificate, command: str) -> Section:
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in _LIBRARIES}}
    return Section(
        "made",
        "How this page was made",
        (", ".join(f"{name} {version}" for name, version in versions.items()),),
        points=tuple(c.details()),
        command=command,
    )


def _captioned(tables: list[Cells], *captions: str) -> tuple[tuple[str, Cells], ...]:
    return tuple(zip(captions, tables, strict=True))
