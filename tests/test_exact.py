"""Every rule against the enumerated truth, on thousands of random and adversarial problems."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bounds
from bounds import Standing
from bounds._rounding import round_up, sqrt_up
from bounds.proof.exact import Problem, Tree, expected, log_low, random_problem
from bounds.proof.instances import nearest
from bounds.proof.worst_case import homogeneous
from bounds.rules.implied import IMPLICATIONS
from bounds.rules.profile import FIELDS

INPUTS = [
    (),
    ("delta",),
    ("epsilon",),
    ("kl_seq",),
    ("delta", "epsilon"),
    ("delta", "epsilon", "kl_seq", "tv_seq"),
    ("delta", "mean_tv"),
    ("delta", "mean_kl"),
    ("max_kl", "max_tv"),
    ("delta", "epsilon", "mean_length"),
    ("chi2_max", "max_chi2"),
    ("chi2_max", "epsilon", "mean_length"),
    ("mean_chi2", "mean_kl", "tv_seq"),
    ("max_tv", "max_kl", "mean_tv", "mean_kl", "tv_seq"),
]
ANY_SUPPORT = {r.name for r in bounds.RULES if not r.assumes}


def problems(kind: str, count: int, rational: bool):
    """Random problems of one kind at a fixed seed."""
    rng = np.random.default_rng(sum(map(ord, kind)) + rational)
    for _ in range(count):
        settings = {
            "horizon": int(rng.integers(1, 5)),
            "vocabulary": int(rng.integers(2, 4)),
            "distance": float(10.0 ** -rng.uniform(0, 6)),
            "concentration": float(10.0 ** rng.uniform(-0.5, 1)),
            "prompts": int(rng.integers(1, 4)),
            "ends": bool(rng.integers(2)),
        }
        settings |= {
            "ordinary": {},
            "near-deterministic": {"concentration": 0.02, "distance": float(rng.choice([0.01, 0.5, 1.0]))},
            "zeros in theta": {"zeros_theta": 0.4, "distance": 0.5},
            "zeros in roll": {"zeros_roll": 0.3, "distance": 0.5},
            "one step": {"horizon": 1},
            "one token": {"vocabulary": 1},
            "far apart": {"distance": 1.0, "concentration": 0.3},
        }[kind]
        yield random_problem(rng, rational=rational, **settings)


KINDS = ["ordinary", "near-deterministic", "zeros in theta", "zeros in roll", "one step", "one token", "far apart"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rational", "count"), [(False, 1430), (True, 40)], ids=["float", "rational"])
def test_no_rule_is_below_the_worst_error(kind, rational, count):
    seen, n = 0, len(INPUTS)
    for k, problem in enumerate(problems(kind, count, rational)):
        worst = problem.worst_error if rational else problem.worst_error * (1 - 1e-12) - 1e-15
        for names in INPUTS if rational else (INPUTS[k % n],):
            table = bounds.unified(problem.profile(*names))
            if problem.has_support_gap:
                assert {b.name for b in table.bounds} <= ANY_SUPPORT
            for b in table.bounds:
                seen += 1
                assert b.value >= worst, (b.name, names, b.value, float(problem.worst_error))
    assert seen > 3 * count


@pytest.mark.parametrize("kind", ["zeros in roll", "one step"])
@pytest.mark.parametrize("rewards", [(0.0, 1.0), (-1.0, 1.0), (2.0, 3.0)])
def test_declared_gaps_and_reward_ranges(kind, rewards):
    """With the gap declared, rules that need theta << roll hold with its sum added; whatever the range of rewards."""
    low, high = map(Fraction, rewards)
    rng, seen = np.random.default_rng(9), 0
    for problem in (
        problems("zeros in roll", 12, rational=True) if kind == "zeros in roll" else problems(kind, 20, True)
    ):
        gap = float(max(problem.per_position["max_gap"])) * (1 + 1e-15)
        worst = Fraction(0)
        for _ in range(20):
            r = [
                low + (high - low) * np.array(rng.integers(0, 2, t.error_weight.size), dtype=object)
                for t in problem.trees
            ]
            worst = max(worst, abs(problem.error(r)))
        best = [low + (high - low) * np.array([Fraction(int(w > 0)) for w in t.error_weight]) for t in problem.trees]
        worst = max(worst, abs(problem.error(best)))
        for names in INPUTS:
            known = {n: v for n, v in problem.profile(*names).known().items() if n != "absolutely_continuous"}
            for b in bounds.unified(**{**known, "reward_range": rewards, "support_gap": gap}).bounds:
                seen += 1
                assert b.value >= worst, (b.name, names)
    assert seen > 1000


def test_reward_ranges_by_prompt():
    """Rewards in another range for each prompt: the largest spread counts, not the union of the ranges."""
    rng = np.random.default_rng(12)
    for problem in problems("ordinary", 60, rational=True):
        lows = [Fraction(int(k)) for k in rng.integers(-5, 6, len(problem.trees))]
        spreads = [Fraction(int(k), 2) for k in rng.integers(1, 5, len(problem.trees))]
        rewards = [
            low + spread * np.array([Fraction(int(w > 0)) for w in tree.error_weight], dtype=object)
            for tree, low, spread in zip(problem.trees, lows, spreads, strict=True)
        ]
        ranges = [(float(a), float(a + s)) for a, s in zip(lows, spreads, strict=True)]
        error = abs(problem.error(rewards))
        for names in INPUTS:
            table = bounds.unified(**{**problem.profile(*names).known(), "reward_range": ranges})
            assert table.reward_spread == float(max(spreads))
            for b in table.bounds:
                assert b.value >= error, b.name


def test_slack_upper_values():
    """Upper values that are far too large, each by another factor, make no bound false and contradict nothing."""
    rng = np.random.default_rng(14)
    for kind in ("ordinary", "far apart", "zeros in theta"):
        for problem in problems(kind, 40, rational=True):
            known = problem.profile().known()
            slack = {
                n: np.minimum(v * rng.choice([1.0, 1.5, 40.0], np.shape(v)), FIELDS[n].high)
                for n, v in known.items()
                if n in FIELDS and rng.random() < 0.8
            }
            slack = {n: v if np.ndim(v) else float(v) for n, v in slack.items()}
            for bound in bounds.unified(**{**known, **slack}):
                assert bound.value >= problem.worst_error, (bound, slack)


def test_known_mean_rewards():
    """sd(R) <= sqrt(mu (1-mu)) in the chi2 rules, for random rewards of each problem."""
    rng = np.random.default_rng(10)
    for kind in ("ordinary", "far apart", "zeros in theta"):
        for problem in problems(kind, 40, rational=True):
            rewards = [
                np.array([Fraction(int(k), 5) for k in rng.integers(0, 6, t.error_weight.size)], dtype=object)
                for t in problem.trees
            ]
            mean, error = problem.objective("roll", rewards), abs(problem.error(rewards))
            known = problem.profile().known()
            low, high = max(0.0, float(mean) - 0.05), min(1.0, float(mean) + 0.05)
            for value in (float(mean), (low, high), (low, high - 0.05 if mean < 0.5 else 1.0)):
                table = bounds.unified(**{**known, "mean_reward": value})
                for name in ("martingale_chi2", "first_order"):
                    assert table[name].value >= error


@pytest.mark.parametrize("rare", [Fraction(1, 10**9), Fraction(1, 10**8), Fraction(1, 10**7)])
@pytest.mark.parametrize(("low", "spread"), [(0, 1), (-3, 2), (5, 10**6)])
def test_a_mean_reward_that_rounds_next_to_an_end(rare, low, spread):
    """R is the largest reward but after two new tokens, which roll hardly ever emits: float(J(roll)) may be an end."""
    problem = homogeneous(2, rare, Fraction(1, 5))
    rewards = low + spread * np.array([Fraction(1)] * 3 + [Fraction(0)], dtype=object)
    mean = problem.objective("roll", [rewards])
    profile = {**problem.profile("chi2_max").known(), "reward_range": (low, low + spread), "mean_reward": float(mean)}
    error = abs(problem.error([rewards]))
    assert error > spread / 30
    assert bounds.unified(**profile)["martingale_chi2"].value >= error


def test_the_worst_of_all_means_that_a_number_or_a_pair_stands_for_counts():
    def sd(mean, **known):
        return bounds.Profile(T=2, mean_reward=mean, **known).reward_sd.value

    mean = 1 - Fraction(3, 2**54)  # half-way between two floats
    for given in (float(mean), (0.999, float(mean)), (float(mean), 1.0)):
        assert Fraction(sd(given)) ** 2 >= min(mean, Fraction(1, 2)) * (1 - mean)
    assert sd((0.2, 0.8)) == 0.5
    assert sd((0.0, 0.1)) == pytest.approx(0.3)
    assert sd((0.9, 1.0)) == pytest.approx(0.3)
    assert sd(Fraction(1, 3)) ** 2 >= Fraction(2, 9)
    assert sd((-1.0, -0.8), reward_range=(-1, 1)) == pytest.approx(0.3)
    assert 0.0 < sd(0.0, reward_range=(0, 5)) < sd(0.0)


def test_rewards_that_spread_little_within_a_prompt():
    """sqrt(E Var(R | prompt)) for sd(R) in the chi2 rules; prompts that differ in difficulty do not count."""
    rng, gained = np.random.default_rng(11), 0
    for kind in ("ordinary", "far apart", "zeros in theta"):
        for problem in problems(kind, 20, rational=True):
            offsets = rng.permutation(len(problem.trees)) * 4
            rewards = [
                np.array([Fraction(int(k) + int(a), 9) for k in rng.integers(0, 2, t.error_weight.size)], dtype=object)
                for t, a in zip(problem.trees, offsets, strict=True)
            ]
            worst = [
                np.array([Fraction(int(a) + int(w > 0), 9) for w in t.error_weight], dtype=object)
                for t, a in zip(problem.trees, offsets, strict=True)
            ]
            for of in (rewards, worst):
                means = [(t.roll_mass[-1] * r).sum() for t, r in zip(problem.trees, of, strict=True)]
                squares = [(t.roll_mass[-1] * r**2).sum() for t, r in zip(problem.trees, of, strict=True)]
                within = sqrt_up(problem.mean([s - m**2 for s, m in zip(squares, means, strict=True)]))
                known = problem.profile("chi2_max", "chi2_sum", "tv_seq").known()
                for reward_range in ((0, 1), (-1, 3)):
                    given = {"reward_sd_within": round_up(within), "reward_range": reward_range}
                    profile = bounds.Profile(**{**known, **given})
                    for name in ("martingale_chi2", "first_order"):
                        assert bounds.rule(name).value(profile) >= abs(problem.error(of))
                gained += within * 4 < 1
    assert gained > 50
    narrow = bounds.unified(T=9, chi2_max=0.01, reward_sd_within=0.125, reward_range=(0, 0.5), mean_reward=0.25)
    wide = bounds.unified(T=9, chi2_max=0.01)
    assert narrow["martingale_chi2"].value == pytest.approx(wide["martingale_chi2"].value / 4, rel=1e-12)
    assert narrow["martingale_chi2"].inputs[1].used == ("reward_sd_within",)


def test_where_the_training_policy_s_reward_lies():
    """kl(J(roll) || J(theta)) <= D on enumerated problems with random rewards, in any range and with support gaps."""
    rng, nearest = np.random.default_rng(13), 0.0
    for kind in ("ordinary", "zeros in roll", "one step"):
        for problem in problems(kind, 12, rational=True):
            rewards = [
                np.array([Fraction(int(k), 5) - 1 for k in rng.choice([0, 2, 5], t.error_weight.size)], dtype=object)
                for t in problem.trees
            ]
            mean, after = (problem.objective(policy, rewards) for policy in ("roll", "theta"))
            kl_seq = problem.profile("kl_seq").kl_seq
            found = bounds.reward_interval(mean_reward=float(mean), kl_seq=kl_seq, reward_range=(-1, 0))
            assert Fraction(found.low) <= after <= Fraction(found.high)
            end = found.low if after < mean else found.high
            nearest = max(nearest, float((after - mean) / (Fraction(end) - mean)) if after != mean else 0.0)
    assert nearest > 0.9


@pytest.mark.parametrize("mean", [0.0, 1e-300, 1e-9, 0.1, 0.4, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("kl_seq", [0.0, 1e-30, 1e-6, 0.01, 3.0, 1000.0, np.inf])
def test_the_ends_of_the_reward_are_the_roots_rounded_outward(mean, kl_seq):
    """At each end kl is D or more, at the next float toward the mean less: in mpmath, at 400 digits."""
    import mpmath

    found = bounds.reward_interval(mean_reward=(mean, mean), kl_seq=kl_seq)
    assert 0.0 <= found.low <= mean <= found.high <= 1.0
    with mpmath.workdps(400):

        def kl(x):
            pairs = ((mpmath.mpf(mean), mpmath.mpf(x)), (1 - mpmath.mpf(mean), 1 - mpmath.mpf(x)))
            return mpmath.fsum(a * mpmath.log(a / b) if b else mpmath.inf for a, b in pairs if a)

        for end, last in ((found.low, 0.0), (found.high, 1.0)):
            assert end == last or kl(end) >= kl_seq
            assert end == mean or kl(np.nextafter(end, mean)) <= kl_seq * (1 + mpmath.mpf(10) ** -29)


def test_the_worst_of_the_mean_rewards_counts_at_either_end():
    wide = bounds.reward_interval(mean_reward=(0.3, 0.5), kl_seq=0.01)
    assert wide.low == bounds.reward_interval(mean_reward=(0.3, 0.3), kl_seq=0.01).low
    assert wide.high == bounds.reward_interval(mean_reward=(0.5, 0.5), kl_seq=0.01).high
    rounded = bounds.reward_interval(mean_reward=0.1, kl_seq=0.0)  # stands for what float64 rounds to it
    assert rounded.low < 0.1 < rounded.high
    given = {"mean_reward": Standing.MEASURED, "kl_seq": Standing.ASSUMED}
    table = bounds.unified(T=9, mean_reward=0.4, kl_seq=0.01, standing=given)
    assert table.reward_interval.standing is Standing.ASSUMED
    assert table.to_dict()["reward_interval"]["low"] == bounds.reward_interval(mean_reward=0.4, kl_seq=0.01).low
    assert "J(theta) lies in [0.332, 0.471]" in str(table)
    assert [
        next(start for start in ("J(theta)", "|L'| <=", "Assumed:") if line.startswith(start))
        for line in table.notes()[:3]
    ] == ["J(theta)", "|L'| <=", "Assumed:"]
    assert bounds.unified(T=9, kl_seq=0.01).reward_interval is None
    with pytest.raises(ValueError, match="mean_reward must be"):
        bounds.reward_interval(mean_reward=1.5, kl_seq=0.01)


def test_the_sharp_bounds_are_nearly_attained_by_some_of_them():
    """What is bounded is not a tiny fraction of the bound: the comparison above has teeth."""
    ratios = dict.fromkeys(("trajectory_kl", "trajectory_tv"), 0.0)
    for kind in KINDS:
        for problem in problems(kind, 60, rational=False):
            table = bounds.unified(problem.profile())
            for name in ratios:
                if 0.0 < table[name].value < np.inf:
                    ratios[name] = max(ratios[name], float(problem.worst_error) / table[name].value)
    assert min(ratios.values()) > 0.5


def test_the_kernel_that_reaches_t_epsilon():
    """theta(new) = eps, roll(new) -> 0 at every step: the worst error tends to T eps (1 - (1-eps)^(T-1))."""
    eps, tiny, T = Fraction(1, 5), Fraction(1, 10**9), 3

    def rows(p):
        return tuple(np.array([[1 - p, p]] * 2**t, dtype=object) for t in range(T))

    problem = Problem((Tree(rows(tiny), rows(eps)),), (Fraction(1),))
    limit = T * eps * (1 - (1 - eps) ** (T - 1))
    assert abs(problem.worst_error - limit) < Fraction(1, 10**6)
    assert bounds.unified(problem.profile("epsilon"))["trajectory_tv"].value >= problem.worst_error


def test_one_step_with_five_percent_off_support():
    """T = 1: B* of the paper would be 0, the error is .05; what survives the gap covers it."""
    rows = [np.array([row], dtype=object) for row in ([Fraction(1), Fraction(0)], [Fraction(19, 20), Fraction(1, 20)])]
    problem = Problem((Tree((rows[0],), (rows[1],)),), (Fraction(1),))
    assert problem.worst_error == Fraction(1, 20)
    table = bounds.unified(problem.profile())
    assert table.best_published is None
    assert table["trajectory_tv"].value >= 0.05
    assert bounds.unified(T=1, epsilon=0.05)["coupling"].value == 0.0


def test_identities_hold_exactly():
    """Error is linear in the reward; its weights sum to the support gap; E S = -gap; D and A add up."""
    rng = np.random.default_rng(5)
    for kind in KINDS:
        for problem in problems(kind, 10, rational=True):
            gap = sum(problem.per_position["mean_gap"])
            ones = [np.array([Fraction(1)] * tree.error_weight.size, dtype=object) for tree in problem.trees]
            rewards = [np.array([Fraction(int(k), 7) for k in rng.integers(0, 8, o.size)], dtype=object) for o in ones]
            assert problem.error(ones) == gap == -problem.surrogate(ones)
            by_weight = problem.mean([(t.error_weight * r).sum() for t, r in zip(problem.trees, rewards, strict=True)])
            assert problem.error(rewards) == by_weight
            assert abs(by_weight) <= problem.worst_error
            below = problem.mean([np.maximum(-t.error_weight, 0).sum() for t in problem.trees])
            assert problem.worst_error == below + gap  # sup |Error| = E W^- + sum mbar


def test_identity_w_equals_k3_of_the_product_minus_phi():
    """E W^- <= E Phi, and E Phi = D - gap, on enumerated responses."""
    for kind in ("ordinary", "near-deterministic", "zeros in roll"):
        for problem in problems(kind, 40, rational=False):
            phi = problem.mean([expected(t.roll_mass[-1], t.phi) for t in problem.trees])
            minus = problem.mean([np.maximum(-t.error_weight, 0).sum() for t in problem.trees])
            assert minus <= phi * (1 + 1e-9) + 1e-15
            gap = sum(problem.per_position["mean_gap"])
            assert phi == pytest.approx(sum(problem.per_position["mean_kl"]) - gap, rel=1e-9, abs=1e-14)


def test_w_minus_is_below_phi_pathwise_in_rational_arithmetic():
    """W = k3(P) - Phi, so W^- <= Phi = S - log P, response by response, with log P = sum of logs of ratios."""
    seen = 0
    for kind in ("ordinary", "near-deterministic", "far apart"):
        for problem in problems(kind, 6, rational=True):
            for tree in problem.trees:
                for roll, theta, s in zip(tree.roll_mass[-1], tree.theta_mass[-1], tree.score, strict=True):
                    if roll > 0 and theta > 0:
                        p = theta / roll
                        w, phi = p - 1 - s, s + log_low(roll / theta)  # Phi = sum (rho - 1) - log P, a lower value
                        k3 = p - 1 - log_low(p)  # an upper value
                        assert max(0, -w) <= phi + Fraction(1, 10**40)
                        assert abs(w - (k3 - phi)) <= Fraction(1, 10**40)
                        seen += 1
    assert seen > 200


def test_log_is_a_lower_value():
    import mpmath

    with mpmath.workdps(60):
        for x in (Fraction(1, 3), Fraction(7, 5), Fraction(10**9 + 1, 10**9), Fraction(1, 10**30)):
            low = log_low(x)
            truth = mpmath.log(mpmath.mpf(x.numerator) / x.denominator)
            assert mpmath.mpf(low.numerator) / low.denominator <= truth
            assert truth - mpmath.mpf(low.numerator) / low.denominator < mpmath.mpf(10) ** -40


def test_rows_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="rows at position 0 must have shape"):
        Tree((np.ones((2, 2)) / 2,), (np.ones((2, 2)) / 2,))


@pytest.mark.parametrize("reward_range", [(-1, 1), (2, 5), (-3, -1), (0, 2)])
@pytest.mark.parametrize("declared", [(), ("support_gap",)])
def test_any_reward_range_with_support_gaps(reward_range, declared):
    """Nothing is below the worst error over rewards in the range, be the gap declared or at most A and D."""
    checked = set()
    for problem in problems("zeros in roll", 12, rational=True):
        worst = problem.worst_error_in(*map(Fraction, reward_range))
        for names in (("kl_seq",), ("tv_sum",), ("delta", "epsilon", "mean_length"), ("mean_tv", "mean_kl")):
            known = problem.profile(*names, *declared).known()
            table = bounds.unified(**{**known, "reward_range": reward_range})
            for bound in table.bounds:
                assert Fraction(min(bound.value, 1e300)) >= worst, bound
                checked.add((bound.name, problem.has_support_gap))
    assert ("trajectory_kl", True) in checked
    assert ("trajectory_tv", True) in checked
    assert (("halved_adaptive", True) in checked) == bool(declared)


@pytest.mark.parametrize("way", IMPLICATIONS, ids=lambda way: f"{way.target}: {way.how}")
def test_no_fill_is_below_the_truth_nor_could_be_a_fifth_smaller(way):
    assert Fraction(4, 5) < nearest(way) <= 1


def test_the_cap_on_the_surrogate_is_needed():
    """|L'| <= tv_seq + D, in any range of rewards: never exceeded, and nearly all of it is needed."""
    share = 0.0
    for problem in (*problems("ordinary", 40, rational=True), homogeneous(1, Fraction(1, 2), Fraction(501, 1000))):
        scores = [tree.roll_mass[-1] * tree.score for tree in problem.trees]
        worst = 3 * max(problem.mean([np.maximum(sign * s, 0).sum() for s in scores]) for sign in (1, -1))
        cap = bounds.unified(**{**problem.profile("tv_seq", "kl_seq").known(), "reward_range": (-1, 2)}).surrogate_cap
        assert worst <= cap
        share = max(share, float(worst) / cap if cap else 0.0)
    assert share > 0.99


@pytest.mark.parametrize("reached_by", ["roll", "theta"])
def test_contexts_that_one_policy_alone_reaches_count(reached_by):
    """The other policy never emits the first token after which the two differ."""
    first = {"roll": [Fraction(1, 2)] * 2, "theta": [Fraction(1, 2)] * 2}
    first["theta" if reached_by == "roll" else "roll"] = [Fraction(1), Fraction(0)]
    same, far = [Fraction(1, 2)] * 2, [Fraction(1, 10), Fraction(9, 10)]
    rows = {p: (np.array([first[p]], dtype=object), np.array([same, same], dtype=object)) for p in ("roll", "theta")}
    rows["theta"][1][1] = far
    found = Problem((Tree(rows["roll"], rows["theta"]),), (Fraction(1),)).per_position
    assert found["max_tv"][1] == Fraction(2, 5)
    assert found["mean_tv"][1] == (Fraction(1, 5) if reached_by == "roll" else 0)
