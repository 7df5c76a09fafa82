"""Sequence masks: which responses a trust region keeps, in the names that trainers use.

A mask is a comma of criteria, all of which must hold: ``seq_max_k2<=0.05,seq_mean_k3<=0.001`` (the paper's
TRM-Max and TRM-Avg on sampled tokens), ``seq_max_kl<=0.01`` (full-vocabulary KL), ``seq_mean_k1=0.999_1.001``
(bounds on the geometric mean of roll/theta, as verl writes them).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, parse_number, unknown
from bounds.divergence.rows import k1, k2, k3

_POOLS = ("max", "mean", "sum")
#: What a criterion may look at: pooled over the policy tokens of one response.
STATISTICS: tuple[str, ...] = tuple(
    f"seq_{pool}_{token}"
    for token in ("k1", "k2", "k3", "kl")
    for pool in _POOLS
    if not (token == "k1" and pool == "max")
)
_CRITERION = re.compile(r"\s*(?P<name>\w+)\s*(?P<sign><=|=)\s*(?P<value>[^\s]+)\s*")
_MEAN_LOOKS_LIKE_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class Criterion:
    """One statistic of a response and the closed range that it must lie in (k1: of its exponential)."""

    statistic: str
    low: float
    high: float

    def __str__(self) -> str:
        if self.statistic.endswith("k1"):
            return f"{self.statistic}={self.low:g}_{self.high:g}"
        return f"{self.statistic}<={self.high:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one criterion; a threshold of the wrong kind is refused with the likely meant one."""
        match = _CRITERION.fullmatch(text)
        if match is None:
            raise ValueError(
                f"mask criterion must be NAME<=NUMBER or NAME=LOW_HIGH, got {text.strip()!r} "
                "(for example seq_max_k2<=0.05)"
            )
        name, value = match["name"], match["value"]
        if name not in STATISTICS:
            raise ValueError(unknown("mask statistic", name, STATISTICS))
        return cls(name, *(_ratio_bounds(name, value) if name.endswith("k1") else _threshold(name, value)))

    def holds(self, statistic: FloatArray) -> BoolArray:
        """Whether it holds, for each value of its statistic."""
        if self.statistic.endswith("k1"):
            return np.asarray((statistic >= math.log(self.low)) & (statistic <= math.log(self.high)))
        return np.asarray(statistic <= self.high)


def pooled(statistic: str, log_ratio: FloatArray, starts: IntArray, kl: FloatArray | None) -> FloatArray:
    """A statistic of each response [N]; tokens are flat, response i is starts[i] to starts[i+1]."""
    _, pool, token = statistic.split("_")
    if token == "kl":
        if kl is None:
            raise ValueError(f"mask statistic {statistic} needs the exact kl column, and the log has none")
        values = kl
    else:
        values = {"k1": k1, "k2": k2, "k3": k3}[token](log_ratio)
    result = (np.maximum if pool == "max" else np.add).reduceat(values, starts[:-1])
    return np.asarray(result / np.diff(starts) if pool == "mean" else result)


@dataclass(frozen=True, slots=True)
class Mask:
    """Criteria that must all hold."""

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.criteria, tuple) or not all(isinstance(c, Criterion) for c in self.criteria):
            raise TypeError(f"criteria must be a tuple of Criterion (Mask.parse reads text), got {self.criteria!r:.60}")

    def __str__(self) -> str:
        return ",".join(map(str, self.criteria))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a comma of criteria.

        Raises
        ------
        ValueError
            An unknown statistic, or a threshold that cannot be meant.

        Examples
        --------
        >>> str(Mask.parse("seq_max_k2 <= 0.05, seq_mean_k3<=0.001"))
        'seq_max_k2<=0.05,seq_mean_k3<=0.001'
        """
        if not isinstance(text, str):
            raise TypeError(f"mask must be a string such as 'seq_max_k2<=0.05', got {text!r:.60}")
        return cls(tuple(Criterion.parse(part) for part in text.split(",")))

    def keep(self, log_ratio: FloatArray, starts: IntArray, kl: FloatArray | None = None) -> BoolArray:
        """Which responses [N] it keeps.

        Parameters
        ----------
        log_ratio : array [tokens]
            log theta - log roll of the policy tokens of all responses, one after another.
        starts : array [N+1]
            Where each response starts; no response is empty.
        kl : array [tokens], optional
            Exact KL(roll||theta) at each context.
        """
        return self.holds({c.statistic: pooled(c.statistic, log_ratio, starts, kl) for c in self.criteria})

    def holds(self, statistics: Mapping[str, FloatArray]) -> BoolArray:
        """Which responses [N] it keeps, from the statistics of :attr:`statistics` [N]."""
        return np.asarray(np.logical_and.reduce([c.holds(statistics[c.statistic]) for c in self.criteria]))

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of what it looks at."""
        return tuple(dict.fromkeys(c.statistic for c in self.criteria))


def _threshold(name: str, text: str) -> tuple[float, float]:
    value = _number(name, text)
    if name in ("seq_mean_k2", "seq_mean_k3") and value >= _MEAN_LOOKS_LIKE_RATIO:
        raise ValueError(
            f"{name} takes a divergence in nats per token such as 0.001, got {name}<={text}, which looks like a "
            f"bound on a ratio; for that write seq_mean_k1={1 / max(value, 1 / value):g}_{max(value, 1 / value):g}"
        )
    return 0.0, value


def _ratio_bounds(name: str, text: str) -> tuple[float, float]:
    low, mark, high = text.partition("_")
    if not mark:
        raise ValueError(
            f"{name} takes bounds LOW_HIGH on roll/theta such as 0.999_1.001, got {text!r}; "
            f"for a divergence threshold write {name[:-1]}3<={text}"
        )
    bounds = _number(name, low), _number(name, high)
    if not 0.0 < bounds[0] < 1.0 < bounds[1]:
        raise ValueError(f"{name} must have bounds LOW_HIGH with 0 < LOW < 1 < HIGH, got {name}={text}")
    return bounds


def _number(name: str, text: str) -> float:
    try:
        value = parse_number(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"the threshold of {name} must be a positive number, got {text!r}")
    return value
