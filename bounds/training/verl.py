"""verl: a plug-in that verl finds by itself (entry points ``verl.plugins``), so that nothing is edited.

Where ``TRM_BOUNDS_LOG`` names a folder, both trainers (``trainer.use_v1`` true and false) log every step there for
``trm-bounds certify``, before verl rejects a response, and scalars join verl's as ``trust_region/...``; where it does
not, nothing happens. ``TRM_BOUNDS_HORIZON`` is the generation cap. verl must compute both log-probs:
``actor_rollout_ref.rollout.calculate_log_probs=True`` and not ``bypass_mode``. What is dropped is verl's own
``algorithm.rollout_correction`` (``rollout_rs=seq_max_k2``, ...).
"""

from __future__ import annotations

import os
from typing import Any

from bounds.training._step_files import LOGGER
from bounds.training.monitor import Monitor


def install(folder: str, horizon: int | None = None) -> None:
    """Log what verl's rollout correction is given, in this process; entries are :class:`bounds.training.Monitor`'s."""
    from verl.trainer.ppo import rollout_corr_helper as helper

    correct, reject = (
        helper.compute_rollout_correction_and_add_to_batch,
        helper.compute_rollout_correction_and_rejection_mask,
    )
    monitor = Monitor(horizon=horizon, folder=folder)
    corrected = bypassed = False

    def logged(batch: Any, config: Any) -> Any:
        nonlocal corrected
        corrected, given, names = True, dict(batch.batch.items()), batch.non_tensor_batch
        batch, metrics = correct(batch, config)
        with monitor.guard():
            seen = monitor(
                given["rollout_log_probs"],
                given["old_log_probs"],
                given["response_mask"],
                step=batch.meta_info.get("global_steps"),
                rewards=given["token_level_scores"].sum(-1),
                prompt_ids=[str(uid) for uid in names["uid"]],
                tokens=given.get("responses"),
                environments=[str(name) for name in names["data_source"]] if "data_source" in names else None,
                keep=batch.batch["response_mask"].sum(-1) > 0,
            )
            monitor.flush()
            metrics = {**metrics, **{f"trust_region/{name}": value for name, value in seen.items()}}
        return batch, metrics

    def noticed(*args: Any, **kwargs: Any) -> Any:
        nonlocal bypassed
        if not corrected and not bypassed:  # the loss calls it, in a worker
            bypassed = True
            LOGGER.warning(
                "verl is in bypass_mode: it never scores what was sampled before it learns; nothing is logged"
            )
        return reject(*args, **kwargs)

    helper.compute_rollout_correction_and_add_to_batch = logged
    helper.compute_rollout_correction_and_rejection_mask = noticed


if os.environ.get("TRM_BOUNDS_LOG"):
    try:
        install(os.environ["TRM_BOUNDS_LOG"], int(os.environ.get("TRM_BOUNDS_HORIZON", 0)) or None)
    except Exception as error:  # verl would not say that a plug-in failed
        LOGGER.warning("verl's rollout correction is not where it was, nothing is logged (%s)", error)
