"""The inverse is safe in floats: the table at the answer meets the target, one float above it does not."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bounds
from bounds._rounding import largest_float, largest_integer
from bounds.cli.main import main


def best(published=False, **known):
    table = bounds.unified(**known)
    return (table.best_published if published else table.best).value


@pytest.mark.parametrize("quantity", ["delta", "epsilon", "chi2_max", "kl_seq"])
@pytest.mark.parametrize("target", [1e-9, 0.01, 0.5, 3.0])
@pytest.mark.parametrize("T", [2, 300, 4096, 10**6])
def test_the_answer_meets_the_target_and_a_hair_more_does_not(quantity, target, T):
    x = bounds.largest(quantity, target, T=T)
    assert best(**{"T": T, quantity: x}) <= target
    above = math.nextafter(x, math.inf)
    if (quantity == "epsilon" and x == 1.0) or x == math.inf:
        return
    assert best(**{"T": T, quantity: above}) > target


@pytest.mark.parametrize("known", [{"delta": 1e-4}, {"epsilon": 1e-3}, {"chi2_max": 1e-6}])
@pytest.mark.parametrize("target", [0.01, 0.5])
def test_the_largest_horizon(known, target):
    T = bounds.largest("T", target, **known)
    assert isinstance(T, int)
    assert best(T=T, **known) <= target < best(T=T + 1, **known)


def test_known_answers():
    assert bounds.largest("delta", 0.5, T=4096) == 0.5 / 4096  # T delta
    assert bounds.largest("kl_seq", 0.25, T=10**9) == 0.25
    assert bounds.largest("mean_kl_token", 0.5, T=4096) == 0.5 / 4096
    assert bounds.largest("mean_kl_token", 0.5, T=4096, mean_length=1024.0) == 0.5 / 1024
    assert bounds.largest("T", 0.5, kl_seq=0.1) == 2**53  # D does not see the horizon
    assert bounds.largest("epsilon", 4096.0, T=10) == 1.0
    published = bounds.largest("delta", 0.5, T=4096, published=True)
    assert best(True, T=4096, delta=published) <= 0.5 < best(True, T=4096, delta=math.nextafter(published, 1))
    assert published < bounds.largest("delta", 0.5, T=4096) / 50


def test_what_else_is_known_counts():
    assert bounds.largest("delta", 0.5, T=4096, kl_seq=0.1) == math.inf  # D alone meets it
    assert bounds.largest("kl_seq", 0.5, T=100, delta=1e-4) == pytest.approx(
        0.01, rel=1e-15
    )  # above that delta contradicts
    assert bounds.largest("delta", 0.5, T=4096, mean_length=100.0) == pytest.approx(0.005, rel=1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.largest("delt", 0.5, T=10), "unknown quantity 'delt'; did you mean 'delta'"),
        (lambda: bounds.largest("delta", -1.0, T=10), "target must be"),
        (lambda: bounds.largest("delta", 0.5, T=10, delta=0.1), "delta is what is asked for"),
        (lambda: bounds.largest("T", 0.5, mean_kl=[0.1]), "mean_kl fixes T"),
        (lambda: bounds.largest("T", 0.5, kl_seq=0.7), "no T gives a bound of 0.5 or less"),
        (lambda: bounds.largest("delta", 0.5, T=10, epsilon=2.0), "epsilon must be"),
        (lambda: bounds.largest("kl_seq", 0.5, T=10, published=True), "no published rule can be evaluated .*: needs"),
        (lambda: bounds.largest("T", 0.5), "a bound needs at least one divergence"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(st.floats(0.0, 1e300), st.integers(0, 10**6), st.none() | st.integers(-5, 10**6 + 5))
def test_the_root_finder(x, n, near):
    """Whatever the guess."""
    assert largest_float(lambda y: y <= x, 0.0, math.inf, None if near is None else abs(near) * 1e-3) == x
    assert largest_integer(lambda k: k <= n, 0, 10**6, near) == n
    assert largest_float(lambda y: False, 0.0, 1.0) is None


def test_a_slack_value_limits_what_is_asked_for():
    """D cannot be larger than T delta, whatever bound is aimed at; a length above T is T."""
    assert bounds.largest("kl_seq", 50.0, T=100, delta=1e-4) == pytest.approx(0.01, rel=1e-15)
    token = bounds.largest("mean_kl_token", 50.0, T=100, delta=1e-4)
    assert token == pytest.approx(1e-4, rel=1e-15)
    assert bounds.largest("mean_kl_token", 0.5, T=4096, mean_length=1e9) == 0.5 / 4096
    assert bounds.largest("delta", 0.5, T=10, kl_seq=0.7) == pytest.approx(0.05, rel=1e-15)
    assert bounds.largest("delta", Fraction(1, 3), T=1000) <= Fraction(1, 3000)


def test_the_table_of_trust_regions():
    assert bounds.trust_regions(256, 0.1)["T"].tolist() == [256]
    frame = bounds.trust_regions([256, 4096], [0.1, 0.5])
    assert list(frame.columns) == [
        "T",
        "target",
        "delta",
        "epsilon",
        "kl_seq",
        "mean_kl_token",
        "chi2_max",
        "published_delta",
    ]
    assert frame.iloc[3]["delta"] == 0.5 / 4096
    assert (frame["published_delta"] < frame["delta"]).all()


def test_command(capsys):
    assert main(["largest", "delta", "--target", "0.5", "--T", "4096"]) == 0
    out = capsys.readouterr().out
    assert out == "|Error| <= 0.5 at T = 4096 is proved up to delta = 0.000122  (by trajectory_kl)\n"
    assert main(["largest", "T", "--target", "0.1", "0.5", "--delta", "1e-4"]) == 0
    assert "is proved up to T = 4999  (by trajectory_kl)" in capsys.readouterr().out
    assert main(["largest", "mean-kl-token", "--target", "0.5", "--T", "256", "4096", "--json"]) == 0
    assert '"mean_kl_token": 0.0001220703125' in capsys.readouterr().out
    assert main(["largest", "delta", "--target", "0.5"]) == 2
    assert "largest needs --T" in capsys.readouterr().err


@pytest.mark.parametrize("published", [True, False])
def test_why_no_rule_can_be_asked_is_of_the_rules_that_were_asked(published):
    with pytest.raises(ValueError, match="rule can be evaluated with what is known: needs epsilon") as refused:
        bounds.largest("T", target=0.1, chi2_max=0.01, support_gap=0.1, published=published)
    assert ("chi2 is infinite" in str(refused.value)) is not published
