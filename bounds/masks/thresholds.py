"""Thresholds of masks, as people type them; what cannot be meant is refused with what likely is."""

from __future__ import annotations

import math

from bounds._checks import parse_number
from bounds.masks.statistics import STATISTICS, TOKEN, TOKEN_STATISTICS, TokenStatistic, exact_text, ln_trm_constants

_MEAN_LOOKS_LIKE_RATIO = 0.5
_ONE_END = {"seq_max_ratio": "<=", "seq_min_ratio": ">="}  # the other end is no trust region


def token_of(name: str) -> TokenStatistic:
    """The statistic of a token that a criterion's statistic is made of."""
    if name.startswith("ln_trm("):
        return TOKEN["ratio_deviation"]
    return TOKEN[TOKEN_STATISTICS[name] if name in TOKEN_STATISTICS else STATISTICS[name][1]]


def canonical_ln_trm(name: str) -> str:
    """``ln_trm(...)`` with its constants in one order and spelling."""
    cap, epsilon, delta = ln_trm_constants(name)
    given = [f"{k}={exact_text(v)}" for k, v in (("epsilon", epsilon), ("delta", delta)) if v is not None]
    return f"ln_trm({','.join([f'T={cap}', *given])})"


def bounds_of(name: str, sign: str, text: str) -> tuple[float, float]:
    """The range that a threshold means.

    Raises
    ------
    ValueError
        If it cannot be meant; the message says what likely is.
    """
    token = token_of(name)
    if (only := _ONE_END.get(name, sign)) != sign:
        raise ValueError(f"{name} takes one bound, {name}{only}NUMBER, got {name}{sign}{text}")
    if sign not in token.signs and not (sign == "=" and token.signs == ("<=",)):
        raise ValueError(_wrong_sign(name, token, text))
    if token.signs == ("<=",):
        return _upper_bound(name, token, text)
    if sign == "=":
        return _both_bounds(name, token, text)
    value = _number(name, text)
    if not (value > token.centre if sign == "<=" else value < token.centre):
        raise ValueError(
            f"{name}{sign} takes a bound on {token.meaning} {'above' if sign == '<=' else 'below'} 1, got "
            f"{name}{sign}{text}" + (_divergence_instead(name, text) if value < 1.0 else "")
        )
    return (0.0, value) if sign == "<=" else (value, math.inf)


def _upper_bound(name: str, token: TokenStatistic, text: str) -> tuple[float, float]:
    value = _number(name, text)
    if value <= token.centre:
        raise ValueError(
            f"{name} is a mean of {token.meaning}, which is at least 1; its threshold must be above that, got "
            f"{name}<={text}; for a mean of |theta/roll - 1| write seq_mean_ratio_deviation<={text}"
        )
    if name.startswith("seq_mean") and not token.centre and value >= _MEAN_LOOKS_LIKE_RATIO:
        both = f"{min(value, 1 / value):g}_{max(value, 1 / value):g}"
        raise ValueError(
            f"{name} takes {token.meaning} per token such as 0.001, got {name}<={text}, which looks like a "
            f"bound on a ratio; for that write seq_mean_k1={both}"
        )
    return 0.0, value


def _both_bounds(name: str, token: TokenStatistic, text: str) -> tuple[float, float]:
    low, mark, high = text.removeprefix("-").partition("_")
    if not mark:
        raise ValueError(_wrong_sign(name, token, text))
    if token.logs:
        bounds = _number(name, text.partition("_")[0]), _number(name, high)
    else:
        bounds = -_number(name, low) if text.startswith("-") else _number(name, low), _number(name, high)
    if not bounds[0] < token.centre < bounds[1]:
        domain = "0 < LOW < 1 < HIGH" if token.centre else "LOW < 0 < HIGH"
        raise ValueError(f"{name} must have bounds LOW_HIGH with {domain}, got {name}={text}")
    return bounds


def _wrong_sign(name: str, token: TokenStatistic, text: str) -> str:
    if token.signs == ("<=",):
        return f"{name} takes an upper bound only, {name}<=NUMBER, got {text!r}"
    example = "0.999_1.001" if token.centre else "-0.2_0.2"
    message = f"{name} takes bounds LOW_HIGH on {token.meaning} such as {example}, got {text!r}"
    try:
        value = parse_number(text)
    except ValueError:
        return message
    if value > 1.0:
        return f"{message}; for a factor either way write {name}={1 / value:g}_{value:g}"
    return message + (_divergence_instead(name, text) if token.centre else "")


def _divergence_instead(name: str, text: str) -> str:
    pool = {"product": "sum", "geometric": "mean", "min": "max"}
    parts = [pool.get(part, part) for part in name.split("_")[:-1]]
    return f"; for a divergence threshold write {'_'.join([*parts, 'k3'])}<={text}"


def _number(name: str, text: str) -> float:
    try:
        value = parse_number(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        hint = "; bounds LOW_HIGH belong to k1 and ratio" if "_" in text else ""
        raise ValueError(f"the threshold of {name} must be a positive number, got {text!r}{hint}")
    return value
