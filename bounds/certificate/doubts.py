"""What in a log speaks against the hypotheses of its guarantees."""

from __future__ import annotations

import math

import numpy as np

from bounds.certificate.finding import Finding
from bounds.certificate.guarantees import excess
from bounds.certificate.moments import Moments
from bounds.intervals import betting, prompt_means

_DOUBT = "what is guaranteed rests on what this speaks against"


def refuted(m: Moments, confidence: float = 0.999) -> str:
    """Why the hypotheses of the guarantees cannot be true of this log: E P is at most 1."""
    product = betting(prompt_means(1.0 + excess(m["log_product"]), m.prompt), confidence, low=0.0, side="lower")
    if product.low <= 1.0:
        return ""
    return (
        f"the mean ratio of whole responses is above {product.low:.4g} at confidence {confidence:g} (it cannot exceed "
        "1): theta was fitted to these responses, or rollout_logprobs are not those of the law that sampled"
    )


def doubts(m: Moments, confidence: float = 0.999) -> list[Finding]:
    """What in the log speaks against the hypotheses of its guarantees."""
    if "reward" not in m:
        return []
    texts = (_unequal(m), _filtered(m, confidence), _normalised(m), _constant(m))
    return [Finding("hypotheses", text, len(m), "responses", _DOUBT) for text in texts if text]


def _unequal(m: Moments) -> str:
    size = np.bincount(m.prompt)
    if np.ptp(size) == 0:
        return ""
    return (
        f"prompts have {size.min()} to {size.max()} responses and count alike: were some drawn more often, or sampled "
        "until they succeeded? Then give each draw an id of its own, and log all responses"
    )


def _constant(m: Moments) -> str:
    if np.ptp(m["reward"]) > 0.0:
        return ""
    return "all rewards are equal: asymptotic intervals of the gain rest on no variation, and are too narrow"


def _filtered(m: Moments, confidence: float) -> str:
    """Whether groups of equal 0/1 rewards are missing: of n responses one in 2^(n-1) groups has them at least."""
    reward, prompt = m["reward"], m.prompt
    low, high = m.reading.reward_range
    if not np.isin(reward, (low, high)).all():
        return ""
    size = np.bincount(prompt)
    top = np.bincount(prompt, weights=(reward == high).astype(np.float64))
    groups = size[size > 1]
    if ((top == 0) | (top == size))[size > 1].any() or not groups.size:
        return ""
    if np.log1p(-np.exp2(1.0 - groups)).sum() > math.log1p(-confidence):
        return ""
    return (
        f"no group of the {groups.size} has equal rewards, which hardly happens by chance: were such groups filtered "
        "out (dynamic sampling)? Then the guarantees speak of the prompts that were left"
    )


def _normalised(m: Moments) -> str:
    """Whether rewards differ within groups and yet sum to 0 in every one, as advantages do."""
    reward, prompt = m["reward"], m.prompt
    size, sums = np.bincount(prompt), np.bincount(prompt, weights=reward)
    sizes = np.bincount(prompt, weights=np.abs(reward))
    telling = (size > 1) & (sizes > 0.0)
    if telling.sum() < 2 or (np.abs(sums) > 1e-4 * sizes)[sizes > 0.0].any():
        return ""
    return "rewards sum to 0 in every group: these are advantages, not raw rewards; the guarantees need raw rewards"
