"""Divergences of probability rows, and the k1, k2, k3 statistics of sampled tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, refuse

_SERIES = tuple(1.0 / math.factorial(k) for k in range(15, 1, -1))  # of expm1(d) - d, highest power first
SERIES_RADIUS = 0.5


def k1(log_ratio: npt.ArrayLike) -> FloatArray:
    """Compute k1 = -d for d = log theta - log roll: mean KL(roll||theta) under any supports; of either sign."""
    return -np.asarray(log_ratio, dtype=np.float64)


def k2(log_ratio: npt.ArrayLike) -> FloatArray:
    """Compute k2 = d^2 / 2 for d = log theta - log roll: biased, non-negative."""
    return np.square(np.asarray(log_ratio, dtype=np.float64)) / 2.0


def k3(log_ratio: npt.ArrayLike) -> FloatArray:
    """Compute k3 = exp(d) - 1 - d for d = log theta - log roll: non-negative, mean KL(roll||theta) if theta << roll.

    Within 1e-15 relative for all d: a series below |d| = 1/2, where the obvious expression cancels.
    Overflows to inf.

    >>> round(float(k3(-10.0)), 6)
    9.000045
    """
    d = np.asarray(log_ratio, dtype=np.float64)
    far = ~(np.abs(d) < SERIES_RADIUS)
    result = np.asarray(k3_series(np.clip(d, -SERIES_RADIUS, SERIES_RADIUS)))
    if far.any():
        with np.errstate(over="ignore", invalid="ignore"):
            result[far] = np.where(d[far] == np.inf, np.inf, np.expm1(d[far]) - d[far])
    return result


def shortfall(log_ratio: npt.ArrayLike) -> FloatArray:
    """Return (1 - exp(d))^+ for d = log theta - log roll, whose mean is the total variation under any supports."""
    return np.asarray(-np.expm1(np.minimum(np.asarray(log_ratio, dtype=np.float64), 0.0)))


def k3_series(d: Any) -> Any:
    """Sum the series of k3 for |d| <= 1/2: an array of NumPy or torch, or a number (numba compiles it)."""
    series = d * _SERIES[0] + _SERIES[1]
    for coefficient in _SERIES[2:]:
        series *= d
        series += coefficient
    return series * d * d


def total_variation(roll: npt.ArrayLike, theta: npt.ArrayLike) -> FloatArray:
    """Compute TV = sum_v |theta - roll| / 2 of rows [..., V] of probabilities."""
    p, q = _rows(roll, theta)
    return np.asarray(np.abs(q - p).sum(axis=-1) / 2.0)


def kl_divergence(roll: npt.ArrayLike, theta: npt.ArrayLike) -> FloatArray:
    """Compute KL(roll||theta) = sum_v roll log(roll / theta) of rows [..., V] of probabilities, in nats.

    Inf where theta lacks a token of roll. Summed as roll * k3(theta/roll) plus theta's mass off roll's
    support, so that no term is negative and nothing cancels.

    Raises
    ------
    ValueError
        If a row is not a probability distribution to 1e-6, or the shapes differ.

    >>> round(float(kl_divergence([.5, .3, .2], [.4, .4, .2])), 6)
    0.025267
    """
    p, q = _rows(roll, theta)
    on = p > 0.0
    with np.errstate(divide="ignore", over="ignore"):
        log_ratio = np.where(on, np.log(np.where(on, q, 1.0)) - np.log(np.where(on, p, 1.0)), 0.0)
    close = on & (np.abs(q - p) < 0.5 * p)
    log_ratio = np.where(close, np.log1p(np.where(close, q - p, 0.0) / np.where(on, p, 1.0)), log_ratio)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = np.where(log_ratio > 1.0, q - p - p * log_ratio, p * k3(np.minimum(log_ratio, 1.0)))
    return np.asarray(np.where(on, terms, q).sum(axis=-1))


def chi2_divergence(roll: npt.ArrayLike, theta: npt.ArrayLike) -> FloatArray:
    """Compute chi2 = sum_v (theta - roll)^2 / roll of rows [..., V]; inf where theta has mass and roll has none."""
    p, q = _rows(roll, theta)
    on = p > 0.0
    terms = np.where(on, np.square(q - p) / np.where(on, p, 1.0), np.where(q > 0.0, math.inf, 0.0))
    return np.asarray(terms.sum(axis=-1))


def two_outcome_kl(log_roll: npt.ArrayLike, log_theta: npt.ArrayLike) -> FloatArray:
    """Compute the KL of the two outcomes "this token" and "another": a lower value of the KL of the whole row.

    Parameters
    ----------
    log_roll, log_theta : arrays of one shape
        Natural logs of the probabilities of one token under both policies; above 0 counts as 0.
    """
    p, q = (np.exp(np.minimum(np.asarray(x, dtype=np.float64), 0.0)) for x in (log_roll, log_theta))
    return np.asarray(kl_divergence(np.stack([p, 1.0 - p], axis=-1), np.stack([q, 1.0 - q], axis=-1)))


def missing_mass(roll: npt.ArrayLike, theta: npt.ArrayLike) -> FloatArray:
    """Sum theta's mass where roll has none, of rows [..., V]: the support gap."""
    p, q = _rows(roll, theta)
    return np.asarray(np.where(p > 0.0, 0.0, q).sum(axis=-1))


def _rows(roll: npt.ArrayLike, theta: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    try:
        p, q = np.asarray(roll, dtype=np.float64), np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError):
        refuse("roll, theta", "arrays of numbers", f"{roll!r:.40}, {theta!r:.40}")
    if p.shape != q.shape or p.ndim == 0:
        refuse("theta", f"an array of the shape of roll {p.shape}", f"shape {q.shape}")
    for name, x in (("roll", p), ("theta", q)):
        total = x.sum(axis=-1)
        if not (np.all(x >= 0.0) and np.all(np.abs(total - 1.0) <= 1e-6)):
            refuse(name, "rows of probabilities that sum to 1", f"sums {total.min():.9g} to {total.max():.9g}")
    return p, q
