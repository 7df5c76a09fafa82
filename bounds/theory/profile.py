"""Profile: what is known about the divergence of two policies, checked, with its gaps filled.

A field is declared once, in :mod:`bounds.theory.fields`; checks, command-line options, files and
documentation follow from there. A gap is filled by a proved inequality, a :class:`Fill`; what was filled
from what is remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, TOLERANCE, FloatArray, array, integer, number, refuse, reward_range, unknown
from bounds._rounding import exact, round_up, sum_up
from bounds._show import jsonable
from bounds.results import Assumption, Input, Standing, weakest
from bounds.theory.fields import FIELDS, LIMITS, is_array
from bounds.theory.profile_file import read_values
from bounds.theory.terms import pinsker, pinsker_array, product_coupling

PUBLISHED, SHARP = "published", "sharp"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Profile:
    r"""What is known about a rollout policy and a training policy.

    Every value is an upper value of the quantity that :data:`FIELDS` describes (natural logarithms, KL in
    the direction roll||theta). All but ``T`` are optional.

    Parameters
    ----------
    T : int
        Horizon: the cap on the number of policy tokens of a response, 1 to 2^53.
    delta, epsilon, chi2_max : float
        Suprema over reachable contexts of KL, total variation, chi2.
    kl_seq, tv_seq, tv_sum, chi2_sum : float
        Sequence KL (D), sequence total variation, and sums over positions of expected TV (A) and chi2.
    mean_length : float
        Expected length of a response.
    mean_tv, mean_kl, mean_chi2, max_tv, max_kl, max_chi2 : array [T]
        Expected and largest divergences at each position.
    log_ratio_max, support_gap : float
        Cap on |log ratio| over the whole vocabulary; cap on theta's mass off roll's support.
    mean_reward : float
        Expected reward, inside ``reward_range``.
    reward_range : (float, float)
        Smallest and largest reward.
    absolutely_continuous : bool
        Whether theta puts no mass where roll puts none. True is an assumption, which every table prints; a
        ``support_gap`` above 0 makes it False.

    Raises
    ------
    ValueError
        A value outside its domain, an array of the wrong length, or two values that contradict each other.

    Notes
    -----
    The quantities are those of 2512.23075v4.

    Examples
    --------
    >>> p = Profile(T=4096, delta=1e-4)
    >>> p.resolve("epsilon").how
    'sqrt(delta/2)'
    """

    T: int
    delta: float | None = None
    epsilon: float | None = None
    chi2_max: float | None = None
    kl_seq: float | None = None
    tv_seq: float | None = None
    tv_sum: float | None = None
    chi2_sum: float | None = None
    mean_length: float | None = None
    mean_tv: npt.ArrayLike | None = None
    mean_kl: npt.ArrayLike | None = None
    mean_chi2: npt.ArrayLike | None = None
    max_tv: npt.ArrayLike | None = None
    max_kl: npt.ArrayLike | None = None
    max_chi2: npt.ArrayLike | None = None
    log_ratio_max: float | None = None
    support_gap: float | None = None
    mean_reward: float | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    absolutely_continuous: bool = True

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "T", integer("T", self.T, 1, MAX_HORIZON))
        for name, declared in FIELDS.items():
            value = getattr(self, name)
            if value is not None and declared.per_position:
                set_field(self, name, array(name, value, self.T, declared.low, declared.high))
            elif value is not None:
                set_field(self, name, number(name, value, declared.low, declared.high))
        if not isinstance(self.absolutely_continuous, bool | np.bool_):
            refuse("absolutely_continuous", "True or False", repr(self.absolutely_continuous))
        set_field(self, "absolutely_continuous", bool(self.absolutely_continuous) and not self.support_gap)
        set_field(self, "reward_range", reward_range(self.reward_range))
        for contradiction in self._contradictions():
            raise ValueError(contradiction)

    def _contradictions(self) -> Iterator[str]:
        for limit in LIMITS:
            names = (limit.name, *limit.others)
            values = {n: getattr(self, n) for n in names}
            if any(v is None for v in values.values()):
                continue
            with np.errstate(over="ignore"):
                most = limit.value(*(values[n] for n in limit.others))
            value, most = np.broadcast_arrays(values[limit.name], most)
            excess = value > most * (1.0 + TOLERANCE)
            if excess.any():
                k = int(np.argmax(excess))
                where = f"[{k}]" if value.ndim else ""
                got = ", ".join(f"{n}={_entry(v, k)}" for n, v in values.items())
                yield f"{limit.name}{where} must be at most {limit.text} = {most.flat[k]:.10g}, got {got}"
        low, high = self.reward_range
        slack = TOLERANCE * (abs(low) + abs(high))
        if self.mean_reward is not None and not low - slack <= self.mean_reward <= high + slack:
            domain = f"a number in reward_range [{low:g}, {high:g}]"
            yield f"mean_reward must be {domain}, got mean_reward={self.mean_reward}"

    @property
    def exact_spread(self) -> Fraction:
        """Largest minus smallest reward: errors scale with it, and a bound of this size says nothing."""
        low, high = self.reward_range
        return exact(high) - exact(low)

    @property
    def has_support_gap(self) -> bool:
        """Whether theta may put mass where roll puts none."""
        return not self.absolutely_continuous

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What every bound on this profile takes for granted."""
        if self.has_support_gap:
            return ()
        why = "theta << roll: every token that theta can emit, roll can emit; top-p or top-k sampling breaks it"
        return (Assumption("absolutely_continuous", True, why),)

    def known(self) -> dict[str, object]:
        """The fields that were given, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def __repr__(self) -> str:
        fields_ = (
            f"{name}=array[{value.size}]" if isinstance(value, np.ndarray) else f"{name}={value!r}"
            for name, value in self.known().items()
        )
        return f"Profile({', '.join(fields_)})"

    def to_dict(self) -> dict[str, object]:
        """The given fields, JSON-ready."""
        return {name: jsonable(value) for name, value in self.known().items()}

    def resolve(self, name: str, family: str = PUBLISHED) -> Input | None:
        """A scalar that was given or follows from others, with how; None if it does not follow.

        Published rules take a given value as it is; sharp rules take the smallest that is proved.
        """
        given = getattr(self, name)
        candidates = [] if given is None else [Input(name, given)]
        if not candidates or family == SHARP:
            candidates += [f for fill in FILLS if fill.target == name and (f := fill.apply(self, family))]
        return min(candidates, key=lambda c: c.value, default=None)

    def mean_tv_array(self) -> tuple[FloatArray, str, tuple[str, ...]] | None:
        """Upper values [T] of the expected TV at each position, how they came about and from which fields."""
        if isinstance(self.mean_tv, np.ndarray):
            return self.mean_tv, "given", ("mean_tv",)
        upper: list[tuple[FloatArray | float, str, str]] = []
        if isinstance(self.max_tv, np.ndarray):
            upper.append((self.max_tv, "max_tv", "max_tv"))
        for name in ("mean_kl", "max_kl"):
            kl = getattr(self, name)
            if isinstance(kl, np.ndarray):
                upper.append((pinsker_array(kl), f"sqrt({name}/2)", name))
        if not upper:
            return None
        if self.epsilon is not None:
            upper.append((self.epsilon, "epsilon", "epsilon"))
        smallest = functools.reduce(np.minimum, [bound for bound, _, _ in upper])
        how = "smallest of " + ", ".join(how for _, how, _ in upper) if len(upper) > 1 else upper[0][1]
        return np.asarray(smallest), how, tuple(name for _, _, name in upper)

    def quantities(
        self, needs: tuple[str, ...], optional: tuple[str, ...], family: str, standing: Mapping[str, Standing]
    ) -> tuple[SimpleNamespace, tuple[Input, ...]] | str:
        """The exact numbers that a formula asks for, and their provenance; or the name that is missing."""
        space = SimpleNamespace(T=self.T)
        inputs = []
        for name in needs + optional:
            if name == "mean_tv":
                found = self.mean_tv_array()
                space.mean_tv = None if found is None else found[0]
                if found is not None:
                    array_, how, used = found
                    weak = weakest(standing.get(u, Standing.PROVED) for u in used)
                    inputs.append(Input("mean_tv", float(array_.max()), how, () if how == "given" else used, weak))
                continue
            resolved = self.resolve(name, family)
            if resolved is None and name in needs:
                return name
            setattr(space, name, None if resolved is None else exact(resolved.value))
            if resolved is not None:
                used = resolved.used or (name,)
                weak = weakest(standing.get(u, Standing.PROVED) for u in used)
                inputs.append(Input(name, resolved.value, resolved.how, resolved.used, weak))
        return space, tuple(inputs)

    @classmethod
    def read(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a profile from CSV, Parquet, JSON or NPZ with the field names as columns or keys.

        Columns are per-position arrays; ``T`` is their length unless it is given. ``overrides`` win.
        An index column (``t``, ``position``) is checked to count the positions and then dropped.

        Raises
        ------
        ValueError
            An unknown column, with the likely meant name; or anything that :class:`Profile` refuses.
        """
        known = [f.name for f in fields(cls)]
        values = {**read_values(Path(path), [n for n in known if not is_array(n) and n != "reward_range"]), **overrides}
        for name in values:
            if name not in known:
                raise ValueError(f"{path}: {unknown('field', name, known)}")
        lengths = [np.size(values[n]) for n, f in FIELDS.items() if f.per_position and values.get(n) is not None]
        if values.get("T") is None:
            if not lengths:
                raise ValueError(f"{path}: T must be given: the file holds no per-position array to take it from")
            values["T"] = lengths[0]
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Fill:
    """A proved inequality that bounds one field by others."""

    target: str
    needs: tuple[str, ...]
    how: str
    value: Callable[..., Fraction]
    family: str | None = None  # None: published and sharp rules alike

    def apply(self, profile: Profile, family: str) -> Input | None:
        """The target's upper value on this profile, or None if something that it needs is unknown."""
        if self.family not in (None, family):
            return None
        arguments: list[Any] = []
        used: list[str] = []
        chain = [self.how]
        for name in self.needs:
            value = getattr(profile, name)
            if name == "mean_tv" and (by_position := profile.mean_tv_array()) is not None:
                value, how, fields_used = by_position
                used += fields_used
                chain += [f"mean_tv = {how}"] if how != "given" else []
            elif name in FIELDS and not is_array(name):
                resolved = profile.resolve(name, family)
                value = None if resolved is None else exact(resolved.value)
                if resolved is not None:
                    used += resolved.used or (name,)
                    chain += [f"{name} = {resolved.how}"] if resolved.used else []
            else:
                used += [name] if name != "T" else []
            if value is None:
                return None
            arguments.append(value)
        return Input(self.target, round_up(self.value(*arguments)), ", ".join(chain), tuple(dict.fromkeys(used)))


def _largest(values: FloatArray) -> Fraction:
    return exact(float(values.max()))


#: Proved gap filling (2512.23075v4; every line is checked by exact enumeration).
FILLS: tuple[Fill, ...] = (
    Fill("delta", ("max_kl",), "max(max_kl)", _largest),
    Fill("epsilon", ("max_tv",), "max(max_tv)", _largest),
    Fill("epsilon", ("delta",), "sqrt(delta/2)", pinsker),
    Fill("kl_seq", ("mean_kl",), "sum(mean_kl)", sum_up),
    Fill("kl_seq", ("max_kl",), "sum(max_kl)", sum_up),
    Fill("kl_seq", ("mean_length", "delta"), "delta mean_length", lambda n, d: n * d),
    Fill("kl_seq", ("T", "delta"), "T delta", lambda T, d: T * d),
    Fill("tv_sum", ("mean_tv",), "sum(mean_tv)", sum_up),
    Fill("tv_sum", ("mean_length", "epsilon"), "epsilon mean_length", lambda n, e: n * e),
    Fill("tv_sum", ("T", "epsilon"), "T epsilon", lambda T, e: T * e),
    Fill("tv_seq", ("kl_seq",), "sqrt(kl_seq/2)", pinsker),
    Fill("tv_seq", ("tv_sum",), "tv_sum", lambda a: min(Fraction(1), a)),
    Fill("tv_seq", ("T", "epsilon"), "1 - (1-epsilon)^T", product_coupling),
)


def _entry(value: Any, k: int) -> object:
    return value[k] if isinstance(value, np.ndarray) else value
