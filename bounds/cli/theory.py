"""``trm-bounds bstar`` and ``trm-bounds largest``: what follows from divergences that are known."""

from __future__ import annotations

import json
from typing import Any

import click

import bounds
from bounds._checks import unknown
from bounds._text import round_toward_zero
from bounds.cli.command import FILE, as_json, command, group, number, option, reward_range, suggest, whole
from bounds.cli.output import answer, emit
from bounds.results import jsonable
from bounds.rules.answer import block
from bounds.rules.largest import INVERTIBLE, with_quantity
from bounds.rules.profile import FIELDS, is_array

#: What is shown where nothing is asked for: the inputs of the paper, as they are typed.
_PAPER = {"T": "4096", "delta": "1e-4", "epsilon": "5e-3", "kl-seq": ".01", "tv-seq": ".05"}
_COMMAND = " ".join(["trm-bounds bstar", *(f"--{name} {value}" for name, value in _PAPER.items())])
_EXPLAINED = f"""\
How wrong the surrogate L' of an LLM-RL step can be: every bound that follows
from T, the cap on a response's tokens, and from how far apart the two policies
are in KL and total variation. The paper's example is the same as

{_COMMAND}"""

_profile = group(
    *(
        option(f"--{name.replace('_', '-')}", type=number, metavar="X", help=field.meaning, rare=field.rare)
        for name, field in FIELDS.items()
        if not is_array(name)
    ),
    reward_range(),
    option("--support-may-differ", is_flag=True, help="theta << roll need not hold (top-p, top-k)"),
)


def _known(support_may_differ: bool, **fields: Any) -> dict[str, Any]:
    """Return the fields of a profile that were given."""
    known = {name: value for name, value in fields.items() if value is not None}
    return {**known, "absolutely_continuous": False} if support_may_differ else known


@command("bstar", "trm-bounds bstar --T 4096 --delta 1e-4 --kl-seq 0.01", "Alone: an example.")
@option("--T", "T", type=whole, metavar="N", help="horizon: the cap on policy tokens of a response")
@_profile
@option("--profile", type=FILE, metavar="FILE",
        help=f"CSV, TSV, Parquet, JSON or NPZ with arrays [T]: {', '.join(filter(is_array, FIELDS))}")  # fmt: skip
@option("--full", is_flag=True, help="every bound")
@as_json
def bstar(profile: str | None, full: bool, as_json: bool, **fields: Any) -> None:
    """Print the smallest bound for given divergences, or every one."""
    known = _known(**fields)
    if profile is None and not known and not as_json:
        print(_EXPLAINED)
        known = {name.replace("-", "_"): float(value) for name, value in _PAPER.items()}
    if profile is None and "T" not in known:
        raise ValueError(f"bstar needs --T and a divergence, or --profile FILE; for example: {_COMMAND}")
    table = bounds.unified(bounds.Profile(**known) if profile is None else bounds.Profile.read(profile, **known))
    if as_json or full:
        emit(table, as_json)
    else:
        good = table.best is not None and not table.best.vacuous
        answer(block(table), f"bold {'green' if good else 'yellow'}", 12)


@command(
    "largest",
    "trm-bounds largest delta --target 0.1 0.5 --T 1024 4096",
    "QUANTITY is delta, epsilon, chi2_max, kl_seq, mean_kl_token or T.",
)
@click.argument("quantity", shell_complete=suggest(lambda: INVERTIBLE))
@option("--target", several=True, required=True, type=number, metavar="B ...", help="one or more guarantees")
@option("--T", "horizons", several=True, type=whole, metavar="N ...", help="one or more horizons")
@option("--published", is_flag=True, rare=True, help="by the paper's B* instead of all rules")
@_profile
@as_json
def largest(
    quantity: str, target: tuple[float, ...], horizons: tuple[float, ...], published: bool, as_json: bool, **fields: Any
) -> None:
    """Print the largest trust region that proves each target, at each horizon."""
    quantity, known = quantity.replace("-", "_"), _known(**fields)
    if quantity not in INVERTIBLE:
        raise ValueError(unknown("quantity", quantity, INVERTIBLE))
    if quantity != "T" and not horizons:
        raise ValueError("largest needs --T, the horizon (one or more)")
    answers: list[dict[str, Any]] = []
    for T in horizons or (None,):
        there = known if T is None else {**known, "T": T}
        for B in target:
            value = bounds.largest(quantity, B, published=published, **there)
            table = bounds.unified(**with_quantity(quantity, value, there))
            best = table.best_published if published else table.best
            answers.append({"T": T, "target": B, quantity: value, "by": best.name if best else None})
    if as_json:
        print(json.dumps(jsonable({"quantity": quantity, "answers": answers})))
    else:
        print("\n".join(_sentence(quantity, answer) for answer in answers))


def _sentence(quantity: str, answer: dict[str, Any]) -> str:
    where = "" if answer["T"] is None or quantity == "T" else f" at T = {answer['T']}"
    value = answer[quantity]
    shown = f"{value}" if isinstance(value, int) else f"{round_toward_zero(value):g}"
    target = repr(answer["target"]).removesuffix(".0")  # as it was asked for: rounded down it would not be proved
    return f"|Error| <= {target}{where} is proved up to {quantity} = {shown}  (by {answer['by']})"
