r"""The sums over two rows of logits from which all divergences follow, and how they follow.

Let d = log theta - log roll = (b - a) - C, where C is the difference of the two log-normalisers. Every digit of C
counts: rows a relative 1e-5 apart have |d| of 1e-5. So sums are taken with some c near C, with theta' = roll exp(d')
in theta's place. They reveal the mistake themselves: shift = sum(theta' - roll) = exp(C - c) - 1, in full
relative precision, because every summand is computed as roll expm1(d'), without cancellation. Then, exactly,

* KL(roll||theta) = sum roll k3(d') - (shift - log1p(shift)),
* KL(theta||roll) = sum theta' k3(-d') / (1+shift) + shift / (1+shift) - log1p(shift),
* chi2 = (sum roll expm1(d')^2 - shift^2) / (1+shift)^2,

and TV, where no d' changes its sign with the mistake, is a mean of sum (theta'-roll)^+ and sum (roll-theta')^+ whose
weights are theta's masses on the other side. No sum has terms of both signs but shift.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds.divergence.rows import SERIES_RADIUS, k3_series

#: How many sums a row has: roll's total mass and its mass below the maximum, both as exp(a - max a); -sum p log p
#: without the normaliser; then sums over p k3(d'), theta' - roll, its absolute value, the chi2 terms, theta' k3(-d'),
#: theta' where it exceeds roll, and theta' where roll has no mass.
WIDTH = 10
BLOCK = 2**13  # elements of a block: its twenty float64 temporaries stay in the cache of a core
_ROUNDS = 4
_SETTLED = 1e-13


def precise_sums(xp: Any, a: Any, b: Any, tops: Any, block: int = BLOCK) -> Any:
    """Compute the sums [r, 10] of rows a, b [r, V]: of NumPy (``xp`` = numpy), or of torch on any device.

    ``tops`` are the two columns of maxima [r, 1], in float64 and finite.
    """
    blocks = [slice(j, j + block) for j in range(0, a.shape[1], block)]
    za, zb = (
        sum(xp.exp(_double(xp, x[:, s]) - top).sum(-1) for s in blocks) for x, top in ((a, tops[0]), (b, tops[1]))
    )
    c = xp.log(zb / za)[:, None]
    e = c * 0.0
    for _ in range(_ROUNDS):
        sums = sum(_block_sums(xp, _double(xp, a[:, s]), _double(xp, b[:, s]), tops, c, e) for s in blocks)
        total, shift, distance = sums[:, 0], sums[:, 4], sums[:, 5]
        if bool((abs(shift) <= _SETTLED * distance).all()):
            break
        e = e + xp.log1p(shift / total)[:, None]
    return sums


def _block_sums(xp: Any, a: Any, b: Any, tops: Any, c: Any, e: Any) -> Any:
    x, y = a - tops[0], (b - tops[1]) - c - e
    p, q = xp.exp(x), xp.exp(y)
    difference, lost = _exact_difference(b, a)
    offset, lost_offset = _exact_difference(tops[1], tops[0])
    d = (difference - offset) + (lost - lost_offset) - c - e
    far = ~(abs(d) < 1.0)  # there nothing cancels, but p or q may vanish; NaN where neither has mass
    far_d = d[far]
    d[far] = 0.0
    expm1, k3 = xp.expm1(d), k3_series(d.clip(-SERIES_RADIUS, SERIES_RADIUS))
    k3 = xp.where(abs(d) < SERIES_RADIUS, k3, expm1 - d)
    moved = p * expm1
    kl = p * k3
    reverse = moved * d - kl
    chi2 = moved * expm1
    moved[far], kl[far], reverse[far], chi2[far] = _far_terms(xp, a[far], b[far], p[far], q[far], y[far], far_d)
    terms = (
        p,
        p * (x < 0.0),
        p * -x.clip(min=-800.0),
        kl,
        moved,
        abs(moved),
        chi2,
        reverse,
        q * (moved > 0.0),
        q * (a == -math.inf),
    )
    return xp.stack([t.sum(-1) for t in terms], -1)


def _far_terms(xp: Any, a: Any, b: Any, p: Any, q: Any, y: Any, d: Any) -> Any:
    roll_lacks, theta_lacks = a == -math.inf, b == -math.inf
    moved = q - p
    kl = xp.where(roll_lacks, q, xp.where(theta_lacks, math.inf, moved - p * d))
    reverse = xp.where(theta_lacks, p, xp.where(roll_lacks, math.inf, q * d - moved))
    chi2 = xp.where(theta_lacks, p, xp.where(roll_lacks, math.inf, xp.exp(y + d) - 2.0 * q + p))
    return moved, kl, reverse, chi2


def _exact_difference(b: Any, a: Any) -> tuple[Any, Any]:
    """Return the float b - a and what was lost in rounding it (Knuth's two-sum); NaN for infinities."""
    difference = b - a
    part = difference - b
    return difference, (b - (difference - part)) - (a + part)


def _double(xp: Any, x: Any) -> Any:
    return x.astype(np.float64) if xp is np else x.double()


def divergences(sums: FloatArray) -> dict[str, FloatArray]:
    """Compute kl, tv, chi2, reverse_kl, entropy and missing_mass, each [n], from the sums [n, 10]; NumPy only."""
    total, rest, minus_log, *others = sums.T
    kl, shift, distance, chi2, reverse, above, missing = (x / total for x in others)
    theta = 1.0 + shift  # the mass of theta'
    more, less = (distance + shift) / 2.0, (distance - shift) / 2.0
    log_total = np.log1p(rest + (np.rint(total - rest) - 1.0))  # exact however much of the mass one token has
    return {
        "kl": kl - (shift - np.log1p(shift)),
        "tv": np.minimum((more * (theta - above) + less * above) / theta, 1.0),
        "chi2": (chi2 - shift**2) / theta**2,
        "reverse_kl": reverse / theta + (shift / theta - np.log1p(shift)),
        "entropy": log_total + minus_log / total,
        "missing_mass": missing / theta,
    }
