"""From policy tokens to one row of statistics for each response."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.divergence.rows import k2, k3
from bounds.evidence.traces import TraceSet

_TRUNCATE = 1e6  # a smaller min(P, 1+S) only raises the bound 1 - E min(P, 1+S)


@dataclass(frozen=True, slots=True, eq=False)
class ResponseMoments:
    """What theory needs of each response, arrays [N]; sums run over its policy tokens.

    Write d = log theta - log roll of a token, rho = exp(d), P = exp(sum d), S = sum (rho - 1).
    """

    length: FloatArray
    log_product: FloatArray  # log P
    score: FloatArray  # S
    phi: FloatArray  # sum k3 = Phi
    ratio_sum: FloatArray  # sum rho
    deficit: FloatArray  # sum (1 - rho)^+ ; mean A under any supports
    max_k2: FloatArray
    worst_error: FloatArray  # W^- = (1 + S - P)^+
    kept_mass: FloatArray  # min(P, 1 + S, 1e6): 1 - its mean bounds the worst error under any supports

    def surrogate(self, reward: FloatArray) -> FloatArray:
        """R S of each response [N]; 0 where R is 0, even if S has overflowed."""
        return np.asarray(reward * np.where(reward == 0.0, 0.0, self.score))

    @property
    def sequence_deficit(self) -> FloatArray:
        """(1 - P)^+; its mean is the sequence total variation under any supports."""
        return shortfall(self.log_product)


def shortfall(log_ratio: FloatArray) -> FloatArray:
    """(1 - exp(log_ratio))^+, whose mean is a total variation, under any supports."""
    return -np.expm1(np.minimum(log_ratio, 0.0))


def response_moments(traces: TraceSet) -> ResponseMoments:
    """One row of statistics for each response; P is carried as log P and overflows to inf, never clamped."""
    d = traces.log_ratio
    starts = traces.starts[:-1]

    def total(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, starts))

    phi = total(k3(d))
    with np.errstate(over="ignore"):
        gain = np.expm1(d)
        score = total(gain)
        log_product = total(d)
        product = np.exp(log_product)
    return ResponseMoments(
        length=traces.lengths.astype(np.float64),
        log_product=log_product,
        score=score,
        phi=phi,
        ratio_sum=total(gain + 1.0),
        deficit=total(shortfall(d)),
        max_k2=np.asarray(np.maximum.reduceat(k2(d), starts)),
        worst_error=_worst_error(phi, log_product, d, traces.starts),
        kept_mass=np.minimum(np.minimum(product, 1.0 + score), _TRUNCATE),
    )


def _worst_error(phi: FloatArray, log_product: FloatArray, d: FloatArray, starts: IntArray) -> FloatArray:
    """W^- = (1 + S - P)^+ = (Phi - k3(P))^+: so it does not cancel, and is 0 for one token.

    Where both have overflowed, log(1 + S) <= log P decides, else it is inf, which is never below the truth.
    """
    whole = k3(log_product)
    both = np.isinf(phi) & np.isinf(whole)
    gap = np.maximum(np.where(both, 0.0, phi) - np.where(both, 0.0, whole), 0.0)
    for i in np.flatnonzero(both):
        log_sum = float(np.logaddexp.reduce(d[starts[i] : starts[i + 1]]))  # of sum rho >= 1 + S
        single = np.count_nonzero(d[starts[i] : starts[i + 1]]) == 1  # then 1 + S = P
        gap[i] = 0.0 if single or log_sum <= log_product[i] else np.inf
    return np.asarray(gap)


def prompt_weights(prompt: IntArray) -> FloatArray:
    """Weights [N] that average within each prompt first, then over prompts; they sum to 1."""
    size = np.bincount(prompt)
    return np.asarray(1.0 / (size[prompt] * size.size))


def position_means(traces: TraceSet, values: FloatArray) -> FloatArray:
    """Mean over responses (prompt-weighted) of a token value at each position, array [horizon].

    After the end of a response the value is 0.
    """
    weights = np.repeat(prompt_weights(traces.prompt), traces.lengths) * values
    return np.asarray(np.bincount(traces.order, weights=weights, minlength=traces.horizon), dtype=np.float64)
