"""Estimates of everything that theory speaks of, with prompt-clustered intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds.evidence.confidence import clustered_mean, clustered_ratio
from bounds.evidence.diagnosis import constant_ratio
from bounds.evidence.moments import ResponseMoments
from bounds.evidence.traces import TraceSet
from bounds.results import Interval, Standing


@dataclass(frozen=True, slots=True)
class Estimates:
    """Intervals by name (None: cannot be estimated from this log), and what the mean ratio says of supports."""

    intervals: dict[str, Interval | None]
    support_gap: bool
    remark: str


def estimate(traces: TraceSet, m: ResponseMoments, confidence: float, assumed: Mapping[str, Any]) -> Estimates:
    """Every estimate that a certificate shows; means are over prompts of the mean over a prompt's responses."""

    def mean(values: FloatArray, how: str, low: float = 0.0, high: float = math.inf) -> Interval:
        interval = clustered_mean(values, traces.prompt, confidence, low=low, high=high)
        return replace(interval, method=f"{how}; {interval.method}")

    def total(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, traces.starts[:-1]))

    ratio = clustered_ratio(m.ratio_sum, m.length, traces.prompt, confidence, low=0.0)
    gap, remark = support_gap(traces, ratio, assumed)
    exact = {name: total(values) for name, values in traces.exact.items()}
    k1_sum = -m.log_product
    with np.errstate(over="ignore"):
        chi2_seq = np.expm1(2.0 * m.log_product)
    found: dict[str, Interval | None] = {
        "kl_seq": None,  # chosen below
        "kl_seq_k1": mean(k1_sum, "k1 of sampled tokens, KL(roll||theta)", low=-math.inf),
        "kl_seq_k3": mean(m.phi, "k3 of sampled tokens, KL(roll||theta)"),
        "tv_seq": mean(m.sequence_deficit, "(1-P)^+", high=1.0),
        "tv_sum": mean(m.deficit, "sum (1-rho)^+"),
        "worst_case_error": mean(m.worst_error, "(1+S-P)^+"),
        "worst_case_error_with_gap": mean(1.0 - m.kept_mass, "1 - min(P, 1+S)"),
        "surrogate_gain": None,
        "mean_ratio": ratio,
        "mean_kl_token": None,
        "max_k2": _sample_maximum(m.max_k2, confidence),
        "chi2_seq": mean(chi2_seq, "P^2 - 1, not clamped", low=-1.0),
        "mean_length": mean(m.length, "tokens", high=float(traces.horizon)),
        "acceptance": mean(np.ones(len(traces)), "no mask", high=1.0),
        "reward": None,
    }
    if "kl" in exact:
        kl_tokens, how = exact["kl"], "exact"
        found["kl_seq"] = mean(exact["kl"], "exact KL(roll||theta) at sampled contexts")
    else:
        kl_tokens, how = (k1_sum, "k1") if gap else (m.phi, "k3")
        found["kl_seq"] = found[f"kl_seq_{how}"]
    by_token = clustered_ratio(kl_tokens, m.length, traces.prompt, confidence)
    found["mean_kl_token"] = replace(by_token, method=f"{how}; {by_token.method}")
    if "tv" in exact:
        found["tv_sum"] = mean(exact["tv"], "exact TV at sampled contexts")
    if "chi2" in exact:
        found["chi2_sum"] = mean(exact["chi2"], "exact chi2 at sampled contexts")
    if traces.old is not None:
        found["kl_seq_engine"] = mean(total(traces.rollout - traces.old), "k1, log roll - log old", low=-math.inf)
        found["kl_seq_staleness"] = mean(total(traces.old - traces.train), "k1, log old - log theta", low=-math.inf)
    if traces.reward is not None:
        low, high = traces.reading.reward_range
        found["reward"] = mean(traces.reward, "as logged", low=low, high=high)
        found["surrogate_gain"] = mean(traces.reward * m.score, "R S", low=-math.inf)
    return Estimates(found, gap, remark)


def _sample_maximum(values: FloatArray, confidence: float) -> Interval:
    largest = float(values.max())
    return Interval(largest, largest, math.inf, confidence, Standing.ESTIMATED, "sample maximum: no upper limit")


def support_gap(traces: TraceSet, ratio: Interval, assumed: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether theta has mass off roll's support, and what to say of it.

    As assumed; else where mean rho is clearly below 1: further off than its interval is wide (about four
    standard errors), or the same on every token.
    """
    if "absolutely_continuous" in assumed or "support_gap" in assumed:
        return not assumed.get("absolutely_continuous", True) or bool(assumed.get("support_gap")), ""
    far = abs(ratio.value - 1.0)
    if far <= 1e-6 or not (far > ratio.high - ratio.low or constant_ratio(traces)):
        return False, ""
    if ratio.value < 1.0:
        return True, (
            f"mean rho = {ratio.value:.6g} is clearly below 1: theta has mass where roll has none (top-p or top-k "
            "sampling?). Rules that need theta << roll are withdrawn, and KL is taken from k1"
        )
    return False, (
        f"mean rho = {ratio.value:.6g} is clearly above 1, which no pair of policies explains: the rollout "
        "log-probs are not those of the sampling law (temperature?), or the tokens differ"
    )
