"""How many prompts it takes until an interval shows that a mean is above 0: by simulation, and roughly without."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from bounds._checks import BoolArray, FloatArray
from bounds._rounding import largest_integer
from bounds.intervals.betting import LEVELS
from bounds.intervals.star import grid_step, log_wealths, orders_of

_Value = TypeVar("_Value", int, float)

#: How often a verdict is to come in, where nothing else is said.
POWER = 0.8
#: How many runs are simulated.
RUNS = 200
#: More prompts than this are no plan.
MOST_PROMPTS = 10**6
_ENDLESS = 10**12  # copies of a sample
_STEP = 1.04  # from one number of prompts that is tried to the next
_SURE = 0.9  # that the power is as said, by the runs that are simulated
_AT_ONCE = 100  # runs
_ORDERS = 2  # of those of the interval: fewer are as often enough, and quicker
_MOST_VALUES = 2**10  # more prompts are simulated by sums of some: the bets on so many are small


def prompts_needed(gains: FloatArray, confidence: float, power: float = 0.5) -> int | None:
    r"""Return about how many prompts like these show that their mean is above 0; None if no number would.

    Parameters
    ----------
    gains : array [N]
        The mean of each prompt, at least -1.
    confidence : float
        Of the lower end.
    power : float
        How often it is to be above 0.

    Returns
    -------
    int or None

    Notes
    -----
    At m = 0 the wealth of k prompts is mean_f exp(sum log(1 + f Z)); each sum counts by its mean less as many of its
    standard deviations as ``power`` asks for, as if it were normal.

    Examples
    --------
    >>> prompts_needed(np.tile([-0.1, 0.14], 50), 0.975, power=0.8)
    525
    """
    from scipy.special import ndtri

    with np.errstate(over="ignore"):
        logs = np.log1p(LEVELS[:, None] * np.minimum(gains, 1e300))
    mean, deviation = logs.mean(axis=1), float(ndtri(power)) * logs.std(axis=1)
    target, most = math.log(LEVELS.size) - math.log(1.0 - confidence), _ENDLESS * gains.size
    too_few = largest_integer(
        lambda n: float(np.logaddexp.reduce(n * mean - math.sqrt(n) * deviation)) < target, 0, most
    )
    return None if too_few is None or too_few == most else too_few + 1


def shows_gain(values: FloatArray, confidence: float) -> BoolArray:
    """Return of each sample whether the lower end of :func:`bounds.intervals.star` is above 0, at a range from -1.

    Parameters
    ----------
    values : array [samples, N]
        Means of prompts, at least -1.
    confidence : float
        Of the lower end.

    Returns
    -------
    array [samples] of bool
        By the wealth at the first point of its grid above 0, which decides unless the grid stops before.
    """
    samples, n = values.shape
    target = math.log(2.0 / (1.0 - confidence))
    orders = np.stack(orders_of(np.arange(n, dtype=np.uint64), _ORDERS))
    values = (1.0 + values) / math.exp(grid_step(n)) - 1.0
    wealth = np.full(samples, -math.inf)
    for level in LEVELS[::-1]:
        short = wealth < target  # the others have enough already
        logs = np.log1p(level * values[short]).sum(axis=1) - math.log(LEVELS.size)
        wealth[short] = np.logaddexp(wealth[short], logs)
    short = wealth < target
    gains = np.asfortranarray(1.0 + values[short][:, orders].reshape(-1, n))
    by_star = log_wealths(gains, np.ones(1), target).reshape(-1, len(orders))
    wealth[short] = np.logaddexp(np.logaddexp.reduce(by_star, axis=1) - math.log(len(orders)), wealth[short])
    return np.asarray(wealth >= target)


def shown_often(pool: FloatArray, prompts: int, confidence: float, power: float, runs: int) -> bool:
    """Return whether ``runs`` of so many prompts, drawn from a pool of them, show a gain with probability ``power``.

    It is said at confidence .9, by Clopper-Pearson's limit of the share that does.
    """
    from scipy.special import bdtrik

    misses = runs - 1 - math.ceil(bdtrik(_SURE, runs, power))  # as many are still enough
    rng = np.random.default_rng(prompts)
    size = -(-prompts // _MOST_VALUES)  # of the sums that stand for prompts
    for first in range(0, runs, _AT_ONCE):
        drawn = pool[rng.integers(pool.size, size=(min(_AT_ONCE, runs - first), prompts // size, size))]
        sums = drawn.sum(axis=2) if size > 1 else drawn[..., 0]
        misses -= int(np.count_nonzero(~shows_gain(sums / max(-float(sums.min()), 1.0), confidence)))
        if misses < 0:
            return False
    return True


def fewest_prompts(pool: FloatArray, confidence: float, power: float, runs: int) -> int | None:
    """Return how many prompts show a gain in a share ``power`` of all runs; None if a million do not."""
    about = prompts_needed(pool, confidence, power)
    if about is None or about > MOST_PROMPTS:
        return None
    tried = sorted({max(math.ceil(about * _STEP**k), 2) for k in range(-16, 9)})
    return first_enough(tried, lambda n: shown_often(pool, n, confidence, power, runs))


def first_enough(tried: Sequence[_Value], enough: Callable[[_Value], bool]) -> _Value | None:
    """Return the first of some values that is enough, where all that follow are; None if none is."""
    found = bisect_left(tried, True, key=enough)
    return tried[found] if found < len(tried) else None
