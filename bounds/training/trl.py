"""TRL: a trust region and a log for ``GRPOTrainer`` with vLLM.

``class Trainer(bounds.training.trl.TrustRegion, GRPOTrainer)`` takes ``trust_region=`` and ``log_dir=`` beside what
``GRPOTrainer`` takes. No loss is copied: what the region rejects has the importance weight 0.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.masks.mask import Mask
from bounds.training.monitor import Monitor
from bounds.training.response_mask import trust_region_mask

if TYPE_CHECKING:
    from torch import Tensor


class TrustRegion:
    """Mixin over a ``GRPOTrainer`` that drops responses outside a trust region, and logs every step.

    Parameters
    ----------
    *args, **kwargs
        Those of the trainer. Its ``args`` need ``use_vllm=True`` and ``vllm_importance_sampling_correction=True``.
    trust_region : str or Mask, optional
        As in :func:`bounds.training.trust_region_mask`. It is decided when responses are drawn, and all of them stay in
        the denominator of the loss.
    log_dir : path, optional
        Where each step is written for ``trm-bounds certify``: log-probs of vLLM and of the weights before the update,
        ids, rewards, prompts, environments. What no reward function scores is left out.

    Raises
    ------
    ValueError
        Where TRL does not keep the log-probs of what it samples.

    Notes
    -----
    The scalars of :class:`bounds.training.Monitor`, of the responses of the main process, join TRL's own metrics as
    ``trust_region/...``. Evaluation has scalars (``eval_trust_region/...``) and is not logged.
    """

    def __init__(
        self, *args: Any, trust_region: str | Mask | None = None, log_dir: str | Path | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if not hasattr(super(), "_generate_and_score_completions"):
            raise ValueError(
                f"{type(self).__name__}: only trainers that are a GRPOTrainer of TRL can have a trust region"
            )
        needed = ("use_vllm", "vllm_importance_sampling_correction")
        if missing := [name for name in needed if not getattr(self, name, False)]:
            raise ValueError(
                f"a trust region needs the log-probs of what is sampled, which TRL keeps with {' and '.join(needed)}: "
                f"set {' and '.join(f'{name}=True' for name in missing)}"
            )
        self._trust_region = trust_region
        self._monitor = Monitor(horizon=self.max_completion_length, rule=trust_region, folder=log_dir)  # type: ignore[attr-defined]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Return TRL's rewards of all processes, and keep those of this one."""
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # type: ignore[misc]
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)  # type: ignore[attr-defined]
        total[rewards.isnan().all(dim=1)] = float("nan")
        first = self.accelerator.process_index * len(prompts)  # type: ignore[attr-defined]
        self._rewards = total[first : first + len(prompts)]
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Return TRL's batch, with importance weights 0 where the trust region rejects a response."""
        batch = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        roll, train = batch["sampling_per_token_logps"], batch["old_per_token_logps"]
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        keep = None
        if self._trust_region is not None:
            keep = trust_region_mask(roll, train, mask, self._trust_region)
            batch["importance_sampling_ratio"] = batch["importance_sampling_ratio"] * keep[:, None]
        training = self.model.training  # type: ignore[attr-defined]
        with self._monitor.guard():
            named = all("environment" in row for row in inputs)
            seen = self._monitor(
                roll,
                train,
                mask * ~self._rewards.isnan()[:, None],
                step=self.state.global_step,  # type: ignore[attr-defined]
                rewards=self._rewards,
                prompt_ids=_prompt_names(batch, inputs),
                tokens=batch["completion_ids"],
                environments=[str(row["environment"]) for row in inputs] if named else None,
                keep=keep,
                evaluation=not training,
            )
            for name, value in seen.items():
                self._metrics["train" if training else "eval"][f"trust_region/{name}"].append(value)  # type: ignore[attr-defined]
        return batch


def _prompt_names(batch: dict[str, Tensor], inputs: Any) -> list[str]:
    """Name the prompts by their token ids, and by their images."""
    names = []
    for ids, mask, row in zip(batch["prompt_ids"], batch["prompt_mask"], inputs, strict=True):
        name = hashlib.blake2b(str(ids[mask > 0].tolist()).encode(), digest_size=8)
        for image in [*(row.get("images") or ()), row.get("image")]:
            name.update(image.tobytes() if hasattr(image, "tobytes") else b"")
        names.append(name.hexdigest())
    return names
