"""Instances that nearly reach a bound.

What an instance attains is a lower value of the true worst error for what is known of it, so no rule that
claims to hold for it may be below; the ratio says how much a rule could still gain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bounds.divergence.rows import k3, kl_divergence, shortfall
from bounds.proof.exact import Problem, Rows, Tree, tv
from bounds.rules.profile import Profile
from bounds.rules.unified import RULES, unified

#: What the binomial sums may be wrong by, relative.
_SUMMATION = 1e-9
_SHORT = 4096  # up to this horizon an instance also says its arrays


@dataclass(frozen=True, slots=True)
class Instance:
    """Two policies by name, their true profile (upper values), and a worst error that they attain (lower value)."""

    name: str
    profile: Profile
    attained: float


def bernoulli(T: int, p: float, q: float) -> Instance:
    """Let roll emit "new" with probability p at every step, and theta with q; the worst reward, by binomial sums.

    Exact in the number k of new tokens, so T may be in the thousands: log P = k log(q/p) + (T-k) log((1-q)/(1-p)),
    W^- = (Phi - k3(P))^+.
    """
    from scipy.stats import binom

    k = np.arange(T + 1)
    log_new, log_old = math.log(q / p), math.log1p((p - q) / (1.0 - p))
    phi = k * float(k3(log_new)) + (T - k) * float(k3(log_old))
    log_product = k * log_new + (T - k) * log_old
    mass = binom.pmf(k, T, p)
    error = float((mass * np.maximum(phi - k3(log_product), 0.0)).sum())
    tv_seq = float((mass * shortfall(log_product)).sum())
    up = 1.0 + _SUMMATION
    kl = float(kl_divergence([p, 1.0 - p], [q, 1.0 - q])) * up
    chi2 = (q - p) ** 2 / (p * (1.0 - p)) * up
    epsilon = abs(q - p) * (1.0 + 1e-15)
    arrays: dict[str, Any] = {}
    if T <= _SHORT:
        each = {"tv": epsilon, "kl": kl, "chi2": chi2}
        arrays = {f"{side}_{name}": [x] * T for side in ("mean", "max") for name, x in each.items()}
    profile = Profile(
        T=T,
        delta=kl,
        epsilon=epsilon,
        chi2_max=chi2,
        kl_seq=T * kl,
        tv_seq=min(1.0, tv_seq * up),
        tv_sum=T * epsilon,
        chi2_sum=T * chi2,
        **arrays,
    )
    return Instance(f"Bernoulli, T = {T}, p = {p:g}, q = {q:g}", profile, error * (1.0 - _SUMMATION))


def bernoulli_with(T: int, p: float, delta: float) -> Instance:
    """Find the Bernoulli instance whose KL per step is ``delta``, q > p."""
    low, high = p, 1.0 - 1e-12
    while low < (q := (low + high) / 2.0) < high:
        low, high = (q, high) if float(kl_divergence([p, 1 - p], [q, 1 - q])) < delta else (low, q)
    return bernoulli(T, p, low)


def best_bernoulli(T: int, delta: float) -> Instance:
    """Find the Bernoulli instance that attains most of T delta, over a grid of p."""
    return max((bernoulli_with(T, float(p), delta) for p in np.geomspace(1e-9, 0.5, 160)), key=lambda i: i.attained)


def kernel(T: int, epsilon: float, rare: float = 1e-9) -> Instance:
    """Let theta(new) = epsilon and roll(new) -> 0 at every step: attains T epsilon (1 - (1-epsilon)^(T-1))."""
    return bernoulli(T, rare, epsilon + rare)


def two_stage(steps: int, divergence: Fraction, rare: Fraction = Fraction(1, 10**12)) -> Problem:
    """Make the instance that D alone cannot exclude: worst error / D -> 1.

    At each of ``steps`` steps theta emits "new" with probability e = divergence / steps and roll hardly ever;
    right after the first "new", theta emits "new" again almost surely and roll hardly ever.
    """
    e, again = divergence / steps, 1 - Fraction(1, 1000)

    def row(policy: str, context: tuple[int, ...]) -> list[Fraction]:
        if not any(context):
            new = (e if policy == "theta" else rare) if len(context) < steps else Fraction(0)
        elif context[-1] == 1 and sum(context) == 1:
            new = again if policy == "theta" else rare
        else:
            new = Fraction(0)
        return [1 - new, new]

    return _tree(steps + 1, 2, row)


def support_gap_example(T: int, gap: Fraction) -> Problem:
    """Put mass ``gap`` of theta off roll's support at each step: with R = 1, Error is T gap, nearly D."""
    return homogeneous(T, Fraction(0), gap)


def homogeneous(T: int, p: Fraction, q: Fraction) -> Problem:
    """Let roll emit "new" with probability p at every step, and theta with q; enumerated."""
    return _tree(T, 2, lambda policy, context: [1 - p, p] if policy == "roll" else [1 - q, q])


def realised_length_example(
    epsilon: Fraction = Fraction(3, 5), rare: Fraction = Fraction(1, 10**6)
) -> tuple[Fraction, Fraction]:
    """Return the worst error, and what the adaptive form says with each response's own length for T: it fails.

    Tokens {end, 1, 2}, T = 3: roll nearly always ends at once, so its responses have length 1 and weight 0;
    theta goes on with probability epsilon at each step.
    """

    def row(policy: str, context: tuple[int, ...]) -> list[Fraction]:
        go = epsilon + rare if policy == "theta" else rare
        return [1 - go, go, Fraction(0)] if len(context) % 2 == 0 else [1 - go, Fraction(0), go]

    return with_realised_lengths(row, epsilon + rare)


def with_realised_lengths(row: Any, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return the worst error, and 2 E sum_t TV(c_t) min(1, (length - t) epsilon); T = 3, token 0 ends a response."""
    T, ended = 3, [Fraction(1), Fraction(0), Fraction(0)]
    problem = _tree(T, 3, lambda policy, context: ended if 0 in context else row(policy, context))
    claimed = Fraction(0)
    for tokens, mass in zip(itertools.product(range(3), repeat=T), problem.trees[0].roll_mass[-1], strict=True):
        length = tokens.index(0) + 1 if 0 in tokens else T
        for t in range(length):
            apart = tv(row("roll", tokens[:t]), row("theta", tokens[:t]))
            claimed += 2 * mass * apart * min(Fraction(1), (length - 1 - t) * epsilon)
    return problem.worst_error, claimed


def _tree(T: int, width: int, row: Callable[[str, tuple[int, ...]], list[Fraction]]) -> Problem:
    def rows(policy: str) -> tuple[Rows, ...]:
        contexts = (itertools.product(range(width), repeat=t) for t in range(T))
        return tuple(np.array([row(policy, context) for context in here], dtype=object) for here in contexts)

    return Problem((Tree(rows("roll"), rows("theta")),), (Fraction(1),))


def instances() -> Iterator[Instance]:
    """Yield the instances of the tightness table, from small to long."""
    for T in (1, 2, 8, 64, 512, 4096):
        for delta in (1e-6, 1e-4, 1e-2):
            for p in (1e-9, 1e-4, 0.01, 0.5):
                yield bernoulli_with(T, p, delta)
        for epsilon in (1e-4, 0.01, 0.3):
            yield kernel(T, epsilon)
    for steps in (1, 7):
        for divergence in (Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2)):
            problem = two_stage(steps, divergence)
            yield Instance(
                f"two stages, {steps} steps, D = {float(divergence):g}",
                problem.profile(),
                float(problem.worst_error) * (1 - 1e-15),
            )


def tightness() -> list[dict[str, Any]]:
    """Find for each rule and horizon the instance that comes nearest.

    Returns
    -------
    list of dict
        With the keys rule, family, T, instance, attained, bound and ratio.

    Raises
    ------
    AssertionError
        If an instance exceeds a rule that claims to hold for it: the rule is then refuted.
    """
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for instance in instances():
        for bound in unified(instance.profile).bounds:
            if instance.attained > bound.value:
                raise AssertionError(f"{instance.name} attains {instance.attained} > {bound}")
            ratio = instance.attained / bound.value if bound.value else 1.0  # both are 0: nothing to gain
            key = (bound.name, instance.profile.T)
            if key not in best or ratio > best[key]["ratio"] + 1e-6:  # ties go to the first
                best[key] = {
                    "rule": bound.name,
                    "family": bound.family,
                    "T": instance.profile.T,
                    "instance": instance.name,
                    "attained": instance.attained,
                    "bound": bound.value,
                    "ratio": ratio,
                }
    order = [r.name for r in RULES]
    return sorted(best.values(), key=lambda row: (order.index(row["rule"]), row["T"]))
