"""Gap filling: proved inequalities that bound one field of a profile by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from bounds._checks import FloatArray
from bounds._rounding import exact, round_up, sqrt_up, sum_up
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, pinsker, pinsker_curve, tv_of_cap
from bounds.results import Input
from bounds.theory.fields import PUBLISHED, SHARP, is_array
from bounds.theory.terms import half_root_array, huber_array, pinsker_array, product_coupling

if TYPE_CHECKING:
    from bounds.theory.profile import Profile


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
    """A proved inequality that holds position by position."""

    target: str
    source: str
    how: str
    value: Callable[[FloatArray], FloatArray]
    family: str | None = None


def _half_root(chi2: Fraction) -> Fraction:
    return min(Fraction(1), sqrt_up(chi2) / 2)


def _largest(values: FloatArray) -> Fraction:
    return exact(float(values.max()))


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
    ArrayFill("mean_tv", "mean_kl", "sqrt(mean_kl/2)", pinsker_array),
    ArrayFill("mean_tv", "max_kl", "sqrt(max_kl/2)", pinsker_array),
    ArrayFill("mean_tv", "mean_kl", "sqrt(1-exp(-mean_kl))", huber_array, SHARP),
    ArrayFill("mean_tv", "mean_chi2", "sqrt(mean_chi2)/2", half_root_array, SHARP),
    ArrayFill("max_tv", "max_kl", "sqrt(max_kl/2)", pinsker_array),
    ArrayFill("max_tv", "max_kl", "sqrt(1-exp(-max_kl))", huber_array, SHARP),
    ArrayFill("max_tv", "max_chi2", "sqrt(max_chi2)/2", half_root_array, SHARP),
)

#: The supremum that caps each array.
SUPREMA = {
    f"{side}_{d}": top
    for side in ("mean", "max")
    for d, top in (("tv", "epsilon"), ("kl", "delta"), ("chi2", "chi2_max"))
}
