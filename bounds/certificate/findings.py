"""What was seen in a log, in plain words: on how much of it, and what it does to the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bounds._text import many
from bounds.certificate.diagnosis import shift
from bounds.certificate.finding import Finding
from bounds.certificate.statistics import IMPOSSIBLE_SAMPLE
from bounds.certificate.tally import Tally
from bounds.intervals import clustered_mean

if TYPE_CHECKING:
    from bounds.certificate.moments import Moments

_FEW_PROMPTS = 20
_CLEAR = 0.9999  # confidence at which two estimates of one thing are said to disagree
_RELATION, _RELATION_TOKENS = 0.5, 100  # share of the variance of d that its regression on log roll explains
_PADDED, _PADDED_TOKENS = 0.1, 64  # share of tokens that are certain under both policies


def findings(m: Moments) -> list[Finding]:
    """Everything that is remarkable about a log.

    Raises
    ------
    TraceError
        If the log as a whole is shifted by one token.
    """
    _refuse_shifted_log(m.tally)
    said = [Finding("reading", text, len(m), "responses", _READING) for text in [*_reading_notes(m), *_horizon_note(m)]]
    seen = ((check, check.say(m)) for check in CHECKS)
    return said + [Finding(c.name, text, c.count(m), c.unit, c.effect) for c, text in seen if text]


def several_steps(m: Moments) -> list[Finding]:
    """Where a certificate speaks of several steps at once."""
    steps = len(m.labels.get("step", ()))
    if steps < 2:
        return []
    text = f"the log holds {steps} steps, each with its own two policies (certify --by-step tells them apart)"
    return [Finding("several steps", text, len(m), "responses", "what is said is of their average")]


_READING = "what is said holds for what was read, as it was read"


def _reading_notes(m: Moments) -> list[str]:
    """What was left out of a log or not said in it."""
    left_out = m.left_out
    seen = len(m) + left_out.empty.count + left_out.dropped.count
    texts = sorted(left_out.notes)
    if n := left_out.empty.count:
        texts.append(f"{n} of {seen} responses have no policy token and are left out (first: {left_out.empty.first})")
    if n := left_out.dropped.count:
        texts.append(
            f"{n} of {seen} responses have missing values and were dropped, as asked: what is said holds for the "
            f"others only (first: {left_out.dropped.first})"
        )
    if n := left_out.lifted:
        texts.append(f"{many(n, 'exact divergence')} slightly below 0 (rounding in the trainer), counted as 0")
    if n := left_out.ungrouped.count:
        texts.append(
            f"{many(n, 'response')} without prompt_id: each counts as a prompt of its own "
            "(group_size, --group-size N: every N rows answer one prompt)"
        )
    versions = [name for name in m.labels.get("weight_version", ()) if name]
    if len(versions) > 1:
        some = ", ".join(versions) if len(versions) < 4 else f"{versions[0]} to {versions[-1]}"
        texts.append(f"{len(versions)} weight versions are mixed ({some}): the rollout policy is not one policy")
    return texts


def _horizon_note(m: Moments) -> list[str]:
    text = f"no horizon was given: the longest response, {many(m.horizon, 'token')}, is taken for the generation cap"
    return [text] if m.horizon_guessed else []


def _refuse_shifted_log(tally: Tally) -> None:
    """Refuse a log where no response alone shows it, but all of them together do."""
    tokens = tally["shift: tokens"]
    for name in ("earlier", "later"):
        if tokens >= 20 and tally[f"shift: {name}"] >= 0.5 * tokens:
            before, after = (tally.counts.get(what, 0.0) / tokens for what in ("shift: |d|", f"shift: |d| {name}"))
            raise shift("over the whole log", name, before, after)


def _suspicious_zeros(m: Moments) -> str:
    remarks = [
        f"{name}_logprobs is exactly 0 on {many(n, 'token')} (first: {m.tally.places[f'{name} zeros']})"
        for name in ("rollout", "train")
        if (n := m.tally[f"{name} zeros"])
    ]
    if not remarks:
        return ""
    unmasked = "" if m.left_out.masked else ", and no mask is given"
    return (
        f"{'; '.join(remarks)} where the other policy's is not{unmasked}: tool output, padding or missing values "
        "filled with 0 (or top-p left one token)? They count as policy tokens here; mask them"
    )


def _equal_tails(m: Moments) -> str:
    if not m.tally["unequal"] or not m.tally["equal tails"]:
        return ""
    return (
        f"{many(m.tally['equal tails'], 'response')} ending in tokens where both log-probs are bitwise equal, "
        f"{m.tally['equal tail tokens']} in all: padding? They count as policy tokens here; mask them "
        f"(first: {m.tally.places['equal tails']})"
    )


def _unlikely_samples(m: Moments) -> str:
    """No sampled token has a probability of e^-40."""
    n = m.tally["unlikely"]
    if not n:
        return ""
    return (
        f"{n} sampled tokens have rollout log-probs below {IMPOSSIBLE_SAMPLE:g}, which are not sampled: "
        f"fillers? (first: {m.tally.places['unlikely']})"
    )


def _exact_columns(m: Moments) -> str:
    """Whether the exact kl and tv columns agree on average with what the sampled tokens say."""
    remarks = []
    for name, column, statistic in (("kl", "phi", "k3"), ("tv", "deficit", "(1-rho)^+")):
        if name in m:
            exact, sampled = m[name], m[column]
            with np.errstate(invalid="ignore"):
                gap = clustered_mean(exact - sampled, m.prompt, _CLEAR)
            if gap.low > 0.0 or gap.high < 0.0:
                remarks.append(f"{name} ({exact.mean():.3g} a response) and {statistic} ({sampled.mean():.3g})")
    if not remarks:
        return ""
    return (
        f"the logged {' and '.join(remarks)} of the sampled tokens disagree clearly: not the same policies or "
        "direction, or a support gap"
    )


def _identical(m: Moments) -> str:
    if m.tally["unequal"]:
        return ""
    return (
        "both policies' log-probs are bitwise identical: one was copied from the other (bypass mode?), and "
        "the zero divergence proves nothing"
    )


def _ratio_range(m: Moments) -> tuple[float, float]:
    return -m.tally.peaks["-log_ratio"][0], m.tally.peaks["log_ratio"][0]


def one_sided_ratio(m: Moments) -> bool:
    """Whether log theta - log roll is one number, not 0, on all of three or more tokens, or has one sign on 20."""
    low, high = _ratio_range(m)
    return bool(_constant(m)) or (m.tokens >= 20 and (high <= 0.0 or low >= 0.0))


def _constant(m: Moments) -> str:
    low, high = _ratio_range(m)
    if m.tokens > 2 and high - low < 1e-6 and abs(low) > 1e-6:
        return (
            f"log theta - log roll is {low:.4g} on every token: rollout log-probs were taken after "
            "top-p, top-k or temperature, or are scaled"
        )
    return ""


def _temperature(m: Moments) -> str:
    """A rollout distribution that was sharpened or flattened: d is nearly a linear function of log roll."""
    n = m.tokens
    x, d, xx, dd, xd = (m.tally.counts.get(f"relation: {what}", 0.0) for what in ("x", "d", "xx", "dd", "xd"))
    spread, scatter, joint = n * xx - x * x, n * dd - d * d, n * xd - x * d
    if n < _RELATION_TOKENS or not (spread > 0.0 and scatter > 0.0):
        return ""
    explained, slope = joint * joint / (spread * scatter), joint / spread
    if explained < _RELATION or abs(slope) < 0.01:
        return ""
    return (
        f"log theta - log roll is nearly a linear function of log roll (slope {slope:.3g}, {explained:.0%} of its "
        "variance): one of the two was taken at another temperature, or scaled"
    )


def _quantised(m: Moments) -> str:
    remarks = []
    x, d = (m.tally.counts.get(f"relation: {what}", 0.0) for what in ("x", "d"))
    for name, size in (("rollout", -x), ("train", -(x + d))):
        numbers = m.tally[f"{name} numbers"]
        if numbers < 32 or not m.tally[f"{name} not whole"]:
            continue
        for dtype, bits in (("bfloat16", 8), ("float16", 11)):
            if not m.tally[f"{name} not {dtype}"]:
                step = abs(size) / numbers * 2.0**-bits
                remarks.append(
                    f"{name}_logprobs are {dtype} numbers: each is off by up to {step:.2g} (at their mean size), which "
                    f"puts a floor of about {step**2 / 6:.1g} nats per token under every divergence"
                )
                break
    return "; ".join(remarks)


def _positive(m: Moments) -> str:
    if n := m.tally["positive"]:
        return f"{many(n, 'positive log-prob')}, as {m.reading.logprob_dtype} rounding explains: used as they are"
    return ""


def _overflow(m: Moments) -> str:
    count = int((m["log_product"] > math.log(np.finfo(np.float64).max)).sum())
    return f"the ratio of {count} whole responses overflows float64: it is inf here, not clamped" if count else ""


def _few_prompts(m: Moments) -> str:
    if m.prompts < 2:
        return "one prompt: of others nothing can be estimated; improvement_these_prompts speaks of this one"
    return (
        f"only {m.prompts} prompts: the estimated intervals are asymptotic and too narrow for so few"
        if m.prompts < _FEW_PROMPTS
        else ""
    )


def _both_certain(m: Moments) -> str:
    n = m.tally["both zero"]
    if m.tokens < _PADDED_TOKENS or not n > _PADDED * m.tokens or not m.tally["unequal"]:
        return ""
    return (
        f"both log-probs are exactly 0 on {n} of {many(m.tokens, 'token')} "
        f"(first: {m.tally.places['both zero']}): padding? They count as policy tokens here; mask them"
    )


def _unlikely_scores(m: Moments) -> str:
    n = m.tally["unlikely scores"]
    if not n:
        return ""
    return f"{n} sampled tokens have train log-probs below -80: fillers? (first: {m.tally.places['unlikely scores']})"


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look for: what to say of it, on how much of the log, and what it does to the result."""

    name: str
    say: Callable[[Moments], str]
    count: Callable[[Moments], int]
    unit: str
    effect: str


def _tokens(m: Moments) -> int:
    return m.tokens


#: Every check, in the order in which they are shown.
CHECKS: tuple[Check, ...] = (
    Check(
        "zeros",
        _suspicious_zeros,
        lambda m: m.tally["rollout zeros"] + m.tally["train zeros"],
        "tokens",
        "they count as policy tokens, so divergences are too large",
    ),
    Check("both zero", _both_certain, lambda m: m.tally["both zero"], "tokens", "means per token are too small"),
    Check(
        "equal tails", _equal_tails, lambda m: m.tally["equal tail tokens"], "tokens", "means per token are too small"
    ),
    Check(
        "unlikely samples",
        _unlikely_samples,
        lambda m: m.tally["unlikely"],
        "tokens",
        "ratios there are huge, and so is every divergence",
    ),
    Check(
        "unlikely scores",
        _unlikely_scores,
        lambda m: m.tally["unlikely scores"],
        "tokens",
        "each adds its size to kl_seq_k1, and P is nearly 0 there",
    ),
    Check(
        "exact columns", _exact_columns, len, "responses", "kl_seq and tv_sum rest on the exact columns all the same"
    ),
    Check("identical", _identical, _tokens, "tokens", "every divergence is 0, and says nothing"),
    Check("constant", _constant, _tokens, "tokens", "every ratio has the same factor too much or too little"),
    Check("temperature", _temperature, _tokens, "tokens", "the divergence is that of the rescaling, too"),
    Check("quantised", _quantised, _tokens, "tokens", "divergences below the floor are rounding"),
    Check("positive", _positive, lambda m: m.tally["positive"], "tokens", "nothing that the rounding does not"),
    Check("overflow", _overflow, len, "responses", "means of P are infinite, and their intervals vacuous"),
    Check(
        "few prompts",
        _few_prompts,
        lambda m: m.prompts,
        "prompts",
        "estimated intervals are too narrow; measured ones hold, and are wide",
    ),
)
