"""``trm-bounds verify``: why to believe the rules."""

from __future__ import annotations

import argparse
import json
from typing import Any

from bounds._text import TerminalTable
from bounds.cli.options import command, show
from bounds.cli.progress import counting_progress
from bounds.results import jsonable


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "verify",
        _verify,
        "check every rule in symbols and on examples",
        "trm-bounds verify",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _verify(arguments: argparse.Namespace) -> int:
    from bounds.proof import CHECKS, verify

    with counting_progress("checking", len(CHECKS)) as on_start:
        results = verify(on_start=on_start)
    failed = [r for r in results if not r.passed]
    if arguments.json:
        print(json.dumps(jsonable({"checks": results, "failed": len(failed)})))
    else:
        rows = [([r.name, "passed" if r.passed else "FAILED", r.how, r.statement], not r.passed) for r in results]
        show(TerminalTable(["check", "", "how", "what was checked"], rows))
        kinds = ("symbolic", "exact", "interval")
        counts = [
            ([name, *(str(sum(name in r.rules and r.how == k and r.passed for r in results)) for k in kinds)], False)
            for name in dict.fromkeys(n for r in results for n in r.rules)
        ]
        show(TerminalTable(["rule: checks passed", *kinds], counts))
        print(f"{len(results)} checks, {len(failed)} failed")
    return 1 if failed else 0
