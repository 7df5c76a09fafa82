"""A run, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._text import Cells, Row, many, shown
from bounds.results import Interval, Result, Standing

if TYPE_CHECKING:
    import pandas as pd


_TABLES = ("kl_seq", "worst_case_error", "ppl_gap"), ("acceptance", "surrogate_gain", "improvement")


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
        return {name: getattr(self, name) for names in _TABLES for name in names}


@dataclass(frozen=True, slots=True, repr=False)
class RunOverTime(Result):
    """Steps in order, and the trust region that was to hold.

    Attributes
    ----------
    steps : tuple of Step
    limit : float
        The trust region: expected KL per response at most this.
    time_uniform : bool
        Whether the intervals of an estimate hold at all steps at once, so that looking after every step is honest.
    reward_spread : float
        Largest minus smallest reward: |Error| is at most this times kl_seq.
    lost : str or None
        The first step at which the upper limit of kl_seq was above ``limit``.
    """

    steps: tuple[Step, ...]
    limit: float
    time_uniform: bool
    confidence: float
    reward_spread: float = 1.0

    @property
    def lost(self) -> str | None:
        """The first step where the trust region could not be certified."""
        return next((s.name for s in self.steps if s.kl_seq.high > self.limit), None)

    def sentence(self) -> str:
        """Where the trust region was lost, if it was."""
        region = f"kl_seq <= {self.limit:g}, so |Error| <= {shown(self.limit * self.reward_spread)}"
        limits = f"upper {100 * self.confidence:.6g}% limits (asymptotic)"
        if self.lost is None:
            return f"By {limits}, {region}, at {many(len(self.steps), 'step')}, all there are."
        return f"By {limits}, {region}, cannot be said at step {self.lost}, and could before."

    def tables(self) -> list[Cells]:
        """Divergences, then what the steps bring; one row for each step."""
        return [self._cells(names) for names in _TABLES]

    def _cells(self, wanted: tuple[str, ...]) -> Cells:
        names = [n for n in wanted if any(s.intervals()[n] is not None for s in self.steps)]
        rows: list[Row] = [
            ([s.name, str(s.prompts), *(_cell(s.intervals()[n]) for n in names)], s.name == self.lost)
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

    def notes(self) -> list[str]:
        """Whether one may look after every step."""
        assumed = any(i is not None and i.standing is Standing.ASSUMED for i in self.steps[0].intervals().values())
        condition = " under what is assumed of the log (certify says what)" if assumed else ""
        known = f"acceptance and improvement hold for every sample size{condition}, the others are asymptotic."
        if self.time_uniform:
            return [f"The intervals of one estimate hold at all steps at once (step k spends 1/(k (k+1))); {known}"]
        return [
            f"Each interval holds by itself ({known[:-1]}); to look after every step, ask for time-uniform ones "
            "(time_uniform=True, --time-uniform)."
        ]


def _cell(i: Interval | None) -> str:
    if i is None:
        return "-"
    value, low, high = i.texts()
    return f"{value} [{low}, {high}]"
