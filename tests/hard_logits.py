"""Rows of logits that are hard to take divergences of, and the truth about them in mpmath."""

from __future__ import annotations

import math
import sys
from functools import cache

import mpmath
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import real

INF = math.inf
FIELDS = ("kl", "tv", "chi2", "reverse_kl", "entropy", "missing_mass", "max_log_ratio")


def softmax(row) -> list[mpmath.mpf]:
    top = real(max(row))
    weights = [mpmath.mpf(0) if x == -INF else mpmath.exp(real(x) - top) for x in row]
    total = mpmath.fsum(weights)
    return [w / total for w in weights]


def drawn(*ranges: tuple[float, float]):
    """A strategy for logits, in steps that 100 digits can tell from 0; also -inf."""
    return st.one_of(*(st.floats(*r).map(lambda x: round(x, 9)) for r in ranges), st.just(-INF))


@st.composite
def drawn_pairs(draw, logit, width: int):
    """Rows of logits, theta's independent of roll's or a small step from it."""
    size = draw(st.integers(1, width))
    rows = hnp.arrays(np.float64, size, elements=logit).filter(lambda x: x.max() > -INF)
    roll = draw(rows)
    if draw(st.booleans()):
        return roll, draw(rows)
    step = 10.0 ** draw(st.integers(-12, 0))
    return roll, roll + step * draw(hnp.arrays(np.int64, size, elements=st.integers(-9, 9))) / 9


@cache
def truth(roll: tuple, theta: tuple) -> dict[str, mpmath.mpf]:
    """All seven by their definitions, with digits to spare for what cancels in them: 1 - p, and KL near 0."""
    spread = max(max(x) - min(y for y in x if y > -INF) for x in (roll, theta))
    with mpmath.workdps(100 if spread < 80.0 else 700):
        p, q = softmax(roll), softmax(theta)
        pairs = list(zip(p, q, strict=True))

        def kl(pairs):
            if any(a and not b for a, b in pairs):
                return mpmath.inf
            return mpmath.fsum(a * mpmath.log(a / b) for a, b in pairs if a)

        gap = any(b and not a for a, b in pairs)
        return {
            "kl": kl(pairs),
            "tv": mpmath.fsum(abs(a - b) for a, b in pairs) / 2,
            "chi2": mpmath.inf if gap else mpmath.fsum((b - a) ** 2 / a for a, b in pairs if a),
            "reverse_kl": kl([(b, a) for a, b in pairs]),
            "entropy": mpmath.fsum(-a * mpmath.log(a) for a in p if a),
            "missing_mass": mpmath.fsum(b for a, b in pairs if not a),
            "max_log_ratio": mpmath.inf if gap else max(mpmath.log(b / a) for a, b in pairs if b),
        }


def check(found, pair, accuracy: float, above: float = 0.0) -> None:
    """Within ``accuracy`` of the truth, relative; what is beyond the floats is inf, what is below them may be 0.

    The largest log-ratio is an upper value, which may be ``above`` as well.
    """
    for i, rows in enumerate(zip(*pair, strict=True)):
        for name, expected in truth(*(tuple(map(float, row)) for row in rows)).items():
            value = float(getattr(found, name)[i])
            if expected > sys.float_info.max:
                assert value == INF, (name, i)
            else:
                upper = name == "max_log_ratio"
                wrong = (accuracy + upper * above) * expected + mpmath.mpf(10) ** -290
                assert -wrong * (not upper) <= real(value) - expected <= wrong, (name, i, value)


def near(width: int, distance: float, dtype=np.float64, seed: int = 0, scale: float = 3.0):
    rng = np.random.default_rng(seed)
    a = (rng.standard_normal((3, width)) * scale).astype(dtype)
    return a, (a + rng.standard_normal((3, width)) * distance).astype(dtype)


def log_probs(dtype, off: float = 0.0):
    """Rows that add up to 1, or to exp(off): their maxima alone do not show that."""
    pair = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in near(200, 0.1))
    return tuple((x + shift).astype(dtype) for x, shift in zip(pair, (off, 0.0), strict=True))


def peaked(gap: float):
    """All mass but exp(-gap) on one token, which theta gives half or twice as much of the rest."""
    return np.array([[0.0, -gap, -gap - 1]] * 2), np.array([[0.0, -gap - 0.7, -gap], [0.5, 1.2 - gap, -gap]])


HARD = {
    "near, KL 1e-10": near(200, 1e-5),
    "near, KL 1e-10, float32": near(200, 1.5e-5, np.float32),
    "near, KL 1e-16": near(100, 1e-8),
    "near, KL 1e-22": near(100, 1e-11),
    "log-probs": log_probs(np.float64),
    "log-probs, float32": log_probs(np.float32),
    "like log-probs, but they add up to less": log_probs(np.float64, -2.0),
    "like log-probs, one token": (np.array([[0.0, -9.0]]), np.array([[-0.7, 0.0]])),
    "near under an offset": (near(100, 1e-5)[0], near(100, 1e-5)[1] + 1e4),
    "near under an offset, float32": (near(100, 1e-2, np.float32)[0], near(100, 1e-2, np.float32)[1] + np.float32(1e4)),
    "one logit differs": (np.zeros((1, 50)), np.eye(1, 50) * 1e-7),
    "one logit of a wide row differs": (np.zeros((1, 1500)), np.eye(1, 1500) * 1e-3),
    "identical": (near(50, 0.0)[0],) * 2,
    "identical but for an offset": (np.arange(-9.0, 9.0)[None], np.arange(-9.0, 9.0)[None] + 1024.0),
    "offsets of 1e4 both": (near(60, 0.3)[0] + 1e4, near(60, 0.3)[1] - 1e4),
    "logits of 1e4": near(30, 50.0, scale=1e4),
    "logits of 1e4, float32": near(30, 50.0, np.float32, scale=1e4),
    "spread of 700": near(40, 1.0, scale=200.0),
    "far apart": (near(40, 0.0, seed=1)[0] * 3, near(40, 0.0, seed=2)[0] * 3),
    "wide": near(1100, 0.05, np.float32),
    "wide and uniform": (np.zeros((1, 2100), np.float32), near(2100, 0.01, np.float32)[1][:1] / 300),
    "ties at the top": (np.array([[5.0, 5.0, 1.0]]), np.array([[5.0, 4.9999, 1.0]])),
    **{f"peaked, {gap:g}": peaked(gap) for gap in (5.0, 15.0, 23.0, 34.0, 60.0, 300.0, 720.0)},
    "both lack tokens": (np.array([[0.3, 1.0, -INF, -INF]]), np.array([[0.4, 1.2, -INF, -INF]])),
    "both mask with the lowest float": (
        np.array([[0.3, 1.0, -3.4e38]], np.float32),
        np.array([[0.4, 1, -3.4e38]], np.float32),
    ),
    "one masks with the lowest float": (
        np.array([[0.3, 1.0, 0.1]], np.float32),
        np.array([[0.4, 1, -3.4e38]], np.float32),
    ),
    "one masks with -1e4": (np.array([[0.3, 1.0, -1e4], [0.3, 1, 0]]), np.array([[0.4, 1.1, 0.1], [0.3, 1, -1e4]])),
    "much less of next to nothing": (
        np.array([[0.0, 0, -1e4], [0, 1, -7e2]]),
        np.array([[0.0, 1, -9500], [0, 2, -730]]),
    ),
    "twenty apart": (np.array([[0, -10, -700, -720, -740.0]]), np.array([[0, 9.9, -679.9, -700.2, -690.0]])),
    "roll lacks a token": (np.array([[0.3, 1.0, -INF, 2.0]]), np.array([[0.4, 1.1, 0.2, 2.0]])),
    "roll lacks a very rare token": (np.array([[0.0, -INF]]), np.array([[0.0, -40.0]])),
    "theta lacks a token": (np.array([[0.3, 1.0, -1.0]]), np.array([[0.4, 1.1, -INF]])),
    "each lacks one": (np.array([[0.3, -INF, -1.0]]), np.array([[0.4, 1.1, -INF]])),
    "nothing in common": (np.array([[0.3, -INF, 0.0, -INF]]), np.array([[-INF, 1.1, -INF, 0.0]])),
    "one-hot, the same": (np.array([[-INF, 7.0, -INF]]), np.array([[-INF, -3.0, -INF]])),
    "one-hot, another": (np.array([[-INF, 7.0, -INF]]), np.array([[2.0, -INF, -INF]])),
    "one-hot and uniform": (np.array([[-INF, 7.0, -INF], [0, 0, 0]]), np.array([[0.0, 0, 0], [-INF, 7, -INF]])),
    "one token": (np.array([[7.0], [-1e4]]), np.array([[1e4], [3.0]])),
    "two tokens": (np.array([[0.0, 1.0], [0, 40], [1, 1]]), np.array([[0.0, 1.0001], [0, 41], [1, 1 + 1e-9]])),
    "chi2 beyond the floats": (np.array([[0.0, -900.0]]), np.array([[0.0, -1.0]])),
    "chi2 near the end of the floats": (np.array([[0.0, -690.0]]), np.array([[0.0, 3.0]])),
}


def same(found, expected) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
