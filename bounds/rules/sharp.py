r"""This project's bounds: proved, and far below the published ones.

Write P for the product of the ratios rho_t of a response, S = sum_t (rho_t - 1), k3(z) = z - 1 - log z >= 0,
and Phi = sum_t k3(rho_t). With theta << roll, Error = E[R W], W = P - 1 - S, and log P = sum_t log rho_t
gives the identity W = k3(P) - Phi. So the worst reward in [0, 1] has |Error| = E[W^-] <= E[Phi] = D,
whatever T is; likewise W^- <= U^+ gives A. Both hold for any supports.

The other rules need theta << roll. With m_t = min(rho_t, 1) and x_t = (rho_t - 1)^+,
W^- <= sum_t x_t (1 - prod_{s!=t} m_s), which gives exact_tv: nothing smaller follows from T and epsilon. Error does not
change under R -> R - 1/2, which halves every constant 4; W is a martingale with increments (rho_t - 1)(P_{t-1} - 1),
which gives the chi2 rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np

from bounds._rounding import dot_up, round_up, sqrt_up, sum_up
from bounds.divergence.inequalities import pinsker
from bounds.rules.arrays import COMPOUNDED, COUPLED, PINSKER_OF_SUM, SUMMED, product_up, shifted, shifted_sum
from bounds.rules.bound import SHARP
from bounds.rules.published import PUBLISHED_RULES
from bounds.rules.rule import ABSOLUTE_CONTINUITY, Rule
from bounds.rules.sums import binomial_excess, exponential_excess, product_coupling, unit


def _context_shift(q: SimpleNamespace) -> Fraction:
    """Return the smaller of b_T and 2 sum_t eps_t tau_t.

    Solved forward, b_T is sum_t (n_t + (Dbar_t - n_t)(1 - prod_{k>t} (1 - eps_k))), n_t = min(Dbar_t, eps_t tau_t).
    """
    eps = np.full(q.T, round_up(unit(q.epsilon))) if q.max_tv is None else q.max_tv
    cap = 1.0 if q.tv_seq is None else round_up(unit(q.tv_seq))
    tau = shifted(q.T, (COUPLED, eps), (PINSKER_OF_SUM, q.mean_kl), (SUMMED, q.mean_tv), cap=cap)
    new = np.minimum(q.mean_tv, product_up(eps, tau))
    exact_tv = sum_up(new) + shifted_sum(q.mean_tv - new, (COUPLED, eps), follow=True)
    return min(exact_tv, 2 * dot_up(eps, tau, roundings=1))


def _martingale(q: SimpleNamespace) -> Fraction:
    if q.max_chi2 is None:  # then X_t = X, and the sum is (1+X)^T - 1 - T X
        variance = binomial_excess(q.T, q.chi2_max)
    else:
        variance = shifted_sum(q.max_chi2, (COMPOUNDED, q.max_chi2), cap=math.inf)
    sd: Fraction = q.reward_sd
    return sd * sqrt_up(variance)


#: Halved rules that gain more than the half: T - 1 instead of T, as nothing precedes the first token.
_GAIN_MORE: dict[str, tuple[str, Callable[[SimpleNamespace], Fraction]]] = {
    "mixed_kl": (
        r"2(T-1)\min(1,\sqrt{\delta/2})\min(1,\sqrt{D/2})",
        lambda q: 2 * (q.T - 1) * pinsker(q.delta) * pinsker(q.kl_seq),
    ),
    "mixed_tv": (
        r"2(T-1)\min(1,\epsilon)\min(1,\mathrm{TV}_{\mathrm{seq}})",
        lambda q: 2 * (q.T - 1) * unit(q.epsilon) * unit(q.tv_seq),
    ),
}


def _halved(rule: Rule) -> Rule:
    """Return a published rule with 2 for 4, on quantities from the sharper inequalities."""
    half = rf"\tfrac{{1}}{{2}}\left[{rule.latex}\right]", lambda q: rule.formula(q) / 2
    latex, formula = _GAIN_MORE.get(rule.name, half)
    return replace(
        rule,
        name=f"halved_{rule.name}",
        family=SHARP,
        title=f"{rule.title}, halved",
        latex=latex,
        source=f"this project: R -> R - 1/2 in {rule.source}",
        formula=formula,
        in_b_star=False,
    )


_AC = (ABSOLUTE_CONTINUITY,)
_sharp = partial(Rule, family=SHARP)

SHARP_RULES: tuple[Rule, ...] = (
    _sharp(
        "trajectory_kl",
        "Trajectory KL",
        r"D = \mathrm{KL}(P_{\mathrm{roll}}\Vert P_\theta)",
        "this project: identity W = k3(P) - Phi; lower half also in 1612.08967",
        ("kl_seq",),
        lambda q: q.kl_seq,
    ),
    _sharp(
        "trajectory_tv",
        "Trajectory TV",
        r"A = \sum_t \mathbb{E}\,\mathrm{TV}(c_t)",
        "this project: P >= 1 - U^-, so W^- <= U^+",
        ("tv_sum",),
        lambda q: q.tv_sum,
    ),
    _sharp(
        "exact_tv",
        "Exact TV",
        r"T\epsilon\,(1-(1-\epsilon)^{T-1})",
        "this project: W^- <= sum_t x_t (1 - prod_{s!=t} m_s); attained for every T and epsilon",
        ("epsilon",),
        lambda q: q.T * unit(q.epsilon) * product_coupling(q.T - 1, unit(q.epsilon)),
        assumes=_AC,
    ),
    *(_halved(rule) for rule in PUBLISHED_RULES if rule.name != "coupling"),  # exact_tv is below
    _sharp(
        "context_shift_profile",
        "Context shift by position",
        r"\min(b_T,\,2\textstyle\sum_t\epsilon_t\tau_t),\ "
        r"b_t = (1-\epsilon_t)\,b_{t-1}+\epsilon_t\sum_{s<t}\bar D_s+\min(\bar D_t,\epsilon_t\tau_t),\ "
        r"\tau_t = \min(1-\prod_{s<t}(1-\epsilon_s),\sum_{s<t}\bar D_s,\sqrt{\sum_{s<t}K_s/2},"
        r"\mathrm{TV}_{\mathrm{seq}})",
        "this project: exact_tv by position; halved advantage, context shift from what precedes each position",
        ("epsilon", "mean_tv"),
        _context_shift,
        optional=("max_tv", "mean_kl", "tv_seq"),
        assumes=_AC,
    ),
    _sharp(
        "adaptive_profile",
        "Adaptive by position",
        r"2\sum_t \bar D_t\min(1,1-\prod_{k>t}(1-\epsilon_k),\sqrt{\textstyle\sum_{k>t}\delta_k/2})",
        "this project: halved adaptive with the suprema of the positions that follow",
        ("mean_tv", "max_kl"),
        lambda q: 2 * shifted_sum(q.mean_tv, (COUPLED, q.max_tv), (PINSKER_OF_SUM, q.max_kl), follow=True),
        optional=("max_tv",),
        assumes=_AC,
    ),
    _sharp(
        "martingale_kl",
        "Martingale KL",
        r"e^{4\Delta/9}\left(\tfrac{1}{2}\sqrt{e^{2\Delta}-1-2\Delta}+\tfrac{2}{3}\Delta\sqrt{e^{2\Delta}-1}"
        r"+\tfrac{8}{9}((\Delta-1)e^{\Delta}+1)\right),\ \Delta=\textstyle\sum_t\delta_t\le T\delta",
        "this project: sqrt(W^2 + Q_b(P)) grows little; T delta / sqrt(2) as T delta vanishes, which is attained",
        ("delta",),
        lambda q: exponential_excess(q.T * q.delta if q.max_kl is None else sum_up(q.max_kl)),
        optional=("max_kl",),
        assumes=_AC,
    ),
    _sharp(
        "martingale_chi2",
        "Martingale chi2",
        r"\mathrm{sd}(R)\sqrt{\textstyle\sum_t X_t(\prod_{s<t}(1+X_s)-1)}",
        "this project: orthogonal increments of W",
        ("chi2_max", "reward_sd"),
        _martingale,
        optional=("max_chi2",),
        gap_term=False,
        assumes=_AC,
    ),
    _sharp(
        "cauchy_schwarz",
        "Cauchy-Schwarz by position",
        r"\sum_t\sqrt{\bar C_t\textstyle\sum_{k>t}K_k/2}",
        "this project: Cauchy-Schwarz on the increments of W",
        ("mean_chi2", "mean_kl"),
        lambda q: shifted_sum(np.sqrt(q.mean_chi2), (PINSKER_OF_SUM, q.mean_kl), cap=math.inf, follow=True),
        gap_term=False,
        assumes=_AC,
    ),
    _sharp(
        "first_order",
        "First order",
        r"\mathrm{TV}_{\mathrm{seq}}+\mathrm{sd}(R)\sqrt{\textstyle\sum_t\bar C_t}",
        "this project: J(theta) - J(roll) and L' bounded one by one",
        ("tv_seq", "chi2_sum", "reward_sd"),
        lambda q: unit(q.tv_seq) + q.reward_sd * sqrt_up(q.chi2_sum),
        gap_term=False,
        assumes=_AC,
    ),
)
