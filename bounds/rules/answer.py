"""What divergences that are known prove, the answer first; and what would help where it is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bounds._text import labelled, many, round_toward_zero, shown
from bounds.rules.bound import Bound, BoundTable
from bounds.rules.largest import largest
from bounds.rules.profile import is_array

#: How given fields are said: of a token, and of a response.
_OF_TOKEN = {
    "delta": "KL <= {:g}",
    "epsilon": "TV <= {:g}",
    "chi2_max": "chi2 <= {:g}",
    "log_ratio_max": "ratio <= e^{:g}",
}
_OF_RESPONSE = {"kl_seq": "KL {:g}", "tv_seq": "TV {:g}", "mean_length": "mean length {:g}"}
_UNSAID = ("T", "reward_range", "absolutely_continuous")
#: What a remedy keeps small: the field, and its words.
_REMEDIES = {"epsilon": "TV of a token", "delta": "KL of a token", "kl_seq": "KL of a response"}
_NEXT = 3


def block(table: BoundTable) -> list[str]:
    """Return the smallest bound, what it says, what it is of, and the next ones, in a few lines of 80 characters."""
    best = table.best
    if best is None:
        return [table.sentence(), *table.notes()]
    if best.vacuous:
        low, high = table.profile["reward_range"]
        first = f"◇ {shown(best.value)}", f"is the smallest bound: on rewards in [{low:g}, {high:g}] it says nothing"
    else:
        first = shown(best.value), f"is the most that the surrogate can be off ({best.standings})"
    lines = [first, *((f"  {label}", text) for label, text in _lines(table, best))]
    return [part for label, text in lines for part in labelled(label, text)] + ["", *_rows(table, best)]


def _lines(table: BoundTable, best: Bound) -> Iterator[tuple[str, str]]:
    if not best.vacuous:
        yield "so", f"a step whose surrogate promises more than {shown(best.value)} improves for certain"
    yield "given", "; ".join(_given(table.profile))
    if best.vacuous:
        yield "to do", _remedy(table)
    elif (published := table.best_published) is not None and published is not best:
        beyond = f": above {table.reward_spread:g} it says nothing" if published.vacuous else ""
        yield "published", f"the paper's best bound is {shown(published.value)}{beyond}"
    if table.assumptions:
        said = "; ".join("no top-p, no top-k (--support-may-differ without it)" if a.what == "absolutely_continuous"
                         else f"{a.what} = {a.value}" for a in table.assumptions)  # fmt: skip
        yield "rests on", f"{many(len(table.assumptions), 'assumption')}: {said}"


def _given(profile: Mapping[str, Any]) -> Iterator[str]:
    """Say what was given."""
    yield f"up to {profile['T']} tokens"
    for of, words in (("a token", _OF_TOKEN), ("a response", _OF_RESPONSE)):
        if said := [text.format(profile[name]) for name, text in words.items() if name in profile]:
            yield f"{of}: {', '.join(said)}"
    others = [name for name in profile if name not in {*_UNSAID, *_OF_TOKEN, *_OF_RESPONSE}]
    yield from (f"{name} {'by position' if is_array(name) else profile[name]}" for name in others)
    low, high = profile["reward_range"]
    yield f"rewards in [{low:g}, {high:g}]"


def _remedy(table: BoundTable) -> str:
    """Say below what a given divergence would have to be for a bound that says something."""
    ways = [] if "kl_seq" in table.profile else ["measure the KL of a response (certify does, from any log)"]
    for name, words in _REMEDIES.items():
        if name in table.profile and not any(map(is_array, table.profile)):
            others = {n: v for n, v in table.profile.items() if n in _UNSAID}
            value = round_toward_zero(float(largest(name, table.reward_spread, **others)))
            how = f"largest {name.replace('_', '-')} --target {table.reward_spread:g}"
            ways.append(f"keep the {words} below {value:g} ({how})")
            break
    return ", or ".join(ways) or "give more of what is known: --full says what other bounds need"


def _rows(table: BoundTable, best: Bound) -> Iterator[str]:
    """Yield the best bounds, and the best published."""
    order = [best, *(b for b in table.sorted() if b is not best)]
    shown_first = order[: 1 + _NEXT]
    published = table.best_published
    if published is not None and published not in shown_first:
        shown_first.append(published)
    wide = max(len(b.title) for b in shown_first)
    yield f"{'error up to':>14}   bound"
    for b in shown_first:
        remark = "best" if b is best else "best published" if b is published else "says nothing" if b.vacuous else ""
        yield f"{shown(b.value):>14}   {b.title:<{wide}}  {remark}".rstrip()
    rest = [b.value for b in order if b not in shown_first]
    if rest:
        yield f" {len(rest)} more, from {shown(min(rest))} to {shown(max(rest))}: --full"
