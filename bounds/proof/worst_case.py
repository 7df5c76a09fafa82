"""Instances that reach a bound, or nearly, by what is known: how much the best rule could still gain.

What an instance attains is a lower value of the true worst error for what is known of it, so no rule that
claims to hold for it may be below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from bounds.divergence.rows import k3, kl_divergence, shortfall
from bounds.proof.exact import Problem, Rows, Tree, tv
from bounds.rules.profile import Profile
from bounds.rules.sums import binomial_excess
from bounds.rules.unified import unified

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


def best_bernoulli(T: int, delta: float, tries: int = 160) -> Instance:
    """Find the Bernoulli instance that attains most of T delta, over a grid of p."""
    return max((bernoulli_with(T, float(p), delta) for p in np.geomspace(1e-9, 0.5, tries)), key=lambda i: i.attained)


def kernel(T: int, epsilon: float, rare: float = 1e-12) -> Instance:
    """Let theta(new) = epsilon and roll(new) -> 0 at every step: attains T epsilon (1 - (1-epsilon)^(T-1))."""
    return bernoulli(T, rare, epsilon + rare)


def first_rise(steps: int, divergence: float) -> Instance:
    """Make, for any D, a process whose worst error is all of it but divergence / steps; by sums over the first "new".

    At each step theta emits "new" with probability e = 1 - exp(-divergence / steps) and roll hardly ever, until the
    first "new"; at the step right after it theta emits "new" again almost surely, and roll hardly ever. All ratios are
    above 0, and the reward is 1 unless exactly one "new" was emitted.
    """
    e, rare, left = -math.expm1(-divergence / steps), 1e-12 / steps, 1e-12
    up, down = e / rare, (1.0 - e) / (1.0 - rare)
    before = np.arange(steps)  # steps before the first "new"
    reached = (1.0 - rare) ** before
    after = (1.0 - left) / rare, left / (1.0 - rare)
    error = max(0.0, 1.0 + steps * (down - 1.0) - down**steps)
    for share, ratio in zip((rare, 1.0 - rare), after, strict=True):
        product, score = down**before * up * ratio, before * (down - 1.0) + (up - 1.0) + (ratio - 1.0)
        error += float((reached * rare * share * np.maximum(1.0 + score - product, 0.0)).sum())
    first, second = (float(kl_divergence([rare, 1.0 - rare], [q, 1.0 - q])) for q in (e, 1.0 - left))
    kl_seq = float((reached * (first + rare * second)).sum()) * (1.0 + _SUMMATION)
    name = f"first rise, {steps} steps, D = {divergence:g}"
    return Instance(name, Profile(T=steps + 1, kl_seq=kl_seq), error * (1.0 - _SUMMATION))


def equal_deviation(T: int, chi2: float, mean_reward: float = 0.5) -> Instance:
    r"""Make the process for which martingale_chi2 is exact, at a chi2 per context that is small enough; enumerated.

    With b steps left, Q_b(P) = P^2 ((1+X)^b - 1) - 2 b X P + b X. That (W - m)^2 + Q_b(P) stays what it is at a step is
    a quadratic equation for rho - 1, whose roots have the product -X: two tokens with these ratios have mean 1 and
    variance X. At the end Q_0 = 0, so \|W - m\| = sqrt(f + m^2) for every response; m is chosen for the mean of the
    reward 1[W < m].
    """
    m = (
        math.sqrt(binomial_excess(T, Fraction(chi2)))
        * (2.0 * mean_reward - 1.0)
        / math.sqrt(4.0 * mean_reward * (1.0 - mean_reward))
    )
    rows: tuple[list[Rows], list[Rows]] = ([], [])
    P, W = np.ones(1), np.zeros(1)
    for left in range(T - 1, -1, -1):
        g = math.expm1(left * math.log1p(chi2))
        a = (P - 1.0) ** 2 + P**2 * g
        half = (W - m) * (P - 1.0) + P**2 * g - left * chi2 * P
        root = np.sqrt(half**2 + chi2 * a**2)
        flat = a == 0.0  # P = 1 at the last step: any law will do
        far = np.where(flat, math.sqrt(chi2), (half + np.copysign(root, half)) / np.where(flat, 1.0, a))
        change = np.stack([-far, chi2 / far], axis=1)  # of the ratio, at the two tokens
        if (change < -1.0).any():
            raise ValueError(f"chi2 must be small enough for T = {T}, got chi2={chi2:g}")
        roll = np.abs(change[:, ::-1]) / np.abs(change).sum(axis=1, keepdims=True)
        rows[0].append(roll)
        rows[1].append(roll * (1.0 + change))
        W = (W[:, None] + (P[:, None] - 1.0) * change).ravel()
        P = (P[:, None] * (1.0 + change)).ravel()
    problem = Problem((Tree(tuple(rows[0]), tuple(rows[1])),), (1.0,))
    delta = problem.profile("delta").delta
    profile = Profile(T=T, chi2_max=chi2 * (1.0 + 1e-15), delta=delta, mean_reward=mean_reward)
    name = f"equal deviation, T = {T}, X = {chi2:g}, E R = {mean_reward:g}"
    return Instance(name, profile, float(problem.worst_error) * (1.0 - _SUMMATION))


def two_stage(
    steps: int, divergence: Fraction, rare: Fraction = Fraction(1, 10**12), left: Fraction = Fraction(1, 1000)
) -> Problem:
    """Make a short form of :func:`first_rise`, enumerated: worst error / D -> 1.

    At each of ``steps`` steps theta emits "new" with probability e = divergence / steps and roll hardly ever;
    right after the first "new", theta emits "new" again but with probability ``left``, and roll hardly ever.
    """
    e, again = divergence / steps, 1 - left

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
    """Yield instances of which everything is known, from small to long."""
    for T in (1, 2, 8, 64, 512, 4096):
        for delta in (1e-6, 1e-4, 1e-2):
            for p in (1e-9, 1e-4, 0.01, 0.5):
                yield bernoulli_with(T, p, delta)
        for epsilon in (1e-4, 0.01, 0.3):
            yield kernel(T, epsilon)
    for steps in (1, 7):
        for divergence in (Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2)):
            yield of_problem(f"two stages, {steps} steps, D = {float(divergence):g}", two_stage(steps, divergence))


def of_problem(name: str, problem: Problem, *known: str) -> Instance:
    """Return an enumerated problem of which some fields are known, or all that is true of it."""
    return Instance(name, problem.profile(*known), float(problem.worst_error) * (1 - 1e-15))


def only(instance: Instance, *known: str) -> Instance:
    """Return an instance of which no more is known than these fields."""
    fields = {name: getattr(instance.profile, name) for name in ("T", *known)}
    return Instance(instance.name, Profile(**fields), instance.attained)


@dataclass(frozen=True, slots=True)
class Information:
    """What is known, the best rule for it, instances of which no more is known, and what is open (nothing if exact)."""

    known: str
    rule: str
    instances: Callable[[], Iterator[Instance]]
    open: str = ""


def _kernels() -> Iterator[Instance]:
    for T, epsilon in ((2, 0.3), (8, 0.1), (64, 0.01), (4096, 1e-4), (4096, 1e-3)):
        yield only(kernel(T, epsilon), "epsilon")


def _first_rises() -> Iterator[Instance]:
    for divergence in (1e-6, 1e-3, 0.05, 0.4096, 3.0, 20.0):
        yield first_rise(math.ceil(4000 * divergence), divergence)


def _two_steps() -> Iterator[Instance]:
    """One rise in two steps, with ratios far from 1: total variation is spent at the first step only."""
    for size in (Fraction(1, 1000), Fraction(1, 10), Fraction(9, 10)):
        yield of_problem(f"two steps, A = {float(size):g}", two_stage(1, size, left=Fraction(1, 10**6)), "tv_sum")


def _equal_deviations(mean_reward: float, *known: str) -> Iterator[Instance]:
    for T, chi2 in ((2, 0.4), (3, 0.05), (5, 0.002), (8, 1e-5)):
        yield only(equal_deviation(T, chi2, mean_reward), "chi2_max", *known)


def _small_deviations() -> Iterator[Instance]:
    for T, chi2 in ((2, 1e-3), (5, 1e-4), (8, 1e-6)):
        yield only(equal_deviation(T, chi2), "delta")


def _off_support() -> Iterator[Instance]:
    for T, gap in ((1, Fraction(1, 1000)), (6, Fraction(1, 10**4))):
        yield of_problem(f"off the support, T = {T}", support_gap_example(T, gap), "delta")


def _bernoullis() -> Iterator[Instance]:
    for T, delta in ((64, 1e-3), (4096, 1e-4), (4096, 1e-3)):
        yield only(best_bernoulli(T, delta, tries=24), "delta")


#: From what suffices to what says less; ``python -m bounds.proof.attained`` finds better instances for the last.
INFORMATION: tuple[Information, ...] = (
    Information("T and ε, θ ≪ roll", "exact_tv", _kernels),
    Information("A", "trajectory_tv", _two_steps),
    Information("D", "trajectory_kl", _first_rises),
    Information("T and X, θ ≪ roll", "martingale_chi2", partial(_equal_deviations, 0.5),
                "at larger X: at the end of a long response such a process needs ratios below 0"),
    Information("T, X and E R, θ ≪ roll", "martingale_chi2", partial(_equal_deviations, 0.3, "mean_reward"),
                "at larger X, likewise"),
    Information("T and δ, any supports", "trajectory_kl", _off_support),
    Information("T and δ ≤ .055/T, θ ≪ roll", "martingale_kl", _small_deviations,
                "exact only as T grows and T δ vanishes"),
    Information("T and δ > .055/T, θ ≪ roll", "trajectory_kl", _bernoullis,
                "of T δ = .41 numerically .76 is attained (python -m bounds.proof.attained)"),
)  # fmt: skip
#: What is nearer than this to a bound attains it.
EXACT = 0.999


def tightness() -> list[dict[str, Any]]:
    """Say for each kind of information how much of the best bound is attained.

    Returns
    -------
    list of dict
        One for each instance, with the keys information, rule, T, instance, bound, attained, ratio, exact and open.

    Raises
    ------
    AssertionError
        If an instance exceeds a rule that claims to hold for it: the rule is then refuted.
    """
    rows = []
    for information in INFORMATION:
        for instance in information.instances():
            table = unified(instance.profile)
            for bound in table:
                if instance.attained > bound.value:
                    raise AssertionError(f"{instance.name} attains {instance.attained} > {bound}")
            bound = table[information.rule]
            ratio = instance.attained / bound.value
            rows.append(
                {
                    "information": information.known,
                    "rule": bound.name,
                    "T": instance.profile.T,
                    "instance": instance.name,
                    "bound": bound.value,
                    "attained": instance.attained,
                    "ratio": ratio,
                    "exact": ratio > EXACT,
                    "open": information.open,
                }
            )
    return rows
