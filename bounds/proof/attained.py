"""What T and delta allow where theta << roll: a search for the worst policies, numerical; no rule rests on it.

``python -m bounds.proof.attained`` prints a table. With g(T, delta) the largest |Error| for KL <= delta at every
context, nothing below T delta is proved where that is above .055, and this says how much of it is attained. A response
enters only through P, W and the steps left, so the worst policies follow from a dynamic programme: at each step
a law of the ratio with mean 1 and E k(rho - 1) <= delta, k(y) = y - log(1+y), that makes the expected worst error
afterwards largest. Here it is solved on a grid, for laws on two ratios (or 1), and the policies that come out are then
simulated as they are: what they attain is attained, within the error of the simulation, however coarse the grid is. It
is too coarse for delta below .002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bounds._checks import FloatArray, IntArray

_STEP = 0.02  # of log P, and of the logarithm of every ratio, so that log P stays on its grid
_LOW, _HIGH = -2.4, 3.2  # log P; above, the worst error grows with P, and below it is that of the last P
_WIDTH, _POINTS = 1.6, 129  # W / max(1, P) lies between -_WIDTH and _WIDTH; beyond, nothing can be gained any more
_MOVES = np.unique(np.round(np.geomspace(1, 150, 30)).astype(int))  # steps of log P at once


@dataclass(frozen=True, slots=True)
class Attained:
    """The worst error of policies with KL <= delta at every context, as simulated, and what the grid says of it."""

    T: int
    delta: float
    simulated: float
    standard_error: float
    on_grid: float

    @property
    def share(self) -> float:
        """How much of T delta is attained."""
        return self.simulated / (self.T * self.delta)


@dataclass(frozen=True, slots=True)
class _Laws:
    """All pairs (down, up) of moves of log P [n], the probability to go up, and to move at all within KL <= delta."""

    down: IntArray
    up: IntArray
    rise: FloatArray
    move: FloatArray


def _laws(delta: float) -> _Laws:
    down, up = (m.ravel() for m in np.meshgrid(_MOVES, _MOVES, indexing="ij"))
    fall, gain = np.expm1(-_STEP * down), np.expm1(_STEP * up)
    rise = -fall / (gain - fall)
    kl = _STEP * ((1.0 - rise) * down - rise * up)  # E k(y) = -E log(1 + y), as E y = 0
    return _Laws(down, up, rise, np.minimum(1.0, delta / kl))


_LOG_P = np.arange(round(_LOW / _STEP), round(_HIGH / _STEP) + 1) * _STEP
_SCALE = np.maximum(1.0, np.exp(_LOG_P))  # of W and of the error at each P
_W = np.linspace(-_WIDTH, _WIDTH, _POINTS)


def _after(values: FloatArray, move: int) -> FloatArray:
    """Return the value [P, W] after log P moves: ``values`` times the scale of the new P, interpolated at the new W."""
    P = np.exp(_LOG_P)
    there = np.clip(np.arange(_LOG_P.size) + move, 0, _LOG_P.size - 1)
    scale = np.maximum(1.0, P * math.exp(_STEP * move))
    w = (_W * _SCALE[:, None] + ((P - 1.0) * math.expm1(_STEP * move))[:, None]) / scale[:, None]
    place = np.clip((w + _WIDTH) / (2.0 * _WIDTH) * (_POINTS - 1), 0.0, _POINTS - 1.0)
    left = np.minimum(place.astype(int), _POINTS - 2)
    rows, share = values[there], place - left
    inside = np.take_along_axis(rows, left, 1) * (1.0 - share) + np.take_along_axis(rows, left + 1, 1) * share
    return np.asarray(np.where(np.abs(w) <= _WIDTH, inside, np.maximum(-w, 0.0)) * scale[:, None])


def solve(T: int, delta: float) -> tuple[float, list[IntArray]]:
    """Return g(T, delta) as the grid has it, and at each step the law that is best at each [P, W] (-1: stay).

    Examples
    --------
    >>> value, policy = solve(2, 0.01)
    >>> 0.0 < value < 0.02 and len(policy) == 2
    True
    """
    laws, values, policy = _laws(delta), np.maximum(-_W, 0.0)[None, :].repeat(_LOG_P.size, 0), []
    for _ in range(T):
        stay = values * _SCALE[:, None]
        downs, ups = ({m: _after(values, way * m) for m in _MOVES.tolist()} for way in (-1, 1))
        best, choice = stay, np.full(stay.shape, -1)
        for k, (down, up) in enumerate(zip(laws.down.tolist(), laws.up.tolist(), strict=True)):
            moved = laws.rise[k] * ups[up] + (1.0 - laws.rise[k]) * downs[down]
            value = stay + laws.move[k] * (moved - stay)
            choice = np.where(value > best, k, choice)
            best = np.maximum(best, value)
        values = best / _SCALE[:, None]
        policy.append(choice)
    start = round(-_LOW / _STEP), _POINTS // 2
    return float(values[start]), policy[::-1]


def simulate(T: int, delta: float, paths: int, rng: np.random.Generator) -> Attained:
    """Solve for the worst policies, and draw responses of the rollout policy: the mean of W^- is their worst error.

    Parameters
    ----------
    T : int
        Horizon.
    delta : float
        KL(roll||theta) at every context is at most this, in nats.
    paths : int
        How many responses are drawn.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    Attained
    """
    on_grid, policy = solve(T, delta)
    laws = _laws(delta)
    log_p, W = np.zeros(paths, dtype=np.int64), np.zeros(paths)
    for choice in policy:
        P = np.exp(_STEP * log_p)
        row = np.clip(log_p - round(_LOW / _STEP), 0, _LOG_P.size - 1)
        place = np.clip(np.round((W / np.maximum(1.0, P) + _WIDTH) / (2.0 * _WIDTH) * (_POINTS - 1)), 0, _POINTS - 1)
        law = choice[row, place.astype(int)]
        moves = (law >= 0) & (rng.random(paths) < laws.move[law])
        change = np.where(rng.random(paths) < laws.rise[law], laws.up[law], -laws.down[law]) * moves
        W += (P - 1.0) * np.expm1(_STEP * change)
        log_p += change
    worst = np.maximum(-W, 0.0)
    return Attained(T, delta, float(worst.mean()), float(worst.std() / math.sqrt(paths)), on_grid)


def main() -> int:
    """Print what is attained of T delta, for several T and delta."""
    rng = np.random.default_rng(0)
    print("numerical, no proof: the worst error of simulated policies with KL <= delta at every context, theta << roll")
    print(f"{'T':>5} {'T delta':>8} {'attained':>9} {'+-':>7} {'share':>6} {'on the grid':>12}")
    for T, divergence in ((2, 0.4096), (8, 0.4096), (32, 0.4096), (128, 0.4096), (128, 1.0), (128, 2.0)):
        found = simulate(T, divergence / T, 400_000, rng)
        print(
            f"{T:5} {divergence:8.4f} {found.simulated:9.4f} {found.standard_error:7.4f} {found.share:6.3f}"
            f" {found.on_grid:12.4f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
