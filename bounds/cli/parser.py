"""Parsers whose help fits one screen, and whose errors are one line that says what was likely meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from bounds._checks import unknown

#: Lines and columns of a screen.
SCREEN = (24, 80)
#: What argparse says, and what we say.
_WORDS = {
    r"^argument ([^:]+): ": r"\1 ",
    "expected one argument": "needs a value",
    "expected at least one argument": "needs a value",
    r"expected (\d+) arguments": r"needs \1 values",
    "ignored explicit argument": "takes no value, got",
    "the following arguments are required:": "missing:",
}


class _Everything(argparse.RawDescriptionHelpFormatter):
    """Help on every option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=SCREEN[1])


class _Common(_Everything):
    """Help without the options that are declared as rare."""

    def add_argument(self, action: argparse.Action) -> None:
        if not getattr(action, "rare", False):
            super().add_argument(action)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.formatter_class = _Everything
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """``--help`` shows what most people need, ``--help-all`` everything."""

    def __init__(self, *, everything: bool = True, **options: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, formatter_class=_Common, **options)
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf)")  # -1e-3 is a number, no option
        self._positionals.title = None  # no heading: a line more for options
        self.names: list[str] = []
        self.add_argument("-h", "--help", action="help", help="this page")
        if everything:
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help="the same with every option")

    def add_argument(
        self,
        *names: str,
        rare: bool = False,
        suggest: Callable[[], Iterable[str]] | None = None,
        **options: Any,
    ) -> argparse.Action:
        """Declare an argument: ``rare`` ones are in ``--help-all`` only, a shell completes what ``suggest()`` gives."""
        action = super().add_argument(*names, **options)
        vars(action).update(rare=rare, suggest=suggest)
        self.names += [name for name in names if name.startswith("-")]
        return action

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse, but nothing may be left over, and unknown options are found before anything else."""
        before_command = self._subparsers is not None
        for word in takewhile(lambda a: a.startswith("-") if before_command else a != "--", args or ()):
            name = word.partition("=")[0]
            if name[:1] != "-" or name == "-" or " " in word or self._negative_number_matcher.match(word):
                continue
            if name not in self.names:
                self.error(unknown("option", name, self.names, listed=False))
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if not action.option_strings:
            self.error(unknown("command", value, action.choices, listed=False))
        name = action.option_strings[-1]
        self.error(f"{name} must be one of {', '.join(map(str, action.choices))}, got {name}={value}")

    def error(self, message: str) -> NoReturn:
        """One line on stderr, and where to read more; exit code 2."""
        for theirs, ours in _WORDS.items():
            message = re.sub(theirs, ours, message)
        self.exit(2, f"trm-bounds: error: {message} ({self.prog} --help)\n")
