"""Profile: what is known about the divergence of two policies, checked, with what it implies.

A field is declared once, with its symbol, meaning and domain; checks, command-line options, files and documentation
follow from there. What is not given may follow from what is (:mod:`bounds.rules.implied`), and it is remembered how.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bounds._checks import MAX_HORIZON, array, integer, number, parse_number, refuse, reward_range, unknown
from bounds._rounding import exact, round_up, sqrt_up
from bounds._text import many, one_line
from bounds.results import Assumption, jsonable
from bounds.rules.bound import PUBLISHED, Input
from bounds.rules.implied import Implied, Quantity


@dataclass(frozen=True, slots=True)
class Field:
    """One number, or one array [T], that a profile may hold: its symbol, meaning and domain; ``rare``: few know it."""

    symbol: str
    meaning: str
    low: float = 0.0
    high: float = math.inf
    per_position: bool = False
    rare: bool = False


FIELDS: Mapping[str, Field] = {
    "delta": Field("δ", "largest KL(roll||theta) at any reachable context, in nats"),
    "epsilon": Field("ε", "largest total variation at any reachable context", high=1.0),
    "chi2_max": Field("X", "largest chi2(theta||roll) at any reachable context"),
    "kl_seq": Field("D", "expected KL(roll||theta) of a whole response, in nats"),
    "tv_seq": Field("TV", "total variation of the two response distributions, mean over prompts", high=1.0),
    "tv_sum": Field("A", "expected total variation, summed over positions", rare=True),
    "chi2_sum": Field("ΣC", "expected chi2, summed over positions", rare=True),
    "mean_length": Field("E len", "expected length of a response, in tokens", rare=True),
    "mean_tv": Field("D̄_t", "expected total variation at each position", high=1.0, per_position=True),
    "mean_kl": Field("K_t", "expected KL(roll||theta) at each position, in nats", per_position=True),
    "mean_chi2": Field("C̄_t", "expected chi2 at each position", per_position=True),
    "max_tv": Field("ε_t", "largest total variation at each position", high=1.0, per_position=True),
    "max_kl": Field("δ_t", "largest KL(roll||theta) at each position, in nats", per_position=True),
    "max_chi2": Field("X_t", "largest chi2 at each position", per_position=True),
    "log_ratio_max": Field("Λ", "largest |log theta - log roll| over the whole vocabulary, at any context", rare=True),
    "support_gap": Field("m", "largest mass of theta where roll has none, at any context", high=1.0, rare=True),
    "mean_reward": Field("μ", "expected reward under roll", low=-math.inf, rare=True),
    "reward_sd_within": Field(
        "sd", "sqrt(E Var(R | prompt)): spread of the reward within prompts, under roll", rare=True
    ),
}


@lru_cache(maxsize=16)
def _largest_spread(ranges: tuple[tuple[float, float], ...]) -> Fraction:
    """Return the largest minus the smallest reward, where it is largest."""
    return max(exact(high) - exact(low) for low, high in ranges)


def is_array(name: str) -> bool:
    """Return whether a field holds one number for each position."""
    return name in FIELDS and FIELDS[name].per_position


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Profile:
    r"""What is known about a rollout policy and a training policy.

    Every divergence, ``mean_length`` and ``support_gap`` is an upper value of the quantity that
    ``bounds.rules.profile.FIELDS`` describes (natural logarithms, KL in the direction roll||theta); what is no float64
    is rounded up. ``mean_reward`` is no upper value: a larger mean may make a bound smaller. Only ``T`` is required.

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
    mean_reward : float or (float, float)
        Expected reward, inside ``reward_range``, or limits between which it lies. A number stands for every mean that
        float64 rounds to it; of all means the worst counts.
    reward_sd_within : float
        sqrt(E Var(R | prompt)), in units of the reward: how far the rewards of one prompt's responses spread.
    reward_range : (float, float), or one such pair for each prompt
        Smallest and largest reward.
    absolutely_continuous : bool
        Whether theta puts no mass where roll puts none. True is an assumption, which every table prints; a
        ``support_gap`` above 0 makes it False.

    Raises
    ------
    ValueError
        A value outside its domain, or an array of the wrong length. No two divergences contradict each other: the
        larger of two upper values is not used.

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
    mean_reward: float | tuple[float, float] | None = None
    reward_sd_within: float | None = None
    reward_range: tuple[float, float] | tuple[tuple[float, float], ...] = (0.0, 1.0)
    absolutely_continuous: bool = True
    implied: Implied = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "T", integer("T", self.T, 1, MAX_HORIZON))
        for name, declared in FIELDS.items():
            value = getattr(self, name)
            if value is not None and declared.per_position:
                set_field(self, name, array(name, value, self.T, declared.low, declared.high))
            elif value is not None and name != "mean_reward":
                set_field(self, name, number(name, value, declared.low, declared.high, toward=math.inf))
        if not isinstance(self.absolutely_continuous, bool | np.bool_):
            refuse("absolutely_continuous", "True or False", repr(self.absolutely_continuous))
        set_field(self, "absolutely_continuous", bool(self.absolutely_continuous) and not self.support_gap)
        set_field(self, "reward_range", _reward_ranges(self.reward_range))
        if self.mean_reward is not None:
            set_field(self, "mean_reward", self._checked_mean(self.mean_reward))
        set_field(self, "implied", Implied(self.known(), support_gap=self.has_support_gap))

    def _checked_mean(self, value: Any) -> float | tuple[float, float]:
        """Return a mean reward, or the limits of an interval that holds it, inside the one range of the rewards."""
        if self._ranges_by_prompt:
            raise ValueError(f"mean_reward needs one reward_range for all prompts, got mean_reward={value}")
        ((low, high),) = self._ranges
        is_pair = isinstance(value, tuple | list | np.ndarray) and getattr(value, "ndim", 1) > 0
        if is_pair:
            if len(value) != 2:
                refuse("mean_reward", "a number or a pair (low, high)", value)
            least = number("mean_reward[0]", value[0], toward=-math.inf)
            most = number("mean_reward[1]", value[1], toward=math.inf)
        else:
            least = most = number("mean_reward", value)
        if not low <= least <= most <= high:  # without tolerance: a mean beyond an end is a mistake
            refuse("mean_reward", f"a number in reward_range [{low:g}, {high:g}], or a pair low <= high", value)
        return (least, most) if is_pair else least

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
        return _largest_spread(self._ranges)

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
        """Return the fields that were given, by name."""
        return {name: v for name in _GIVEN if (v := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        fields_ = (
            f"{name}=array[{value.size}]" if isinstance(value, np.ndarray) else f"{name}={value!r}"
            for name, value in self.known().items()
        )
        return f"Profile({', '.join(fields_)})"

    def to_dict(self) -> dict[str, object]:
        """Return the given fields, JSON-ready."""
        return {name: jsonable(value) for name, value in self.known().items()}

    def resolve(self, name: str, family: str = PUBLISHED) -> Input | None:
        """Return a number that was given or is implied (of an array its largest entry), and how.

        Parameters
        ----------
        name : str
            A field, ``"reward_sd"``, or ``"gap_sum"``: theta's expected mass off roll's support.
        family : {"published", "sharp"}
            Sharp rules use the sharpest inequalities; published ones plain Pinsker, and only for what was not given.

        Returns
        -------
        Input or None
            None where nothing bounds it.
        """
        found = self.quantity(name, family)
        return None if found is None else found[1]

    def quantity(self, name: str, family: str = PUBLISHED) -> Quantity | None:
        """Return the exact number, or the array [T], beside what :meth:`resolve` says of it."""
        if name == "reward_sd":
            return exact(self.reward_sd.value), self.reward_sd
        return self.implied.find(name, family)

    @property
    def reward_sd(self) -> Input:
        """An upper value of the reward's standard deviation under roll, for rewards mapped to [0, 1].

        It is the smallest of 1/2; sqrt(mu (1 - mu)) at the mu nearest to 1/2 of all that ``mean_reward`` stands for;
        and ``reward_sd_within``, which will do where theta << roll: W has mean 0 for each prompt, so that rewards may
        be centred prompt by prompt.
        """
        found = [(Fraction(1, 2), "1/2, of any reward in a range of 1", "")]
        if self.mean_reward is not None:
            low, high = self.exact_means
            mean = min(max(Fraction(1, 2), low), high)
            found.append((sqrt_up(mean * (1 - mean)), "sqrt(mu (1-mu))", "mean_reward"))
        if self.reward_sd_within is not None:
            found.append((exact(self.reward_sd_within) / self.exact_spread, "reward_sd_within", "reward_sd_within"))
        value, how, used = min(found, key=lambda way: way[0])
        return Input("reward_sd", round_up(value), how, (used,) if used else ())

    @property
    def exact_means(self) -> tuple[Fraction, Fraction]:
        """The least and the largest mean that ``mean_reward`` stands for, for rewards mapped to [0, 1]."""
        lowest, spread = self.reward(Fraction(0)), self.exact_spread
        low, high = (min(max(Fraction(0), (mean - lowest) / spread), Fraction(1)) for mean in _means(self.mean_reward))
        return low, high

    def reward(self, share: Fraction) -> Fraction:
        """Return the reward that is mapped to a number in [0, 1], where all prompts have one range."""
        return exact(self._ranges[0][0]) + share * self.exact_spread

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Self:
        """Return the profile with these fields.

        Raises
        ------
        TypeError
            An unknown field, with the likely meant name; or no horizon.
        ValueError
            As for :class:`Profile`.
        """
        for name in known:
            if name not in _GIVEN:
                raise TypeError(unknown("field", name, _GIVEN))
        if known.get("T") is None:
            raise TypeError("T, the horizon, must be given")
        return cls(**known)

    @classmethod
    def read(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a profile from CSV, TSV, Parquet, JSON or NPZ with the field names as columns or keys.

        Columns are per-position arrays; ``T`` is their length unless it is given. ``overrides`` win.
        An index column (``t``, ``position``) is checked to count the positions and then dropped.

        Returns
        -------
        Profile

        Raises
        ------
        ValueError
            An unknown column, with the likely meant name; or anything that :class:`Profile` refuses.
        """
        if not isinstance(path, str | Path):
            raise TypeError(f"path must be the name of a file, got {path!r:.60}")
        values = {**_read_values(Path(path)), **overrides}
        lengths = [np.size(values[n]) for n, f in FIELDS.items() if f.per_position and values.get(n) is not None]
        try:
            return cls.of(values if values.get("T") is not None or not lengths else {**values, "T": lengths[0]})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None


_GIVEN = tuple(f.name for f in fields(Profile) if f.init)
_NUMBERS = {name for name in _GIVEN if not is_array(name)} - {"reward_range"}


def _reward_ranges(value: Any) -> Any:
    """Return one pair, or a tuple of pairs (one for each prompt), checked."""
    try:
        pairs = [tuple(pair) for pair in value]
    except TypeError:
        return reward_range(value)
    return tuple(map(reward_range, pairs)) or reward_range(value)


def _means(given: float | tuple[float, float] | None) -> tuple[Fraction, Fraction]:
    """Return the least and the largest mean that a pair allows, or that rounds to a number."""
    if given is None:
        raise ValueError("mean_reward is not known")
    if isinstance(given, tuple):
        return exact(given[0]), exact(given[1])
    below, above = (exact(math.nextafter(given, way)) for way in (-math.inf, math.inf))
    return (below + exact(given)) / 2, (exact(given) + above) / 2


def _json(path: Path) -> dict[str, Any]:
    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise TypeError("a key stands in it twice")
        return values

    loaded = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=no_key_twice)
    if not isinstance(loaded, dict):
        raise TypeError("it must hold one JSON object with Profile's names as keys")
    return {name: _column_of_frame(name, value) for name, value in loaded.items()}


def _column_of_frame(name: str, value: Any) -> Any:
    """Return what pandas' ``DataFrame.to_json`` writes of a column, {"0": x, "1": y}, as a list."""
    if not isinstance(value, dict):
        return value
    if list(value) != [str(row) for row in range(len(value))]:
        raise TypeError(f"{name} must be a number, a list, or as DataFrame.to_json writes it, with rows 0, 1, 2, ...")
    return list(value.values())


def _npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return {name: a.item() if a.ndim == 0 else a for name, a in arrays.items()}


def _parquet(path: Path) -> dict[str, Any]:
    import pandas as pd

    frame = pd.read_parquet(path)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _text_table(path: Path) -> dict[str, Any]:
    """Read columns of numbers between commas, semicolons or tabs; rows count from 0, below the names."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        separator = max("\t;,", key=first.count)
        names, *rows = csv.reader(file, delimiter=separator)
    names = [name.strip() or "Unnamed: 0" for name in names]
    if len(set(names)) < len(names):
        raise TypeError(f"a column stands in it twice ({', '.join(names)})")
    rows = [cells or [""] for cells in rows]
    for row, cells in enumerate(rows):
        if len(cells) != len(names):
            why = "; numbers are written with a point, 0.001" if separator == "," and len(cells) > len(names) else ""
            raise TypeError(f"row {row} has {many(len(cells), 'cell')} for the {many(len(names), 'column')}{why}")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {
        n: np.array([_cell(text, row, n) for row, text in enumerate(c)]) for n, c in zip(names, columns, strict=True)
    }


def _cell(text: str, row: int, column: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        point = text.strip().replace(",", ".")
        decimal = text.count(",") == 1 and point.replace(".", "", 1).lstrip("-").isdigit()
        hint = f" (a decimal comma? Write {point})" if decimal else ""
        raise ValueError(f"row {row}, column {column} must be a number, got {text.strip()!r:.60}{hint}") from None


#: How a profile is read, by the suffix of its file; nothing in it is executed: NPZ is read without pickles.
_READERS = {".json": _json, ".npz": _npz, ".csv": _text_table, ".tsv": _text_table, ".parquet": _parquet}


def _read_values(path: Path) -> dict[str, Any]:
    """Read the named values of a file; an index column is dropped, and a column of a number repeats one value."""
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise ValueError(f"{path}: a profile is read from {', '.join(_READERS)}, got {kind or 'no suffix'}")
    try:
        values = _READERS[kind](path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever the libraries raise for a malformed file
        raise ValueError(f"{path}: cannot be read as {kind}: {one_line(error)}") from None
    for name in ("t", "position", "Unnamed: 0"):
        index = np.asarray(values.pop(name, ()))
        if not any(np.array_equal(index, np.arange(first, first + index.size)) for first in (0, 1)):
            raise ValueError(f"{path}: column {name} must count the positions one by one")
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.ndim == 1 and name in _NUMBERS:
            distinct = set(value.tolist())
            if len(distinct) != 1:
                raise ValueError(f"{path}: column {name} must hold one value, the same in each row")
            values[name] = distinct.pop()
    return values
