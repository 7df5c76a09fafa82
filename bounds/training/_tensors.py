"""The same statistics as in :mod:`bounds.divergence.rows`, on torch tensors [B, L] of any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bounds._checks import refuse

if TYPE_CHECKING:
    from torch import Tensor

_LOGITS_AT_ONCE = 2**24  # entries of a block of rows: what the exact divergences need in memory beside the logits


def checked(mask: Tensor, **given: Tensor | None) -> Tensor:
    """Which tokens [B, L] are policy tokens; shapes are checked, values are not (that would wait for the device)."""
    if mask.dim() != 2:
        refuse("mask", "a tensor [B, L]", f"shape {tuple(mask.shape)}")
    for name, x in given.items():
        if x is not None and x.shape != mask.shape:
            refuse(name, f"a tensor of the shape of mask {tuple(mask.shape)}", f"shape {tuple(x.shape)}")
    return mask > 0


def log_ratio(rollout: Tensor, train: Tensor, policy: Tensor) -> Tensor:
    """Log theta - log roll, at least in float32; 0 where there is no policy token, whatever stands there."""
    import torch

    wide = torch.promote_types(train.dtype, torch.float32)
    return torch.where(policy, train, 0.0).to(wide) - torch.where(policy, rollout, 0.0).to(wide)


def k3(d: Tensor) -> Tensor:
    """k3 = exp(d) - 1 - d of a float64 tensor: non-negative, within 2e-16 / |d| relative."""
    return (d.expm1() - d).clamp_min(0.0)


#: What may be asked of a token, named as in :mod:`bounds.masks.statistics`: from d = log theta - log roll [B, L]
#: in float64. (The exact KL is an input of its own.)
TOKEN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: -d,
    "k2": lambda d: d.square() / 2,
    "k3": k3,
    "ratio": lambda d: d,  # like k1 a logarithm, as its thresholds are
    "ratio_deviation": lambda d: d.expm1().abs(),
    "mult_prob_error": lambda d: d.abs().exp(),
}


def pool(how: str, values: Tensor, policy: Tensor) -> Tensor:
    """Values of the policy tokens of each response put together, [B]; NaN where one is NaN, 0 (or inf) of none.

    A product and a geometric mean of ratios are the sum and the mean of their logarithms.
    """
    import torch

    if how == "max":
        return torch.where(policy, values, -torch.inf).amax(dim=1)
    if how == "min":
        return torch.where(policy, values, torch.inf).amin(dim=1)
    total = torch.where(policy, values, 0.0).sum(dim=1)
    return total / policy.sum(dim=1) if how in ("mean", "geometric") else total


@dataclass(frozen=True, slots=True)
class Divergences:
    """Exact divergences at each context, tensors [B, L]: KL(roll||theta) in nats, TV, chi2(theta||roll)."""

    kl: Tensor
    tv: Tensor
    chi2: Tensor


def by_blocks(
    rollout_logits: Tensor, train_logits: Tensor, tokens: Tensor | None = None
) -> tuple[Divergences, Tensor, Tensor]:
    """Divergences of logits [..., V], and the log-probs of the tokens [...] (of the first, where none are given)."""
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
    """KL(roll||theta), TV, chi2(theta||roll) and log-probs of the token [n, 1], of rows [n, V] of logits."""
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
    """(exp(d) - 1 - d) / d^2 for |d| <= 1/2, to float32."""
    total = d / 40320 + 1 / 5040
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2):
        total = total * d + coefficient
    return total


def scalars(d: Tensor, rollout: Tensor, train: Tensor, policy: Tensor, kl: Tensor | None) -> dict[str, Tensor]:
    """What a monitor shows of a batch, from log ratios d in float64; see there."""
    import torch

    tokens, length = policy.sum(), policy.sum(dim=1)
    some = length > 0
    responses, total = some.sum(), d.sum(dim=1)
    phi = k3(d).sum(dim=1)
    change = (torch.where(policy, train, 0.0).double().exp() - torch.where(policy, rollout, 0.0).double().exp()).abs()
    sequence = phi if kl is None else torch.where(policy, kl, 0.0).double().sum(dim=1)
    # W^- = (1 + S - P)^+ as Phi - k3(P), which does not cancel; inf - inf is not known, and never below the truth
    worst = (phi - k3(total)).clamp_min(0.0).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return {
        "kl": -d.sum() / tokens,
        "k3_kl": phi.sum() / tokens,
        "chi2_token": (2 * d).expm1().sum() / tokens,
        "probs_diff": change.sum() / tokens,
        "chi2_seq": (2 * total).expm1().sum() / responses,
        "log_ppl_abs_diff": (total / length.clamp_min(1)).abs().sum() / responses,
        "kl_seq": sequence.sum() / responses,
        "worst_case_error": worst.sum() / responses,
    }
