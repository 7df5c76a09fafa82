"""Three calls for a torch training loop: a sequence mask, the masked surrogate, and a monitor.

Tensors are [B, L], a response a row, on any device; nothing is copied to the host but the monitor's scalars, once for
each batch. torch is imported when a function is called (``pip install 'trm-bounds[torch]'``).
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds._checks import integer, refuse
from bounds.masks.mask import Criterion, Mask
from bounds.masks.statistics import STATISTICS, ln_trm_constants
from bounds.rules.sums import remaining_weights
from bounds.training._tensors import TOKEN, Divergences, by_blocks, checked, log_ratio, pool, scalars

if TYPE_CHECKING:
    from torch import Tensor


def trust_region_mask(
    rollout_logprobs: Tensor, train_logprobs: Tensor, mask: Tensor, rule: str | Mask, *, kl: Tensor | None = None
) -> Tensor:
    """Which responses a rule keeps.

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

    Returns
    -------
    tensor [B] of bool
        On the same device. A response without a policy token, or with a NaN on one, is not kept.

    Raises
    ------
    ValueError
        For shapes that disagree, a rule that cannot be meant, or a rule on the exact KL without ``kl``.

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
        d = log_ratio(rollout_logprobs.double(), train_logprobs.double(), policy)
        keep = policy.any(dim=1)
        for criterion in _mask(rule).criteria:
            keep = keep & _holds(criterion, d, policy, kl)
        return keep


def trust_region_mask_from_logits(
    rollout_logits: Tensor, train_logits: Tensor, tokens: Tensor, mask: Tensor, rule: str | Mask
) -> Tensor:
    """Which responses a rule keeps, with the exact KL(roll||theta) of every context from logits [B, L, V].

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


def divergences_from_logits(rollout_logits: Tensor, train_logits: Tensor) -> Divergences:
    """Exact divergences of the two next-token laws at each context, from logits [..., V].

    In float32, a block of rows at a time; KL is a sum of non-negative terms, so that nothing cancels. Logits of
    -inf (top-p or top-k) are a support gap: chi2 is then +inf, and KL counts theta's mass where roll has none.

    Examples
    --------
    >>> import torch
    >>> p, q = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.4, 0.4, 0.2]]).log()
    >>> [round(float(x), 6) for x in (divergences_from_logits(p, q).kl, divergences_from_logits(p, q).tv)]
    [0.025267, 0.1]
    """
    return by_blocks(rollout_logits, train_logits)[0]


def masked_surrogate_loss(
    rollout_logprobs: Tensor, train_logprobs: Tensor, mask: Tensor, advantages: Tensor, keep: Tensor
) -> Tensor:
    """-(1/B) sum_i keep_i A_i sum_t rho_t: minimise it to climb the masked surrogate.

    Parameters
    ----------
    rollout_logprobs, train_logprobs, mask : tensors [B, L]
        As in :func:`trust_region_mask`; gradients flow through ``train_logprobs`` only.
    advantages : tensor [B]
    keep : tensor [B] of bool
        All B responses stay in the denominator: what is rejected adds nothing, and raises nobody else's weight.

    Returns
    -------
    tensor, a scalar
        Its gradient is -(1/B) sum_i keep_i A_i sum_t rho_t grad log theta. Source: 2512.23075v4.

    Examples
    --------
    >>> import torch
    >>> roll, theta = torch.zeros(2, 2), torch.zeros(2, 2, requires_grad=True)
    >>> advantages, keep = torch.tensor([1.0, -1.0]), torch.tensor([True, False])
    >>> masked_surrogate_loss(roll, theta, torch.ones(2, 2), advantages, keep).item()
    -1.0
    """
    policy = checked(mask, rollout_logprobs=rollout_logprobs, train_logprobs=train_logprobs)
    for name, x in (("advantages", advantages), ("keep", keep)):
        if x.shape != mask.shape[:1]:
            refuse(name, f"a tensor of shape {tuple(mask.shape[:1])}", tuple(x.shape))
    used = policy & (keep > 0)[:, None]
    # select before exp: a ratio that overflows in a rejected response would turn 0 * inf into NaN
    d = log_ratio(rollout_logprobs.detach(), train_logprobs, used)
    return -(advantages.detach() * (d.exp() * used).sum(dim=1)).sum() / mask.shape[0]


class Monitor:
    """Scalars to log for each batch, and the batch itself as canonical Parquet for ``trm-bounds certify``.

    Parameters
    ----------
    horizon : int
        T, the cap on the policy tokens of a response.
    rule : optional
        As in :func:`trust_region_mask`: acceptance is then reported, also by quarters of the horizon.
    folder : path, optional
        Where ``step_000000.parquet``, ... are written; nothing is written without it.

    Examples
    --------
    >>> import torch
    >>> monitor = Monitor(horizon=2, rule="seq_max_k2<=0.05")
    >>> roll, theta = torch.tensor([[-1.0, -0.5], [-1.0, -0.5]]), torch.tensor([[-1.1, -0.5], [-1.9, -0.5]])
    >>> scalars = monitor(roll, theta, torch.ones(2, 2))
    >>> round(scalars["kl"], 3), scalars["acceptance"]
    (0.25, 0.5)
    """

    def __init__(self, *, horizon: int, rule: str | Mask | None = None, folder: str | Path | None = None) -> None:
        self.horizon = integer("horizon", horizon, 1, 2**53)
        self.rule = None if rule is None else _mask(rule)
        self.folder = None if folder is None else Path(folder)
        self.step = 0

    def __call__(
        self,
        rollout_logprobs: Tensor,
        train_logprobs: Tensor,
        mask: Tensor,
        *,
        rewards: Tensor | None = None,
        prompt_ids: Any = None,
        exact: Divergences | None = None,
        keep: Tensor | None = None,
    ) -> dict[str, float]:
        """The scalars of one batch, as floats; one transfer to the host.

        Parameters
        ----------
        rollout_logprobs, train_logprobs, mask : tensors [B, L]
            As in :func:`trust_region_mask`.
        rewards, prompt_ids : [B], optional
            The raw reward, and which prompt was answered: for the Parquet file.
        exact : Divergences, optional
            From :func:`divergences_from_logits`: kl_seq is then exact, and the file holds them.
        keep : tensor [B] of bool, optional
            What was kept, where it is known already; else the rule decides here.

        Returns
        -------
        dict
            Token means ``kl`` (k1), ``k3_kl``, ``chi2_token``, ``probs_diff`` and response means ``chi2_seq``,
            ``log_ppl_abs_diff``, ``kl_seq`` (the sum of the exact KL, else of k3), ``worst_case_error`` (of rewards in
            [0, 1]), ``acceptance`` and ``acceptance/LEAST_MOST`` by length. Responses without a policy token are left
            out.
        """
        import torch

        policy = checked(mask, rollout_logprobs=rollout_logprobs, train_logprobs=train_logprobs)
        kl = None if exact is None else exact.kl
        with torch.no_grad():
            if keep is None and self.rule is not None:
                keep = trust_region_mask(rollout_logprobs, train_logprobs, mask, self.rule, kl=kl)
            d = log_ratio(rollout_logprobs.double(), train_logprobs.double(), policy)
            found = scalars(d, rollout_logprobs, train_logprobs, policy, kl)
            found |= {} if keep is None else self._acceptance(keep, policy)
            values = torch.stack([value.double() for value in found.values()]).tolist()
        if self.folder is not None:
            path = self.folder / f"step_{self.step:06d}.parquet"
            self._write(path, rollout_logprobs, train_logprobs, mask, rewards, prompt_ids, exact)
        self.step += 1
        return {n: v for n, v in zip(found, values, strict=True) if "/" not in n or not math.isnan(v)}

    def _acceptance(self, keep: Tensor, policy: Tensor) -> dict[str, Tensor]:
        """Shares of the responses that are kept; NaN in a quarter of the horizon where no response ends."""
        length, kept = policy.sum(dim=1), (keep > 0).double()
        shares = {"acceptance": kept.sum() / (length > 0).sum()}
        edges = [self.horizon * k // 4 for k in range(5)]
        for least, most in pairwise(edges):
            inside = (length > least) & (length <= most)
            shares[f"acceptance/{least + 1}_{most}"] = (kept * inside).sum() / inside.sum()
        return shares

    def _write(
        self, path: Path, rollout: Tensor, train: Tensor, mask: Tensor, rewards: Any, prompt_ids: Any, exact: Any
    ) -> None:
        from bounds.logs.traces import TraceSet

        def host(x: Any) -> Any:
            return x.detach().double().cpu().numpy() if hasattr(x, "detach") else x

        columns = {} if exact is None else {n: host(getattr(exact, n)) for n in ("kl", "tv", "chi2")}
        path.parent.mkdir(parents=True, exist_ok=True)
        TraceSet.from_arrays(
            host(rollout),
            host(train),
            mask=host(mask),
            rewards=host(rewards),
            prompt_ids=prompt_ids.tolist() if hasattr(prompt_ids, "tolist") else prompt_ids,
            horizon=self.horizon,
            **columns,
        ).to_parquet(path, dtype="float32")


def _mask(rule: str | Mask) -> Mask:
    """A mask of responses; the rest changes the objective and is no mask."""
    mask = rule if isinstance(rule, Mask) else Mask.parse(rule)
    for criterion in mask.reweighing:
        refuse("rule", "a mask of responses (token_... and clip_... drop or reweigh tokens)", criterion)
    return mask


def _holds(criterion: Criterion, d: Tensor, policy: Tensor, kl: Tensor | None) -> Tensor:
    """Whether one criterion holds, [B]."""
    low, high = criterion.limits
    value = _statistic(criterion.statistic, d, policy, kl)
    return (value >= low) & (value <= high)


def _statistic(name: str, d: Tensor, policy: Tensor, kl: Tensor | None) -> Tensor:
    if name not in STATISTICS:
        return _ln_trm(d, policy, *ln_trm_constants(name))
    how, token = STATISTICS[name]
    if token != "kl":
        return pool(how, TOKEN[token](d), policy)
    if kl is None:
        raise ValueError(f"mask statistic {name} needs kl: trust_region_mask_from_logits computes it")
    return pool(how, kl.double(), policy)


def _ln_trm(d: Tensor, policy: Tensor, cap: int, epsilon: float | None, delta: float | None) -> Tensor:
    """LN-TRM's statistic; +inf (never kept) where a response is longer than the cap."""
    import torch

    weights = remaining_weights(cap, epsilon=epsilon, delta=delta)
    order = policy.cumsum(dim=1) - 1  # counted in policy tokens
    weight = torch.as_tensor(weights, device=d.device)[order.clamp(0, cap - 1)]
    deviation = torch.where(weight == 0.0, 0.0, d.expm1().abs() * weight)  # never 0 * inf
    total = pool("sum", deviation, policy) / float(weights.sum())
    return torch.where(policy.sum(dim=1) <= cap, total, torch.inf)
