"""The inequalities of the derivations: pairs (left, right) on grids, instances and boxes, certified.

Equality is decided exactly, see :class:`bounds.proof.exact.Number`. Where a side has other irrational parts, the left
one is not below and the right one not above the true one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, wraps
from typing import Any

import numpy as np

from bounds._rounding import sqrt_enclosure
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, tv_of_cap
from bounds.divergence.inequalities import pinsker_curve as upper_curve
from bounds.proof.exact import Number, Problem, Tree, chi2, kl, log, log_low, total, tv
from bounds.proof.instances import problems
from bounds.proof.restated import RESTATED, enclose
from bounds.proof.worst_case import homogeneous
from bounds.rules.bound import PUBLISHED, SHARP
from bounds.rules.unified import RULES

EXACT, INTERVAL = "exact", "interval"  # rational arithmetic, or certified ends

#: Rules that share a derivation: a new one joins its group by what it is.
ALL = tuple(r.name for r in RULES)
PAPER = tuple(r.name for r in RULES if r.family == PUBLISHED)
KL_ROUTE = tuple(n for n in PAPER if "kl" in n or "pinsker" in n)
HALVED = tuple(n for n in ALL if n.startswith("halved"))
CHI2 = tuple(r.name for r in RULES if not r.gap_term)
COUPLED = tuple(r.name for r in RULES if r.family == SHARP and r.assumes and r.name not in (*HALVED, *CHI2))
EXACT_TV = ("exact_tv", "context_shift_profile")
_KL, _TV = ("trajectory_kl",), ("trajectory_tv",)

Pairs = Iterator[tuple[Any, Any]]
ONE, HALF, ALMOST = Fraction(1), Fraction(1, 2), 1 - Fraction(1, 10**20)  # the last where a root or a cap is irrational
_APPROACHED = Fraction(999, 1000)

#: In the order of the derivation: what decides it, how, the rules that rest on it, and a factor that must break it.
STEPS: list[tuple[Callable[..., bool], str, tuple[str, ...], Fraction]] = []


def _inequality(how: str, *rules: str, nearest: Fraction = ONE) -> Callable[[Callable[[], Pairs]], Callable[..., bool]]:
    """Check left <= factor right in every case, and left >= nearest right > 0 in some: 1 where it is attained."""

    def decorate(pairs: Callable[[], Pairs]) -> Callable[..., bool]:
        @wraps(pairs)
        def run(factor: Fraction = ONE) -> bool:
            cases = [tuple(x if isinstance(x, Number) else Number(Fraction(x)) for x in case) for case in pairs()]
            zero = Number(Fraction(0))
            below = all(zero.plus(right, factor).plus(left, -ONE).is_non_negative for left, right in cases)
            return below and any(
                left.plus(right, -nearest).is_non_negative and not zero.plus(left, -ONE).is_non_negative
                for left, right in cases
            )

        run.__doc__ = (pairs.__doc__ or "").removesuffix(".")
        STEPS.append((run, how, rules, nearest * Fraction(9, 10)))
        return run

    return decorate


# --- rows ------------------------------------------------------------------------------------------------------


@cache
def rows() -> tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...]:
    """Return pairs of rational rows: two outcomes on a grid, rows of random problems, and near ones."""
    grid = [Fraction(k, 12) for k in range(1, 12)]
    pairs: list[Any] = [((p, 1 - p), (q, 1 - q)) for p, q in itertools.product(grid, repeat=2) if p != q]
    third, near = Fraction(1, 3), HALF + Fraction(1, 1000)
    pairs += [((third, 2 * third), (2 * third, third)), ((HALF, HALF), (near, 1 - near))]
    pairs += [((Fraction(1, 4), Fraction(1, 4), HALF), (Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)))]
    rare = Fraction(1, 10**4)
    pairs += [((1 - rare, rare), (1 - 2 * rare, 2 * rare))]
    found = ((tuple(x.roll[0][0]), tuple(x.theta[0][0])) for p in problems(40, horizon=1) for x in p.trees)
    return (*pairs, *((p, q) for p, q in found if all(p) and all(q) and p != q))


def _of(event: Any, row: tuple[Fraction, ...]) -> tuple[Fraction, Fraction]:
    """Return the probability of an event and of its complement."""
    inside = sum(itertools.compress(row, event), Fraction(0))
    return inside, 1 - inside


@_inequality(INTERVAL, *KL_ROUTE)
def two_outcomes() -> Pairs:
    """KL of a row >= KL of the event where roll exceeds theta, whose TV is the row's (log-sum); attained."""
    for p, q in rows():
        event = [a > b for a, b in zip(p, q, strict=True)]
        yield kl(_of(event, p), _of(event, q)), kl(p, q)


@_inequality(INTERVAL, *KL_ROUTE, nearest=_APPROACHED)
def pinsker_of_rows() -> Pairs:
    """2 TV^2 <= KL; approached."""
    return ((2 * tv(p, q) ** 2, kl(p, q)) for p, q in rows())


def _linear(corners: tuple[Fraction, ...], of_tv: int) -> Pairs:
    """Set |sum_v (theta - roll) f|, linear in f and so largest at the corners, beside a multiple of TV."""
    for p, q in rows():
        change = [b - a for a, b in zip(p, q, strict=True)]
        values = itertools.product(corners, repeat=len(change))
        sums = (sum((c * f for c, f in zip(change, fs, strict=True)), Fraction(0)) for fs in values)
        yield max(map(abs, sums)), of_tv * tv(p, q)


@_inequality(EXACT, *PAPER, nearest=HALF)
def advantage_factor() -> Pairs:
    """|sum_v (theta - roll) Q| <= 2 TV for Q in [0, 1], linear in Q: no more than half of it is needed."""
    return _linear((Fraction(0), ONE), 2)


@_inequality(EXACT, *HALVED, *COUPLED)
def centred_advantage_factor() -> Pairs:
    """|sum_v (theta - roll) Q| <= TV for Q in [-1/2, 1/2]; attained."""
    return _linear((-HALF, HALF), 1)


@_inequality(EXACT, *PAPER, *HALVED, *COUPLED)
def context_shift() -> Pairs:
    """|E_theta f - E_roll f| <= 2 TV sup|f|; attained."""
    return _linear((-ONE, ONE), 2)


# --- contexts --------------------------------------------------------------------------------------------------

_GAP = homogeneous(3, Fraction(0), Fraction(1, 20))


@cache
def _problems() -> tuple[Problem, ...]:
    """Return random rational problems, and those that attain: theta << roll, but for the last."""
    same, near = HALF, Fraction(501, 1000)
    return (*problems(40), homogeneous(1, same, near), homogeneous(3, Fraction(1, 5), Fraction(2, 5)), _GAP)


def _context_distances(limit: Callable[[list[Any], int], Any]) -> Pairs:
    """Set TV of the contexts after t tokens beside a limit, from max_tv by position."""
    for problem in _problems():
        epsilons = problem.per_position["max_tv"]
        for tree, t in itertools.product(problem.trees, range(1, problem.horizon)):
            yield abs(tree.theta_mass[t] - tree.roll_mass[t]).sum() / 2, limit(epsilons, t)


@_inequality(EXACT, *PAPER)
def context_distance() -> Pairs:
    """TV of the contexts at position t <= min(1, (t-1) epsilon), on every prompt; attained."""
    return _context_distances(lambda epsilons, t: min(1, t * max(epsilons)))


@_inequality(EXACT, *COUPLED)
def product_of_couplings() -> Pairs:
    """TV of the contexts at position t <= 1 - prod_{s<t} (1 - eps_s), on every prompt; attained."""
    return _context_distances(lambda epsilons, t: 1 - math.prod(1 - e for e in epsilons[:t]))


# --- ratios of one response: W^- and what bounds it --------------------------------------------------------

_FAR = [Fraction(0), HALF, ONE, Fraction(3, 2), Fraction(2), Fraction(3)]
_NEAR = [1 + Fraction(k, 1000) for k in (-2, -1, 0, 1, 2)]


def responses() -> Iterator[tuple[tuple[Fraction, ...], Fraction, Fraction, Fraction]]:
    """Yield ratios, W^-, U^+ and U^-: on coarse and fine grids, and far out."""
    grids = [(_FAR, 1), (_FAR, 2), (_FAR, 3), (_FAR, 4), (_NEAR, 3), ([Fraction(1, 1000), Fraction(1000)], 3)]
    for grid, length in grids:
        for rho in itertools.combinations_with_replacement(grid, length):
            up, down = (sum((max(Fraction(0), sign * (r - 1)) for r in rho), Fraction(0)) for sign in (1, -1))
            yield rho, max(Fraction(0), 1 + up - down - math.prod(rho, start=ONE)), up, down


@_inequality(INTERVAL, *_KL)
def w_below_phi() -> Pairs:
    """W^- <= Phi; attained where P = 1."""
    for rho, w, up, down in responses():
        if all(rho):  # theta has all that roll has
            yield w, total(((log(r), -ONE) for r in rho), start=up - down)


@_inequality(EXACT, *_TV)
def w_below_u() -> Pairs:
    """W^- <= U^+; attained where P = 0."""
    return ((w, up) for _, w, up, _ in responses())


@_inequality(EXACT, *CHI2)
def w_below_product() -> Pairs:
    """W^- <= U^+ U^-; attained where P = 0."""
    return ((w, up * down) for _, w, up, down in responses())


@_inequality(EXACT, *_TV)
def w_below_score() -> Pairs:
    """W^- <= (1 + S)^+; attained where P = 0."""
    return ((w, max(Fraction(0), 1 + up - down)) for _, w, up, down in responses())


@_inequality(EXACT, *EXACT_TV)
def w_below_rises() -> Pairs:
    """W^- <= sum_t x_t (1 - prod_{s!=t} m_s), x = (rho - 1)^+, m = min(rho, 1); attained."""
    for rho, w, _, _ in responses():
        kept = [min(r, ONE) for r in rho]
        others = (math.prod(kept[:t] + kept[t + 1 :], start=ONE) for t in range(len(rho)))
        yield w, sum((max(r - 1, Fraction(0)) * (1 - m) for r, m in zip(rho, others, strict=True)), Fraction(0))


@_inequality(EXACT, *EXACT_TV)
def common_part() -> Pairs:
    """V = (1-e) U + e Q, V' = (1-e) U + e Q', |V-V'| <= e: Q, Q' <= 1 with U = min(1, V/(1-e), V'/(1-e)); attained."""
    grid = [Fraction(k, 6) for k in range(7)]
    for v, w, e in itertools.product(grid, grid, grid[1:-1]):
        if abs(v - w) <= e:
            shared = min(1 - e, v, w)
            yield from ((x - shared, e) for x in (v, w))


@_inequality(EXACT, *EXACT_TV)
def one_more_step() -> Pairs:
    """Q S - (P-1) Q' <= U^+ + (Q'-Q)^+ for Q, Q' in [0, 1], linear in each order of them: at the corners; attained."""
    for rho, _, up, down in responses():
        for q, after in itertools.product((0, 1), repeat=2):
            left = q * (up - down) - (math.prod(rho, start=ONE) - 1) * after
            yield left, up + max(after - q, 0)


@_inequality(INTERVAL, "martingale_kl")
def root_of_a_quadratic() -> Pairs:
    """sqrt(r^2 + 2rcy + y^2) <= s - (s^2-r^2)/(2s) + rcy/s + (1/s + (4/3 + 4s/9) [y > 0]) k(y); attained.

    |c| <= 1, s >= r and k(y) = y - log(1+y); scaled so that the quadratic, which is nowhere negative, has y^2 in it
    just once.
    """
    roots = (Fraction(1, 100), HALF, ONE, Fraction(3), Fraction(40))
    changes = (Fraction(-9, 10), -HALF, Fraction(0), Fraction(1, 10), ONE, Fraction(7), Fraction(300))
    for r, more, c, y in itertools.product(
        roots, (Fraction(0), HALF, Fraction(9)), (-ONE, -HALF, Fraction(0), HALF, ONE), changes
    ):
        s, quadratic = r * (1 + more), r**2 + 2 * r * c * y + y**2
        times = 1 / s + (Fraction(4, 3) + 4 * s / 9 if y > 0 else 0)
        start = s - (s**2 - r**2) / (2 * s) + r * c * y / s + times * y
        yield sqrt_enclosure(quadratic)[0], total([(log(1 + y), -times)], start)


# --- what is left where theta << roll fails, and events ----------------------------------------------------


def _lower(divergence: Fraction) -> Fraction:
    """Return a lower value from the upper one of an enumerated KL."""
    return max(Fraction(0), divergence - Fraction(1, 10**35))


def _gaps(name: str, lower: Callable[[Fraction], Fraction]) -> Pairs:
    """Set the summed expected mass off roll's support beside a summed divergence."""
    for problem in (*problems(40, zeros_roll=0.3), _GAP):
        limit = sum(problem.per_position[name])
        if limit < math.inf:
            yield sum(problem.per_position["mean_gap"]), lower(limit)


@_inequality(EXACT, *_KL, *_TV, "linear", "halved_linear")
def gap_below_tv() -> Pairs:
    """theta's expected mass off roll's support, summed, is at most A; attained."""  # noqa: D403
    return _gaps("mean_tv", Fraction)


@_inequality(INTERVAL, *_KL, *_TV, "linear", "halved_linear", nearest=Fraction(97, 100))
def gap_below_kl() -> Pairs:
    """theta's expected mass off roll's support, summed, is at most D, as KL >= -log(1 - m); approached."""  # noqa: D403
    return _gaps("mean_kl", _lower)


def _events() -> Iterator[tuple[Any, Any, Any]]:
    """Yield events of one row, as rewards: what J(theta) can be, given J(roll)."""
    for p, q in rows():
        for reward in itertools.islice(itertools.product((0, 1), repeat=len(p)), 1, 2 ** len(p) - 1):
            yield p, q, reward


@_inequality(INTERVAL, *_KL)
def jensen() -> Pairs:
    """J(theta) >= mu exp(E[R log P] / mu), mu = J(roll); attained."""
    for p, q, reward in _events():
        mu, after = _of(reward, p)[0], _of(reward, q)[0]
        if after < mu:
            expected = total((log(a / b), a) for a, b in itertools.compress(zip(p, q, strict=True), reward))
            yield total([(log(mu / after), mu)]), expected


@_inequality(INTERVAL, *_KL)
def data_processing() -> Pairs:
    """kl(mu || J(theta)) <= D; attained."""
    return ((kl(_of(reward, p), _of(reward, q)), kl(p, q)) for p, q, reward in _events())


# --- numbers: boxes from corner to corner, both sides being monotone ---------------------------------------------


def _boxes() -> Iterator[tuple[Fraction, Fraction]]:
    """Yield steps of a quarter from 1e-9 to 1e4, each as (low, high); and single points where roots are rational."""
    edges = [Fraction(5, 4) ** k for k in range(-93, 42)]
    yield from itertools.pairwise(edges)
    yield from ((2 * x**2, 2 * x**2) for x in (Fraction(1, 100), HALF, ONE))


def _pinsker(x: Fraction, end: int) -> Fraction:
    return min(ONE, sqrt_enclosure(x / 2)[end])


@_inequality(INTERVAL, *_KL, *_TV, "mixed_kl", nearest=HALF)
def trajectory_below_mixed() -> Pairs:
    """min(D, A) <= mixed_kl, in boxes: no more than half of it is needed."""
    for T, delta, share in itertools.product((1, 2, 64, 10**6), _boxes(), (ONE, Fraction(9, 10), Fraction(1, 50))):
        low, high = (share * T * d for d in delta)  # D; and the largest A that delta allows
        yield min(high, T * _pinsker(delta[1], 1)), 4 * T * _pinsker(delta[0], 0) * _pinsker(low, 0)


@_inequality(INTERVAL, *_KL, "pinsker_marginal_kl", nearest=ALMOST**2)
def t_delta_below_pinsker_marginal() -> Pairs:
    """T delta <= pinsker_marginal_kl for T >= 2, delta <= 2, in boxes; attained at T = 2, to 20 digits."""
    form = RESTATED["pinsker_marginal_kl"]
    symbols = {s.name: s for s in form.free_symbols}
    for T, delta in itertools.product((2, 3, 9), _boxes()):
        if delta[1] <= 2 and (T > 2 or delta[0] == delta[1]):
            yield T * delta[1] * ALMOST, enclose(form, {symbols["T"]: Fraction(T), symbols["delta"]: delta[0]})[0]


# --- surrogate, second moment, and conversions ---------------------------------------------------------------


@_inequality(INTERVAL, *_KL, nearest=Fraction(99, 100))
def surrogate_below_cap() -> Pairs:
    """|L'| <= tv_seq + D, for the worst reward in [0, 1]; approached."""
    for problem in _problems():
        divergence = sum(problem.per_position["mean_kl"])
        if divergence < math.inf:
            weights = [tree.roll_mass[-1] * tree.score for tree in problem.trees]
            sides = (problem.mean([np.maximum(s * w, 0).sum() for w in weights]) for s in (1, -1))
            yield max(sides), problem.tv_seq + _lower(divergence)


def _square(tree: Tree) -> Any:
    weight, mass = tree.error_weight, tree.roll_mass[-1]
    return (weight[mass > 0] ** 2 / mass[mass > 0]).sum()


@_inequality(EXACT, "martingale_chi2")
def second_moment() -> Pairs:
    """E W^2 <= sum_t X_t (prod_{s<t} (1 + X_s) - 1); attained."""
    for problem in _problems():
        X = problem.per_position["max_chi2"]
        if max(X) < math.inf:
            grown = itertools.accumulate((1 + x for x in X), lambda a, b: a * b, initial=ONE)
            limit = sum(x * (g - 1) for x, g in zip(X, grown, strict=False))
            yield problem.mean([_square(tree) for tree in problem.trees]), limit


@_inequality(INTERVAL, *HALVED, *COUPLED, nearest=_APPROACHED)
def pinsker_curve() -> Pairs:
    """TV <= curve(KL); approached."""
    for p, q in rows():  # at a lower value of KL; the code's upper value of the curve is within 1e-13 of it
        least = Fraction(0) + sum(c * log_low(Fraction(n)) for n, c in kl(p, q).logs.items()) - Fraction(1, 10**40)
        yield tv(p, q), upper_curve(least) * (1 - Fraction(2, 10**13))


def _capped() -> Iterator[tuple[Any, Any, Fraction]]:
    """Yield rows with an upper value of the largest |log ratio|, within 1e-29: what a fill is given as Lam."""
    for p, q in rows():
        yield p, q, max(abs(log_low(b / a)) for a, b in zip(p, q, strict=True)) + Fraction(1, 10**40)


@_inequality(INTERVAL, *CHI2, nearest=_APPROACHED)
def conversion_1() -> Pairs:
    """chi2 <= (e^Lam - 1)^2 / (e^Lam - 1 - Lam) KL, approached, where |log rho| <= Lam."""
    return ((chi2(p, q), total([(kl(p, q), chi2_per_kl(cap))])) for p, q, cap in _capped())


@_inequality(INTERVAL, *CHI2, nearest=ALMOST)
def conversion_2() -> Pairs:
    """chi2 <= 2 sinh(Lam) TV, attained, where |log rho| <= Lam."""
    return ((chi2(p, q), chi2_per_tv(cap) * tv(p, q)) for p, q, cap in _capped())


@_inequality(INTERVAL, *CHI2, nearest=ALMOST)
def conversion_3() -> Pairs:
    """KL <= Lam tanh(Lam/2), attained, where |log rho| <= Lam."""
    return ((kl(p, q), kl_of_cap(cap)) for p, q, cap in _capped())


@_inequality(INTERVAL, *CHI2, nearest=ALMOST)
def conversion_4() -> Pairs:
    """TV <= tanh(Lam/2), attained, where |log rho| <= Lam."""
    return ((tv(p, q), tv_of_cap(cap)) for p, q, cap in _capped())
