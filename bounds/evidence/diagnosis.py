"""What looks wrong in a log: each check returns a warning, or refuses the log. Nothing is repaired."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.evidence.moments import ResponseMoments
from bounds.evidence.response import TraceError
from bounds.evidence.traces import TraceSet

_FEW_PROMPTS = 20
_TRUE_ZERO = -1e-3  # a log-prob of exactly 0 is ordinary where the other policy is above this


def warnings_for(traces: TraceSet, moments: ResponseMoments) -> list[str]:
    """Everything that is remarkable about a log, in plain words.

    Raises
    ------
    TraceError
        If the two policies' log-probs are shifted against each other by one token.
    """
    refuse_shift(traces)
    found = (check(traces, moments) for check in _CHECKS)
    return [*traces.notes, *(text for text in found if text)]


def refuse_shift(traces: TraceSet) -> None:
    """Refuse log-probs that are off by one: shifting one policy by a token removes nearly all of |d|."""
    gap = np.abs(traces.log_ratio)
    inner = np.ones(gap.size, dtype=np.bool_)
    inner[traces.starts[1:] - 1] = False  # a response's last token has no successor
    here = np.flatnonzero(inner)
    if here.size < 4:
        return
    response = np.repeat(np.arange(len(traces)), traces.lengths)[here]
    count = np.bincount(response, minlength=len(traces)).astype(np.float64)
    before = _mean_by(response, gap[here], count)
    for name, shifted in (
        ("earlier", np.abs(traces.train[here] - traces.rollout[here + 1])),
        ("later", np.abs(traces.train[here + 1] - traces.rollout[here])),
    ):
        after = _mean_by(response, shifted, count)
        exact = (count >= 4) & (before > 0.05) & (after < 1e-3 * before)
        rough = (count >= 16) & (before > 0.05) & (after < 0.2 * before)
        total_before, total_after = float(gap[here].mean()), float(shifted.mean())
        if (exact | rough).any() or (total_before > 0.05 and total_after < 0.2 * total_before):
            k = int(np.argmax(exact | rough))
            raise TraceError(
                f"{traces.where[k]}: train_logprobs stand one token {name} than rollout_logprobs: moving them by "
                f"one takes the mean |difference| from {total_before:.3g} to {total_after:.3g} over the log. "
                "Align them in the export (index t of both must be the same token)"
            )


def _mean_by(group: IntArray, values: FloatArray, count: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(group, weights=values, minlength=count.size) / np.maximum(count, 1))


def _suspicious_zeros(traces: TraceSet, moments: ResponseMoments) -> str:
    fill = (traces.rollout == 0.0) & (traces.train < _TRUE_ZERO)
    if not fill.any():
        return ""
    row = int(np.searchsorted(traces.starts, np.argmax(fill), side="right")) - 1
    tokens = slice(traces.starts[row], traces.starts[row + 1])
    first = traces.position[tokens][fill[tokens]][:5].tolist()
    unmasked = "" if traces.masked[row] else " and no mask is given"
    return (
        f"rollout_logprobs is exactly 0 on {int(fill.sum())} tokens where train_logprobs is not{unmasked}: tool "
        f"output, padding or missing values filled with 0? They count as policy tokens here; mask them "
        f"(first: {traces.where[row]}, positions {', '.join(map(str, first))})"
    )


def _identical(traces: TraceSet, moments: ResponseMoments) -> str:
    if (traces.log_ratio == 0.0).all():
        return (
            "both policies' log-probs are bitwise identical: one was copied from the other (bypass mode?), and "
            "the zero divergence proves nothing"
        )
    return ""


def constant_ratio(traces: TraceSet) -> bool:
    """Whether log theta - log roll is the same, and not 0, on every one of at least three tokens."""
    d = traces.log_ratio
    return bool(d.size > 2 and np.ptp(d) < 1e-6 and abs(d[0]) > 1e-6)


def _constant(traces: TraceSet, moments: ResponseMoments) -> str:
    if constant_ratio(traces):
        return (
            f"log theta - log roll is {traces.log_ratio[0]:.4g} on every token: rollout log-probs were taken after "
            "top-p, top-k or temperature, or are scaled"
        )
    return ""


def _quantised(traces: TraceSet, moments: ResponseMoments) -> str:
    for name, values in (("rollout_logprobs", traces.rollout), ("train_logprobs", traces.train)):
        ordinary = values[(values != 0.0) & np.isfinite(values)]
        if ordinary.size < 32:
            continue
        bits = ordinary.astype(np.float32)
        if (bits.astype(np.float64) == ordinary).all() and not (bits.view(np.uint32) & 0xFFFF).any():
            step = float(np.median(np.abs(ordinary))) * 2.0**-8
            return (
                f"{name} are bfloat16 numbers: each is off by up to {step:.2g} (median), which puts a floor of "
                f"about {step**2 / 6:.1g} nats per token under every divergence"
            )
    return ""


def _positive(traces: TraceSet, moments: ResponseMoments) -> str:
    count = int(((traces.rollout > 1e-6) | (traces.train > 1e-6)).sum())
    if count:
        dtype = traces.reading.logprob_dtype
        return f"{count} log-probs are positive, as {dtype} rounding explains; they are used as they are"
    return ""


def _overflow(traces: TraceSet, moments: ResponseMoments) -> str:
    with np.errstate(over="ignore"):
        count = int(np.isinf(np.exp(moments.log_product)).sum())
    return f"the ratio of {count} whole responses overflows float64: it is inf here, not clamped" if count else ""


def _few_prompts(traces: TraceSet, moments: ResponseMoments) -> str:
    n = len(traces.prompt_ids)
    if n < 2:
        return "one prompt: no interval can be given, since responses to one prompt are not independent"
    return f"only {n} prompts: the intervals are asymptotic and too narrow for so few" if n < _FEW_PROMPTS else ""


_CHECKS: tuple[Callable[[TraceSet, ResponseMoments], str], ...] = (
    _suspicious_zeros,
    _identical,
    _constant,
    _quantised,
    _positive,
    _overflow,
    _few_prompts,
)
