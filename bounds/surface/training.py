"""``bounds.training`` under its old name, for one more release."""

from bounds.training import (
    Monitor,
    divergences_from_logits,
    masked_surrogate_loss,
    trust_region_mask,
    trust_region_mask_from_logits,
)

__all__ = [
    "Monitor",
    "divergences_from_logits",
    "masked_surrogate_loss",
    "trust_region_mask",
    "trust_region_mask_from_logits",
]
