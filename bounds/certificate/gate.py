"""What is required of a log: met, refuted, or undecided; one line says which, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from bounds._text import shown, shown_down
from bounds.certificate.certificate import Certificate
from bounds.certificate.findings import Finding, Kind, limits_cross


class Met(IntEnum):
    """Whether a requirement is met; its value is the exit code."""

    YES = 0
    NO = 1
    UNDECIDED = 3


_WORDS = {Met.YES: "holds", Met.NO: "does not hold", Met.UNDECIDED: "is undecided"}
#: What would decide a requirement that a finding stands against.
_WOULD_DECIDE = {
    Kind.TRAIN_POLICY_UNKNOWN: "say --train-policy before-update or held-out, whichever is so",
    Kind.MIXTURE: (
        "one step may have learned from another's responses: ask improvement_of_steps or trm-bounds steps, whose bets "
        "allow it; versions within one step need its number in each row (step)"
    ),
    Kind.LEFT_OUT: "name them, --leave-out ROW ..., if they are like the others, in reward, too",
    Kind.HORIZON: "say --horizon T",
    Kind.COPIED: "log what the training engine computes, or, if both are the same for certain, --assume delta=0",
}
#: How names begin of what half precision may move both ways, and of what it only adds to.
_MOVED, _RAISED = ("improvement", "surrogate_gain"), ("kl_seq", "b_star")


@dataclass(frozen=True, slots=True)
class Gate:
    """A requirement such as "b_star<=0.1", whether it is met, and why."""

    required: str
    met: Met
    why: str

    def __str__(self) -> str:
        return f"{self.required} {_WORDS[self.met]}: {self.why}"


def gate(lower: Certificate, upper: Certificate, name: str, sign: str, limit: float) -> Gate:
    """Say whether a quantity is "<=" or ">=" its limit, from certificates whose error is all on the named side.

    It is met where the whole interval is, refuted where all of it is beyond, and else undecided; so it is where
    something in the log speaks against what the quantity rests on, or where kl_seq is by k3 and k1 is beyond.

    Raises
    ------
    KeyError
        For an unknown quantity, with the likely meant one.
    """
    off = _off(upper, name)
    low, high = lower.quantity(name, upper=False), upper.quantity(name, upper=True)
    ends = {
        "lower": None if low is None else low - off,
        "upper": high if high is None or not name.startswith(_MOVED) else high + off,
    }
    required = f"{name}{sign}{limit:g}"
    near, far = ("upper", "lower") if sign == "<=" else ("lower", "upper")
    end, other = ends[near], ends[far]
    against = upper.against(name, beside=upper.unsaid if end is None else ()) or crossed(lower, upper)
    if against is not None:
        would = _WOULD_DECIDE.get(against.kind)
        return Gate(required, Met.UNDECIDED, f"{against.text}{f' ({would})' if would else ''}")
    if end is None:
        unknown = "nothing more than optimistic is known of it" if name.startswith("b_star") else "this log shows none"
        return Gate(required, Met.UNDECIDED, upper.reasons.get(name, unknown))
    if name == "kl_seq" and sign == "<=" and end <= limit < (k1 := _by_k1(upper)):
        why = f"k1, its other estimate, is {shown(k1, 4)}: theta may have raised tokens that nobody sampled"
        return Gate(required, Met.UNDECIDED, why)
    held = end <= limit if sign == "<=" else end >= limit
    refuted = not held and other is not None and (other > limit if sign == "<=" else other < limit)
    which, at = (far, other) if refuted and other is not None else (near, end)
    text = shown(at, 4) if which == "upper" else shown_down(at, 4)
    why = f"its {which} limit is {text} (all of the error of {100 * upper.confidence:.6g}% on this side)"
    why += f", of which {shown(off)} is for half precision" if off and at not in (low, high) else ""
    return Gate(required, Met.YES if held else Met.NO if refuted else Met.UNDECIDED, why)


def _off(c: Certificate, name: str) -> float:
    """Return by how much half precision may have moved a gain, or added to a divergence."""
    scale = 1.0 if name.startswith("kl_seq") else c.table.reward_spread
    return scale * c.rounding if name.startswith((*_MOVED, *_RAISED)) else 0.0


def _by_k1(c: Certificate) -> float:
    """Return D by k1, which counts tokens that theta raised and nobody sampled, where D is by k3; B* counts them."""
    kl, k1, k3 = (c.estimates.get(n) for n in ("kl_seq", "kl_seq_k1", "kl_seq_k3"))
    return -math.inf if k1 is None or kl != k3 else k1.value


def crossed(lower: Certificate, upper: Certificate) -> Finding | None:
    """Return what a lower limit of the improvement says that is above its upper one: each certificate has one only."""
    for name in ("improvement", "improvement_these_prompts"):
        below, above = (c.guarantees.intervals.get(name) for c in (lower, upper))
        if below is not None and above is not None and below.low > above.high:
            return limits_cross(below.low, above.high, lower.responses)
    return None


def exit_code(gates: Iterable[Gate]) -> int:
    """Return 1 where a requirement is refuted, else 3 where one is undecided, else 0."""
    met = {g.met for g in gates}
    return int(next((m for m in (Met.NO, Met.UNDECIDED) if m in met), Met.YES))
