"""Exact divergences of two policies, from the logits of every context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bounds._checks import refuse

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

_ROUNDED = 2.0**-21  # relative, more than log-probs in float32 and their differences are wrong
_SUMMED = 1e-5  # more than logs of two rows' masses are, with the rounding of all their log-probs
_LOGITS_AT_ONCE = 2**24  # entries of a block of rows: what the exact divergences need in memory beside the logits


@dataclass(frozen=True, slots=True)
class Divergences:
    """Exact divergences at each context, tensors [...].

    KL(roll||theta) in nats, TV, chi2(theta||roll), and the largest log theta/roll over the vocabulary, rounded up.
    """

    kl: Tensor
    tv: Tensor
    chi2: Tensor
    max_log_ratio: Tensor


def divergences_from_logits(rollout_logits: Tensor, train_logits: Tensor, *, compiled: bool = False) -> Divergences:
    """Compute the exact divergences of the two next-token laws at each context, from logits [..., V].

    In float32, a block of rows at a time; KL is a sum of non-negative terms, so that nothing cancels. Logits of
    -inf (top-p or top-k) are a support gap: chi2 and max_log_ratio are then +inf, and KL counts theta's mass where roll
    has none. max_log_ratio is never below what the logits in float32 say, and above it by 2e-5 and a millionth of the
    token's log-probs at most.

    Parameters
    ----------
    rollout_logits, train_logits : tensors [..., V]
        Logits or log-probs, on one device.
    compiled : bool
        Fuse it by torch.compile, for a GPU by Triton: the same formulas, rounded a little differently, in fewer reads
        of memory. The first call compiles for seconds to a minute.

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
    return by_blocks(rollout_logits, train_logits, block=_compiled() if compiled else _block)[0]


def by_blocks(
    rollout_logits: Tensor,
    train_logits: Tensor,
    tokens: Tensor | None = None,
    block: Callable[..., tuple[Tensor, ...]] | None = None,
) -> tuple[Divergences, Tensor, Tensor]:
    """Return divergences of logits [..., V], and log-probs of the tokens [...] (of the first, if none are given)."""
    import torch

    _same_shape(rollout_logits, train_logits)
    *shape, width = rollout_logits.shape
    rows = max(1, _LOGITS_AT_ONCE // width)
    index = rollout_logits.new_zeros(shape, dtype=torch.long) if tokens is None else tokens.long()
    flat = (rollout_logits.reshape(-1, width), train_logits.reshape(-1, width), index.reshape(-1, 1))
    with torch.no_grad():
        parts = [(block or _block)(*part) for part in zip(*(torch.split(x, rows) for x in flat), strict=True)]
        sums, most, roll, train = (torch.cat(x, dim=-1) for x in zip(*parts, strict=True))
    return _divergences(sums, most, shape), roll.reshape(shape), train.reshape(shape)


def divergences_from_logit_shards(
    rollout_logits: Tensor, train_logits: Tensor, group: ProcessGroup | None = None
) -> Divergences:
    """Compute the exact divergences where each process of a group holds a part of the vocabulary of all contexts.

    What :func:`divergences_from_logits` computes of whole rows; four collectives on tensors [5, n] or smaller are
    all that processes exchange.

    Parameters
    ----------
    rollout_logits, train_logits : tensors [..., v]
        This process's part of the logits (as tensor-parallel models hold them): the same contexts in every process, and
        the same tokens of both policies. Log-probs do as well; a softmax over the part alone does not.
    group : ProcessGroup, optional
        The processes that hold the parts; all processes unless given.

    Returns
    -------
    Divergences
        Tensors [...] of the whole rows, the same in every process; no gradient flows through them.

    Raises
    ------
    ValueError
        For shapes that disagree.
    """
    import torch
    from torch import distributed

    _same_shape(rollout_logits, train_logits)
    *shape, width = rollout_logits.shape
    rows = max(1, _LOGITS_AT_ONCE // width)
    with torch.no_grad():
        pair = [x.reshape(-1, width) for x in (rollout_logits, train_logits)]
        top = torch.stack([x.amax(-1).float() for x in pair])
        distributed.all_reduce(top, distributed.ReduceOp.MAX, group)
        mass = torch.stack(
            [torch.cat([y.exp().sum(-1) for y in _below(x, t, rows)]) for x, t in zip(pair, top, strict=True)]
        )
        distributed.all_reduce(mass, distributed.ReduceOp.SUM, group)
        shifts = zip(pair, top, mass.log(), strict=True)
        log_probs = zip(*(_below(x, t, rows, log_mass) for x, t, log_mass in shifts), strict=True)
        sums, most = (torch.cat(parts, dim=-1) for parts in zip(*(_terms(p, q) for p, q in log_probs), strict=True))
        distributed.all_reduce(sums, distributed.ReduceOp.SUM, group)
        distributed.all_reduce(most, distributed.ReduceOp.MAX, group)
    return _divergences(sums, most, shape)


def _below(logits: Tensor, top: Tensor, rows: int, log_mass: Tensor | None = None) -> Iterator[Tensor]:
    """Yield some rows at a time of logits [n, v] in float32, below their maximum, or normalised."""
    import torch

    shift = torch.zeros_like(top) if log_mass is None else log_mass
    for x, t, z in zip(*(torch.split(y, rows) for y in (logits, top, shift)), strict=True):
        yield (x.float() - t[:, None]) - z[:, None]


def _same_shape(rollout_logits: Tensor, train_logits: Tensor) -> None:
    if rollout_logits.shape != train_logits.shape:
        expected = f"a tensor of the shape of rollout_logits {tuple(rollout_logits.shape)}"
        refuse("train_logits", expected, f"shape {tuple(train_logits.shape)}")


def _block(rollout_logits: Tensor, train_logits: Tensor, token: Tensor) -> tuple[Tensor, ...]:
    """Return the divergences and the log-probs of the token [n, 1], of rows [n, V] of logits."""
    p, q = rollout_logits.float().log_softmax(-1), train_logits.float().log_softmax(-1)
    return (*_terms(p, q), p.gather(-1, token)[:, 0], q.gather(-1, token)[:, 0])


@cache
def _compiled() -> Callable[..., tuple[Tensor, ...]]:
    import torch

    compiled: Callable[..., tuple[Tensor, ...]] = torch.compile(_block, dynamic=True)
    return compiled


def _terms(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums over log-probs [n, v] of some tokens, and the largest q - p [n].

    The sums [5, n] are those of KL, TV, chi2(theta||roll), roll and theta.
    """
    import torch

    roll, theta = p.exp(), q.exp()
    on = p > -torch.inf
    d = torch.where(on, q, 0.0) - torch.where(on, p, 0.0)
    # roll * k3(d) plus theta's mass where roll has none; the series where exp(d) - 1 - d cancels in float32
    near = d.clamp(-0.5, 0.5)
    cost = torch.where(d.abs() < 0.5, roll * near.square() * _horner(near), theta - roll - roll * d)
    kl = torch.where(on, cost, theta).sum(-1)
    tv = (theta - roll).abs().sum(-1) / 2
    gap = torch.where(q > -torch.inf, torch.inf, 0.0)
    chi2 = torch.where(on, roll * d.expm1().square(), gap).sum(-1)
    # above q - p by more than p and q were rounded; p = -inf is a gap
    most = torch.where(q > -torch.inf, q * (1 - _ROUNDED) - p * (1 + _ROUNDED), -torch.inf).amax(-1)
    return torch.stack([kl, tv, chi2, roll.sum(-1), theta.sum(-1)]), most


def _divergences(sums: Tensor, most: Tensor, shape: list[int]) -> Divergences:
    """Return what follows from the sums [5, n] and the largest log-ratios of whole rows.

    Roll and theta add up to 1 but for what float32 did to all log-probs of a row alike, which is taken back.
    """
    *found, roll, theta = sums
    return Divergences(*(x.reshape(shape) for x in (*found, most - (theta.log() - roll.log()) + _SUMMED)))


def _horner(d: Tensor) -> Tensor:
    """Return (exp(d) - 1 - d) / d^2 for |d| <= 1/2, to float32."""
    total = d / 40320 + 1 / 5040
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2):
        total = total * d + coefficient
    return total
