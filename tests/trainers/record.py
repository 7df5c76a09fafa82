"""What a real trainer handed over and showed, written for the tests that run without it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd


def write(path: str, told: dict[str, object]) -> None:
    """Write it as JSON, numbers to the precision of float32."""
    Path(path).write_text(json.dumps(_short(told)), encoding="utf-8")


def logged(log: str) -> pd.DataFrame:
    """Read what the hook logged."""
    return pd.concat([pd.read_parquet(path) for path in sorted(Path(log).iterdir())], ignore_index=True)


def _short(x: object) -> object:
    if isinstance(x, float):
        return float(f"{x:.9g}")
    if isinstance(x, dict):
        return {name: _short(value) for name, value in x.items()}
    return [_short(value) for value in x] if isinstance(x, list | tuple) else x
