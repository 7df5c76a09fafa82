"""Speed, as ratios to what a user would pick instead, beside the ratio that is aimed at: the table in README.md.

``python benchmarks/bench.py [PART ...]`` prints it, a part at a time; without a name all of them, some minutes. What
is compared is called once before it is timed, then in turn, and the best counts: what else the machine does meets all
alike. CPU time unless a row says "wall". Nothing here fails on time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from memory_study import write_log

import bounds
from bounds.certificate import summary
from bounds.certificate.distributed import processes
from bounds.certificate.summary import Summary
from bounds.divergence import from_logits

COLUMNS = ["prompt_id", "reward", "rollout_logprobs", "train_logprobs"]
ROWS, VOCABULARY = 64, 152_000
LITERAL_T = 10**6
Calls = dict[str, Callable[[], object]]


def best(calls: Calls, rounds: int = 5) -> dict[str, tuple[float, float]]:
    """Return the least CPU and wall seconds of each call, its children's included."""
    for call in calls.values():
        call()
    found = dict.fromkeys(calls, (np.inf, np.inf))
    for _ in range(rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), _cpu()
            call()
            found[name] = (min(found[name][0], _cpu() - cpu), min(found[name][1], time.perf_counter() - wall))
    return found


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def say(
    what: str, beside: str, value: float, target: float | None = None, *, least: bool = True, unit: str = ""
) -> None:
    """Print a row of the table; ``least`` says that the target is the least value, not the largest."""
    met = target is not None and (value >= target if least else value <= target)
    aim = "" if target is None else f"{'at least' if least else 'at most'} {target:g}{unit}"
    print(f"| {what} | {beside} | {value:.3g}{unit} | {aim} | {'yes' if met else 'no' if aim else ''} |", flush=True)


# --- divergences of full-vocabulary rows ----------------------------------------------------------------------------


def obvious(a: Any, b: Any) -> Any:
    """KL, TV and chi2 as one would write them: NumPy in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    log_p, log_q = (x - x.max(axis=1, keepdims=True) for x in (a, b))
    log_p, log_q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (log_p, log_q))
    p, q = np.exp(log_p), np.exp(log_q)
    return (p * (log_p - log_q)).sum(1), np.abs(q - p).sum(1) / 2, ((q - p) ** 2 / p).sum(1)


def eager(a: Any, b: Any) -> Any:
    """The same in torch, in the type that comes in."""
    log_p, log_q = a.log_softmax(1), b.log_softmax(1)
    p, q = log_p.exp(), log_q.exp()
    return (p * (log_p - log_q)).sum(1), (q - p).abs().sum(1) / 2, ((q - p) ** 2 / p).sum(1)


def logits() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, VOCABULARY), dtype=np.float32) * np.float32(3)
    b = a + rng.standard_normal((ROWS, VOCABULARY), dtype=np.float32) * np.float32(0.05)
    normalised = [x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (a, b)]
    half = [x.astype(np.float16) for x in (a, b)]
    calls: Calls = {
        "ours": lambda: from_logits(a, b),
        "log-probs": lambda: from_logits(*normalised),
        "float16": lambda: from_logits(*half),
        "precise": lambda: from_logits(a, b, precise=True),
        "a read of the same bytes": lambda: _read(a, b),
        "NumPy, float64": lambda: obvious(a, b),
    }
    if importlib.util.find_spec("torch"):
        import torch

        tensors, compiled = (torch.from_numpy(a), torch.from_numpy(b)), torch.compile(eager)
        calls |= {"torch eager": lambda: eager(*tensors), "torch compiled": lambda: compiled(*tensors)}
    spent = best(calls)
    ours = spent["ours"]
    for name, target in (("torch eager", 8.0), ("torch compiled", None), ("NumPy, float64", None)):
        if name in spent:
            say("from_logits, float32: times faster", name, spent[name][0] / ours[0], target)
            say("the same, wall", name, spent[name][1] / ours[1], target)
    read = "a read of the same bytes"
    say("from_logits, float32: reads", read, ours[0] / spent[read][0], 6.0, least=False)
    for name in ("log-probs", "float16", "precise"):
        say(f"{name}: share of the time", "from_logits, float32", spent[name][0] / ours[0])


def _read(*arrays: Any) -> object:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(np.max, [half for x in arrays for half in np.array_split(x, 2)]))


# --- logs -----------------------------------------------------------------------------------------------------------


class NeMoRow(msgspec.Struct):
    """The fields that are needed, in the types that a healthy file has."""

    generation_logprobs: list[list[float]]
    prev_logprobs: list[list[float]]
    token_loss_mask: list[list[float]]
    sample_loss_mask: list[float]
    rewards: list[float]
    token_ids: list[list[int]]


def write_nemo(path: Path, rows: int, prompt: int = 200, tokens: int = 1000) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for i in range(rows):
            roll = -rng.exponential(0.5, prompt + tokens).astype(np.float32)
            theta = -np.abs(roll + rng.normal(0.0, 0.02, roll.size)).astype(np.float32)
            row = {
                "content": ["x" * 4 * tokens],
                "rewards": [float(rng.integers(0, 2))],
                "input_lengths": [roll.size],
                "token_ids": [[*([i // 8] * prompt), *rng.integers(0, 150_000, tokens).tolist()]],
                "token_loss_mask": [[0.0] * prompt + [1.0] * tokens],
                "sample_loss_mask": [1.0],
                "advantages": [[0.5] * roll.size],
                "generation_logprobs": [roll.astype(float).tolist()],
                "prev_logprobs": [theta.astype(float).tolist()],
            }
            file.write(json.dumps(row) + "\n")


def by_json(path: Path) -> Any:
    """What one would write: json, NumPy and a frame of k1, k3 and k2 by response; nothing is checked."""
    import pandas as pd

    rows = []
    with path.open() as file:
        for row in map(json.loads, file):
            d = np.subtract(row["prev_logprobs"][0], row["generation_logprobs"][0])[
                np.array(row["token_loss_mask"][0]) > 0
            ]
            rows.append((row["rewards"][0], -d.sum(), (np.expm1(d) - d).sum(), (d**2).max() / 2))
    return pd.DataFrame(rows).mean()


def by_pandas(path: Path) -> Any:
    """The same of Parquet: pandas, row by row."""
    import pandas as pd

    frame = pd.read_parquet(path, columns=COLUMNS)
    rows = []
    for roll, theta in zip(frame["rollout_logprobs"], frame["train_logprobs"], strict=True):
        d = theta.astype(np.float64) - roll
        rows.append((-d.sum(), (np.expm1(d) - d).sum(), (d**2).max() / 2))
    return pd.DataFrame(rows).mean()


def jsonl() -> None:
    with _folder() as folder:
        path = folder / "train_data_step1.jsonl"
        write_nemo(path, 300)
        decoder = msgspec.json.Decoder(NeMoRow)

        def decode() -> int:
            with path.open("rb") as file:
                return sum(len(decoder.decode(line).rewards) for line in file)

        spent = best({"ours": lambda: _summed(path), "bare": decode, "json": lambda: by_json(path)})
    ours = spent["ours"][0]
    say("NeMo-RL JSONL: share of the speed", "a bare typed decode", spent["bare"][0] / ours, 0.8)
    say("the same: times faster", "json, NumPy, pandas", spent["json"][0] / ours)


def parquet() -> None:
    with _folder() as folder:
        path = folder / "log.parquet"
        write_log(path, 5 * 10**6)

        def batches() -> int:
            file = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16)
            return sum(batch.num_rows for batch in file.iter_batches(columns=COLUMNS, batch_size=478))

        spent = best(
            {
                "numba": lambda: _summed(path, -1),
                "NumPy": lambda: _summed(path, 2**60),
                "batches": batches,
                "table": lambda: pq.read_table(path, columns=COLUMNS),
                "pandas": lambda: by_pandas(path),
            }
        )
    for name, target in (("numba", 0.7), ("NumPy", 0.5)):
        cpu, wall = spent[name]
        say(f"Parquet, {name}: share of the speed", "pyarrow's batches", spent["batches"][0] / cpu)
        say("the same, wall", "pyarrow's batches", spent["batches"][1] / wall, target)
    say("Parquet, numba: share of the speed", "pyarrow's read_table", spent["table"][0] / spent["numba"][0])
    say("Parquet, numba: times faster", "pandas, NumPy by row", spent["pandas"][0] / spent["numba"][0])


def say_of_two(what: str, spent: dict[str, tuple[float, float]]) -> None:
    share = spent["2"][1] / spent["1"][1]
    say(f"{what}: share of the wall time", "one process", share, 0.65, least=False)


def jobs() -> None:
    """By wall time, so only where two cores are free."""
    with _folder() as folder:
        for k in range(32):
            write_log(folder / f"step_{k}.parquet", 2 * 10**6, seed=k)
        log = bounds.open_log(folder, horizon=512)
        spent = best({str(n): lambda n=n: Summary.of(log, pool=processes(n)) for n in (1, 2)}, 3)
    say_of_two("32 files of 2e6 tokens, two processes", spent)


def _summed(path: Path, worth: int = summary.WORTH_COMPILING) -> int:
    """Look at a log, by the compiled kernel from so many tokens on."""
    before, summary.WORTH_COMPILING = summary.WORTH_COMPILING, worth
    try:
        return len(Summary.of(bounds.open_log(path, horizon=1024)))
    finally:
        summary.WORTH_COMPILING = before


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# --- bounds, proofs, figures, starts --------------------------------------------------------------------------------


def literal(T: int = LITERAL_T, delta: float = 1e-4, epsilon: float = 5e-3) -> float:
    """Compute 4 eps sum_t min(1, (T-t) eps, sqrt((T-t) delta/2)) as one would write it: one rule, NumPy over t."""
    k = np.arange(T, dtype=np.float64)
    return float(4 * epsilon * np.minimum(1.0, np.minimum(k * epsilon, np.sqrt(k * delta / 2))).sum())


def rules() -> None:
    kl = np.random.default_rng(0).random(LITERAL_T) * 1e-6
    tv = np.sqrt(kl / 2)
    arrays = {
        "mean_kl": kl,
        "max_kl": 2 * kl,
        "mean_tv": tv / 2,
        "max_tv": 2 * tv,
        "mean_chi2": 2 * kl,
        "max_chi2": 4 * kl,
    }
    profile = bounds.Profile(T=LITERAL_T, **arrays)
    spent = best(
        {
            "literal": literal,
            "table": lambda: bounds.unified(T=10**12, delta=1e-4, epsilon=5e-3),
            "arrays": lambda: [rule.evaluate(profile) for rule in bounds.RULES],
            **{rule.name: lambda rule=rule: rule.evaluate(profile) for rule in bounds.RULES if "adaptive" in rule.name},
        }
    )
    one = "a literal NumPy sum of one rule, T = 1e6"
    say("unified at T = 1e12, all rules: times faster", one, spent["literal"][0] / spent["table"][0])
    say("all rules on arrays of 1e6 positions: sums", one, spent["arrays"][0] / spent["literal"][0])
    adaptive = max(cpu for name, (cpu, _) in spent.items() if "adaptive" in name and name != "adaptive_profile")
    say("the slowest adaptive rule of them: sums", one, adaptive / spent["literal"][0])


def largest() -> None:
    """In a fresh process: answers are kept in one."""
    search = "[bounds.largest('delta', target=x, T=T) for x in (0.1, 0.5) for T in (1024, 4096)]"
    runs = {code: lambda code=code: _started(["-c", f"import bounds.rules.largest; {code}"]) for code in ("", search)}
    spent = best(runs, 3)
    say("largest, four rows: seconds", "4 s before", spent[search][0] - spent[""][0], 0.4, least=False, unit=" s")


def starts() -> None:
    runs = {
        "numpy": ["-c", "import numpy"],
        "trm-bounds --help": ["-m", "bounds", "--help"],
        "trm-bounds bstar": ["-m", "bounds", "bstar", "--T", "4096", "--delta", "1e-4"],
        "trm-bounds certify": ["-m", "bounds", "certify"],
    }
    spent = best({name: lambda run=run: _started(run) for name, run in runs.items()})
    numpy = spent.pop("numpy")[0]
    for name, (cpu, _) in spent.items():
        target, more = (0.6, cpu) if "certify" in name else (0.25, cpu - numpy)
        say(f"{name}: {'seconds' if more == cpu else 'more'}", "import numpy", more, target, least=False, unit=" s")


def _started(arguments: list[str]) -> None:
    """Run Python as it runs where packages are installed: with their bytecode kept from the first start on."""
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _BYTECODE.name}
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, *arguments], check=True, stdout=quiet, stderr=quiet, env=kept)


_BYTECODE = tempfile.TemporaryDirectory()


def proofs() -> None:
    ((cpu, _),) = best({"verify": lambda: _started(["-m", "bounds", "verify"])}, 3).values()
    say("trm-bounds verify: seconds", "31 s before", cpu, 10.0, least=False, unit=" s")


def figures() -> None:
    """By wall time, so only where two cores are free."""
    names = list(bounds.figures.FIGURES)[:6]
    with _folder() as folder:
        spent = best({str(n): lambda n=n: bounds.figures.write(names, folder, jobs=n) for n in (1, 2)}, 1)
    say_of_two("six figures by two processes", spent)


PARTS = (logits, jsonl, parquet, jobs, starts, rules, largest, proofs, figures)

if __name__ == "__main__":
    print("| what | beside | here | aimed at | met |\n|---|---|---|---|---|")
    for part in PARTS:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part()
