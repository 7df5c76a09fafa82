"""OpenAI's chat and completion responses, as vLLM and others write them: sampled tokens, or a scored prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bounds.logs.decode import floats, typed
from bounds.logs.format import Format, Head, Records, Wanted
from bounds.logs.half import Beside, beside, wrong_half
from bounds.logs.response import TraceError

_TOKEN_ID = re.compile(r"token_id:\d{1,15}", re.ASCII)


class _Token(msgspec.Struct):
    logprob: float | None = None
    token: str = ""


class _Sampled(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(Beside):
    logprobs: _Sampled | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, _Token] | None] | None = None


class _Answer(Beside):
    choices: list[_Choice] | None = None
    id: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, _Token] | None] | None = None


class _Envelope(msgspec.Struct):
    body: _Answer | None = None


class _Line(_Answer):
    custom_id: str | None = None
    response: _Envelope | None = None


def _recognises(head: Head) -> bool:
    return head.container == "json" and ("choices" in head.keys or {"custom_id", "response"} <= head.keys)


def _records(path: Path, wanted: Wanted) -> Records:
    row = 0
    for place, line in typed(path, msgspec.json.Decoder(_Line)):
        for record in _choices(line, wanted, f"{place}: row {row}"):
            yield f"{place}: row {row}", record
            row += 1


def _choices(line: _Line, wanted: Wanted, where: str) -> Iterator[dict[str, Any]]:
    """One record for each choice; the choices of one response answer one prompt."""
    answer = line if line.response is None else line.response.body
    if answer is None or not answer.choices:
        raise TraceError(f"{where}: no choices in this response (did the request fail?)")
    several = len(answer.choices) > 1
    for k, choice in enumerate(answer.choices):
        record = _scored(answer, choice, where) if wanted.scored else _sampled(answer, choice, where)
        prompt = choice.prompt_token_ids or answer.prompt_token_ids
        if prompt is not None and not wanted.scored:
            record["prompt_tokens"] = prompt
        elif several:
            record["prompt_id"] = line.custom_id or answer.id or where
        if line.custom_id is not None:
            record["row_id"] = f"{line.custom_id}/{k}" if several else line.custom_id
        yield {**record, **beside(line), **beside(answer), **beside(choice)}


def _sampled(answer: _Answer, choice: _Choice, where: str) -> dict[str, Any]:
    content = choice.logprobs.content if choice.logprobs is not None else None
    if content is None:
        scored = (choice.prompt_logprobs or answer.prompt_logprobs) is not None
        raise wrong_half(where, False, scored, "ask the server for them (logprobs: true)")
    tokens = choice.token_ids
    if tokens is None and all(_TOKEN_ID.fullmatch(t.token) for t in content):
        tokens = [int(t.token.partition(":")[2]) for t in content]
    return {"rollout_logprobs": floats([t.logprob for t in content]), "tokens": tokens}


def _scored(answer: _Answer, choice: _Choice, where: str) -> dict[str, Any]:
    """The text that a request scored: each entry is keyed by token id; with several keys, the ids say which."""
    entries = choice.prompt_logprobs or answer.prompt_logprobs
    if entries is None:
        raise wrong_half(where, True, choice.logprobs is not None, "ask the server for them (prompt_logprobs: 0)")
    ids = choice.prompt_token_ids or answer.prompt_token_ids
    if ids is not None and len(ids) != len(entries):
        raise TraceError(f"{where}: prompt_logprobs has {len(entries)} entries, prompt_token_ids has {len(ids)}")
    values: list[float | None] = []
    tokens: list[int] = []
    for k, entry in enumerate(entries):
        key = _token_key(entry, None if ids is None else ids[k], f"{where}: prompt_logprobs[{k}]")
        tokens.append(ids[k] if ids is not None else -1 if key is None else int(key))
        values.append(None if key is None or entry is None else entry[key].logprob)
    return {"train_logprobs": floats(values), "tokens": tokens}


def _token_key(entry: dict[str, _Token] | None, token: int | None, where: str) -> str | None:
    if not entry:
        return None
    key = next(iter(entry)) if token is None else str(token)
    if token is None and len(entry) > 1:
        raise TraceError(f"{where}: several tokens and no prompt_token_ids: ask for prompt_logprobs: 0")
    if key not in entry or not re.fullmatch(r"[0-9]{1,15}", key):
        raise TraceError(f"{where}: must be keyed by the token id, got {', '.join(entry)[:60]}")
    return key


OPENAI = Format(
    name="openai",
    title="OpenAI-style responses",
    trainer="vLLM, OpenAI",
    file="server responses, one a line, one document, an array, or batch output: one half, joined with --train",
    keys="choices[].logprobs.content[].logprob (rollout), prompt_logprobs (train)",
    recognises=_recognises,
    records=_records,
)
