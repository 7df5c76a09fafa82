"""The command line: ``trm-bounds COMMAND``. Text on stdout, warnings on stderr; 0 done, 1 not so, 2 bad input."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bounds import __version__
from bounds._checks import parse_number
from bounds._show import plain, rich_table, round_toward_zero
from bounds.results import Certificate
from bounds.surface.reading import add_reading_options, reading_from
from bounds.surface.reading import number as _number
from bounds.surface.reading import whole as _whole
from bounds.theory.fields import FIELDS, is_array

_PAPER = "trm-bounds bstar --T 4096 --delta 1e-4 --epsilon 5e-3 --kl-seq 0.01 --tv-seq 0.05"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    typed = [_hyphens(a) for a in (sys.argv[1:] if argv is None else argv)]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode still gets its table
    arguments = _parser().parse_args(typed)
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, KeyError, OSError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"trm-bounds: error: {text}", file=sys.stderr)
        return 2


def _hyphens(argument: str) -> str:
    """--kl_seq is --kl-seq: messages name fields, people type what they read."""
    name, mark, value = argument.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + mark + value


def _parser() -> argparse.ArgumentParser:
    from bounds.surface import cli_masks  # it needs what is below

    parser = argparse.ArgumentParser(
        prog="trm-bounds",
        description="How wrong can the surrogate objective of an LLM-RL step be?",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trm-bounds {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_bstar(commands)
    _add_largest(commands)
    _add_certify(commands)
    _add_formats(commands)
    cli_masks.add(commands)
    _add_figures(commands)
    _add_verify(commands)
    return parser


def _command(commands: Any, name: str, run: Any, help: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=help, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


# --- bstar -------------------------------------------------------------------------------------------------


def _add_bstar(commands: Any) -> None:
    parser = _command(commands, "bstar", _bstar, "every bound on |Error| for given divergences, and B*", _PAPER)
    parser.add_argument("--T", type=_whole, metavar="N", help="horizon: the cap on policy tokens of a response")
    _add_fields(parser)
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="CSV, Parquet, JSON or NPZ; columns named as the options, and per-position arrays: "
        + ", ".join(n for n in FIELDS if is_array(n)),
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """The scalar fields of a profile as options."""
    for name, field in FIELDS.items():
        if not is_array(name):
            parser.add_argument(_flag(name), type=_number, metavar="X", help=f"{field.symbol}: {field.meaning}")
    parser.add_argument("--reward-range", nargs=2, type=_number, metavar=("LOW", "HIGH"), help="default: 0 1")
    parser.add_argument(
        "--support-may-differ",
        action="store_true",
        help="do not assume theta << roll (top-p or top-k sampling): rules that need it are withdrawn",
    )


def _fields(arguments: argparse.Namespace) -> dict[str, Any]:
    known: dict[str, Any] = {n: v for n in FIELDS if not is_array(n) and (v := getattr(arguments, n)) is not None}
    if arguments.reward_range is not None:
        known["reward_range"] = tuple(arguments.reward_range)
    if arguments.support_may_differ:
        known["absolutely_continuous"] = False
    return known


def _bstar(arguments: argparse.Namespace) -> int:
    from bounds.theory.profile import Profile
    from bounds.theory.unified import unified

    known = {**_fields(arguments), **({} if arguments.T is None else {"T": arguments.T})}
    if arguments.profile is None and "T" not in known:
        raise ValueError(f"bstar needs --T and a divergence, or --profile FILE; for example: {_PAPER}")
    profile = Profile(**known) if arguments.profile is None else Profile.read(arguments.profile, **known)
    _print(unified(profile), arguments.json)
    return 0


# --- largest -----------------------------------------------------------------------------------------------


def _add_largest(commands: Any) -> None:
    parser = _command(
        commands,
        "largest",
        _largest,
        "the largest value of a quantity that still proves |Error| <= target",
        "trm-bounds largest delta --target 0.1 0.5 --T 1024 4096",
    )
    parser.add_argument("quantity", metavar="QUANTITY", help="delta, epsilon, chi2_max, kl_seq, mean_kl_token or T")
    parser.add_argument("--target", type=_number, nargs="+", required=True, metavar="B", help="one or more guarantees")
    parser.add_argument("--T", type=_whole, nargs="+", metavar="N", help="one or more horizons")
    parser.add_argument("--published", action="store_true", help="use the paper's B* instead of all rules")
    _add_fields(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _largest(arguments: argparse.Namespace) -> int:
    from bounds.theory.invert import largest, table_at

    quantity, known = arguments.quantity.replace("-", "_"), _fields(arguments)
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
        print(f"|Error| <= {answer['target']:g}{where} is proved up to {quantity} = {shown}  (by {answer['by']})")
    return 0


# --- certify -----------------------------------------------------------------------------------------------


def _add_certify(commands: Any) -> None:
    parser = _command(
        commands,
        "certify",
        _certify,
        "estimates and bounds from logged responses (without PATH: the embedded example)",
        "trm-bounds certify run/*.jsonl --horizon 4096 --mask 'seq_max_k2<=0.05' --require 'b_star_upper<=0.2'",
    )
    add_reading_options(parser)
    parser.add_argument("--confidence", type=_number, default=0.95, metavar="C", help="default: 0.95")
    parser.add_argument("--mask", metavar="M", help="a sequence mask, such as 'seq_max_k2<=0.05,seq_mean_k3<=0.001'")
    parser.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what no sample can show, such as delta=1e-3 (may be repeated)",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="QUANTITY<=VALUE",
        help="exit 1 unless it holds; an estimate counts with the far end of its interval (may be repeated)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, full precision")


def _certify(arguments: argparse.Namespace) -> int:
    from bounds.evidence.certify import certify
    from bounds.evidence.readers import read_traces

    requirements = [_requirement(text) for text in arguments.require]
    traces = read_traces(**reading_from(arguments))
    assume = dict(_assumption(text) for text in arguments.assume)
    result = certify(traces, confidence=arguments.confidence, mask=arguments.mask, assume=assume)
    unmet = [text for text in (_unmet(result, *r) for r in requirements) if text]
    _print(result if arguments.json else replace(result, warnings=()), arguments.json)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for text in unmet:
        print(f"trm-bounds: required, but it does not hold: {text}", file=sys.stderr)
    return 1 if unmet else 0


def _assumption(text: str) -> tuple[str, float | bool]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"--assume must be NAME=VALUE such as delta=1e-3, got {text!r}")
    field, word = name.strip().replace("-", "_"), value.strip().lower()
    if word in ("true", "false"):
        return field, word == "true"
    try:
        return field, parse_number(word)
    except ValueError as error:
        raise ValueError(f"--assume {field} {error}") from None


def _requirement(text: str) -> tuple[str, str, float]:
    for sign in ("<=", ">="):
        name, mark, value = text.partition(sign)
        if mark:
            return name.strip(), sign, parse_number(value.strip())
    raise ValueError(f"--require must be QUANTITY<=VALUE or QUANTITY>=VALUE, got {text!r}")


def _unmet(result: Certificate, name: str, sign: str, limit: float) -> str:
    """What was found instead, or "" where the requirement holds."""
    found = result.quantity(name, upper=sign == "<=")
    if found is not None and (found <= limit if sign == "<=" else found >= limit):
        return ""
    end = "" if name.startswith("b_star") else "its upper limit " if sign == "<=" else "its lower limit "
    what = "nothing that is more than optimistic" if found is None else f"{end}{found:.6g}"
    return f"{name}{sign}{limit:g}, found {what}"


# --- formats -----------------------------------------------------------------------------------------------


def _add_formats(commands: Any) -> None:
    parser = _command(
        commands,
        "formats",
        _formats,
        "the logs that are read, and how a trainer comes to write them",
        "trm-bounds formats --recipe verl",
    )
    parser.add_argument("--recipe", metavar="TRAINER", help="print the lines that export from verl, skyrl or trl")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _formats(arguments: argparse.Namespace) -> int:
    from bounds.surface import formats

    if arguments.recipe is not None:
        print(formats.recipe(arguments.recipe), end="")
    elif arguments.json:
        print(json.dumps(formats.to_dict()))
    else:
        for table in formats.tables():
            _show(table)
        print(formats.MEMORY_ONLY)
    return 0


# --- figures, verify ---------------------------------------------------------------------------------------


def _add_figures(commands: Any) -> None:
    parser = _command(
        commands,
        "figures",
        _figures,
        "draw figures as PNG, PDF and CSV",
        "trm-bounds figures comparison --out figures",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="such as comparison, scaling, regimes, tightness; without a name: all"
    )
    parser.add_argument("--out", default="figures", metavar="DIR", help="default: figures")


def _figures(arguments: argparse.Namespace) -> int:
    from bounds.surface.figures import write

    for path in write(arguments.names, arguments.out):
        print(path)
    return 0


def _add_verify(commands: Any) -> None:
    parser = _command(
        commands,
        "verify",
        _verify,
        "check every rule: symbolically, exactly, between certified ends",
        "trm-bounds verify",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _verify(arguments: argparse.Namespace) -> int:
    from bounds.proof import verify

    results = verify()
    failed = [r for r in results if not r.passed]
    if arguments.json:
        print(json.dumps({"checks": [r.to_dict() for r in results], "failed": len(failed)}))
    else:
        rows = [([r.name, "passed" if r.passed else "FAILED", r.how, r.statement], not r.passed) for r in results]
        _show(rich_table(["check", "", "how", "what was checked"], rows))
        kinds = ("symbolic", "exact", "interval")
        counts = [
            ([name, *(str(sum(name in r.rules and r.how == k and r.passed for r in results)) for k in kinds)], False)
            for name in dict.fromkeys(n for r in results for n in r.rules)
        ]
        _show(rich_table(["rule: checks passed", *kinds], counts))
        print(f"{len(results)} checks, {len(failed)} failed")
    return 1 if failed else 0


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(result.to_json())
    else:
        _show(result)


def _show(renderable: object) -> None:
    """In colour on a terminal (rich honours NO_COLOR), plain when piped."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(renderable)
    else:
        print(plain(renderable))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
