"""prime-rl: the masked surrogate as its custom loss.

``[trainer.loss]`` with ``type = "custom"``, ``import_path = "bounds.training.prime_rl.loss"`` and
``kwargs = { trust_region = "seq_max_k2<=0.05" }``. The log is prime-rl's own token export, which ``trm-bounds`` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bounds.masks.mask import Mask
from bounds.training._tensors import k3, log_ratio
from bounds.training.response_mask import trust_region_mask

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """What prime-rl asks of a loss: a scalar, and scalars to show."""

    loss: Tensor
    metrics: dict[str, Tensor]


def loss(inputs: Any, *, trust_region: str | Mask) -> Loss:
    """Return the masked surrogate of one response, summed over its tokens.

    Parameters
    ----------
    inputs : prime-rl's ``LossInputs``
        ``trainer_logprobs``, ``inference_logprobs``, ``advantages``, ``loss_mask`` and perhaps ``loss_weights``, [n].
    trust_region : str or Mask
        As in :func:`bounds.training.trust_region_mask`.

    Returns
    -------
    Loss
        -A rho summed over the tokens of a response that is kept, else 0; and of each response whether it is kept
        (``trust_region/acceptance``) and its k3 (``trust_region/kl_seq``).
    """
    policy = inputs.loss_mask[None] > 0
    roll, train = inputs.inference_logprobs[None].detach(), inputs.trainer_logprobs[None]
    keep = trust_region_mask(roll, train, policy, trust_region)
    # select before exp: a ratio that overflows in a rejected response would turn 0 * inf into NaN
    used = policy & keep[:, None]
    gain = log_ratio(roll, train, used).exp() * used * inputs.advantages[None]
    if inputs.loss_weights is not None:
        gain = gain * inputs.loss_weights[None]
    kl_seq = k3(log_ratio(roll.double(), train.detach().double(), policy)).sum()
    return Loss(-gain.sum(), {"trust_region/acceptance": keep[0].float(), "trust_region/kl_seq": kl_seq.float()})
