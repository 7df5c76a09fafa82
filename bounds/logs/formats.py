"""Every format of logs: one table; and which format a file is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bounds._checks import unknown
from bounds._text import TerminalTable
from bounds.logs import canonical, rollouts, scalars, servers, trainers
from bounds.logs.batch import Batch, TraceError, Wanted
from bounds.logs.decode import Head


@dataclass(frozen=True, slots=True)
class Format:
    """One layout of logs.

    A file is recognised by what it is inside (``containers``) and by the fields of its first record: all of one of
    ``signs``, and none of ``without`` (names with a space between). ``read`` yields its rows in batches; it is None for
    what is recognised only to say, in ``advice``, what would help. ``horizon`` is the generation cap where the file
    carries it, ``unfinished`` why a file must not be read yet; ``train_policy`` is what a trainer's dump says by being
    one: theta scored these responses before it learned from them.
    """

    name: str
    title: str
    trainer: str
    file: str
    keys: str
    signs: tuple[str, ...]
    without: str = ""
    containers: tuple[str, ...] = ("json",)
    read: Callable[[Path, Wanted], Iterator[Batch]] | None = None
    advice: str = ""
    horizon: Callable[[Path], int | None] = lambda path: None
    unfinished: Callable[[Path], str] = lambda path: ""
    says: Callable[[Path], str] | None = None
    train_policy: str | None = None

    def answer(self, path: Path) -> str:
        """Return what to say of a file that is not read."""
        return self.advice if self.says is None else self.says(path)

    def recognises(self, head: Head) -> bool:
        """Say whether a file that begins so has this format."""
        keys = head.keys | ({_ANY_LOGPROBS} if head.has_logprobs else frozenset())
        keys |= {_ANY_SCALARS} if any(scalars.meaning(key) for key in head.keys) else frozenset()
        known = any(keys.issuperset(sign.split()) for sign in self.signs)
        return head.container in self.containers and known and keys.isdisjoint(self.without.split())


#: Stands for a field that is named like log-probs, by anybody.
_ANY_LOGPROBS = "*logprobs*"
#: Stands for a scalar of some trainer's that compares the two policies.
_ANY_SCALARS = "*scalars*"
_RECIPE = "then do what `trm-bounds formats --recipe {}` prints"

#: Formats that are read.
READ: tuple[Format, ...] = (
    Format(
        name="canonical",
        title="trm-bounds' own form",
        trainer="any",
        file="JSONL, or Parquet with list columns; what the export recipes write",
        keys="rollout_logprobs, train_logprobs; optional mask, reward, prompt_id, kl, tv, chi2, max_log_ratio, "
        "old_logprobs, tokens, step, rank, weight_version (also by token), row_id",
        containers=("json", "parquet"),
        signs=("rollout_logprobs", "train_logprobs"),
        read=canonical.read,
        horizon=canonical.horizon,
    ),
    Format(
        name="nemo-rl",
        title="NeMo-RL training data",
        trainer="NeMo-RL",
        file="train_data_step{N}.jsonl, written by default",
        keys="generation_logprobs, prev_logprobs, token_loss_mask x sample_loss_mask, rewards",
        signs=("generation_logprobs prev_logprobs",),
        read=trainers.read_nemo_rl,
        train_policy="before-update",
    ),
    Format(
        name="prime-rl",
        title="prime-rl token exports",
        trainer="prime-rl",
        file="token_exports/step_{S}/rank_{R}.jsonl with --enable-token-export, once STABLE lies beside it",
        keys="inference_logprobs, trainer_logprobs, loss_mask (no reward)",
        signs=("inference_logprobs trainer_logprobs",),
        read=trainers.read_prime_rl,
        train_policy="before-update",
        unfinished=trainers.unfinished_prime_rl,
    ),
    Format(
        name="slime",
        title="slime training data",
        trainer="slime",
        file="train_data/{rollout_id}.pt with --dump-details DIR (needs trm-bounds[torch])",
        keys="samples[i]: rollout_log_probs, log_probs, loss_masks; raw_reward, else rewards",
        containers=("torch",),
        signs=("samples rollout_log_probs log_probs",),
        read=trainers.read_slime,
        train_policy="before-update",
    ),
    Format(
        name="miles",
        title="miles training data",
        trainer="miles",
        file="train_data of --dump-details, its columns under `rollout_data` (needs trm-bounds[torch])",
        keys="rollout_data: rollout_log_probs, log_probs, loss_masks; raw_reward, else rewards",
        containers=("torch",),
        signs=("rollout_data rollout_log_probs log_probs",),
        read=trainers.read_miles,
        train_policy="before-update",
    ),
    Format(
        name="miles-loss",
        title="miles' debugging of the policy loss",
        trainer="miles",
        file="policy_loss_debug/rank_{R}_call_{N}.pt of --dump-details: no prompt or reward (needs trm-bounds[torch])",
        keys="samples[i]: rollout_log_probs, train_log_probs, local_loss_mask",
        containers=("torch",),
        signs=("samples rollout_log_probs train_log_probs local_loss_mask",),
        read=trainers.read_miles_loss,
    ),
    Format(
        name="verifiers",
        title="verifiers' rollouts",
        trainer="verifiers",
        file="results.jsonl with the state column trajectory: one half, joined with --train",
        keys="trajectory[].tokens: completion_logprobs, completion_ids, completion_mask (rollout); reward",
        signs=("trajectory",),
        read=rollouts.read_verifiers,
    ),
    Format(
        name="nemo-gym",
        title="NeMo-Gym rollouts",
        trainer="NeMo-Gym",
        file="rollouts.jsonl with token ids: one half, joined with --train",
        keys="response.output[]: generation_log_probs, generation_token_ids (rollout); reward",
        signs=("responses_create_params response",),
        read=rollouts.read_nemo_gym,
    ),
    Format(
        name="atropos",
        title="Atropos groups",
        trainer="Atropos",
        file="groups of responses, one a line: one half, joined with --train",
        keys="tokens, masks (-100: no policy token), inference_logprobs (rollout); scores",
        signs=("tokens masks scores",),
        read=rollouts.read_atropos,
    ),
    Format(
        name="responses",
        title="Responses API",
        trainer="OpenAI, vLLM",
        file="answers of /v1/responses with their logprobs, or batch output: one half, joined with --train",
        keys="output[].content[].logprobs[].logprob (rollout)",
        signs=("object output",),
        without="choices",
        read=servers.read_openai,
    ),
    Format(
        name="openai",
        title="OpenAI-style responses",
        trainer="vLLM, OpenAI",
        file="server responses, one a line, one document, an array, or batch output: one half, joined with --train",
        keys="choices[].logprobs: content[].logprob or token_logprobs (rollout); prompt_logprobs, or echo (train)",
        signs=("choices", "custom_id response"),
        read=servers.read_openai,
    ),
    Format(
        name="sglang",
        title="SGLang responses",
        trainer="SGLang",
        file="responses of /generate with return_logprob: one half, joined with --train",
        keys="meta_info: output_token_logprobs (rollout), input_token_logprobs (train); also _val and _idx, or objects",
        signs=("meta_info",),
        read=servers.read_sglang,
    ),
)

#: Files that are recognised only to say what would help: dumps of text, halves of a dump, and pickles.
NOT_READ: tuple[Format, ...] = (
    Format(
        name="verl-text",
        title="verl's text dump",
        trainer="verl",
        file="{step}.jsonl of trainer.rollout_data_dir: text, no log-probs",
        keys="input, output, score",
        signs=("input output score",),
        without=_ANY_LOGPROBS,
        advice="this is verl's rollout_data_dir dump, which holds text and no log-probs: set "
        "actor_rollout_ref.rollout.calculate_log_probs=True, " + _RECIPE.format("verl"),
    ),
    Format(
        name="trl-text",
        title="TRL's completions",
        trainer="TRL",
        file="completions/completions_{step}.parquet of log_completions: text, no log-probs",
        keys="prompt, completion, advantage",
        containers=("parquet",),
        signs=("prompt completion",),
        without=_ANY_LOGPROBS,
        advice="these are TRL's logged completions, which hold text and no log-probs: set use_vllm=True with "
        "vllm_importance_sampling_correction=True, " + _RECIPE.format("trl"),
    ),
    Format(
        name="areal-text",
        title="AReaL's trajectory dump",
        trainer="AReaL",
        file="rollout/{version}/{task}.jsonl of dump_to_file: text, no log-probs",
        keys="task_id, head_version, tail_version, prompt, completion",
        signs=("head_version tail_version completion",),
        without=_ANY_LOGPROBS,
        advice="this is AReaL's dump_to_file, which holds text and no log-probs: set actor.recompute_logprob=true "
        "(or use_decoupled_loss), which puts prox_logp beside logprobs in the batch, and write both as canonical rows, "
        "as the recipe of `trm-bounds formats --recipe openrlhf` does for OpenRLHF",
    ),
    Format(
        name="ms-swift-text",
        title="ms-swift's completions",
        trainer="ms-swift",
        file="completions.jsonl of log_completions: text, no log-probs",
        keys="prompt, completion",
        signs=("prompt completion",),
        without=_ANY_LOGPROBS + " head_version completion_ids trajectory",
        advice="these are ms-swift's logged completions, which hold text and no log-probs: with use_vllm, "
        "log_rollout_offpolicy_metrics=true puts rollout_per_token_logps beside old_per_token_logps in the batch; "
        + _RECIPE.format("ms-swift"),
    ),
    Format(
        name="slime-rollout",
        title="slime's rollout dump",
        trainer="slime",
        file="rollout_data/{rollout_id}.pt of --dump-details: the rollout policy only",
        keys="samples",
        containers=("torch",),
        signs=("samples",),
        without="log_probs train_log_probs",
        advice="this is a slime dump without the training engine's log_probs: read train_data/{rollout_id}.pt, which "
        "--dump-details writes beside rollout_data",
    ),
    Format(
        name="rollouts-text",
        title="Rollouts of an environment",
        trainer="verifiers, scripts",
        file="prompt and completion with the ids of its tokens, no log-probs",
        keys="prompt, completion, completion_ids",
        signs=("completion completion_ids",),
        without=_ANY_LOGPROBS,
        advice="these are rollouts with the ids of their tokens and no log-probs of either policy: have the server "
        "send those of the sampled tokens (logprobs: true; verifiers: --state-columns trajectory), and score the ids "
        "by the trained weights (`trm-bounds formats --recipe score`)",
    ),
    Format(
        name="scalars",
        title="A trainer's scalars",
        trainer="tinker, verl, W&B, any",
        file="metrics.jsonl, verl's file logger, a CSV export of W&B: numbers of each step, no responses",
        keys="",
        containers=("json", "csv"),
        signs=("*scalars*", "step data", "Step"),
        without=_ANY_LOGPROBS + " rollout_logprobs",
        advice="these are a trainer's scalars, which have no responses and guarantee nothing",
        says=scalars.explained,
    ),
    Format(
        name="pickle",
        title="Python pickles",
        trainer="verl, SkyRL",
        file="DataProto.save_to_disk, global_step_{N}_training_input.pkl: never opened",
        keys="",
        containers=("pickle",),
        signs=("",),
        advice="this is a pickle, which is never opened, since opening one can run code: export canonical rows from "
        "the trainer (`trm-bounds formats --recipe verl`, or skyrl, says how)",
    ),
)

#: Format name -> format, in the order in which they are shown.
FORMATS: Mapping[str, Format] = MappingProxyType({f.name: f for f in (*READ, *NOT_READ)})

_KINDS = {b"\xff\xfe": "this is UTF-16 text", b"PK": "this is a zip archive, and no torch file"}


def named(name: str) -> Format | None:
    """Return the format of that name; None for "auto"."""
    if name == "auto":
        return None
    if name not in FORMATS:
        raise ValueError(unknown("format", name, ("auto", *(f.name for f in READ))))
    if FORMATS[name].read is None:
        raise ValueError(f"format {name!r} is not read: {FORMATS[name].advice}")
    return FORMATS[name]


def recognised(head: Head, path: Path) -> Format | None:
    """Return the one format that recognises a file; None where none does."""
    found = [f for f in FORMATS.values() if f.recognises(head)]
    if len(found) > 1:
        raise TraceError(f"{path}: recognised as {', '.join(f.name for f in found)}: say which (format=, --format)")
    return found[0] if found else None


def detect(head: Head, path: Path) -> Format:
    """Return the format of a file; a table of unknown fields is read as canonical, which says what it lacks."""
    format = recognised(head, path)
    if format is None and head.container in FORMATS["canonical"].containers:
        return FORMATS["canonical"]
    if format is None:
        raise TraceError(f"{path}: {_what_it_is(head)}; a log is JSON, Parquet or slime's .pt (`trm-bounds formats`)")
    return format


def _what_it_is(head: Head) -> str:
    if not head.magic.strip():
        return "the file is empty"
    if head.compression:
        return f"this is {head.compression}, and there is no JSON in it"
    if head.container == "torch":
        return "this is a torch file, but not slime's train_data dump"
    return next((what for magic, what in _KINDS.items() if head.magic.startswith(magic)), "no known format")


# --- what to do for each trainer that keeps both log-probs in memory only: source to paste, never run from here -----
# Where :mod:`bounds.training` has a hook, how it is switched on; else a function ``export`` that appends canonical rows
# to a JSONL file. It uses nothing but ``tolist`` of the trainer's tensors, and leaves padding to the mask.

#: Trainer -> source.
RECIPES: Mapping[str, str] = MappingProxyType(
    {
        "trl": """\
# TRL (1.16): two lines. GRPOConfig needs use_vllm=True, vllm_importance_sampling_correction=True.
from trl import GRPOTrainer
import bounds.training.trl

class Trainer(bounds.training.trl.TrustRegion, GRPOTrainer):
    pass

# then Trainer(..., log_dir="trm_log", trust_region="seq_max_k2<=0.05"): either, beside what GRPOTrainer takes
""",
        "verl": """\
# verl (0.9): nothing to edit. Where trm-bounds is installed beside verl, verl finds its plug-in, which logs where this
# is set (in a Ray cluster +ray_kwargs.ray_init.runtime_env.env_vars.TRM_BOUNDS_LOG=trm_log); the horizon is
# data.max_response_length.
export TRM_BOUNDS_LOG=trm_log TRM_BOUNDS_HORIZON=4096
# It needs actor_rollout_ref.rollout.calculate_log_probs=True, and not bypass_mode: there nothing is scored before it is
# learned from.
""",
        "skyrl": """\
# SkyRL (0.4): return this trainer in get_trainer of the experiment; generator.sampling_params.logprobs must be on.
from skyrl.train.trainer import RayPPOTrainer
import bounds.training.skyrl

class Trainer(bounds.training.skyrl.TrustRegion, RayPPOTrainer):
    pass

# then Trainer(..., log_dir="trm_log", trust_region="seq_max_k2<=0.05"): either, beside what RayPPOTrainer takes
""",
        "openrlhf": """\
# OpenRLHF (0.11): call export(experiences, path) on what RemoteExperienceMaker.make_experience returns. vLLM's
# log-probs are kept with --algo.advantage.is_correction_level token or seq.
import json

def export(experiences, path):
    names = {"rollout_logprobs": "rollout_log_probs", "train_logprobs": "action_log_probs", "mask": "action_mask"}
    with open(path, "a") as file:
        for e in experiences:
            rows = {name: getattr(e, key).tolist() for name, key in names.items()}
            rows |= {"reward": e.info["reward"].tolist(), "prompt_id": e.prompts}
            for i in range(len(e.prompts)):
                file.write(json.dumps({"train_policy": "before-update", **{k: v[i] for k, v in rows.items()}}) + "\\n")
""",
        "ms-swift": """\
# ms-swift (4.6): in a subclass of GRPOTrainer, let _postprocess_batch(samples, batches) call export(samples, batches,
# rewards, path) after super(); rewards are (self._rewards_per_func * self.reward_weights).nansum(1) of this process.
import json

def export(samples, batches, rewards, path):
    names = ("rollout_logprobs", "train_logprobs", "mask")
    fields = ("rollout_per_token_logps", "old_per_token_logps", "completion_mask")
    rows = [[x for b in batches for x in getattr(b["grpo_batch"], key).tolist()] for key in fields]
    with open(path, "a") as file:
        for sample, reward, *grid in zip(samples, rewards.tolist(), *rows):
            row = {"prompt_id": sample.prompt_id, "reward": reward, "train_policy": "before-update"}
            file.write(json.dumps(row | dict(zip(names, grid))) + "\\n")
""",
    }
)

# --- what ``trm-bounds formats`` shows -------------------------------------------------------------------------

#: The recipe that makes the second half of a log, by ``transformers``: a script of its own.
SCORE = "score"
MEMORY_ONLY = (
    f"Only in memory ({', '.join(RECIPES)}): trm-bounds formats --recipe NAME prints what logs it. One half only: "
    f"--recipe {SCORE} prints a script that scores it by the trained weights"
)
_SHOWN = ("name", "title", "trainer", "file", "keys", "advice")


def recipe(trainer: str) -> str:
    """Return the source of an export recipe."""
    if trainer.lower() == SCORE:
        return resources.files("bounds").joinpath("training", "score.py").read_text("utf-8")
    if trainer.lower() not in RECIPES:
        raise ValueError(unknown("recipe", trainer, (*RECIPES, SCORE)))
    return RECIPES[trainer.lower()]


def to_dict() -> dict[str, Any]:
    """Return every format with its fields and whether it is read, and the names of the recipes; JSON-ready."""
    rows = [{n: getattr(f, n) for n in _SHOWN} | {"read": f.read is not None} for f in FORMATS.values()]
    return {"formats": rows, "recipes": [*RECIPES, SCORE]}


def tables() -> Iterator[object]:
    """Yield two tables for people: formats that are read, and formats that are not."""
    for formats, first, last in ((READ, "format", "its log-probs and mask"), (NOT_READ, "not read", "what would help")):
        rows = [([f.name, f.trainer, f.file, f.advice or f.keys], False) for f in formats]
        yield TerminalTable([first, "trainer", "file", last], rows)
