r"""The bounds of the literature, as printed, with plain Pinsker.

Each is 4 * sum_t (advantage factor) * (context shift): 2 TV(c_t) bounds the expected advantage at a context
(rewards in [0, 1]), and 2 TV of the two context distributions what a change of context does to it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from types import SimpleNamespace

from bounds._rounding import dot_up, round_up
from bounds.divergence.inequalities import pinsker
from bounds.rules.bound import PUBLISHED
from bounds.rules.rule import ABSOLUTE_CONTINUITY, Rule
from bounds.rules.sums import capped_sum, remaining_weights, unit


def _adaptive(q: SimpleNamespace, *, epsilon: Fraction | None, delta: Fraction | None) -> Fraction:
    """Return 4 sum_t Dbar_t min(1, (T-t) epsilon, sqrt((T-t) delta/2)) over the routes that are not None."""
    if q.mean_tv is not None:
        routes = {"epsilon": epsilon, "delta": delta}
        upper = {name: round_up(x) for name, x in routes.items() if x is not None}
        return 4 * dot_up(q.mean_tv, remaining_weights(q.T, **upper), roundings=3)
    uniform = unit(q.epsilon) if q.delta is None else min(unit(q.epsilon), pinsker(q.delta))
    return 4 * uniform * capped_sum(q.T - 1, epsilon=epsilon, delta=delta)


_published = partial(Rule, family=PUBLISHED, assumes=(ABSOLUTE_CONTINUITY,), in_b_star=True)

PUBLISHED_RULES: tuple[Rule, ...] = (
    _published(
        "classical",
        "Classical (Kakade-Langford, TRPO)",
        r"2T(T-1)\,\epsilon^2",
        "2512.23075v4 eq:classical",
        ("epsilon",),
        lambda q: 2 * q.T * (q.T - 1) * q.epsilon**2,
        in_b_star=False,
    ),
    _published(
        "linear",
        "Linear in the summed total variation",
        r"4\sum_t \bar D_t",
        "2512.23075v2 table; 2602.04879 appendix on the tighter bound",
        ("tv_sum",),
        lambda q: 4 * q.tv_sum,
        in_b_star=False,
        assumes=(),  # trajectory_tv, a quarter of it, holds for any supports
    ),
    _published(
        "coupling",
        "Coupling",
        r"4\min(1,\epsilon)\sum_t \min(1,(t-1)\epsilon)",
        "2512.23075v4 thm:coupling",
        ("epsilon",),
        lambda q: 4 * unit(q.epsilon) * capped_sum(q.T - 1, epsilon=q.epsilon),
    ),
    _published(
        "pinsker_marginal_kl",
        "Pinsker-marginal, KL only",
        r"4\min(1,\sqrt{\delta/2})\sum_t \min(1,\sqrt{(t-1)\delta/2})",
        "2512.23075v4 thm:pinsker-marginal",
        ("delta",),
        lambda q: 4 * pinsker(q.delta) * capped_sum(q.T - 1, delta=q.delta),
    ),
    _published(
        "pinsker_marginal_tv",
        "Pinsker-marginal, TV advantage",
        r"4\min(1,\epsilon)\sum_t \min(1,\sqrt{(t-1)\delta/2})",
        "2512.23075v4 thm:pinsker-marginal (TV form, v3 on)",
        ("epsilon", "delta"),
        lambda q: 4 * unit(q.epsilon) * capped_sum(q.T - 1, delta=q.delta),
    ),
    _published(
        "mixed_kl",
        "Mixed, KL only",
        r"4T\min(1,\sqrt{\delta/2})\min(1,\sqrt{D/2})",
        "2512.23075v4 thm:mixed",
        ("delta", "kl_seq"),
        lambda q: 4 * q.T * pinsker(q.delta) * pinsker(q.kl_seq),
    ),
    _published(
        "mixed_tv",
        "Mixed, TV",
        r"4T\min(1,\epsilon)\min(1,\mathrm{TV}_{\mathrm{seq}})",
        "2512.23075v4 thm:mixed (TV form, v3 on)",
        ("epsilon", "tv_seq"),
        lambda q: 4 * q.T * unit(q.epsilon) * unit(q.tv_seq),
    ),
    _published(
        "adaptive_kl",
        "Adaptive, Pinsker route",
        r"4\sum_t \bar D_t\min(1,\sqrt{(T-t)\delta/2})",
        "2512.23075v4 thm:adaptive",
        ("epsilon", "delta"),
        lambda q: _adaptive(q, epsilon=None, delta=q.delta),
        optional=("mean_tv",),
        in_b_star=False,
    ),
    _published(
        "adaptive_tv",
        "Adaptive, coupling route",
        r"4\sum_t \bar D_t\min(1,(T-t)\epsilon)",
        "2512.23075v4 thm:adaptive (TV form, v3 on)",
        ("epsilon",),
        lambda q: _adaptive(q, epsilon=q.epsilon, delta=None),
        optional=("delta", "mean_tv"),
        in_b_star=False,
    ),
    _published(
        "adaptive",
        "Adaptive, best route at each position",
        r"4\sum_t \bar D_t\min(1,(T-t)\epsilon,\sqrt{(T-t)\delta/2})",
        "2512.23075v4 thm:adaptive",
        ("epsilon",),
        lambda q: _adaptive(q, epsilon=q.epsilon, delta=q.delta),
        optional=("delta", "mean_tv"),
    ),
)
