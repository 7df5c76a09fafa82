"""What trainers write: NeMo-RL, prime-rl, slime. Of JSON only what is needed is decoded."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bounds._checks import BoolArray, FloatArray
from bounds._text import one_line
from bounds.logs.batch import Row, TraceError, Wanted, by_rows, numbers
from bounds.logs.decode import typed


def _required(values: Any, name: str, where: str) -> FloatArray:
    """Return numbers that a record must have."""
    if values is None:
        raise TraceError(f"{where}: {name} is missing")
    return numbers(values, name, where)


def _without_first(values: Any, name: str, where: str) -> FloatArray:
    """Call the first log-prob missing: no policy predicts the first token of a sequence, and a filler stands there."""
    logprobs = _required(values, name, where)
    logprobs[:1] = np.nan
    return logprobs


def _prompt(tokens: list[int] | None, mask: FloatArray, where: str) -> str | None:
    """Name a prompt by the token ids before the first policy token; None where there are none."""
    if tokens is None:
        return None
    if len(tokens) != mask.size:
        raise TraceError(f"{where}: token_ids has {len(tokens)} entries, the mask has {mask.size}")
    prompt = tokens[: int(np.argmax(mask != 0.0))] if mask.any() else []
    return _hashed(numbers(prompt, "token_ids", where))


def _hashed(tokens: FloatArray) -> str | None:
    return "tokens:" + hashlib.blake2b(tokens.tobytes(), digest_size=12).hexdigest() if tokens.size else None


# --- NeMo-RL: ``train_data_step{N}.jsonl``, one line a response, each field wrapped in a list of length 1 --------
# Lines can be 30 MB, most of it ``content``, which is skipped and not built.

_Wrapped = list[float | list[float | None] | None] | None
_Scalar = float | bool | list[float | bool | None] | None


class _NemoRow(msgspec.Struct):
    generation_logprobs: _Wrapped = None
    prev_logprobs: _Wrapped = None
    token_loss_mask: list[float | bool | list[float | bool]] | None = None
    sample_loss_mask: _Scalar = None
    rewards: _Scalar = None
    reward: _Scalar = None  # as rows written by hand name it
    agent_ref: Any = None  # NeMo-Gym's environment, {"name": ...}
    filtered_rewards: _Scalar = None  # with dynamic sampling the rewards of these rows; `rewards` is of all drawn


class _NemoRowWithPrompt(_NemoRow):
    token_ids: list[int | list[int]] | None = None


@by_rows
def read_nemo_rl(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    for where, line in typed(
        path, msgspec.json.Decoder(_NemoRowWithPrompt if wanted.prompts else _NemoRow), wanted.limits
    ):
        mask = _required(_unwrapped(line.token_loss_mask), "token_loss_mask", where)
        said = (line.filtered_rewards, line.rewards, line.reward)
        rewards = next((each for each in said if each is not None), None)
        tokens = _unwrapped(getattr(line, "token_ids", None))
        record: dict[str, Any] = {
            "prompt_id": _prompt(tokens, mask, where),
            "tokens": tokens,
            "reward": _scalar(rewards, "rewards", where),
            "environment": line.agent_ref.get("name") if isinstance(line.agent_ref, dict) else None,
        }
        for ours, name in (("rollout_logprobs", "generation_logprobs"), ("train_logprobs", "prev_logprobs")):
            record[ours] = _without_first(_unwrapped(getattr(line, name)), name, where)
        kept = _scalar(line.sample_loss_mask, "sample_loss_mask", where)
        if kept not in (None, 0.0, 1.0):
            raise TraceError(f"{where}: sample_loss_mask must be 0 or 1, got {kept}")
        yield where, record | {"mask": np.zeros_like(mask) if kept == 0.0 else mask}


def _unwrapped(values: Any) -> Any:
    """Take a list out of the list of length 1 that may wrap it."""
    return values[0] if values is not None and len(values) == 1 and isinstance(values[0], list) else values


def _scalar(value: _Scalar, name: str, where: str) -> float | None:
    if value is None:
        return None
    number = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(number, float | int) or math.isnan(number):
        raise TraceError(f"{where}: {name} must be one number, got {value!r:.60}")
    return float(number)


# --- prime-rl: ``token_exports/step_{S}/rank_{R}.jsonl``, complete once an empty file STABLE lies beside it ------

_Floats = list[float | None] | None


class _PrimeRow(msgspec.Struct):
    inference_logprobs: _Floats = None
    trainer_logprobs: _Floats = None
    loss_mask: list[float | bool] | None = None
    rl_weights: _Floats = None
    ref_kl_weights: _Floats = None
    step: int | None = None
    env_name: str | None = None


class _PrimeRowWithPrompt(_PrimeRow):
    token_ids: list[int] | None = None


def unfinished_prime_rl(path: Path) -> str:
    """Say why a file must not be read yet; "" where it may be."""
    mark = path.parent / "STABLE"
    if mark.is_file() and mark.stat().st_size == 0:
        return ""
    return f"{path.parent}: no empty file STABLE: prime-rl has not finished this step (or it was copied without)"


@by_rows
def read_prime_rl(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    for where, line in typed(
        path, msgspec.json.Decoder(_PrimeRowWithPrompt if wanted.prompts else _PrimeRow), wanted.limits
    ):
        mask = _required(line.loss_mask, "loss_mask", where)
        yield (
            where,
            {
                "prompt_id": _prompt(getattr(line, "token_ids", None), mask, where),
                "tokens": getattr(line, "token_ids", None),
                "rollout_logprobs": _without_first(line.inference_logprobs, "inference_logprobs", where),
                "train_logprobs": _without_first(line.trainer_logprobs, "trainer_logprobs", where),
                "mask": np.where(_sampled(line, mask, where), mask, 0.0),
                "step": line.step,
                "environment": line.env_name,
            },
        )


def _sampled(line: _PrimeRow, mask: FloatArray, where: str) -> BoolArray:
    """Say where the rollout policy drew the token; those of a frozen model are learned by cross-entropy.

    The trainer's own rule: a weight of the RL or of the reference term is not 0. Columns of null are defaults.
    """
    drawn = []
    for name, default in (("rl_weights", mask), ("ref_kl_weights", np.zeros_like(mask))):
        values = getattr(line, name)
        weights = default if values is None or None in values else numbers(values, name, where)
        if weights.shape != mask.shape:
            raise TraceError(f"{where}: {name} has {weights.size} entries, loss_mask has {mask.size}")
        drawn.append(weights != 0.0)
    return np.asarray(drawn[0] | drawn[1])


# --- slime: ``train_data/{rollout_id}.pt``, a torch.save dict, loaded by torch's safe loading only ---------------


@by_rows
def read_slime(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    dump = _load(path)
    for row, sample in enumerate(_samples(dump, path)):
        where = f"{path}: row {row}"
        record = _slime_record(sample, wanted, where)
        yield where, {**record, "reward": _reward(dump, sample), "step": dump.get("rollout_id")}


@by_rows
def read_miles(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response: slime's fields side by side, as columns."""
    dump = _load(path)
    columns = dump.get("rollout_data") if isinstance(dump, Mapping) else None
    if not isinstance(columns, Mapping):
        raise TraceError(f"{path}: must be a dict with a dict `rollout_data`, as miles' train_data dump has it")
    drawn = columns.get("rollout_log_probs")
    if not isinstance(drawn, Sequence) or isinstance(drawn, str):
        raise TraceError(f"{path}: rollout_data has no list rollout_log_probs (it has: {', '.join(map(str, columns))})")
    raw = columns.get("raw_reward")
    rewards = raw if isinstance(raw, Sequence) and len(raw) == len(drawn) else columns.get("rewards")
    names = ("rollout_log_probs", "log_probs", "loss_masks", "tokens")
    for row in range(len(drawn)):
        sample = {name: _cell(columns, name, row, len(drawn), path) for name in names}
        record = _slime_record(sample, wanted, f"{path}: row {row}")
        reward = None if rewards is None else _cell({"rewards": rewards}, "rewards", row, len(drawn), path)
        yield f"{path}: row {row}", {**record, "reward": reward, "step": dump.get("rollout_id")}


@by_rows
def read_miles_loss(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response; of responses in pieces (context parallelism), an error."""
    for row, sample in enumerate(_samples(_load(path), path)):
        where = f"{path}: row {row}"
        record = {
            "rollout_logprobs": _plain_tensor(sample, "rollout_log_probs", where),
            "train_logprobs": _plain_tensor(sample, "train_log_probs", where),
            "mask": _plain_tensor(sample, "local_loss_mask", where),
        }
        whole = sample.get("response_length")
        if isinstance(whole, int) and whole != record["train_logprobs"].size:
            raise TraceError(
                f"{where}: {record['train_logprobs'].size} of a response's {whole} tokens: ranks of context "
                "parallelism hold a piece each; read train_data, which --dump-details writes beside policy_loss_debug"
            )
        yield where, record


def _cell(columns: Mapping[str, Any], name: str, row: int, rows: int, path: Path) -> Any:
    """Return one entry of a column of as many rows; None where there is no such column."""
    column = columns.get(name)
    if column is None:
        return None
    if not hasattr(column, "__len__") or len(column) != rows:
        raise TraceError(f"{path}: rollout_data[{name!r}] must have one entry for each of the {rows} responses")
    return column[row]


def _samples(dump: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the samples of a dump."""
    samples = dump.get("samples") if isinstance(dump, Mapping) else None
    if not isinstance(samples, Sequence) or isinstance(samples, str):
        raise TraceError(f"{path}: must be a dict with a list `samples`, as slime's and miles' dumps have it")
    for row, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise TraceError(f"{path}: row {row}: samples[{row}] must be a dict, got {type(sample).__name__}")
        yield sample


def _slime_record(sample: Mapping[str, Any], wanted: Wanted, where: str) -> dict[str, Any]:
    train = _plain_tensor(sample, "log_probs", where)
    record: dict[str, Any] = {
        "rollout_logprobs": _plain_tensor(sample, "rollout_log_probs", where),
        "train_logprobs": train,
        "mask": _plain_tensor(sample, "loss_masks", where),
    }
    if wanted.prompts and sample.get("tokens") is not None:  # prompt and response
        tokens = _plain_tensor(sample, "tokens", where)
        start = max(tokens.size - train.size, 0)
        record |= {
            "prompt_id": _hashed(tokens[:start]),
            "tokens": tokens[start:] if train.size <= tokens.size else None,
        }
    return record


def _load(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise TraceError(f'{path}: reading torch files needs torch: pip install "trm-bounds[torch]"') from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever torch raises for a damaged file, or refuses to build
        reason = one_line(str(error).strip().split("\n")[0], 200) or type(error).__name__
        raise TraceError(
            f"{path}: torch's safe loading refuses it ({reason}); nothing in it was run. Save plain tensors, lists and "
            "numbers, or export canonical rows (trm-bounds formats --recipe verl shows how)"
        ) from None


def _plain_tensor(sample: Mapping[str, Any], name: str, where: str) -> FloatArray:
    """Return a field as float64; a tensor may not claim more numbers than it stores."""
    import torch

    value = sample.get(name)
    if value is None:
        raise TraceError(f"{where}: {name} is missing (the sample has: {', '.join(map(str, sample))})")
    if isinstance(value, torch.Tensor):
        try:
            if value.is_sparse or value.numel() * value.element_size() > value.untyped_storage().nbytes():
                raise ValueError("a tensor without its own storage")
            value = value.detach().to(torch.float64).numpy()
        except Exception as error:  # whatever a strange tensor raises
            raise TraceError(f"{where}: {name} must be a plain tensor ({one_line(error, 100)})") from None
    return numbers(value, name, where)


def _reward(dump: Mapping[str, Any], sample: Mapping[str, Any]) -> Any:
    """Take the raw reward of the whole batch where it is kept: the sample's own may be normalised in its group."""
    raw, place = dump.get("raw_reward"), sample.get("rollout_position")
    if isinstance(raw, Sequence) and isinstance(place, int) and 0 <= place < len(raw):
        return raw[place]
    return sample.get("rewards")
