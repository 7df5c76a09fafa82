"""Exact numbers with logarithms in them: rationals plus rational multiples of logarithms of primes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import sympy as sp


@cache
def log_low(x: Fraction) -> Fraction:
    """Return a rational lower value of log(x) for a positive rational, within 1e-40 (0 for x = 1)."""
    import mpmath

    if x == 1:
        return Fraction(0)
    with mpmath.workdps(60):
        value = mpmath.log(mpmath.mpf(x.numerator)) - mpmath.log(mpmath.mpf(x.denominator))
        scaled = int(mpmath.floor(value * mpmath.mpf(10) ** 45))
    return Fraction(scaled - 1, 10**45)


@dataclass(frozen=True)
class Number:
    """A rational plus rational multiples of logarithms of primes; unique, so 0 is recognised."""

    rational: Fraction
    logs: dict[int, Fraction] = field(default_factory=dict)

    def plus(self, other: Number, times: Fraction = Fraction(1)) -> Number:
        """Return self + times other."""
        logs = {p: self.logs.get(p, Fraction(0)) + times * other.logs.get(p, 0) for p in {*self.logs, *other.logs}}
        return Number(self.rational + times * other.rational, {p: c for p, c in logs.items() if c})

    @property
    def is_non_negative(self) -> bool:
        """Whether it is certified: False also where the logarithms would be needed to more than 40 digits."""
        slack = Fraction(3, 10**45)
        least = sum((c * (log_low(Fraction(p)) + (slack if c < 0 else 0)) for p, c in self.logs.items()), self.rational)
        return least >= 0


@cache
def log(x: Fraction) -> Number:
    """Return the logarithm of a positive rational."""
    powers = {p: Fraction(k) for p, k in sp.factorint(x.numerator).items()}
    powers |= {p: Fraction(-k) for p, k in sp.factorint(x.denominator).items()}
    return Number(Fraction(0), {int(p): c for p, c in powers.items() if p != 1})


def kl(roll: Any, theta: Any) -> Number:
    """Return KL(roll||theta) of two rational rows, theta positive where roll is."""
    return total((log(p / q), p) for p, q in zip(roll, theta, strict=True) if p)


def total(terms: Any, start: Fraction = Fraction(0)) -> Number:
    """Return the sum of numbers, each with its factor."""
    result = Number(start)
    for number, times in terms:
        result = result.plus(number, times)
    return result
