"""From logged responses to a Certificate: estimates, the profile that they imply, and the bounds on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bounds._checks import FloatArray, confidence_level, unknown
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import compare
from bounds.certificate.diagnosis import SUPREMA
from bounds.certificate.doubts import doubts, refuted
from bounds.certificate.estimates import Estimates, estimate
from bounds.certificate.findings import findings, several_steps
from bounds.certificate.guarantee import Guarantees
from bounds.certificate.guarantees import claim, guarantees, through_surrogate
from bounds.certificate.interim import mask_findings
from bounds.certificate.kept import kept, mask_report
from bounds.certificate.moments import Moments
from bounds.logs.response import TraceError
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.results import Assumption, Standing
from bounds.rules.bound import Bound, BoundTable
from bounds.rules.fields import FIELDS
from bounds.rules.profile import Profile
from bounds.rules.unified import unified

#: What may be assumed about the policies; the rest is estimated from the log.
ASSUMABLE = ("delta", "epsilon", "chi2_max", "log_ratio_max", "support_gap", "absolutely_continuous")
#: Estimates that are fields of a profile; the length first, since it limits the others.
_PROFILED = ("mean_length", "kl_seq", "tv_seq", "tv_sum", "chi2_sum")
_MAX_ARRAY = 10**6  # per-position arrays are not made for a longer horizon


def certify(
    traces: TraceSet | Moments,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    assume: Mapping[str, float | bool] | None = None,
    noise_floor: TraceSet | Moments | None = None,
) -> Certificate:
    """Estimate the divergence of two policies from a log, and bound the error of the surrogate.

    Parameters
    ----------
    traces : TraceSet or Moments
        Responses that the rollout policy sampled, with both policies' log-probs; or what was kept of them (then
        ``mask`` may only look at the statistics that were kept).
    confidence : float
        Nominal coverage of the intervals.
    mask : str or Mask, optional
        A sequence mask such as ``"seq_max_k2<=0.05,seq_mean_k3<=0.001"``, to see what it keeps.
    assume : mapping, optional
        What no sample can show, said by you: ``{"delta": 1e-3}``. Results that use it are ASSUMED.
    noise_floor : TraceSet or Moments, optional
        A log in which ``train_logprobs`` are a repeated forward pass of the sampling weights: what of the
        divergence is noise.

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

    Examples
    --------
    >>> import bounds
    >>> c = certify(bounds.example_traces())
    >>> c.best.name, round(c.best.value, 3), c.best.standing.label
    ('trajectory_kl', 0.072, 'estimated')
    """
    if not isinstance(traces, TraceSet | Moments):
        raise TypeError(
            f"traces must be a TraceSet, from bounds.read_traces or TraceSet.from_records, got {traces!r:.60}"
        )
    confidence = confidence_level(confidence)
    assumed = checked_assumptions(assume or {})
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    m = traces
    if isinstance(m, TraceSet):
        m = Moments.of(m, statistics=chosen.statistics if chosen else (), suprema=bool(assumed))
    if not len(m):
        raise TraceError("the log has no response")
    return _certificate(m, confidence, chosen, assumed, noise_floor)


def _certificate(
    m: Moments,
    confidence: float,
    mask: Mask | None,
    assumed: Mapping[str, Any],
    noise_floor: TraceSet | Moments | None,
) -> Certificate:
    seen = [*findings(m), *doubts(m), *several_steps(m)]
    warnings = [f.text for f in seen]
    _refuse_refuted(m, assumed)
    found = estimate(m, confidence, assumed)
    intervals = found.intervals
    report, keep = None, None
    if mask is not None:
        keep = kept(m, mask)
        report = mask_report(m, mask, keep, confidence)
        intervals["acceptance"] = report.acceptance
        warnings += (f.text for f in mask_findings(m, mask, report.acceptance.value))
    profiles = _Profiles(m, found, assumed)
    table, upper = profiles.table(), profiles.upper_table()
    result = Certificate(
        responses=len(m),
        prompts=m.prompts,
        tokens=m.tokens,
        horizon=m.horizon,
        at_horizon=float((m["length"] == m.horizon).mean()),
        confidence=confidence,
        estimates=intervals,
        table=table,
        optimistic=profiles.optimistic(),
        best_upper=upper.best,
        mask=report,
        guarantees=Guarantees(),
        diagnosis=tuple(seen),
        noise_floor=None if noise_floor is None else compare(noise_floor, m, confidence=confidence),
        reasons=found.reasons,
        warnings=(*warnings, *filter(None, [found.remark]), *profiles.contradictions),
        assumptions=(
            *(Assumption(n, v, "said by the user; no sample can show it") for n, v in assumed.items()),
            *(a for a in table.assumptions if a.what not in assumed),
            *m.assumptions,
            *([Assumption("horizon", m.horizon, "the longest response, since none was given")] * m.horizon_guessed),
        ),
    )
    gap, cap = not profiles.absolutely_continuous, assumed.get("log_ratio_max")
    return _with_guarantees(result, guarantees(m, confidence, keep, support_gap=gap, cap=cap), refuted(m))


def _with_guarantees(result: Certificate, found: Guarantees, against: str) -> Certificate:
    """Add what is guaranteed, also through the bounds; nothing where the log refutes what that rests on."""
    gain, intervals = result.estimates["surrogate_gain"], (found.new_prompts, found.these_prompts)
    if gain is None or None in intervals:
        reason = {"improvement": "the log has no rewards"}
        return replace(result, guarantees=found, reasons={**reason, **result.reasons})
    if result.best is not None and result.best_upper is not None:
        found = replace(found, surrogate=through_surrogate(gain, result.best, result.best_upper, result.confidence))
    if result.prompts > 1:
        found = replace(found, claim=claim(gain, result.best_published))
    for i in intervals:
        if i is not None and i.low > i.high and not against:
            against = f"the lower limit {i.low:.3g} of the improvement is above the upper limit {i.high:.3g}"
    if not against:
        return replace(result, guarantees=found.without_empty())
    why = f"this log is not what the guarantees take it for: {against}"
    return replace(
        result,
        guarantees=Guarantees(),
        reasons={"improvement": why, **result.reasons},
        warnings=(*result.warnings, why),
    )


class _Profiles:
    """The profiles that a log implies: at the estimates, at their upper limits, and the optimistic one."""

    def __init__(self, m: Moments, found: Estimates, assumed: Mapping[str, Any]) -> None:
        self._peaks = m.tally.peaks
        self._intervals = {n: i for n in _PROFILED if (i := found.intervals.get(n)) is not None}
        self._fixed = {
            "T": m.horizon,
            "reward_range": m.reading.reward_range,
            "absolutely_continuous": not found.support_gap,
            **assumed,
        }
        self._assumed = dict.fromkeys(assumed, Standing.ASSUMED)
        self._means: dict[str, Any] = {n: i.value for n, i in self._intervals.items()}
        if (reward := found.intervals["reward"]) is not None:
            low, high = m.reading.reward_range
            self._means["mean_reward"] = min(max(reward.value, low), high)  # a mean may round past an end
        if m.horizon <= _MAX_ARRAY:
            k3_is_all = found.intervals["kl_seq"] == found.intervals["kl_seq_k3"]  # it misses what a gap adds
            self._means |= _by_position(m, with_kl=k3_is_all or "kl" in m)
        self.contradictions: list[str] = []
        self.evaluated: set[str] = set()

    @property
    def absolutely_continuous(self) -> bool:
        """Whether theta << roll, as far as is known."""
        return Profile(**self._fixed).absolutely_continuous

    def table(self) -> BoundTable:
        """Bounds at the point estimates."""
        table, self.contradictions = self._bounds({}, self._means)
        self.evaluated = {b.name for b in table.bounds}
        return table

    def upper_table(self) -> BoundTable:
        """Bounds at the upper confidence limits."""
        return self._bounds({}, {n: i.high for n, i in self._intervals.items()})[0]

    def optimistic(self) -> tuple[Bound, ...]:
        """Published rules as if the largest divergence that was seen were the supremum; never a guarantee."""
        if "delta" in self._assumed:
            return ()
        delta = self._peaks.get("kl", self._peaks["k2"])[0]
        epsilon = self._peaks["tv"][0] if "tv" in self._peaks else min(1.0, math.sqrt(delta / 2.0))
        maxima = {n: v for n, v in (("delta", delta), ("epsilon", epsilon)) if n not in self._assumed}
        bounds = self._bounds(maxima, self._means)[0].bounds
        return tuple(
            replace(b, optimistic=True)
            for b in bounds
            if b.family == "published" and b.rests_on(maxima) and b.name not in self.evaluated
        )

    def _bounds(self, extra: Mapping[str, Any], estimated: Mapping[str, Any]) -> tuple[BoundTable, list[str]]:
        """The table, and which estimates were left out since they contradict what was assumed."""
        kept, contradictions = {**self._fixed, **extra}, []
        for name, value in estimated.items():
            value = np.maximum(value, FIELDS[name].low)  # k1 may be below 0 by chance, a divergence is not
            try:
                Profile(**{**kept, name: value})
                kept[name] = value
            except ValueError as error:
                if not extra:
                    self._refuse_if_clear(name, kept)
                contradictions.append(f"{name} is left out of the bounds; the log contradicts an assumption: {error}")
        standing = dict.fromkeys([*extra, *estimated], Standing.ESTIMATED)
        standing |= {n: max(Standing.ESTIMATED, self._intervals[n].standing) for n in estimated if n in self._intervals}
        return unified(Profile(**kept), standing={**standing, **self._assumed}), contradictions

    def _refuse_if_clear(self, name: str, kept: Mapping[str, Any]) -> None:
        """Refuse where even the lower confidence limit, at the longest mean length, contradicts what was assumed."""
        interval, length = self._intervals.get(name), self._intervals["mean_length"]
        if self._assumed and interval is not None:
            try:
                Profile(**{**kept, "mean_length": length.high, name: max(interval.low, 0.0)})
            except ValueError as error:
                said = ", ".join(f"{n}={self._fixed[n]}" for n in self._assumed)
                level = f"at confidence {interval.confidence:g}, by the lower limit of {name}"
                raise TraceError(f"the log refutes {said} {level}: {error}") from None


def checked_assumptions(assume: Mapping[str, Any]) -> dict[str, Any]:
    """What is assumed, by name, if it can be.

    Raises
    ------
    ValueError
        For an unknown name, a value outside its domain, or a contradiction.
    """
    for name in assume:
        if name not in ASSUMABLE:
            raise ValueError(unknown("assumption", name, ASSUMABLE))
    Profile(T=1, **assume)  # checks the domains
    if assume.get("support_gap") and assume.get("absolutely_continuous"):
        raise ValueError("support_gap above 0 contradicts absolutely_continuous=True")
    return dict(assume)


def _refuse_refuted(m: Moments, assumed: Mapping[str, Any]) -> None:
    """One context where the divergence is larger, for certain, refutes an assumed supremum.

    An exact column says so; without it, the sampled token alone implies a least divergence.
    """
    for name in (n for n in SUPREMA if n in assumed):
        value, place = m.tally.peaks[name]
        if value > assumed[name] * (1.0 + 1e-6):
            raise TraceError(f"the log refutes {name}={assumed[name]:g}: {place} is {value:.6g}")


def _by_position(m: Moments, with_kl: bool) -> dict[str, FloatArray]:
    """Mean divergences at each position, [T]: exact where logged, else from the sampled tokens."""
    means = m.position_means()
    if means is None:
        return {}
    found = {"tv": means["deficit"], **({"kl": means["k3"]} if with_kl else {}), **means}
    return {f"mean_{name}": found[name] for name in ("tv", "kl", "chi2") if name in found}
