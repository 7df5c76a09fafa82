"""Bets against what a log is taken for: their level where it holds, their power where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from bounds.intervals.hypotheses import filtered, mean_above_one, neighbours_alike, token_ratios_above_one

LOGS, GROUPS, SIZE = 100, 32, 8
ALPHA = 0.05
#: Beta laws of success rates.
LAWS = {
    "two-sided": (0.5, 0.5),
    "flat": (1.0, 1.0),
    "middling": (2.0, 2.0),
    "rare": (0.1, 2.0),
    "equal": (500.0, 500.0),
}


def rewards(rng, law, groups=GROUPS, size=SIZE):
    return rng.random((groups, size)) < rng.beta(*law, (groups, 1))


def share(bet, alpha=ALPHA, logs=LOGS):
    """Return how many logs a bet speaks against; ``bet`` takes a random generator."""
    return sum(bet(np.random.default_rng(k)) > -math.log(alpha) for k in range(logs))


def at_most(found, alpha=ALPHA, logs=LOGS):
    return binomtest(found, logs, alpha, alternative="greater").pvalue > 1e-3


def rare(rng, size):
    """Ratios of mean 1: seldom 20, else a little below 1."""
    return np.where(rng.random(size) < 1e-3, 20.0, (1.0 - 0.02) / (1.0 - 1e-3))


@pytest.mark.parametrize("law", LAWS)
def test_honest_groups_are_not_spoken_against(law):
    def count(rng):
        return np.bincount(rewards(rng, LAWS[law]).sum(axis=1), minlength=SIZE + 1)

    assert at_most(share(lambda rng: filtered(count(rng))))


@pytest.mark.parametrize("law", LAWS)
def test_the_order_of_independent_prompts_says_nothing(law):
    def alike(rng):
        return neighbours_alike(rewards(rng, LAWS[law], GROUPS * SIZE, 1).reshape(-1, SIZE).sum(axis=1), SIZE)

    assert at_most(share(alike))


def test_ratios_of_two_policies_have_mean_one():
    assert at_most(share(lambda rng: mean_above_one(rare(rng, 200))))
    assert at_most(share(lambda rng: mean_above_one(np.exp(rng.normal(-0.5, 1.0, 200)))))
    assert at_most(share(lambda rng: token_ratios_above_one([np.log(rare(rng, 1000))] * 1)))
    assert at_most(share(lambda rng: token_ratios_above_one(rng.normal(-0.02, 0.2, (4, 500)))))


def test_what_the_bets_see():
    """Ids of responses at 32 groups of 8; filtered groups only at some hundreds; ratios that exceed 1 by a little."""

    def kept(groups):
        def bet(rng):
            top = rewards(rng, LAWS["two-sided"], 20 * groups).sum(axis=1)
            return filtered(np.bincount(top[(top > 0) & (top < SIZE)][:groups], minlength=SIZE + 1))

        return bet

    assert share(lambda rng: neighbours_alike(rewards(rng, LAWS["flat"]).sum(axis=1), SIZE), 1e-4, 50) >= 40
    assert share(kept(512), 1e-4, 20) == 20
    assert share(kept(32), 1e-4, 20) == 0
    assert share(lambda rng: token_ratios_above_one([rng.normal(0.01, 0.1, 10_000)]), 1e-4, 20) == 20
    assert share(lambda rng: mean_above_one(np.append(rng.normal(1.0, 0.01, 50), math.exp(25.0))), 1e-4, 5) == 5


def test_wealth_by_hand():
    """One bet of each: values against the formulas of their docstrings."""
    assert mean_above_one(np.array([1.0, 1.0])) == 0.0
    levels = 1.0 / (1.0 + np.exp2(-np.arange(-12.0, 12.5)))
    assert mean_above_one(np.array([3.0, 0.5])) == pytest.approx(
        math.log(((1.0 + 2.0 * levels) * (1.0 - 0.5 * levels)).mean())
    )
    halves = 0.5 ** np.arange(1.0, 9.0)
    assert token_ratios_above_one([np.array([1.0]), np.log([0.5])]) == pytest.approx(
        math.log(((1.0 + halves) * (1.0 - 0.5 * halves)).mean())
    )
    odds, stakes = np.exp2(np.arange(-5.0, 5.5))[:, None, None], np.array([0.1, 0.3, 0.9])[:, None]
    form = np.concatenate([odds**2, -odds, np.ones_like(odds)], axis=2)  # G = 2: C(2, 1) = 2
    wealth = np.prod((1.0 - stakes * form / form.max(axis=2, keepdims=True)) ** np.array([1, 3, 2]), axis=2)
    assert filtered(np.array([1, 3, 2])) == pytest.approx(math.log(wealth.mean()))
    # two blocks of two, 2 and 0 successes, by the beta law of 2: B(4, 2) B(2, 4) / B(2, 2)^2 = (0.3)^2
    orders = {(2, 0): 0.3 * 0.3, (0, 2): 0.3 * 0.3, (1, 1): 4 * 0.2 * 0.2}
    half = {(2, 0): 0.375**2, (0, 2): 0.375**2, (1, 1): 4 * 0.125**2}
    each = [law[2, 0] / (sum(law.values()) / 6.0) for law in (orders, half)]
    assert neighbours_alike(np.array([2, 0]), 2) == pytest.approx(math.log(sum(each) / 2.0))
    assert neighbours_alike(np.array([0, 0]), 2) == 0.0
