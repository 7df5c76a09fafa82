"""A step that is judged before it counts: what it costs, what it leaves, and how often it errs; needs torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from bounds.intervals import betting, prompt_means
from bounds.training import Guard

N, ALPHA = 400, 0.05


class Bandit:
    """One token a response, a parameter for each; the sampler is uniform. Held-out responses are fresh ones."""

    def __init__(self, worth, seed=0, n=N, group=1):
        self.rng, self.worth = np.random.default_rng(seed), np.array(worth)
        self.logits = torch.zeros(len(worth), dtype=torch.float64)
        self.tokens = self.rng.integers(len(worth), size=(n, 1))
        self.roll = torch.full((n, 1), -math.log(len(worth)), dtype=torch.float64)
        self.rewards, self.ids = self.worth[self.tokens[:, 0]], np.arange(n) // group
        self.scored = []

    def move(self, change):
        self.logits += torch.tensor(change, dtype=torch.float64)

    def score(self):
        self.scored.append(self.logits.clone())
        return self.logits.log_softmax(0)[torch.from_numpy(self.tokens)]

    def step(self, guard, change, **other):
        given = {"score": self.score, "rollout_logprobs": self.roll, "rewards": self.rewards, "prompt_ids": self.ids}
        given |= {"mask": torch.ones_like(self.roll), **other}
        return guard(lambda: self.move(change), iter([self.logits]), **given)

    def gain(self, logits=None):
        law = (self.logits if logits is None else logits).softmax(0).numpy()
        return float((law - 1 / len(law)) @ self.worth)


GOOD, BAD = [1.0, -1.0], [-1.0, 1.0]


@pytest.mark.parametrize(
    ("mode", "change", "kept"),
    [
        ("report", GOOD, 1.0),
        ("report", BAD, 1.0),
        ("guard", GOOD, 1.0),
        ("guard", [0.01, 0.0], 1.0),
        ("certify", GOOD, 1.0),
        ("certify", [0.01, 0.0], 0.0),
        ("certify", BAD, 0.0),
    ],
)
def test_what_each_mode_keeps(mode, change, kept):
    bandit = Bandit([1.0, 0.0])
    decision = bandit.step(Guard(mode=mode), change)
    assert decision.kept == kept
    assert bandit.logits.tolist() == [kept * c for c in change]
    assert len(decision.seen) == len(bandit.scored) == (3 if kept == 0.0 else 1)
    assert decision.action in str(decision)


def test_harm_that_is_shown_is_rolled_back_at_once():
    bandit = Bandit([1.0, 0.0])
    decision = bandit.step(Guard(mode="guard"), [-0.3, 0.3])
    assert decision.action == "rolled back"
    assert len(decision.seen) == 1
    assert decision.seen[0].improvement.high < 0.0
    assert bandit.logits.tolist() == [0.0, 0.0]


def test_a_step_beyond_the_budget_is_shrunk_along_its_line():
    bandit = Bandit([1.0, 0.0])
    decision = bandit.step(Guard(mode="certify", budget=0.2), [1.5, -0.75])
    assert decision.action == "shrunk"
    assert [x.tolist() for x in bandit.scored] == [[1.5, -0.75], [0.75, -0.375]]
    assert bandit.logits.tolist() == [0.75, -0.375]
    first, last = decision.seen
    assert first.kl_seq > 0.2 >= last.kl_seq
    law = bandit.logits.softmax(0)
    assert last.kl_seq == pytest.approx(float((0.5 * (0.5 / law).log()).sum()), rel=0.2)
    assert decision.scalars()["guard/kl_seq"] == last.kl_seq
    assert decision.to_dict()["seen"][0]["improvement"]["standing"] == "measured"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_rolled_back_is_what_was_to_the_last_bit(dtype):
    g = torch.Generator().manual_seed(0)
    layers = [torch.randn(40, 3, generator=g).to(dtype), torch.randn(7, generator=g).to(dtype)]
    before = [p.clone() for p in layers]

    def take():
        for p in layers:
            p.add_(torch.randn(p.shape, generator=g).to(dtype))

    roll = torch.zeros(4, 2)
    Guard(mode="certify")(take, layers, lambda: roll - 1.0, roll, torch.ones(4, 2), [0.0] * 4, list("abcd"))
    assert all(torch.equal(p, old) for p, old in zip(layers, before, strict=True))


def test_the_limits_are_bets_at_the_level_that_is_spent():
    bandit = Bandit([1.0, 0.25, 0.0], group=4)
    guard = Guard(mode="report", confidence=0.9, ladder=(1.0, 0.5), reward_range=(-1.0, 1.0), step=2)
    (seen,) = bandit.step(guard, [0.4, 0.0, 0.0]).seen
    ratio = bandit.logits.softmax(0).numpy()[bandit.tokens[:, 0]] * 3
    reward, level = (bandit.rewards + 1) / 2, 1 - 0.1 / (3 * 4) / 2
    low = betting(prompt_means(reward * (ratio - 1), bandit.ids), level, low=-1.0, side="lower").low
    high = betting(prompt_means((1 - reward) * (1 - ratio), bandit.ids), level, high=1.0, side="upper").high
    assert (seen.improvement.low, seen.improvement.high) == pytest.approx((2 * low, 2 * high), rel=1e-9)
    assert seen.kl_seq == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-9)
    mean = bandit.rewards.reshape(-1, 4).mean(1).repeat(4)
    others = (4 * mean - bandit.rewards) / 3
    assert seen.surrogate_gain == pytest.approx(((bandit.rewards - others) * (ratio - 1)).mean(), rel=1e-9)


def test_whole_prompts_are_held_out_for_good():
    ids = np.repeat(np.arange(4000), 2)
    held = Guard(share=0.2, seed=5).held_out(ids)
    assert (held[::2] == held[1::2]).all()
    assert binomtest(int(held[::2].sum()), 4000, 0.2).pvalue > 1e-3
    assert (Guard(share=0.2, seed=5).held_out([str(i) for i in ids.tolist()]) == held).all()
    assert (Guard(share=0.2, seed=5).held_out(torch.from_numpy(ids)) == held).all()
    assert 0.25 < (Guard(share=0.2, seed=6).held_out(ids) != held).mean() < 0.4
    assert not Guard(share=0.0).held_out(ids).any()
    assert Guard(share=1.0).held_out(ids).all()


def test_what_is_not_known_counts_as_the_worst():
    known = Bandit([1.0, 0.0])
    whole = known.step(Guard(), GOOD).seen[0]
    for spoil in ("rewards", "roll", "score"):
        bandit = Bandit([1.0, 0.0])
        bandit.rewards = bandit.rewards.astype(float)
        if spoil == "rewards":
            bandit.rewards[3] = 7.0
        elif spoil == "roll":
            bandit.roll[3] = math.nan
        score = bandit.score
        if spoil == "score":
            bandit.score = lambda score=score: score().index_fill(0, torch.tensor([3]), math.nan)
        seen = bandit.step(Guard(), GOOD).seen[0]
        assert seen.improvement.low < whole.improvement.low
        assert seen.improvement.high > whole.improvement.high
        assert seen.kl_seq == math.inf


def test_broken_weights_are_rolled_back_and_nothing_is_raised():
    bandit = Bandit([1.0, 0.0])
    decision = bandit.step(Guard(mode="guard"), [math.nan, 0.0])
    assert decision.action == "rolled back"
    assert bandit.logits.tolist() == [0.0, 0.0]
    bandit.step(Guard(mode="guard"), [math.inf, -math.inf])
    assert bandit.logits.tolist() == [0.0, 0.0]


def test_without_held_out_prompts_nothing_is_shown(caplog):
    nothing = {"rollout_logprobs": torch.zeros(0, 1), "mask": torch.zeros(0, 1), "rewards": [], "prompt_ids": []}
    for mode, action in (("report", "accepted"), ("guard", "accepted"), ("certify", "rolled back")):
        bandit, guard = Bandit([1.0, 0.0]), Guard(mode=mode)
        for _ in range(2):
            assert bandit.step(guard, GOOD, **nothing).action == action
        assert bandit.scored == []
    assert sum("holds out too few" in r.getMessage() for r in caplog.records) == 3


def test_what_the_trainer_raises_passes_and_leaves_the_weights_before():
    bandit = Bandit([1.0, 0.0])

    def fails():
        raise MemoryError

    with pytest.raises(MemoryError):
        bandit.step(Guard(mode="guard"), GOOD, score=fails)
    assert bandit.logits.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"rewards must be one for each of the 400 responses"):
        bandit.step(Guard(mode="guard"), GOOD, rewards=[1.0])
    with pytest.raises(ValueError, match=r"score must be a tensor of the shape of mask"):
        bandit.step(Guard(mode="guard"), GOOD, score=lambda: torch.zeros(3, 1))
    assert bandit.logits.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ({"mode": "strict"}, "mode must be 'report', 'guard' or 'certify', got mode='strict'"),
        ({"share": 1.5}, r"share must be a number in \[0, 1\]"),
        ({"ladder": (0.5, 0.25)}, "ladder must be 1, then smaller and smaller shares above 0"),
        ({"ladder": (1.0, 0.0)}, "ladder must be 1, then"),
        ({"confidence": 1.0}, "confidence"),
        ({"reward_range": (1, 0)}, "reward_range must be"),
    ],
)
def test_arguments_are_checked(argument, text):
    with pytest.raises(ValueError, match=text):
        Guard(**argument)


def test_a_certified_step_harms_as_rarely_as_said_if_it_is_judged_on_fresh_responses():
    """Runs of greedy steps on noise: the true change is never above 0, what a step learned from says that it is."""
    worth = np.full(16, 0.5)
    shown = {"fresh": 0, "learned from": 0}
    for seed in range(150):
        for held in shown:
            bandit, rng = Bandit(worth, seed, n=60), np.random.default_rng([seed, 1])
            bandit.rewards = rng.integers(2, size=60).astype(float)
            learned = Bandit(worth, seed + 1000, n=60) if held == "fresh" else bandit
            learned.rewards = bandit.rewards if held != "fresh" else rng.integers(2, size=60).astype(float)
            centred = learned.rewards - learned.rewards.mean()
            change = 3 * np.bincount(learned.tokens[:, 0], centred, 16) / 4
            shown[held] += bandit.step(Guard(mode="certify"), change).kept > 0.0
    assert binomtest(shown["fresh"], 150, ALPHA, alternative="greater").pvalue > 1e-3
    assert binomtest(shown["learned from"], 150, ALPHA, alternative="greater").pvalue < 1e-6
