"""Many runs, one table: the methods side by side, over seeds, at thresholds that a calibration seed fixed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from bounds.intervals import student_t
from bounds.masks.statistics import Tokens, pooled
from bounds.training import divergences_from_logits
from lab.methods import METHODS
from lab.rollout import at, training_law
from lab.train import Progress, Run, Start, Trainer, new_model, read_rows, score, shape_of, train

HERE = Path(__file__).parent
BASE, THRESHOLDS = HERE / "base.pt", HERE / "thresholds.json"
#: No reported run has this seed.
CALIBRATION_SEED = 1000
#: A threshold is this quantile of its statistic over the responses of the first half of the calibration run (in its
#: second half token IS falls apart); both masks together take twice their thresholds, as in the paper's experiment
#: (0.05 and 0.001 alone, 0.1 and 0.002 together).
QUANTILE = 0.75
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Preset:
    """Runs that are compared."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    run: Run


_RUN = Run(method="none", seed=0)
#: The runs of "quick" are runs of "full": in one folder they are done once.
PRESETS: dict[str, Preset] = {
    "quick": Preset(("token-is", "clip", "trm-max", "trm-avg"), (0, 1), _RUN),
    "full": Preset(tuple(METHODS), (0, 1, 2), _RUN),
}


def load_base(path: Path = BASE) -> dict[str, Tensor]:
    """Return the pretrained weights, in float32 (the file holds bfloat16)."""
    return {name: value.float() for name, value in torch.load(path, weights_only=True).items()}


def save_base(weights: Mapping[str, Tensor], path: Path = BASE) -> None:
    """Write weights in bfloat16, which halves the file."""
    torch.save({name: value.to(torch.bfloat16) for name, value in weights.items()}, path)


def shipped(base: Path = BASE) -> Start:
    """Return the weights and thresholds that stand beside this file."""
    thresholds = json.loads(THRESHOLDS.read_text()) if THRESHOLDS.exists() else {}
    return Start(load_base(base), thresholds)


def calibrate(start: Start, run: Run, progress: Progress = print) -> dict[str, float]:
    """Find thresholds on the first half of a run of plain token IS on the calibration seed.

    ``epsilon`` and ``delta`` are the largest TV and KL there. They only shape the weights of LN-TRM: a largest
    value seen is no supremum.
    """
    log_ratio, largest_tv, largest_kl = _calibration_run(start, run, progress)
    tokens = Tokens(np.concatenate(log_ratio), np.cumsum([0, *map(len, log_ratio)]))
    shape = {"epsilon": largest_tv, "delta": largest_kl}
    statistics = {
        "seq_max_k2": "seq_max_k2",
        "seq_mean_k3": "seq_mean_k3",
        "ser": "seq_mean_ratio_deviation",
        "ln_trm": f"ln_trm(T={start.task.horizon},epsilon={largest_tv},delta={largest_kl})",
    }
    found = {key: np.quantile(pooled(name, tokens), QUANTILE) for key, name in statistics.items()}
    return {**{key: float(f"{value:.2g}") for key, value in found.items()}, **shape, "horizon": start.task.horizon}


def _calibration_run(start: Start, run: Run, progress: Progress) -> tuple[list[npt.NDArray[np.float64]], float, float]:
    """Return the log ratios of each response, and the largest exact TV and KL."""
    trainer = Trainer(replace(run, method="token-is", seed=CALIBRATION_SEED), start)
    log_ratio, largest_tv, largest_kl = [], 0.0, 0.0
    while trainer.step < run.steps // 2:
        drawn = trainer.rollout(np.random.default_rng([CALIBRATION_SEED, trainer.step]), run.prompts, run.group)
        with torch.no_grad():
            law = training_law(trainer.model, drawn)
            exact = divergences_from_logits(drawn.log_law, law)
        largest_tv = max(largest_tv, exact.tv[drawn.mask].max().item())
        largest_kl = max(largest_kl, exact.kl[drawn.mask].max().item())
        d = (at(law, drawn.tokens) - drawn.logprobs).double()
        log_ratio += [row[keep].numpy() for row, keep in zip(d, drawn.mask, strict=True)]
        trainer.advance()  # draws the same responses again
        progress(f"calibrate: {trainer.step}/{run.steps // 2}")
    return log_ratio, largest_tv, largest_kl


def compare(
    preset: Preset, start: Start, folder: Path, progress: Progress = print, *, logs: Path | None = None
) -> pd.DataFrame:
    """Make every run of a preset that is not done yet, all methods of a seed first; one row for each step of each run.

    With ``logs``, the first seed of each method leaves a log there.
    """
    rows: list[dict[str, Any]] = []
    for seed in preset.seeds:
        for method in preset.methods:
            run = replace(preset.run, method=method, seed=seed)
            trainer = Trainer(run, start)
            done = train(trainer, folder / f"{method}-{seed}", progress)
            rows += [{"method": method, "seed": seed, **row} for row in done]
            if logs is not None and seed == preset.seeds[0] and not (logs / f"{method}.parquet").exists():
                trainer.log(logs / f"{method}.parquet")
    return pd.DataFrame(rows)


def finished(folder: Path, preset: Preset) -> pd.DataFrame:
    """Return the rows of a preset's runs that have reached their end."""
    parts = []
    for method, seed in product(preset.methods, preset.seeds):
        path = folder / f"{method}-{seed}" / "metrics.jsonl"
        rows = read_rows(path)
        if len(rows) == preset.run.steps:
            parts += [{"method": method, "seed": seed, **row} for row in rows]
    if not parts:
        raise ValueError(f"{folder} holds no finished run of this preset")
    return pd.DataFrame(parts)


def step_zero(preset: Preset, start: Start) -> pd.DataFrame:
    """Return the score that every run starts from, as one row for each of them."""
    model = new_model(start.task, shape_of(start.base))
    model.load_state_dict(start.base)
    first = score(model, start.task, preset.run.held_out)
    runs = product(preset.methods, preset.seeds)
    return pd.DataFrame([{"method": m, "seed": s, "step": 0, "score": first} for m, s in runs])


#: What the table shows of the second half of a run: column, and the range that it lies in.
_SHOWN = {
    "score": (0.0, 1.0),
    "log_ppl_abs_diff": (0.0, math.inf),
    "kl_seq": (0.0, math.inf),
    "worst_case_error": (0.0, math.inf),
    "acceptance": (0.0, 1.0),
}


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum up by method, with t-intervals over seeds: last score, its difference to token IS, means of the second half.

    The difference is taken seed by seed: a seed draws the same prompts for every method.
    """
    half = rows[rows["step"] > rows["step"].max() / 2].sort_values("step")
    by_run = half.groupby(["method", "seed"])[list(_SHOWN)].mean()
    by_run["score"] = half.groupby(["method", "seed"])["score"].last()
    table = []
    for method in (m for m in METHODS if m in set(rows["method"])):
        part = by_run.loc[method]
        row: dict[str, Any] = {"method": method, "seeds": len(part)}
        for name, (low, high) in _SHOWN.items():
            row |= _interval(name, part[name], low, high)
        if method != "token-is" and "token-is" in set(rows["method"]):
            row |= _interval("gain", (part["score"] - by_run.loc["token-is"]["score"]).dropna(), -1.0, 1.0)
        table.append(row)
    return pd.DataFrame(table)


def _interval(name: str, values: pd.Series[float], low: float, high: float) -> dict[str, float]:
    found = student_t(values.to_numpy(dtype=float), CONFIDENCE, low=low, high=high)
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


#: What lab/real_engine.py calls the methods whose form is TRL's.
IN_TRL = {"clip": "weights within [0.8, 1.28]"}


def as_text(table: pd.DataFrame, called: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the summary as a Markdown table; ``called`` renames methods."""
    titles = {"score": "score", "gain": "score - token IS", "log_ppl_abs_diff": "PPL gap"}
    titles |= {n: n for n in ("kl_seq", "worst_case_error", "acceptance")}
    titles = {name: title for name, title in titles.items() if name in table}
    lines = [f"| method | seeds | {' | '.join(titles.values())} |", "|---" * (len(titles) + 2) + "|"]
    for row in table.to_dict("records"):
        cells = [_cell(row, name) for name in titles]
        lines.append(
            f"| {called.get(row['method'], METHODS[row['method']].title)} | {row['seeds']} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name, math.nan)
    return "" if math.isnan(value) else f"{value:.3g} ({row[name + '_low']:.3g} to {row[name + '_high']:.3g})"
