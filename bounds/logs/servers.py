"""Responses of servers, each of one policy: OpenAI's forms, as vLLM and others write them, and SGLang's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

import msgspec

from bounds.logs.batch import Row, TraceError, Wanted, by_rows
from bounds.logs.decode import typed

NOT_SCORED = "an environment scores nothing: see trm-bounds formats --recipe score"


class Beside(msgspec.Struct):
    """Canonical fields that people write beside a server's response, because no server knows them."""

    prompt_id: str | int | None = None
    prompt_tokens: list[int] | None = None
    reward: float | bool | None = None
    mask: list[bool | float] | None = None
    row_id: str | int | None = None
    step: int | None = None


def beside(response: Beside) -> dict[str, Any]:
    """Return the canonical fields that stand beside a response."""
    values = ((name, getattr(response, name)) for name in Beside.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def counted(logprobs: Sized, ids: Sized | None, where: str) -> None:
    """Refuse token ids that are not as many as the log-probs: some servers leave tokens out of one of them only."""
    if ids is None or len(ids) == len(logprobs):
        return
    why = (
        "the server takes the stop token off its ids only: ask it to keep that"
        if len(ids) == len(logprobs) - 1
        else "tokens (of a tool call, of reasoning?) are missing from one of them: ask for the raw completion"
    )
    raise TraceError(f"{where}: {len(ids)} ids and {len(logprobs)} log-probs in this response: {why}")


def wrong_half(where: str, wanted: Wanted, other: bool, how: str) -> TraceError:
    """Make the error for a response without the wanted log-probs; ``other`` says that it has the other half."""
    if wanted.scored:
        hint = "it holds sampled tokens, the rollout half: give it as the log" if other else how
        return TraceError(f"{where}: no log-probs of scored text: {hint}")
    hint = "it holds scored text, the other half: give it with train=, --train" if other else how
    return TraceError(f"{where}: no log-probs of sampled tokens: {hint}")


# --- SGLang's log-probs -----------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    logprob: float | None = None
    token_id: int | None = None


_Entries = list[list[float | str | None] | _Entry] | None  # of lists: log-prob, id, and the text, perhaps


_Column = tuple[list[Any], list[int] | None]


class _Meta(msgspec.Struct):
    output_token_logprobs: _Entries = None
    output_token_logprobs_val: list[float | None] | None = None
    output_token_logprobs_idx: list[int] | None = None
    input_token_logprobs: _Entries = None
    input_token_logprobs_val: list[float | None] | None = None
    input_token_logprobs_idx: list[int] | None = None
    prompt_tokens: int | None = None
    weight_version: str | int | None = None

    def column(self, side: str, where: str) -> _Column | None:
        """Return the log-probs of the output or of the input, and the ids of the tokens."""
        name = f"{side}_token_logprobs"
        entries, values, ids = (getattr(self, name + form) for form in ("", "_val", "_idx"))
        if entries is not None:
            pairs = [(e.logprob, e.token_id) if isinstance(e, _Entry) else tuple(e[:2]) for e in entries]
            for k, pair in enumerate(pairs):
                if not (len(pair) == 2 and isinstance(pair[1], int | float) and not isinstance(pair[0], str)):
                    raise TraceError(f"{where}: {name}[{k}] must be a log-prob and a token id, got {entries[k]!r:.60}")
            return [value for value, _ in pairs], [int(token) for _, token in pairs]
        if values is not None:
            counted(values, ids, where)
        return None if values is None else (values, ids)


# --- OpenAI ---------------------------------------------------------------------------------------------------

_TOKEN_ID = re.compile(r"token_id:\d{1,15}", re.ASCII)


class _Token(msgspec.Struct):
    logprob: float | None = None
    token: str = ""


_Scored = list[dict[str, _Token] | None] | None


class _Sampled(msgspec.Struct):
    content: list[_Token] | None = None  # of chat completions
    token_logprobs: list[float | None] | None = None  # of completions; with echo, the prompt's come first
    tokens: list[str] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Choice(Beside):
    meta_info: _Meta | None = None  # SGLang's
    logprobs: _Sampled | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: _Scored = None


class _Content(msgspec.Struct):
    logprobs: list[_Token] | None = None


class _Item(msgspec.Struct):
    type: str = ""
    content: list[_Content] | str | None = None


class _Answer(Beside):
    output: list[_Item] | None = None  # of /v1/responses: texts of tokens, no ids
    usage: _Usage | None = None
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
    if answer is None or not (answer.choices or answer.output):
        raise TraceError(f"{where}: no choices in this response (did the request fail?)")
    choices = answer.choices or [_Choice()]
    several = len(choices) > 1
    half = _scored if wanted.scored else _sampled
    for k, choice in enumerate(choices):
        record = _messages(answer.output, wanted, where) if answer.output else half(answer, choice, wanted, where)
        prompt = choice.prompt_token_ids or answer.prompt_token_ids
        if prompt is not None and not wanted.scored:
            record["prompt_tokens"] = prompt
        elif several:
            record["prompt_id"] = line.custom_id or answer.id or where
        if line.custom_id is not None:
            record["row_id"] = f"{line.custom_id}/{k}" if several else line.custom_id
        yield {**record, **beside(line), **beside(answer), **beside(choice)}


def _messages(output: list[_Item], wanted: Wanted, where: str) -> dict[str, Any]:
    """Take what a response of the Responses API says, message by message."""
    drawn: list[_Token] = []
    for k, item in enumerate(output):
        contents = item.content if isinstance(item.content, list) else []
        if item.type != "message" or any(c.logprobs is None for c in contents):
            raise wrong_half(
                where,
                wanted,
                False,
                f"output[{k}] ({item.type or 'no message'}) has none; tokens of reasoning and of tool calls never have "
                "here: ask /v1/completions, or include message.output_text.logprobs",
            )
        drawn += [token for c in contents for token in c.logprobs or ()]
    if wanted.scored:
        raise wrong_half(where, wanted, True, NOT_SCORED)
    return {"rollout_logprobs": [t.logprob for t in drawn], "token_texts": [t.token for t in drawn]}


def _sampled(answer: _Answer, choice: _Choice, wanted: Wanted, where: str) -> dict[str, Any]:
    if choice.meta_info is not None:
        return _half(choice.meta_info, wanted, where)
    said, ids = choice.logprobs or _Sampled(), choice.token_ids
    if said.content is not None:
        texts = [t.token for t in said.content]
        if ids is None and all(map(_TOKEN_ID.fullmatch, texts)):
            ids = [int(text.partition(":")[2]) for text in texts]
        return _response([t.logprob for t in said.content], ids, texts, where)
    values, start = said.token_logprobs, 0
    if values and values[0] is None:  # echo
        start = _prompt_size(answer, choice)
    if values is None or start >= len(values) > 0:
        scored = (choice.prompt_logprobs or answer.prompt_logprobs or values) is not None
        raise wrong_half(where, wanted, scored, "ask the server for them (logprobs: true), of completions logprobs: 0")
    if ids is not None and len(ids) == len(values):
        ids = ids[start:]
    return _response(values[start:], ids, said.tokens and said.tokens[start:], where)


def _response(values: list[Any], ids: list[int] | None, texts: list[str] | None, where: str) -> dict[str, Any]:
    counted(values, ids, where)
    return {"rollout_logprobs": values, "tokens": ids, "token_texts": texts}


def _prompt_size(answer: _Answer, choice: _Choice) -> int:
    """Return how many tokens the prompt has; more than there can be, where nothing says it."""
    ids = choice.prompt_token_ids or answer.prompt_token_ids
    counted_by_server = None if answer.usage is None else answer.usage.prompt_tokens
    return len(ids) if ids is not None else sys.maxsize if counted_by_server is None else counted_by_server


def _scored(answer: _Answer, choice: _Choice, wanted: Wanted, where: str) -> dict[str, Any]:
    """Take the text that a request scored: each entry is keyed by token id; with several keys, the ids say which."""
    if choice.meta_info is not None:
        return _half(choice.meta_info, wanted, where)
    entries = choice.prompt_logprobs or answer.prompt_logprobs
    said = choice.logprobs or _Sampled()
    if entries is None and said.token_logprobs and said.token_logprobs[0] is None:  # echo
        every = [*(choice.prompt_token_ids or answer.prompt_token_ids or ()), *(choice.token_ids or ())]
        known = every if len(every) == len(said.token_logprobs) else None
        return {"train_logprobs": said.token_logprobs, "tokens": known, "token_texts": said.tokens}
    if entries is None:
        how = "ask the server for them (prompt_logprobs: 0), of completions echo: true"
        raise wrong_half(where, wanted, choice.logprobs is not None, how)
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


class _Native(Beside):
    meta_info: _Meta | None = None


@by_rows
def read_sglang(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response."""
    for where, answer in typed(path, msgspec.json.Decoder(_Native), wanted.limits):
        if answer.meta_info is None:
            raise TraceError(f"{where}: meta_info is missing")
        yield where, {**_half(answer.meta_info, wanted, where), **beside(answer)}


def _half(meta: _Meta, wanted: Wanted, where: str) -> dict[str, Any]:
    sampled, scored = (meta.column(side, where) for side in ("output", "input"))
    chosen, other = (scored, sampled) if wanted.scored else (sampled, scored)
    if chosen is None or (wanted.scored and not chosen[0]):  # an empty response is one, an empty score is none
        how = "ask the server for them (return_logprob: true" + (", logprob_start_len: 0)" if wanted.scored else ")")
        raise wrong_half(where, wanted, other is not None and bool(other[0]), how)
    name = "train_logprobs" if wanted.scored else "rollout_logprobs"
    record: dict[str, Any] = {name: chosen[0], "tokens": chosen[1]}
    if not wanted.scored:
        record["weight_version"] = meta.weight_version
        if scored and len(scored[0]) == meta.prompt_tokens:
            record["prompt_tokens"] = scored[1]
    return record
