"""The inequalities of the derivations on instances: in rational arithmetic, where the registry says "exact".

As in :mod:`bounds.proof.symbolic`, each function returns whether its statement holds, and takes a constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import sympy as sp

from bounds._rounding import exact, round_up, sqrt_up
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, pinsker_curve, tv_of_cap
from bounds.proof.exact import Problem, Tree, log_low, random_problem
from bounds.proof.worst_case import two_stage
from bounds.results import BoundTable
from bounds.theory.fills import FILLS, NEED_SUPPORT
from bounds.theory.terms import capped_sum
from bounds.theory.unified import RULES, rule, unified

#: Which true quantities a rule is given.
_KNOWN: tuple[tuple[str, ...], ...] = (
    (),
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
_GRID = [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(3)]


def context_distance(factor: Fraction = Fraction(1)) -> bool:
    """TV of the contexts at position t <= min(1, (t-1) epsilon, sqrt((t-1) delta/2)), on every prompt."""
    for problem in _problems(40):
        truth = problem.profile("delta", "epsilon")
        for tree, t in itertools.product(problem.trees, range(problem.horizon)):
            tv = abs(tree.theta_mass[t] - tree.roll_mass[t]).sum() / 2
            steps = exact(truth.epsilon or 0.0) * t, sqrt_up(exact(truth.delta or 0.0) * t / 2)
            if tv > factor * min(Fraction(1), *steps):
                return False
    return True


def _ratio_grid() -> Iterator[tuple[tuple[Fraction, ...], Fraction]]:
    """Ratios of a response on a rational grid, and their W^-."""
    for length in range(1, 6):
        for rho in itertools.product(_GRID, repeat=length):
            yield rho, max(Fraction(0), 1 + sum((r - 1 for r in rho), start=-math.prod(rho, start=Fraction(1))))


def w_below_u(factor: Fraction = Fraction(1)) -> bool:
    """W^- <= U^+ on a rational grid of ratios; the step of the proof, (1-U)(1-x) >= 1-U-x, symbolically."""
    U, x = sp.symbols("U x", nonnegative=True)
    step = sp.expand((1 - U) * (1 - x) - (1 - U - x)) == U * x
    return bool(step) and all(w <= factor * sum(max(Fraction(0), r - 1) for r in rho) for rho, w in _ratio_grid())


def w_below_phi(factor: Fraction = Fraction(1)) -> bool:
    """W^- <= Phi on a rational grid of ratios near 1 and far, with certified logs; attained to 1e-3 for near ones."""
    near = [1 + Fraction(k, 1000) for k in (-2, -1, 0, 1, 2)]
    far = [g for g in _GRID if g > 0]
    for grid, length in ((near, 3), (far, 4), ([Fraction(1, 1000), Fraction(1000)], 2)):
        for rho in itertools.product(grid, repeat=length):
            phi = sum((r - 1 - log_low(r) for r in rho), start=Fraction(0))  # an upper value
            w_minus = max(Fraction(0), 1 + sum((r - 1 for r in rho), start=-math.prod(rho, start=Fraction(1))))
            if w_minus > factor * phi:
                return False
    return True


def w_below_product(factor: Fraction = Fraction(1)) -> bool:
    """W^- <= U^+ U^- on a rational grid of ratios."""
    return all(
        w <= factor * sum(max(Fraction(0), r - 1) for r in rho) * sum(max(Fraction(0), 1 - r) for r in rho)
        for rho, w in _ratio_grid()
    )


def product_of_couplings(factor: Fraction = Fraction(1)) -> bool:
    """TV of the contexts at position t <= 1 - prod_{s<t} (1 - eps_s), on every prompt."""
    for problem in _problems(40):
        eps = problem.per_position("max_tv")
        for tree, t in itertools.product(problem.trees, range(problem.horizon)):
            tv = abs(tree.theta_mass[t] - tree.roll_mass[t]).sum() / 2
            if tv > factor * (1 - math.prod(1 - e for e in eps[:t])):
                return False
    return True


def conversions(factor: Fraction = Fraction(1)) -> bool:
    """chi2, KL and TV of rational rows obey the conversions at their own largest |log ratio|."""
    for problem in _problems(60, horizon=1):
        p, q = problem.trees[0].roll[0][0], problem.trees[0].theta[0][0]
        logs = [abs(log_low(b / a)) for a, b in zip(p, q, strict=True) if a > 0 and b > 0]
        if any((a > 0) != (b > 0) for a, b in zip(p, q, strict=True)) or not any(logs):
            continue
        cap = max(logs) + Fraction(1, 10**40)
        found = {name: values[0] for name, values in problem.trees[0].divergences(0).items()}
        pairs = [
            (found["chi2"], chi2_per_kl(cap) * found["kl"]),
            (found["chi2"], chi2_per_tv(cap) * found["tv"]),
            (found["kl"], kl_of_cap(cap)),
            (found["tv"], tv_of_cap(cap)),
        ]
        if any(value > factor * limit for value, limit in pairs):
            return False
    return True


def exact_pinsker(factor: float = 1.0) -> bool:
    """TV <= curve(KL) for pairs of two outcomes on a grid, attained to 1e-3 by some of them."""
    nearest = 0.0
    for p, q in itertools.product(np.linspace(0.02, 0.98, 25), repeat=2):
        if p != q:
            kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
            limit = factor * float(pinsker_curve(Fraction(kl)))
            if abs(p - q) > limit * (1 + 1e-9):
                return False
            nearest = max(nearest, abs(p - q) / limit)
    return bool(nearest > 0.999)


def expected_u(factor: Fraction = Fraction(1)) -> bool:
    """E_roll (rho - 1)^+ = TV where theta << roll, on rational rows."""
    for problem in _problems(40, horizon=1):
        p, q = problem.trees[0].roll[0][0], problem.trees[0].theta[0][0]
        upper = sum(a * max(Fraction(0), b / a - 1) for a, b in zip(p, q, strict=True) if a > 0)
        if upper != factor * sum(abs(b - a) for a, b in zip(p, q, strict=True)) / 2:
            return False
    return True


def advantage_factor(factor: Fraction = Fraction(2)) -> bool:
    """|sum_v (theta - roll) Q| <= 2 TV for Q in [0, 1]: linear in Q, so checked at the corners."""
    return _linear_gap_is_within(factor, corners=(0, 1))


def context_shift(factor: Fraction = Fraction(2)) -> bool:
    """|E_theta f - E_roll f| <= 2 TV sup|f|: linear in f, so checked at the corners of [-1, 1]."""
    return _linear_gap_is_within(factor, corners=(-1, 1))


def _linear_gap_is_within(factor: Fraction, corners: tuple[int, int]) -> bool:
    for problem in _problems(40, horizon=1):
        change = problem.trees[0].theta[0][0] - problem.trees[0].roll[0][0]
        tv = sum(abs(c) for c in change) / 2
        values = (np.array(f) for f in itertools.product(corners, repeat=len(change)))
        if max(abs((change * f).sum()) for f in values) > factor * tv:
            return False
    return True


def fills(factor: Fraction = Fraction(1)) -> bool:
    """Each gap filling, scalar or per position, is at least the true value, also with support gaps."""
    rounding = 1 - Fraction(1, 10**15)  # that of the true value itself
    for problem in _problems(40) + _problems(40, zeros_roll=0.3):
        truth = problem.profile()
        for fill, family in itertools.product(FILLS, ("published", "sharp")):
            known = [n for n in fill.needs if n not in ("T", "log_ratio_max")]  # the cap has its own check
            lost = problem.has_support_gap and NEED_SUPPORT.intersection(fill.needs)
            if "log_ratio_max" not in fill.needs and fill.family in (None, family) and not lost:
                filled = fill.apply(problem.profile(*known), family)
                if filled is None or exact(filled.value) * factor < exact(getattr(truth, fill.target)) * rounding:
                    return False
        for known in (["mean_kl"], ["max_kl"], ["max_tv"], ["mean_kl", "epsilon"]):
            by_array = problem.profile(*known).resolve_array("mean_tv", "sharp")
            least = np.asarray(truth.mean_tv) * float(rounding)
            if by_array is None or (by_array[0] * float(factor) < least).any():
                return False
    return True


def holds(name: str, factor: Fraction = Fraction(1)) -> bool:
    """No enumerated rational problem has a worst |Error| above the rule, from all inputs or from few."""
    bounded = [
        (worst, exact(table[name].value))
        for worst, tables in _enumerated(gaps=not rule(name).assumes)
        for table in tables
        if name in table
    ]
    return len(bounded) > 20 and all(factor * value >= worst for worst, value in bounded)


@cache
def _enumerated(gaps: bool) -> tuple[tuple[Fraction, tuple[BoundTable, ...]], ...]:
    """The worst error of each problem, and the bounds from each selection of what is true of it."""
    problems = [*_problems(60, zeros_roll=0.3 if gaps else 0.0), *_near_extremal()]
    return tuple((p.worst_error, tuple(unified(p.profile(*names)) for names in _KNOWN)) for p in problems)


def _near_extremal() -> Iterator[Problem]:
    """Two steps where roll emits "new" with probability p and theta with q, and the two-stage instance."""
    for p, q in ((Fraction(1, 2), Fraction(501, 1000)), (Fraction(1, 10**6), Fraction(1, 100))):
        roll, theta = (np.array([[1 - x, x]], dtype=object) for x in (p, q))
        tree = Tree((roll, np.repeat(roll, 2, axis=0)), (theta, np.repeat(theta, 2, axis=0)))
        yield Problem((tree,), (Fraction(1),))
    yield two_stage(3, Fraction(1, 50))


def withdrawn(factor: Fraction = Fraction(1)) -> bool:
    """With a support gap the rules that assume theta << roll are withdrawn; T = 1, gap 5 % shows why."""
    gap = Fraction(1, 20) * factor
    problem = _one_row([Fraction(1), Fraction(0)], [1 - gap, gap])
    table = unified(problem.profile())
    coupling_there = unified(T=1, epsilon=round_up(gap))["coupling"].value
    return problem.worst_error > coupling_there and all((r.name in table) == (not r.assumes) for r in RULES)


def _one_row(roll: list[Fraction], theta: list[Fraction]) -> Problem:
    rows = [np.array([row], dtype=object) for row in (roll, theta)]
    return Problem((Tree((rows[0],), (rows[1],)),), (Fraction(1),))


def _problems(count: int, horizon: int | None = None, zeros_roll: float = 0.0) -> list[Problem]:
    """Rational problems, ordinary and adversarial, at fixed seeds."""
    rng = np.random.default_rng(3)
    return [
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
        for _ in range(count)
    ]


def two_outcomes(scale: float = 1.0) -> bool:
    """KL of a row >= KL of the event where roll exceeds theta, whose TV is that of the row (log-sum)."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        p, q = rng.dirichlet(np.full(5, 0.5), size=2) * 0.999 + 0.0002
        event = p > q
        a, b = float(p[event].sum()), float(q[event].sum())
        whole = float((p * np.log(p / q)).sum())
        coarse = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))
        if whole * scale < coarse - 1e-12 or abs((a - b) - float(np.abs(p - q).sum()) / 2) > 1e-12:
            return False
    return True


def capped_sums(factor: Fraction = Fraction(1)) -> bool:
    """The O(1) sums equal the literal ones to 1e-12 and are not below them, at 40 digits."""
    import mpmath

    rng = np.random.default_rng(2)
    with mpmath.workdps(40):
        for _ in range(60):
            n = int(rng.integers(0, 400))
            eps, delta = (Fraction(float(10.0 ** rng.uniform(-5, 0.2))) for _ in range(2))
            for routes in ({"epsilon": eps}, {"delta": delta}, {"epsilon": eps, "delta": delta}):
                literal = mpmath.mpf(0)
                for k in range(n + 1):
                    steps = [mpmath.mpf(1)]
                    steps += [k * mpmath.mpf(eps.numerator) / eps.denominator] if "epsilon" in routes else []
                    steps += (
                        [mpmath.sqrt(k * mpmath.mpf(delta.numerator) / (2 * delta.denominator))]
                        if "delta" in routes
                        else []
                    )
                    literal += min(steps)
                value = factor * capped_sum(n, **routes)
                value_mp = mpmath.mpf(value.numerator) / value.denominator
                if not literal * (1 - mpmath.mpf(10) ** -35) <= value_mp <= literal * (1 + mpmath.mpf(10) ** -12):
                    return False
    return True
