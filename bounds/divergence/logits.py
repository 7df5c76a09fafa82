"""All divergences of full-vocabulary rows, from logits, in one pass and without a copy of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._checks import FloatArray, refuse
from bounds.divergence._logit_rows import Rows, rows_of

_CHUNK = 2**17  # elements that one thread takes at a time
_CHUNKS_READ = 16  # for each thread, between two reads


@dataclass(frozen=True, slots=True)
class LogitDivergences:
    """Divergences of the softmaxes of two rows of logits, one entry for each row; in nats.

    Attributes
    ----------
    kl : FloatArray [n]
        KL(roll||theta); inf where theta lacks a token of roll.
    tv : FloatArray [n]
        sum_v |theta - roll| / 2.
    chi2 : FloatArray [n]
        sum_v (theta - roll)^2 / roll; inf where theta has mass and roll has none, or beyond the floats.
    reverse_kl : FloatArray [n]
        KL(theta||roll); inf where roll lacks a token of theta.
    entropy : FloatArray [n]
        Of roll: -sum_v roll log roll.
    missing_mass : FloatArray [n]
        Theta's mass where roll has none (its logit is -inf): the support gap.
    """

    kl: FloatArray
    tv: FloatArray
    chi2: FloatArray
    reverse_kl: FloatArray
    entropy: FloatArray
    missing_mass: FloatArray


def from_logits(rollout_logits: Any, train_logits: Any, *, precise: bool = False) -> LogitDivergences:
    """Compute KL(roll||theta), TV, chi2(theta||roll), KL(theta||roll), entropy and missing mass of rows of logits.

    Each row is normalised by a softmax, so log-probs do as well as logits. -inf is a token without mass.
    Values are accurate to 1e-6 relative, with ``precise`` to 1e-12, also for rows that nearly agree (KL of 1e-10 and
    below), under offsets and logits of 1e4, and for rows with all mass but 1e-10 on one token. (Where chi2 is made by
    a token of a probability below e^-1000, the error is that of its log-probability, |log p| 2^-52.) They are values,
    not bounds: an upper bound must add that error, and what float16 or bfloat16 did to the logits before.

    Rows are read in blocks: beyond the inputs some tens of MB are needed at any n and V. The first call ever compiles
    for some seconds; numba keeps the result on disk, beside the package or in the user's cache (or NUMBA_CACHE_DIR).

    Parameters
    ----------
    rollout_logits, train_logits : array [n, V]
        float16, bfloat16, float32 or float64: NumPy arrays and memory maps, torch tensors on any device (brought
        to the host as they are read), a :class:`~bounds.divergence.LogitFile`, or the path of a file with one array.
        bfloat16 without torch: the type of ml_dtypes, or uint16 bit patterns.
    precise : bool
        1e-12 instead of 1e-6, in up to twice the time.

    Returns
    -------
    LogitDivergences
        NumPy arrays [n].

    Raises
    ------
    ValueError
        If a type or shape is wrong, or a row has NaN, +inf or only -inf (the row is named).
    OSError
        If a file cannot be read.

    Notes
    -----
    ``bounds/divergence/_logit_kernel.py`` has the algebra; directions as in 2512.23075v4, section 2.

    >>> import numpy as np
    >>> row = from_logits(np.log([[.5, .3, .2]]), np.log([[.4, .4, .2]]))
    >>> [round(float(x[0]), 6) for x in (row.kl, row.tv, row.chi2)]
    [0.025267, 0.1, 0.053333]
    """
    roll, theta = rows_of("rollout_logits", rollout_logits), rows_of("train_logits", train_logits)
    if roll.shape != theta.shape:
        refuse("train_logits", f"of the shape of rollout_logits {roll.shape}", f"shape {theta.shape}")
    return _divergences(_sums(roll, theta, precise))


def _sums(roll: Rows, theta: Rows, precise: bool) -> FloatArray:
    """Sum chunks of rows, each small enough for the cache, on all cores; NumPy and the kernel free the GIL."""
    from bounds.divergence._logit_kernel import FAST, PRECISE, sweep

    n, width = roll.shape
    sums = np.empty((n, 10))
    threads = os.cpu_count() or 1
    rows = max(1, _CHUNK // width)
    accuracy = (PRECISE, 1e-13) if precise else (FAST, 5e-8)
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, n, rows * threads * _CHUNKS_READ):
            end = min(n, start + rows * threads * _CHUNKS_READ)
            stored = roll.read(start, end), theta.read(start, end)

            def one(i: int, start: int = start, stored: tuple[Any, Any] = stored) -> None:
                a, b = (x.numbers(s[i : i + rows]) for x, s in zip((roll, theta), stored, strict=True))
                tops = np.stack([_maxima("rollout_logits", a, start + i), _maxima("train_logits", b, start + i)])
                a, b = (x.astype(tops.dtype, copy=False).view() for x in (a, b))  # tops has the wider of the two types
                a.flags.writeable = b.flags.writeable = False  # one compiled function serves memory maps as well
                sweep(a, b, tops, sums[start + i : start + i + len(a)], *accuracy)

            list(pool.map(one, range(0, end - start, rows)))
    return sums


def _maxima(name: str, rows: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    """Return the maximum of each row; what is no distribution shows in it."""
    tops: npt.NDArray[Any] = rows.max(axis=1)
    bad = np.flatnonzero(~np.isfinite(tops))
    if bad.size:
        found = tops[bad[0]]
        domain = "numbers or -inf, not all of them -inf"
        refuse(f"{name}[{first + bad[0]}]", domain, "only -inf" if found == -np.inf else f"{found} among them")
    return tops


def _divergences(sums: FloatArray) -> LogitDivergences:
    """Return what follows from the sums [n, 10] of :func:`~bounds.divergence._logit_kernel.sweep`."""
    total, rest, minus_log, *others = sums.T
    kl, shift, distance, chi2, reverse, below, missing = (x / total for x in others)
    theta = 1.0 + shift  # the mass of theta'
    more, less = (distance + shift) / 2.0, (distance - shift) / 2.0
    above = below + more  # what of it exceeds roll
    log_total = np.log1p(rest + (np.rint(total - rest) - 1.0))  # exact however much of the mass one token has
    return LogitDivergences(
        kl=kl - (shift - np.log1p(shift)),
        tv=np.minimum((more * (theta - above) + less * above) / theta, 1.0),
        chi2=(chi2 - shift**2) / theta**2,
        reverse_kl=reverse / theta + (shift / theta - np.log1p(shift)),
        entropy=log_total + minus_log / total,
        missing_mass=missing / theta,
    )
