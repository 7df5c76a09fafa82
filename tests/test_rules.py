"""Every rule: golden values, a 40-digit oracle, and the contract that all of them keep."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import real, truth

import bounds
from bounds.divergence.inequalities import chi2_per_kl, pinsker_curve
from bounds.rules.published import PUBLISHED_RULES

NAMES = [r.name for r in bounds.RULES]
PUBLISHED = [r.name for r in PUBLISHED_RULES]
BY_POSITION = {"context_shift_profile", "adaptive_profile", "cauchy_schwarz"}
CHI2 = {"martingale_chi2", "cauchy_schwarz", "first_order"}
every_rule = pytest.mark.parametrize("name", NAMES)
scalar_rule = pytest.mark.parametrize("name", [n for n in NAMES if n not in BY_POSITION])
kl_tv_rule = pytest.mark.parametrize("name", [n for n in NAMES if n not in BY_POSITION | CHI2])

PAPER = {"T": 4096, "delta": 1e-4, "epsilon": 5e-3, "kl_seq": 0.01, "tv_seq": 0.05}
KL_ONLY = {"T": 4096, "delta": 1e-4, "kl_seq": 0.01}
LARGE = {"T": 4096, "delta": 1.0, "kl_seq": 1.0}

GOLDEN = [
    (PAPER, "classical", 838.656),
    (PAPER, "linear", 81.92),
    (PAPER, "coupling", 79.91),
    (PAPER, "pinsker_marginal_kl", 34.946091886296671),
    (PAPER, "pinsker_marginal_tv", 24.710618548768564),
    (PAPER, "mixed_kl", 8.192),
    (PAPER, "mixed_tv", 4.096),
    (PAPER, "adaptive", 24.710577127412327),
    (PAPER, "trajectory_kl", 0.01),
    (PAPER, "trajectory_tv", 20.48),
    ({"T": 4096, "epsilon": 1e-4}, "exact_tv", 0.13763847682883588),
    ({"T": 4096, "epsilon": 2.5e-4}, "exact_tv", 0.6561799531226279),
    ({"T": 2, "epsilon": 0.3}, "exact_tv", 0.18),
    ({"T": 100, "delta": 1e-4}, "martingale_kl", 0.00812302367657),
    ({"T": 3, "max_tv": [0.1, 0.2, 0.3], "mean_tv": [0.05, 0.1, 0.2]}, "context_shift_profile", 0.104),
    (PAPER, "halved_mixed_tv", 2.0475),
    (PAPER, "halved_adaptive", 24.710577127412327 / 2),
    ({**PAPER, "chi2_max": 2e-4}, "martingale_chi2", 0.3351486035),
    ({**PAPER, "chi2_sum": 0.02}, "first_order", 0.05 + 0.5 * math.sqrt(0.02)),
    ({**PAPER, "chi2_sum": 0.02, "mean_reward": 0.1}, "first_order", 0.05 + 0.3 * math.sqrt(0.02)),
    (KL_ONLY, "classical", 1677.312),
    (KL_ONLY, "linear", 115.85237502960395),
    (KL_ONLY, "coupling", 113.83820851246436),
    (KL_ONLY, "pinsker_marginal_tv", 34.946091886296671),
    (KL_ONLY, "mixed_kl", 8.192),
    (KL_ONLY, "mixed_tv", 8.192),
    (LARGE, "classical", 16773120.0),
    (LARGE, "linear", 11585.237502960395),
    (LARGE, "pinsker_marginal_kl", 11581.580648710902),
    (LARGE, "mixed_kl", 8192.0),
    ({"T": 4096, "delta": 0.01}, "pinsker_marginal_kl", 1139.522),
    ({"T": 4096, "delta": 1e-4}, "trajectory_kl", 0.4096),
]


@pytest.mark.parametrize(("known", "name", "value"), GOLDEN)
def test_reference_values(known, name, value):
    digits = 1e-6 if value == 1139.522 else 1e-9 if value == 0.3351486035 else 1e-12
    assert bounds.unified(**known)[name].value == pytest.approx(value, rel=digits)


@pytest.mark.parametrize(
    ("known", "published", "best"),
    [(PAPER, 4.096, 0.01), (KL_ONLY, 8.192, 0.01), ({"T": 4096, "delta": 1e-4}, 34.946091886296671, 0.4096)],
)
def test_b_star(known, published, best):
    table = bounds.unified(**known)
    assert table.best_published.value == pytest.approx(published, rel=1e-12)
    assert table.best.value == pytest.approx(best, rel=1e-12)
    assert table.best.value == min(b.value for b in table.bounds)


def test_1677_against_4_1_is_409_times():
    ratio = bounds.unified(**KL_ONLY)["classical"].value / bounds.unified(**PAPER).best_published.value
    assert 409 <= ratio < 410


def test_b_star_is_over_the_six_families_of_the_paper():
    assert {r.name for r in bounds.RULES if r.in_b_star} == {
        "pinsker_marginal_kl",
        "pinsker_marginal_tv",
        "mixed_kl",
        "mixed_tv",
        "coupling",
        "adaptive",
    }


def assert_certified(name, T, delta, epsilon, kl_seq, tv_seq, chi2=0.0, reward=None):
    """Never below the truth, never more than 1e-12 relative above it (nor than the smallest float)."""
    rule = bounds.rule(name)
    profile = bounds.Profile(
        T=T, delta=delta, epsilon=epsilon, kl_seq=kl_seq, tv_seq=tv_seq, chi2_max=chi2, mean_reward=reward
    )
    value = rule.value(profile)
    resolved = {
        n: profile.resolve(n, rule.family).value for n in ("epsilon", "kl_seq", "tv_seq", "chi2_max", "chi2_sum")
    }
    resolved["reward_sd"] = profile.reward_sd.value
    with mpmath.workdps(40):
        exact = truth(name, T, delta, **{n: v for n, v in resolved.items() if v < math.inf})
        if value == math.inf:
            assert exact > real(1.7e308) or math.inf in resolved.values() or T * chi2 > 1e3
            return
        assert real(value) >= exact * (1 - mpmath.mpf(10) ** -36)
        assert real(value) <= exact * (1 + mpmath.mpf(10) ** -12) + real(5e-324)


@scalar_rule
@pytest.mark.parametrize("T", [1, 2, 3, 33, 129, 4096, 10**6, 10**12])
def test_grid_against_the_oracle(name, T):
    for delta, epsilon in itertools.product(
        [1e-300, 1e-12, 1e-4, 0.3, 2.0, 50.0, 1e300], [1e-300, 1e-9, 5e-3, 0.4, 1.0]
    ):
        kl_seq = min(delta / 3, 1.0) if delta < 1e299 else 1.0
        assert_certified(name, T, delta, epsilon, kl_seq, min(1.0, 2 * epsilon), chi2=epsilon / T**0.5)


@scalar_rule
@given(
    T=st.one_of(st.integers(1, 300), st.integers(1, 10**12)),
    delta=st.floats(1e-300, 1e6),
    epsilon=st.floats(1e-300, 1.0),
    share=st.floats(0.0, 1.0),
    tv_seq=st.floats(1e-300, 1.0),
    chi2=st.one_of(st.floats(1e-300, 1e-12), st.floats(1e-12, 1.0)),
    reward=st.floats(0.0, 1.0),
)
def test_random_inputs_against_the_oracle(name, T, delta, epsilon, share, tv_seq, chi2, reward):
    assert_certified(name, T, delta, epsilon, T * delta * share, tv_seq, chi2, reward)


@pytest.mark.parametrize("route", ["adaptive", "adaptive_kl", "adaptive_tv"])
@pytest.mark.parametrize("T", [1, 2, 50, 1000])
def test_per_position_profiles_against_the_oracle(route, T):
    rng = np.random.default_rng(T)
    dbar, delta, epsilon = rng.random(T) * 0.01, 1e-3, 0.02
    value = bounds.rule(route).value(bounds.Profile(T=T, delta=delta, epsilon=epsilon, mean_tv=dbar))
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for t in range(1, T + 1):
            weights = [mpmath.mpf(1)]
            weights += [(T - t) * real(epsilon)] if route != "adaptive_kl" else []
            weights += [mpmath.sqrt((T - t) * real(delta) / 2)] if route != "adaptive_tv" else []
            total += 4 * real(dbar[t - 1]) * min(weights)
        assert total <= real(value) <= total * (1 + mpmath.mpf(10) ** -12)


BY_ARRAYS = {
    "context_shift_profile": ("max_tv", "mean_kl", "mean_tv"),
    "adaptive_profile": ("mean_tv", "max_tv", "max_kl"),
    "martingale_chi2": ("max_chi2",),
    "cauchy_schwarz": ("mean_chi2", "mean_kl"),
}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-150])
@pytest.mark.parametrize("T", [31, 2**14 + 77])
@pytest.mark.parametrize("name", BY_ARRAYS)
def test_long_profiles_against_sums_one_by_one(name, T, scale):
    """Across the blocks in which they are summed: not below, and within 1e-12; wild and tame entries."""
    rng = np.random.default_rng(T)
    spread = rng.random(T) ** 9 * (rng.random(T) < 0.7) * (0.5 if name == "martingale_chi2" and scale == 1 else 1.0)
    arrays = {n: spread * scale * (0.5 if n.startswith("mean") else 1.0) for n in BY_ARRAYS[name]}
    arrays = {n: a * (min(1.0, 50 / T) if scale == 1 else 1.0) for n, a in arrays.items()}
    profile = bounds.Profile(T=T, **arrays)
    value, tv_seq = bounds.rule(name).value(profile), profile.resolve("tv_seq", "sharp")
    with mpmath.workdps(30):
        cap = real(tv_seq.value) if tv_seq else mpmath.mpf(1)
        resolved = {n: [real(x) for x in profile.quantity(n, "sharp")[0].tolist()] for n in arrays}
        truth = literal_profile(name, resolved, cap)
        assert truth <= real(value) <= truth * (1 + mpmath.mpf(10) ** -12) + real(1e-322)


def literal_profile(name, arrays, tv_seq):
    """The rule position by position in mpmath; running sums and products one entry at a time."""
    steps = list(zip(*(arrays[n] for n in BY_ARRAYS[name]), strict=True))
    first, second, lost, total, b = (mpmath.mpf(0) for _ in range(5))
    for step in steps if name in ("context_shift_profile", "martingale_chi2") else reversed(steps):
        if name == "context_shift_profile":
            eps, kl, tv = step
            tau = min(tv_seq, mpmath.sqrt(first / 2), second, lost)
            total, b = total + 2 * eps * tau, (1 - eps) * b + eps * second + min(tv, eps * tau)
            first, second, lost = first + kl, second + tv, lost + eps * (1 - lost)
        elif name == "adaptive_profile":
            tv, eps, kl = step
            total += 2 * tv * min(1, lost, mpmath.sqrt(first / 2))
            first, lost = first + kl, lost + eps * (1 - lost)
        elif name == "martingale_chi2":
            total += step[0] * second
            second += step[0] * (1 + second)
        else:
            total += mpmath.sqrt(step[0] * first / 2)
            first += step[1]
    if name == "context_shift_profile":
        return min(b, total)
    return mpmath.sqrt(total) / 2 if name == "martingale_chi2" else total


def test_mean_tv_is_filled_from_kl_arrays():
    kl = np.array([0.0, 0.02, 3.0])
    table = bounds.unified(T=3, mean_kl=kl, max_kl=np.maximum(kl, 0.5) * 2)
    filled = next(i for i in table["adaptive"].inputs if i.name == "mean_tv")
    assert (filled.how, filled.used) == ("sqrt(mean_kl/2)", ("mean_kl",))
    same = bounds.unified(T=3, delta=6.0, epsilon=1.0, mean_tv=np.minimum(1.0, np.sqrt(kl / 2)))
    assert table["adaptive"].value == pytest.approx(same["adaptive"].value, rel=1e-12)
    by_curve = sum(float(pinsker_curve(Fraction(x))) for x in kl)
    assert by_curve <= table["trajectory_tv"].value <= by_curve * (1 + 4e-6)


def test_a_table_says_what_was_filled_in_and_not_what_was_given():
    titles, rows = bounds.unified(T=10, delta=0.02).cells()
    filled = {cells[0]: cells[titles.index("filled in")] for cells, _ in rows}
    assert (filled["classical"], filled["pinsker_marginal_kl"]) == ("epsilon = sqrt(delta/2)", "")


def test_arrays_do_not_make_adaptive_worse_than_its_relatives():
    table = bounds.unified(T=100, delta=0.02, epsilon=0.01, mean_kl=[0.02] * 100)
    for name in ("pinsker_marginal_kl", "pinsker_marginal_tv", "coupling"):
        assert table["adaptive"].value <= table[name].value * (1 + 1e-12)


def test_arrays_are_converted_under_a_ratio_cap():
    """chi2 <= c(Lam) KL and 2 sinh(Lam) TV position by position, sharp rules only, and never at a support gap."""
    kl, cap = np.array([0.0, 1e-300, 0.02, 0.05]), 0.5
    profile = bounds.Profile(T=4, mean_kl=kl, log_ratio_max=cap)
    chi2, how = profile.quantity("mean_chi2", "sharp")
    assert (how.how, how.used) == ("c(Lam) mean_kl", ("mean_kl", "log_ratio_max"))
    factor = chi2_per_kl(Fraction(cap))
    for value, x in zip(chi2.tolist(), kl.tolist(), strict=True):
        assert Fraction(x) * factor <= Fraction(value) <= Fraction(x) * factor * (1 + Fraction(1, 10**15))
    assert "cauchy_schwarz" in bounds.unified(profile)
    assert profile.quantity("mean_chi2", "published") is None
    gap = bounds.Profile(T=4, mean_kl=kl, log_ratio_max=cap, support_gap=0.01)
    assert gap.quantity("mean_chi2", "sharp") is None
    by_tv = bounds.Profile(T=2, max_tv=[0.1, 0.2], log_ratio_max=cap).quantity("max_chi2", "sharp")[0]
    assert by_tv == pytest.approx(2 * math.sinh(0.5) * np.array([0.1, 0.2]), rel=1e-14)
    assert bounds.Profile(T=1, max_kl=[0.1], log_ratio_max=1e4).quantity("max_chi2", "sharp")[0][0] == math.inf


def test_a_sharp_rule_wins_ties():
    assert bounds.unified(T=4, delta=0.0).best.name == "trajectory_kl"


# --- relations that theory states --------------------------------------------------------------------------

inputs = {
    "T": st.integers(1, 10**6),
    "delta": st.floats(1e-12, 4.0),
    "share": st.floats(1e-3, 1.0),
}


@given(**inputs)
def test_adaptive_is_below_its_three_relatives(T, delta, share):
    table = bounds.unified(T=T, delta=delta, epsilon=share * min(1.0, math.sqrt(delta / 2)))
    for name in ("pinsker_marginal_kl", "pinsker_marginal_tv", "coupling"):
        assert table["adaptive"].value <= table[name].value * (1 + 1e-12)


@given(**inputs)
def test_at_pinsker_the_total_variation_forms_are_the_kl_forms(T, delta, share):
    table = bounds.unified(T=T, delta=delta, kl_seq=T * delta * share * (1 - 1e-9))
    assert table["pinsker_marginal_tv"].value == pytest.approx(table["pinsker_marginal_kl"].value, rel=1e-12)
    assert table["adaptive_kl"].value == pytest.approx(table["pinsker_marginal_kl"].value, rel=1e-12)
    assert table["adaptive_tv"].value == pytest.approx(table["coupling"].value, rel=1e-12)
    if delta <= 2:
        assert table["classical"].value == pytest.approx(T * (T - 1) * delta, rel=1e-12)
    if T >= 2 and delta <= 2:
        by_delta = bounds.unified(T=T, delta=delta)
        assert by_delta["trajectory_kl"].value <= by_delta["pinsker_marginal_kl"].value * (1 + 1e-12)


@given(**inputs)
def test_the_trajectory_bounds_are_below_mixed_kl(T, delta, share):
    table = bounds.unified(T=T, delta=delta, kl_seq=T * delta * share * (1 - 1e-9))
    best = min(table["trajectory_kl"].value, table["trajectory_tv"].value)
    assert best <= table["mixed_kl"].value * (1 + 1e-12)


@given(T=st.integers(1, 10**6), share=st.floats(0.0, 1.0))
def test_the_simplified_pinsker_marginal_form_is_not_an_equality(T, share):
    delta = 2 / T * share
    simplified = 4 / 3 * T**1.5 * delta
    value = bounds.unified(T=T, delta=delta)["pinsker_marginal_kl"].value
    assert value < simplified or simplified == 0.0


# --- the contract ------------------------------------------------------------------------------------------

SCALARS = {"delta": 0.02, "epsilon": 0.05, "kl_seq": 0.1, "tv_seq": 0.2, "tv_sum": 0.4, "mean_length": 15.0}


@kl_tv_rule
@pytest.mark.parametrize("field", list(SCALARS))
@given(low=st.floats(0.0, 1.0), high=st.floats(0.0, 1.0))
def test_monotone_in_every_input(name, field, low, high):
    low, high = sorted((low, high))
    base = {"T": 20, "delta": 1.0, "epsilon": 1.0, "kl_seq": 0.05, "tv_seq": 0.2, "tv_sum": 0.5, "mean_length": 1.0}
    for other in ("kl_seq", "tv_sum", "mean_length"):  # so that nothing contradicts what varies
        if field in ("delta", "epsilon") and other != "mean_length":
            del base[other]
    scale = {"mean_length": 19.0, "tv_sum": 1.0}.get(field, 1.0)
    offset = 1.0 if field == "mean_length" else 0.0
    if field == "mean_length":
        del base["kl_seq"], base["tv_sum"]
    values = [bounds.rule(name).value(bounds.Profile(**{**base, field: offset + scale * x})) for x in (low, high)]
    assert values[0] <= values[1]


@kl_tv_rule
@given(T=st.integers(1, 10**9), more=st.integers(0, 10**9))
def test_monotone_in_the_horizon(name, T, more):
    values = [bounds.rule(name).value(bounds.Profile(T=h, delta=1e-5, epsilon=1e-3)) for h in (T, T + more)]
    assert values[0] <= values[1]


@every_rule
def test_zero_divergence_is_zero_error(name):
    zero = {"delta": 0.0, "epsilon": 0.0, "kl_seq": 0.0, "tv_seq": 0.0, "chi2_max": 0.0}
    for T in (1, 2, 4096, 10**12) if name not in BY_POSITION else ():
        assert bounds.rule(name).value(bounds.Profile(T=T, **zero)) == 0.0
    arrays = {f"{side}_{d}": np.zeros(3) for side in ("mean", "max") for d in ("tv", "kl", "chi2")}
    assert bounds.rule(name).value(bounds.Profile(T=3, **arrays, **zero)) == 0.0


@every_rule
def test_one_token(name):
    """At T = 1 the surrogate is exact: rules of products vanish, the others stay."""
    arrays = {
        "mean_tv": [0.2],
        "mean_kl": [0.1],
        "mean_chi2": [0.3],
        "max_tv": [0.2],
        "max_kl": [0.1],
        "max_chi2": [0.3],
    }
    known = {"delta": 0.1, "epsilon": 0.2, "kl_seq": 0.1, "tv_seq": 0.2, "chi2_max": 0.3}
    value = bounds.rule(name).value(bounds.Profile(T=1, **known, **arrays))
    expected = {
        "halved_linear": 0.4,
        "first_order": 0.2 + 0.5 * math.sqrt(0.3),
        "linear": 0.8,
        "mixed_kl": 4 * 0.05,
        "mixed_tv": 4 * 0.2 * 0.2,
        "trajectory_kl": 0.1,
        "trajectory_tv": 0.2,
        "martingale_kl": math.exp(0.4 / 9)
        * (
            0.5 * math.sqrt(math.exp(0.2) - 1.2)
            + 0.2 / 3 * math.sqrt(math.expm1(0.2))
            + 8 / 9 * (1 - 0.9 * math.exp(0.1))
        ),
    }
    assert value == pytest.approx(expected.get(name, 0.0), rel=1e-12)


@kl_tv_rule
def test_infinite_divergence_makes_no_bound_false(name):
    value = bounds.rule(name).value(bounds.Profile(T=7, delta=math.inf, kl_seq=math.inf))
    assert value >= 1.0


def test_infinite_chi2_is_infinite():
    table = bounds.unified(T=7, chi2_max=math.inf, tv_seq=0.1)
    assert table["martingale_chi2"].value == table["first_order"].value == math.inf


@pytest.mark.parametrize("name", [n for n in PUBLISHED if n != "classical"])
def test_published_rules_are_capped(name):
    value = bounds.rule(name).value(bounds.Profile(T=100, delta=1e6, epsilon=1.0))
    assert value <= 4 * 100


@kl_tv_rule
@given(low=st.floats(-5.0, 5.0), spread=st.floats(0.01, 100.0))
def test_errors_scale_with_the_reward_range(name, low, spread):
    known = {"T": 10, "delta": 0.01, "epsilon": 0.02}
    unit = bounds.rule(name).value(bounds.Profile(**known))
    profile = bounds.Profile(**known, reward_range=(low, low + spread))
    exact = Fraction(low + spread) - Fraction(low)
    assert bounds.rule(name).value(profile) == pytest.approx(unit * float(exact), rel=1e-12)


@every_rule
def test_a_rule_says_what_it_lacks(name):
    rule = bounds.rule(name)
    with pytest.raises(ValueError, match=f"rule {name} was not evaluated: needs"):
        rule.value(bounds.Profile(T=5))


@every_rule
def test_rules_are_documented(name):
    rule = bounds.rule(name)
    assert rule.title
    assert rule.latex
    assert rule.source
    assert rule.family in ("published", "sharp")


@every_rule
def test_support_gap_withdraws_or_corrects_what_loses_its_proof(name):
    arrays = {
        "mean_tv": [0.1] * 5,
        "mean_kl": [0.1] * 5,
        "mean_chi2": [0.1] * 5,
        "max_tv": [0.1] * 5,
        "max_kl": [0.1] * 5,
    }
    known = {"T": 5, "delta": 0.1, "epsilon": 0.1, "chi2_max": 0.2, **arrays}
    free = name in ("linear", "halved_linear", "trajectory_kl", "trajectory_tv")
    plain = bounds.unified(**known)
    assert "absolutely_continuous" in str(plain)
    unknown_gap = bounds.unified(**known, absolutely_continuous=False)
    assert (name in unknown_gap) == free
    declared = bounds.unified(**known, support_gap=0.02)
    assert unknown_gap.assumptions == declared.assumptions == ()
    assert (name in declared) == (name not in CHI2)
    if name in declared:
        term = 0.0 if free else 5 * 0.02
        assert declared[name].value == pytest.approx(plain[name].value + term, rel=1e-12)
        assert any("support_gap" in i.used for i in declared[name].inputs) == bool(term)
    shorter = bounds.unified(**known, support_gap=0.02, mean_length=2.0)
    if name in declared and not free:
        assert shorter["coupling"].value == pytest.approx(plain["coupling"].value + 2 * 0.02, rel=1e-12)


def test_with_a_gap_and_rewards_that_do_not_start_at_zero():
    """Error(a + (b-a) R) = (b-a) Error(R) + a times the summed gap, which is at most what is declared, A and D."""
    table = bounds.unified(T=5, delta=0.1, absolutely_continuous=False, reward_range=(-1, 1))
    assert {b.name for b in table.bounds} == {"linear", "halved_linear", "trajectory_kl", "trajectory_tv"}
    assert table["trajectory_kl"].value == pytest.approx(3 * 5 * 0.1)  # (b-a) D + |a| D
    used = next(i for i in table["trajectory_kl"].inputs if i.name == "gap_sum")
    assert used.used == ("delta",)
    unknown = bounds.unified(T=5, chi2_max=0.1, absolutely_continuous=False, reward_range=(-1, 1))
    assert unknown.best is None
    assert "No rule applies" in str(unknown)
    declared = bounds.unified(T=5, delta=0.1, support_gap=0.01, reward_range=(-1, 1))
    assert declared["trajectory_kl"].value == pytest.approx(2 * 5 * 0.1 + 1 * 5 * 0.01)  # (b-a) D + |a| sum of the gap
    assert declared["coupling"].value == pytest.approx(
        2 * bounds.unified(T=5, delta=0.1)["coupling"].value + 3 * 5 * 0.01
    )


def test_scalars_are_never_expanded_to_the_horizon():
    table = bounds.unified(T=10**12, delta=1e-9, epsilon=1e-6)  # an array of this length would not fit
    assert table["adaptive"].value > 0


def test_unknown_rule_names_the_likely_one():
    with pytest.raises(KeyError, match="did you mean 'mixed_tv'"):
        bounds.rule("mixd_tv")


TINY = 5e-324


@pytest.mark.parametrize(
    ("name", "known", "least"),
    [
        ("context_shift_profile", {"max_tv": [1.0, 1.0], "mean_kl": [TINY, TINY]}, 2 * math.sqrt(TINY) / 1.42),
        ("context_shift_profile", {"max_tv": [1.0, 1.0], "mean_kl": [5 * TINY, 0.0]}, 3.5144e-162),
        ("cauchy_schwarz", {"mean_chi2": [1.0, 1.0], "mean_kl": [TINY, TINY]}, 1.57e-162),
        ("adaptive_profile", {"mean_tv": [1.0, 1.0], "max_kl": [TINY, TINY], "epsilon": 1.0}, TINY),
        ("martingale_chi2", {"max_chi2": [1e-300] * 2}, 4.9e-301),
    ],
)
def test_subnormal_arrays_are_not_rounded_down(name, known, least):
    assert bounds.rule(name).value(bounds.Profile(T=2, **known)) >= least


def test_infinite_entries_of_arrays():
    table = bounds.unified(
        T=3, kl_seq=0.1, max_chi2=[math.inf, 1.0, 1.0], mean_chi2=[math.inf, 1, 1], mean_kl=[0, 0, TINY]
    )
    assert table["martingale_chi2"].value == table["cauchy_schwarz"].value == math.inf
    assert table["trajectory_kl"].value <= 0.1
    assert bounds.unified(T=2, max_chi2=[math.inf, 0.0])["martingale_chi2"].value == 0.0  # the first step has no shift


@pytest.mark.parametrize("cap", [1e-300, 1.0, 700.0, 1e8, 1e300, math.inf])
def test_ratio_caps_of_any_size(cap):
    table = bounds.unified(T=5, delta=0.1, log_ratio_max=cap)
    assert table["trajectory_kl"].value == (
        pytest.approx(0.5) if cap > 0.5 else pytest.approx(5 * cap**2 / 2, abs=1e-300)
    )
    assert bounds.unified(T=5, log_ratio_max=cap)["trajectory_tv"].value <= 5.0


def test_mean_rewards_beyond_an_end_are_refused():
    with pytest.raises(ValueError, match="mean_reward must be"):
        bounds.unified(T=2, chi2_max=0.01, mean_reward=1 + 1e-9)
    assert bounds.unified(T=2, chi2_max=0.01, mean_reward=1 - 1e-9)["martingale_chi2"].value > 0
    assert bounds.unified(T=2, kl_seq=1e-10, reward_range=(-1e308, 1e308)).best.value == pytest.approx(2e298)
