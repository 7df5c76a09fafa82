"""SkyRL: a trust region and a log for its ``RayPPOTrainer``.

``class Trainer(bounds.training.skyrl.TrustRegion, RayPPOTrainer)`` takes ``trust_region=`` and ``log_dir=`` beside what
the trainer takes; return it in ``get_trainer`` of the experiment. ``generator.sampling_params.logprobs`` must be on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bounds.masks.mask import Mask
from bounds.training._tensors import centred
from bounds.training.monitor import Monitor
from bounds.training.response_mask import trust_region_mask


class TrustRegion:
    """Mixin over a ``RayPPOTrainer`` that masks responses outside a trust region, and logs every step.

    Parameters
    ----------
    *args, **kwargs
        Those of the trainer.
    trust_region : str or Mask, optional
        As in :func:`bounds.training.trust_region_mask`.
    log_dir : path, optional
        Where each step is written for ``trm-bounds certify``.

    Notes
    -----
    The forward pass of the policy before the update is never skipped: it is the half of the log that training would not
    compute. The scalars of :class:`bounds.training.Monitor` join SkyRL's as ``trust_region/...``.
    """

    def __init__(
        self, *args: Any, trust_region: str | Mask | None = None, log_dir: str | Path | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._trust_region = trust_region
        generator = self.cfg.generator  # type: ignore[attr-defined]
        horizon = generator.sampling_params.max_generate_length * generator.max_turns
        self._monitor = Monitor(horizon=horizon, rule=trust_region, folder=log_dir)

    def _skip_policy_forward(self, training_input: Any) -> bool:
        """Say that the policy scores what was sampled, also where the loss would not need it."""
        return False

    def fwd_logprobs_values_reward(self, training_input: Any) -> Any:
        """Return SkyRL's batch, with masks 0 where the trust region rejects a response."""
        batch = super().fwd_logprobs_values_reward(training_input)  # type: ignore[misc]
        roll, train, mask = batch.get("rollout_logprobs"), batch["action_log_probs"], batch["loss_mask"]
        if roll is None:
            raise ValueError("SkyRL keeps no log-probs of what it samples: set generator.sampling_params.logprobs")
        keep, rewards, names = None, batch["rewards"].sum(-1), list(batch.metadata["uids"])
        names += [""] * (len(rewards) - len(names))  # of the rows without tokens that fill up a batch
        if self._trust_region is not None:
            advantages = centred(rewards, names, roll.device)
            keep = trust_region_mask(roll, train, mask, self._trust_region, advantages=advantages)
            batch["loss_mask"] = mask * keep[:, None]
        with self._monitor.guard():
            seen = self._monitor(
                roll,
                train,
                mask,
                step=self.global_step,  # type: ignore[attr-defined]
                rewards=rewards,
                prompt_ids=names,
                keep=keep,
            )
            self._monitor.flush()
            self.all_metrics.update({f"trust_region/{name}": v for name, v in seen.items()})  # type: ignore[attr-defined]
        return batch
