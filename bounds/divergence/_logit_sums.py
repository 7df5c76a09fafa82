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

On the host the sums are taken by a compiled kernel (``_logit_kernel.py``), on a device by torch (here).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds.divergence.rows import SERIES_RADIUS, k3_series

#: How many sums a row has: roll's total mass and its mass below the maximum, both as exp(a - max a); -sum p log p
#: without the normaliser; then sums over p k3(d'), theta' - roll, its absolute value, the chi2 terms, theta' k3(-d'),
#: roll where theta' exceeds it, and theta' where roll has no mass.
WIDTH = 10
_ROUNDS = 4
_SETTLED = 1e-13


def device_sums(a: Any, b: Any, tops: Any) -> Any:
    """Take the sums [r, 10] of torch tensors a, b [r, V] in float64, whose maxima ``tops`` [2, r, 1] are finite."""
    za, zb = ((x - top).exp().sum(1, keepdim=True) for x, top in zip((a, b), tops, strict=True))
    c = (zb / za).log()
    e = c * 0.0
    for _ in range(_ROUNDS):
        sums = _sums_given(a, b, tops, c, e)
        total, shift, distance = sums[:, 0], sums[:, 4], sums[:, 5]
        if bool((shift.abs() <= _SETTLED * distance).all()):
            break
        e = e + (shift / total).log1p()[:, None]
    return sums


def _sums_given(a: Any, b: Any, tops: Any, c: Any, e: Any) -> Any:
    """Take the sums where the log-normalisers differ by c + e."""
    x, y = a - tops[0], (b - tops[1]) - c - e
    p, q = x.exp(), y.exp()
    difference, lost = _exact_difference(b, a)
    offset, lost_offset = _exact_difference(tops[1], tops[0])
    d = (difference - offset) + (lost - lost_offset) - c - e
    far = ~(d.abs() < 1.0)  # there nothing cancels, but p or q may vanish; NaN where neither has mass
    far_d = d[far]
    d[far] = 0.0
    expm1, k3 = d.expm1(), k3_series(d.clip(-SERIES_RADIUS, SERIES_RADIUS))
    k3 = k3.where(d.abs() < SERIES_RADIUS, expm1 - d)
    moved = p * expm1
    kl = p * k3
    reverse = moved * d - kl
    chi2 = moved * expm1
    moved[far], kl[far], reverse[far], chi2[far] = _far_terms(a[far], b[far], p[far], q[far], y[far], far_d)
    minus_log = p * -x.clip(min=-800.0)
    terms = p, p * (x < 0.0), minus_log, kl, moved, moved.abs(), chi2, reverse, p * (moved > 0.0), q * (a == -math.inf)
    sums = a.new_empty(len(a), WIDTH)
    for k, term in enumerate(terms):
        sums[:, k] = term.sum(1)
    return sums


def _far_terms(a: Any, b: Any, p: Any, q: Any, y: Any, d: Any) -> Any:
    roll_lacks, theta_lacks = a == -math.inf, b == -math.inf
    moved = q - p
    kl = q.where(roll_lacks, (moved - p * d).masked_fill(theta_lacks, math.inf))
    reverse = p.where(theta_lacks, (q * d - moved).masked_fill(roll_lacks, math.inf))
    chi2 = p.where(theta_lacks, ((y + d).exp() - 2.0 * q + p).masked_fill(roll_lacks, math.inf))
    return moved, kl, reverse, chi2


def _exact_difference(b: Any, a: Any) -> tuple[Any, Any]:
    """The float b - a and what was lost in rounding it (Knuth's two-sum); NaN for infinities."""
    difference = b - a
    part = difference - b
    return difference, (b - (difference - part)) - (a + part)


def divergences(sums: FloatArray) -> dict[str, FloatArray]:
    """kl, tv, chi2, reverse_kl, entropy and missing_mass, each [n], from the sums [n, 10]."""
    total, rest, minus_log, *others = sums.T
    kl, shift, distance, chi2, reverse, below, missing = (x / total for x in others)
    theta = 1.0 + shift  # the mass of theta'
    more, less = (distance + shift) / 2.0, (distance - shift) / 2.0
    above = below + more  # what of it exceeds roll
    log_total = np.log1p(rest + (np.rint(total - rest) - 1.0))  # exact however much of the mass one token has
    return {
        "kl": kl - (shift - np.log1p(shift)),
        "tv": np.minimum((more * (theta - above) + less * above) / theta, 1.0),
        "chi2": (chi2 - shift**2) / theta**2,
        "reverse_kl": reverse / theta + (shift / theta - np.log1p(shift)),
        "entropy": log_total + minus_log / total,
        "missing_mass": missing / theta,
    }
