"""From logged responses to a Certificate: estimates, the profile that they imply, and the bounds on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bounds._checks import FloatArray, confidence_level, unknown
from bounds.evidence.confidence import clustered_mean, clustered_ratio
from bounds.evidence.diagnosis import constant_ratio, warnings_for
from bounds.evidence.moments import ResponseMoments, position_means, response_moments, shortfall
from bounds.evidence.response import TraceError
from bounds.evidence.traces import TraceSet
from bounds.results import (
    Assumption,
    Bound,
    Certificate,
    Interval,
    LengthBucket,
    MaskReport,
    Standing,
)
from bounds.theory.masking import Mask, masked_mean, mean_of_accepted
from bounds.theory.profile import Profile
from bounds.theory.unified import unified

#: What may be assumed about the policies; the rest is estimated from the log.
ASSUMABLE = ("delta", "epsilon", "chi2_max", "log_ratio_max", "support_gap", "absolutely_continuous")
_MAX_ARRAY = 10**7  # per-position arrays are not made for a longer horizon
_IMPROVEMENT_REASON = "the interval of J(theta) - J(roll) is not implemented in this version"
_NO_REWARD = "the log has no rewards"


def certify(
    traces: TraceSet,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    assume: Mapping[str, float | bool] | None = None,
) -> Certificate:
    """Estimate the divergence of two policies from a log, and bound the error of the surrogate.

    Parameters
    ----------
    traces : TraceSet
        Responses that the rollout policy sampled, with both policies' log-probs.
    confidence : float
        Nominal coverage of the intervals.
    mask : str or Mask, optional
        A sequence mask such as ``"seq_max_k2<=0.05,seq_mean_k3<=0.001"``, to see what it keeps.
    assume : mapping, optional
        What no sample can show, said by you: ``{"delta": 1e-3}``. Results that use it are ASSUMED.

    Returns
    -------
    Certificate

    Raises
    ------
    TraceError
        If the log is refused, or refutes what is assumed.
    ValueError
        For a bad argument.

    Notes
    -----
    Estimates are means over prompts with prompt-clustered t-intervals; their standing is ESTIMATED. A
    sample maximum never becomes delta or epsilon: the published rules, which need them, are evaluated at
    the maximum seen under the label "optimistic", unless ``assume`` gives them.
    """
    confidence = confidence_level(confidence)
    assumed = _assumed(assume or {})
    chosen = Mask.parse(mask) if isinstance(mask, str) else mask
    moments = response_moments(traces)
    warnings = warnings_for(traces, moments)
    estimates, gap = _estimates(traces, moments, confidence, assumed, warnings)
    _refuse_refuted(traces, assumed)

    fields = {
        "T": traces.horizon,
        "reward_range": traces.reading.reward_range,
        "absolutely_continuous": not gap,
        **assumed,
    }
    standing = dict.fromkeys(assumed, Standing.ASSUMED)
    means = {n: i.value for n in _PROFILED if (i := estimates.get(n)) is not None}
    arrays = _position_arrays(traces) if traces.horizon <= _MAX_ARRAY else {}
    table = _bounds(fields, {**means, **arrays}, standing, warnings)
    highs = {n: i.high for n in _PROFILED if (i := estimates.get(n)) is not None}
    upper = _bounds(fields, highs, standing, [])
    optimistic = () if {"delta", "epsilon"} & assumed.keys() else _optimistic(traces, fields, {**means, **arrays})
    report = None
    if chosen is not None:
        report, estimates["acceptance"] = _mask_report(traces, moments, chosen, confidence, warnings)
    return Certificate(
        responses=len(traces),
        prompts=len(traces.prompt_ids),
        tokens=traces.rollout.size,
        horizon=traces.horizon,
        at_horizon=float((traces.lengths == traces.horizon).mean()),
        confidence=confidence,
        estimates=estimates,
        table=table,
        optimistic=optimistic,
        best_upper=upper.best,
        mask=report,
        improvement=None,
        reasons={
            "improvement": _IMPROVEMENT_REASON,
            **({} if traces.reward is not None else dict.fromkeys(("reward", "surrogate_gain"), _NO_REWARD)),
        },
        warnings=tuple(warnings),
        assumptions=(
            *(Assumption(n, v, "said by the user; no sample can show it") for n, v in assumed.items()),
            *(a for a in table.assumptions if a.what not in assumed),
        ),
    )


_PROFILED = ("kl_seq", "tv_seq", "tv_sum", "chi2_sum", "mean_length")


def _assumed(assume: Mapping[str, Any]) -> dict[str, Any]:
    for name in assume:
        if name not in ASSUMABLE:
            raise ValueError(unknown("assumption", name, ASSUMABLE))
    Profile(T=1, **assume)  # checks the domains
    return dict(assume)


def _estimates(
    traces: TraceSet, m: ResponseMoments, confidence: float, assumed: Mapping[str, Any], warnings: list[str]
) -> tuple[dict[str, Interval | None], bool]:
    """All estimates by name, and whether there is a support gap (declared, or seen in mean rho)."""
    starts = traces.starts[:-1]

    def mean(values: FloatArray, low: float = 0.0, high: float = math.inf, method: str = "") -> Interval:
        interval = clustered_mean(values, traces.prompt, confidence, low=low, high=high)
        return replace(interval, method=f"{method}; {interval.method}") if method else interval

    def total(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, starts))

    ratio = clustered_ratio(m.ratio_sum, m.length, traces.prompt, confidence, low=0.0)
    gap = _support_gap(traces, ratio, assumed, warnings)
    k1_sum = -m.log_product
    exact = {name: total(values) for name, values in traces.exact.items()}
    by_k3 = mean(m.phi, method="k3 of sampled tokens, KL(roll||theta)")
    by_k1 = mean(k1_sum, low=-math.inf, method="k1 of sampled tokens, KL(roll||theta)")
    if "kl" in exact:
        kl_seq = mean(exact["kl"], method="exact KL(roll||theta) at sampled contexts")
    else:
        kl_seq = by_k1 if gap else by_k3
    kl_tokens, kl_how = (exact["kl"], "exact") if "kl" in exact else (k1_sum, "k1") if gap else (m.phi, "k3")
    kl_token = clustered_ratio(kl_tokens, m.length, traces.prompt, confidence)
    largest = float(m.max_k2.max())
    with np.errstate(over="ignore"):
        chi2_seq = np.expm1(2.0 * m.log_product)
    estimates: dict[str, Interval | None] = {
        "kl_seq": kl_seq,
        "kl_seq_k1": by_k1,
        "kl_seq_k3": by_k3,
        "tv_seq": mean(m.sequence_deficit, high=1.0, method="(1-P)^+"),
        "tv_sum": mean(exact["tv"], method="exact TV at sampled contexts")
        if "tv" in exact
        else mean(m.deficit, method="sum (1-rho)^+"),
        "worst_case_error": mean(m.worst_error, method="(1+S-P)^+"),
        "worst_case_error_with_gap": mean(1.0 - m.kept_mass, method="1 - min(P, 1+S)"),
        "mean_ratio": ratio,
        "mean_kl_token": replace(kl_token, method=f"{kl_how}; {kl_token.method}"),
        "max_k2": Interval(
            largest, largest, math.inf, confidence, Standing.ESTIMATED, "sample maximum: no upper limit"
        ),
        "chi2_seq": mean(chi2_seq, low=-1.0, method="P^2 - 1 (not clamped)"),
        "mean_length": mean(m.length, high=float(traces.horizon)),
        "acceptance": mean(np.ones(len(traces)), high=1.0, method="no mask"),
        "reward": None,
        "surrogate_gain": None,
    }
    if "chi2" in exact:
        estimates["chi2_sum"] = mean(exact["chi2"], method="exact chi2 at sampled contexts")
    if traces.old is not None:
        engine, stale = total(traces.rollout - traces.old), total(traces.old - traces.train)
        estimates["kl_seq_engine"] = mean(engine, low=-math.inf, method="k1, log roll - log old")
        estimates["kl_seq_staleness"] = mean(stale, low=-math.inf, method="k1, log old - log theta, under roll")
    if traces.reward is not None:
        low, high = traces.reading.reward_range
        estimates["reward"] = mean(traces.reward, low=low, high=high)
        estimates["surrogate_gain"] = mean(traces.reward * m.score, low=-math.inf, method="R S")
    return estimates, gap


def _support_gap(traces: TraceSet, ratio: Interval, assumed: Mapping[str, Any], warnings: list[str]) -> bool:
    """Whether theta has mass off roll's support: as said, else where mean rho is clearly below 1.

    Clearly: by two half-widths of its interval (about four standard errors), or the same on every token.
    """
    if "absolutely_continuous" in assumed or "support_gap" in assumed:
        return not assumed.get("absolutely_continuous", True) or bool(assumed.get("support_gap"))
    far = abs(ratio.value - 1.0)
    if far <= 1e-6 or not (far > ratio.high - ratio.low or constant_ratio(traces)):
        return False
    if ratio.value < 1.0:
        warnings.append(
            f"mean rho = {ratio.value:.6g} is clearly below 1: theta has mass where roll has none (top-p or top-k "
            "sampling?). Rules that need theta << roll are withdrawn, and KL is taken from k1"
        )
        return True
    warnings.append(
        f"mean rho = {ratio.value:.6g} is clearly above 1, which no pair of policies explains: the rollout "
        "log-probs are not those of the sampling law (temperature?), or the tokens differ"
    )
    return False


def _refuse_refuted(traces: TraceSet, assumed: Mapping[str, Any]) -> None:
    """One context with a larger exact divergence refutes an assumed supremum."""
    for name, column in (("delta", "kl"), ("epsilon", "tv"), ("chi2_max", "chi2")):
        if name in assumed and column in traces.exact:
            values = traces.exact[column]
            k = int(np.argmax(values))
            if values[k] > assumed[name] * (1.0 + 1e-9):
                row = int(np.searchsorted(traces.starts, k, side="right")) - 1
                raise TraceError(
                    f"the log refutes {name}={assumed[name]:g}: {traces.where[row]}: "
                    f"{column}[{traces.position[k]}] is {values[k]:.6g}"
                )


def _position_arrays(traces: TraceSet) -> dict[str, FloatArray]:
    """Mean TV at each position, [T]: what the adaptive rules use."""
    tv = traces.exact.get("tv")
    return {"mean_tv": position_means(traces, shortfall(traces.log_ratio) if tv is None else tv)}


def _bounds(
    fields: Mapping[str, Any],
    estimated: Mapping[str, Any],
    standing: Mapping[str, Standing],
    warnings: list[str],
) -> Any:
    """The bound table at estimates; one that contradicts what was assumed is left out, with a warning."""
    kept = dict(fields)
    for name, value in estimated.items():
        try:
            Profile(**{**kept, name: value})
        except ValueError as error:
            warnings.append(f"{name} is left out of the bounds, since the log contradicts what was assumed: {error}")
            continue
        kept[name] = value
    measured = dict.fromkeys(estimated, Standing.ESTIMATED)
    return unified(Profile(**kept), standing={**measured, **standing})


def _optimistic(traces: TraceSet, fields: Mapping[str, Any], estimated: Mapping[str, Any]) -> tuple[Bound, ...]:
    """Published rules as if the largest divergence that was seen were the supremum; never a guarantee."""
    exact = traces.exact
    delta = float(exact["kl"].max()) if "kl" in exact else float(np.square(traces.log_ratio).max()) / 2.0
    epsilon = float(exact["tv"].max()) if "tv" in exact else min(1.0, math.sqrt(delta / 2.0))
    maxima = {"delta": delta, "epsilon": epsilon}
    standing = dict.fromkeys(maxima, Standing.ESTIMATED)
    table = _bounds({**fields, **maxima}, estimated, standing, [])
    return tuple(replace(b, optimistic=True) for b in table.bounds if b.family == "published" and uses(b, maxima))


def uses(bound: Bound, names: Mapping[str, Any]) -> bool:
    """Whether a bound rests on one of these fields, directly or through a filled one."""
    return any(i.name in names or set(i.used) & names.keys() for i in bound.inputs)


def _mask_report(
    traces: TraceSet, m: ResponseMoments, mask: Mask, confidence: float, warnings: list[str]
) -> tuple[MaskReport, Interval]:
    keep = mask.keep(traces.log_ratio, traces.starts, traces.exact.get("kl"))
    kept = keep.astype(np.float64)
    acceptance = clustered_mean(kept, traces.prompt, confidence, low=0.0, high=1.0)
    if acceptance.value in (0.0, 1.0):
        warnings.append(
            f"the mask {mask} keeps {'every' if acceptance.value else 'no'} response: it does nothing"
            if acceptance.value
            else f"the mask {mask} keeps no response"
        )
    edges = np.unique(np.quantile(traces.lengths, [0.0, 0.25, 0.5, 0.75, 1.0]).astype(np.int64))
    bucket = np.clip(np.searchsorted(edges, traces.lengths, side="left"), 1, max(edges.size - 1, 1))
    by_length = tuple(
        LengthBucket(
            int(traces.lengths[bucket == b].min()),
            int(traces.lengths[bucket == b].max()),
            int((bucket == b).sum()),
            float(kept[bucket == b].mean()),
        )
        for b in np.unique(bucket)
    )
    gain = None if traces.reward is None else traces.reward * m.score
    return MaskReport(
        rule=str(mask),
        acceptance=acceptance.value,
        by_length=by_length,
        surrogate_gain=None if gain is None else masked_mean(gain, keep),
        surrogate_gain_per_accepted=None if gain is None else mean_of_accepted(gain, keep),
    ), replace(acceptance, method=f"{mask}; {acceptance.method}")
