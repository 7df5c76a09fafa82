"""All checks, in the order of the derivation, and running them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bounds._text import Cells
from bounds.proof import every_tree, instances, objectives, restated, symbolic
from bounds.proof.inequalities import ALL, CHI2, COUPLED, EXACT, EXACT_TV, HALVED, INTERVAL, KL_ROUTE, PAPER, STEPS

SYMBOLIC = "symbolic"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, how it is checked, and the rules that rest on it."""

    name: str
    statement: str
    how: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check(Statement):
    """A statement with what decides it, and constants that must break it."""

    run: Callable[..., bool]
    wrong: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckResult(Statement):
    """A statement, and whether its check passed."""

    passed: bool


#: How much smaller a rule must be for the enumerated problems to refute it.
_PAPER_TOO_SMALL = Fraction(1, 6)
_TOO_SMALL = {"first_order": Fraction(9, 10), "linear": Fraction(1, 5)}


def _check(run: Callable[..., bool], how: str, rules: tuple[str, ...], **wrong: Any) -> Check:
    statement = (run.__doc__ or "").strip().splitlines()[0]
    return Check(run.__name__, statement, how, rules, run, wrong)


def _for_rule(run: Callable[..., bool], name: str, how: str, statement: str, **wrong: Any) -> Check:
    return Check(f"{run.__name__}:{name}", statement, how, (name,), lambda **c: run(name, **c), wrong)


#: The identities and instances, the inequalities, and three groups with one check for each rule.
CHECKS: tuple[Check, ...] = (
    _check(symbolic.telescoping, SYMBOLIC, ALL, sign=1),
    _check(symbolic.performance_difference, SYMBOLIC, PAPER, contexts="roll"),
    _check(symbolic.surrogate_form, SYMBOLIC, PAPER, baseline=0),
    _check(symbolic.chain_rule, SYMBOLIC, (*KL_ROUTE, "trajectory_kl"), contexts="theta"),
    _check(symbolic.pinsker, SYMBOLIC, KL_ROUTE, coefficient=3),
    _check(instances.capped_sums, INTERVAL, PAPER, factor=Fraction(1) - Fraction(1, 10**9)),
    _check(restated.simplified_is_larger, SYMBOLIC, ("pinsker_marginal_kl",), coefficient=Fraction(5, 4)),
    _check(restated.reductions, SYMBOLIC, PAPER, factor=3),
    _check(restated.reversed_sums, EXACT, ("adaptive_kl", "adaptive_tv"), shift=1),
    _check(restated.halves, EXACT, HALVED, factor=Fraction(999, 1000)),
    _check(restated.crossover, SYMBOLIC, ("adaptive",), factor=3),
    _check(symbolic.identity, SYMBOLIC, ("trajectory_kl",), sign=1),
    _check(symbolic.k3_convex, SYMBOLIC, ("trajectory_kl",), constant=2),
    _check(symbolic.expected_k3, SYMBOLIC, ("trajectory_kl",), constant=2),
    _check(instances.expected_u, EXACT, ("trajectory_tv",), factor=Fraction(2)),
    _check(symbolic.free_baseline, SYMBOLIC, (*HALVED, *COUPLED), baseline=0),
    _check(symbolic.orthogonal_increments, SYMBOLIC, CHI2, first=3),
    _check(symbolic.expected_square_of_score, SYMBOLIC, CHI2, factor=2),
    _check(symbolic.summed_excess, SYMBOLIC, ("martingale_chi2",), start=2),
    _check(symbolic.solved_forward, SYMBOLIC, EXACT_TV, constant=2),
    _check(symbolic.potential, SYMBOLIC, ("martingale_kl",), factor=3),
    _check(symbolic.chi2_to_kl, SYMBOLIC, CHI2, power=3),
    _check(symbolic.curve_slope, SYMBOLIC, (*HALVED, *COUPLED), factor=3),
    _check(symbolic.curve_concave, SYMBOLIC, (*HALVED, *COUPLED), factor=3),
    _check(every_tree.kl_on_every_tree, EXACT, ("trajectory_kl",), factor=Fraction(9, 10)),
    _check(every_tree.tv_on_every_tree, EXACT, ("exact_tv",), factor=Fraction(9, 10)),
    _check(instances.implications, EXACT, ALL, factor=Fraction(9, 10)),
    _check(instances.withdrawn, EXACT, ALL, factor=Fraction(0)),
    _check(objectives.any_function, EXACT, ("trajectory_kl",), factor=Fraction(9, 20)),
    _check(objectives.pessimistic_minimum, EXACT, (), factor=Fraction(9, 10)),
    _check(objectives.group_mean, EXACT, (), own=0),
    _check(objectives.group_deviation, EXACT, (), odds=0),
    _check(objectives.reweighing, EXACT, (), drop=Fraction(2)),
    _check(objectives.three_rewards, EXACT, (), middle=Fraction(1, 2)),
    _check(objectives.sequence_mean, EXACT, (), power=0),
    _check(objectives.token_mean, EXACT, (), power=0),
    *(_check(run, how, rules, factor=too_small) for run, how, rules, too_small in STEPS),
    *(
        _for_rule(
            run,
            n,
            INTERVAL,
            f"{n}{where} lies between the certified ends of its printed form, 1e-12 wide",
            factor=Fraction(999, 1000),
        )
        for run, names, where in (
            (restated.restated, restated.RESTATED, ""),
            (restated.restated_by_position, restated.BY_POSITION, " on arrays"),
        )
        for n in names
    ),
    *(
        _for_rule(
            instances.holds,
            n,
            EXACT,
            f"{n} holds on enumerated problems",
            factor=_TOO_SMALL.get(n, _PAPER_TOO_SMALL if n in PAPER else Fraction(9, 20)),
        )
        for n in ALL
    ),
)


def verify(
    checks: Iterable[Check] | None = None, *, on_start: Callable[[str], None] | None = None
) -> list[CheckResult]:
    """Run all checks, or some; ``trm-bounds verify`` prints them.

    Parameters
    ----------
    checks : iterable of Check, optional
        Default: :data:`CHECKS`.
    on_start : callable, optional
        Called with the name of each check before it runs.

    Returns
    -------
    list of CheckResult
        In the order of the derivation; ``how`` is "symbolic" (an identity in SymPy), "exact" (rational
        arithmetic) or "interval" (between certified ends).
    """
    results = []
    for c in CHECKS if checks is None else checks:
        if on_start is not None:
            on_start(c.name)
        results.append(CheckResult(c.name, c.statement, c.how, c.rules, bool(c.run())))
    return results


def tables(results: list[CheckResult]) -> list[Cells]:
    """Return for people what was checked, and how many checks of each rule passed."""
    kinds = (SYMBOLIC, EXACT, INTERVAL)
    rows = [([r.name, "passed" if r.passed else "FAILED", r.how, r.statement], not r.passed) for r in results]
    passed = Counter((name, r.how) for r in results if r.passed for name in r.rules)
    names = dict.fromkeys(name for r in results for name in r.rules)
    counts = [([name, *(str(passed[name, how]) for how in kinds)], False) for name in names]
    return [(["check", "", "how", "what was checked"], rows), (["rule: checks passed", *kinds], counts)]
