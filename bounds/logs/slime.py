"""slime: ``train_data/{rollout_id}.pt``, a torch.save dict, loaded by torch's safe loading only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bounds._checks import FloatArray
from bounds.logs.batch import Row, TraceError, Wanted, by_rows, numbers
from bounds.logs.decode import hashed


@by_rows
def read(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    dump = _load(path)
    samples = dump.get("samples") if isinstance(dump, Mapping) else None
    if not isinstance(samples, Sequence) or isinstance(samples, str):
        raise TraceError(f"{path}: must be a dict with a list `samples`, as slime's train_data dump has it")
    for row, sample in enumerate(samples):
        where = f"{path}: row {row}"
        if not isinstance(sample, Mapping):
            raise TraceError(f"{where}: samples[{row}] must be a dict, got {type(sample).__name__}")
        train = _floats(sample, "log_probs", where)
        record = {
            "reward": _reward(dump, sample),
            "rollout_logprobs": _floats(sample, "rollout_log_probs", where),
            "train_logprobs": train,
            "mask": _floats(sample, "loss_masks", where),
            "step": dump.get("rollout_id"),
        }
        if wanted.prompts and sample.get("tokens") is not None:  # prompt and response
            tokens = _floats(sample, "tokens", where)
            record["prompt_id"] = hashed(tokens[: max(tokens.size - train.size, 0)])
        yield where, record


def _load(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise TraceError(f'{path}: reading torch files needs torch: pip install "trm-bounds[torch]"') from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever torch raises for a damaged file, or refuses to build
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise TraceError(
            f"{path}: torch's safe loading refuses it ({reason}); nothing in it was run. Save plain tensors, lists and "
            "numbers, or export canonical rows (trm-bounds formats --recipe verl shows how)"
        ) from None


def _floats(sample: Mapping[str, Any], name: str, where: str) -> FloatArray:
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
            raise TraceError(f"{where}: {name} must be a plain tensor ({error!s:.100})") from None
    return numbers(value, name, where)


def _reward(dump: Mapping[str, Any], sample: Mapping[str, Any]) -> Any:
    """Take the raw reward of the whole batch where it is kept: the sample's own may be normalised in its group."""
    raw, place = dump.get("raw_reward"), sample.get("rollout_position")
    if isinstance(raw, Sequence) and isinstance(place, int) and 0 <= place < len(raw):
        return raw[place]
    return sample.get("rewards")
