"""The rules and the gap filling on enumerated instances, in rational arithmetic.

As in :mod:`bounds.proof.symbolic`, each function returns whether its statement holds, and takes a constant.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bounds._rounding import INFINITE, exact, round_up, sqrt_enclosure
from bounds.proof.exact import KNOWABLE, Problem, random_problem, tv
from bounds.proof.worst_case import homogeneous, two_stage
from bounds.rules.implied import IMPLICATIONS, NEED_SUPPORT, Implication
from bounds.rules.sums import capped_sum
from bounds.rules.unified import RULES, rule, unified

#: Which true quantities a rule is given.
_KNOWN: tuple[tuple[str, ...], ...] = (
    KNOWABLE,
    ("delta",),
    ("epsilon", "kl_seq"),
    ("delta", "epsilon", "kl_seq", "tv_seq"),
    ("delta", "mean_tv"),
    ("delta", "mean_kl"),
    ("max_kl", "max_tv"),
    ("epsilon", "mean_length"),
    ("chi2_max",),
    ("max_chi2",),
    ("tv_seq", "chi2_sum"),
    ("mean_chi2", "mean_kl"),
    ("max_tv", "mean_kl", "mean_tv", "tv_seq"),
    ("mean_tv", "max_tv", "max_kl"),
)


def expected_u(factor: Fraction = Fraction(1)) -> bool:
    """E_roll (rho - 1)^+ = TV where theta << roll, on rational rows."""
    for problem in problems(40, horizon=1):
        p, q = problem.trees[0].roll[0][0], problem.trees[0].theta[0][0]
        upper = sum(a * max(Fraction(0), b / a - 1) for a, b in zip(p, q, strict=True) if a > 0)
        if upper != factor * tv(p, q):
            return False
    return True


def implications(factor: Fraction = Fraction(1)) -> bool:
    """Hold what fields imply of others, numbers and arrays, against the true values, also with support gaps."""
    return all(nearest(way, factor) <= 1 for way in IMPLICATIONS)


def nearest(way: Implication, factor: Fraction = Fraction(1)) -> Fraction:
    """Return the largest truth / (what an implication says times a factor) over problems and families."""
    rounding = 1 - Fraction(1, 10**15)  # that of the true value itself
    largest = Fraction(0)
    known = [n for n in way.needs if n != "T"]
    for problem, truth in _with_truths():
        if problem.has_support_gap and not NEED_SUPPORT.isdisjoint(way.needs):
            continue
        profile = problem.profile(*known)
        for family in ("published", "sharp") if way.family is None else (way.family,):
            found = profile.implied.apply(way, family)
            if found is None:
                return INFINITE
            for value, true in zip(
                np.atleast_1d(found[0]).tolist(), np.atleast_1d(truth[way.target]).tolist(), strict=True
            ):
                if true:
                    limit = factor * exact(value)
                    largest = max(largest, exact(true) * rounding / limit if limit else INFINITE)
    return largest


@cache
def _with_truths() -> tuple[tuple[Problem, dict[str, Any]], ...]:
    """Return problems with all that is true of them: with and without gaps, and where caps and gaps are attained."""
    rare = Fraction(1, 10**4)
    pairs = ((Fraction(1, 3), Fraction(2, 3)), (rare, 2 * rare), (Fraction(0), Fraction(1, 20)))
    attaining = (homogeneous(2, p, q) for p, q in pairs)
    tried = (*problems(40), *problems(40, zeros_roll=0.3), *attaining)
    return tuple((p, {**p.profile().known(), "gap_sum": sum(p.per_position["mean_gap"])}) for p in tried)


#: Rules that bound J(theta) - J(roll) and L' one by one, and so the sum of what either can be.
_IN_PARTS = ("first_order",)
_RANGES = tuple((Fraction(low), Fraction(high)) for low, high in ((0, 1), (-1, 2), (0, 0.25), (-3, -1), (2, 5)))


def holds(name: str, factor: Fraction = Fraction(1)) -> bool:
    """No enumerated rational problem has a worst |Error| above the rule, from all inputs or from few.

    Rewards are in several ranges; gaps are declared to all rules but those that a gap withdraws.
    """
    bounded = [
        (parts if name in _IN_PARTS else worst, table[name])
        for gaps in (False, True)[: 1 + rule(name).gap_term]
        for worst, parts, tables in _enumerated(gaps)
        for table in tables
        if name in table
    ]
    return len(bounded) > 20 and all(factor * value >= worst for worst, value in bounded)


@cache
def _enumerated(gaps: bool) -> tuple[tuple[Fraction, Fraction, tuple[dict[str, Fraction], ...]], ...]:
    """Return for each problem the worst error, the worst sum of its parts, and bounds from what is true of it."""
    half, above, rare = Fraction(1, 2), Fraction(501, 1000), Fraction(1, 10**6)
    nearly = [(1, half, above), (2, half, above)]
    nearly += [(1, Fraction(0), Fraction(1, 20))] if gaps else [(2, rare, Fraction(1, 100))]
    attaining = (*(homogeneous(*instance) for instance in nearly), two_stage(3, Fraction(1, 50)))
    random = problems(60, zeros_roll=0.3 if gaps else 0.0)
    found = []
    for problem, (low, high) in (
        *zip(random, itertools.cycle(_RANGES), strict=False),
        *itertools.product(attaining, _RANGES),
    ):
        scores = [tree.roll_mass[-1] * tree.score for tree in problem.trees]
        surrogate = max(problem.mean([np.maximum(sign * s, 0).sum() for s in scores]) for sign in (1, -1))
        gap = ("support_gap",) if gaps else ()
        tables = (unified(problem.profile(*names, *gap, reward_range=(low, high))) for names in _KNOWN)
        bounds = tuple({bound.name: exact(bound.value) for bound in table} for table in tables)
        parts = (problem.tv_seq + surrogate) * (high - low)
        found.append((problem.worst_error_in(low, high), parts, bounds))
    return tuple(found)


def withdrawn(factor: Fraction = Fraction(1)) -> bool:
    """With a support gap the rules that assume theta << roll are withdrawn; T = 1, gap 5 % shows why."""
    gap = Fraction(1, 20) * factor
    problem = homogeneous(1, Fraction(0), gap)
    table = unified(problem.profile())
    coupling_there = unified(T=1, epsilon=round_up(gap))["coupling"].value
    return problem.worst_error > coupling_there and all((r.name in table) == (not r.assumes) for r in RULES)


def problems(count: int, horizon: int | None = None, zeros_roll: float = 0.0) -> tuple[Problem, ...]:
    """Return the first rational problems, ordinary and adversarial, of at most 60 that are drawn at a fixed seed."""
    return _drawn(horizon, zeros_roll)[:count]


@cache
def _drawn(horizon: int | None, zeros_roll: float) -> tuple[Problem, ...]:
    rng = np.random.default_rng(3)
    return tuple(
        random_problem(
            rng,
            horizon=horizon or int(rng.integers(1, 5)),
            vocabulary=int(rng.integers(1, 4)),
            distance=float(rng.choice([0.05, 0.5, 1.0])),
            concentration=float(rng.choice([0.1, 1.0])),
            zeros_roll=zeros_roll,
            zeros_theta=float(rng.choice([0.0, 0.3])),
            prompts=int(rng.integers(1, 3)),
            ends=bool(rng.integers(2)),
            rational=True,
        )
        for _ in range(60)
    )


def capped_sums(factor: Fraction = Fraction(1)) -> bool:
    """Each O(1) sum of min(1, k epsilon, sqrt(k delta/2)) is within 1e-12 above the certified ends of a literal one."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        n = int(rng.integers(0, 300))
        eps, delta = (Fraction(float(10.0 ** rng.uniform(-5, 0.2))) for _ in range(2))
        roots = [sqrt_enclosure(k * delta / 2) for k in range(n + 1)]
        for lines, routes in (
            ([(k * eps,) * 2 for k in range(n + 1)], {"epsilon": eps}),
            (roots, {"delta": delta}),
            (
                [(min(k * eps, low), min(k * eps, high)) for k, (low, high) in enumerate(roots)],
                {"epsilon": eps, "delta": delta},
            ),
        ):
            low, high = (sum((min(Fraction(1), ends[i]) for ends in lines), Fraction(0)) for i in (0, 1))
            if not low <= factor * capped_sum(n, **routes) <= high * (1 + Fraction(1, 10**12)):
                return False
    return True
