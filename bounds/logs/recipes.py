"""Ten lines for each trainer that keeps both log-probs in memory only: source to paste, never run from here.

Each defines ``export(batch, path)``, which appends canonical rows to a JSONL file. They use nothing but
``tolist``, ``sum`` and ``*`` of the trainer's tensors, and leave padding to the mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_VERL = """\
# verl: call export(batch, path) in the trainer's fit() once old_log_probs are computed (after compute_log_prob), with
# actor_rollout_ref.rollout.calculate_log_probs=True. In bypass_mode both log-probs are one copy and prove nothing.
import json

def export(batch, path):
    t, ids = batch.batch, batch.non_tensor_batch["uid"]
    names = {"rollout_logprobs": "rollout_log_probs", "train_logprobs": "old_log_probs", "mask": "response_mask"}
    rows = {name: t[key].tolist() for name, key in names.items()}
    rows["reward"] = t["token_level_scores"].sum(-1).tolist()
    with open(path, "a") as file:
        for i, uid in enumerate(ids):
            file.write(json.dumps({"prompt_id": str(uid), **{k: v[i] for k, v in rows.items()}}) + "\\n")
"""

_SKYRL = """\
# SkyRL: call export(training_input, path) in the trainer after fwd_logprobs_values_reward, before rewards and uids are
# removed. Generator log-probs must be on (generator.sampling_params.logprobs).
import json

def export(batch, path):
    names = {"rollout_logprobs": "rollout_logprobs", "train_logprobs": "action_log_probs", "mask": "loss_mask"}
    rows = {name: batch[key].tolist() for name, key in names.items()}
    rows["reward"] = batch["rewards"].sum(-1).tolist()
    with open(path, "a") as file:
        for i, uid in enumerate(batch.metadata["uids"]):
            file.write(json.dumps({"prompt_id": str(uid), **{k: v[i] for k, v in rows.items()}}) + "\\n")
"""

_TRL = """\
# TRL: in a subclass of GRPOTrainer, let _generate_and_score_completions call export(output, path) on what super()
# returns, with use_vllm=True and vllm_importance_sampling_correction=True. It has no rewards (advantages are none).
import json

def export(batch, path):
    names = {"rollout_logprobs": "sampling_per_token_logps", "train_logprobs": "old_per_token_logps"}
    rows = {name: batch[key].tolist() for name, key in names.items()}
    rows["mask"] = (batch["completion_mask"] * batch.get("tool_mask", 1)).tolist()
    prompts = zip(batch["prompt_ids"].tolist(), batch["prompt_mask"].tolist())
    rows["prompt_tokens"] = [[t for t, kept in zip(*pair) if kept] for pair in prompts]
    with open(path, "a") as file:
        for i in range(len(rows["mask"])):
            file.write(json.dumps({name: values[i] for name, values in rows.items()}) + "\\n")
"""

#: Trainer -> source.
RECIPES: Mapping[str, str] = MappingProxyType({"verl": _VERL, "skyrl": _SKYRL, "trl": _TRL})
