"""Logits in torch tensors: on the host without a copy, on a device by torch itself. Needs the extra ``torch``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hard_logits import FIELDS, HARD, INF, check, near, same
from safetensors.torch import save_file

from bounds.divergence import LogitFile, from_logits, logits
from bounds.divergence._logit_rows import Rows
from bounds.divergence._logit_sums import divergences

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_are_the_numbers_that_they_hold(dtype):
    a, b = (torch.tensor(x).to(dtype) for x in near(300, 0.1))
    a[0, 3] = -INF
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    found = from_logits(a.requires_grad_(), b)
    same(found, from_logits(*(x.detach().to(wide).numpy() for x in (a, b))))


def on_device(roll, theta) -> logits.LogitDivergences:
    """The path of a device, on the one device that every machine has."""
    rows = [Rows(torch.as_tensor(x)) for x in (roll, theta)]
    return logits.LogitDivergences(**divergences(logits._on_device(*rows, torch.device("cpu"))))


@pytest.mark.parametrize("name", HARD)
def test_hard_rows_on_a_device(name):
    check(on_device(*HARD[name]), HARD[name], 1e-12)


def test_devices_in_chunks(monkeypatch):
    a, b = near(500, 0.1, np.float32)
    expected = on_device(a, b)
    monkeypatch.setattr(logits, "_DEVICE_CHUNK", 700)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(on_device(a, b), name), getattr(expected, name), rtol=1e-13)
    with pytest.raises(ValueError, match=r"train_logits\[1\] must be numbers or -inf"):
        on_device(a[:2], np.stack([b[0], np.full_like(b[0], np.nan)]))


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 0)])
def test_tensors_that_are_no_logits(bad):
    with pytest.raises(ValueError, match="train_logits must be an array"):
        from_logits(torch.zeros(2, 3), bad)


def test_safetensors_of_the_library(tmp_path):
    a, b = (torch.tensor(x) for x in near(300, 0.1, np.float32))
    save_file({"roll": a, "theta": b.bfloat16()}, tmp_path / "x", metadata={"k": "v"})
    found = from_logits(*(LogitFile(tmp_path / "x", name) for name in ("roll", "theta")))
    same(found, from_logits(a, b.bfloat16()))
