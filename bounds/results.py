"""Why a number may be believed, what was assumed, an estimate with its interval; and how every answer shows itself."""

from __future__ import annotations

import enum
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bounds._text import (
    Cells,
    Row,
    TerminalTable,
    html_lines,
    html_table,
    labelled,
    latex_table,
    near,
    plain,
    shown,
    shown_down,
    visible,
    visible_lines,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group


class Standing(enum.IntEnum):
    """Why a number may be believed; larger is weaker, and a result is as weak as its weakest input."""

    PROVED = 0
    MEASURED = 1
    ESTIMATED = 2
    ASSUMED = 3

    @property
    def label(self) -> str:
        """The word used in text and JSON."""
        return self.name.lower()


def weakest(standings: Iterable[Standing]) -> Standing:
    """Return the weakest of some standings (PROVED when there is none)."""
    return max(standings, default=Standing.PROVED)


def jsonable(value: object) -> Any:
    """Return a value as JSON can say it; the names of a dataclass's fields are its keys.

    Left out are fields whose name begins with an underscore or whose metadata say ``json=False``; properties that the
    class names in ``derived`` are added. What is infinite or undefined is null; so is the value of an interval, which
    is then also marked as vacuous.

    >>> jsonable({"kl": (math.inf, np.array([0.5]))}), jsonable(Standing.PROVED)
    ({'kl': [None, [0.5]]}, 'proved')
    """
    if isinstance(value, Standing):
        return value.label
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, IntervalTable):
        rows = value.rows.items()
        return [{value.of: label, **jsonable(value.facts_of(label)), **jsonable(row)} for label, row in rows]
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        named = [f.name for f in fields(value) if not f.name.startswith("_") and f.metadata.get("json", True)]
        found = {name: jsonable(getattr(value, name)) for name in (*named, *getattr(value, "derived", ()))}
        return found | {"vacuous": True} if isinstance(value, Interval) and math.isinf(value.value) else found
    return value


class Record:
    """A dataclass that says itself in JSON."""

    __slots__ = ()
    derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return its fields, JSON-ready (see :func:`bounds.results.jsonable`)."""
        found: dict[str, Any] = jsonable(self)
        return found


@dataclass(frozen=True, slots=True)
class Assumption(Record):
    """Something that somebody said and nobody proved."""

    what: str
    value: object
    why: str

    def __str__(self) -> str:
        return f"{self.what} = {self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Interval(Record):
    """An estimate with what surrounds it at a confidence; a side that nothing is known about is infinite.

    ``of`` says what was averaged (where that needs saying), ``method`` how the interval was made.
    """

    value: float
    low: float
    high: float
    confidence: float
    standing: Standing
    method: str
    of: str = ""

    def texts(self) -> tuple[str, str, str]:
        """Return value, low and high for people: three digits, more where ends would look equal; rounded outward."""
        for digits in range(3, 9):
            low, high = shown_down(self.low, digits), shown(self.high, digits)
            if low != high or self.low == self.high:
                break
        return near(self.value, digits), low, high

    def span(self) -> str:
        """Return its two ends for people; what is open at an end says "at least", "at most" or nothing.

        >>> Interval(0.0, -math.inf, 38.1, 0.95, Standing.MEASURED, "").span()
        'at most 38.1'
        """
        _, low, high = self.texts()
        if low == "-inf":
            return "says nothing" if high == "inf" else f"at most {high}"
        return f"at least {low}" if high == "inf" else f"{low} to {high}"

    def __str__(self) -> str:
        value, low, high = self.texts()
        return value if self.low == self.high == self.value else f"{value} [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class IntervalTable:
    """Intervals by label and name: of steps, positions, lengths, metrics, objectives.

    Attributes
    ----------
    of : str
        What the labels are, such as "step"; their key in JSON and their column in a frame.
    rows : mapping of label to (mapping of name to Interval or None)
        None: cannot be estimated.
    facts : mapping of label to (mapping of name to value)
        What else is known of a label, such as how many responses it has.

    Examples
    --------
    >>> kl = Interval(0.1, 0.0, 0.2, 0.95, Standing.ESTIMATED, "t")
    >>> table = IntervalTable("step", {"3": {"kl": kl}}, {"3": {"responses": 8}})
    >>> table["3"]["kl"].value, table.to_frame().columns.tolist()
    (0.1, ['step', 'responses', 'kl', 'kl_low', 'kl_high'])
    """

    of: str
    rows: Mapping[str, Mapping[str, Interval | None]]
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Mapping[str, Interval | None]:
        return self.rows[label]

    @property
    def names(self) -> list[str]:
        """Names of what was estimated, for some label at least."""
        return list(dict.fromkeys(name for row in self.rows.values() for name, i in row.items() if i is not None))

    def facts_of(self, label: str) -> Mapping[str, object]:
        """Return what else is known of a label."""
        return self.facts.get(label, {})

    def column(self, name: str) -> list[Interval | None]:
        """Return one estimate for every label."""
        return [row.get(name) for row in self.rows.values()]

    def estimate(self, label: str, name: str) -> Interval:
        """Return one estimate; KeyError where it is not there, or could not be made."""
        found = self.rows[label][name]
        if found is None:
            raise KeyError(f"{name} of {self.of} {label} cannot be estimated")
        return found

    def values(self, name: str) -> list[float]:
        """Return the value of one estimate for every label, NaN where there is none."""
        return [math.nan if i is None else i.value for i in self.column(name)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each label: its facts, and value, low and high of each estimate."""
        import pandas as pd

        rows = []
        for label, row in self.rows.items():
            cells: dict[str, object] = {self.of: label, **self.facts_of(label)}
            for name in self.names:
                i = row.get(name)
                ends = (math.nan,) * 3 if i is None else (i.value, i.low, i.high)
                cells |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
            rows.append(cells)
        return pd.DataFrame(rows)

    def cells(
        self,
        names: Iterable[str] | None = None,
        facts: Mapping[str, str] | None = None,
        *,
        marked: str | None = None,
    ) -> Cells:
        """Return text: one row for each label, with its estimates and their intervals, and then its facts.

        ``names`` says which estimates (of those that some label has), ``facts`` which facts, under which titles;
        without, all. The row of the label ``marked`` stands out.
        """
        chosen = [name for name in self.names if names is None or name in names]
        every = {name: name.replace("_", " ") for label in self.rows for name in self.facts_of(label)}
        titles = every if facts is None else facts
        rows: list[Row] = []
        for label, row in self.rows.items():
            known = (self.facts_of(label).get(name, "") for name in titles)
            found = [str(row.get(name) or "-") for name in chosen]
            said = [near(x) if isinstance(x, float) else str(x) for x in known]
            rows.append(([label, *found, *said], label == marked))
        return [self.of, *chosen, *titles.values()], rows


class Result(Record):
    """An answer that shows itself as text, HTML, LaTeX and JSON, from its heading, tables, sentence and notes."""

    __slots__ = ()

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the answer, each with its label; without any, the sentence is the answer."""
        yield from ()

    def block(self) -> list[str]:
        """Return the answer in a few lines of 80 characters, or nothing."""
        return [line for label, text in self.answer() for line in labelled(label, text)]

    def short(self) -> list[Cells]:
        """Return the tables that stand under the answer where not all is asked for."""
        return self.tables()

    def heading(self) -> str:
        """Return a line above the tables, or nothing."""
        return ""

    def tables(self) -> list[Cells]:
        """Return tables for people."""
        raise NotImplementedError

    def sentence(self) -> str:
        """Return the result in words."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return lines under the sentence."""
        return []

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is remarkable about the log that it is of: the texts of its findings."""
        return tuple(found.text for found in getattr(self, "findings", ()))

    def _lines(self) -> list[str]:
        """Return the notes and the warnings."""
        return [*self.notes(), *self._warning_lines()]

    def _warning_lines(self) -> list[str]:
        return [f"Warning: {text}" for text in self.warnings]

    def to_frame(self) -> pd.DataFrame:
        """Return its numbers for programs, at full precision: those of its table of intervals, if it has but that."""
        (table,) = (t for f in fields(self) if isinstance(t := getattr(self, f.name), IntervalTable))  # type: ignore[arg-type]
        return table.to_frame()

    def to_json(self) -> str:
        """Return one JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def brief(self) -> Group:
        """Return the answer, the tables that decide, and what is remarkable, for a terminal."""
        block = self.block()
        return _group(block, "" if block else self.sentence(), "", self.short(), self._warning_lines())

    def __rich__(self) -> Group:
        return _group(self.block(), self.sentence(), self.heading(), self.tables(), self._lines())

    def __str__(self) -> str:
        return plain(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    def to_html(self) -> str:
        """Return an HTML fragment (what a notebook shows)."""
        heading = html_lines([self.heading()], "span") if self.heading() else ""
        tables = "".join(html_table(*cells) for cells in self.tables())
        words = html_lines([self.sentence()], "b")
        answer = f"<pre>{html.escape(chr(10).join(block))}</pre>" if (block := self.block()) else words
        return answer + heading + tables + (words if block else "") + html_lines(self._lines(), "small")

    def to_latex(self) -> str:
        r"""Return the tables as LaTeX tabulars, one after another, under the result in words as a comment.

        They need ``\usepackage{booktabs}`` only.
        """
        words = "\n".join(f"% {visible(line)}" for line in self.sentence().split("\n"))
        tabulars = (latex_table(titles, [cells for cells, _ in rows]) for titles, rows in self.tables())
        return "\n\n".join([words, *tabulars]) + "\n"

    def _repr_html_(self) -> str:
        return self.to_html()


def _group(answer: list[str], words: str, heading: str, tables: Iterable[Cells], lines: Iterable[str]) -> Group:
    """Return the answer, tables, the words and lines; where there is no answer, the words come first."""
    from rich.console import Group
    from rich.text import Text

    said = Text(visible_lines(words), style="bold")
    return Group(
        *([Text("\n".join(answer))] if answer else [said]),
        *([Text(visible_lines(f"\n{heading}"))] if heading else []),
        *(TerminalTable(*cells) for cells in tables),
        *([said] if answer and words else []),
        *(Text(visible_lines(line), style="yellow" if line.startswith("Warning") else "dim") for line in lines),
    )
