"""A run step by step: every step has its own two policies, and its own certificate."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bounds._checks import BoolArray, FloatArray, confidence_level, number, refuse
from bounds.certificate.estimates import kl_of_responses
from bounds.certificate.guarantees import improvement
from bounds.certificate.mask_report import kept
from bounds.certificate.mask_terms import no_mask
from bounds.certificate.summary import Summary
from bounds.intervals import betting, clustered_mean, prompt_means
from bounds.logs.batch import TraceError
from bounds.logs.traces import TraceSet
from bounds.masks.mask import Mask
from bounds.questions.over_time_answer import RunOverTime, Step

_LEAST = 1e-15  # an error probability that 1 - error can still say


def over_time(
    traces: TraceSet | Summary,
    *,
    confidence: float = 0.95,
    mask: str | Mask | None = None,
    limit: float = 0.5,
    time_uniform: bool = False,
) -> RunOverTime:
    """Divergence, acceptance and guaranteed improvement at each ``step`` of a log.

    Parameters
    ----------
    traces : TraceSet or Summary
        A log whose records name their ``step``.
    confidence : float
        Of each interval; with ``time_uniform``, of all of them at once.
    mask : str or Mask, optional
        Whose acceptance is followed.
    limit : float
        The trust region in nats per response: kl_seq at most this, which bounds the surrogate's error by this times
        the reward's spread. Its upper limits are asymptotic. (At 1 the bound would say nothing.)
    time_uniform : bool
        Whether step k = 1, 2, ... spends 1/(k (k+1)) of the error, so that the intervals of one estimate hold at all
        steps at once, however long the run is.

    Raises
    ------
    TraceError
        If the log names no steps.

    Examples
    --------
    >>> import bounds
    >>> rows = [{"prompt_id": f"p{i}", "step": i // 20, "rollout_logprobs": [-1.0], "train_logprobs": [-1.1]}
    ...         for i in range(40)]
    >>> [s.name for s in over_time(bounds.TraceSet.from_records(rows, horizon=4)).steps]
    ['0', '1']
    """
    confidence, limit = confidence_level(confidence), number("limit", limit, 0.0)
    chosen = mask if mask is None or isinstance(mask, Mask) else Mask.parse(mask)
    m = Summary.of(traces, statistics=chosen.statistics if chosen else ())
    if "step" not in m:
        raise TraceError("the log names no steps (field step)")
    keep = None if chosen is None else kept(m, chosen)
    codes = m["step"].astype(np.int64)
    names = m.labels["step"]
    order = sorted(range(len(names)), key=lambda k: (not names[k].isdigit(), names[k].zfill(20)))
    kl, _ = kl_of_responses(m)
    steps = []
    for place, k in enumerate(order, start=1):
        error = (1.0 - confidence) / (place * (place + 1.0) if time_uniform else 1.0)
        if error < _LEAST:
            refuse("confidence", f"below 1 - {_LEAST:g} x k (k+1) of its {len(names)} steps", confidence)
        steps.append(_step(m, names[k], codes == k, keep, kl, 1.0 - error))
    low, high = m.reading.reward_range
    return RunOverTime(tuple(steps), limit, time_uniform, confidence, high - low)


def _step(m: Summary, name: str, here: BoolArray, keep: BoolArray | None, kl: FloatArray, confidence: float) -> Step:
    prompt = np.unique(m.prompt[here], return_inverse=True)[1]
    log_product, length = m["log_ratio_sum"][here], m["length"][here]
    low, high = m.reading.reward_range
    gap = np.abs(log_product) / length
    reward = m["reward"][here] if "reward" in m else None
    return Step(
        name=name,
        responses=int(here.sum()),
        prompts=int(prompt.max()) + 1,
        kl_seq=clustered_mean(kl[here], prompt, confidence, low=0.0),
        worst_case_error=clustered_mean((high - low) * m["worst_case_error"][here], prompt, confidence, low=0.0),
        acceptance=no_mask(confidence)
        if keep is None
        else replace(
            betting(prompt_means(keep[here].astype(np.float64), prompt), confidence, low=0.0, high=1.0),
            standing=m.standing,
        ),
        ppl_gap=clustered_mean(gap, prompt, confidence, low=0.0),
        surrogate_gain=None if reward is None else clustered_mean(m.surrogate[here], prompt, confidence, low=-math.inf),
        improvement=None
        if reward is None
        else improvement(reward, log_product, prompt, m.reading.reward_range, confidence, m.standing),
    )
