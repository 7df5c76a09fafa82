"""Exact divergences where two processes hold parts of the vocabulary, by gloo: those of whole rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bounds.divergence import from_logits
from bounds.training import divergences_from_logit_shards, divergences_from_logits

INF = float("inf")
ONE_PROCESS = """
import sys
import torch
from torch import distributed
from bounds.training import divergences_from_logit_shards, logits
folder, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
logits._LOGITS_AT_ONCE = 40  # in several blocks, of other sizes in the other process
rows = torch.load(f"{folder}/rows.pt")
part = slice(0, 11) if rank == 0 else slice(11, None)
found = divergences_from_logit_shards(*(x[..., part] for x in rows))
torch.save([found.kl, found.tv, found.chi2, found.max_log_ratio], f"{folder}/{rank}.pt")
distributed.destroy_process_group()
"""


def rows():
    """Contexts [3, 5] of 29 tokens: policies that are near, far, under an offset, cut by top-k, in one part alone."""
    g = torch.Generator().manual_seed(7)
    roll = 3.0 * torch.randn(3, 5, 29, generator=g)
    theta = roll + torch.tensor([1e-3, 0.1, 1.0, 3.0, 0.0])[None, :, None] * torch.randn(3, 5, 29, generator=g)
    theta[1] += 500.0
    roll[2, 1, 4:8] = theta[2, 1, 4:8] = -INF  # cut for both
    roll[2, 2, 20:] = -INF  # a support gap
    roll[2, 3, 11:] = theta[2, 3, 11:] = -INF  # the second part has no mass
    return roll, theta


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    torch.save(rows(), folder / "rows.pt")
    command = [sys.executable, "-c", ONE_PROCESS, str(folder)]
    both = [subprocess.Popen([*command, str(rank)], cwd=Path(__file__).parents[2]) for rank in (0, 1)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def test_both_processes_know_what_whole_rows_give(of_two_processes):
    whole = divergences_from_logits(*rows())
    exact = from_logits(*(x.reshape(15, 29) for x in rows()), precise=True)
    for found in of_two_processes:
        for name, value in zip(("kl", "tv", "chi2", "max_log_ratio"), found, strict=True):
            torch.testing.assert_close(value, getattr(whole, name), rtol=2e-4, atol=1e-6)
            atol = 5e-5 if name == "max_log_ratio" else 2e-6
            np.testing.assert_allclose(value.reshape(15), getattr(exact, name), rtol=2e-3, atol=atol)
        assert (found[3].double().reshape(15).numpy() >= exact.max_log_ratio * (1 - 1e-12)).all()
    assert torch.isinf(of_two_processes[0][3]).sum() == 1


def test_the_largest_log_ratio_is_that_of_the_whole_vocabulary():
    roll, theta = rows()
    p, q = roll.double().log_softmax(-1), theta.double().log_softmax(-1)
    expected = torch.where(torch.isinf(q), -INF, q - torch.where(torch.isinf(p), -INF, p)).amax(-1)
    found = divergences_from_logits(roll, theta).max_log_ratio.double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5)
    assert (found >= expected).all()


def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match=r"train_logits must be a tensor of the shape of rollout_logits \(2, 3\)"):
        divergences_from_logit_shards(torch.zeros(2, 3), torch.zeros(2, 4))
