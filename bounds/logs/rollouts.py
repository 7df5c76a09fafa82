"""Rollouts of environments, each of one policy: verifiers, NeMo-Gym, Atropos.

A response may be of several model calls: its tokens are those that the policy drew in all of them, with what an
environment said between two calls under mask 0, where the prompt of a call goes on from the calls before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bounds.logs.batch import Row, TraceError, Wanted, by_rows
from bounds.logs.decode import typed
from bounds.logs.servers import NOT_SCORED, Beside, beside, counted, wrong_half

_Logprobs = list[float | None] | None
_Ids = list[int] | None


@dataclass(frozen=True, slots=True)
class _Call:
    """What one model call was given, and what it drew."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float | None]
    mask: list[float | bool] | None = None


def _joined(calls: Iterable[_Call], where: str) -> dict[str, Any]:
    """Return the response that several calls make together."""
    start: list[int] | None = None
    tokens: list[int] = []
    logprobs: list[float | None] = []
    mask: list[float | bool] = []
    for call in calls:
        counted(call.logprobs, call.tokens, where)
        start = call.prompt if start is None else start
        before = [*start, *tokens]
        between = call.prompt[len(before) :] if call.prompt[: len(before)] == before else []
        tokens += [*between, *call.tokens]
        logprobs += [*[None] * len(between), *call.logprobs]
        mask += [*[0.0] * len(between), *(call.mask or [1.0] * len(call.tokens))]
    if start is None:
        raise TraceError(f"{where}: no model call with token ids and log-probs in this rollout")
    return {"prompt_tokens": start or None, "tokens": tokens, "rollout_logprobs": logprobs, "mask": mask}


# --- verifiers: ``results.jsonl``, a rollout a line, with the state column ``trajectory`` --------------------------


class _Tokens(msgspec.Struct):
    prompt_ids: _Ids = None
    completion_ids: _Ids = None
    completion_mask: list[float | bool] | None = None
    completion_logprobs: _Logprobs = None


class _Step(msgspec.Struct):
    tokens: _Tokens | None = None


class _Rollout(Beside):
    trajectory: list[_Step] | None = None
    example_id: str | int | None = None
    task: str | None = None


@by_rows
def read_verifiers(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each rollout stands, and the response."""
    for where, line in typed(path, msgspec.json.Decoder(_Rollout), wanted.limits):
        if wanted.scored:
            raise wrong_half(where, wanted, True, NOT_SCORED)
        calls = []
        for k, step in enumerate(line.trajectory or ()):
            t = step.tokens
            if t is None or t.completion_ids is None or t.completion_logprobs is None:
                raise TraceError(f"{where}: trajectory[{k}] has no tokens.completion_logprobs: ask the server for them")
            calls.append(_Call(t.prompt_ids or [], t.completion_ids, t.completion_logprobs, t.completion_mask))
        named = None if line.example_id is None else f"{line.task or ''}/{line.example_id}".lstrip("/")
        yield where, {**_joined(calls, where), "prompt_id": named, "environment": line.task, **beside(line)}


# --- NeMo-Gym: rollouts a line, as the Responses API says them, with token ids --------------------------------------


class _Item(msgspec.Struct):
    prompt_token_ids: _Ids = None
    generation_token_ids: _Ids = None
    generation_log_probs: _Logprobs = None


class _Output(msgspec.Struct):
    output: list[_Item] | None = None


class _Gym(Beside):
    response: _Output | None = None


@by_rows
def read_nemo_gym(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each rollout stands, and the response."""
    for where, line in typed(path, msgspec.json.Decoder(_Gym), wanted.limits):
        if wanted.scored:
            raise wrong_half(where, wanted, True, NOT_SCORED)
        items = (line.response.output if line.response is not None else None) or []
        drawn = [item for item in items if item.generation_token_ids is not None]
        calls = [
            _Call(i.prompt_token_ids or [], i.generation_token_ids or [], i.generation_log_probs or []) for i in drawn
        ]
        yield where, {**_joined(calls, where), **beside(line)}


# --- Atropos: groups a line; what is no policy token has -100 in its mask, and 1.0 as its log-prob ------------------


class _Group(msgspec.Struct):
    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    inference_logprobs: list[list[float | None]] | None = None


@by_rows
def read_atropos(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield where each response stands, and the response; rows are numbered by responses."""
    row = 0
    for where, group in typed(path, msgspec.json.Decoder(_Group), wanted.limits):
        place = where.rpartition(": row ")[0]
        logprobs = group.inference_logprobs
        if wanted.scored or logprobs is None:
            raise wrong_half(
                where, wanted, logprobs is not None, "the group has no inference_logprobs: have the server send them"
            )
        if not len(group.tokens) == len(group.masks) == len(group.scores) == len(logprobs):
            raise TraceError(f"{where}: tokens, masks, scores and inference_logprobs must be of as many responses")
        for tokens, mask, score, drawn in zip(group.tokens, group.masks, group.scores, logprobs, strict=True):
            policy = [float(m != -100) for m in mask]
            first = policy.index(1.0) if 1.0 in policy else len(policy)
            yield (
                f"{place}: row {row}",
                {
                    "prompt_tokens": tokens[:first] or None,
                    "tokens": tokens[first:],
                    "mask": policy[first:],
                    "rollout_logprobs": drawn[first:],
                    "reward": score,
                },
            )
            row += 1
