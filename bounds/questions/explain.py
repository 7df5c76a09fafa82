"""Where kl_seq comes from: by the chain rule it is a sum over tokens, so it can be split in any way."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, IntArray, confidence_level
from bounds._text import Cells, Row, near, quoted, span
from bounds.certificate.findings import Finding, findings
from bounds.certificate.kept import length_quarters
from bounds.certificate.summary import Summary
from bounds.divergence.rows import k3
from bounds.intervals import clustered_mean, clustered_ratio
from bounds.logs.batch import natural
from bounds.logs.traces import TraceSet
from bounds.questions.parity import ParityCheck, checklist
from bounds.questions.worst import Worst, WorstResponse, WorstToken, calls
from bounds.results import Interval, IntervalTable, Result

if TYPE_CHECKING:
    import pandas as pd

_TOP = 8  # tokens and prompts that are named
_OF_RESPONSES = ("length", "prompt")  # splits that are shown with everything else
_REST = re.compile(r"\(*all others\)*")
_EXACT = "the exact KL(roll||theta) at sampled contexts"
_BY_K3 = "k3 of the sampled tokens: KL(roll||theta), but for theta's mass where roll has none"
_PROBABILITIES = np.array([0.001, 0.01, 0.1, 0.5, 0.9, 0.99])


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """kl_seq, which bounds the error, split in several ways; the parts of a split sum to it (chain rule).

    Attributes
    ----------
    kl_seq : Interval
        Nats per response; ``of`` says what was added up: the exact column, or k3 of the sampled tokens.
    splits : mapping of name to IntervalTable
        By position, probability, token, length, prompt, and what else the log tells: the ``share`` of each part in
        kl_seq, its ``kl`` (nats per response), and the share of ``tokens`` that carry it. ``staleness``, where each
        token says which weights drew it: how many versions before the newest of its step (else of the log).
        ``call``, where responses are of several model calls, with tokens between them that a mask leaves out.
    tokens_of_50_percent, tokens_of_80_percent : float
        Least share of the tokens of this log that carries so much of kl_seq, to a relative 1e-4; NaN if it is 0.
    findings : tuple of Finding
        What is remarkable about the log.
    worst_tokens, worst_responses : tuples of WorstToken and WorstResponse
        Those that carry most, with their places, and percentiles of log theta - log roll.
    checks : tuple of ParityCheck
        What makes two engines disagree that should agree: how it was looked for, and whether it passed.
    """

    kl_seq: Interval
    splits: Mapping[str, IntervalTable]
    tokens_of_50_percent: float
    tokens_of_80_percent: float
    findings: tuple[Finding, ...]
    worst_tokens: tuple[WorstToken, ...] = ()
    worst_responses: tuple[WorstResponse, ...] = ()
    checks: tuple[ParityCheck, ...] = ()
    _texts: bool = False  # whether tokens are texts, which are shown in quotes: " the" and "the" are two

    def sentence(self) -> str:
        """Return the headline."""
        if not self.splits:
            return f"kl_seq = {self.kl_seq.texts()[0]}: there is nothing to split."
        kl = self.kl_seq.texts()[0]
        few, most = (f"{100 * share:.3g}%" for share in (self.tokens_of_50_percent, self.tokens_of_80_percent))
        return f"80% of kl_seq = {kl} nats a response comes from {most} of the tokens, half of it from {few}."

    def answer(self) -> Iterator[tuple[str, str]]:
        """Yield how few tokens carry most, which part of each split, and which checks of parity fail."""
        if not self.splits:
            yield "NOTHING", self.sentence()
            return
        few, most = (f"{100 * share:.3g}%" for share in (self.tokens_of_50_percent, self.tokens_of_80_percent))
        kl = self.kl_seq.texts()[0]
        yield f"{most}", f"of the tokens carry 80% of the KL of a response ({kl} nats), {few} carry half of it"
        for name, label, words in (("position", "  where", "positions"), ("probability", "  which", "probabilities")):
            if (table := self.splits.get(name)) is not None:
                part = max(table, key=lambda part: table.estimate(part, "share").value)
                share, tokens = table.estimate(part, "share").value, table.facts[part]["tokens"]
                yield label, f"{words} {part} carry {share:.1%} of it, with {tokens:.1%} of the tokens"
        yield "  parity", self._parity()

    def _parity(self) -> str:
        """Say which checks of parity failed, and which could not be made."""
        failed, unknown = ([c.what for c in self.checks if c.passed is passed] for passed in (False, None))
        said = f"{', '.join(failed)} failed" if failed else "no check fails"
        return said + (f"; not checked: {', '.join(unknown)}" if unknown else "")

    def short(self) -> list[Cells]:
        """Return the splits by what a token is and where it stands, and the worst tokens."""
        return [*(self._split_cells(name) for name in self.splits if name not in _OF_RESPONSES), *self._worst()[:1]]

    def tables(self) -> list[Cells]:
        """Return one table for each split, what carries most, and the checks of parity."""
        return [*map(self._split_cells, self.splits), *self._worst(), *self._checked()]

    def _split_cells(self, name: str) -> Cells:
        titles, rows = self.splits[name].cells(facts={"kl": "nats a response", "tokens": "share of the tokens"})
        if name == "token" and self._texts:
            rows = [([_in_quotes(cells[0]), *cells[1:]], marked) for cells, marked in rows]
        return [f"by {name.replace('_', ' ')}", *titles[1:]], rows

    def _worst(self) -> list[Cells]:
        if not self.worst_tokens:
            return []
        shown = quoted if self._texts else str
        tokens: list[Row] = [
            ([f"{t.where}, {t.position}", near(t.share), near(t.rollout_logprob), near(t.train_logprob),
              shown(t.token), " ".join(map(shown, t.before))], False)
            for t in self.worst_tokens
        ]  # fmt: skip
        responses: list[Row] = [
            ([r.where, near(r.share), str(r.tokens), r.prompt, *map(near, r.d.values())], False)
            for r in self.worst_responses
        ]
        percents = [f"d, {p}" for p in self.worst_responses[0].d]
        return [
            (["worst tokens, position", "share", "log roll", "log theta", "token", "after"], tokens),
            (["worst responses", "share", "tokens", "prompt", *percents], responses),
        ]

    def _checked(self) -> list[Cells]:
        answers = {True: "yes", False: "no", None: "not checked"}
        rows: list[Row] = [([c.what, answers[c.passed], c.how], False) for c in self.checks]
        return [(["parity of", "passed", "how"], rows)] if rows else []

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each part of each split."""
        import pandas as pd

        frames = [table.to_frame().assign(split=name) for name, table in self.splits.items()]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def notes(self) -> list[str]:
        """Return what was added up."""
        level = f"{100 * self.kl_seq.confidence:.6g}%"
        return [f"Added up: {self.kl_seq.of}. Intervals ({level}) are clustered by prompt and asymptotic."]


def explain(log: TraceSet | Iterable[TraceSet] | Summary, *, confidence: float = 0.95) -> Explanation:
    """Split kl_seq by position, probability, token, length, prompt, step, weight version and environment.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Responses of the rollout policy; the exact ``kl`` column is used where logged, else k3. The log is read two
        times, or three if it has tokens; some 40 numbers are kept of each prompt, and one of each distinct token.
    confidence : float
        Nominal coverage of the shares' intervals (prompt-clustered, asymptotic).

    Returns
    -------
    Explanation

    Raises
    ------
    TraceError
        If the log is refused.

    Examples
    --------
    >>> import bounds
    >>> e = explain(bounds.example_traces())
    >>> round(sum(e.splits["position"].values("share")), 9)
    1.0
    """
    confidence = confidence_level(confidence)
    summary = Summary.of(log)
    kl, of = (summary["kl_sum"], _EXACT) if "kl_sum" in summary else (summary["k3_sum"], _BY_K3)
    kl_seq = replace(clustered_mean(kl, summary.prompt, confidence, low=0.0), of=of)
    if not 0.0 < kl_seq.value < math.inf:
        found = findings(summary)
        return Explanation(kl_seq, {}, math.nan, math.nan, found, checks=checklist(summary, found))
    whole = _Whole(summary, kl, kl_seq)
    seen = _Seen(_largest(whole.by_prompt))
    splits = whole.by_token({"position": _positions(summary), "probability": _probabilities()}, seen)
    by_token = seen.tokens() | seen.versions.splits() | {"call": (seen.worst.call_names, calls)}
    by_token = {name: split for name, split in by_token.items() if len(split[0]) > 1 or name != "call"}
    if by_token:
        splits |= whole.by_token(by_token)
    splits |= {
        "length": whole.by_response(*length_quarters(summary["length"])),
        "prompt": _of_this_log(whole.by_response(*seen.prompts(summary.prompt))),
        **{n: whole.by_response(*summary.labels_in_order(n)) for n in summary.labels if n not in by_token},
    }
    few, most = (seen.concentration.tokens_of(share) for share in (0.5, 0.8))
    splits = {name: table for name, table in splits.items() if len(table) > 1}
    found = findings(summary)
    worst = seen.worst.tokens, seen.worst.responses
    return Explanation(kl_seq, splits, few, most, found, *worst, checklist(summary, found), seen.texts)


#: Labels of parts, and the part that each token of some responses is in.
_Split = tuple[Sequence[str], Callable[[TraceSet], IntArray]]


class _Whole:
    """kl_seq as the mean over prompts of what each has, and how it is split."""

    def __init__(self, summary: Summary, kl: FloatArray, kl_seq: Interval) -> None:
        self._summary, self._kl, self._kl_seq = summary, kl, kl_seq
        self._size = np.bincount(summary.prompt).astype(np.float64)
        self.by_prompt: FloatArray = np.bincount(summary.prompt, weights=kl) / self._size

    def by_response(self, labels: Sequence[str], codes: IntArray) -> IntervalTable:
        """Split by the part that each response [N] is in."""
        tokens: FloatArray = np.bincount(codes, weights=self._summary["length"]).astype(np.float64)
        parts = (np.where(codes == k, self._kl, 0.0) for k in range(len(labels)))
        sums = (np.bincount(self._summary.prompt, weights=kl).astype(np.float64) for kl in parts)
        return self._table(labels, sums, tokens)

    def by_token(self, splits: Mapping[str, _Split], seen: _Seen | None = None) -> dict[str, IntervalTable]:
        """Split by the part that each token is in: the log is read again."""
        sums = {name: np.zeros((len(labels), self._size.size)) for name, (labels, _) in splits.items()}
        tokens = {name: np.zeros(len(labels)) for name, (labels, _) in splits.items()}
        share = 1.0 / (self._size * self._size.size * self._kl_seq.value)  # of kl_seq in a nat of a prompt
        for part, prompt in self._summary.again_by_prompt():
            kl = part.exact["kl"] if "kl" in part.exact else k3(part.log_ratio)
            by_token = np.repeat(prompt, part.lengths)
            for name, (_, codes_of) in splits.items():
                codes = codes_of(part)
                np.add.at(sums[name], (codes, by_token), kl)
                tokens[name] += np.bincount(codes, minlength=tokens[name].size)
            if seen is not None:
                seen.see(part, prompt, share[by_token] * kl)
        return {name: self._table(labels, sums[name], tokens[name]) for name, (labels, _) in splits.items()}

    def _table(self, labels: Sequence[str], sums: Iterable[FloatArray], tokens: FloatArray) -> IntervalTable:
        """Return the shares of parts, from the kl_seq of each prompt's responses in each part."""
        rows, facts = {}, {}
        for label, kl, carrying in zip(labels, sums, tokens / tokens.sum(), strict=True):
            mine = kl / self._size
            share = clustered_ratio(mine, self.by_prompt, np.arange(mine.size), self._kl_seq.confidence, low=0.0)
            rows[label] = {"share": replace(share, high=min(share.high, 1.0))}
            facts[label] = {"kl": float(mine.mean()), "tokens": float(carrying)}
        return IntervalTable("part", rows, facts)


def _of_this_log(table: IntervalTable) -> IntervalTable:
    """Return shares without intervals: a named prompt is no random one."""
    shares = {label: table.estimate(label, "share") for label in table}
    exact = {n: {"share": replace(i, low=i.value, high=i.value, method="of this log")} for n, i in shares.items()}
    return replace(table, rows=exact)


def _positions(summary: Summary) -> _Split:
    """Split at powers of two: 0, 1, 2-3, 4-7, ..."""
    longest = int(summary["length"].max())
    edges = [0, *(2 ** np.arange((longest - 1).bit_length() + 1)).tolist()]
    labels = [span(a, b - 1) for a, b in itertools.pairwise(edges)]
    return labels, (lambda part: np.frexp(part.order.astype(np.float64))[1].astype(np.int64))


def _probabilities() -> _Split:
    """Split by the probability of the sampled token under the rollout policy."""
    edges = ["0", *(f"{p:g}" for p in _PROBABILITIES), "1"]
    labels = [f"{a} to {b}" for a, b in itertools.pairwise(edges)]
    return labels, (lambda part: np.searchsorted(_PROBABILITIES, np.exp(part.rollout), side="right"))


def _in_quotes(label: str) -> str:
    return label if _REST.fullmatch(label) else quoted(label)


def _largest(totals: FloatArray) -> IntArray:
    """Return the places of the largest, largest first."""
    return np.argsort(-totals, kind="stable")[:_TOP]


def _with_rest(names: list[str], all_named: bool) -> list[str]:
    """Return names, and one for all others that is none of them."""
    rest = "all others"
    while rest in names:
        rest = f"({rest})"
    return names if all_named else [*names, rest]


class _Seen:
    """What is seen of the tokens of a log beside the splits: names of prompts, which tokens, and how few."""

    def __init__(self, top_prompts: IntArray) -> None:
        self.concentration = _Concentration()
        self.versions = _Versions()
        self.worst = Worst()
        self._top_prompts = top_prompts
        self._names: dict[int, str] = {}
        self._with_tokens = True
        self._tokens: npt.NDArray[Any] = np.zeros(0, dtype=np.int64)  # ids or texts, each once
        self._shares: FloatArray = np.zeros(0)  # of kl_seq, of each

    def see(self, part: TraceSet, prompt: IntArray, share: FloatArray) -> None:
        """Look at a part: the prompt number of each response [N], the share of kl_seq of each token."""
        for k in np.flatnonzero(np.isin(prompt, self._top_prompts)).tolist():
            self._names[int(prompt[k])] = part.prompt_ids[part.prompt[k]]
        self.concentration.add(share)
        self.versions.see(part)
        self.worst.see(part, share)
        if part.tokens is None:
            self._with_tokens = False
        if part.tokens is not None and self._with_tokens:
            tokens, codes = np.unique(part.tokens, return_inverse=True)
            shares = np.concatenate([self._shares, np.bincount(codes, weights=share)])
            self._tokens, codes = np.unique(np.concatenate([self._tokens, tokens]), return_inverse=True)
            self._shares = np.bincount(codes, weights=shares).astype(np.float64)

    @property
    def texts(self) -> bool:
        """Whether tokens are texts, no ids."""
        return self._tokens.dtype.kind in "OSU"

    def prompts(self, prompt: IntArray) -> tuple[list[str], IntArray]:
        """Return the names of the prompts that carry most, and which of them each response [N] is of."""
        top = self._top_prompts
        rank = np.full(int(prompt.max()) + 1, top.size)
        rank[top] = np.arange(top.size)
        return _with_rest([self._names[k] for k in top.tolist()], top.size == rank.size), rank[prompt]

    def tokens(self) -> dict[str, _Split]:
        """Return the split by the tokens that carry most, if every response says its tokens."""
        if not self._with_tokens:
            return {}
        top = _largest(self._shares)
        order = np.argsort(top)
        named = self._tokens[top[order]]  # sorted

        def codes(part: TraceSet) -> IntArray:
            tokens = np.asarray(part.tokens).astype(named.dtype)
            places = np.minimum(np.searchsorted(named, tokens), top.size - 1)
            return np.where(named[places] == tokens, order[places], top.size)

        return {
            "token": (_with_rest([str(token) for token in self._tokens[top]], top.size == self._tokens.size), codes)
        }


class _Versions:
    """Which weights drew the tokens of each step, where each token says it."""

    def __init__(self) -> None:
        self._of_step: dict[str, set[str]] = {}
        self._every = True

    def see(self, part: TraceSet) -> None:
        """Look at a part."""
        if part.versions is None:
            self._every = False
            return
        steps, codes = self._steps(part)
        for k, step in enumerate(steps):
            self._of_step.setdefault(step, set()).update(map(str, np.unique(part.versions[codes == k])))

    def splits(self) -> dict[str, _Split]:
        """Return the splits by version and, where versions are numbers, by how old they are."""
        if not self._every:
            return {}
        names = sorted(set().union(*self._of_step.values()), key=natural)
        numbers = {name: k for k, name in enumerate(names)}

        def version(part: TraceSet) -> IntArray:
            found, codes = np.unique(np.asarray(part.versions).astype(str), return_inverse=True)
            return np.array([numbers[name] for name in found.tolist()])[codes]

        if not all(re.fullmatch(r"-?[0-9]{1,15}", name) for name in names):
            return {"weight_version": (names, version)}
        newest = {step: max(map(int, versions)) for step, versions in self._of_step.items()}
        ages = sorted({newest[step] - int(v) for step, versions in self._of_step.items() for v in versions})

        def age(part: TraceSet) -> IntArray:
            steps, codes = self._steps(part)
            latest = np.array([newest[step] for step in steps])[codes]
            return np.searchsorted(ages, latest - np.asarray(part.versions).astype(np.int64))

        return {"weight_version": (names, version), "staleness": ([str(a) for a in ages], age)}

    @staticmethod
    def _steps(part: TraceSet) -> tuple[list[str], IntArray]:
        """Return the steps of a part, and which of them each token is of."""
        steps, codes = np.unique(part.labels.get("step", ("",) * len(part)), return_inverse=True)
        return steps.tolist(), np.repeat(codes, part.lengths)


class _Concentration:
    """How few tokens carry most of kl_seq, from a histogram of their shares in place of sorting them.

    A bucket holds the floats that agree in their first 14 binary digits, so that the tokens of one differ by at most
    2^-14 = 6e-5 of their share. Only the bucket that a count ends in is not counted exactly: its tokens are taken to
    have their mean, so that the count is right to a relative 6e-5. Shares below 2^-60 are counted as they were that.
    """

    _DROPPED, _LEAST = 52 - 14, -60

    def __init__(self) -> None:
        self._first = int(np.float64(2.0**self._LEAST).view(np.int64)) >> self._DROPPED
        buckets = (int(np.float64(2.0).view(np.int64)) >> self._DROPPED) - self._first
        self._tokens, self._mass = np.zeros(buckets), np.zeros(buckets)

    def add(self, shares: FloatArray) -> None:
        """Add tokens by their shares of the whole, which are in [0, 1]."""
        floats = np.clip(shares, 2.0**self._LEAST, 1.0)
        bucket = (floats.view(np.int64) >> self._DROPPED) - self._first
        self._tokens += np.bincount(bucket, minlength=self._tokens.size)
        self._mass += np.bincount(bucket, weights=shares, minlength=self._mass.size)

    def tokens_of(self, share: float) -> float:
        """Return the least share of the tokens that carries so much."""
        tokens, mass = self._tokens[::-1], self._mass[::-1]
        reached = np.cumsum(mass)
        target = share * reached[-1] * (1.0 - 1e-12)
        k = int(np.searchsorted(reached, target))
        before, missing = tokens[:k].sum(), target - (reached[k - 1] if k else 0.0)
        last = math.ceil(missing / mass[k] * tokens[k] * (1.0 - 1e-12))
        return float((before + last) / tokens.sum())
