"""The command line: ``trm-bounds COMMAND``. Text on stdout, warnings on stderr; 0 done, 1 not so, 2 bad input."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from bounds import __version__
from bounds.cli import COMMANDS
from bounds.cli.parser import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    typed = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode still gets its table
    try:
        arguments = _parser().parse_args([_hyphens(a) for a in typed])
        arguments.command = shlex.join(["trm-bounds", *typed])  # as it was typed, for what says how it was made
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads has enough; what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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


def _parser() -> Parser:
    parser = Parser(
        prog="trm-bounds",
        everything=False,
        usage="trm-bounds COMMAND [options]",
        description="How wrong can the surrogate objective of an LLM-RL step be?",
        epilog="example:\n  trm-bounds certify 'run/*.jsonl' --horizon 4096",
    )
    parser.add_argument("--version", action="version", version=f"trm-bounds {__version__}", help="the version")
    parser.add_argument("--print-completion", action=_PrintCompletion, metavar="SHELL", help="for bash, zsh, fish, ...")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="trm-bounds")
    for module in COMMANDS:
        module.add(commands)
    return parser


class _PrintCompletion(argparse.Action):
    """A script that a shell runs to complete commands, options, their values and file names."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, __: object = None) -> NoReturn:
        import shtab

        if shell not in shtab.SUPPORTED_SHELLS:
            parser.error(f"--print-completion must be one of {', '.join(shtab.SUPPORTED_SHELLS)}, got {shell!r}")
        kinds = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY}
        commands = next(a.choices for a in parser._actions if isinstance(a.choices, dict))
        for action in (a for command in commands.values() for a in command._actions):
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]
            if action.suggest is not None:
                action.choices = tuple(action.suggest())
        print(shtab.complete(parser, shell=shell), flush=True)
        parser.exit()
