"""What masks keep of a log, and what they cost in the guarantee that needs no global assumption."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, confidence_level
from bounds._text import shown, span
from bounds.certificate.findings import findings, mask_findings
from bounds.certificate.mask_parts import ChosenMask, Denominators, LengthBias, MaskTerms, Reweighing
from bounds.certificate.mask_report import kept
from bounds.certificate.mask_terms import Terms, share_of
from bounds.certificate.statistics import prompt_number, prompt_weights
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_ratio
from bounds.logs.traces import TraceSet
from bounds.masks.mask import PAPER, Criterion, Mask
from bounds.masks.statistics import unviolated
from bounds.questions.mask_study_answer import MaskStudy
from bounds.results import Interval, IntervalTable

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


def mask_study(traces: TraceSet | Summary, *, mask: str | Mask | None = None, confidence: float = 0.95) -> MaskStudy:
    """Acceptance by threshold, length and reward, and what a mask costs in the guarantee.

    Parameters
    ----------
    traces : TraceSet or Summary
        Logged responses; or what was kept of them, with the statistics that ``statistics_for(mask)`` names.
    mask : str or Mask, optional
        The mask to look at; else the paper's combination.
    confidence : float
        Nominal coverage of the intervals (prompt-clustered, asymptotic).

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
    >>> study.terms.lower.value <= study.gain_without_mask.value
    True
    """
    confidence = confidence_level(confidence)
    chosen = mask if isinstance(mask, Mask) else Mask.parse(DEFAULT if mask is None else mask)
    m = Summary.of(traces, statistics=statistics_for(chosen))
    terms, keep = Terms(m, confidence), kept(m, chosen)
    terms_of_mask = terms.of(chosen, keep)
    mixed, rejected = _groups(m, keep)
    picked = _choose(m, chosen, confidence)
    bias = tuple(_length_bias(m, c, confidence) for c in chosen.dropping if c.violation)
    return MaskStudy(
        responses=len(m),
        prompts=m.prompts,
        tokens=m.tokens,
        horizon=m.horizon,
        confidence=confidence,
        terms=terms_of_mask,
        gain_without_mask=terms.gain_without_mask(),
        reference=tuple(replace(terms.of(each, kept(m, each)), title=title) for title, each in _REFERENCE.items()),
        by_threshold=_thresholds(m, chosen, terms),
        by_length=_by_length(m, keep, confidence),
        length_bias=bias,
        reweighing=tuple(_reweighing(m, c, confidence) for c in chosen.reweighing),
        denominators=_denominators(m, keep, confidence),
        groups_mixed=terms.share(mixed),
        groups_rejected=terms.share(rejected),
        chosen=picked,
        reasons=_reasons(m, picked, bias),
        warnings=tuple(f.text for f in (*findings(m), *mask_findings(m, chosen, terms_of_mask.acceptance.value))),
    )


def statistics_for(mask: Mask) -> tuple[str, ...]:
    """What :func:`mask_study` needs of a log: of the mask, of the paper's masks, and who violates a maximum."""
    counts = (name for criterion in mask.dropping for name in criterion.violation)
    looked_at = (name for each in (mask, *_REFERENCE.values()) for name in each.statistics)
    return tuple(dict.fromkeys([*looked_at, *counts]))


def _groups(m: Summary, keep: BoolArray) -> tuple[FloatArray, FloatArray]:
    """1 for each response [N] to a prompt some but not all of whose responses are rejected; and all of whose are."""
    kept = (np.bincount(m.prompt, weights=keep) / np.bincount(m.prompt))[m.prompt]
    return ((kept > 0.0) & (kept < 1.0)).astype(np.float64), (kept == 0.0).astype(np.float64)


def _reasons(m: Summary, picked: ChosenMask | None, bias: tuple[LengthBias, ...]) -> dict[str, str]:
    reasons = {}
    if "reward" not in m:
        reasons = dict.fromkeys(("denominators", "gain_without_mask", "chosen"), "the log has no rewards")
    elif picked is None:
        reasons["chosen"] = "a choice needs a second half of the prompts to judge it, and all prompts fell into one"
    if not bias:
        reasons["length_bias"] = "no criterion that one token can violate"
    return reasons


# --- thresholds --------------------------------------------------------------------------------------------------


def _thresholds(m: Summary, mask: Mask, terms: Terms) -> tuple[MaskTerms, ...]:
    everything = np.ones(len(m), dtype=np.bool_)
    return tuple(
        terms.of(Mask((c,)), c.holds(m[c.statistic])) for kind in _kinds(mask) for c in _grid(kind, m, everything)
    )


def _kinds(mask: Mask) -> list[Criterion]:
    """One criterion of each statistic: those of the mask, then the paper's."""
    paper = (c for text in PAPER.values() for c in Mask.parse(text).criteria)
    return list({c.statistic: c for c in (*mask.dropping, *paper)}.values())


def _grid(kind: Criterion, m: Summary, rows: BoolArray) -> Iterable[Criterion]:
    """Criteria of that kind, at the quantiles of the statistic over some responses (rounded up to three digits)."""
    reach = np.quantile(kind.reach(m[kind.statistic][rows]), _QUANTILES, method="higher")
    found = (kind.at(float(shown(value))) for value in reach.tolist())
    return dict.fromkeys(c for c in found if c is not None)


def prompt_half(m: Summary) -> BoolArray:
    """Which responses [N] are of the first half of the prompts: by their names alone, so in every log the same."""
    return np.asarray(m["prompt"] % np.uint64(2) == 0)


def second_half(traces: TraceSet) -> TraceSet | None:
    """The responses on which no mask was chosen; None if there are none."""
    second = np.array([prompt_number(name) % 2 == 1 for name in traces.prompt_ids])[traces.prompt]
    return traces.select(second) if second.any() else None


def _choose(m: Summary, mask: Mask, confidence: float) -> ChosenMask | None:
    """The best mask on one half of the prompts, judged on the other; None without rewards or without two halves."""
    first = prompt_half(m)
    if "reward" not in m or first.all() or not first.any():
        return None
    choosing, judging = Terms(m, confidence, first), Terms(m, confidence, ~first)
    grids = (Mask((c,)) for kind in _kinds(mask) for c in _grid(kind, m, first))
    masks = dict.fromkeys([Mask(()), Mask(mask.dropping), *map(Mask.parse, PAPER.values()), *grids])
    keeps = {each: kept(m, each) for each in masks}
    values = {each: choosing.lower_value(keep[first]) for each, keep in keeps.items()}
    best = max(values, key=lambda each: values[each])
    return ChosenMask(
        mask=str(best),
        candidates=len(masks),
        prompts_choosing=np.unique(m.prompt[first]).size,
        prompts_judging=np.unique(m.prompt[~first]).size,
        value_choosing=values[best],
        lower=judging.lower(keeps[best][~first]),
        lower_without=judging.lower(np.ones(int((~first).sum()), dtype=np.bool_)),
    )


# --- length, tokens, denominators --------------------------------------------------------------------------------


def _quarters(length: FloatArray) -> IntArray:
    """Which quarter of the lengths each response is in; fewer where many have one length."""
    edges = np.unique(np.quantile(length, [0.25, 0.5, 0.75], method="lower"))
    return np.unique(np.searchsorted(edges, length), return_inverse=True)[1]


def _by_length(m: Summary, keep: BoolArray, confidence: float) -> IntervalTable:
    """Acceptance in each quarter of the lengths."""
    length = m["length"]
    quarter = _quarters(length)
    rows: dict[str, dict[str, Interval | None]] = {}
    facts = {}
    for k in range(quarter.max() + 1):
        here = (quarter == k).astype(np.float64)
        inside = length[quarter == k]
        shortest, longest = int(inside.min()), int(inside.max())
        label = span(shortest, longest)
        rows[label] = {"acceptance": share_of(keep * here, here, m.prompt, confidence)}
        facts[label] = {"shortest": shortest, "longest": longest, "responses": inside.size}
    return IntervalTable("tokens", rows, facts)


def _length_bias(m: Summary, criterion: Criterion, confidence: float) -> LengthBias:
    """Acceptance of one criterion by length, next to (1-p)^length."""
    length = m["length"]
    violating = np.sum([m[name] for name in criterion.violation], axis=0)
    p = share_of(violating, length, m.prompt, confidence)
    keep = criterion.holds(m[criterion.statistic])
    quarter = _quarters(length)
    predicted = unviolated(p.value, length)
    measured = _by_length(m, keep, confidence)
    facts = {
        label: {**measured.facts_of(label), "predicted": float(predicted[quarter == k].mean())}
        for k, label in enumerate(measured)
    }
    lengths = sorted({*_PAPER_LENGTHS, m.horizon})
    return LengthBias(
        criterion=str(criterion),
        violation=p,
        by_length=replace(measured, facts=facts),
        at_length={T: float(unviolated(p.value, float(T))) for T in lengths},
    )


def _reweighing(m: Summary, rule: Criterion, confidence: float) -> Reweighing:
    """The share of tokens (or of weights of responses) that a rule drops or truncates."""
    if not rule.of_tokens:
        touched = (~rule.holds(m[rule.statistic])).astype(np.float64)
        weights = prompt_weights(m.prompt)
        return Reweighing(str(rule), "responses' weights", share_of(weights * touched, weights, m.prompt, confidence))
    counts = [m[name] for name in rule.columns]
    if rule.by_advantage:
        if "reward" not in m:
            return Reweighing(str(rule), "tokens", None, "it looks at the advantage, and the log has no rewards")
        below, above = counts
        touched = np.where(_advantage(m) > 0.0, above, below)
    else:
        touched = np.sum(counts, axis=0)
    unit = "tokens' weights" if rule.clips else "tokens"
    return Reweighing(str(rule), unit, share_of(touched, m["length"], m.prompt, confidence))


def _advantage(m: Summary) -> FloatArray:
    """Reward minus the mean reward of the prompt's responses."""
    mean = np.bincount(m.prompt, weights=m["reward"]) / np.bincount(m.prompt)
    return np.asarray(m["reward"] - mean[m.prompt])


def _denominators(m: Summary, keep: BoolArray, confidence: float) -> Denominators | None:
    """The masked surrogate over all responses, per accepted response, per accepted token; all pooled alike."""
    if "reward" not in m:
        return None
    gain = np.where(keep, m.surrogate, 0.0)
    ones = keep.astype(np.float64)
    per = [clustered_ratio(gain, d, m.prompt, confidence) if keep.any() else None for d in (ones, ones * m["length"])]
    return Denominators(clustered_ratio(gain, np.ones(len(m)), m.prompt, confidence), *per)
