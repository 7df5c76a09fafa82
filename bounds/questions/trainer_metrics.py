"""The scalars of one trainer, under its own names and as it computes them: clamped where it clamps.

A trainer logs one number for each batch, averaged over its processes and micro-batches; here the responses of the log
are one batch. What a trainer takes from its options has their defaults, as the notes say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bounds._checks import BoolArray, FloatArray, unknown
from bounds._text import Cells, many
from bounds.certificate.findings import Finding, findings
from bounds.certificate.summary import Summary
from bounds.logs.traces import TraceSet
from bounds.results import IntervalTable, Result

_CLAMP = 20.0
_CAPPED = "d clamped to +-20, then k3 to 10"
_IS = "with rollout_is=token, rollout_is_threshold=2"
_TRUNCATE = "with rollout_importance_sampling_mode=token_truncate, threshold 2"
_SEQUENCE_MASK = "with vllm_importance_sampling_mode=sequence_mask, clip_max=3"


@dataclass(frozen=True, slots=True)
class Scalar:
    """What a trainer shows: its ``value`` from a summary that has ``needs``, what it is, and a note."""

    value: Callable[[Summary], float]
    needs: tuple[str, ...]
    meaning: str
    note: str = ""


def _mean(name: str) -> Callable[[Summary], float]:
    return lambda s: float(s[name].sum() / s["length"].sum())


def _tokens(token: str, meaning: str, note: str = "") -> Scalar:
    """Return the mean of a number over all tokens."""
    return Scalar(_mean(f"{token}_sum"), (f"{token}_sum",), f"token mean of {meaning}", note)


def _samples(token: str, meaning: str, note: str = "") -> Scalar:
    """Return the mean over responses of the mean of a number over their tokens."""
    name = f"{token}_sum"
    return _responses(lambda s: s[name] / s["length"], f"their token means of {meaning}", name, note=note)


def _responses(
    values: Callable[[Summary], FloatArray | BoolArray], meaning: str, *needs: str, note: str = "", pool: str = "mean"
) -> Scalar:
    """Return the mean (or another pool) over responses of a number of each."""
    pools: Mapping[str, Callable[[Any], float]] = {"mean": np.mean, "max": np.max, "min": np.min, "std": _std}
    return Scalar(lambda s: float(pools[pool](values(s))), needs, f"{pool} over responses of {meaning}", note)


def _std(values: FloatArray) -> float:
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0


def _end(token: str, pool: str, meaning: str, note: str = "") -> Scalar:
    """Return the largest or the smallest of a number over all tokens."""
    name = f"{token}_{pool}"
    ends: Mapping[str, Callable[[FloatArray], float]] = {"max": np.max, "min": np.min}
    return Scalar(lambda s: float(ends[pool](s[name])), (name,), f"{pool} over tokens of {meaning}", note)


def _deviation(token: str, meaning: str, note: str = "", *, sample: bool = True) -> Scalar:
    """Return the standard deviation over all tokens, of a sample or not."""
    first, second = f"{token}_sum", f"{token}_square_sum"

    def value(s: Summary) -> float:
        n = float(s["length"].sum())
        variance = max(_mean(second)(s) - _mean(first)(s) ** 2, 0.0)
        return float(np.sqrt(variance * (n / max(n - 1.0, 1.0) if sample else 1.0)))

    return Scalar(value, (first, second), f"standard deviation over tokens of {meaning}", note)


def _effective(token: str, meaning: str, note: str) -> Scalar:
    """Return the effective sample size of weights, as a share: (mean of w)^2 / mean of w^2."""
    first, second = f"{token}_sum", f"{token}_square_sum"
    return Scalar(
        lambda s: _mean(first)(s) ** 2 / _mean(second)(s),
        (first, second),
        f"(mean)^2 / mean square of {meaning}",
        note,
    )


def _correlation(s: Summary) -> float:
    p, q, pp, qq, pq = (_mean(f"{name}_sum")(s) for name in _PAIR)
    return float((pq - p * q) / np.sqrt((pp - p * p) * (qq - q * q)))


_PAIR = (
    "rollout_probability", "train_probability", "rollout_probability_square", "train_probability_square",
    "probability_product",
)  # fmt: skip


def _count(criterion: str, meaning: str, note: str = "") -> Scalar:
    """Return the share of tokens that a criterion of masks counts."""
    return Scalar(_mean(criterion), (criterion,), f"share of tokens with {meaning}", note)


def _ppl(s: Summary, policy: str) -> FloatArray:
    return np.asarray(np.exp(-s[f"{policy}_sum"] / s["length"]))


def _gap(s: Summary) -> FloatArray:
    """Return the mean of -d over each response."""
    return np.asarray(-s["log_ratio_sum"] / s["length"])


def _chi2(log_ratio: FloatArray) -> FloatArray:
    return np.asarray(np.expm1(2.0 * np.clip(log_ratio, -_CLAMP, _CLAMP)))


def _masked_product(s: Summary) -> FloatArray:
    product = np.exp(s["log_ratio_sum"])
    return np.where(product > 3.0, 0.0, product)


_KL = Scalar(lambda s: -_mean("log_ratio_sum")(s), (), "token mean of -d", "KL(mu||pi) by k1")
_K3 = Scalar(_mean("k3_sum"), (), "token mean of exp(d) - 1 - d", "KL(mu||pi) by k3")
_ABS = "|d|"

#: What verl, ms-swift and slime's helper name alike, before their prefix, but for k3_kl and chi2_seq.
_OFF_POLICY = {
    "training_ppl": _responses(lambda s: _ppl(s, "train"), "exp(-mean log pi)", "train_sum"),
    "training_log_ppl": _samples("train_minus", "-log pi"),
    "kl": _KL,
    "rollout_ppl": _responses(lambda s: _ppl(s, "rollout"), "exp(-mean log mu)", "rollout_sum"),
    "rollout_log_ppl": _samples("rollout_minus", "-log mu"),
    "log_ppl_diff": _responses(_gap, "mean of -d"),
    "log_ppl_abs_diff": _responses(lambda s: np.abs(_gap(s)), "|mean d|", note="the paper's PPL gap"),
    "ppl_ratio": _responses(lambda s: np.exp(_gap(s)), "exp(-mean d)"),
    "chi2_token": _tokens("chi2_clamped", "exp(2d) - 1", "d clamped to +-20"),
}
_ENDS = {f"log_ppl_diff_{pool}": _responses(_gap, "mean of -d", pool=pool) for pool in ("max", "min")}
_CHI2_SEQ = _responses(lambda s: _chi2(s["log_ratio_sum"]), "exp(2 sum d) - 1", note="sum of d clamped to +-20")


def _weights(s: Summary) -> FloatArray:
    """Return the mean weight of each response, min(rho, 2)."""
    return np.asarray(s["weight_sum"] / s["length"])


def _raw_weights(s: Summary) -> FloatArray:
    return np.asarray(s["ratio_clamped_sum"] / s["length"])


_DPPO = ("token_shift_by_advantage<-0.2", "token_shift_by_advantage>0.2")


def _masked(meaning: str, *, low: bool, high: bool) -> Scalar:
    """Return the mean over responses of the share of tokens that prime-rl's mask drops; NaN without rewards."""

    def value(s: Summary) -> float:
        if s.advantage is None:
            return float("nan")
        below, above = (s[name] / s["length"] for name in _DPPO)
        rising = s.advantage > 0.0
        falling = s.advantage < 0.0 if not (low and high) else ~rising
        return float(np.mean(np.where(rising & high, above, 0.0) + np.where(falling & low, below, 0.0)))

    said = "dppo_mask_low=dppo_mask_high=0.2; the reward minus its prompt's mean stands for the advantage"
    return Scalar(value, _DPPO, f"mean over responses of the share of tokens {meaning}", said)


_W = "min(rho, 2)"
_VERL_IS = {
    "mean": _tokens("weight", _W, _IS),
    "max": _end("weight", "max", _W, _IS),
    "min": _end("weight", "min", _W, _IS),
    "std": _deviation("weight", _W, _IS, sample=False),
    "eff_sample_size": _effective("weight", _W, _IS),
    "ratio_fraction_high": _count("token_ratio>2", "rho > 2", _IS),
    "ratio_fraction_low": _count("token_ratio<0.5", "rho < 1/2", _IS),
    **{f"seq_{pool}": _responses(_weights, f"mean {_W}", "weight_sum", note=_IS, pool=pool)
       for pool in ("mean", "std", "max", "min")},
    "seq_max_deviation": _responses(lambda s: np.abs(_weights(s) - 1.0), f"|mean {_W} - 1|", "weight_sum", note=_IS,
                                    pool="max"),
    "seq_fraction_high": _responses(lambda s: _raw_weights(s) > 2.0, "mean rho > 2", "ratio_clamped_sum", note=_IS),
    "seq_fraction_low": _responses(lambda s: _raw_weights(s) < 0.5, "mean rho < 1/2", "ratio_clamped_sum", note=_IS),
}  # fmt: skip
_PROBABILITIES = "|exp(log pi) - exp(log mu)|"
_SAMPLED = "a response is a rollout, calculate_per_token_loss off"
_TRL_RATIO = "the product of rho, 0 above 3"

#: Trainer -> name on its dashboard -> scalar, with d = log pi - log mu of a sampled token and rho = exp(d).
TRAINER_METRICS: Mapping[str, Mapping[str, Scalar]] = {
    "verl": {
        **{f"rollout_corr/{name}": scalar for name, scalar in {**_OFF_POLICY, **_ENDS}.items()},
        "rollout_corr/k3_kl": _K3,
        "rollout_corr/chi2_seq": _CHI2_SEQ,
        **{f"rollout_corr/rollout_is_{name}": scalar for name, scalar in _VERL_IS.items()},
        "training/rollout_probs_diff_max": _end("probability_gap", "max", _PROBABILITIES),
        "training/rollout_probs_diff_mean": _tokens("probability_gap", _PROBABILITIES),
        "training/rollout_probs_diff_std": _deviation("probability_gap", _PROBABILITIES),
        "training/rollout_actor_probs_pearson_corr": Scalar(
            _correlation, tuple(f"{name}_sum" for name in _PAIR), "correlation over tokens of exp(log pi), exp(log mu)"
        ),
    },
    "trl": {
        "sampling/sampling_logp_difference/mean": _tokens("log_ratio_abs", _ABS),
        "sampling/sampling_logp_difference/max": _end("log_ratio_abs", "max", _ABS),
        **{f"sampling/importance_sampling_ratio/{pool}": _responses(_masked_product, _TRL_RATIO, note=_SEQUENCE_MASK,
                                                                   pool=pool)
           for pool in ("min", "mean", "max")},
    },
    "nemo-rl": {
        "token_mult_prob_error": _tokens("mult_prob_error", "exp|d|"),
        "gen_kl_error": Scalar(_K3.value, (), _K3.meaning, "with reference_policy_kl_type=k3"),
        "policy_kl_error": _tokens("k3_inverse", "exp(-d) - 1 + d", "with reference_policy_kl_type=k3"),
        "js_divergence_error": _tokens("js", "half the sum of k3 of pi and of mu to their mixture"),
        "sampling_importance_ratio": _tokens("ratio", "rho", "of tokens; what overflows counts 0"),
    },
    "slime": {
        "train_rollout_logprob_abs_diff": _samples("log_ratio_abs", _ABS, _SAMPLED),
        "tis": _samples("ratio", "rho", "with use_tis"),
        "tis_abs": _samples("ratio_deviation", "|rho - 1|", "with use_tis"),
        "tis_clipfrac": _responses(lambda s: s["token_ratio>2"] / s["length"], "share of tokens with rho > 2",
                                   "token_ratio>2", note="with use_tis, tis_clip=2"),
        **{f"mis_{name}": Scalar(scalar.value, scalar.needs, scalar.meaning, "examples/train_infer_mismatch_helper")
           for name, scalar in _OFF_POLICY.items() if name not in ("kl", "chi2_token")},
        "mis_kl": _responses(_gap, "their token means of -d"),
        "mis_k3_kl": _responses(lambda s: s["k3_sum"] / s["length"], "their token means of exp(d) - 1 - d"),
        "mis_chi2_token": _samples("chi2_clamped", "exp(2d) - 1", "d clamped to +-20"),
        "mis_chi2_seq": _CHI2_SEQ,
    },
    "miles": {
        "train_rollout_logprob_abs_diff": _samples("log_ratio_abs", _ABS, _SAMPLED),
        "train_rollout_kl": _samples("k3_capped", "exp(d) - 1 - d", f"{_SAMPLED}; {_CAPPED}"),
    },
    "skyrl": {
        "policy/rollout_train_logprobs_abs_diff_mean": _tokens("log_ratio_abs", _ABS),
        "policy/rollout_train_logprobs_abs_diff_std": _deviation("log_ratio_abs", _ABS),
        "policy/rollout_train_logprobs_abs_diff_min": _end("log_ratio_abs", "min", _ABS),
        "policy/rollout_train_logprobs_abs_diff_max": _end("log_ratio_abs", "max", _ABS),
    },
    "prime-rl": {
        "mismatch_kl/all/mean": _K3,
        "mismatch_kl/all/std": _deviation("k3", "exp(d) - 1 - d"),
        "mismatch_kl/all/min": _end("k3", "min", "exp(d) - 1 - d"),
        "mismatch_kl/all/max": _end("k3", "max", "exp(d) - 1 - d"),
        "is_masked/mean": _masked("that the mask drops", low=True, high=True),
        "is_masked_low/mean": _masked("with pi - mu < -0.2, advantage below 0", low=True, high=False),
        "is_masked_high/mean": _masked("with pi - mu > 0.2, advantage above 0", low=False, high=True),
    },
    "openrlhf": {"vllm_kl": _KL},
    "tinker": {
        "optim/kl_sample_train_v1": _KL,
        "optim/kl_sample_train_v2": _tokens("k2", "d^2/2"),
        "optim/entropy": _tokens("rollout_minus", "-log mu"),
    },
    "ms-swift": {
        **{f"rollout_correction/{name}": scalar for name, scalar in {**_OFF_POLICY, **_ENDS}.items()},
        "rollout_correction/k3_kl": _tokens("k3_capped", "exp(d) - 1 - d", _CAPPED),
        "rollout_correction/chi2_seq": _responses(
            lambda s: _chi2(-_gap(s)), "exp(2 mean d) - 1", note="verl's has the sum; mean of d clamped to +-20"
        ),
        "rollout_correction/is_weight_mean": _tokens("weight", _W, _TRUNCATE),
        "rollout_correction/ess": _effective("weight_of_half", "rho within [1/2, 2]", _TRUNCATE),
        "rollout_correction/clipped_frac": _count("token_ratio>2", "rho > 2", _TRUNCATE),
    },
    "areal": {
        "behave_approx_kl/avg": Scalar(_mean("log_ratio_sum"), (), "token mean of d", "the other sign"),
        "behave_imp_weight/avg": _tokens("ratio", "rho", "without rejection_sampling"),
        "behave_imp_weight/min": _end("ratio", "min", "rho", "without rejection_sampling"),
        "behave_imp_weight/max": _end("ratio", "max", "rho", "without rejection_sampling"),
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleOfThumb:
    """A per-token KL below which a trainer calls a run healthy, and where it says so."""

    trainer: str
    name: str
    healthy: float
    source: str


#: What trainers call healthy; times the tokens of a response it is the KL that a bound needs.
RULES_OF_THUMB = (
    RuleOfThumb("miles", "train_rollout_kl", 1e-4, "docs/developer/debug.md, 31f1ca961"),
    RuleOfThumb("nemo-rl", "gen_kl_error", 1e-3, "docs/guides/grpo.md, 7ea279abf"),
    RuleOfThumb("tinker", "optim/kl_sample_train_v1", 1e-2, "skills/research/references/ops.md, 9dfcc3a2c"),
    RuleOfThumb("verl", "rollout_corr/kl", 0.1, "docs/algo/rollout_corr.md, b178a3cd5"),
)


@dataclass(frozen=True, slots=True)
class PublicRun:
    """A KL per token that somebody measured in a run and made public, and where."""

    run: str
    name: str
    kl: float
    source: str


#: What was seen in public runs: means over sampled tokens, without an interval.
PUBLIC_RUNS = (
    PublicRun(
        "Qwen3 1.7B, every kernel alike",
        "kl_div",
        0.0,
        "https://github.com/vllm-project/vllm-project.github.io/pull/113",
    ),
    PublicRun(
        "DeepSeek-V4, every kernel alike", "rollout_corr/k3_kl", 0.0, "https://github.com/verl-project/verl/pull/7688"
    ),
    PublicRun(
        "Qwen3.8-Flash-Next, BF16, LoRA",
        "rollout_corr/k3_kl",
        0.00165,
        "https://github.com/verl-project/verl/pull/7749",
    ),
    PublicRun("DeepSeek-V4, VeOmni", "rollout_corr/k3_kl", 0.0052, "https://github.com/verl-project/verl/pull/7242"),
    PublicRun(
        "a run that collapses, as read off a figure",
        "mismatch KL",
        1.0,
        "https://github.com/sail-sg/Precision-RL/issues/10",
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class TrainerMetrics(Result):
    """What one trainer would have shown.

    Attributes
    ----------
    trainer : str
        Whose names they are.
    metrics : IntervalTable
        Of each name its ``value``, what it ``is``, and a ``note`` on clamps and options.
    findings : tuple of Finding
        What is remarkable about the log.
    """

    trainer: str
    tokens: int
    responses: int
    metrics: IntervalTable
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> float:
        value = self.metrics.facts[name]["value"]
        assert isinstance(value, float)
        return value

    def sentence(self) -> str:
        """Return what they are of."""
        of = f"{many(self.tokens, 'token')}, {many(self.responses, 'response')}"
        return f"As {self.trainer} computes them, of {of} as one batch."

    def tables(self) -> list[Cells]:
        """Return one row for each name."""
        return [self.metrics.cells(facts={"value": "value", "is": "is", "note": "note"})]

    def notes(self) -> list[str]:
        """Return signs, and what has intervals."""
        return [
            "d = log pi - log mu of a sampled token (pi scores, mu sampled), rho = exp(d). A trainer averages over "
            "micro-batches and processes. Intervals, unclamped: trm-bounds metrics without --as."
        ]


def needs(trainer: str) -> tuple[str, ...]:
    """Return the statistics of responses that a trainer's scalars are made of; refuse an unknown trainer."""
    return tuple(dict.fromkeys(name for scalar in TRAINER_METRICS[_known(trainer)].values() for name in scalar.needs))


def _known(trainer: str) -> str:
    name = str(trainer).strip().lower().replace("_", "-")
    if name not in TRAINER_METRICS:
        raise ValueError(unknown("trainer", trainer, TRAINER_METRICS))
    return name


def trainer_metrics(log: TraceSet | Iterable[TraceSet] | Summary, trainer: str) -> TrainerMetrics:
    """Compute the scalars that a trainer logs, under its own names and as it computes them.

    Parameters
    ----------
    log : TraceSet, Log or Summary
        Logged responses: one batch.
    trainer : str
        One of :data:`bounds.questions.trainer_metrics.TRAINER_METRICS`.

    Returns
    -------
    TrainerMetrics

    Raises
    ------
    ValueError
        If the trainer is unknown.
    TraceError
        If there are no responses.

    Notes
    -----
    Where a trainer clamps, so does this, and the note says it. :func:`bounds.metrics` has intervals and no clamps.

    Examples
    --------
    >>> import bounds
    >>> shown = trainer_metrics(bounds.example_traces(), "nemo-rl")
    >>> round(shown["gen_kl_error"] - bounds.metrics(bounds.example_traces())["k3_kl"].value, 12)
    0.0
    """
    name = _known(trainer)
    summary = Summary.of(log, statistics=needs(name))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        facts = {
            label: {"value": scalar.value(summary), "is": scalar.meaning, "note": scalar.note}
            for label, scalar in TRAINER_METRICS[name].items()
        }
    table = IntervalTable("metric", {label: {} for label in facts}, facts)
    return TrainerMetrics(name, summary.tokens, len(summary), table, findings(summary))
