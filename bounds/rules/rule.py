"""Rule: one theorem as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace

from bounds._rounding import exact, round_up
from bounds.results import Standing, weakest
from bounds.rules.bound import Bound, Withheld
from bounds.rules.profile import Profile

#: The hypothesis theta << roll, as rules name it in ``assumes``.
ABSOLUTE_CONTINUITY = "absolute_continuity"


@dataclass(frozen=True, slots=True)
class Rule:
    """A proved upper bound on |Error| = |J(theta) - J(roll) - L'| for rewards in [0, 1].

    ``formula`` is evaluated in exact rational arithmetic on the quantities that ``needs`` (all of them) and
    ``optional`` (None where unknown) name; square roots in it are upper values. It is rounded up once.
    ``optional_any``: at least one of the optional quantities must be known. ``gap_term``: a rule that assumes
    theta << roll still bounds the error from below, and from above with the summed support gap added.
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
    gap_term: bool = True
    optional_any: bool = False

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
        found = profile.quantities(self.needs, self.optional, self.family, standing or {})
        if isinstance(found, str):
            return Withheld(self.name, self.family, f"needs {found}")
        quantities, inputs = found
        if self.optional_any and all(getattr(quantities, name) is None for name in self.optional):
            return Withheld(self.name, self.family, f"needs {' or '.join(self.optional)}")
        times = self._gap_times(profile)
        gap = profile.resolve("gap_sum", self.family) if times else None
        if isinstance(times, str) or (times and gap is None):
            return Withheld(self.name, self.family, times if isinstance(times, str) else "needs support_gap")
        extra = Fraction(0)
        if gap is not None:
            extra = times * exact(gap.value)
            weak = weakest((standing or {}).get(u, Standing.PROVED) for u in gap.used)
            inputs = (*inputs, replace(gap, standing=weak))
        value = round_up(self.formula(quantities) * profile.exact_spread + extra)
        return Bound(
            name=self.name,
            title=self.title,
            value=value,
            family=self.family,
            source=self.source,
            rests_on={name: (standing or {}).get(name, Standing.PROVED) for i in inputs for name in i.given},
            assumes=self.assumes,
            inputs=inputs,
            vacuous=exact(value) >= profile.exact_spread,
        )

    def _gap_times(self, profile: Profile) -> Fraction | str:
        r"""How many times the summed support gap is added to the bound, or why there is then none.

        For rewards in [0, 1] it is once for the rules that assume theta << roll; a lowest reward a that is not 0
        adds \|a\| times to all.
        """
        if not profile.has_support_gap:
            return Fraction(0)
        if self.assumes and not self.gap_term:
            return "chi2 is infinite where theta has mass off roll's support"
        if self.assumes and profile.support_gap is None:  # what else bounds the gap makes these rules useless
            return "the proof needs theta << roll"
        return profile.largest_offset + (profile.exact_spread if self.assumes else 0)
