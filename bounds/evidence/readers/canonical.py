"""The project's own form: JSONL or Parquet, one response a row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.evidence.response import RECORD_FIELDS, TraceError

if TYPE_CHECKING:
    from bounds.evidence.traces import TraceSet

_HORIZON_KEY = b"trm_bounds.horizon"
_PARQUET = b"PAR1"


def recognises(path: Path) -> bool:
    """Whether a file is Parquet, or its first line is a JSON object."""
    with path.open("rb") as file:
        head = file.read(64)
    return head.startswith(_PARQUET) or head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")


def horizon(path: Path) -> int | None:
    """The horizon that a Parquet file written by this project carries."""
    if not _is_parquet(path):
        return None
    said = (_open_parquet(path).schema_arrow.metadata or {}).get(_HORIZON_KEY)
    if said is not None and not said.isdigit():
        raise TraceError(f"{path}: the horizon in the file's metadata must be a whole number, got {said!r}")
    return None if said is None else int(said)


def records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each record stands, and the record; rows count from 0, lines of a file from 1."""
    return _parquet_records(path) if _is_parquet(path) else _jsonl_records(path)


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


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _PARQUET


def _jsonl_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import msgspec

    decoder = msgspec.json.Decoder(_record_type())
    with path.open("rb") as file:
        row = 0
        for line, text in enumerate(file, start=1):
            body = text.removeprefix(codecs.BOM_UTF8)
            if not body.strip():
                continue
            where = f"{path}:{line}: row {row}"
            try:
                record = msgspec.structs.asdict(_decode(decoder, body))
                if row == 0 or record["rollout_logprobs"] is None or record["train_logprobs"] is None:
                    record |= _other_keys(body, record)  # so that names which are not read can be pointed out
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise TraceError(f"{where}: {error}") from None
            yield where, record
            row += 1


def _decode(decoder: Any, text: bytes) -> Any:
    import msgspec

    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Python's json writes NaN and Infinity, which are not JSON; they are judged under the mask
        return msgspec.convert(json.loads(text), decoder.type)


def _other_keys(text: bytes, known: Mapping[str, Any]) -> dict[str, object]:
    return {key: ... for key in json.loads(text) if key not in known}


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
    ]
    fields += [(n, numbers, None) for n in RECORD_FIELDS if n not in {f[0] for f in fields}]
    return msgspec.defstruct("CanonicalRecord", fields)


def _open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None


def _parquet_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow as pa

    file = _open_parquet(path)
    present = file.schema_arrow.names
    names = [n for n in present if n in RECORD_FIELDS]
    if len(set(present)) < len(present):
        raise TraceError(f"{path}: a column stands in it twice ({', '.join(present)})")
    others = dict.fromkeys((n for n in present if n not in RECORD_FIELDS), ...)
    row = 0
    try:
        for batch in file.iter_batches(columns=names):
            for i in range(batch.num_rows):
                yield f"{path}: row {row}", {**{n: _cell(batch.column(n)[i]) for n in names}, **others}
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: damaged after row {row}: {error}") from None


def _cell(cell: Any) -> Any:
    """One value, or the numbers of a list (null becomes NaN)."""
    import pyarrow as pa

    if isinstance(cell, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return None if cell.values is None else cell.values.to_numpy(zero_copy_only=False)
    return cell.as_py()
