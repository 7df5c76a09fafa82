"""One look at the tokens of a log: what a certificate needs of them, by response, by position and in all.

Two ways give the same numbers: NumPy, in some sixty passes, and a kernel compiled by numba (extra ``fast``), in seven.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray
from bounds.divergence.rows import k3
from bounds.logs.traces import TraceSet
from bounds.masks.statistics import Tokens, pooled

#: Compiling takes two seconds: not worth it for a log with fewer tokens.
WORTH_COMPILING = 2**20
#: A token with a larger |d| can tell a shift by one.
SHIFT_GAP = 0.01
#: Another token's value agrees if it is off by no more than this share of |d|; or is the same.
SHIFT_NEAR, SHIFT_SAME = 0.2, 1e-3
#: No sampled token has a log-prob below this.
IMPOSSIBLE_SAMPLE = -40.0
#: A log-prob of exactly 0 is ordinary where the other policy is above this.
TRUE_ZERO = -1e-3
#: Log-probs above this are positive.
POSITIVE = 1e-6

_PIECE = 2**15

#: Of each response, with d = log theta - log roll and rho = exp(d): sums of d, k3, rho - 1 and (1 - rho)^+; ends of d.
ERRORS = np.dtype([(name, np.float64) for name in ("d", "k3", "gain", "deficit", "lowest", "highest")])
#: Of each response: how many tokens at its end are equal; how many tell a shift, how many of these agree with theta
#: being one token early, or late, and how many are then the same.
SIGNS = np.dtype(
    [(n, np.int64) for n in ("tail", "telling", "near_earlier", "same_earlier", "near_later", "same_later")]
)
_SUMS = ("gap", "after_earlier", "after_later", "x", "d", "xx", "dd", "xd")
_COUNTS = (
    "unequal",
    "rollout_numbers",
    "train_numbers",
    "rollout_zeros",
    "train_zeros",
    "unlikely",
    "positive",
)
#: Of all tokens: sums of the |d| that tell a shift, and of what is left of them if there is one; sums over d and
#: x = log roll; counts of what is odd, and of what is no 0.
TOTALS = np.dtype([(n, np.float64) for n in _SUMS] + [(n, np.int64) for n in _COUNTS])


class Errors(NamedTuple):
    """By response :data:`ERRORS` [N]; weighed sums over responses at each position of k3 and (1 - rho)^+ [longest]."""

    responses: npt.NDArray[Any]
    k3: FloatArray
    deficit: FloatArray


class Signs(NamedTuple):
    """By response :data:`SIGNS` [N], and of all tokens :data:`TOTALS` [1]."""

    responses: npt.NDArray[Any]
    totals: npt.NDArray[Any]


def errors(roll: FloatArray, theta: FloatArray, starts: IntArray, weights: FloatArray, *, compiled: bool) -> Errors:
    """Sums of how far the policies are apart.

    Parameters
    ----------
    roll, theta : arrays [tokens]
        Finite log-probs of the sampled tokens under both policies; response i is ``starts[i]:starts[i+1]``.
    weights : array [N]
        Of the responses in the sums by position.
    compiled : bool
        By the kernel, if numba is there.
    """
    longest = int(np.diff(starts).max())
    found = Errors(np.zeros(len(weights), ERRORS), np.zeros(longest), np.zeros(longest))
    if (kernel := _kernel(compiled)) is not None:
        kernel.fill_errors(roll, theta, starts, weights, *found)
        return found
    for some, tokens in _pieces(starts):
        cut = starts[some.start : some.stop + 1] - tokens.start
        _fill_errors(theta[tokens] - roll[tokens], cut, weights[some], found._replace(responses=found.responses[some]))
    return found


def signs(roll: FloatArray, theta: FloatArray, starts: IntArray, *, compiled: bool) -> Signs:
    """Look for what is odd; parameters as of :func:`errors`."""
    found = Signs(np.zeros(starts.size - 1, SIGNS), np.zeros(1, TOTALS))
    if (kernel := _kernel(compiled)) is not None:
        kernel.fill_signs(roll, theta, starts, *found)
        return found
    for some, tokens in _pieces(starts):
        cut = starts[some.start : some.stop + 1] - tokens.start
        _fill_shift(roll[tokens], theta[tokens], cut, found.responses[some], found.totals[0])
        _fill_tails(roll[tokens], theta[tokens], cut, found.responses["tail"][some])
        _fill_totals(roll[tokens], theta[tokens], found.totals[0])
    return found


def _kernel(compiled: bool) -> Any:
    """The compiled way, where it is wanted and there."""
    if not compiled or importlib.util.find_spec("numba") is None:
        return None
    from bounds.certificate import _kernel as _token_kernel

    return _token_kernel


def _pieces(starts: IntArray) -> Iterator[tuple[slice, slice]]:
    """Some responses at a time, and their tokens: so few that NumPy's temporaries stay in the cache."""
    i = 0
    while i < starts.size - 1:
        j = max(i + 1, int(np.searchsorted(starts, starts[i] + _PIECE, side="right")) - 1)
        yield slice(i, j), slice(int(starts[i]), int(starts[j]))
        i = j


def _fill_errors(d: FloatArray, starts: IntArray, weights: FloatArray, found: Errors) -> None:
    first, lengths = starts[:-1], np.diff(starts)
    divergence = k3(d)
    with np.errstate(over="ignore"):
        gain = np.expm1(d)
        deficit = np.maximum(-gain, 0.0)
        for name, values in (("d", d), ("k3", divergence), ("gain", gain), ("deficit", deficit)):
            found.responses[name] = np.add.reduceat(values, first)
    found.responses["lowest"], found.responses["highest"] = (f.reduceat(d, first) for f in (np.minimum, np.maximum))
    order = np.arange(d.size) - np.repeat(first, lengths)
    weight = np.repeat(weights, lengths)
    for at, values in ((found.k3, divergence), (found.deficit, deficit)):
        sums = np.bincount(order, weights=weight * values)
        at[: sums.size] += sums


def _fill_shift(roll: FloatArray, theta: FloatArray, starts: IntArray, responses: Any, total: Any) -> None:
    gap = np.abs(theta - roll)
    gap[starts[:-1]] = gap[starts[1:] - 1] = 0.0  # no neighbours on both sides
    telling = gap > SHIFT_GAP
    responses["telling"] = _counts(np.flatnonzero(telling), starts)
    tells = telling.astype(np.float64)
    gap *= tells
    total["gap"] += gap.sum()
    after = np.zeros(gap.size)
    for name, ahead, behind in (("earlier", theta, roll), ("later", roll, theta)):
        apart = np.abs(ahead[:-1] - behind[1:])  # of the values that a shift by one would pair
        np.maximum(apart[:-1], apart[1:], out=after[1:-1])
        near = np.flatnonzero(after < SHIFT_NEAR * gap)
        responses[f"near_{name}"] = _counts(near, starts)
        responses[f"same_{name}"] = _counts(near[after[near] < SHIFT_SAME * gap[near]], starts)
        total[f"after_{name}"] += _dot(after, tells)


def _fill_tails(roll: FloatArray, theta: FloatArray, starts: IntArray, tail: IntArray) -> None:
    last = starts[1:] - 1
    for i in np.flatnonzero(roll[last] == theta[last]):
        tokens = slice(starts[i], starts[i + 1])
        unequal = np.flatnonzero(roll[tokens] != theta[tokens])
        tail[i] = starts[i + 1] - starts[i] - (unequal[-1] + 1 if unequal.size else 0)


def _fill_totals(roll: FloatArray, theta: FloatArray, total: Any) -> None:
    d = theta - roll
    for name, a, b in (("xx", roll, roll), ("dd", d, d), ("xd", roll, d)):
        total[name] += _dot(a, b)
    total["x"] += roll.sum()
    total["d"] += d.sum()
    total["unequal"] += np.count_nonzero(d != 0.0)
    for name, values, other in (("rollout", roll, theta), ("train", theta, roll)):
        zero = np.flatnonzero(values == 0.0)
        total[f"{name}_numbers"] += values.size - zero.size
        total[f"{name}_zeros"] += np.count_nonzero(other[zero] < TRUE_ZERO)
    total["unlikely"] += np.count_nonzero(roll < IMPOSSIBLE_SAMPLE)
    total["positive"] += np.count_nonzero(np.maximum(roll, theta) > POSITIVE)


def _counts(tokens: IntArray, starts: IntArray) -> IntArray:
    """How many of some tokens are in each response."""
    return np.diff(np.searchsorted(tokens, starts))


def _dot(a: FloatArray, b: FloatArray) -> float:
    return float(np.einsum("i,i", a, b))  # of one thread, so that it repeats to the last bit


# --- what questions ask of each response -------------------------------------------------------------------------


def _sum_of(values: Callable[[TraceSet], FloatArray]) -> Callable[[TraceSet], FloatArray]:
    def total(traces: TraceSet) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.asarray(np.add.reduceat(values(traces), traces.starts[:-1]))

    return total


#: Numbers of each response that questions ask for, beside what masks look at: name -> array [N] of some responses.
ASKED_FOR: Mapping[str, Callable[[TraceSet], FloatArray]] = MappingProxyType(
    {
        "k3_inverse_sum": _sum_of(lambda t: k3(-t.log_ratio)),
        "chi2_token_sum": _sum_of(lambda t: np.expm1(2.0 * t.log_ratio)),
        "probability_gap_sum": _sum_of(lambda t: np.abs(np.exp(t.train) - np.exp(t.rollout))),
    }
)


def statistics_of(traces: TraceSet, names: Iterable[str]) -> dict[str, FloatArray]:
    """Return statistics of each response, arrays [N].

    Parameters
    ----------
    traces : TraceSet
        N responses.
    names : names
        Of :data:`ASKED_FOR`, or as :func:`bounds.masks.statistics.pooled` takes them.
    """
    tokens = Tokens(traces.log_ratio, traces.starts, kl=traces.exact.get("kl"), rollout=traces.rollout)
    return {name: ASKED_FOR[name](traces) if name in ASKED_FOR else pooled(name, tokens) for name in names}


def prompt_number(key: str) -> int:
    """Return what stands for a prompt in every log: 64 bits of a hash of its name."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def prompt_keys(traces: TraceSet) -> npt.NDArray[np.uint64]:
    """Return the :func:`prompt_number` of each response [N]."""
    numbers = [prompt_number(name) for name in traces.prompt_ids]
    return np.array(numbers, dtype=np.uint64)[traces.prompt]


def prompt_weights(prompt: IntArray) -> FloatArray:
    """Return weights [N] that average within each prompt first, then over prompts; they sum to 1."""
    size = np.bincount(prompt)
    return np.asarray(1.0 / (size[prompt] * size.size))


def times(weight: FloatArray, values: FloatArray) -> FloatArray:
    """Return the product; 0 where the weight is 0, even if the value has overflowed."""
    return np.asarray(weight * np.where(weight == 0.0, 0.0, values))
