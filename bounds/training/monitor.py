"""What a training loop logs of each batch."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds._checks import integer
from bounds.masks.mask import Mask
from bounds.training._tensors import checked, k3, log_ratio
from bounds.training.logits import Divergences
from bounds.training.response_mask import response_mask, trust_region_mask

if TYPE_CHECKING:
    from torch import Tensor


class Monitor:
    """Logger of scalars for each batch, and of the batch itself as canonical Parquet for ``trm-bounds certify``.

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
        self.rule = None if rule is None else response_mask(rule)
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
        """Return the scalars of one batch, as floats; one transfer to the host.

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
            found = _scalars(d, rollout_logprobs, train_logprobs, policy, kl)
            found |= {} if keep is None else self._acceptance(keep, policy)
            values = torch.stack([value.double() for value in found.values()]).tolist()
        if self.folder is not None:
            path = self.folder / f"step_{self.step:06d}.parquet"
            self._write(path, rollout_logprobs, train_logprobs, mask, rewards, prompt_ids, exact)
        self.step += 1
        return {n: v for n, v in zip(found, values, strict=True) if "/" not in n or not math.isnan(v)}

    def _acceptance(self, keep: Tensor, policy: Tensor) -> dict[str, Tensor]:
        """Return the shares of the responses that are kept; NaN in a quarter of the horizon where no response ends."""
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


def _scalars(d: Tensor, rollout: Tensor, train: Tensor, policy: Tensor, kl: Tensor | None) -> dict[str, Tensor]:
    """Return what a monitor shows of a batch, from log ratios d in float64; see there."""
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
