"""The fields of a profile, declared once: symbol, domain and meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

#: The families of rules: the first uses plain Pinsker, the second the sharpest inequality that is proved.
PUBLISHED, SHARP = "published", "sharp"


@dataclass(frozen=True, slots=True)
class Field:
    """One number, or one array [T], that a profile may hold: its symbol, meaning and domain; ``rare``: few know it."""

    symbol: str
    meaning: str
    low: float = 0.0
    high: float = math.inf
    per_position: bool = False
    rare: bool = False


FIELDS: Mapping[str, Field] = {
    "delta": Field("δ", "largest KL(roll||theta) at any reachable context, in nats"),
    "epsilon": Field("ε", "largest total variation at any reachable context", high=1.0),
    "chi2_max": Field("X", "largest chi2(theta||roll) at any reachable context"),
    "kl_seq": Field("D", "expected KL(roll||theta) of a whole response, in nats"),
    "tv_seq": Field("TV", "total variation of the two response distributions, mean over prompts", high=1.0),
    "tv_sum": Field("A", "expected total variation, summed over positions", rare=True),
    "chi2_sum": Field("ΣC", "expected chi2, summed over positions", rare=True),
    "mean_length": Field("E len", "expected length of a response, in tokens", rare=True),
    "mean_tv": Field("D̄_t", "expected total variation at each position", high=1.0, per_position=True),
    "mean_kl": Field("K_t", "expected KL(roll||theta) at each position, in nats", per_position=True),
    "mean_chi2": Field("C̄_t", "expected chi2 at each position", per_position=True),
    "max_tv": Field("ε_t", "largest total variation at each position", high=1.0, per_position=True),
    "max_kl": Field("δ_t", "largest KL(roll||theta) at each position, in nats", per_position=True),
    "max_chi2": Field("X_t", "largest chi2 at each position", per_position=True),
    "log_ratio_max": Field("Λ", "largest |log theta - log roll| over the whole vocabulary, at any context", rare=True),
    "support_gap": Field("m", "largest mass of theta where roll has none, at any context", high=1.0, rare=True),
    "mean_reward": Field("μ", "expected reward under roll", low=-math.inf, rare=True),
}

#: The fields that say how far apart the two policies are; a profile without any of them bounds nothing.
DIVERGENCES = tuple(name for name in FIELDS if name not in ("mean_length", "support_gap", "mean_reward"))


def is_array(name: str) -> bool:
    """Return whether a field holds one number for each position."""
    return name in FIELDS and FIELDS[name].per_position
