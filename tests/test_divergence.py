"""KL, TV, chi2 of rows and k1, k2, k3 of sampled tokens, against mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import real

import bounds
from bounds.divergence import inequalities, rows
from bounds.rules.arrays import curve_array, half_root_array


@given(st.floats(-700.0, 700.0))
def test_k3_is_accurate_everywhere(d):
    with mpmath.workdps(700):
        truth = mpmath.expm1(real(d)) - real(d)
        value = real(float(rows.k3(d)))
        assert abs(value - truth) <= truth * mpmath.mpf(10) ** -15 + mpmath.mpf(10) ** -320


@pytest.mark.parametrize("d", [1e-12, -1e-9, 1e-6, -1e-3, 0.4999, -0.5001, 0.5])
def test_k3_near_one(d):
    with mpmath.workdps(60):
        assert float(rows.k3(d)) == pytest.approx(float(mpmath.expm1(real(d)) - real(d)), rel=1e-15)


def test_every_coefficient_of_the_series_of_k3_counts():
    """At the end of its radius the mean error over many d is below half of what the last term is there."""
    d = np.linspace(0.46, 0.4999, 400)
    with mpmath.workdps(40):
        wrong = [
            mpmath.mpf(float(k)) / (mpmath.expm1(real(x)) - real(x)) - 1
            for x, k in zip(d.tolist(), rows.k3(d), strict=True)
        ]
    last = 2 * 0.48**13 / math.factorial(15)
    assert abs(float(mpmath.fsum(wrong))) / 400 < last / 2


def test_k3_overflows_to_inf():
    assert rows.k3(1000.0) == math.inf
    assert rows.k3(np.array([-1000.0])) == 999.0


def test_direction_of_k3():
    """d = -10: k3 is 9.000045; the other direction would say 22015.47."""
    assert rows.k3(-10.0) == pytest.approx(9.0000454)


def test_the_three_statistics():
    d = np.array([-0.2, 0.2, -0.2, 0.2])
    assert rows.k1(d).mean() == 0.0
    assert rows.k3(d).mean() == pytest.approx(0.02007, abs=1e-5)
    assert rows.k2(d).max() == pytest.approx(0.02)


def test_divergences_of_a_row_are_not_those_of_the_sampled_token():
    mu, pi = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    assert rows.kl_divergence(mu, pi) == pytest.approx(0.025267, abs=1e-6)
    assert rows.total_variation(mu, pi) == pytest.approx(0.1)
    assert rows.chi2_divergence(mu, pi) == pytest.approx(0.01 / 0.5 + 0.01 / 0.3)
    assert rows.missing_mass(mu, pi) == 0.0


@given(st.integers(2, 30), st.floats(1e-9, 1.0), st.integers(0, 10**6))
def test_kl_does_not_cancel(width, distance, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(width))
    q = (1 - distance) * p + distance * rng.dirichlet(np.ones(width))
    with mpmath.workdps(60):
        a, b = [[real(x) for x in row] for row in (p, q)]
        # the rows of the floats do not sum to 1 exactly: the k3 form is the KL of rows that do
        truth = mpmath.fsum(x * (y / x - 1 - mpmath.log(y / x)) for x, y in zip(a, b, strict=True) if x)
        assert abs(real(float(rows.kl_divergence(p, q))) - truth) <= truth * mpmath.mpf(10) ** -14 + real(1e-30)


def test_supports():
    assert rows.kl_divergence([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert rows.kl_divergence([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert rows.chi2_divergence([1.0, 0.0], [0.5, 0.5]) == math.inf
    assert rows.missing_mass([1.0, 0.0], [0.5, 0.5]) == 0.5
    assert rows.kl_divergence([1.0, 0.0], [1.0, 0.0]) == 0.0


@pytest.mark.parametrize("bad", [[0.5, 0.6], [-0.1, 1.1], [math.nan, 1.0]])
def test_rows_must_be_probabilities(bad):
    with pytest.raises(ValueError, match="roll must be rows of probabilities that sum to 1"):
        rows.kl_divergence(bad, [0.5, 0.5])


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="theta must be an array of the shape of roll"):
        rows.total_variation([0.5, 0.5], [1.0])


def test_extremes_do_not_overflow():
    assert rows.k3(math.inf) == math.inf
    assert rows.kl_divergence([1 - 1e-310, 1e-310], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert rows.kl_divergence([1e-10, 1 - 1e-10], [0.9, 0.1]) == pytest.approx(math.log(10), rel=1e-7)


@given(st.floats(-50.0, 0.0), st.floats(-50.0, 0.0))
def test_two_outcomes_have_at_most_the_divergence_of_the_row(log_roll, log_theta):
    p, q = math.exp(log_roll), math.exp(log_theta)
    coarse = float(rows.two_outcome_kl(log_roll, log_theta))
    fine = float(rows.kl_divergence([p, (1 - p) / 3, (1 - p) * 2 / 3], [q, (1 - q) / 2, (1 - q) / 2]))
    assert coarse <= fine * (1 + 1e-9) + 1e-15


def test_the_curve_on_arrays_certifies_from_1e_300_to_700():
    """Never below the curve, solved here in mpmath; within 4e-6 above it, and never above plain Pinsker."""
    kl = np.concatenate([np.geomspace(1e-300, 1e-9, 30), np.geomspace(1e-9, 40.0, 150), np.geomspace(40.0, 700.0, 20)])
    values = curve_array(kl)
    with mpmath.workdps(60):
        for x, value in zip(kl.tolist(), values.tolist(), strict=True):
            root = mpmath.sqrt(2 * real(x))
            if x < 1e-20:
                truth = mpmath.sqrt(real(x) / 2) * (1 - real(x))  # below the curve, whose second term is -KL/36
            elif x > 40:
                truth = 1 - mpmath.exp(-real(x)) / 2  # any two-point pair is below the curve
            else:
                low, high = root * 0.9, root * 2 if x < 1 else mpmath.exp(real(x)) + 3
                for _ in range(100):
                    s = mpmath.sqrt(low * high)
                    at = mpmath.log(s / mpmath.sinh(s)) + s * mpmath.coth(s) - (s / mpmath.sinh(s)) ** 2
                    low, high = (s, high) if at < real(x) else (low, s)
                truth = low / 2 * (1 - (mpmath.coth(low) - 1 / low) ** 2)
            assert truth * (1 - mpmath.mpf(10) ** -25) <= real(value) <= min(real(1), truth * (1 + real(4e-6)))
            assert real(value) <= mpmath.sqrt(real(x) / 2) * (1 + real(1e-15))
    assert curve_array(np.array([0.0, math.inf])).tolist() == [0.0, 1.0]


def test_half_roots_are_nowhere_below():
    """min(1, sqrt(chi2)/2) of floats whose roots round down as often as up."""
    chi2 = np.concatenate([np.linspace(1e-3, 3.9, 500), np.geomspace(5e-324, 1e-300, 50)])
    for x, value in zip(chi2.tolist(), half_root_array(chi2).tolist(), strict=True):
        assert Fraction(x) <= (2 * Fraction(value)) ** 2 <= Fraction(x) * (1 + Fraction(1, 10**14))
    assert half_root_array(np.array([9.0, math.inf])).tolist() == [1.0, 1.0]
    assert bounds.Profile(T=1, chi2_max=9.0).resolve("epsilon", "sharp").value == 1.0


@pytest.mark.parametrize("kl", [Fraction(1, 10**6), Fraction(1, 3), Fraction(5)])
def test_a_root_on_the_wrong_side_is_moved(monkeypatch, kl):
    """A solver whose s has a KL that is a hair too small: the curve is still an upper value."""
    digits = inequalities._digits()

    class Low:
        def findroot(self, *given, **options):
            return digits.findroot(*given, **options) * (1 - digits.mpf(10) ** -17)

        def __getattr__(self, name):
            return getattr(digits, name)

    certain = inequalities.pinsker_curve.__wrapped__(kl)
    monkeypatch.setattr(inequalities, "_digits", Low)
    moved = inequalities.pinsker_curve.__wrapped__(kl)
    assert certain * (1 - Fraction(3, 10**18)) <= moved <= certain * (1 + Fraction(3, 10**18))
    with mpmath.workdps(60):
        s = digits.findroot(
            lambda s: mpmath.log(s / mpmath.sinh(s)) + s * mpmath.coth(s) - (s / mpmath.sinh(s)) ** 2 - real(kl),
            inequalities._around(digits, real(kl)),
            "anderson",
            tol=1e-100,
        )
        assert real(moved) >= s / 2 * (1 - (mpmath.coth(s) - 1 / s) ** 2) * (1 - mpmath.mpf(10) ** -25)
