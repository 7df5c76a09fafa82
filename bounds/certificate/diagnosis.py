"""What to look at in a log: its parts are seen one by one, and what is seen adds up. Nothing is repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds.certificate.statistics import IMPOSSIBLE_SAMPLE, TRUE_ZERO, Errors, signs
from bounds.certificate.tally import Tally
from bounds.divergence.rows import k2, two_outcome_kl
from bounds.logs.batch import TraceError
from bounds.logs.checks import POSITIVE_TOLERANCE
from bounds.logs.traces import TraceSet

if TYPE_CHECKING:
    pass

_IMPOSSIBLE_SCORE = -80.0
_PADDING_TAIL = 8
#: A context where a divergence is at least so large: assumption -> exact column, or what the sampled token implies.
SUPREMA = {"delta": "kl", "epsilon": "tv", "chi2_max": "chi2", "log_ratio_max": ""}


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
    for what, seen_there in (
        ("both zero", (traces.rollout == 0.0) & (traces.train == 0.0)),
        ("unlikely scores", traces.train < _IMPOSSIBLE_SCORE),
    ):
        if times := int(np.count_nonzero(seen_there)):
            tally.count(what, times, _place(traces, seen_there))


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
            raise shift(alone.where[0], name, before, after)
        tally.count(f"shift: {name}", int(near.sum()))
        tally.count(f"shift: |d| {name}", total[f"after_{name}"])


def shift(place: str, name: str, before: float, after: float) -> TraceError:
    """The error of log-probs that are off by one, with the mean |difference| as it is and after a move by one."""
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
