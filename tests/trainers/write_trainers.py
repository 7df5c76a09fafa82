"""Write ``tests/data/trainers.json``: what the trainers' own functions make of 200 padded responses with holes.

    python tests/trainers/write_trainers.py FOLDER

FOLDER holds the unpacked wheels of verl 0.9.1, trl 1.16.0, ms-swift 4.6.0, openrlhf 0.11.2, skyrl 0.3.0, areal 1.0.4
and tinker-cookbook 0.6.1, as ``pip download --no-deps`` and ``unzip`` give them. Their functions are run out of their
files, alone, with torch: the packages need not be installed. Nothing of them is kept but the numbers.
"""

from __future__ import annotations
import __future__

import ast
import dataclasses
import json
import math
import sys
import types
import typing
from pathlib import Path

import numpy as np
import torch

GROUP = 4


def batch():
    """mu, pi, a mask with holes and rewards [200]: four responses answer a prompt."""
    rng = np.random.default_rng(15)
    shape = (200, 12)
    mu = np.round(-rng.exponential(1.0, shape), 4)
    pi = np.round(np.minimum(mu + 0.08 * rng.standard_t(3, shape), -1e-4), 4)
    mask = rng.random(shape) < 0.7
    mask[:, 0] = True
    mask[:, 9:] &= rng.random((200, 1)) < 0.5
    return mu, pi, mask, np.round(rng.random(200), 2)


def own(folder, pattern, *names, **given):
    """Run what is named so in the one file that fits, and nothing else of it; methods become functions."""
    (path,) = folder.glob(pattern)
    tree = ast.parse(path.read_text())
    found = {}
    for node in ast.walk(tree):
        name = getattr(node, "name", None) or (
            node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
        )
        name = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else name
        if name in names and name not in found:
            node.decorator_list = [d for d in getattr(node, "decorator_list", ()) if ast.unparse(d) == "dataclass"]
            found[name] = node
    assert set(found) == set(names), set(names) - set(found)
    space = {"torch": torch, "math": math, **vars(typing), "dataclass": dataclasses.dataclass, **given}
    space |= {"Any": typing.Any, "field": dataclasses.field}
    order = sorted(found.values(), key=lambda node: node.lineno)
    code = compile(ast.Module(order, []), str(path), "exec", __future__.annotations.compiler_flag)
    module = types.ModuleType("trainer")
    sys.modules["trainer"] = module
    vars(module).update(space)
    exec(code, vars(module))
    return types.SimpleNamespace(**{name: vars(module)[name] for name in names})


MU, PI, MASK, REWARD = batch()
ADVANTAGE = REWARD - REWARD.reshape(-1, GROUP).mean(axis=1).repeat(GROUP)
mu, pi, advantage = (torch.tensor(x, dtype=torch.float64) for x in (MU, PI, ADVANTAGE))
mask = torch.tensor(MASK)
by_token = advantage[:, None].expand_as(mu)


def dropped(kept):
    """How many policy tokens of each response are dropped."""
    return (mask & ~kept.bool().expand_as(mask)).sum(1).tolist()


def verl(folder):
    torch_functions = own(folder, "verl/utils/torch_functional.py", "masked_sum", "masked_mean")
    where = "verl/trainer/ppo/rollout_corr_helper.py"
    safety, options, tokens = (
        own(folder, where, name).__dict__[name]
        for name in ("SAFETY_BOUND", "SUPPORTED_ROLLOUT_RS_OPTIONS", "TOKEN_LEVEL_ROLLOUT_RS_OPTIONS")
    )
    f = own(
        folder, where, "_parse_rollout_is_threshold", "_parse_rollout_rs_thresholds", "compute_rollout_rejection_mask",
        "compute_rs_metrics", "compute_rollout_correction_weights", "compute_is_metrics", "compute_offpolicy_metrics",
        verl_F=torch_functions, SAFETY_BOUND=safety, SUPPORTED_ROLLOUT_RS_OPTIONS=options,
        TOKEN_LEVEL_ROLLOUT_RS_OPTIONS=tokens,
    )  # fmt: skip
    d, masks, float_mask = pi - mu, {}, mask.double()
    thresholds = {"k1": "0.97_1.04", "k2": "0.004", "k3": "0.004"}
    for option in sorted(options):
        threshold = "0.8_1.3" if option in ("token_k1", "seq_sum_k1") else thresholds[option[-2:]]
        kept, _ = f.compute_rollout_rejection_mask(d, float_mask, option, threshold)
        masks[f"verl:rollout_rs={option} rollout_rs_threshold={threshold}"] = dropped(kept)
    for level in ("token", "sequence"):
        weights, _ = f.compute_rollout_correction_weights(d, float_mask, level, "0.9_1.1")
        masks[f"verl:rollout_is={level} rollout_is_threshold=0.9_1.1"] = dropped(weights != 0.0)
    for kind, high in (("tv", 0.05), ("kl", 0.004)):
        masks[f"verl:loss_mode=dppo_{kind} clip_ratio_low=0.03 clip_ratio_high={high}"] = dppo_verl(folder, kind, high)
    weights, shown = f.compute_rollout_correction_weights(d, float_mask, "token", 2.0)
    shown |= f.compute_offpolicy_metrics(pi, mu, float_mask)
    metrics = {f"rollout_corr/{name}": float(value) for name, value in shown.items()}
    debug = own(
        folder, "verl/utils/debug/metrics.py", "pearson_correlation_coefficient", "calculate_log_prob_diff",
        "calculate_debug_metrics", logger=None,
    )  # fmt: skip
    tensors = {"rollout_log_probs": mu, "old_log_probs": pi, "response_mask": mask, "responses": mu}
    debug.calculate_debug_metrics.__globals__["logger"] = types.SimpleNamespace(debug=lambda text: None)
    metrics |= debug.calculate_debug_metrics(types.SimpleNamespace(batch=tensors))
    presets = own(folder, "verl/trainer/config/algorithm.py", "RolloutCorrectionConfig", BaseConfig=object)
    return masks, metrics, preset_options(folder, presets.RolloutCorrectionConfig)


def preset_options(folder, config):
    """What each of verl's presets sets, which are the class methods of its options."""
    (path,) = folder.glob("verl/trainer/config/algorithm.py")
    (node,) = [n for n in ast.parse(path.read_text()).body if getattr(n, "name", "") == "RolloutCorrectionConfig"]
    names = [n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.decorator_list]
    plain = vars(config.disabled())
    found = {name: vars(getattr(config, name)()) for name in names}
    return {name: {o: v for o, v in options.items() if v != plain[o]} for name, options in found.items()}


def dppo_verl(folder, kind, high):
    torch_functions = own(folder, "verl/utils/torch_functional.py", "masked_sum", "masked_mean")
    seen = {}

    def agg_loss(loss_mat, **_):
        seen["kept"] = loss_mat != 0.0
        return loss_mat.sum()

    name = f"compute_policy_loss_dppo_{kind}"
    f = own(
        folder, "verl/trainer/ppo/core_algos.py", name, verl_F=torch_functions, agg_loss=agg_loss, AlgoConfig=dict,
        ActorConfig=object,
    )  # fmt: skip
    config = types.SimpleNamespace(
        clip_ratio=0.2,
        clip_ratio_low=0.03,
        clip_ratio_high=high,
        global_batch_info={},
        get=lambda name, default: default,
    )
    vars(f)[name](mu, pi, by_token, mask.double(), config=config)
    return dropped(seen["kept"] | (by_token == 0.0))


def blocks(folder, pattern, condition, space):
    """Run every ``if condition:`` of the one file that fits, in order, on the names of ``space``."""
    (path,) = folder.glob(pattern)
    found = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.If) and ast.unparse(n.test) == condition
    ]
    for node in sorted(found, key=lambda node: node.lineno):
        exec(compile(ast.Module(node.body, []), str(path), "exec"), space)
    return space


def trl(folder):
    where = "trl/trainer/grpo_trainer.py"
    f = own(folder, where, "get_off_policy_mask")
    kept = f.get_off_policy_mask(advantage[:, None], pi, mu, mask.double(), 0.01)
    masks = {"trl:off_policy_mask_threshold=0.01": dropped(kept)}
    for mode, low, high in (
        ("token_mask", 0.9, 1.1), ("token_mask", None, 1.1), ("sequence_mask", 0.8, 1.2), ("sequence_mask", None, 3.0),
    ):  # fmt: skip
        shown = trl_importance_sampling(folder, where, mode, low, high)
        prefix = "vllm_importance_sampling"
        lower = "" if low is None else f" {prefix}_clip_min={low}"
        text = f"trl:{prefix}_mode={mode} {prefix}_clip_max={high}{lower}"
        masks[text] = dropped(shown["vllm_importance_sampling_ratio"] != 0.0)
    return masks, {name: values[0] for name, values in shown["self"]._metrics["train"].items()}, None


def trl_importance_sampling(folder, where, mode, low, high):
    """Run both parts of TRL's correction, which stand in the middle of a method: the ratio, and what is shown of it."""
    trainer = types.SimpleNamespace(
        use_vllm=True, vllm_importance_sampling_correction=True, vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=low, vllm_importance_sampling_clip_max=high,
        accelerator=types.SimpleNamespace(gather=lambda x: x),
        _metrics={"train": {name: [] for name in (
            *(f"sampling/sampling_logp_difference/{end}" for end in ("mean", "max")),
            *(f"sampling/importance_sampling_ratio/{end}" for end in ("min", "mean", "max")),
        )}},
    )  # fmt: skip
    space = {
        "self": trainer, "torch": torch, "math": math, "nanmin": torch.min, "nanmax": torch.max, "device": "cpu",
        "mode": "train", "output": {}, "completion_mask": mask.int(), "tool_mask": None,
        "old_per_token_logps": pi, "sampling_per_token_logps": mu,
    }  # fmt: skip
    return blocks(folder, where, "self.use_vllm and self.vllm_importance_sampling_correction", space)


def skyrl(folder):
    helpers = own(folder, "skyrl/backends/skyrl_train/utils/torch_utils.py", "masked_mean", "safe_exp_delta")
    f = own(
        folder, "skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py", "compute_outlier_token_mask",
        "compute_token_mask", "compute_sequence_mask", "compute_off_policy_correction", "compute_tis_ratio",
        "off_policy_correction_enabled", DictConfig=object, **vars(helpers),
    )  # fmt: skip
    off = dict.fromkeys(
        ("tis_ratio_type", "sequence_mask_metric", "outlier_token_is_threshold_low", "outlier_token_is_threshold_high",
         "token_mask_is_threshold_low", "token_mask_is_threshold_high")
    )  # fmt: skip
    masks = {}
    for options in (
        {"sequence_mask_metric": "product", "product_mask_low": 0.8, "product_mask_high": 1.3},
        {"sequence_mask_metric": "geometric", "geo_mask_low": 0.98, "geo_mask_high": 1.03},
        {"outlier_token_is_threshold_low": 0.8},
        {"outlier_token_is_threshold_high": 1.2},
        {"token_mask_is_threshold_low": 0.9, "token_mask_is_threshold_high": 1.1},
    ):
        config = types.SimpleNamespace(**{**off, **options})
        _, _, kept = f.compute_off_policy_correction(pi, mu, mask.double(), config)
        masks["skyrl:" + " ".join(f"{name}={value}" for name, value in options.items())] = dropped(kept)
    shown = types.SimpleNamespace(all_metrics={})
    space = {"self": shown, "training_input": {"rollout_logprobs": mu, "loss_mask": mask}, "action_log_probs": pi}
    condition = "training_input.get('rollout_logprobs', None) is not None and action_log_probs is not None"
    blocks(folder, "skyrl/train/trainer.py", condition, space)
    return masks, shown.all_metrics, None


def ms_swift(folder):
    names = (
        "_apply_rollout_importance_sampling",
        "_compute_sequence_level_ratios",
        "_compute_off_policy_sequence_mask",
        "_compute_rollout_offpolicy_metrics",
        "_compute_is_correction_metrics",
    )
    f = own(folder, "swift/rlhf_trainers/grpo_trainer.py", *names)
    trainer = types.SimpleNamespace(rollout_importance_sampling_threshold=1.05, off_policy_sequence_mask_delta=0.01)
    trainer._compute_sequence_level_ratios = types.MethodType(f._compute_sequence_level_ratios, trainer)
    masks, d = {}, pi - mu
    for mode in ("token_mask", "sequence_mask"):
        trainer.rollout_importance_sampling_mode = mode
        weights = f._apply_rollout_importance_sampling(trainer, d, mask)
        options = f"rollout_importance_sampling_mode={mode} rollout_importance_sampling_threshold=1.05"
        masks[f"ms-swift:{options}"] = dropped(weights != 0.0)
    kept = f._compute_off_policy_sequence_mask(trainer, pi, mu, mask, advantage)
    masks["ms-swift:off_policy_sequence_mask_delta=0.01"] = dropped(kept[:, None])
    trainer.rollout_importance_sampling_mode, trainer.rollout_importance_sampling_threshold = "token_truncate", 2.0
    shown = f._compute_rollout_offpolicy_metrics(trainer, pi, mu, mask)
    weights = f._apply_rollout_importance_sampling(trainer, d, mask)
    shown |= f._compute_is_correction_metrics(trainer, d, weights, mask)
    return masks, {f"rollout_correction/{name}": float(value) for name, value in shown.items()}, None


def openrlhf(folder):
    helper = own(folder, "openrlhf-*/purelib/openrlhf/models/utils.py", "masked_mean")
    f = own(
        folder, "openrlhf-*/purelib/openrlhf/models/loss.py", "aggregate_loss", "PolicyLoss", nn=torch.nn,
        masked_mean=helper.masked_mean,
    )  # fmt: skip
    masks, metrics, kept = {}, {}, {}

    def aggregate_loss(loss, *args, **kwargs):
        kept["tokens"] = loss != 0.0
        return loss.sum()

    f.PolicyLoss.forward.__globals__["aggregate_loss"] = aggregate_loss
    for level, gating, threshold in (
        ("token", "ratio", [0.9, 1.1]), ("seq", "ratio", [0.98, 1.02]), ("token", "binary_kl", [0.0, 0.003]),
        ("seq", "binary_kl", [0.0, 0.002]), ("token", "tv", [0.0, 0.03]), ("seq", "tv", [0.0, 0.015]),
    ):  # fmt: skip
        loss = f.PolicyLoss(is_correction_level=level, is_correction_gating=gating, is_correction_threshold=threshold)
        shown = loss(pi, pi, torch.ones_like(mu), mask.double(), mu)
        ends = " ".join(map(str, threshold if threshold[0] else threshold[1:]))
        options = f"--algo.advantage.is_correction_level {level} --algo.advantage.is_correction_gating {gating}"
        masks[f"openrlhf:{options} --algo.advantage.is_correction_threshold {ends}"] = dropped(kept["tokens"])
        metrics["vllm_kl"] = float(shown[3])
    return masks, metrics, None


def areal(folder):
    f = own(folder, "areal/utils/functional/functional.py", "RejectionSamplingResult", "_check_bounds",
            "apply_rejection_sampling",
            KLEstimator=own(folder, "areal/utils/data.py", "KLEstimator").KLEstimator)  # fmt: skip
    masks = {}
    for level, metric, agg, low, high in (
        ("token", "ratio", "mean", 0.9, 1.1), ("token", "kl_k1", "mean", -0.10003, 0.05003),
        ("token", "kl_k2", "mean", None, 0.004), ("token", "kl_k3", "mean", None, 0.004),
        ("sequence", "ratio", "mean", 0.98, 1.03),
        ("sequence", "ratio", "sum", None, 1.1), ("sequence", "ratio", "max", None, 1.1),
        ("sequence", "kl_k1", "sum", -0.2, 0.2), ("sequence", "kl_k2", "mean", None, 0.004),
        ("sequence", "kl_k3", "sum", None, 0.03), ("sequence", "kl_k3", "max", None, 0.02),
    ):  # fmt: skip
        config = types.SimpleNamespace(level=level, metric=metric, agg=agg, lower=low, upper=high, action="mask")
        kept = f.apply_rejection_sampling(pi, mu, mask.double(), None, config).loss_mask
        lower = "" if low is None else f", lower: {low}"
        rule = f"{{level: {level}, action: mask, metric: {metric}, agg: {agg}, upper: {high}{lower}}}"
        masks[f"areal:rejection_sampling: {rule}"] = dropped(kept)
    return masks, {}, None


def tinker(folder):
    trace = types.SimpleNamespace(scope=lambda f: f)
    f = own(folder, "tinker_cookbook/rl/metrics.py", "compute_kl_sample_train", safezip=zip, trace=trace)

    def held(x):
        return types.SimpleNamespace(to_torch=lambda: x)

    data = [
        types.SimpleNamespace(loss_fn_inputs={"logprobs": held(a), "mask": held(m)})
        for a, m in zip(mu, mask, strict=True)
    ]
    return {}, f.compute_kl_sample_train(data, list(pi)), None


PACKAGES = {
    "verl 0.9.1": verl,
    "trl 1.16.0": trl,
    "ms-swift 4.6.0": ms_swift,
    "openrlhf 0.11.2": openrlhf,
    "skyrl 0.3.0": skyrl,
    "areal 1.0.4": areal,
    "tinker-cookbook 0.6.1": tinker,
}


def main(folder):
    found = {}
    for package, of in PACKAGES.items():
        masks, metrics, presets = of(folder)
        found[package] = {"masks": masks, "metrics": metrics} | ({} if presets is None else {"presets": presets})
    inputs = {"rollout": MU.tolist(), "train": PI.tolist(), "reward": REWARD.tolist()}
    inputs["mask"] = ["".join("01"[int(x)] for x in row) for row in MASK]
    text = json.dumps({"inputs": inputs, "packages": found}, separators=(",", ":"))
    (Path(__file__).parents[1] / "data").joinpath("trainers.json").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
