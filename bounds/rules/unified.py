"""All rules on one profile: the table of bounds and B*, their minimum (2512.23075v4 thm:unified)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bounds._checks import takes_parameters_of, unknown
from bounds._rounding import round_up
from bounds.results import Standing
from bounds.rules.bound import SHARP, Bound, BoundTable, Withheld
from bounds.rules.profile import FIELDS, Profile
from bounds.rules.published import PUBLISHED_RULES
from bounds.rules.rule import Rule
from bounds.rules.sharp import SHARP_RULES
from bounds.rules.sums import unit

#: Every theorem, in the order of the literature. Tables, checks, figures and documentation iterate over it.
RULES: tuple[Rule, ...] = PUBLISHED_RULES + SHARP_RULES

#: The fields that say how far apart the two policies are; a profile without any of them bounds nothing.
_DIVERGENCES = FIELDS.keys() - {"mean_length", "support_gap", "mean_reward"}


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
        published_b_star=frozenset(r.name for r in RULES if r.in_b_star),
    )


def _surrogate_cap(profile: Profile) -> float | None:
    """Bound |L'|: it is J(theta) - J(roll) - Error, so at most tv_seq + D (where the lowest reward is 0, or no gap)."""
    tv_seq, kl_seq = (profile.quantity(name, SHARP) for name in ("tv_seq", "kl_seq"))
    if tv_seq is None or kl_seq is None or (profile.has_support_gap and profile.largest_offset):
        return None
    return round_up((unit(tv_seq[0]) + kl_seq[0]) * profile.exact_spread)
