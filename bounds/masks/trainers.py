r"""The masks of trainers, from their own option names, in the form of :mod:`bounds.masks.mask`.

Read from the trainers' sources, snapshots and packages of 2026; pi is their training (old) policy, mu the rollout
policy, d = log pi - log mu. All compare with closed ranges, keep where low <= x <= high, so ours are closed too.

===============  ======================================================  ==============================================
trainer          where                                                   what is compared
===============  ======================================================  ==============================================
verl             trainer/ppo/rollout_corr_helper.py, core_algos.py,      k1 = log(mu/pi) with logs of its bounds; one
                 0.9.1                                                   number U for k1 means 1/U to U; rollout_is
                                                                         LOW_HIGH (IcePop) drops, one number truncates;
                                                                         loss_mode dppo_tv, dppo_kl: by the advantage
slime, miles     examples/train_infer_mismatch_helper/mis.py,            pi/mu; rs bounds default to tis bounds; veto:
                 backends/megatron_utils/loss.py, 624b824a8, 31f1ca961   any pi/mu < threshold drops the response;
                                                                         use_opsm: advantage < 0, mean -d > opsm_delta
TRL              trainer/grpo_trainer.py, 1.16;                          pi/mu; "sequence" is the product;
                 experimental/dppo, 06d22b6fe                            off_policy_mask_threshold as use_opsm;
                                                                         divergence_type: DPPO, by the advantage
SkyRL            utils/off_policy_correction_utils.py, a9564572e         pi/mu; outlier_token drops the response
NeMo-RL          algorithms/loss/loss_functions.py, grpo.py, 7ea279abf   pi/mu; mean of exp\|d\| <= threshold
prime-rl         trainer/rl/loss.py, 559b44772                           pi - mu; advantage > 0: the upper end counts,
                                                                         else the lower
ms-swift         rlhf_trainers/grpo_trainer.py, 4.6                      pi/mu <= threshold; "sequence" is the geometric
                                                                         mean; off_policy_sequence_mask_delta as
                                                                         use_opsm
OpenRLHF         models/loss.py, 0.11.2                                  pi/mu ("seq": the geometric mean), or binary_kl
                                                                         and tv of the token ("seq": the mean); clip
                                                                         truncates
AReaL            utils/functional/functional.py, 1.0.4                   pi/mu, pooled in logs; kl_k1 = d, kl_k2,
                                                                         kl_k3 = exp(-d) - 1 + d
ROLL             utils/train_infer_corrections.py, 8eb27cc2d             pi/mu or pi - mu of a token, their mean
                                                                         (geometric), product or sum (sequence)
===============  ======================================================  ==============================================

verl and ms-swift clamp d of each token to +-20 before they pool, slime and SkyRL clamp what they compare.
We clamp nothing but the probabilities in binary_kl: a response with \|d\| > 20 somewhere may be kept by verl or ms-
swift and dropped here. Ratios are compared by their logarithms here, in float64, and mostly as float32 ratios there:
rounding decides at a threshold. The policy in the loss (verl's DPPO and bypass_mode, use_opsm without
use_rollout_logprobs, TRL from the second pass over a batch on) is not the one that scored the log: a log answers for
the policies that it holds.

What no log can answer is refused by name: the top-k divergences of DPPO (they need log-probs of k tokens at each place)
and ROLL's segments (a log keeps policy tokens only, not where a tool's output was).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from bounds._checks import parse_number, unknown
from bounds.masks.statistics import OFF_POLICY, exact_text

# NAME= as in Hydra; NAME: as in YAML, in a list or in braces; --NAME VALUE and --NAME as on a command line
_OPTION = re.compile(
    r"(?:^|(?<=[\s,;{(\[\]]))(?:(?P<item>-\s|\{)?\s*)(?:[-+]{0,2}(?P<name>[A-Za-z_][\w.\[\]-]*)(?:\s*(?P<sign>=)|:(?=\s|$))"
    r"|--(?P<flag>[A-Za-z_][\w.-]*)(?=\s|$))"
)
_PRESET = re.compile(r"(?:\w+\.)?(?P<name>\w+)(?:\(\s*\)?)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_AROUND = " \t\r\n,;\"'{}[]()"
_SECTIONS = ("is_weight", "filters")  # blocks whose options have the same names
_LEVELS = {"token": "token_ratio", "sequence": "seq_product_ratio", "geometric": "seq_geometric_ratio"}
_VERL = tuple(
    [f"token_k{k}" for k in (1, 2, 3)]
    + [f"seq_{pool}_k{k}" for pool in ("sum", "mean") for k in (1, 2, 3)]
    + ["seq_max_k2", "seq_max_k3"]
)


def options_of(text: str) -> dict[str, str]:
    """Read options as people paste them: ``NAME=VALUE`` with commas or blanks between, YAML, or a command line.

    Values may hold commas. Headings of blocks are left out, but for ROLL's ``is_weight`` and ``filters``, which then
    stand before the name. A preset of verl may stand first.

    >>> options_of("algorithm.rollout_correction.rollout_rs=seq_max_k2,seq_mean_k3 rollout_rs_threshold='0.1,0.002'")
    {'rollout_rs': 'seq_max_k2,seq_mean_k3', 'rollout_rs_threshold': '0.1,0.002'}
    >>> options_of("rejection_sampling: {level: sequence, upper: 2.0}"), options_of("--use-opsm --opsm-delta 1e-3")
    ({'level': 'sequence', 'upper': '2.0'}, {'use_opsm': 'true', 'opsm_delta': '1e-3'})
    """
    bare = "\n".join(_COMMENT.sub("", line) for line in text.splitlines()).strip()
    found = list(_OPTION.finditer(bare))
    before = bare[: found[0].start()] if found else bare
    first = _PRESET.fullmatch(before.strip(_AROUND))
    options: dict[str, str] = {}
    if first is not None and first["name"] in _PRESETS:
        options["preset"] = first["name"]
    elif not found or before.strip():
        raise ValueError(f"a trainer's mask must be TRAINER:OPTION=VALUE ..., got options {text.strip()!r}")
    section, item = "", 0
    ends = [*(m.start() for m in found[1:]), len(bare)]
    for m, end in zip(found, ends[: len(found)], strict=True):
        value = bare[m.end() : end].strip(_AROUND).removesuffix("\n-").rstrip(_AROUND)
        parts = (m["name"] or m["flag"]).replace("-", "_").replace("[", ".").replace("]", "").split(".")
        block = next((part for part in parts[:-1] if part in _SECTIONS), "")
        if not value and not m["flag"] and (m["sign"] is None or "{" in bare[m.end() : end]):
            section, item = parts[-1] if parts[-1] in _SECTIONS else "", 0
            continue
        item += m["item"] is not None
        name = parts[-1]
        if block == "filters":
            name = f"filters_{parts[-2]}_{name}"
        elif (block or section) == "filters":
            name = f"filters_{max(item - 1, 0)}_{name}"
        elif block or section:
            name = f"is_weight_{name}"
        if name in options:
            raise ValueError(f"option {name} is given twice")
        options[name] = value or ("true" if m["flag"] else "")
    return options


@dataclass(frozen=True, slots=True)
class OwnForm:
    """What a trainer applies: criteria as text, options that are no part of a mask (NAME=VALUE).

    ``sure``: a mean divergence as large as a ratio is meant.
    """

    criteria: tuple[str, ...]
    aside: tuple[str, ...]
    sure: bool


def in_own_form(trainer: str, options: Mapping[str, Any]) -> OwnForm:
    """Return the criteria that a trainer applies; options that are unknown or drop nothing are refused."""
    taken = _Options(trainer, options)
    criteria = TRAINERS[trainer](taken)
    taken.refuse_the_rest()
    aside = taken.aside
    if not criteria:
        said = f"; {', '.join(aside)}: no part of a mask" if aside else ""
        raise ValueError(f"these options of {trainer} drop and truncate nothing (they may be: {taken.known}){said}")
    return OwnForm(tuple(criteria), aside, trainer == "areal")


class _Options:
    """Options of one trainer: what is asked for is known, and what is left over at the end is not."""

    def __init__(self, trainer: str, options: Mapping[str, Any]) -> None:
        self._trainer = trainer
        self._given = dict(_flat(options))
        self.asked: list[str] = []  # names, in the order in which they were asked for
        self.asides: list[str] = []

    @property
    def known(self) -> str:
        return ", ".join(dict.fromkeys(self.asked))

    def text(self, name: str, default: str | None = None) -> str | None:
        self.asked.append(name)
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

    def flag(self, name: str) -> bool | None:
        """Return whether a switch is on; None where it is not given."""
        value = self.choice(name, ("true", "false", "True", "False"))
        return None if value is None else value.lower() == "true"

    def preset(self, presets: Mapping[str, Mapping[str, str]]) -> None:
        """Take what a preset sets, where no option says otherwise; its own arguments have shorter names."""
        name = self.choice("preset", tuple(presets))
        if name is None:
            return
        shorter = {"threshold": "rollout_is_threshold"}
        shorter |= {argument: f"rollout_{argument}" for argument in ("is_threshold", "rs_threshold")}
        given = {shorter.get(key, key): value for key, value in self._given.items() if value is not None}
        self._given = {**presets[name], **given}

    def any_of(self, prefix: str) -> bool:
        """Whether an option is given whose name begins so."""
        return any(name.startswith(prefix) for name in self._given)

    def set_aside(self, *names: str) -> None:
        """Take options that are no part of a mask."""
        self.asked += names
        self.asides += names

    @property
    def aside(self) -> tuple[str, ...]:
        """Options that were given and are no part of a mask, NAME=VALUE."""
        return tuple(f"{n}={self._given[n]}" for n in self.asides if self._given.get(n) is not None)

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(f"{self._trainer}: {why}")

    def refuse_the_rest(self) -> None:
        for name in self._given:
            if name not in self.asked:
                raise ValueError(unknown(f"option of {self._trainer}", name, dict.fromkeys(self.asked)))


def _flat(options: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield names and texts; options of a block that is given as a mapping (or a list of them) as their own."""
    for name, value in options.items():
        blocks = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(block, Mapping) for block in blocks) or not blocks:
            yield name, _text(value)
            continue
        for i, block in enumerate(blocks):
            prefix = {"filters": f"filters_{i}_", "is_weight": "is_weight_"}.get(name, "")
            yield from ((prefix + inner, text) for inner, text in _flat(block))


def _text(value: Any) -> str | None:
    """Return a value as typed; nothing, none, null and ~ are None, a Python list is a comma."""
    if isinstance(value, list | tuple):
        value = ",".join(str(_text(v)) for v in value)
    text = exact_text(value) if isinstance(value, float) else str(value).strip()
    return None if value is None or text.lower() in ("", "none", "null", "~") else text


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


_BYPASS, _TOKEN_IS, _SEQ_IS = {"bypass_mode": "true"}, {"rollout_is": "token"}, {"rollout_is": "sequence"}
_ICEPOP = {**_TOKEN_IS, "rollout_is_threshold": "0.5_5"}
_GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.01"}
#: verl's presets, methods of RolloutCorrectionConfig: what they set.
_PRESETS: Mapping[str, Mapping[str, str]] = {
    "decoupled_token_is": _TOKEN_IS,
    "decoupled_seq_is": _SEQ_IS,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": {**_SEQ_IS, "rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2"},
    "decoupled_geo_rs": _GEO,
    "decoupled_geo_rs_seq_tis": {**_GEO, **_SEQ_IS},
    "decoupled_geo_rs_token_tis": {**_GEO, **_TOKEN_IS},
    "decoupled_k3_rs": _K3,
    "decoupled_k3_rs_seq_tis": {**_K3, **_SEQ_IS},
    "decoupled_k3_rs_token_tis": {**_K3, **_TOKEN_IS},
    "bypass_ppo_clip": _BYPASS,
    "bypass_ppo_clip_geo_rs": {**_GEO, **_BYPASS},
    "bypass_ppo_clip_k3_rs": {**_K3, **_BYPASS},
    "bypass_pg_is": {**_SEQ_IS, **_BYPASS},
    "bypass_pg_token_icepop": {**_ICEPOP, **_BYPASS},
    "bypass_pg_geo_rs": {**_GEO, **_BYPASS},
    "bypass_pg_geo_rs_seq_tis": {**_GEO, **_SEQ_IS, **_BYPASS},
    "bypass_pg_geo_rs_token_tis": {**_GEO, **_TOKEN_IS, **_BYPASS},
    "disabled": {},
}


def _verl(o: _Options) -> list[str]:
    o.preset(_PRESETS)
    o.set_aside("rollout_is_batch_normalize", "bypass_mode", "loss_type", "clip_ratio_c")
    criteria = _dppo(o, (o.choice("loss_mode", ("dppo_tv", "dppo_kl")) or "")[len("dppo_") :])
    names = list(dict.fromkeys(n.strip() for n in (o.text("rollout_rs") or "").split(",") if n.strip()))
    thresholds = [t.strip() for t in (o.text("rollout_rs_threshold") or "").split(",") if t.strip()]
    if names and len(thresholds) not in (1, len(names)):
        raise ValueError(
            f"verl: rollout_rs_threshold must hold one threshold for all or one for each of the {len(names)} "
            f"values of rollout_rs, got {len(thresholds)}"
        )
    for name, given in zip(names, thresholds * (len(names) if len(thresholds) == 1 else 1), strict=bool(names)):
        if name not in _VERL:
            raise ValueError(f"verl: {unknown('rollout_rs', name, _VERL)}")
        criteria.append(f"{name}={_k1_bounds(o, given)}" if name.endswith("k1") else f"{name}<={given}")
    low, icepop, high = (o.text("rollout_is_threshold", "2") or "").rpartition("_")
    ends = o.parsed("rollout_is_threshold", low) if icepop else None, o.parsed("rollout_is_threshold", high)
    return criteria + _of_level(o.choice("rollout_is", ("token", "sequence")), *ends, clips=not icepop)


def _dppo(o: _Options, divergence: str, low: str = "clip_ratio_low", high: str = "clip_ratio_high") -> list[str]:
    """Write the mask of DPPO (2602.04879): a token's divergence beyond the end that its advantage chooses."""
    both = o.number("clip_ratio", 0.2)
    ends = o.number(low, both), o.number(high, both)
    statistic = {"tv": "token_shift_by_advantage", "kl": "token_binary_kl_by_advantage"}.get(divergence)
    return [] if statistic is None else [_between(statistic, -(ends[0] or 0.0), ends[1])]


def _k1_bounds(o: _Options, given: str) -> str:
    """Read LOW_HIGH as verl does, or one number for the same factor either way (one below 1 cannot be meant)."""
    if "_" in given:
        return given
    value = o.parsed("rollout_rs_threshold", given)
    return f"{exact_text(1.0 / value)}_{exact_text(value)}" if value > 1.0 else given


def _slime(o: _Options) -> list[str]:
    path = o.text("custom_tis_function_path") or ""
    o.set_aside("tis_batch_normalize", "get_mismatch_metrics", "custom_tis_function_path", "use_rollout_logprobs")
    use_tis, use_rs = o.flag("use_tis"), o.flag("use_rs")
    vanilla = o.number("tis_clip_low") or None, o.number("tis_clip", 2.0)
    tis_high = o.number("tis_upper_bound", 2.0) or 2.0
    tis_low = o.number("tis_lower_bound", 1.0 / tis_high)
    mode = o.choice("tis_mode", ("truncate", "clip", "mask"))
    level = o.choice("tis_level", tuple(_LEVELS), "token") or "token"
    rs_level, veto = o.choice("rs_level", tuple(_LEVELS), "token" if use_rs else None), o.number("rs_veto_threshold")
    low, high = o.number("rs_lower_bound", tis_low), o.number("rs_upper_bound", tis_high)
    delta = o.number("opsm_delta", 1e-4)
    criteria = [f"{OFF_POLICY}<={exact_text(delta or 0.0)}"] if o.flag("use_opsm") else []
    if use_tis is False:  # then the helper does nothing, whatever else is set
        return criteria
    if use_tis and mode is None and rs_level is None:
        return criteria + _of_level("token", *vanilla, clips="icepop" not in path)
    return [
        *criteria,
        *_of_level(level if mode else None, None if mode == "truncate" else tis_low, tis_high, clips=mode != "mask"),
        *_of_level(None if use_rs is False else rs_level, low, high),
        *([] if veto is None or use_rs is False else [_between("seq_min_ratio", veto, None)]),
    ]


_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def _trl(o: _Options) -> list[str]:
    o.set_aside("use_vllm", "clip_ratio_c")
    prefix = "vllm_importance_sampling_"
    asked = o.flag(f"{prefix}correction") is not False and o.any_of(prefix)
    mode = o.choice(f"{prefix}mode", _MODES, "sequence_mask") or "sequence_mask"
    low, high = (o.number(f"{prefix}clip_{end}", own) for end, own in (("min", None), ("max", 3.0)))
    older = o.number(f"{prefix}cap")
    threshold = o.number("off_policy_mask_threshold")
    divergence = o.choice("divergence_type", ("binary_tv", "binary_kl", "topk_tv", "topk_kl")) or ""
    if divergence.startswith("topk"):
        o.refuse(f"{divergence} needs the log-probs of k tokens at each place, which no log holds; binary_* does not")
    delta = [o.number(name, 0.15) or 0.0 for name in ("epsilon", "epsilon_high")]
    signed = {"binary_tv": "token_shift_by_advantage", "binary_kl": "token_binary_kl_by_advantage"}.get(divergence)
    return [
        *(_of_mode(mode, low, high if older is None else older) if asked else []),
        *([] if threshold is None else [f"{OFF_POLICY}<={exact_text(threshold)}"]),
        *([] if signed is None else [_between(signed, -delta[0], delta[1])]),
    ]


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
    o.set_aside("log_rollout_offpolicy_metrics")
    cap, delta = o.number("rollout_importance_sampling_threshold", 2.0), o.number("off_policy_sequence_mask_delta")
    masks = [] if delta is None else [f"{OFF_POLICY}<={exact_text(delta)}"]
    return masks + _of_mode(o.choice("rollout_importance_sampling_mode", _MODES), None, cap, sequence="geometric")


def _openrlhf(o: _Options) -> list[str]:
    level, mode = o.choice("is_correction_level", ("off", "token", "seq")), o.choice("is_correction_mode", _ACTIONS)
    gating = o.choice("is_correction_gating", ("ratio", "binary_kl", "tv"), "ratio")
    kind = o.choice("is_correction_type", ("tis", "icepop", "seq-mask-tis"), "tis")  # before 0.11
    if o.flag("is_correction_enable"):
        level, mode = ("seq" if kind == "seq-mask-tis" else "token"), ("clip" if kind == "tis" else "mask")
    given = re.split(r"[\s,]+", o.text("is_correction_threshold") or ("0.5 5" if gating == "ratio" else ""))
    ends = [o.parsed("is_correction_threshold", text) for text in given if text]
    if level in (None, "off"):
        return []
    if len(ends) not in (1, 2) or (gating != "ratio" and len(ends) == 2 and ends[0] > 0.0):
        o.refuse(f"is_correction_threshold must be LOW HIGH or HIGH ({gating} takes HIGH), got {' '.join(given)!r}")
    low, high = (ends[0] or None) if len(ends) == 2 else None, ends[-1]
    if mode == "clip" and (level, gating) != ("token", "ratio"):
        o.refuse("is_correction_mode=clip requires is_correction_level=token and is_correction_gating=ratio")
    if gating == "ratio":
        return _of_level("token" if level == "token" else "geometric", low, high, clips=mode == "clip")
    name = "binary_kl" if gating == "binary_kl" else "binary_tv"
    return [_between(f"token_{name}" if level == "token" else f"seq_mean_{name}", None, high)]


_ACTIONS = ("mask", "clip")


def _areal(o: _Options) -> list[str]:
    level = o.choice("level", ("token", "sequence"), "token")
    action = o.choice("action", ("mask", "clamp"), "mask")
    metric = o.choice("metric", ("ratio", "kl_k1", "kl_k2", "kl_k3"), "ratio") or "ratio"
    agg = o.choice("agg", ("sum", "mean", "max"), "mean") or "mean"
    low, high = o.number("lower"), o.number("upper", 5.0)
    if action == "clamp":  # a weight is clamped by the bounds, whatever the metric
        if level == "token":
            return _of_level("token", low, high, clips=True)
        if (metric, agg) != ("ratio", "mean"):
            o.refuse(f"what clamps the weights of a sequence by {metric}, {agg} is no mask and is not offered here")
        return _of_level("geometric", low, high, clips=True)
    if metric in ("kl_k2", "kl_k3"):
        if low is not None:
            o.refuse(f"lower bounds a divergence from below: a mask with {metric} takes upper only")
        name = "k2" if metric == "kl_k2" else "k3_inverse"
        return [_between(f"token_{name}" if level == "token" else f"seq_{agg}_{name}", None, high)]
    if metric == "kl_k1":  # d itself
        low, high = (None if end is None else math.exp(end) for end in (low, high))
    if level == "token":
        return _of_level("token", low, high)
    if agg == "max" and low is not None:
        o.refuse("lower bounds the largest ratio of a response from below, which is no trust region")
    return [_between({"sum": "seq_product_ratio", "mean": "seq_geometric_ratio"}.get(agg, "seq_max_ratio"), low, high)]


def _roll(o: _Options) -> list[str]:
    granularity = ("token", "segment", "geometric", "sequence")
    criteria = []
    o.set_aside("is_weight_detach")
    weight, cap = o.choice("is_weight_weight_type", granularity, "token"), o.number("is_weight_upper_bound", 1.2)
    if o.flag("is_weight_enabled") and cap is not None:
        criteria += _roll_filter(o, "ratio", weight or "", None, cap, clips=True)
    i = 0
    while o.any_of(name := f"filters_{i}_"):
        on = o.flag(f"{name}enabled")
        agg = o.choice(f"{name}agg_type", granularity, "token") or "token"
        for what, given, ends in (("ratio", True, (0.8, 1.2)), ("diff", False, (-0.2, 0.2))):
            asked = o.flag(f"{name}{what}_enabled")
            low, high = (o.number(f"{name}{what}_{e}", own) for e, own in zip(("low", "high"), ends, strict=True))
            if on and (given if asked is None else asked):
                criteria += _roll_filter(o, what, agg, low, high)
        i += 1
    return criteria


def _roll_filter(
    o: _Options, what: str, agg: str, low: float | None, high: float | None, *, clips: bool = False
) -> list[str]:
    if agg == "segment":
        o.refuse("agg_type segment needs to know where a tool's output was, which a log does not keep")
    if what == "ratio":
        return _of_level(agg, low, high, clips=clips)
    return [_between({"token": "token_shift", "geometric": "seq_mean_shift"}.get(agg, "seq_sum_shift"), low, high)]


def option_names(trainer: str) -> tuple[list[str], list[str]]:
    """Return the options of a trainer that are understood, and those that are no part of a mask."""
    taken = _Options(trainer, {"filters_0_enabled": None})
    TRAINERS[trainer](taken)
    return [name for name in dict.fromkeys(taken.asked) if name not in taken.asides], taken.asides


#: Trainer -> its rule.
TRAINERS: Mapping[str, Callable[[_Options], list[str]]] = {
    "verl": _verl,
    "slime": _slime,
    "miles": _slime,
    "trl": _trl,
    "skyrl": _skyrl,
    "nemo-rl": _nemo_rl,
    "prime-rl": _prime_rl,
    "ms-swift": _ms_swift,
    "openrlhf": _openrlhf,
    "areal": _areal,
    "roll": _roll,
}
