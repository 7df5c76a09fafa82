"""The training hooks against the literal formulas, NumPy's masks, autograd and finite differences."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil

import numpy as np
import pytest
import torch
from hard_logits import HARD, truth

from bounds import training
from bounds.divergence import from_logits, rows
from bounds.masks.mask import Criterion, Mask
from bounds.masks.statistics import STATISTICS, Tokens, pooled
from bounds.training import (
    Monitor,
    divergences_from_logits,
    masked_surrogate_loss,
    trust_region_mask,
    trust_region_mask_from_logits,
)

B, L, V = 40, 17, 11
ADVANTAGES = torch.linspace(-1.0, 0.7, B)[torch.randperm(B, generator=torch.Generator().manual_seed(2))]
SER, LN_TRM = "seq_mean_ratio_deviation<=0.4", "ln_trm(T=17,epsilon=0.1)<=0.4"


@pytest.fixture
def batch():
    """Log-probs [B, L] of two policies with ragged lengths, garbage in the padding, and a hole in some rows."""
    g = torch.Generator().manual_seed(0)
    roll = -torch.rand(B, L, generator=g) * 3
    train = (roll + 0.3 * torch.randn(B, L, generator=g)).clamp_max(0.0)
    length = torch.randint(1, L + 1, (B,), generator=g)
    mask = torch.arange(L)[None] < length[:, None]
    mask[::5, 1] = False
    garbage = torch.tensor([math.nan, -1e30, math.inf, -9999.0])[torch.randint(0, 4, (B, L), generator=g)]
    return torch.where(mask, roll, garbage), torch.where(mask, train, garbage.flip(0)), mask


def flat(batch, kl=None):
    """The policy tokens of the same responses, as NumPy's masks take them."""
    roll, train, mask = batch
    starts = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())])
    d = (train[mask].double() - roll[mask].double()).numpy()
    kl = None if kl is None else kl[mask].double().numpy()
    return Tokens(d, starts, kl, roll[mask].double().numpy(), ADVANTAGES.double().numpy())


def between(name, values):
    """A criterion that keeps some of the values and rejects some, its threshold away from every value."""
    ordered = np.unique(values)
    middle = (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2
    token = name.split("_", 2)[2]
    if token == "k1" or name == "seq_min_ratio":
        return Criterion(name, math.exp(middle), math.inf)
    if token == "ratio":
        return Criterion(name, -math.inf, math.exp(middle))
    return Criterion(name, -math.inf, middle)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_mask_statistic_decides_as_numpy_does(batch, name):
    kl = torch.rand(B, L, generator=torch.Generator().manual_seed(1))
    kl[~batch[2]] = math.nan
    tokens = flat(batch, kl)
    mask = Mask((between(name, pooled(name, tokens)),))
    given = {"rollout": tokens.rollout, "advantage": tokens.advantage}
    expected = mask.keep(tokens.log_ratio, tokens.starts, tokens.kl, **given)
    assert 0.2 * B < expected.sum() < (0.8 if name != "off_policy_gap" else 0.95) * B
    assert trust_region_mask(*batch, mask, kl=kl, advantages=ADVANTAGES).tolist() == expected.tolist()


def test_off_policy_sequence_masking_needs_advantages(batch):
    rule = "slime:--use-opsm --opsm-delta 0.01"
    with pytest.raises(ValueError, match=r"advantages must be a tensor \[40\], one for each response, got "):
        trust_region_mask(*batch, rule)
    assert trust_region_mask(*batch, rule, advantages=ADVANTAGES.abs()).all()


@pytest.mark.parametrize("constants", ["epsilon=0.1,delta=0.02", "epsilon=0.1", "delta=0.02"])
def test_ln_trm_decides_as_numpy_does(batch, constants):
    name, tokens = f"ln_trm(T={L},{constants})", flat(batch)
    rule = f"{name}<={np.median(pooled(name, tokens)) * (1 + 1e-9)}"
    expected = Mask.parse(rule).keep(tokens.log_ratio, tokens.starts)
    assert 0.3 * B < expected.sum() < 0.7 * B
    assert trust_region_mask(*batch, rule).tolist() == expected.tolist()


def test_ln_trm_does_not_keep_what_is_longer_than_the_cap(batch):
    length = batch[2].sum(1)
    rule = f"ln_trm(T={L // 2},epsilon=0.1)<=1000"
    assert trust_region_mask(*batch, rule).tolist() == (length <= L // 2).tolist()


def test_a_trainers_own_options_are_understood(batch):
    own = "verl:rollout_rs=seq_mean_k3,rollout_rs_threshold=0.04"
    assert torch.equal(trust_region_mask(*batch, own), trust_region_mask(*batch, "seq_mean_k3<=0.04"))


def test_criteria_are_all_required(batch):
    text = "seq_max_k2<=0.2,seq_mean_k3<=0.04"
    both, (first, second) = trust_region_mask(*batch, text), text.split(",")
    assert torch.equal(both, trust_region_mask(*batch, first) & trust_region_mask(*batch, second))
    assert 0 < both.sum() < min(trust_region_mask(*batch, first).sum(), trust_region_mask(*batch, second).sum())


def test_ser_and_ln_trm_are_their_formulas(batch):
    roll, train, mask = batch
    horizon, eps, delta = 20, 0.1, 0.02
    ser, neutral = [], []
    w = np.array([min(1, (horizon - t) * eps, math.sqrt((horizon - t) * delta / 2)) for t in range(1, horizon + 1)])
    for i in range(B):
        change = np.abs(np.expm1((train[i][mask[i]] - roll[i][mask[i]]).double().numpy()))
        ser.append(change.mean())
        neutral.append((change * w[: change.size]).sum() / w.sum())
    for values, name in (
        (ser, "seq_mean_ratio_deviation"),
        (neutral, f"ln_trm(T={horizon},epsilon={eps},delta={delta})"),
    ):
        limit = float(np.quantile(values, 0.51))
        kept = trust_region_mask(roll, train, mask, f"{name}<={limit}")
        assert kept.tolist() == [v <= limit for v in values]
        assert 0 < kept.sum() < B


def test_what_is_not_known_is_not_kept():
    roll, train = torch.zeros(4, 2) - 1, torch.zeros(4, 2) - 1
    train[0, 0], train[1, 0] = math.nan, -math.inf
    mask = torch.tensor([[1, 1], [1, 1], [0, 0], [1, 1]])
    for rule in (
        "seq_max_k2<=1",
        "seq_mean_k3<=0.4",
        "seq_mean_k1=0.5_2",
        "seq_min_ratio>=0.1",
        SER,
        "ln_trm(T=17,epsilon=0.1)<=0.01",
    ):
        assert trust_region_mask(roll, train, mask, rule).tolist() == [False, False, False, True]


def literal_surrogate(roll, train, mask, advantages, keep):
    """-(1/B) sum_i keep_i A_i sum_t rho_t, as one would write it."""
    total = 0.0
    for i in range(mask.shape[0]):
        if keep[i]:
            for t in torch.nonzero(mask[i])[:, 0]:
                total = total + advantages[i] * torch.exp(train[i, t] - roll[i, t])
    return -total / mask.shape[0]


@pytest.fixture
def weighted(batch):
    roll, train, mask = batch
    train = torch.where(mask, train, 0.0).double().requires_grad_()
    advantages = torch.randn(B, generator=torch.Generator().manual_seed(2)).double()
    return roll.double(), train, mask, advantages, trust_region_mask(*batch, "seq_mean_k3<=0.04")


def test_the_surrogate_and_its_gradient_are_the_literal_ones(weighted):
    _roll, train, mask, _advantages, keep = weighted
    loss, literal = masked_surrogate_loss(*weighted), literal_surrogate(*weighted)
    assert loss.item() == pytest.approx(literal.item(), rel=1e-12)
    gradient, expected = (torch.autograd.grad(x, train)[0] for x in (loss, literal))
    assert torch.allclose(gradient, expected, rtol=1e-12, atol=0)
    assert gradient[~(mask & keep[:, None])].abs().max() == 0.0
    assert gradient[mask & keep[:, None]].abs().min() > 0.0


def test_the_gradient_is_a_finite_difference(weighted):
    roll, train, mask, advantages, keep = weighted
    gradient = torch.autograd.grad(masked_surrogate_loss(*weighted), train)[0].numpy()
    r, x = np.where(mask, roll, 0.0), train.detach().numpy()

    def value(theta):
        rho = np.where(mask & keep[:, None], np.exp(theta - r), 0.0)
        return -float((advantages.numpy() * rho.sum(1)).sum()) / B

    rng = np.random.default_rng(0)
    for _ in range(5):
        direction = rng.standard_normal(x.shape)
        slope = (value(x + 1e-5 * direction) - value(x - 1e-5 * direction)) / 2e-5
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-7)


def test_all_responses_are_in_the_denominator():
    """FORMATS: 1.11 + .22 + 2.23 + 5e-5 + 1.35 with the first and last kept is 0.492 over all five."""
    rho = torch.tensor([[1.11], [0.22], [2.23], [5e-5], [1.35]])
    keep = torch.tensor([True, False, False, False, True])
    loss = masked_surrogate_loss(torch.zeros(5, 1), rho.log(), torch.ones(5, 1), torch.ones(5), keep)
    assert -loss.item() == pytest.approx(0.492)


def test_an_overflow_in_a_rejected_response_changes_nothing():
    train = torch.tensor([[-1.0], [0.0]], requires_grad=True)
    roll = torch.tensor([[-1.0], [-1000.0]])
    keep = trust_region_mask(roll, train, torch.ones(2, 1), "seq_max_k2<=0.05")
    loss = masked_surrogate_loss(roll, train, torch.ones(2, 1), torch.ones(2), keep)
    loss.backward()
    assert loss.item() == -0.5
    assert train.grad.tolist() == [[-0.5], [0.0]]


def test_no_gradient_through_the_sampler_the_advantages_or_the_decision(weighted):
    roll, train, mask, advantages, keep = weighted
    roll, advantages = torch.where(mask, roll, 0.0).requires_grad_(), advantages.requires_grad_()
    masked_surrogate_loss(roll, train, mask, advantages, keep).backward()
    assert roll.grad is None
    assert advantages.grad is None
    assert not trust_region_mask(roll, train, mask, "seq_max_k2<=0.05").requires_grad


@pytest.fixture
def logits():
    g = torch.Generator().manual_seed(3)
    p = 2 * torch.randn(B, L, V, generator=g)
    scale = torch.logspace(-4, 0.5, B)[:, None, None]
    return p, p + scale * torch.randn(B, L, V, generator=g)


def test_exact_divergences_are_those_of_the_probabilities(logits):
    found = divergences_from_logits(*logits)
    p, q = (x.double().softmax(-1).numpy() for x in logits)
    for name, exact in (
        ("kl", rows.kl_divergence),
        ("tv", rows.total_variation),
        ("chi2", rows.chi2_divergence),
    ):
        # what remains is the rounding of float32 logits, which is 1e-7 of a log ratio of 1e-4 at the least
        np.testing.assert_allclose(getattr(found, name), exact(p, q), rtol=2e-2, atol=1e-12)
        np.testing.assert_allclose(getattr(found, name)[10:], exact(p, q)[10:], rtol=5e-3)


@pytest.mark.parametrize("name", [n for n, rows in HARD.items() if abs(np.nan_to_num(rows, neginf=0)).max() < 1e8])
def test_the_largest_log_ratio_is_never_below_the_truth(name):
    pair = [torch.from_numpy(x).float() for x in HARD[name]]
    for roll, theta, value in zip(*pair, divergences_from_logits(*pair).max_log_ratio, strict=True):
        expected = truth(tuple(roll.tolist()), tuple(theta.tolist()))["max_log_ratio"]
        rare = 1e-6 * float(max(x.amax() - x[x > -torch.inf].amin() for x in (roll, theta)))
        assert expected <= value.item() <= expected + 2e-5 + 2 * rare


def test_blocks_of_rows_change_nothing(logits, monkeypatch):
    whole = divergences_from_logits(*logits)
    monkeypatch.setattr(training.logits, "_LOGITS_AT_ONCE", 3 * V)
    assert torch.equal(whole.kl, divergences_from_logits(*logits).kl)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch.compile imports what torch deprecates
def test_what_is_compiled_gives_the_same(logits):
    """By torch.compile, here for the CPU; max_log_ratio stays an upper value, and a support gap is one."""
    roll, theta = (x.clone() for x in logits)
    roll[5, 0, 3] = -math.inf
    plain, fused = (divergences_from_logits(roll, theta, compiled=x) for x in (False, True))
    for name in ("kl", "tv", "chi2"):
        torch.testing.assert_close(getattr(fused, name), getattr(plain, name), rtol=1e-3, atol=3e-7)
    torch.testing.assert_close(fused.max_log_ratio, plain.max_log_ratio, rtol=1e-5, atol=1e-6)
    exact = from_logits(*(x.reshape(-1, V) for x in (roll, theta)), precise=True).max_log_ratio
    assert (fused.max_log_ratio.double().reshape(-1).numpy() >= exact).all()
    assert torch.isinf(fused.chi2).sum() == 1


def test_a_support_gap_is_counted():
    p, q = torch.tensor([[0.5, 0.5, 0.0]]).log(), torch.tensor([[0.4, 0.4, 0.2]]).log()
    found = divergences_from_logits(p, q)
    assert found.kl.item() == pytest.approx(math.log(0.5 / 0.4), rel=1e-6)
    assert found.tv.item() == pytest.approx(0.2, rel=1e-6)
    assert found.chi2.item() == math.inf
    assert divergences_from_logits(q, p).kl.item() == math.inf


def test_the_mask_from_logits_takes_the_exact_kl(logits):
    g = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, V, (B, L), generator=g)
    mask = torch.arange(L)[None] < torch.randint(1, L + 1, (B,), generator=g)[:, None]
    kl = divergences_from_logits(*logits).kl
    roll, train = (x.log_softmax(-1).gather(-1, tokens[..., None])[..., 0] for x in logits)
    tokens[~mask] = -100  # as trainers pad labels
    expected = [bool(kl[i][mask[i]].max() <= 0.1) for i in range(B)]
    assert trust_region_mask_from_logits(*logits, tokens, mask, "seq_max_kl<=0.1").tolist() == expected
    assert 0 < sum(expected) < B
    rule = "seq_max_kl<=0.5,seq_mean_k3<=0.1"
    assert torch.equal(
        trust_region_mask_from_logits(*logits, tokens, mask, rule), trust_region_mask(roll, train, mask, rule, kl=kl)
    )


def test_the_monitor_says_what_trainers_say(batch):
    roll, train, mask = batch
    rule = "seq_mean_k3<=0.04"
    seen = Monitor(horizon=L, rule=rule)(roll, train, mask)
    d = [(train[i] - roll[i])[mask[i]].double().numpy() for i in range(B)]
    tokens = np.concatenate(d)
    gaps = [np.maximum(1 + np.expm1(x).sum() - np.exp(x.sum()), 0) for x in d]
    expected = {
        "kl": -tokens.mean(),
        "k3_kl": (np.expm1(tokens) - tokens).mean(),
        "chi2_token": np.expm1(2 * tokens).mean(),
        "chi2_seq": np.mean([np.expm1(2 * x.sum()) for x in d]),
        "log_ppl_abs_diff": np.mean([abs(x.mean()) for x in d]),
        "probs_diff": (train[mask].double().exp() - roll[mask].double().exp()).abs().mean().item(),
        "kl_seq": np.mean([(np.expm1(x) - x).sum() for x in d]),
        "worst_case_error": np.mean(gaps),
        "acceptance": trust_region_mask(roll, train, mask, rule).double().mean().item(),
    }
    for name, value in expected.items():
        assert seen[name] == pytest.approx(value, rel=1e-6), name
    lengths, keep = mask.sum(1), trust_region_mask(roll, train, mask, rule)
    assert seen["acceptance_by_length/9_12"] == pytest.approx(
        keep[(lengths > 8) & (lengths <= 12)].double().mean().item()
    )
    assert {n for n in seen if "/" in n} == {f"acceptance_by_length/{a}" for a in ("1_4", "5_8", "9_12", "13_17")}


def test_empty_responses_and_overflow_are_not_hidden():
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    seen = Monitor(horizon=2, rule="seq_max_k2<=0.05")(torch.full((2, 2), -1.0), torch.full((2, 2), -1.1), mask)
    assert seen["log_ppl_abs_diff"] == pytest.approx(0.1)
    assert seen["acceptance"] == 1.0
    assert "acceptance_by_length/1_1" not in seen  # no response of this length
    far = Monitor(horizon=2)(torch.full((1, 2), -2000.0), torch.full((1, 2), -1.0), torch.ones(1, 2))
    assert far["chi2_seq"] == math.inf
    assert far["worst_case_error"] == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda r, m: trust_region_mask(r, r[:, :1], m, "seq_max_k2<=1"),
            r"train_logprobs must be a tensor of the sha",
        ),
        (lambda r, m: trust_region_mask(r, r, m, "seq_max_kl<=1"), "seq_max_kl needs kl"),
        (lambda r, m: trust_region_mask(r, r, m[0], "seq_max_k2<=1"), r"mask must be a tensor \[B, L\]"),
        (lambda r, m: trust_region_mask(r, r, m, "seq_mean_k3<=1.001"), "looks like a bound on a ratio"),
        (lambda r, m: masked_surrogate_loss(r, r, m, r, m[:, 0]), r"advantages must be a tensor of shape \(2,\)"),
        (lambda r, m: divergences_from_logits(r, r[:1]), "train_logits must be a tensor of the shape of rollout_log"),
        (lambda r, m: Monitor(horizon=0), "horizon must be a whole number"),
        (lambda r, m: Monitor(horizon=3, rule="token_k2<=0.1"), "got rule=token_k2<=0.1"),
        (lambda r, m: trust_region_mask(r, r, m, "clip_token_ratio<=2"), "got rule=clip_token_ratio<=2"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(2, 3), torch.ones(2, 3))


def test_half_precision_is_widened_before_it_is_subtracted():
    roll, train = (torch.tensor([[x]], dtype=torch.bfloat16) for x in (-6.8125, -6.84375))
    loss = masked_surrogate_loss(roll, train, torch.ones(1, 1), torch.ones(1), torch.ones(1, dtype=torch.bool))
    assert loss.dtype == torch.float32
    assert -loss.item() == pytest.approx(math.exp(-0.03125), rel=1e-6)


def test_the_hot_path_copies_nothing_to_the_host(batch):
    """On the meta device there are no values: whatever asks for one raises."""
    roll, train, mask = (x.to("meta") for x in batch)
    keep = trust_region_mask(roll, train, mask, "seq_max_k2<=0.05,seq_mean_k3<=0.001,seq_mean_k1=0.9_1.1")
    assert keep.device.type == "meta"
    for rule in (SER, LN_TRM):
        assert trust_region_mask(roll, train, mask, rule).device.type == "meta"
    loss = masked_surrogate_loss(roll, train.requires_grad_(), mask, torch.empty(B, device="meta"), keep)
    loss.backward()
    assert train.grad.device.type == "meta"
    logits = torch.empty(B, L, V, device="meta")
    tokens = torch.empty(B, L, dtype=torch.long, device="meta")
    assert trust_region_mask_from_logits(logits, logits, tokens, mask, "seq_max_kl<=0.1").device.type == "meta"


def test_the_examples_of_the_module_hold():
    names = [module.name for module in pkgutil.iter_modules(training.__path__, "bounds.training.")]
    results = [doctest.testmod(importlib.import_module(name)) for name in names]
    assert sum(result.attempted for result in results) >= 10
    assert all(result.failed == 0 for result in results)
