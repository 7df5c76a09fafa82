"""Writes canonical records as each trainer and server would: its keys, wrapping, fillers, padding and folders.

Independent of the readers: nothing of ``bounds`` is imported here. A response gets a made-up prompt before it
and, where the trainer logs them, tool tokens inside it; what is written there must never count.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np

VOCABULARY = 5000
TOOL = 3  # tokens of tool output in the middle of each response


def prompt_tokens(record):
    """Made-up ids of the prompt, the same for all its responses."""
    k = int("".join(c for c in record["prompt_id"] if c.isdigit()))
    return [7 + k, *range(11, 14 + k % 5)]


def response_tokens(record):
    return [(17 * i + len(record["rollout_logprobs"])) % VOCABULARY for i in range(len(record["rollout_logprobs"]))]


def sequence(record, *, tool=True, filler=0.0):
    """Token ids, mu, pi and mask of prompt, response and tool output; pi is not 0 where mu is a filler."""
    prompt, response = prompt_tokens(record), response_tokens(record)
    half = len(response) // 2
    inserted = [(99, filler, -8.0 - i, 0) for i in range(TOOL * tool)]
    drawn = list(zip(response, record["rollout_logprobs"], record["train_logprobs"], [1] * len(response), strict=True))
    before = [(token, filler, -2.5, 0) for token in prompt]
    before[0] = (prompt[0], 0.0, 0.0, 0)
    return [list(column) for column in zip(*before, *drawn[:half], *inserted, *drawn[half:], strict=True)]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def padded(values, length, filler):
    return list(values) + [filler] * (length - len(values))


def canonical(folder, records):
    return lines(folder / "log.jsonl", records)


def canonical_halves(folder, records):
    """Rows of both halves in different orders, with row ids."""
    halves = ({"prompt_id", "reward", "rollout_logprobs"}, {"train_logprobs"})
    rows = [[{"row_id": i, **{k: r[k] for k in keys if k in r}} for i, r in enumerate(records)] for keys in halves]
    rng = np.random.default_rng(5)
    return lines(folder / "mu.jsonl", rows[0]), lines(
        folder / "pi.jsonl", [rows[1][i] for i in rng.permutation(len(records))]
    )


def nemo_rl(folder, records, *, nested=True, floats=False):
    """``train_data_step{N}.jsonl``: padded on the right, each field in a list of length 1."""
    sequences = [sequence(r) for r in records]
    length = max(len(s[0]) for s in sequences) + 2
    kind = float if floats else int
    rows = []
    for k, (record, (tokens, mu, pi, mask)) in enumerate(zip(records, sequences, strict=True)):
        row = {
            "content": "text \u2028 with [brackets], commas, NaN",
            "rewards": record.get("reward", 0.0),
            "input_lengths": len(tokens),
            "token_ids": padded(tokens, length, 0),
            "token_loss_mask": padded([kind(m) for m in mask], length, kind(0)),
            "sample_loss_mask": 1.0,
            "advantages": padded([0.3] * len(tokens), length, 0.3),
            "generation_logprobs": padded(mu, length, 0.0),
            "prev_logprobs": padded(pi, length, -11.0),
        }
        rows.append({**({key: [value] for key, value in row.items()} if nested else row), "idx": k})
    dropped = dict(rows[0], sample_loss_mask=[0.0] if nested else 0.0)  # a sample that is not learned from
    return lines(folder / "train_data_step7.jsonl", [*rows, dropped])


def prime_rl(folder, records, *, ranks=2, steps=1):
    """``token_exports/step_{S}/rank_{R}.jsonl`` with STABLE; null for what is not finite."""
    for place in range(ranks * steps):
        step, rank = divmod(place, ranks)
        rows = []
        for k, record in enumerate(records[place :: ranks * steps]):
            tokens, mu, pi, mask = sequence(record)
            pi[0] = math.log(1 / VOCABULARY)
            mu[1] = None
            n = len(tokens)
            ratio = [0.0 if m is None else p - m for m, p in zip(mu, pi, strict=True)]
            rows.append(
                {
                    "schema_version": 1, "step": step, "rank": rank, "micro_step": 0, "micro_sequence_idx": k,
                    "export_sequence_idx": k, "env_name": "math", "token_ids": tokens, "position_ids": list(range(n)),
                    "loss_mask": [bool(m) for m in mask], "advantages": [0.5] * n, "inference_logprobs": mu,
                    "trainer_logprobs": pi, "entropy": [1.0] * n, "mismatch_kl": [None] * n,
                    "log_importance_ratio": ratio, "importance_ratio": [math.exp(x) for x in ratio],
                    "rl_weights": [None] * n, "ce_weights": [None] * n, "ref_kl_weights": [None] * n,
                }
            )  # fmt: skip
        lines(folder / "token_exports" / f"step_{step}" / f"rank_{rank}.jsonl", rows)
        (folder / "token_exports" / f"step_{step}" / "STABLE").touch()
    return folder / "token_exports"


def slime_payload(records, vector):
    """What slime hands to torch.save; ``vector`` makes a tensor. Rewards of samples are normalised."""
    samples = []
    for k, record in enumerate(records):
        tokens, mu, pi, mask = sequence(record)
        start = len(prompt_tokens(record))
        samples.append(
            {
                "data_parallel_rank": k % 2, "sample_index": k, "rollout_position": k, "tokens": vector(tokens),
                "response_lengths": len(mask) - start, "rewards": record.get("reward", 0.0) - 0.37,
                "loss_masks": vector(mask[start:]), "rollout_log_probs": vector(mu[start:]),
                "log_probs": vector(pi[start:]), "truncated": 0,
            }
        )  # fmt: skip
    shards = [{"rank": 0, "data_parallel_rank": 0, "sample_indices": [0], "total_lengths": [9]}]
    raw = [record.get("reward", 0.0) for record in records]
    return {"format_version": 2, "rollout_id": 3, "rank": 0, "samples": samples, "dp_shards": shards, "raw_reward": raw}


def by_prompt(records):
    groups = {}
    for record in records:
        groups.setdefault(record["prompt_id"], []).append(record)
    return groups


def openai(folder, records, *, ids="token_ids", batch=False):
    """Chat completions with several choices, and vLLM's ``prompt_logprobs`` of prompt and response."""
    sampled, scored = [], []
    for prompt, group in by_prompt(records).items():
        choices = []
        for k, record in enumerate(group):
            tokens = response_tokens(record)
            content = [
                {"token": f"token_id:{t}" if ids == "text" else f"t{t}", "logprob": x, "bytes": None,
                 "top_logprobs": [{"token": "a", "logprob": x}]}
                for t, x in zip(tokens, record["rollout_logprobs"], strict=True)
            ]  # fmt: skip
            choice = {"index": k, "message": {"role": "assistant", "content": "..."}, "reward": record.get("reward"),
                      "logprobs": {"content": content}, "finish_reason": "stop"}  # fmt: skip
            choices.append({**choice, **({"token_ids": tokens} if ids == "token_ids" else {})})
            whole = prompt_tokens(record) + tokens
            values = [-2.5] * len(prompt_tokens(record)) + record["train_logprobs"]
            entries = [
                {str(t): {"logprob": x, "rank": 1, "decoded_token": "a"}} for t, x in zip(whole, values, strict=True)
            ]
            answer = {"id": f"cmpl-{len(scored)}", "choices": [{"index": 0, "text": "", "logprobs": None}],
                      "prompt_logprobs": [None, *entries[1:]]}  # fmt: skip
            scored.append({"custom_id": f"{prompt}/{k}", "response": {"body": answer}} if batch else answer)
        answer = {"id": f"chatcmpl-{prompt}", "object": "chat.completion", "choices": choices}
        sampled.append({"custom_id": prompt, "response": {"body": answer}} if batch else answer)
    return lines(folder / "sampled.jsonl", sampled), lines(folder / "scored.jsonl", scored)


def sglang(folder, records, *, elements=3):
    """``/generate``: an array of responses, and the array of what scoring them returned."""

    def triples(tokens, values):
        return [[x, t, "a"][:elements] for t, x in zip(tokens, values, strict=True)]

    sampled, scored = [], []
    for record in records:
        prompt, tokens = prompt_tokens(record), response_tokens(record)
        meta = {"id": "x", "prompt_tokens": len(prompt), "completion_tokens": len(tokens),
                "input_token_logprobs": triples(prompt, [None] + [-1.5] * (len(prompt) - 1)),
                "output_token_logprobs": triples(tokens, record["rollout_logprobs"])}  # fmt: skip
        sampled.append({"text": "...", "meta_info": meta, "reward": record.get("reward")})
        values = [None] + [-2.5] * (len(prompt) - 1) + record["train_logprobs"]
        scored.append({"text": "", "meta_info": {"input_token_logprobs": triples(prompt + tokens, values),
                                                 "output_token_logprobs": triples([5], [-0.1])}})  # fmt: skip
    paths = folder / "sampled.json", folder / "scored.json"
    for path, rows in zip(paths, (sampled, scored), strict=True):
        path.write_text(json.dumps(rows, indent=1))
    return paths


# --- batches as they live in a trainer's memory -----------------------------------------------------------


def responses(records, *, left=False, filler=0.0, extra=2):
    """mu, pi and mask [B, L] of responses with tool tokens, padded on one side."""
    rows = [[c[len(prompt_tokens(r)) :] for c in sequence(r, filler=filler)[1:]] for r in records]
    length = max(len(row[0]) for row in rows) + extra

    def grid(k, value):
        out = np.full((len(rows), length), value, dtype=np.float64)
        for line, row in zip(out, rows, strict=True):
            place = slice(length - len(row[k]), None) if left else slice(len(row[k]))
            line[place] = row[k]
        return out

    return grid(0, filler), grid(1, filler), grid(2, 0).astype(np.int64), length


def ended_reward(records, mask):
    """The reward on the last token of each row, as trainers keep it."""
    rewards = np.zeros(mask.shape)
    rewards[:, -1] = [r["reward"] for r in records]
    return rewards


def verl_batch(records):
    """A DataProto: right-padded with 0.0, and rows of nothing but 0 where the batch was filled up."""
    mu, pi, mask, _ = responses(records)
    fill = np.zeros((3, mu.shape[1]))
    uid = np.array([r["prompt_id"] for r in records] + ["pad"] * 3, dtype=object)
    scores = np.concatenate([ended_reward(records, mask), fill])
    batch = {"rollout_log_probs": mu, "old_log_probs": pi, "response_mask": mask}
    batch = {name: np.concatenate([values, fill.astype(values.dtype)]) for name, values in batch.items()}
    return SimpleNamespace(batch={**batch, "token_level_scores": scores}, non_tensor_batch={"uid": uid})


class SkyRLBatch(dict):
    metadata: dict


def skyrl_batch(records):
    """A TrainingInputBatch: left-padded, -9999.0 for what is missing, filled up with masked copies of row 0."""
    mu, pi, mask, _ = responses(records, left=True, filler=-9999.0)
    values = {"rollout_logprobs": mu, "action_log_probs": pi, "rewards": ended_reward(records, mask)}
    batch = SkyRLBatch({name: np.concatenate([v, v[:1]]) for name, v in values.items()})
    batch["loss_mask"] = np.concatenate([mask, np.zeros_like(mask[:1])])
    batch.metadata = {"uids": [r["prompt_id"] for r in records], "pad_size": 1}
    return batch


def trl_batch(records):
    """GRPOTrainer's inputs: completions right-padded with 0.0, prompts left-padded, tool_mask padded with 1."""
    mu, pi, mask, length = responses(records)
    lengths = [len(sequence(r)[0]) - len(prompt_tokens(r)) for r in records]
    completion = np.array([[1] * n + [0] * (length - n) for n in lengths])
    prompts = [prompt_tokens(r) for r in records]
    width = max(map(len, prompts))
    return {
        "prompt_ids": np.array([[0] * (width - len(p)) + p for p in prompts]),
        "prompt_mask": np.array([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
        "completion_mask": completion,
        "tool_mask": np.where(completion == 1, mask, 1),
        "sampling_per_token_logps": mu,
        "old_per_token_logps": pi,
        "advantages": np.zeros(len(records)),
    }


# --- dumps of text -----------------------------------------------------------------------------------------

TEXT_DUMPS = {
    "verl-text": {"input": "a", "output": "b", "gts": None, "score": 1.0, "step": 3},
    "areal-text": {"task_id": 1, "sample_idx": 0, "seqlen": 9, "prompt_len": 3, "head_version": 0, "tail_version": 1,
                   "reward": 1.0, "prompt": "a", "completion": "b"},
    "ms-swift-text": {"gen_step": ["1"], "prompt": ["a"], "completion": ["b"], "advantages": [0.1]},
}  # fmt: skip
TRL_TABLE = {"step": [1], "prompt": ["a"], "completion": ["b"], "accuracy_reward": [1.0], "advantage": [0.0]}
