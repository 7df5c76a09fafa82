"""NeMo-RL: ``train_data_step{N}.jsonl``, one line a response, each field wrapped in a list of length 1.

Lines can be 30 MB, most of it ``content``, which is skipped and not built.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bounds.logs.decode import numbers, typed
from bounds.logs.format import Format, Head, Records, Wanted
from bounds.logs.response import TraceError
from bounds.logs.whole_sequence import prompt_key, without_first

_Floats = list[float | list[float | None] | None] | None
_Mask = list[float | bool | list[float | bool]] | None
_Scalar = float | bool | list[float | bool | None] | None


class _Row(msgspec.Struct):
    generation_logprobs: _Floats = None
    prev_logprobs: _Floats = None
    token_loss_mask: _Mask = None
    sample_loss_mask: _Scalar = None
    rewards: _Scalar = None
    filtered_rewards: _Scalar = None  # with dynamic sampling the rewards of these rows; `rewards` is of all drawn


class _RowWithPrompt(_Row):
    token_ids: list[int | list[int]] | None = None


def _recognises(head: Head) -> bool:
    return head.container == "json" and {"generation_logprobs", "prev_logprobs"} <= head.keys


def _records(path: Path, wanted: Wanted) -> Records:
    decoder = msgspec.json.Decoder(_RowWithPrompt if wanted.prompts else _Row)
    for row, (place, line) in enumerate(typed(path, decoder)):
        where = f"{place}: row {row}"
        mask = numbers(line.token_loss_mask, "token_loss_mask", where)
        rewards = line.rewards if line.filtered_rewards is None else line.filtered_rewards
        yield (
            where,
            {
                "prompt_id": prompt_key(_tokens(line), mask, where),
                "reward": _scalar(rewards, "rewards", where),
                "rollout_logprobs": without_first(numbers(line.generation_logprobs, "generation_logprobs", where)),
                "train_logprobs": without_first(numbers(line.prev_logprobs, "prev_logprobs", where)),
                "mask": mask if _learned_from(line.sample_loss_mask, where) else np.zeros_like(mask),
            },
        )


def _tokens(line: _Row) -> Any:
    """The token ids, out of the list that may wrap them; only those of the prompt are looked at."""
    tokens = line.token_ids if isinstance(line, _RowWithPrompt) else None
    return tokens[0] if tokens is not None and len(tokens) == 1 and isinstance(tokens[0], list) else tokens


def _learned_from(sample_mask: _Scalar, where: str) -> bool:
    """Whether the sample counts at all."""
    kept = _scalar(sample_mask, "sample_loss_mask", where)
    if kept not in (None, 0.0, 1.0):
        raise TraceError(f"{where}: sample_loss_mask must be 0 or 1, got {kept}")
    return kept != 0.0


def _scalar(value: _Scalar, name: str, where: str) -> float | None:
    if value is None:
        return None
    number = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(number, float | int) or math.isnan(number):
        raise TraceError(f"{where}: {name} must be one number, got {value!r:.60}")
    return float(number)


NEMO_RL = Format(
    name="nemo-rl",
    title="NeMo-RL training data",
    trainer="NeMo-RL",
    file="train_data_step{N}.jsonl, written by default",
    keys="generation_logprobs, prev_logprobs, token_loss_mask x sample_loss_mask, rewards",
    recognises=_recognises,
    records=_records,
)
