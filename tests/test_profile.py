"""Profile: what it refuses, how it fills gaps, where it can be read from."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import bounds
from bounds.rules.profile import FIELDS, is_array

ARRAYS = [n for n in FIELDS if is_array(n)]
SCALARS = [n for n in FIELDS if not is_array(n)]

REFUSED = [
    ({"epsilon": 1.1}, r"epsilon must be a number in \[0, 1\], got epsilon=1.1"),
    ({"epsilon": 1.0 + 1e-8}, "epsilon must be"),
    ({"delta": -1e-9}, r"delta must be a number in \[0, inf\], got delta=-1e-09"),
    ({"delta": math.nan}, "delta must be .* got delta=nan"),
    ({"delta": "0.1"}, "delta must be .* got delta='0.1'"),
    ({"delta": True}, "delta must be .* got delta=True"),
    ({"tv_seq": 2.0}, "tv_seq must be"),
    ({"support_gap": -0.1}, "support_gap must be"),
    ({"mean_tv": np.zeros(9)}, r"mean_tv must be an array with one entry for each of the T=10 positions, .*\(9,\)"),
    ({"mean_tv": 0.1}, "mean_tv must be an array with one entry"),
    ({"mean_kl": [0.0] * 9 + [math.nan]}, r"mean_kl\[9\] must be a number in \[0, inf\], got mean_kl\[9\]=nan"),
    ({"max_tv": [0.0] * 9 + [1.5]}, r"max_tv\[9\] must be a number in \[0, 1\]"),
    ({"mean_kl": ["a"] * 10}, "mean_kl must be an array of numbers"),
    ({"T": 0}, r"T must be a whole number in \[1, 9007199254740992\], got T=0"),
    ({"T": 10.5}, "T must be a whole number"),
    ({"T": True}, "T must be a whole number"),
    ({"mean_reward": 2.0}, r"mean_reward must be a number in reward_range \[0, 1\], .*, got mean_reward=2.0"),
    ({"mean_reward": (0.5, 2.0)}, r"mean_reward must be .* reward_range \[0, 1\], .* got mean_reward=\(0.5, 2.0\)"),
    ({"mean_reward": (0.5, 0.4)}, "mean_reward must be"),
    ({"mean_reward": (0.1, 0.2, 0.3)}, r"mean_reward must be a number or a pair \(low, high\)"),
    ({"mean_reward": np.array(0.5)}, "mean_reward must be a number, got"),
    ({"mean_reward": (0.1, math.nan)}, r"mean_reward\[1\] must be a number, got"),
    ({"mean_kl": np.ma.masked_array([0.1] * 10, [False, False, True] + [False] * 7)}, r"mean_kl\[2\] .* got .*=masked"),
    ({"mean_kl": [[0.1], [0.1, 0.2]]}, "mean_kl must be an array of numbers"),
    ({"reward_range": (1, 0)}, "reward_range must be two finite numbers, lowest < highest"),
    ({"reward_range": 3}, "reward_range must be a pair"),
    ({"reward_range": [(0, 1), (0, 2)], "mean_reward": 1.0}, "mean_reward needs one reward_range"),
    ({"reward_range": [(0, 1), (2,)]}, "reward_range must be a pair"),
    ({"reward_range": []}, "reward_range must be a pair"),
    ({"reward_range": [(0, 1), (2, 2)]}, "reward_range must be two finite numbers, lowest < highest"),
    ({"absolutely_continuous": "no"}, "absolutely_continuous must be True or False"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_refused_by_name_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        bounds.Profile(**{"T": 10, **fields})


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_refuses_nan_and_what_is_outside_its_domain(name):
    low, high = FIELDS[name].low, FIELDS[name].high
    bad = [math.nan, *([low - 1.0] if low > -math.inf else []), *([high + 1.0] if high < math.inf else [])]
    for value in bad:
        with pytest.raises(ValueError, match=f"{name} must be"):
            bounds.Profile(T=10, **{name: value})


@pytest.mark.parametrize("name", ARRAYS)
def test_every_array_refuses_nan_negatives_and_wrong_lengths(name):
    for bad in ([math.nan] * 4, [-1.0] * 4, [0.0] * 3, [[0.0] * 4]):
        with pytest.raises(ValueError, match=name):
            bounds.Profile(T=4, **{name: bad})


#: An upper value may be larger than what others imply: what it is then taken for, and how.
SLACK = [
    ({"delta": 1e-3, "kl_seq": 0.011}, "kl_seq", 0.01, "T delta"),
    ({"epsilon": 1e-3, "tv_sum": 0.011}, "tv_sum", 0.01, "T epsilon"),
    ({"chi2_max": 1e-3, "chi2_sum": 0.011}, "chi2_sum", 0.01, "T chi2_max"),
    ({"delta": 0.1, "mean_length": 5.0, "kl_seq": 0.6}, "kl_seq", 0.5, "delta mean_length"),
    ({"delta": 0.1, "mean_length": 11.0}, "kl_seq", 1.0, "T delta"),
    ({"epsilon": 0.1, "mean_length": math.inf}, "tv_sum", 1.0, "T epsilon"),
    ({"mean_tv": np.full(10, 0.2), "max_tv": np.full(10, 0.1)}, "mean_tv", 0.1, "max_tv"),
    ({"mean_kl": np.arange(10.0), "max_kl": np.full(10, 5.0)}, "mean_kl", 5.0, "smallest of given, max_kl"),
    ({"max_kl": np.full(10, 0.2), "delta": 0.1}, "max_kl", 0.1, "delta"),
    ({"mean_kl": np.full(10, 0.2), "delta": 0.1}, "mean_kl", 0.1, "delta"),
    ({"mean_kl": np.full(10, 9.0), "delta": 0.1, "epsilon": 0.1}, "mean_tv", 0.1, "epsilon"),
    ({"mean_tv": np.full(10, 0.2), "epsilon": 0.1}, "mean_tv", 0.1, "epsilon"),
    ({"max_kl": [0.1] * 9 + [0.2], "kl_seq": 1.2}, "kl_seq", 1.1, "sum(mean_kl), mean_kl = max_kl"),
    ({"max_tv": np.full(10, 0.1), "epsilon": 0.3}, "epsilon", 0.1, "max(max_tv)"),
    ({"tv_sum": 0.1, "tv_seq": 0.3}, "tv_seq", 0.1, "tv_sum"),
]


@pytest.mark.parametrize(("fields", "name", "value", "how"), SLACK)
@pytest.mark.parametrize("family", ["published", "sharp"])
def test_a_slack_value_is_not_used(fields, name, value, how, family):
    found = bounds.Profile(T=10, **fields).resolve(name, family)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.value >= value
    assert found.how == how
    assert set(found.used) <= set(fields)


@pytest.mark.parametrize(("fields", "name", "value", "how"), SLACK)
def test_a_slack_value_makes_no_bound_larger(fields, name, value, how):
    slack = bounds.unified(T=10, **fields)
    for left_out in fields:
        others = {n: v for n, v in fields.items() if n != left_out}
        if not others.keys() <= {"mean_length"}:
            for bound in bounds.unified(T=10, **others):
                assert slack[bound.name].value <= bound.value * (1 + 1e-12)


def test_what_is_nowhere_smallest_is_not_rested_on():
    """A result is as weak as what it uses; an array that never counts is not used."""
    profile = bounds.Profile(T=2, mean_tv=[0.1, 0.2], max_tv=[0.3, 0.3], epsilon=0.5)
    assert profile.resolve("mean_tv", "sharp").how == "given"
    both = bounds.Profile(T=2, mean_tv=[0.1, 0.4], max_tv=[0.3, 0.3], epsilon=0.5).resolve("mean_tv", "sharp")
    assert (both.how, both.used) == ("smallest of given, max_tv", ("mean_tv", "max_tv"))


def test_a_total_variation_may_exceed_one_by_rounding():
    assert bounds.Profile(T=1, epsilon=1.0 + 5e-10).epsilon > 1.0


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), 2**53 + 1, 2**60 - 1, np.int64(2**53 + 1), np.uint64(2**64 - 1), 10**30]
)
def test_what_is_no_float_is_rounded_up(value):
    truth = Fraction(int(value)) if not isinstance(value, Fraction) else value
    assert truth <= bounds.Profile(T=1, delta=value).delta <= float(truth) * (1 + 1e-15)
    for array in ([value], np.array([value]), np.array([value], dtype=object)):
        (entry,) = bounds.Profile(T=1, max_kl=array).max_kl.tolist()
        assert truth <= Fraction(entry) <= truth * (1 + Fraction(1, 10**15))
    third = np.longdouble(1) / 3
    assert bounds.Profile(T=1, max_kl=[third]).max_kl[0] >= third
    low, high = bounds.Profile(T=1, reward_range=(-truth, truth)).reward_range
    assert low <= -truth < truth <= high


def test_limits_of_the_mean_reward_and_the_spread_are_rounded_outward():
    third = Fraction(1, 3)
    low, high = bounds.Profile(T=1, mean_reward=(third, 2 * third)).mean_reward
    assert low <= third < 2 * third <= high
    for ends in ((0.1, 0.3), (-0.1, 0.7), (-1e-17, 1.0)):
        spread = bounds.unified(T=2, delta=0.1, reward_range=ends).reward_spread
        assert Fraction(spread) >= Fraction(ends[1]) - Fraction(ends[0])


def test_an_unmasked_masked_array_is_an_array():
    assert bounds.Profile(T=2, mean_tv=np.ma.masked_array([0.1, 0.2])).mean_tv.tolist() == [0.1, 0.2]


def test_arrays_are_copied_and_cannot_be_changed():
    mine = np.zeros(3)
    profile = bounds.Profile(T=3, mean_tv=mine)
    mine[0] = 1.0
    assert profile.mean_tv[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        profile.mean_tv[0] = 1.0
    with pytest.raises(AttributeError):
        profile.delta = 1.0


@pytest.mark.parametrize(
    "known", [{}, {"mean_length": 3.0}, {"mean_reward": 0.5}, {"support_gap": 0.1}, {"reward_sd_within": 0.1}]
)
def test_a_bound_needs_a_divergence(known):
    with pytest.raises(ValueError, match="a bound needs at least one divergence"):
        bounds.unified(T=10, **known)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.unified(T=4, delta=0.1, standing={"delta": "assumed"}), "standing must map known fields"),
        (lambda: bounds.unified(T=4, delta=0.1, standing={"epsilon": bounds.Standing.ASSUMED}), "standing must map"),
        (lambda: bounds.unified(T=4, delta=0.1, standing=3), "standing must map known fields .* got 3"),
        (lambda: bounds.rule("trajectory_kl").value(4), "profile must be a Profile, got 4"),
        (lambda: bounds.Profile.read(4), "path must be the name of a file, got 4"),
        (lambda: bounds.largest("mean_kl_token", 0.5), "T, the horizon, must be given"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_unified_refuses_unknown_and_missing_names():
    with pytest.raises(TypeError, match="did you mean 'epsilon'"):
        bounds.unified(T=10, epsilo=0.1)
    with pytest.raises(TypeError, match="T, the horizon, must be given"):
        bounds.unified(delta=0.1)
    with pytest.raises(TypeError, match="not both"):
        bounds.unified(bounds.Profile(T=1, delta=0.1), delta=0.1)


# --- gap filling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "name", "value", "how", "used"),
    [
        ({"delta": 0.02}, "epsilon", 0.1, "sqrt(delta/2)", ("delta",)),
        ({"delta": 8.0}, "epsilon", 1.0, "sqrt(delta/2)", ("delta",)),
        ({"delta": 0.02}, "kl_seq", 0.2, "T delta", ("delta",)),
        ({"delta": 0.02, "mean_length": 5.0}, "kl_seq", 0.1, "delta mean_length", ("mean_length", "delta")),
        ({"epsilon": 0.02}, "tv_sum", 0.2, "T epsilon", ("epsilon",)),
        ({"epsilon": 0.02, "mean_length": 5}, "tv_sum", 0.1, "epsilon mean_length", ("mean_length", "epsilon")),
        ({"kl_seq": 0.02}, "tv_seq", 0.1, "sqrt(kl_seq/2)", ("kl_seq",)),
        ({"tv_sum": 0.1}, "tv_seq", 0.1, "tv_sum", ("tv_sum",)),
        ({"epsilon": 0.5}, "tv_seq", 1 - 0.5**10, "1 - (1-epsilon)^T", ("epsilon",)),
        ({"mean_kl": [0.01] * 10}, "kl_seq", 0.1, "sum(mean_kl)", ("mean_kl",)),
        ({"max_kl": [0.01] * 10}, "delta", 0.01, "max(max_kl)", ("max_kl",)),
        ({"max_tv": [0.01] * 10}, "epsilon", 0.01, "max(max_tv)", ("max_tv",)),
        ({"mean_tv": [0.01] * 10}, "tv_sum", 0.1, "sum(mean_tv)", ("mean_tv",)),
        ({"max_tv": [0.01, 0.02] * 5}, "tv_sum", 0.15, "sum(mean_tv), mean_tv = max_tv", ("max_tv",)),
        ({"mean_kl": [0.02] * 10}, "tv_sum", 1.0, "sum(mean_tv), mean_tv = sqrt(mean_kl/2)", ("mean_kl",)),
        ({"max_kl": [0.01, 0.02] * 5}, "kl_seq", 0.15, "sum(mean_kl), mean_kl = max_kl", ("max_kl",)),
    ],
)
def test_fills_remember_what_came_from_what(known, name, value, how, used):
    filled = bounds.Profile(T=10, **known).resolve(name)
    assert filled.value == pytest.approx(value, rel=1e-12)
    assert filled.value >= value * (1 - 1e-15)
    assert filled.how == how
    assert filled.used == used


def test_chains_of_fills_are_spelled_out():
    filled = bounds.Profile(T=10, delta=0.02).resolve("tv_sum")
    assert filled.how == "T epsilon, epsilon = sqrt(delta/2)"
    assert filled.used == ("delta",)


def test_nothing_is_filled_from_nothing():
    profile = bounds.Profile(T=10, chi2_max=0.1)
    assert profile.resolve("kl_seq", "sharp") is None  # chi2(theta||roll) does not bound KL(roll||theta)
    assert profile.resolve("epsilon") is None
    assert profile.resolve("epsilon", "sharp").how == "sqrt(chi2_max)/2"
    root = math.sqrt(0.1) / 2
    assert root <= profile.resolve("epsilon", "sharp").value < root * (1 + 1e-15)


def test_published_rules_take_a_given_value_and_sharp_rules_the_smallest():
    profile = bounds.Profile(T=10, delta=0.02, epsilon=0.5)
    assert profile.resolve("epsilon", "published").value == 0.5
    assert profile.resolve("epsilon", "sharp").value == pytest.approx(0.1, rel=2e-3)  # the exact curve: a bit below
    assert profile.resolve("epsilon", "sharp").value < 0.1
    assert bounds.unified(profile)["linear"].value == pytest.approx(20.0)
    assert bounds.unified(profile)["trajectory_tv"].value == pytest.approx(1.0, rel=2e-3)


# --- files -------------------------------------------------------------------------------------------------

TABLE = {"mean_tv": [0.01, 0.02, 0.03], "mean_kl": [0.001, 0.002, 0.003]}


def write(path, values):
    kind = path.suffix
    if kind == ".json":
        path.write_text(json.dumps(values))
    elif kind == ".npz":
        np.savez(path, **values)
    else:
        columns = {k: v if isinstance(v, list) else [v] * 3 for k, v in values.items()}
        frame = pd.DataFrame(columns)
        frame.to_csv(path, index=False) if kind == ".csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".json", ".npz"])
@pytest.mark.parametrize("scalars", [{}, {"delta": 0.1, "T": 3}])
def test_read(tmp_path, kind, scalars):
    path = write(tmp_path / f"profile{kind}", {**TABLE, **scalars})
    profile = bounds.Profile.read(path, epsilon=0.5)
    assert profile.T == 3
    assert profile.delta == scalars.get("delta")
    assert profile.epsilon == 0.5
    np.testing.assert_array_equal(profile.mean_kl, TABLE["mean_kl"])
    assert bounds.unified(profile)["trajectory_kl"].value == pytest.approx(0.006)


def test_an_index_column_is_dropped_if_it_counts(tmp_path):
    path = tmp_path / "p.csv"
    pd.DataFrame(TABLE).to_csv(path)  # writes the index as an unnamed column
    assert bounds.Profile.read(path).T == 3
    pd.DataFrame({"t": [1, 3, 2], **TABLE}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"p.csv: column t must count the positions one by one"):
        bounds.Profile.read(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "mean_kk\n1\n", "a.csv: unknown field 'mean_kk'; did you mean 'mean_kl'"),
        ("a.csv", "delta,mean_kl\n1,0\n2,0\n", "a.csv: column delta must hold one value"),
        ("a.csv", "mean_kl\nx\n", r"a.csv: .*row 0, column mean_kl must be a number, got 'x'$"),
        ("a.tsv", "mean_kl\n1,x\n", r"row 0, column mean_kl must be a number, got '1,x'$"),
        ("a.tsv", "mean_kl\n1,2,3\n", r"row 0, column mean_kl must be a number, got '1,2,3'$"),
        (
            "a.csv",
            "mean_kl;mean_tv\n0;0,5\n",
            r"row 0, column mean_tv must be a number, got '0,5' \(a decimal comma\? Write 0.5",
        ),
        ("a.csv", "mean_kl\n0.1\n0,001\n", r"row 1, column mean_kl must be a number, got '0,001' .*Write 0.001"),
        (
            "a.csv",
            "mean_kl,mean_tv\n0,1\n0,1,0,5\n",
            "row 1 has 4 cells for the 2 columns; numbers are",
        ),
        ("a.tsv", "mean_kl\tmean_tv\n0\t1\n0\n", "row 1 has 1 cell for the 2 columns"),
        ("a.csv", "mean_kl,mean_kl\n0,0\n", "a column stands in it twice"),
        (
            "a.json",
            '{"mean_kl": {"0": 1, "2": 1}}',
            "mean_kl must be a number, a list, or as DataFrame.to_json writes it",
        ),
        ("a.csv", "", r"a.csv: cannot be read as .csv"),
        ("a.json", "[1]", "a.json: cannot be read as .json: it must hold one JSON object"),
        ("a.json", "{", "a.json: cannot be read as .json"),
        ("a.json", '{"delta": 1}', "a.json: T, the horizon, must be given"),
        ("a.json", '{"T": 2, "mean_kl": [1]}', "a.json: mean_kl must be an array with one entry"),
        ("a.parquet", "PAR", "a.parquet: cannot be read as .parquet"),
        ("a.npz", "no", "a.npz: cannot be read as .npz"),
        ("a.txt", "", "a.txt: a profile is read from .json, .npz, .csv, .tsv, .parquet, got .txt"),
    ],
)
def test_bad_files_are_named(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        bounds.Profile.read(path)


@pytest.mark.parametrize("way", ["to_json", "tabs", "semicolons", "with an index", "quoted"])
def test_a_table_is_read_as_pandas_and_spreadsheets_write_it(tmp_path, way):
    frame = pd.DataFrame(TABLE)
    path = tmp_path / {"to_json": "p.json", "tabs": "p.tsv"}.get(way, "p.csv")
    if way == "to_json":
        frame.to_json(path)
    else:
        separator = {"tabs": "\t", "semicolons": ";"}.get(way, ",")
        frame.to_csv(path, sep=separator, index=way == "with an index", quoting=1 if way == "quoted" else 0)
    profile = bounds.Profile.read(path)
    assert profile.T == 3
    np.testing.assert_array_equal(profile.mean_kl, TABLE["mean_kl"])


def test_a_pickle_in_npz_is_not_run(tmp_path):
    ran = []

    class Evil:
        def __reduce__(self):
            return (ran.append, (1,))

    path = tmp_path / "evil.npz"
    np.savez(path, mean_kl=np.array([Evil()], dtype=object))
    with pytest.raises(ValueError, match=r"evil.npz: cannot be read as .npz"):
        bounds.Profile.read(path)
    assert ran == []


def test_missing_file():
    with pytest.raises(FileNotFoundError):
        bounds.Profile.read("nowhere.csv")


def test_reward_ranges_and_gaps_from_files(tmp_path):
    np.savez(tmp_path / "p.npz", T=3, delta=0.1, reward_range=[0.0, 2.0], support_gap=0.1)
    profile = bounds.Profile.read(tmp_path / "p.npz")
    assert profile.reward_range == (0.0, 2.0)
    assert profile.absolutely_continuous is False  # a declared gap denies it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"T": 2, "delta": 1, "delta": 2}', "a key stands in it twice"),
        ('{"T": 2, "delta": 1' + "0" * 400 + "}", None),
        ("mean_tv\n0.1\n\n0.3\n", "row 1, column mean_tv must be a number, got ''"),
        ("t,mean_tv\n100,0.1\n101,0.2\n", "column t must count the positions"),
    ],
)
def test_files_with_holes_and_doubles(tmp_path, text, message):
    path = tmp_path / ("p.json" if text.startswith("{") else "p.csv")
    path.write_text(text)
    if message is None:
        assert bounds.Profile.read(path).delta == math.inf
    else:
        with pytest.raises(ValueError, match=message):
            bounds.Profile.read(path)


def test_complex_numbers_are_no_numbers(tmp_path):
    with pytest.raises(ValueError, match="delta must be"):
        bounds.Profile(T=2, delta=np.complex128(1 + 5j))
    with pytest.raises(ValueError, match="mean_tv must be an array of numbers"):
        bounds.Profile(T=2, mean_tv=np.array([0.1j, 0.2]))
