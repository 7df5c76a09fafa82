"""Divergences of full-vocabulary logits beside the obvious expression, torch, and a pure read of the same bytes.

Run with ``make bench``; README.md in this folder keeps a table of the ratios. Nothing here can fail on time.
"""

from __future__ import annotations

import importlib.util
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bounds.divergence import from_logits

ROWS, VOCABULARY, ROUNDS = 256, 152_000, 7


def obvious(a, b):
    """KL, TV and chi2 as one would write them: NumPy in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    a -= a.max(axis=1, keepdims=True)
    b -= b.max(axis=1, keepdims=True)
    log_p = a - np.log(np.exp(a).sum(axis=1, keepdims=True))
    log_q = b - np.log(np.exp(b).sum(axis=1, keepdims=True))
    p, q = np.exp(log_p), np.exp(log_q)
    return (p * (log_p - log_q)).sum(1), np.abs(q - p).sum(1) / 2, ((q - p) ** 2 / p).sum(1)


def eager(a, b):
    """The same in torch, eager, in float32."""
    log_p, log_q = a.log_softmax(1), b.log_softmax(1)
    p, q = log_p.exp(), log_q.exp()
    return (p * (log_p - log_q)).sum(1), (q - p).abs().sum(1) / 2, ((q - p) ** 2 / p).sum(1)


def read(a, b):
    """Every byte once, on both cores: the limit."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(np.max, [*np.array_split(a, 2), *np.array_split(b, 2)]))


def test_full_vocabulary():
    """Each called once before it is timed; then in turn, so that what else the machine does meets all alike."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, VOCABULARY), dtype=np.float32) * np.float32(3)
    b = a + rng.standard_normal((ROWS, VOCABULARY), dtype=np.float32) * np.float32(0.05)
    gaps = b.copy()
    gaps[:, ::2] = -np.inf
    runs = {
        "from_logits": lambda: from_logits(a, b),
        "from_logits, precise": lambda: from_logits(a, b, precise=True),
        "from_logits, support gaps": lambda: from_logits(a, gaps),
        "obvious NumPy, float64": lambda: obvious(a, b),
        "read": lambda: read(a, b),
    }
    if importlib.util.find_spec("torch"):
        import torch

        tensors = torch.from_numpy(a), torch.from_numpy(b)
        runs["torch eager, float32"] = lambda: eager(*tensors)
    answers = {name: run() for name, run in runs.items()}
    rounds = [{name: _seconds(run) for name, run in runs.items()} for _ in range(ROUNDS)]
    best = {name: min(r[name] for r in rounds) for name in runs}
    print(f"\nn = {ROWS}, V = {VOCABULARY}, float32; best of {ROUNDS}")
    for name, time_of in best.items():
        print(f"{name:26} {time_of * 1e3:7.0f} ms = {time_of / best['from_logits']:5.2f} of from_logits", end=" ")
        print(f"= {time_of / best['read']:5.1f} reads")
    fast, precise = answers["from_logits"], answers["from_logits, precise"]
    for name in fast.__slots__:
        assert getattr(fast, name) == pytest.approx(getattr(precise, name), rel=1e-6)


def _seconds(run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
