"""Gap filling: proved inequalities that bound one field of a profile by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from bounds._checks import FloatArray
from bounds._rounding import exact, round_up, sqrt_up, sum_up
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, pinsker, pinsker_curve, tv_of_cap
from bounds.rules.arrays import curve_array, half_root_array, multiple_array, pinsker_array
from bounds.rules.bound import Input
from bounds.rules.fields import PUBLISHED, SHARP, is_array
from bounds.rules.sums import product_coupling

if TYPE_CHECKING:
    from bounds.rules.profile import Profile


@dataclass(frozen=True, slots=True)
class Fill:
    """A proved inequality that bounds one field by others."""

    target: str
    needs: tuple[str, ...]
    how: str
    value: Callable[..., Fraction]
    family: str | None = None  # None: published and sharp rules alike
    given: tuple[str, ...] = ()  # of ``needs``: only as given, since they may be filled from the target

    def apply(self, profile: Profile, family: str) -> Input | None:
        """The target's upper value on this profile, or None if something that it needs is unknown."""
        if self.family not in (None, family) or (profile.has_support_gap and NEED_SUPPORT.intersection(self.needs)):
            return None
        arguments: list[Any] = []
        value: Any
        found: Input | None
        used: list[str] = []
        chain = [self.how]
        for name in self.needs:
            if name == "T" or name in self.given:
                value, found = getattr(profile, name), Input(name, 0.0)
            elif is_array(name):
                by_position = profile.resolve_array(name, family)
                value, found = (None, None) if by_position is None else by_position
            else:
                found = profile.resolve(name, family)
                value = None if found is None else exact(found.value)
            if found is None or value is None:
                return None
            arguments.append(exact(value) if name in self.given else value)
            used += found.used or ((name,) if name != "T" else ())
            chain += [f"{name} = {found.how}"] if found.used else []
        return Input(self.target, round_up(self.value(*arguments)), ", ".join(chain), tuple(dict.fromkeys(used)))


@dataclass(frozen=True, slots=True)
class ArrayFill:
    """A proved inequality that holds position by position; it needs one array as given, and perhaps the ratio cap."""

    target: str
    source: str
    how: str
    value: Callable[..., FloatArray]
    family: str | None = None
    capped: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that it needs as given."""
        return (self.source, "log_ratio_max") if self.capped else (self.source,)

    def apply(self, profile: Profile, family: str) -> FloatArray | None:
        """The target's upper values [T], or None if something that it needs is unknown."""
        given = [getattr(profile, name) for name in self.needs]
        lost = profile.has_support_gap and NEED_SUPPORT.intersection(self.needs)
        if self.family not in (None, family) or lost or any(value is None for value in given):
            return None
        return self.value(given[0], *map(exact, given[1:]))


def _half_root(chi2: Fraction) -> Fraction:
    return min(Fraction(1), sqrt_up(chi2) / 2)


def _largest(values: FloatArray) -> Fraction:
    return exact(float(values.max()))


#: ``gap_sum``, which is no field, is theta's expected mass off roll's support, summed over positions.
#: Proved gap filling (2512.23075v4; each is checked by exact enumeration, those from a
#: ratio cap through the conversions that they apply).
FILLS: tuple[Fill, ...] = (
    Fill("delta", ("max_kl",), "max(max_kl)", _largest),
    Fill("delta", ("log_ratio_max",), "Lam tanh(Lam/2)", kl_of_cap, SHARP),
    Fill("epsilon", ("max_tv",), "max(max_tv)", _largest),
    Fill("epsilon", ("delta",), "sqrt(delta/2)", pinsker, PUBLISHED),
    Fill("epsilon", ("delta",), "curve(delta)", pinsker_curve, SHARP),
    Fill("epsilon", ("chi2_max",), "sqrt(chi2_max)/2", _half_root, SHARP, given=("chi2_max",)),
    Fill("epsilon", ("log_ratio_max",), "tanh(Lam/2)", tv_of_cap, SHARP),
    Fill("chi2_max", ("max_chi2",), "max(max_chi2)", _largest),
    Fill("chi2_max", ("delta", "log_ratio_max"), "c(Lam) delta", lambda d, cap: chi2_per_kl(cap) * d, SHARP),
    Fill("chi2_max", ("epsilon", "log_ratio_max"), "2 sinh(Lam) epsilon", lambda e, cap: chi2_per_tv(cap) * e, SHARP),
    Fill("kl_seq", ("mean_kl",), "sum(mean_kl)", sum_up),
    Fill("kl_seq", ("mean_length", "delta"), "delta mean_length", lambda n, d: n * d),
    Fill("kl_seq", ("T", "delta"), "T delta", lambda T, d: T * d),
    Fill("tv_sum", ("mean_tv",), "sum(mean_tv)", sum_up),
    Fill("tv_sum", ("mean_length", "epsilon"), "epsilon mean_length", lambda n, e: n * e),
    Fill("tv_sum", ("T", "epsilon"), "T epsilon", lambda T, e: T * e),
    Fill("tv_seq", ("kl_seq",), "sqrt(kl_seq/2)", pinsker, PUBLISHED),
    Fill("tv_seq", ("kl_seq",), "curve(kl_seq)", pinsker_curve, SHARP),
    Fill("tv_seq", ("tv_sum",), "tv_sum", lambda a: min(Fraction(1), a)),
    Fill("tv_seq", ("T", "epsilon"), "1 - (1-epsilon)^T", product_coupling),
    Fill("gap_sum", ("T", "support_gap"), "T support_gap", lambda T, m: T * m),
    Fill("gap_sum", ("mean_length", "support_gap"), "support_gap mean_length", lambda n, m: n * m),
    Fill("gap_sum", ("tv_sum",), "tv_sum", lambda a: a),  # mass off the support is part of TV
    Fill("gap_sum", ("kl_seq",), "kl_seq", lambda d: d),  # and KL >= -log(1 - m) >= m
    Fill("chi2_sum", ("mean_chi2",), "sum(mean_chi2)", sum_up),
    Fill("chi2_sum", ("mean_length", "chi2_max"), "chi2_max mean_length", lambda n, x: n * x),
    Fill("chi2_sum", ("T", "chi2_max"), "T chi2_max", lambda T, x: T * x),
    Fill("chi2_sum", ("kl_seq", "log_ratio_max"), "c(Lam) kl_seq", lambda d, cap: chi2_per_kl(cap) * d, SHARP),
    Fill("chi2_sum", ("tv_sum", "log_ratio_max"), "2 sinh(Lam) tv_sum", lambda a, cap: chi2_per_tv(cap) * a, SHARP),
)

#: At a support gap chi2 and the largest log ratio are infinite, whatever was measured elsewhere: nothing follows.
NEED_SUPPORT = frozenset({"chi2_max", "chi2_sum", "mean_chi2", "max_chi2", "log_ratio_max"})

#: The same, position by position.
ARRAY_FILLS: tuple[ArrayFill, ...] = (
    ArrayFill("mean_kl", "max_kl", "max_kl", lambda kl: kl),
    ArrayFill("mean_chi2", "max_chi2", "max_chi2", lambda x: x),
    ArrayFill("mean_tv", "max_tv", "max_tv", lambda tv: tv),
    ArrayFill("mean_tv", "mean_chi2", "sqrt(mean_chi2)/2", half_root_array, SHARP),
    ArrayFill("max_tv", "max_chi2", "sqrt(max_chi2)/2", half_root_array, SHARP),
    *(
        fill
        for target, kl in (("mean_tv", "mean_kl"), ("mean_tv", "max_kl"), ("max_tv", "max_kl"))
        for fill in (
            ArrayFill(target, kl, f"sqrt({kl}/2)", pinsker_array, PUBLISHED),
            ArrayFill(target, kl, f"curve({kl})", curve_array, SHARP),
        )
    ),
    *(
        ArrayFill(target, source, how.format(source), value, SHARP, capped=True)
        for target, side in (("mean_chi2", "mean"), ("mean_chi2", "max"), ("max_chi2", "max"))
        for source, how, value in (
            (f"{side}_kl", "c(Lam) {}", lambda kl, cap: multiple_array(kl, chi2_per_kl(cap))),
            (f"{side}_tv", "2 sinh(Lam) {}", lambda tv, cap: multiple_array(tv, chi2_per_tv(cap))),
        )
    ),
)

#: The supremum that caps each array.
SUPREMA = {
    f"{side}_{d}": top
    for side in ("mean", "max")
    for d, top in (("tv", "epsilon"), ("kl", "delta"), ("chi2", "chi2_max"))
}
