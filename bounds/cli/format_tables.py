"""What ``trm-bounds formats`` shows: the logs that are read, and those that are recognised only to say what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bounds._checks import unknown
from bounds._text import TerminalTable
from bounds.logs.recipes import RECIPES
from bounds.logs.registry import FORMATS

MEMORY_ONLY = f"Only in memory ({', '.join(RECIPES)}): trm-bounds formats --recipe NAME prints the lines that export it"
_FIELDS = ("name", "title", "trainer", "file", "keys", "advice")


def recipe(trainer: str) -> str:
    """The source of an export recipe.

    Raises
    ------
    ValueError
        For a trainer without one, with the likely meant name.
    """
    if trainer.lower() not in RECIPES:
        raise ValueError(unknown("recipe", trainer, RECIPES))
    return RECIPES[trainer.lower()]


def to_dict() -> dict[str, Any]:
    """Every format with its fields and whether it is read, and the names of the recipes."""
    rows = [{n: getattr(f, n) for n in _FIELDS} | {"read": f.records is not None} for f in FORMATS.values()]
    return {"formats": rows, "recipes": list(RECIPES)}


def tables() -> Iterator[object]:
    """Two tables for people: formats that are read, and formats that are not."""
    for read, head, last in ((True, "format", "its log-probs and mask"), (False, "not read", "what would help")):
        chosen = [f for f in FORMATS.values() if (f.records is not None) == read]
        cells = [([f.name, f.trainer, f.file, f.keys if read else f.advice], False) for f in chosen]
        yield TerminalTable([head, "trainer", "file", last], cells)
