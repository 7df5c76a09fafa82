"""From policy tokens to one row of statistics for each response, and to sums by position."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bounds._checks import FloatArray
from bounds.certificate.statistics import Errors, statistics_of
from bounds.divergence.rows import k2, k3
from bounds.logs.traces import TraceSet

_TRUNCATE = 1e6  # a smaller min(P, 1+S) only raises the bound 1 - E min(P, 1+S)


def response_columns(traces: TraceSet, found: Errors, statistics: Iterable[str] = ()) -> dict[str, FloatArray]:
    """One row of statistics for each response, arrays [N] by name; sums run over its policy tokens.

    Write d = log theta - log roll of a token, rho = exp(d), P = exp(sum d), S = sum (rho - 1). P is carried as
    log P and overflows to inf, never clamped.

    ====================  =====================================================================
    length                policy tokens
    log_product           log P
    score                 S
    phi                   sum k3 = Phi
    ratio_sum             sum rho
    deficit               sum (1 - rho)^+; mean A under any supports
    max_k2                largest d^2 / 2
    worst_error           W^- = (1 + S - P)^+
    kept_mass             min(P, 1 + S, 1e6): 1 - its mean bounds the worst error under any supports
    kl, tv, chi2          sums of the exact columns, where logged
    engine                sum (log roll - log old), where old_logprobs are logged
    reward                where logged
    seq_max_k2, ...       what masks look at, as asked for by ``statistics``
    ====================  =====================================================================
    """
    sums = {name: np.ascontiguousarray(found.responses[name]) for name in found.responses.dtype.names or ()}
    starts = traces.starts[:-1]

    def total(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, starts))

    with np.errstate(over="ignore"):
        product = np.exp(sums["d"])
    columns = {
        "length": traces.lengths.astype(np.float64),
        "log_product": sums["d"],
        "score": sums["gain"],
        "phi": sums["k3"],
        "ratio_sum": traces.lengths + sums["gain"],
        "deficit": sums["deficit"],
        "max_k2": np.maximum(k2(sums["lowest"]), k2(sums["highest"])),
        "worst_error": _worst_error(sums["k3"], sums["d"], traces),
        "kept_mass": np.minimum(np.minimum(product, 1.0 + sums["gain"]), _TRUNCATE),
        **{name: total(values) for name, values in traces.exact.items()},
    }
    if traces.old is not None:
        columns["engine"] = total(traces.rollout - traces.old)
    if traces.reward is not None:
        columns["reward"] = traces.reward
    return columns | statistics_of(traces, statistics)


def _worst_error(phi: FloatArray, log_product: FloatArray, traces: TraceSet) -> FloatArray:
    """W^- = (1 + S - P)^+ = (Phi - k3(P))^+: so it does not cancel, and is 0 for one token.

    Where both have overflowed, log(1 + S) <= log P decides, else it is inf, which is never below the truth.
    """
    whole = k3(log_product)
    both = np.isinf(phi) & np.isinf(whole)
    gap = np.maximum(np.where(both, 0.0, phi) - np.where(both, 0.0, whole), 0.0)
    for i in np.flatnonzero(both):
        d = traces.log_ratio[traces.starts[i] : traces.starts[i + 1]]
        log_sum = float(np.logaddexp.reduce(d))  # of sum rho >= 1 + S
        single = np.count_nonzero(d) == 1  # then 1 + S = P
        gap[i] = 0.0 if single or log_sum <= log_product[i] else np.inf
    return np.asarray(gap)


def position_sums(traces: TraceSet, found: Errors, weights: FloatArray) -> dict[str, FloatArray]:
    """Weighed sums over responses at each position."""
    sums = {"k3": found.k3, "deficit": found.deficit}
    if traces.exact:
        order, token_weights = traces.order, np.repeat(weights, traces.lengths)
        sums |= {n: np.asarray(np.bincount(order, weights=token_weights * v)) for n, v in traces.exact.items()}
    return sums


def added(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of arrays that count from the same position; the shorter is 0 after its end."""
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    total = longer.copy()
    total[: shorter.size] += shorter
    return total
