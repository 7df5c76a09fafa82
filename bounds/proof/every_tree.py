"""Two theorems on every pair of policies up to a size: all whose probabilities are multiples of 1/n, and none left out.

Probabilities are whole numbers here, in units of 1/n, so that everything but a logarithm is exact in int64; of the
logarithms a lower value is taken. The page "Proofs" of the documentation proves them for trees of any size.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bounds._checks import IntArray
from bounds.proof.exact import kl_up, missing, tv

#: Depth T, tokens V and n: 1,771,561 pairs of policies, 1,679,616, and 4,782,969.
SIZES = ((2, 2, 10), (2, 3, 2), (3, 2, 2))
_LOGARITHMS = 10**12  # their unit is its inverse
_INFINITE = 10**15


@cache
def least(depth: int, width: int, parts: int) -> tuple[IntArray, IntArray]:
    """Find the least D, and the least epsilon where theta << roll, of all pairs of policies with a worst error.

    The worst error over all rewards in [0, 1], at which the arrays are, is in units of parts^-depth; so is D, times
    ``_LOGARITHMS`` and not above the true one; epsilon is in units of 1/(2 parts).
    """
    rows = [row for row in itertools.product(range(parts + 1), repeat=width) if sum(row) == parts]
    contexts = [c for t in range(depth) for c in itertools.product(range(width), repeat=t)]
    choices = np.array(list(itertools.product(range(len(rows)), repeat=len(contexts))))
    policies = np.array(rows)[choices]  # [policy, context, token]
    steps = [
        [(contexts.index(y[:t]), y[t]) for t in range(depth)] for y in itertools.product(range(width), repeat=depth)
    ]
    context, token = np.array(steps).T
    q = policies.transpose(1, 2, 0)[context, token]  # [step, response, policy]
    others = np.stack([np.delete(q, t, axis=0).prod(axis=0) for t in range(depth)])
    whole = q.prod(axis=0)
    mass = np.stack([_mass(policies, contexts, c) * parts ** (depth - len(c)) for c in contexts], axis=1)
    kl, distance = (np.array(table) for table in _tables(rows, parts))
    least_kl, least_tv = (np.full(2 * depth * parts**depth, np.iinfo(np.int64).max) for _ in range(2))
    for roll, choice in enumerate(choices):
        ratios = sum(others[t, :, roll, None] * q[t] for t in range(depth))
        weight = whole - np.where(whole[:, roll, None] > 0, ratios - (depth - 1) * whole[:, roll, None], 0)
        worst = (abs(weight).sum(axis=0) + abs(weight.sum(axis=0))) // 2
        reached = mass[roll] > 0  # theta reaches no more where theta << roll
        np.minimum.at(least_kl, worst, _over_policies(np.add, mass[roll, :, None] * kl[choice]))
        np.minimum.at(least_tv, worst, _over_policies(np.maximum, reached[:, None] * distance[choice]))
    return least_kl, least_tv


def _over_policies(operation: np.ufunc, by_row: NDArray[Any]) -> NDArray[Any]:
    """Return for each policy, in the order of ``choices``, the sum or the maximum over contexts [context, row]."""
    return reduce(lambda found, context: operation.outer(found, context).ravel(), by_row)


def _mass(policies: IntArray, contexts: list[tuple[int, ...]], context: tuple[int, ...]) -> IntArray:
    """Return the probability of a context under each policy, in units of parts^-length."""
    steps = [policies[:, contexts.index(context[:t]), token] for t, token in enumerate(context)]
    return np.asarray(np.prod([np.ones(len(policies), dtype=np.int64), *steps], axis=0))


def _tables(rows: list[tuple[int, ...]], parts: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return KL (a lower value), and TV in units of 1/(2 parts) or infinite where theta leaves the support, by rows."""
    exact = [[Fraction(k, parts) for k in row] for row in rows]
    above = Fraction(1, 10**30)  # the upper values of KL are closer than this
    kl = [[_whole(kl_up(p, q), above) for q in exact] for p in exact]
    distance = [[_INFINITE if missing(p, q) else int(2 * parts * tv(p, q)) for q in exact] for p in exact]
    return kl, distance


def _whole(divergence: Fraction | float, above: Fraction) -> int:
    return _INFINITE if isinstance(divergence, float) else max(0, int((divergence - above) * _LOGARITHMS))


def kl_on_every_tree(factor: Fraction = Fraction(1)) -> bool:
    """|Error| <= D for every pair of policies on a grid, on every tree up to a size, with any supports."""
    return all(
        worst * _LOGARITHMS <= factor * divergence
        for size in SIZES
        for worst, divergence in enumerate(least(*size)[0].tolist())
    )


def tv_on_every_tree(factor: Fraction = Fraction(1)) -> bool:
    """|Error| <= T eps (1 - (1-eps)^(T-1)) for every pair of policies on a grid with theta << roll."""
    return all(
        Fraction(worst, parts**depth) <= factor * depth * eps * (1 - (1 - eps) ** (depth - 1))
        for depth, width, parts in SIZES
        for worst, distance in enumerate(least(depth, width, parts)[1].tolist())
        if distance < _INFINITE  # some pair has this error
        for eps in (Fraction(distance, 2 * parts),)
    )
