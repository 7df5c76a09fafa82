"""Peak memory of every question about a log, by the size of the log.

``python benchmarks/memory_study.py`` makes logs of 0.05, 0.5 and 2 million tokens in a temporary folder, asks each
question of each by the command line, and prints a table; other sizes (millions) are arguments. It exits 1 where a
question keeps more than a number for each token.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKENS, ROWS, STEPS = 500, 4000, 10  # of a response, of a row group, of the run
MEGABYTE = 2**20
#: What is asked, as it is typed after trm-bounds; the page asks by_position, too.
QUESTIONS = {
    "certify": ["certify"],
    "certify, a mask": ["certify", "--mask", "seq_max_k2<=0.05,seq_mean_k3<=0.001"],
    "the page": ["certify", "--html", "page.html", "--force"],
    "explain": ["explain"],
    "metrics": ["metrics"],
    "metrics, as verl": ["metrics", "--as", "verl"],
    "over_time": ["steps"],
    "objectives": ["objectives"],
    "masks": ["masks"],
    "masks, written": ["masks", "--write", "kept.parquet", "--force"],
}
#: A command that says at the end how much memory it held at most (what the system counts of a child includes its
#: parent's). The compiler, which takes 100 MB, is loaded for long logs only; here it is for all, to compare them.
CODE = """
import sys
from bounds.certificate import summary
from bounds.cli.main import main
assert summary.WORTH_COMPILING
summary.WORTH_COMPILING = -1
code = main(sys.argv[1:])
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(code)
"""
LIMIT = 8.0  # bytes a token: one array of float64


def write_log(path: Path, tokens: int, group: int = ROWS, seed: int = 0) -> None:
    """Write canonical Parquet as exports do: float32 lists, eight responses to each prompt, in steps."""
    rng = np.random.default_rng(seed)
    schema = pa.schema(
        [("prompt_id", pa.string()), ("reward", pa.float64()), ("step", pa.int64())]
        + [(name, pa.list_(pa.float32())) for name in ("rollout_logprobs", "train_logprobs")]
    )
    rows = tokens // TOKENS
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, group):
            count = min(group, rows - first)
            roll = -rng.exponential(0.5, count * TOKENS)
            theta = -np.abs(roll + rng.normal(0.0, 0.02, roll.size))
            starts = pa.array(np.arange(0, roll.size + 1, TOKENS), pa.int32())
            lists = [pa.ListArray.from_arrays(starts, pa.array(x.astype(np.float32))) for x in (roll, theta)]
            prompt = (first + np.arange(count)) // 8
            step = prompt * STEPS // (rows // 8 + 1)
            rewards = rng.integers(0, 2, count).astype(float)
            writer.write_table(pa.table([[f"p{k}" for k in prompt], rewards, step, *lists], schema))


def peak(question: list[str], path: Path) -> float:
    """Return the peak resident memory of a command, in bytes."""
    command = [sys.executable, "-c", CODE, question[0], str(path), "--horizon", "512", "--json", *question[1:]]
    # one heap that gives back what it frees, so that a number is what is held and not what was left
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(question)} failed on {path.name}:\n{done.stderr}")
    return 1024.0 * int(re.findall(r"VmHWM:\s+(\d+) kB", done.stderr)[-1])


def main() -> int:
    """Print the table; 1 where memory grows with the tokens."""
    sizes = sorted(int(1e6 * float(x)) for x in sys.argv[1:] or ("0.05", "0.5", "2"))
    titles = [f"{size / 1e6:g} million" for size in sizes]
    print(f"| question | {titles[0]} | {' | '.join(f'{title}, more' for title in titles[1:])} | bytes a token |")
    print("|---" * (len(sizes) + 2) + "|")
    grows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{size}.parquet" for size in sizes]
        for path, size in zip(paths, sizes, strict=True):
            write_log(path, size, group=500)  # a whole group is decompressed at once
        for name, question in QUESTIONS.items():
            least, *others = peaks = [peak(question, path) for path in paths]
            by_token = (peaks[-1] - peaks[-2]) / (sizes[-1] - sizes[-2])
            more = " | ".join(f"{(p - least) / MEGABYTE:.0f} MB" for p in others)
            print(f"| {name} | {least / MEGABYTE:.0f} MB | {more} | {by_token:.1f} |", flush=True)
            grows += [name] if by_token > LIMIT else []
    if grows:
        print(f"memory grows with the tokens: {'; '.join(grows)}")
    return 1 if grows else 0


if __name__ == "__main__":
    sys.exit(main())
