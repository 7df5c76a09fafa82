"""The answer first: whether the step is safe, how sure that is, and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from bounds._text import labelled, many, near, round_up_whole, shown, shown_down
from bounds.certificate.findings import Finding, Kind
from bounds.certificate.guarantees import HYPOTHESES
from bounds.results import Assumption, Interval, Record, Standing

if TYPE_CHECKING:
    from bounds.certificate.certificate import Certificate

#: The surrogate's error, in units of the reward's range: up to here it can be trusted, up to there it says something.
TIGHT, LOOSE = 0.1, 1.0
_SHOWS_SOMETHING = 8  # fewer prompts leave an interval of most of the rewards' range, whatever they show
_MOST = 50  # times the log (thirty at a power of one half): what more prompts are needed for cannot be shown
_KEEPS_LITTLE = 0.1  # of the responses: then a looser threshold is offered
_OPEN = "leave even the promise's sign open"


class Word(StrEnum):
    """A verdict, its sign and its colour."""

    sign: str
    colour: str

    def __new__(cls, value: str, sign: str, colour: str) -> Self:
        """Return the member of that value."""
        word = str.__new__(cls, value)
        word._value_, word.sign, word.colour = value, sign, colour
        return word

    IMPROVES = "IMPROVES", "▲", "green"
    HARMS = "HARMS", "▼", "red"
    LIKELY_IMPROVES = "LIKELY IMPROVES", "△", "green"
    LIKELY_HARMS = "LIKELY HARMS", "▽", "red"
    UNDECIDED = "UNDECIDED", "◇", "yellow"
    NO_REWARDS = "NO REWARDS", "○", "yellow"
    NOTHING_MEASURED = "NOTHING MEASURED", "○", "red"


#: How the first line says which policy is compared.
_WHICH = {
    "before-update": " (policy before this update, against its sampler)",
    "held-out": " (updated policy, on prompts that it did not learn from)",
    "unknown": ", if the training policy did not learn from these responses",
}
#: Assumptions in two or three words.
_TAKEN_FOR_GRANTED = {
    "absolutely_continuous": "no top-p",
    "horizon": "no longer responses",
    "train_policy": "theta did not learn from these",
    "steps": "no step learned from another",
    "ungrouped": "each response its own prompt",
    "grouped": "the same tokens are one prompt",
    "left_out": "what is left out is like the rest",
    "heavy_tail": "rare tokens came as often as they do",
}


@dataclass(frozen=True, slots=True)
class Surrogate(Record):
    """Whether the surrogate can be trusted: TIGHT, LOOSE or LOST.

    Attributes
    ----------
    word : str
    value, upper : float
        The bound on its error at the estimates and at their upper limits, in units of the reward's range.
    """

    word: str
    value: float
    upper: float


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """Whether the step is safe, and what to do.

    Attributes
    ----------
    word : Word
        IMPROVES, HARMS, LIKELY IMPROVES, LIKELY HARMS, UNDECIDED, NO REWARDS or NOTHING MEASURED.
    sentence : str
        What that says, with its numbers, and of which policy.
    action : str
        One thing to do, which follows from the numbers.
    policy : str
        How theta relates to the responses: before-update, held-out or unknown.
    surrogate : Surrogate or None
        None where nothing was measured.
    change : str
        The sentence without its conditions, as a title says it.

    Examples
    --------
    >>> import bounds
    >>> v = bounds.certify(bounds.example_traces()).verdict
    >>> v.word.value, v.surrogate.word, v.action
    ('UNDECIDED', 'TIGHT', "score about 890 prompts: 24 leave even the promise's sign open")
    """

    word: Word
    sentence: str
    action: str
    policy: str
    surrogate: Surrogate | None
    change: str = field(metadata={"json": False})


def verdict(c: Certificate) -> Verdict:
    """Return the verdict of a certificate."""
    word, against = _word(c), _against(c)
    surrogate = None if word is Word.NOTHING_MEASURED else _surrogate(c)
    change, condition = _sentence(c, word, against)
    action = _action(c, word, against, surrogate) + _looser_mask(c)
    return Verdict(word, change + condition, action, c.train_policy, surrogate, change)


def _against(c: Certificate) -> Finding | None:
    """Return what speaks against the hypotheses of a gain: not what is unknown, nor what no gain can be seen in."""
    return c.against("improvement", beside=(*c.unsaid, Kind.EQUAL_REWARDS))


def _flat(c: Certificate) -> bool:
    """Return whether all rewards are equal: what is estimated from how they vary then says nothing."""
    return any(f.kind is Kind.EQUAL_REWARDS for f in c.findings)


def _likely(c: Certificate) -> Interval | None:
    return None if _flat(c) else c.guarantees.intervals.get("improvement_asymptotic")


def _word(c: Certificate) -> Word:
    i, likely, against = c.headline, _likely(c), _against(c)
    if against is not None and against.kind.refutes:
        return Word.NOTHING_MEASURED
    if i is None:
        return Word.NO_REWARDS
    if against is not None:
        return Word.UNDECIDED
    if i.low > 0.0 or i.high < 0.0:
        return Word.IMPROVES if i.low > 0.0 else Word.HARMS
    if likely is not None and (likely.low > 0.0 or likely.high < 0.0):
        return Word.LIKELY_IMPROVES if likely.low > 0.0 else Word.LIKELY_HARMS
    return Word.UNDECIDED


def _surrogate(c: Certificate) -> Surrogate | None:
    if c.best is None:
        return None
    spread = c.table.reward_spread
    value, upper = c.best.value / spread, c.best_upper.value / spread if c.best_upper else math.inf
    return Surrogate("TIGHT" if upper <= TIGHT else "LOOSE" if upper <= LOOSE else "LOST", value, upper)


# --- in words ------------------------------------------------------------------------------------------------------

#: What is wrong with a log that measures nothing.
_BROKEN = {
    Kind.COPIED: "both policies' log-probs are the same numbers",
    Kind.NOTHING_RECOMPUTED: "the log holds one policy only",
    Kind.MISALIGNED: "the log is broken: its two columns are not of the same tokens",
    Kind.SWAPPED: "the log is broken: train_logprobs are of other responses",
    Kind.WRONG_MODEL: "the log is broken: train_logprobs are another model's",
    Kind.CENSORED: "the log is broken: its log-probs, or their ratios, were cut off",
    Kind.OTHER_BASE: "the log is broken: its columns are logarithms of two bases",
    Kind.IMPOSSIBLE_COLUMN: "the log is broken: a column cannot be what it is called",
    Kind.REFUTED: "the log contradicts itself: no two policies have such ratios",
}


def _change(i: Interval, rises: str = "rises", falls: str = "falls") -> str:
    """Say between what the mean reward changes."""
    if i.low > 0.0:
        return f"the mean reward {rises} by {shown_down(i.low)} to {shown(i.high)}"
    if i.high < 0.0:
        return f"the mean reward {falls} by {shown_down(-i.high)} to {shown(-i.low)}"
    return f"the mean reward may fall by {shown(max(0.0, -i.low))} or rise by {shown(max(0.0, i.high))}"


def _signed(i: Interval) -> str:
    """Write an interval with the sign of each end."""
    _, low, high = i.texts()
    return " to ".join(text if text.startswith("-") else f"+{text}" for text in (low, high))


def _sentence(c: Certificate, word: Word, against: Finding | None) -> tuple[str, str]:
    """Say what a word means with its numbers, and under which condition."""
    i, which = c.headline, _WHICH[c.train_policy]
    if word is Word.NOTHING_MEASURED and against is not None:
        return _BROKEN[against.kind], ""
    if i is None:
        return "how far the surrogate can be off is all that can be said", which
    if against is not None:
        return "the log speaks against what a guarantee rests on", f" ({against.kind.replace('_', ' ')})"
    if word in (Word.LIKELY_IMPROVES, Word.LIKELY_HARMS):
        likely = c.guarantees.intervals["improvement_asymptotic"]
        said = _change(likely, "probably rises", "probably falls")
        return said, f" (estimate at {_percent(c)}, not guaranteed){which}"
    if i.high - i.low >= 2.0 * c.table.reward_spread:
        return "this log says nothing of how the mean reward changes", which
    return _change(i), which


def _percent(c: Certificate) -> str:
    return f"{100 * c.confidence:.6g}%"


def _whose(c: Certificate) -> str:
    whose = "this one prompt" if c.prompts == 1 else f"{'prompts like ' if c.improvement else ''}these {c.prompts}"
    return f"{whose} ({many(c.responses, 'response')})"


def _sure(c: Certificate, i: Interval, word: Word) -> str:
    said = f"{_change(i)}, " if word in (Word.LIKELY_IMPROVES, Word.LIKELY_HARMS) else ""
    if i.standing is Standing.MEASURED:
        return f"{said}guaranteed at {_percent(c)} for {_whose(c)}"
    return f"{said}at {_percent(c)} for {_whose(c)}, under {many(len(c.assumptions), 'assumption')}"


def _of_surrogate(c: Certificate, surrogate: Surrogate, against: Finding | None) -> str:
    """Say what the surrogate promises, unless something speaks against it, and how far it can be off."""
    gain = None if against or _flat(c) else c.estimates.get("surrogate_gain")
    standing = c.best.standings if c.best else ""
    off = shown(surrogate.upper * c.table.reward_spread)
    if surrogate.upper == math.inf:
        return "LOST: nothing bounds how far it may be off"
    if surrogate.word == "LOST":
        far = f"it may be off by {off}, more than the rewards differ"
        return f"LOST: {far if surrogate.upper < math.inf else 'no end is known'}, so it says nothing ({standing})"
    promise = "" if gain is None else f"promises {_signed(gain)} and "
    return f"{surrogate.word}: {promise}is off by at most {off} ({standing})"


def _action(c: Certificate, word: Word, against: Finding | None, surrogate: Surrogate | None) -> str:
    if against is not None and (word is Word.NOTHING_MEASURED or c.headline is not None):
        if against.kind is Kind.COPIED:
            return "log what the training engine computes: trm-bounds formats --recipe verl"
        return f"look at {against.look} ({against.command})"
    if c.headline is None:
        if surrogate is not None and surrogate.word == "TIGHT":
            return "log the rewards, to learn whether the step helps"
        return "see where the divergence comes from: trm-bounds explain"
    if c.train_policy == "unknown" and word is not Word.UNDECIDED:
        return "say how the training policy relates to these responses: --train-policy (certify --help-all)"
    updated = c.train_policy == "held-out"
    if word is Word.IMPROVES:
        return ("keep the step" if updated else "train on: what differs between the policies costs no reward") + _share(
            c
        )
    if word is Word.HARMS:
        if updated:
            return "do not keep this step: go back to the weights that sampled"
        return "sync the weights before training on, and see what differs: trm-bounds explain"
    return _what_would_do(c, c.headline)


def _looser_mask(c: Certificate) -> str:
    """Offer the median as a threshold where a mask keeps little: for later steps, never for these responses."""
    if c.mask is None or c.mask.acceptance.value >= _KEEPS_LITTLE or not c.mask.median_rule:
        return ""
    kept = f"the mask keeps {c.mask.acceptance.value:.0%}, {c.mask.median_rule} would keep about half"
    return f"; {kept} (for later steps only: chosen on this batch it voids its guarantee)"


def _share(c: Certificate) -> str:
    """Say how small the error of the surrogate is beside its promise."""
    gain, off = c.estimates.get("surrogate_gain"), c.best_upper.value if c.best_upper else math.inf
    parts = int(gain.low / off) if gain is not None and off > 0.0 else 0
    return f"; its error is at most 1/{parts} of its promise (estimate)" if 2 <= parts < 10**6 else ""


def _what_would_do(c: Certificate, i: Interval) -> str:
    """Say what would decide it: a lower KL only where the sign of the promise is known, or prompts that can be had."""
    if _flat(c):
        return "look at the rewards: all are equal, and no policy is better than another by them"
    gain, kl = c.estimates["surrogate_gain"], c.estimates["kl_seq"]
    needed = c.guarantees.prompts_needed if i.value > 0.0 else c.guarantees.prompts_needed_for_harm
    can = needed is not None and c.prompts < needed <= _MOST * c.prompts
    more = f"score about {round_up_whole(needed)} prompts" if can and needed is not None else ""
    known = gain is not None and not gain.low <= 0.0 <= gain.high
    if known and gain is not None and kl is not None and abs(gain.value) / c.table.reward_spread < kl.value:
        least = shown_down(abs(gain.value) / c.table.reward_spread)
        lower = f"lower the KL of a response (kl_seq) below {least}: it is {near(kl.value)}"
        return f"{lower}; or {more}" if more else lower
    if more:
        return f"{more}{' like these' if known else ''}: {c.prompts} {'are too few' if known else _OPEN}"
    if c.prompts < _SHOWS_SOMETHING:
        return f"score more prompts: {many(c.prompts, 'prompt')} can show only huge changes"
    at = "" if kl is None else f", at a KL of a response of {near(kl.value)}"
    return f"judge it by an evaluation: {_MOST * c.prompts:,} prompts would not show a change this small{at}"


def _granted(a: Assumption) -> str:
    return _TAKEN_FOR_GRANTED.get(a.what, f"{a.what} = {a.value}")


def _clause(text: str) -> str:
    """Return the first clause of a text, without the rows and files that it names."""
    plain = re.sub(r" \([^()]*\)|\S+: row \d+\S* ?", "", text)
    return re.split(r"(?<=[;:?.]) ", plain)[0].rstrip(";:.")


def _rests_on(c: Certificate, said: Finding | None) -> str:
    granted = ", ".join(map(_granted, c.assumptions))
    text = f"{len(HYPOTHESES)} conditions no log can show, {many(len(c.assumptions), 'assumption')}"
    text += f" ({granted})" if granted else ""
    warnings = [f for f in c.findings if f is not said]
    if warnings:
        gravest = "" if len(warnings) == 1 else ", the gravest"
        text += f"; {many(len(warnings), 'more warning' if said else 'warning')}{gravest}: {_clause(warnings[0].text)}"
    return text


def lines(c: Certificate, v: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the lines under the first, each with its label: what to do, then why, then what it rests on."""
    i, against = c.headline, _against(c)
    told = against is not None and (v.word is Word.NOTHING_MEASURED or i is not None)
    yield "to do", v.action
    if told and against is not None:
        yield "why", against.text
        if against.causes:
            yield "cause?", against.causes[0]
        yield "sure", "nothing, while that stands"
    elif i is not None:
        yield "sure", _sure(c, i, v.word)
        likely = _likely(c)
        if v.word is Word.UNDECIDED and likely is not None and math.isfinite(likely.high):
            yield "likely", f"{_signed(likely)} (estimate)"
    if v.surrogate is not None:
        yield "surrogate", _of_surrogate(c, v.surrogate, against)
    yield "rests on", _rests_on(c, against if told else None)


def block(c: Certificate) -> list[str]:
    """Return the answer in a few lines of at most 80 characters: verdict, how sure, the surrogate, what to do."""
    v = c.verdict
    first = f"{v.word.sign} {v.word}", v.sentence
    below = ((f"  {label}", text + "; all of it: --full" * (label == "rests on")) for label, text in lines(c, v))
    return [part for label, text in (first, *below) for part in labelled(label, text)]


def in_one_line(c: Certificate) -> str:
    """Return the word first, then the numbers, as a pipeline reads them."""
    v, i, against = c.verdict, c.headline, _against(c)
    if against is not None and (i is not None or against.kind.refutes):
        return f"{v.word} {against.kind}"
    if i is not None:
        how = "guaranteed" if i.standing is Standing.MEASURED else "assumed"
        return f"{v.word} {_signed(i).replace(' to ', ' ')} {how} {_percent(c)} {many(c.prompts, 'prompt')}"
    if v.surrogate is not None:
        return f"{v.word} {v.surrogate.word} {shown(v.surrogate.upper)}"
    return str(v.word)
