"""Exact divergences of two policies, from the logits of every context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bounds._checks import refuse

if TYPE_CHECKING:
    from torch import Tensor

_LOGITS_AT_ONCE = 2**24  # entries of a block of rows: what the exact divergences need in memory beside the logits


@dataclass(frozen=True, slots=True)
class Divergences:
    """Exact divergences at each context, tensors [...]: KL(roll||theta) in nats, TV, chi2(theta||roll)."""

    kl: Tensor
    tv: Tensor
    chi2: Tensor


def divergences_from_logits(rollout_logits: Tensor, train_logits: Tensor) -> Divergences:
    """Compute the exact divergences of the two next-token laws at each context, from logits [..., V].

    In float32, a block of rows at a time; KL is a sum of non-negative terms, so that nothing cancels. Logits of
    -inf (top-p or top-k) are a support gap: chi2 is then +inf, and KL counts theta's mass where roll has none.

    Parameters
    ----------
    rollout_logits, train_logits : tensors [..., V]
        Logits or log-probs, on one device.

    Returns
    -------
    Divergences
        Tensors [...], on the same device; no gradient flows through them.

    Raises
    ------
    ValueError
        For shapes that disagree.

    Examples
    --------
    >>> import torch
    >>> p, q = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.4, 0.4, 0.2]]).log()
    >>> [round(float(x), 6) for x in (divergences_from_logits(p, q).kl, divergences_from_logits(p, q).tv)]
    [0.025267, 0.1]
    """
    return by_blocks(rollout_logits, train_logits)[0]


def by_blocks(
    rollout_logits: Tensor, train_logits: Tensor, tokens: Tensor | None = None
) -> tuple[Divergences, Tensor, Tensor]:
    """Return divergences of logits [..., V], and log-probs of the tokens [...] (of the first, if none are given)."""
    import torch

    if rollout_logits.shape != train_logits.shape:
        expected = f"a tensor of the shape of rollout_logits {tuple(rollout_logits.shape)}"
        refuse("train_logits", expected, f"shape {tuple(train_logits.shape)}")
    *shape, width = rollout_logits.shape
    rows = max(1, _LOGITS_AT_ONCE // width)
    index = rollout_logits.new_zeros(shape, dtype=torch.long) if tokens is None else tokens.long()
    flat = (rollout_logits.reshape(-1, width), train_logits.reshape(-1, width), index.reshape(-1, 1))
    with torch.no_grad():
        parts = [_block(*part) for part in zip(*(torch.split(x, rows) for x in flat), strict=True)]
        kl, tv, chi2, roll, train = (torch.cat(x).reshape(shape) for x in zip(*parts, strict=True))
    return Divergences(kl, tv, chi2), roll, train


def _block(rollout_logits: Tensor, train_logits: Tensor, token: Tensor) -> tuple[Tensor, ...]:
    """Return KL(roll||theta), TV, chi2(theta||roll) and log-probs of the token [n, 1], of rows [n, V] of logits."""
    import torch

    p, q = rollout_logits.float().log_softmax(-1), train_logits.float().log_softmax(-1)
    roll, theta = p.exp(), q.exp()
    on = p > -torch.inf
    d = torch.where(on, q, 0.0) - torch.where(on, p, 0.0)
    # roll * k3(d) plus theta's mass where roll has none; the series where exp(d) - 1 - d cancels in float32
    near = d.clamp(-0.5, 0.5)
    cost = torch.where(d.abs() < 0.5, roll * near.square() * _horner(near), theta - roll - roll * d)
    kl = torch.where(on, cost, theta).sum(-1)
    tv = (theta - roll).abs().sum(-1) / 2
    chi2 = torch.where(on, roll * d.expm1().square(), torch.where(theta > 0, torch.inf, 0.0)).sum(-1)
    return kl, tv, chi2, p.gather(-1, token)[:, 0], q.gather(-1, token)[:, 0]


def _horner(d: Tensor) -> Tensor:
    """Return (exp(d) - 1 - d) / d^2 for |d| <= 1/2, to float32."""
    total = d / 40320 + 1 / 5040
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2):
        total = total * d + coefficient
    return total
