"""SGLang's native responses: sampled tokens, or text that the trained weights score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bounds.logs.decode import floats, typed
from bounds.logs.format import Format, Head, Records, Wanted
from bounds.logs.half import Beside, beside, wrong_half
from bounds.logs.response import TraceError


class _Token(msgspec.Struct, array_like=True):
    logprob: float | None
    id: int
    text: str | None = None


class _Meta(msgspec.Struct):
    output_token_logprobs: list[_Token] | None = None
    input_token_logprobs: list[_Token] | None = None
    prompt_tokens: int | None = None
    weight_version: str | int | None = None


class _Answer(Beside):
    meta_info: _Meta | None = None


def _recognises(head: Head) -> bool:
    return head.container == "json" and "meta_info" in head.keys


def _records(path: Path, wanted: Wanted) -> Records:
    for row, (place, answer) in enumerate(typed(path, msgspec.json.Decoder(_Answer))):
        where = f"{place}: row {row}"
        if answer.meta_info is None:
            raise TraceError(f"{where}: meta_info is missing")
        yield where, {**_half(answer.meta_info, wanted, where), **beside(answer)}


def _half(meta: _Meta, wanted: Wanted, where: str) -> dict[str, Any]:
    sampled, scored = meta.output_token_logprobs, meta.input_token_logprobs
    chosen, other = (scored, sampled) if wanted.scored else (sampled, scored)
    if chosen is None or (wanted.scored and not chosen):  # an empty response is one, an empty score is none
        how = "ask the server for them (return_logprob: true" + (", logprob_start_len: 0)" if wanted.scored else ")")
        raise wrong_half(where, wanted.scored, bool(other), how)
    tokens = chosen or []
    name = "train_logprobs" if wanted.scored else "rollout_logprobs"
    record: dict[str, Any] = {name: floats([t.logprob for t in tokens]), "tokens": [t.id for t in tokens]}
    if not wanted.scored:
        record["weight_version"] = meta.weight_version
        if scored and len(scored) == meta.prompt_tokens:
            record["prompt_tokens"] = [t.id for t in scored]
    return record


SGLANG = Format(
    name="sglang",
    title="SGLang responses",
    trainer="SGLang",
    file="responses of /generate with return_logprob: one half, joined with --train",
    keys="meta_info.output_token_logprobs (rollout), meta_info.input_token_logprobs (train)",
    recognises=_recognises,
    records=_records,
)
