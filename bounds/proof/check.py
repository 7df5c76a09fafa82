"""A check: one statement, how it is checked, and constants that must break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SYMBOLIC, EXACT, INTERVAL = "symbolic", "exact", "interval"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, how it is checked, and the rules that rest on it."""

    name: str
    statement: str
    how: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check(Statement):
    """A statement with what decides it, and constants that must break it."""

    run: Callable[..., bool]
    wrong: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult(Statement):
    """A statement, and whether its check passed."""

    passed: bool
