"""The rules again, in mpmath at 40 digits and written independently: what the project's numbers are held against.

Sums of square roots are closed by Euler-Maclaurin at 90 digits, so T may be 10^12.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import mpmath
from mpmath import mpf

DIGITS = 40


def real(x) -> mpf:
    if isinstance(x, mpf):
        return x
    x = Fraction(x)
    return mpf(x.numerator) / x.denominator


@cache
def sum_of_roots(n: int) -> mpf:
    """Direct below 200; from there on Euler-Maclaurin from both ends, to far more digits than are compared."""
    start = 200
    with mpmath.workdps(90):
        direct = mpmath.fsum(mpmath.sqrt(k) for k in range(1, min(n, start) + 1))
        if n <= start:
            return direct
        a, b = mpf(start), mpf(n)
        total = direct - mpmath.sqrt(a) + mpf(2) / 3 * (b**1.5 - a**1.5) + (mpmath.sqrt(a) + mpmath.sqrt(b)) / 2
        for j in range(1, 30):
            k = 2 * j - 1
            slope = mpmath.ff(mpf(1) / 2, k) * (b ** (mpf(1) / 2 - k) - a ** (mpf(1) / 2 - k))
            total += mpmath.bernoulli(2 * j) / mpmath.factorial(2 * j) * slope
        return total


def capped(n: int, epsilon=None, delta=None) -> mpf:
    """sum_{k=0}^{n} min(1, k epsilon, sqrt(k delta/2)), by finding the two crossings by bisection on integers."""

    def term(k: int) -> tuple[mpf, int]:
        options = [(mpf(1), 2)]
        if epsilon is not None:
            options.append((k * real(epsilon), 0))
        if delta is not None:
            options.append((mpmath.sqrt(k * real(delta) / 2), 1))
        return min(options)

    def last(kind: int) -> int:
        """Largest k <= n whose smallest term is of this kind or an earlier one."""
        low, high = 0, n + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if term(middle)[1] <= kind else (low, middle)
        return low

    linear = last(0) if epsilon is not None else 0
    root = last(1) if delta is not None else linear
    total = mpf(n - root)
    if epsilon is not None:
        total += real(epsilon) * linear * (linear + 1) / 2
    if delta is not None and root > linear:
        total += mpmath.sqrt(real(delta) / 2) * (sum_of_roots(root) - sum_of_roots(linear))
    return total


def truth(name: str, T: int, delta=0, epsilon=0, kl_seq=0, tv_seq=0, chi2_max=0, chi2_sum=0, reward_sd=0.5) -> mpf:
    """A rule at scalar inputs that are all given, at 40 digits; Dbar_t is min(epsilon, Pinsker)."""
    with mpmath.workdps(DIGITS):
        e = min(mpf(1), real(epsilon))
        pinsker = min(mpf(1), mpmath.sqrt(real(delta) / 2))
        dbar = min(e, pinsker)
        by = {
            "classical": lambda: 2 * mpf(T) * (T - 1) * real(epsilon) ** 2,
            "linear": lambda: 4 * mpf(T) * real(epsilon),
            "coupling": lambda: 4 * e * capped(T - 1, epsilon=epsilon),
            "pinsker_marginal_kl": lambda: 4 * pinsker * capped(T - 1, delta=delta),
            "pinsker_marginal_tv": lambda: 4 * e * capped(T - 1, delta=delta),
            "mixed_kl": lambda: 4 * mpf(T) * pinsker * min(mpf(1), mpmath.sqrt(real(kl_seq) / 2)),
            "mixed_tv": lambda: 4 * mpf(T) * e * min(mpf(1), real(tv_seq)),
            "adaptive_kl": lambda: 4 * dbar * capped(T - 1, delta=delta),
            "adaptive_tv": lambda: 4 * dbar * capped(T - 1, epsilon=epsilon),
            "adaptive": lambda: 4 * dbar * capped(T - 1, epsilon=epsilon, delta=delta),
            "trajectory_kl": lambda: real(kl_seq),
            "trajectory_tv": lambda: T * real(epsilon),
            "exact_tv": lambda: T * e * (-mpmath.expm1((T - 1) * mpmath.log1p(-e)) if e < 1 else mpf(T > 1)),
            "martingale_kl": lambda: of_summed_delta(T * real(delta)),
            "martingale_chi2": lambda: real(reward_sd) * mpmath.sqrt(excess(T, real(chi2_max))),
            "first_order": lambda: min(mpf(1), real(tv_seq)) + real(reward_sd) * mpmath.sqrt(real(chi2_sum)),
        }
        base = name.removeprefix("halved_")
        if name in by:
            return +by[name]()
        return by[base]() / 2 * (mpf(T - 1) / T if base.startswith("mixed") else 1)


def of_summed_delta(D: mpf) -> mpf:
    """What martingale_kl says at D = T delta, with as many digits as cancel."""
    if D > 490:
        return mpmath.inf
    with mpmath.workdps(DIGITS + 40 + 2 * max(0, -int(mpmath.log10(D)))):
        e = mpmath.exp(D)
        summed = mpmath.sqrt(e * e - 1 - 2 * D) / 2 + 2 * D * mpmath.sqrt(e * e - 1) / 3 + 8 * ((D - 1) * e + 1) / 9
        return mpmath.exp(4 * D / 9) * summed


def excess(T: int, x: mpf) -> mpf:
    """(1+x)^T - 1 - T x, with as many digits as cancel."""
    lost = 2 * max(0, -int(mpmath.log10(abs(x) * T))) if x else 0
    with mpmath.workdps(DIGITS + 40 + lost):
        return (mpmath.exp(T * mpmath.log1p(x)) if x > -1 else mpf(0)) - 1 - T * x
