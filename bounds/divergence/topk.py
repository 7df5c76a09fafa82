"""Brackets of TV and KL from the k most probable tokens of both policies; the rest of the vocabulary is unknown.

For a token that only one policy lists, the other's probability is at most the least that it lists. With S the shared
tokens, A those that only roll lists, B those that only theta lists, and q for theta:

* TV is the largest P(G) - Q(G) over sets G of tokens: a lower value by G within S and A, or by theta's excess in S, B;
* TV = 1 - sum min(p, q) <= 1 - sum over S;
* KL(roll||theta) = sum_S k(p, q) + sum_rest k(p, l q) + P' log l - (l - 1) Q' for every l > 0, where
  k(p, q) = p log(p/q) - p + q >= 0 and P', Q' are the masses outside S. Each k takes its least value within what is
  known; l = P'/Q' is coarse-graining (everything outside S as one outcome), the best l is the optimum over all
  distributions with these lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray, number, refuse
from bounds.divergence.rows import k3
from bounds.results import Assumption

_ABSENT = -9999.0  # servers' floor: such an entry is padding
_EXCESS = 1e-6  # a mass above 1 by no more is an error of the logged values
_UNIT = 2.0**-52
_ROUNDINGS = 1024  # of a summand, generously: k of a large log ratio carries that many
_TINY = 1e-300  # more than all that is lost below the normal numbers


@dataclass(frozen=True, slots=True)
class TopKBrackets:
    """What the lists prove about each position; the true value is inside, and nothing says where.

    Attributes
    ----------
    tv_low, tv_high : FloatArray [n]
        Around sum_v |theta - roll| / 2.
    kl_low, kl_high : FloatArray [n]
        Around KL(roll||theta), in nats; ``kl_high`` is inf unless something was declared.
    assumptions : tuple of Assumption
        What ``kl_high`` rests on beside the lists.
    """

    tv_low: FloatArray
    tv_high: FloatArray
    kl_low: FloatArray
    kl_high: FloatArray
    assumptions: tuple[Assumption, ...]


def from_topk(
    rollout_ids: npt.ArrayLike,
    rollout_logprobs: npt.ArrayLike,
    train_ids: npt.ArrayLike,
    train_logprobs: npt.ArrayLike,
    *,
    train_floor: float | None = None,
    log_ratio_cap: float | None = None,
) -> TopKBrackets:
    """Certify lower and upper values of TV and KL(roll||theta) from the top-k lists of both policies.

    Of the largest log-ratio of the vocabulary they say nothing: it may be that of a token in neither list.
    Lower values are rounded down and upper ones up. They hold for all policies whose log-probs, rounded to the type of
    the arrays, are those given: keep float32 logs in float32 (their rounding alone moves TV by 1e-7).

    Parameters
    ----------
    rollout_ids, train_ids : array of int [n, k], [n, k']
        Token ids. The lists must be the k most probable tokens of each position: a sampled token that a server appends
        although it is not among them makes the brackets wrong, so leave it out.
    rollout_logprobs, train_logprobs : array of float [n, k], [n, k']
        Natural logs of probabilities after all processing that the policy samples with. -inf and values of -9999 and
        below are padding: such an entry is absent, and its id is ignored.
    train_floor : float, optional
        Declared: theta gives every token that roll can sample at least this probability.
    log_ratio_cap : float, optional
        Declared: |log theta - log roll| is at most this on the whole vocabulary.

    Returns
    -------
    TopKBrackets

    Raises
    ------
    ValueError
        Naming the row, if a log-prob is NaN or positive, an id occurs twice, the listed mass exceeds 1 by more than
        1e-6, or the lists contradict what was declared.

    Notes
    -----
    Log-sum inequality and data processing; this project's, see the module for the formulas.

    >>> b = from_topk([[7, 3]], [[-.7, -1.6]], [[7, 4]], [[-.6, -1.7]])
    >>> [round(float(x[0]), 4) for x in (b.tv_low, b.tv_high, b.kl_low, b.kl_high)]
    [0.0522, 0.5034, 0.0055, inf]
    """
    roll, theta = _Lists.read("rollout", rollout_ids, rollout_logprobs), _Lists.read("train", train_ids, train_logprobs)
    if roll.n != theta.n:
        refuse("train_ids", f"of as many rows as rollout_ids ({roll.n})", f"{theta.n} rows")
    sides = _Sides.of(roll, theta)
    high, assumptions = np.full(roll.n, math.inf), []
    if train_floor is not None:
        floor = number("train_floor", train_floor, math.ulp(0.0), 1.0)
        high = np.minimum(high, _kl_under_floor(sides, math.log(floor)))
        assumptions.append(Assumption("train_floor", floor, "declared"))
    if log_ratio_cap is not None:
        cap = number("log_ratio_cap", log_ratio_cap, 1e-12)
        high = np.minimum(high, _kl_under_cap(sides, cap))
        assumptions.append(Assumption("log_ratio_cap", cap, "declared"))
    return TopKBrackets(_tv_low(sides), _tv_high(sides), _kl_low(sides), high, tuple(assumptions))


@dataclass(frozen=True, slots=True)
class _Lists:
    """The present entries of one policy's lists, flat; log-probs and probabilities as intervals."""

    n: int
    row: IntArray
    token: IntArray
    log_low: FloatArray
    log_high: FloatArray
    log_least: FloatArray  # [n] no token outside the list has more; upper values

    @property
    def low(self) -> FloatArray:
        return np.exp(self.log_low) * (1.0 - 4 * _UNIT)

    @property
    def high(self) -> FloatArray:
        return np.nextafter(np.exp(self.log_high) * (1.0 + 4 * _UNIT), math.inf)

    @property
    def least(self) -> FloatArray:
        return np.exp(self.log_least) * (1.0 + 4 * _UNIT)

    def total(self, terms: FloatArray, direction: float) -> FloatArray:
        """Sum the non-negative terms of each row [n], rounded down (-1.0) or up (1.0)."""
        sums = np.bincount(self.row, weights=terms, minlength=self.n)
        counts = np.bincount(self.row, minlength=self.n) + _ROUNDINGS
        return np.asarray(sums * (1.0 + direction * counts * _UNIT), dtype=np.float64)

    def outside(self, direction: float) -> FloatArray:
        """Return the mass [n] that is not here."""
        return _one_minus(self.total(self.low if direction > 0 else self.high, -direction), direction)

    def only(self, kept: npt.NDArray[Any]) -> _Lists:
        return _Lists(self.n, self.row[kept], self.token[kept], self.log_low[kept], self.log_high[kept], self.log_least)

    @classmethod
    def read(cls, side: str, ids: npt.ArrayLike, logprobs: npt.ArrayLike) -> _Lists:
        """Check one side; the first bad row is named."""
        tokens, logs = np.asarray(ids), np.asarray(logprobs)
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            refuse(f"{side}_ids", "an array [n, k] of whole numbers", f"{tokens.dtype} of shape {tokens.shape}")
        if logs.shape != tokens.shape or logs.dtype.kind != "f":
            domain = f"an array of floats of the shape of {side}_ids {tokens.shape}"
            refuse(f"{side}_logprobs", domain, f"{logs.dtype} of shape {logs.shape}")
        if (bad := ~(logs <= 0.0)).any():
            row, column = np.argwhere(bad)[0]
            refuse(f"{side}_logprobs[{row}]", "log-probs of at most 0", f"{logs[row, column]} at {column}")
        n = len(tokens)
        row, column = np.nonzero(logs > _ABSENT)
        token, given = tokens[row, column].astype(np.int64), logs[row, column]
        order = np.lexsort((token, row))
        twice = (np.diff(row[order]) == 0) & (np.diff(token[order]) == 0)
        if twice.any():
            first = order[np.argmax(twice)]
            refuse(f"{side}_ids[{row[first]}]", "a list without repeated ids", f"{token[first]} twice")
        wide = given.astype(np.float64)
        error = np.spacing(np.abs(given)).astype(np.float64) / 2.0 + 4 * _UNIT * (1.0 - wide)
        low, high = wide - error, np.minimum(wide + error, 0.0)
        log_least = np.zeros(n)
        np.minimum.at(log_least, row, high)
        lists = cls(n, row, token, low, high, log_least)
        mass = lists.total(lists.low, -1.0)
        if (above := mass > 1.0 + _EXCESS).any():
            first = int(np.argmax(above))
            refuse(f"{side}_logprobs[{first}]", "log-probs of a mass of at most 1", f"{mass[first]:.9g} in all")
        return replace(lists, log_low=low - np.log(np.maximum(mass, 1.0))[row] * (1.0 + 4 * _UNIT))


def _one_minus(mass: FloatArray, direction: float) -> FloatArray:
    return np.clip(np.nextafter(1.0 - mass, direction * math.inf), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both policies' lists, and their parts: shared tokens (in one order) and those of one list alone."""

    roll: _Lists
    theta: _Lists
    shared_roll: _Lists
    shared_theta: _Lists
    only_roll: _Lists
    only_theta: _Lists

    @classmethod
    def of(cls, roll: _Lists, theta: _Lists) -> _Sides:
        _, token = np.unique(np.concatenate([roll.token, theta.token]), return_inverse=True)
        width = int(token.max(initial=0)) + 1
        keys = np.concatenate([roll.row, theta.row]) * width + token
        _, i, j = np.intersect1d(keys[: roll.row.size], keys[roll.row.size :], assume_unique=True, return_indices=True)
        return cls(
            roll,
            theta,
            roll.only(i),
            theta.only(j),
            roll.only(np.setdiff1d(np.arange(roll.row.size), i)),
            theta.only(np.setdiff1d(np.arange(theta.row.size), j)),
        )


def _tv_low(s: _Sides) -> FloatArray:
    """Return the larger of roll's excess on its listed tokens and theta's on its own."""

    def excess(p: _Lists, q: _Lists, alone: _Lists, other: _Lists) -> FloatArray:
        shared = p.total(np.maximum(p.low - q.high, 0.0), -1.0)
        by_token = alone.total(np.maximum(alone.low - other.least[alone.row], 0.0), -1.0)
        by_mass = np.nextafter(alone.total(alone.low, -1.0) - other.outside(1.0), -math.inf)
        return (shared + np.maximum(by_token, by_mass)) * (1.0 - 4 * _UNIT) - _TINY

    from_roll = excess(s.shared_roll, s.shared_theta, s.only_roll, s.theta)
    from_theta = excess(s.shared_theta, s.shared_roll, s.only_theta, s.roll)
    return np.asarray(np.maximum(np.maximum(from_roll, from_theta), 0.0))


def _tv_high(s: _Sides) -> FloatArray:
    return _one_minus(s.shared_roll.total(np.minimum(s.shared_roll.low, s.shared_theta.low), -1.0), 1.0)


def _term(log_p: FloatArray, log_q: FloatArray) -> FloatArray:
    """Compute k(p, q) = p log(p/q) - p + q, to a few roundings for each unit of log(q/p)."""
    d = log_q - log_p
    p = np.exp(log_p)
    return np.where(d > 1.0, np.exp(log_q) - p - p * d, p * k3(np.minimum(d, 1.0)))


def _kl_low(s: _Sides) -> FloatArray:
    p, q = s.shared_roll, s.shared_theta
    above = np.where(p.log_low > q.log_high, _term(p.log_low, q.log_high), 0.0)
    below = np.where(p.log_high < q.log_low, _term(p.log_high, q.log_low), 0.0)
    shared = p.total(above + below, -1.0)
    coarse = np.log(p.outside(1.0)) - np.log(q.outside(1.0))
    rest = np.maximum.reduce([_rest_low(s, x) for x in (np.zeros(p.n), coarse, _best_multiplier(s))])
    return np.asarray(np.maximum((shared + rest) * (1.0 - 4 * _UNIT) - _TINY, 0.0))


def _rest_low(s: _Sides, log_l: FloatArray) -> FloatArray:
    """Bound from below sum_rest k(p, q), by the multiplier l; any l is right, the best is nearest."""
    a, b = s.only_roll, s.only_theta
    log_l = np.clip(log_l, -600.0, 600.0)
    most_q, most_p = log_l[a.row] + s.theta.log_least[a.row], s.roll.log_least[b.row]  # k falls up to p = l q
    least = a.total(_term(a.log_low, np.minimum(most_q, a.log_low)), -1.0)
    least = least + b.total(_term(most_p, np.maximum(log_l[b.row] + b.log_low, most_p)), -1.0)
    l_minus_1 = np.expm1(log_l)
    p_part = np.where(log_l > 0.0, s.shared_roll.outside(-1.0), s.shared_roll.outside(1.0)) * log_l
    q_part = np.where(log_l > 0.0, s.shared_theta.outside(1.0), s.shared_theta.outside(-1.0)) * l_minus_1
    return np.asarray(least + (p_part - q_part) - _ROUNDINGS * _UNIT * (least + np.abs(p_part) + np.abs(q_part)))


def _best_multiplier(s: _Sides) -> FloatArray:
    """Find where the masses outside both lists are in the ratio l: the root of a function that falls in log l."""
    a, b = s.only_roll, s.only_theta
    p_tail, q_tail = s.roll.outside(1.0), s.theta.outside(1.0)
    low, high = np.full(s.roll.n, -60.0), np.full(s.roll.n, 60.0)
    for _ in range(50):
        middle = (low + high) / 2.0
        l = np.exp(middle)  # noqa: E741 - the formula's letter
        p_left = p_tail - b.total(np.minimum(s.roll.least[b.row], l[b.row] * b.low), 1.0)
        q_left = l * q_tail - a.total(np.minimum(l[a.row] * s.theta.least[a.row], a.low), 1.0)
        positive = p_left > q_left
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    return low


def _shared_high(s: _Sides) -> FloatArray:
    p, q = s.shared_roll, s.shared_theta
    return p.total(np.maximum(_term(p.log_high, q.log_low), _term(p.log_low, q.log_high)), 1.0) + _TINY


def _kl_under_floor(s: _Sides, log_floor: float) -> FloatArray:
    """Bound sum_rest p log(p/q) with q at its floor, p as listed or at most the least listed; and - P' + Q'."""
    a, q = s.only_roll, s.shared_theta
    for rows, most in ((q.row, q.log_high), (a.row, s.theta.log_least[a.row])):
        if (most < log_floor).any():
            row = rows[np.argmax(most < log_floor)]
            refuse("train_floor", f"at most what theta gives roll's tokens in row {row}", f"{math.exp(log_floor):.6g}")
    listed = a.total(a.high * np.maximum(a.log_high - log_floor, 0.0), 1.0)
    tail = s.roll.outside(1.0) * np.maximum(s.roll.log_least - log_floor, 0.0)
    total = _add_up(_shared_high(s), listed, tail, s.shared_theta.outside(1.0))
    return np.asarray(np.nextafter(total - s.shared_roll.outside(-1.0), math.inf))


def _kl_under_cap(s: _Sides, cap: float) -> FloatArray:
    """Bound sum_rest k(p, q) by the chord of -log on [e^-cap, e^cap], which lies above it."""
    p, q = s.shared_roll, s.shared_theta
    shared = np.maximum(q.log_low - p.log_high, p.log_low - q.log_high)
    alone = s.only_roll.log_low - s.theta.log_least[s.only_roll.row]
    other = s.only_theta.log_low - s.roll.log_least[s.only_theta.row]
    for rows, seen in ((p.row, shared), (s.only_roll.row, alone), (s.only_theta.row, other)):
        if (seen > cap).any():
            worst = int(np.argmax(seen > cap))
            refuse("log_ratio_cap", f"at least the {seen[worst]:.6g} that row {rows[worst]} shows", f"{cap:g}")
    with np.errstate(over="ignore"):
        p_factor, q_factor = cap / np.tanh(cap) - 1.0, 1.0 - cap / np.sinh(cap)
    p_part = p.outside(1.0) * (p_factor + 8 * _UNIT * (1.0 + cap))
    q_part = q.outside(1.0) * (q_factor + 8 * _UNIT)
    return _add_up(_shared_high(s), p_part, q_part)


def _add_up(*terms: FloatArray) -> FloatArray:
    total = np.asarray(sum(terms))
    return np.asarray(np.nextafter(total * (1.0 + 16 * _UNIT), math.inf))
