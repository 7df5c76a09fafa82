"""What the project answers with: frozen results that show themselves as text, HTML, frame and JSON."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bounds._checks import unknown
from bounds._show import Row, finite, html_lines, html_table, plain, rich_table, shown

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
    """The weakest of some standings (PROVED when there is none)."""
    return max(standings, default=Standing.PROVED)


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that somebody said and nobody proved."""

    what: str
    value: object
    why: str

    def __str__(self) -> str:
        return f"{self.what} = {self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Input:
    """One number that a bound used: given, or filled from others by a proved inequality."""

    name: str
    value: float
    how: str = "given"
    used: tuple[str, ...] = ()
    standing: Standing = Standing.PROVED

    def __str__(self) -> str:
        return f"{self.name} = {shown(self.value)}" + ("" if self.how == "given" else f" [{self.how}]")


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound on |Error| = |J(theta) - J(roll) - L'|, never below what its theorem says."""

    name: str
    title: str
    value: float
    family: str
    source: str
    standing: Standing
    assumes: tuple[str, ...]
    inputs: tuple[Input, ...]
    vacuous: bool
    optimistic: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite value is null and vacuous."""
        return {
            "name": self.name,
            "value": finite(self.value),
            "family": self.family,
            "source": self.source,
            "standing": self.standing.label,
            "assumes": list(self.assumes),
            "inputs": [
                {
                    "name": i.name,
                    "value": finite(i.value),
                    "how": i.how,
                    "used": list(i.used),
                    "standing": i.standing.label,
                }
                for i in self.inputs
            ],
            "vacuous": self.vacuous,
            "optimistic": self.optimistic,
        }


@dataclass(frozen=True, slots=True)
class Withheld:
    """A rule that was not evaluated, and why."""

    name: str
    family: str
    reason: str


@dataclass(frozen=True, slots=True)
class BoundTable:
    """Every rule evaluated on one profile. Index by rule name; ``best`` is the smallest bound."""

    bounds: tuple[Bound, ...]
    withheld: tuple[Withheld, ...]
    profile: Mapping[str, Any]
    assumptions: tuple[Assumption, ...]
    reward_spread: float = 1.0
    published_b_star: frozenset[str] = field(default=frozenset(), repr=False)

    def __getitem__(self, name: str) -> Bound:
        for bound in self.bounds:
            if bound.name == name:
                return bound
        for rule in self.withheld:
            if rule.name == name:
                raise KeyError(f"rule {name!r} was not evaluated: {rule.reason}")
        raise KeyError(unknown("rule", name, [b.name for b in self.bounds]))

    def __contains__(self, name: object) -> bool:
        return any(bound.name == name for bound in self.bounds)

    @property
    def best(self) -> Bound | None:
        """B* overall: the smallest bound, published or not (None when no rule could be evaluated)."""
        return min(self.bounds, key=lambda b: b.value, default=None)

    @property
    def best_published(self) -> Bound | None:
        """B* of the paper: the smallest of its six families (2512.23075v4 thm:unified)."""
        six = (b for b in self.bounds if b.name in self.published_b_star)
        return min(six, key=lambda b: b.value, default=None)

    def sorted(self) -> tuple[Bound, ...]:
        """The bounds, smallest first."""
        return tuple(sorted(self.bounds, key=lambda b: b.value))

    def to_frame(self) -> pd.DataFrame:
        """One row for each rule, smallest bound first."""
        import pandas as pd

        rows = [
            {
                "name": b.name,
                "value": b.value,
                "family": b.family,
                "standing": b.standing.label,
                "vacuous": b.vacuous,
                "assumes": ", ".join(b.assumes),
                "inputs": "; ".join(map(str, b.inputs)),
                "source": b.source,
            }
            for b in self.sorted()
        ]
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, keys as ``trm-bounds bstar --json`` prints them."""
        return {
            "profile": dict(self.profile),
            "bounds": [b.to_dict() for b in self.bounds],
            "b_star": named_value(self.best),
            "b_star_published": named_value(self.best_published),
            "withheld": [{"name": w.name, "reason": w.reason} for w in self.withheld],
            "assumptions": assumption_dicts(self.assumptions),
        }

    def to_json(self) -> str:
        """One JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def sentence(self) -> str:
        """The result in one sentence."""
        if self.best is None:
            return "No rule applies to what is known about the two policies."
        text = f"|J(theta) - J(roll) - L'| <= {shown(self.best.value)} by {self.best.name}"
        if self.best_published is not None:
            text += f"; the published B* is {shown(self.best_published.value)} by {self.best_published.name}"
        return text + (". Every bound is vacuous." if self.best.vacuous else ".")

    def notes(self) -> list[str]:
        """The lines under the table: assumptions, then what was not evaluated."""
        lines = [f"Assumed: {a}" for a in self.assumptions]
        return lines + [f"Not evaluated: {w.name}: {w.reason}" for w in self.withheld]

    def cells(
        self, *, best: Bound | None = None, published: Bound | None = None, digits: int = 7
    ) -> tuple[list[str], list[Row]]:
        """Column titles, and for each bound its cells and whether it is the winner."""
        best, published = best or self.best, published or self.best_published
        rows: list[Row] = []
        for b in self.sorted():
            marks = {
                "vacuous": b.vacuous,
                "B*": b is best,
                "published B*": b is published,
                "optimistic": b.optimistic,
            }
            filled = "; ".join(f"{i.name} = {i.how}" for i in b.inputs if i.how != "given")
            said = ", ".join(mark for mark, holds in marks.items() if holds)
            rows.append(([b.name, shown(b.value, digits), b.family, b.standing.label, said, filled], b is best))
        return ["rule", "|Error| <=", "family", "standing", "", "filled in"], rows

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(
            rich_table(*self.cells()),
            Text(self.sentence(), style="bold"),
            *(Text(line, style="dim") for line in self.notes()),
        )

    def __str__(self) -> str:
        return plain(self)

    def _repr_html_(self) -> str:
        return html_table(*self.cells()) + html_lines([self.sentence()], "b") + html_lines(self.notes(), "small")


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with what surrounds it at a confidence; a side that nothing is known about is infinite."""

    value: float
    low: float
    high: float
    confidence: float
    standing: Standing
    method: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; infinite and undefined numbers are null, an infinite value is also vacuous."""
        return {
            "value": finite(self.value),
            "low": finite(self.low),
            "high": finite(self.high),
            "confidence": self.confidence,
            "standing": self.standing.label,
            "method": self.method,
            **({"vacuous": True} if math.isinf(self.value) else {}),
        }


def named_value(bound: Bound | None) -> dict[str, Any] | None:
    """Name and value of a winner, as the JSON shows it."""
    if bound is None:
        return None
    extra = {"optimistic": True} if bound.optimistic else {}
    return {"name": bound.name, "value": finite(bound.value), "standing": bound.standing.label, **extra}


def assumption_dicts(assumptions: Iterable[Assumption]) -> list[dict[str, Any]]:
    """Assumptions, JSON-ready."""
    return [{"what": a.what, "value": a.value, "why": a.why} for a in assumptions]


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """Acceptance among responses of ``shortest`` to ``longest`` tokens."""

    shortest: int
    longest: int
    responses: int
    acceptance: float


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What a sequence mask keeps. ``surrogate_gain`` divides by all responses, as the paper does."""

    rule: str
    acceptance: float
    by_length: tuple[LengthBucket, ...]
    surrogate_gain: float | None
    surrogate_gain_per_accepted: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "rule": self.rule,
            "acceptance": self.acceptance,
            "by_length": [asdict(b) for b in self.by_length],
            "surrogate_gain": _finite_or_none(self.surrogate_gain),
            "surrogate_gain_per_accepted": _finite_or_none(self.surrogate_gain_per_accepted),
        }

    def __str__(self) -> str:
        buckets = ", ".join(f"{b.acceptance:.1%} of {b.shortest}-{b.longest}" for b in self.by_length)
        return f"Mask {self.rule} keeps {self.acceptance:.1%} of the responses; by length in tokens: {buckets}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a log says about two policies: estimates, bounds at them, and what was assumed.

    ``estimates[name]`` is an Interval, or None with the reason in ``reasons``. ``table`` holds the bounds at
    the point estimates; ``optimistic`` the published rules as if the largest divergence seen were the
    supremum, which no sample shows.
    """

    responses: int
    prompts: int
    tokens: int
    horizon: int
    at_horizon: float
    confidence: float
    estimates: Mapping[str, Interval | None]
    table: BoundTable
    optimistic: tuple[Bound, ...]
    best_upper: Bound | None
    mask: MaskReport | None
    improvement: Interval | None
    reasons: Mapping[str, str]
    warnings: tuple[str, ...]
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> Bound | None:
        """B*: the smallest bound at the point estimates; optimistic maxima never enter it."""
        return self.table.best

    @property
    def best_published(self) -> Bound | None:
        """B* of the paper's six families, at assumed suprema, else at sample maxima (then optimistic)."""
        six = [b for b in self.optimistic if b.name in self.table.published_b_star]
        return self.table.best_published or min(six, key=lambda b: b.value, default=None)

    def quantity(self, name: str, *, upper: bool) -> float | None:
        """A named number as a requirement sees it: B* as it is, an estimate at the far end of its interval.

        Raises
        ------
        KeyError
            For an unknown name, with the likely meant one.
        """
        winners = {
            "b_star": self.best,
            "b_star_upper": self.best_upper,
            "b_star_published": self.best_published,
        }
        if name in winners:
            bound = winners[name]
            return None if bound is None else bound.value
        if name not in self.estimates:
            raise KeyError(unknown("quantity", name, [*winners, *self.estimates]))
        interval = self.estimates[name]
        return None if interval is None else (interval.high if upper else interval.low)

    def to_frame(self) -> pd.DataFrame:
        """One row for each estimate."""
        import pandas as pd

        rows = [{"name": n, **i.to_dict()} for n, i in self.estimates.items() if i is not None]
        return pd.DataFrame(rows).drop(columns="vacuous", errors="ignore")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, keys as ``trm-bounds certify --json`` prints them."""
        return {
            "responses": self.responses,
            "prompts": self.prompts,
            "tokens": self.tokens,
            "horizon": self.horizon,
            "at_horizon": self.at_horizon,
            "estimates": {n: None if i is None else i.to_dict() for n, i in self.estimates.items()},
            "bounds": [b.to_dict() for b in (*self.table.bounds, *self.optimistic)],
            "b_star": named_value(self.best),
            "b_star_upper": named_value(self.best_upper),
            "b_star_published": named_value(self.best_published),
            "improvement": None if self.improvement is None else self.improvement.to_dict(),
            "reasons": dict(self.reasons),
            "mask": None if self.mask is None else self.mask.to_dict(),
            "warnings": list(self.warnings),
            "assumptions": assumption_dicts(self.assumptions),
        }

    def to_json(self) -> str:
        """One JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def sentence(self) -> str:
        """The result in one sentence."""
        if self.best is None:
            return "No bound applies to this log."
        text = f"At the estimates, |J(theta) - J(roll) - L'| <= {shown(self.best.value, 3)} ({self.best.name})"
        if self.best_upper is not None:
            text += f"; at their upper {self.confidence:.0%} limits {shown(self.best_upper.value, 3)}"
        if self.best_published is not None:
            where = " at the largest divergence seen (optimistic)" if self.best_published.optimistic else ""
            text += f"; the published B* is {shown(self.best_published.value, 3)}{where}"
        return text + f". Standing: {self.best.standing.label}."

    def _heading(self) -> str:
        return (
            f"{self.responses} responses to {self.prompts} prompts, {self.tokens} policy tokens, horizon "
            f"{self.horizon} ({self.at_horizon:.1%} of the responses reach it)"
        )

    def _estimate_cells(self) -> tuple[list[str], list[Row]]:
        rows: list[Row] = []
        for name, i in self.estimates.items():
            if i is None:
                rows.append(([name, "-", "", "", self.reasons.get(name, "")], False))
            else:
                limits = f"{i.low:.3g} to {i.high:.3g}"
                rows.append(([name, f"{i.value:.3g}", limits, i.standing.label, i.method], False))
        return ["estimate", "value", f"{self.confidence:.0%} interval", "standing", "how"], rows

    def _bound_cells(self) -> tuple[list[str], list[Row]]:
        both = replace(self.table, bounds=(*self.table.bounds, *self.optimistic))
        return both.cells(best=self.best, published=self.best_published, digits=3)

    def _notes(self) -> list[str]:
        lines = [] if self.mask is None else [str(self.mask)]
        lines += [f"No {name}: {reason}" for name, reason in self.reasons.items()]
        lines += [f"Assumed: {a}" for a in self.assumptions]
        return lines + [f"Warning: {w}" for w in self.warnings]

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(
            Text(self._heading()),
            rich_table(*self._estimate_cells()),
            rich_table(*self._bound_cells()),
            Text(self.sentence(), style="bold"),
            *(Text(line, style="yellow" if line.startswith("Warning") else "dim") for line in self._notes()),
        )

    def __str__(self) -> str:
        return plain(self)

    def to_html(self) -> str:
        """The certificate as an HTML fragment (what a notebook shows)."""
        return (
            html_lines([self._heading()], "span")
            + html_table(*self._estimate_cells())
            + html_table(*self._bound_cells())
            + html_lines([self.sentence()], "b")
            + html_lines(self._notes(), "small")
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _finite_or_none(x: float | None) -> float | None:
    return None if x is None else finite(x)
