"""verl and SkyRL themselves, with the hooks inside: what they hand over and show is what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
WHEELS = Path(sys.prefix) / "trainers"  # where `make test-extras` puts them: nothing else sees them


@pytest.mark.parametrize("name", ["verl", "skyrl"])
def test_a_real_trainer_hands_over_and_shows_what_was_recorded(tmp_path, name):
    """The script asserts that the log has the steps, prompts and responses of the batch; here the rest is compared."""
    log, record = tmp_path / "log", tmp_path / "record.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(WHEELS), str(TESTS.parent)])}
    if name == "verl":
        environment |= {"TRM_BOUNDS_LOG": str(log), "TRM_BOUNDS_HORIZON": "12"}
    command = [sys.executable, str(TESTS / "trainers" / f"run_{name}.py"), str(log), str(record)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    told, recorded = (json.loads(path.read_text()) for path in (record, TESTS / "data" / "trainers" / f"{name}.json"))
    assert told.keys() == recorded.keys()
    assert told["metrics"] == pytest.approx(recorded["metrics"], rel=1e-5)
    assert told["kept"] == recorded["kept"]
    for column, values in recorded["batch"].items():
        np.testing.assert_allclose(told["batch"][column], values, rtol=1e-5, atol=1e-7, err_msg=column)
