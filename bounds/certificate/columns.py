"""A table that only grows: equal-named arrays, in memory until they are many, then in a temporary Parquet file."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt

Block = Mapping[str, npt.NDArray[Any]]

#: Rows that are held in memory (about 200 bytes each).
MEMORY_ROWS = 2**20


class Columns:
    """Blocks of columns, appended; one column is put together when it is asked for."""

    def __init__(self, memory_rows: int = MEMORY_ROWS) -> None:
        self._memory_rows = memory_rows
        self._blocks: list[Block] = []
        self._held = 0
        self._spilled = 0
        self._folder: Path | None = None
        self._writer: Any = None
        self._files: list[Path] = []
        self.names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self._held + self._spilled

    def append(self, block: Block) -> None:
        """Add rows; every block has the same columns."""
        if not self.names:
            self.names = tuple(block)
        self._blocks.append({name: block[name] for name in self.names})
        self._held += len(block[self.names[0]])
        if self._held > self._memory_rows:
            self._spill()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column [rows]."""
        import pyarrow.parquet as pq

        self._close()
        parts = [pq.read_table(f, columns=[name]).column(0).to_numpy() for f in self._files]
        return np.concatenate([*parts, *(block[name] for block in self._blocks)])

    def blocks(self) -> Iterator[Block]:
        """The rows again, a block at a time."""
        import pyarrow.parquet as pq

        self._close()
        for f in self._files:
            for batch in pq.ParquetFile(f).iter_batches():
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.names}
        yield from self._blocks

    def _spill(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: np.concatenate([b[name] for b in self._blocks]) for name in self.names})
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="trm-bounds-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        if self._writer is None:
            self._files.append(self._folder / f"{len(self._files)}.parquet")
            self._writer = pq.ParquetWriter(self._files[-1], table.schema)
        self._writer.write_table(table)
        self._spilled += self._held
        self._blocks, self._held = [], 0

    def _close(self) -> None:
        """A file that is written to cannot be read."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
