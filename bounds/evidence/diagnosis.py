"""What looks wrong in a log: each check returns a warning, or refuses the log. Nothing is repaired."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bounds._checks import FloatArray
from bounds.divergence.rows import two_outcome_kl
from bounds.evidence.confidence import clustered_mean
from bounds.evidence.moments import ResponseMoments
from bounds.evidence.response import TraceError
from bounds.evidence.traces import TraceSet

_FEW_PROMPTS = 20
_PADDING_TAIL = 8
_SHIFT_GAP = 0.01
_IMPOSSIBLE_SAMPLE = -40.0
_CLEAR = 0.9999  # confidence at which two estimates of one thing are said to disagree
_TRUE_ZERO = -1e-3  # a log-prob of exactly 0 is ordinary where the other policy is above this


def warnings_for(traces: TraceSet, moments: ResponseMoments) -> list[str]:
    """Everything that is remarkable about a log, in plain words.

    Raises
    ------
    TraceError
        If the two policies' log-probs are shifted against each other by one token, or an exact column is
        impossible.
    """
    refuse_shift(traces)
    refuse_impossible_columns(traces)
    found = (check(traces, moments) for check in _CHECKS)
    return [*traces.notes, *(text for text in found if text)]


def refuse_shift(traces: TraceSet) -> None:
    """Refuse log-probs that are off by one: there, theta's value at t is roll's at t + 1 (or t - 1), and so before.

    Looked at: tokens with |d| > 0.01 and neighbours on both sides. A token speaks for a shift if both values
    that would then be of one token agree, to a fifth of |d|. A response is refused if all of at least three
    agree to a thousandth, or at least five and four in five of them agree; a log if half of at least 20 do.
    """
    roll, theta = traces.rollout, traces.train
    order = traces.order
    inner = np.flatnonzero((order > 0) & (order < np.repeat(traces.lengths, traces.lengths) - 1))
    inner = inner[np.abs(traces.log_ratio[inner]) > _SHIFT_GAP]
    if inner.size < 3:
        return
    gap = np.abs(traces.log_ratio[inner])
    response = np.repeat(np.arange(len(traces)), traces.lengths)[inner]
    count = np.bincount(response, minlength=len(traces))
    for name, step in (("earlier", 1), ("later", -1)):
        after = np.maximum(np.abs(theta[inner] - roll[inner + step]), np.abs(theta[inner - step] - roll[inner]))
        near = np.bincount(response, weights=after < 0.2 * gap, minlength=len(traces))
        same = np.bincount(response, weights=after < 1e-3 * gap, minlength=len(traces))
        shifted = ((count >= 3) & (same == count)) | ((near >= 5) & (near >= 0.8 * count))
        if shifted.any():
            k = int(np.argmax(shifted))
            place, chosen = traces.where[k], response == k
        elif inner.size >= 20 and near.sum() >= 0.5 * inner.size:
            place, chosen = "over the whole log", np.ones(inner.size, dtype=np.bool_)
        else:
            continue
        raise TraceError(
            f"{place}: train_logprobs stand one token {name} than rollout_logprobs: moving them by one takes the "
            f"mean |difference| from {gap[chosen].mean():.3g} to {after[chosen].mean():.3g}. Align them in the export "
            "(index t of both must be the same token)"
        )


def refuse_impossible_columns(traces: TraceSet) -> None:
    """Refuse exact columns that the sampled token itself refutes: TV and KL cannot be less than it implies."""
    least = least_divergences(traces)
    for name, quantity in (("kl", "delta"), ("tv", "epsilon")):
        if name in traces.exact:
            implied = least[quantity][0]
            too_small = implied > 2.0 * traces.exact[name] + 1e-4
            if too_small.any():
                k = int(np.argmax(too_small))
                where, position = traces.locate(k)
                raise TraceError(
                    f"{where}: {name}[{position}] is {traces.exact[name][k]:.3g}, but the sampled token alone implies "
                    f"at least {implied[k]:.3g}: not these policies, or not KL(roll||theta) in nats"
                )


def least_divergences(traces: TraceSet) -> dict[str, tuple[FloatArray, str]]:
    """What the sampled token v alone implies at each context: lower values [tokens], with how each is named.

    TV >= |theta(v) - roll(v)|, KL >= that of the two outcomes v and not v, and chi2 >= the square of
    the former over roll(v).
    """
    roll, theta = np.exp(np.minimum(traces.rollout, 0.0)), np.exp(np.minimum(traces.train, 0.0))
    return {
        "delta": (two_outcome_kl(traces.rollout, traces.train), "the least KL that token {} implies"),
        "epsilon": (np.abs(theta - roll), "|theta - roll| of token {}"),
        "chi2_max": (np.square(theta - roll) / np.maximum(roll, 1e-300), "(theta - roll)^2 / roll of token {}"),
        "log_ratio_max": (np.abs(traces.log_ratio), "|log theta - log roll| of token {}"),
    }


def _suspicious_zeros(traces: TraceSet, moments: ResponseMoments) -> str:
    """Log-probs of exactly 0 in one policy where the other's are not near 0."""
    remarks = []
    for name, values, other in (("rollout", traces.rollout, traces.train), ("train", traces.train, traces.rollout)):
        fill = np.flatnonzero((values == 0.0) & (other < _TRUE_ZERO))
        if fill.size:
            where, _ = traces.locate(int(fill[0]))
            places = [traces.locate(int(k)) for k in fill[:20]]
            first = ", ".join(str(position) for w, position in places if w == where)
            remarks.append(f"{name}_logprobs is exactly 0 on {fill.size} tokens (first: {where}, positions {first})")
    if not remarks:
        return ""
    unmasked = "" if traces.masked.any() else ", and no mask is given"
    return (
        f"{'; '.join(remarks)} where the other policy's is not{unmasked}: tool output, padding or missing values "
        "filled with 0 (or top-p left one token)? They count as policy tokens here; mask them"
    )


def _equal_tails(traces: TraceSet, moments: ResponseMoments) -> str:
    """Responses that end in many tokens, or consist of tokens, where both log-probs are bitwise equal."""
    equal = traces.log_ratio == 0.0
    if equal.all():
        return ""
    last = np.maximum.reduceat(np.where(equal, -1, np.arange(equal.size)), traces.starts[:-1])
    tail = traces.starts[1:] - 1 - np.maximum(last, traces.starts[:-1] - 1)
    padded = (tail >= _PADDING_TAIL) | (tail == traces.lengths)
    if not padded.any():
        return ""
    first = traces.where[int(np.argmax(padded))]
    return (
        f"{int(padded.sum())} responses end in tokens where both log-probs are bitwise equal, "
        f"{int(tail[padded].sum())} in all: padding? They count as policy tokens here; mask them (first: {first})"
    )


def _unlikely_samples(traces: TraceSet, moments: ResponseMoments) -> str:
    """No sampled token has a probability of e^-40."""
    low = traces.rollout < _IMPOSSIBLE_SAMPLE
    if not low.any():
        return ""
    where, position = traces.locate(int(np.argmax(low)))
    return (
        f"{int(low.sum())} sampled tokens have rollout log-probs below {_IMPOSSIBLE_SAMPLE:g}, which are not sampled: "
        f"fillers? (first: {where}, position {position})"
    )


def _exact_columns(traces: TraceSet, moments: ResponseMoments) -> str:
    """Whether the exact kl and tv columns agree on average with what the sampled tokens say."""
    sampled = {"kl": (moments.phi, "k3"), "tv": (moments.deficit, "(1-rho)^+")}
    remarks = []
    for name, (values, statistic) in sampled.items():
        if name in traces.exact:
            exact = np.add.reduceat(traces.exact[name], traces.starts[:-1])
            with np.errstate(invalid="ignore"):
                gap = clustered_mean(exact - values, traces.prompt, _CLEAR)
            if gap.low > 0.0 or gap.high < 0.0:
                remarks.append(f"{name} ({exact.mean():.3g} a response) and {statistic} ({values.mean():.3g})")
    if not remarks:
        return ""
    return (
        f"the logged {' and '.join(remarks)} of the sampled tokens disagree clearly: not the same policies or "
        "direction, or a support gap"
    )


def _identical(traces: TraceSet, moments: ResponseMoments) -> str:
    if (traces.log_ratio == 0.0).all():
        return (
            "both policies' log-probs are bitwise identical: one was copied from the other (bypass mode?), and "
            "the zero divergence proves nothing"
        )
    return ""


def one_sided_ratio(traces: TraceSet) -> bool:
    """Whether log theta - log roll is one number, not 0, on all of three or more tokens, or has one sign on 20."""
    d = traces.log_ratio
    constant = d.size > 2 and np.ptp(d) < 1e-6 and abs(d[0]) > 1e-6
    return bool(constant or (d.size >= 20 and (d.max() <= 0.0 or d.min() >= 0.0)))


def _constant(traces: TraceSet, moments: ResponseMoments) -> str:
    d = traces.log_ratio
    if d.size > 2 and np.ptp(d) < 1e-6 and abs(d[0]) > 1e-6:
        return (
            f"log theta - log roll is {d[0]:.4g} on every token: rollout log-probs were taken after "
            "top-p, top-k or temperature, or are scaled"
        )
    return ""


def _quantised(traces: TraceSet, moments: ResponseMoments) -> str:
    for name, values in (("rollout_logprobs", traces.rollout), ("train_logprobs", traces.train)):
        ordinary = values[(values != 0.0) & np.isfinite(values)]
        if ordinary.size < 32 or (ordinary == np.round(ordinary)).all():
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
    _equal_tails,
    _unlikely_samples,
    _exact_columns,
    _identical,
    _constant,
    _quantised,
    _positive,
    _overflow,
    _few_prompts,
)
