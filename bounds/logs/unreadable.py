"""Files that are recognised only to say what would help: dumps of text, halves of a dump, and pickles."""

from __future__ import annotations

from collections.abc import Callable

from bounds.logs.format import Format, Head

_RECIPE = "then export the batch with the recipe of `trm-bounds formats --recipe {}`"


def _text(container: str, *keys: str, without: str = "") -> Callable[[Head], bool]:
    """Recognises records that have these fields and no log-probs of any name."""

    def recognises(head: Head) -> bool:
        return (
            head.container == container
            and head.keys.issuperset(keys)
            and without not in head.keys
            and not head.has_logprobs
        )

    return recognises


def _half_of_slime(head: Head) -> bool:
    return head.container == "torch" and "samples" in head.keys and "log_probs" not in head.keys


def _pickle(head: Head) -> bool:
    return head.container == "pickle"


VERL_TEXT = Format(
    name="verl-text",
    title="verl's text dump",
    trainer="verl",
    file="{step}.jsonl of trainer.rollout_data_dir: text, no log-probs",
    keys="input, output, score",
    recognises=_text("json", "input", "output", "score"),
    records=None,
    advice="this is verl's rollout_data_dir dump, which holds text and no log-probs: set "
    "actor_rollout_ref.rollout.calculate_log_probs=True, " + _RECIPE.format("verl"),
)
TRL_TEXT = Format(
    name="trl-text",
    title="TRL's completions",
    trainer="TRL",
    file="completions/completions_{step}.parquet of log_completions: text, no log-probs",
    keys="prompt, completion, advantage",
    recognises=_text("parquet", "prompt", "completion"),
    records=None,
    advice="these are TRL's logged completions, which hold text and no log-probs: set use_vllm=True with "
    "vllm_importance_sampling_correction=True, " + _RECIPE.format("trl"),
)
AREAL_TEXT = Format(
    name="areal-text",
    title="AReaL's trajectory dump",
    trainer="AReaL",
    file="rollout/{version}/{task}.jsonl of dump_to_file: text, no log-probs",
    keys="task_id, head_version, tail_version, prompt, completion",
    recognises=_text("json", "head_version", "tail_version", "completion"),
    records=None,
    advice="this is AReaL's dump_to_file, which holds text and no log-probs: set actor.recompute_logprob=true "
    "(or use_decoupled_loss), which puts prox_logp beside logprobs in the batch, and write both as canonical rows, as "
    "the recipe of `trm-bounds formats --recipe trl` does for TRL",
)
SWIFT_TEXT = Format(
    name="ms-swift-text",
    title="ms-swift's completions",
    trainer="ms-swift",
    file="completions.jsonl of log_completions: text, no log-probs",
    keys="prompt, completion",
    recognises=_text("json", "prompt", "completion", without="head_version"),
    records=None,
    advice="these are ms-swift's logged completions, which hold text and no log-probs: with use_vllm, "
    "log_rollout_offpolicy_metrics=true puts rollout_per_token_logps beside old_per_token_logps in the batch; write "
    "both as canonical rows, as the recipe of `trm-bounds formats --recipe trl` does for TRL",
)
SLIME_ROLLOUT = Format(
    name="slime-rollout",
    title="slime's rollout dump",
    trainer="slime",
    file="rollout_data/{rollout_id}.pt of --dump-details: the rollout policy only",
    keys="samples",
    recognises=_half_of_slime,
    records=None,
    advice="this is a slime dump without the training engine's log_probs: read train_data/{rollout_id}.pt, which "
    "--dump-details writes beside rollout_data",
)
PICKLE = Format(
    name="pickle",
    title="Python pickles",
    trainer="verl, SkyRL",
    file="DataProto.save_to_disk, global_step_{N}_training_input.pkl: never opened",
    keys="",
    recognises=_pickle,
    records=None,
    advice="this is a pickle, which is never opened, since opening one can run code: export canonical rows from the "
    "trainer (`trm-bounds formats --recipe verl`, skyrl or trl prints ten lines that do)",
)
UNREADABLE = (VERL_TEXT, TRL_TEXT, AREAL_TEXT, SWIFT_TEXT, SLIME_ROLLOUT, PICKLE)
