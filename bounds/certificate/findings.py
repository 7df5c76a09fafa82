"""What is remarkable about a log, and what it does to the result: looked for, named and worded here, nowhere else.

A check looks at each part of a log, where the rows of a summary do not say it all; what it sees adds up, and in the
end it says what was found. Nothing is repaired, and nothing is refused but what the log refutes of what is assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray
from bounds._text import many
from bounds.certificate.causes import ADVICE, Shape, likely
from bounds.certificate.statistics import TRUE_ZERO, Part, reach
from bounds.divergence.rows import k3, two_outcome_kl
from bounds.intervals import clustered_mean, clustered_ratio
from bounds.intervals.hypotheses import filtered, mean_above_one, neighbours_alike, token_ratios_above_one
from bounds.logs.batch import natural
from bounds.logs.checks import POSITIVE_TOLERANCE
from bounds.logs.traces import Seen, TraceSet, beginning
from bounds.masks.mask import Mask
from bounds.results import Interval

if TYPE_CHECKING:
    from bounds.certificate.summary import Summary

_CARRIES = "the tokens and positions that carry most"
_CLEAR = 0.9999  # confidence at which two estimates of one thing are said to disagree
_EVIDENCE = math.log(1e4)  # a bet against a hypothesis that wins more speaks against it
_EQUAL_MEANS = 14  # groups of round rewards that vary have one mean at most once in 2^14 logs by chance
_LARGEST_GROUP = 64
_NEAR = 1e-4  # a mean ratio this near to 1 is not remarkable
_UNSEEN = 20 * _EVIDENCE  # of theta's mass times tokens: what may be missing, if raised twenty-fold
_UNCERTAIN = 28.0  # nats, of a sample whose ratios all being below 1 is remarkable
_VARIED = 1e-6  # variance of log roll where it varies
_FEW_PROMPTS = 20
_AGAIN = 100.0  # nats that short responses in a row are improbable by, if they are named: made-up rows often return
_UNLIKE = 4  # of so many of them at least one is another: a few that take turns are no copies
_LAGS = 8  # at which rows are most alike
_STRAGGLERS = 0.02  # share of the prompts whose responses may fail without a doubt about the others
_FALSE_ALARM = 1e-3  # chance that responses of an honest log are named, over all of them
_NAMED = 8  # responses of a log
_HOPELESS = -10.0  # log-probs below this on average are worse than those of 22,000 tokens alike
_ALIKE = 0.05  # share of the variance of one column that the other explains, at least, if they are of the same tokens
_COPIED_TOKENS = 20
_ODD_ONES = 1e-3  # share of tokens at which a copy may differ
_SAMPLE = 64  # numbers that say mostly that a column is not of half precision
_IMPOSSIBLE = {"rollout": -40.0, "train": -80.0}  # no token is sampled, or scored, so low
_PADDING_LEAST = 0.01  # share of zeros
_PADDED, _PADDED_TOKENS = 0.1, 64  # share of tokens that are certain under both policies
_BLOCKS = 5.0  # certain tokens stand in stretches that are longer, by so much, than those of scattered ones
_SURE, _UNLIKELY = 1e-6, -1.0  # a token that float32 calls certain, and the other policy does not
_LOWER, _WRONG = "divergences are lower limits", "divergences there are not those of the policies"
_SINGLE, _DECIMALS = 3e-6, 1.2e-4  # by how much a difference of log-probs is off, in float32 and in four decimals
_CUT, _CUT_TOKENS = 0.1, 8  # as many tokens, and more than in this share of the range below, are at a cut
_RELATION, _RELATION_TOKENS = 0.5, 100  # share of the variance of d that its regression on log roll explains
_DISTINCT, _MANY = 32, 1024  # fewer distinct log-probs, of so many tokens, lie on a line by chance
_IN_ORDER = 0.5  # rank correlation: a few large ones lie on a line by chance, too
_CLAMP = 20.0  # verl and ms-swift clamp |d| there
#: A context where a divergence is at least so large: assumption -> exact column, or what the sampled token implies.
SUPREMA = {"delta": "kl", "epsilon": "tv", "chi2_max": "chi2", "log_ratio_max": "max_log_ratio"}


class Kind(StrEnum):
    """What a finding is about, on how much of what it is counted, and what it does to the result.

    What ``refutes`` says that the columns are not the log-probs of two policies at the sampled tokens: nothing that
    rests on them is guaranteed, and no requirement of it is met.
    """

    unit: str
    effect: str
    refutes: bool

    def __new__(cls, value: str, unit: str, effect: str, refutes: bool = False) -> Self:
        """Return the member of that value."""
        kind = str.__new__(cls, value)
        kind._value_, kind.unit, kind.effect, kind.refutes = value, unit, effect, refutes
        return kind

    SUPPORT_GAP = "support_gap", "tokens", "rules that need theta << roll are withdrawn, KL is taken from k1"
    REFUTED = "refuted", "responses", "this log is not what the guarantees take it for: nothing is guaranteed", True
    CONTRADICTION = "contradiction", "responses", "it is not used, and no requirement is met"
    MISALIGNED = "misaligned", "responses", "every divergence is too large, and nothing is guaranteed", True
    SWAPPED = "swapped", "responses", "every divergence is too large, and nothing is guaranteed", True
    WRONG_MODEL = "wrong_model", "responses", "every divergence is that of another model", True
    COPIED = "copied", "tokens", "every divergence is too small, and says nothing", True
    COPIED_OLD = "copied_old", "tokens", "what is the engine's and what is staleness is not told apart"
    CENSORED = (
        "censored",
        "tokens",
        "no divergence is that of the policies: where ratios were cut off, a lower limit",
        True,
    )
    NOTHING_RECOMPUTED = "nothing_recomputed", "tokens", "there is one policy only: every divergence is wrong", True
    REPEATED = "repeated", "responses", "they count twice, and intervals are too narrow"
    TEMPERATURE = "temperature", "tokens", "the divergence is that of the rescaling, too"
    OTHER_BASE = "other_base", "tokens", "every divergence is wrong: log-probs are natural logarithms", True
    MIXTURE = "mixture", "responses", "what is said is of their average"
    UNEQUAL_GROUPS = "unequal_groups", "responses", "what is guaranteed rests on what this speaks against"
    FILTERED = "filtered", "responses", "what is guaranteed rests on what this speaks against"
    ADVANTAGES = "advantages", "responses", "what is guaranteed rests on what this speaks against"
    EQUAL_REWARDS = "equal_rewards", "responses", "asymptotic intervals of the gain are too narrow"
    FORCED_TOKENS = "forced_tokens", "tokens", "they count as policy tokens, so divergences are too large"
    PADDING = "padding", "tokens", "means per token are too small"
    FILLERS = "fillers", "tokens", "ratios there are huge or nearly 0, and every divergence is too large"
    IMPOSSIBLE_COLUMN = "impossible_column", "tokens", "nothing that rests on the column can be believed", True
    EXACT_COLUMNS = "exact_columns", "responses", "kl_seq and tv_sum rest on the exact columns all the same"
    HEAVY_TAIL = "heavy_tail", "tokens", "kl_seq, and bounds by it, may be far off: they are assumed"
    OVERFLOW = "overflow", "responses", "means of P are infinite, and their intervals vacuous"
    READING = "reading", "responses", "what is said holds for what was read, as it was read"
    LEFT_OUT = "left_out", "responses", "what is said holds for the others"
    MISSING = "missing", "responses", "what is said holds for the others"
    UNGROUPED = "ungrouped", "responses", "intervals are too narrow if some answer one prompt"
    HORIZON = "horizon", "responses", "bounds hold for responses that are no longer"
    ROUNDING = "rounding", "tokens", "divergences as small as that are rounding"
    FEW_PROMPTS = "few_prompts", "prompts", "estimated intervals are too narrow; measured ones hold, and are wide"
    TRAIN_POLICY_UNKNOWN = "train_policy_unknown", "responses", "guarantees hold if theta did not learn from them"
    PROMPTS_RETURN = "prompts_return", "prompts", "what is guaranteed is of these prompts only"
    MASK = "mask", "responses", "acceptance and the masked surrogate are to be read with this in mind"

    def finding(self, text: str, count: float, *rows: str) -> Finding:
        """Return a finding of this kind."""
        return Finding(self, text, int(count), self.unit, self.effect, tuple(filter(None, rows)))


#: Kinds that speak against the hypotheses of a gain or loss that would be guaranteed.
DOUBTS = frozenset({Kind.UNEQUAL_GROUPS, Kind.FILTERED, Kind.ADVANTAGES, Kind.EQUAL_REWARDS})

#: What rests on the divergence of whole responses being seen in the sampled tokens.
OF_DIVERGENCE = (
    *("kl_seq", "kl_seq_k3", "mean_kl_token", "chi2_seq"),
    *("worst_case_error", "error_above", "error_below"),
)
_EVERYTHING = ""
_OF_GAIN = "improvement|surrogate_gain|error_(above|below)"
#: What has an asymptotic interval alone.
_ESTIMATED = "kl_seq|mean_kl_token|chi2_s|tv_sum|surrogate_gain|error_|b_star|improvement_asymptotic|improvement_by"

#: Kinds beside which no requirement is met of some quantities: a pattern of how their names begin. They rest on what
#: the finding speaks against, or on what nobody said.
AGAINST: Mapping[Kind, str] = {
    **{kind: _EVERYTHING for kind in Kind if kind.refutes or kind in DOUBTS},
    **dict.fromkeys((Kind.CONTRADICTION, Kind.REPEATED, Kind.UNGROUPED, Kind.LEFT_OUT), _EVERYTHING),
    **dict.fromkeys((Kind.FILLERS, Kind.TEMPERATURE), _EVERYTHING),  # are these the log-probs of what was sampled?
    Kind.EQUAL_REWARDS: _OF_GAIN,
    Kind.TRAIN_POLICY_UNKNOWN: _OF_GAIN,
    Kind.MIXTURE: "improvement(?!_of_steps)",  # bets on a mean; those on a sum allow policies that learned between
    Kind.HORIZON: "b_star|improvement|worst_case_error_measured",
    Kind.HEAVY_TAIL: "|".join((*OF_DIVERGENCE, "b_star", "improvement_by_surrogate")),
    Kind.EXACT_COLUMNS: "kl_seq|tv_sum|mean_kl_token|b_star|improvement_by_surrogate",
    Kind.PADDING: "mean_|acceptance",
    Kind.FEW_PROMPTS: _ESTIMATED,
    Kind.FORCED_TOKENS: f"{_OF_GAIN}|tv_",
}
#: The other kinds, and why no requirement is open beside them.
CLOSES_NOTHING: Mapping[Kind, str] = {
    Kind.SUPPORT_GAP: "what misses theta's mass off roll's support has no upper end, or is withdrawn",
    Kind.COPIED_OLD: "what old log-probs would tell apart is not estimated",
    Kind.OVERFLOW: "what is infinite has no end that would meet anything",
    Kind.READING: "what was read is judged as it is",
    Kind.MISSING: "it was asked to leave them out, or they are too few to matter",
    Kind.ROUNDING: "its floor is taken off what is required of a gain, and of a divergence from below",
    Kind.PROMPTS_RETURN: "what would speak of new prompts is withheld",
    Kind.MASK: "it is about the mask that was asked about, and its numbers say the same",
}
#: Kinds that say what nobody declared, and nothing against it: what is guaranteed is assumed, and no gate is met.
UNSAID = (Kind.TRAIN_POLICY_UNKNOWN, Kind.MIXTURE, Kind.LEFT_OUT, Kind.HORIZON)


def closes(kind: Kind, name: str, waived: Mapping[Kind, str]) -> bool:
    """Return whether no requirement of a quantity is met beside a finding of a kind."""
    closed, harmless = AGAINST.get(kind), waived.get(kind)
    return closed is not None and bool(re.match(closed, name)) and (harmless is None or not re.match(harmless, name))


def harmless(summary: Summary, assumed: Mapping[str, Any]) -> dict[Kind, str]:
    """Return kinds of what nobody said that nothing rests on here, or not what is named."""
    found: dict[Kind, str] = {}
    if not summary.several_steps:
        found[Kind.MIXTURE] = ""  # weight versions of one step
    if not summary.left_out.unsaid:
        found[Kind.LEFT_OUT] = ""
    if assumed.keys().isdisjoint({*SUPREMA, "support_gap"}):  # what is summed over a response needs no cap
        found[Kind.HORIZON] = "b_star|improvement"
    elif "log_ratio_max" not in assumed:
        found[Kind.HORIZON] = "improvement(?!_by_surrogate)"
    return found


def refuting(found: Iterable[Finding]) -> Finding | None:
    """Return the first finding that the columns are not what everything takes them for."""
    return next((f for f in found if f.kind.refutes), None)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something remarkable about a log.

    Attributes
    ----------
    kind : Kind
    text : str
        What was found, in words.
    count, unit : int and str
        On how much of the log: 12 "tokens".
    effect : str
        What it does to the result.
    rows : tuple of str
        Where it was seen first, if that is known.
    causes : tuple of str
        What it may come from; what fits this log best comes first.
    look, command : str
        What to look at next, and a command that shows it.
    """

    kind: Kind
    text: str
    count: int
    unit: str
    effect: str
    rows: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    look: str = ""
    command: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def advice(self) -> str:
        """What it may come from, and what to do next, in a sentence."""
        likely = "; or ".join(self.causes)
        return f"{self.kind.replace('_', ' ')}: {likely}. Look at {self.look} ({self.command})."

    @property
    def because(self) -> str:
        """Why nothing is guaranteed, where it refutes what the columns are taken for."""
        return f"this log is not what the guarantees take it for: {self.text}"


@dataclass(frozen=True, slots=True)
class Look:
    """What a check has seen so far: how often and where first, sums, and the largest values with their places.

    ``rows`` are, by what they show, the responses that show it most: how much, their places, and what there is to say.
    """

    seen: Seen = field(default_factory=Seen)
    sums: Mapping[str, float] = field(default_factory=dict)
    tops: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    rows: Mapping[str, tuple[tuple[float, str, str], ...]] = field(default_factory=dict)

    def __add__(self, other: Look) -> Look:
        sums = {n: self.sums.get(n, 0.0) + other.sums.get(n, 0.0) for n in {**self.sums, **other.sums}}
        tops = dict(self.tops)
        for name, top in other.tops.items():
            if name not in tops or top[0] > tops[name][0]:
                tops[name] = top
        both = {n: self.rows.get(n, ()) + other.rows.get(n, ()) for n in {**self.rows, **other.rows}}
        rows = {name: tuple(sorted(some, key=lambda row: -row[0])[:_NAMED]) for name, some in both.items()}
        return Look(self.seen + other.seen, sums, tops, rows)


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look for in every part of a log, if it must, and what to say of it in the end."""

    name: str
    say: Callable[[Summary, Look], Iterable[Finding]] = lambda summary, look: ()
    look: Callable[[Part], Look] = lambda part: Look()
    across_steps: bool = False  # it is only said where the steps of a run are read as one log
    needs: str = "prompt"  # a column without which there is nothing to say


def findings(summary: Summary, *, by_step: bool = False) -> tuple[Finding, ...]:
    """Return everything that is remarkable about a log, the most severe first.

    Parameters
    ----------
    summary : Summary
        Of the log.
    by_step : bool
        Whether each step of the log is spoken of by itself.

    Returns
    -------
    tuple of Finding

    Examples
    --------
    >>> import bounds
    >>> from bounds.certificate.summary import Summary
    >>> [f.kind.value for f in findings(Summary.of(bounds.example_traces("run")))]
    ['mixture']
    """
    asked = (check for check in CHECKS if check.needs in summary and not (by_step and check.across_steps))
    found = (f for check in asked for f in check.say(summary, summary.looks.get(check.name, Look())))
    return tuple(advised(f, summary) for f in found)


def advised(found: Finding, summary: Summary) -> Finding:
    """Return a finding with its likely causes and what to do next."""
    advice = ADVICE[found.kind]
    causes, look = found.causes or advice.causes, advice.look
    if not (causes and look):
        fitting = likely(summary)
        causes = causes or tuple(text for text, _ in fitting)
        look = look or (fitting[0][1] if fitting else _CARRIES)
    return replace(found, causes=causes, look=look, command=advice.command)


def _totals(part: Part, *names: str) -> Look:
    return Look(sums={name: part.totals[name] for name in names})


def _seen(traces: TraceSet, tokens: BoolArray) -> Look:
    """Return how many of some tokens [tokens] there are, and where the first stands."""
    if not tokens.any():
        return Look()
    where, position = traces.locate(int(np.argmax(tokens)))
    return Look(Seen(int(np.count_nonzero(tokens)), f"{where}, position {position}"))


# --- the supports: mean rho ----------------------------------------------------------------------------------------


def mean_ratio(summary: Summary) -> Interval:
    """Return an asymptotic interval of mean rho, at 95 %."""
    length = summary["length"]
    return clustered_ratio(length + summary["surrogate_sum"], length, summary.prompt, 0.95, low=0.0)


def _is_clear(ratio: Interval) -> bool:
    """Return whether mean rho is not 1 by 1e-4, and by more than its interval is wide (four standard errors)."""
    return max(_NEAR, ratio.high - ratio.low) < abs(ratio.value - 1.0) and ratio.high > ratio.low


def odd_mean_ratio(summary: Summary) -> float | None:
    """Return mean rho where it is not 1, and no sample explains it.

    Below 1 it can be that few tokens of a large ratio are missing from a sample: it must be so by more than tokens have
    that are as rare, and raised twenty-fold. Or all ratios are on one side of 1, in tokens that are not certain; or all
    are one number.
    """
    ratio = mean_ratio(summary)
    far = abs(ratio.value - 1.0)
    clear = _is_clear(ratio) and (ratio.value > 1.0 or far * summary.tokens > _UNSEEN)
    return ratio.value if far > _NEAR and (clear or _one_sided(summary) or _is_one_ratio(summary)) else None


def raised_unseen(summary: Summary) -> bool:
    """Return whether mean rho is clearly below 1, as where theta raised tokens that nobody sampled: k3 misses them."""
    ratio = mean_ratio(summary)
    return _is_clear(ratio) and ratio.value < 1.0


def _say_mean_ratio(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that mean rho is not 1: above it by a bet, since the interval of the mean is too narrow in honest logs."""
    if (ratio := odd_mean_ratio(s)) is None or _hopeless(s).all():
        return
    if ratio < 1.0:
        text = (
            f"the mean ratio theta/roll of a token, {ratio:.6g}, is clearly below 1: theta has mass where roll has "
            "none, or is hardly ever sampled"
        )
        yield Kind.SUPPORT_GAP.finding(text, s.tokens)
    elif token_ratios_above_one(traces.log_ratio - _off(s) for traces in s.log or ()) > _EVIDENCE:
        text = (
            f"the mean ratio theta/roll of a token, {ratio:.6g}, is clearly above 1, which no pair of policies explains"
        )
        yield Kind.REFUTED.finding(text, s.tokens)


def support_gap(summary: Summary, assumed: Mapping[str, Any]) -> bool:
    """Return whether theta has mass off roll's support: as assumed; else where mean rho is clearly below 1."""
    if "absolutely_continuous" in assumed or "support_gap" in assumed:
        return not assumed.get("absolutely_continuous", True) or bool(assumed.get("support_gap"))
    ratio = odd_mean_ratio(summary)
    return ratio is not None and ratio < 1.0


def _look_ends(part: Part) -> Look:
    """Keep the least and the largest log theta - log roll of a token, and where they stand."""
    tops = {}
    for name, sign, ends in (("d", 1.0, part.sums["largest"]), ("-d", -1.0, -part.sums["least"])):
        i = int(np.argmax(ends))
        d, start = sign * part.log_ratio(i), part.traces.starts[i]
        where, position = part.traces.locate(int(start + np.argmax(d)))
        tops[name] = (float(ends[i]), f"{where}, position {position}")
    return Look(tops=tops)


def _ends(s: Summary) -> tuple[float, float]:
    """Return the least and the largest log theta - log roll of a token."""
    tops = s.looks["ends"].tops
    return -tops["-d"][0], tops["d"][0]


def _is_one_ratio(s: Summary) -> bool:
    """Return whether log theta - log roll is one number, not 0, on three or more tokens that differ."""
    (low, high), n = _ends(s), s.tokens
    x, xx = (s.looks["temperature"].sums[name] for name in ("x", "xx"))
    return n > 2 and high - low < 1e-6 and abs(low) > 1e-6 and n * xx - x * x > _VARIED * n * n


def _one_sided(s: Summary) -> bool:
    """Return whether no log theta - log roll is above 0, or none below, in tokens that are not certain."""
    low, high = _ends(s)
    return (high <= 0.0 or low >= 0.0) and -s.looks["temperature"].sums["x"] > _UNCERTAIN


def _say_one_ratio(s: Summary, look: Look) -> Iterable[Finding]:
    if _is_one_ratio(s):
        text = (
            f"log theta - log roll is {_ends(s)[0]:.4g} on every token: rollout log-probs were taken after "
            "top-p, top-k or temperature, or are scaled"
        )
        yield Kind.SUPPORT_GAP.finding(text, s.tokens)


# --- the hypotheses of the guarantees ------------------------------------------------------------------------------


def _say_refuted(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that P = theta/roll of whole responses has a mean above 1, and whether few of them decide it."""
    with np.errstate(over="ignore"):
        product = np.sort(np.exp(s["log_ratio_sum"] - _off(s) * s["length"]))
    if (evidence := mean_above_one(product)) <= _EVIDENCE:
        return
    text = (
        "the mean ratio theta/roll of whole responses is above 1, which no pair of policies explains (a bet on it "
        f"wins e^{evidence:.3g}): theta was fitted to these responses, or the rollout log-probs are not those of the "
        "law that sampled"
    )
    few = next((n for n in range(1, 4) if mean_above_one(product[:-n]) <= _EVIDENCE), 0) if product.size > 3 else 0
    largest, place = s.looks["ends"].tops["d"]
    if few:
        text = (
            f"the ratio theta/roll of {few} in {many(len(s), 'response')} is so large that no pair of policies "
            f"explains it; the largest of a token is e^{largest:.3g} ({place})"
        )
    found = Kind.REFUTED.finding(text, few or len(s), place if few else "")
    yield replace(found, causes=("two log-probs that are not of one token, or a filler",)) if few else found


def limits_cross(low: float, high: float, responses: int) -> Finding:
    """Return what a lower limit of the improvement says that is above the upper one."""
    both = f"the lower limit {low:.3g} of the improvement is above the upper limit {high:.3g}"
    text = f"{both}: no two policies are so, whose ratios average 1"
    return Kind.REFUTED.finding(text, responses)


def _unlike(group: IntArray) -> tuple[float, IntArray]:
    """Return the share of the groups that are not of the commonest size, and all sizes."""
    size = np.bincount(group)
    return float((size != np.bincount(size).argmax()).mean()), size


def _groups(s: Summary) -> IntArray:
    """Return the group of each response: of a prompt, or of a prompt at a step if groups are then more alike."""
    if not s.prompts_recur:
        return s.prompt
    codes = s.prompt * len(s.labels["step"]) + s["step"].astype(np.int64)
    at_step: IntArray = np.unique(codes, return_inverse=True)[1]
    return min(s.prompt, at_step, key=lambda group: _unlike(group)[0])


def _say_unequal(s: Summary, look: Look) -> Iterable[Finding]:
    share, size = _unlike(_groups(s))
    if 0 < share <= _STRAGGLERS:
        unlike = round(share * size.size)
        text = f"{unlike} of {size.size} prompts have fewer or more responses than the others, and count alike"
        yield Kind.MISSING.finding(text, unlike)
    elif share:
        text = (
            f"prompts have {size.min()} to {size.max()} responses and count alike: were some drawn more often, or "
            "sampled until they succeeded? Then give each draw an id of its own, and log all responses"
        )
        yield Kind.UNEQUAL_GROUPS.finding(text, len(s))


def _say_filtered(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that counts of successes in groups are of no mixture of success rates: some groups were left out."""
    low, high = s.reading.reward_range
    if not np.isin(s["reward"], (low, high)).all():
        return
    group = _groups(s)
    size = np.bincount(group)
    top = np.bincount(group, weights=(s["reward"] == high).astype(np.float64)).astype(np.int64)
    sizes = (int(n) for n in np.unique(size[size > 1]))
    if sum(filtered(np.bincount(top[size == n], minlength=n + 1)) for n in sizes) > _EVIDENCE:
        equal = int(((top == 0) | (top == size)).sum())
        text = (
            f"the {size.size} groups were filtered: {equal} have equal rewards, too few for the others, whatever the "
            "prompts (dynamic sampling?). The guarantees speak of the prompts that were left"
        )
        yield Kind.FILTERED.finding(text, len(s))


def _say_advantages(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that rewards are advantages: of one mean in every group, or of mean 0 and deviation 1 over the log."""
    reward = s["reward"]
    mean = np.bincount(s.prompt, weights=reward) / np.bincount(s.prompt)
    tiny = 1e-4 * float(np.abs(reward).max())
    if np.isin(reward, s.reading.reward_range).all() and abs(mean[0]) > tiny:
        return  # advantages have no two values but where all groups are alike
    vary = int((np.bincount(s.prompt, weights=np.abs(reward - mean[s.prompt])) > tiny).sum())
    uneven = not np.array_equal(reward, np.round(reward, 2))
    if np.ptp(mean) <= tiny and vary >= (2 if uneven else _EQUAL_MEANS):
        text = (
            f"rewards differ within groups, and have the mean {mean[0]:.3g} in every one: these are advantages or "
            "ranks, not raw rewards; the guarantees need raw rewards"
        )
        yield Kind.ADVANTAGES.finding(text, len(s))
    elif uneven and abs(reward.mean()) <= 1e-4 and abs(reward.std() - 1.0) <= 1e-3 + 1.0 / len(s) and s.prompts > 1:
        text = (
            "rewards have mean 0 and deviation 1 over the whole log: these are advantages of a batch, not raw rewards; "
            "the guarantees need raw rewards"
        )
        yield Kind.ADVANTAGES.finding(text, len(s))


def _say_ungrouped(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that ids name responses, not prompts: by the prompts' tokens, or since neighbours are alike."""
    n = len(s)
    if s.by_tokens:
        text = (
            f"each of {n} responses has an id of its own, but their prompts are of {s.prompts} different token lists: "
            "those to one list are taken for answers to one prompt (group_size, --group-size N says so)"
        )
        yield Kind.UNGROUPED.finding(text, n)
        return
    if s.prompts < n or s.left_out.ungrouped.count == n or n < 2:
        return
    by_text = _alike_prompts(s["prompt_likeness"])
    if not (size := by_text or _alike_rewards(s)):
        return
    what = "prompts" if by_text else "rewards"
    text = f"each of {n} responses has an id of its own, but the {what} of every {size} rows are alike"
    text += ": is it one prompt, answered several times? (group_size, --group-size N: every N rows answer one prompt)"
    yield Kind.UNGROUPED.finding(text, n)


def _alike_prompts(likeness: FloatArray) -> int:
    """Return the number of rows that have one prompt, but for a few tokens (a path, a time); 0 if no number has.

    Then every row is more like the row before than any first row of a group is. Of n neighbours in independent order
    that happens by chance once in as many logs as there are ways to choose these first rows.
    """
    n = likeness.size
    for size in range(2, min(_LARGEST_GROUP, n // 2) + 1):
        first = np.arange(n) % size == 0
        ways = math.lgamma(n) - math.lgamma(n / size) - math.lgamma(n - n / size + 1.0)
        if n % size or ways < _EVIDENCE + math.log(_LARGEST_GROUP):
            continue
        within, across = likeness[~first], likeness[first][1:]
        if np.nanmin(within, initial=np.inf) > np.nanmax(across, initial=-np.inf) > -np.inf:
            return size
    return 0


def _alike_rewards(s: Summary) -> int:
    """Return the number of neighbours of which rewards are alike, and not of those half a group further; else 0."""
    if "reward" not in s:
        return 0
    n = len(s)
    high = (s["reward"] > min(float(np.median(s["reward"])), float(s["reward"].max()) * (1.0 - 1e-12))).astype(np.int64)
    found = {}
    for size in (k for k in range(2, _LARGEST_GROUP + 1) if n % k == 0 and n >= 8 * k):
        blocks, half = min(n // size, 512), size // 2
        here, between = high[: blocks * size], high[half : (blocks - 1) * size + half]
        alike, moved = (neighbours_alike(r.reshape(-1, size).sum(axis=1), size) for r in (here, between))
        found[size] = alike - max(moved, 0.0) * blocks / (blocks - 1)
    best = max(found, key=lambda size: float(found[size]), default=0)
    return best if found.get(best, 0.0) > _EVIDENCE + math.log(max(len(found), 1)) else 0


def _say_equal_rewards(s: Summary, look: Look) -> Iterable[Finding]:
    if len(s) > 1 and np.ptp(s["reward"]) == 0.0:
        text = "all rewards are equal: asymptotic intervals of the gain rest on no variation, and are too narrow"
        yield Kind.EQUAL_REWARDS.finding(text, len(s))


# --- what is read as one log ---------------------------------------------------------------------------------------


def _span(s: Summary, label: str) -> tuple[int, str]:
    """Return how many names a label has, and the first and the last of them, in brackets."""
    names = [name for name in s.labels[label] if name]
    try:
        order = sorted(names, key=float)
    except ValueError:
        order = sorted(names)
    ends = " to ".join(dict.fromkeys((order[0], order[-1])))
    return len(s.labels[label]), f"({ends}{', and responses that name none' if '' in s.labels[label] else ''})"


def _say_steps(s: Summary, look: Look) -> Iterable[Finding]:
    if len(s.labels.get("step", ())) > 1:
        n, span = _span(s, "step")
        text = (
            f"the log holds {n} steps {span}, each with its own two policies: what is said is about "
            "their mixture (over_time tells them apart)"
        )
        yield Kind.MIXTURE.finding(text, len(s))


def _look_versions(part: Part) -> Look:
    """Count responses that more than one version of the weights drew."""
    versions, starts = part.traces.versions, part.traces.starts
    if versions is None:
        return Look()
    changes = np.concatenate([[0], np.cumsum(versions[1:] != versions[:-1])])
    several = np.flatnonzero(changes[starts[1:] - 1] > changes[starts[:-1]])
    return Look(Seen(several.size, part.traces.where[several[0]])) if several.size else Look()


def _say_versions(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that versions within a step are mixed; that steps have different ones is said of the steps."""
    n, names = look.seen.count, s.labels.get("weight_version", ())
    step = s["step"] if "step" in s else np.zeros(len(s))
    pairs = len(names) * step + s["weight_version"] if names else step
    if np.unique(pairs).size > np.unique(step).size:
        several, span = _span(s, "weight_version")
        text = f"{several} weight versions are mixed {span}: the rollout policy is not one policy"
    elif n:
        text = f"{many(n, 'response')} drawn by several weight versions each (first: {look.seen.first})"
    else:
        return
    yield Kind.MIXTURE.finding(text, len(s))


def _say_repeated(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that responses begin as earlier ones do: copies, also under other ids, or longer and shorter forms of one."""
    key = s["beginning"]
    keys, times = np.unique(key, return_counts=True)
    twice = keys[(times > 1) & (keys > 0)]
    again = np.isin(key, twice)
    if not again.any():
        yield from _say_again(s)
        return
    count = int(again.sum()) - twice.size
    copies, same_prompt = (
        int(again.sum()) - np.unique(np.stack([key[again], s[name][again]]), axis=1).shape[1]
        for name in ("fingerprint", "prompt")
    )
    first = _first_again(s, set(twice.tolist()))
    kinds = {
        "are copies": copies,
        "are longer or shorter (chunks that repeat what was before?)": count - copies,
        "have another prompt_id": count - same_prompt,
    }
    what = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
    text = (
        f"{many(count, 'response')} standing in the log twice: the rollout log-probs begin, bitwise, as those of an "
        f"earlier one (first: {first}), too improbable to be drawn again; {what}"
    )
    yield Kind.REPEATED.finding(text, count, first)


def _say_again(s: Summary) -> Iterable[Finding]:
    """Say that responses in a row stand as some in a row before them: one by one not improbable, but all of them.

    Drawn independently, a response is one that was drawn before with its probability under roll, or, where many are
    one number, at most as often as that number comes.
    """
    n, sums = len(s), np.stack([s["train_sum"], s["log_ratio_sum"], s["length"]]).view(np.uint64)
    _, code, times = np.unique(sums[0] ^ (sums[1] << 1) ^ (sums[2] >> 1), return_inverse=True, return_counts=True)
    told = np.maximum(np.minimum(s["log_ratio_sum"] - s["train_sum"], np.log(n / times[code])), 0.0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], times.size)[code] * np.sqrt(told)
    wave = np.fft.rfft(signs, 2 * n)
    alike = np.fft.irfft(wave * wave.conj(), 2 * n)[1:n]  # sums over rows that are alike, so many rows apart
    best = 0.0, 0, 0, 0
    for lag in (1 + np.argsort(alike)[-_LAGS:]).tolist():
        same = code[lag:] == code[:-lag]
        so_far = np.concatenate([[0.0], np.cumsum(told[lag:] * same)])
        start, stop = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]))).reshape(-1, 2).T
        if start.size:
            evidence = so_far[stop] - so_far[start]
            k = int(evidence.argmax())
            best = max(best, (float(evidence[k]), lag, int(start[k]) + lag, int(stop[k] - start[k])))
    found, lag, first, rows = best
    if found > _AGAIN + 2.0 * math.log(n) and _UNLIKE * np.unique(code[first : first + rows]).size >= rows:
        place = _first_place(s, np.arange(n) == first)
        text = (
            f"{many(rows, 'response')} in a row stand as {lag} rows before, bitwise, too improbable to be drawn again "
            f"(first: {place})"
        )
        yield Kind.REPEATED.finding(text, rows, place)


def _first_again(s: Summary, twice: set[int]) -> str:
    """Return where the first response stands that begins as one before it."""
    before: set[int] = set()
    for traces in s.log or ():
        for i, key in enumerate(beginning(traces).tolist()):
            if key in before:
                return traces.where[i]
            if key in twice:
                before.add(key)
    return ""


# --- whether the columns belong together -----------------------------------------------------------------------------


def _evident(s: Summary) -> float:
    """Return the evidence, in nats, that chance gives some response of an honest log once in a thousand logs."""
    return math.log(4 * len(s) / _FALSE_ALARM)


def _look_belonging(part: Part) -> Look:
    """Keep the responses with the most evidence, and what is said of them."""
    found, traces = part.belongs, part.traces
    rows: dict[str, tuple[tuple[float, str, str], ...]] = {}
    for row, (name, text) in found.said.items():
        evidence = float(getattr(found, name)[row])
        rows[name] = (*rows.get(name, ()), (evidence, traces.where[row], text))
    sums = {"odd": found.odd, **{str(lag): evidence for lag, evidence in found.lagged.items()}}
    return Look(sums=sums) + Look(rows=rows)


def _say_belonging(s: Summary, look: Look) -> Iterable[Finding]:
    """Name responses whose columns do not belong together; speak of the whole log where no response alone shows it."""
    limit, hopeless = _evident(s), _hopeless(s)
    shifted, swapped, unlike = (s[name] >= limit for name in ("misaligned", "swapped", "unrelated"))
    unlike &= ~(shifted | swapped | hopeless)
    if n := int(hopeless.sum()):
        first = _first_place(s, hopeless)
        text = (
            f"{many(n, 'response')} with train log-probs below {_HOPELESS:g} on average, worse than uniform: not this "
            f"model's scores of these tokens (first: {first})"
        )
        yield Kind.WRONG_MODEL.finding(text, n, first)
    if n := int(swapped.sum()):
        places, first = _named(look, ("swapped",), limit)
        yield Kind.SWAPPED.finding(f"{many(n, 'response')} with train_logprobs of another response{first}", n, *places)
    if whole := "" if (shifted | swapped | hopeless).any() else _over_the_whole_log(s, look, limit):
        yield Kind.MISALIGNED.finding(f"over the whole log, train_logprobs {whole}", len(s))
    elif n := int((shifted | unlike).sum()):
        places, first = _named(look, ("misaligned", "unrelated"), limit)
        text = f"{many(n, 'response')} whose two columns are not of the same tokens, position by position{first}"
        yield Kind.MISALIGNED.finding(text, n, *places)


def _over_the_whole_log(s: Summary, look: Look, limit: float) -> str:
    """Say where theta's log-probs stand, if all of them together show it."""
    lags = {name: evidence for name, evidence in look.sums.items() if name != "odd"}
    lag = max(lags, key=lags.__getitem__)
    if lags[lag] >= limit:
        side = "later" if int(lag) > 0 else "earlier"
        return f"stand {many(abs(int(lag)), 'token')} {side} than rollout_logprobs"
    unrelated = look.sums["odd"] >= limit and Shape(s).alike < _ALIKE
    return "tell nothing of rollout_logprobs: they are not of the same tokens" if unrelated else ""


def _hopeless(s: Summary) -> BoolArray:
    """Return which responses have train log-probs that are worse than uniform, and likely tokens [N]."""
    train, length = s["train_sum"], s["length"]
    return np.asarray((length > 7) & (train < _HOPELESS * length) & (train - s["log_ratio_sum"] > -5.0 * length))


def _named(look: Look, names: Iterable[str], limit: float) -> tuple[list[str], str]:
    """Return the places of responses with enough evidence, and what is said of the first."""
    rows = [(natural(place), place, said) for n in names for e, place, said in look.rows.get(n, ()) if e >= limit]
    rows.sort()
    return [place for _, place, _ in rows], f" (first: {rows[0][1]}: {rows[0][2]})" if rows else ""


def _coarse(s: Summary) -> bool:
    """Return whether both columns hold numbers of half precision, of which some are equal by chance."""
    return all(
        any(not s.looks[f"{name} rounding"].sums[f"not {dtype}"] for dtype in _BITS) for name in ("rollout", "train")
    )


def _bfloat16(values: FloatArray) -> FloatArray:
    """Round to the nearest number of 8 bits, to an even one between two."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.asarray(rounded.astype(np.uint32).view(np.float32), dtype=np.float64)


def _decimals(values: FloatArray, places: int) -> FloatArray:
    return np.asarray(np.round(values, places))


#: How log-probs are written with fewer digits.
_WRITTEN: tuple[Callable[[FloatArray], FloatArray], ...] = (
    _bfloat16,
    lambda values: np.asarray(values.astype(np.float16), dtype=np.float64),
    *(partial(_decimals, places=places) for places in range(1, 5)),
)


def _look_copied(part: Part) -> Look:
    """Count uncertain tokens at which one policy's log-prob is the other's with fewer digits, if first ones are."""
    columns = part.traces.rollout, part.traces.train
    some, most = _told(*(values[:_MANY] for values in columns)), 0
    for order in (slice(None), slice(None, None, -1)):
        for write in _WRITTEN:
            if _is_written(write, *(values[:_SAMPLE] for values in some[order])).all():
                fewer = _is_written(write, *_told(*columns)[order])
                most = max(most, int(fewer.sum()) if fewer[:_SAMPLE].all() else 0)
    return _totals(part, "unequal", "told") + Look(sums={"fewer digits": float(most)})


def _told(roll: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return both log-probs of the tokens that are uncertain under both policies."""
    told = np.maximum(roll, theta) < TRUE_ZERO
    return roll[told], theta[told]


def _is_written(write: Callable[[FloatArray], FloatArray], fine: FloatArray, coarse: FloatArray) -> BoolArray:
    return np.asarray(np.abs(write(fine) - coarse) <= 1e-6 * np.maximum(1.0, -coarse))


def _say_copied(s: Summary, look: Look) -> Iterable[Finding]:
    uncertain, same = s["uncertain"].astype(np.float64), s["same"].astype(np.float64)
    told, equal = uncertain.sum(), same.sum()
    if look.sums["fewer digits"] >= (1.0 - _ODD_ONES) * look.sums["told"]:
        told, equal = look.sums["told"], look.sums["fewer digits"]
    if _copied(s):
        text = (
            "both policies' log-probs are bitwise identical: one was copied from the other (bypass mode?), and the "
            "zero divergence proves nothing"
        )
        yield Kind.COPIED.finding(text, s.tokens)
    elif told >= _COPIED_TOKENS and equal >= (0.999 if _coarse(s) else 0.4) * told:
        text = (
            f"both policies' log-probs are the same, but for rounding, on {100.0 * equal / told:.4g}% of the uncertain "
            "tokens: one was copied from the other there, and the divergence proves nothing"
        )
        yield Kind.COPIED.finding(text, s.tokens * equal / told)
    else:
        evidence = np.maximum(*(_beyond_rate(s[name].astype(np.float64), uncertain) for name in ("same", "close")))
        copied = evidence >= _evident(s)
        if n := int(copied.sum()):
            text = (
                f"{many(n, 'response')} whose log-probs are the same under both policies, which those of the others "
                f"are not: copied from one column to the other (first: {_first_place(s, copied)})"
            )
            yield Kind.COPIED.finding(text, s["length"][copied].sum(), _first_place(s, copied))


def _look_old(part: Part) -> Look:
    """Count tokens at which old log-probs are not bitwise those of a policy, for both."""
    old, traces = part.traces.old, part.traces
    values = {} if old is None else {"rollout": traces.rollout, "train": traces.train}
    return Look(sums={name: float(np.count_nonzero(old != column)) for name, column in values.items()})


def copy_of_old(s: Summary) -> str:
    """Return the column that old log-probs are a copy of, but for one token in a thousand; empty if of none."""
    sums = s.looks["old"].sums
    return next((f"{name}_logprobs" for name, unequal in sums.items() if unequal <= _ODD_ONES * s.tokens), "")


def _say_old(s: Summary, look: Look) -> Iterable[Finding]:
    if (column := copy_of_old(s)) and not _copied(s):
        text = (
            f"old_logprobs are those of {column}, bitwise: nothing changed between them, or one was copied from the "
            "other; what part of the divergence is staleness is not known"
        )
        yield Kind.COPIED_OLD.finding(text, s.tokens)


def _beyond_rate(hits: FloatArray, of: FloatArray) -> FloatArray:
    """Return the evidence of each response, in nats, that it has more hits than eight times the usual odds give.

    Usual is the half of the responses that have the least.
    """
    share = hits / np.maximum(of, 1.0)
    usual = (share <= np.median(share[of > 0])) if (of > 0).any() else of > 0
    rate = hits[usual].sum() / max(of[usual].sum(), 1.0)
    rate = max(8.0 * rate / (1.0 + 7.0 * rate), 0.05)
    more = np.clip(share, rate, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(more < 1.0, (1.0 - more) * np.log((1.0 - more) / (1.0 - rate)), 0.0)
    return np.asarray(of * (more * np.log(more / rate) + rest))


def _first_place(s: Summary, rows: BoolArray) -> str:
    """Return where the first of some responses stands; empty where the log is not at hand."""
    first = int(np.argmax(rows))
    for traces in s.log or ():
        if first < len(traces):
            return traces.where[first]
        first -= len(traces)
    return ""


def _copied(s: Summary) -> bool:
    return not s.looks["copied"].sums["unequal"]


# --- tokens that no policy chose -----------------------------------------------------------------------------------


def _zeros(name: str) -> Check:
    """Return the check for tokens that are certain in one policy, and not in the other."""

    def look(part: Part) -> Look:
        traces = part.traces
        values, other = (traces.rollout, traces.train) if name == "rollout" else (traces.train, traces.rollout)
        apart = -part.sums["least"].min() if name == "rollout" else part.sums["largest"].max()
        if not part.totals[f"{name}_zeros"] and apart < -_UNLIKELY:
            return Look()
        fill = np.flatnonzero(((values == 0.0) & (other < TRUE_ZERO)) | ((values > -_SURE) & (other < _UNLIKELY)))
        if not fill.size:
            return Look()
        places = [traces.locate(int(k)) for k in fill[:20]]
        first = ", ".join(str(position) for where, position in places if where == places[0][0])
        exact = float(np.count_nonzero(values[fill] == 0.0))
        return Look(Seen(fill.size, f"{places[0][0]}, positions {first}"), {"exact": exact})

    def say(s: Summary, look: Look) -> Iterable[Finding]:
        n, first = look.seen.count, look.seen.first
        if not n:
            return
        zero = "exactly 0" if look.sums["exact"] == n else "0, but for rounding,"
        text = f"{name}_logprobs is {zero} on {many(n, 'token')} (first: {first}) where the other policy's is not"
        if n >= _PADDED_TOKENS and 2 * n > s.tokens:
            kind, text = Kind.NOTHING_RECOMPUTED, f"{text}: there are no {name} log-probs in this log"
        else:
            unmasked = "" if s.left_out.masked else ", and no mask is given"
            kind, text = Kind.FORCED_TOKENS, f"{text}{unmasked}: no policy chose these, but they count as policy tokens"
        yield kind.finding(text, n, first)

    return Check(f"{name} zeros", say, look)


def _look_both_zero(part: Part) -> Look:
    """Count tokens with both log-probs exactly 0, and how many stretches they are."""
    if part.traces.rollout.size in (part.totals["rollout_numbers"], part.totals["train_numbers"]):
        return Look(sums={"stretches": 0.0})
    zero = (part.traces.rollout == 0.0) & (part.traces.train == 0.0)
    stretches = np.count_nonzero(zero[1:] > zero[:-1]) + int(zero[0])
    return Look(_seen(part.traces, zero).seen, {"stretches": float(stretches)})


def _say_both_zero(s: Summary, look: Look) -> Iterable[Finding]:
    """Say whether tokens with both log-probs exactly 0 stand in blocks, as padding does, or are scattered."""
    n, at_ends = look.seen.count, s["tail"].sum()
    if s.tokens < _PADDED_TOKENS or n <= max(_PADDED * s.tokens, at_ends) or _copied(s):
        return
    text = f"both log-probs are exactly 0 on {n} of {many(s.tokens, 'token')} (first: {look.seen.first})"
    if n * (s.tokens - n) > _BLOCKS * s.tokens * look.sums["stretches"]:
        text += ", in blocks: padding, or tool output? They count as policy tokens here; mask them"
        yield Kind.PADDING.finding(text, n, look.seen.first)
    else:
        text += ", scattered: certain under both, so they add nothing to a divergence, and lower means per token"
        yield Kind.ROUNDING.finding(text, n, look.seen.first)


def _say_equal_tails(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that responses end in tokens that are all alike, more than eight times the odds of a 0 elsewhere explain."""
    tail, zeros = s["tail"].astype(np.float64), s.tokens - s.looks["rollout rounding"].seen.count
    usual = max(_PADDING_LEAST, (zeros - tail.sum()) / max(1.0, s.tokens - tail.sum()))
    padded = (tail > 1) & (tail * math.log((1.0 + 7.0 * usual) / (8.0 * usual)) >= _evident(s))
    if padded.any():
        tokens, first = tail[padded].sum(), _first_place(s, padded)
        text = (
            f"{many(int(padded.sum()), 'response')} ending in tokens where both log-probs are alike, and the same over "
            f"and over, {tokens:.0f} in all: padding? They count as policy tokens here; mask them (first: {first})"
        )
        yield Kind.PADDING.finding(text, tokens, first)


def _fillers(name: str) -> Check:
    """Return the check for log-probs of one policy so low that no token has them."""

    def look(part: Part) -> Look:
        if part.least[name] >= _IMPOSSIBLE[name]:
            return Look()
        return _seen(part.traces, getattr(part.traces, name) < _IMPOSSIBLE[name])

    def say(s: Summary, look: Look) -> Iterable[Finding]:
        if n := look.seen.count:
            least, first = _IMPOSSIBLE[name], look.seen.first
            text = f"{n} sampled tokens have {name} log-probs below {least:g}: fillers? (first: {first})"
            yield Kind.FILLERS.finding(text, n, first)

    return Check(f"{name} fillers", say, look)


# --- columns that are not what they say ----------------------------------------------------------------------------


def _look_suprema(part: Part) -> Look:
    """Keep the largest divergences seen, exact or implied, and see exact columns that the sampled token refutes."""
    traces = part.traces
    if not (part.suprema or traces.exact):
        return Look()
    seen, tops = Seen(), {column: (float(values.max()), "") for column, values in traces.exact.items()}
    for name, (values, how) in _least_divergences(traces).items():
        column = SUPREMA[name]
        exact = traces.exact.get(column)
        if exact is not None:
            if column == "max_log_ratio":  # of theta / roll only: the other way, the sampled token may say more
                seen += _impossible(traces, column, exact, np.maximum(traces.log_ratio, 0.0))
                exact = np.maximum(exact, values)
            elif column != "chi2":
                seen += _impossible(traces, column, exact, values)
            values, how = exact, column + "[{}]"
        k = int(np.argmax(values))
        where, position = traces.locate(k)
        tops[name] = (float(values[k]), f"{where}: {how.format(position)}")
    if "max_log_ratio" in traces.exact:
        tops["response_ratio_max"] = _largest_beginning(traces)
    return Look(seen, tops=tops)


def _largest_beginning(traces: TraceSet) -> tuple[float, str]:
    """Return the largest log-ratio of a beginning of a response that roll can draw, and where it ends.

    It is what was sampled up to a position, and there the token with the largest ratio. As ratios of what may follow
    have mean 1 where theta << roll, some response has at least that of its beginning.
    """
    found = reach(traces)
    found[np.isinf(found)] = -np.inf  # a token that roll cannot draw
    k = int(np.argmax(found))
    where, position = traces.locate(k)
    return float(found[k]), f"{where}: what begins as up to max_log_ratio[{position}]"


def _least_divergences(traces: TraceSet) -> dict[str, tuple[FloatArray, str]]:
    """Return what the sampled token v alone implies at each context: lower values [tokens], with their names.

    TV >= |theta(v) - roll(v)|, KL >= that of the two outcomes v and not v, and chi2 >= the square of
    the former over roll(v). A log-prob nearer to 0 than its rounding is taken to be that far from it: a probability
    of 1 in float32 says nothing of what is left for other tokens.
    """
    rounding = POSITIVE_TOLERANCE[traces.reading.logprob_dtype]
    log_roll, log_theta = np.minimum(traces.rollout, -rounding), np.minimum(traces.train, -rounding)
    roll, theta = np.exp(log_roll), np.exp(log_theta)
    return {
        "delta": (two_outcome_kl(log_roll, log_theta), "the least KL that token {} implies"),
        "epsilon": (np.abs(theta - roll), "|theta - roll| of token {}"),
        "chi2_max": (np.square(theta - roll) / np.maximum(roll, 1e-300), "(theta - roll)^2 / roll of token {}"),
        "log_ratio_max": (np.abs(traces.log_ratio), "|log theta - log roll| of token {}"),
    }


_IS = {"kl": "KL(roll||theta)", "tv": "TV", "max_log_ratio": "log theta/roll"}


def _impossible(traces: TraceSet, column: str, exact: FloatArray, implied: FloatArray) -> Seen:
    too_small = implied > 2.0 * exact + 1e-4
    if not too_small.any():
        return Seen()
    k = int(np.argmax(too_small))
    where, position = traces.locate(k)
    text = f"{where}: {column}[{position}] is {exact[k]:.3g}, but the sampled token alone implies at least"
    return Seen(int(np.count_nonzero(too_small)), f"{text} {implied[k]:.3g}: not these policies, or not {_IS[column]}")


def _say_impossible(s: Summary, look: Look) -> Iterable[Finding]:
    if look.seen.count:
        yield Kind.IMPOSSIBLE_COLUMN.finding(f"{look.seen.first} in nats", look.seen.count, look.seen.first)


def refuted_assumptions(summary: Summary, assumed: Mapping[str, Any]) -> dict[str, str]:
    """Return assumed suprema of which an exact column, or the sampled token or response, shows more, and where.

    A cap on the ratio of responses says that theta << roll, too.
    """
    against = {}
    for name in (n for n in SUPREMA if n in assumed):
        value, place = summary.looks["suprema"].tops[name]
        if value > assumed[name] * (1.0 + 1e-6):
            against[name] = f"the log refutes {name}={assumed[name]:g}: {place} is {value:.6g}"
    most = assumed.get("response_ratio_max", math.inf)
    sampled = summary["log_ratio_sum"].max(), "one response"
    value, place = max(sampled, summary.looks["suprema"].tops.get("response_ratio_max", sampled))
    if (largest := math.exp(min(value, 709.0))) > most:
        against["response_ratio_max"] = f"the log refutes response_ratio_max={most:g}: {place} has {largest:.6g}"
    elif "response_ratio_max" in assumed and support_gap(summary, assumed):
        against["response_ratio_max"] = f"the log refutes response_ratio_max={most:g}: mean rho is below 1, as at a gap"
    return against


def _say_exact(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that the exact kl and tv columns do not agree on average with what the sampled tokens say."""
    apart = []
    for name, sampled, statistic in (("kl", "k3_sum", "k3"), ("tv", "shortfall_sum", "(1-rho)^+")):
        if f"{name}_sum" in s:
            exact, other = s[f"{name}_sum"], s[sampled]
            with np.errstate(invalid="ignore"):
                gap = clustered_mean(exact - other, s.prompt, _CLEAR)
            if gap.low > 0.0 or gap.high < 0.0:
                apart.append(f"{name} ({exact.mean():.3g} a response) and {statistic} ({other.mean():.3g})")
    if apart:
        text = (
            f"the logged {' and '.join(apart)} of the sampled tokens disagree clearly: not the same policies or "
            "direction, or a support gap"
        )
        yield Kind.EXACT_COLUMNS.finding(text, len(s))


_REGRESSION = ("x", "d", "xx", "dd", "xd")


def _look_relation(part: Part) -> Look:
    """Keep sums for the regression, and how well the order of distinct log-probs is that of d, whatever their sizes."""
    x, d = part.traces.rollout[:_MANY], part.traces.train[:_MANY] - part.traces.rollout[:_MANY]
    x, first = np.unique(x[told := x < TRUE_ZERO], return_index=True)
    order = np.argsort(np.argsort(d[told][first]))
    alike = float(np.corrcoef(np.arange(x.size), order)[0, 1]) if x.size >= _DISTINCT else 0.0
    return replace(_totals(part, *_REGRESSION), tops={"order": (abs(alike), "")})


def _say_relation(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that one policy was sharpened or flattened: d is nearly a linear function of x = log roll."""
    shape = Shape(s)
    if (
        s.tokens < _RELATION_TOKENS
        or look.tops["order"][0] < _IN_ORDER
        or shape.explained < _RELATION
        or abs(shape.slope) < 0.01
    ):
        return
    kind = Kind.OTHER_BASE if shape.base else Kind.TEMPERATURE
    text = (
        f"log theta - log roll is nearly a linear function of log roll (slope {shape.slope:.3g}, "
        f"{shape.explained:.0%} of its variance): "
        + (shape.base or "one of the two was taken at another temperature, or scaled")
    )
    yield kind.finding(text, s.tokens)


def _cut(end: float, tolerance: float) -> str:
    """Return what a value is called that somebody chose for a limit: a round ratio, or whole nats; else nothing."""
    ratio = math.exp(min(end, 700.0))
    near = float(f"{ratio:.3g}" if tolerance == _SINGLE else f"{ratio:.2g}")
    if 5.0 <= end == float(f"{end:.2g}"):
        return f"{end:g}"
    return f"log {near:g}" if near > 1.0 and abs(ratio / near - 1.0) <= tolerance else ""


def _cut_off(
    name: str, most: Callable[[Part], float], values: Callable[[TraceSet], FloatArray], other: str, then: str
) -> Check:
    """Return the check for values that end at a round number, and stand there more often than a tail would.

    Of honest ones fewer and fewer are nearer and nearer to the largest. In a tiny vocabulary many can be at it: but
    these are one and the same token, with one log-prob.
    """

    def look(part: Part) -> Look:
        end, traces = float(most(part)), part.traces
        tolerance = _DECIMALS if all(_few_decimals(v[:_SAMPLE]) for v in (traces.rollout, traces.train)) else _SINGLE
        tops = {"end": (end, "")}
        if end <= 0.05 or not (cut := _cut(end, tolerance)):
            return Look(tops=tops)
        far = values(traces)
        near = far >= end - tolerance
        n, below = int(near.sum()), int(((far >= (1.0 - _CUT) * end) & ~near).sum())
        distinct = np.unique(getattr(traces, other)[near]).size
        if max(_CUT_TOKENS, below) <= n <= far.size / 2 and distinct > _CUT_TOKENS / 2:
            return Look(_seen(traces, near).seen, {cut: float(n)}, tops)
        return Look(tops=tops)

    def say(s: Summary, look: Look) -> Iterable[Finding]:
        end = look.tops["end"][0]
        for cut in sorted({_cut(end, tolerance) for tolerance in (_SINGLE, _DECIMALS)} & look.sums.keys())[:1]:
            n = look.sums[cut]
            text = (
                f"{name} is exactly {cut} on {many(int(n), 'token')} (first: {look.seen.first}), and never more: "
                f"it was cut off there, and {then}"
            )
            yield Kind.CENSORED.finding(text, n, look.seen.first)

    return Check(f"cut: {name}", say, look)


def _few_decimals(values: FloatArray) -> bool:
    return bool((np.abs(values * 1e4 - np.round(values * 1e4)) < 1e-6).all())


# --- numbers -------------------------------------------------------------------------------------------------------


def _is_bfloat16(values: FloatArray) -> BoolArray:
    single = values.astype(np.float32)
    return np.asarray((single == values) & ((single.view(np.uint32) & 0xFFFF) == 0))


def _is_float16(values: FloatArray) -> BoolArray:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(np.float16) == values)


_PRECISIONS: Mapping[str, Callable[[FloatArray], BoolArray]] = {
    "whole": lambda values: np.asarray(values == np.round(values)),
    "bfloat16": _is_bfloat16,
    "float16": _is_float16,
}
_BITS = {"bfloat16": 8, "float16": 11}


def _precision(look: Look) -> tuple[str, float]:
    """Return of what half precision the log-probs of a policy are, and by how much they are off, or "" and 0."""
    dtype = next((dtype for dtype in _BITS if not look.sums[f"not {dtype}"]), "")
    if look.seen.count < 32 or not look.sums["not whole"] or not dtype:
        return "", 0.0
    return dtype, abs(look.sums["size"]) / look.seen.count * 2.0 ** -_BITS[dtype]


def _off(s: Summary) -> float:
    """Return by how much log theta - log roll of a token is off, because of the precision of the log."""
    return sum(_precision(s.looks[f"{name} rounding"])[1] for name in ("rollout", "train"))


def rounding_floor(s: Summary) -> float:
    """Return what half precision adds to the KL of a response: half the variance of what it is off by."""
    steps = (_precision(s.looks[f"{name} rounding"])[1] for name in ("rollout", "train"))
    return float(sum(step**2 for step in steps) / 6.0 * s["length"].mean())


def _rounding(name: str) -> Check:
    """Return the check for log-probs of one policy that are all numbers of half precision."""

    def look(part: Part) -> Look:
        values: FloatArray = getattr(part.traces, name)
        size = part.totals["x"] if name == "rollout" else part.totals["x"] + part.totals["d"]
        others = {
            f"not {dtype}": float(not (fits(values[:_SAMPLE]).all() and fits(values).all()))
            for dtype, fits in _PRECISIONS.items()
        }
        return Look(Seen(int(part.totals[f"{name}_numbers"])), {"size": -size, **others})

    def say(s: Summary, look: Look) -> Iterable[Finding]:
        dtype, step = _precision(look)
        if dtype:
            floor = step**2 / 6.0
            text = (
                f"{name}_logprobs are {dtype} numbers: each is off by up to {step:.2g} (at their mean size), which "
                f"puts a floor of about {floor:.1g} nats per token under every divergence, "
                f"{floor * s['length'].mean():.2g} per response, where kl_seq (k3) is {s['k3_sum'].mean():.2g}"
            )
            yield Kind.ROUNDING.finding(text, s.tokens)

    return Check(f"{name} rounding", say, look)


def _say_positive(s: Summary, look: Look) -> Iterable[Finding]:
    if n := int(look.sums["positive"]):
        text = f"{many(n, 'positive log-prob')}, as {s.reading.logprob_dtype} rounding explains: used as they are"
        yield Kind.ROUNDING.finding(text, n)


def _say_overflow(s: Summary, look: Look) -> Iterable[Finding]:
    if n := int((s["log_ratio_sum"] > math.log(np.finfo(np.float64).max)).sum()):
        text = f"the ratio of {n} whole responses overflows float64: it is inf here, not clamped"
        yield Kind.OVERFLOW.finding(text, n)


_DECIDE, _DECIDED_TOKENS = 3, 250  # so many tokens of a log of so many that are half of kl_seq


def _largest(part: Part) -> Look:
    """Keep the tokens with the largest part in kl_seq, as many as may decide it.

    They are in the responses whose largest parts are as large.
    """
    traces, exact = part.traces, part.traces.exact.get("kl")
    if exact is None:
        ends = np.maximum(k3(part.sums["least"]), k3(part.sums["largest"]))
    else:
        ends = np.maximum.reduceat(exact, traces.starts[:-1])
    least = np.sort(ends)[-_DECIDE:][0] * (1.0 - 1e-9)  # k3 grows with |d|, but for rounding
    tokens = np.flatnonzero(np.repeat(ends >= least, traces.lengths))
    values = k3(traces.train[tokens] - traces.rollout[tokens]) if exact is None else exact[tokens]
    most = np.argsort(-values, kind="stable")[:_DECIDE]
    places = [traces.locate(token) for token in tokens[most].tolist()]
    return Look(
        tops={f"{where}, position {p}": (v, "") for (where, p), v in zip(places, values[most].tolist(), strict=True)}
    )


def _say_decided(s: Summary, look: Look) -> Iterable[Finding]:
    """Say that few tokens are half of kl_seq: those like them that were not sampled may be as many."""
    largest = sorted(((value, place) for place, (value, _) in look.tops.items()), reverse=True)[:_DECIDE]
    total = float(s["kl_sum" if "kl_sum" in s else "k3_sum"].sum())
    enough = np.flatnonzero(2.0 * np.cumsum([value for value, _ in largest]) >= total)
    if s.tokens >= _DECIDED_TOKENS and total > 0.0 and enough.size:
        n, (value, place) = int(enough[0]) + 1, largest[0]
        text = (
            f"kl_seq is decided by {many(n, 'token')} of {s.tokens}: {'it is' if n == 1 else 'they are'} half of it or "
            f"more (the largest: {value:.3g} nats, {place}); as many like them may not have been sampled"
        )
        yield Kind.HEAVY_TAIL.finding(text, n, place)


# --- how the log was read ------------------------------------------------------------------------------------------


def _say_notes(s: Summary, look: Look) -> Iterable[Finding]:
    for text in sorted(set(s.left_out.notes)):
        yield Kind.READING.finding(text, len(s))


def _say_left_out(s: Summary, look: Look) -> Iterable[Finding]:
    out = s.left_out
    all_of_them = len(s) + out.empty.count + out.dropped.count + out.asked.count
    if n := out.empty.count:
        text = f"{n} of {all_of_them} responses have no policy token and are left out (first: {out.empty.first})"
        yield Kind.LEFT_OUT.finding(text, n, out.empty.first)
    if names := len(s.reading.leave_out):
        text = (
            f"{out.asked.count} of {all_of_them} responses are left out, as asked by {many(names, 'name')}: what is "
            "said assumes that they are like the others"
        )
        yield Kind.LEFT_OUT.finding(text, out.asked.count, out.asked.first)
    if n := out.dropped.count:
        text = (
            f"{n} of {all_of_them} responses have missing values and were dropped, as asked: what is said holds for "
            f"the others only (first: {out.dropped.first})"
        )
        yield Kind.MISSING.finding(text, n, out.dropped.first)
    if n := out.lifted:
        text = f"{many(n, 'exact divergence')} slightly below 0 (rounding in the trainer), counted as 0"
        yield Kind.ROUNDING.finding(text, n)
    if n := out.ungrouped.count:
        text = (
            f"{many(n, 'response')} without prompt_id: each counts as a prompt of its own "
            "(group_size, --group-size N: every N rows answer one prompt; 1: each its own)"
        )
        yield Kind.UNGROUPED.finding(text, n)


def _say_horizon(s: Summary, look: Look) -> Iterable[Finding]:
    if s.horizon_guessed:
        text = (
            f"no horizon was given: the longest response, {many(s.horizon, 'token')}, is taken for the generation cap"
        )
        yield Kind.HORIZON.finding(text, len(s))


def _say_few_prompts(s: Summary, look: Look) -> Iterable[Finding]:
    if s.prompts >= _FEW_PROMPTS:
        return
    text = f"only {s.prompts} prompts: the estimated intervals are asymptotic and too narrow for so few"
    if s.prompts < 2:
        text = "one prompt: of others nothing can be estimated; improvement_these_prompts speaks of this one"
    yield Kind.FEW_PROMPTS.finding(text, s.prompts)


# --- what was asked of it ------------------------------------------------------------------------------------------


def mask_findings(summary: Summary, mask: Mask, acceptance: float) -> Iterable[Finding]:
    """Yield what is remarkable about a mask and the share of responses that it keeps."""
    n, rules = len(summary), ",".join(map(str, mask.reweighing))
    if rules:
        text = f"{rules} drops no response but changes the objective; no bound speaks of the changed one"
        yield Kind.MASK.finding(text, n)
    if mask.needs_advantage:
        text = "the reward minus the mean of its prompt stands for the advantage, so all holds for groups of this size"
        yield Kind.MASK.finding(f"{mask} looks at the advantage: {text}", n)
    if mask.aside:
        yield Kind.MASK.finding(f"{', '.join(mask.aside)}: no part of a mask, set aside", n)
    if mask.dropping and acceptance == 1.0:
        yield Kind.MASK.finding(f"the mask {mask} keeps every response: it does nothing", n)
    if acceptance == 0.0:
        yield Kind.MASK.finding(f"the mask {mask} keeps no response", n)
    if far := int((summary["max_k2"] > _CLAMP**2 / 2.0).sum()):
        text = "a token has |d| > 20; verl and ms-swift clamp it there, and may keep a response that is dropped here"
        yield Kind.MASK.finding(text, far)


def policy_findings(summary: Summary) -> Iterable[Finding]:
    """Yield what is remarkable about how theta relates to the responses, which no test on ratios can see."""
    if summary.train_policy == "unknown":
        text = (
            "nobody says whether theta learned from these responses; if it did, nothing is guaranteed (--train-policy "
            "before-update or held-out, train_policy=)"
        )
        yield Kind.TRAIN_POLICY_UNKNOWN.finding(text, len(summary))
    if summary.prompts_return:
        text = (
            "prompts return from earlier steps, at which theta may have learned from them: what is guaranteed is of "
            "these prompts only"
        )
        yield Kind.PROMPTS_RETURN.finding(text, summary.prompts)


def contradiction(summary: Summary, name: str, why: str) -> Finding:
    """Return what is said of an estimate, or an assumption, that cannot be true together with the other."""
    text = f"{name} is left out of the bounds; the log contradicts an assumption: {why}"
    return Kind.CONTRADICTION.finding(text, len(summary))


#: Every check, in the order in which they are said.
CHECKS: tuple[Check, ...] = (
    Check("belonging", _say_belonging, _look_belonging),
    Check("suprema", _say_impossible, _look_suprema),  # also held against what is assumed
    Check("ends", look=_look_ends),
    _zeros("rollout"),
    _zeros("train"),
    _cut_off("log theta - log roll", lambda p: p.sums["largest"].max(), lambda t: t.log_ratio, "rollout", _LOWER),
    _cut_off("log roll - log theta", lambda p: -p.sums["least"].min(), lambda t: -t.log_ratio, "rollout", _LOWER),
    _cut_off("-rollout_logprobs", lambda p: -p.least["rollout"], lambda t: -t.rollout, "train", _WRONG),
    _cut_off("-train_logprobs", lambda p: -p.least["train"], lambda t: -t.train, "rollout", _WRONG),
    Check("mean ratio", _say_mean_ratio),
    Check("refuted", _say_refuted),
    Check("one ratio", _say_one_ratio),
    Check("copied", _say_copied, _look_copied),
    Check("old", _say_old, _look_old, needs="engine_sum"),
    Check("repeated", _say_repeated),
    Check("temperature", _say_relation, _look_relation),
    Check("ungrouped", _say_ungrouped),
    Check("steps", _say_steps, across_steps=True),
    Check("versions", _say_versions, _look_versions),
    Check("unequal groups", _say_unequal, needs="reward"),
    Check("filtered", _say_filtered, needs="reward"),
    Check("advantages", _say_advantages, needs="reward"),
    Check("equal rewards", _say_equal_rewards, needs="reward"),
    Check("both zero", _say_both_zero, _look_both_zero),
    Check("equal tails", _say_equal_tails),
    _fillers("rollout"),
    _fillers("train"),
    Check("exact columns", _say_exact),
    Check("overflow", _say_overflow),
    Check("decided", _say_decided, _largest),
    Check("notes", _say_notes),
    Check("left out", _say_left_out),
    Check("horizon", _say_horizon),
    _rounding("rollout"),
    _rounding("train"),
    Check("positive", _say_positive, lambda part: _totals(part, "positive")),
    Check("few prompts", _say_few_prompts),
)
