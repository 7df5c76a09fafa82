"""Masks: which responses a trust region keeps, in a form of our own and in the names that trainers use.

A mask is a comma of criteria, all of which must hold:

=================================================  ==================================================================
``seq_max_k2<=0.05``, ``seq_max_kl<=0.01``         TRM-Max, on sampled tokens and on the full vocabulary
``seq_mean_k3<=0.001``, ``seq_mean_kl<=0.001``     TRM-Avg, likewise; both with a comma between them: combined
``ln_trm(T=4096,epsilon=5e-3,delta=1e-4)<=0.03``   LN-TRM, T the generation cap
``seq_mean_ratio_deviation<=0.05``                 SER
``seq_mean_k1=0.999_1.001``                        verl: bounds on the geometric mean of roll/theta
``seq_product_ratio<=3``, ``seq_min_ratio>=1e-4``  other trainers: bounds on theta/roll, either end may be absent
``token_k2<=0.05``, ``token_ratio=0.5_5``          drops tokens, not responses
``clip_token_ratio<=2``                            truncates a weight (TIS), drops nothing
``off_policy_gap<=1e-4``                            off-policy sequence masking: advantage below 0, and a larger mean k1
``verl:rollout_rs=seq_mean_k3 ...``                a trainer's own options, see :meth:`bounds.Mask.from_trainer`
=================================================  ==================================================================

:mod:`bounds.masks.statistics` defines the statistics. Only criteria that drop whole responses are masks M(x, y);
guarantees speak of those. What drops or reweighs tokens changes the objective instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from bounds._checks import BoolArray, FloatArray, IntArray, array, parse_number, refuse, unknown
from bounds.masks.statistics import (
    OFF_POLICY,
    STATISTICS,
    TOKEN,
    TOKEN_STATISTICS,
    Tokens,
    TokenStatistic,
    counted,
    exact_text,
    ln_trm_constants,
    pooled,
    threshold,
)
from bounds.masks.trainers import TRAINERS, in_own_form, options_of

__all__ = ["PAPER", "STATISTICS", "TOKEN_STATISTICS", "Criterion", "Mask", "pooled"]

#: The masks of the paper's experiments (2512.23075): each alone, and both, looser, together.
PAPER: Mapping[str, str] = {
    "TRM-Max": "seq_max_k2<=0.05",
    "TRM-Avg": "seq_mean_k3<=0.001",
    "TRM-Max and TRM-Avg": "seq_max_k2<=0.1,seq_mean_k3<=0.002",
}

_CRITERION = re.compile(r"(?P<name>ln_trm\([^()]*\)|\w+)\s*(?P<sign><=|>=|=)\s*(?P<value>\S+)")
_COMMA = re.compile(r",(?![^()]*\))")
_CLIP = "clip_"
_LOOKS_LIKE_RATIO = 0.9  # a mean divergence of a token that large was meant as a bound on a ratio
_ONE_END = {"seq_max_ratio": "<=", "seq_min_ratio": ">="}  # the other end is no trust region


@dataclass(frozen=True, slots=True)
class Criterion:
    """A statistic and the closed range [low, high] that it must lie in; an absent end is infinite.

    ``clips``: the statistic is a weight that is truncated to the range, and nothing is dropped.
    """

    statistic: str
    low: float
    high: float
    clips: bool = False

    def __str__(self) -> str:
        low, high = exact_text(self.low), exact_text(self.high)
        name = _CLIP * self.clips + self.statistic
        if self._two_sided:
            return f"{name}={low}_{high}"
        return f"{name}<={high}" if math.isinf(self.low) else f"{name}>={low}"

    @property
    def _token(self) -> TokenStatistic:
        return _token_of(self.statistic)

    @property
    def _two_sided(self) -> bool:
        return -math.inf < self.low and self.high < math.inf

    @property
    def of_tokens(self) -> bool:
        """Whether it speaks of single tokens."""
        return self.statistic in TOKEN_STATISTICS

    @property
    def drops_responses(self) -> bool:
        """Whether it is a criterion of a mask M(x, y): what does not hold drops the whole response."""
        return not (self.of_tokens or self.clips)

    @property
    def by_advantage(self) -> bool:
        """Whether ``high`` holds where the advantage is positive, and ``low`` where it is not."""
        return self.statistic.endswith("_by_advantage")

    @property
    def needs_advantage(self) -> bool:
        """Whether it looks at the advantage."""
        return self.by_advantage or self.statistic == OFF_POLICY

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the statistics of a response that it needs: of tokens, how many are below and above."""
        return counted(self.statistic, self.low, self.high) if self.of_tokens else (self.statistic,)

    @property
    def violation(self) -> tuple[str, ...]:
        """For a maximum or minimum over tokens, which tokens violate it: names as in :attr:`columns`."""
        pool, token = STATISTICS.get(self.statistic, ("", ""))
        return counted(f"token_{token}", self.low, self.high) if pool in ("max", "min") else ()

    @classmethod
    def parse(cls, text: str, *, sure: bool = False) -> Self:
        """Read one criterion; a threshold of the wrong kind is refused with the likely meant one.

        ``sure``: a mean divergence as large as a ratio is meant.
        """
        bare = text.strip()
        clips = bare.startswith(_CLIP)
        match = _CRITERION.fullmatch(bare.removeprefix(_CLIP))
        if match is None:
            meant = re.sub(r"([<>])(?!=)", r"\1=", bare)
            hint = (
                f"did you mean {meant}?"
                if meant != bare and _CRITERION.fullmatch(meant)
                else "for example seq_max_k2<=0.05"
            )
            raise ValueError(f"mask criterion must be NAME<=NUMBER or NAME=LOW_HIGH, got {bare!r} ({hint})")
        name, value = match["name"], match["value"]
        if name.startswith("ln_trm("):
            name = _canonical(name)
        elif name not in (*STATISTICS, *TOKEN_STATISTICS):
            raise ValueError(unknown("mask statistic", name, (*STATISTICS, *TOKEN_STATISTICS)))
        if clips and not name.endswith("_ratio"):
            raise ValueError(f"clip_ truncates a ratio such as clip_token_ratio<=2, got {bare!r}")
        return cls(name, *_range(name, match["sign"], value, sure), clips)

    def holds(self, statistic: FloatArray) -> BoolArray:
        """Return whether it holds, for each value of its statistic (of its logarithm, for a ratio)."""
        low, high = self.limits
        return np.asarray((statistic <= high) & (statistic >= low))

    @property
    def limits(self) -> tuple[float, float]:
        """What its statistic (the logarithm of it, for a ratio) must lie between; an absent end is infinite."""
        return threshold(self._token, self.low), threshold(self._token, self.high)

    def reach(self, statistic: FloatArray) -> FloatArray:
        """Return how far each value is from agreement: the threshold (of both ends) at which it would just hold."""
        if not self._token.logs:
            return statistic
        if self._two_sided:
            statistic = np.abs(statistic)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(statistic if self.high < math.inf else -statistic))

    def at(self, reach: float) -> Criterion | None:
        """Return the criterion of this kind with that threshold; None where it would be at agreement, or reject it."""
        if not self._token.centre < reach < math.inf:
            return None
        low = self.low if math.isinf(self.low) else 1.0 / reach
        return Criterion(self.statistic, low, self.high if math.isinf(self.high) else reach, self.clips)


@dataclass(frozen=True, slots=True)
class Mask:
    """Criteria that must all hold; ``aside`` are options of a trainer that are no part of a mask, NAME=VALUE."""

    criteria: tuple[Criterion, ...]
    aside: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.criteria, tuple) or not all(isinstance(c, Criterion) for c in self.criteria):
            raise TypeError(f"criteria must be a tuple of Criterion (Mask.parse reads text), got {self.criteria!r:.60}")

    def __str__(self) -> str:
        return ",".join(map(str, self.criteria))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a comma of criteria, or ``TRAINER:OPTION=VALUE ...`` with a trainer's own option names.

        Returns
        -------
        Mask

        Raises
        ------
        ValueError
            An unknown statistic, trainer or option, or a threshold that cannot be meant.

        Examples
        --------
        >>> str(Mask.parse("seq_max_k2 <= 0.05, seq_mean_k3<=0.001"))
        'seq_max_k2<=0.05,seq_mean_k3<=0.001'
        >>> str(Mask.parse("verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001"))
        'seq_mean_k3<=0.001'
        """
        if not isinstance(text, str):
            raise TypeError(f"mask must be a string such as 'seq_max_k2<=0.05', got {text!r:.60}")
        trainer, colon, options = text.partition(":")
        if colon:
            return cls.from_trainer(trainer, **options_of(options))
        return cls(tuple(Criterion.parse(part) for part in _COMMA.split(text)))

    @classmethod
    def from_trainer(cls, trainer: str, **options: Any) -> Self:
        """Read the rule that a trainer applies from its own option names; ``str`` shows it in our form.

        Parameters
        ----------
        trainer : str
            One of :data:`bounds.masks.trainers.TRAINERS`; that module says which options, and what their sources
            compute.
        **options
            As the trainer takes them, numbers, text, or a block of them as a mapping. A rule that is not asked for
            is off; bounds that are left out have the trainer's defaults. Options of the trainer that are no part
            of a mask stand in ``aside``.

        Returns
        -------
        Mask

        Raises
        ------
        ValueError
            An unknown trainer or option, or a threshold that cannot be meant.

        Examples
        --------
        >>> str(Mask.from_trainer("skyrl", sequence_mask_metric="geometric", geo_mask_high=1.02))
        'seq_geometric_ratio=0.99_1.02'
        """
        name = str(trainer).strip().lower().replace("_", "-")
        if name not in TRAINERS:
            raise ValueError(unknown("trainer", trainer, TRAINERS))
        own = in_own_form(name, options)
        try:
            return cls(tuple(Criterion.parse(text, sure=own.sure) for text in own.criteria), own.aside)
        except ValueError as error:
            raise ValueError(f"{name} would apply {','.join(own.criteria)}: {error}") from None

    def keep(
        self,
        log_ratio: FloatArray,
        starts: IntArray,
        kl: FloatArray | None = None,
        *,
        rollout: FloatArray | None = None,
        advantage: FloatArray | None = None,
    ) -> BoolArray:
        """Return which responses [N] it keeps.

        Parameters
        ----------
        log_ratio : array [tokens]
            log theta - log roll of the policy tokens of all responses, one after another.
        starts : array [N+1]
            Where each response starts; no response is empty.
        kl : array [tokens], optional
            Exact KL(roll||theta) at each context.
        rollout : array [tokens], optional
            log roll, for what looks at probabilities (``binary_kl``, ``binary_tv``, ``shift``).
        advantage : array [N], optional
            That of each response, for off-policy sequence masking.

        Returns
        -------
        array of bool [N]

        Raises
        ------
        ValueError
            If a response is empty, or a criterion needs what is not given.

        Examples
        --------
        >>> Mask.parse("seq_max_k2<=0.05").keep(np.array([0.1, -0.4]), np.array([0, 1, 2])).tolist()
        [True, False]
        """
        d, edges = array("log_ratio", log_ratio, None, -math.inf, math.inf), np.asarray(starts)
        if edges.ndim != 1 or edges.size < 2 or edges[0] != 0 or edges[-1] != d.size or (np.diff(edges) < 1).any():
            refuse("starts", f"an array that rises from 0 to the number of tokens, {d.size}", edges)
        tokens = Tokens(d, edges, kl, rollout, advantage)
        statistics = {c.statistic: pooled(c.statistic, tokens) for c in self.dropping}
        return self.holds(statistics) if statistics else np.ones(edges.size - 1, dtype=np.bool_)

    def holds(self, statistics: Mapping[str, FloatArray]) -> BoolArray:
        """Return which responses [N] it keeps, from the statistics of :attr:`statistics` [N]."""
        kept = np.ones(next(iter(statistics.values())).size, dtype=np.bool_)
        for criterion in self.dropping:
            kept &= criterion.holds(statistics[criterion.statistic])
        return kept

    @property
    def dropping(self) -> tuple[Criterion, ...]:
        """The criteria that drop responses."""
        return tuple(c for c in self.criteria if c.drops_responses)

    @property
    def needs_advantage(self) -> bool:
        """Whether a criterion looks at the advantage."""
        return any(c.needs_advantage for c in self.criteria)

    @property
    def reweighing(self) -> tuple[Criterion, ...]:
        """The rules that drop or truncate within responses: they change the objective, no guarantee speaks of them."""
        return tuple(c for c in self.criteria if not c.drops_responses)

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of what it looks at."""
        return tuple(dict.fromkeys(name for c in self.criteria for name in c.columns))


def _token_of(name: str) -> TokenStatistic:
    """Return the statistic of a token that a criterion's statistic is made of."""
    if name.startswith("ln_trm("):
        return TOKEN["ratio_deviation"]
    return TOKEN[TOKEN_STATISTICS[name] if name in TOKEN_STATISTICS else STATISTICS[name][1]]


def _canonical(name: str) -> str:
    """Write ``ln_trm(...)`` with its constants in one order and spelling."""
    cap, epsilon, delta = ln_trm_constants(name)
    given = [f"{k}={exact_text(v)}" for k, v in (("epsilon", epsilon), ("delta", delta)) if v is not None]
    return f"ln_trm({','.join([f'T={cap}', *given])})"


def _range(name: str, sign: str, text: str, sure: bool) -> tuple[float, float]:
    """Return the range that a threshold means; what cannot be meant is refused with what likely is."""
    token = _token_of(name)
    if (only := _ONE_END.get(name, sign)) != sign:
        raise ValueError(f"{name} takes one bound, {name}{only}NUMBER, got {name}{sign}{text}")
    if token.signs == ("<=",):
        if sign == ">=":
            raise ValueError(f"{name} takes an upper bound only, {name}<=NUMBER, got {text!r}")
        return -math.inf, _upper_end(name, token, text, sure)
    if sign not in token.signs or (sign == "=" and "_" not in text):
        raise ValueError(_takes_two_ends(name, token, text))
    if sign == "=":
        return _both_ends(name, token, text)
    value = _number(name, text)
    if not (value > token.centre if sign == "<=" else value < token.centre):
        raise ValueError(
            f"{name}{sign} takes a bound on {token.meaning} {'above' if sign == '<=' else 'below'} 1, got "
            f"{name}{sign}{text}" + (_divergence_instead(name, text) if value < 1.0 else "")
        )
    return (-math.inf, value) if sign == "<=" else (value, math.inf)


def _upper_end(name: str, token: TokenStatistic, text: str, sure: bool) -> float:
    value = _number(name, text)
    if value <= token.centre:
        raise ValueError(
            f"{name} is a mean of {token.meaning}, which is at least 1; its threshold must be above that, got "
            f"{name}<={text}; for a mean of |theta/roll - 1| write seq_mean_ratio_deviation<={text}"
        )
    if name.startswith("seq_mean") and not (sure or token.centre) and value >= _LOOKS_LIKE_RATIO:
        both = f"{min(value, 1 / value):g}_{max(value, 1 / value):g}"
        raise ValueError(
            f"{name} takes {token.meaning} per token such as 0.001, got {name}<={text}, which looks like a "
            f"bound on a ratio; for that write seq_mean_k1={both}"
        )
    return value


def _both_ends(name: str, token: TokenStatistic, text: str) -> tuple[float, float]:
    low, _, high = text.removeprefix("-").partition("_")
    ends = _number(name, low) * (-1.0 if text.startswith("-") else 1.0), _number(name, high)
    least, domain = (0.0, "0 < LOW < 1 < HIGH") if token.centre else (-math.inf, "LOW < 0 < HIGH")
    if not least < ends[0] < token.centre < ends[1]:
        raise ValueError(f"{name} must have bounds LOW_HIGH with {domain}, got {name}={text}")
    return ends


def _takes_two_ends(name: str, token: TokenStatistic, text: str) -> str:
    example = "0.999_1.001" if token.centre else "-0.2_0.2"
    message = f"{name} takes bounds LOW_HIGH on {token.meaning} such as {example}, got {text!r}"
    try:
        value = parse_number(text)
    except ValueError:
        return message
    if value > 1.0:
        return f"{message}; for a factor either way write {name}={1 / value:g}_{value:g}"
    return message + (_divergence_instead(name, text) if token.centre else "")


def _divergence_instead(name: str, text: str) -> str:
    pool = {"product": "sum", "geometric": "mean", "min": "max"}
    parts = [pool.get(part, part) for part in name.split("_")[:-1]]
    return f"; for a divergence threshold write {'_'.join([*parts, 'k3'])}<={text}"


def _number(name: str, text: str) -> float:
    try:
        value = parse_number(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        hint = "; bounds LOW_HIGH belong to k1 and ratio" if "_" in text else ""
        raise ValueError(f"the threshold of {name} must be a positive number, got {text!r}{hint}")
    return value
