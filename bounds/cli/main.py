"""The command line: text on stdout, errors on stderr; 0 done, 1 not so, 2 bad input, 3 undecided."""

from __future__ import annotations

import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from bounds import __version__
from bounds.cli import COMMANDS
from bounds.cli.command import is_option

#: What were options of ``certify``, and still may be written so.
_ALIASES = {"--by-step": "steps", "--objectives": "objectives"}

#: Where a shell says that it wants a word completed, or the script for that.
_COMPLETE = "_TRM_BOUNDS_COMPLETE"


class _Commands(click.Group):
    """The commands, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which they are shown."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Load a command."""
        if name in COMMANDS:
            command: click.Command = getattr(importlib.import_module(f"bounds.cli.{COMMANDS[name][0]}"), name)
            return command
        if not ctx.resilient_parsing:
            from bounds._checks import unknown

            ctx.fail(unknown("command", name, COMMANDS, listed=False))
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands alone: one screen has no room for --help and --version."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command answers, without loading it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, answers) for name, (_, answers) in COMMANDS.items()])


@click.group(
    cls=_Commands,
    help="How wrong can the surrogate objective of an LLM-RL step be?",
    no_args_is_help=False,
    epilog="\b\nExample: trm-bounds certify 'run/*.jsonl' --horizon 4096\n"
    f'Completion (bash): eval "$({_COMPLETE}=bash_source trm-bounds)"',
    context_settings={
        "help_option_names": ["-h", "--help"],
        "terminal_width": 80,
        "token_normalize_func": lambda name: name.replace("_", "-"),  # messages name fields, people type what they read
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def trm_bounds() -> None:
    """Hold the commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code; without one, show the help."""
    typed = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    _prepare_streams()
    try:
        if _COMPLETE in os.environ:
            return shell_complete(trm_bounds, {}, "trm-bounds", _COMPLETE, os.environ[_COMPLETE])
        with trm_bounds.make_context("trm-bounds", _renamed(typed), obj=shlex.join(["trm-bounds", *typed])) as ctx:
            code = int(trm_bounds.invoke(ctx) or 0)
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as done:  # help is printed
        code = done.exit_code
    except BrokenPipeError:  # who reads has enough
        code = 0
    except KeyboardInterrupt:
        code = 130
    except (click.ClickException, ValueError, TypeError, KeyError, OSError, ImportError) as error:
        print(f"trm-bounds: error: {_one_line(error)}", file=sys.stderr)
        code = 2
    try:
        sys.stdout.flush()
    except OSError:  # what is left in the buffer goes nowhere, lest Python complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _prepare_streams() -> None:
    """Write into nothing where a stream is closed, and without an error where a terminal has no Unicode."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _renamed(typed: list[str]) -> list[str]:
    """Read ``certify --by-step`` as ``steps``."""
    for flag, name in _ALIASES.items():
        words = [word for word in typed if word.replace("_", "-") != flag]
        if typed[:1] == ["certify"] and words != typed:
            return [name, *words[1:]]
    return typed


def _one_line(error: Exception) -> str:
    """Say what was wrong and, where that is the command line, what was likely meant and where to read more."""
    from bounds._checks import unknown
    from bounds._text import visible

    if isinstance(error, click.UsageError):
        text = error.format_message().rstrip(".")
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            options = [name for option in error.ctx.command.get_params(error.ctx) for name in option.opts]
            text = unknown("option", error.option_name, filter(is_option, options), listed=False)
        return f"{text[:1].lower()}{visible(text[1:])} ({error.ctx.command_path if error.ctx else 'trm-bounds'} --help)"
    if isinstance(error, OSError) and error.strerror is not None:
        places = (name for name in (error.filename, error.filename2) if name is not None)
        return visible(": ".join([*map(str, places), error.strerror.lower()]))
    return visible(str(error.args[0] if isinstance(error, KeyError) else error))
