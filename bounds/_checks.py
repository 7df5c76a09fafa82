"""Argument checks and their one message shape: "<name> must be <domain>, got <name>=<value>"."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

_Function = TypeVar("_Function", bound=Callable[..., Any])
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Two descriptions of the same policies may disagree by this much (relative) and still be called equal.
TOLERANCE = 1e-9
#: Largest horizon: every integer up to here is a float64 of its own.
MAX_HORIZON = 2**53


def refuse(name: str, domain: str, value: object) -> NoReturn:
    """Raise the ValueError of this project for one bad argument."""
    raise ValueError(f"{name} must be {domain}, got {name}={value}")


def above(value: float, limit: float) -> bool:
    """Return whether ``value`` exceeds ``limit`` by more than :data:`TOLERANCE`, relative."""
    return value > limit * (1.0 + TOLERANCE)


def number(
    name: str, value: object, low: float = -math.inf, high: float = math.inf, *, toward: float | None = None
) -> float:
    """Return one real number in [low, high] as float; NaN is never inside (+inf is, where ``high`` is inf).

    ``toward`` is inf or -inf: what is no float itself (a Fraction, an integer above 2^53) is rounded that way, else to
    the nearest.
    """
    domain = "a number" if math.isinf(low) else f"a number in [{low:g}, {high:g}]"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.integer | np.floating):
        refuse(name, domain, repr(value))
    result = _as_float(value, toward)
    if math.isnan(result) or result < low or above(result, high):
        refuse(name, domain, result)
    return result


def integer(name: str, value: object, low: int, high: int) -> int:
    """Return one whole number in [low, high]; 4096.0 and NumPy integers are whole numbers, True is not."""
    domain = f"a whole number in [{low}, {high}]"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.integer | np.floating):
        refuse(name, domain, repr(value))
    if not isinstance(value, Integral) and not float(value).is_integer():
        refuse(name, domain, value)
    result = int(value) if isinstance(value, Integral) else int(float(value))
    if not low <= result <= high:
        refuse(name, domain, result)
    return result


def array(name: str, value: object, length: int | None, low: float, high: float) -> FloatArray:
    """Return one read-only float64 array [length] with entries in [low, high]; the first bad entry is named.

    Entries that are no floats themselves are rounded up.
    """
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        refuse(f"{name}[{int(np.argmax(value.mask))}]", f"a number in [{low:g}, {high:g}]", "masked")
    try:
        given = np.asarray(value)
        result = _rounded_up(given) if given.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        refuse(name, "an array of numbers", repr(value)[:60])
    if result is None:
        refuse(name, "an array of numbers", f"dtype {given.dtype}")
    if result.ndim != 1 or (length is not None and result.size != length):
        expected = "T" if length is None else f"T={length}"
        raise ValueError(
            f"{name} must be an array with one entry for each of the {expected} positions, "
            f"got {name} of shape {result.shape}"
        )
    inside = (result >= low) & (result <= high * (1.0 + TOLERANCE))
    if not inside.all():
        worst = int(np.argmin(inside))
        refuse(f"{name}[{worst}]", f"a number in [{low:g}, {high:g}]", result[worst])
    result.flags.writeable = False
    return result


def reward_range(value: Any) -> tuple[float, float]:
    """Return a pair of finite numbers, lowest < highest."""
    try:
        low, high = value
    except (TypeError, ValueError):
        refuse("reward_range", "a pair (lowest, highest)", repr(value))
    pair = number("reward_range[0]", low, toward=-math.inf), number("reward_range[1]", high, toward=math.inf)
    if not (math.isfinite(pair[0]) and math.isfinite(pair[1]) and pair[0] < pair[1]):
        refuse("reward_range", "two finite numbers, lowest < highest", pair)
    return pair


def parse_number(text: str) -> float:
    """Read a number as people type it (no underscores, as Python would allow)."""
    try:
        if text.isascii() and "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise ValueError(f"must be a number, got {text.strip()!r}")


def _as_float(value: Any, toward: float | None = None) -> float:
    exactly = int(value) if isinstance(value, Integral) else value  # NumPy's integers compare as floats
    try:
        nearest = float(exactly)
    except OverflowError:  # an integer beyond the floats
        nearest = math.inf if exactly > 0 else -math.inf
    if (toward == math.inf and nearest < exactly) or (toward == -math.inf and nearest > exactly):
        return math.nextafter(nearest, toward)
    return nearest


def _rounded_up(given: npt.NDArray[Any]) -> FloatArray:
    """Return a float64 copy that is nowhere below; only wide integers, long doubles and objects are no floats."""
    if given.dtype == np.float64 or (given.dtype.kind in "biuf" and given.dtype.itemsize < 8):
        return given.astype(np.float64)
    entries = [_as_float(x, math.inf) for x in given.ravel().tolist()]
    return np.array(entries, dtype=np.float64).reshape(given.shape)


def confidence_level(value: object) -> float:
    """Return a confidence level, strictly between 0 and 1."""
    level = number("confidence", value)
    if not 0.0 < level < 1.0:
        percent = f" (for {level:g}% write {level / 100.0:g})" if 1.0 < level < 100.0 else ""
        refuse("confidence", "a number strictly between 0 and 1", f"{level}{percent}")
    return level


def unknown(kind: str, name: object, known: Iterable[str], *, listed: bool = True) -> str:
    """Say of an unknown name what was likely meant, and (unless not ``listed``) all that is known."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1) or [n for n in names if name and n.startswith(str(name))]
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {kind} {str(name)!r}{hint}" + (f" (known: {', '.join(names)})" if listed else "")


def takes_parameters_of(source: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Let the signature of a function name the parameters that its ``**`` stands for: those of ``source``.

    So editors complete them, and ``bounds/__init__.pyi``, which is written from signatures, has them with their types.
    """

    def complete(function: _Function) -> _Function:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        others = [p for name, p in inspect.signature(source).parameters.items() if name not in own.parameters]
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in others]
        vars(function)["__signature__"] = own.replace(parameters=[*kept, *named])
        return function

    return complete
