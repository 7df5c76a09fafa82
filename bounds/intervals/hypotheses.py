r"""Tests of what a log is taken for, as bets: a wealth that has mean at most 1 where the hypothesis holds.

It exceeds 1/alpha with probability at most alpha then (Markov), for every sample size; so it is the evidence against
the hypothesis. Wealths of independent data multiply, and their mean over levels fixed beforehand is one again. All are
given as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.intervals.betting import LEVELS

#: Parts of 1 that are bet on a token's ratio.
TOKEN_LEVELS: FloatArray = 0.5 ** np.arange(1.0, 9.0)
_ODDS: FloatArray = np.exp2(np.arange(-5.0, 5.5))
_STAKES: FloatArray = np.array([0.1, 0.3, 0.9])


def mean_above_one(values: FloatArray) -> float:
    r"""Bet against E Z <= 1 of independent Z >= 0: the mean over f of prod_i (1 + f (Z_i - 1)).

    Parameters
    ----------
    values : array [N]
        In any order; +inf is allowed.

    Returns
    -------
    float
        Log of the wealth.

    Notes
    -----
    The ratio P = theta/roll of a whole response has E P <= 1, whatever the policies, their supports and the prompt.
    Source: Ville 1939; Waudby-Smith and Ramdas 2024 (JRSS-B 86).

    Examples
    --------
    >>> mean_above_one(np.full(50, 1.5)) > 10.0 > mean_above_one(np.full(50, 1.0))
    True
    """
    values = np.minimum(values, 1e300)
    return _log_mean(np.log1p(level * (values - 1.0)).sum() for level in LEVELS)


def token_ratios_above_one(log_ratios: Iterable[FloatArray]) -> float:
    r"""Bet against E[rho_t | past] <= 1 at every token, in any number of parts.

    Parameters
    ----------
    log_ratios : iterable of arrays [tokens]
        Log theta - log roll of the tokens, of all responses.

    Returns
    -------
    float
        Log of the wealth, the mean over f of prod_t (1 + f (min(rho_t, 2) - 1)): ratios above 2 count as 2, which
        only lowers it.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0.0, 0.1, 10_000)
    >>> token_ratios_above_one([noise + 0.02]) > 10.0 > token_ratios_above_one([noise - 0.005])
    True
    """
    logs = np.zeros(TOKEN_LEVELS.size)
    for d in log_ratios:
        excess = np.expm1(np.minimum(d, math.log(2.0)))
        logs += [np.log1p(level * excess).sum() for level in TOKEN_LEVELS]
    return _log_mean(logs)


def filtered(groups: IntArray) -> float:
    r"""Bet against groups of one size, of 0/1 rewards, being unfiltered: independent, each of its own success rate.

    Parameters
    ----------
    groups : array [G + 1]
        How many of the groups of G >= 2 responses have 0, 1, ..., G successes.

    Returns
    -------
    float
        Log of the wealth.

    Notes
    -----
    For a success rate p, with a_j = P(j successes) and q_j = a_j / C(G, j) = p^j (1-p)^(G-j), the form
    s^2 q_{k-1} - 2 s q_k + q_{k+1} is p^{k-1} (1-p)^{G-k-1} (s (1-p) - p)^2 >= 0, for every k and s; so it is for a
    mixture of rates. Each bet is on its being negative: where groups of no success were dropped, q_1 is too large for
    q_0 and q_2. Of 32 groups of 8 the wealth shows nothing, of some hundreds it does.

    Examples
    --------
    >>> counts = np.random.default_rng(0).binomial(8, np.random.default_rng(1).beta(0.5, 0.5, 1000))
    >>> groups = np.bincount(counts, minlength=9)
    >>> kept = groups * (np.arange(9) % 8 > 0)
    >>> filtered(kept) > 10.0 > filtered(groups)
    True
    """
    size = groups.size - 1
    found = []
    for k in range(1, size):
        some = groups[k - 1 : k + 2]
        choices = _log_choose(size, np.arange(k - 1, k + 2))
        for odds in _ODDS:
            form = np.array([odds**2, -2.0 * odds, 1.0]) * np.exp(choices.min() - choices)
            found += [float(some @ np.log1p(-stake * form / form.max())) for stake in _STAKES]
    return _log_mean(found)


def neighbours_alike(successes: IntArray, size: int) -> float:
    r"""Bet against an order that says nothing: that every ``size`` neighbours share a success rate.

    Parameters
    ----------
    successes : array [blocks]
        How many of each block of ``size`` neighbours are successes.
    size : int

    Returns
    -------
    float
        Log of the wealth.

    Notes
    -----
    If the order is exchangeable, all orders of the same number of successes are equally likely. The wealth is the
    likelihood of this order where rates of blocks are drawn from a beta law, by its mean over all orders (the law of
    the sum of beta-binomials), for two laws.

    Examples
    --------
    >>> alike = np.tile([0, 8, 1, 7], 8)
    >>> neighbours_alike(alike, 8) > 10.0 > neighbours_alike(np.full(32, 4), 8)
    True
    """
    from scipy.special import betaln

    counts, total = np.arange(size + 1), int(successes.sum())
    if not 0 < total < size * successes.size:
        return 0.0
    found = []
    for shape in (0.5, 2.0):
        order = betaln(shape + counts, shape + size - counts) - betaln(shape, shape)
        law = np.exp(order + _log_choose(size, counts))
        sums = _power(law, successes.size)
        found.append(float(order[successes].sum() + _log_choose(size * successes.size, total) - math.log(sums[total])))
    return _log_mean(found)


def _power(law: FloatArray, times: int) -> FloatArray:
    """Return the law of the sum of independent draws [values]."""
    found = np.ones(1)
    while times:
        if times % 2:
            found = np.convolve(found, law)
        law, times = np.convolve(law, law), times // 2
    return found


def _log_choose(n: int, k: int | IntArray) -> FloatArray:
    from scipy.special import gammaln

    found: FloatArray = gammaln(n + 1.0) - gammaln(np.asarray(k) + 1.0) - gammaln(n - np.asarray(k) + 1.0)
    return found


def _log_mean(logs: Iterable[float]) -> float:
    values = np.array(list(logs))
    top = float(values.max())
    return top + math.log(np.exp(values - top).mean()) if math.isfinite(top) else top
