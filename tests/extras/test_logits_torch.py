"""Logits in torch tensors. Needs the extra ``torch``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hard_logits import INF, near, same
from safetensors.torch import save_file

from bounds.divergence import LogitFile, from_logits

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_are_the_numbers_that_they_hold(dtype):
    a, b = (torch.tensor(x).to(dtype) for x in near(300, 0.1))
    a[0, 3] = -INF
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    found = from_logits(a.requires_grad_(), b)
    same(found, from_logits(*(x.detach().to(wide).numpy() for x in (a, b))))


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 0)])
def test_tensors_that_are_no_logits(bad):
    with pytest.raises(ValueError, match="train_logits must be an array"):
        from_logits(torch.zeros(2, 3), bad)


def test_safetensors_of_the_library(tmp_path):
    a, b = (torch.tensor(x) for x in near(300, 0.1, np.float32))
    save_file({"roll": a, "theta": b.bfloat16()}, tmp_path / "x", metadata={"k": "v"})
    found = from_logits(*(LogitFile(tmp_path / "x", name) for name in ("roll", "theta")))
    same(found, from_logits(a, b.bfloat16()))
