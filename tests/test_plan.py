"""Plans: what is planned comes in, what is asked is refused where it cannot be, and pictures show the numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import bounds
from bounds._text import round_up_whole
from bounds.certificate.guarantees import Gain
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.intervals import planning, star
from bounds.intervals.planning import fewest_prompts, shows_gain
from bounds.questions.plan import _moved
from tests import coverage_plan

FEW = {"gain": 0.04, "kl_seq": 0.01, "reward": 0.5, "runs": 40}
TYPED = ("plan", "--gain", ".04", "--kl-seq", ".01", "--reward", ".5", "--runs", "20")


@pytest.fixture(scope="module")
def found():
    return bounds.plan(**FEW, prompts=200)


def test_what_is_planned_comes_in():
    """A short form of the study: 200 runs of the planned number of prompts."""
    case = coverage_plan.Numbers(0.1, 0.1, 0.5, 4)
    planned, rng = case.plan(0), np.random.default_rng(1)
    assert not coverage_plan.too_few(coverage_plan.shown(case.draw(rng, 200, planned)), 200)
    assert coverage_plan.too_few(coverage_plan.shown(case.draw(rng, 200, planned // 2)), 200)  # half as many do not


def test_what_is_counted_as_shown_is_what_certify_says():
    log_ratio, rewards = runs = coverage_plan.LikeALog().draw(np.random.default_rng(0), 4, 200)
    logs = map(coverage_plan.log_of, log_ratio, rewards)
    said = sum(Gain(Summary.of(log), 0.95).new_prompts().low > 0.0 for log in logs)
    assert 0 < coverage_plan.shown(runs) == said < 4


def test_a_run_that_is_simulated_is_judged_as_by_the_interval():
    rng = np.random.default_rng(0)
    values = rng.normal(0.04, 0.034, (60, 110))
    exact = [star(v, 0.975, low=-1.0, side="lower").low > 0.0 for v in values]
    assert 10 < sum(exact) < 60
    assert np.count_nonzero(shows_gain(values, 0.975) != exact) <= 2


@pytest.mark.parametrize(("share", "comes_in"), [(0.6, True), (1.0, True), (1.3, True), (2.0, False)])
def test_a_plan_is_at_most_4_percent_above_what_is_enough(monkeypatch, share, comes_in):
    pool = np.random.default_rng(0).normal(0.04, 0.3, 400).clip(-1.0)
    enough = round(share * planning.prompts_needed(pool, 0.975, 0.8))
    monkeypatch.setattr(planning, "shown_often", lambda pool, prompts, *how_sure: prompts >= enough)
    planned = fewest_prompts(pool, 0.975, 0.8, 100)
    assert (planned is not None) == comes_in
    assert not comes_in or enough <= planned <= 1.04 * enough + 1


def test_many_prompts_are_simulated_by_sums_of_some(monkeypatch):
    pool = np.random.default_rng(0).normal(0.04, 0.3, 400).clip(-1.0)
    one_by_one = fewest_prompts(pool, 0.975, 0.8, 100)
    monkeypatch.setattr(planning, "_MOST_VALUES", 256)
    assert 512 < fewest_prompts(pool, 0.975, 0.8, 100) == pytest.approx(one_by_one, rel=0.1)


@pytest.mark.parametrize("mean", [-0.2, 0.1, 0.3])
def test_prompts_are_moved_so_that_their_gain_is_the_one_that_is_asked(mean):
    gains = np.random.default_rng(0).normal(0.1, 0.1, 500)
    assert _moved(gains, mean).mean() == pytest.approx(mean)


def test_more_is_needed_for_less_and_at_a_larger_kl(found):
    by_kl = {n.kl_seq: n.prompts for n in found.needed if n.responses == 8}
    assert by_kl[0.01] == found.prompts
    assert by_kl[0.0025] is None  # no policy so near gains that much
    assert by_kl[0.04] > by_kl[0.01] * 0.9
    assert bounds.plan(**{**FEW, "gain": 0.02}).prompts > 2 * found.prompts
    gains = [s.gain for s in found.smallest if s.kl_seq == 0.01 and s.gain is not None]
    assert gains == sorted(gains, reverse=True)
    assert found.smallest_gain < 0.04
    assert found.largest_kl_seq > 0.01


def test_a_plan_is_like_the_log_and_what_its_certificate_says():
    log = bounds.example_traces()
    like, certificate = bounds.plan(log, around=False), bounds.certify(log)
    assert like.gain == pytest.approx(0.0136, abs=1e-4)  # E[R (P-1)] of its responses
    assert like.prompts == certificate.guarantees.prompts_needed
    assert f"score about {round_up_whole(like.prompts)} prompts" in certificate.verdict.action
    assert {n.responses for n in bounds.plan(log, runs=20).needed} == {4, 1, 2}  # no more than the log has


def test_it_says_what_is_planned(found, tmp_path, capsys):
    picture = tmp_path / "plan.svg"
    text = str(found)
    assert f"prompts with 8 responses each show a gain of {0.04:g}" in " ".join(text.split())
    assert found.to_frame().columns.tolist() == ["kl_seq", "prompts", "gain"]
    assert main([*TYPED, "--json", "--figure", str(picture)]) == 0
    assert picture.stat().st_size > 1000
    assert json.loads(capsys.readouterr().out)["responses"] == 8


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gain": 0.04}, "plan needs a log, or kl_seq and reward"),
        ({**FEW, "gain": 0.2}, "gain must be above 0 and below 0.0563, what policies at a KL of 0.01 can gain"),
        ({**FEW, "gain": -0.1}, "gain must be above 0"),
        ({**FEW, "power": 1.0}, "power must be a number in"),
        ({**FEW, "prompts": 1}, "prompts must be a whole number in"),
        ({**FEW, "log": bounds.example_traces()}, "reward goes with kl_seq and without a log"),
    ],
)
def test_what_cannot_be_planned_is_refused(asked, words):
    with pytest.raises(ValueError, match=words):
        bounds.plan(**asked)


def test_a_log_without_rewards_is_refused():
    log = bounds.TraceSet.from_arrays(np.full((4, 1), -1.0), np.full((4, 1), -1.1), horizon=1)
    with pytest.raises(bounds.TraceError, match="no rewards, of which a gain could be planned"):
        bounds.plan(log)


def test_the_picture_has_a_line_for_each_kl_and_the_plan(found):
    ax = bounds.plot_plan(found)
    assert {text.get_text() for text in ax.texts} == {"KL 0.0025", "KL 0.01", "KL 0.04"}
    assert ax.lines[-1].get_xydata().tolist() == [[found.prompts, 0.04]]
    assert not math.isnan(ax.get_ylim()[0])
    with pytest.raises(TypeError, match="plan must be a Plan"):
        bounds.plot_plan(3)
