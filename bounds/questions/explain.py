"""Where kl_seq comes from: by the chain rule it is a sum over tokens, so it can be split in any way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from bounds._checks import FloatArray, IntArray, confidence_level
from bounds.certificate.explanation import Explanation, Part
from bounds.divergence.rows import k3
from bounds.intervals import clustered_mean, clustered_ratio
from bounds.logs.batch import LABELS
from bounds.logs.traces import TraceSet
from bounds.results import Interval

_TOP = 8  # tokens and prompts that are named
_BY_K3 = "k3 of the sampled tokens: KL(roll||theta), but for theta's mass where roll has none"
_PROBABILITIES = np.array([0.001, 0.01, 0.1, 0.5, 0.9, 0.99])


def explain(traces: TraceSet | Iterable[TraceSet], *, confidence: float = 0.95) -> Explanation:
    """Split kl_seq by position, probability, token, length, prompt, step, weight version and environment.

    Parameters
    ----------
    traces : TraceSet, or several parts of a log
        Responses of the rollout policy; the exact ``kl`` column is used where logged, else k3.
    confidence : float
        Nominal coverage of the shares' intervals (prompt-clustered, asymptotic).

    Returns
    -------
    Explanation

    Examples
    --------
    >>> import bounds
    >>> e = explain(bounds.example_traces())
    >>> round(sum(p.kl for p in e.splits["position"]) / e.kl_seq.value, 9)
    1.0
    """
    confidence = confidence_level(confidence)
    parts = [traces] if isinstance(traces, TraceSet) else list(traces)
    whole = _Whole(parts)
    kl_seq = clustered_mean(whole.kl, whole.prompt, confidence, low=0.0)
    how = "the exact KL(roll||theta) at sampled contexts" if whole.exact else _BY_K3
    splits = {}
    for name, split in _SPLITS.items():
        found = split(whole) if 0.0 < kl_seq.value < math.inf else None
        if found is not None:
            labels, codes, by_token = found
            if len(labels) > 1:
                splits[name] = whole.parts(labels, codes, by_token, confidence)
    if "prompt" in splits:  # a named prompt is no random one: what is said of it is said of this log
        splits["prompt"] = tuple(replace(p, share=_exactly(p.share)) for p in splits["prompt"])
    half, most = whole.concentration(0.5), whole.concentration(0.8)
    return Explanation(replace(kl_seq, method=f"{how}; {kl_seq.method}"), how, splits, half, most)


#: Labels, the part's number of each token or response, and whether it is of tokens.
_Split = tuple[Sequence[str], IntArray, bool]


class _Whole:
    """The divergence of each token of a log, and of each response."""

    def __init__(self, parts: Sequence[TraceSet]) -> None:
        self.traces = parts
        self.exact = "kl" in parts[0].exact
        self.tokens = np.concatenate([p.exact["kl"] if self.exact else k3(p.log_ratio) for p in parts])
        self.lengths = np.concatenate([p.lengths for p in parts])
        self.response = np.repeat(np.arange(self.lengths.size), self.lengths)
        self.kl: FloatArray = np.bincount(self.response, weights=self.tokens).astype(np.float64)
        self.names = [name for p in parts for name in np.array(p.prompt_ids, dtype=object)[p.prompt]]
        keys = {name: k for k, name in enumerate(dict.fromkeys(self.names))}
        self.prompt = np.array([keys[name] for name in self.names])
        size = np.bincount(self.prompt)
        self.weight = self.lengths.size / (size[self.prompt] * size.size)  # means over prompts of means over responses

    def parts(self, labels: Sequence[str], codes: IntArray, by_token: bool, confidence: float) -> tuple[Part, ...]:
        """The parts in the order of the labels."""
        n = self.lengths.size
        token_codes = codes if by_token else codes[self.response]
        count = np.bincount(token_codes, minlength=len(labels)) / token_codes.size
        result = []
        for k, label in enumerate(labels):
            mine = np.bincount(self.response, weights=np.where(token_codes == k, self.tokens, 0.0), minlength=n)
            share = clustered_ratio(self.weight * mine, self.weight * self.kl, self.prompt, confidence, low=0.0)
            result.append(Part(label, float((self.weight * mine).mean()), _capped(share), float(count[k])))
        return tuple(result)

    def concentration(self, share: float) -> float:
        """The least share of tokens that carries so much of kl_seq."""
        mass = np.cumsum(np.sort(self.weight[self.response] * self.tokens)[::-1])
        return float((np.searchsorted(mass, share * mass[-1] * (1.0 - 1e-12)) + 1) / mass.size)


def _capped(share: Interval) -> Interval:
    return replace(share, high=min(share.high, 1.0))


def _exactly(share: Interval) -> Interval:
    return replace(share, low=share.value, high=share.value, method="of this log")


def _by_position(w: _Whole) -> _Split:
    """Powers of two: 0, 1, 2-3, 4-7, ..."""
    order = np.concatenate([p.order for p in w.traces])
    codes = np.frexp(order.astype(np.float64))[1].astype(np.int64)
    edges = [0, *(2 ** np.arange(int(codes.max()) + 1))]
    return [_range(a, b - 1) for a, b in itertools.pairwise(edges)], codes, True


def _by_probability(w: _Whole) -> _Split:
    """Of the sampled token under the rollout policy."""
    codes = np.searchsorted(_PROBABILITIES, np.exp(np.concatenate([p.rollout for p in w.traces])), side="right")
    edges = ["0", *(f"{p:g}" for p in _PROBABILITIES), "1"]
    return [f"{a} to {b}" for a, b in itertools.pairwise(edges)], codes, True


def _by_token(w: _Whole) -> _Split | None:
    """The tokens that carry most; the others together."""
    if any(p.tokens is None for p in w.traces):
        return None
    ids, codes = np.unique(np.concatenate([p.tokens for p in w.traces if p.tokens is not None]), return_inverse=True)
    return _largest([str(t) for t in ids], codes, w.weight[w.response] * w.tokens, "all others", True)


def _by_prompt(w: _Whole) -> _Split:
    """The prompts that carry most; the others together."""
    names = list(dict.fromkeys(w.names))
    return _largest(names, w.prompt, w.weight * w.kl, "all others", False)


def _largest(names: list[str], codes: IntArray, weights: FloatArray, rest: str, by_token: bool) -> _Split:
    order = np.argsort(-np.bincount(codes, weights=weights, minlength=len(names)), kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.minimum(np.arange(order.size), _TOP)
    labels = [names[k] for k in order[:_TOP]] + ([rest] if len(names) > _TOP else [])
    return labels, rank[codes], by_token


def _by_length(w: _Whole) -> _Split:
    """Quarters of the responses."""
    edges = np.unique(np.quantile(w.lengths, [0.25, 0.5, 0.75], method="lower"))
    quarter = np.unique(np.searchsorted(edges, w.lengths), return_inverse=True)[1]
    labels = [
        _range(int(w.lengths[quarter == k].min()), int(w.lengths[quarter == k].max()))
        for k in range(int(quarter.max()) + 1)
    ]
    return labels, quarter, False


def _by_label(name: str) -> Callable[[_Whole], _Split | None]:
    def split(w: _Whole) -> _Split | None:
        if any(name not in p.labels for p in w.traces):
            return None
        texts = [text for p in w.traces for text in p.labels[name]]
        order = sorted(set(texts), key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0, text))
        numbers = {text: k for k, text in enumerate(order)}
        return order, np.array([numbers[text] for text in texts]), False

    return split


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}-{high}"


_SPLITS: dict[str, Callable[[_Whole], _Split | None]] = {
    "position": _by_position,
    "probability": _by_probability,
    "token": _by_token,
    "length": _by_length,
    "prompt": _by_prompt,
    **{name: _by_label(name) for name in LABELS},
}
