"""All rules on one profile: the table of bounds and B*, their minimum (2512.23075v4 thm:unified)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from bounds._checks import takes_parameters_of, unknown
from bounds._rounding import exact, largest_float, round_down, round_up
from bounds.divergence.inequalities import binary_kl_low
from bounds.results import Interval, Standing, weakest
from bounds.rules.bound import SHARP, Bound, BoundTable, Withheld
from bounds.rules.profile import FIELDS, Profile
from bounds.rules.published import PUBLISHED_RULES
from bounds.rules.rule import Rule
from bounds.rules.sharp import SHARP_RULES
from bounds.rules.sums import unit

#: Every theorem, in the order of the literature. Tables, checks, figures and documentation iterate over it.
RULES: tuple[Rule, ...] = PUBLISHED_RULES + SHARP_RULES

#: The fields that say how far apart the two policies are; a profile without any of them bounds nothing.
_DIVERGENCES = FIELDS.keys() - {"mean_length", "support_gap", "mean_reward", "reward_sd_within"}


def rule(name: str) -> Rule:
    """Look up a rule by its name.

    Returns
    -------
    Rule

    Raises
    ------
    KeyError
        With the likely meant name.

    Examples
    --------
    >>> rule("trajectory_kl").value(Profile(T=4096, kl_seq=0.01))
    0.01
    """
    for candidate in RULES:
        if candidate.name == name:
            return candidate
    raise KeyError(unknown("rule", name, [r.name for r in RULES]))


@takes_parameters_of(Profile)
def unified(
    profile: Profile | None = None, *, standing: Mapping[str, Standing] | None = None, **known: Any
) -> BoundTable:
    r"""Evaluate every rule on what is known about two policies.

    Parameters
    ----------
    profile : Profile, optional
        What is known; or give its fields by name.
    standing : mapping of field name to Standing, optional
        Where the numbers come from, if they are not hypotheses; each bound is as weak as its weakest input.
    T, delta, epsilon, kl_seq
        Fields by name: these and all others of :class:`bounds.Profile`.

    Returns
    -------
    BoundTable
        Upper bounds on |J(theta) - J(roll) - L'|, in units of the reward.

    Raises
    ------
    ValueError
        If no divergence is known, or a field is refused by :class:`Profile`.

    Notes
    -----
    B* of the paper is the minimum over six families, 2512.23075v4 thm:unified; ``best`` is over all rules.

    Examples
    --------
    >>> table = unified(T=4096, delta=1e-4)
    >>> table.best.name, round(table.best.value, 4), round(table.best_published.value, 3)
    ('trajectory_kl', 0.4096, 34.946)
    """
    if profile is None:
        profile = Profile.of(known)
    elif not isinstance(profile, Profile):
        raise TypeError(
            f"profile must be a Profile, got {profile!r:.60} (fields are given by name: T=4096, delta=1e-4)"
        )
    elif known:
        raise TypeError("give a Profile or its fields by name, not both")
    if not profile.known().keys() & _DIVERGENCES:
        raise ValueError(
            f"a bound needs at least one divergence (delta, epsilon, kl_seq, tv_sum, ...), got only T={profile.T}"
        )
    stands = {} if standing is None else standing
    if not isinstance(stands, Mapping) or not all(
        name in profile.known() and isinstance(s, Standing) for name, s in stands.items()
    ):
        raise TypeError(f"standing must map known fields to their Standing, got {standing!r:.80}")
    results = [r.evaluate(profile, standing) for r in RULES]
    return BoundTable(
        bounds=tuple(r for r in results if isinstance(r, Bound)),
        withheld=tuple(r for r in results if isinstance(r, Withheld)),
        profile=profile.known(),
        assumptions=profile.assumptions,
        reward_spread=round_up(profile.exact_spread),
        surrogate_cap=_surrogate_cap(profile),
        reward_interval=_reward_interval(profile, stands),
        published_b_star=frozenset(r.name for r in RULES if r.in_b_star),
    )


def _surrogate_cap(profile: Profile) -> float | None:
    """Bound |L'|: it is J(theta) - J(roll) - Error, so at most tv_seq + D (where the lowest reward is 0, or no gap)."""
    tv_seq, kl_seq = (profile.quantity(name, SHARP) for name in ("tv_seq", "kl_seq"))
    if tv_seq is None or kl_seq is None or (profile.has_support_gap and profile.largest_offset):
        return None
    return round_up((unit(tv_seq[0]) + kl_seq[0]) * profile.exact_spread)


def reward_interval(
    *,
    mean_reward: float | tuple[float, float],
    kl_seq: float,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """Bound J(theta), the training policy's expected reward, by kl(J(roll) || J(theta)) <= D.

    Parameters
    ----------
    mean_reward : float or (float, float)
        J(roll), or limits between which it lies; of all that they stand for the worst counts at either end.
    kl_seq : float
        D, an upper value of the expected KL(roll||theta) of a whole response, in nats.
    reward_range : (float, float)
        Smallest and largest reward.

    Returns
    -------
    Interval
        Certain ends, rounded outward, in units of the reward; ``value`` is J(roll).

    Raises
    ------
    ValueError
        As for :class:`bounds.Profile`.

    Notes
    -----
    kl is that of two outcomes, for rewards mapped to [0, 1]: data processing, with any supports and any horizon.

    Examples
    --------
    >>> found = reward_interval(mean_reward=0.4, kl_seq=0.01)
    >>> round(found.low, 3), round(found.high, 3)
    (0.332, 0.47)
    """
    profile = Profile(T=1, mean_reward=mean_reward, kl_seq=kl_seq, reward_range=reward_range)
    found = _reward_interval(profile, {})
    if found is None:
        raise ValueError(f"reward_interval needs mean_reward and kl_seq, got {mean_reward} and {kl_seq}")
    return found


def _binary_kl(p: float, q: float) -> float:
    """Return kl(p || q) of two probabilities in floats, to look near where it is searched exactly."""
    parts = [(a, b) for a, b in ((p, q), (1.0 - p, 1.0 - q)) if a]
    return sum(a * math.log(a / b) for a, b in parts) if all(b for _, b in parts) else math.inf


def _reward_interval(profile: Profile, stands: Mapping[str, Standing]) -> Interval | None:
    """Return the numbers x with kl(mu || x) <= D for some mu that the mean reward stands for; its ends rise with mu."""
    kl_seq = profile.quantity("kl_seq", SHARP)
    if profile.mean_reward is None or kl_seq is None:
        return None
    least, most = profile.exact_means
    divergence: Fraction = kl_seq[0]
    bottom, top, size = round_down(least), round_up(most), round_up(divergence)
    near = largest_float(lambda x: _binary_kl(bottom, x) >= size, 0.0, bottom)
    low = largest_float(lambda x: binary_kl_low(least, exact(x)) >= divergence, 0.0, bottom, near) or 0.0
    near = largest_float(lambda x: _binary_kl(top, x) < size, top, 1.0)
    below = largest_float(lambda x: binary_kl_low(most, exact(x)) < divergence, top, 1.0, near)
    high = round_up(most) if below is None else min(1.0, math.nextafter(below, 2.0))
    used = {"mean_reward", *kl_seq[1].given}
    return Interval(
        value=float(np.mean(profile.mean_reward)),
        low=round_down(profile.reward(exact(low))),
        high=round_up(profile.reward(exact(high))),
        confidence=1.0,
        standing=weakest(stands.get(name, Standing.PROVED) for name in used),
        method="kl(J(roll) || J(theta)) <= D",
    )
