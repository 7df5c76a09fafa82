"""The hooks of :mod:`bounds.training` on what the real trainers handed to them, which ``tests/trainers`` recorded.

``test_real_trainers.py`` runs the hooks inside verl and SkyRL, ``make test-trainers`` inside TRL, and records again;
docs/trainers.md has the dates.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import bounds
from bounds.training import Guard, masked_surrogate_loss, prime_rl, skyrl, slime, trl, trust_region_mask

RECORDED = Path(__file__).parents[1] / "data" / "trainers"


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def tensors(grids):
    return {name: torch.as_tensor(values) for name, values in grids.items()}


def said(messages):
    return [r.getMessage() for r in messages.records if r.name == "bounds.training"]


# --- TRL ------------------------------------------------------------------------------------------------------------


class ReplayedTRL:
    """A GRPOTrainer that hands over what TRL's own did, of one process or of two."""

    def __init__(self, calls, *, weights, rank=0, vllm=True, training=True):
        self.calls = iter(calls)
        self.use_vllm = self.vllm_importance_sampling_correction = vllm
        self.max_completion_length = 24
        self.reward_weights = torch.tensor(weights)
        self.accelerator = SimpleNamespace(process_index=rank, num_processes=1)
        self.model = SimpleNamespace(training=training)
        self.state = SimpleNamespace(global_step=0)
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        return torch.tensor(self.call["rewards"])

    def _generate_and_score_completions(self, inputs):
        self.call = next(self.calls)
        self.state.global_step = self.call["step"]
        part = slice(self.accelerator.process_index * len(inputs), None)
        self._calculate_rewards(inputs, [x["prompt"] for x in inputs], None, None)
        return {name: values[part][: len(inputs)] for name, values in tensors(self.call["batch"]).items()}


class Trained(trl.TrustRegion, ReplayedTRL):
    pass


def trained(folder, told, rule=None, **options):
    """Go through the recorded calls, and return the trainer and the batches that its loss would see."""
    trainer = Trained(told["calls"], weights=told["weights"], trust_region=rule, log_dir=folder, **options)
    batches = [trainer._generate_and_score_completions(call["inputs"]) for call in told["calls"]]
    trainer._monitor.close()
    return trainer, batches


def test_trl_logs_prompts_rewards_steps_and_tokens(tmp_path):
    told = recorded("trl")
    trainer, _ = trained(tmp_path, told)
    traces = bounds.read_traces(tmp_path)
    calls = told["calls"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"step_{c['step']:06d}_rank_0.parquet" for c in calls]
    assert len(traces) == sum(len(c["inputs"]) for c in calls)
    assert len(traces.prompt_ids) == len({x["prompt"] for c in calls for x in c["inputs"]})
    assert traces.reward.tolist() == pytest.approx([r[0] for c in calls for r in c["rewards"]])
    ids = [t for c in calls for row, kept in _rows(c, "completion_ids") for t, k in zip(row, kept, strict=True) if k]
    assert traces.tokens.tolist() == ids
    assert set(traces.labels["train_policy"]) == {"before-update"}
    assert traces.horizon == 24
    for call, kl in zip(calls, trainer._metrics["train"]["trust_region/kl"], strict=True):
        d = [a - b for p, q in zip(*_pair(call), strict=True) for a, b in zip(p, q, strict=True)]
        assert call["shown"]["sampling/sampling_logp_difference/mean"] == pytest.approx(
            sum(map(abs, d)) / len(d), rel=1e-4
        )
        assert kl == pytest.approx(sum(d) / len(d), rel=1e-4)


def _rows(call, name):
    return zip(call["batch"][name], call["batch"]["completion_mask"], strict=True)


def _pair(call):
    """Log-probs of vLLM and of the training on policy tokens; TRL's own mean difference says that they are these."""
    names = ("sampling_per_token_logps", "old_per_token_logps")
    return [[[x for x, k in zip(*row, strict=True) if k] for row in _rows(call, name)] for name in names]


def test_trl_weighs_what_the_region_rejects_with_0(tmp_path):
    told, rule = recorded("trl"), "seq_max_k2<=0.2"
    trainer, batches = trained(None, told, rule)
    kept = []
    for call, batch, row in zip(told["calls"], batches, told["history"], strict=True):
        given = tensors(call["batch"])
        keep = trust_region_mask(
            given["sampling_per_token_logps"], given["old_per_token_logps"], given["completion_mask"], rule
        )
        kept += keep.tolist()
        assert torch.equal(batch["importance_sampling_ratio"], given["importance_sampling_ratio"] * keep[:, None])
        for name, value in row.items():  # what the real TRL showed, with the same hook inside
            if name.startswith("trust_region/"):
                assert trainer._metrics["train"][name].pop(0) == pytest.approx(value, rel=1e-4, abs=1e-7), name
    assert 0 < sum(kept) < len(kept)


def test_trl_counts_policy_tokens_only_and_leaves_out_what_has_no_reward(tmp_path):
    told = recorded("trl")
    for call in told["calls"]:
        call["batch"]["tool_mask"] = [[int(t < 5) for t in range(24)] for _ in call["inputs"]]
        call["rewards"][0] = [math.nan]
        for x in call["inputs"]:
            x["environment"] = "sums"
    trained(tmp_path, told)
    traces = bounds.read_traces(tmp_path)
    assert set(traces.lengths) <= set(range(1, 6))
    assert len(traces) == sum(len(c["inputs"]) for c in told["calls"]) - len(told["calls"])
    assert set(traces.labels["environment"]) == {"sums"}


def test_trl_of_two_processes_and_of_an_evaluation(tmp_path):
    told = recorded("trl")
    halves = [
        {**told, "calls": [{**c, "inputs": c["inputs"][part]} for c in told["calls"]]}
        for part in (slice(8), slice(8, None))
    ]
    for rank, half in enumerate(halves):
        trainer = Trained(half["calls"], weights=half["weights"], rank=rank, log_dir=tmp_path / "two")
        trainer._monitor.rank = rank  # which torch.distributed says
        for call in half["calls"]:
            trainer._generate_and_score_completions(call["inputs"])
        trainer._monitor.close()
    both = bounds.read_traces(tmp_path / "two")
    trained(tmp_path / "one", told)
    one = bounds.read_traces(tmp_path / "one")
    assert (len(both), len(both.prompt_ids)) == (len(one), len(one.prompt_ids))
    assert sorted(both.reward) == sorted(one.reward)
    trainer, _ = trained(tmp_path / "eval", told, training=False)
    assert not (tmp_path / "eval").exists()
    assert trainer._metrics["eval"]["trust_region/kl"]
    assert not trainer._metrics["train"]


def test_trl_without_vllm_says_what_is_missing_before_the_training():
    told = recorded("trl")
    with pytest.raises(ValueError, match=r"set use_vllm=True and vllm_importance_sampling_correction=True"):
        Trained(told["calls"], weights=[1.0], vllm=False, trust_region="seq_max_k2<=0.05")
    with pytest.raises(ValueError, match="only trainers that are a GRPOTrainer"):
        type("Other", (trl.TrustRegion,), {})()


class GuardedTRL(ReplayedTRL):
    """A GRPOTrainer whose policy is what was recorded, with ``model.bias`` added to each log-prob."""

    num_iterations, scale_rewards, multi_objective_aggregation = 1, "group", "sum_then_normalize"

    def __init__(self, calls, **options):
        super().__init__(calls, weights=[1.0])
        self.args = SimpleNamespace(steps_per_generation=2, gradient_accumulation_steps=2)
        self.model = torch.nn.Linear(1, 1)
        vars(self).update(options)

    def create_optimizer(self):
        self.optimizer = getattr(self, "optimizer", None) or torch.optim.SGD(self.model.parameters(), lr=0.25)
        return self.optimizer

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {**batch, "num_items_in_batch": batch["completion_mask"].sum()}

    def _get_per_token_logps_and_entropies(self, model, ids, attended, length):
        assert not model.training
        self.scored = (ids, attended)
        recorded = tensors(self.call["batch"])
        whole = torch.cat([recorded["prompt_ids"], recorded["completion_ids"]], dim=1)
        rows = [int((whole == row).all(dim=1).nonzero()[0]) for row in ids]
        return recorded["old_per_token_logps"][rows, :length] + model.bias, None, None

    def update(self):
        """Raise each log-prob by a quarter."""
        for p in self.model.parameters():
            p.grad = -torch.ones_like(p)
        self.optimizer.step()


class Guarded(trl.TrustRegion, GuardedTRL):
    pass


@pytest.mark.parametrize(("mode", "kept"), [("report", 1.0), ("certify", 0.0)])
def test_trl_learns_nothing_from_what_a_guard_holds_out_and_lets_it_judge_each_update(mode, kept):
    told = recorded("trl")
    guard = Guard(mode=mode, share=0.5)
    trainer = Guarded(told["calls"], guard=guard)
    assert trainer.create_optimizer() is trainer.create_optimizer()  # a second training wraps it no second time
    bias = trainer.model.bias.item()
    for call in told["calls"]:
        batch = trainer._generate_and_score_completions(call["inputs"])
        mask = tensors(call["batch"])["completion_mask"]
        held = (batch["completion_mask"] == 0).all(dim=1)
        prompts = [
            {row["prompt"] for row, out in zip(call["inputs"], held, strict=True) if out == part} for part in (0, 1)
        ]
        assert all(prompts)
        assert not set.intersection(*prompts)
        assert torch.equal(batch["completion_mask"][~held], mask[~held])
        assert batch["num_items_in_batch"] == mask[~held].sum()
        trainer.update()
        assert trainer.scored[1][:, -mask.shape[1] :].equal(mask[held])  # what is scored attends to all its tokens
        assert trainer.model.training
    assert guard.step == told["calls"][-1]["step"] + 1
    assert trainer.model.bias.item() == pytest.approx(bias + 0.25 * len(told["calls"]) * kept)
    shown = trainer._metrics["train"]
    assert shown["guard/kept"] == [kept] * len(told["calls"])
    assert len(shown["guard/low"]) == len(told["calls"])


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"accelerator": SimpleNamespace(process_index=0, num_processes=2)}, "one process"),
        ({"num_iterations": 2}, "num_iterations=1"),
        ({"args": SimpleNamespace(steps_per_generation=4, gradient_accumulation_steps=2)}, "steps_per_generation="),
        ({"scale_rewards": "batch"}, "scale_rewards='group' or 'none'"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation="),
    ],
)
def test_trl_refuses_a_guard_where_held_out_responses_would_reach_the_update(options, needed):
    with pytest.raises(ValueError, match=f"^a guard needs {needed}"):
        Guarded([], guard=Guard(), **options)
    Guarded([], **options)


# --- verl -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def verl_told(monkeypatch):
    """verl's helper module, which answers as it did; and its recorded answer."""
    told = recorded("verl")
    helper = ModuleType("verl.trainer.ppo.rollout_corr_helper")

    def correct(batch, config):
        batch.batch["response_mask"] = torch.as_tensor(told["kept"])
        return batch, {n: v for n, v in told["metrics"].items() if not n.startswith("trust_region/")}

    helper.compute_rollout_correction_and_add_to_batch = correct
    helper.compute_rollout_correction_and_rejection_mask = lambda **given: "rejected"
    for name in ("verl", "verl.trainer", "verl.trainer.ppo"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, helper.__name__, helper)
    sys.modules["verl.trainer.ppo"].rollout_corr_helper = helper
    return helper, told


def verl_batch(told):
    return SimpleNamespace(
        batch=tensors(told["batch"]), non_tensor_batch={"uid": told["uid"]}, meta_info={"global_steps": 7}
    )


def test_verls_plugin_logs_before_rejection_and_adds_to_verls_scalars(tmp_path, verl_told, monkeypatch):
    helper, told = verl_told
    from bounds.training import verl

    verl.install(str(tmp_path), 12)
    batch, metrics = helper.compute_rollout_correction_and_add_to_batch(verl_batch(told), told["config"])
    assert batch.batch["response_mask"].tolist() == told["kept"]
    assert metrics == pytest.approx(told["metrics"], rel=1e-5)  # as the real verl showed with the plug-in installed
    assert metrics["trust_region/kl"] == pytest.approx(metrics["rollout_corr/kl"], rel=1e-5)
    assert metrics["trust_region/k3_kl"] == pytest.approx(metrics["rollout_corr/k3_kl"], rel=1e-5)
    bounds_log = wait_for(tmp_path / "step_000007_rank_0.parquet")
    traces = bounds.read_traces(bounds_log)
    filled = [row for row, mask in enumerate(told["batch"]["response_mask"]) if any(mask)]
    assert len(traces) == len(filled) > sum(any(mask) for mask in told["kept"])  # rejected ones are in it, padding not
    assert traces.lengths.sum() == sum(map(sum, told["batch"]["response_mask"]))
    assert len(traces.prompt_ids) == len({told["uid"][row] for row in filled})
    assert traces.reward.tolist() == [sum(told["batch"]["token_level_scores"][row]) for row in filled]
    kept = [any(told["kept"][row]) for row in filled]
    assert metrics["trust_region/acceptance"] == pytest.approx(sum(kept) / len(kept))


def wait_for(path):
    """Wait for a file that another thread writes."""
    import time

    for _ in range(100):
        if path.exists():
            return path
        time.sleep(0.05)
    raise AssertionError(f"{path} does not come")


def test_verls_bypass_mode_is_said_once(tmp_path, verl_told, caplog):
    helper, _ = verl_told
    from bounds.training import verl

    verl.install(str(tmp_path))
    for _ in range(2):
        assert helper.compute_rollout_correction_and_rejection_mask(old_log_prob=None) == "rejected"
    assert len(said(caplog)) == 1
    assert "bypass_mode" in said(caplog)[0]
    assert not list(tmp_path.iterdir())


def test_verl_finds_the_plugin_which_does_nothing_unless_a_folder_is_named():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (module,) = project["project"]["entry-points"]["verl.plugins"].values()
    code = f"import importlib, sys; importlib.import_module({module!r}); sys.exit('verl' in sys.modules)"
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TRM_BOUNDS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    environment["TRM_BOUNDS_LOG"] = "log"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "nothing is logged (No module named 'verl')" in done.stderr


# --- SkyRL ----------------------------------------------------------------------------------------------------------


class SkyRLBatch(dict):
    """A TrainingInputBatch: tensors by name, and metadata."""


class ReplayedSkyRL:
    """A RayPPOTrainer that hands over what SkyRL's own did."""

    def __init__(self, told):
        sampling = SimpleNamespace(max_generate_length=16)
        self.cfg = SimpleNamespace(generator=SimpleNamespace(sampling_params=sampling, max_turns=1))
        self.told, self.all_metrics, self.global_step = told, {}, 5

    def _skip_policy_forward(self, training_input):
        return True

    def fwd_logprobs_values_reward(self, training_input):
        batch = SkyRLBatch(tensors(self.told["batch"]))
        if self._skip_policy_forward(batch):
            batch["action_log_probs"] = None
        batch.metadata = {"uids": self.told["uids"]}
        return batch


class SkyRLTrained(skyrl.TrustRegion, ReplayedSkyRL):
    pass


def test_skyrl_masks_and_logs_also_where_the_forward_pass_would_be_skipped(tmp_path):
    told = recorded("skyrl")
    trainer = SkyRLTrained(told, trust_region="seq_max_k2<=0.02", log_dir=tmp_path)
    batch = trainer.fwd_logprobs_values_reward(None)
    trainer._monitor.close()
    assert batch["loss_mask"].tolist() == told["kept"]
    shown = {n: v for n, v in told["metrics"].items() if n.startswith("trust_region/")}
    assert trainer.all_metrics == pytest.approx(shown, rel=1e-5)  # as SkyRL's own trainer showed with the same mixin
    traces = bounds.read_traces(tmp_path)
    assert (len(traces), len(traces.prompt_ids)) == (len(told["uids"]), len(set(told["uids"])))
    assert traces.horizon == 16
    assert abs(traces.log_ratio).mean() == pytest.approx(
        told["metrics"]["policy/rollout_train_logprobs_abs_diff_mean"], rel=1e-5
    )


def test_skyrl_without_log_probs_of_the_generator_says_so(tmp_path):
    told = recorded("skyrl")
    del told["batch"]["rollout_logprobs"]
    with pytest.raises(ValueError, match=r"set generator.sampling_params.logprobs"):
        SkyRLTrained(told, trust_region="seq_max_k2<=0.05").fwd_logprobs_values_reward(None)


# --- slime, miles, prime-rl -----------------------------------------------------------------------------------------


def ragged():
    g = torch.Generator().manual_seed(0)
    lengths = (5, 9, 3, 7)
    roll = [-torch.rand(n, generator=g) * 2 - 0.01 for n in lengths]
    theta = [(r + 0.2 * torch.randn(len(r), generator=g)).clamp_max(-1e-3) for r in roll]
    masks = [torch.ones(n) for n in lengths]
    masks[1][3:5] = 0
    return roll, theta, masks


RULE = "seq_max_k2<=0.05"


def padded(x):
    return torch.nn.utils.rnn.pad_sequence(x, batch_first=True)


def test_slimes_loss_is_the_masked_surrogate():
    """slime sums mask x loss over a response: with the loss -A of its first step this is the masked surrogate."""
    roll, theta, masks = ragged()
    theta = [t.requires_grad_() for t in theta]
    advantages = torch.tensor([0.7, -1.3, 0.2, 1.1])
    # slime's first step: the ratio to the old policy is 1, with the gradient of the log-prob
    pg_loss = torch.cat([-(t - t.detach()).exp() * a for t, a in zip(theta, advantages, strict=True)])
    given = {"train_log_probs": [t.detach() for t in theta], "rollout_log_probs": roll, "loss_masks": masks}
    loss, kept, shown = slime.trust_region(
        SimpleNamespace(trust_region=RULE), pg_loss=pg_loss, **given, total_lengths=[], response_lengths=[]
    )
    total = (loss * torch.cat(kept)).sum() / len(roll)
    keep = trust_region_mask(padded(roll), padded(theta).detach(), padded(masks), RULE)
    assert 0 < keep.sum() < len(keep)
    expected = masked_surrogate_loss(padded(roll), padded(theta), padded(masks), advantages, keep)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    ours, literal = (torch.autograd.grad(x, theta, retain_graph=True) for x in (total, expected))
    for a, b in zip(ours, literal, strict=True):
        assert torch.allclose(a, b, rtol=1e-5)
    assert {len(values) for values in shown.values()} == {sum(map(len, roll))}
    assert shown["trust_region_acceptance"].unique().tolist() == [0.0, 1.0]


def test_slime_refuses_a_response_that_is_spread_over_ranks():
    roll, theta, masks = ragged()
    given = {"train_log_probs": [t[:2] for t in theta], "rollout_log_probs": [r[:2] for r in roll], "loss_masks": masks}
    with pytest.raises(ValueError, match="context parallelism"):
        slime.trust_region(SimpleNamespace(trust_region=RULE), pg_loss=torch.ones(8), **given)


def test_prime_rls_loss_is_the_masked_surrogate():
    roll, theta, masks = ragged()
    theta = [t.requires_grad_() for t in theta]
    advantages = torch.tensor([0.7, -1.3, 0.2, 1.1])
    total, kept = 0.0, []
    for r, t, m, a in zip(roll, theta, masks, advantages, strict=True):
        inputs = SimpleNamespace(
            trainer_logprobs=t, inference_logprobs=r, advantages=a.expand(len(r)), loss_mask=m > 0, loss_weights=None
        )
        out = prime_rl.loss(inputs, trust_region=RULE)
        total, kept = total + out.loss, [*kept, out.metrics["trust_region/acceptance"].item()]
        inputs.loss_weights = torch.full((len(r),), 0.5)
        assert prime_rl.loss(inputs, trust_region=RULE).loss.item() == pytest.approx(out.loss.item() / 2)
    keep = trust_region_mask(padded(roll), padded(theta).detach(), padded(masks), RULE)
    assert kept == keep.float().tolist()
    expected = masked_surrogate_loss(padded(roll), padded(theta), padded(masks), advantages, keep) * len(roll)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    ours, literal = (torch.autograd.grad(x, theta, retain_graph=True) for x in (total, expected))
    for a, b in zip(ours, literal, strict=True):
        assert torch.allclose(a, b, rtol=1e-5)


# --- README ---------------------------------------------------------------------------------------------------------


def readme():
    """README's lines for a training, as they stand: those of TRL, and those of a loop of one's own."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split("```py\n")[1:]]


def test_readmes_two_lines_are_a_trainer(tmp_path, monkeypatch):
    told = recorded("trl")
    package = ModuleType("trl")
    monkeypatch.setitem(sys.modules, "trl", package)
    monkeypatch.chdir(tmp_path)

    class GRPOTrainer(ReplayedTRL):
        def __init__(self, model, *, reward_funcs, args):
            super().__init__(told["calls"], weights=told["weights"])

    package.GRPOTrainer = GRPOTrainer
    space = {"model": "m", "reward": len, "config": None}
    exec(readme()[0], space)
    for call in told["calls"]:
        space["trainer"]._generate_and_score_completions(call["inputs"])
    space["trainer"]._monitor.close()
    assert len(list((tmp_path / "trm_log").iterdir())) == len(told["calls"])


def test_readmes_loop_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    roll, theta, masks = ragged()
    names = ("rollout_logprobs", "train_logprobs", "mask")
    grids = dict(zip(names, map(padded, (roll, theta, masks)), strict=True))
    batch = SimpleNamespace(
        **grids, advantages=torch.tensor([0.7, -1.3, 0.2, 1.1]), rewards=torch.ones(4), prompt_ids=["a", "a", "b", "b"]
    )
    space = {"batches": [batch]}
    exec(readme()[1], space)
    space["monitor"].close()
    assert len(readme()) == 2
    assert space["shown"]["acceptance"] == space["keep"].double().mean().item()
    assert len(bounds.read_traces(tmp_path / "trm_log")) == 4
