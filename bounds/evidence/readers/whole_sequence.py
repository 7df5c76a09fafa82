"""What the trainers share that log prompt and response as one sequence."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds.evidence.response import TraceError


def prompt_key(tokens: FloatArray | None, mask: FloatArray, where: str) -> str | None:
    """A name for the prompt: a hash of the token ids before the first policy token; None where there are none.

    Raises
    ------
    TraceError
        If there is not one token id for each entry of ``mask``.
    """
    if tokens is None:
        return None
    if tokens.size != mask.size:
        raise TraceError(f"{where}: token_ids has {tokens.size} entries, the mask has {mask.size}")
    return hashed(tokens[: int(np.argmax(mask != 0.0))]) if mask.any() else None


def hashed(tokens: Any) -> str | None:
    """A name for a prompt, from its token ids; None where there are none."""
    ids = np.asarray(tokens, dtype=np.float64)  # exact up to 2^53; one dtype, so that one prompt has one hash
    return "tokens:" + hashlib.blake2b(ids.tobytes(), digest_size=12).hexdigest() if ids.size else None


def without_first(logprobs: FloatArray) -> FloatArray:
    """No policy predicts the first token of a sequence: what stands there is a filler, that is, missing."""
    logprobs[:1] = np.nan
    return logprobs
