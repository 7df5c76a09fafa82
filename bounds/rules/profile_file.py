"""The values of a profile, from a file."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

_INDEX_COLUMNS = ("t", "position", "Unnamed: 0")


def read_values(path: Path, scalars: Collection[str]) -> dict[str, Any]:
    """The named values of a CSV, Parquet, JSON or NPZ file; in a table, ``scalars`` repeat one value.

    An index column (``t``, ``position``) must count the positions and is dropped. Nothing in the file is
    executed: NPZ is read without pickles.
    """
    readers = {".json": _json, ".npz": _npz, ".csv": _table, ".parquet": _table}
    kind = path.suffix.lower()
    if kind not in readers:
        raise ValueError(f"{path}: a profile is read from {', '.join(readers)}, got {kind or 'no suffix'}")
    try:
        values = readers[kind](path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever the libraries raise for a malformed file
        raise ValueError(f"{path}: cannot be read as {kind}: {error}") from None
    for name in _INDEX_COLUMNS:
        if name in values and not _counts(np.asarray(values.pop(name))):
            raise ValueError(f"{path}: column {name} must count the positions one by one")
    for name in values.keys() & set(scalars):
        if isinstance(values[name], np.ndarray) and values[name].ndim == 1:
            distinct = set(values[name].tolist())
            if len(distinct) != 1:
                raise ValueError(f"{path}: column {name} must hold one value, the same in each row")
            values[name] = distinct.pop()
    return values


def _json(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_no_twice)
    if not isinstance(loaded, dict):
        raise TypeError("it must hold one JSON object with Profile's names as keys")
    return loaded


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise TypeError("a key stands in it twice")
    return values


def _npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return {name: a.item() if a.ndim == 0 else a for name, a in arrays.items()}


def _table(path: Path) -> dict[str, Any]:
    import pandas as pd

    frame = pd.read_csv(path, skip_blank_lines=False) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _counts(index: np.ndarray[Any, Any]) -> bool:
    return any(np.array_equal(index, np.arange(first, first + index.size)) for first in (0, 1))
