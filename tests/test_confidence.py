"""Intervals: the guarantees as guarantees (exactly where possible, else by simulation), the safe side, bad input."""

from __future__ import annotations

import itertools
import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from coverage_study import (
    SCENARIOS,
    UNEQUAL,
    Misses,
    misses,
    misses_at_any_time,
    misses_of_steps,
    misses_these_prompts,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bounds.intervals import (
    INTERVALS,
    betting,
    betting_sum,
    betting_these_prompts,
    clopper_pearson,
    clustered_mean,
    confidence_sequence,
    empirical_bernstein,
    hoeffding,
    leave_one_out,
    mean_interval,
    prompt_means,
    star,
    student_t,
)
from bounds.intervals.betting import (
    LEVELS,
    Bets,
    _log_wealth,
    largest_gap,
    log_wealth_down,
    lower_limit,
    order_free,
    prompt_bets,
)
from bounds.intervals.bounded import _mean_down
from bounds.intervals.clustered import _standard_error, leave_one_out_baseline
from bounds.intervals.ends import two_sided
from bounds.intervals.star import log_wealths, orders_of
from bounds.results import Standing

GUARANTEED = [name for name in INTERVALS if name != "student_t"]

# --- the guarantee, exactly --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "share"), [(7.0, 0.2), (0.01, 0.9), (1e6, 0.5)])
def test_wealth_at_the_true_mean_has_mean_one(gain, share):
    """Over all 2^8 samples: a bet that peeked at its own value, or a level too high, would show here."""
    n, total = 8, 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=n):
        gains = np.array(outcome) * gain
        weight = math.prod(share if x else 1.0 - share for x in outcome)
        total += weight * math.exp(_log_wealth(gains, order_free(n), gain * share)[0])
    assert total == pytest.approx(1.0, rel=1e-11)


@pytest.mark.parametrize(
    ("counts", "shares", "least"),
    [
        ([3, 3], [0.1, 0.7], 0.5),
        ([3, 3], [0.3, 0.3], 1.0),
        ([1, 2, 4], [0.9, 0.2, 0.4], 0.5),
        ([1, 9], [0.2, 0.3], 0.6),
    ],
)
def test_wealth_against_these_prompts_has_mean_one_at_most(counts, shares, least):
    """Over all samples of a batch with unequal numbers of responses; one exactly where the prompts are alike."""
    size = np.array(counts)
    prompt = np.repeat(np.arange(size.size), size)
    share = np.array(shares)[prompt]
    bets = prompt_bets(size, size[prompt].astype(float), np.ones(prompt.size), 0.05)
    total = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=prompt.size):
        gains = np.array(outcome)
        weight = float(np.prod(np.where(gains > 0, share, 1.0 - share)))
        total += weight * math.exp(_log_wealth(gains, bets, float(np.mean(shares)))[0])
    assert least - 1e-11 <= total <= 1.0 + 1e-11


@pytest.mark.parametrize("sizes", [[1, 8, 8], [1, 1, 5, 9], [2, 3, 4, 5, 6, 7], [1] + [8] * 127])
@pytest.mark.parametrize("alpha", [0.4, 0.05, 1e-6])
def test_stakes_on_these_prompts_are_worth_the_prompts(sizes, alpha):
    """What the proof needs, in exact arithmetic: stakes of at most 1, of the average 1 in units of kappa / n."""
    size = np.array(sizes)
    bets = prompt_bets(size, size.astype(float), np.ones(size.size), alpha)
    stake, rate = bets.rates(slice(None))
    assert stake.max() < 1.0
    assert math.fsum(bets.weight) == pytest.approx(1.0)
    for s, r in zip(stake, rate, strict=True):
        total = sum(Fraction(a) * n for a, n in zip(s, sizes, strict=True))
        kappa = max(Fraction(b) * n for b, n in zip(r, sizes, strict=True))
        assert total >= kappa * len(sizes) * (1 - Fraction(1, 10**15))
        assert total <= kappa * len(sizes) * (1 + Fraction(1, 10**11))


def _star_wealth(outcome, gap):
    orders = np.stack([np.array(outcome)[order] for order in orders_of(np.arange(len(outcome), dtype=np.uint64))])
    return float(np.exp(log_wealths(orders, np.array([gap]), math.log(40.0))).mean())


@pytest.mark.parametrize(("gain", "share"), [(7.0, 0.2), (0.01, 0.9), (1e6, 0.5)])
def test_star_wealth_at_the_true_mean_has_mean_one(gain, share):
    """Over all 2^8 samples, in all orders; half of them with bets on several values in a row."""
    outcomes = [np.array(o) * gain for o in itertools.product([0.0, 1.0], repeat=8)]
    chances = [math.prod(share if x else 1.0 - share for x in o) for o in outcomes]
    for bets in (256, 3):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys.modules["bounds.intervals.star"], "_BETS", bets)
            total = sum(p * _star_wealth(o, gain * share) for o, p in zip(outcomes, chances, strict=True))
        assert total == pytest.approx(1.0, rel=1e-10)


def test_star_wealth_is_against_one_mean_not_an_average():
    """Values .6, then .4, for certain: the wealth against their average .5 is what was aimed at, in that order."""
    values = np.repeat([0.6, 0.4], 256)
    assert log_wealths(values[None], np.array([0.5]), math.log(40.0))[0, 0] > math.log(20.0)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("method", "n"), [(m, n) for m in GUARANTEED for n in (1, 2, 7, 60)])
def test_no_share_is_missed_too_often(method, n, confidence):
    """Values 0 or 1: the probability of a miss is a binomial sum, largest just below a lower end."""
    samples = [(np.arange(n) < k) * 1.0 for k in range(n + 1)]
    ends = np.array([INTERVALS[method](x, confidence, low=0.0, high=1.0, side="lower").low for x in samples])
    for share in [*np.linspace(0.001, 0.999, 200), *np.clip(ends - 1e-12, 0.0, 1.0)]:
        missed = sum(math.comb(n, k) * share**k * (1.0 - share) ** (n - k) for k, low in enumerate(ends) if low > share)
        assert missed <= (1.0 - confidence) * (1.0 + 1e-9)


def test_no_share_is_missed_at_any_time():
    """All 2^8 paths: the probability that a lower end was ever above the mean."""
    paths = list(itertools.product([0.0, 1.0], repeat=8))
    ends = [confidence_sequence(np.array(p), 0.8, low=0.0, side="lower").low[-1] for p in paths]
    for share in np.linspace(0.02, 0.98, 49):
        missed = sum(
            share ** sum(p) * (1 - share) ** (8 - sum(p)) for p, low in zip(paths, ends, strict=True) if low > share
        )
        assert missed <= 0.2


# --- the guarantee, by simulation --------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
@pytest.mark.parametrize("method", GUARANTEED)
def test_coverage(method, scenario):
    if not scenario.takes(method):
        with pytest.raises(ValueError, match="for Clopper-Pearson"):
            misses(INTERVALS[method], scenario, 20, 1, 0.8, seed=0)
        return
    for n, repetitions in ((5, 150), (40, 40)) if method == "star" else ((5, 300), (40, 200), (500, 40)):
        found = misses(INTERVALS[method], scenario, n, repetitions, 0.8, seed=1)
        assert found.holds, (n, found)


@pytest.mark.parametrize(("prompts", "sizes"), [(5, UNEQUAL[0]), (50, UNEQUAL[0]), (20, UNEQUAL[1]), (5, UNEQUAL[2])])
def test_coverage_of_these_prompts(prompts, sizes):
    assert misses_these_prompts(prompts, 200, 0.8, 1, sizes).holds


def test_coverage_of_a_sum_over_steps():
    assert misses_of_steps(6, 100, 0.8, seed=1).holds


@pytest.mark.parametrize("scenario", [SCENARIOS[2], SCENARIOS[7], SCENARIOS[10]], ids=lambda s: s.name)
def test_coverage_at_all_times(scenario):
    assert misses_at_any_time(scenario, 30, 120, 0.8, seed=1).holds


def _pooled_hoeffding(values, confidence, **options):
    """Eight copies of every value, taken for independent ones."""
    return hoeffding(np.repeat(values, 8), confidence, **options)


def _peeking(values, confidence, **options):
    """Bets that are large only where the value turned out to be."""

    def end(data, low, high, alpha):
        return lower_limit(data, low, Bets(np.where(data > data.mean(), 0.9, 0.1), np.ones(1)), alpha)

    return two_sided(end, values, confidence, *options.values(), Standing.MEASURED, "wrong")


def _centered(values, confidence, **options):
    """An interval that is far too narrow."""
    end = lambda data, low, high, alpha: float(data.mean()) - 0.01  # noqa: E731
    return two_sided(end, values, confidence, *options.values(), Standing.MEASURED, "wrong")


@pytest.mark.parametrize("wrong", [_pooled_hoeffding, _peeking, _centered, student_t])
def test_the_coverage_test_can_fail(wrong):
    skewed = next(s for s in SCENARIOS if s.name == "skewed right")
    fair = next(s for s in SCENARIOS if s.name == "two-point, fair")
    scenario = skewed if wrong is student_t else fair
    assert not misses(wrong, scenario, 20, 300, 0.8, seed=1).holds


def test_misses_are_judged_end_by_end_and_together():
    assert not Misses(70, 0, 300, 0.8).holds
    assert not Misses(0, 70, 300, 0.8).holds
    assert not Misses(48, 48, 300, 0.8).holds
    assert Misses(30, 30, 300, 0.8).holds


def test_pooling_the_responses_of_a_prompt_covers_three_quarters_where_95_percent_was_said():
    """Rewards of eight responses, prompts of unequal difficulty (intraclass correlation 1/4)."""
    rng = np.random.default_rng(5)
    prompt, true = np.repeat(np.arange(100), 8), 0.4
    covered = dict.fromkeys(("pooled t", "pooled exact", "prompts t", "prompts betting"), 0)
    repetitions = 400
    for _ in range(repetitions):
        reward = (rng.random(800) < rng.beta(1.2, 1.8, 100)[prompt]) * 1.0
        means = prompt_means(reward, prompt)
        found = {
            "pooled t": student_t(reward, 0.95),
            "pooled exact": clopper_pearson(reward, 0.95),
            "prompts t": student_t(means, 0.95),
            "prompts betting": betting(means, 0.95, low=0.0, high=1.0),
        }
        for name, interval in found.items():
            covered[name] += interval.low <= true <= interval.high
    assert 0.70 < covered["pooled t"] / repetitions < 0.82
    assert 0.70 < covered["pooled exact"] / repetitions < 0.82
    assert stats.binomtest(covered["prompts t"], repetitions, 0.95).pvalue > 1e-3
    assert covered["prompts betting"] >= 0.95 * repetitions


# --- widths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kl", "new", "these", "asymptotic"), [(0.05, 0.0245, 0.019, 0.008), (0.5, 0.052, 0.082, 0.033)]
)
def test_widths_of_the_improvement_interval(kl, new, these, asymptotic):
    """True minus lower end at 95 %: 128 prompts, 8 responses, mean reward .4, log-normal P; within a quarter."""
    rng = np.random.default_rng(6)
    prompt, gaps = np.repeat(np.arange(128), 8), []
    for _ in range(40):
        product = np.exp(rng.normal(-kl, math.sqrt(2 * kl), prompt.size))
        reward = (rng.random(prompt.size) < 0.4) * 1.0
        gain = reward * (product - 1.0)
        ends = [
            star(prompt_means(gain, prompt), 0.95, low=-1.0, side="lower"),
            betting_these_prompts(gain, prompt, 0.95, low=-1.0, side="lower"),
            leave_one_out(reward, product, prompt, 0.95, side="lower"),
        ]
        gaps.append([-end.low for end in ends])
    assert (np.mean(gaps, axis=0) <= 1.25 * np.array([new, these, asymptotic])).all()


def test_no_assumption_free_bound_is_narrower_than_the_sample_allows():
    """All values equal: the lower end stays below (1 + value) alpha^(1/N) - 1."""
    for n, width in ((32, 0.089), (128, 0.023), (512, 0.0058)):
        end = betting(np.zeros(n), 0.95, low=-1.0, side="lower").low
        assert -1.4 * width < end < 0.05 ** (1.0 / n) - 1.0
        assert 1.0 - 0.05 ** (1.0 / n) == pytest.approx(width, rel=0.01)


# --- the safe side -----------------------------------------------------------------------------------------------

unit_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)
levels = st.floats(0.01, 0.999)


def _exact_wealth(gains, bets, gap):
    """The wealth in rational arithmetic."""
    wealths = [
        math.prod(
            1 + Fraction(f) * Fraction(c) * (Fraction(s) / gap - 1) for c, s in zip(bets.share, gains, strict=True)
        )
        for f in bets.level
    ]
    return sum(wealths) / len(wealths)


@given(unit_values, levels)
def test_the_end_of_bets_is_on_the_safe_side_and_no_further(values, confidence):
    gains = np.array(values)
    bets, alpha = order_free(gains.size), 1.0 - confidence
    gap = largest_gap(gains, bets, alpha)
    if gap == 0.0:
        assert gains.max() < 1e-280
        return
    assert _exact_wealth(gains, bets, Fraction(gap)) >= 1 / Fraction(alpha)
    assert _exact_wealth(gains, bets, Fraction(gap * (1.0 + 1e-9))) < 1 / Fraction(alpha)


@given(unit_values, st.integers(1, 8), levels)
def test_equal_values_that_are_counted_are_on_the_safe_side_and_no_further(values, times, confidence):
    """Each value many times, as shares of responses are: the exact wealth is that of all of them."""
    data, alpha = np.round(np.repeat(values, times), 1), 1 - Fraction(confidence)
    end = betting(data, confidence, low=0.0, side="lower").low
    if end == 0.0:
        assert data.max() == 0.0
        return
    bets = order_free(data.size)
    assert _exact_wealth(data, bets, Fraction(end)) >= 1 / alpha
    assert _exact_wealth(data, bets, Fraction(end * (1.0 + 1e-9))) < 1 / alpha


@given(unit_values, st.floats(-5.0, 5.0), levels)
def test_the_lower_limit_itself_is_on_the_safe_side(values, low, confidence):
    data = low + np.array(values)
    end = betting(data, confidence, low=low, side="lower").low
    assert low <= end <= float(data.max())
    if end > low:
        exact_gains = [Fraction(x) - Fraction(low) for x in data]
        alpha = 1 - Fraction(confidence)
        assert _exact_wealth(exact_gains, Bets(np.ones(data.size), LEVELS), Fraction(end) - Fraction(low)) >= 1 / alpha


def test_rounding_of_a_limit_far_from_zero_goes_down():
    """Gains of some thousand ulps: half of the sums low + gap would round up."""
    rng = np.random.default_rng(16)
    for low in (-5.0, 3.7, 1000.1):
        for _ in range(10):
            data = low + 1e-12 * abs(low) * rng.random(4)
            end = betting(data, 0.5, low=low, side="lower").low
            gains = [Fraction(x) - Fraction(low) for x in data.tolist()]
            assert end > low
            assert _exact_wealth(gains, Bets(np.ones(4), LEVELS), Fraction(end) - Fraction(low)) >= 2


@given(st.integers(1, 40), st.integers(0, 40), levels)
def test_clopper_pearson_is_on_the_safe_side_and_exact(n, k, confidence):
    k = min(k, n)
    share = Fraction(clopper_pearson((np.arange(n) < k) * 1.0, confidence, side="lower").low)
    tail = sum(math.comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(k, n + 1))
    alpha = 1 - Fraction(confidence)
    if k == 0:
        assert share == 0
    else:
        assert tail <= alpha
        assert tail >= alpha * (1 - Fraction(1, 10**9))


def test_clopper_pearson_of_a_million():
    values = (np.arange(10**6) < 400_000) * 1.0
    interval = clopper_pearson(values, 0.95)
    low, high = stats.binomtest(400_000, 10**6).proportion_ci(0.95, method="exact")
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-6)


@given(unit_values, levels)
def test_bounded_intervals_are_on_the_safe_side_and_no_further(values, confidence):
    data, n = np.array(values), len(values)
    with mpmath.workdps(50):
        alpha = 1 - mpmath.mpf(confidence)
        mean = mpmath.fsum(values) / n
        end = mean - mpmath.sqrt(mpmath.log(1 / alpha) / (2 * n))
        found = hoeffding(data, confidence, low=0.0, high=1.0, side="lower").low
        assert found == 0.0 or end - 1e-12 < found <= end
        if n > 1:
            variance = mpmath.fsum([(x - mean) ** 2 for x in map(mpmath.mpf, values)]) / (n - 1)
            log = mpmath.log(2 / alpha)
            end = mean - mpmath.sqrt(2 * variance * log / n) - 7 * log / (3 * (n - 1))
            found = empirical_bernstein(data, confidence, low=0.0, high=1.0, side="lower").low
            assert found == 0.0 or end - 1e-12 < found <= end


def test_empirical_bernstein_of_many_quiet_values():
    """Where the bound is not cut at the range: the formula, from independent code."""
    values = 0.5 + 0.01 * np.sin(np.arange(2000.0))
    log = math.log(2 / 0.025)
    margin = math.sqrt(2 * values.var(ddof=1) * log / 2000) + 7 * log / (3 * 1999)
    interval = empirical_bernstein(values, 0.95, low=0.0, high=1.0)
    assert (interval.low, interval.high) == pytest.approx((values.mean() - margin, values.mean() + margin), rel=1e-12)


def test_rounding_errors_of_long_products_are_counted():
    """The lower value of log K is below mpmath's, and near it."""
    rng = np.random.default_rng(7)
    gains = rng.exponential(size=600)
    bets = order_free(gains.size)
    down = log_wealth_down(gains, bets, 0.9)
    with mpmath.workdps(40):
        logs = [
            mpmath.fsum(mpmath.log(1 + mpmath.mpf(f) * (mpmath.mpf(s) / mpmath.mpf(0.9) - 1)) for s in gains.tolist())
            for f in LEVELS.tolist()
        ]
        true = mpmath.log(mpmath.fsum(map(mpmath.exp, logs)) / len(logs))
    assert 0 <= true - down < 1e-8


def test_the_same_rounding_error_in_every_factor_is_counted():
    """A thousand factors that are nearly 1 are off by the same, some upward: the lower value is below all the same."""
    bets = order_free(1000)
    for gain in np.random.default_rng(8).uniform(0.9, 0.9000001, 30).tolist():
        down = log_wealth_down(np.full(1000, gain), bets, 0.9)
        with mpmath.workdps(40):
            ratio = mpmath.mpf(gain) / mpmath.mpf(0.9)
            true = mpmath.log(mpmath.fsum((1 + mpmath.mpf(f) * (ratio - 1)) ** 1000 for f in LEVELS.tolist()) / 25)
        assert 0 <= true - down < 1e-8


def test_a_single_gain_among_very_many_zeros_shows_nothing():
    """The mean is then above its least value by less than any float that counts."""
    assert largest_gap(np.array([0.0, 1.0]), Bets(np.ones(2), LEVELS, np.array([1e7, 1.0])), 0.05) == 0.0
    assert largest_gap(np.array([0.0, 1.0]), Bets(np.ones(2), LEVELS, np.array([1e3, 1.0])), 0.05) > 0.0


# --- shape of the answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m in INTERVALS if m != "clopper_pearson"])
@given(values=unit_values, confidence=levels)
def test_sides_reflection_and_order(method, values, confidence):
    data = np.array(values)
    interval = mean_interval(data, confidence, low=0.0, high=1.0, method=method)
    assert 0.0 <= interval.low <= interval.high <= 1.0
    one = 1.0 - (1.0 - confidence) / 2.0
    lower = mean_interval(data, one, low=0.0, high=1.0, side="lower", method=method)
    upper = mean_interval(data, one, low=0.0, high=1.0, side="upper", method=method)
    assert (lower.high, upper.low) == (1.0, 0.0)
    assert (lower.low, upper.high) == pytest.approx((interval.low, interval.high), abs=1e-8)
    mirror = mean_interval(-data, confidence, low=-1.0, high=0.0, method=method)
    assert (mirror.low, mirror.high) == pytest.approx((-interval.high, -interval.low), abs=1e-12)
    surer = mean_interval(data, (1.0 + confidence) / 2.0, low=0.0, high=1.0, method=method)
    assert method == "star" or surer.low <= interval.low + 1e-12  # STaR aims at the wealth that a confidence needs


@pytest.mark.parametrize("name", INTERVALS)
def test_standing_is_what_the_method_promises(name):
    values = np.array([0.0, 1.0, 1.0])
    standing = INTERVALS[name](values, 0.9, low=0.0, high=1.0).standing
    assert standing is (Standing.ESTIMATED if name == "student_t" else Standing.MEASURED)


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("confidence", [1e-12, 0.5, 1.0 - 1e-12])
@pytest.mark.parametrize(
    "values", [[0.0], [1.0], [0.0] * 30, [1.0] * 30, [0.0, 1.0] * 15], ids=["0", "1", "zeros", "ones", "both"]
)
def test_extremes_give_honest_intervals(name, confidence, values):
    interval = INTERVALS[name](np.array(values), confidence, low=0.0, high=1.0)
    assert 0.0 <= interval.low <= interval.high <= 1.0
    if interval.standing is Standing.MEASURED:
        assert interval.low < 1.0
        assert interval.high > 0.0
    if len(values) == 1 and confidence > 0.9:
        assert interval.low < 1e-9 if values == [0.0] else interval.high > 1.0 - 1e-9


@pytest.mark.parametrize("name", [m for m in INTERVALS if m != "clopper_pearson"])
def test_without_a_range_the_guarantees_are_vacuous(name):
    interval = INTERVALS[name](np.array([1.0, 2.0, 3.0]), 0.9)
    if interval.standing is Standing.MEASURED:
        assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert interval.value == 2.0


def test_one_range_end_is_enough_for_one_end():
    values = np.array([0.5, 1.0, 2.0] * 20)
    lower = betting(values, 0.9, low=0.0)
    assert 0.5 < lower.low < values.mean()
    assert lower.high == math.inf
    upper = betting(values, 0.9, high=3.0)
    assert upper.low == -math.inf
    assert values.mean() < upper.high < 3.0


def test_infinite_values_only_lower_the_lower_end():
    """+inf counts as a large finite number; the end is finite, and above that of a smaller number."""
    values = np.array([0.5, 1.0, 2.0, 0.1] * 8)
    finite, overflowed = values.copy(), values.copy()
    finite[-1], overflowed[-1] = 1e9, math.inf
    low = betting(overflowed, 0.9, low=0.0)
    assert low.value == math.inf
    assert betting(finite, 0.9, low=0.0).low <= low.low < math.inf
    assert low.high == math.inf


def test_more_gain_never_lowers_the_end():
    rng = np.random.default_rng(8)
    for _ in range(50):
        values = rng.exponential(size=12)
        more = values + rng.exponential(size=12) * (rng.random(12) < 0.3)
        assert betting(values, 0.9, low=0.0).low <= betting(more, 0.9, low=0.0).low + 1e-12


@pytest.mark.parametrize("scale", [1e-250, 1e-3, 1e200, 1e300])
@pytest.mark.parametrize("method", [m for m in INTERVALS if m != "clopper_pearson"])
def test_scale_does_not_matter(method, scale):
    values = np.random.default_rng(9).random(50)
    interval = mean_interval(values, 0.9, low=0.0, high=1.0, method=method)
    scaled = mean_interval(values * scale, 0.9, low=0.0, high=scale, method=method)
    if method == "student_t" and scale != 1e-3:  # its squares may leave the floats; it promises nothing
        assert scaled.low <= scaled.high
    else:
        assert (scaled.low / scale, scaled.high / scale) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_betting_does_not_depend_on_the_order():
    values = np.random.default_rng(10).random(40)
    assert betting(values, 0.9, low=0.0).low == pytest.approx(betting(values[::-1], 0.9, low=0.0).low, rel=1e-11)


def test_one_response_a_prompt_makes_these_prompts_and_new_ones_alike():
    values = np.random.default_rng(11).random(40)
    these = betting_these_prompts(values, np.arange(40), 0.9, low=0.0, high=1.0)
    new = betting(values, 0.9, low=0.0, high=1.0)
    assert (these.low, these.high) == (new.low, new.high)


def test_sequence_is_the_running_maximum_of_the_intervals_so_far():
    values = np.random.default_rng(12).random(30)
    sequence = confidence_sequence(values, 0.9, low=0.0, high=1.0)
    intervals = [betting(values[:n], 0.9, low=0.0, high=1.0) for n in range(1, 31)]
    assert sequence.low == pytest.approx(np.maximum.accumulate([i.low for i in intervals]), rel=1e-9)
    assert sequence.high == pytest.approx(np.minimum.accumulate([i.high for i in intervals]), rel=1e-9)
    assert sequence.standing is Standing.MEASURED
    upper = confidence_sequence(values, 0.9, low=0.0, side="upper")
    assert (upper.low == 0.0).all()
    assert (upper.high == math.inf).all()


def test_sequence_does_not_see_the_future():
    values = np.random.default_rng(13).random(30)
    whole = confidence_sequence(values, 0.9, low=0.0, high=1.0)
    part = confidence_sequence(values[:12], 0.9, low=0.0, high=1.0)
    assert part.low == pytest.approx(whole.low[:12], rel=1e-12)


@pytest.mark.parametrize("values", [[0.75], [-0.75], [0.1] * 7, [1e300, -1e300, 3.0], [5e-324, 1e-320]])
def test_the_lower_value_of_a_mean_is_within_an_ulp_of_the_largest(values):
    mean, unit = sum(map(Fraction, values)) / len(values), Fraction(math.ulp(max(map(abs, values))))
    assert 0 < mean - _mean_down(np.array(values)) <= unit * Fraction(101, 100)


@pytest.mark.parametrize(
    ("low", "high", "unit"), [(0.0, 1.0, 1.0), (-0.5, 2.0, 2.5), (-3.0, math.inf, 3.0), (0.0, math.inf, 1.0)]
)
def test_bets_on_a_sum_of_means_end_where_their_mean_wealth_is_1_over_alpha(low, high, unit):
    """Three steps of 40, 30 and 50 values, in mpmath: at the end 1/alpha or more, a hair further less."""
    rng, sizes = np.random.default_rng(16), [40, 30, 50]
    values = rng.uniform(max(low, -1.0), 1.0, sum(sizes))
    weight = np.repeat(1.0 / np.array(sizes), sizes)
    found = betting_sum(values, weight, 40.0, 0.9, low=low, high=high, side="lower")
    assert found.high == 3.0 * high
    assert found.value == pytest.approx(weight @ values)

    def wealth(gap):
        mean = mpmath.mpf(0)
        for k in range(-12, 13):
            f = mpmath.mpf(2) ** k / unit * 40
            won = mpmath.fprod(1 + f * (mpmath.mpf(v) - low) * w for v, w in zip(values.tolist(), weight, strict=True))
            mean += won / (1 + f * gap / 120) ** 120 / 25
        return mean

    with mpmath.workdps(30):
        gap = mpmath.mpf(found.low) - mpmath.mpf(low) * mpmath.fsum(weight.tolist())
        assert wealth(gap * (1 + mpmath.mpf(1e-9))) < 10 <= wealth(gap)


# --- prompts -----------------------------------------------------------------------------------------------------


def test_prompt_means_stay_between_their_values():
    assert prompt_means(np.full(3, 0.1), np.zeros(3, dtype=int)).tolist() == [0.1]
    assert prompt_means(np.array([2.0, math.inf, 1.0]), np.array([1, 5, 1])).tolist() == [1.5, math.inf]


def test_t_interval_of_prompt_means_is_the_clustered_one():
    rng = np.random.default_rng(14)
    values, prompt = rng.normal(size=60), np.repeat(np.arange(15), 4)
    ours, theirs = student_t(prompt_means(values, prompt), 0.9), clustered_mean(values, prompt, 0.9)
    assert (ours.low, ours.value, ours.high) == pytest.approx((theirs.low, theirs.value, theirs.high))


@pytest.mark.parametrize("responses", [1, 2, 8])
def test_leave_one_out_is_unbiased_and_nearly_nominal(responses):
    """R = 1[log P > its median], difficulty by prompt: the true gain is known, rewards and P are dependent."""
    rng = np.random.default_rng(15)
    sigma, prompts, repetitions = 0.3, 150, 400
    prompt = np.repeat(np.arange(prompts), responses)
    values, covered = [], 0
    true = 0.5 * (
        stats.norm.cdf(sigma / 2 + sigma / 2) - 0.5
    )  # half of the prompts ask log P > -sigma^2/2, half give 1
    for _ in range(repetitions):
        z = rng.normal(size=prompt.size)
        product = np.exp(sigma * z - sigma**2 / 2)
        hard = rng.random(prompts) < 0.5
        reward = np.where(hard[prompt], z > 0.0, 1.0) * 1.0
        interval = leave_one_out(reward, product, prompt, 0.95)
        assert interval.standing is Standing.ESTIMATED
        values.append(interval.value)
        covered += interval.low <= true <= interval.high
    assert abs(np.mean(values) - true) < 4.0 * stats.sem(values)
    assert stats.binomtest(covered, repetitions, 0.95).pvalue > 1e-3


def test_leave_one_out_baseline_by_hand():
    """Prompt 0 has two responses; prompts 1 and 2 one each, whose baseline is the other prompts' mean reward."""
    reward, product = np.array([1.0, 0.0, 1.0, 0.5]), np.array([2.0, 3.0, 0.5, 4.0])
    terms = [(1.0 - 0.0) * 1.0 / 2 + (0.0 - 1.0) * 2.0 / 2, (1.0 - 0.5) * -0.5, (0.5 - 0.75) * 3.0]
    assert leave_one_out(reward, product, np.array([0, 0, 1, 2]), 0.9).value == pytest.approx(np.mean(terms))
    several = leave_one_out_baseline(np.array([1.0, 0.0, 0.5, 1.0, 0.2]), np.array([0, 0, 0, 1, 2]))
    assert several == pytest.approx([0.25, 0.75, 0.5, 0.35, 0.75])
    assert leave_one_out_baseline(np.array([1.0, 0.25]), np.array([0, 1])).tolist() == [0.25, 1.0]
    alone = leave_one_out(np.array([0.5]), np.array([3.0]), np.array([4]), 0.9)
    assert (alone.value, alone.low, alone.high) == (1.0, -math.inf, math.inf)


def test_leave_one_out_with_overflowed_products_says_nothing():
    interval = leave_one_out(np.array([1.0, 0.0]), np.array([math.inf, 1.0]), np.array([0, 0]), 0.9)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    even = leave_one_out(np.array([1.0, 1.0]), np.array([math.inf, 1.0]), np.array([0, 0]), 0.9)
    assert even.value == 0.0


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "values must be a non-empty array"),
        ([[0.0, 1.0]], {}, "values must be a non-empty array"),
        ([0.0, math.nan], {}, r"values\[1\] must be a number in \[0, 1\], got values\[1\]=nan"),
        ([0.0, 1.0, 1.5], {}, r"values\[2\] must be a number in \[0, 1\], got values\[2\]=1.5"),
        ([0.0, -math.inf], {}, r"values\[1\] must be"),
        ([0.0, 1.0 + 2e-16], {}, r"values\[1\] must be .* got values\[1\]=1.0000000000000002"),
        ([1.0], {"low": 1.0}, "low must be below high, got low=1.0, high=1.0"),
        ([1.0], {"high": math.nan}, "high must be a number"),
        ([1.0], {"side": "left"}, "side must be 'both', 'lower' or 'upper', got side='left'"),
        ([1.0], {"confidence": 1.0}, "confidence must be a number strictly between 0 and 1"),
    ],
)
def test_bad_input(name, values, options, message):
    given_options = {"confidence": 0.9, "low": 0.0, "high": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        INTERVALS[name](np.array(values), **given_options)


def test_unknown_methods_and_mismatched_prompts():
    with pytest.raises(ValueError, match="unknown method 'beting'; did you mean 'betting'"):
        mean_interval(np.ones(2), 0.9, method="beting")
    with pytest.raises(ValueError, match="prompt must be a prompt for each value"):
        betting_these_prompts(np.ones(3), np.zeros(2, dtype=int), 0.9)
    for control in (np.zeros(2), np.array([0.0, 0.6, 0.0])):
        with pytest.raises(ValueError, match="control must be numbers in"):
            betting_these_prompts(np.ones(3), np.zeros(3, dtype=int), 0.9, control=control)
    with pytest.raises(ValueError, match="prompt must be a prompt for each value"):
        prompt_means(np.ones(0), np.zeros(0, dtype=int))
    with pytest.raises(ValueError, match="product must be one number for each reward"):
        leave_one_out(np.ones(3), np.ones(2), np.zeros(3, dtype=int), 0.9)
    with pytest.raises(ValueError, match=r"product\[1\] must be a number, got product\[1\]=nan"):
        leave_one_out(np.ones(2), np.array([1.0, math.nan]), np.zeros(2, dtype=int), 0.9)
    with pytest.raises(ValueError, match=r"values\[1\] must be 0 or 1 for Clopper-Pearson, got values\[1\]=0.5"):
        clopper_pearson(np.array([0.0, 0.5]), 0.9)


def test_one_value_that_is_no_number_leaves_no_standard_error():
    assert _standard_error(np.array([1.0, math.nan])) == math.inf
    assert _standard_error(np.array([1.0, math.inf])) == math.inf
    assert _standard_error(np.array([1.0, -1.0])) == 1.0
    overflows = leave_one_out(np.array([1.0, 0.0]), np.array([math.inf, 1.0]), np.array([0, 0]), 0.9)
    assert (overflows.low, overflows.high) == (-math.inf, math.inf)
    assert "P overflows" in overflows.method


def test_a_sum_of_values_without_a_lower_limit_has_an_upper_end_only():
    values, weight = np.array([0.1, 0.2, 0.3]), np.ones(3)
    assert betting_sum(values, weight, 1.0, 0.95, low=-math.inf).low == -math.inf
    capped = betting_sum(values, weight, 1.0, 0.95, low=-math.inf, high=5.0)
    assert capped.low == -math.inf < 0.6 < capped.high < 15.0


@pytest.mark.parametrize(
    ("values", "prompt"),
    [([1.0], [0]), ([1.0, 2.0], [0, 0]), ([1e200, 2.0, 3.0], [0, 1, 2]), ([math.inf, 2.0, 3.0], [0, 1, 2])],
    ids=["one response", "one prompt", "no standard error", "no mean"],
)
def test_where_there_is_no_standard_error_nothing_is_said(values, prompt):
    found = clustered_mean(np.array(values), np.array(prompt), 0.95)
    assert (found.low, found.high) == (-math.inf, math.inf)
