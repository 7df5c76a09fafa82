"""Rule: one theorem as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace

from bounds._rounding import exact, round_up
from bounds.results import Bound, Standing, Withheld, weakest
from bounds.theory.profile import Profile

#: The hypothesis theta << roll, as rules name it in ``assumes``.
ABSOLUTE_CONTINUITY = "absolute_continuity"


@dataclass(frozen=True, slots=True)
class Rule:
    """A proved upper bound on |Error| = |J(theta) - J(roll) - L'| for rewards in [0, 1].

    ``formula`` is evaluated in exact rational arithmetic on the quantities that ``needs`` (all of them) and
    ``optional`` (None where unknown) name; square roots in it are upper values. It is rounded up once.
    """

    name: str
    family: str
    title: str
    latex: str
    source: str
    needs: tuple[str, ...]
    formula: Callable[[SimpleNamespace], Fraction]
    assumes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    in_b_star: bool = False

    def value(self, profile: Profile) -> float:
        """The bound on this profile, rounded up.

        Raises
        ------
        ValueError
            If the profile lacks what the rule needs, or denies what it assumes.
        """
        result = self.evaluate(profile)
        if isinstance(result, Withheld):
            raise ValueError(f"rule {self.name} was not evaluated: {result.reason}")
        return result.value

    def evaluate(self, profile: Profile, standing: Mapping[str, Standing] | None = None) -> Bound | Withheld:
        """The bound with its inputs and standing, or why there is none."""
        gap = profile.has_support_gap
        if gap and ABSOLUTE_CONTINUITY in self.assumes:
            return Withheld(self.name, self.family, "the proof needs theta << roll")
        if gap and profile.reward_range[0] != 0.0:
            reason = "without theta << roll, rewards must start at 0"
            return Withheld(self.name, self.family, reason)
        found = profile.quantities(self.needs, self.optional, self.family, standing or {})
        if isinstance(found, str):
            return Withheld(self.name, self.family, f"needs {found}")
        quantities, inputs = found
        value = round_up(self.formula(quantities) * profile.exact_spread)
        return Bound(
            name=self.name,
            title=self.title,
            value=value,
            family=self.family,
            source=self.source,
            standing=weakest(i.standing for i in inputs),
            assumes=self.assumes,
            inputs=inputs,
            vacuous=exact(value) >= profile.exact_spread,
        )
