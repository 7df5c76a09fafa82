"""What every interval of a mean shares: checked data, a confidence spent on one side or two, ends rounded outward.

A method is one function, its *lower end*: (values, low, high, alpha) -> a float that exceeds the mean with
probability at most alpha. The upper end is the lower end of the reflected data, so nothing is derived twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from bounds._checks import FloatArray, IntArray, confidence_level, number, refuse
from bounds._rounding import round_down
from bounds.results import Interval, Standing

Side = Literal["both", "lower", "upper"]
#: (values, low, high, alpha) -> lower end of the mean at error alpha; it may return less than ``low``.
LowerEnd = Callable[[FloatArray, float, float, float], float]


def two_sided(
    lower_end: LowerEnd,
    values: FloatArray,
    confidence: float,
    low: float,
    high: float,
    side: Side,
    standing: Standing,
    method: str,
) -> Interval:
    """Return the interval of a lower end and its reflection; ``side="both"`` spends alpha / 2 on each."""
    values, low, high = checked_values(values, low, high)
    alpha = error_level(confidence, side)
    bottom, top = low, high
    if side != "upper":
        bottom = max(low, lower_end(values, low, high, alpha))
    if side != "lower":
        top = min(high, -lower_end(-values, -high, -low, alpha))
    return Interval(mean_of(values), bottom, top, confidence, standing, f"{method}, {values.size} values")


def checked_values(values: FloatArray, low: float, high: float) -> tuple[FloatArray, float, float]:
    """Return the data as a float64 array of one dimension, each entry in [low, high]."""
    low, high = number("low", low), number("high", high)
    if not low < high:
        refuse("low", "below high", f"{low}, high={high}")
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0:
        refuse("values", "a non-empty array of one dimension", f"an array of shape {data.shape}")
    outside = ~((data >= low) & (data <= high))  # NaN is outside
    if outside.any():
        first = int(np.argmax(outside))
        refuse(f"values[{first}]", f"a number in [{low:.17g}, {high:.17g}]", f"{data[first]:.17g}")
    return data, low, high


def error_level(confidence: float, side: Side) -> float:
    """Return the probability with which each asked end may be wrong, rounded down."""
    if side not in get_args(Side):
        refuse("side", "'both', 'lower' or 'upper'", repr(side))
    spare = 1 - Fraction(confidence_level(confidence))
    return round_down(spare / 2 if side == "both" else spare)


def mean_of(values: FloatArray) -> float:
    """Return the mean of the data, correctly rounded up to the division; infinite or NaN as IEEE has it."""
    if not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            return float(values.sum())
    largest = math.frexp(float(np.abs(values).max()))[1]
    scaled = math.fsum(np.ldexp(values, -largest).tolist()) / values.size
    return math.ldexp(scaled, largest)


def prompt_means(values: FloatArray, prompt: IntArray) -> FloatArray:
    """Average each prompt's responses: the independent units that the intervals take.

    Parameters
    ----------
    values, prompt : arrays [N]
        Value and prompt of each response (any integers; equal ones are the same prompt).

    Returns
    -------
    array [number of prompts]
        In the order of first appearance; each lies between the smallest and the largest of its prompt.

    Raises
    ------
    ValueError
        If the lengths differ, or there are no responses.

    Examples
    --------
    >>> prompt_means(np.array([1.0, 5.0, 0.0]), np.array([7, 3, 7])).tolist()
    [0.5, 5.0]
    """
    values, group = np.asarray(values, dtype=np.float64), prompt_numbers(values, prompt)
    count = np.bincount(group)
    means = prompt_sums(values, group) / count
    smallest, largest = np.full(count.size, math.inf), np.full(count.size, -math.inf)
    np.minimum.at(smallest, group, values)
    np.maximum.at(largest, group, values)
    return np.clip(means, smallest, largest)  # the mean of three equal numbers may round away from them


def prompt_sums(values: FloatArray, group: IntArray) -> FloatArray:
    """Return the sum over each prompt's responses, added in increasing order: the order given does not matter."""
    order = np.argsort(values)
    return np.asarray(np.bincount(group[order], weights=values[order]), dtype=np.float64)


def prompt_numbers(values: FloatArray, prompt: IntArray) -> IntArray:
    """Return prompts numbered 0, 1, ... in the order of first appearance, one for each value."""
    prompt = np.asarray(prompt)
    if prompt.ndim != 1 or prompt.shape != np.shape(values) or prompt.size == 0:
        refuse("prompt", f"a prompt for each value (shape {np.shape(values)}, not empty)", f"shape {prompt.shape}")
    _, first, group = np.unique(prompt, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[group]
