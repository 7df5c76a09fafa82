"""From a log to a Certificate: estimates, the profile that they imply, and the bounds on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import above, confidence_level, unknown
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import compare
from bounds.certificate.estimates import Estimates, estimate
from bounds.certificate.findings import (
    Finding,
    Kind,
    contradiction,
    crossed,
    findings,
    mask_findings,
    policy_findings,
    refuse_refuted,
)
from bounds.certificate.guarantees import Claim, Guarantees, guarantees, through_surrogate
from bounds.certificate.kept import kept, mask_report
from bounds.certificate.summary import Summary
from bounds.logs.batch import TraceError
from bounds.masks.mask import Mask
from bounds.results import Assumption, Interval, Standing
from bounds.rules.bound import Bound, BoundTable, smallest
from bounds.rules.profile import FIELDS, Profile
from bounds.rules.unified import unified

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bounds.logs.traces import TraceSet

#: What may be assumed about the policies; the rest is estimated from the log.
ASSUMABLE = ("delta", "epsilon", "chi2_max", "log_ratio_max", "support_gap", "absolutely_continuous")
#: Estimates that are fields of a profile; the length first, since it limits the others.
_PROFILED = ("mean_length", "kl_seq", "tv_seq", "tv_sum", "chi2_sum")
#: What is summed over the tokens of a response -> the supremum of which it is at most the length times.
_AT_MOST_LENGTH_TIMES = {"kl_seq": "delta", "tv_sum": "epsilon", "chi2_sum": "chi2_max"}
_MAX_ARRAY = 10**6  # per-position arrays are not made for a longer horizon


def certify(
    log: TraceSet | Iterable[TraceSet] | Summary,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    assume: Mapping[str, float | bool] | None = None,
    noise_floor: TraceSet | Iterable[TraceSet] | Summary | None = None,
    train_policy: str | None = None,
) -> Certificate:
    """Estimate the divergence of two policies from a log, and bound the error of the surrogate.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Responses that the rollout policy sampled, with both policies' log-probs.
    confidence : float
        Nominal coverage of the intervals.
    mask : str or Mask, optional
        A sequence mask such as ``"seq_max_k2<=0.05,seq_mean_k3<=0.001"``, to see what it keeps.
    assume : mapping, optional
        What no sample can show, said by you: ``{"delta": 1e-3}``. Results that use it are ASSUMED.
    noise_floor : TraceSet, Log or Summary, optional
        A log in which ``train_logprobs`` are a repeated forward pass of the sampling weights: what of the
        divergence is noise.
    train_policy : {"before-update", "held-out", "unknown"}, optional
        How theta relates to these responses: it scored them before it learned from them; it learned, but not from
        their prompts; or that is not known. Without it, what the log says, else unknown: what is guaranteed is then
        ASSUMED, since no test on ratios can see it.

    Returns
    -------
    Certificate

    Raises
    ------
    TraceError
        If the log is refused, or refutes what is assumed.
    ValueError
        For a bad argument.
    TypeError
        For what is no log.

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
    confidence = confidence_level(confidence)
    assumed = checked_assumptions(assume or {})
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    summary = Summary.of(log, statistics=chosen.statistics if chosen else (), suprema=bool(assumed))
    if train_policy is not None:
        summary = summary.of_policy(train_policy)
    seen = list(findings(summary))
    if "reward" in summary:
        seen += policy_findings(summary)
    refuse_refuted(summary, assumed)
    found = estimate(summary, confidence, assumed)
    report, keep = None, None
    if chosen is not None:
        keep = kept(summary, chosen)
        report = mask_report(summary, chosen, keep, confidence)
        found.intervals["acceptance"] = report.acceptance
        seen += mask_findings(summary, chosen, report.acceptance.value)
    bounds = _Bounds(summary, found, assumed)
    seen += [contradiction(summary, name, why) for name, why in bounds.contradictions]
    guaranteed = guarantees(
        summary,
        confidence,
        keep,
        support_gap=not bounds.absolutely_continuous,
        cap=assumed.get("log_ratio_max"),
        by_surrogate=bounds.by_surrogate(confidence),
        claim=bounds.claim(),
    )
    guaranteed, why_not = _unless_refuted(guaranteed, seen, summary)
    unknown_policy = Assumption("train_policy", "unknown", "theta did not learn from these responses")
    guessed = [Assumption("horizon", summary.horizon, "the longest response, since none was given")]
    return Certificate(
        responses=len(summary),
        prompts=summary.prompts,
        tokens=summary.tokens,
        horizon=summary.horizon,
        at_horizon=float((summary["length"] == summary.horizon).mean()),
        confidence=confidence,
        train_policy=summary.train_policy,
        estimates=found.intervals,
        table=bounds.table,
        optimistic=bounds.optimistic,
        b_star_upper=bounds.upper,
        b_star_published=bounds.published,
        mask=report,
        guarantees=guaranteed,
        noise_floor=None if noise_floor is None else compare(noise_floor, summary, confidence=confidence),
        reasons={**why_not, **found.reasons},
        findings=tuple(seen),
        assumptions=(
            *(Assumption(n, v, "said by the user; no sample can show it") for n, v in assumed.items()),
            *(a for a in bounds.table.assumptions if a.what not in assumed),
            *summary.assumptions,
            *([unknown_policy] if summary.train_policy == "unknown" else ()),
            *(guessed if summary.horizon_guessed else ()),
        ),
    )


def _unless_refuted(found: Guarantees, seen: list[Finding], summary: Summary) -> tuple[Guarantees, dict[str, str]]:
    """Return what is guaranteed, or nothing and why; if it contradicts itself, that is added to what was seen."""
    if not found.intervals:
        return found, {"improvement": "the log has no rewards"}
    withheld = {"improvement": "theta may have learned from these prompts at an earlier step"}
    against = [f for f in seen if f.kind is Kind.REFUTED]
    if not against:
        both = (found.intervals.get(name) for name in ("improvement", "improvement_these_prompts"))
        against = [crossed(summary, i) for i in both if i is not None and i.low > i.high]
        seen += against
    if against:
        return Guarantees(), {"improvement": f"this log is not what the guarantees take it for: {against[0].text}"}
    # those for comparison may be empty (Student's t on equal values has no width)
    return replace(found, intervals={n: i for n, i in found.intervals.items() if i.low <= i.high}), (
        withheld if summary.prompts_return else {}
    )


class _Bounds:
    """Bounds on the profiles that a log implies: at the estimates, at their upper limits, and optimistic ones.

    ``optimistic`` are published rules as if the largest divergence that was seen were the supremum; ``contradictions``
    name estimates that were left out, since they contradict what was assumed, and say how.
    """

    def __init__(self, summary: Summary, found: Estimates, assumed: Mapping[str, Any]) -> None:
        self._gain = found.intervals["surrogate_gain"]
        self._one_prompt = summary.prompts == 1
        self._intervals = {n: i for n in _PROFILED if (i := found.intervals.get(n)) is not None}
        self._fixed = {
            "T": summary.horizon,
            "reward_range": summary.reading.reward_range,
            "absolutely_continuous": not found.support_gap,
            **assumed,
        }
        self._assumed = dict.fromkeys(assumed, Standing.ASSUMED)
        self.absolutely_continuous = Profile(**self._fixed).absolutely_continuous
        means = {name: i.value for name, i in self._intervals.items()} | _other_means(summary, found)
        self.contradictions = list(self._contradicted())
        self.table = self._bounds({}, means)
        self.upper = self._bounds({}, {n: i.high for n, i in self._intervals.items()}).best
        self.optimistic = self._optimistic(summary, means)
        optimistic = smallest(b for b in self.optimistic if b.name in self.table.published_b_star)
        self.published = self.table.best_published or optimistic

    def by_surrogate(self, confidence: float) -> Interval | None:
        """Return L' - B*."""
        if self._gain is None or self.upper is None or self.upper.name not in self.table:
            return None
        return through_surrogate(self._gain, self.table[self.upper.name], self.upper, confidence)

    def claim(self) -> Claim | None:
        """Return the paper's statement, from the surrogate and the published B*; of one prompt it makes none."""
        if self._gain is None or self.published is None or self._one_prompt:
            return None
        return Claim(self._gain.value, self.published.value, self.published.name, self.published.optimistic)

    def _optimistic(self, summary: Summary, means: Mapping[str, Any]) -> tuple[Bound, ...]:
        if "delta" in self._assumed:
            return ()
        seen = summary.looks["suprema"].tops
        delta = seen["kl"][0] if "kl" in seen else float(summary["max_k2"].max())
        epsilon = seen["tv"][0] if "tv" in seen else min(1.0, math.sqrt(delta / 2.0))
        maxima = {n: v for n, v in (("delta", delta), ("epsilon", epsilon)) if n not in self._assumed}
        evaluated = {b.name for b in self.table.bounds}
        return tuple(
            replace(b, optimistic=True)
            for b in self._bounds(maxima, means).bounds
            if b.family == "published" and not b.rests_on.keys().isdisjoint(maxima) and b.name not in evaluated
        )

    def _contradicted(self) -> Iterator[tuple[str, str]]:
        """Yield estimates that are above what was assumed, and why; bounds use what was assumed in their place.

        Where even the lower confidence limit is above it, at the longest mean length, the log is refused.
        """
        length, said = self._intervals["mean_length"], ", ".join(f"{n}={self._fixed[n]}" for n in self._assumed)
        for name, supremum in _AT_MOST_LENGTH_TIMES.items():
            if (i := self._intervals.get(name)) is None or supremum not in self._assumed:
                continue
            for value, tokens in ((i.low, length.high), (i.value, length.value)):
                most = min(self._fixed["T"], tokens) * self._fixed[supremum]
                if above(value, most):
                    text = f"{name} must be at most {supremum} times the mean length = {most:.10g}, got {name}={value}"
                    if value == i.low:
                        level = f"at confidence {i.confidence:g}, by the lower limit of {name}"
                        raise TraceError(f"the log refutes {said} {level}: {text}")
                    yield name, text

    def _bounds(self, extra: Mapping[str, Any], estimated: Mapping[str, Any]) -> BoundTable:
        known = {
            n: v if n == "mean_reward" else np.maximum(v, FIELDS[n].low)  # k1 may be below 0 by chance
            for n, v in estimated.items()
        }
        standing = dict.fromkeys((*extra, *estimated), Standing.ESTIMATED)
        standing |= {n: max(standing[n], i.standing) for n, i in self._intervals.items() if n in estimated}
        return unified(Profile(**{**self._fixed, **extra, **known}), standing={**standing, **self._assumed})


def _other_means(summary: Summary, found: Estimates) -> dict[str, Any]:
    """Return the mean reward, and mean divergences at each position [T]: exact where logged, else of sampled tokens."""
    means: dict[str, Any] = {}
    if (reward := found.intervals["reward"]) is not None:
        low, high = summary.reading.reward_range
        means["mean_reward"] = max(reward.low, low), min(reward.high, high)
    if summary.horizon <= _MAX_ARRAY:
        at = summary.by_position()
        k3_is_all = found.intervals["kl_seq"] == found.intervals["kl_seq_k3"]  # it misses what a gap adds
        at = {"tv": at["shortfall"], **({"kl": at["k3"]} if k3_is_all else {}), **at}
        means |= {f"mean_{name}": at[name] for name in ("tv", "kl", "chi2") if name in at}
    return means


def checked_assumptions(assume: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is assumed, by name; refuse an unknown name, a value outside its domain, and a contradiction."""
    for name in assume:
        if name not in ASSUMABLE:
            raise ValueError(unknown("assumption", name, ASSUMABLE))
    Profile(T=1, **assume)  # checks the domains
    if assume.get("support_gap") and assume.get("absolutely_continuous"):
        raise ValueError("support_gap above 0 contradicts absolutely_continuous=True")
    return dict(assume)
