"""Bets against what a log is taken for: their level where it holds, their power where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import betabinom, binomtest, dirichlet_multinomial

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
    """Ids of responses at 32 groups of 8; filtered groups at 256; ratios that exceed 1 by a little."""

    def kept(groups):
        def bet(rng):
            top = rewards(rng, LAWS["two-sided"], 20 * groups).sum(axis=1)
            return filtered(np.bincount(top[(top > 0) & (top < SIZE)][:groups], minlength=SIZE + 1))

        return bet

    assert share(lambda rng: neighbours_alike(rewards(rng, LAWS["flat"]).sum(axis=1), SIZE), 1e-4, 50) >= 40
    assert share(kept(256), 1e-4, 20) >= 16
    assert share(kept(32), 1e-4, 20) == 0
    assert share(lambda rng: token_ratios_above_one([rng.normal(0.01, 0.1, 10_000)]), 1e-4, 20) == 20
    assert share(lambda rng: mean_above_one(np.append(rng.normal(1.0, 0.01, 50), math.exp(25.0))), 1e-4, 5) == 5


def test_groups_of_two_by_hand():
    """One group without success, three with one and two with two: the likeliest rate of all is 7/12."""
    groups, p = np.array([1, 3, 2]), 7 / 12
    likeliest = np.log([(1 - p) ** 2, 2 * p * (1 - p), p**2]) @ groups
    laws = [
        betabinom(2, mean * of, (1 - mean) * of).pmf(range(3)) * left
        for mean in (0.1, 0.3, 0.5, 0.7, 0.9)
        for of in (0.5, 1.0, 2.0, 5.0)
        for left in ((0, 1, 1), (1, 1, 0), (0, 1, 0))
    ]
    known = np.mean([np.prod((law / law.sum()) ** groups) for law in laws])
    ways = math.factorial(6) / math.prod(map(math.factorial, groups.tolist()))
    any_law = dirichlet_multinomial(np.full(3, 0.5), 6).pmf(groups) / ways
    wealth = math.log((known + any_law) / 2.0) - likeliest
    assert wealth - 1.1 < filtered(groups) < wealth
    assert filtered(np.zeros(3, dtype=np.int64)) == 0.0


def test_fixed_strata_are_not_spoken_against():
    """As many easy prompts as hard ones, not at random: counts vary less than those of any mixture."""
    rates = np.repeat([0.05, 0.5, 0.95], GROUPS // 3)
    assert at_most(share(lambda rng: filtered(np.bincount(rng.binomial(SIZE, rates), minlength=SIZE + 1))))


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
    # two blocks of two, 2 and 0 successes, by the beta law of 2: B(4, 2) B(2, 4) / B(2, 2)^2 = (0.3)^2
    orders = {(2, 0): 0.3 * 0.3, (0, 2): 0.3 * 0.3, (1, 1): 4 * 0.2 * 0.2}
    half = {(2, 0): 0.375**2, (0, 2): 0.375**2, (1, 1): 4 * 0.125**2}
    each = [law[2, 0] / (sum(law.values()) / 6.0) for law in (orders, half)]
    assert neighbours_alike(np.array([2, 0]), 2) == pytest.approx(math.log(sum(each) / 2.0))
    assert neighbours_alike(np.array([0, 0]), 2) == 0.0
