"""What trainers optimise in place of L': which of it is bounded, and a counter-example where it is not.

As in :mod:`bounds.proof.symbolic`, each function returns whether its statement holds, and takes a constant. A group is
G responses to one prompt, enumerated; theta << roll.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bounds._rounding import sqrt_enclosure
from bounds.proof.exact import Problem, Rows, Tree
from bounds.proof.instances import problems

Rewards = tuple[Fraction, ...]
Advantages = Callable[[Rewards], Sequence[Any]]
_HALF = Fraction(1, 2)


def lengths(tree: Tree) -> Rows:
    """Return the number of tokens of each response [V^T], the first ``end`` included."""
    width, horizon = tree.roll[0].shape[1], len(tree.roll)
    tokens = itertools.product(range(width), repeat=horizon)
    return np.array([y.index(tree.end) + 1 if tree.end in y else horizon for y in tokens])


def _rewards(tree: Tree, seed: int, values: Sequence[Fraction]) -> Rows:
    chosen = np.random.default_rng(seed).integers(len(values), size=tree.roll_mass[-1].size)
    return np.array([values[k] for k in chosen], dtype=object)


def of_groups(tree: Tree, rewards: Rows, group: int, advantages: Advantages) -> Any:
    """Return E[(1/G) sum_i A_i S_i] over groups of G responses, A made of the group's rewards."""
    drawn = [y for y in zip(tree.roll_mass[-1], rewards, tree.score, strict=True) if y[0] > 0]
    total = Fraction(0)
    for members in itertools.product(drawn, repeat=group):
        masses, earned, scores = zip(*members, strict=True)
        total += math.prod(masses) * sum(a * s for a, s in zip(advantages(earned), scores, strict=True))
    return total / group


def centred(rewards: Rewards) -> Rewards:
    """Return rewards minus the mean of their group."""
    mean = Fraction(sum(rewards)) / len(rewards)
    return tuple(r - mean for r in rewards)


def _gain(tree: Tree, rewards: Rows) -> Any:
    return Problem((tree,)).surrogate([rewards])


def _change(tree: Tree, rewards: Rows) -> Any:
    return ((tree.theta_mass[-1] - tree.roll_mass[-1]) * rewards).sum()


def _small(most: int) -> list[Tree]:
    trees = (tree for problem in problems(60) for tree in problem.trees)
    return [tree for tree in trees if 2 <= tree.roll_mass[-1].size <= most]


def _row(roll: Sequence[Fraction], theta: Sequence[Fraction]) -> Tree:
    """Return one token of two policies."""
    p, q = (np.array([row], dtype=object) for row in (roll, theta))
    return Tree((p,), (q,))


def _longer() -> tuple[Tree, Rows]:
    """Return two policies that answer "end", "a end" or "a a"; theta answers more often "a a", which is wrong.

    It does so at the cost of "end", wrong and short, and of a little of "a end", which alone is right.
    """
    stays = [Fraction(0), Fraction(1)]
    roll = np.array([[_HALF, _HALF]], dtype=object), np.array([[_HALF, _HALF], stays], dtype=object)
    right = Fraction(49, 110)
    theta = (
        np.array([[Fraction(11, 20), Fraction(9, 20)]], dtype=object),
        np.array([[1 - right, right], stays], dtype=object),
    )
    return Tree(roll, theta, end=1), np.array([Fraction(0), Fraction(1), Fraction(0), Fraction(0)], dtype=object)


def any_function(factor: Fraction = Fraction(1)) -> bool:
    """E[f S] misses E_theta f - E_roll f by at most D times the spread of f, for every f of prompt and response."""
    for k, problem in enumerate(problems(60)):
        divergence = sum(problem.per_position["mean_kl"])
        worst = [np.array([Fraction(int(w > 0)) for w in tree.error_weight], dtype=object) for tree in problem.trees]
        by_length = [_rewards(tree, k, (Fraction(-1, 3), Fraction(2, 3))) / lengths(tree) for tree in problem.trees]
        for f in (worst, by_length):
            values = np.concatenate(f)
            if abs(problem.error(f)) > factor * divergence * (max(values) - min(values)):
                return False
    return True


def sequence_mean(power: int = 1) -> bool:
    """Divided by its own length a response climbs (R - b) / length, which can rise where L' and J fall."""
    tree, rewards = _longer()
    b = (tree.roll_mass[-1] * rewards).sum()
    divided = _gain(tree, (rewards - b) / lengths(tree) ** power)
    return bool(divided > 0 > _gain(tree, rewards) and _change(tree, rewards) < 0)


def token_mean(power: int = 1) -> bool:
    """Divided by all tokens of its batch L' tends to L' / E[length]; of two responses it can rise where J falls."""
    tree, rewards = _longer()
    long, b = lengths(tree) ** power, (tree.roll_mass[-1] * rewards).sum()
    mass, value = tree.roll_mass[-1], (rewards - b) * tree.score
    pairs = itertools.product(range(len(mass)), repeat=2)
    ratio = sum((mass[i] * mass[j] * (value[i] + value[j]) / (long[i] + long[j]) for i, j in pairs), Fraction(0))
    return bool(ratio > 0 > _gain(tree, rewards) and _change(tree, rewards) < 0)


def group_mean(own: int = 1) -> bool:
    """Rewards minus the mean of their group of G, their own included, give (1 - 1/G) L', exactly."""
    for k, tree in enumerate(_small(9)):
        rewards = _rewards(tree, k, (Fraction(0), Fraction(1, 3), Fraction(1)))
        for group in (2, 3):
            if of_groups(tree, rewards, group, centred) != (1 - Fraction(own, group)) * _gain(tree, rewards):
                return False
    return True


def group_deviation(odds: int = 1) -> bool:
    """With K of G rewards 1, else 0, (R - K/G) / d(K) gives E[K (G-K) / d(K)] / (G^2 p (1-p)) L', for every d."""

    def divided(rewards: Rewards) -> Sequence[Fraction]:
        divisor = _divisor(sum(rewards))
        return [a / divisor for a in centred(rewards)]

    seen = 0
    for k, tree in enumerate(_small(9)):
        rewards = _rewards(tree, k, (Fraction(0), Fraction(1)))
        p = (tree.roll_mass[-1] * rewards).sum()
        if 0 < p < 1:
            seen += 1
            for group in (2, 3):
                weight = expected_spread(p, group, [1 / _divisor(K) for K in range(group)]) / (p * (1 - p) ** odds)
                if of_groups(tree, rewards, group, divided) != weight * _gain(tree, rewards):
                    return False
    return seen > 5


def _divisor(rewarded: Any) -> Fraction:
    """Return something that no formula could have in it by chance."""
    return Fraction(1) + Fraction(3, 7) * int(rewarded) ** 2


def expected_spread(p: Fraction, group: int, inverse: Sequence[Any]) -> Any:
    """Return E[K (G-K) inverse[K]] / G^2 for K ~ Bin(G, p)."""
    chances = [math.comb(group, K) * p**K * (1 - p) ** (group - K) for K in range(group)]
    return sum((chances[K] * K * (group - K) * inverse[K] for K in range(1, group)), Fraction(0)) / group**2


def reweighing(drop: Fraction = Fraction(11, 10)) -> bool:
    """Divided by the deviation of its group L' weighs prompts anew, and can rise where it and J fall (G = 8)."""
    group, step = 8, Fraction(1, 100)
    total, change = Fraction(0), Fraction(0)
    for p, moved in ((Fraction(1, 10), step), (_HALF, -drop * step)):
        tree = _row((p, 1 - p), (p + moved, 1 - p - moved))
        gain = _gain(tree, np.array([Fraction(1), Fraction(0)], dtype=object))
        side = 1 if gain > 0 else 0  # divided by more where it rises, by less where it falls
        deviations = [sqrt_enclosure(Fraction(K * (group - K), group**2)) for K in range(group + 1)]
        divisors = [ends[side] for ends in deviations]
        weight = expected_spread(p, group, [0, *(1 / d for d in divisors[1:-1])])
        total, change = total + weight / (p * (1 - p)) * gain, change + gain
    return bool(total > 0 > change)


def three_rewards(middle: Fraction = Fraction(9, 10)) -> bool:
    """With three rewards the group's own deviation can point away from L' and J at a single prompt (G = 2)."""
    third = Fraction(1, 3)
    tree = _row((third,) * 3, (third + Fraction(1, 10), third - Fraction(3, 10), third + Fraction(1, 5)))
    rewards = np.array([Fraction(0), middle, Fraction(1)], dtype=object)

    def normalised(pair: Rewards) -> Sequence[Fraction]:
        return [Fraction((a > 0) - (a < 0)) for a in centred(pair)]  # half of the difference, divided by itself

    return bool(of_groups(tree, rewards, 2, normalised) > 0 > _change(tree, rewards))


def pessimistic_minimum(factor: Fraction = Fraction(1)) -> bool:
    """E[sum min(rho A, clip(rho) A) - A] <= L' for A = R - b(x) and every clip around 1; attained where none acts."""
    for k, tree in enumerate(_small(81)):
        rewards = _rewards(tree, k, (Fraction(0), Fraction(1, 3), Fraction(1)))
        leaves = _leaves(tree, rewards)
        for b, (low, high) in itertools.product((Fraction(0), _HALF, Fraction(1)), ((4, 6), (0, 10**9))):
            clip = Fraction(low, 5), Fraction(high, 5)
            clipped = sum(mass * _clipped(ratios, reward - b, clip) for ratios, mass, reward in leaves)
            if clipped > factor * _gain(tree, rewards):
                return False
    return True


def _leaves(tree: Tree, rewards: Rows) -> list[tuple[list[Fraction], Any, Any]]:
    """Return the ratios of each response that roll gives, its probability and its reward."""
    responses = itertools.product(range(tree.roll[0].shape[1]), repeat=len(tree.roll))
    found = zip(responses, tree.roll_mass[-1], rewards, strict=True)
    return [(_ratios(tree, tokens), mass, reward) for tokens, mass, reward in found if mass > 0]


def _ratios(tree: Tree, tokens: tuple[int, ...]) -> list[Fraction]:
    ratios, place, width = [], 0, tree.roll[0].shape[1]
    for t, token in enumerate(tokens):
        ratios.append(tree.theta[t][place][token] / tree.roll[t][place][token])
        place = place * width + token
    return ratios


def _clipped(ratios: list[Fraction], advantage: Any, clip: tuple[Fraction, Fraction]) -> Any:
    """Return sum_t min(rho A, clip(rho) A) - A of one response."""
    low, high = clip
    return sum(min(rho * advantage, min(max(rho, low), high) * advantage) - advantage for rho in ratios)
