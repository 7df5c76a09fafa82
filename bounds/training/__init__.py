"""Hooks for a torch training loop: a mask, the masked surrogate, exact divergences, a monitor, and a guard of steps.

Tensors are [B, L], a response a row, on any device; nothing is copied to the host but the monitor's scalars, once for
each batch. torch is imported when a function is called (``pip install 'trm-bounds[torch]'``).
"""

from bounds.training.budget import Budget
from bounds.training.guard import Decision, Guard, Judgement
from bounds.training.logits import Divergences, divergences_from_logit_shards, divergences_from_logits
from bounds.training.monitor import Monitor
from bounds.training.response_mask import trust_region_mask, trust_region_mask_from_logits
from bounds.training.surrogate import masked_surrogate_loss

__all__ = [
    "Budget",
    "Decision",
    "Divergences",
    "Guard",
    "Judgement",
    "Monitor",
    "divergences_from_logit_shards",
    "divergences_from_logits",
    "masked_surrogate_loss",
    "trust_region_mask",
    "trust_region_mask_from_logits",
]
