"""Prompts set aside before a training, on which the policy that it gives can be judged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bounds._checks import number
from bounds._files import whole_file
from bounds.logs.batch import TraceError, prompt_name
from bounds.logs.decode import documents, look

#: What names a prompt, the first of these that a row has.
PROMPT_FIELDS = ("prompt_id", "prompt_tokens", "prompt")


def split(
    path: str | Path, *, share: float = 0.2, seed: int = 0, by: str | None = None, force: bool = False
) -> tuple[Path, Path]:
    r"""Write the rows of a file into two, by prompt: those to train on, and those that are set aside.

    A prompt is set aside where a hash of its name and of the seed is below the share, so that the same prompts are in
    every file and at every time, in whatever order they stand. Do this before a training: of a policy that has learned
    from a prompt, nothing is guaranteed by setting the prompt aside afterwards.

    Parameters
    ----------
    path : path
        JSONL (also gzip or zstd) or Parquet: prompts, or logged responses to them.
    share : float
        Of the prompts that are set aside, about, in (0, 1).
    seed : int
        Another seed sets other prompts aside.
    by : str, optional
        The field that names a prompt; else the first of ``prompt_id``, ``prompt_tokens``, ``prompt``.
    force : bool
        Whether files of these names are overwritten.

    Returns
    -------
    (Path, Path)
        ``NAME.train.EXT`` and ``NAME.held-out.EXT`` beside the file; each is written whole or not at all.

    Raises
    ------
    TraceError
        If a row names no prompt, or all prompts are on one side.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "prompts.jsonl"
    >>> size = path.write_text("\n".join(f'{{"prompt": "{i} + 1?"}}' for i in range(100)))
    >>> [(p.name, len(p.read_text().splitlines())) for p in split(path, share=0.2)]
    [('prompts.train.jsonl', 87), ('prompts.held-out.jsonl', 13)]
    """
    path, share = Path(path), number("share", share, 0.0, 1.0)
    parquet = look(path).container == "parquet"
    suffix = ".parquet" if parquet else ".jsonl"
    stem = path.name.split(".")[0]
    both = path.with_name(f"{stem}.train{suffix}"), path.with_name(f"{stem}.held-out{suffix}")
    with ExitStack() as stack:
        unfinished = [stack.enter_context(whole_file(target, force=force)) for target in both]
        written = (_split_parquet if parquet else _split_json)(path, unfinished, share, str(seed), by)
        if 0 in written:
            raise TraceError(f"{path}: all of its {sum(written)} rows are on one side; another share or seed")
    return both


def set_aside(name: str, share: float, seed: str) -> bool:
    """Return whether a prompt of this name is held out."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.encode()).digest()
    return int.from_bytes(digest) < share * 2.0**64


def _sides(rows: Iterable[tuple[str, Any]], share: float, seed: str, by: str | None) -> Iterator[bool]:
    """Yield for each row whether it is set aside."""
    for where, row in rows:
        names = [row.get(field) for field in ((by,) if by else PROMPT_FIELDS)] if isinstance(row, dict) else []
        name = next((n for n in (prompt_name(value, None) for value in names) if n), None)
        if name is None:
            raise TraceError(f"{where}: has no {by or ', '.join(PROMPT_FIELDS)}: name the field of its prompt (--by)")
        yield set_aside(name, share, seed)


def _split_json(path: Path, targets: list[Path], share: float, seed: str, by: str | None) -> list[int]:
    written = [0, 0]
    with ExitStack() as stack:
        files = [stack.enter_context(target.open("wb")) for target in targets]
        for where, text in documents(path):
            try:
                row = json.loads(text)
            except ValueError as error:
                raise TraceError(f"{where}: {error}") from None
            (aside,) = _sides([(where, row)], share, seed, by)
            files[aside].write(b" ".join(text.strip().splitlines()) + b"\n")
            written[aside] += 1
    return written


def _split_parquet(path: Path, targets: list[Path], share: float, seed: str, by: str | None) -> list[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = [0, 0]
    with ExitStack() as stack:
        file = stack.enter_context(pq.ParquetFile(path))
        writers = [stack.enter_context(pq.ParquetWriter(target, file.schema_arrow)) for target in targets]
        named = [name for name in ((by,) if by else PROMPT_FIELDS) if name in file.schema_arrow.names]
        for batch in file.iter_batches():
            rows = ((f"{path}: row {sum(written) + k}", row) for k, row in enumerate(batch.select(named).to_pylist()))
            aside = pa.array(_sides(rows, share, seed, by), pa.bool_())
            for side, keep in enumerate((pa.compute.invert(aside), aside)):
                some = batch.filter(keep)
                writers[side].write_batch(some)
                written[side] += some.num_rows
    return written
