"""What a training loop logs of each batch."""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds._checks import integer, refuse
from bounds.masks.mask import Mask
from bounds.training._step_files import LOGGER, StepFiles
from bounds.training._tensors import centred, checked, k3, log_ratio, on_host
from bounds.training.logits import Divergences
from bounds.training.response_mask import criterion_values, response_mask, trust_region_mask

if TYPE_CHECKING:
    from torch import Tensor

_AT_THE_END = 600.0  # seconds that the end of a process waits for the disk
_FEW = 0.05  # acceptance below this is said: next to nothing is learned from such a step


class Monitor:
    """Logger of scalars for each batch, and of the batch itself as canonical Parquet for ``trm-bounds certify``.

    Within a training it never raises and never waits for the disk: what goes wrong is said once, by the logger
    ``bounds.training``, and from then on nothing is logged.

    Parameters
    ----------
    horizon : int, optional
        T, the cap on the policy tokens of a response. Without it nothing is said by length, and a reader of the files
        takes the longest response, as an assumption.
    rule : optional
        As in :func:`trust_region_mask`: acceptance is then reported, also by quarters of the horizon.
    folder : path, optional
        Where ``step_000000_rank_0.parquet``, ... are written; nothing is written without it. A file appears whole when
        the next step begins, or at :meth:`flush` or :meth:`close`, and none is ever written again: a run that is
        started again goes on, and its steps that are there already are not logged twice.
    rank : int, optional
        Which of several processes this is; found by itself under torch.distributed and torchrun, else 0. Where several
        hold the same responses, log them in one.

    Examples
    --------
    >>> import torch
    >>> monitor = Monitor(horizon=2, rule="seq_max_k2<=0.05")
    >>> roll, theta = torch.tensor([[-1.0, -0.5], [-1.0, -0.5]]), torch.tensor([[-1.1, -0.5], [-1.9, -0.5]])
    >>> scalars = monitor(roll, theta, torch.ones(2, 2))
    >>> round(scalars["kl"], 3), scalars["acceptance"]
    (0.25, 0.5)
    """

    def __init__(
        self,
        *,
        horizon: int | None = None,
        rule: str | Mask | None = None,
        folder: str | Path | None = None,
        rank: int | None = None,
    ) -> None:
        self.horizon = None if horizon is None else integer("horizon", horizon, 1, 2**53)
        self.rule = None if rule is None else response_mask(rule)
        self.folder = None if folder is None else Path(folder)
        self.rank = None if rank is None else integer("rank", rank, 0, 2**31)
        self._step = -1
        self._files: StepFiles | None = None
        self._failed = self._said_few = False

    def __call__(
        self,
        rollout_logprobs: Tensor,
        train_logprobs: Tensor,
        mask: Tensor,
        *,
        step: int | None = None,
        rewards: Any = None,
        prompt_ids: Any = None,
        tokens: Tensor | None = None,
        old_logprobs: Tensor | None = None,
        environments: Any = None,
        weight_versions: Any = None,
        exact: Divergences | None = None,
        advantages: Tensor | None = None,
        keep: Tensor | None = None,
        evaluation: bool = False,
    ) -> dict[str, float]:
        """Return the scalars of one batch, as floats; one transfer to the host.

        Parameters
        ----------
        rollout_logprobs, train_logprobs, mask : tensors [B, L]
            As in :func:`trust_region_mask`. The file says that theta scored these responses before it learned from
            them (``train_policy: before-update``), so give its log-probs of the first pass; responses that come again,
            in a further pass, are left out.
        step : int, optional
            The optimiser step; the batches of one step (micro-batches) become one file. Without it each call is a step.
        rewards, prompt_ids, environments, weight_versions : [B], optional
            The raw reward, which prompt was answered, in which environment, by which weights: for the file.
        tokens, old_logprobs : tensors [B, L], optional
            Ids, and log-probs of the sampling weights in the training engine: for the file.
        exact : Divergences, optional
            From :func:`divergences_from_logits`: kl_seq is then exact, and the file holds them.
        advantages : tensor [B], optional
            That of each response, which off-policy sequence masking looks at; without it, the reward minus the mean of
            its prompt in this batch.
        keep : tensor [B] of bool, optional
            What was kept, where it is known already; else the rule decides here.
        evaluation : bool
            Whether these responses are not learned from: they are then not logged, and the scalars are returned.

        Returns
        -------
        dict
            Token means ``kl`` (k1), ``k3_kl``, ``chi2_token``, ``probs_diff`` and response means ``chi2_seq``,
            ``log_ppl_abs_diff``, ``kl_seq`` (the sum of the exact KL, else of k3), ``worst_case_error`` (of rewards in
            [0, 1]), ``acceptance`` and ``acceptance_by_length/LEAST_MOST``. Responses without a policy token are left
            out. Empty where none has one, and once something went wrong.
        """
        if self._failed:
            return {}
        with self.guard():
            if advantages is None and self.rule is not None and self.rule.needs_advantage and keep is None:
                advantages = centred(rewards, prompt_ids, rollout_logprobs.device)
            seen = self._scalars(rollout_logprobs, train_logprobs, mask, exact, advantages, keep)
            if self.folder is not None and not evaluation:
                grids = {
                    "rollout_logprobs": rollout_logprobs,
                    "train_logprobs": train_logprobs,
                    "mask": mask > 0,
                    "old_logprobs": old_logprobs,
                    "tokens": tokens,
                    "reward": rewards,
                    "prompt_id": prompt_ids,
                    "environment": environments,
                    "weight_version": weight_versions,
                    **({} if exact is None else {f.name: getattr(exact, f.name) for f in fields(exact)}),
                }
                self._log(step, {name: on_host(x) for name, x in grids.items() if x is not None})
            return seen
        return {}

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Let nothing that goes wrong inside reach the training: it is said once, and nothing more is logged."""
        try:
            yield
        except Exception as error:
            self._failed = True
            LOGGER.warning(
                "trust region: nothing more is logged (%s: %s); the training goes on", type(error).__name__, error
            )

    def flush(self) -> None:
        """Say that the step is complete: its file is then written without waiting for the next step."""
        if self._files is not None and not self._failed:
            self._files.flush()

    def close(self) -> None:
        """Write what is not written yet, and wait for it; at the end of the process it happens by itself."""
        if self._files is not None:
            self._files.close()

    def _scalars(
        self,
        rollout: Tensor,
        train: Tensor,
        mask: Tensor,
        exact: Divergences | None,
        advantages: Tensor | None,
        keep: Tensor | None,
    ) -> dict[str, float]:
        import torch

        policy = checked(mask, rollout_logprobs=rollout, train_logprobs=train)
        kl = None if exact is None else exact.kl
        with torch.no_grad():
            if keep is None and self.rule is not None:
                keep = trust_region_mask(rollout, train, mask, self.rule, kl=kl, advantages=advantages)
            d = log_ratio(rollout.double(), train.double(), policy)
            found = _scalars(d, rollout, train, policy, kl)
            found |= {} if keep is None else self._acceptance(keep, policy)
            tokens, *values = torch.stack([value.double() for value in (policy.sum(), *found.values())]).tolist()
            if not tokens:
                return {}
            seen = {n: v for n, v in zip(found, values, strict=True) if "/" not in n or not math.isnan(v)}
            if seen.get("acceptance", 1.0) < _FEW and not self._said_few:
                self._said_few = True
                LOGGER.warning(
                    "the trust region keeps %.1f %% of the responses: next to nothing is learned%s",
                    100 * seen["acceptance"],
                    "" if self.rule is None else _thresholds(self.rule, d, rollout.double(), policy, kl, advantages),
                )
        return seen

    def _acceptance(self, keep: Tensor, policy: Tensor) -> dict[str, Tensor]:
        """Return the shares of the responses that are kept; NaN in a quarter of the horizon where no response ends."""
        length, kept = policy.sum(dim=1), (keep > 0).double()
        shares = {"acceptance": kept.sum() / (length > 0).sum()}
        edges = [] if self.horizon is None else [self.horizon * k // 4 for k in range(5)]
        for least, most in pairwise(edges):
            inside = (length > least) & (length <= most)
            shares[f"acceptance_by_length/{least + 1}_{most}"] = (kept * inside).sum() / inside.sum()
        return shares

    def _log(self, step: int | None, grids: dict[str, Any]) -> None:
        """Hand a batch to the files."""
        if self._files is None:
            assert self.folder is not None
            self._files = StepFiles(self.folder, _rank() if self.rank is None else self.rank, self.horizon)
            weakref.finalize(self, self._files.close, _AT_THE_END)
            self._step = self._files.next_step - 1
        for name, values in grids.items():
            shape = np.shape(values) if isinstance(values, np.ndarray) else (len(values),)
            if shape not in (grids["mask"].shape, grids["mask"].shape[:1]):
                refuse(name, f"of shape {grids['mask'].shape} or {grids['mask'].shape[:1]}", f"shape {shape}")
        self._step = self._step + 1 if step is None else integer("step", int(step), 0, 2**53)
        same = {"step": self._step, "rank": self._files.rank, "train_policy": "before-update"}
        self._files.add(self._step, {**grids, **{name: [value] * len(grids["mask"]) for name, value in same.items()}})


def _thresholds(
    rule: Mask, d: Tensor, rollout: Tensor, policy: Tensor, kl: Tensor | None, advantages: Tensor | None
) -> str:
    """Say at which thresholds a tenth, half and nine tenths of a batch would be kept."""
    said = []
    for criterion in rule.criteria:
        values = criterion_values(criterion, d, rollout, policy, kl, advantages)[policy.any(dim=1)].cpu().numpy()
        for share in (0.1, 0.5, 0.9):
            other = criterion.at(float(f"{np.nanquantile(criterion.reach(values), share):.2g}"))
            said.append(f"{other or 'no threshold'} would keep {share:.0%}")
    return f". Of this batch {', '.join(said)}: for later steps, as what is chosen on a batch guarantees nothing of it"


def _rank() -> int:
    """Return which of the processes of a training this is."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return int(os.environ.get("RANK", 0))


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
