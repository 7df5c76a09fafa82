"""Ground truth: small autoregressive problems, enumerated.

Everything is computed from the definitions: the value of both policies, the surrogate, the error, the worst
error over all rewards in [0, 1], and every divergence. With rows of :class:`fractions.Fraction` all of it is
exact, and the Kullback-Leibler divergences are rational upper values within 1e-40.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._rounding import round_up
from bounds.divergence import rows
from bounds.proof.logarithms import log_low
from bounds.rules.profile import Profile

Rows = npt.NDArray[Any]  # float64, or object with Fraction entries
Row = Rows | Sequence[Fraction]

#: Fields of a profile by the array of which they are the largest entry or the sum.
_SUMMED_UP: Mapping[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "delta": ("max_kl", max),
    "epsilon": ("max_tv", max),
    "chi2_max": ("max_chi2", max),
    "support_gap": ("max_gap", max),
    "kl_seq": ("mean_kl", sum),
    "tv_sum": ("mean_tv", sum),
    "chi2_sum": ("mean_chi2", sum),
}
_ARRAYS = ("mean_tv", "mean_kl", "mean_chi2", "max_tv", "max_kl", "max_chi2")
#: What is true of every problem; a support gap has to be declared.
_KNOWABLE = (*(name for name in _SUMMED_UP if name != "support_gap"), "tv_seq", "mean_length", *_ARRAYS)


@dataclass(frozen=True)
class Tree:
    """Two policies on one prompt: ``roll[t]`` and ``theta[t]`` are rows [V^t, V], context = earlier tokens.

    After the token ``end`` (None: no such token) both policies repeat it with probability 1.
    """

    roll: tuple[Rows, ...]
    theta: tuple[Rows, ...]
    end: int | None = None

    def __post_init__(self) -> None:
        width = self.roll[0].shape[-1]
        for t, (p, q) in enumerate(zip(self.roll, self.theta, strict=True)):
            if p.shape != (width**t, width) or q.shape != p.shape:
                raise ValueError(f"rows at position {t} must have shape {(width**t, width)}, got {p.shape}, {q.shape}")

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.roll)

    @property
    def is_exact(self) -> bool:
        """Whether the rows are rational."""
        return self.roll[0].dtype == object

    @cached_property
    def _ratios(self) -> tuple[Rows, ...]:
        """rho_t at each context and token; 0 where roll is 0 (never sampled)."""
        return tuple(_safe_ratio(q, p) for p, q in zip(self.roll, self.theta, strict=True))

    def reach(self, policy: tuple[Rows, ...]) -> list[Rows]:
        """Return the probability of each context at each position, then of each whole response: T+1 arrays [V^t]."""
        mass = [np.array([self._zero + 1])]
        for p in policy:
            mass.append((mass[-1][:, None] * p).ravel())
        return mass

    @property
    def _zero(self) -> Any:
        return self.roll[0].flat[0] * 0

    @cached_property
    def mean_length(self) -> Any:
        """Expected number of tokens under roll, ``end`` included."""
        going = np.array([True])
        total = self._zero
        for mass in self.roll_mass[:-1]:
            total = total + mass[going].sum()
            going = (going[:, None] & (np.arange(self.roll[0].shape[1]) != self.end)).ravel()
        return total

    @cached_property
    def roll_mass(self) -> list[Rows]:
        """Reach under the rollout policy."""
        return self.reach(self.roll)

    @cached_property
    def theta_mass(self) -> list[Rows]:
        """Reach under the training policy."""
        return self.reach(self.theta)

    @cached_property
    def score(self) -> Rows:
        """S(y) = sum_t (rho_t - 1) of each response [V^T]."""
        s = np.array([self._zero])
        for rho in self._ratios:
            s = (s[:, None] + (rho - 1)).ravel()
        return s

    @cached_property
    def phi(self) -> npt.NDArray[np.float64]:
        """Phi(y) = sum_t k3(rho_t) of each response [V^T]; inf where theta is 0."""
        total = np.zeros(1)
        for rho in self._ratios:
            with np.errstate(divide="ignore"):
                step = rows.k3(np.log(rho.astype(np.float64)))
            total = (total[:, None] + step).ravel()
        return total

    @cached_property
    def error_weight(self) -> Rows:
        """theta(y) - roll(y) (1 + S(y)): Error is its sum against the reward."""
        return np.asarray(self.theta_mass[-1] - self.roll_mass[-1] * (1 + self.score))

    def divergences(self, t: int) -> dict[str, Rows]:
        """Return TV, KL, chi2 and missing mass at each context of position t, arrays [V^t]."""
        return self._divergences[t]

    @cached_property
    def _divergences(self) -> list[dict[str, Rows]]:
        p, q = np.concatenate(self.roll), np.concatenate(self.theta)
        if self.is_exact:
            exact = {"tv": tv, "kl": kl_up, "chi2": chi2, "gap": missing}
            pairs = list(zip(p, q, strict=True))
            found = {name: np.array([of(*pair) for pair in pairs], dtype=object) for name, of in exact.items()}
        else:
            found = {
                "tv": rows.total_variation(p, q),
                "kl": rows.kl_divergence(p, q),
                "chi2": rows.chi2_divergence(p, q),
                "gap": rows.missing_mass(p, q),
            }
        edges = np.cumsum([0, *map(len, self.roll)])
        return [{name: values[a:b] for name, values in found.items()} for a, b in pairwise(edges)]


@dataclass(frozen=True)
class Problem:
    """Several prompts with weights that sum to 1, and everything that theory speaks of, enumerated."""

    trees: tuple[Tree, ...]
    weights: tuple[Any, ...] = (1,)

    @property
    def horizon(self) -> int:
        """T."""
        return self.trees[0].horizon

    def mean(self, values: Sequence[Any]) -> Any:
        """Return the average over prompts."""
        return sum(w * v for w, v in zip(self.weights, values, strict=True))

    def objective(self, policy: str, rewards: Sequence[Rows]) -> Any:
        """Return J of "roll" or "theta" for rewards [V^T] of each prompt."""
        return self.mean(
            [(getattr(tree, f"{policy}_mass")[-1] * r).sum() for tree, r in zip(self.trees, rewards, strict=True)]
        )

    def surrogate(self, rewards: Sequence[Rows]) -> Any:
        """Return L' = E_roll[R S]."""
        return self.mean(
            [(tree.roll_mass[-1] * r * tree.score).sum() for tree, r in zip(self.trees, rewards, strict=True)]
        )

    def error(self, rewards: Sequence[Rows]) -> Any:
        """Return J(theta) - J(roll) - L'."""
        return self.objective("theta", rewards) - self.objective("roll", rewards) - self.surrogate(rewards)

    @cached_property
    def worst_error(self) -> Any:
        """The largest |Error| over all rewards in [0, 1]."""
        return self.worst_error_in(0, 1)

    def worst_error_in(self, low: Any, high: Any) -> Any:
        """Return the largest |Error| over all rewards in [low, high]."""
        sides = [(low, high), (-high, -low)]
        return max(
            self.mean([np.maximum(a * tree.error_weight, b * tree.error_weight).sum() for tree in self.trees])
            for a, b in sides
        )

    @cached_property
    def tv_seq(self) -> Any:
        """Total variation of the response distributions, averaged over prompts."""
        return self.mean([abs(tree.theta_mass[-1] - tree.roll_mass[-1]).sum() / 2 for tree in self.trees])

    @cached_property
    def _per_position(self) -> dict[str, list[Any]]:
        names = ("tv", "kl", "chi2", "gap")
        table: dict[str, list[Any]] = {f"{side}_{n}": [] for n in names for side in ("mean", "max")}
        for t in range(self.horizon):
            masses = [tree.roll_mass[t] for tree in self.trees]
            reached = [(tree.roll_mass[t] > 0) | (tree.theta_mass[t] > 0) for tree in self.trees]
            for n in names:
                found = [tree.divergences(t)[n] for tree in self.trees]
                table[f"max_{n}"].append(max(f[r].max() for f, r in zip(found, reached, strict=True)))
                table[f"mean_{n}"].append(self.mean([expected(m, f) for m, f in zip(masses, found, strict=True)]))
        return table

    def per_position(self, name: str) -> list[Any]:
        """Return one of mean_/max_ tv, kl, chi2, gap at each position."""
        return self._per_position[name]

    @property
    def has_support_gap(self) -> bool:
        """Whether theta has mass where roll has none, at a reachable context."""
        return bool(max(self.per_position("max_gap")) > 0)

    def profile(self, *names: str) -> Profile:
        """Return the true profile, rounded up; if any fields are named, these only (support_gap only then)."""
        upper = _rounded_up if self.trees[0].is_exact else _a_little_up
        values = {name: upper(self._true(name)) for name in names or _KNOWABLE}
        return Profile(T=self.horizon, absolutely_continuous=not self.has_support_gap, **values)

    def _true(self, name: str) -> Any:
        """Return the true value of a profile's field: a number, or one for each position."""
        if name == "tv_seq":
            return self.tv_seq
        if name == "mean_length":
            return self.mean([tree.mean_length for tree in self.trees])
        if name in _SUMMED_UP:
            by_position, together = _SUMMED_UP[name]
            return together(self.per_position(by_position))
        return self.per_position(name)


def random_problem(
    rng: np.random.Generator,
    *,
    horizon: int,
    vocabulary: int,
    distance: float = 0.3,
    concentration: float = 1.0,
    zeros_roll: float = 0.0,
    zeros_theta: float = 0.0,
    prompts: int = 1,
    ends: bool = False,
    rational: bool = False,
) -> Problem:
    """Draw a problem; small ``concentration`` gives near-deterministic rows, ``zeros_*`` empties entries.

    ``distance`` mixes an independent row into theta. Where zeros would empty a row, its largest entry stays.
    With ``ends`` the last token ends a response.
    """

    def pair(count: int) -> tuple[Rows, Rows]:
        p = rng.dirichlet(np.full(vocabulary, concentration), size=count)
        q = (1.0 - distance) * p + distance * rng.dirichlet(np.full(vocabulary, concentration), size=count)
        p, q = _with_zeros(rng, p, zeros_roll), _with_zeros(rng, q, zeros_theta)
        if rational:
            return _rationalise(p), _rationalise(q)
        return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)

    trees = []
    for _ in range(prompts):
        pairs = [pair(vocabulary**t) for t in range(horizon)]
        if ends:
            _repeat_end(pairs, vocabulary)
        trees.append(Tree(tuple(p for p, _ in pairs), tuple(q for _, q in pairs), vocabulary - 1 if ends else None))
    weight = Fraction(1, prompts) if rational else 1.0 / prompts
    return Problem(tuple(trees), (weight,) * prompts)


def _repeat_end(pairs: list[tuple[Rows, Rows]], width: int) -> None:
    ended = np.array([False])
    for pair in pairs:
        for rows_ in pair:
            zero = rows_.flat[0] * 0
            rows_[ended] = [zero] * (width - 1) + [zero + 1]
        ended = (ended[:, None] | (np.arange(width) == width - 1)).ravel()


def _with_zeros(rng: np.random.Generator, p: Rows, share: float) -> Rows:
    drop = (rng.random(p.shape) < share) & (p < p.max(axis=1, keepdims=True))
    return np.where(drop, 0.0, p)


def _rationalise(p: Rows, grain: int = 1000) -> Rows:
    weights = np.where(p > 0, np.maximum(1, np.round(p * grain)), 0).astype(int)
    total = weights.sum(axis=1)
    return np.array(
        [[Fraction(int(w), int(s)) for w in row] for row, s in zip(weights, total, strict=True)], dtype=object
    )


def _safe_ratio(q: Rows, p: Rows) -> Rows:
    if p.dtype == object:
        return np.array(
            [[b / a if a else Fraction(0) for a, b in zip(r, s, strict=True)] for r, s in zip(p, q, strict=True)],
            dtype=object,
        )
    return np.divide(q, p, out=np.zeros_like(q), where=p > 0)


def tv(p: Row, q: Row) -> Any:
    """Return the total variation of two rational rows."""
    return sum((abs(y - x) for x, y in zip(p, q, strict=True)), Fraction(0)) / 2


def chi2(p: Row, q: Row) -> Any:
    """Return chi2(theta||roll) of two rational rows: +inf where theta has mass and roll has none."""
    if missing(p, q):
        return float("inf")
    return sum(((y - x) ** 2 / x for x, y in zip(p, q, strict=True) if x > 0), Fraction(0))


def kl_up(p: Row, q: Row) -> Any:
    """Return an upper value of KL(roll||theta) of two rational rows: +inf where roll has mass and theta has none."""
    if missing(q, p):
        return float("inf")
    return sum((x * -log_low(y / x) for x, y in zip(p, q, strict=True) if x > 0), Fraction(0))


def missing(p: Row, q: Row) -> Any:
    """Return theta's mass where roll has none, of two rational rows."""
    return sum((y for x, y in zip(p, q, strict=True) if x == 0), Fraction(0))


def expected(mass: Rows, values: Rows) -> Any:
    """Return the expectation over what has mass (elsewhere a value may be infinite)."""
    return (mass[mass > 0] * values[mass > 0]).sum()


def _rounded_up(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded_up(v) for v in value]
    return value if value == float("inf") else round_up(value)


def _a_little_up(value: Any) -> Any:
    """Return what is above the rounding errors of an enumeration in floats."""
    return np.asarray(value) * (1.0 + 1e-12)
