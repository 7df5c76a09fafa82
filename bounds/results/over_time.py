"""A run, step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._show import Row, html_lines, html_table, plain, rich_table, shown
from bounds.results.standing import Interval

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: its two policies, its responses."""

    name: str
    responses: int
    prompts: int
    kl_seq: Interval
    worst_case_error: Interval
    acceptance: Interval
    ppl_gap: Interval
    surrogate_gain: Interval | None
    improvement: Interval | None

    def intervals(self) -> dict[str, Interval | None]:
        """What was estimated, by name."""
        names = ("kl_seq", "worst_case_error", "acceptance", "ppl_gap", "surrogate_gain", "improvement")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, repr=False)
class RunOverTime:
    """Steps in order, and the trust region that was to hold.

    Attributes
    ----------
    steps : tuple of Step
    limit : float
        The trust region: expected KL per response, which bounds the surrogate's error, at most this.
    time_uniform : bool
        Whether all steps' intervals hold at once, so that looking after every step is honest.
    lost : str or None
        The first step at which the upper limit of kl_seq was above ``limit``.
    """

    steps: tuple[Step, ...]
    limit: float
    time_uniform: bool
    confidence: float

    @property
    def lost(self) -> str | None:
        """The first step where the trust region could not be certified."""
        return next((s.name for s in self.steps if s.kl_seq.high > self.limit), None)

    def sentence(self) -> str:
        """Where the trust region was lost, if it was."""
        at = f"|Error| <= kl_seq <= {shown(self.limit, 3)} (upper {100 * self.confidence:.6g}% limits)"
        if self.lost is None:
            return f"{at} at every one of {len(self.steps)} steps."
        return f"{at} stopped being certifiable at step {self.lost}."

    def _cells(self) -> tuple[list[str], list[Row]]:
        names = [n for n in self.steps[0].intervals() if any(s.intervals()[n] is not None for s in self.steps)]
        rows: list[Row] = [
            ([s.name, str(s.prompts), *map(_cell, (s.intervals()[n] for n in names))], s.name == self.lost)
            for s in self.steps
        ]
        return ["step", "prompts", *names], rows

    def to_frame(self) -> pd.DataFrame:
        """One row for each step: value, low and high of each estimate."""
        import pandas as pd

        rows = []
        for s in self.steps:
            row: dict[str, Any] = {"step": s.name, "responses": s.responses, "prompts": s.prompts}
            for name, i in s.intervals().items():
                if i is not None:
                    row |= {name: i.value, f"{name}_low": i.low, f"{name}_high": i.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "limit": self.limit,
            "time_uniform": self.time_uniform,
            "confidence": self.confidence,
            "lost": self.lost,
            "steps": [
                {
                    "step": s.name,
                    "responses": s.responses,
                    "prompts": s.prompts,
                    **{name: None if i is None else i.to_dict() for name, i in s.intervals().items()},
                }
                for s in self.steps
            ],
        }

    def to_json(self) -> str:
        """One JSON object; full precision."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def _notes(self) -> Iterable[str]:
        if self.time_uniform:
            yield "All intervals hold at once (step k spends 1/(k (k+1)) of the error): one may look after every step."
        else:
            yield "Each interval holds by itself; to look after every step, ask for time-uniform ones."

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        lines = [Text(self.sentence(), style="bold"), *(Text(line, style="dim") for line in self._notes())]
        return Group(rich_table(*self._cells()), *lines)

    def __str__(self) -> str:
        return plain(self)

    def __repr__(self) -> str:
        return f"<RunOverTime: {self.sentence()}>"

    def to_html(self) -> str:
        """An HTML fragment (what a notebook shows)."""
        return html_table(*self._cells()) + html_lines([self.sentence()], "b") + html_lines(self._notes(), "small")

    def _repr_html_(self) -> str:
        return self.to_html()


def _cell(i: Interval | None) -> str:
    if i is None:
        return "-"
    value, low, high = i.texts()
    return f"{value} ({low} to {high})"
