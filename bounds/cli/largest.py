"""``trm-bounds largest``: the largest trust region that still proves a target."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from bounds._checks import unknown
from bounds._text import round_toward_zero
from bounds.cli.fields import add_fields, fields_from
from bounds.cli.options import add_json, command, number, whole


def quantities() -> Iterable[str]:
    """What can be asked for."""
    from bounds.rules.largest import INVERTIBLE

    return INVERTIBLE


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "largest",
        _largest,
        "the largest delta, T, ... that proves a target",
        "trm-bounds largest delta --target 0.1 0.5 --T 1024 4096",
        operands="QUANTITY --target B ...",
    )
    parser.add_argument(
        "quantity", metavar="QUANTITY", suggest=quantities, help="delta, epsilon, chi2_max, kl_seq, mean_kl_token, T"
    )
    parser.add_argument("--target", type=number, nargs="+", required=True, metavar="B", help="one or more guarantees")
    parser.add_argument("--T", type=whole, nargs="+", metavar="N", help="one or more horizons")
    parser.add_argument("--published", action="store_true", rare=True, help="by the paper's B* instead of all rules")
    add_fields(parser)
    add_json(parser)


def _largest(arguments: argparse.Namespace) -> int:
    from bounds.rules.largest import INVERTIBLE, largest, table_at

    quantity, known = arguments.quantity.replace("-", "_"), fields_from(arguments)
    if quantity not in INVERTIBLE:
        raise ValueError(unknown("quantity", quantity, INVERTIBLE))
    if quantity != "T" and arguments.T is None:
        raise ValueError("largest needs --T, the horizon (one or more)")
    answers: list[dict[str, Any]] = []
    for T in arguments.T or [None]:
        there = {**known, **({} if T is None else {"T": T})}
        for target in arguments.target:
            value = largest(quantity, target, published=arguments.published, **there)
            table = table_at(quantity, value, there)
            best = table.best_published if arguments.published else table.best
            answers.append({"T": T, "target": target, quantity: value, "by": best.name if best else None})
    if arguments.json:
        finite = [{k: None if v == float("inf") else v for k, v in a.items()} for a in answers]
        print(json.dumps({"quantity": quantity, "answers": finite}))
        return 0
    for answer in answers:
        where = "" if answer["T"] is None or quantity == "T" else f" at T = {answer['T']}"
        value = answer[quantity]
        shown = f"{value}" if isinstance(value, int) else f"{round_toward_zero(value):g}"
        target = repr(answer["target"]).removesuffix(".0")  # as it was asked for: rounded down it would not be proved
        print(f"|Error| <= {target}{where} is proved up to {quantity} = {shown}  (by {answer['by']})")
    return 0
