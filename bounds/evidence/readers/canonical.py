"""The project's own form: JSONL or Parquet, one response a row."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.evidence.readers.format import Format, Head, Records, Wanted
from bounds.evidence.readers.source import decode, documents, field_names, floats, look
from bounds.evidence.response import RECORD_FIELDS, TraceError

if TYPE_CHECKING:
    from bounds.evidence.traces import TraceSet

_HORIZON_KEY = b"trm_bounds.horizon"
_FIELDS = (*RECORD_FIELDS, "row_id")
_ARRAYS = ("rollout_logprobs", "train_logprobs", "old_logprobs", "mask", "kl", "tv", "chi2")
_BATCH_BYTES = 2**26


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
    table = pa.table(columns).replace_schema_metadata({_HORIZON_KEY: str(traces.horizon)})
    tokens = [f"{f.name}.list.element" for f in table.schema if pa.types.is_list(f.type)]
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
        ("step", int | None, None),
        ("weight_version", str | int | None, None),
        ("tokens", list[int] | None, None),
        ("row_id", str | int | None, None),
    ]
    fields += [(n, numbers, None) for n in RECORD_FIELDS if n not in {f[0] for f in fields}]
    return msgspec.defstruct("CanonicalRecord", fields)


def _open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None


def _parquet_records(path: Path) -> Records:
    import pyarrow as pa

    file = _open_parquet(path)
    present = file.schema_arrow.names
    names = [n for n in present if n in _FIELDS]
    if len(set(present)) < len(present):
        raise TraceError(f"{path}: a column stands in it twice ({', '.join(present)})")
    others = dict.fromkeys((n for n in present if n not in _FIELDS), ...)
    row = 0
    try:
        for batch in file.iter_batches(columns=names, batch_size=_batch_rows(file.metadata)):
            columns = [_cells(batch.column(n)) for n in names]
            for cells in zip(*columns, strict=True) if names else [()] * batch.num_rows:
                yield f"{path}: row {row}", {**dict(zip(names, cells, strict=True)), **others}
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: damaged after row {row}: {error}") from None


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
