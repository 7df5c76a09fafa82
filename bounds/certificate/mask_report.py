"""What a sequence mask keeps of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bounds._checks import BoolArray
from bounds.certificate.mask_parts import LengthBucket, MaskReport
from bounds.certificate.summary import Summary
from bounds.intervals import betting, clustered_mean, clustered_ratio, prompt_means
from bounds.masks.mask import Mask
from bounds.results import Interval


def kept(m: Summary, mask: Mask) -> BoolArray:
    """Which responses [N] it keeps."""
    if not mask.dropping:
        return np.ones(len(m), dtype=np.bool_)
    return mask.holds({name: m[name] for name in mask.statistics})


def mask_report(m: Summary, mask: Mask, keep: BoolArray, confidence: float) -> MaskReport:
    """Acceptance, also by quarters of the length, and the surrogate with both denominators."""
    acceptance = betting(prompt_means(keep.astype(np.float64), m.prompt), confidence, low=0.0, high=1.0)
    length = m["length"]
    edges = np.unique(np.quantile(length, [0.25, 0.5, 0.75], method="lower"))
    quarter = np.searchsorted(edges, length)
    buckets = []
    for k in np.unique(quarter):
        lengths, those = length[quarter == k], keep[quarter == k]
        buckets.append(LengthBucket(int(lengths.min()), int(lengths.max()), lengths.size, float(those.mean())))
    gains: list[Interval | None] = [None, None]
    if "reward" in m:
        kept_gain = np.where(keep, m.surrogate, 0.0)
        gains[0] = clustered_mean(kept_gain, m.prompt, confidence)
        if keep.any():
            gains[1] = clustered_ratio(kept_gain, keep.astype(np.float64), m.prompt, confidence)
    return MaskReport(
        str(mask),
        replace(acceptance, standing=m.standing, of="responses that are kept"),
        tuple(buckets),
        *gains,
    )
