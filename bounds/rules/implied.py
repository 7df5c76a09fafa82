"""What the given fields of a profile imply: proved inequalities that bound one quantity by others.

Each is checked by exact enumeration (:func:`bounds.proof.instances.implications`), those from a cap on the ratio
through the conversions that they apply. The sources are in 2512.23075v4, and in :mod:`bounds.divergence.inequalities`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from bounds._checks import FloatArray
from bounds._rounding import exact, round_up, sqrt_up, sum_up
from bounds.divergence.inequalities import chi2_per_kl, chi2_per_tv, kl_of_cap, pinsker, pinsker_curve, tv_of_cap
from bounds.rules.arrays import curve_array, half_root_array, multiple_array, pinsker_array
from bounds.rules.bound import PUBLISHED, SHARP, Input
from bounds.rules.sums import product_coupling

#: An upper value (an exact number, or an array [T]), and where it comes from.
Quantity = tuple[Any, Input]


@dataclass(frozen=True, slots=True)
class Implication:
    """A proved inequality: ``value`` of the quantities that it ``needs`` is an upper value of its ``target``.

    ``family`` says which rules may use it; without one, both. ``from_given``: it follows from what was given only, as
    arrays do, position by position, and a number where what is needed may itself follow from the target.
    """

    target: str
    needs: tuple[str, ...]
    how: str
    value: Callable[..., Any]
    family: str | None = None
    from_given: bool = False


def _half_root(chi2: Fraction) -> Fraction:
    return min(Fraction(1), sqrt_up(chi2) / 2)


def _largest(values: FloatArray) -> Fraction:
    return exact(float(values.max()))


_by_position = partial(Implication, from_given=True)

#: ``gap_sum``, which is no field, is theta's expected mass off roll's support, summed over positions.
IMPLICATIONS: tuple[Implication, ...] = (
    Implication("delta", ("max_kl",), "max(max_kl)", _largest),
    Implication("delta", ("log_ratio_max",), "Lam tanh(Lam/2)", kl_of_cap, SHARP),
    Implication("epsilon", ("max_tv",), "max(max_tv)", _largest),
    Implication("epsilon", ("delta",), "sqrt(delta/2)", pinsker, PUBLISHED),
    Implication("epsilon", ("delta",), "curve(delta)", pinsker_curve, SHARP),
    Implication("epsilon", ("chi2_max",), "sqrt(chi2_max)/2", _half_root, SHARP, from_given=True),
    Implication("epsilon", ("log_ratio_max",), "tanh(Lam/2)", tv_of_cap, SHARP),
    Implication("chi2_max", ("max_chi2",), "max(max_chi2)", _largest),
    Implication("chi2_max", ("delta", "log_ratio_max"), "c(Lam) delta", lambda d, cap: chi2_per_kl(cap) * d, SHARP),
    Implication(
        "chi2_max", ("epsilon", "log_ratio_max"), "2 sinh(Lam) epsilon", lambda e, cap: chi2_per_tv(cap) * e, SHARP
    ),
    Implication("kl_seq", ("mean_kl",), "sum(mean_kl)", sum_up),
    Implication("kl_seq", ("mean_length", "delta"), "delta mean_length", lambda n, d: n * d),
    Implication("kl_seq", ("T", "delta"), "T delta", lambda T, d: T * d),
    Implication("tv_sum", ("mean_tv",), "sum(mean_tv)", sum_up),
    Implication("tv_sum", ("mean_length", "epsilon"), "epsilon mean_length", lambda n, e: n * e),
    Implication("tv_sum", ("T", "epsilon"), "T epsilon", lambda T, e: T * e),
    Implication("tv_seq", ("kl_seq",), "sqrt(kl_seq/2)", pinsker, PUBLISHED),
    Implication("tv_seq", ("kl_seq",), "curve(kl_seq)", pinsker_curve, SHARP),
    Implication("tv_seq", ("tv_sum",), "tv_sum", lambda a: min(Fraction(1), a)),
    Implication("tv_seq", ("T", "epsilon"), "1 - (1-epsilon)^T", product_coupling),
    Implication("gap_sum", ("T", "support_gap"), "T support_gap", lambda T, m: T * m),
    Implication("gap_sum", ("mean_length", "support_gap"), "support_gap mean_length", lambda n, m: n * m),
    Implication("gap_sum", ("tv_sum",), "tv_sum", lambda a: a),  # mass off the support is part of TV
    Implication("gap_sum", ("kl_seq",), "kl_seq", lambda d: d),  # and KL >= -log(1 - m) >= m
    Implication("chi2_sum", ("mean_chi2",), "sum(mean_chi2)", sum_up),
    Implication("chi2_sum", ("mean_length", "chi2_max"), "chi2_max mean_length", lambda n, x: n * x),
    Implication("chi2_sum", ("T", "chi2_max"), "T chi2_max", lambda T, x: T * x),
    Implication("chi2_sum", ("kl_seq", "log_ratio_max"), "c(Lam) kl_seq", lambda d, cap: chi2_per_kl(cap) * d, SHARP),
    Implication(
        "chi2_sum", ("tv_sum", "log_ratio_max"), "2 sinh(Lam) tv_sum", lambda a, cap: chi2_per_tv(cap) * a, SHARP
    ),
    *(_by_position(f"mean_{d}", (f"max_{d}",), f"max_{d}", lambda largest: largest) for d in ("kl", "chi2", "tv")),
    *(
        _by_position(f"{side}_tv", (f"{side}_chi2",), f"sqrt({side}_chi2)/2", half_root_array, SHARP)
        for side in ("mean", "max")
    ),
    *(
        _by_position(target, (kl,), how.format(kl), value, family)
        for target, kl in (("mean_tv", "mean_kl"), ("mean_tv", "max_kl"), ("max_tv", "max_kl"))
        for how, value, family in (("sqrt({}/2)", pinsker_array, PUBLISHED), ("curve({})", curve_array, SHARP))
    ),
    *(
        _by_position(target, (source, "log_ratio_max"), how.format(source), value, SHARP)
        for target, side in (("mean_chi2", "mean"), ("mean_chi2", "max"), ("max_chi2", "max"))
        for source, how, value in (
            (f"{side}_kl", "c(Lam) {}", lambda kl, cap: multiple_array(kl, chi2_per_kl(cap))),
            (f"{side}_tv", "2 sinh(Lam) {}", lambda tv, cap: multiple_array(tv, chi2_per_tv(cap))),
        )
    ),
)

_TOWARD: dict[str, list[Implication]] = {}
for _implication in IMPLICATIONS:
    _TOWARD.setdefault(_implication.target, []).append(_implication)

#: At a support gap chi2 and the largest log ratio are infinite, whatever was measured elsewhere: nothing follows.
NEED_SUPPORT = frozenset({"chi2_max", "chi2_sum", "mean_chi2", "max_chi2", "log_ratio_max"})

_SUPREMA = {"tv": "epsilon", "kl": "delta", "chi2": "chi2_max"}


class Implied:
    """Quantities that were given, or follow from those that were; what was worked out is remembered."""

    def __init__(self, known: Mapping[str, Any], *, support_gap: bool) -> None:
        self._known = known
        self._support_gap = support_gap
        self._found: dict[tuple[str, str], Quantity | None] = {}

    def find(self, name: str, family: str) -> Quantity | None:
        """Return the smallest upper value that is proved; None where nothing bounds it.

        A given value may be larger than what others imply: it is an upper value. In published rules Pinsker's
        inequality bounds only what was not given.
        """
        if (name, family) not in self._found:
            candidates = list(self._candidates(name, family))
            if candidates and isinstance(candidates[0][0], np.ndarray):
                candidates += self._supremum(name, family)
                self._found[name, family] = _least_by_position(name, candidates)
            else:
                self._found[name, family] = min(candidates, key=lambda found: found[1].value, default=None)
        return self._found[name, family]

    def apply(self, implication: Implication, family: str) -> Quantity | None:
        """Return what one implication gives, None where what it needs is unknown or the support gap denies it."""
        if self._support_gap and not NEED_SUPPORT.isdisjoint(implication.needs):
            return None
        parts = [self._given(n) if implication.from_given else self.find(n, family) for n in implication.needs]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        value = implication.value(*(value for value, _ in found))
        inputs = [i for _, i in found if i.name != "T"]
        how = ", ".join([implication.how, *(f"{i.name} = {i.how}" for i in inputs if i.used)])
        used = tuple(dict.fromkeys(name for i in inputs for name in i.given))
        return _quantity(implication.target, value, how, used)

    def _given(self, name: str) -> Quantity | None:
        value = self._known.get(name)
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            return _quantity(name, value)
        return value if name == "T" else exact(value), Input(name, value)

    def _candidates(self, name: str, family: str) -> Iterator[Quantity]:
        given = self._given(name)
        if given is not None:
            yield given
        families = (None,) if given is not None and family == PUBLISHED else (None, family)
        for implication in _TOWARD.get(name, ()):
            if implication.family in families:
                found = self.apply(implication, family)
                if found is not None:
                    yield found

    def _supremum(self, name: str, family: str) -> list[Quantity]:
        """Return what caps all entries of an array; where it may follow from that array, only as given."""
        side, divergence = name.split("_")
        supremum = _SUPREMA[divergence]
        found = self.find(supremum, family) if side == "mean" else self._given(supremum)
        if found is None:
            return []
        how = supremum if found[1].how == "given" else f"{supremum} = {found[1].how}"
        return [(np.float64(found[1].value), replace(found[1], how=how, used=found[1].given))]


def _least_by_position(name: str, candidates: list[Quantity]) -> Quantity:
    """Return the smallest at each position; it rests on those that are smallest somewhere."""
    least, counted = candidates[0][0], candidates[:1]
    for found in candidates[1:]:
        if (found[0] < least).any():
            least = np.minimum(least, found[0])
            counted.append(found)
    inputs = [how for value, how in counted if value is least or (value == least).any()]
    if len(inputs) == 1:
        return _quantity(name, least, inputs[0].how, inputs[0].used)
    used = tuple(dict.fromkeys(n for i in inputs for n in i.given))
    return _quantity(name, least, f"smallest of {', '.join(i.how for i in inputs)}", used)


def _quantity(name: str, value: Any, how: str = "given", used: tuple[str, ...] = ()) -> Quantity:
    """Return an upper value, rounded to a float unless it is an array."""
    if isinstance(value, np.ndarray):
        return value, Input(name, float(value.max()), how, used)
    top = round_up(value)
    return exact(top), Input(name, top, how, used)
