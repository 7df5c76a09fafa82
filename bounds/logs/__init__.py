"""Logs on disk. One module for each format; only here are the names of trainers known."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from bounds._checks import unknown
from bounds.logs.format import Format, Records
from bounds.logs.log import Log
from bounds.logs.registry import FORMATS
from bounds.logs.response import Reading, Response
from bounds.logs.traces import TraceSet

__all__ = ["FORMATS", "Format", "Log", "example_path", "example_traces", "read_records", "read_traces"]

_EXAMPLES = {"responses": "example.parquet", "run": "run.parquet"}
_Paths = str | Path | Iterable[str | Path]


def read_traces(
    paths: _Paths,
    *,
    format: str = "auto",  # the public name
    horizon: int | None = None,
    train: _Paths | None = None,
    group_size: int | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    logprob_dtype: str = "float32",
    on_missing: str = "error",
) -> TraceSet:
    """Read logged responses from files of any trainer, detecting the format from their content.

    Parameters
    ----------
    paths : path, folder, glob, or several
        Files of one run, plain, gzip or zstd. Folders are searched through.
    format : str
        "auto", or the name of a format (``trm-bounds formats`` lists them).
    horizon : int, optional
        Generation cap in policy tokens; else what the file says, else the longest response (noted).
    train : path, folder, glob, or several, optional
        Where ``paths`` hold the rollout policy's log-probs only: the files in which the trained weights score
        the same tokens, in any format. Joined by ``row_id`` (``custom_id`` of batch output), else by order; token ids
        must be equal where both have them.
    group_size : int, optional
        Every so many rows of a file answer one prompt. Without it, rows of one ``prompt_id`` or of the same
        prompt tokens do.
    reward_range, logprob_dtype, on_missing
        As in :meth:`TraceSet.from_records`.

    Raises
    ------
    TraceError
        Naming file, row, field and position; for a file that is no log, saying what would help.
    FileNotFoundError
        If a path or glob matches nothing.
    ValueError
        For an unknown format, with the likely meant one.

    Examples
    --------
    >>> read_traces(example_path(), horizon=256)
    TraceSet(96 responses, 24 prompts, 13961 tokens, horizon 256)
    """
    reading = Reading(reward_range, logprob_dtype, on_missing)
    log = Log.open(paths, format=format, train=train, group_size=group_size)
    notes: list[str] = []
    responses = (Response.from_record(record, where, reading) for where, record in log.records(notes))
    traces = TraceSet.from_responses(responses, horizon=log.horizon if horizon is None else horizon, reading=reading)
    traces.tally.name("notes", notes)
    return traces


def read_records(
    paths: _Paths,
    *,
    format: str = "auto",
    train: _Paths | None = None,
    group_size: int | None = None,
) -> Records:
    """Each record of files, in the canonical names, and where it stands; one at a time.

    Parameters and errors are those of :func:`read_traces`; records are not checked.

    Examples
    --------
    >>> where, record = next(read_records(example_path()))
    >>> record["prompt_id"], record["rollout_logprobs"].size
    ('p0', 71)
    """
    return Log.open(paths, format=format, train=train, group_size=group_size).records([])


def example_path(name: str = "responses") -> Path:
    """An example log inside the package: "responses" of one step, or a whole "run" (see bounds/data/README.md).

    Raises
    ------
    ValueError
        For another name.
    """
    if name not in _EXAMPLES:
        raise ValueError(unknown("example", name, _EXAMPLES))
    return Path(str(resources.files("bounds").joinpath("data", _EXAMPLES[name])))


def example_traces(name: str = "responses") -> TraceSet:
    """An example log inside the package, read; names as for ``example_path``."""
    return read_traces(example_path(name))
