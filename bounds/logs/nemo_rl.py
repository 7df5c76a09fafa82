"""NeMo-RL: ``train_data_step{N}.jsonl``, one line a response, each field wrapped in a list of length 1.

Lines can be 30 MB, most of it ``content``, which is skipped and not built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bounds._checks import FloatArray
from bounds.logs.batch import Row, TraceError, Wanted, by_rows
from bounds.logs.decode import prompt_key, required, typed, unwrapped, without_first

_Logprobs = list[float | list[float | None] | None] | None
_Mask = list[float | bool | list[float | bool]] | None
_Scalar = float | bool | list[float | bool | None] | None


class _Row(msgspec.Struct):
    generation_logprobs: _Logprobs = None
    prev_logprobs: _Logprobs = None
    token_loss_mask: _Mask = None
    sample_loss_mask: _Scalar = None
    rewards: _Scalar = None
    filtered_rewards: _Scalar = None  # with dynamic sampling the rewards of these rows; `rewards` is of all drawn


class _RowWithPrompt(_Row):
    token_ids: list[int | list[int]] | None = None


@by_rows
def read(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    decoder = msgspec.json.Decoder(_RowWithPrompt if wanted.prompts else _Row)
    for where, line in typed(path, decoder):
        mask = _floats(line.token_loss_mask, "token_loss_mask", where)
        rewards = line.rewards if line.filtered_rewards is None else line.filtered_rewards
        tokens = unwrapped(line.token_ids) if isinstance(line, _RowWithPrompt) else None
        yield (
            where,
            {
                "prompt_id": prompt_key(tokens, mask, where),
                "reward": _scalar(rewards, "rewards", where),
                "rollout_logprobs": without_first(_floats(line.generation_logprobs, "generation_logprobs", where)),
                "train_logprobs": without_first(_floats(line.prev_logprobs, "prev_logprobs", where)),
                "mask": mask if _learned_from(line.sample_loss_mask, where) else np.zeros_like(mask),
            },
        )


def _floats(values: Any, name: str, where: str) -> FloatArray:
    return required(unwrapped(values), name, where)


def _learned_from(sample_mask: _Scalar, where: str) -> bool:
    """Say whether the sample counts at all."""
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
