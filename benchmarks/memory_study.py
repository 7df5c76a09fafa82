"""Peak memory of ``trm-bounds certify`` on logs of 5 and of 50 million tokens.

``python benchmarks/memory_study.py`` makes the logs (470 MB) in a temporary folder and prints a table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKENS, ROWS = 500, 4000  # of a response, of a row group


def write_log(path: Path, tokens: int) -> None:
    """Canonical Parquet as exports write it: float32 lists, eight responses to each prompt."""
    rng = np.random.default_rng(0)
    schema = pa.schema(
        [("prompt_id", pa.string()), ("reward", pa.float64())]
        + [(name, pa.list_(pa.float32())) for name in ("rollout_logprobs", "train_logprobs")]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, tokens // TOKENS, ROWS):
            count = min(ROWS, tokens // TOKENS - first)
            roll = -rng.exponential(0.5, count * TOKENS)
            theta = -np.abs(roll + rng.normal(0.0, 0.02, roll.size))
            starts = pa.array(np.arange(0, roll.size + 1, TOKENS), pa.int32())
            lists = [pa.ListArray.from_arrays(starts, pa.array(x.astype(np.float32))) for x in (roll, theta)]
            prompts = [f"p{(first + i) // 8}" for i in range(count)]
            writer.write_table(pa.table([prompts, rng.integers(0, 2, count).astype(float), *lists], schema))


def certify(path: Path) -> tuple[float, float]:
    """Peak resident memory in MB and seconds of the command."""
    code = "import sys; from bounds.cli.main import main; sys.exit(main(sys.argv[1:]))"
    started = time.perf_counter()
    command = [sys.executable, "-c", code, "certify", str(path), "--horizon", "512", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"certify failed on {path}")
    return usage.ru_maxrss / 1024, time.perf_counter() - started


def main() -> None:
    print("| tokens | file | peak memory | time |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for millions in (5, 50):
            path = Path(folder) / f"{millions}.parquet"
            write_log(path, millions * 10**6)
            peak, seconds = certify(path)
            size = path.stat().st_size / 1e6
            print(f"| {millions} million | {size:.0f} MB | {peak:.0f} MB | {seconds:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
