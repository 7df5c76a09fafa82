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


def scored(folder, records, *, tool=False):
    """What vLLM answers to a request that scores prompt and response: ``prompt_logprobs``, keyed by token id."""
    rows = []
    for record in records:
        tokens, _, pi, _ = sequence(record, tool=tool)
        entries = [{str(t): {"logprob": x}} for t, x in zip(tokens, pi, strict=True)]
        rows.append({"id": "s", "choices": [{"index": 0, "text": ""}], "prompt_logprobs": [None, *entries[1:]]})
    return lines(folder / "scored.jsonl", rows)


def completions(folder, records, *, ids=True):
    """``/v1/completions``: sampled responses, and the text that was echoed with its log-probs."""
    sampled, echoed = [], []
    for record in records:
        prompt, tokens = prompt_tokens(record), response_tokens(record)
        texts = [f"t{t}" for t in tokens]
        said = {"tokens": texts, "token_logprobs": record["rollout_logprobs"], "top_logprobs": None}
        choice = {"index": 0, "text": "...", "logprobs": said, "finish_reason": "stop"}
        known = {"token_ids": tokens, "prompt_token_ids": prompt} if ids else {"prompt_id": record["prompt_id"]}
        sampled.append({"object": "text_completion", "choices": [{**choice, **known, "reward": record.get("reward")}]})
        values = [None, *[-2.5] * (len(prompt) - 1), *record["train_logprobs"]]
        said = {"tokens": [*(f"t{t}" for t in prompt), *texts], "token_logprobs": values}
        echoed.append({"object": "text_completion", "choices": [{"index": 0, "text": "...", "logprobs": said}]})
    return lines(folder / "sampled.jsonl", sampled), lines(folder / "scored.jsonl", echoed)


def completions_with_echo(folder, records):
    """Prompt and response in one answer, whose usage says where the response begins."""
    rows = []
    for record in records:
        prompt, tokens = prompt_tokens(record), response_tokens(record)
        values = [None, *[-2.5] * (len(prompt) - 1), *record["rollout_logprobs"]]
        said = {"tokens": [f"t{t}" for t in (*prompt, *tokens)], "token_logprobs": values}
        choice = {"index": 0, "text": "...", "logprobs": said, "token_ids": tokens}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        beside = {"prompt_id": record["prompt_id"], "reward": record.get("reward")}
        rows.append({"choices": [choice], "usage": usage, **beside})
    return lines(folder / "sampled.jsonl", rows), scored(folder, records)


def sglang_forms(folder, records, *, form):
    """SGLang's other forms: in a chat's ``meta_info``, as values beside ids, as objects."""
    rows = []
    for record in records:
        tokens, values = response_tokens(record), record["rollout_logprobs"]
        pairs = list(zip(values, tokens, strict=True))
        meta = {
            "chat": {"output_token_logprobs": pairs},
            "values": {"output_token_logprobs_val": values, "output_token_logprobs_idx": tokens},
            "objects": {"output_token_logprobs": [{"token_id": t, "logprob": x} for x, t in pairs]},
        }[form]
        beside = {"prompt_id": record["prompt_id"], "reward": record.get("reward")}
        answer = {"meta_info": {"id": "x", **meta}}
        rows.append(
            {**({"choices": [{"index": 0, "logprobs": None, **answer}]} if form == "chat" else answer), **beside}
        )
    return lines(folder / "sampled.jsonl", rows), scored(folder, records)


def calls(record):
    """Two model calls with tool output between them: prompt, tokens and log-probs of each."""
    prompt = prompt_tokens(record)
    tokens, mu, _, mask = (column[len(prompt) :] for column in sequence(record))
    first, then = mask.index(0), len(mask) - mask[::-1].index(0)
    yield prompt, tokens[:first], mu[:first]
    if then < len(mask):
        yield [*prompt, *tokens[:then]], tokens[then:], mu[then:]


def verifiers(folder, records):
    """``results.jsonl`` with the column ``trajectory``."""
    rows = []
    for record in records:
        steps = [
            {"prompt": [], "completion": [], "reward": None, "tokens": {
                "prompt_ids": prompt, "prompt_mask": [0] * len(prompt), "completion_ids": tokens,
                "completion_mask": [1] * len(tokens), "completion_logprobs": values}}
            for prompt, tokens, values in calls(record) if tokens
        ]  # fmt: skip
        named = {"example_id": record["prompt_id"], "task": "maths", "reward": record.get("reward")}
        rows.append({**named, "prompt": [], "completion": [], "answer": "5", "trajectory": steps})
    return lines(folder / "results.jsonl", rows), scored(folder, records, tool=True)


def nemo_gym(folder, records):
    """Rollouts as the Responses API says them, with token ids; outputs of tools have none."""
    rows = []
    for record in records:
        drawn = [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "..."}],
             "prompt_token_ids": prompt, "generation_token_ids": tokens, "generation_log_probs": values}
            for prompt, tokens, values in calls(record) if tokens
        ]  # fmt: skip
        drawn.insert(1, {"type": "function_call_output", "output": "4"})
        rows.append(
            {"responses_create_params": {"input": []}, "response": {"output": drawn}, "reward": record.get("reward")}
        )
    return lines(folder / "rollouts.jsonl", rows), scored(folder, records, tool=True)


def atropos(folder, records):
    """Groups of responses; -100 in the mask and 1.0 as a log-prob where the policy drew nothing."""
    groups = []
    for group in by_prompt(records).values():
        columns = [sequence(record) for record in group]
        groups.append(
            {
                "tokens": [tokens for tokens, _, _, _ in columns],
                "masks": [[t if m else -100 for t, m in zip(c[0], c[3], strict=True)] for c in columns],
                "inference_logprobs": [[x if m else 1.0 for x, m in zip(c[1], c[3], strict=True)] for c in columns],
                "scores": [record.get("reward", 0.0) for record in group], "messages": None, "ref_logprobs": None,
            }
        )  # fmt: skip
    return lines(folder / "groups.jsonl", groups), scored(folder, records, tool=True)


def responses_api(folder, records, *, batch=False):
    """``/v1/responses``: texts of tokens in two messages; scored by an echo, which has the same texts."""
    rows = []
    for k, record in enumerate(records):
        said = [
            {"token": f"t{t}", "logprob": x}
            for t, x in zip(response_tokens(record), record["rollout_logprobs"], strict=True)
        ]
        half = len(said) // 2
        messages = [
            {"type": "message", "content": [{"type": "output_text", "text": "...", "logprobs": some}]}
            for some in (said[:half], said[half:])
        ]
        beside = {"prompt_id": record["prompt_id"], "reward": record.get("reward")}
        answer = {"id": "resp_1", "object": "response", "output": messages}
        request = {"custom_id": f"request-{k}", "response": {"status_code": 200, "body": answer}, "error": None}
        rows.append({**(request if batch else answer), **beside})
    return lines(folder / "sampled.jsonl", rows), completions(folder / "echo", records)[1]


def miles_payload(records, vector):
    """miles' train_data: slime's fields as columns under ``rollout_data``."""
    samples = slime_payload(records, vector)["samples"]
    names = ("tokens", "response_lengths", "rewards", "loss_masks", "rollout_log_probs", "log_probs")
    columns = {name: [sample[name] for sample in samples] for name in names}
    raw = [record.get("reward", 0.0) for record in records]
    return {"rollout_id": 3, "rank": 0, "rollout_data": {**columns, "raw_reward": raw}}


def miles_loss_payload(records, vector):
    """miles' policy_loss_debug: no prompts, no rewards."""
    samples = [
        {
            "index": k, "total_length": 9, "response_length": int(s["response_lengths"]),
            "train_log_probs": s["log_probs"], "old_log_probs": s["log_probs"],
            "advantages": s["log_probs"], "local_loss_mask": s["loss_masks"],
            "rollout_log_probs": s["rollout_log_probs"],
        }
        for k, s in enumerate(slime_payload(records, vector)["samples"])
    ]  # fmt: skip
    return {"rank": 0, "call": 0, "samples": samples, "ppo_kl": vector([0.0]), "finite": {"ppo_kl": True}}


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


def openrlhf_experiences(records):
    """OpenRLHF's Experiences: prompt and response shifted by one, 0.0 on the prompt, two experiences."""
    rows = [[column[1:] for column in sequence(r)[1:]] for r in records]
    length = max(len(row[0]) for row in rows) + 2
    grids = [np.array([row[k] + [0] * (length - len(row[k])) for row in rows]) for k in range(3)]
    names, found = ("rollout_log_probs", "action_log_probs", "action_mask"), []
    for part in (slice(0, 40), slice(40, None)):
        some = records[part]
        info = {"reward": np.array([r["reward"] for r in some])}
        fields = {name: grid[part] for name, grid in zip(names, grids, strict=True)}
        found.append(SimpleNamespace(**fields, info=info, prompts=[r["prompt_id"] for r in some]))
    return found


def swift_batch(records):
    """ms-swift's samples, micro-batches with a GRPOBatch each, and rewards."""
    mu, pi, mask, _ = responses(records)
    batches = [
        {
            "grpo_batch": SimpleNamespace(
                rollout_per_token_logps=mu[part], old_per_token_logps=pi[part], completion_mask=mask[part]
            )
        }
        for part in (slice(0, 40), slice(40, None))
    ]
    samples = [SimpleNamespace(prompt_id=r["prompt_id"]) for r in records]
    return samples, batches, np.array([r["reward"] for r in records])


# --- dumps of text -----------------------------------------------------------------------------------------

TEXT_DUMPS = {
    "verl-text": {"input": "a", "output": "b", "gts": None, "score": 1.0, "step": 3},
    "areal-text": {"task_id": 1, "sample_idx": 0, "seqlen": 9, "prompt_len": 3, "head_version": 0, "tail_version": 1,
                   "reward": 1.0, "prompt": "a", "completion": "b"},
    "rollouts-text": {"prompt": "q", "answer": "5", "completion": "a", "completion_ids": [220, 20, 21]},
    "scalars": {"step": 0, "optim/kl_sample_train_v1": 0.00087, "optim/entropy": 0.46},
    "ms-swift-text": {"gen_step": ["1"], "prompt": ["a"], "completion": ["b"], "advantages": [0.1]},
}  # fmt: skip
TRL_TABLE = {"step": [1], "prompt": ["a"], "completion": ["b"], "accuracy_reward": [1.0], "advantage": [0.0]}
