"""Ground truth: small autoregressive problems, enumerated.

Everything is computed from the definitions: the value of both policies, the surrogate, the error, the worst
error over all rewards in [0, 1], and every divergence. With rows of :class:`fractions.Fraction` all of it is
exact, and the Kullback-Leibler divergences are rational upper values within 1e-40.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds._rounding import round_up
from bounds.divergence import rows
from bounds.rules.profile import Profile

Rows = npt.NDArray[Any]  # float64, or object with Fraction entries
Row = Rows | Sequence[Fraction]

# --- exact numbers with logarithms in them -----------------------------------------------------------------


@cache
def log_low(x: Fraction) -> Fraction:
    """Return a rational lower value of log(x) for a positive rational, within 1e-40 (0 for x = 1)."""
    import mpmath

    if x == 1:
        return Fraction(0)
    with mpmath.workdps(60):
        value = mpmath.log(mpmath.mpf(x.numerator)) - mpmath.log(mpmath.mpf(x.denominator))
        scaled = int(mpmath.floor(value * mpmath.mpf(10) ** 45))
    return Fraction(scaled - 1, 10**45)


@dataclass(frozen=True)
class Number:
    """A rational plus rational multiples of logarithms of primes; unique, so 0 is recognised."""

    rational: Fraction
    logs: dict[int, Fraction] = field(default_factory=dict)

    def plus(self, other: Number, times: Fraction = Fraction(1)) -> Number:
        """Return self + times other."""
        logs = {p: self.logs.get(p, Fraction(0)) + times * other.logs.get(p, 0) for p in {*self.logs, *other.logs}}
        return Number(self.rational + times * other.rational, {p: c for p, c in logs.items() if c})

    @property
    def is_non_negative(self) -> bool:
        """Whether it is certified: False also where the logarithms would be needed to more than 40 digits."""
        slack = Fraction(3, 10**45)
        least = sum((c * (log_low(Fraction(p)) + (slack if c < 0 else 0)) for p, c in self.logs.items()), self.rational)
        return least >= 0


@cache
def log(x: Fraction) -> Number:
    """Return the logarithm of a positive rational."""
    from sympy import factorint

    powers = {p: Fraction(k) for p, k in factorint(x.numerator).items()}
    powers |= {p: Fraction(-k) for p, k in factorint(x.denominator).items()}
    return Number(Fraction(0), {int(p): c for p, c in powers.items() if p != 1})


def total(terms: Iterable[tuple[Number, Fraction]], start: Fraction = Fraction(0)) -> Number:
    """Return the sum of numbers, each with its factor."""
    result = Number(start)
    for number, times in terms:
        result = result.plus(number, times)
    return result


# --- divergences of two rational rows ----------------------------------------------------------------------


def tv(p: Row, q: Row) -> Any:
    """Return the total variation."""
    return sum((abs(y - x) for x, y in zip(p, q, strict=True)), Fraction(0)) / 2


def chi2(p: Row, q: Row) -> Any:
    """Return chi2(theta||roll): +inf where theta has mass and roll has none."""
    if missing(p, q):
        return float("inf")
    return sum(((y - x) ** 2 / x for x, y in zip(p, q, strict=True) if x > 0), Fraction(0))


def kl(p: Row, q: Row) -> Number:
    """Return KL(roll||theta), theta positive where roll is."""
    return total((log(x / y), x) for x, y in zip(p, q, strict=True) if x)


def kl_up(p: Row, q: Row) -> Any:
    """Return an upper value of KL(roll||theta): +inf where roll has mass and theta has none."""
    if missing(q, p):
        return float("inf")
    return sum((x * -log_low(y / x) for x, y in zip(p, q, strict=True) if x > 0), Fraction(0))


def missing(p: Row, q: Row) -> Any:
    """Return theta's mass where roll has none."""
    return sum((y for x, y in zip(p, q, strict=True) if x == 0), Fraction(0))


def cap_up(p: Row, q: Row) -> Any:
    """Return an upper value of the largest |log theta - log roll|: +inf where only one of them is 0."""
    pairs = [(min(x, y), max(x, y)) for x, y in zip(p, q, strict=True) if x != y]
    return max((-log_low(low / high) if low else float("inf") for low, high in pairs), default=Fraction(0))


def _cap_in_floats(p: Rows, q: Rows) -> Rows:
    with np.errstate(divide="ignore"):
        return np.asarray(np.abs(np.log(np.where(p == q, 1.0, q)) - np.log(np.where(p == q, 1.0, p))).max(axis=-1))


_IN_FLOATS: Mapping[str, Callable[..., Any]] = {
    "tv": rows.total_variation,
    "kl": rows.kl_divergence,
    "chi2": rows.chi2_divergence,
    "gap": rows.missing_mass,
    "log_ratio": _cap_in_floats,
}
_RATIONAL: Mapping[str, Callable[..., Any]] = {"tv": tv, "kl": kl_up, "chi2": chi2, "gap": missing, "log_ratio": cap_up}

# --- problems ----------------------------------------------------------------------------------------------

#: Fields of a profile by the array of which they are the largest entry or the sum.
_SUMMED_UP: Mapping[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "delta": ("max_kl", max),
    "epsilon": ("max_tv", max),
    "chi2_max": ("max_chi2", max),
    "support_gap": ("max_gap", max),
    "log_ratio_max": ("max_log_ratio", max),
    "kl_seq": ("mean_kl", sum),
    "tv_sum": ("mean_tv", sum),
    "chi2_sum": ("mean_chi2", sum),
}
_ARRAYS = ("mean_tv", "mean_kl", "mean_chi2", "max_tv", "max_kl", "max_chi2")
#: What is true of every problem; a support gap has to be declared.
KNOWABLE = (*(name for name in _SUMMED_UP if name != "support_gap"), "tv_seq", "mean_length", *_ARRAYS)


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

    @cached_property
    def _ratios(self) -> list[Rows]:
        """rho_t at each context and token; 0 where roll is 0 (never sampled)."""
        pairs = zip(self.roll, self.theta, strict=True)
        return [np.divide(q, p, out=np.zeros_like(q), where=p > 0) for p, q in pairs]

    @cached_property
    def mean_length(self) -> Any:
        """Expected number of tokens under roll, ``end`` included."""
        going, length = np.array([True]), 0
        for mass in self.roll_mass[:-1]:
            length = length + mass[going].sum()
            going = (going[:, None] & (np.arange(self.roll[0].shape[1]) != self.end)).ravel()
        return length

    @cached_property
    def roll_mass(self) -> list[Rows]:
        """Probability of each context at each position under roll, then of each whole response: T+1 arrays [V^t]."""
        return _reach(self.roll)

    @cached_property
    def theta_mass(self) -> list[Rows]:
        """The same under theta."""
        return _reach(self.theta)

    @cached_property
    def score(self) -> Rows:
        """S(y) = sum_t (rho_t - 1) of each response [V^T]."""
        return _summed(rho - 1 for rho in self._ratios)

    @cached_property
    def phi(self) -> Rows:
        """Phi(y) = sum_t k3(rho_t) of each response [V^T], in floats; inf where theta is 0."""
        with np.errstate(divide="ignore"):
            return _summed(rows.k3(np.log(rho.astype(np.float64))) for rho in self._ratios)

    @cached_property
    def error_weight(self) -> Rows:
        """theta(y) - roll(y) (1 + S(y)): Error is its sum against the reward."""
        return np.asarray(self.theta_mass[-1] - self.roll_mass[-1] * (1 + self.score))

    @cached_property
    def divergences(self) -> list[dict[str, Rows]]:
        """TV, KL, chi2, missing mass and largest |log ratio| at each context of each position, arrays [V^t]."""
        p, q = np.concatenate(self.roll), np.concatenate(self.theta)
        if p.dtype == object:
            pairs = list(zip(p, q, strict=True))
            found = {name: np.array([of(*pair) for pair in pairs], dtype=object) for name, of in _RATIONAL.items()}
        else:
            found = {name: of(p, q) for name, of in _IN_FLOATS.items()}
        edges = np.cumsum([0, *map(len, self.roll)])
        return [{name: values[a:b] for name, values in found.items()} for a, b in pairwise(edges)]


def _reach(policy: tuple[Rows, ...]) -> list[Rows]:
    mass = [np.ones(1, dtype=policy[0].dtype)]
    for p in policy:
        mass.append((mass[-1][:, None] * p).ravel())
    return mass


def _summed(steps: Iterable[Rows]) -> Rows:
    """Return the sum over the steps of each response."""
    total: Any = np.zeros(1, dtype=int)
    for step in steps:
        total = (total[:, None] + step).ravel()
    return np.asarray(total)


@dataclass(frozen=True)
class Problem:
    """Several prompts with weights that sum to 1, and everything that theory speaks of, enumerated."""

    trees: tuple[Tree, ...]
    weights: tuple[Any, ...] = (1,)

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.trees[0].roll)

    def mean(self, values: Sequence[Any]) -> Any:
        """Return the average over prompts."""
        return sum(w * v for w, v in zip(self.weights, values, strict=True))

    def objective(self, policy: str, rewards: Sequence[Rows]) -> Any:
        """Return J of "roll" or "theta" for rewards [V^T] of each prompt."""
        masses = (getattr(tree, f"{policy}_mass")[-1] for tree in self.trees)
        return self.mean([(mass * r).sum() for mass, r in zip(masses, rewards, strict=True)])

    def surrogate(self, rewards: Sequence[Rows]) -> Any:
        """Return L' = E_roll[R S]."""
        return self.mean([(t.roll_mass[-1] * r * t.score).sum() for t, r in zip(self.trees, rewards, strict=True)])

    def error(self, rewards: Sequence[Rows]) -> Any:
        """Return J(theta) - J(roll) - L'."""
        return self.objective("theta", rewards) - self.objective("roll", rewards) - self.surrogate(rewards)

    @cached_property
    def worst_error(self) -> Any:
        """The largest |Error| over all rewards in [0, 1]."""
        return self.worst_error_in(0, 1)

    def worst_error_in(self, low: Any, high: Any) -> Any:
        """Return the largest |Error| over all rewards in [low, high]."""
        weights = [tree.error_weight for tree in self.trees]
        sides = [(low, high), (-high, -low)]
        return max(self.mean([np.maximum(a * weight, b * weight).sum() for weight in weights]) for a, b in sides)

    @cached_property
    def tv_seq(self) -> Any:
        """Total variation of the response distributions, averaged over prompts."""
        return self.mean([abs(tree.theta_mass[-1] - tree.roll_mass[-1]).sum() / 2 for tree in self.trees])

    @cached_property
    def per_position(self) -> dict[str, list[Any]]:
        """Each of mean_/max_ tv, kl, chi2, gap, log_ratio at each position."""
        table: dict[str, list[Any]] = {f"{side}_{n}": [] for n in _RATIONAL for side in ("mean", "max")}
        for t in range(self.horizon):
            masses = [tree.roll_mass[t] for tree in self.trees]
            reached = [(tree.roll_mass[t] > 0) | (tree.theta_mass[t] > 0) for tree in self.trees]
            for n in _RATIONAL:
                found = [tree.divergences[t][n] for tree in self.trees]
                table[f"max_{n}"].append(max(f[r].max() for f, r in zip(found, reached, strict=True)))
                table[f"mean_{n}"].append(self.mean([expected(m, f) for m, f in zip(masses, found, strict=True)]))
        return table

    @property
    def has_support_gap(self) -> bool:
        """Whether theta has mass where roll has none, at a reachable context."""
        return bool(max(self.per_position["max_gap"]) > 0)

    def profile(self, *names: str, **others: Any) -> Profile:
        """Return the true profile, rounded up; if any fields are named, these only (support_gap only then).

        ``others`` are what no enumeration says, as ``reward_range``.
        """
        values = {name: self._truth[name] for name in names or KNOWABLE}
        return Profile(T=self.horizon, absolutely_continuous=not self.has_support_gap, **values, **others)

    @cached_property
    def _truth(self) -> dict[str, Any]:
        """The true value of every field, rounded up: a number, or one for each position."""
        upper = _rounded_up if self.trees[0].roll[0].dtype == object else _a_little_up
        true = {
            **{name: together(self.per_position[by]) for name, (by, together) in _SUMMED_UP.items()},
            **{name: self.per_position[name] for name in _ARRAYS},
            "tv_seq": self.tv_seq,
            "mean_length": self.mean([tree.mean_length for tree in self.trees]),
        }
        return {name: upper(value) for name, value in true.items()}


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
        for policy in pair:
            policy[ended] = [Fraction(0)] * (width - 1) + [Fraction(1)]
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
