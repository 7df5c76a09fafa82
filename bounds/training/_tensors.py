"""Tensors [B, L] of log-probs: what all hooks do with them first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds._checks import refuse

if TYPE_CHECKING:
    from torch import Tensor


def checked(mask: Tensor, **given: Tensor | None) -> Tensor:
    """Return which tokens [B, L] count; shapes are checked, values are not (that would wait for the device)."""
    if mask.dim() != 2:
        refuse("mask", "a tensor [B, L]", f"shape {tuple(mask.shape)}")
    for name, x in given.items():
        if x is not None and x.shape != mask.shape:
            refuse(name, f"a tensor of the shape of mask {tuple(mask.shape)}", f"shape {tuple(x.shape)}")
    return mask > 0


def log_ratio(rollout: Tensor, train: Tensor, policy: Tensor) -> Tensor:
    """Return log theta - log roll, at least in float32; 0 where there is no policy token, whatever stands there."""
    import torch

    wide = torch.promote_types(train.dtype, torch.float32)
    return torch.where(policy, train, 0.0).to(wide) - torch.where(policy, rollout, 0.0).to(wide)


def k3(d: Tensor) -> Tensor:
    """Return k3 = exp(d) - 1 - d of a float64 tensor: non-negative, within 2e-16 / |d| relative."""
    return (d.expm1() - d).clamp_min(0.0)
