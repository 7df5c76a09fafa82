"""A check: one statement, how it is checked, and constants that must break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SYMBOLIC, EXACT, INTERVAL = "symbolic", "exact", "interval"


@dataclass(frozen=True, slots=True)
class Check:
    """One statement, how it is checked, the rules that rest on it, and constants that must break it."""

    name: str
    statement: str
    how: str
    rules: tuple[str, ...]
    run: Callable[..., bool]
    wrong: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check said."""

    name: str
    statement: str
    how: str
    rules: tuple[str, ...]
    passed: bool
