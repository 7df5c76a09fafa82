"""Grids, instances and boxes on which the inequalities of the derivations are checked: pairs (left, right).

Equality is decided exactly, see :mod:`bounds.proof.logarithms`. Where a side has other irrational parts, the left
one is not below and the right one not above the true one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bounds._rounding import sqrt_enclosure
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, pinsker_curve, tv_of_cap
from bounds.proof.exact import Problem, Tree, chi2, tv
from bounds.proof.instances import problems
from bounds.proof.logarithms import Number, kl, log, log_low, total
from bounds.proof.restated import RESTATED, enclose
from bounds.proof.worst_case import homogeneous

Pairs = Iterator[tuple[Any, Any]]
ONE, ALMOST = Fraction(1), 1 - Fraction(1, 10**20)  # the second where a root or a cap is irrational

# --- ratios of one response: W^- and what bounds it --------------------------------------------------------

_FAR = [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3)]
_NEAR = [1 + Fraction(k, 1000) for k in (-2, -1, 0, 1, 2)]


def responses() -> Iterator[tuple[tuple[Fraction, ...], Fraction, Fraction, Fraction, Fraction]]:
    """Yield ratios, W^-, U^+, U^- and S: on coarse and fine grids, and far out."""
    grids = [(_FAR, 1), (_FAR, 2), (_FAR, 3), (_FAR, 4), (_NEAR, 3), ([Fraction(1, 1000), Fraction(1000)], 3)]
    for grid, length in grids:
        for rho in itertools.combinations_with_replacement(grid, length):
            up, down = (sum((max(Fraction(0), sign * (r - 1)) for r in rho), Fraction(0)) for sign in (1, -1))
            yield rho, max(Fraction(0), 1 + up - down - math.prod(rho, start=ONE)), up, down, up - down


def w_and_phi() -> Pairs:
    """Yield W^- beside Phi, where theta has all that roll has."""
    for rho, w, _, _, score in responses():
        if all(rho):
            yield w, total(((log(r), -ONE) for r in rho), start=score)


# --- rows ------------------------------------------------------------------------------------------------------


@cache
def rows() -> tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...]:
    """Return pairs of rational rows: two outcomes on a grid, rows of random problems, and near ones."""
    grid = [Fraction(k, 12) for k in range(1, 12)]
    pairs: list[Any] = [((p, 1 - p), (q, 1 - q)) for p, q in itertools.product(grid, repeat=2) if p != q]
    third, near = Fraction(1, 3), Fraction(1, 2) + Fraction(1, 1000)
    pairs += [((third, 2 * third), (2 * third, third)), ((Fraction(1, 2),) * 2, (near, 1 - near))]
    pairs += [((Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)), (Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)))]
    rare = Fraction(1, 10**4)
    pairs += [((1 - rare, rare), (1 - 2 * rare, 2 * rare))]
    found = ((tuple(x.roll[0][0]), tuple(x.theta[0][0])) for p in problems(40, horizon=1) for x in p.trees)
    return (*pairs, *((p, q) for p, q in found if all(p) and all(q) and p != q))


def coarse() -> Pairs:
    """Yield KL of the event where roll exceeds theta beside that of the row."""
    for p, q in rows():
        event = [a > b for a, b in zip(p, q, strict=True)]
        two = [(sum(itertools.compress(x, event)), sum(itertools.compress(x, [not e for e in event]))) for x in (p, q)]
        yield kl(*two), kl(p, q)


def at_the_curve() -> Pairs:
    """Yield TV beside the curve at a lower value of KL; the code's upper value is within 1e-13 of it."""
    for p, q in rows():
        least = Fraction(0) + sum(c * log_low(Fraction(n)) for n, c in kl(p, q).logs.items()) - Fraction(1, 10**40)
        yield tv(p, q), pinsker_curve(least) * (1 - Fraction(2, 10**13))


def conversions(which: int) -> Callable[[], Pairs]:
    """Take one conversion, as the fills use it, at each row's own largest |log ratio|: an upper value, within 1e-29."""

    def cases() -> Pairs:
        for p, q in rows():
            cap = max(abs(log_low(b / a)) for a, b in zip(p, q, strict=True)) + Fraction(1, 10**40)
            yield (
                (chi2(p, q), Number(Fraction(0)).plus(kl(p, q), chi2_per_kl(cap))),
                (chi2(p, q), chi2_per_tv(cap) * tv(p, q)),
                (kl(p, q), kl_of_cap(cap)),
                (tv(p, q), tv_of_cap(cap)),
            )[which]

    return cases


def linear(corners: tuple[Fraction, ...], of_tv: int) -> Callable[[], Pairs]:
    """Set |sum_v (theta - roll) f|, linear in f and so largest at the corners, beside a multiple of TV."""

    def cases() -> Pairs:
        for p, q in rows():
            change = [b - a for a, b in zip(p, q, strict=True)]
            values = itertools.product(corners, repeat=len(change))
            sums = (sum((c * f for c, f in zip(change, fs, strict=True)), Fraction(0)) for fs in values)
            yield max(map(abs, sums)), of_tv * tv(p, q)

    return cases


# --- trees -----------------------------------------------------------------------------------------------------


@cache
def _problems() -> tuple[Problem, ...]:
    """Return random rational problems, and those that attain: theta << roll, but for the last."""
    same, near = Fraction(1, 2), Fraction(501, 1000)
    return (*problems(40), homogeneous(1, same, near), homogeneous(3, Fraction(1, 5), Fraction(2, 5)), _GAP)


_GAP = homogeneous(3, Fraction(0), Fraction(1, 20))


def context_distances(limit: Callable[[Problem, int], Fraction]) -> Callable[[], Pairs]:
    """Set TV of the contexts at each position beside a limit."""

    def cases() -> Pairs:
        for problem in _problems():
            for tree, t in itertools.product(problem.trees, range(1, problem.horizon)):
                yield abs(tree.theta_mass[t] - tree.roll_mass[t]).sum() / 2, limit(problem, t)

    return cases


def product(problem: Problem, t: int) -> Fraction:
    """Return 1 - prod_{s<t} (1 - eps_s)."""
    return 1 - math.prod((1 - e for e in problem.per_position("max_tv")[:t]), start=ONE)


def steps(problem: Problem, t: int) -> Fraction:
    """Return min(1, (t-1) epsilon)."""
    return min(ONE, t * Fraction(max(problem.per_position("max_tv"))))


def _lower(divergence: Fraction) -> Fraction:
    """Return a lower value from the upper one of an enumerated KL."""
    return max(Fraction(0), divergence - Fraction(1, 10**35))


def surrogates() -> Pairs:
    """Yield the largest |L'| over rewards in [0, 1], beside tv_seq + D."""
    for problem in _problems():
        divergence = sum(problem.per_position("mean_kl"))
        if divergence < math.inf:
            weights = [tree.roll_mass[-1] * tree.score for tree in problem.trees]
            sides = (problem.mean([np.maximum(s * w, 0).sum() for w in weights]) for s in (1, -1))
            yield max(sides), problem.tv_seq + _lower(divergence)


def second_moments() -> Pairs:
    """Yield E W^2 beside sum_t X_t (prod_{s<t} (1 + X_s) - 1)."""
    for problem in _problems():
        X = problem.per_position("max_chi2")
        if max(X) < math.inf:
            grown = itertools.accumulate((1 + x for x in X), lambda a, b: a * b, initial=ONE)
            limit = sum(x * (g - 1) for x, g in zip(X, grown, strict=False))
            yield problem.mean([_square(tree) for tree in problem.trees]), limit


def _square(tree: Tree) -> Any:
    weight, mass = tree.error_weight, tree.roll_mass[-1]
    return (weight[mass > 0] ** 2 / mass[mass > 0]).sum()


def gaps(name: str) -> Callable[[], Pairs]:
    """Set the summed expected mass off roll's support beside a summed divergence."""

    def cases() -> Pairs:
        for problem in (*problems(40, zeros_roll=0.3), _GAP):
            limit = sum(problem.per_position(name))
            if limit < math.inf:
                yield sum(problem.per_position("mean_gap")), limit if name == "mean_tv" else _lower(limit)

    return cases


def events(side: Callable[[Any, Any, Any], tuple[Any, Any] | None]) -> Callable[[], Pairs]:
    """Take events of one row as rewards: what J(theta) can be, given J(roll)."""

    def cases() -> Pairs:
        for p, q in rows():
            for reward in itertools.islice(itertools.product((0, 1), repeat=len(p)), 1, 2 ** len(p) - 1):
                pair = side(p, q, reward)
                if pair is not None:
                    yield pair

    return cases


def jensen(p: Any, q: Any, reward: Any) -> tuple[Any, Any] | None:
    """Set mu log(mu / J(theta)) beside E[R log 1/P], where the event loses mass."""
    mu, after = (sum(itertools.compress(x, reward)) for x in (p, q))
    expected = total((log(a / b), a) for a, b in itertools.compress(zip(p, q, strict=True), reward))
    return (total([(log(mu / after), mu)]), expected) if after < mu else None


def data_processing(p: Any, q: Any, reward: Any) -> tuple[Any, Any]:
    """Set KL of the event beside that of the row."""
    mu, after = (sum(itertools.compress(x, reward), Fraction(0)) for x in (p, q))
    return kl((mu, 1 - mu), (after, 1 - after)), kl(p, q)


# --- numbers: boxes from corner to corner, both sides being monotone ---------------------------------------------


def _boxes() -> Iterator[tuple[Fraction, Fraction]]:
    """Yield steps of a quarter from 1e-9 to 1e4, each as (low, high); and single points where roots are rational."""
    edges = [Fraction(5, 4) ** k for k in range(-93, 42)]
    yield from itertools.pairwise(edges)
    yield from ((2 * x**2, 2 * x**2) for x in (Fraction(1, 100), Fraction(1, 2), ONE))


def trajectory_and_mixed() -> Pairs:
    """Yield min(D, A) beside mixed_kl, for D = share T delta and the largest A that delta allows."""
    for T, delta, share in itertools.product((1, 2, 64, 10**6), _boxes(), (ONE, Fraction(9, 10), Fraction(1, 50))):
        low, high = (share * T * d for d in delta)
        yield min(high, T * _pinsker(delta[1], 1)), 4 * T * _pinsker(delta[0], 0) * _pinsker(low, 0)


def _pinsker(x: Fraction, end: int) -> Fraction:
    return min(ONE, sqrt_enclosure(x / 2)[end])


def t_delta() -> Pairs:
    """Yield T delta beside pinsker_marginal_kl."""
    symbols = {s.name: s for s in RESTATED["pinsker_marginal_kl"].free_symbols}
    for T, delta in itertools.product((2, 3, 9), _boxes()):
        if delta[1] <= 2 and (T > 2 or delta[0] == delta[1]):
            values = {symbols["T"]: Fraction(T), symbols["delta"]: delta[0]}
            yield T * delta[1] * ALMOST, enclose(RESTATED["pinsker_marginal_kl"], values)[0]
