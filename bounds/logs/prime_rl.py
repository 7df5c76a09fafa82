"""prime-rl: ``token_exports/step_{S}/rank_{R}.jsonl``, complete once an empty file STABLE lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from bounds._checks import BoolArray, FloatArray
from bounds.logs.batch import Row, TraceError, Wanted, by_rows, numbers
from bounds.logs.decode import prompt_key, required, typed, without_first

_Floats = list[float | None] | None


class _Row(msgspec.Struct):
    inference_logprobs: _Floats = None
    trainer_logprobs: _Floats = None
    loss_mask: list[float | bool] | None = None
    rl_weights: _Floats = None
    ref_kl_weights: _Floats = None
    step: int | None = None
    env_name: str | None = None


class _RowWithPrompt(_Row):
    token_ids: list[int] | None = None


def unfinished(path: Path) -> str:
    """Say why a file must not be read yet; "" where it may be."""
    mark = path.parent / "STABLE"
    if mark.is_file() and mark.stat().st_size == 0:
        return ""
    return f"{path.parent}: no empty file STABLE: prime-rl has not finished this step (or it was copied without)"


@by_rows
def read(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    decoder = msgspec.json.Decoder(_RowWithPrompt if wanted.prompts else _Row)
    for where, line in typed(path, decoder):
        mask = required(line.loss_mask, "loss_mask", where)
        yield (
            where,
            {
                "prompt_id": prompt_key(line.token_ids if isinstance(line, _RowWithPrompt) else None, mask, where),
                "rollout_logprobs": without_first(required(line.inference_logprobs, "inference_logprobs", where)),
                "train_logprobs": without_first(required(line.trainer_logprobs, "trainer_logprobs", where)),
                "mask": np.where(_sampled(line, mask, where), mask, 0.0),
                "step": line.step,
                "environment": line.env_name,
            },
        )


def _sampled(line: _Row, mask: FloatArray, where: str) -> BoolArray:
    """Say where the rollout policy drew the token; those of a frozen model are learned by cross-entropy.

    The trainer's own rule: a weight of the RL or of the reference term is not 0. Columns of null are defaults.
    """
    rl, reference = (
        None if values is None or None in values else numbers(values, name, where)
        for name, values in (("rl_weights", line.rl_weights), ("ref_kl_weights", line.ref_kl_weights))
    )
    for name, weights in (("rl_weights", rl), ("ref_kl_weights", reference)):
        if weights is not None and weights.shape != mask.shape:
            raise TraceError(f"{where}: {name} has {weights.size} entries, loss_mask has {mask.size}")
    drawn = mask != 0.0 if rl is None else rl != 0.0
    return np.asarray(drawn if reference is None else drawn | (reference != 0.0))
