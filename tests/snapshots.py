"""What the package does today, in one file; and how two such files differ. For a change that must change nothing.

    python tests/snapshots.py make before.json.gz                  # about two minutes
    ... change the code ...
    python tests/snapshots.py make after.json.gz
    python tests/snapshots.py compare before.json.gz after.json.gz [--all] [--only WORD]

``compare`` prints each difference on one line (the place in the file, before, after), grouped and counted, and ends
with 1 if there are any. Numbers within 1e-12 of each other, relatively, are equal (``--relative``, ``--absolute``).

``make --fuzz N`` reads N damaged files for each reader (500 unless given; a long run takes 10000). What is damaged
depends on files that the package writes, on the formats' keys and on hypothesis: ``--corpus FILE.zip`` keeps the
files there when there is no such FILE, and takes them from it, as many as there are, when there is.

Only the command line, public names, ``writers`` and ``fuzz_readers`` are used. The commands are called as
``[project.scripts]`` says, in another process; a case is known by its command as it was first recorded, and a command
that has got another name is entered in ``RENAMED``. Of a refusal the kind, file, line, row, field and position count,
not the words.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
import zipfile
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE, RUN = (next((ROOT / "bounds").rglob(f"{name}.parquet")) for name in ("example", "run"))
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import fuzz_readers  # noqa: E402
import numpy as np  # noqa: E402
import odd_logs  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import writers  # noqa: E402

import bounds  # noqa: E402

#: How a command began when it was first recorded -> how it does now: {"certify --by-step": "steps"}.
RENAMED: dict[str, str] = {}
#: Logs of odd rows at most: each is read in five ways.
MOST_ROWS = 2500
#: Exit codes of a command that gives an answer.
DONE = (0, 1, 3)

# --- running and recording -----------------------------------------------------------------------------------

_DRIVER = """
import contextlib, importlib, io, json, sys
module, name = sys.argv[1].split(":")
main = getattr(importlib.import_module(module), name)
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            code = "not caught: " + repr(error)
    answers.append((code or 0, out.getvalue(), err.getvalue()))
json.dump(answers, sys.stdout)
"""


def run(commands):
    """Exit code, stdout and stderr of each command, all run in the current folder by one process."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    now = list(commands)
    for old, new in RENAMED.items():
        now = [command.replace(old, new) for command in now]
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, scripts["trm-bounds"]],
        input=json.dumps([shlex.split(command) for command in now]),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )
    return json.loads(done.stdout)


def answer(code, out, err):
    """What a command says: an object or lines, and what stands on stderr; or where it refuses."""
    if code not in DONE:
        return refusal_of_command(code, err)
    return {"exit": code, "out": parsed(out), "stderr": err.splitlines()}


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


_FIELDS = """
    rollout_logprobs train_logprobs old_logprobs mask reward rewards prompt_id prompt_ids prompt_tokens kl tv chi2
    step weight_version environment tokens row_id horizon group_size reward_range logprob_dtype on_missing format
    generation_logprobs prev_logprobs token_loss_mask sample_loss_mask filtered_rewards token_ids inference_logprobs
    trainer_logprobs loss_mask rl_weights ce_weights ref_kl_weights samples rollout_log_probs log_probs
    old_log_probs loss_masks raw_reward response_lengths choices logprobs prompt_logprobs prompt_token_ids meta_info
    output_token_logprobs input_token_logprobs response_mask token_mask
"""
_FIELD = re.compile(rf"\$[\w.\[\]]*|(?<![\w-])(?:{'|'.join(_FIELDS.split())})(?![\w-])(?:\[\d+\])*")
_FILE = re.compile(r"[\w./*-]+\.(?:jsonl|json|parquet|pt|pkl|npz|csv)\b(?::(\d+))?")


def refusal(kind, message):
    """The place that a refusal names, as far as it names one."""
    file, row = _FILE.search(message), re.search(r"\brow (\d+)", message)
    rest = _FILE.sub("", message)
    field, position = _FIELD.search(rest), re.search(r"positions? (\d+)", rest)
    indices = re.findall(r"\[(\d+)\]", field[0]) if field else []
    return {
        "refused": kind,
        "file": file and file[0].partition(":")[0],
        "line": file and file[1],
        "row": row and row[1],
        "field": field and ".".join(re.findall(r"[a-z_]\w*", field[0])),
        "position": ",".join(indices) or (position and position[1]),
    }


def refusal_of_command(code, err):
    said = [line for line in err.splitlines() if not line.startswith("warning: ")]
    return refusal(f"exit {code}", "\n".join(said))


def responses_of(read, *arguments, **options):
    """How many responses a log has; or where it is refused."""
    try:
        return {"responses": len(read(*arguments, **options))}
    except Exception as error:
        return refusal(type(error).__name__, str(error))


def log_of(read, *arguments, **options):
    """Responses, tokens and kl_seq of a log; or where it is refused."""
    try:
        traces = read(*arguments, **options)
    except Exception as error:
        return refusal(type(error).__name__, str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return numbers(json.loads(bounds.certify(traces).to_json()))
        except Exception as error:
            return {"responses": len(traces), "certify": refusal(type(error).__name__, str(error))}


def log_of_command(code, out, err):
    """The same of what ``certify --json`` says."""
    return numbers(json.loads(out)) if code in DONE else refusal_of_command(code, err)


def numbers(certificate):
    estimates = certificate["estimates"]
    return {**{k: certificate[k] for k in ("responses", "tokens")}, "kl_seq": estimates["kl_seq"]["value"]}


# --- commands ------------------------------------------------------------------------------------------------

PAPER = "--T 4096 --delta 1e-4 --epsilon 5e-3 --kl-seq 0.01 --tv-seq 0.05"
BSTAR = (
    "",
    PAPER,
    "--T 4096 --delta 1e-4",
    "--T 1 --delta 0.1",
    "--T 10 --kl-seq inf",
    "--T 3 --delta 0.1 --support-may-differ --reward-range 0 2",
    "--T 8 --delta .1 --reward-range -1e-3 1",
    "--T 100 --epsilon 1e-3",
    "--T 100 --chi2-max 1e-4",
    "--T 100 --tv-seq 0.02 --support-may-differ",
    "--T 65536 --delta 1e-8 --epsilon 1e-5 --chi2-max 1e-7",
    "--T 9007199254740992 --delta 1e-300",
    "--T 10 --kl_seq 0.1",
    "--T 10 --delta 0",
    "--profile profile.csv",
    "--profile profile.csv --delta 0.1",
    "--profile profile.csv --T 1",
    "--T 10 --epsilon 1.5",
    "--T 10",
    "--delta 0.1",
    "--T 0.5 --delta 0.1",
    "--T 10 --delta x",
    "--profile nowhere.csv",
    "-T 4",
    "--T",
)
LARGEST = (
    *(f"{name} --target 0.1 0.5 1 --T 1 10 1000 4096" for name in ("delta", "epsilon", "chi2_max", "kl_seq")),
    "mean_kl_token --target 0.5 --T 4096",
    "T --target 0.5 --delta 1e-4",
    "T --target 0.5 --epsilon 1e-3 --delta 1e-6",
    "delta --target 0.123456789 --T 8",
    "delta --target 0.5 --T 4096 --support-may-differ --reward-range 0 2",
    "kl_seq --target 0.05 --T 4096 --delta 1e-5",
    "delta --target 0 --T 8",
    "delta --T 8",
    "delta --target 0.5",
    "detla --target 0.5 --T 8",
)
MASK = "'seq_max_k2<=0.05,seq_mean_k3<=0.001'"
MASKS = (
    MASK,
    "seq_max_k2<=1e-9",
    "seq_sum_k3<=0.05",
    "seq_mean_k1=0.99_1.02",
    "'verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.001'",
    "'verl:rollout_rs=token_k1 rollout_rs_threshold=0.9_1.1'",
    "'slime:--rs-level=geometric --rs-upper-bound=1.02 --rs-veto-threshold=0.8'",
    "trl:vllm_importance_sampling_clip_max=1.2",
    "trl:vllm_importance_sampling_mode=token_truncate",
    "'skyrl:sequence_mask_metric=geometric outlier_token_is_threshold_low=0.7'",
    "nemo-rl:seq_logprob_error_threshold=1.15",
    "prime-rl:dppo_mask_high=0.1",
    "ms-swift:rollout_importance_sampling_mode=sequence_mask",
    "seq_mean_k3<=1.001",
    "seq_mean_k9<=1",
    "verl:rollout_rz=1",
)
CERTIFY = (
    "",
    *(f"--mask {mask}" for mask in MASKS),
    "--assume delta=5",
    "--assume delta=5 --assume epsilon=0.99 --mask seq_max_k2<=0.05",
    "--assume delta=20",
    "--assume absolutely_continuous=true",
    "--assume delta=0.001",
    "--assume delta",
    "--assume delta=x",
    "--confidence 0.9",
    "--confidence 2",
    "--horizon 300",
    "--horizon 10",
    "--reward-range 0 2",
    "--reward-range 2 3",
    "--logprob-dtype bfloat16",
    "--drop-missing",
    "--noise-floor {log}",
    "--noise-floor {log} --mask seq_max_k2<=0.05",
    *(
        f"--require '{requirement}'"
        for requirement in (
            "b_star<=0.5", "b_star<=1e-9", "b_star_upper<=0.1", "b_star_upper<=0.08", "b_star_published<=1000",
            "kl_seq<=0.08", "kl_seq<=0.09", "acceptance>=0.5", "mean_ratio >= 2", "max_k2<=100", "improvement>=-1",
            "reward>=0", "b_sta<=1", "b_star", "kl_seq<=nan",
        )
    ),
    "--require 'kl_seq<=9' --require 'acceptance>=0.99' --mask seq_max_k2<=0.05",
    "--by-step",
    "--by-step --mask seq_max_k2<=0.05",
    "--by-step --time-uniform",
    "--by-step --limit 1e-9",
    "--by-step --limit 100",
    "--by-step --confidence 0.9",
    "--by-step --objectives",
    "--by-step --assume delta=1",
    "--limit 1",
    "--objectives",
    "--objectives --mask seq_max_k2<=0.05",
    "--objectives --confidence 0.9",
    "--split",
    "--split --mask seq_max_k2<=0.05",
    "--without-staleness",
    "--group-size 4",
    "--group-size 2",
    "--group-size 5",
    "--format canonical",
    "--format nemo-rl",
    "--format x",
    "--horizn 4",
    "--engine rai",
)  # fmt: skip
LOGS = ("", "example.parquet", "run.parquet")


def commands(folder):
    """Every command on the embedded logs, and the main ones on those of the lab."""
    lab = sorted((ROOT / "lab" / "logs").glob("*.parquet"))
    for path in (EXAMPLE, RUN, *lab):
        shutil.copy(path, folder)
    (folder / "profile.csv").write_text("mean_kl,mean_tv\n0.001,0.01\n0.002,0.02\n")
    rows = example()
    for k in (0, 1):
        writers.lines(folder / f"part-{k}.jsonl", rows[48 * k : 48 * (k + 1)])
    rng = np.random.default_rng(5)
    old = [np.minimum(np.add(r["rollout_logprobs"], rng.normal(0, 1e-3, len(r["rollout_logprobs"]))), 0) for r in rows]
    writers.lines(folder / "old.jsonl", [{**r, "old_logprobs": o.tolist()} for r, o in zip(rows, old, strict=True)])
    names = [path.name for path in lab]
    found = {
        "bstar": [f"bstar {options}" for options in BSTAR],
        "largest": [f"largest {options}" for options in LARGEST],
        "certify": [
            *(f"certify {options.format(log=log)} {log}" for log in LOGS for options in CERTIFY if log or not options),
            *(f"certify {options} {log}" for log in names for options in ("", "--by-step", "--objectives")),
            *(f"certify {options} old.jsonl --horizon 256" for options in ("", "--without-staleness")),
            "certify part-0.jsonl part-1.jsonl --horizon 256 --mask seq_max_k2<=0.05",
            "certify --train part-0.jsonl",
            "certify nowhere.jsonl",
        ],
        "resume": [
            *(f"certify --resume state-{log} {log} --mask {MASK}" for log in LOGS[1:] for _ in range(2)),
            *(f"certify --resume state part-0.jsonl {more} --horizon 256" for more in ("", "part-1.jsonl")),
            "certify --resume state part-0.jsonl part-1.jsonl --horizon 257",
            "certify --resume state part-1.jsonl --horizon 256",
        ],
        "masks": [
            *(f"masks {log}" for log in (*LOGS, *names)),
            *(f"masks {log} --mask {mask}" for log in LOGS[1:] for mask in MASKS),
            "masks --confidence 0.9",
            f"masks example.parquet --mask {MASK} --write kept.parquet",
        ],
        "explain": [f"explain {options}" for options in (*LOGS, *names[:2], "--confidence 0.9", "--horizon 10")],
        "metrics": [f"metrics {options}" for options in (*LOGS, *names[:2], "old.jsonl", "--confidence 0.9")],
        "compare": [
            f"compare {options}"
            for options in (
                "example.parquet example.parquet", "part-0.jsonl example.parquet", "example.parquet old.jsonl",
                "part-0.jsonl part-1.jsonl", "example.parquet run.parquet", "example.parquet",
                "clip.parquet ser.parquet", "none.parquet trm-both.parquet --confidence 0.9",
                "trm-avg.parquet trm-max.parquet --horizon 200",
            )
        ],
        "formats": ["formats", "formats --recipe veril"],
        "other": ["nothing", "figures comparisom", "verify now", "--versio", "certfy --horizon 3"],
    }  # fmt: skip
    asked = {kind: [f"{command.strip()} --json" for command in listed] for kind, listed in found.items()}
    listed = [(kind, command) for kind, listed in asked.items() for command in listed]
    recorded = defaultdict(dict)
    for (kind, command), reply in zip(listed, run([command for _, command in listed]), strict=True):
        again = " (again)" if command in recorded[kind] else ""
        recorded[kind][command + again] = answer(*reply)
    for trainer in ("trl", "verl", "skyrl", "openrlhf", "ms-swift"):
        recorded["formats"][f"recipe {trainer}"] = answer(*run([f"formats --recipe {trainer}"])[0])
    recorded["verify"] = verified(*run(["verify --json"])[0])
    recorded["masks"]["kept.parquet"] = columns(pd.read_parquet(folder / "kept.parquet"))
    return recorded


def verified(code, out, _):
    """Names of the checks, and whether they passed."""
    return {"exit": code, **{check["name"]: check["passed"] for check in json.loads(out)["checks"]}}


def frames():
    """Divergence by position, as a table; options that only Python has."""
    example_log, run_log = bounds.example_traces(), bounds.example_traces("run")
    logs = {"example": example_log, "run": run_log}
    for path in sorted((ROOT / "lab" / "logs").glob("*.parquet")):
        logs[path.stem] = bounds.read_traces(path)
    tables = {name: columns(bounds.by_position(log).to_frame()) for name, log in logs.items()}
    tables["example 0.5"] = columns(bounds.by_position(example_log, confidence=0.5).to_frame())
    bare = bounds.TraceSet.from_records(example(), horizon=256)
    tables["example without exact columns"] = columns(bounds.by_position(bare).to_frame())
    return {"by_position": tables}


def columns(frame):
    """A table as its CSV has it."""
    frame.to_csv("table.csv", index=False)
    return {name: values.tolist() for name, values in pd.read_csv("table.csv").items()}


# --- layouts -------------------------------------------------------------------------------------------------


def example():
    """The example log as plain records, without its exact columns (few trainers log them)."""
    frame = pd.read_parquet(EXAMPLE)
    names = ["prompt_id", "reward", "rollout_logprobs", "train_logprobs"]
    return [
        {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in zip(names, row, strict=True)}
        for row in frame[names].itertuples(index=False, name=None)
    ]


def layouts():
    """Name -> the path of a log, or of its two halves, in every layout that the tests write."""
    rows = example()

    def export(recipe, *batch):
        path = Path(f"{recipe}.jsonl")
        namespace = {}
        exec(run([f"formats --recipe {recipe}"])[0][1], namespace)
        namespace["export"](*batch, path)
        return path

    def compressed(name, pack):
        path = writers.canonical(Path(name), rows)
        data = path.read_bytes()
        half = data.index(b"\n", len(data) // 2) + 1
        path.write_bytes(pack(data[:half]) + pack(data[half:]))
        return path

    def parquet(name, kept=rows, **options):
        path = Path(f"{name}.parquet")
        pd.DataFrame(kept).to_parquet(path, **options)
        return path

    def made(name):
        folder = Path(odd_logs.plain(name))
        folder.mkdir()
        return folder

    masked = [{**r, "mask": [1] * (len(r["rollout_logprobs"]) - 1) + [0]} for r in rows]
    stepped = [{**r, "step": k // 24, "environment": "ab"[k % 2], "weight_version": "v"} for k, r in enumerate(rows)]
    with_tokens = [{**r, "tokens": writers.response_tokens(r), "prompt_tokens": writers.prompt_tokens(r)} for r in rows]
    without_id = [{k: v for k, v in r.items() if k != "prompt_id"} for r in with_tokens]
    single = [{k: np.float32(v).tolist() if k.endswith("probs") else v for k, v in r.items()} for r in rows]
    found = {
        "canonical": writers.canonical(Path("canonical"), rows),
        "canonical masked": writers.canonical(Path("masked"), masked),
        "canonical by steps": writers.canonical(Path("stepped"), stepped),
        "canonical with tokens": writers.canonical(Path("tokens"), with_tokens),
        "canonical by prompt tokens": writers.canonical(Path("prompts"), without_id),
        "canonical float32": writers.canonical(Path("single"), single),
        "canonical gzip": compressed("gzip", gzip.compress),
        "canonical zstd": compressed("zstd", lambda b: pa.compress(b, codec="zstd", asbytes=True)),
        "parquet": parquet("plain"),
        "parquet masked": parquet("masked", masked),
        "parquet by steps": parquet("stepped", stepped),
        "parquet with tokens": parquet("with_tokens", with_tokens),
        "parquet float32": parquet("single", single),
        "parquet of small row groups": parquet("groups", row_group_size=7),
        "canonical halves": writers.canonical_halves(Path("halves"), rows),
        "nemo-rl": writers.nemo_rl(Path("nemo"), rows),
        "nemo-rl flat, masks of floats": writers.nemo_rl(Path("flat"), rows, nested=False, floats=True),
        "prime-rl": writers.prime_rl(Path("prime"), rows),
        "prime-rl of two steps": writers.prime_rl(Path("prime2"), rows, steps=2),
        "openai": writers.openai(Path("openai"), rows),
        "openai, ids as text": writers.openai(Path("text"), rows, ids="text"),
        "openai batch": writers.openai(Path("batch"), rows, batch=True),
        "sglang": writers.sglang(made("sglang"), rows),
        "sglang pairs": writers.sglang(made("pairs"), rows, elements=2),
        "openrlhf recipe": export("openrlhf", writers.openrlhf_experiences(rows)),
        "ms-swift recipe": export("ms-swift", *writers.swift_batch(rows)),
    }
    for name, row in writers.TEXT_DUMPS.items():
        found[name] = writers.lines(Path(name, "x.jsonl"), [row])
    found["trl-text"] = parquet("trl_text", writers.TRL_TABLE)
    if torch := torch_or_none():
        for name, kind in (("slime", torch.float64), ("slime float32", torch.float32)):
            payload = writers.slime_payload(
                rows, lambda v, kind=kind: torch.tensor(v, dtype=kind if isinstance(v[0], float) else torch.long)
            )
            found[name] = made(name) / "3.pt"
            torch.save(payload, found[name])
        found["slime-rollout"] = made("rollout") / "3.pt"
        torch.save({"samples": [{"rollout_log_probs": [-1.0], "tokens": [1]}], "rollout_id": 3}, found["slime-rollout"])
    return found


def torch_or_none():
    try:
        import torch
    except ImportError:
        return None
    return torch


def certified_layouts():
    """What every layout's certificate says, by the command and by Python."""
    asked, read = {}, {}
    for name, paths in layouts().items():
        path, *train = paths if isinstance(paths, tuple) else (paths,)
        asked[name] = f"certify {path} {f'--train {train[0]}' if train else ''} --horizon 256 --assume delta=5 --json"
        read[name] = log_of(bounds.read_traces, path, horizon=256, train=train[0] if train else None)
    replies = {name: answer(*reply) for name, reply in zip(asked, run(asked.values()), strict=True)}
    return {"certify": replies, "read_traces": read}


# --- logs that are odd, and logs that are refused -----------------------------------------------------------


ODD_OPTIONS = (
    "", "--assume absolutely_continuous=true", "--mask seq_max_k2<=0.05,seq_mean_k3<=0.001", "--logprob-dtype bfloat16",
    "--objectives", "--by-step", "--without-staleness", "--group-size 2",
)  # fmt: skip


def odd():
    """Each odd log by each question that is asked of logs."""
    asked = {}
    for name, rows in odd_logs.ODD.items():
        path = odd_logs.jsonl(Path(f"{odd_logs.plain(name)}.jsonl"), rows)
        horizon = "" if name in ("good", "one response") else "--horizon 400"
        asked |= {f"certify {name} {o}".strip(): f"certify {o} {path} {horizon} --json" for o in ODD_OPTIONS}
        asked |= {f"{q} {name}": f"{q} {path} {horizon} --json" for q in ("explain", "metrics", "masks")}
    found = defaultdict(dict)
    for name, reply in zip(asked, run(asked.values()), strict=True):
        found[name.split()[0]][name] = answer(*reply)
    return found


def in_every_way(under, cases, options):
    """A log from records, from JSON and from Parquet, by Python and by the command; by name of the case.

    ``cases``: name -> records; ``options``: name -> those of bounds.read_traces. What Parquet cannot hold is null.
    """
    found = defaultdict(dict)
    asked = {}
    for name, rows in cases.items():
        given = {"horizon": 16, **options.get(name, {})}
        flags = shlex.join(
            ["--horizon", str(given["horizon"]), *(["--drop-missing"] if given.get("on_missing") == "drop" else [])]
        )
        found["from_records"][name] = log_of(bounds.TraceSet.from_records, rows, **given)
        folder = under / odd_logs.plain(name)
        paths = {"json": odd_logs.jsonl(folder / "log.jsonl", rows), "parquet": folder / "log.parquet"}
        try:
            pd.DataFrame(rows).to_parquet(paths["parquet"])
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
            found["read_traces, parquet"][name] = None
            del paths["parquet"]
        for kind, path in paths.items():
            found[f"read_traces, {kind}"][name] = responses_of(bounds.read_traces, path, **given)
            asked[f"certify, {kind}", name] = f"certify {path} {flags} --json"
    for (way, name), reply in zip(asked, run(asked.values()), strict=True):
        found[way][name] = log_of_command(*reply)
    return found


def bad():
    """Where logs are refused that are wrong in one way each."""
    cases = {}
    for name, row in odd_logs.BAD.items():
        cases[name] = [odd_logs.GOOD, row]
        cases[f"{name}, in both rows"] = [row, row]
    drop = {name: {"on_missing": "drop"} for name in cases}
    found = {f"rows, {way}": logs for way, logs in in_every_way(Path("rows"), cases, {}).items()}
    found |= {f"rows, drop, {way}": logs for way, logs in in_every_way(Path("drop"), cases, drop).items()}
    found["options"] = {
        name: log_of(bounds.TraceSet.from_records, [odd_logs.GOOD] * 2, **options)
        for name, options in odd_logs.BAD_OPTIONS.items()
    }
    found["from_arrays"] = {}
    for name, changes in odd_logs.BAD_ARRAYS.items():
        given = {"rollout_logprobs": np.full((2, 3), -1.0), "train_logprobs": np.full((2, 3), -1.1), **changes}
        grids = given.pop("rollout_logprobs"), given.pop("train_logprobs")
        found["from_arrays"][name] = log_of(bounds.TraceSet.from_arrays, *grids, **given)
    files = odd_logs.bad_files(example())
    found["read_traces"] = {name: log_of(bounds.read_traces, p, **o) for name, (p, o) in files.items()}
    asked = {
        name: "certify "
        + " ".join(map(str, paths if isinstance(paths, list) else [paths]))
        + "".join(f" --{option.replace('_', '-')} {value}" for option, value in options.items())
        + " --json"
        for name, (paths, options) in files.items()
    }
    replies = run(asked.values())
    found["certify"] = {name: log_of_command(*reply) for name, reply in zip(asked, replies, strict=True)}
    return found


# --- damaged files -------------------------------------------------------------------------------------------


class Corpus:
    """Damaged files by name and number, kept in a zip archive where one is named."""

    def __init__(self, path):
        self.known = path is not None and path.exists()
        self.archive = None if path is None else zipfile.ZipFile(path, "r" if self.known else "w", zipfile.ZIP_DEFLATED)

    def __call__(self, name, made):
        """The files of a name: from the archive if it has them, else ``made``, which go into it."""
        if self.known:
            inside = sorted(n for n in self.archive.namelist() if n.rpartition("/")[0] == name)
            made = map(self.archive.read, inside)
        for k, content in enumerate(made):
            if self.archive is not None and not self.known:
                self.archive.writestr(f"{name}/{k:05d}", content)
            yield f"{k:05d} {hashlib.sha256(content).hexdigest()[:8]}", content


def fuzz(count, corpus):
    """What becomes of damaged files, by reader."""
    readers = fuzz_readers.NAMES if torch_or_none() else fuzz_readers.WITHOUT_TORCH
    found = {}
    for name in readers:
        path, options = fuzz_readers.seed_file(name, Path("fuzz", odd_logs.plain(name)))
        found[name] = {}
        for key, content in corpus(name, fuzz_readers.corpus(name, count, path.read_bytes())):
            path.write_bytes(content)
            found[name][key] = log_of(fuzz_readers.read, path, options)
        say(name, len(found[name]))
    return found


def fuzz_rows(count, corpus):
    """The same for canonical rows with values that are wrong, in every way to read them."""
    made = (json.dumps(odd_logs.odd_rows(random.Random(k))).encode() for k in range(count))
    cases = {key: json.loads(content) for key, content in corpus("rows", made)}
    drop = {key: {"on_missing": "drop"} for k, key in enumerate(cases) if k % 3 == 0}
    return in_every_way(Path("rows"), cases, drop)


# --- making and comparing ------------------------------------------------------------------------------------


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def versions():
    names = ("numpy", "scipy", "pandas", "pyarrow", "msgspec", "hypothesis", "torch", "numba")
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def make(count, corpus_path):
    """Everything that is recorded."""
    if not Path(bounds.__file__).is_relative_to(ROOT):
        raise SystemExit(f"bounds is {bounds.__file__}, and not that of {ROOT}")
    corpus = Corpus(corpus_path)
    found = {"made with": versions()}
    parts = {
        "commands": lambda: commands(Path()),
        "frames": frames,
        "layouts": certified_layouts,
        "odd": odd,
        "bad": bad,
        "fuzz": lambda: fuzz(count, corpus),
        "fuzz rows": lambda: fuzz_rows(min(count, MOST_ROWS), corpus),
    }
    for name, part in parts.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = json.dumps(part())
            for place in (os.getcwd(), EXAMPLE.parent, ROOT):
                text = text.replace(f"{place}/", "")
            found[name] = json.loads(text)
        say(name)
    if corpus.archive is not None:
        corpus.archive.close()
    return found


class Absent:
    def __repr__(self):
        return "(absent)"


ABSENT = Absent()


def differences(a, b, near, path=()):
    """Place, before and after of all that is not equal."""
    if isinstance(a, dict) and isinstance(b, dict) and (a.keys() & b.keys() or not (a and b)):
        for key in sorted(a.keys() | b.keys()):
            yield from differences(a.get(key, ABSENT), b.get(key, ABSENT), near, (*path, key))
    elif isinstance(a, list) and isinstance(b, list):
        if (names := named(a)) and (others := named(b)):
            yield from differences(names, others, near, path)
            if [n for n in names if n in others] != [n for n in others if n in names]:
                yield (*path, "order"), list(names), list(others)
        elif len(a) == len(b):
            for k, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from differences(x, y, near, (*path, k))
        else:
            yield from unequal_lists(a, b, path)
    elif not equal(a, b, near):
        yield path, a, b


def named(items):
    """Items by their names, if each has one of its own."""
    if not all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items):
        return {}
    found = {item["name"]: item for item in items}
    return found if len(found) == len(items) else {}


def unequal_lists(a, b, path):
    """Of lines of text those that came or went; of others the lists."""
    if not all(isinstance(item, str) for item in (*a, *b)):
        yield path, a, b
        return
    for line in (line for line in a if line not in b):
        yield (*path, "line"), line, ABSENT
    for line in (line for line in b if line not in a):
        yield (*path, "line"), ABSENT, line
    if set(a) == set(b):
        yield (*path, "line"), a, b


def numeric(*values):
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)


def equal(a, b, near):
    if numeric(a, b):
        return a == b or (a != a and b != b) or math.isclose(a, b, **near)
    return type(a) is type(b) and a == b


def compare(a, b, near, *, everything, only):
    """Print the differences by group; how many there are."""
    groups = defaultdict(list)
    for path, old, new in differences(a, b, near):
        section, kind, case, *rest = (*map(str, path), "", "")[: max(len(path), 3)]
        group = " / ".join(filter(None, (section, kind, ".".join(r for r in rest if not r.isdigit()))))
        if only is None or only in group:
            place = ".".join(filter(None, (case, *rest)))
            groups[group].append(f"  {place}: {short(old)} -> {short(new)}{by_how_much(old, new)}")
    for group, lines in sorted(groups.items(), key=lambda item: (item[0].split(" / ")[0], -len(item[1]))):
        print(f"{group}: {len(lines)}")
        shown = lines if everything else lines[:20]
        print("\n".join(shown))
        if len(shown) < len(lines):
            print(f"  ... and {len(lines) - len(shown)} more (--all)")
    total = sum(map(len, groups.values()))
    print(f"{total} differences in {len(groups)} groups")
    return total


def by_how_much(a, b):
    """The relative difference of two numbers."""
    return f" (by {abs(b - a) / max(abs(a), abs(b)):.1g})" if numeric(a, b) and a != b else ""


def short(value):
    if isinstance(value, dict) and "refused" in value:
        value = " ".join(f"{k}={v}" for k, v in value.items() if v is not None)
    text = value if isinstance(value, str) else repr(value) if value is ABSENT else json.dumps(value)
    return text if len(text) <= 160 else f"{text[:120]} ... {text[-35:]}"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, dest="action")
    making = actions.add_parser("make")
    making.add_argument("file", type=Path, help="NAME.json.gz")
    making.add_argument("--fuzz", type=int, default=500, metavar="N", help="damaged files for each reader")
    making.add_argument(
        "--corpus", type=lambda p: Path(p).resolve(), metavar="FILE.zip", help="keeps the damaged files"
    )
    comparing = actions.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--all", action="store_true", help="all lines of each group")
    comparing.add_argument("--only", metavar="WORD", help="only groups whose name holds it")
    comparing.add_argument("--relative", type=float, default=1e-12)
    comparing.add_argument("--absolute", type=float, default=0.0)
    options = parser.parse_args(argv)
    if options.action == "make":
        found = make(options.fuzz, options.corpus)
        options.file.write_bytes(gzip.compress(json.dumps(found, indent=0, sort_keys=True).encode(), mtime=0))
        return 0
    before, after = (json.loads(gzip.decompress(path.read_bytes())) for path in (options.before, options.after))
    near = {"rel_tol": options.relative, "abs_tol": options.absolute}
    return int(compare(before, after, near, everything=options.all, only=options.only) > 0)


if __name__ == "__main__":
    sys.exit(main())
