"""What masks keep of a log, and what they cost in the guarantee."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from bounds._text import Cells, Row, many, near
from bounds.certificate.mask_parts import (
    ChosenMask,
    Denominators,
    LengthBias,
    MaskTerms,
    Reweighing,
)
from bounds.results import Interval, IntervalTable, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class MaskStudy(Result):
    """What a mask keeps of a log, by threshold, length and reward, and what it costs in the guarantee.

    Attributes
    ----------
    chosen, terms : MaskTerms and its like
        ``terms`` is of the mask that was asked about; ``chosen`` the best threshold, found on half of the prompts.
    reference, by_threshold : tuples of MaskTerms
        Masks with a title: the paper's, the best of all masks in this bound, none; and a grid of thresholds.
    gain_without_mask : Interval or None
        E[R (P-1)] <= J(theta) - J(roll), which no mask can exceed.
    by_length, length_bias, reweighing : tuples
        Acceptance by length; next to (1-p)^length; rules that are no masks.
    denominators : Denominators or None
        The masked surrogate over all responses, per accepted one, and per accepted token.
    groups_mixed, groups_rejected : Interval
        Share of prompts some of whose responses are rejected, and all.
    reasons : mapping of name to text
        Why something is None.

    Examples
    --------
    >>> import bounds
    >>> study = bounds.mask_study(bounds.example_traces(), mask="seq_max_k2<=0.05")
    >>> study.terms.mask, round(study.terms.acceptance.value, 2)
    ('seq_max_k2<=0.05', 0.97)
    """

    responses: int
    prompts: int
    tokens: int
    horizon: int
    confidence: float
    terms: MaskTerms
    gain_without_mask: Interval | None
    reference: tuple[MaskTerms, ...]
    by_threshold: tuple[MaskTerms, ...]
    by_length: IntervalTable
    length_bias: tuple[LengthBias, ...]
    reweighing: tuple[Reweighing, ...]
    denominators: Denominators | None
    groups_mixed: Interval
    groups_rejected: Interval
    chosen: ChosenMask | None
    reasons: dict[str, str]
    warnings: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row for each mask, its terms as columns with ``_low`` and ``_high``."""
        import pandas as pd

        rows = []
        for terms in (self.terms, *self.reference, *self.by_threshold):
            row: dict[str, Any] = {"mask": terms.mask, "title": terms.title}
            for name, value in ((f.name, getattr(terms, f.name)) for f in fields(terms)):
                if isinstance(value, Interval):
                    row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        """The result in one sentence."""
        text = f"This mask keeps {_share(self.terms.acceptance)} of the responses"
        if self.terms.lower is None:
            return text + "."
        text += f"; with it, the gain J(theta) - J(roll) >= {_signed(self.terms.lower)}"
        if self.gain_without_mask is not None:
            text += f", by E[R (P-1)] without any mask >= {_signed(self.gain_without_mask)}"
        return text + " (estimates)."

    def heading(self) -> str:
        """The mask, and what was logged."""
        return (
            f"Mask {self.terms.mask}; {many(self.responses, 'response')} to {many(self.prompts, 'prompt')}, "
            f"{many(self.tokens, 'policy token')}, horizon {self.horizon}"
        )

    def tables(self) -> list[Cells]:
        """Masks, the terms of this one, and lengths."""
        terms = [self._term_cells()] if self.terms.lower is not None else []
        return [self._cells_by_mask(), *terms, self._length_cells()]

    def _cells_by_mask(self) -> Cells:
        titles = ["mask", "kept", "gain is at least", "of R", "of 1-R"]
        rows: list[Row] = []
        others = {t.mask: t for t in (*self.reference, *self.by_threshold)}
        for label, terms in (("this mask", self.terms), *((mask or "everything", t) for mask, t in others.items())):
            gain = "-" if terms.lower is None else _signed(terms.lower)
            shares = [_percent(terms.acceptance_high_reward), _percent(terms.acceptance_low_reward)]
            rows.append(([_short(label), _share(terms.acceptance), gain, *shares], terms is self.terms))
        return titles, rows

    def _term_cells(self) -> Cells:
        names = {
            "surrogate": ("E[M R S]", "masked surrogate, over all responses"),
            "penalty": ("E[M R Phi]", "divergence of what is kept"),
            "rejected_reward": ("E[(1-M) R]", "rejected reward mass"),
            "rejected_rest": ("E[(1-M)(1-R)]", "rejected mass without reward"),
            "lower": ("E[M R S] - E[M R Phi] - E[(1-M) R]", "the gain is at least this, for any mask"),
            "upper": ("E[M R S] - E[M S] + E[M (1-R) Phi] + E[(1-M)(1-R)]", "the gain is at most this"),
        }
        found = ((text, getattr(self.terms, name), what) for name, (text, what) in names.items())
        rows: list[Row] = [([text, _signed(i), what], False) for text, i, what in found if i is not None]
        if self.gain_without_mask is not None:
            rows.append(
                (
                    ["E[R (P-1)]", _signed(self.gain_without_mask), "the gain is at least this; no mask exceeds it"],
                    False,
                )
            )
        return ["term of this mask", "value", "what it is"], rows

    def _length_cells(self) -> Cells:
        titles = ["tokens", "responses", "kept by the mask"]
        titles += [f"kept by {b.criterion}; (1-p)^length" for b in self.length_bias]
        rows: list[Row] = []
        for label, row in self.by_length.rows.items():
            cells = [label, str(self.by_length.facts[label]["responses"]), _share(row["acceptance"])]
            for b in self.length_bias:
                predicted = b.by_length.facts[label]["predicted"]
                cells.append(f"{_percent(b.by_length[label]['acceptance'])}; {predicted:.1%}")
            rows.append((cells, False))
        return titles, rows

    def notes(self) -> list[str]:
        """What the rows and numbers are."""
        lines = ["; ".join(f"{t.mask} is {t.title}" for t in self.reference if t.mask) + "."]
        lines += ["The gain is J(theta) - J(roll); R is mapped to [0, 1] by its declared range."]
        lines += [_bias_line(b) for b in self.length_bias]
        lines += [_denominator_line(self.denominators)] if self.denominators is not None else []
        lines.append(
            f"Some but not all responses are rejected for {_share(self.groups_mixed)} of the prompts, all for "
            f"{_share(self.groups_rejected)}. The mask does not touch the advantages: a group mean is still over all."
        )
        lines += [_reweighing_line(r) for r in self.reweighing]
        lines += [] if self.chosen is None else [_chosen_line(self.chosen)]
        lines += [f"No {name}: {reason}" for name, reason in self.reasons.items()]
        lines.append(
            f"Intervals: {100 * self.confidence:.6g}%, Student's t over prompts, asymptotic; no certificates. "
            "What they say of J holds if mask and theta were fixed without looking at these responses."
        )
        return lines + [f"Warning: {w}" for w in self.warnings]


def _short(mask: str) -> str:
    """A mask with three digits for each limit of more than six, in a table; the notes say it in full."""
    return re.sub(r"\d+\.\d{7,}", lambda found: near(float(found[0])), mask)


def _value(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.value:.3g}"


def _signed(interval: Interval) -> str:
    value, low, high = interval.texts()
    return f"{value} [{low}, {high}]"


def _percent(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.value:.1%}"


def _tiny(share: float) -> str:
    if share >= 0.001 or share == 0.0:
        return f"{share:.1%}"
    return f"{100.0 * share:.1g}%" if share >= 1e-5 else "less than 0.001%"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    low, high = math.floor(1000 * interval.low) / 1000, math.ceil(1000 * interval.high) / 1000
    return f"{interval.value:.1%} [{low:.1%}, {high:.1%}]"


def _bias_line(bias: LengthBias) -> str:
    p = bias.violation
    if p.value == 0.0:
        return f"Length bias of {bias.criterion}: no token of this log violates it (p is at most {p.high:.3g})."
    far = ", ".join(f"{_tiny(value)} of {length}" for length, value in bias.at_length.items())
    return (
        f"Length bias of {bias.criterion}: a token violates it with p = {p.value:.3g} [{p.low:.3g}, {p.high:.3g}]. "
        f"Were tokens independent, it would keep (1-p)^T: {far} tokens."
    )


def _denominator_line(d: Denominators) -> str:
    return (
        f"Masked surrogate: {_value(d.surrogate_gain)} over all responses (as in the paper), "
        f"{_value(d.surrogate_gain_per_accepted)} per accepted response, "
        f"{_value(d.surrogate_gain_per_accepted_token)} per accepted token."
    )


def _reweighing_line(r: Reweighing) -> str:
    share = f"touches {_share(r.share)} of the {r.unit}" if r.share is not None else f"cannot be counted: {r.reason}"
    return f"{r.rule} {share}. It is no mask of responses: it changes the objective, and no bound here speaks of that."


def _chosen_line(c: ChosenMask) -> str:
    return (
        f"Best of {c.candidates} masks on {c.prompts_choosing} prompts: {c.mask or 'no mask'} "
        f"({c.value_choosing:.3g} there); on the other {c.prompts_judging} prompts J(theta) - J(roll) >= "
        f"{_signed(c.lower)}, where all is kept >= {_signed(c.lower_without)}."
    )
