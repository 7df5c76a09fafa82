"""A trainer's scalars, which are no log: what each is, and what it would mean as a guarantee."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bounds._text import near, shown
from bounds.logs.decode import opened
from bounds.rules.profile import Profile
from bounds.rules.unified import rule

#: Tokens of a response, where the file does not say how long they are.
_LENGTH = 4096
_LENGTHS = ("response_length/mean", "completions/mean_length", "rollout/response_lengths", "mean_gen_tokens_per_sample")
_SHOWN = 3

#: What ends the name of a scalar -> what it is; those that start so are means over tokens of a divergence in nats.
_KL = "a mean over tokens of "
SCALARS: Mapping[str, str] = MappingProxyType(
    {
        "rollout_corr/kl": _KL + "k1, which may cancel",
        "rollout_corr/k3_kl": _KL + "k3",
        "rollout_corr/chi2_token": "a mean over tokens of rho^2 - 1, of log-ratios cut at 20",
        "rollout_corr/chi2_seq": "a mean over responses of P^2 - 1, of log-ratios cut at 20: at most what chi2 is",
        "rollout_corr/log_ppl_abs_diff": "a mean over responses of |mean d|: a response's own tokens cancel",
        "rollout_probs_diff_mean": "a mean over tokens of |theta - roll| at the sampled token, a lower limit of 2 TV",
        "sampling_logp_difference/mean": "a mean over tokens of |d|",
        "sampling_logp_difference/max": "the largest |d| that was sampled, no supremum",
        "importance_sampling_ratio/mean": "a mean of rho, which says nothing of how far single responses are off",
        "train_rollout_logprob_abs_diff": "a mean over tokens of |d|",
        "train_rollout_kl": _KL + "k3, of log-ratios cut at 10",
        "mismatch_kl": _KL + "k3",
        "gen_kl_error": _KL + "k3",
        "policy_kl_error": _KL + "k3, the other way",
        "token_mult_prob_error": "a mean over tokens of exp |d|",
        "rollout_train_logprobs_abs_diff_mean": "a mean over tokens of |d|",
        "vllm_kl": _KL + "k3",
        "kl_sample_train_v1": _KL + "k1, which may cancel",
        "kl_sample_train_v2": _KL + "k2, half the squared d",
        "behave_approx_kl": _KL + "k1, which may cancel",
    }
)


def meaning(name: str) -> str | None:
    """Return what a scalar is, by the end of its name; None for another."""
    return next(
        (
            what
            for known, what in SCALARS.items()
            if name == known or name.endswith(f"/{known}") or name.endswith(f" {known}")
        ),
        None,
    )


def explained(path: Path) -> str:
    """Say of a file of scalars what it is, what some of them mean, and what to log."""
    last: dict[str, float] = {}
    for row in _rows(path):
        last |= {name: float(v) for name, v in row.items() if isinstance(v, int | float) and math.isfinite(v)}
    length = next((v for name, v in last.items() if name.endswith(_LENGTHS) and v >= 1.0), None)
    known = [(name, value, what) for name, value in last.items() if (what := meaning(name)) is not None]
    known.sort(key=lambda each: not each[2].startswith(_KL))
    said = [f"{name} = {near(value)} is {what}{_bound(value, what, length)}" for name, value, what in known[:_SHOWN]]
    return (
        f"these are a trainer's scalars, no log: {'; '.join(said) or 'none of them compares the two policies'}. A mean "
        "without its responses has no interval and guarantees nothing: log both policies' log-probs of each token "
        "(trm-bounds formats says how for each trainer)"
    )


def _bound(value: float, what: str, length: float | None) -> str:
    """Say what a mean over tokens would be for a response, and what that bounds."""
    if not what.startswith(_KL):
        return ""
    tokens = _LENGTH if length is None else length
    total = abs(value) * tokens
    found = rule("trajectory_kl").value(Profile(T=max(math.ceil(tokens), 1), kl_seq=total))
    how_long = "if they have that many" if length is None else "their mean length here"
    bound = "which bounds nothing" if found > 1.0 else f"at which |Error| would be at most {shown(found)}"
    return f", so {near(total)} nats a response of {near(tokens)} tokens ({how_long}), {bound}"


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of JSON lines (verl's stand under ``data``), or of a table; what is damaged is left out."""
    with opened(path) as file:
        texts = (line.decode("utf-8-sig", "replace") for line in file)
        first = next(texts, "")
        if not first.lstrip().startswith("{"):
            for cells in csv.DictReader([first, *texts]):
                yield {str(name): _number(text) for name, text in cells.items()}
            return
        for text in (first, *texts):
            try:
                row = json.loads(text)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row["data"] if isinstance(row.get("data"), dict) else row


def _number(text: Any) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
