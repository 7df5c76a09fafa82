"""Logs on disk. One module for each layout; only here are the names of trainers known."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from bounds._checks import takes_parameters_of, unknown
from bounds.logs.formats import FORMATS
from bounds.logs.log import Log, Paths, open_log
from bounds.logs.traces import TraceSet

__all__ = ["FORMATS", "Log", "example_path", "example_traces", "open_log", "read_traces"]

_EXAMPLES = {"responses": "example.parquet", "run": "run.parquet"}


@takes_parameters_of(open_log)
def read_traces(paths: Paths, **options: Any) -> TraceSet:
    """Read logged responses from files of any trainer into memory; as ``open_log(paths, ...).read()``.

    Parameters
    ----------
    paths, format, horizon, train, group_size, reward_range, logprob_dtype, on_missing, leave_out, train_policy
        As in :func:`bounds.open_log`.

    Returns
    -------
    TraceSet

    Raises
    ------
    TraceError
        Naming file, row, field and position; for a file that is no log, saying what would help.
    FileNotFoundError, ValueError
        As :func:`bounds.open_log`.

    Examples
    --------
    >>> read_traces(example_path(), horizon=256)
    TraceSet(96 responses, 24 prompts, 13961 tokens, horizon 256)
    """
    return open_log(paths, **options).read()


def example_path(name: str = "responses") -> Path:
    """Return where an example log stands: "responses" of one step, or a whole "run" (see bounds/data/README.md).

    Raises
    ------
    ValueError
        For another name.
    """
    if name not in _EXAMPLES:
        raise ValueError(unknown("example", name, _EXAMPLES))
    return Path(str(resources.files("bounds").joinpath("data", _EXAMPLES[name])))


def example_traces(name: str = "responses") -> TraceSet:
    """Read an example log inside the package; names as for ``example_path``."""
    return read_traces(example_path(name))
