"""The methods that are compared: what each does to the surrogate, at thresholds from a calibration run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bounds.training import masked_surrogate_loss, trust_region_mask

#: The clip of the ratio that the paper compares with.
CLIP = (0.8, 1.28)


@dataclass(frozen=True)
class Batch:
    """Inputs of a loss: log-probs of the sampled tokens [B, L], and per response [B] the advantage."""

    rollout: Tensor
    train: Tensor
    mask: Tensor
    advantages: Tensor


def no_correction(batch: Batch, keep: Tensor) -> Tensor:
    """Pretend that the training policy had sampled: every ratio is 1, the gradient is A grad log theta."""
    return masked_surrogate_loss(batch.train.detach(), batch.train, batch.mask, batch.advantages, keep)


def surrogate(batch: Batch, keep: Tensor) -> Tensor:
    """Return the (masked) surrogate of the paper."""
    return masked_surrogate_loss(batch.rollout, batch.train, batch.mask, batch.advantages, keep)


def clipped(batch: Batch, keep: Tensor) -> Tensor:
    """Take PPO's pessimistic minimum of the plain and the clipped ratio, token by token, in the same normalisation."""
    ratio = torch.where(batch.mask, batch.train - batch.rollout, 0.0).exp()
    advantages = batch.advantages[:, None]
    gain = torch.minimum(ratio * advantages, ratio.clamp(*CLIP) * advantages)
    return -(gain * batch.mask).sum() / keep.shape[0]


@dataclass(frozen=True)
class Method:
    """A loss, and the rule (made from the calibrated thresholds) that says which responses enter it."""

    title: str
    loss: Callable[[Batch, Tensor], Tensor] = surrogate
    rule: Callable[[Mapping[str, float]], str] | None = None

    def keep(self, batch: Batch, thresholds: Mapping[str, float]) -> Tensor:
        """Return which responses [B] the method keeps."""
        if self.rule is None:
            return batch.mask.any(dim=1)
        return trust_region_mask(batch.rollout, batch.train, batch.mask, self.rule(thresholds))


METHODS: dict[str, Method] = {
    "none": Method("no correction", no_correction),
    "token-is": Method("token IS"),
    "clip": Method(f"PPO clip [{CLIP[0]}, {CLIP[1]}]", clipped),
    "trm-max": Method("TRM-Max", rule=lambda t: f"seq_max_k2<={t['seq_max_k2']}"),
    "trm-avg": Method("TRM-Avg", rule=lambda t: f"seq_mean_k3<={t['seq_mean_k3']}"),
    "trm-both": Method(
        "TRM-Max and -Avg, doubled",
        rule=lambda t: f"seq_max_k2<={2 * t['seq_max_k2']},seq_mean_k3<={2 * t['seq_mean_k3']}",
    ),
    "ln-trm": Method(
        "LN-TRM",
        rule=lambda t: f"ln_trm(T={t['horizon']},epsilon={t['epsilon']},delta={t['delta']})<={t['ln_trm']}",
    ),
    "ser": Method("SER", rule=lambda t: f"seq_mean_ratio_deviation<={t['ser']}"),
}
