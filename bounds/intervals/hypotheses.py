r"""Tests of what a log is taken for, as bets: a wealth that has mean at most 1 where the hypothesis holds.

It exceeds 1/alpha with probability at most alpha then (Markov), for every sample size; so it is the evidence against
the hypothesis. Wealths of independent data multiply, and their mean over levels fixed beforehand is one again. All are
given as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product

import numpy as np

from bounds._checks import FloatArray, IntArray
from bounds.intervals.betting import LEVELS

#: Parts of 1 that are bet on a token's ratio.
TOKEN_LEVELS: FloatArray = 0.5 ** np.arange(1.0, 9.0)
#: Beta laws of success rates (a / (a + b) and a + b) under which groups may have been left out.
_MEANS = (0.1, 0.3, 0.5, 0.7, 0.9)
_SIZES = (0.5, 1.0, 2.0, 5.0)
_LARGEST = 1024  # responses of a group of which success rates are looked at


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
    A law pi of counts that is fixed beforehand is bet on against the laws m_i of the groups, whose mean is m: the
    mean of prod_i pi(k_i) / m(k_i) is prod_i sum_k m_i(k) pi(k) / m(k), at most the power of the mean of its factors,
    which is 1. As m is a mixture of binomial laws, the likelihood of the best of them stands in its place. Bet on are
    beta-binomial laws without 0, without G, and without both, and all laws (Jeffreys' prior). Source: Wasserman,
    Ramdas, Balakrishnan 2020 (PNAS 117).

    Of groups of 8 whose ends were dropped 256 show it where success rates are flat or two-sided, 512 where they are
    beta(2, 2); 64 show nothing: so few look like prompts of middling difficulty.

    Examples
    --------
    >>> counts = np.random.default_rng(0).binomial(8, np.random.default_rng(1).beta(0.5, 0.5, 1000))
    >>> groups = np.bincount(counts, minlength=9)
    >>> kept = groups * (np.arange(9) % 8 > 0)
    >>> filtered(kept) > 10.0 > filtered(groups)
    True
    """
    from scipy.special import betaln, gammaln

    size, number = groups.size - 1, int(groups.sum())
    if not number or size > _LARGEST:
        return 0.0
    counts, seen = np.arange(size + 1), groups > 0
    ends = [counts > 0, counts < size, (counts > 0) & (counts < size)]
    found = []
    for mean, of in product(_MEANS, _SIZES):
        a, b = mean * of, (1.0 - mean) * of
        law = _log_choose(size, counts) + betaln(a + counts, b + size - counts) - betaln(a, b)
        of_all = float(groups[seen] @ law[seen])
        shares = [np.exp(law[left]).sum() if left[seen].all() else math.inf for left in ends]
        found += [of_all - number * math.log(share) for share in shares]
    half = 0.5 * groups.size
    any_law = gammaln(half) - gammaln(number + half) + (gammaln(groups + 0.5) - gammaln(0.5)).sum()
    wealth = _log_mean([_log_mean(found), float(any_law)])
    return wealth - _likeliest_rates(groups, wealth)


def _likeliest_rates(groups: IntArray, enough: float) -> float:
    """Return no less than the log-likelihood of groups under any mixture of success rates.

    It is a nat more at most, unless the search (EM) ends before: where it is above ``enough``, or after a thousand
    steps. No mixture has more than that of m
    and n log max_p D(p), where D(p) is the mean of P(k | p) / m(k) over the groups (Jensen). D is a trigonometric
    polynomial of degree G in 2 t, p = sin^2 t; so at a distance of pi / (64 G) from its largest value, where a point of
    the grid is, it has at least cos(pi / 64) of it (M. Riesz).
    """
    size, number, points = groups.size - 1, int(groups.sum()), 32 * (groups.size - 1)
    seen = np.flatnonzero(groups)
    rate = np.sin((np.arange(points) + 0.5) * math.pi / (2 * points))[:, None] ** 2
    laws = np.exp(_log_choose(size, seen) + np.log(rate) * seen + np.log1p(-rate) * (size - seen))
    weights = np.full(points, 1.0 / points)
    for _ in range(1000):
        mixture = weights @ laws
        likelihood = float(groups[seen] @ np.log(mixture))
        gain = laws @ (groups[seen] / number / mixture)
        more = number * math.log(gain.max() / math.cos(math.pi / 64))
        if likelihood > enough or more < 1.0:
            break
        weights = weights * gain
    return likelihood + more


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
