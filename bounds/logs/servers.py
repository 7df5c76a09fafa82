"""Responses of servers, each of one policy: OpenAI's form, as vLLM and others write it, and SGLang's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bounds.logs.batch import Row, TraceError, Wanted, by_rows
from bounds.logs.decode import typed


class _Beside(msgspec.Struct):
    """Canonical fields that people write beside a server's response, because no server knows them."""

    prompt_id: str | int | None = None
    prompt_tokens: list[int] | None = None
    reward: float | bool | None = None
    mask: list[bool | float] | None = None
    row_id: str | int | None = None
    step: int | None = None


def _beside(response: _Beside) -> dict[str, Any]:
    values = ((name, getattr(response, name)) for name in _Beside.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def _wrong_half(where: str, wanted: Wanted, other: bool, how: str) -> TraceError:
    """Make the error for a response without the wanted log-probs; ``other`` says that it has the other half."""
    if wanted.scored:
        hint = "it holds sampled tokens, the rollout half: give it as the log" if other else how
        return TraceError(f"{where}: no log-probs of scored text: {hint}")
    hint = "it holds scored text, the other half: give it with train=, --train" if other else how
    return TraceError(f"{where}: no log-probs of sampled tokens: {hint}")


# --- OpenAI ---------------------------------------------------------------------------------------------------

_TOKEN_ID = re.compile(r"token_id:\d{1,15}", re.ASCII)


class _Token(msgspec.Struct):
    logprob: float | None = None
    token: str = ""


_Scored = list[dict[str, _Token] | None] | None


class _Sampled(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(_Beside):
    logprobs: _Sampled | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: _Scored = None


class _Answer(_Beside):
    choices: list[_Choice] | None = None
    id: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: _Scored = None


class _Envelope(msgspec.Struct):
    body: _Answer | None = None


class _Line(_Answer):
    custom_id: str | None = None
    response: _Envelope | None = None


@by_rows
def read_openai(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each choice stands, and the choice; rows are numbered by choices."""
    row = 0
    for where, line in typed(path, msgspec.json.Decoder(_Line), wanted.limits):
        place = where.rpartition(": row ")[0]
        for record in _choices(line, wanted, f"{place}: row {row}"):
            yield f"{place}: row {row}", record
            row += 1


def _choices(line: _Line, wanted: Wanted, where: str) -> Iterator[dict[str, Any]]:
    """Yield one record for each choice; the choices of one response answer one prompt."""
    answer = line if line.response is None else line.response.body
    if answer is None or not answer.choices:
        raise TraceError(f"{where}: no choices in this response (did the request fail?)")
    several = len(answer.choices) > 1
    for k, choice in enumerate(answer.choices):
        record = _scored(answer, choice, wanted, where) if wanted.scored else _sampled(answer, choice, wanted, where)
        prompt = choice.prompt_token_ids or answer.prompt_token_ids
        if prompt is not None and not wanted.scored:
            record["prompt_tokens"] = prompt
        elif several:
            record["prompt_id"] = line.custom_id or answer.id or where
        if line.custom_id is not None:
            record["row_id"] = f"{line.custom_id}/{k}" if several else line.custom_id
        yield {**record, **_beside(line), **_beside(answer), **_beside(choice)}


def _sampled(answer: _Answer, choice: _Choice, wanted: Wanted, where: str) -> dict[str, Any]:
    content = choice.logprobs.content if choice.logprobs is not None else None
    if content is None:
        scored = (choice.prompt_logprobs or answer.prompt_logprobs) is not None
        raise _wrong_half(where, wanted, scored, "ask the server for them (logprobs: true)")
    tokens = choice.token_ids
    if tokens is None and all(_TOKEN_ID.fullmatch(t.token) for t in content):
        tokens = [int(t.token.partition(":")[2]) for t in content]
    return {"rollout_logprobs": [t.logprob for t in content], "tokens": tokens}


def _scored(answer: _Answer, choice: _Choice, wanted: Wanted, where: str) -> dict[str, Any]:
    """Take the text that a request scored: each entry is keyed by token id; with several keys, the ids say which."""
    entries = choice.prompt_logprobs or answer.prompt_logprobs
    if entries is None:
        raise _wrong_half(where, wanted, choice.logprobs is not None, "ask the server for them (prompt_logprobs: 0)")
    ids = choice.prompt_token_ids or answer.prompt_token_ids
    if ids is not None and len(ids) != len(entries):
        raise TraceError(f"{where}: prompt_logprobs has {len(entries)} entries, prompt_token_ids has {len(ids)}")
    values: list[float | None] = []
    tokens: list[int] = []
    for k, entry in enumerate(entries):
        key = _token_key(entry, None if ids is None else ids[k], f"{where}: prompt_logprobs[{k}]")
        tokens.append(ids[k] if ids is not None else -1 if key is None else int(key))
        values.append(None if key is None or entry is None else entry[key].logprob)
    return {"train_logprobs": values, "tokens": tokens}


def _token_key(entry: dict[str, _Token] | None, token: int | None, where: str) -> str | None:
    if not entry:
        return None
    key = next(iter(entry)) if token is None else str(token)
    if token is None and len(entry) > 1:
        raise TraceError(f"{where}: several tokens and no prompt_token_ids: ask for prompt_logprobs: 0")
    if key not in entry or not re.fullmatch(r"[0-9]{1,15}", key):
        raise TraceError(f"{where}: must be keyed by the token id, got {', '.join(entry)[:60]}")
    return key


# --- SGLang ---------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, array_like=True):
    logprob: float | None
    id: int
    text: str | None = None


class _Meta(msgspec.Struct):
    output_token_logprobs: list[_Entry] | None = None
    input_token_logprobs: list[_Entry] | None = None
    prompt_tokens: int | None = None
    weight_version: str | int | None = None


class _Native(_Beside):
    meta_info: _Meta | None = None


@by_rows
def read_sglang(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    for where, answer in typed(path, msgspec.json.Decoder(_Native), wanted.limits):
        if answer.meta_info is None:
            raise TraceError(f"{where}: meta_info is missing")
        yield where, {**_half(answer.meta_info, wanted, where), **_beside(answer)}


def _half(meta: _Meta, wanted: Wanted, where: str) -> dict[str, Any]:
    sampled, scored = meta.output_token_logprobs, meta.input_token_logprobs
    chosen, other = (scored, sampled) if wanted.scored else (sampled, scored)
    if chosen is None or (wanted.scored and not chosen):  # an empty response is one, an empty score is none
        how = "ask the server for them (return_logprob: true" + (", logprob_start_len: 0)" if wanted.scored else ")")
        raise _wrong_half(where, wanted, bool(other), how)
    name = "train_logprobs" if wanted.scored else "rollout_logprobs"
    record: dict[str, Any] = {name: [t.logprob for t in chosen], "tokens": [t.id for t in chosen]}
    if not wanted.scored:
        record["weight_version"] = meta.weight_version
        if scored and len(scored) == meta.prompt_tokens:
            record["prompt_tokens"] = [t.id for t in scored]
    return record
