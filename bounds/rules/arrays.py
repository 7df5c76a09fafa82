"""Arrays [T]: what follows position by position, and sums of a factor times what the positions before or after allow.

All are float64 with margins that cover every rounding, so nothing here is below the truth.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import dot_up, round_up, sqrt_up
from bounds.divergence.inequalities import curve_tangent

_ROOT_HALF = round_up(sqrt_up(Fraction(1, 2))) * (1.0 + 4.0 * 2.0**-53)
_NODES, _LAST_ROOT = 1024, 4.0  # tangents of Pinsker's curve, up to KL = 32, where it is within 1e-13 of 1


def pinsker_array(kl: FloatArray) -> FloatArray:
    """Compute min(1, sqrt(kl/2)) of each entry, upper values."""
    return np.minimum(1.0, root_of_half(kl.copy()))


def curve_array(kl: FloatArray) -> FloatArray:
    r"""Bound the largest TV at each KL by Pinsker's exact curve: upper values, within 4e-6 relative of it.

    The curve is concave in r = sqrt(KL/2) (checked by :func:`bounds.proof.symbolic.curve_concave`), so each of its
    tangents lies above it everywhere, and the nearest of 1024 that are certified one by one lies close. The factor
    above 1 covers its own rounding and the 2 before it.
    """
    root = root_of_half(kl.copy())
    nearest = np.minimum(root * (_NODES / _LAST_ROOT), _NODES).astype(np.intp)
    intercept, slope = np.zeros(_NODES + 1), np.zeros(_NODES + 1)
    for k in np.flatnonzero(np.bincount(nearest)):
        intercept[k], slope[k] = _tangent(int(k))
    line = slope[nearest]
    line *= root
    line += intercept[nearest]
    line *= 1.0 + 8.0 * 2.0**-53
    np.minimum(line, root, out=line)
    return np.minimum(1.0, line)


@cache
def _tangent(k: int) -> tuple[float, float]:
    """Return intercept and slope, upper values, of the tangent that touches the curve where r is (k + 1/2) / 256."""
    intercept, slope = curve_tangent(_LAST_ROOT * (k + 0.5) / _NODES)
    return round_up(intercept), round_up(slope)


def half_root_array(chi2: FloatArray) -> FloatArray:
    """Compute min(1, sqrt(chi2)/2) of each entry, upper values: TV <= sqrt(chi2)/2 by Cauchy-Schwarz."""
    return np.minimum(1.0, np.sqrt(chi2) * (0.5 * (1.0 + 4.0 * 2.0**-53)))


def multiple_array(x: FloatArray, factor: Fraction) -> FloatArray:
    """Multiply each entry, upper values (0 stays 0 and is of no infinite multiple more)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(x == 0.0, 0.0, np.nextafter(x * round_up(factor), math.inf))


def product_up(x: FloatArray, y: FloatArray) -> FloatArray:
    """Multiply entry by entry, upper values (0 stays 0)."""
    return np.where((x == 0.0) | (y == 0.0), 0.0, np.nextafter(x * y, math.inf))


def root_of_half(x: FloatArray) -> FloatArray:
    """Compute sqrt(x/2) of each entry in place, upper values: no root of a float is subnormal, so nothing underflows.

    The root is correctly rounded, and the factor has room for 4 roundings more.
    """
    np.sqrt(x, out=x)
    x *= _ROOT_HALF
    return x


_GROUP, _BLOCK = 32, 2**14  # of positions: the second so that what is in work stays in the cache
_RAISED = 1.0 + 1024.0 * 2.0**-53  # covers 16 roundings of an entry, 31 of a group, 512 of a block, and 2 more
_EARLIER = np.triu(np.ones((_GROUP, _GROUP)), 1)  # column j sums the entries before j


@dataclass(frozen=True, slots=True)
class Route:
    """One way to bound a context shift: ``leave`` of the sum of ``enter`` of the entries before (or after) a position.

    Both may carry 16 roundings: NumPy's log1p and expm1 are taken to be within 8 ulp (the tests compare with mpmath).
    """

    enter: Callable[[FloatArray], FloatArray] = lambda x: x
    leave: Callable[[FloatArray], FloatArray] = lambda x: x


def _log_survival(epsilon: FloatArray) -> FloatArray:
    """Compute -log(1 - epsilon); the last float below 1 stands for 1, and the margins make 1 of it again."""
    x = np.minimum(epsilon, 1.0 - 2.0**-53)
    np.negative(x, out=x)
    np.log1p(x, out=x)
    return np.negative(x, out=x)


def _lost(x: FloatArray) -> FloatArray:
    """Compute 1 - exp(-x), in place."""
    np.negative(x, out=x)
    np.expm1(x, out=x)
    x *= -(1.0 + 16.0 * 2.0**-53)
    return x


SUMMED = Route()  # sum x_s
PINSKER_OF_SUM = Route(leave=root_of_half)  # sqrt(sum K_s / 2)
COUPLED = Route(_log_survival, _lost)  # 1 - prod (1 - epsilon_s)
COMPOUNDED = Route(np.log1p, lambda x: np.expm1(x) * (1.0 + 16.0 * 2.0**-53))  # prod (1 + X_s) - 1


def shifted(size: int, *routes: tuple[Route, FloatArray | None], cap: float = 1.0, follow: bool = False) -> FloatArray:
    """Bound at each position min(cap, routes over arrays from the positions before it), within 1e-12 relative above it.

    ``follow``: from the positions after it. A route over None is none. The work goes block by block. Sums are raised by
    more than they may have lost as the last thing that is done to them: where they are so small that this changes
    nothing, additions were exact.
    """
    shift = np.full(size, cap)
    facing = slice(None, None, -1 if follow else 1)
    for route, given in routes:
        if given is None:
            continue
        array, out, carried = given[facing], shift[facing], 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, size, _BLOCK):
                block = slice(start, start + _BLOCK)
                sums, whole = _running(route.enter(np.ascontiguousarray(array[block])))
                sums += carried
                sums *= _RAISED
                carried = (carried + whole * _RAISED) * (1.0 + 4.0 * 2.0**-53)
                np.minimum(out[block], route.leave(sums), out=out[block])
    return shift


def shifted_sum(factor: FloatArray, *routes: tuple[Route, FloatArray | None], **options: Any) -> Fraction:
    """Bound the sum of a factor, which may carry one rounding, times what :func:`shifted` says of its position."""
    return dot_up(factor, shifted(factor.size, *routes, **options), roundings=1)


def _running(a: FloatArray) -> tuple[FloatArray, float]:
    """Sum the non-negative entries of a block before each, and all, with at most 544 additions in a row.

    Within groups of 32 they are a product with a triangle of ones, whatever the order in which that adds; then the
    totals of the groups before are added.
    """
    if a.size % _GROUP:
        sums, whole = _running(np.append(a, np.zeros(-a.size % _GROUP)))
        return sums[: a.size], whole
    grid = a.reshape(-1, _GROUP)
    totals = np.cumsum(grid @ np.ones(_GROUP))
    if not math.isfinite(totals[-1]):  # 0 times the largest float is 0, and a sum with it is again inf
        grid = np.minimum(grid, sys.float_info.max)
    sums = grid @ _EARLIER
    sums[1:] += totals[:-1, None]
    return sums.ravel(), float(totals[-1])
