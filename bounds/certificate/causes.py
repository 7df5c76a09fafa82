"""Why a log may be as it is, by how well each cause fits it, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bounds.certificate.summary import Summary

_LEAST_FIT = 0.2  # causes that fit worse are not named
_MOST_NAMED = 3
_FIRST = 4  # tokens of a response at which another template shows
_VOCABULARY = 12.0  # a mean log-prob below minus this is worse than uniform over 160,000 tokens

#: Slopes of log theta - log roll over log roll where one of the two is a logarithm of another base.
BASES: Mapping[str, float] = MappingProxyType(
    {
        "train_logprobs are of base 10": 1.0 / math.log(10.0) - 1.0,
        "rollout_logprobs are of base 10": math.log(10.0) - 1.0,
        "train_logprobs are of base 2": 1.0 / math.log(2.0) - 1.0,
        "rollout_logprobs are of base 2": math.log(2.0) - 1.0,
    }
)


class Shape:
    """How d = log theta - log roll of the tokens of a log depends on x = log roll, on its sign and its place."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self.tokens = summary.tokens
        self.sums = summary.looks["temperature"].sums
        tops = summary.looks["ends"].tops
        self.least, self.largest = -tops["-d"][0], tops["d"][0]

    @cached_property
    def slope(self) -> float:
        """Slope of the regression of d on x; NaN where x is constant."""
        return self._joint("x", "d") / spread if (spread := self._joint("x", "x")) > 0.0 else math.nan

    @cached_property
    def explained(self) -> float:
        """Share of the variance of d that its regression on x explains."""
        scatter = self._joint("d", "d")
        return self.slope * self._joint("x", "d") / scatter if scatter > 0.0 and self._joint("x", "x") > 0.0 else 0.0

    @cached_property
    def alike(self) -> float:
        """Share of the variance of log theta that its regression on log roll explains."""
        x, d, joint = self._joint("x", "x"), self._joint("d", "d"), self._joint("x", "d")
        theta = x + 2.0 * joint + d
        return (x + joint) ** 2 / (x * theta) if x > 0.0 and theta > 0.0 else 1.0

    @cached_property
    def base(self) -> str:
        """Which column is of another base, if one is: then d is proportional to x."""
        origin = self.sums["d"] / self.sums["x"] if self.sums["x"] else math.nan
        fits = (b for b, of in BASES.items() if max(abs(self.slope - of), abs(origin - of)) < 0.02)
        return next(fits, "") if self.explained >= 0.5 else ""

    @cached_property
    def at_start(self) -> float:
        """Share of k3 at the first tokens of responses, beyond what falls to so many tokens."""
        by_position = self._summary.by_position()["k3"]
        tokens = min(1.0, _FIRST * len(self._summary) / self.tokens)
        share = by_position[:_FIRST].sum() / total if (total := by_position.sum()) > 0.0 else 0.0
        return max(0.0, float(share - tokens) / (1.0 - tokens)) if tokens < 1.0 else 0.0

    @property
    def mean_theta(self) -> float:
        """Mean log theta of the sampled tokens."""
        return (self.sums["x"] + self.sums["d"]) / self.tokens

    @cached_property
    def off_support(self) -> float:
        """Share of theta's mass off roll's support, by mean rho."""
        return -float(self._summary["surrogate_sum"].sum()) / self.tokens

    def seen(self, *checks: str) -> float:
        """Return how many tokens checks saw, as a share of the tokens that would miss from mean rho."""
        count = sum(self._summary.looks[c].seen.count for c in checks)
        return min(1.0, count / self.tokens / self.off_support) if self.off_support > 0.0 else float(count > 0)

    def _joint(self, a: str, b: str) -> float:
        return self.sums[a + b] - self.sums[a] * self.sums[b] / self.tokens


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, how well it fits (0 to 1), in words, and what to look at where it is the likeliest."""

    fit: Callable[[Shape], float]
    text: Callable[[Shape], str]
    look: str


def _said(text: str) -> Callable[[Shape], str]:
    return lambda shape: text


def _top_p(shape: Shape) -> float:
    """Under top-p or top-k every ratio is the mass that was left, between 1/2 and 1."""
    return 1.0 if -0.7 < shape.least <= shape.largest <= 1e-3 else 0.4 * (0.0 < shape.off_support < 0.5)


def _other_model(shape: Shape) -> float:
    return 1.0 if shape.mean_theta < -_VOCABULARY else 1.0 - shape.alike


def _noise(shape: Shape, least: float, most: float) -> float:
    """Return whether d is noise of such a size, which tells nothing of log roll."""
    size = math.sqrt(shape.sums["dd"] / shape.tokens)
    return 0.5 * (1.0 - shape.explained) if least <= size < most and shape.alike > 0.5 else 0.0


_TEMPERATURE = "the temperature of both engines, and whether log-probs are taken before it"
_WEIGHTS = "which weights and tokens the training engine scored"
_LOGARITHM = "which logarithm the export takes"

#: Every cause of two columns that are far apart.
CAUSES: tuple[Cause, ...] = (
    Cause(lambda s: 1.1 * bool(s.base), lambda s: s.base, _LOGARITHM),
    Cause(
        lambda s: s.explained * (not s.base) * (abs(s.slope) >= 0.01),
        lambda s: f"another temperature in one of the two (slope {s.slope:.3g} of the log ratio over log roll)",
        _TEMPERATURE,
    ),
    Cause(
        _top_p,
        _said("top-p or top-k sampling, logged before or after it in one of the two"),
        "top-p and top-k of the rollout, and whether its log-probs are taken before them",
    ),
    Cause(
        lambda s: 1.1 * s.seen("rollout zeros", "train zeros"),
        _said("tokens that no policy chose (forced by a template or a grammar, tool output, padding): mask them"),
        "the mask, and tokens whose log-prob is 0",
    ),
    Cause(
        lambda s: max(s.seen("rollout fillers", "train fillers"), s.seen("cut: log theta - log roll")),
        _said("values that were cut off or filled in"),
        "what the engines write for a missing value, and the trainer's clamps",
    ),
    Cause(
        lambda s: 0.3 * (s.off_support < -1e-3),
        _said("theta learned from these responses"),
        "the tokens and positions that carry most, and what theta learned from",
    ),
    Cause(
        lambda s: s.at_start,
        _said("another template or BOS token before the response"),
        "the first tokens that each engine was given",
    ),
    Cause(
        _other_model,
        lambda s: (
            "not the scores of this model at all (worse than uniform: weights, adapter or tokens)"
            if s.mean_theta < -_VOCABULARY
            else "another model or adapter, or tokens that do not belong together"
        ),
        _WEIGHTS,
    ),
    Cause(
        lambda s: _noise(s, 0.2, math.inf),
        _said("stale weights or a stale cache in one of the two engines"),
        "which weights each engine had",
    ),
    Cause(
        lambda s: _noise(s, 0.02, 0.2),
        _said("quantised weights or another kernel in one of the two engines"),
        "the precision of both engines",
    ),
)


def likely(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Return what two columns that are far apart may come from and what to look at, what fits this log best first.

    Examples
    --------
    >>> import bounds
    >>> from bounds.certificate.summary import Summary
    >>> likely(Summary.of(bounds.example_traces()))
    (('quantised weights or another kernel in one of the two engines', 'the precision of both engines'),)
    """
    shape = Shape(summary)
    with np.errstate(all="ignore"):
        fits = [(cause.fit(shape), cause) for cause in CAUSES]
    order = sorted((fc for fc in fits if fc[0] >= _LEAST_FIT), key=lambda fc: -fc[0])
    return tuple((cause.text(shape), cause.look) for _, cause in order[:_MOST_NAMED])


@dataclass(frozen=True, slots=True)
class Advice:
    """Likely causes of a finding, what to look at next, and a command that shows it.

    Where it has no causes, those of :func:`likely` are named; where it has nothing to look at, that of the likeliest.
    """

    look: str
    command: str
    causes: tuple[str, ...] = ()


_TOKENS = "trm-bounds explain LOG"
_READ = "trm-bounds formats"
_AGAIN = "trm-bounds certify LOG --full"

#: Advice for each kind of finding.
ADVICE: Mapping[str, Advice] = MappingProxyType(
    {
        "support_gap": Advice("", _TOKENS),
        "refuted": Advice("", _TOKENS),
        "contradiction": Advice("what was assumed", _AGAIN, ("the assumption does not hold",)),
        "copied": Advice(
            "whether the trainer recomputes log-probs",
            _READ,
            ("bypass mode: the trainer takes the rollout's log-probs for its own", "one column exported twice"),
        ),
        "copied_old": Advice(
            "which weights scored old_logprobs",
            _READ,
            ("one column exported twice", "weights that had not changed yet", "an engine that returns the sampler's"),
        ),
        "misaligned": Advice(
            "how the export cuts prompt and response",
            _READ,
            ("log-probs of the next token in one column", "a token dropped or added in one of the two"),
        ),
        "swapped": Advice("the order of rows in the export", _READ, ("a batch that was reordered in one of the two",)),
        "wrong_model": Advice(_WEIGHTS, _TOKENS),
        "censored": Advice(
            "the trainer's options for truncated importance sampling; log the log-probs before it",
            _TOKENS,
            ("a ratio that was truncated, from which log-probs were made", "log-probs clamped at a least value"),
        ),
        "nothing_recomputed": Advice(
            "whether the engine was asked for log-probs",
            _READ,
            ("the pass that computes them was skipped", "the engine writes 0 where it has none"),
        ),
        "repeated": Advice(
            "the rows that are named",
            _AGAIN,
            ("chunks of one response logged as responses", "a file or a step written twice", "forked rollouts"),
        ),
        "temperature": Advice(_TEMPERATURE, _TOKENS),
        "other_base": Advice(_LOGARITHM, _READ),
        "mixture": Advice("each step by itself", "trm-bounds steps LOG", ("steps or weight versions read together",)),
        "unequal_groups": Advice(
            "which prompts have fewer responses",
            _AGAIN,
            ("responses were dropped or failed", "prompts were sampled until they succeeded"),
        ),
        "filtered": Advice(
            "the trainer's options for dynamic sampling", _AGAIN, ("groups of equal rewards were dropped or redrawn",)
        ),
        "advantages": Advice(
            "which field the export takes for the reward", _READ, ("advantages in place of raw rewards",)
        ),
        "equal_rewards": Advice(
            "the reward of some responses",
            _AGAIN,
            ("a reward that failed", "prompts that are all too easy or too hard"),
        ),
        "forced_tokens": Advice(
            "the tokens at the positions that are named, and the mask",
            _TOKENS,
            ("tokens that were forced (template, grammar, tool output)", "padding or missing values filled with 0"),
        ),
        "padding": Advice("the mask of these responses", _TOKENS, ("padding counted as tokens", "tool output")),
        "fillers": Advice("the positions that are named", _TOKENS, ("a filler for a missing value",)),
        "exact_columns": Advice("direction and policies of the exact columns", _TOKENS),
        "impossible_column": Advice("direction and policies of the exact columns", _TOKENS),
        "heavy_tail": Advice("the tokens with the largest ratios", _TOKENS),
        "overflow": Advice("the responses with the largest ratios", _TOKENS),
        "reading": Advice("the files", _READ, ("how the files were found and joined",)),
        "left_out": Advice("the rows that are named", _AGAIN, ("empty responses", "a mask without a policy token")),
        "missing": Advice("the rows that are named", _AGAIN, ("values that the engine did not return",)),
        "ungrouped": Advice(
            "how many responses were sampled for each prompt",
            "trm-bounds certify LOG --group-size N",
            ("ids that name responses", "no id of the prompt in the export"),
        ),
        "train_policy_unknown": Advice("when train_logprobs were computed", _AGAIN, ("the log does not say it",)),
        "prompts_return": Advice(
            "each step by itself", "trm-bounds steps LOG", ("several epochs over one set of prompts",)
        ),
        "horizon": Advice("the generation cap of the run", "trm-bounds certify LOG --horizon T", ("no cap was given",)),
        "rounding": Advice(
            "the precision in which the engines compute log-probs", _TOKENS, ("log-probs of low precision",)
        ),
        "few_prompts": Advice("how many prompts would do", _AGAIN, ("a small log",)),
        "mask": Advice("what the mask keeps at other thresholds", "trm-bounds masks LOG", ("the threshold",)),
    }
)
