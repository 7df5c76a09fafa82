"""How logs differ: precisions, engines, router replay, seeds, a run and its noise floor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, overload

import numpy as np

from bounds._checks import FloatArray, confidence_level, refuse
from bounds._text import Cells, Row, many, near
from bounds.certificate.estimates import kl_of_responses
from bounds.certificate.findings import Finding, findings
from bounds.certificate.summary import Summary
from bounds.divergence.rows import shortfall
from bounds.intervals import clustered_mean, prompt_means
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.results import Interval, Result, Standing

if TYPE_CHECKING:
    import pandas as pd

Logged = TraceSet | Iterable[TraceSet] | Summary

#: Estimates in words, that of which the answer speaks first.
IN_WORDS = {
    "kl_seq": "KL of a response",
    "worst_case_error": "worst error",
    "surrogate_gain": "promise of the surrogate",
    "reward": "mean reward",
    "mean_length": "length",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One estimate of two logs, and its difference, second minus first."""

    first: Interval
    second: Interval
    difference: Interval

    @property
    def clear(self) -> bool:
        """Whether the difference is not 0, at its confidence."""
        return self.difference.low > 0.0 or self.difference.high < 0.0

    @property
    def how(self) -> str:
        """Whether the second is lower or higher."""
        return ("lower" if self.difference.value < 0.0 else "higher") if self.clear else "not clearly different"


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """Estimates of two logs and their difference, second minus first.

    Attributes
    ----------
    estimates : mapping of name to Compared
    prompts_of_both : int
        How many prompts both logs answer: each is one unit, so that logs of the same prompts are compared one by one.
    findings : mapping of "first" and "second" to tuples of Finding
        What is remarkable about each log.
    """

    estimates: Mapping[str, Compared]
    prompts_of_both: int
    findings: Mapping[str, tuple[Finding, ...]]

    def __getitem__(self, name: str) -> Compared:
        return self.estimates[name]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is remarkable about each log."""
        return tuple(f"the {which}: {found.text}" for which, several in self.findings.items() for found in several)

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield how the divergence differs, what else does, and what does not."""
        kl = self["kl_seq"]
        values = f"{near(kl.second.value)} in the second log, {near(kl.first.value)} in the first"
        yield kl.how.upper() if kl.clear else "COMPARED", f"the KL of a response is {values}"
        level = f"estimate at {100 * kl.difference.confidence:.6g}%, {many(self.prompts_of_both, 'prompt')} in both"
        yield "  by", f"{kl.difference} ({level})"
        found: dict[str, list[str]] = {}
        for name, said in IN_WORDS.items():
            if name in self.estimates and name != "kl_seq":
                found.setdefault(self[name].how, []).append(said)
        for how, names in found.items():
            yield "  beside", f"{how}: {', '.join(names)}"

    def sentence(self) -> str:
        """Return what can be told apart."""
        texts = [
            f"{name} is {e.how} in the second ({e.difference.texts()[0]})"
            for name, e in self.estimates.items()
            if e.clear
        ]
        return f"{'; '.join(texts)}." if texts else "No difference is clear at this confidence."

    def tables(self) -> list[Cells]:
        """Return one row for each estimate."""
        rows: list[Row] = [
            ([name, str(e.difference), e.first.texts()[0], e.second.texts()[0]], e.clear)
            for name, e in self.estimates.items()
        ]
        return [(["estimate", "second - first", "first", "second"], rows)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each estimate."""
        import pandas as pd

        rows = [
            {"name": n, "first": e.first.value, "second": e.second.value, "difference": e.difference.value,
             "low": e.difference.low, "high": e.difference.high}
            for n, e in self.estimates.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def notes(self) -> list[str]:
        """Return how the differences were taken."""
        level = f"{100 * next(iter(self.estimates.values())).difference.confidence:.6g}%"
        both = many(self.prompts_of_both, "prompt")
        return [f"{both} in both logs. Intervals ({level}) are clustered by prompt and asymptotic."]


@dataclass(frozen=True, slots=True, repr=False)
class Comparisons(Result):
    """Several logs against the first.

    Attributes
    ----------
    first : str
        The name of the first log.
    others : mapping of name to Comparison
        Each further log, against the first.
    """

    first: str
    others: Mapping[str, Comparison]
    derived: ClassVar = ("findings",)

    @property
    def findings(self) -> Mapping[str, tuple[Finding, ...]]:
        """What is remarkable about each log, by its name."""
        every = list(self.others.values())
        return {self.first: every[0].findings["first"], **{n: c.findings["second"] for n, c in self.others.items()}}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is remarkable about each log."""
        return tuple(f"{name}: {found.text}" for name, several in self.findings.items() for found in several)

    def told_apart(self, name: str, *, all_of_them: bool = True) -> str:
        """Say in which logs an estimate is lower than in the first, and in which it is higher."""
        logs: dict[str, list[str]] = {}
        for log, c in self.others.items():
            if all_of_them or c[name].clear:
                logs.setdefault(c[name].how, []).append(log)
        return "; ".join(f"{how} in {', '.join(found)}" for how, found in logs.items())

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield in which logs the divergence differs from that of the first, and the reward."""
        known = [c.estimates for c in self.others.values()]
        first = near(known[0]["kl_seq"].first.value)
        yield "COMPARED", f"the KL of a response is {first} in {self.first}; it is {self.told_apart('kl_seq')}"
        if all("reward" in estimates for estimates in known):
            yield "  reward", self.told_apart("reward")
        level = f"{100 * known[0]['kl_seq'].difference.confidence:.6g}%"
        yield "  sure", f"estimates at {level}, each by itself, prompt by prompt where logs answer the same prompts"

    def short(self) -> list[Cells]:
        """Return one row for each log."""
        every = list(self.others.values())
        named = [n for n in ("kl_seq", "worst_case_error", "reward") if all(n in c.estimates for c in every)]
        rows: list[Row] = [([self.first, *(near(every[0][n].first.value) for n in named)], False)]
        for log, c in self.others.items():
            rows.append(([f"{log}, less that", *(str(c[n].difference) for n in named)], c["kl_seq"].clear))
        return [(["log", *(IN_WORDS[n] for n in named)], rows)]

    def sentence(self) -> str:
        """Return what can be told apart, log by log."""
        return " ".join(f"{name} (second) against {self.first}: {c.sentence()}" for name, c in self.others.items())

    def tables(self) -> list[Cells]:
        """Return one row for each estimate: the first log, and of each other the difference from it."""
        every = list(self.others.values())
        rows: list[Row] = [
            ([name, e.first.texts()[0], *(str(c[name].difference) for c in every)], any(c[name].clear for c in every))
            for name, e in every[0].estimates.items()
            if all(name in c.estimates for c in every)
        ]
        return [(["estimate", self.first, *(f"{name} - {self.first}" for name in self.others)], rows)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each log and estimate."""
        import pandas as pd

        return pd.concat([c.to_frame().assign(log=name) for name, c in self.others.items()], ignore_index=True)

    def notes(self) -> list[str]:
        """Return how the differences were taken."""
        return [f"{name}: {note}" for name, c in self.others.items() for note in c.notes()]


@overload
def compare(first: Logged, second: Logged, /, *, confidence: float = 0.95) -> Comparison: ...


@overload
def compare(
    first: Logged, second: Logged, third: Logged, /, *more: Logged, names: Sequence[str] = (), confidence: float = 0.95
) -> Comparisons: ...


def compare(
    first: Logged, *others: Logged, names: Sequence[str] = (), confidence: float = 0.95
) -> Comparison | Comparisons:
    """Estimate two logs and their differences, with intervals; of more logs, each against the first.

    Parameters
    ----------
    first, *others : TraceSet, Log or Summary
        A prompt that both answer (by id) is one unit, so that logs of the same prompts are compared prompt by prompt.
    names : sequence of str, optional
        What three logs or more are called, the first one first; ``log 1``, ``log 2`` without.
    confidence : float
        Nominal coverage of each interval by itself; they are asymptotic.

    Returns
    -------
    Comparison
        Of two logs; of more, Comparisons.

    Raises
    ------
    TraceError
        If a log is refused, or the rewards of the two have different ranges.
    TypeError
        For what is no log, and for one log alone.
    ValueError
        For names that are not one for each log.

    Examples
    --------
    >>> import bounds
    >>> log = bounds.example_traces()
    >>> c = compare(log, log)
    >>> c.prompts_of_both, c["kl_seq"].difference.value
    (24, 0.0)
    >>> list(compare(log, log, log, names=["bf16", "fp16", "fp32"]).others)
    ['fp16', 'fp32']
    """
    confidence = confidence_level(confidence)
    if not others:
        raise TypeError("compare needs two logs or more, got one")
    one = Summary.of(first)
    if len(others) == 1:
        return _two(one, Summary.of(others[0]), confidence)
    names = list(names) or [f"log {k + 1}" for k in range(len(others) + 1)]
    if len(set(names)) != len(names) or len(names) != len(others) + 1:
        refuse("names", f"{len(others) + 1} names that differ", names)
    found = (_two(one, Summary.of(log), confidence) for log in others)
    return Comparisons(names[0], dict(zip(names[1:], found, strict=True)))


def _two(a: Summary, b: Summary, confidence: float) -> Comparison:
    if a.reading.reward_range != b.reading.reward_range:
        raise TraceError(f"the logs have rewards in {a.reading.reward_range} and in {b.reading.reward_range}")
    of_a, of_b, prompts = _values(a), _values(b), _Prompts(a, b)
    compared = {
        name: Compared(
            clustered_mean(of_a[name], a.prompt, confidence),
            clustered_mean(of_b[name], b.prompt, confidence),
            prompts.difference(of_a[name], of_b[name], confidence),
        )
        for name in of_a
        if name in of_b
    }
    return Comparison(compared, prompts.of_both, {"first": findings(a), "second": findings(b)})


def _values(s: Summary) -> dict[str, FloatArray]:
    """Return what is compared, one value a response."""
    rewards = {"surrogate_gain": s.surrogate, "reward": s["reward"]} if "reward" in s else {}
    return {
        "kl_seq": kl_of_responses(s)[0],
        "tv_sum": s["tv_sum" if "tv_sum" in s else "shortfall_sum"],
        "kl_seq_k1": -s["log_ratio_sum"],
        "tv_seq": shortfall(s["log_ratio_sum"]),
        "worst_case_error": s.reward_spread * s["worst_case_error"],
        "ppl_gap": np.abs(s["log_ratio_sum"]) / s["length"],
        "max_k2_of_a_response": s["max_k2"],
        "mean_length": s["length"],
        **rewards,
    }


class _Prompts:
    """The prompts of two logs, and which of them are the same."""

    def __init__(self, a: Summary, b: Summary) -> None:
        self._logs = a, b
        keys = [s["prompt"][np.unique(s.prompt, return_index=True)[1]] for s in (a, b)]
        _, places = np.unique(np.concatenate(keys), return_inverse=True)
        self._places = np.split(places, [keys[0].size])
        self._all = int(places.max()) + 1
        self.of_both = keys[0].size + keys[1].size - self._all

    def difference(self, first: FloatArray, second: FloatArray, confidence: float) -> Interval:
        """Return second minus first; a prompt of both logs moves both means at once."""
        from scipy.special import stdtrit

        a, b = (prompt_means(v, s.prompt) for v, s in zip((first, second), self._logs, strict=True))
        value = float(b.mean() - a.mean())
        moves = np.zeros(self._all)
        for means, places, sign in ((a, self._places[0], -1.0), (b, self._places[1], 1.0)):
            n = means.size
            with np.errstate(invalid="ignore"):
                moves[places] += sign * (means - means.mean()) / math.sqrt(n * (n - 1)) if n > 1 else math.inf
        least = min(a.size, b.size)
        with np.errstate(invalid="ignore", over="ignore"):
            error = math.sqrt(float(np.square(moves).sum())) if least > 1 else math.inf
        margin = float(stdtrit(least - 1, (1.0 + confidence) / 2.0)) * error if math.isfinite(error) else math.inf
        ends = (value - margin, value + margin) if math.isfinite(value) else (-math.inf, math.inf)
        how = f"t, {a.size} and {b.size} prompts, {self.of_both} of both logs"
        return Interval(value, *ends, confidence, Standing.ESTIMATED, how)
