"""TRL: a trust region, a log and a guard for ``GRPOTrainer`` with vLLM.

``class Trainer(bounds.training.trl.TrustRegion, GRPOTrainer)`` takes ``trust_region=``, ``log_dir=`` and ``guard=``
beside what ``GRPOTrainer`` takes. No loss is copied: what the region rejects has the importance weight 0, and what the
guard holds out has no tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from bounds.masks.mask import Mask
from bounds.training.guard import Guard
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
    guard : Guard, optional
        Judges each update by its held-out prompts, from which nothing is learned; accepts, shrinks or rolls back.

    Raises
    ------
    ValueError
        Where TRL does not keep the log-probs of what it samples; with a guard where there are several processes, where
        a batch serves several updates, or where held-out responses would reach the update through its normalisation.

    Notes
    -----
    The scalars of :class:`bounds.training.Monitor`, of the responses of the main process, join TRL's own metrics as
    ``trust_region/...``, and those of the guard's decisions as ``guard/...``. Evaluation has scalars
    (``eval_trust_region/...``) and is not logged. A guard scores text, in the mode of an evaluation. Where a run is
    resumed it goes on at the step of the trainer.
    """

    def __init__(
        self,
        *args: Any,
        trust_region: str | Mask | None = None,
        log_dir: str | Path | None = None,
        guard: Guard | None = None,
        **kwargs: Any,
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
        self._guard = guard
        self._guarded: Any = None  # the optimiser whose steps are judged
        self._held: tuple[Any, ...] = ()  # what the guard is given of a batch
        if guard is not None and (wrong := [what for what, holds in _GUARDED.items() if not holds(self)]):
            raise ValueError(f"a guard needs {', '.join(wrong)}")

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Return TRL's optimiser, each step of which the guard judges."""
        optimizer = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
        if self._guard is not None and optimizer is not self._guarded:
            take = optimizer.step
            optimizer.step = MethodType(
                lambda _, *args, **kwargs: self._judged(lambda: take(*args, **kwargs)), optimizer
            )
            self._guarded = optimizer
        return optimizer

    def _judged(self, take: Callable[[], object]) -> None:
        assert self._guard is not None
        model = self.model  # type: ignore[attr-defined]
        self._guard.step = self.state.global_step  # type: ignore[attr-defined]
        learned = (p for p in model.parameters() if p.requires_grad)
        model.eval()
        try:
            decision = self._guard(take, learned, *self._held)
        finally:
            model.train()
        for name, value in decision.scalars().items():
            self._metrics["train"][name].append(value)  # type: ignore[attr-defined]

    def _hold_out(self, batch: dict[str, Any], names: list[str], mask: Tensor) -> None:
        """Keep the held-out responses for the guard, and take their tokens from the loss."""
        import torch

        assert self._guard is not None
        if "pixel_values" in batch:
            raise ValueError("a guard cannot score prompts with images")
        held = torch.from_numpy(self._guard.held_out(names)).to(mask.device)
        completion, length = batch["completion_mask"], mask.shape[1]
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)[held]
        attended = torch.cat([batch["prompt_mask"], completion], dim=1)[held]

        def score() -> Tensor:
            scored: Tensor = self._get_per_token_logps_and_entropies(self.model, ids, attended, length)[0]  # type: ignore[attr-defined]
            return scored

        others = [name for name, out in zip(names, held.tolist(), strict=True) if out]
        roll = batch["sampling_per_token_logps"][held]
        self._held = (score, roll, mask[held], self._rewards[held], others)
        batch["completion_mask"] = completion * ~held[:, None]
        batch["num_items_in_batch"] = batch["num_items_in_batch"] - mask[held].sum()

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
            keep = trust_region_mask(roll, train, mask, self._trust_region, advantages=batch.get("advantages"))
            batch["importance_sampling_ratio"] = batch["importance_sampling_ratio"] * keep[:, None]
        training = self.model.training  # type: ignore[attr-defined]
        names = _prompt_names(batch, inputs)
        with self._monitor.guard():
            named = all("environment" in row for row in inputs)
            seen = self._monitor(
                roll,
                train,
                mask * ~self._rewards.isnan()[:, None],
                step=self.state.global_step,  # type: ignore[attr-defined]
                rewards=self._rewards,
                prompt_ids=names,
                tokens=batch["completion_ids"],
                environments=[str(row["environment"]) for row in inputs] if named else None,
                keep=keep,
                evaluation=not training,
            )
            for name, value in seen.items():
                self._metrics["train" if training else "eval"][f"trust_region/{name}"].append(value)  # type: ignore[attr-defined]
        if self._guard is not None and training:
            self._hold_out(batch, names, mask)
        return batch


#: What a guard needs of TRL, so that no held-out response reaches an update, and each update has responses of its own.
_GUARDED: dict[str, Callable[[Any], bool]] = {
    "one process": lambda t: t.accelerator.num_processes == 1,
    "num_iterations=1": lambda t: t.num_iterations == 1,
    "steps_per_generation=gradient_accumulation_steps": lambda t: (
        t.args.steps_per_generation == t.args.gradient_accumulation_steps
    ),
    "scale_rewards='group' or 'none'": lambda t: t.scale_rewards != "batch",
    "multi_objective_aggregation='sum_then_normalize'": lambda t: t.multi_objective_aggregation == "sum_then_normalize",
}


def _prompt_names(batch: dict[str, Tensor], inputs: Any) -> list[str]:
    """Name the prompts by their token ids, and by their images."""
    names = []
    for ids, mask, row in zip(batch["prompt_ids"], batch["prompt_mask"], inputs, strict=True):
        name = hashlib.blake2b(str(ids[mask > 0].tolist()).encode(), digest_size=8)
        for image in [*(row.get("images") or ()), row.get("image")]:
            name.update(image.tobytes() if hasattr(image, "tobytes") else b"")
        names.append(name.hexdigest())
    return names
