"""Where a divergence comes from, and how two logs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds._text import Cells, Row, many
from bounds.results import Interval, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Part:
    """One part of kl_seq: nats per response, its share of the whole, and the share of tokens that carry it."""

    label: str
    kl: float
    share: Interval
    tokens: float


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """kl_seq, which bounds the error, split in several ways; the parts of a split sum to it (chain rule).

    Attributes
    ----------
    kl_seq : Interval
        Nats per response.
    how : str
        What was added up: the exact column, or k3 of the sampled tokens.
    splits : mapping of name to parts
        By position, probability, token, length, prompt, and what else the log tells.
    half, most : float
        Least share of the tokens of this log that carries 50 % and 80 % of it.
    """

    kl_seq: Interval
    how: str
    splits: Mapping[str, tuple[Part, ...]]
    half: float
    most: float

    def sentence(self) -> str:
        """The headline."""
        if not self.splits:
            return f"kl_seq = {self.kl_seq.texts()[0]}: there is nothing to split."
        return (
            f"80% of kl_seq = {self.kl_seq.texts()[0]} nats a response comes from {_percent(self.most)} of the tokens, "
            f"half of it from {_percent(self.half)}."
        )

    def tables(self) -> list[Cells]:
        """One for each split."""
        return [self._cells(name) for name in self.splits]

    def _cells(self, name: str) -> Cells:
        rows: list[Row] = []
        for part in self.splits[name]:
            value, low, high = (
                _percent(x) for x in (part.share.value, max(part.share.low, 0.0), min(part.share.high, 1))
            )
            ends = "" if part.share.low == part.share.high else f"{low} to {high}"
            rows.append(([part.label, value, ends, f"{part.kl:.3g}", _percent(part.tokens)], False))
        level = f"{100 * self.kl_seq.confidence:.6g}% interval"
        return [f"by {name.replace('_', ' ')}", "share", level, "nats a response", "of the tokens"], rows

    def to_frame(self) -> pd.DataFrame:
        """One row for each part of each split."""
        import pandas as pd

        rows = [
            {"split": n, "part": p.label, "kl": p.kl, "share": p.share.value, "low": p.share.low, "high": p.share.high,
             "tokens": p.tokens}
            for n, parts in self.splits.items()
            for p in parts
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "kl_seq": self.kl_seq.to_dict(),
            "how": self.how,
            "tokens_of_half": self.half,
            "tokens_of_80_percent": self.most,
            "splits": {
                name: [{"part": p.label, "kl": p.kl, "share": p.share.to_dict(), "tokens": p.tokens} for p in parts]
                for name, parts in self.splits.items()
            },
        }

    def notes(self) -> list[str]:
        """What was added up."""
        return [f"Added up: {self.how}. Intervals are clustered by prompt and asymptotic."]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """Estimates of two logs and their difference, second minus first.

    Attributes
    ----------
    first, second, difference : mappings of name to Interval
        The same names in each.
    shared : int
        How many prompts both logs answer: each is one unit, so that logs of the same prompts are compared one by one.
    """

    first: Mapping[str, Interval]
    second: Mapping[str, Interval]
    difference: Mapping[str, Interval]
    shared: int

    def sentence(self) -> str:
        """What can be told apart."""
        clear = [name for name, i in self.difference.items() if i.low > 0.0 or i.high < 0.0]
        if not clear:
            return "No difference is clear at this confidence."
        texts = []
        for name in clear:
            word = "higher" if self.difference[name].value > 0.0 else "lower"
            texts.append(f"{name} is {word} in the second ({self.difference[name].texts()[0]})")
        return f"{'; '.join(texts)}."

    def tables(self) -> list[Cells]:
        """One row for each estimate."""
        rows: list[Row] = []
        for name, i in self.difference.items():
            value, low, high = i.texts()
            clear = i.low > 0.0 or i.high < 0.0
            both = [self.first[name].texts()[0], self.second[name].texts()[0]]
            rows.append(([name, value, f"{low} to {high}", *both], clear))
        level = f"{100 * next(iter(self.difference.values())).confidence:.6g}% interval"
        return [(["estimate", "second - first", level, "first", "second"], rows)]

    def to_frame(self) -> pd.DataFrame:
        """One row for each estimate."""
        import pandas as pd

        rows = [
            {"name": n, "first": self.first[n].value, "second": self.second[n].value, "difference": i.value,
             "low": i.low, "high": i.high}
            for n, i in self.difference.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "prompts_of_both": self.shared,
            "estimates": {
                name: {"first": self.first[name].to_dict(), "second": self.second[name].to_dict(),
                       "difference": i.to_dict()}
                for name, i in self.difference.items()
            },
        }  # fmt: skip

    def notes(self) -> list[str]:
        """How the differences were taken."""
        return [f"{many(self.shared, 'prompt')} in both logs. Intervals are clustered by prompt and asymptotic."]


def _percent(share: float) -> str:
    """Three digits, or two after the point."""
    return f"{100 * share:.3g}%"
