"""What type checkers and editors are told of the public names."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import public_stub
import pytest

import bounds

ROOT = Path(__file__).parents[1]
USER = """\
import numpy as np

import bounds

table: bounds.BoundTable = bounds.unified(T=4096, delta=1e-4, mean_kl=[0.1, 0.2], max_tv=np.zeros(2))
known = bounds.Profile(T=4096, delta=1e-4, mean_reward=(0.2, 0.3))
same = bounds.unified(known, standing={"delta": bounds.Standing.ASSUMED})
answer: float | int = bounds.largest("delta", target=0.5, T=4096, mean_length=100.0)
certificate: bounds.Certificate = bounds.certify(bounds.read_traces("run.jsonl", horizon=4096), confidence=0.9)
value: float = bounds.RULES[0].value(bounds.Profile(T=4, epsilon=0.1))
bounds.unified(T="x", delta=0.1)  # arg-type
bounds.unified(T=4096, dleta=0.1)  # call-arg
bounds.Profile(T=4096, dleta=0.1)  # call-arg
bounds.Profile(delta=0.1)  # call-arg
bounds.largest("delta", target=0.5, T=4096, mean_lenght=100.0)  # call-arg
bounds.certify(bounds.example_traces(), confidense=0.9)  # call-arg
bounds.certify(4)  # arg-type
bounds.read_traces("run.jsonl", horzion=4096)  # call-arg
bounds.read_traces("run.jsonl", horizon="x")  # arg-type
bounds.open_log("run.jsonl", horizon="x")  # arg-type
bounds.unifed(T=4)  # attr-defined
"""


def test_the_stub_is_what_the_code_says():
    assert public_stub.STUB.read_text() == public_stub.text(), "write it: python tests/public_stub.py"


@pytest.mark.parametrize(
    ("function", "source"),
    [
        (bounds.unified, bounds.Profile),
        (bounds.largest, bounds.Profile),
        (bounds.read_traces, bounds.open_log),
    ],
)
def test_signatures_name_every_parameter(function, source):
    shown = inspect.signature(function).parameters
    for name, field in inspect.signature(source).parameters.items():
        assert (shown[name].annotation, shown[name].default) == (field.annotation, field.default)
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in shown.values())


def test_mypy_accepts_what_is_right_and_refuses_each_mistake(tmp_path):
    user = tmp_path / "user.py"
    user.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(user)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = {tuple(line.partition(": error: ")[::2]) for line in done.stdout.splitlines() if ": error: " in line}
    places = {int(where.rsplit(":", 1)[1]): text.rsplit("[", 1)[1].rstrip("]") for where, text in found}
    expected = {k: line.split("  # ")[1] for k, line in enumerate(USER.splitlines(), 1) if "  # " in line}
    assert places == expected, done.stdout + done.stderr
