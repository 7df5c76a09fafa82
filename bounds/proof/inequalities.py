"""The inequalities of the derivations as data: certified on grids, and each with an instance that comes near."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from bounds.proof import cases
from bounds.proof.check import EXACT, INTERVAL, Statement
from bounds.proof.exact import tv
from bounds.proof.logarithms import Number, kl
from bounds.rules.bound import PUBLISHED, SHARP
from bounds.rules.unified import RULES


@dataclass(frozen=True, slots=True)
class Inequality(Statement):
    """Left <= right in every case, and left >= nearest * right in some: 1 where it is attained."""

    pairs: Callable[[], cases.Pairs]
    nearest: Fraction = Fraction(1)

    def run(self, factor: Fraction = Fraction(1)) -> bool:
        """Whether it holds with factor right in place of right."""
        pairs = [tuple(x if isinstance(x, Number) else Number(Fraction(x)) for x in case) for case in self.pairs()]
        zero = Number(Fraction(0))
        below = all(zero.plus(right, factor).plus(left, -Fraction(1)).is_non_negative for left, right in pairs)
        return below and any(
            left.plus(right, -self.nearest).is_non_negative and not zero.plus(left, -Fraction(1)).is_non_negative
            for left, right in pairs
        )


#: Rules that share a derivation: a new one joins its group by what it is.
ALL = tuple(r.name for r in RULES)
PAPER = tuple(r.name for r in RULES if r.family == PUBLISHED)
KL_ROUTE = tuple(n for n in PAPER if "kl" in n or "pinsker" in n)
HALVED = tuple(n for n in ALL if n.startswith("halved"))
CHI2 = tuple(r.name for r in RULES if not r.gap_term)
COUPLED = tuple(r.name for r in RULES if r.family == SHARP and r.assumes and r.name not in (*HALVED, *CHI2))
_KL, _TV = ("trajectory_kl",), ("trajectory_tv",)
_APPROACHED = Fraction(999, 1000)
_HALF = Fraction(1, 2)

#: In the order of the derivation. "Attained" and "approached" are checked, too.
STEPS: tuple[Inequality, ...] = (
    Inequality(
        "two_outcomes",
        "KL of a row >= KL of the event where roll exceeds theta, whose TV is the row's (log-sum); attained",
        INTERVAL,
        KL_ROUTE,
        cases.coarse,
    ),
    Inequality(
        "pinsker_of_rows",
        "2 TV^2 <= KL; approached",
        INTERVAL,
        KL_ROUTE,
        lambda: ((2 * tv(p, q) ** 2, kl(p, q)) for p, q in cases.rows()),
        _APPROACHED,
    ),
    Inequality(
        "advantage_factor",
        "|sum_v (theta - roll) Q| <= 2 TV for Q in [0, 1], linear in Q: no more than half of it is needed",
        EXACT,
        PAPER,
        cases.linear((Fraction(0), cases.ONE), 2),
        _HALF,
    ),
    Inequality(
        "centred_advantage_factor",
        "|sum_v (theta - roll) Q| <= TV for Q in [-1/2, 1/2]; attained",
        EXACT,
        (*HALVED, *COUPLED),
        cases.linear((-_HALF, _HALF), 1),
    ),
    Inequality(
        "context_shift",
        "|E_theta f - E_roll f| <= 2 TV sup|f|; attained",
        EXACT,
        (*PAPER, *HALVED, *COUPLED),
        cases.linear((-cases.ONE, cases.ONE), 2),
    ),
    Inequality(
        "context_distance",
        "TV of the contexts at position t <= min(1, (t-1) epsilon), on every prompt; attained",
        EXACT,
        PAPER,
        cases.context_distances(cases.steps),
    ),
    Inequality(
        "product_of_couplings",
        "TV of the contexts at position t <= 1 - prod_{s<t} (1 - eps_s), on every prompt; attained",
        EXACT,
        ("halved_coupling", *COUPLED),
        cases.context_distances(cases.product),
    ),
    Inequality("w_below_phi", "W^- <= Phi; attained where P = 1", INTERVAL, _KL, cases.w_and_phi),
    Inequality(
        "w_below_u",
        "W^- <= U^+; attained where P = 0",
        EXACT,
        _TV,
        lambda: ((w, up) for _, w, up, _, _ in cases.responses()),
    ),
    Inequality(
        "w_below_product",
        "W^- <= U^+ U^-; attained where P = 0",
        EXACT,
        CHI2,
        lambda: ((w, up * down) for _, w, up, down, _ in cases.responses()),
    ),
    Inequality(
        "w_below_score",
        "W^- <= (1 + S)^+; attained where P = 0",
        EXACT,
        _TV,
        lambda: ((w, max(Fraction(0), 1 + score)) for _, w, _, _, score in cases.responses()),
    ),
    Inequality(
        "gap_below_tv",
        "theta's expected mass off roll's support, summed, is at most A; attained",
        EXACT,
        (*_KL, *_TV, "linear", "halved_linear"),
        cases.gaps("mean_tv"),
    ),
    Inequality(
        "gap_below_kl",
        "theta's expected mass off roll's support, summed, is at most D, as KL >= -log(1 - m); approached",
        INTERVAL,
        (*_KL, *_TV, "linear", "halved_linear"),
        cases.gaps("mean_kl"),
        Fraction(97, 100),
    ),
    Inequality(
        "jensen",
        "J(theta) >= mu exp(E[R log P] / mu), mu = J(roll); attained",
        INTERVAL,
        _KL,
        cases.events(cases.jensen),
    ),
    Inequality(
        "data_processing", "kl(mu || J(theta)) <= D; attained", INTERVAL, _KL, cases.events(cases.data_processing)
    ),
    Inequality(
        "trajectory_below_mixed",
        "min(D, A) <= mixed_kl, in boxes: no more than half of it is needed",
        INTERVAL,
        (*_KL, *_TV, "mixed_kl"),
        cases.trajectory_and_mixed,
        _HALF,
    ),
    Inequality(
        "t_delta_below_pinsker_marginal",
        "T delta <= pinsker_marginal_kl for T >= 2, delta <= 2, in boxes; attained at T = 2, to 20 digits",
        INTERVAL,
        (*_KL, "pinsker_marginal_kl"),
        cases.t_delta,
        cases.ALMOST**2,
    ),
    Inequality(
        "surrogate_below_cap",
        "|L'| <= tv_seq + D, for the worst reward in [0, 1]; approached",
        INTERVAL,
        _KL,
        cases.surrogates,
        Fraction(99, 100),
    ),
    Inequality(
        "second_moment",
        "E W^2 <= sum_t X_t (prod_{s<t} (1 + X_s) - 1); attained",
        EXACT,
        ("martingale_chi2",),
        cases.second_moments,
    ),
    Inequality(
        "pinsker_curve",
        "TV <= curve(KL); approached",
        INTERVAL,
        (*HALVED, *COUPLED),
        cases.at_the_curve,
        _APPROACHED,
    ),
    *(
        Inequality(
            f"conversion_{k + 1}", f"{text} where |log rho| <= Lam", INTERVAL, CHI2, cases.conversions(k), nearest
        )
        for k, (text, nearest) in enumerate(
            (
                ("chi2 <= (e^Lam - 1)^2 / (e^Lam - 1 - Lam) KL, approached,", _APPROACHED),
                ("chi2 <= 2 sinh(Lam) TV, attained,", cases.ALMOST),
                ("KL <= Lam tanh(Lam/2), attained,", cases.ALMOST),
                ("TV <= tanh(Lam/2), attained,", cases.ALMOST),
            )
        )
    ),
)
