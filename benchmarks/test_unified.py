"""How long the whole table takes, as a ratio to one literal sum over the horizon.

Run with ``make bench``; README.md in this folder keeps a table of the ratios. Nothing here can fail on time.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

import bounds

LITERAL_T = 10**6


def literal_adaptive(T: int, delta: float, epsilon: float) -> float:
    """Compute 4 eps sum_t min(1, (T-t) eps, sqrt((T-t) delta/2)) as one would write it: one rule, NumPy over t."""
    k = np.arange(T, dtype=np.float64)
    return float(4 * epsilon * np.minimum(1.0, np.minimum(k * epsilon, np.sqrt(k * delta / 2))).sum())


@pytest.mark.parametrize("T", [4096, 10**12])
def test_unified(benchmark, T):
    benchmark.group = "bounds"
    benchmark(lambda: bounds.unified(T=T, delta=1e-4, epsilon=5e-3))
    started = time.perf_counter()
    for _ in range(5):
        literal = literal_adaptive(LITERAL_T, 1e-4, 5e-3)
    benchmark.extra_info["literal_seconds"] = (time.perf_counter() - started) / 5
    ratio = benchmark.extra_info["literal_seconds"] / benchmark.stats.stats.median
    print(f"\nunified at T={T:g}: one literal sum of one rule over T=1e6 takes {ratio:.2g} times as long")
    assert literal == pytest.approx(bounds.unified(T=LITERAL_T, delta=1e-4, epsilon=5e-3)["adaptive"].value, rel=1e-9)


def test_literal_sum(benchmark):
    benchmark.group = "bounds"
    benchmark(lambda: literal_adaptive(LITERAL_T, 1e-4, 5e-3))


def test_import_beside_numpy():
    def seconds(module: str) -> float:
        runs = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            runs.append(time.perf_counter() - started)
        return min(runs)

    numpy, ours = seconds("numpy"), seconds("bounds, bounds.rules.unified")
    print(f"\nimport: numpy {numpy * 1e3:.0f} ms, bounds with all rules {ours * 1e3:.0f} ms ({ours / numpy:.2f} times)")


def test_profile_of_a_million_positions(benchmark):
    """All rules on arrays, against the cost of one literal adaptive sum over as many positions."""
    rng = np.random.default_rng(0)
    kl = rng.random(LITERAL_T) * 1e-6
    profile = bounds.Profile(
        T=LITERAL_T,
        mean_kl=kl,
        max_kl=2 * kl,
        mean_tv=np.sqrt(kl / 2) / 2,
        max_tv=np.sqrt(kl),
        mean_chi2=2 * kl,
        max_chi2=4 * kl,
    )
    benchmark.group = "a million positions"
    benchmark(lambda: [r.evaluate(profile) for r in bounds.RULES])
    literal = min(_seconds(lambda: literal_adaptive(LITERAL_T, 1e-4, 5e-3)) for _ in range(5))
    ratio = benchmark.stats.stats.median / literal
    print(f"\nall {len(bounds.RULES)} rules on arrays of 1e6: {ratio:.2g} literal sums of one rule")
    for rule in bounds.RULES:
        best = min(_seconds(lambda rule=rule: rule.evaluate(profile)) for _ in range(30))
        if best > 1e-3:
            print(f"  {rule.name:24} {best * 1e3:5.1f} ms, {best / literal:.2g} literal sums")


def _seconds(run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
