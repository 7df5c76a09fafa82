"""Which responses of a batch a trust region keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bounds._checks import refuse
from bounds.masks.mask import Criterion, Mask
from bounds.masks.statistics import STATISTICS, ln_trm_constants
from bounds.rules.sums import remaining_weights
from bounds.training._tensors import checked, k3, log_ratio
from bounds.training.logits import by_blocks

if TYPE_CHECKING:
    from torch import Tensor


def trust_region_mask(
    rollout_logprobs: Tensor,
    train_logprobs: Tensor,
    mask: Tensor,
    rule: str | Mask,
    *,
    kl: Tensor | None = None,
    advantages: Tensor | None = None,
) -> Tensor:
    """Decide which responses a rule keeps.

    Parameters
    ----------
    rollout_logprobs, train_logprobs : tensors [B, L]
        Natural logs of both policies' probabilities of the sampled tokens. Whatever stands under mask 0 is ignored.
    mask : tensor [B, L]
        1 (or True) on policy tokens.
    rule : str or Mask
        For example ``"seq_max_k2<=0.05,seq_mean_k3<=0.001"`` (TRM-Max and TRM-Avg together),
        ``"ln_trm(T=4096,epsilon=5e-3,delta=1e-4)<=0.03"``, ``"seq_mean_ratio_deviation<=0.05"`` (SER), or a
        trainer's own options; see :mod:`bounds.masks.mask`. Criteria of tokens are refused: they drop no response.
    kl : tensor [B, L], optional
        Exact KL(roll||theta) at each context, which ``seq_max_kl`` and the like look at.
    advantages : tensor [B], optional
        That of each response, which off-policy sequence masking looks at.

    Returns
    -------
    tensor [B] of bool
        On the same device. A response without a policy token, or with a NaN on one, is not kept.

    Raises
    ------
    ValueError
        For shapes that disagree, a rule that cannot be meant, a rule on the exact KL without ``kl``, or one on
        advantages without ``advantages``.

    Notes
    -----
    No gradient flows through the decision. It is made in float64. Source: 2512.23075v4 (Trust Region Masking).

    Examples
    --------
    >>> import torch
    >>> roll, theta = torch.tensor([[-1.0, -0.5], [-1.0, -0.5]]), torch.tensor([[-1.1, -0.5], [-1.9, -0.5]])
    >>> trust_region_mask(roll, theta, torch.ones(2, 2), "seq_max_k2<=0.05").tolist()
    [True, False]
    """
    import torch

    policy = checked(mask, rollout_logprobs=rollout_logprobs, train_logprobs=train_logprobs, kl=kl)
    with torch.no_grad():
        roll = rollout_logprobs.double()
        d = log_ratio(roll, train_logprobs.double(), policy)
        keep = policy.any(dim=1)
        for criterion in response_mask(rule).criteria:
            low, high = criterion.limits
            value = criterion_values(criterion, d, roll, policy, kl, advantages)
            keep = keep & (value >= low) & (value <= high)
        return keep


def trust_region_mask_from_logits(
    rollout_logits: Tensor, train_logits: Tensor, tokens: Tensor, mask: Tensor, rule: str | Mask
) -> Tensor:
    """Decide which responses a rule keeps, with the exact KL(roll||theta) of every context from logits [B, L, V].

    Parameters
    ----------
    rollout_logits, train_logits : tensors [B, L, V]
        Logits (or log-probs) that each token was drawn from, and the training policy's.
    tokens : tensor [B, L] of int
        The sampled tokens, for the statistics that look at them.
    mask, rule
        As in :func:`trust_region_mask`; for example ``"seq_max_kl<=0.01"``, the paper's TRM-Max as it is defined.

    Returns
    -------
    tensor [B] of bool
    """
    import torch

    exact, roll, train = by_blocks(rollout_logits, train_logits, torch.where(mask > 0, tokens, 0))
    return trust_region_mask(roll, train, mask, rule, kl=exact.kl)


def response_mask(rule: str | Mask) -> Mask:
    """Return a mask of responses; the rest changes the objective and is no mask."""
    mask = rule if isinstance(rule, Mask) else Mask.parse(rule)
    for criterion in mask.reweighing:
        refuse("rule", "a mask of responses (token_... and clip_... drop or reweigh tokens)", criterion)
    return mask


def criterion_values(
    criterion: Criterion, d: Tensor, roll: Tensor, policy: Tensor, kl: Tensor | None, advantages: Tensor | None
) -> Tensor:
    """Return what a criterion looks at, [B], from log ratios d and log roll in float64."""
    name = criterion.statistic
    if name not in STATISTICS:
        return _ln_trm(d, policy, *ln_trm_constants(name))
    how, token = STATISTICS[name]
    if token != "kl":
        value = _pool(how, _TOKEN[token](d, roll), policy)
        return _off_policy(value, advantages) if criterion.needs_advantage else value
    if kl is None:
        raise ValueError(f"mask statistic {name} needs kl: trust_region_mask_from_logits computes it")
    return _pool(how, kl.double(), policy)


def _off_policy(gap: Tensor, advantages: Tensor | None) -> Tensor:
    """Return what off-policy sequence masking compares, [B]."""
    import torch

    if advantages is None or advantages.shape != gap.shape:
        refuse("advantages", f"a tensor [{len(gap)}], one for each response", getattr(advantages, "shape", None))
    return torch.where((advantages < 0.0) | gap.isnan(), gap, 0.0)


def _ln_trm(d: Tensor, policy: Tensor, cap: int, epsilon: float | None, delta: float | None) -> Tensor:
    """Return LN-TRM's statistic; +inf (never kept) where a response is longer than the cap."""
    import torch

    weights = remaining_weights(cap, epsilon=epsilon, delta=delta)
    order = policy.cumsum(dim=1) - 1  # counted in policy tokens
    weight = torch.as_tensor(weights, device=d.device)[order.clamp(0, cap - 1)]
    deviation = torch.where(weight == 0.0, 0.0, d.expm1().abs() * weight)  # never 0 * inf
    total = _pool("sum", deviation, policy) / float(weights.sum())
    return torch.where(policy.sum(dim=1) <= cap, total, torch.inf)


def _shift(d: Tensor, roll: Tensor) -> Tensor:
    return (roll + d).exp() - roll.exp()


def _binary_kl(d: Tensor, roll: Tensor) -> Tensor:
    p, q = (x.exp().clamp(1e-6, 1.0 - 1e-6) for x in (roll, roll + d))
    return p * (p / q).log() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).log()


#: What may be asked of a token, named as in :mod:`bounds.masks.statistics`: from d = log theta - log roll and log roll
#: [B, L] in float64. (The exact KL is an input of its own.)
_TOKEN: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": lambda d, _: -d,
    "k2": lambda d, _: d.square() / 2,
    "k3": lambda d, _: k3(d),
    "ratio": lambda d, _: d,  # like k1 a logarithm, as its thresholds are
    "ratio_deviation": lambda d, _: d.expm1().abs(),
    "mult_prob_error": lambda d, _: d.abs().exp(),
    "k3_inverse": lambda d, _: k3(-d),
    "gap": lambda d, _: -d,
    "shift": _shift,
    "binary_tv": lambda d, roll: _shift(d, roll).abs(),
    "binary_kl": _binary_kl,
}


def _pool(how: str, values: Tensor, policy: Tensor) -> Tensor:
    """Put the values of the policy tokens of each response together, [B]; NaN where one is NaN, 0 (or inf) of none.

    A product and a geometric mean of ratios are the sum and the mean of their logarithms.
    """
    import torch

    if how == "max":
        return torch.where(policy, values, -torch.inf).amax(dim=1)
    if how == "min":
        return torch.where(policy, values, torch.inf).amin(dim=1)
    total = torch.where(policy, values, 0.0).sum(dim=1)
    return total / policy.sum(dim=1) if how in ("mean", "geometric") else total
