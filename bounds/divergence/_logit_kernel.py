"""The sums over two rows of logits from which all divergences follow, compiled by numba.

Let d = log theta - log roll = (b - a) - C, where C is the difference of the two log-normalisers. Every digit of C
counts: rows a relative 1e-5 apart have |d| of 1e-5. So sums are taken with some c near C, with theta' = roll exp(d')
in theta's place. They reveal the mistake themselves: shift = sum(theta' - roll) = exp(C - c) - 1, in full
relative precision, because every summand is computed as roll expm1(d'), without cancellation. Then, exactly,

* KL(roll||theta) = sum roll k3(d') - (shift - log1p(shift)),
* KL(theta||roll) = sum theta' k3(-d') / (1+shift) + shift / (1+shift) - log1p(shift),
* chi2 = (sum roll expm1(d')^2 - shift^2) / (1+shift)^2,

and TV, where no d' changes its sign with the mistake, is a mean of sum (theta'-roll)^+ and sum (roll-theta')^+ whose
weights are theta's masses on the other side. No sum has terms of both signs but shift. The largest d is the largest d'
less log1p(shift); as it is never below 0, a d' below 0 may count as 0 while it is looked for.

A pair of rows stays in the cache while it is read again. The first read looks for the maxima; the second, in float32,
guesses the difference of the two log-normalisers. Each further one, in float64, takes every sum with that guess, and so
learns by how much it was wrong; one is enough unless that mistake shows in a result. That also allows the second read
to be left out where rows may be log-probs, because no maximum contradicts it: the guess is 0 then.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from bounds.divergence._compiled import kept

_LOG2E = 1.0 / math.log(2.0)
_LN2_HIGH = 0.693147180369123816490  # 32 bits, so that a product with a small whole number is exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH + 2.3190468138462996e-17  # log 2 is a little more than its float64
_ROUND = 1.5 * 2.0**52  # added and taken away again, it leaves the nearest whole number, also in the lowest bits
_TWO_112 = np.float32(2.0**112)  # between the exponents of float16 and float32
_ROUND_32, _ONE_32 = np.float32(1.5 * 2.0**23), np.float32(1.0)
_LOG2E_32, _LN2_HIGH_32, _LN2_LOW_32 = np.float32(_LOG2E), np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST, _LOWEST_32 = -708.0, np.float32(-87.0)  # below, exp leaves the normal numbers
#: Taylor's series of exp(r) - 1 - r, highest power first: to 1e-13 relative for the r that are left, and to 1e-7.
PRECISE = tuple(1.0 / math.factorial(k) for k in range(12, 1, -1))
FAST = PRECISE[-6:]
_FAST_32 = tuple(np.float32(x) for x in FAST[1:])
_BLOCK = 1024
_FAR = 20.0  # a |d| from which a token is summed by itself: with less, one below e^-708 adds less than e^-668
#: Passes over a pair of rows at most.
ROUNDS = 4
_NEAR = 4e-6  # float32 may leave as much between the normalisers of log-probs
_SLACK = 1e-6  # what float32 may have done to the largest log-prob of a row

# Sums may be reordered (that is what makes them vectors), but nothing may be assumed away about inf and NaN; the
# helpers, whose additions round on purpose, may only fuse.
_fused = njit(fastmath={"contract"})
_sums = njit(fastmath={"contract", "reassoc", "nsz"})


def _prefer_512(typing: Any) -> Any:
    """Let the loops of a function use vectors of 512 bits, which LLVM shuns even where they are faster."""

    def attribute(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), attribute


_wide: Any = intrinsic(_prefer_512)


def _floats(row: Any, place: Any) -> Any:
    """Return a row of floats as it is, bit patterns of bfloat16 (uint16) and of float16 (int16) as float32 in place."""


@overload(_floats)
def _widen(row: Any, place: Any) -> Any:
    def same(row: Any, place: Any) -> Any:
        return row

    number = _bfloat16 if row.dtype == types.uint16 else _float16

    def widen(row: Any, place: Any) -> Any:
        _wide()
        for i in range(row.size):
            place[i] = number(row[i])
        return place

    return same if isinstance(row.dtype, types.Float) else widen


@_fused
def _bfloat16(bits: Any) -> Any:
    return np.uint32(np.uint32(bits) << 16).view(np.float32)


@_fused
def _float16(bits: Any) -> Any:
    size = np.uint32((np.uint32(bits) & 0x7FFF) << 13)
    special = np.uint32(size | 0x7F800000).view(np.float32)  # inf or NaN
    x = special if size >= 0x0F800000 else size.view(np.float32) * _TWO_112
    return -x if bits < 0 else x


def _top(row: Any) -> Any:
    """Return the largest number of a row as float64, or NaN where it holds one."""


@overload(_top)
def _top_by_bits(row: Any) -> Any:
    """Compare floats as whole numbers: that makes vectors."""
    whole, number, bits_of, last, inf = _BITS[row.dtype]
    sign, size = whole(last), whole(2**last - 1)

    def top_by_bits(row: Any) -> Any:
        _wide()
        top, largest = whole(-size), whole(0)
        for i in range(row.size):
            bits = bits_of(row[i])
            top = max(top, whole(bits ^ whole((bits >> sign) & size)))  # these have the order of the floats
            largest = max(largest, whole(bits & size))
        return np.float64(number(whole(top ^ whole((top >> sign) & size)))) if largest <= inf else math.nan

    return top_by_bits


_BITS: dict[Any, tuple[Any, ...]] = {
    types.float32: (
        np.int32,
        njit(lambda x: np.int32(x).view(np.float32)),
        njit(lambda x: np.float32(x).view(np.int32)),
        31,
        0xFF << 23,
    ),
    types.float64: (
        np.int64,
        njit(lambda x: np.int64(x).view(np.float64)),
        njit(lambda x: np.float64(x).view(np.int64)),
        63,
        0x7FF << 52,
    ),
}


@_fused
def _series(r: Any, coefficients: Any) -> Any:
    z = coefficients[0]
    for coefficient in coefficients[1:]:
        z = z * r + coefficient
    return z


@_fused
def _exp_32(x: Any) -> Any:
    """Compute the exp of a float32 <= 0, to 3e-7."""
    x = x if x > _LOWEST_32 else _LOWEST_32
    t = x * _LOG2E_32 + _ROUND_32
    k = t - _ROUND_32
    r = (x - k * _LN2_HIGH_32) - k * _LN2_LOW_32
    power = np.int32((np.float32(t).view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
    return power * ((_series(r, _FAST_32) * r + _ONE_32) * r + _ONE_32)


@_fused
def _split(x: Any) -> Any:
    """Return 2^k and r with exp(x) = 2^k exp(r), |r| <= log(2) / 2, for |x| <= 708."""
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    power = np.int64((np.float64(t).view(np.int64) + 1023) << 52).view(np.float64)
    return power, (x - k * _LN2_HIGH) - k * _LN2_LOW


@_fused
def _exp(x: Any, taylor: Any) -> Any:
    power, r = _split(x)
    return power * ((_series(r, taylor) * r + 1.0) * r + 1.0)


@_fused
def _k3(d: Any, taylor: Any) -> Any:
    """Compute exp(d) - 1 - d, also where it cancels: at k = 0 only the series is left."""
    power, r = _split(d)
    return power * (r * r * _series(r, taylor)) + ((power * r - d) + (power - 1.0))


@_fused
def _two_sum(x: Any, y: Any) -> Any:
    """Return the float x + y and what was lost in rounding it (Knuth); the latter is NaN for infinities."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


@_fused
def _log_ratio(a: Any, b: Any, gap: float, low: float) -> Any:
    """Return the float nearest to b - a - (gap + low), however much cancels, and roughly that, also for infinities."""
    difference, lost = _two_sum(np.float64(b), -np.float64(a))
    rough = difference - gap
    return rough + (lost - low), rough


@_sums
def _normalisers(a: Any, b: Any, top_a: Any, top_b: Any) -> Any:
    _wide()
    za: Any = np.float32(0.0)
    zb: Any = np.float32(0.0)
    top_a, top_b = a.dtype.type(top_a), b.dtype.type(top_b)
    for i in range(a.size):
        za += _exp_32(np.float32(a[i] - top_a))
        zb += _exp_32(np.float32(b[i] - top_b))
    return za, zb


@njit
def _guess(a: Any, b: Any, top_a: Any, top_b: Any) -> Any:
    """Return the difference of the log-normalisers, to 1e-6."""
    _wide()
    za = zb = 0.0
    for j in range(0, a.size, _BLOCK):
        part = _normalisers(a[j : j + _BLOCK], b[j : j + _BLOCK], top_a, top_b)
        za, zb = za + part[0], zb + part[1]
    return math.log(zb / za)


@_sums
def _near(a: Any, b: Any, top_a: float, gap: float, low: float, taylor: Any) -> Any:
    """Return the sums but the missing mass, the mass of what is _NEAR, and how many tokens are left out as _FAR.

    The last is the largest d: floats that are not below 0 have the order of their bits, whose maximum is a vector's.
    """
    _wide()
    total = rest = minus_log = kl = shift = distance = chi2 = jeffreys = below = near = far = 0.0
    most = np.int64(0)
    for i in range(a.size):
        x: Any = np.float64(a[i]) - top_a
        d: Any
        d, rough = _log_ratio(a[i], b[i], gap, low)
        size = abs(rough)
        far += 1.0 if size > _FAR else 0.0
        d = d if size <= _FAR else 0.0  # NaN where both have no mass
        most = max(most, np.float64(d).view(np.int64))
        x = x if x > _LOWEST else _LOWEST
        p = _exp(x, taylor[1:])
        k3 = _k3(d, taylor)
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
        below += p if moved > 0.0 else 0.0
        near += p if size <= _NEAR else 0.0
    largest = np.int64(most).view(np.float64)
    return total, rest, minus_log, kl, shift, distance, chi2, jeffreys, below, near, far, largest


@njit
def _add_far(a: Any, b: Any, top_a: float, top_b: float, c: float, gap: float, low: float, sums: Any) -> None:
    """Add what :func:`_near` left out: nothing cancels, but p or q may vanish."""
    for i in range(a.size):
        precise, d = _log_ratio(a[i], b[i], gap, low)
        if abs(d) > _FAR:
            sums[10] = max(sums[10], d if math.isinf(d) else precise)
            x, y = np.float64(a[i]) - top_a, np.float64(b[i]) - top_b - c
            p, q = math.exp(x), math.exp(y)
            moved = q - p
            kl, reverse, chi2 = moved - p * d, q * d - moved, math.exp(y + d) - 2.0 * q + p
            if d == math.inf:
                kl, reverse, chi2 = q, d, d
                sums[9] += q
            elif d == -math.inf:
                kl, reverse, chi2 = -d, p, p
            sums[3] += kl
            sums[4] += moved
            sums[5] += abs(moved)
            sums[6] += chi2
            sums[7] += reverse
            sums[8] += p if moved > 0.0 else 0.0


@njit
def _sums_given(
    a: Any, b: Any, top_a: float, top_b: float, c: float, gap: float, low: float, taylor: Any, sums: Any
) -> float:
    """Fill ``sums`` [11] of a pair of rows whose log-normalisers differ by c, whose logits therefore by gap + low more.

    Returns roll's mass where theta is about the same: a small mistake may change the sign of d there.
    """
    _wide()
    sums[:] = 0.0
    near = 0.0
    for j in range(0, a.size, _BLOCK):
        block_a, block_b = a[j : j + _BLOCK], b[j : j + _BLOCK]
        part = _near(block_a, block_b, top_a, gap, low, taylor)
        for k in range(9):
            sums[k] += part[k]
        sums[7] -= part[3]  # Jeffreys' sum less that of KL(roll||theta) is that of KL(theta||roll)
        near += part[9]
        sums[10] = max(sums[10], part[11])
        if part[10] > 0.0:
            _add_far(block_a, block_b, top_a, top_b, c, gap, low, sums)
    return near


@kept
def sweep(stored_a: Any, stored_b: Any, tops: Any, sums: Any, taylor: Any, tolerance: float) -> None:
    """Fill ``sums`` [n, 11] and the maxima ``tops`` [2, n] of pairs of rows [n, V], of a type that ``_floats`` knows.

    Rows whose maxima are not finite have no sums. ``tolerance`` is the relative error that a mistake in the
    difference of the log-normalisers may leave in TV; what it does to the others is corrected. The sums: roll's total
    mass and its mass below the maximum, both as exp(a - max a); -sum p log p without the normaliser; then sums over
    p k3(d'), theta' - roll, its absolute value, the chi2 terms, theta' k3(-d'), roll where theta' exceeds it, and
    theta' where roll has no mass. The last is no sum but the largest d'.
    """
    _wide()
    n, width = stored_a.shape
    place = np.empty((2, width), np.float32)
    least = -math.log(width) - _SLACK
    for i in range(n):
        a, b = _floats(stored_a[i], place[0]), _floats(stored_b[i], place[1])
        top_a, top_b = _top(a), _top(b)
        tops[0, i], tops[1, i] = top_a, top_b
        if not (math.isfinite(top_a) and math.isfinite(top_b)):
            continue
        if least <= min(top_a, top_b) and max(top_a, top_b) <= _SLACK:
            c, gap, low, mistake = top_a - top_b, 0.0, 0.0, 0.0
        else:
            c, mistake = 0.0, _guess(a, b, top_a, top_b)
            gap, low = _two_sum(top_b, -top_a)
        for _ in range(ROUNDS):
            c += mistake
            gap, lost = _two_sum(gap, mistake)
            low += lost
            near = _sums_given(a, b, top_a, top_b, c, gap, low, taylor, sums[i])
            total, distance = sums[i, 0], sums[i, 5]
            mistake = math.log1p(sums[i, 4] / total)
            # must be small beside the distance, and so must be what it moves across d = 0
            if abs(mistake) <= _NEAR and abs(mistake) * max(1e3 * total, near / tolerance) <= distance:
                break


@kept
def sweep_given(a: Any, b: Any, tops: Any, c: Any, gap: Any, low: Any, taylor: Any, sums: Any) -> None:
    """Fill ``sums`` [n, 12] of a part of the vocabulary, with what :func:`_sums_given` returns as the last.

    ``tops`` [2, n] are the maxima of the whole rows, c, gap and low [n] of their log-normalisers.
    """
    _wide()
    for i in range(a.shape[0]):
        sums[i, 11] = _sums_given(a[i], b[i], tops[0, i], tops[1, i], c[i], gap[i], low[i], taylor, sums[i, :11])


def converged(sums: Any, mistake: Any, tolerance: float) -> Any:
    """Return for which rows [n] of sums [n, 12] :func:`sweep` would stop."""
    slack = np.maximum(1e3 * sums[:, 0], sums[:, 11] / tolerance)
    return (np.abs(mistake) <= _NEAR) & (np.abs(mistake) * slack <= sums[:, 5])
