"""The command line: ``trm-bounds COMMAND``. Text on stdout, warnings on stderr; 0 done, 1 not so, 2 bad input."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from bounds import __version__
from bounds.surface.commands import COMMANDS


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
    except (ValueError, TypeError, KeyError, OSError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"trm-bounds: error: {text}", file=sys.stderr)
        return 2


def _hyphens(argument: str) -> str:
    """--kl_seq is --kl-seq: messages name fields, people type what they read."""
    name, mark, value = argument.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + mark + value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trm-bounds",
        description="How wrong can the surrogate objective of an LLM-RL step be?",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trm-bounds {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return parser
