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

    with np.errstate(over="ignore"):
        gain = np.expm1(d)
        score = total(gain)
        log_product = total(d)
        product = np.exp(log_product)
    return ResponseMoments(
        length=traces.lengths.astype(np.float64),
        log_product=log_product,
        score=score,
        phi=total(k3(d)),
        ratio_sum=total(gain + 1.0),
        deficit=total(shortfall(d)),
        max_k2=np.asarray(np.maximum.reduceat(k2(d), starts)),
        worst_error=_positive_gap(1.0 + score, product),
        kept_mass=np.minimum(np.minimum(product, 1.0 + score), _TRUNCATE),
    )


def _positive_gap(above: FloatArray, below: FloatArray) -> FloatArray:
    """(above - below)^+, where both may have overflowed: then inf, which is never below the truth."""
    both = np.isinf(above) & np.isinf(below)
    return np.where(both, np.inf, np.maximum(above - np.where(both, 0.0, below), 0.0))


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
