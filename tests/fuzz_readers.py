"""Damaged and made-up files for every reader: each gives a result or a clear error, in bounded memory.

``make fuzz`` runs 10,000 for each reader (``python tests/fuzz_readers.py [N] [NAME ...]``); the tests run fewer.
Files are a valid one with bytes changed, cut, doubled or moved; a valid one whose JSON values were changed; or
records made by hypothesis. The seed is fixed.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import writers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bounds
from bounds.logs.formats import FORMATS

WITHOUT_TORCH = (
    "canonical",
    "parquet",
    "nemo-rl",
    "prime-rl",
    "openai",
    "openai scored",
    "sglang",
    "sglang scored",
    "completions",
    "verifiers",
    "nemo-gym",
    "atropos",
    "detection",
)
NAMES = (*WITHOUT_TORCH, "slime")
MEMORY = 2**30  # more than the process had at the start
_MAGIC = [b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1", b"\x80\x04", b"[", b"{", b"\xef\xbb\xbf{"]
_ODD = [
    None,
    True,
    0,
    -1,
    1e308,
    -1e999,
    float("nan"),
    2**70,
    "",
    "x",
    [],
    [[]],
    [[], []],
    {},
    {"a": 1},
    [None],
    [1e999],
    "9" * 400,
]


def few():
    rng = random.Random(1)
    return [
        {
            "prompt_id": f"p{k // 2}",
            "reward": float(k % 2),
            "rollout_logprobs": [-rng.expovariate(1) for _ in range(6)],
            "train_logprobs": [-rng.expovariate(1) for _ in range(6)],
        }
        for k in range(4)
    ]


def seed_file(name, folder):
    """A valid file to begin with, and the options that read it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "STABLE").touch()
    records = few()
    whole = [{**r, "tokens": writers.response_tokens(r)} for r in records]
    mu = [{k: v for k, v in r.items() if k != "train_logprobs"} for r in whole]
    if name in ("canonical", "detection"):
        return writers.canonical(folder, records), {"format": "auto" if name == "detection" else "canonical"}
    if name == "parquet":
        bounds.TraceSet.from_records(records, horizon=8).to_parquet(folder / "log.parquet")
        return folder / "log.parquet", {"format": "canonical"}
    if name == "prime-rl":
        path = writers.prime_rl(folder, records, ranks=1) / "step_0" / "rank_0.jsonl"
        return path, {"format": name}
    if name == "slime":
        import torch

        torch.save(writers.slime_payload(records, torch.tensor), folder / "0.pt")
        return folder / "0.pt", {"format": name}
    if name in ("completions", "verifiers", "nemo-gym", "atropos"):
        sampled, scored = getattr(writers, name.replace("-", "_"))(folder, records)
        return sampled, {"train": scored, "format": "openai" if name == "completions" else name}
    kind = name.split()[0]
    made = getattr(writers, kind.replace("-", "_"))(folder, records)
    if isinstance(made, Path):  # both halves in one file
        return made, {"format": kind}
    sampled, scored = made
    if name.endswith("scored"):
        return scored, {"other": writers.lines(folder / "mu.jsonl", mu), "format": kind}
    pi = [{"train_logprobs": r["train_logprobs"], "tokens": r["tokens"]} for r in whole]
    return sampled, {"train": writers.lines(folder / "pi.jsonl", pi), "format": kind}


def damaged(data, rng):
    """Bytes of a file, damaged in one to four places."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        a = rng.randrange(len(out) + 1)
        b = min(len(out), a + rng.choice([1, 1, 2, 8, 64]))
        kind = rng.randrange(6)
        if kind == 0:
            out[a:b] = bytes(rng.randrange(256) for _ in range(b - a))
        elif kind == 1:
            del out[a:b]
        elif kind == 2:
            out[a:a] = out[a:b] * rng.choice([1, 2, 50])
        elif kind == 3:
            del out[a:]
        elif kind == 4:
            out[a:b] = rng.choice(
                [b"null", b"NaN", b"-Infinity", b"1e999", b"[", b"]", b"{", b'"', b",", b"\n", b"\0", b"9" * 30]
            )
        else:
            c = rng.randrange(len(out) + 1)
            out[a:a] = out[c : c + (b - a)]
    return bytes(rng.choice(_MAGIC) + out if rng.random() < 0.03 else out)


def changed(value, rng):
    """A JSON value with one part of it replaced, renamed, dropped or made longer."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {k: changed(v, rng) if k == key else v for k, v in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.85:
        k = rng.randrange(len(value))
        return rng.choice(
            [value[:k], value + value[:k], [value], [*value[:k], changed(value[k], rng), *value[k + 1 :]]]
        )
    return rng.choice(_ODD)


def changed_lines(data, rng):
    """A JSON file with the values of one of its records changed."""
    text = data.decode()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    k = rng.randrange(len(rows))
    rows[k] = changed(rows[k], rng)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@cache
def made_files(count):
    """Files of records that hypothesis makes, with the field names of all formats."""
    keys = sorted(
        {word.split("[")[0] for f in FORMATS.values() for word in f.keys.replace(",", " ").replace(".", " ").split()}
    )
    number = st.none() | st.floats() | st.integers(-(2**70), 2**70) | st.booleans()
    leaf = number | st.text(max_size=5)
    value = st.recursive(
        leaf, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.sampled_from(keys), v, max_size=3), max_leaves=8
    )
    row = st.dictionaries(st.sampled_from(keys), st.lists(number, max_size=5) | value, max_size=6)
    files: list[bytes] = []

    @settings(max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.lists(row | value, max_size=3), st.booleans())
    def collect(rows, whole):
        files.append(json.dumps(rows).encode() if whole else "".join(json.dumps(r) + "\n" for r in rows).encode())

    collect()
    return files


def corpus(name, count, data):
    """``count`` damaged or made-up files; ``data`` is a valid one."""
    rng = random.Random(f"{name} 20260101")
    made = made_files(count // 3) if name not in ("parquet", "slime") else []
    yield from made
    for k in range(len(made), count):
        yield changed_lines(data, rng) if made and k % 2 else damaged(data, rng)


def fuzz(name, count, folder):
    """Read ``count`` damaged or made-up files; how many were read, and how many refused with a clear error."""
    path, options = seed_file(name, folder / "seed")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = Counter()
    for content in corpus(name, count, path.read_bytes()):
        path.write_bytes(content)
        outcomes[outcome(path, options, folder)] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    if grown * 1024 > MEMORY:
        raise AssertionError(f"{name}: memory grew by {grown >> 10} MiB")
    return outcomes


def read(path, options):
    """Read a damaged file with the options of :func:`seed_file`; a warning is an error."""
    if "other" in options:
        path, options = options["other"], {"train": path}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return bounds.read_traces(path, **options)


def outcome(path, options, folder):
    try:
        if len(read(path, options)) < 1:
            raise AssertionError("a log without a response was read")
    except ValueError as error:  # TraceError is one
        if not isinstance(error, bounds.TraceError) or not str(error):
            (folder / "failing").write_bytes(path.read_bytes())
            raise AssertionError(f"no clear error: {error!r}") from error
        return "refused"
    except Exception:
        (folder / "failing").write_bytes(path.read_bytes())
        raise
    return "read"


def main(arguments):
    count = int(arguments[0]) if arguments else 10_000
    for name in arguments[1:] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = fuzz(name, count, Path(folder))
        print(f"{name}: {outcomes['read']} read, {outcomes['refused']} refused, nothing else", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
