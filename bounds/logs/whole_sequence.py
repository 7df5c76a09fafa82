"""What the trainers share that log prompt and response as one sequence."""

from __future__ import annotations

import hashlib

import numpy as np

from bounds._checks import FloatArray
from bounds.logs.decode import numbers
from bounds.logs.response import TraceError


def prompt_key(tokens: list[int] | None, mask: FloatArray, where: str) -> str | None:
    """A name for the prompt: a hash of the token ids before the first policy token; None where there are none.

    Raises
    ------
    TraceError
        If there is not one token id for each entry of ``mask``.
    """
    if tokens is None:
        return None
    if len(tokens) != mask.size:
        raise TraceError(f"{where}: token_ids has {len(tokens)} entries, the mask has {mask.size}")
    prompt = tokens[: int(np.argmax(mask != 0.0))] if mask.any() else []
    return hashed(numbers(prompt, "token_ids", where))


def hashed(tokens: FloatArray) -> str | None:
    """A name for a prompt, from its token ids; None where there are none."""
    return "tokens:" + hashlib.blake2b(tokens.tobytes(), digest_size=12).hexdigest() if tokens.size else None


def without_first(logprobs: FloatArray) -> FloatArray:
    """No policy predicts the first token of a sequence: what stands there is a filler, that is, missing."""
    logprobs[:1] = np.nan
    return logprobs
