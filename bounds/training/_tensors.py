"""Tensors [B, L] of log-probs: what all hooks do with them first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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


def on_host(x: Any) -> Any:
    """Return an array of its own, which the training does not change: float32 of log-probs."""
    if not hasattr(x, "detach"):
        return list(x)
    import torch

    kind = torch.float32 if x.is_floating_point() else x.dtype
    return x.detach().to("cpu", kind, copy=True).numpy()


def centred(rewards: Any, prompt_ids: Any, device: Any) -> Tensor | None:
    """Return rewards [B] minus the means of their prompts, 0 within rounding; None where either is not known."""
    import torch

    if rewards is None or prompt_ids is None:
        return None
    reward = np.asarray(on_host(rewards), dtype=np.float64)
    prompt = np.unique([str(name) for name in on_host(prompt_ids)], return_inverse=True)[1]
    apart = reward - (np.bincount(prompt, weights=reward) / np.bincount(prompt))[prompt]
    return torch.from_numpy(np.where(np.abs(apart) <= 1e-12 * np.abs(reward), 0.0, apart)).to(device)
