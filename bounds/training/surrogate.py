"""The objective that a masked step climbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds._checks import refuse
from bounds.training._tensors import checked, log_ratio

if TYPE_CHECKING:
    from torch import Tensor


def masked_surrogate_loss(
    rollout_logprobs: Tensor, train_logprobs: Tensor, mask: Tensor, advantages: Tensor, keep: Tensor
) -> Tensor:
    """Return -(1/B) sum_i keep_i A_i sum_t rho_t: minimise it to climb the masked surrogate.

    Parameters
    ----------
    rollout_logprobs, train_logprobs, mask : tensors [B, L]
        As in :func:`trust_region_mask`; gradients flow through ``train_logprobs`` only.
    advantages : tensor [B]
    keep : tensor [B] of bool
        All B responses stay in the denominator: what is rejected adds nothing, and raises nobody else's weight.

    Returns
    -------
    tensor, a scalar
        Its gradient is -(1/B) sum_i keep_i A_i sum_t rho_t grad log theta. Source: 2512.23075v4.

    Raises
    ------
    ValueError
        For shapes that disagree.

    Examples
    --------
    >>> import torch
    >>> roll, theta = torch.zeros(2, 2), torch.zeros(2, 2, requires_grad=True)
    >>> advantages, keep = torch.tensor([1.0, -1.0]), torch.tensor([True, False])
    >>> masked_surrogate_loss(roll, theta, torch.ones(2, 2), advantages, keep).item()
    -1.0
    """
    policy = checked(mask, rollout_logprobs=rollout_logprobs, train_logprobs=train_logprobs)
    for name, x in (("advantages", advantages), ("keep", keep)):
        if x.shape != mask.shape[:1]:
            refuse(name, f"a tensor of shape {tuple(mask.shape[:1])}", tuple(x.shape))
    used = policy & (keep > 0)[:, None]
    # select before exp: a ratio that overflows in a rejected response would turn 0 * inf into NaN
    d = log_ratio(rollout_logprobs.detach(), train_logprobs, used)
    return -(advantages.detach() * (d.exp() * used).sum(dim=1)).sum() / mask.shape[0]
