r"""The masks of trainers, from their own option names, in the form of :mod:`bounds.masks.mask`.

Read from the trainers' sources, snapshots of 2026; pi is their training (old) policy, mu the rollout policy, d = log
pi - log mu. All compare with closed ranges, keep where low <= x <= high, so ours are closed too.

===============  ======================================================  ==============================================
trainer          where                                                   what is compared
===============  ======================================================  ==============================================
verl             trainer/ppo/rollout_corr_helper.py, b178a3cd5           k1 = log(mu/pi) with logs of its bounds; one
                                                                         number U for k1 means 1/U to U
slime            examples/train_infer_mismatch_helper/mis.py, 624b824a8  pi/mu; rs bounds default to tis bounds; veto:
                                                                         any pi/mu < threshold drops the response
TRL              trainer/grpo_trainer.py, f2cd57710                      pi/mu; "sequence" is the product
SkyRL            utils/off_policy_correction_utils.py, a9564572e         pi/mu; outlier_token drops the response
NeMo-RL          algorithms/loss/loss_functions.py, grpo.py, 7ea279abf   pi/mu; mean of exp\|d\| <= threshold
prime-rl         trainer/rl/loss.py, 559b44772                           pi - mu; advantage > 0: the upper end counts,
                                                                         else the lower
ms-swift         rlhf_trainers/grpo_trainer.py, 3602360a5                pi/mu <= threshold; "sequence" is the geometric
                                                                         mean
===============  ======================================================  ==============================================

verl and ms-swift clamp d of each token to +-20 before they pool, slime and SkyRL clamp what they compare.
We clamp nothing: a response with \|d\| > 20 somewhere may be kept by verl or ms-swift and dropped here. Ratios are
compared by their logarithms here, in float64, and mostly as float32 ratios there: rounding decides at a threshold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bounds._checks import parse_number, unknown
from bounds.masks.statistics import exact_text

_OPTION = re.compile(r"(?:^|[\s,;])-{0,2}(?P<name>[A-Za-z_][\w.-]*)\s*=")
_LEVELS = {"token": "token_ratio", "sequence": "seq_product_ratio", "geometric": "seq_geometric_ratio"}
_VERL = tuple(
    [f"token_k{k}" for k in (1, 2, 3)]
    + [f"seq_{pool}_k{k}" for pool in ("sum", "mean") for k in (1, 2, 3)]
    + ["seq_max_k2", "seq_max_k3"]
)


def options_of(text: str) -> dict[str, str]:
    """Read options as people paste them: ``NAME=VALUE`` with commas or blanks between, values may hold commas.

    >>> options_of("algorithm.rollout_correction.rollout_rs=seq_max_k2,seq_mean_k3 rollout_rs_threshold='0.1,0.002'")
    {'rollout_rs': 'seq_max_k2,seq_mean_k3', 'rollout_rs_threshold': '0.1,0.002'}
    """
    found = list(_OPTION.finditer(text))
    if not found or text[: found[0].start()].strip():
        raise ValueError(f"a trainer's mask must be TRAINER:OPTION=VALUE ..., got options {text.strip()!r}")
    ends = [*(m.start() for m in found[1:]), len(text)]
    values = [text[m.end() : end].strip(" \t\n,;\"'") for m, end in zip(found, ends, strict=True)]
    names = [m["name"].rsplit(".", 1)[-1].replace("-", "_") for m in found]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"option {twice[0]} is given twice")
    return dict(zip(names, values, strict=True))


def in_own_form(trainer: str, options: Mapping[str, Any]) -> str:
    """Write the criteria that a trainer applies, as text; options that are unknown or drop nothing are refused."""
    taken = _Options(trainer, options)
    criteria = TRAINERS[trainer](taken)
    taken.refuse_the_rest()
    if not criteria:
        raise ValueError(f"these options of {trainer} drop and truncate nothing (they may be: {taken.known})")
    return ",".join(criteria)


class _Options:
    """Options of one trainer: what is asked for is known, and what is left over at the end is not."""

    def __init__(self, trainer: str, options: Mapping[str, Any]) -> None:
        self._trainer = trainer
        self._given = {name: _text(value) for name, value in options.items()}
        self._asked: list[str] = []

    @property
    def known(self) -> str:
        return ", ".join(dict.fromkeys(self._asked))

    def text(self, name: str, default: str | None = None) -> str | None:
        self._asked.append(name)
        return self._given.get(name, default)

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.text(name, None if default is None else exact_text(default))
        return None if value is None else self.parsed(name, value)

    def parsed(self, name: str, value: str) -> float:
        try:
            return parse_number(value)
        except ValueError as error:
            raise ValueError(f"{self._trainer}: {name} {error}") from None

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str | None:
        value = self.text(name, default)
        if value is not None and value not in choices:
            raise ValueError(f"{self._trainer}: {unknown(name, value, choices)}")
        return value

    def refuse_the_rest(self) -> None:
        for name in self._given:
            if name not in self._asked:
                raise ValueError(unknown(f"option of {self._trainer}", name, dict.fromkeys(self._asked)))


def _text(value: Any) -> str | None:
    """Return a value as typed; nothing, none and null are None, a Python list is a comma."""
    if isinstance(value, list | tuple):
        value = ",".join(str(_text(v)) for v in value)
    text = exact_text(value) if isinstance(value, float) else str(value).strip()
    return None if value is None or text.lower() in ("", "none", "null") else text


def _between(name: str, low: float | None, high: float | None) -> str:
    """Write that a ratio must lie between both ends, or beyond the one that is given."""
    if high is None:
        if low is None:
            raise ValueError(f"a bound on {name} is missing")
        return f"{name}>={exact_text(low)}"
    return f"{name}<={exact_text(high)}" if low is None else f"{name}={exact_text(low)}_{exact_text(high)}"


def _of_level(level: str | None, low: float | None, high: float | None, *, clips: bool = False) -> list[str]:
    """Write the rule of a level that was chosen; no rule without one."""
    return [] if level is None else [_between("clip_" * clips + _LEVELS[level], low, high)]


def _of_mode(mode: str | None, low: float | None, high: float | None, sequence: str = "sequence") -> list[str]:
    """Write the rule of a mode such as sequence_mask or token_truncate; ``sequence`` is what it calls so."""
    level, _, action = (mode or "").partition("_")
    of = {"sequence": sequence, "token": "token"}.get(level)
    return _of_level(of, low, high, clips=action == "truncate")


def _verl(o: _Options) -> list[str]:
    criteria = []
    names = list(dict.fromkeys(n.strip() for n in (o.text("rollout_rs") or "").split(",") if n.strip()))
    thresholds = [t.strip() for t in (o.text("rollout_rs_threshold") or "").split(",") if t.strip()]
    if names and len(thresholds) not in (1, len(names)):
        raise ValueError(
            f"verl: rollout_rs_threshold must hold one threshold for all or one for each of the {len(names)} "
            f"values of rollout_rs, got {len(thresholds)}"
        )
    for name, given in zip(names, thresholds * (len(names) if len(thresholds) == 1 else 1), strict=True):
        if name not in _VERL:
            raise ValueError(f"verl: {unknown('rollout_rs', name, _VERL)}")
        criteria.append(f"{name}={_k1_bounds(o, given)}" if name.endswith("k1") else f"{name}<={given}")
    cap = o.number("rollout_is_threshold", 2.0)
    return criteria + _of_level(o.choice("rollout_is", ("token", "sequence")), None, cap, clips=True)


def _k1_bounds(o: _Options, given: str) -> str:
    """Read LOW_HIGH as verl does, or one number for the same factor either way (one below 1 cannot be meant)."""
    if "_" in given:
        return given
    value = o.parsed("rollout_rs_threshold", given)
    return f"{exact_text(1.0 / value)}_{exact_text(value)}" if value > 1.0 else given


def _slime(o: _Options) -> list[str]:
    tis_high = o.number("tis_upper_bound", 2.0) or 2.0
    tis_low = o.number("tis_lower_bound", 1.0 / tis_high)
    mode = o.choice("tis_mode", ("truncate", "clip", "mask"))
    level = o.choice("tis_level", tuple(_LEVELS), "token") or "token"
    rs_level, veto = o.choice("rs_level", tuple(_LEVELS)), o.number("rs_veto_threshold")
    low, high = o.number("rs_lower_bound", tis_low), o.number("rs_upper_bound", tis_high)
    return [
        *_of_level(level if mode else None, None if mode == "truncate" else tis_low, tis_high, clips=mode != "mask"),
        *_of_level(rs_level, low, high),
        *([] if veto is None else [_between("seq_min_ratio", veto, None)]),
    ]


_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def _trl(o: _Options) -> list[str]:
    mode = o.choice("vllm_importance_sampling_mode", _MODES, "sequence_mask") or "sequence_mask"
    low, high = (o.number(f"vllm_importance_sampling_clip_{end}", own) for end, own in (("min", None), ("max", 3.0)))
    older = o.number("vllm_importance_sampling_cap")
    return _of_mode(mode, low, high if older is None else older)


def _skyrl(o: _Options) -> list[str]:
    metric = o.choice("sequence_mask_metric", ("product", "geometric"))
    product = o.number("product_mask_low", 0.5), o.number("product_mask_high", 2.0)
    geometric = o.number("geo_mask_low", 0.99), o.number("geo_mask_high", 1.01)
    token = o.number("token_mask_is_threshold_low"), o.number("token_mask_is_threshold_high")
    masks_tokens = None not in token
    if masks_tokens and metric is not None:
        raise ValueError(
            "skyrl: with token_mask_is_threshold_* the sequence mask is computed over the tokens that are left, "
            "which is not offered here; ask for one of them"
        )
    low, high = (o.number(f"outlier_token_is_threshold_{end}") for end in ("low", "high"))
    ratio = o.choice("tis_ratio_type", ("token", "sequence"))
    caps = {"token": o.number("token_tis_ratio_clip_high", 2.0)}
    caps["sequence"] = o.number("sequence_tis_ratio_clip_high", 5.0)
    return [
        *([] if low is None else [_between("seq_min_ratio", low, None)]),
        *([] if high is None else [_between("seq_max_ratio", None, high)]),
        *_of_level("token" if masks_tokens else None, *token),
        *_of_level("sequence" if metric == "product" else metric, *(product if metric == "product" else geometric)),
        *_of_level(ratio, None, caps.get(ratio or ""), clips=True),
    ]


def _nemo_rl(o: _Options) -> list[str]:
    error = o.number("seq_logprob_error_threshold")
    criteria = [] if error is None else [f"seq_mean_mult_prob_error<={exact_text(error)}"]
    kind = o.choice("truncated_importance_sampling_type", ("tis", "icepop", "seq-mask-tis"))
    low, high = (o.number(f"truncated_importance_sampling_ratio{end}") for end in ("_min", ""))
    by_sequence = (o.text("sequence_level_importance_ratios") or "false").lower() == "true"
    if kind is None:
        return criteria
    if high is None or (low is None and kind != "tis"):
        raise ValueError(f"nemo-rl: {kind} needs truncated_importance_sampling_ratio (and _min, but for tis)")
    level = "geometric" if kind == "seq-mask-tis" else "sequence" if by_sequence else "token"
    return criteria + _of_level(level, low or None, high, clips=kind == "tis")


def _prime_rl(o: _Options) -> list[str]:
    kind = o.choice("type", ("default", "ipo"), "default")
    low, high = o.number("dppo_mask_low", 0.2) or 0.0, o.number("dppo_mask_high", 0.2) or 0.0
    both = o.number("ipo_threshold", 0.1) or 0.0
    return [_between("token_shift", -both, both) if kind == "ipo" else _between("token_shift_by_advantage", -low, high)]


def _ms_swift(o: _Options) -> list[str]:
    cap = o.number("rollout_importance_sampling_threshold", 2.0)
    return _of_mode(o.choice("rollout_importance_sampling_mode", _MODES), None, cap, sequence="geometric")


#: Trainer -> its rule.
TRAINERS: Mapping[str, Callable[[_Options], list[str]]] = {
    "verl": _verl,
    "slime": _slime,
    "trl": _trl,
    "skyrl": _skyrl,
    "nemo-rl": _nemo_rl,
    "prime-rl": _prime_rl,
    "ms-swift": _ms_swift,
}
