"""From a log to a Certificate: estimates, the profile that they imply, and the bounds on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import above, confidence_level, integer, number, unknown
from bounds._rounding import exact, round_up
from bounds.certificate.certificate import Certificate
from bounds.certificate.compare import compare
from bounds.certificate.estimates import Estimates, estimate, without_upper_ends
from bounds.certificate.findings import (
    OF_DIVERGENCE,
    UNSAID,
    Finding,
    Kind,
    advised,
    contradiction,
    findings,
    harmless,
    limits_cross,
    mask_findings,
    policy_findings,
    refuted_assumptions,
    rounding_floor,
)
from bounds.certificate.guarantees import Claim, Guarantees, guarantees, largest_ratio, through_surrogate
from bounds.certificate.kept import kept, mask_report
from bounds.certificate.summary import Summary
from bounds.intervals import Side, prompt_means
from bounds.masks.mask import Mask
from bounds.results import Assumption, Interval, Standing
from bounds.rules.bound import Bound, BoundTable, smallest
from bounds.rules.profile import FIELDS, Profile
from bounds.rules.unified import unified

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bounds.logs.traces import TraceSet

#: What may be assumed about the policies; the rest is estimated from the log.
ASSUMABLE = (
    "delta",
    "epsilon",
    "chi2_max",
    "log_ratio_max",
    "response_ratio_max",
    "support_gap",
    "absolutely_continuous",
)
#: Estimates that are fields of a profile; the length first, since it limits the others.
_PROFILED = ("mean_length", "kl_seq", "tv_seq", "tv_sum", "chi2_sum")
#: What is summed over the tokens of a response -> the supremum of which it is at most the length times.
_AT_MOST_LENGTH_TIMES = {"kl_seq": "delta", "tv_sum": "epsilon", "chi2_sum": "chi2_max"}
#: Findings that do no harm where one of these is assumed: what copies would be to show.
_WAIVED_BY = {Kind.COPIED: ("delta", "epsilon", "log_ratio_max")}
_MAX_ARRAY = 10**6  # per-position arrays are not made for a longer horizon


def certify(
    log: TraceSet | Iterable[TraceSet] | Summary,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    assume: Mapping[str, float | bool] | None = None,
    noise_floor: TraceSet | Iterable[TraceSet] | Summary | None = None,
    train_policy: str | None = None,
    side: Side = "both",
    candidates: int = 1,
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
    side : {"both", "lower", "upper"}
        Where the error of each interval may be: a gate that was declared to ask for one end has it at the full level.
    candidates : int
        Among how many policies this one may be chosen by these responses: each certificate spends that part of the
        error, so that what is said of the chosen one holds at ``confidence``.

    Returns
    -------
    Certificate

    Raises
    ------
    TraceError
        If the log is refused: it cannot be parsed or paired. One that refutes what it is taken for is reported.
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
    candidates = integer("candidates", candidates, 1, 10**6)
    confidence = confidence_level(confidence)
    if candidates > 1:
        confidence = min(round_up(1 - (1 - exact(confidence)) / candidates), 1.0 - 2.0**-53)
    assumed = checked_assumptions(assume or {})
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    summary = Summary.of(log, statistics=chosen.statistics if chosen else (), suprema=bool(assumed))
    if train_policy is not None:
        summary = summary.of_policy(train_policy)
    seen = list(findings(summary))
    if "reward" in summary:
        seen += policy_findings(summary)
    against = refuted_assumptions(summary, assumed)
    found = estimate(summary, confidence, _without(assumed, against), side=side)
    against |= _refuted_on_average(summary.horizon, found.intervals, _without(assumed, against))
    seen += [contradiction(summary, name, why) for name, why in against.items()]
    assumed = _without(assumed, against)
    if tail := next((f for f in seen if f.kind is Kind.HEAVY_TAIL), None):
        weaker = {n: i for n in OF_DIVERGENCE if (i := found.intervals[n]) is not None}
        found.intervals.update({n: replace(i, standing=Standing.ASSUMED) for n, i in weaker.items()})
    if any(f.kind is Kind.CENSORED for f in seen):
        found.intervals.update(without_upper_ends(found.intervals, support_gap=False))
    if found.support_gap:
        found.intervals.update(without_upper_ends(found.intervals, support_gap=True))
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
        side=side,
        ratio_max=largest_ratio(summary, assumed) if bounds.absolutely_continuous else None,
    )
    waived = {kind: "" for kind, names in _WAIVED_BY.items() if not assumed.keys().isdisjoint(names)}
    waived |= harmless(summary, assumed)
    groups_assumed = summary.left_out.ungrouped.count or summary.by_tokens
    unsaid = groups_assumed and sum(f.kind is Kind.UNGROUPED for f in seen) == 1
    guaranteed, why_not = _unless_refuted(guaranteed, seen, summary, waived)
    unknown_policy = Assumption("train_policy", "unknown", "theta did not learn from these responses")
    as_sampled = (
        [Assumption("heavy_tail", tail.count, "tokens like these were sampled as often as they occur")] if tail else []
    )
    choice = [Assumption("candidates", candidates, "by these responses one of no more policies than this is chosen")]
    adaptive = [Assumption("steps", "independent", "no step's policies depend on the responses of an earlier one")]
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
        b_star_lower=bounds.lower,
        b_star_published=bounds.published,
        mask=report,
        guarantees=guaranteed,
        noise_floor=None if noise_floor is None else compare(noise_floor, summary, confidence=confidence),
        reasons={**why_not, **found.reasons},
        findings=tuple(f if f.look else advised(f, summary) for f in seen),
        waived=waived,
        rounding=rounding_floor(summary),
        unsaid=(*UNSAID, Kind.UNGROUPED) if unsaid else UNSAID,
        assumptions=(
            *(Assumption(n, v, "said by the user; no sample can show it") for n, v in assumed.items()),
            *(a for a in bounds.table.assumptions if a.what not in assumed),
            *summary.assumptions,
            *as_sampled,
            *([unknown_policy] if summary.train_policy == "unknown" else ()),
            *(adaptive if summary.several_steps else ()),
            *(guessed if summary.horizon_guessed else ()),
            *(choice if candidates > 1 else ()),
        ),
    )


def _unless_refuted(
    found: Guarantees, seen: list[Finding], summary: Summary, waived: Mapping[Kind, str]
) -> tuple[Guarantees, dict[str, str]]:
    """Return what is guaranteed, or nothing and why; if it contradicts itself, that is added to what was seen."""
    if not found.intervals:
        return found, {"improvement": "the log has no rewards"}
    withheld = {"improvement": "theta may have learned from these prompts at an earlier step"}
    against = [f for f in seen if f.kind.refutes and f.kind not in waived]
    if not against:
        both = (found.intervals.get(name) for name in ("improvement", "improvement_these_prompts"))
        against = [limits_cross(i.low, i.high, len(summary)) for i in both if i is not None and i.low > i.high]
        seen += against
    if against:
        return Guarantees(), {"improvement": against[0].because}
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
            **_of_profile(assumed),
        }
        self._assumed = dict.fromkeys(_of_profile(assumed), Standing.ASSUMED)
        self.absolutely_continuous = Profile(**self._fixed).absolutely_continuous
        means = {name: i.value for name, i in self._intervals.items()} | _other_means(summary, found)
        self._of_reward = {n: i.standing for n in ("reward_sd_within",) if (i := found.intervals.get(n)) is not None}
        self.contradictions = list(self._contradicted())
        self.table = self._bounds({}, means)
        highs = {n: i.high for n, i in self._intervals.items()}
        if (
            "kl_sum" not in summary
        ):  # raised tokens that are rare may not be among the sampled: the others' mass shows it
            highs["kl_seq"] = max(
                highs["kl_seq"], -float(prompt_means(summary["log_ratio_sum"], summary.prompt).mean())
            )
        self.upper = self._bounds({}, highs).best
        self.lower = self._bounds({}, {n: i.low for n, i in self._intervals.items()}).best
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
        """Yield estimates that are above what was assumed, and why; bounds use what was assumed in their place."""
        for name, supremum in _AT_MOST_LENGTH_TIMES.items():
            if (i := self._intervals.get(name)) is not None and supremum in self._assumed:
                tokens = self._intervals["mean_length"].value
                if text := _too_much(name, i.value, self._fixed["T"], tokens, supremum, self._fixed[supremum]):
                    yield name, text

    def _bounds(self, extra: Mapping[str, Any], estimated: Mapping[str, Any]) -> BoundTable:
        known = {
            n: v if n == "mean_reward" else np.maximum(v, FIELDS[n].low)  # k1 may be below 0 by chance
            for n, v in estimated.items()
        }
        standing = dict.fromkeys((*extra, *estimated), Standing.ESTIMATED)
        standing |= {n: max(standing[n], i.standing) for n, i in self._intervals.items() if n in estimated}
        standing |= {n: of for n, of in self._of_reward.items() if n in estimated}
        return unified(Profile(**{**self._fixed, **extra, **known}), standing={**standing, **self._assumed})


def _too_much(name: str, value: float, horizon: int, tokens: float, supremum: str, assumed: float) -> str:
    """Say that a sum over the tokens of a response is more than so many times a supremum, if it is."""
    most = min(horizon, tokens) * assumed
    text = f"{name} must be at most {supremum} times the mean length = {most:.10g}, got {name}={value}"
    return text if above(value, most) else ""


def _refuted_on_average(
    horizon: int, found: Mapping[str, Interval | None], assumed: Mapping[str, Any]
) -> dict[str, str]:
    """Return assumed suprema that even the lower limit of an estimate is above, at the longest mean length, and how."""
    length, against = found["mean_length"], {}
    for name, supremum in _AT_MOST_LENGTH_TIMES.items():
        if (i := found.get(name)) is None or length is None or supremum not in assumed:
            continue
        if text := _too_much(name, i.low, horizon, length.high, supremum, assumed[supremum]):
            level = f"at confidence {i.confidence:g}, by the lower limit of {name}"
            against[supremum] = f"the log refutes {supremum}={assumed[supremum]:g} {level}: {text}"
    return against


def _without(assumed: Mapping[str, Any], against: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in assumed.items() if name not in against}


def _other_means(summary: Summary, found: Estimates) -> dict[str, Any]:
    """Return the mean reward, and mean divergences at each position [T]: exact where logged, else of sampled tokens."""
    means: dict[str, Any] = {}
    if (reward := found.intervals["reward"]) is not None:
        low, high = summary.reading.reward_range
        means["mean_reward"] = max(reward.low, low), min(reward.high, high)
    if (within := found.intervals.get("reward_sd_within")) is not None:
        means["reward_sd_within"] = within.high
    if summary.horizon <= _MAX_ARRAY:
        at = summary.by_position()
        k3_is_all = found.intervals["kl_seq"] == found.intervals["kl_seq_k3"]  # it misses what a gap adds
        at = {"tv": at["shortfall"], **({"kl": at["k3"]} if k3_is_all else {}), **at}
        means |= {f"mean_{name}": at[name] for name in ("tv", "kl", "chi2") if name in at}
    return means


def _of_profile(assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of it a profile knows: all but what whole responses are said to do."""
    return {name: value for name, value in assumed.items() if name != "response_ratio_max"}


def checked_assumptions(assume: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is assumed, by name; refuse an unknown name, a value outside its domain, and a contradiction."""
    for name in assume:
        if name not in ASSUMABLE:
            raise ValueError(unknown("assumption", name, ASSUMABLE))
    Profile(T=1, **_of_profile(assume))  # checks the domains
    number("response_ratio_max", assume.get("response_ratio_max", 1.0), 1.0, 1e300)
    if assume.get("support_gap") and assume.get("absolutely_continuous"):
        raise ValueError("support_gap above 0 contradicts absolutely_continuous=True")
    if "response_ratio_max" in assume and (assume.get("support_gap") or not assume.get("absolutely_continuous", True)):
        raise ValueError("response_ratio_max says that theta << roll: it contradicts a support gap")
    return dict(assume)
