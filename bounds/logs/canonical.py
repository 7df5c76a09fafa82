"""The project's own form: JSONL or Parquet, one response a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.logs.block import Block
from bounds.logs.decode import ahead, decode, documents, field_names, floats, look
from bounds.logs.format import Format, Head, Records, Wanted
from bounds.logs.response import RECORD_FIELDS, TraceError

if TYPE_CHECKING:
    from bounds.logs.traces import TraceSet

_HORIZON_KEY = b"trm_bounds.horizon"
_FIELDS = (*RECORD_FIELDS, "row_id")
_ARRAYS = ("rollout_logprobs", "train_logprobs", "old_logprobs", "mask", "kl", "tv", "chi2")
_PER_TOKEN = ("rollout_logprobs", "train_logprobs", "old_logprobs", "kl", "tv", "chi2")
_REQUIRED = {"rollout_logprobs", "train_logprobs"}
_BATCH_BYTES = 2**21
_PAGE_BYTES = 2**16


def _blocks(path: Path) -> Iterator[Block | Records]:
    if look(path).container == "parquet":
        return ahead(_parquet_blocks(path))
    return iter([_json_records(path)])


def _recognises(head: Head) -> bool:
    """Log-probs of either policy under the canonical name, in JSON or Parquet."""
    return head.container in ("json", "parquet") and not head.keys.isdisjoint({"rollout_logprobs", "train_logprobs"})


def _horizon(path: Path) -> int | None:
    """The horizon that a Parquet file written by this project carries."""
    if look(path).container != "parquet":
        return None
    said = (_open_parquet(path).schema_arrow.metadata or {}).get(_HORIZON_KEY)
    if said is not None and not said.isdigit():
        raise TraceError(f"{path}: the horizon in the file's metadata must be a whole number, got {said!r}")
    return None if said is None else int(said)


def _records(path: Path, wanted: Wanted) -> Records:
    return _parquet_records(path) if look(path).container == "parquet" else _json_records(path)


CANONICAL = Format(
    name="canonical",
    title="trm-bounds' own form",
    trainer="any",
    file="JSONL, or Parquet with list columns; what the export recipes write",
    keys="rollout_logprobs, train_logprobs; optional mask, reward, prompt_id, kl, tv, chi2, old_logprobs, row_id",
    recognises=_recognises,
    records=_records,
    horizon=_horizon,
    blocks=_blocks,
)


def write_parquet(traces: TraceSet, path: Path, dtype: str) -> None:
    """Write a TraceSet, one response a row; ``dtype`` is float32 or float64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(values: Any) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(traces.starts, pa.int32()), pa.array(values.astype(dtype)))

    columns = {"prompt_id": pa.array([traces.prompt_ids[k] for k in traces.prompt])}
    if traces.reward is not None:
        columns["reward"] = pa.array(traces.reward)
    columns |= {"rollout_logprobs": lists(traces.rollout), "train_logprobs": lists(traces.train)}
    if traces.old is not None:
        columns["old_logprobs"] = lists(traces.old)
    columns |= {name: lists(values) for name, values in traces.exact.items()}
    columns |= {name: pa.array([text or None for text in texts]) for name, texts in traces.labels.items()}
    if traces.tokens is not None:
        columns["tokens"] = pa.ListArray.from_arrays(pa.array(traces.starts, pa.int32()), pa.array(traces.tokens))
    table = pa.table(columns).replace_schema_metadata({_HORIZON_KEY: str(traces.horizon)})
    tokens = [
        f"{f.name}.list.element"
        for f in table.schema
        if pa.types.is_list(f.type) and pa.types.is_floating(f.type.value_type)
    ]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=["prompt_id"],
        use_byte_stream_split=tokens,
    )


def _json_records(path: Path) -> Records:
    import msgspec

    decoder = msgspec.json.Decoder(_record_type())
    for row, (place, text) in enumerate(documents(path)):
        where = f"{place}: row {row}"
        record = msgspec.structs.asdict(decode(decoder, text, where))
        if row == 0 or record["rollout_logprobs"] is None or record["train_logprobs"] is None:
            record |= _other_keys(text, record)  # so that names which are not read can be pointed out
        record |= {name: floats(record[name]) for name in _ARRAYS if record[name] is not None}
        yield where, record


def _other_keys(text: bytes, known: Mapping[str, Any]) -> dict[str, object]:
    return {key: ... for key in field_names(text) if key not in known}


def _record_type() -> Any:
    import msgspec

    numbers = list[float | None] | None
    fields: list[Any] = [
        ("prompt_id", str | int | None, None),
        ("prompt_tokens", list[int] | None, None),
        ("reward", float | bool | None, None),
        ("mask", list[bool | float] | None, None),
        ("step", int | str | None, None),
        ("environment", str | int | None, None),
        ("weight_version", str | int | None, None),
        ("tokens", list[int | str] | None, None),
        ("row_id", str | int | None, None),
    ]
    fields += [(n, numbers, None) for n in RECORD_FIELDS if n not in {f[0] for f in fields}]
    return msgspec.defstruct("CanonicalRecord", fields)


def _open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Its own buffering ahead would hold all that was read, to the end of the file; this reads page by page.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_PAGE_BYTES)
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None


def _parquet_records(path: Path) -> Records:
    for part in _parquet_blocks(path):
        yield from part.records() if isinstance(part, Block) else part


def _parquet_blocks(path: Path) -> Iterator[Block | Records]:
    """Batches of a file: as a block where every row has all of its lists, of equal lengths, else row by row."""
    import pyarrow as pa

    file = _open_parquet(path)
    present = file.schema_arrow.names
    names = [n for n in present if n in _FIELDS]
    if len(set(present)) < len(present):
        raise TraceError(f"{path}: a column stands in it twice ({', '.join(present)})")
    others = dict.fromkeys((n for n in present if n not in _FIELDS), ...)
    plain = not any(n.endswith("mask") or n == "rewards" for n in present)
    row = 0
    try:
        for batch in file.iter_batches(columns=names, batch_size=_batch_rows(file.metadata)):
            yield (_block(path, row, batch) if plain else None) or _rows(path, row, batch, others)
            row += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: damaged after row {row}: {error}") from None


def _rows(path: Path, row: int, batch: Any, others: Mapping[str, Any]) -> Records:
    names = batch.schema.names
    columns = [_cells(batch.column(n)) for n in names]
    for i, cells in enumerate(zip(*columns, strict=True) if names else [()] * batch.num_rows):
        yield f"{path}: row {row + i}", {**dict(zip(names, cells, strict=True)), **others}


def _block(path: Path, row: int, batch: Any) -> Block | None:
    import pyarrow as pa

    names = batch.schema.names
    lists = {n: batch.column(n) for n in names if n in _PER_TOKEN}
    if any(n in names for n in ("tokens", "row_id")) or not lists.keys() >= _REQUIRED or not batch.num_rows:
        return None
    if any(not isinstance(c, pa.ListArray | pa.LargeListArray) or c.null_count for c in lists.values()):
        return None
    if any(pa.types.is_nested(batch.column(n).type) for n in names if n not in lists):
        return None
    starts = [c.offsets.to_numpy() for c in lists.values()]
    counts = [np.diff(s) for s in starts]
    if any(not np.array_equal(counts[0], other) for other in counts[1:]):
        return None
    flat, ends = {}, {}
    for (name, column), start in zip(lists.items(), starts, strict=True):
        values = column.values[int(start[0]) : int(start[-1])].to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "fiu":
            return None
        flat[name] = values.astype(np.float64)
        ends[name] = (float(values.min()), float(values.max())) if values.size else (np.nan, np.nan)
    rest = {n: batch.column(n).to_pylist() for n in names if n not in lists}
    return Block(str(path), row, np.concatenate([[0], np.cumsum(counts[0], dtype=np.int64)]), flat, ends, rest)


def _batch_rows(metadata: Any) -> int:
    """Rows of one batch, so that a batch stays small however long the responses are."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    size = sum(max(g.total_byte_size, 0) for g in groups) // max(metadata.num_rows, 1)
    return int(np.clip(_BATCH_BYTES // max(size, 1), 1, 2**16))


def _cells(column: Any) -> list[Any]:
    """One value a row, or the numbers of a list (null becomes NaN), cut out of the column's one array."""
    import pyarrow as pa

    if isinstance(column, pa.FixedSizeListArray):
        column = column.cast(pa.list_(column.type.value_type))
    if not isinstance(column, pa.ListArray | pa.LargeListArray):
        return list(column.to_pylist())
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=False)
    rows: list[Any] = [values[a:b] for a, b in pairwise(offsets)]
    for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
        rows[i] = None
    return rows
