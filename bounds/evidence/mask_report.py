"""What a sequence mask keeps of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bounds.evidence.confidence import clustered_mean
from bounds.evidence.moments import ResponseMoments
from bounds.evidence.traces import TraceSet
from bounds.results import Interval, LengthBucket, MaskReport
from bounds.theory.masking import Mask, masked_mean, mean_of_accepted


def mask_report(traces: TraceSet, m: ResponseMoments, mask: Mask, confidence: float) -> tuple[MaskReport, Interval]:
    """Acceptance, also by quarters of the length, and the surrogate with both denominators."""
    keep = mask.keep(traces.log_ratio, traces.starts, traces.exact.get("kl"))
    acceptance = clustered_mean(keep.astype(np.float64), traces.prompt, confidence, low=0.0, high=1.0)
    edges = np.unique(np.quantile(traces.lengths, [0.25, 0.5, 0.75], method="lower"))
    quarter = np.searchsorted(edges, traces.lengths)
    buckets = []
    for k in np.unique(quarter):
        lengths, kept = traces.lengths[quarter == k], keep[quarter == k]
        buckets.append(LengthBucket(int(lengths.min()), int(lengths.max()), lengths.size, float(kept.mean())))
    gain = None if traces.reward is None else traces.reward * m.score
    report = MaskReport(
        rule=str(mask),
        acceptance=acceptance.value,
        by_length=tuple(buckets),
        surrogate_gain=None if gain is None else masked_mean(gain, keep),
        surrogate_gain_per_accepted=None if gain is None else mean_of_accepted(gain, keep),
    )
    return report, replace(acceptance, method=f"{mask}; {acceptance.method}")
