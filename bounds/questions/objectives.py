"""The objectives that trainers optimise in place of L' = E[R S], and what they differ from it by."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bounds._checks import FloatArray
from bounds.certificate.certify import certify
from bounds.certificate.mask_report import kept
from bounds.certificate.statistics import prompt_weights, times
from bounds.certificate.summary import Summary
from bounds.intervals import clustered_mean
from bounds.intervals.clustered import leave_one_out_baseline
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.questions.objectives_answer import Objective, ObjectiveTable
from bounds.results import Interval

_TIS, _CLIP_LOW, _CLIP_HIGH = 2.0, 0.8, 1.28
_TIS_EXCESS, _HIGH_EXCESS, _LOW_EXCESS = (f"ratio_above({_TIS:g})", f"ratio_above({_CLIP_HIGH:g})",
                                          f"ratio_below({_CLIP_LOW:g})")  # fmt: skip
#: What :func:`objectives` needs of each response.
STATISTICS = (_TIS_EXCESS, _HIGH_EXCESS, _LOW_EXCESS)
_ADD = "adds its difference to the bound"
_LESS = "never above E[A sum (rho - 1)], which has the mean of L' where theta << roll"


def objectives(
    traces: TraceSet | Summary, *, confidence: float = 0.95, mask: str | Mask | None = None
) -> ObjectiveTable:
    """Each objective's value and its difference to L', with intervals.

    Parameters
    ----------
    traces : TraceSet or Summary
        A log with rewards; Summary must keep :data:`STATISTICS` and what the mask looks at.
    confidence : float
        Nominal coverage; intervals are clustered by prompt and asymptotic.
    mask : str or Mask, optional
        A sequence mask, whose masked surrogate is one of the objectives.

    Raises
    ------
    TraceError
        If the log has no rewards.

    Examples
    --------
    >>> import bounds
    >>> [o.name for o in objectives(bounds.example_traces()).objectives][:2]
    ["L'", 'token TIS']
    """
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    wanted = (*STATISTICS, *(chosen.statistics if chosen else ()))
    m = Summary.of(traces, statistics=wanted)
    if "reward" not in m:
        raise TraceError("the log has no rewards, which every objective weighs")
    return ObjectiveTable(tuple(_rows(m, chosen, confidence)), certify(m, confidence=confidence).best)


def _rows(m: Summary, mask: Mask | None, confidence: float) -> Iterator[Objective]:
    reward, score, length, gain = m["reward"], m["surrogate_sum"], m["length"], m.surrogate
    advantage = reward - leave_one_out_baseline(reward, m.prompt)

    def mean(values: FloatArray) -> Interval:
        return clustered_mean(values, m.prompt, confidence)

    zero = mean(np.zeros(len(m)))
    yield Objective("L'", "E[R sum (rho - 1)]", mean(gain), zero, "the bound is about this one")
    cut = times(reward, m[_TIS_EXCESS])
    with np.errstate(invalid="ignore"):
        truncated = np.where(np.isfinite(gain), gain - cut, times(reward, length * (_TIS - 1.0)))
    yield Objective("token TIS", f"E[R sum (min(rho, {_TIS:g}) - 1)]", mean(truncated), mean(cut), _ADD)
    clipped = np.where(advantage > 0.0, times(advantage, m[_HIGH_EXCESS]), -times(advantage, m[_LOW_EXCESS]))
    full = times(advantage, score)
    with np.errstate(invalid="ignore"):
        pessimistic = np.where(np.isfinite(full), full - clipped, -math.inf)
    yield Objective(
        "PPO clip",
        f"E[sum min(rho A, clip(rho, {_CLIP_LOW:g}, {_CLIP_HIGH:g}) A) - A], A = R minus the others' mean",
        mean(pessimistic),
        mean(clipped),
        _LESS,
    )
    if mask is not None and mask.reweighing:
        rules = ",".join(map(str, mask.reweighing))
        yield Objective("token mask", rules, None, None, "nothing: it changes the objective within responses")
    if mask is not None and mask.dropping:
        keep = kept(m, mask)
        masked, rest = np.where(keep, gain, 0.0), np.where(keep, 0.0, gain)
        yield Objective("masked", f"E[M R sum (rho - 1)], M: {Mask(mask.dropping)}", mean(masked), mean(rest), _ADD)
    yield Objective(
        "token mean",
        "sum of R sum (rho - 1) over the tokens of the batch",
        None,
        None,
        "L' divided by the mean length: the same direction, and the bound divided by it",
    )
    relative = float(prompt_weights(m.prompt) @ length) / length
    yield Objective(
        "sequence mean",
        "E[R sum (rho - 1) / length], times the mean length",
        mean(gain * relative),
        mean(times(1.0 - relative, gain)),
        _ADD + "; weighs short responses more",
    )
    yield Objective(
        "std-normalised",
        "A divided by the standard deviation of the prompt's rewards",
        None,
        None,
        "nothing about J: it is L' of the reward R / std(prompt), which weighs prompts anew",
    )
