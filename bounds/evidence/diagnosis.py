"""What looks wrong in a log. Parts of a log are looked at one by one; what is seen adds up. Nothing is repaired."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds.divergence.rows import k2, two_outcome_kl
from bounds.evidence.confidence import clustered_mean
from bounds.evidence.response import POSITIVE_TOLERANCE, TraceError
from bounds.evidence.tally import Tally
from bounds.evidence.token_sums import IMPOSSIBLE_SAMPLE, TRUE_ZERO, Errors, signs
from bounds.evidence.traces import TraceSet, remarks

if TYPE_CHECKING:
    from bounds.evidence.moments import Moments

_FEW_PROMPTS = 20
_PADDING_TAIL = 8
_CLEAR = 0.9999  # confidence at which two estimates of one thing are said to disagree
_RELATION, _RELATION_TOKENS = 0.5, 100  # share of the variance of d that its regression on log roll explains
#: A context where a divergence is at least so large: assumption -> exact column, or what the sampled token implies.
SUPREMA = {"delta": "kl", "epsilon": "tv", "chi2_max": "chi2", "log_ratio_max": ""}


# --- looking -----------------------------------------------------------------------------------------------


def observe(traces: TraceSet, found: Errors, tally: Tally, *, suprema: bool, compiled: bool) -> None:
    """Look at a part of a log, and add what is seen to the tally; with ``suprema`` also what each token implies.

    Raises
    ------
    TraceError
        If the two policies' log-probs are shifted against each other by one token, or an exact column is
        impossible.
    """
    seen, totals = signs(traces.rollout, traces.train, traces.starts, compiled=compiled)
    total = {name: totals[name][0].item() for name in totals.dtype.names or ()}
    _observe_shift(traces, seen, total, tally)
    if suprema:
        _observe_suprema(traces, tally)
    _observe_zeros(traces, total, tally)
    _observe_equal(traces, seen["tail"], total, tally)
    _observe_precision(traces, total, tally)
    for what in ("x", "d", "xx", "dd", "xd"):  # for the regression of d = log theta - log roll on x = log roll
        tally.count(f"relation: {what}", total[what])
    low, high = float(found.responses["lowest"].min()), float(found.responses["highest"].max())
    tally.peak("log_ratio", high)
    tally.peak("-log_ratio", -low)
    tally.peak("k2", float(max(k2(low), k2(high))))
    if total["unlikely"]:
        tally.count("unlikely", total["unlikely"], _place(traces, traces.rollout < IMPOSSIBLE_SAMPLE))
    tally.count("positive", total["positive"])


def _place(traces: TraceSet, seen: BoolArray) -> str:
    """The first place where it was seen."""
    where, position = traces.locate(int(np.argmax(seen)))
    return f"{where}, position {position}"


def _observe_shift(traces: TraceSet, seen: npt.NDArray[Any], total: Mapping[str, float], tally: Tally) -> None:
    """Refuse responses that are off by one: there, theta's value at t is roll's at t + 1 (or t - 1), and so before.

    Looked at: tokens with |d| > 0.01 and neighbours on both sides. A token speaks for a shift if both values
    that would then be of one token agree, to a fifth of |d|. A response is refused if all of at least three
    agree to a thousandth, or at least five and four in five of them agree; a log if half of at least 20 do.
    """
    count = seen["telling"]
    tally.count("shift: tokens", int(count.sum()))
    tally.count("shift: |d|", total["gap"])
    for name in ("earlier", "later"):
        near, same = seen[f"near_{name}"], seen[f"same_{name}"]
        shifted = ((count >= 3) & (same == count)) | ((near >= 5) & (near >= 0.8 * count))
        if shifted.any():
            alone = traces.select(np.arange(len(traces)) == np.argmax(shifted))
            its = signs(alone.rollout, alone.train, alone.starts, compiled=False)
            before, after = (float(its.totals[w][0] / its.responses["telling"][0]) for w in ("gap", f"after_{name}"))
            raise _shift(alone.where[0], name, before, after)
        tally.count(f"shift: {name}", int(near.sum()))
        tally.count(f"shift: |d| {name}", total[f"after_{name}"])


def _refuse_shifted_log(tally: Tally) -> None:
    """Refuse a log where no response alone shows it, but all of them together do."""
    tokens = tally["shift: tokens"]
    for name in ("earlier", "later"):
        if tokens >= 20 and tally[f"shift: {name}"] >= 0.5 * tokens:
            before, after = (tally.counts.get(what, 0.0) / tokens for what in ("shift: |d|", f"shift: |d| {name}"))
            raise _shift("over the whole log", name, before, after)


def _shift(place: str, name: str, before: float, after: float) -> TraceError:
    return TraceError(
        f"{place}: train_logprobs stand one token {name} than rollout_logprobs: moving them by one takes the "
        f"mean |difference| from {before:.3g} to {after:.3g}. Align them in the export "
        "(index t of both must be the same token)"
    )


def _observe_suprema(traces: TraceSet, tally: Tally) -> None:
    """Keep the largest divergences seen, exact or implied; refuse exact columns that the sampled token refutes."""
    least = least_divergences(traces)
    for name, column in SUPREMA.items():
        values, how = least[name]
        exact = traces.exact.get(column)
        if exact is not None:
            if column in ("kl", "tv"):
                _refuse_impossible(traces, column, exact, values)
            tally.peak(column, float(exact.max()))
            values, how = exact, column + "[{}]"
        k = int(np.argmax(values))
        where, position = traces.locate(k)
        tally.peak(name, float(values[k]), f"{where}: {how.format(position)}")


def _refuse_impossible(traces: TraceSet, column: str, exact: FloatArray, implied: FloatArray) -> None:
    too_small = implied > 2.0 * exact + 1e-4
    if too_small.any():
        k = int(np.argmax(too_small))
        where, position = traces.locate(k)
        raise TraceError(
            f"{where}: {column}[{position}] is {exact[k]:.3g}, but the sampled token alone implies "
            f"at least {implied[k]:.3g}: not these policies, or not KL(roll||theta) in nats"
        )


def least_divergences(traces: TraceSet) -> dict[str, tuple[FloatArray, str]]:
    """What the sampled token v alone implies at each context: lower values [tokens], with how each is named.

    TV >= |theta(v) - roll(v)|, KL >= that of the two outcomes v and not v, and chi2 >= the square of
    the former over roll(v). A log-prob nearer to 0 than its rounding is taken to be that far from it: a probability
    of 1 in float32 says nothing of what is left for other tokens.
    """
    rounding = POSITIVE_TOLERANCE[traces.reading.logprob_dtype]
    log_roll, log_theta = np.minimum(traces.rollout, -rounding), np.minimum(traces.train, -rounding)
    roll, theta = np.exp(log_roll), np.exp(log_theta)
    return {
        "delta": (two_outcome_kl(log_roll, log_theta), "the least KL that token {} implies"),
        "epsilon": (np.abs(theta - roll), "|theta - roll| of token {}"),
        "chi2_max": (np.square(theta - roll) / np.maximum(roll, 1e-300), "(theta - roll)^2 / roll of token {}"),
        "log_ratio_max": (np.abs(traces.log_ratio), "|log theta - log roll| of token {}"),
    }


def _observe_zeros(traces: TraceSet, total: Mapping[str, float], tally: Tally) -> None:
    """Log-probs of exactly 0 in one policy where the other's are not near 0."""
    for name, values, other in (("rollout", traces.rollout, traces.train), ("train", traces.train, traces.rollout)):
        if total[f"{name}_zeros"]:
            fill = np.flatnonzero((values == 0.0) & (other < TRUE_ZERO))
            where, _ = traces.locate(int(fill[0]))
            places = [traces.locate(int(k)) for k in fill[:20]]
            first = ", ".join(str(position) for w, position in places if w == where)
            tally.count(f"{name} zeros", fill.size, f"{where}, positions {first}")


def _observe_equal(traces: TraceSet, tail: IntArray, total: Mapping[str, float], tally: Tally) -> None:
    """Responses that end in many tokens, or consist of tokens, where both log-probs are bitwise equal."""
    tally.count("unequal", total["unequal"])
    padded = (tail >= _PADDING_TAIL) | (tail == traces.lengths)
    tally.count("equal tail tokens", int(tail[padded].sum()))
    tally.count("equal tails", int(padded.sum()), traces.where[int(np.argmax(padded))])


def _observe_precision(traces: TraceSet, total: Mapping[str, float], tally: Tally) -> None:
    """Whether all log-probs are numbers of half precision (a sample says mostly that they are not)."""
    for name, values in (("rollout", traces.rollout), ("train", traces.train)):
        tally.count(f"{name} numbers", total[f"{name}_numbers"])
        for dtype, is_number in _PRECISIONS.items():
            seen = f"{name} not {dtype}"
            if tally[seen] or not is_number(values[:_SAMPLE]).all() or not is_number(values).all():
                tally.count(seen, 1)


def _is_bfloat16(values: FloatArray) -> BoolArray:
    single = values.astype(np.float32)
    return np.asarray((single == values) & ((single.view(np.uint32) & 0xFFFF) == 0))


def _is_float16(values: FloatArray) -> BoolArray:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(np.float16) == values)


_SAMPLE = 64
_PRECISIONS: dict[str, Callable[[FloatArray], BoolArray]] = {
    "whole": lambda values: np.asarray(values == np.round(values)),
    "bfloat16": _is_bfloat16,
    "float16": _is_float16,
}


# --- saying ------------------------------------------------------------------------------------------------


def warnings_for(m: Moments) -> list[str]:
    """Everything that is remarkable about a log, in plain words.

    Raises
    ------
    TraceError
        If the log as a whole is shifted by one token.
    """
    _refuse_shifted_log(m.tally)
    return [*remarks(m.tally), *_horizon_note(m), *(text for check in _CHECKS if (text := check(m)))]


def _horizon_note(m: Moments) -> list[str]:
    text = f"no horizon was given: the longest response, {m.horizon} tokens, is taken for the generation cap"
    return [text] if m.horizon_guessed else []


def _suspicious_zeros(m: Moments) -> str:
    remarks = [
        f"{name}_logprobs is exactly 0 on {n} tokens (first: {m.tally.places[f'{name} zeros']})"
        for name in ("rollout", "train")
        if (n := m.tally[f"{name} zeros"])
    ]
    if not remarks:
        return ""
    unmasked = "" if m.tally["masked"] else ", and no mask is given"
    return (
        f"{'; '.join(remarks)} where the other policy's is not{unmasked}: tool output, padding or missing values "
        "filled with 0 (or top-p left one token)? They count as policy tokens here; mask them"
    )


def _equal_tails(m: Moments) -> str:
    if not m.tally["unequal"] or not m.tally["equal tails"]:
        return ""
    return (
        f"{m.tally['equal tails']} responses end in tokens where both log-probs are bitwise equal, "
        f"{m.tally['equal tail tokens']} in all: padding? They count as policy tokens here; mask them "
        f"(first: {m.tally.places['equal tails']})"
    )


def _unlikely_samples(m: Moments) -> str:
    """No sampled token has a probability of e^-40."""
    n = m.tally["unlikely"]
    if not n:
        return ""
    return (
        f"{n} sampled tokens have rollout log-probs below {IMPOSSIBLE_SAMPLE:g}, which are not sampled: "
        f"fillers? (first: {m.tally.places['unlikely']})"
    )


def _exact_columns(m: Moments) -> str:
    """Whether the exact kl and tv columns agree on average with what the sampled tokens say."""
    remarks = []
    for name, column, statistic in (("kl", "phi", "k3"), ("tv", "deficit", "(1-rho)^+")):
        if name in m:
            exact, sampled = m[name], m[column]
            with np.errstate(invalid="ignore"):
                gap = clustered_mean(exact - sampled, m.prompt, _CLEAR)
            if gap.low > 0.0 or gap.high < 0.0:
                remarks.append(f"{name} ({exact.mean():.3g} a response) and {statistic} ({sampled.mean():.3g})")
    if not remarks:
        return ""
    return (
        f"the logged {' and '.join(remarks)} of the sampled tokens disagree clearly: not the same policies or "
        "direction, or a support gap"
    )


def _identical(m: Moments) -> str:
    if m.tally["unequal"]:
        return ""
    return (
        "both policies' log-probs are bitwise identical: one was copied from the other (bypass mode?), and "
        "the zero divergence proves nothing"
    )


def _ratio_range(m: Moments) -> tuple[float, float]:
    return -m.tally.peaks["-log_ratio"][0], m.tally.peaks["log_ratio"][0]


def one_sided_ratio(m: Moments) -> bool:
    """Whether log theta - log roll is one number, not 0, on all of three or more tokens, or has one sign on 20."""
    low, high = _ratio_range(m)
    return bool(_constant(m)) or (m.tokens >= 20 and (high <= 0.0 or low >= 0.0))


def _constant(m: Moments) -> str:
    low, high = _ratio_range(m)
    if m.tokens > 2 and high - low < 1e-6 and abs(low) > 1e-6:
        return (
            f"log theta - log roll is {low:.4g} on every token: rollout log-probs were taken after "
            "top-p, top-k or temperature, or are scaled"
        )
    return ""


def _temperature(m: Moments) -> str:
    """A rollout distribution that was sharpened or flattened: d is nearly a linear function of log roll."""
    n = m.tokens
    x, d, xx, dd, xd = (m.tally.counts.get(f"relation: {what}", 0.0) for what in ("x", "d", "xx", "dd", "xd"))
    spread, scatter, joint = n * xx - x * x, n * dd - d * d, n * xd - x * d
    if n < _RELATION_TOKENS or not (spread > 0.0 and scatter > 0.0):
        return ""
    explained, slope = joint * joint / (spread * scatter), joint / spread
    if explained < _RELATION or abs(slope) < 0.01:
        return ""
    return (
        f"log theta - log roll is nearly a linear function of log roll (slope {slope:.3g}, {explained:.0%} of its "
        "variance): one of the two was taken at another temperature, or scaled"
    )


def _quantised(m: Moments) -> str:
    remarks = []
    x, d = (m.tally.counts.get(f"relation: {what}", 0.0) for what in ("x", "d"))
    for name, size in (("rollout", -x), ("train", -(x + d))):
        numbers = m.tally[f"{name} numbers"]
        if numbers < 32 or not m.tally[f"{name} not whole"]:
            continue
        for dtype, bits in (("bfloat16", 8), ("float16", 11)):
            if not m.tally[f"{name} not {dtype}"]:
                step = abs(size) / numbers * 2.0**-bits
                remarks.append(
                    f"{name}_logprobs are {dtype} numbers: each is off by up to {step:.2g} (at their mean size), which "
                    f"puts a floor of about {step**2 / 6:.1g} nats per token under every divergence"
                )
                break
    return "; ".join(remarks)


def _positive(m: Moments) -> str:
    if n := m.tally["positive"]:
        return f"{n} log-probs are positive, as {m.reading.logprob_dtype} rounding explains; they are used as they are"
    return ""


def _overflow(m: Moments) -> str:
    count = int((m["log_product"] > math.log(np.finfo(np.float64).max)).sum())
    return f"the ratio of {count} whole responses overflows float64: it is inf here, not clamped" if count else ""


def _few_prompts(m: Moments) -> str:
    if m.prompts < 2:
        return "one prompt: of others nothing can be estimated; improvement_these_prompts speaks of this one"
    return (
        f"only {m.prompts} prompts: the estimated intervals are asymptotic and too narrow for so few"
        if m.prompts < _FEW_PROMPTS
        else ""
    )


_CHECKS: tuple[Callable[[Moments], str], ...] = (
    _suspicious_zeros,
    _equal_tails,
    _unlikely_samples,
    _exact_columns,
    _identical,
    _constant,
    _temperature,
    _quantised,
    _positive,
    _overflow,
    _few_prompts,
)
