"""What the training hooks cost: as a share of a training step of the lab's model, and on a GPU of its bandwidth.

Run ``python benchmarks/training_cost.py`` from the repository's root (needs torch). README.md in this folder keeps
what it printed. Without a GPU the second part says that it did not run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bounds.training import (
    Monitor,
    divergences_from_logits,
    masked_surrogate_loss,
    trust_region_mask,
    trust_region_mask_from_logits,
)
from lab.task import VOCABULARY, Task
from lab.train import new_model

RULE = "seq_max_k2<=0.05,seq_mean_k3<=0.001"
ROUNDS = 7


def on_cpu() -> None:
    """Time each hook against one training step of 64 responses (forward, backward, Adam)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    task, rows = Task(), 64
    model = new_model(task)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    width, first = task.prompt_length + task.horizon, task.prompt_length
    tokens = torch.randint(0, VOCABULARY, (rows, width))
    answer = tokens[:, first:]
    mask = torch.arange(task.horizon)[None] < torch.randint(60, task.horizon, (rows, 1))
    advantages, keep = torch.randn(rows), torch.ones(rows, dtype=torch.bool)
    laws = [torch.randn(rows, task.horizon, VOCABULARY).log_softmax(-1) for _ in range(2)]
    roll, train = (law.gather(-1, answer[..., None])[..., 0] for law in laws)
    reward = torch.ones(rows)

    def step() -> None:
        law = model(tokens[:, :-1])[:, first - 1 :].log_softmax(-1)
        loss = -(advantages * (law.gather(-1, answer[..., None])[..., 0] * mask).sum(1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    with TemporaryDirectory() as folder:
        quiet, writing = Monitor(horizon=task.horizon, rule=RULE), Monitor(horizon=task.horizon, folder=folder)
        exact = divergences_from_logits(*laws)

        def log(wait: bool) -> None:
            writing(roll - torch.rand(rows, 1) / 64, train, mask, rewards=reward, exact=exact)  # never the same batch
            if wait:
                writing.close()

        _shares(
            step,
            {
                "trust_region_mask": lambda: trust_region_mask(roll, train, mask, RULE),
                "masked_surrogate_loss, with gradient": lambda: masked_surrogate_loss(
                    roll, train.clone().requires_grad_(), mask, advantages, keep
                ).backward(),
                "Monitor": lambda: quiet(roll, train, mask, keep=keep),
                "divergences_from_logits, V = 15": lambda: divergences_from_logits(*laws),
                "Monitor, writing Parquet": lambda: log(wait=False),
                "the same, until the file is there": lambda: log(wait=True),
            },
        )


def _shares(step: Callable[[], None], calls: dict[str, Callable[[], object]]) -> None:
    for call in (step, *calls.values()):
        call()
    rounds = [{name: _seconds(call) for name, call in {"step": step, **calls}.items()} for _ in range(ROUNDS)]
    print(f"a training step: {1e3 * statistics.median(r['step'] for r in rounds):.0f} ms (one thread)")
    for name in calls:  # interleaved rounds, so that a noisy machine slows both sides
        share = statistics.median(r[name] / r["step"] for r in rounds)
        print(f"{name}: {share:.2%} of a training step")


def on_gpu() -> None:
    """Time exact divergences and the mask on them at a vocabulary of 152,000, as a share of the memory's bandwidth."""
    if not torch.cuda.is_available():
        print("GPU part: NOT RUN, there is no GPU here")
        return
    rows, length, width = 2, 1024, 152_000
    logits = [torch.randn(rows, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    tokens = torch.randint(0, width, (rows, length), device="cuda")
    mask = torch.ones(rows, length, device="cuda")
    read = sum(x.numel() * x.element_size() for x in logits)
    target = torch.empty_like(logits[0])
    copy = _cuda_seconds(lambda: target.copy_(logits[0]))
    bandwidth = 2 * target.numel() * target.element_size() / copy
    print(f"{torch.cuda.get_device_name()}: a copy moves {bandwidth / 1e9:.0f} GB/s")
    for name, call in {
        "divergences_from_logits": lambda: divergences_from_logits(*logits),
        "divergences_from_logits, compiled": lambda: divergences_from_logits(*logits, compiled=True),
        "trust_region_mask_from_logits": lambda: trust_region_mask_from_logits(*logits, tokens, mask, "seq_max_kl<=1"),
    }.items():
        seconds = _cuda_seconds(call)
        print(f"{name}, [{rows}, {length}, {width}] in bfloat16: {1e3 * seconds:.1f} ms; reading the logits once is ")
        print(f"    {read / seconds / bandwidth:.1%} of what a copy reaches")


def _cuda_seconds(call: Callable[[], object]) -> float:
    call()
    torch.cuda.synchronize()
    return min(_seconds(lambda: (call(), torch.cuda.synchronize())) for _ in range(ROUNDS))


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    on_cpu()
    on_gpu()
