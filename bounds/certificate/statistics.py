"""What is computed of the tokens of a log, once: sums by response and by position, signs of trouble, a row of numbers.

Two ways give the same sums: NumPy, in some sixty passes, and a kernel compiled by numba, in seven.
:data:`COLUMNS` says what becomes of them: a new number of each response is one entry there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds.certificate.belonging import Belonging, belonging
from bounds.divergence.rows import k2, k3
from bounds.logs.traces import NO_PROMPT_TEXT, TraceSet, beginning, fingerprint
from bounds.masks.statistics import OFF_POLICY, Tokens, pooled

#: Compiling takes two seconds: not worth it for a log with fewer tokens.
WORTH_COMPILING = 2**20
#: A log-prob of exactly 0 is ordinary where the other policy is above this.
TRUE_ZERO = -1e-3
#: Padding is 0 in one policy and no farther from it in the other, or one improbable value in both; it comes abruptly.
ALIKE, IMPROBABLE, ABRUPT = 0.01, -5.0, 0.05
#: Log-probs above this are positive.
POSITIVE = 1e-6
#: Log-probs that differ by no more than this share of roll's are the same, but for a rounding; or close.
SAME, CLOSE = 1e-5, 1e-4

_PIECE = 2**15
_MANY_CLOSE = 0.05  # a smaller share of a response is never evidence that it was copied
_ONE_VALUE = 0.01  # log-probs this near to each other, as a share of themselves, are one
#: P of a response is stopped before a token that could take it above this, where that is known; fixed beforehand.
STOP_AT = 2.0
_MOST_MASS = 1e6  # a smaller min(P, 1+S) only raises the bound 1 - E min(P, 1+S)

_SUMMED = ("log_ratio_sum", "k3_sum", "surrogate_sum", "shortfall_sum")
#: Of each response, with d = log theta - log roll and rho = exp(d): sums of d, k3, rho - 1 and (1 - rho)^+; ends of d.
SUMS = np.dtype([(name, np.float64) for name in (*_SUMMED, "least", "largest")])
#: Of each response: how many tokens at its end are padding; how many are not certain, and of these the same, or close.
SIGNS = np.dtype([(n, np.int64) for n in ("tail", "uncertain", "same", "close")])
_ADDED = ("x", "d", "xx", "dd", "xd")
_COUNTED = ("unequal", "rollout_numbers", "train_numbers", "rollout_zeros", "train_zeros", "positive", "told")
#: Of all tokens: sums over d and x = log roll; counts of what is odd, of what is no 0, and of uncertain ones.
TOTALS = np.dtype([(n, np.float64) for n in _ADDED] + [(n, np.int64) for n in _COUNTED])


class Sums(NamedTuple):
    """By response :data:`SUMS` [N]; weighed sums over responses at each position of k3 and (1 - rho)^+ [longest]."""

    responses: npt.NDArray[Any]
    k3: FloatArray
    shortfall: FloatArray


class Signs(NamedTuple):
    """By response :data:`SIGNS` [N], and of all tokens :data:`TOTALS` [1]."""

    responses: npt.NDArray[Any]
    totals: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a log (one response at least), with what was computed of its tokens for every column and every check.

    ``sums``, ``signs`` [N] and ``totals`` are as :data:`SUMS`, :data:`SIGNS` and :data:`TOTALS` say, ``positions`` and
    ``belonging`` as :func:`position_sums` and :func:`belonging`. ``suprema``: whether to look for the least divergences
    that single tokens imply (it costs as much as all the rest). ``least`` is the lowest log-prob of each policy.
    """

    traces: TraceSet
    sums: npt.NDArray[Any]
    signs: npt.NDArray[Any]
    positions: Mapping[str, FloatArray]
    totals: Mapping[str, float]
    belongs: Belonging
    suprema: bool
    least: Mapping[str, float]

    @classmethod
    def of(cls, traces: TraceSet, *, suprema: bool = False, compiled: bool = False) -> Self:
        """Compute everything."""
        alike = np.ones(len(traces))
        sums = token_sums(traces.rollout, traces.train, traces.starts, alike, compiled=compiled)
        signs = token_signs(traces.rollout, traces.train, traces.starts, compiled=compiled)
        _count_once(signs.responses, traces)
        totals = {name: signs.totals[name][0].item() for name in TOTALS.names or ()}
        positions = position_sums(traces, sums, alike)
        belong = belonging(traces, sums.responses["k3_sum"])
        least = {"rollout": float(traces.rollout.min()), "train": float(traces.train.min())}
        return cls(traces, sums.responses, signs.responses, positions, totals, belong, suprema, least)

    def log_ratio(self, row: int) -> FloatArray:
        """Return log theta - log roll of the tokens of one response."""
        its = slice(self.traces.starts[row], self.traces.starts[row + 1])
        return self.traces.train[its] - self.traces.rollout[its]

    def total(self, values: FloatArray | None) -> FloatArray | None:
        """Return the sums [N] of values [tokens] over each response."""
        return None if values is None else np.asarray(np.add.reduceat(values, self.traces.starts[:-1]))

    def largest(self, values: FloatArray | None) -> FloatArray | None:
        """Return the largest [N] of values [tokens] of each response."""
        return None if values is None else np.asarray(np.maximum.reduceat(values, self.traces.starts[:-1]))


# --- a row for each response ---------------------------------------------------------------------------------------

_Column = Callable[[Part], npt.NDArray[Any] | None]


def _sum(name: str) -> _Column:
    return lambda part: np.ascontiguousarray(part.sums[name])


def _sign(name: str) -> _Column:
    return lambda part: part.signs[name].astype(np.int32)


def _exact(name: str) -> _Column:
    return lambda part: part.total(part.traces.exact.get(name))


def _prompt_text(name: str) -> _Column:
    """Return the column of what is known of the prompts' tokens, also where they are not logged."""

    def column(part: Part) -> npt.NDArray[Any]:
        text = part.traces.prompt_text
        found = np.full(len(part.traces), NO_PROMPT_TEXT) if text is None else text
        return np.ascontiguousarray(found[name])

    return column


def _engine(part: Part) -> FloatArray | None:
    old = part.traces.old
    return None if old is None else part.total(part.traces.rollout - old)


def reach(traces: TraceSet) -> FloatArray:
    """Return the largest log-ratio that what was sampled can have with each token [tokens], where that is logged."""
    sums = np.concatenate([[0.0], np.cumsum(np.maximum(traces.log_ratio, -1e4))])  # after a filler no cap is reached
    return np.asarray(sums[:-1] - np.repeat(sums[traces.starts[:-1]], traces.lengths) + traces.exact["max_log_ratio"])


def _stopped(part: Part) -> FloatArray | None:
    """Return the log of P before the first token that could take it above :data:`STOP_AT`: its mean is exactly 1."""
    traces = part.traces
    if "max_log_ratio" not in traces.exact:
        return None
    stops = reach(traces) > np.log(STOP_AT) - 1e-3  # more than log-probs are rounded
    first = np.minimum.reduceat(np.where(stops, traces.order, traces.rollout.size), traces.starts[:-1])
    before = traces.order < np.repeat(first, traces.lengths)
    return part.total(np.where(before, np.maximum(traces.log_ratio, -1e4), 0.0))


def _capped_mass(part: Part) -> FloatArray:
    with np.errstate(over="ignore"):
        product = np.exp(part.sums["log_ratio_sum"])
    return np.asarray(np.minimum(np.minimum(product, 1.0 + part.sums["surrogate_sum"]), _MOST_MASS))


def _worst_case_error(part: Part) -> FloatArray:
    """Return W^- = (Phi - k3(P))^+: so it does not cancel, and is 0 for one token.

    Where both have overflowed, log(1 + S) <= log P decides, else it is inf, which is never below the truth.
    """
    phi, log_product = part.sums["k3_sum"], part.sums["log_ratio_sum"]
    whole = k3(log_product)
    both = np.isinf(phi) & np.isinf(whole)
    gap = np.maximum(np.where(both, 0.0, phi) - np.where(both, 0.0, whole), 0.0)
    for i in np.flatnonzero(both):
        d = part.log_ratio(int(i))
        log_sum = float(np.logaddexp.reduce(d))  # of sum rho >= 1 + S
        single = np.count_nonzero(d) == 1  # then 1 + S = P
        gap[i] = 0.0 if single or log_sum <= log_product[i] else np.inf
    return np.asarray(gap)


#: What is kept of each response: name -> array [N], or None where the log lacks what it needs. P is carried as log P;
#: what overflows is inf, never clamped.
COLUMNS: Mapping[str, _Column] = MappingProxyType(
    {
        "prompt": lambda part: prompt_keys(part.traces),
        "length": lambda part: part.traces.lengths.astype(np.float64),  # policy tokens
        "log_ratio_sum": _sum("log_ratio_sum"),  # log P = sum d
        "k3_sum": _sum("k3_sum"),  # Phi
        "surrogate_sum": _sum("surrogate_sum"),  # S = sum (rho - 1)
        "shortfall_sum": _sum("shortfall_sum"),  # sum (1 - rho)^+; its mean is A under any supports
        "max_k2": lambda part: np.maximum(k2(part.sums["least"]), k2(part.sums["largest"])),
        "worst_case_error": _worst_case_error,  # W^- = (1 + S - P)^+
        "capped_mass": _capped_mass,  # min(P, 1 + S, 1e6): 1 - its mean bounds the worst error under any supports
        "kl_sum": _exact("kl"),
        "tv_sum": _exact("tv"),
        "chi2_sum": _exact("chi2"),
        "max_log_ratio": lambda part: part.largest(part.traces.exact.get("max_log_ratio")),
        "stopped_sum": _stopped,
        "engine_sum": _engine,  # sum (log roll - log old)
        "reward": lambda part: part.traces.reward,
        "fingerprint": lambda part: fingerprint(part.traces),
        "beginning": lambda part: beginning(part.traces),
        "prompt_number": _prompt_text("number"),
        "prompt_likeness": _prompt_text("likeness"),
        "train_sum": lambda part: part.total(part.traces.train),
        "misaligned": lambda part: part.belongs.misaligned.astype(np.float32),  # evidence, in nats
        "swapped": lambda part: part.belongs.swapped.astype(np.float32),
        "unrelated": lambda part: part.belongs.unrelated.astype(np.float32),
        **{name: _sign(name) for name in SIGNS.names or ()},
    }
)


def _probability_gap(t: TraceSet) -> FloatArray:
    return np.asarray(np.abs(np.exp(t.train) - np.exp(t.rollout)))


def _within(t: TraceSet, most: float) -> FloatArray:
    return np.clip(t.log_ratio, -most, most)


def _weight(t: TraceSet) -> FloatArray:
    return np.minimum(np.exp(_within(t, 20.0)), 2.0)


def _js(t: TraceSet) -> FloatArray:
    mixture = np.logaddexp(t.train, t.rollout) - np.log(2.0)
    return np.asarray((k3(t.train - mixture) + k3(t.rollout - mixture)) / 2.0)


#: Further numbers of tokens, whose sum, square sum, maximum and minimum over each response are kept where a question
#: asks for them, by the names ``NAME_sum``, ``NAME_square_sum``, ``NAME_max`` and ``NAME_min``.
ASKED_FOR: Mapping[str, Callable[[TraceSet], FloatArray]] = MappingProxyType(
    {
        "k3": lambda t: k3(t.log_ratio),
        "k3_inverse": lambda t: k3(-t.log_ratio),
        "k3_capped": lambda t: np.minimum(k3(_within(t, 20.0)), 10.0),  # as miles and ms-swift do
        "k2": lambda t: k2(t.log_ratio),
        "chi2_token": lambda t: np.expm1(2.0 * t.log_ratio),
        "chi2_clamped": lambda t: np.expm1(2.0 * _within(t, 20.0)),
        "log_ratio_abs": lambda t: np.abs(t.log_ratio),
        "ratio": lambda t: np.exp(t.log_ratio),
        "ratio_clamped": lambda t: np.exp(_within(t, 20.0)),
        "ratio_deviation": lambda t: np.abs(np.expm1(t.log_ratio)),
        "mult_prob_error": lambda t: np.exp(np.abs(t.log_ratio)),
        "weight": _weight,  # of truncated importance sampling, at verl's and ms-swift's default
        "weight_of_half": lambda t: np.maximum(_weight(t), 0.5),
        "js": _js,
        "rollout": lambda t: t.rollout,
        "train": lambda t: t.train,
        "rollout_minus": lambda t: -t.rollout,
        "train_minus": lambda t: -t.train,
        "probability_gap": _probability_gap,
        "rollout_probability": lambda t: np.exp(t.rollout),
        "train_probability": lambda t: np.exp(t.train),
        "probability_product": lambda t: np.exp(t.rollout + t.train),
    }
)
_POOLED = {
    "square_sum": lambda x, starts: np.add.reduceat(np.square(x), starts),
    "sum": np.add.reduceat,
    "max": np.maximum.reduceat,
    "min": np.minimum.reduceat,
}


def _asked_for(name: str) -> tuple[str, str] | None:
    """Return which number of tokens a name asks for, and its pool; None where it is no such name."""
    for pool in _POOLED:
        if name.endswith(f"_{pool}") and (token := name.removesuffix(f"_{pool}")) in ASKED_FOR:
            return token, pool
    return None


def rows(part: Part, statistics: Collection[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Return :data:`COLUMNS` of each response, as far as the log allows, and what masks look at."""
    found = {name: values for name, column in COLUMNS.items() if (values := column(part)) is not None}
    return found | statistics_of(part.traces, statistics)


@np.errstate(over="ignore")
def statistics_of(
    traces: TraceSet, names: Collection[str], advantage: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Return statistics of each response, arrays [N]: of :data:`ASKED_FOR`, or as ``pooled`` of masks names them.

    What looks at the ``advantage`` [N] is left out without it: one part of a log cannot tell the mean of a prompt.
    """
    if advantage is None:
        names = [name for name in names if name != OFF_POLICY]
    if not names:
        return {}
    tokens = Tokens(traces.log_ratio, traces.starts, traces.exact.get("kl"), traces.rollout, advantage)
    asked = {name: found for name in names if (found := _asked_for(name))}
    values = {token: ASKED_FOR[token](traces) for token in {token for token, _ in asked.values()}}
    own = {name: _POOLED[pool](values[token], traces.starts[:-1]) for name, (token, pool) in asked.items()}
    return {name: own[name] if name in own else pooled(name, tokens) for name in names}


def prompt_keys(traces: TraceSet, *, by_tokens: bool = False) -> npt.NDArray[np.uint64]:
    """Return what stands for the prompt of each response in every log [N]: a hash of its name, or of its tokens."""
    if by_tokens and traces.prompt_text is not None:
        return np.ascontiguousarray(traces.prompt_text["number"])
    hashes = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in traces.prompt_ids)
    return np.frombuffer(hashes, dtype=">u8").astype(np.uint64)[traces.prompt]


def prompt_weights(prompt: IntArray) -> FloatArray:
    """Return weights [N] that average within each prompt first, then over prompts; they sum to 1."""
    size = np.bincount(prompt)
    return np.asarray(1.0 / (size[prompt] * size.size))


def times(weight: FloatArray, values: FloatArray) -> FloatArray:
    """Return the product; 0 where the weight is 0, even if the value has overflowed."""
    return np.asarray(weight * np.where(weight == 0.0, 0.0, values))


# --- sums by position ----------------------------------------------------------------------------------------------


def position_sums(traces: TraceSet, sums: Sums, weights: FloatArray) -> dict[str, FloatArray]:
    """Return weighed sums over responses at each position [longest]: k3, shortfall, and the exact columns."""
    found = {"k3": sums.k3, "shortfall": sums.shortfall}
    if traces.exact:
        order, by_token = traces.order, np.repeat(weights, traces.lengths)
        exact = {name: values for name, values in traces.exact.items() if name != "max_log_ratio"}
        found |= {n: np.asarray(np.bincount(order, weights=by_token * v)) for n, v in exact.items()}
    return found


def add_positions(total: dict[str, FloatArray], more: Mapping[str, FloatArray]) -> None:
    """Add sums by position to others; the shorter array is 0 after its end."""
    for name, values in more.items():
        longer, shorter = sorted((total.get(name, np.zeros(0)), values), key=np.size, reverse=True)
        total[name] = longer.copy()
        total[name][: shorter.size] += shorter


# --- sums and signs ------------------------------------------------------------------------------------------------


def token_sums(roll: FloatArray, theta: FloatArray, starts: IntArray, weights: FloatArray, *, compiled: bool) -> Sums:
    """Return sums of how far the policies are apart, by NumPy or by the kernel.

    Response i has the tokens ``starts[i]:starts[i+1]``; ``weights`` [N] are those of the sums by position.
    """
    longest = int(np.diff(starts).max())
    found = Sums(np.zeros(len(weights), SUMS), np.zeros(longest), np.zeros(longest))
    if (kernel := _kernel(compiled)) is not None:
        kernel.fill_sums(roll, theta, starts, weights, *found)
        return found
    for some, tokens in _pieces(starts):
        cut = starts[some.start : some.stop + 1] - tokens.start
        _fill_sums(theta[tokens] - roll[tokens], cut, weights[some], found._replace(responses=found.responses[some]))
    return found


def token_signs(roll: FloatArray, theta: FloatArray, starts: IntArray, *, compiled: bool) -> Signs:
    """Return what is odd; parameters as of :func:`token_sums`."""
    found = Signs(np.zeros(starts.size - 1, SIGNS), np.zeros(1, TOTALS))
    if (kernel := _kernel(compiled)) is not None:
        kernel.fill_signs(roll, theta, starts, *found, (SAME, CLOSE, ALIKE, IMPROBABLE, ABRUPT, TRUE_ZERO, POSITIVE))
        return found
    for some, tokens in _pieces(starts):
        cut = starts[some.start : some.stop + 1] - tokens.start
        _fill_copies(roll[tokens], theta[tokens], cut, found.responses[some])
        _fill_tails(roll[tokens], theta[tokens], cut, found.responses["tail"][some])
        _fill_totals(roll[tokens], theta[tokens], found.totals[0])
    return found


def _kernel(compiled: bool) -> Any:
    """Return the compiled way, where it is wanted and there."""
    if not compiled:
        return None
    from bounds.certificate import _kernel as compiled_kernel

    return compiled_kernel


def _pieces(starts: IntArray) -> Iterator[tuple[slice, slice]]:
    """Yield some responses at a time, and their tokens: so few that NumPy's temporaries stay in the cache."""
    i = 0
    while i < starts.size - 1:
        j = max(i + 1, int(np.searchsorted(starts, starts[i] + _PIECE, side="right")) - 1)
        yield slice(i, j), slice(int(starts[i]), int(starts[j]))
        i = j


def _fill_sums(d: FloatArray, starts: IntArray, weights: FloatArray, found: Sums) -> None:
    first, lengths = starts[:-1], np.diff(starts)
    divergence = k3(d)
    with np.errstate(over="ignore"):
        excess = np.expm1(d)
        short = np.maximum(-excess, 0.0)
        for name, values in zip(_SUMMED, (d, divergence, excess, short), strict=True):
            found.responses[name] = np.add.reduceat(values, first)
    found.responses["least"], found.responses["largest"] = (f.reduceat(d, first) for f in (np.minimum, np.maximum))
    order = np.arange(d.size) - np.repeat(first, lengths)
    weight = np.repeat(weights, lengths)
    for at, values in ((found.k3, divergence), (found.shortfall, short)):
        sums = np.bincount(order, weights=weight * values)
        at[: sums.size] += sums


def _fill_copies(roll: FloatArray, theta: FloatArray, starts: IntArray, responses: Any) -> None:
    gap, uncertain = np.abs(theta - roll), roll < TRUE_ZERO
    close = np.flatnonzero((gap <= -CLOSE * roll) & uncertain)
    responses["uncertain"] = np.add.reduceat(uncertain, starts[:-1], dtype=np.int64)
    responses["close"] = _counts(close, starts)
    responses["same"] = _counts(close[gap[close] <= -SAME * roll[close]], starts)


def _fill_tails(roll: FloatArray, theta: FloatArray, starts: IntArray, tail: IntArray) -> None:
    last = starts[1:] - 1
    for i in np.flatnonzero(_empty(roll[last], theta[last], roll[last])):
        its = slice(starts[i], starts[i + 1])
        empty = _empty(roll[its], theta[its], roll[last[i]])
        n = empty.size if empty.all() else int(np.argmin(empty[::-1]))
        before = starts[i + 1] - n - 1
        tail[i] = n if before < starts[i] or abs(roll[before] - roll[before + 1]) > ABRUPT else 0


def _empty(roll: FloatArray, theta: FloatArray, last: FloatArray) -> BoolArray:
    """Return whether tokens can be padding of a response with this last log-prob of roll."""
    nothing = (np.abs(theta - roll) <= ALIKE) & ((roll == 0.0) | (theta == 0.0))
    return np.asarray(nothing | ((theta == roll) & (roll < IMPROBABLE) & (roll == last)))


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
    higher = np.maximum(roll, theta)
    total["positive"] += np.count_nonzero(higher > POSITIVE)
    total["told"] += np.count_nonzero(higher < TRUE_ZERO)


def _count_once(responses: Any, traces: TraceSet) -> None:
    """Count values that return in a response, as in a loop, once, where more than few are close to the other policy's.

    Of a value that is close some of the times that it comes, that share counts.
    """
    for i in np.flatnonzero((responses["close"] > 2) & (responses["close"] > _MANY_CLOSE * responses["uncertain"])):
        x, y = (values[traces.starts[i] : traces.starts[i + 1]] for values in (traces.rollout, traces.train))
        x, gap = x[x < TRUE_ZERO], np.abs(y - x)[x < TRUE_ZERO]
        value = np.floor(np.log(-x) / _ONE_VALUE)
        _, which, times_seen = np.unique(value, return_inverse=True, return_counts=True)
        responses["uncertain"][i] = times_seen.size
        for name, share in (("close", CLOSE), ("same", SAME)):
            responses[name][i] = round(float(((gap <= -share * x) / times_seen[which]).sum()))


def _counts(tokens: IntArray, starts: IntArray) -> IntArray:
    """Return how many of some tokens are in each response."""
    return np.diff(np.searchsorted(tokens, starts))


def _dot(a: FloatArray, b: FloatArray) -> float:
    return float(np.einsum("i,i", a, b))  # of one thread, so that it repeats to the last bit
