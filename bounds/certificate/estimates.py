"""Estimates of everything that theory speaks of, with prompt-clustered intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import exact
from bounds.certificate.findings import one_sided_ratio
from bounds.certificate.kept import no_mask
from bounds.certificate.moments import Moments
from bounds.divergence.inequalities import kl_of_cap, tv_of_cap
from bounds.divergence.rows import k3, shortfall
from bounds.intervals import betting, clustered_mean, clustered_ratio, prompt_means
from bounds.logs.response import TraceError
from bounds.results import Interval, Standing

_NEAR = 1e-4  # a mean ratio this near to 1 is not remarkable


@dataclass(frozen=True, slots=True)
class Estimates:
    """Intervals by name (None: cannot be estimated from this log), and what the mean ratio says of supports."""

    intervals: dict[str, Interval | None]
    support_gap: bool
    remark: str
    reasons: dict[str, str]  # why something cannot be estimated


def estimate(m: Moments, confidence: float, assumed: Mapping[str, Any]) -> Estimates:
    """Every estimate that a certificate shows; means are over prompts of the mean over a prompt's responses."""

    def mean(values: FloatArray, how: str, low: float = 0.0, high: float = math.inf) -> Interval:
        interval = clustered_mean(values, m.prompt, confidence, low=low, high=high)
        return replace(interval, of=how)

    def bounded(values: FloatArray, how: str, low: float, high: float) -> Interval:
        """Of values in a known range: true at its confidence for every sample size."""
        interval = betting(prompt_means(values, m.prompt), confidence, low=low, high=high)
        return replace(interval, standing=m.standing, of=how)

    def capped(values: FloatArray, how: str, per_token: Callable[[float], float]) -> Interval:
        """Of sums over tokens: bounded only under an assumed cap on |log ratio|."""
        if "log_ratio_max" not in assumed:
            return mean(values, how)
        cap = float(assumed["log_ratio_max"])
        most = m.horizon * per_token(cap * (1.0 + 2e-6))  # as much as a log may exceed what is assumed
        how = f"{how}, under log_ratio_max={cap:g}"
        return replace(bounded(values, how, 0.0, most), standing=Standing.ASSUMED) if most > 0.0 else mean(values, how)

    low, high = m.reading.reward_range
    spread = high - low
    ratio = clustered_ratio(m["ratio_sum"], m["length"], m.prompt, confidence, low=0.0)
    gap, remark = support_gap(m, assumed)
    phi, k1_sum = m["phi"], -m["log_product"]
    with np.errstate(over="ignore"):
        chi2_seq = np.expm1(-2.0 * k1_sum)
    found: dict[str, Interval | None] = {
        "kl_seq": None,  # chosen below
        "kl_seq_k1": mean(k1_sum, "k1 of sampled tokens, KL(roll||theta)", low=-math.inf),
        "kl_seq_k3": capped(phi, "k3 of sampled tokens, KL(roll||theta)", lambda cap: float(k3(cap))),
        "tv_seq": bounded(shortfall(m["log_product"]), "(1-P)^+", 0.0, 1.0),
        "tv_sum": capped(m["deficit"], "sum (1-rho)^+", lambda cap: -math.expm1(-cap)),
        "worst_case_error": mean(spread * m["worst_error"], "(1+S-P)^+"),
        "worst_case_error_with_gap": mean(spread * (1.0 - m["kept_mass"]), "1 - min(P, 1+S)", low=-math.inf),
        "worst_case_error_measured": _at_most(m, confidence, spread),
        "surrogate_gain": None,
        "mean_ratio": ratio,
        "mean_kl_token": None,
        "max_k2": _sample_maximum(m["max_k2"], confidence),
        "chi2_seq": mean(chi2_seq, "P^2 - 1, not clamped", low=-1.0),
        "missing_mass": mean(-m["score"], "sum (1-rho): theta's mass off roll's support", low=-math.inf),
        "mean_length": (mean if m.horizon_guessed else bounded)(m["length"], "tokens", 0.0, float(m.horizon)),
        "acceptance": no_mask(confidence),
        "reward": None,
    }
    kl_tokens, how = kl_of_responses(m, gap or bool(remark))
    found["kl_seq"] = (
        capped(kl_tokens, "exact KL(roll||theta) at sampled contexts", lambda cap: float(kl_of_cap(exact(cap))))
        if how == "exact"
        else found[f"kl_seq_{how}"]
    )
    by_token = clustered_ratio(kl_tokens, m["length"], m.prompt, confidence)
    found["mean_kl_token"] = replace(by_token, of=f"{how}, KL(roll||theta)")
    if "tv" in m:
        found["tv_sum"] = capped(m["tv"], "exact TV at sampled contexts", lambda cap: float(tv_of_cap(exact(cap))))
    if "chi2" in m:
        found["chi2_sum"] = mean(m["chi2"], "exact chi2(theta||roll) at sampled contexts")
    if "engine" in m:
        found["kl_seq_engine"] = mean(m["engine"], "k1, log roll - log old", low=-math.inf)
        found["kl_seq_staleness"] = mean(k1_sum - m["engine"], "k1, log old - log theta", low=-math.inf)
    if "reward" in m:
        found["reward"] = bounded(m["reward"], "as logged", low, high)
        found["surrogate_gain"] = mean(m.surrogate, "R S", low=-math.inf)
    reasons = {n: "the log has no rewards" for n in ("reward", "surrogate_gain") if "reward" not in m}
    if gap:
        found["chi2_seq"] = None
        reasons["chi2_seq"] = "with a support gap chi2 is infinite, and the sampled ratios do not show it"
    return Estimates(found, gap, remark, reasons)


def _at_most(m: Moments, confidence: float, spread: float) -> Interval:
    """1 - E min(P, 1+S, 1e6), for every sample size: S is at least -horizon, which makes it wide."""
    kept = betting(prompt_means(m["kept_mass"], m.prompt), confidence, low=1.0 - m.horizon - 1e-9, side="lower")
    standing = Standing.ASSUMED if m.horizon_guessed else m.standing
    value, high = spread * (1.0 - kept.value), math.nextafter(spread * (1.0 - kept.low), math.inf)
    return Interval(value, -math.inf, high, confidence, standing, kept.method, "1 - min(P, 1+S), an upper limit")


def kl_of_responses(m: Moments, gap: bool) -> tuple[FloatArray, str]:
    """The KL(roll||theta) of each response [N], and how: "exact" if logged, else "k3", or "k1" under a gap.

    k3 misses the mass off roll's support; where k1 is below it all the same, that is noise.
    """
    if "kl" in m:
        return m["kl"], "exact"
    phi, k1_sum = m["phi"], -m["log_product"]
    return (k1_sum, "k1") if gap and k1_sum.mean() > phi.mean() else (phi, "k3")


def _sample_maximum(values: FloatArray, confidence: float) -> Interval:
    largest = float(values.max())
    return Interval(largest, largest, math.inf, confidence, Standing.ESTIMATED, "sample maximum: no upper limit")


def seems_to_have_gap(m: Moments) -> bool:
    """Whether mean rho is remarkable, so that KL is better taken from k1 where that is larger."""
    gap, remark = support_gap(m, {})
    return gap or bool(remark)


def gap_remark(m: Moments) -> list[str]:
    """What the mean ratio says against the log, if anything; where it would refuse the log, why."""
    try:
        remark = support_gap(m, {})[1]
    except TraceError as error:
        remark = str(error)
    return [remark] if remark else []


def support_gap(m: Moments, assumed: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether theta has mass off roll's support, and what to say of it.

    As assumed; else where mean rho is clearly below 1: by 1e-4, and further than its 95 % interval is wide
    (about four standard errors), or because theta is never above roll.

    Raises
    ------
    TraceError
        If mean rho is clearly above 1.01: no pair of policies explains it (unless theta << roll was assumed).
    """
    ratio = clustered_ratio(m["ratio_sum"], m["length"], m.prompt, 0.95, low=0.0)
    said = "absolutely_continuous" in assumed or "support_gap" in assumed
    gap = said and (not assumed.get("absolutely_continuous", True) or bool(assumed.get("support_gap")))
    far, width = abs(ratio.value - 1.0), ratio.high - ratio.low
    if far <= _NEAR or not (0.0 < width < far or one_sided_ratio(m)):
        return gap, ""
    if ratio.value < 1.0:
        remark = (
            f"mean rho = {ratio.value:.6g} is clearly below 1: theta has mass where roll has none, or is hardly ever "
            "sampled (top-p or top-k sampling, temperature, logs of another base?)"
        )
        withdrawn = ". Rules that need theta << roll are withdrawn, and KL is taken from k1"
        return (gap, remark) if said else (True, remark + withdrawn)
    remark = (
        f"mean rho = {ratio.value:.6g} is clearly above 1, which no pair of policies explains: the rollout log-probs "
        "are not those of the sampling law (temperature?), or the tokens differ"
    )
    if ratio.value > 1.01 and not said:
        raise TraceError(remark + "; every divergence would be wrong")
    return gap, remark
