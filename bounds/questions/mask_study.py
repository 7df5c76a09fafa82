"""What masks keep of a log, and what they cost in the guarantee that needs no global assumption."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bounds._checks import BoolArray, FloatArray, confidence_level
from bounds._files import whole_file
from bounds._text import Cells, Row, many, near, shown
from bounds.certificate.findings import Finding, findings, mask_findings, refuting
from bounds.certificate.kept import MaskEffect, MaskReport, UnderMask, by_length, kept, mask_report, share_of
from bounds.certificate.statistics import prompt_keys, prompt_weights, statistics_of
from bounds.certificate.summary import Summary
from bounds.intervals import prompt_means
from bounds.logs.traces import TraceSet
from bounds.masks.mask import PAPER, Criterion, Mask
from bounds.masks.statistics import unviolated
from bounds.results import Interval, IntervalTable, Result

if TYPE_CHECKING:
    import pandas as pd

#: The mask that is looked at unless another is asked for: both of the paper's, together.
DEFAULT = PAPER["TRM-Max and TRM-Avg"]
#: E[R (M (1 + log P) - 1)] is largest where M keeps what has 1 + log P >= 0, that is P >= 1/e: for every reward.
BEST = f"seq_product_ratio>={math.exp(-1.0)!r}"

#: Masks that every study shows, by title.
_REFERENCE = {
    **{f"the paper's {name}": Mask.parse(text) for name, text in PAPER.items()},
    "the best of all masks in this bound (P >= 1/e)": Mask.parse(BEST),
    "no mask": Mask(()),
}
_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_PAPER_LENGTHS = (256, 1024, 4096, 8192, 16384)
_KEY = b"trm_bounds.mask"  # in the metadata of a file of masks


@dataclass(frozen=True, slots=True)
class LengthBias:
    """A rule that one token can violate, by length: what is kept, and (1-p)^length if tokens were independent.

    ``violation`` is p, the share of all tokens that violate the criterion; ``predicted`` in ``by_length`` the mean of
    (1-p)^length there; ``at_length`` what (1-p)^T would keep of responses of T tokens, by T.
    """

    criterion: str
    violation: Interval
    by_length: IntervalTable
    at_length: Mapping[int, float]

    def __str__(self) -> str:
        p = self.violation
        if p.value == 0.0:
            return f"Length bias of {self.criterion}: no token of this log violates it (p is at most {p.high:.3g})."
        far = ", ".join(f"{_tiny(value)} of {length}" for length, value in self.at_length.items())
        return (
            f"Length bias of {self.criterion}: a token violates it with p = {p.value:.3g} [{p.low:.3g}, {p.high:.3g}]. "
            f"Were tokens independent, it would keep (1-p)^T: {far} tokens."
        )


@dataclass(frozen=True, slots=True)
class Reweighing:
    """A rule that drops or truncates tokens or weights: the share of ``unit`` that it touches.

    Guarantees speak of masks M(x, y) of whole responses; this rule changes the objective instead.
    """

    rule: str
    unit: str
    share: Interval | None
    reason: str = ""

    def __str__(self) -> str:
        does = f"touches {_share(self.share)} of the {self.unit}" if self.share else f"cannot be counted: {self.reason}"
        why = "It is no mask of responses: it changes the objective, and no bound here speaks of that."
        return f"{self.rule} {does}. {why}"


@dataclass(frozen=True, slots=True)
class ChosenMask:
    """The mask whose ``lower`` is largest on some of the prompts, and what it is worth on the others.

    ``lower`` is judged on prompts that had no part in the choice, and so is ``lower_without``, that of no mask.
    """

    mask: str
    candidates: int
    prompts_choosing: int
    prompts_judging: int
    value_choosing: float
    lower: Interval
    lower_without: Interval

    def __str__(self) -> str:
        return (
            f"Best of {self.candidates} masks on {self.prompts_choosing} prompts: {self.mask or 'no mask'} "
            f"({self.value_choosing:.3g} there); on the other {self.prompts_judging} prompts J(theta) - J(roll) >= "
            f"{self.lower}, where all is kept >= {self.lower_without}."
        )


@dataclass(frozen=True, slots=True, repr=False)
class MaskStudy(Result):
    """What a mask keeps of a log, by threshold, length and reward, and what it costs in the guarantee.

    Attributes
    ----------
    mask : MaskReport
        What the mask that was asked about keeps, as :func:`bounds.certify` says it.
    effect : MaskEffect
        What that mask costs in the guarantee.
    reference, by_threshold : tuples of MaskEffect
        Masks with a title: the paper's, the best of all masks in this bound, none; and a grid of thresholds.
    gain_without_mask : Interval or None
        E[R (P-1)] <= J(theta) - J(roll), which no mask can exceed.
    length_bias, reweighing : tuples
        Acceptance by length next to (1-p)^length; rules that are no masks.
    groups_mixed, groups_rejected : Interval
        Share of prompts some of whose responses are rejected, and all.
    chosen : ChosenMask or None
        The best threshold, found on half of the prompts.
    reasons : mapping of name to text
        Why something is None.
    findings : tuple of Finding
        What is remarkable about the log and the mask; ``warnings`` are their texts.

    Examples
    --------
    >>> import bounds
    >>> study = bounds.mask_study(bounds.example_traces(), mask="seq_max_k2<=0.05")
    >>> study.mask.rule, round(study.mask.acceptance.value, 2)
    ('seq_max_k2<=0.05', 0.97)
    """

    responses: int
    prompts: int
    tokens: int
    horizon: int
    confidence: float
    mask: MaskReport
    effect: MaskEffect
    gain_without_mask: Interval | None
    reference: tuple[MaskEffect, ...]
    by_threshold: tuple[MaskEffect, ...]
    length_bias: tuple[LengthBias, ...]
    reweighing: tuple[Reweighing, ...]
    groups_mixed: Interval
    groups_rejected: Interval
    chosen: ChosenMask | None
    reasons: Mapping[str, str]
    findings: tuple[Finding, ...]
    derived: ClassVar = ("warnings",)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each mask, what is said of it as columns with ``_low`` and ``_high``."""
        import pandas as pd

        rows = []
        for effect in (self.effect, *self.reference, *self.by_threshold):
            row: dict[str, Any] = {"mask": effect.mask, "title": effect.title}
            for name, value in ((f.name, getattr(effect, f.name)) for f in fields(effect)):
                if isinstance(value, Interval):
                    row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        """Return how much the mask keeps."""
        return f"{self.mask.rule} keeps {_share(self.mask.acceptance)} of the responses."

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield how much the mask keeps, of which responses, and whether a gain is shown under it."""
        e, lengths = self.effect, self.mask.by_length
        _, low, high = _percents(self.mask.acceptance)
        yield f"KEEPS {_percent(e.acceptance)}", f"of the responses ({low} to {high}, guaranteed), by {_short(e.mask)}"
        if e.acceptance_high_reward is not None and e.acceptance_low_reward is not None:
            rewarded, others = _percent(e.acceptance_high_reward), _percent(e.acceptance_low_reward)
            yield "  rewarded", f"{rewarded} of the rewarded responses, {others} of the others"
        if len(lengths) > 1:
            short, *_, long = (f"{_percent(lengths[n]['acceptance'])} of those of {n} tokens" for n in lengths)
            yield "  length", f"{short}, {long}"
        if e.lower is not None and (without := self.gain_without_mask) is not None:
            yield "  gain", f"{_shows(e.lower, 'with this mask')}, {_shows(without, 'without')}: estimates"
        logged = f"{many(self.responses, 'response')} to {many(self.prompts, 'prompt')}"
        yield "  rests on", f"{logged}, horizon {self.horizon}; thresholds and what a mask costs: --full"

    def short(self) -> list[Cells]:
        """Return this mask, the paper's, and none."""
        return [self._mask_cells(self.reference)]

    def tables(self) -> list[Cells]:
        """Return masks, the parts of the guarantee under this one, and lengths."""
        parts = [self._guarantee_cells()] if self.effect.lower is not None else []
        return [self._mask_cells((*self.reference, *self.by_threshold)), *parts, self._length_cells()]

    def _mask_cells(self, others: Iterable[MaskEffect]) -> Cells:
        rows: list[Row] = []
        for label, e in (("this mask", self.effect), *{e.title or e.mask: e for e in others}.items()):
            gain = "-" if e.lower is None else str(e.lower)
            shares = _percent(e.acceptance_high_reward), _percent(e.acceptance_low_reward)
            rows.append(([_short(label), _share(e.acceptance), *shares, gain], e is self.effect))
        return ["mask", "kept", "of the rewarded", "of the others", "gain is at least"], rows

    def _guarantee_cells(self) -> Cells:
        e = self.effect
        found = (
            ("E[M R S]", e.surrogate, "masked surrogate, over all responses"),
            ("E[M R Phi]", e.penalty, "divergence of what is kept"),
            ("E[(1-M) R]", e.rejected_reward, "rejected reward mass"),
            ("E[(1-M)(1-R)]", e.rejected_rest, "rejected mass without reward"),
            ("E[M R S] - E[M R Phi] - E[(1-M) R]", e.lower, "the gain is at least this, for any mask"),
            ("E[M R S] - E[M S] + E[M (1-R) Phi] + E[(1-M)(1-R)]", e.upper, "the gain is at most this"),
            ("E[R (P-1)]", self.gain_without_mask, "the gain is at least this; no mask exceeds it"),
        )
        return ["with this mask", "value", "what it is"], [([t, str(i), what], False) for t, i, what in found if i]

    def _length_cells(self) -> Cells:
        titles = ["tokens", "responses", "kept by the mask"]
        titles += [f"kept by {b.criterion}; (1-p)^length" for b in self.length_bias]
        rows: list[Row] = []
        lengths = self.mask.by_length
        for label in lengths:
            cells = [label, str(lengths.facts[label]["responses"]), _share(lengths.estimate(label, "acceptance"))]
            cells += [
                f"{_percent(b.by_length[label]['acceptance'])}; {b.by_length.facts[label]['predicted']:.1%}"
                for b in self.length_bias
            ]
            rows.append((cells, False))
        return titles, rows

    def notes(self) -> list[str]:
        """Return what the rows and numbers are."""
        lines = [
            "; ".join(f"{e.mask} is {e.title}" for e in self.reference if e.mask) + ".",
            "The gain is J(theta) - J(roll); R is mapped to [0, 1] by its declared range.",
            *map(str, self.length_bias),
            self.mask.surrogates().strip(),
            f"Some but not all responses are rejected for {_share(self.groups_mixed)} of the prompts, all for "
            f"{_share(self.groups_rejected)}. The mask does not touch the advantages: a group mean is still over all.",
            *map(str, self.reweighing),
            "" if self.chosen is None else str(self.chosen),
            *(f"No {name}: {reason}" for name, reason in self.reasons.items()),
            f"Intervals: {100 * self.confidence:.6g}%, Student's t over prompts, asymptotic; no certificates (but the "
            "share that is kept holds for every sample size). What they say of J holds if mask and theta were fixed "
            "without looking at these responses.",
        ]
        return [line for line in lines if line]


def _short(mask: str) -> str:
    """Show a mask with three digits for each limit of more than six, in a table; the notes say it in full."""
    return re.sub(r"\d+\.\d{7,}", lambda found: near(float(found[0])), mask)


def _percent(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.value:.1%}"


def _tiny(share: float) -> str:
    if share >= 0.001 or share == 0.0:
        return f"{share:.1%}"
    return f"{100.0 * share:.1g}%" if share >= 1e-5 else "less than 0.001%"


def _percents(interval: Interval) -> tuple[str, str, str]:
    """Return a share and its ends in percent, the ends rounded outward."""
    low, high = math.floor(1000 * interval.low) / 1000, math.ceil(1000 * interval.high) / 1000
    return f"{interval.value:.1%}", f"{low:.1%}", f"{high:.1%}"


def _share(interval: Interval) -> str:
    value, low, high = _percents(interval)
    return f"{value} [{low}, {high}]"


def _shows(gain: Interval, where: str) -> str:
    """Say whether a lower limit of the gain is above 0."""
    return f"{'' if gain.low > 0.0 else 'not '}shown {where} ({gain.span()})"


# --- the question --------------------------------------------------------------------------------------------------


def mask_study(
    log: TraceSet | Iterable[TraceSet] | Summary, *, mask: str | Mask | None = None, confidence: float = 0.95
) -> MaskStudy:
    """Study acceptance by threshold, length and reward, and what a mask costs in the guarantee.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Logged responses.
    mask : str or Mask, optional
        The mask to look at; else the paper's combination.
    confidence : float
        Coverage of the intervals (prompt-clustered, asymptotic; that of acceptance holds for every sample size).

    Returns
    -------
    MaskStudy

    Raises
    ------
    TraceError
        If the log has no response, or is refused.
    ValueError
        For a bad argument, or a mask of a column that is not logged.

    Notes
    -----
    For any mask M(x, y), with S = sum (rho - 1), Phi = sum k3(rho), log P = S - Phi and rewards in [0, 1]:
    J(theta) - J(roll) >= E[M R S] - E[M R Phi] - E[(1-M) R] = E[R (M (1 + log P) - 1)], and <= its mirror for 1 - R.
    (J(theta) >= E[R P] >= E[M R (1 + log P)].) E[R (P-1)] is never below the lower end.

    Examples
    --------
    >>> import bounds
    >>> study = mask_study(bounds.example_traces(), mask="seq_product_ratio=0.5_2")
    >>> study.effect.lower.value <= study.gain_without_mask.value
    True
    """
    confidence = confidence_level(confidence)
    chosen = mask if isinstance(mask, Mask) else Mask.parse(DEFAULT if mask is None else mask)
    summary = Summary.of(log, statistics=statistics_for(chosen))
    seen = findings(summary)
    against = refuting(seen)
    under, keep = UnderMask(summary, confidence, refuted=against is not None), kept(summary, chosen)
    report = mask_report(summary, chosen, keep, confidence)
    picked = None if against else _choose(summary, chosen, confidence)
    bias = tuple(_length_bias(summary, c, confidence) for c in chosen.dropping if c.violation)
    kept_of_prompt = prompt_means(keep.astype(np.float64), summary.prompt)

    def share_of_prompts(some: BoolArray) -> Interval:
        return share_of(some.astype(np.float64), np.ones(some.size), np.arange(some.size), confidence)

    return MaskStudy(
        responses=len(summary),
        prompts=summary.prompts,
        tokens=summary.tokens,
        horizon=summary.horizon,
        confidence=confidence,
        mask=report,
        effect=under.effect(chosen),
        gain_without_mask=under.gain_without_mask(),
        reference=tuple(under.effect(each, title) for title, each in _REFERENCE.items()),
        by_threshold=tuple(map(under.effect, _grid(chosen, summary, slice(None)))),
        length_bias=bias,
        reweighing=tuple(_reweighing(summary, c, confidence) for c in chosen.reweighing),
        groups_mixed=share_of_prompts((kept_of_prompt > 0.0) & (kept_of_prompt < 1.0)),
        groups_rejected=share_of_prompts(kept_of_prompt == 0.0),
        chosen=picked,
        reasons=_reasons(summary, picked, bias, against),
        findings=(*seen, *mask_findings(summary, chosen, report.acceptance.value)),
    )


def statistics_for(mask: Mask) -> tuple[str, ...]:
    """Return what is needed of each response: for the mask, the paper's, and who violates a maximum."""
    counts = (name for criterion in mask.dropping for name in criterion.violation)
    return (*mask.statistics, *(name for each in _REFERENCE.values() for name in each.statistics), *counts)


def _reasons(
    s: Summary, picked: ChosenMask | None, bias: tuple[LengthBias, ...], against: Finding | None
) -> dict[str, str]:
    reasons = {}
    if "reward" not in s:
        reasons = dict.fromkeys(("surrogate_gain", "gain_without_mask", "chosen"), "the log has no rewards")
    elif against is not None:
        reasons = dict.fromkeys(("gain_without_mask", "chosen"), against.because)
    elif picked is None:
        reasons["chosen"] = "a choice needs a second half of the prompts to judge it, and all prompts fell into one"
    if not bias:
        reasons["length_bias"] = "no criterion that one token can violate"
    return reasons


def _grid(mask: Mask, s: Summary, rows: BoolArray | slice) -> Iterator[Mask]:
    """Yield masks of one criterion: a statistic of the mask or the paper, at its quantiles over some responses.

    Limits are rounded up to three digits.
    """
    paper = (c for text in PAPER.values() for c in Mask.parse(text).criteria)
    for kind in {c.statistic: c for c in (*mask.dropping, *paper)}.values():
        reach = np.quantile(kind.reach(s[kind.statistic][rows]), _QUANTILES, method="higher")
        found = (kind.at(float(shown(value))) for value in reach.tolist())
        yield from (Mask((c,)) for c in dict.fromkeys(found) if c is not None)


def choosing(summary: Summary) -> BoolArray:
    """Return which responses [N] a mask is chosen on: by their prompts' names alone, so in every log the same."""
    return np.asarray(summary["prompt"] % np.uint64(2) == 0)


def judging(traces: TraceSet) -> TraceSet | None:
    """Return the responses on which no mask was chosen; None if there are none."""
    others = prompt_keys(traces) % np.uint64(2) == 1
    return traces.select(others) if others.any() else None


def _choose(s: Summary, mask: Mask, confidence: float) -> ChosenMask | None:
    """Return the best mask on some prompts, judged on the others; None without rewards or without either."""
    first = choosing(s)
    if "reward" not in s or first.all() or not first.any():
        return None
    chooses, judges = UnderMask(s, confidence, first), UnderMask(s, confidence, ~first)
    paper = map(Mask.parse, PAPER.values())
    masks = dict.fromkeys([Mask(()), Mask(mask.dropping), *paper, *_grid(mask, s, first)])
    keeps = {each: kept(s, each) for each in masks}
    values = {each: chooses.lower_value(keep[first]) for each, keep in keeps.items()}
    best = max(values, key=lambda each: values[each])
    return ChosenMask(
        mask=str(best),
        candidates=len(masks),
        prompts_choosing=np.unique(s.prompt[first]).size,
        prompts_judging=np.unique(s.prompt[~first]).size,
        value_choosing=values[best],
        lower=judges.ends(keeps[best][~first])[0],
        lower_without=judges.ends(np.ones(int((~first).sum()), dtype=np.bool_))[0],
    )


def _length_bias(s: Summary, criterion: Criterion, confidence: float) -> LengthBias:
    """Return the acceptance of one criterion by length, next to (1-p)^length."""
    length = s["length"]
    violating = np.sum([s[name] for name in criterion.violation], axis=0)
    p = share_of(violating, length, s.prompt, confidence)
    keep = criterion.holds(s[criterion.statistic])
    at_length = {T: float(unviolated(p.value, float(T))) for T in sorted({*_PAPER_LENGTHS, s.horizon})}
    of_quarters = by_length(s, keep, confidence, predicted=unviolated(p.value, length))
    return LengthBias(str(criterion), p, of_quarters, at_length)


def _reweighing(s: Summary, rule: Criterion, confidence: float) -> Reweighing:
    """Return the share of tokens (or of weights of responses) that a rule drops or truncates."""
    if not rule.of_tokens:
        touched = (~rule.holds(s[rule.statistic])).astype(np.float64)
        weights = prompt_weights(s.prompt)
        return Reweighing(str(rule), "responses' weights", share_of(weights * touched, weights, s.prompt, confidence))
    counts = [s[name] for name in rule.columns]
    if not rule.by_advantage:
        touched = np.sum(counts, axis=0)
    elif s.advantage is not None:
        below, above = counts
        touched = np.where(s.advantage > 0.0, above, below)
    else:
        return Reweighing(str(rule), "tokens", None, "it looks at the advantage, and the log has no rewards")
    unit = "tokens' weights" if rule.clips else "tokens"
    return Reweighing(str(rule), unit, share_of(touched, s["length"], s.prompt, confidence))


# --- the file ------------------------------------------------------------------------------------------------------


def write_masks(
    log: TraceSet | Iterable[TraceSet] | Summary, mask: Mask, path: str | Path, *, force: bool = False
) -> None:
    """Write which responses a mask keeps as a Parquet file, one row for each response, whole or not at all.

    Columns: ``row`` (its number in the log, from 0), ``place`` (file and row), ``prompt_id``, ``keep``, and every
    statistic that the mask looks at (of a ratio its logarithm, ``log_seq_product_ratio``; of tokens, how many). The
    mask is in the file's metadata.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Logged responses.
    mask : Mask
        The mask; rules that drop or truncate tokens do not enter ``keep``.
    path : path
        The file to write.
    force : bool
        Whether to overwrite it.

    Raises
    ------
    FileExistsError
        If there is such a file, unless ``force``.
    ValueError
        If the mask looks at what is not logged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("row", pa.int64()), ("place", pa.string()), ("prompt_id", pa.string()), ("keep", pa.bool_())]
        + [(_column(name), pa.float64()) for name in mask.statistics],
        metadata={_KEY: str(mask)},
    )
    rows = 0
    with whole_file(path, force=force) as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
        for traces, advantage in _with_advantages(log, mask):
            statistics = statistics_of(traces, mask.statistics, advantage)
            columns = {
                "row": np.arange(rows, rows + len(traces)),
                "place": list(traces.where),
                "prompt_id": [traces.prompt_ids[k] for k in traces.prompt],
                "keep": mask.holds(statistics),
                **{_column(name): values for name, values in statistics.items()},
            }
            writer.write_table(pa.table(columns, schema=schema))
            rows += len(traces)


def _with_advantages(
    log: TraceSet | Iterable[TraceSet] | Summary, mask: Mask
) -> Iterator[tuple[TraceSet, FloatArray | None]]:
    """Yield the parts of a log, with advantages [N] where the mask looks at them: then the log is read twice."""
    if not mask.needs_advantage:
        parts = [log] if isinstance(log, TraceSet) else log.again() if isinstance(log, Summary) else log
        yield from ((traces, None) for traces in parts)
        return
    summary = Summary.of(log)
    for traces, prompt in summary.again_by_prompt():
        yield traces, None if traces.reward is None else summary.centred(traces.reward, prompt)


def _column(name: str) -> str:
    """Return the name of a column: ratios are pooled as logarithms."""
    return f"log_{name}" if name.startswith("seq_") and name.endswith("_ratio") else name
