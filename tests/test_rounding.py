"""Outward rounding and the O(1) sums, against exact arithmetic and mpmath."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import capped, real, sum_of_roots

from bounds._rounding import dot_up, exact, round_down, round_up, sqrt_enclosure, sum_up
from bounds._text import near, round_toward_zero, shown, shown_down
from bounds.rules.sums import _ZETA_HIGH, _ZETA_LOW, binomial_excess, capped_sum, product_coupling, sqrt_sum

positive = st.floats(min_value=1e-300, max_value=1e300)


@given(st.fractions(), st.integers(-1000, 1000))
def test_rounding_is_to_the_next_float_and_no_more(x, power):
    x = x * Fraction(2) ** power
    up, down = round_up(x), round_down(x)
    assert up == math.inf or Fraction(up) >= x
    assert down == -math.inf or Fraction(down) <= x
    assert up == down == x or math.nextafter(down, math.inf) == up


def test_rounding_at_the_ends_of_the_float_range():
    assert round_up(Fraction(1, 10**400)) == 5e-324
    assert round_up(Fraction(10) ** 400) == math.inf
    assert round_up(exact(math.inf)) == math.inf
    assert round_up(Fraction(0)) == 0.0
    assert round_up(-(Fraction(10) ** 400)) == -sys.float_info.max
    assert round_down(Fraction(10) ** 400) == sys.float_info.max
    assert round_down(-(Fraction(10) ** 400)) == -math.inf
    assert round_down(-Fraction(1, 10**400)) == -5e-324
    for none in (Fraction(0), Fraction(1, 10**400)):
        assert math.copysign(1.0, round_down(none)) == 1.0  # 0, not -0


@given(st.fractions(min_value=0, max_value=10**9), st.integers(-1100, 1100))
def test_square_root_is_enclosed_to_78_bits(x, power):
    x = x * Fraction(4) ** power
    low, high = sqrt_enclosure(x)
    assert low**2 <= x <= high**2
    assert high - low <= high / 2**78


def test_square_roots_of_squares_are_exact():
    assert sqrt_enclosure(Fraction(9, 16)) == (Fraction(3, 4), Fraction(3, 4))


def test_zeta_constant():
    with mpmath.workdps(40):
        assert real(_ZETA_LOW) < mpmath.zeta(mpmath.mpf(-1) / 2) < real(_ZETA_HIGH)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 127, 128, 129, 1000, 4095, 10**6, 10**9, 10**12, 2**53])
def test_sums_of_square_roots(n):
    with mpmath.workdps(50):
        truth = sum_of_roots(n)
        low, high = map(real, sqrt_sum(n))
        assert low <= truth <= high
        assert high - low <= truth * mpmath.mpf(10) ** -15


@given(
    n=st.one_of(st.integers(0, 300), st.integers(0, 10**12)),
    epsilon=st.one_of(st.none(), st.floats(1e-300, 1.0), st.floats(1e-9, 1.0)),
    delta=st.one_of(st.none(), st.floats(1e-300, 1e300), st.floats(1e-12, 10.0)),
)
def test_capped_sums_are_tight_and_never_below(n, epsilon, delta):
    if epsilon is None and delta is None:
        epsilon = 0.5
    routes = {k: Fraction(v) for k, v in (("epsilon", epsilon), ("delta", delta)) if v is not None}
    with mpmath.workdps(60):
        truth = capped(n, epsilon=epsilon, delta=delta)
        value = real(capped_sum(n, **routes))
        assert value >= truth * (1 - mpmath.mpf(10) ** -45)
        assert value <= truth * (1 + mpmath.mpf(10) ** -13)


@given(st.one_of(st.floats(1e-300, 1.0), st.floats(1e-12, 1.0)), st.one_of(st.integers(1, 10**12), st.integers(1, 99)))
def test_product_coupling(epsilon, length):
    with mpmath.workdps(400):
        truth = 1 - (1 - real(epsilon)) ** length
        value = real(product_coupling(length, Fraction(epsilon)))
        assert truth * (1 - mpmath.mpf(10) ** -80) <= value <= truth * (1 + mpmath.mpf(10) ** -29)


@given(
    T=st.one_of(st.integers(1, 10**12), st.integers(1, 99)),
    X=st.one_of(st.floats(-1.0, -1e-12), st.floats(1e-300, 1e-12), st.floats(1e-12, 2.0)),
)
def test_binomial_excess_is_tight_and_never_below(T, X):
    with mpmath.workdps(800):
        value = binomial_excess(T, Fraction(X))
        if X > 0 and T * math.log1p(X) > 1490:
            return
        truth = (
            (1 + real(X)) ** T - 1 - T * real(X) if T < 100 else mpmath.expm1(T * mpmath.log1p(real(X))) - T * real(X)
        )
        assert truth * (1 - mpmath.mpf(10) ** -180) <= real(value) <= truth * (1 + mpmath.mpf(10) ** -29)


def test_binomial_excess_where_the_naive_form_cancels():
    assert float(binomial_excess(4096, Fraction(1e-12))) == pytest.approx(8.387e-18, rel=1e-3)
    assert float(binomial_excess(4096, Fraction(2e-4))) == pytest.approx(4 * 0.3351486035**2, rel=1e-9)
    assert binomial_excess(1, Fraction(3)) == 0


@pytest.mark.parametrize("n", [1, 7, 128, 129, 5000, 100_001])
@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e-300])
def test_array_sums_are_tight_and_never_below(n, scale):
    rng = np.random.default_rng(n)
    a, b = rng.random(n) ** 8 * scale, rng.random(n)
    for value, truth in (
        (sum_up(a), sum(map(Fraction, a.tolist()))),
        (dot_up(a, b), sum(Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True))),
    ):
        assert truth <= value <= truth * (1 + Fraction(1, 10**12))


def test_products_that_underflow_still_count():
    tiny = np.full(10, 1e-200)
    exact_value = 10 * Fraction(1e-200) ** 2
    assert exact_value <= dot_up(tiny, tiny) <= exact_value * (1 + Fraction(1, 10**12))
    assert dot_up(np.array([math.inf, 0.0]), np.array([0.0, math.inf])) == 0
    assert round_up(dot_up(np.array([math.inf]), np.array([1e-300]))) == math.inf


@given(positive, st.integers(1, 9))
def test_shown_numbers_are_not_below_the_value(x, digits):
    text = shown(x, digits)
    assert Fraction(text) >= Fraction(x) * (1 - Fraction(1, 10**12))
    assert float(text) <= x * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)
    assert len(text.split("e")[0].replace(".", "").lstrip("0")) <= max(digits, len(str(int(min(x, 1e6)))))
    assert float(shown_down(x, digits)) <= x * (1 + 1e-12)
    assert x * (1 - 2 * 10.0 ** (1 - digits)) <= round_toward_zero(x, digits) <= x


@pytest.mark.parametrize(
    ("x", "up", "down", "nearest"),
    [
        (838.656, "839", "838", "839"),
        (1677.312, "1678", "1677", "1677"),
        (34.946091886, "35", "34.9", "34.9"),
        (4.096, "4.1", "4.09", "4.1"),
        (0.0001220703125, "0.000123", "0.000122", "0.000122"),
        (999999.0, "999999", "999999", "999999"),
        (999999.5, "1e+06", "999999", "1e+06"),
        (999.96, "1000", "999", "1000"),
        (9999.7, "10000", "9999", "10000"),
        (1234567.0, "1.24e+06", "1.23e+06", "1.23e+06"),
        (-0.12345, "-0.123", "-0.124", "-0.123"),
        (-1234.5, "-1234", "-1235", "-1234"),
        (math.inf, "inf", "inf", "inf"),
        (0.0, "0", "0", "0"),
    ],
)
def test_three_digits_and_the_whole_integer_part(x, up, down, nearest):
    assert (shown(x), shown_down(x), near(x)) == (up, down, nearest)


def test_shown_at_the_end_of_the_floats():
    for x in (1.7976931348623157e308, 1.7976931e308):
        assert float(shown(x)) >= x
