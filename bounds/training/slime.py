"""slime and miles: a trust region as their ``--custom-tis-function-path bounds.training.slime.trust_region``.

It needs ``--use-tis``, and ``trust_region: seq_max_k2<=0.05`` in the file of ``--custom-config-path``. The log is
their own: ``--dump-details FOLDER`` writes what ``trm-bounds certify FOLDER/train_data`` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bounds.training.response_mask import trust_region_mask

if TYPE_CHECKING:
    from torch import Tensor


def trust_region(
    args: Any,
    *,
    pg_loss: Tensor,
    train_log_probs: list[Tensor],
    rollout_log_probs: list[Tensor],
    loss_masks: list[Tensor],
    **others: Any,
) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
    """Weigh the loss of each token by the ratio of the two policies, and mask responses outside the region.

    Parameters
    ----------
    args : slime's arguments
        With ``trust_region``, as in :func:`bounds.training.trust_region_mask`.
    pg_loss : tensor [tokens]
        The loss of each token of the responses, one after another.
    train_log_probs, rollout_log_probs, loss_masks : lists of tensors [n]
        A response each; log-probs of the weights before the update, and of the engine.

    Returns
    -------
    tensor [tokens], list of tensors [n], dict
        The loss, the masks, and what is shown: ``trust_region_acceptance`` and ``trust_region_k3`` of each token.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> args, masks = SimpleNamespace(trust_region="seq_max_k2<=0.05"), [torch.ones(2), torch.ones(1)]
    >>> roll = [torch.tensor([-1.0, -0.5]), torch.tensor([-1.0])]
    >>> theta = [torch.tensor([-1.1, -0.5]), torch.tensor([-1.9])]
    >>> _, kept, seen = trust_region(
    ...     args, pg_loss=torch.ones(3), train_log_probs=theta, rollout_log_probs=roll, loss_masks=masks)
    >>> [mask.tolist() for mask in kept], seen["trust_region_acceptance"].tolist()
    ([[1.0, 1.0], [0.0]], [1.0, 1.0, 0.0])
    """
    import torch

    if [len(x) for x in train_log_probs] != [len(m) for m in loss_masks]:
        raise ValueError("a response is spread over several ranks (context parallelism): no response can be judged")
    roll, train, mask = (
        torch.nn.utils.rnn.pad_sequence(list(x), batch_first=True)
        for x in (rollout_log_probs, train_log_probs, loss_masks)
    )
    keep = trust_region_mask(roll, train, mask, args.trust_region)
    d = (torch.cat(list(train_log_probs)) - torch.cat(list(rollout_log_probs))).detach()
    kept = [m * k for m, k in zip(loss_masks, keep, strict=True)]
    shown = torch.cat([k.expand(len(m)) for m, k in zip(loss_masks, keep, strict=True)]).to(d.dtype)
    return pg_loss * d.exp(), kept, {"trust_region_acceptance": shown, "trust_region_k3": d.expm1() - d}
