r"""This project's bounds: proved, and far below the published ones.

Write P for the product of the ratios rho_t of a response, S = sum_t (rho_t - 1), k3(z) = z - 1 - log z >= 0,
and Phi = sum_t k3(rho_t). With theta << roll, Error = E[R W], W = P - 1 - S, and log P = sum_t log rho_t
gives the identity W = k3(P) - Phi. So the worst reward in [0, 1] has |Error| = E[W^-] <= E[Phi] = D,
whatever T is. The statements below hold for any supports.
"""

from __future__ import annotations

from bounds.theory.profile import SHARP
from bounds.theory.rule import Rule

SHARP_RULES: tuple[Rule, ...] = (
    Rule(
        "trajectory_kl",
        SHARP,
        "Trajectory KL",
        r"D = \mathrm{KL}(P_{\mathrm{roll}}\Vert P_\theta)",
        "this project: identity W = k3(P) - Phi; lower half also in 1612.08967",
        ("kl_seq",),
        lambda q: q.kl_seq,
    ),
    Rule(
        "trajectory_tv",
        SHARP,
        "Trajectory TV",
        r"A = \sum_t \mathbb{E}\,\mathrm{TV}(c_t)",
        "this project: P >= 1 - U^-, so W^- <= U^+",
        ("tv_sum",),
        lambda q: q.tv_sum,
    ),
)
