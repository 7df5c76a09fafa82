"""One bound on the error of the surrogate, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

from bounds._checks import unknown
from bounds._text import Cells, Row, shown
from bounds.results import Assumption, Interval, Record, Result, Standing, jsonable, weakest

if TYPE_CHECKING:
    import pandas as pd


#: The families of rules: the first uses plain Pinsker, the second the sharpest inequality that is proved.
PUBLISHED, SHARP = "published", "sharp"


@dataclass(frozen=True, slots=True)
class Input:
    """One number that a bound used: given, or implied by others that were."""

    name: str
    value: float
    how: str = "given"
    used: tuple[str, ...] = ()
    standing: Standing = Standing.PROVED

    def __str__(self) -> str:
        return f"{self.name} = {shown(self.value)}" + ("" if self.how == "given" else f" [{self.how}]")

    @property
    def given(self) -> tuple[str, ...]:
        """The given fields that it rests on."""
        return (self.name,) if self.how == "given" else self.used


@dataclass(frozen=True, slots=True)
class Bound(Record):
    """An upper bound on |Error| = |J(theta) - J(roll) - L'|, never below what its theorem says.

    ``rests_on`` says where each given number stands that it used, or that implied what it used.
    """

    derived: ClassVar = ("standing",)

    name: str
    title: str
    value: float
    family: str
    source: str
    rests_on: Mapping[str, Standing]
    assumes: tuple[str, ...]
    inputs: tuple[Input, ...]
    vacuous: bool
    optimistic: bool = False

    @property
    def standing(self) -> Standing:
        """The weakest standing of what it rests on."""
        return weakest(self.rests_on.values())

    @property
    def standings(self) -> str:
        """The standings of all that it rests on, in words: one assumption does not hide an estimate."""
        return in_words(self.rests_on.values())

    def __str__(self) -> str:
        vacuous = ", vacuous" if self.vacuous else ""
        return f"{self.name}: |Error| <= {shown(self.value)} ({self.family}, {self.standings}{vacuous})"


def in_words(standings: Iterable[Standing]) -> str:
    """Name each standing that is not proved: what is assumed may rest on an estimate, too.

    >>> in_words([Standing.ASSUMED, Standing.PROVED, Standing.ESTIMATED])
    'estimated and assumed'
    """
    return " and ".join(s.label for s in sorted({*standings} - {Standing.PROVED})) or Standing.PROVED.label


@dataclass(frozen=True, slots=True)
class Withheld:
    """A rule that was not evaluated, and why."""

    name: str
    family: str
    reason: str


def withheld_lines(withheld: Iterable[Withheld]) -> list[str]:
    """Write what was not evaluated, by reason."""
    by_reason: dict[str, list[str]] = {}
    for rule in withheld:
        by_reason.setdefault(rule.reason, []).append(rule.name)
    return [f"Not evaluated ({reason}): {', '.join(names)}" for reason, names in by_reason.items()]


@dataclass(frozen=True, slots=True, repr=False)
class BoundTable(Result):
    """Every rule evaluated on one profile.

    ``table["mixed_tv"]`` is one bound (KeyError with the reason if it was not evaluated); iterating gives all.

    Attributes
    ----------
    bounds : tuple of Bound
        In the order of ``RULES``, in units of the reward.
    withheld : tuple of Withheld
        Rules that were not evaluated, and why.
    best, best_published : Bound or None
        B* over all rules; over the paper's six families (2512.23075v4 thm:unified).
    profile : mapping
        The fields that were given.
    assumptions : tuple of Assumption
        What every bound takes for granted.
    surrogate_cap : float or None
        L' is at most this in absolute value, so no larger bound certifies a step.
    reward_interval : Interval or None
        Where J(theta) lies, if the mean reward and D are known (:func:`bounds.reward_interval`).

    Examples
    --------
    >>> import bounds
    >>> table = bounds.unified(T=4096, delta=1e-4)
    >>> table.best.name, len(table) + len(table.withheld) == len(bounds.RULES)
    ('trajectory_kl', True)
    """

    bounds: tuple[Bound, ...]
    withheld: tuple[Withheld, ...]
    profile: Mapping[str, Any]
    assumptions: tuple[Assumption, ...]
    reward_spread: float = 1.0
    surrogate_cap: float | None = None
    reward_interval: Interval | None = None
    published_b_star: frozenset[str] = field(default=frozenset(), metadata={"json": False})
    derived: ClassVar = ("b_star", "b_star_published")

    def __getitem__(self, name: str) -> Bound:
        for bound in self.bounds:
            if bound.name == name:
                return bound
        for rule in self.withheld:
            if rule.name == name:
                raise KeyError(f"rule {name!r} was not evaluated: {rule.reason}")
        raise KeyError(unknown("rule", name, [b.name for b in self.bounds]))

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds)

    def __repr__(self) -> str:
        return f"<BoundTable of {len(self)} bounds: {self.sentence()}>"

    def __contains__(self, name: object) -> bool:
        return any(bound.name == name for bound in self.bounds)

    @property
    def best(self) -> Bound | None:
        """B* overall: the smallest bound, published or not (None when no rule could be evaluated)."""
        return smallest(self.bounds)

    @property
    def best_published(self) -> Bound | None:
        """B* of the paper: the smallest of its six families (2512.23075v4 thm:unified)."""
        return smallest(b for b in self.bounds if b.name in self.published_b_star)

    b_star, b_star_published = best, best_published  # their names in JSON

    def sorted(self) -> tuple[Bound, ...]:
        """Return the bounds, smallest first."""
        return tuple(sorted(self.bounds, key=lambda b: b.value))

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row for each rule, smallest bound first."""
        import pandas as pd

        rows = [
            {
                "name": b.name,
                "value": b.value,
                "family": b.family,
                "standing": b.standing.label,
                "rests_on": ", ".join(f"{name} {label}" for name, label in jsonable(b.rests_on).items()),
                "vacuous": b.vacuous,
                "assumes": ", ".join(b.assumes),
                "inputs": "; ".join(map(str, b.inputs)),
                "source": b.source,
            }
            for b in self.sorted()
        ]
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        """Say the result in one sentence."""
        if self.best is None:
            return "No rule applies to what is known about the two policies."
        text = f"|J(theta) - J(roll) - L'| <= {shown(self.best.value)} by {self.best.name}"
        if self.best_published is not None:
            text += f"; the published B* is {shown(self.best_published.value)} by {self.best_published.name}"
        return text + (". Every bound is vacuous." if self.best.vacuous else ".")

    def notes(self) -> list[str]:
        """Write the lines under the table: assumptions, then what was not evaluated."""
        lines = [f"Assumed: {a}" for a in self.assumptions]
        if self.surrogate_cap is not None:
            lines.insert(0, f"|L'| <= tv_seq + D = {shown(self.surrogate_cap)}: a larger bound never certifies a step.")
        if self.reward_interval is not None:
            _, low, high = self.reward_interval.texts()
            lines.insert(0, f"J(theta) lies in [{low}, {high}], as kl(J(roll) || J(theta)) <= D.")
        return lines + withheld_lines(self.withheld)

    def cells(self, *, best: Bound | None = None, published: Bound | None = None) -> Cells:
        """Return column titles, and for each bound its cells and whether it is the winner."""
        best, published = best or self.best, published or self.best_published
        rows: list[Row] = []
        for b in self.sorted():
            holds = b.vacuous, b is best, b is published, b.optimistic
            said = ", ".join(compress(("vacuous", "B*", "published B*", "optimistic"), holds))
            filled = "; ".join(f"{i.name} = {i.how}" for i in b.inputs if i.how != "given")
            rows.append(([b.name, shown(b.value), b.family, b.standings, said, filled], b is best))
        return ["rule", "|Error| <=", "family", "standing", "remarks", "filled in"], rows

    def tables(self) -> list[Cells]:
        """Return the bounds, smallest first."""
        return [self.cells()]


def smallest(bounds: Iterable[Bound]) -> Bound | None:
    """Return the smallest bound; a sharp one where two are equal."""
    return min(bounds, key=lambda b: (b.value, b.family != SHARP), default=None)
