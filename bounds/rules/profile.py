"""Profile: what is known about the divergence of two policies, checked, with its gaps filled.

A field is declared once, in :mod:`bounds.rules.fields`; checks, command-line options, files and
documentation follow from there. A gap is filled by a proved inequality, a
:class:`~bounds.rules.implied.Fill`; what was filled from what is remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, TOLERANCE, FloatArray, array, integer, number, refuse, reward_range, unknown
from bounds._rounding import exact, round_up, sqrt_up
from bounds.results import Assumption, Standing, jsonable, weakest
from bounds.rules.bound import Input
from bounds.rules.fields import FIELDS, LIMITS, PUBLISHED, SHARP, is_array
from bounds.rules.implied import ARRAY_FILLS, FILLS, SUPREMA
from bounds.rules.profile_file import read_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Profile:
    r"""What is known about a rollout policy and a training policy.

    Every value is an upper value of the quantity that ``bounds.rules.fields.FIELDS`` describes (natural logarithms,
    KL in the direction roll||theta). All but ``T`` are optional.

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
    reward_range : (float, float), or one such pair for each prompt
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
    reward_range: tuple[float, float] | tuple[tuple[float, float], ...] = (0.0, 1.0)
    absolutely_continuous: bool = True
    _resolved: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False)

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
        set_field(self, "reward_range", _reward_ranges(self.reward_range))
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
        if self.mean_reward is not None and self._ranges_by_prompt:
            yield f"mean_reward needs one reward_range for all prompts, got mean_reward={self.mean_reward}"
        elif self.mean_reward is not None:
            ((low, high),) = self._ranges
            if not low <= self.mean_reward <= high:  # without tolerance: next to an end sd(R) would be 0
                domain = f"a number in reward_range [{low:g}, {high:g}]"
                yield f"mean_reward must be {domain}, got mean_reward={self.mean_reward}"

    @property
    def _ranges_by_prompt(self) -> bool:
        return isinstance(self.reward_range[0], tuple)

    @property
    def _ranges(self) -> tuple[tuple[float, float], ...]:
        return self.reward_range if self._ranges_by_prompt else (self.reward_range,)  # type: ignore[return-value]

    @property
    def exact_spread(self) -> Fraction:
        """Largest minus smallest reward (of the prompt where it is largest).

        Errors scale with it, and a bound of this size says nothing.
        """
        return max(exact(high) - exact(low) for low, high in self._ranges)

    @property
    def largest_offset(self) -> Fraction:
        """The largest absolute value of a lowest reward: it matters only with a support gap."""
        return max(abs(exact(low)) for low, _ in self._ranges)

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
        return {f.name: v for f in fields(self) if f.init and (v := getattr(self, f.name)) is not None}

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
        found: Input | None = self._remember(self._resolve, name, family)
        return found

    def _remember(self, resolve: Callable[[str, str], Any], name: str, family: str) -> Any:
        if (name, family) not in self._resolved:
            self._resolved[name, family] = resolve(name, family)
        return self._resolved[name, family]

    def _resolve(self, name: str, family: str) -> Input | None:
        given = getattr(self, name, None)  # what only fills know, such as gap_sum, is no field
        candidates = [] if given is None else [Input(name, given)]
        if not candidates or family == SHARP:
            candidates += [f for fill in FILLS if fill.target == name and (f := fill.apply(self, family))]
        return min(candidates, key=lambda c: c.value, default=None)

    def resolve_array(self, name: str, family: str = PUBLISHED) -> tuple[FloatArray, Input] | None:
        """An array [T] that was given or follows from others, position by position; None if it does not follow.

        The Input's value is its largest entry. Given and filled are combined as in :meth:`resolve`.
        """
        found: tuple[FloatArray, Input] | None = self._remember(self._resolve_array, name, family)
        return found

    def _resolve_array(self, name: str, family: str) -> tuple[FloatArray, Input] | None:
        given = getattr(self, name)
        upper: list[tuple[Any, str, tuple[str, ...]]] = [] if given is None else [(given, "given", (name,))]
        if not upper or family == SHARP:
            filled = ((f.apply(self, family), f) for f in ARRAY_FILLS if f.target == name)
            upper += [(value, fill.how, fill.needs) for value, fill in filled if value is not None]
        if not upper:
            return None
        top = SUPREMA[name]
        if given is None and getattr(self, top) is not None:
            upper.append((getattr(self, top), top, (top,)))
        smallest = functools.reduce(np.minimum, [bound for bound, _, _ in upper])
        hows = [how for _, how, _ in upper]
        how = hows[0] if len(upper) == 1 else f"smallest of {', '.join(hows)}"
        used = () if how == "given" else tuple(dict.fromkeys(n for _, _, names in upper for n in names))
        return np.asarray(smallest), Input(name, float(np.max(smallest)), how, used)

    @property
    def reward_sd(self) -> Input:
        """An upper value of the reward's standard deviation under roll, for rewards mapped to [0, 1]."""
        if self.mean_reward is None or self._ranges_by_prompt:
            return Input("reward_sd", 0.5, "1/2, of any reward in a range of 1")
        low = exact(self._ranges[0][0])
        mean = (exact(self.mean_reward) - low) / self.exact_spread
        return Input("reward_sd", round_up(sqrt_up(mean * (1 - mean))), "sqrt(mu (1-mu))", ("mean_reward",))

    def quantities(
        self, needs: tuple[str, ...], optional: tuple[str, ...], family: str, standing: Mapping[str, Standing]
    ) -> tuple[SimpleNamespace, tuple[Input, ...]] | str:
        """The exact numbers that a formula asks for, and their provenance; or the name that is missing."""
        space, inputs = SimpleNamespace(T=self.T), list[Input]()
        value: Any
        for name in needs + optional:
            if name in FIELDS and is_array(name):
                by_position = self.resolve_array(name, family)
                value, found = (None, None) if by_position is None else by_position
            else:
                found = self.reward_sd if name == "reward_sd" else self.resolve(name, family)
                value = None if found is None else exact(found.value)
            if found is None and name in needs:
                return name
            setattr(space, name, value)
            if found is not None:
                weak = weakest(standing.get(u, Standing.PROVED) for u in found.used or (name,))
                inputs.append(replace(found, standing=weak))
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
        known = [f.name for f in fields(cls) if f.init]
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


def _reward_ranges(value: Any) -> Any:
    """One pair, or a tuple of pairs (one for each prompt), checked."""
    if np.ndim(value) == 2:
        return tuple(reward_range(tuple(pair)) for pair in np.asarray(value).tolist())
    return reward_range(value)


def _entry(value: Any, k: int) -> object:
    return value[k] if isinstance(value, np.ndarray) else value
