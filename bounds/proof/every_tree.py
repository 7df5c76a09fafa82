"""Two theorems on every pair of policies up to a size: all whose probabilities are multiples of 1/n, and none left out.

Probabilities are whole numbers here, in units of 1/n, so that everything but a logarithm is exact in int64; of the
logarithms a lower value is taken. The page "Proofs" of the documentation proves them for trees of any size.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import numpy as np

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
    paths = np.moveaxis(np.array(steps), 2, 0)
    q = policies[:, paths[0], paths[1]]  # [policy, response, step]
    mass = np.stack([_mass(policies, contexts, c) * parts ** (depth - len(c)) for c in contexts], axis=1)
    kl, distance, gap = (np.array(table) for table in _tables(rows, parts))
    least_kl, least_tv = (np.full(2 * depth * parts**depth, np.iinfo(np.int64).max) for _ in range(2))
    for roll, p in enumerate(q):
        others = np.stack([np.delete(p, t, axis=1).prod(axis=1) for t in range(depth)], axis=1)
        whole = p.prod(axis=1)
        weight = q.prod(axis=2) - (whole > 0) * ((q * others).sum(axis=2) - (depth - 1) * whole)
        worst = np.maximum(np.maximum(weight, 0).sum(axis=1), np.maximum(-weight, 0).sum(axis=1))
        pairs = choices[roll], choices
        divergence = (mass[roll] * kl[pairs]).sum(axis=1)
        epsilon = np.where((mass[roll] > 0) | (mass > 0), distance[pairs], 0).max(axis=1)
        continuous = ~((mass[roll] > 0) & gap[pairs]).any(axis=1)
        np.minimum.at(least_kl, worst, divergence)
        np.minimum.at(least_tv, worst[continuous], epsilon[continuous])
    return least_kl, least_tv


def _mass(policies: IntArray, contexts: list[tuple[int, ...]], context: tuple[int, ...]) -> IntArray:
    """Return the probability of a context under each policy, in units of parts^-length."""
    steps = [policies[:, contexts.index(context[:t]), token] for t, token in enumerate(context)]
    return np.asarray(np.prod([np.ones(len(policies), dtype=np.int64), *steps], axis=0))


def _tables(rows: list[tuple[int, ...]], parts: int) -> tuple[list[list[int]], list[list[int]], list[list[bool]]]:
    """Return KL (a lower value), TV in units of 1/(2 parts), and whether theta leaves the support, by rows."""
    exact = [[Fraction(k, parts) for k in row] for row in rows]
    above = Fraction(1, 10**30)  # the upper values of KL are closer than this
    kl = [[_whole(kl_up(p, q), above) for q in exact] for p in exact]
    distance = [[int(2 * parts * tv(p, q)) for q in exact] for p in exact]
    return kl, distance, [[missing(p, q) > 0 for q in exact] for p in exact]


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
        if distance <= 2 * parts  # some pair has this error
        for eps in (Fraction(distance, 2 * parts),)
    )
