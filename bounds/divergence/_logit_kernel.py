"""The fast sweep over two rows of logits, compiled by numba.

Two reads of a pair of rows that stay in the cache. The first, in float32, only guesses c, the difference of the two
log-normalisers. The second, in float64, takes every sum with that c and so learns by how much it was wrong
(:mod:`bounds.divergence._logit_sums` has the algebra). Where that correction does not settle every digit, it is made
and the second read repeated; where that does not do either, the row is left to the precise sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_LOG2E = 1.0 / math.log(2.0)
_LN2_HIGH = 0.693147180369123816490  # 32 bits, so that a product with a small whole number is exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH + 2.3190468138462996e-17  # log 2 is a little more than its float64
_ROUND = 1.5 * 2.0**52  # added and taken away again, it leaves the nearest whole number, also in the lowest bits
_ROUND_32 = np.float32(1.5 * 2.0**23)
_LOG2E_32, _LN2_HIGH_32, _LN2_LOW_32 = np.float32(_LOG2E), np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST, _LOWEST_32 = -708.0, np.float32(-87.0)  # below, exp leaves the normal numbers
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(8))
_TAYLOR_32 = tuple(np.float32(x) for x in _TAYLOR[:7])
_BLOCK = 1024
_FAR = 600.0  # a |d| that exp cannot take; also where only one of the two has no mass

# Sums may be reordered (that is what makes them vectors), but nothing may be assumed away about inf and NaN; the
# helpers, whose additions round on purpose, may only fuse.
_fused = njit(fastmath={"contract"})
_sums = njit(fastmath={"contract", "reassoc", "nsz"})


@_fused
def _exp_32(x: Any) -> Any:
    """Compute the exp of a float32 <= 0, to 3e-7."""
    x = x if x > _LOWEST_32 else _LOWEST_32
    t = x * _LOG2E_32 + _ROUND_32
    k = t - _ROUND_32
    r = (x - k * _LN2_HIGH_32) - k * _LN2_LOW_32
    z = _TAYLOR_32[6]
    z = z * r + _TAYLOR_32[5]
    z = z * r + _TAYLOR_32[4]
    z = z * r + _TAYLOR_32[3]
    z = z * r + _TAYLOR_32[2]
    z = (z * r + _TAYLOR_32[1]) * r + _TAYLOR_32[0]
    return z * np.int32((np.float32(t).view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)


@_fused
def _split(x: Any) -> Any:
    """Return 2^k and r with exp(x) = 2^k exp(r), |r| <= log(2) / 2, for |x| <= 708."""
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    power = np.int64((np.float64(t).view(np.int64) + 1023) << 52).view(np.float64)
    return power, (x - k * _LN2_HIGH) - k * _LN2_LOW


@_fused
def _exp(x: Any) -> Any:
    """Compute the exp of -708 <= x <= 0, to 2e-7."""
    power, r = _split(x)
    z = _TAYLOR[6]
    z = z * r + _TAYLOR[5]
    z = z * r + _TAYLOR[4]
    z = z * r + _TAYLOR[3]
    z = z * r + _TAYLOR[2]
    return power * ((z * r + _TAYLOR[1]) * r + _TAYLOR[0])


@_fused
def _k3(d: Any) -> Any:
    """Compute exp(d) - 1 - d, to 1e-7 relative, also where it cancels: at k = 0 only r^2 times a series is left."""
    power, r = _split(d)
    z = _TAYLOR[7]
    z = z * r + _TAYLOR[6]
    z = z * r + _TAYLOR[5]
    z = z * r + _TAYLOR[4]
    z = z * r + _TAYLOR[3]
    z = z * r + _TAYLOR[2]
    return power * (r * r * z) + ((power * r - d) + (power - 1.0))


@_sums
def _normalisers(a: Any, b: Any, top_a: Any, top_b: Any) -> Any:
    za: Any = np.float32(0.0)
    zb: Any = np.float32(0.0)
    for i in range(a.size):
        za += _exp_32(np.float32(a[i] - top_a))
        zb += _exp_32(np.float32(b[i] - top_b))
    return za, zb


@_sums
def _block_sums(a: Any, b: Any, top_a: float, top_b: float, c: float, near: float) -> Any:
    total = rest = minus_log = kl = shift = distance = chi2 = jeffreys = above = close = far = 0.0
    for i in range(a.size):
        x: Any = np.float64(a[i]) - top_a
        d: Any = ((np.float64(b[i]) - top_b) - x) - c
        size = abs(d)
        far += 1.0 if size > _FAR else 0.0
        d = d if size <= _FAR else 0.0  # NaN where both have no mass
        x = x if x > _LOWEST else _LOWEST
        p = _exp(x)
        k3 = _k3(d)
        excess = k3 + d
        moved = p * excess  # theta - roll
        total += p
        rest += p if x < 0.0 else 0.0
        minus_log -= p * x
        kl += p * k3
        shift += moved
        distance += abs(moved)
        chi2 += moved * excess
        jeffreys += moved * d
        above += p + moved if moved > 0.0 else 0.0
        close += p if size <= near else 0.0
    return total, rest, minus_log, kl, shift, distance, chi2, jeffreys, above, close, far


@njit(nogil=True)
def sweep(a: Any, b: Any, tops: Any, sums: Any, settled: Any) -> None:
    """Fill ``sums`` [n, 10] of the pairs of rows a, b [n, V], float32 or float64, with maxima ``tops`` [2, n].

    The maxima are finite, so that no row holds NaN or +inf. ``settled`` [n] says where the sums keep 1e-6.
    """
    for i in range(a.shape[0]):
        row_a, row_b, top_a, top_b = a[i], b[i], tops[0, i], tops[1, i]
        za = zb = 0.0
        for j in range(0, row_a.size, _BLOCK):
            part = _normalisers(row_a[j : j + _BLOCK], row_b[j : j + _BLOCK], top_a, top_b)
            za, zb = za + part[0], zb + part[1]
        c, near = math.log(zb / za), 1e-6
        for _ in range(2):
            sums[i] = 0.0
            close = far = 0.0
            for j in range(0, row_a.size, _BLOCK):
                block = row_a[j : j + _BLOCK], row_b[j : j + _BLOCK]
                part = _block_sums(block[0], block[1], np.float64(top_a), np.float64(top_b), c, near)
                for k in range(9):
                    sums[i, k] += part[k]
                close, far = close + part[9], far + part[10]
            settled[i] = far == 0.0 and _is_settled(sums[i], close, near)
            if settled[i] or far > 0.0:
                break
            c, near = c + math.log1p(sums[i, 4] / sums[i, 0]), 1e-13
        sums[i, 7] -= sums[i, 3]  # Jeffreys' sum less that of KL(roll||theta) is that of KL(theta||roll)


@njit
def _is_settled(sums: Any, close: float, near: float) -> Any:
    """Return whether an error of c that the sums reveal moves no result by 1e-7, and no rounding of d does by more.

    To first order the error is corrected; what is left is at most |shift| times the mass of the tokens whose d
    changes sign with it.
    """
    total, kl, shift, distance, chi2, jeffreys = sums[0], sums[3], abs(sums[4]), sums[5], sums[6], sums[7]
    if distance == 0.0:
        return kl == 0.0
    corrected = shift <= near * total and shift * close <= 5e-8 * distance * total
    small_beside_d = shift * distance <= 1e-3 * jeffreys * total
    return corrected and small_beside_d and jeffreys > 1e-8 * distance and distance > 1e-100 and chi2 < 1e250
