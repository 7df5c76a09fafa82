"""Which responses a mask keeps, as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bounds._checks import FloatArray
from bounds._files import whole_file
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.masks.statistics import Tokens, pooled

_KEY = b"trm_bounds.mask"


def write_masks(parts: TraceSet | Iterable[TraceSet], mask: Mask, path: str | Path, *, force: bool = False) -> None:
    """Write one row for each response, whole or not at all.

    Columns: ``row`` (its number in the log, from 0), ``place`` (file and row), ``prompt_id``, ``keep``, and every
    statistic that the mask looks at (of a ratio its logarithm, ``log_seq_product_ratio``; of tokens, how many). The
    mask is in the file's metadata.

    Parameters
    ----------
    parts : TraceSet, or several
        The log, or its parts in their order.
    mask : Mask
        The mask; rules that drop or truncate tokens do not enter ``keep``.
    path : path
        The file to write.
    force : bool
        Whether to overwrite it.

    Raises
    ------
    FileExistsError
        If there is such a file, unless ``force``.
    ValueError
        If the mask looks at what is not logged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = mask.statistics
    schema = pa.schema(
        [("row", pa.int64()), ("place", pa.string()), ("prompt_id", pa.string()), ("keep", pa.bool_())]
        + [(_column(name), pa.float64()) for name in names],
        metadata={_KEY: str(mask)},
    )
    rows = 0
    with whole_file(path, force=force) as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
        for traces in [parts] if isinstance(parts, TraceSet) else parts:
            statistics = _statistics(traces, names)
            columns = {
                "row": np.arange(rows, rows + len(traces)),
                "place": list(traces.where),
                "prompt_id": [traces.prompt_ids[k] for k in traces.prompt],
                "keep": mask.holds(statistics),
                **{_column(name): values for name, values in statistics.items()},
            }
            writer.write_table(pa.table(columns, schema=schema))
            rows += len(traces)


def _statistics(traces: TraceSet, names: Iterable[str]) -> dict[str, FloatArray]:
    tokens = Tokens(traces.log_ratio, traces.starts, kl=traces.exact.get("kl"), rollout=traces.rollout)
    return {name: pooled(name, tokens) for name in names}


def _column(name: str) -> str:
    """Ratios are pooled as logarithms."""
    return f"log_{name}" if name.startswith("seq_") and name.endswith("_ratio") else name
