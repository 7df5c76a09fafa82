"""Data and a confidence go in, an interval comes out. The unit is the prompt.

:data:`INTERVALS` holds every method for the mean of independent values in a range, all with one signature; their
values are prompt means (:func:`prompt_means`), because the responses to one prompt are not independent.
Intervals of standing MEASURED hold for every sample size; those of standing ESTIMATED only as it grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from bounds._checks import FloatArray, unknown
from bounds.intervals.betting import (
    ConfidenceSequence,
    betting,
    betting_sum,
    betting_these_prompts,
    confidence_sequence,
)
from bounds.intervals.bounded import clopper_pearson, empirical_bernstein, hoeffding
from bounds.intervals.clustered import clustered_mean, clustered_ratio, leave_one_out, student_t
from bounds.intervals.ends import Side, prompt_means
from bounds.intervals.star import star
from bounds.results import Interval

__all__ = [
    "INTERVALS",
    "ConfidenceSequence",
    "MeanInterval",
    "Side",
    "betting",
    "betting_sum",
    "betting_these_prompts",
    "clopper_pearson",
    "clustered_mean",
    "clustered_ratio",
    "confidence_sequence",
    "empirical_bernstein",
    "hoeffding",
    "leave_one_out",
    "mean_interval",
    "prompt_means",
    "star",
    "student_t",
]


class MeanInterval(Protocol):
    """The one signature: independent values in [low, high] -> interval of their mean."""

    def __call__(
        self, values: FloatArray, confidence: float, *, low: float = ..., high: float = ..., side: Side = ...
    ) -> Interval:
        """Return the interval, at that confidence for the sides asked together."""


#: Every method, by the name that tables use; Clopper-Pearson takes values at the ends of the range only.
INTERVALS: Mapping[str, MeanInterval] = MappingProxyType(
    {
        "betting": betting,
        "star": star,
        "empirical_bernstein": empirical_bernstein,
        "hoeffding": hoeffding,
        "clopper_pearson": clopper_pearson,
        "student_t": student_t,
    }
)


def mean_interval(
    values: FloatArray,
    confidence: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    side: Side = "both",
    method: str = "betting",
) -> Interval:
    """Return the interval of one of :data:`INTERVALS`, by name.

    Parameters
    ----------
    values : array [N]
        Independent values, one for each prompt.
    confidence, low, high, side
        As in :func:`betting`.
    method : str
        A name in :data:`INTERVALS`.

    Returns
    -------
    Interval

    Raises
    ------
    ValueError
        For a method that is not known, and as the method says.

    Examples
    --------
    >>> import numpy as np
    >>> mean_interval(np.array([0.0, 1.0, 1.0, 1.0]), 0.9, low=0.0, high=1.0).standing.label
    'measured'
    """
    if method not in INTERVALS:
        raise ValueError(unknown("method", method, INTERVALS))
    return INTERVALS[method](values, confidence, low=low, high=high, side=side)
