"""What readers of server responses share: one policy's log-probs, to be joined to the other's."""

from __future__ import annotations

from typing import Any

import msgspec

from bounds.logs.response import TraceError


class Beside(msgspec.Struct):
    """Canonical fields that people write beside a server's response, because no server knows them."""

    prompt_id: str | int | None = None
    prompt_tokens: list[int] | None = None
    reward: float | bool | None = None
    mask: list[bool | float] | None = None
    row_id: str | int | None = None
    step: int | None = None


def beside(response: Beside) -> dict[str, Any]:
    """Those fields, where given."""
    values = ((name, getattr(response, name)) for name in Beside.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def wrong_half(where: str, scored: bool, other: bool, how: str) -> TraceError:
    """The error for a response that lacks the wanted log-probs; ``other`` says that it has the other half."""
    if scored:
        hint = "it holds sampled tokens, the rollout half: give it as the log" if other else how
        return TraceError(f"{where}: no log-probs of scored text: {hint}")
    hint = "it holds scored text, the other half: give it with train=, --train" if other else how
    return TraceError(f"{where}: no log-probs of sampled tokens: {hint}")
