"""Rule: one theorem as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace

from bounds._rounding import round_up
from bounds.results import Standing, weakest
from bounds.rules.bound import Bound, Input, Withheld
from bounds.rules.profile import Profile

#: The hypothesis theta << roll, as rules name it in ``assumes``.
ABSOLUTE_CONTINUITY = "absolute_continuity"


@dataclass(frozen=True, slots=True)
class Rule:
    """A proved upper bound on |Error| = |J(theta) - J(roll) - L'| for rewards in [0, 1].

    ``formula`` is evaluated in exact rational arithmetic on the quantities that ``needs`` (all of them) and
    ``optional`` (None where unknown) name; square roots in it are upper values. It is rounded up once.
    ``gap_term``: a rule that assumes theta << roll still bounds the error from below, and from above with the summed
    support gap added.
    """

    name: str
    title: str
    latex: str
    source: str
    needs: tuple[str, ...]
    formula: Callable[[SimpleNamespace], Fraction]
    family: str
    assumes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    in_b_star: bool = False
    gap_term: bool = True

    def value(self, profile: Profile) -> float:
        """Return the bound on a profile, rounded up.

        Parameters
        ----------
        profile : Profile
            What is known about the two policies.

        Returns
        -------
        float
            In units of the reward.

        Raises
        ------
        ValueError
            If the profile lacks what the rule needs, or denies what it assumes.

        Examples
        --------
        >>> import bounds
        >>> bounds.rule("trajectory_kl").value(bounds.Profile(T=4096, kl_seq=0.01))
        0.01
        """
        result = self.evaluate(profile)
        if isinstance(result, Withheld):
            raise ValueError(f"rule {self.name} was not evaluated: {result.reason}")
        return result.value

    def evaluate(self, profile: Profile, standing: Mapping[str, Standing] | None = None) -> Bound | Withheld:
        """Return the bound on a profile with its inputs and where they stand, or why there is none.

        ``standing`` says where given fields stand that are not simply hypotheses.
        """
        if not isinstance(profile, Profile):
            raise TypeError(f"profile must be a Profile, got {profile!r:.60}")
        quantities, inputs = SimpleNamespace(T=profile.T), []
        for name in self.needs + self.optional:
            found = profile.quantity(name, self.family)
            if found is None and name in self.needs:
                return self._withheld(f"needs {name}")
            setattr(quantities, name, None if found is None else found[0])
            inputs += [] if found is None else [found[1]]
        gap = self._gap_term(profile)
        if isinstance(gap, str):
            return self._withheld(gap)
        inputs += gap[1]
        spread = profile.exact_spread
        value = round_up(self.formula(quantities) * spread + gap[0])
        stands = {name: (standing or {}).get(name, Standing.PROVED) for i in inputs for name in i.given}
        if standing:
            inputs = [replace(i, standing=weakest(stands[name] for name in i.given)) for i in inputs]
        return Bound(
            name=self.name,
            title=self.title,
            value=value,
            family=self.family,
            source=self.source,
            rests_on=stands,
            assumes=self.assumes,
            inputs=tuple(inputs),
            vacuous=value >= round_up(spread),
        )

    def _gap_term(self, profile: Profile) -> tuple[Fraction, tuple[Input, ...]] | str:
        r"""Return what a support gap adds to the bound, and the inputs for it; or why there is then no bound.

        For rewards in [0, 1] it is the summed gap for the rules that assume theta << roll; a lowest reward a that is
        not 0 adds \|a\| times that to all.
        """
        if not profile.has_support_gap:
            return Fraction(0), ()
        if self.assumes and not self.gap_term:
            return "chi2 is infinite where theta has mass off roll's support"
        if self.assumes and profile.support_gap is None:  # what else bounds the gap makes these rules useless
            return "the proof needs theta << roll"
        times = profile.largest_offset + (profile.exact_spread if self.assumes else 0)
        if not times:
            return Fraction(0), ()
        gap = profile.quantity("gap_sum", self.family)
        return "needs support_gap" if gap is None else (times * gap[0], (gap[1],))

    def _withheld(self, reason: str) -> Withheld:
        return Withheld(self.name, self.family, reason)
