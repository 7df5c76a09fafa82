"""The project's own form: JSONL or Parquet, one response a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bounds._text import one_line
from bounds.logs.batch import LABELS, NUMBERS, Batch, Limits, Ragged, Row, TraceError, Wanted, in_batches
from bounds.logs.decode import ahead, decode, documents, field_names, look, most_unpacked, too_packed

_HORIZON_KEY = b"trm_bounds.horizon"
#: Every field that is read, and its type in JSON.
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(NUMBERS, list[float | None] | None),
    "mask": list[bool | float] | None,
    "tokens": list[int | str] | None,
    "prompt_tokens": list[int | str] | None,
    "reward": float | bool | None,
    "prompt_id": str | int | float | list[int] | None,
    **dict.fromkeys((*LABELS, "row_id"), str | int | float | None),
    "weight_version": str | int | float | list[int | str] | None,
}
_RECORD = msgspec.defstruct("CanonicalRecord", [(name, kind, None) for name, kind in _FIELDS.items()])
_BATCH_BYTES = 2**21
_PAGE_BYTES = 2**16


def read(path: Path, wanted: Wanted) -> Iterator[Batch]:
    """Yield the rows of a file."""
    return (
        ahead(_parquet(path, wanted.limits)) if look(path).container == "parquet" else in_batches(_json(path, wanted))
    )


def horizon(path: Path) -> int | None:
    """Return the horizon that a Parquet file written by this project carries."""
    if look(path).container != "parquet":
        return None
    said = (_open_parquet(path).schema_arrow.metadata or {}).get(_HORIZON_KEY)
    if said is not None and not said.isdigit():
        raise TraceError(f"{path}: the horizon in the file's metadata must be a whole number, got {said!r}")
    return None if said is None else int(said)


def write_parquet(rows: Batch, path: Path, *, dtype: str, horizon: int | None, level: int = 19) -> None:
    """Write rows, with the horizon in the file's metadata; ``dtype`` of log-probs is float32 or float64.

    ``level`` is zstd's: 19 for a file that is kept, 1 for one that must be written soon.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(values: Ragged) -> pa.Array:
        flat = values.values.astype(dtype) if values.values.dtype == np.float64 else values.values
        return pa.ListArray.from_arrays(pa.array(values.starts, pa.int32()), pa.array(flat))

    columns = {name: pa.array(values) for name, values in rows.rows.items()}
    columns |= {name: lists(values) for name, values in rows.tokens.items()}
    table = pa.table(columns).replace_schema_metadata({} if horizon is None else {_HORIZON_KEY: str(horizon)})
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=level,
        use_dictionary=["prompt_id"],
        use_byte_stream_split=[f"{name}.list.element" for name, v in rows.tokens.items() if v.values.dtype.kind == "f"],
    )


def _json(path: Path, wanted: Wanted) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(_RECORD)
    for row, (where, text) in enumerate(documents(path, wanted.limits)):
        record = msgspec.structs.asdict(decode(decoder, text, where))
        lacking = record["rollout_logprobs"] is None or record["train_logprobs"] is None
        masked = record["mask"] is None and b'mask"' in text  # under another name, it may be
        rewarded = record["reward"] is None and b'"rewards"' in text
        if row == 0 or lacking or masked or rewarded:
            record |= {key: ... for key in field_names(text) if key not in _FIELDS}  # which can then be pointed out
        yield where, record


def _open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Its own buffering ahead would hold all that was read, to the end of the file; this reads page by page.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_PAGE_BYTES)
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise TraceError(f"{path}: cannot be read as Parquet: {one_line(error)}") from None


def _parquet(path: Path, limits: Limits) -> Iterator[Batch]:
    import pyarrow as pa

    file = _open_parquet(path)
    most = most_unpacked(path, limits)
    present = file.schema_arrow.names
    if len(set(present)) < len(present):
        raise TraceError(f"{path}: a column stands in it twice ({', '.join(present)})")
    names = [name for name in present if name in _FIELDS]
    others = dict.fromkeys((name for name in present if name not in _FIELDS), 0)
    row = unpacked = 0
    try:
        first = next(file.iter_batches(columns=names, batch_size=1), None)
        for cells in file.iter_batches(columns=names, batch_size=_batch_rows(file.metadata, first)):
            unpacked += cells.nbytes
            if unpacked > most:
                raise too_packed(path, limits)
            places = [f"{path}: row {row + i}" for i in range(cells.num_rows)]
            columns = {name: cells.column(name) for name in names}
            if cells.num_rows and all(_plain(name, column) for name, column in columns.items()):
                yield _side_by_side(places, columns, others)
            else:
                unread = dict.fromkeys(others, ...)
                yield from in_batches(zip(places, (row | unread for row in cells.to_pylist()), strict=True))
            row += cells.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: damaged after row {row}: {one_line(error)}") from None


def _batch_rows(metadata: Any, first: Any) -> int:
    """Choose the rows of one batch, so that a batch stays small however long the responses are.

    Pages are small where a value is repeated, so the first row has a say. (What the metadata says of a column ends
    the process where a file is damaged.)
    """
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    size = sum(max(g.total_byte_size, 0) for g in groups) // max(metadata.num_rows, 1)
    longest = max(size, 0 if first is None else first.nbytes // 16, 1)
    return int(np.clip(_BATCH_BYTES // longest, 1, 2**16))


def _plain(name: str, column: Any) -> bool:
    """Say whether a column has the type that it should have, so that all of it is converted at once."""
    from pyarrow import types

    kind, ids = column.type, name in ("tokens", "prompt_tokens")
    if name not in (*NUMBERS, "reward") and not ids:
        return not (types.is_boolean(kind) or types.is_nested(kind))
    if name != "reward":
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            return False
        kind = kind.value_type
    if ids:
        return bool((types.is_integer(kind) or types.is_string(kind)) and not column.flatten().null_count)
    truth = types.is_boolean(kind) and name in ("mask", "reward")
    return bool(types.is_floating(kind) or types.is_integer(kind) or truth)


def _side_by_side(places: list[str], columns: Mapping[str, Any], others: Mapping[str, int]) -> Batch:
    tokens, rows = {}, {}
    for name, column in columns.items():
        if name in NUMBERS or name == "tokens":
            lists = _ragged(column)
            tokens[name] = replace(lists, values=lists.values.astype(np.float64)) if name in NUMBERS else lists
        else:
            rows[name] = column.to_pylist()
    return Batch(places, tokens, rows, others)


def _ragged(column: Any) -> Ragged:
    """Return a column of lists, without what may stand in a null list."""
    import pyarrow as pa

    kind = pa.list_(column.type.value_type)
    lists = column if column.type == kind else column.cast(kind)
    starts = np.from_dlpack(lists.offsets).astype(np.int64)
    if not lists.null_count:
        values = lists.values.slice(starts[0], starts[-1] - starts[0])
        return Ragged(_numbers(values), starts - starts[0], np.ones(len(lists), bool))
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    sizes = np.where(valid, np.diff(starts), 0)
    return Ragged(_numbers(lists.flatten()), np.concatenate([[0], np.cumsum(sizes)]), valid)


def _numbers(values: Any) -> Any:
    """Return a column as an array; not by to_numpy, which imports all of pandas, longer than it takes to read a log."""
    from pyarrow import types

    plain = not values.null_count and (types.is_integer(values.type) or types.is_floating(values.type))
    return np.from_dlpack(values) if plain else values.to_numpy(zero_copy_only=False)
