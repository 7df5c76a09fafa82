"""Estimates of everything that theory speaks of, with prompt-clustered intervals; :data:`ESTIMATES` lists them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from bounds._checks import FloatArray, unknown
from bounds._rounding import exact, round_up
from bounds.certificate.findings import copy_of_old, mean_ratio, odd_mean_ratio, raised_unseen, support_gap
from bounds.certificate.kept import no_mask, scaled
from bounds.certificate.statistics import times
from bounds.certificate.summary import Summary
from bounds.divergence.inequalities import kl_of_cap, tv_of_cap
from bounds.divergence.rows import k3, shortfall
from bounds.intervals import Side, betting, clustered_mean, clustered_ratio, prompt_means
from bounds.results import Interval, Standing

_TAIL = 0.2  # of a mean from one response: what larger ones would add is not known


class Intervals(dict[str, Interval | None]):
    """Estimates by name; a name that there is not is answered with the likely meant one."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(unknown("estimate", name, self))


@dataclass(frozen=True, slots=True)
class Estimates:
    """Intervals by name (None: for a reason, cannot be estimated from this log), and whether there is a support gap."""

    intervals: Intervals
    reasons: Mapping[str, str]
    support_gap: bool


def estimate(summary: Summary, confidence: float, assumed: Mapping[str, Any], *, side: Side = "both") -> Estimates:
    """Estimate everything that a certificate shows, as means over prompts of the mean over a prompt's responses.

    ``side`` is where the error of each interval may be: a gate that was declared to ask for one end has it at the full
    level. Of what is assumed, ``log_ratio_max`` bounds what a token adds; ``absolutely_continuous`` and
    ``support_gap`` say what supports are. The log is refused if mean rho is clearly above 1.01, and nothing was assumed
    of supports.
    """
    log = _Log(summary, confidence, assumed, side)
    found = {n: e.make(log) if e.needs in summary else _WITHOUT.get(e.needs) for n, e in ESTIMATES.items()}
    reasons = {name: why for name, why in found.items() if isinstance(why, str)}
    intervals = {n: None if isinstance(i, str) else i for n, i in found.items() if i is not None}
    return Estimates(Intervals(intervals), reasons, log.gap)


#: Divergences that grow with every |log theta - log roll|.
_GROWING = ("kl_seq", "kl_seq_k1", "kl_seq_k3", "mean_kl_token", "chi2_seq")
#: What a mean over sampled tokens misses of theta's mass off roll's support.
_MISS_GAPS = ("kl_seq_k3", "worst_case_error")


def without_upper_ends(intervals: Mapping[str, Interval | None], *, support_gap: bool) -> dict[str, Interval]:
    """Return what is at least what is left of it: divergences where ratios were cut off, or what misses a gap."""
    names, why = (_MISS_GAPS, "it misses the support gap") if support_gap else (_GROWING, "values were cut off")
    found = {name: i for name in names if (i := intervals.get(name)) is not None}
    return {name: replace(i, high=math.inf, of=f"{i.of}: a lower limit, {why}") for name, i in found.items()}


#: Why there are no estimates of a column; those of other columns are not mentioned where they are not logged.
_WITHOUT = {"reward": "the log has no rewards"}


def kl_of_responses(summary: Summary, assumed: Mapping[str, Any] = MappingProxyType({})) -> tuple[FloatArray, str]:
    """Return the KL(roll||theta) of each response [N], and how: "exact" if logged, else "k3", or "k1" if k3 misses it.

    k3 misses what theta has off roll's support, or on tokens that were not sampled, which lowers mean rho; where k1 is
    below it all the same, that is noise. Refusals: :func:`estimate`.
    """
    gap = support_gap(summary, assumed) or odd_mean_ratio(summary) is not None or raised_unseen(summary)
    if "kl_sum" in summary:
        return summary["kl_sum"], "exact"
    by_k1, by_k3 = -summary["log_ratio_sum"], summary["k3_sum"]
    return (by_k1, "k1") if gap and by_k1.mean() > by_k3.mean() else (by_k3, "k3")


class _Log:
    """A log, of which intervals are made at one confidence, for one side or both, and under what is assumed."""

    def __init__(self, summary: Summary, confidence: float, assumed: Mapping[str, Any], side: Side) -> None:
        self.summary, self.confidence, self.side = summary, confidence, side
        self.cap: float | None = assumed.get("log_ratio_max")
        self.gap = support_gap(summary, assumed)
        self.kl, self.how = kl_of_responses(summary, assumed)
        self.spread = summary.reward_spread

    def __getitem__(self, name: str) -> FloatArray:
        return self.summary[name]

    def mean(self, values: FloatArray, of: str, low: float = 0.0, high: float = math.inf) -> Interval:
        """Return an asymptotic interval."""
        found = clustered_mean(values, self.summary.prompt, self.confidence, low=low, high=high, side=self.side)
        return replace(found, of=of)

    def k1(self) -> Interval:
        """Return an interval of the KL of a response that needs no mean ratio of 1."""
        return self.mean(-self["log_ratio_sum"], _K1, -math.inf)

    def bounded(
        self, values: FloatArray, of: str, low: float, high: float, standing: Standing | None = None
    ) -> Interval:
        """Return an interval of values in a known range: true at its confidence for every sample size."""
        means = prompt_means(values, self.summary.prompt)
        found = betting(means, self.confidence, low=low, high=high, side=self.side)
        return replace(found, standing=self.summary.standing if standing is None else standing, of=of)

    def of_roll(self, values: FloatArray, of: str, low: float, high: float) -> Interval:
        """Return the same of what theta has no part in."""
        return self.bounded(values, of, low, high, self.summary.standing_of_roll)

    def capped(self, values: FloatArray, of: str, of_token: Callable[[float], float]) -> Interval:
        """Return an interval of sums over tokens, whose range is known under an assumed cap on |log ratio| only."""
        if self.cap is None:
            return self.mean(values, of)
        most = self.summary.horizon * of_token(self.cap * (1.0 + 2e-6))  # as much as a log may exceed what is assumed
        of = f"{of}, under log_ratio_max={self.cap:g}"
        if not most > 0.0:
            return self.mean(values, of)
        return replace(self.bounded(values, of, 0.0, most), standing=Standing.ASSUMED)

    def per_token(self, sums: FloatArray, of: str, low: float = -math.inf) -> Interval:
        """Return an interval of the pooled mean over all tokens, from sums over those of each response."""
        found = clustered_ratio(sums, self["length"], self.summary.prompt, self.confidence, low=low, side=self.side)
        return replace(found, of=of)


def _kl_seq(log: _Log) -> Interval | str:
    """Estimate it by what the log has; k3 misses tokens that theta raised and nobody sampled, which lowers mean rho."""
    if log.how == "exact":
        return log.capped(log.kl, "exact KL(roll||theta) at sampled contexts", lambda cap: float(kl_of_cap(exact(cap))))
    k1, found = log.k1(), ESTIMATES[f"kl_seq_{log.how}"].make(log)
    if isinstance(found, str) or log.cap is not None or found.high >= k1.high or mean_ratio(log.summary).high >= 1.0:
        return found
    return replace(found, high=k1.high, of=f"{found.of}; upper end by k1, since mean rho is below 1")


def _tv_sum(log: _Log) -> Interval:
    if "tv_sum" in log.summary:
        return log.capped(log["tv_sum"], "exact TV at sampled contexts", lambda cap: float(tv_of_cap(exact(cap))))
    return log.capped(log["shortfall_sum"], "sum (1-rho)^+", lambda cap: -math.expm1(-cap))


def _worst_case_error_measured(log: _Log) -> Interval:
    """Bound 1 - E min(P, 1+S, 1e6), for every sample size: S is at least -horizon, which makes it wide."""
    s, values = log.summary, prompt_means(log["capped_mass"], log.summary.prompt)
    kept = betting(values, log.confidence, low=1.0 - s.horizon - 1e-9, side="lower")
    standing = Standing.ASSUMED if s.horizon_guessed else s.standing
    high = round_up(exact(log.spread) * (1 - exact(kept.low)))
    value, of = log.spread * (1.0 - kept.value), "1 - min(P, 1+S), an upper limit"
    return Interval(value, -math.inf, high, log.confidence, standing, kept.method, of)


def _max_k2(log: _Log) -> Interval:
    largest = float(log["max_k2"].max())
    return Interval(largest, largest, math.inf, log.confidence, Standing.ESTIMATED, "sample maximum: no upper limit")


def _chi2_seq(log: _Log) -> Interval | str:
    if log.gap:
        return "with a support gap chi2 is infinite, and the sampled ratios do not show it"
    with np.errstate(over="ignore"):
        return log.mean(np.expm1(2.0 * log["log_ratio_sum"]), "P^2 - 1, not clamped", low=-1.0)


def _mean_length(log: _Log) -> Interval:
    make = log.mean if log.summary.horizon_guessed else log.of_roll
    return make(log["length"], "tokens", 0.0, float(log.summary.horizon))


def _one_sided(log: _Log, share: FloatArray, sign: float, of: str) -> Interval | str:
    """Estimate an end of the error, E[R k3(P)] or -E[(1-R) k3(P)]; both have a heavy tail, so that it is watched.

    Error = E[R (k3(P) - Phi)] = -E[(1-R)(k3(P) - Phi)] where theta << roll, and k3 and Phi are not negative.
    """
    if log.gap:
        return "it needs theta << roll"
    parts = times(share, k3(log["log_ratio_sum"]))
    most = float(parts.max() / total) if (total := parts.sum()) > 0.0 and math.isfinite(total) else 0.0
    tail = f"; one response is {most:.0%} of it, so the tail is not seen" if most > _TAIL else ""
    return log.mean(sign * log.spread * parts, of + tail, -math.inf)


def _of_old(log: _Log, values: FloatArray, of: str) -> Interval | str:
    """Estimate a part of the divergence, if old log-probs tell the parts apart."""
    if column := copy_of_old(log.summary):
        return f"old_logprobs are a copy of {column}"
    return log.mean(values, of, -math.inf)


def _reward_sd_within(log: _Log) -> Interval | str:
    """Bound the root of the mean over prompts of a reward's variance at one prompt, for every sample size.

    Of G responses with rewards in [0, 1], the unbiased variance is at most floor(G/2) ceil(G/2) / (G (G-1)), which is
    largest for the smallest group; groups are independent draws, their sizes fixed beforehand.
    """
    s = log.summary
    size = np.bincount(s.prompt)
    least = int(size.min())
    if least < 2:
        return "it needs two responses to every prompt"
    most = (least // 2) * ((least + 1) // 2) / (least * (least - 1)) * (1.0 + 1e-12)
    away = s.unit_reward - prompt_means(s.unit_reward, s.prompt)[s.prompt]
    variance = np.minimum(np.bincount(s.prompt, weights=np.square(away)) / (size - 1), most)
    found = log.bounded(variance[s.prompt], "spread of rewards to one prompt", 0.0, most)
    value, low, high = (math.sqrt(v) for v in (found.value, found.low, found.high))
    ends = replace(found, value=value, low=math.nextafter(low, -1.0), high=min(math.nextafter(high, 1.0), 0.5))
    return scaled(ends, log.spread)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How an interval is made of a log, or why there is none, and the column without which there is none."""

    make: Callable[[_Log], Interval | str]
    needs: str = "length"


_K1, _K3 = "k1 of sampled tokens, KL(roll||theta)", "k3 of sampled tokens, KL(roll||theta)"
_CHI2 = "exact chi2(theta||roll) at sampled contexts"

#: Every estimate, by name.
ESTIMATES: Mapping[str, Estimate] = MappingProxyType(
    {
        "kl_seq": Estimate(_kl_seq),
        "kl_seq_k1": Estimate(_Log.k1),
        "kl_seq_k3": Estimate(lambda log: log.capped(log["k3_sum"], _K3, lambda cap: float(k3(cap)))),
        "tv_seq": Estimate(lambda log: log.bounded(shortfall(log["log_ratio_sum"]), "(1-P)^+", 0.0, 1.0)),
        "tv_sum": Estimate(_tv_sum),
        "worst_case_error": Estimate(lambda log: log.mean(log.spread * log["worst_case_error"], "(1+S-P)^+")),
        "worst_case_error_with_gap": Estimate(
            lambda log: log.mean(log.spread * (1.0 - log["capped_mass"]), "1 - min(P, 1+S)", -math.inf)
        ),
        "worst_case_error_measured": Estimate(_worst_case_error_measured),
        "error_above": Estimate(lambda log: _one_sided(log, log.summary.unit_reward, 1.0, "R k3(P)"), "reward"),
        "error_below": Estimate(
            lambda log: _one_sided(log, 1.0 - log.summary.unit_reward, -1.0, "-(1-R) k3(P)"), "reward"
        ),
        "surrogate_gain": Estimate(lambda log: log.mean(log.summary.surrogate, "R S", -math.inf), "reward"),
        "mean_ratio": Estimate(lambda log: log.per_token(log["length"] + log["surrogate_sum"], "rho", 0.0)),
        "mean_kl_token": Estimate(lambda log: log.per_token(log.kl, f"{log.how}, KL(roll||theta)")),
        "max_k2": Estimate(_max_k2),
        "chi2_seq": Estimate(_chi2_seq),
        "missing_mass": Estimate(
            lambda log: log.mean(-log["surrogate_sum"], "sum (1-rho): theta's mass off roll's support", -math.inf)
        ),
        "mean_length": Estimate(_mean_length),
        "acceptance": Estimate(lambda log: no_mask(log.confidence)),
        "reward": Estimate(
            lambda log: log.of_roll(log["reward"], "as logged", *log.summary.reading.reward_range), "reward"
        ),
        "reward_sd_within": Estimate(_reward_sd_within, "reward"),
        "chi2_sum": Estimate(lambda log: log.mean(log["chi2_sum"], _CHI2), "chi2_sum"),
        "kl_seq_engine": Estimate(lambda log: _of_old(log, log["engine_sum"], "k1, log roll - log old"), "engine_sum"),
        "kl_seq_staleness": Estimate(
            lambda log: _of_old(log, -log["log_ratio_sum"] - log["engine_sum"], "k1, log old - log theta"),
            "engine_sum",
        ),
    }
)
