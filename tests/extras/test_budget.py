"""The controller of a budget of D: where it comes to rest, and the ways in which it is said to fail."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bounds.training import Budget


def run(budget, gain, spent, steps=200):
    """Let a budget follow steps whose L' and D are functions of the setting."""
    return [budget(gain(budget.setting), spent(budget.setting)) for _ in range(steps)]


@pytest.mark.parametrize("start", [1e-5, 0.01, 1.0])
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_it_comes_to_rest_where_the_bound_is_the_fraction_of_the_gain(start, spread):
    budget = Budget(start, low=1e-6, high=10.0, fraction=0.25, spread=spread)
    settings = run(budget, lambda s: 0.5 * s, lambda s: 3.0 * s**2)
    assert settings[-1] == pytest.approx(0.25 * 0.5 / 3.0 / spread, rel=1e-3)
    assert budget.use == pytest.approx(1.0, rel=1e-3)
    ratio = np.array(settings[1:]) / np.array(settings[:-1])
    assert ratio.min() >= 0.5
    assert ratio.max() <= 1.25 + 1e-12


def test_a_floor_of_d_that_no_setting_takes_away_sends_it_to_the_lowest():
    gain, fraction, c = 0.5, 0.25, 3.0
    most = (fraction * gain) ** 2 / (4 * c)  # a larger floor than this cannot be paid at any setting
    for floor, rests in ((0.5 * most, False), (1.5 * most, True)):
        budget = Budget(0.04, low=1e-6, high=10.0, fraction=fraction)
        settings = run(budget, lambda s: gain * s, lambda s, floor=floor: floor + c * s**2)
        assert (settings[-1] == budget.low) == rests


def test_without_a_gain_it_sinks_and_what_is_unknown_halves_it():
    budget = Budget(1.0, low=0.1, high=2.0)
    assert budget(math.nan, 0.1) == 0.5
    assert budget(0.1, math.inf) == 0.25
    assert budget(-0.1, 0.1) == 0.125
    assert budget.use == math.inf
    assert budget(-0.1, 0.1) == 0.1


def test_where_nothing_is_spent_it_grows_slowly_and_whole_numbers_are_rounded_down():
    budget = Budget(2, low=1, high=4, whole=True)
    assert [budget(0.1, 0.0) for _ in range(5)] == [2, 3, 3, 4, 4]
    assert [budget(0.001, 1.0) for _ in range(3)] == [2, 1, 1]


@pytest.mark.parametrize("argument", [{"low": 0.0}, {"low": 2.0, "high": 1.0}, {"fraction": 1.5}, {"memory": -1.0}])
def test_arguments_are_checked(argument):
    with pytest.raises(ValueError, match=f"{next(iter(argument))} must be"):
        Budget(**{"setting": 1.0, "low": 0.1, "high": 1.0, **argument})
