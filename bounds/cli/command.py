"""Commands and options on click: short help, values as people type them, mistakes in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import takewhile
from typing import Any

import click

from bounds.cli import COMMANDS

FILE, FOLDER = click.Path(), click.Path(file_okay=False)
_NEGATIVE = re.compile(r"-(\d|\.\d|inf)")  # -1e-3 is a number, no option


class Option(click.Option):
    """An option of a command: a rare one is in ``--help-all`` only, ``several`` takes all values that follow it."""

    def __init__(self, *args: Any, rare: bool = False, several: bool = False, **settings: Any) -> None:
        settings.setdefault("multiple", several)
        super().__init__(*args, **settings)
        self.rare = rare
        self.several = several

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what help shows of the option, if anything."""
        return None if self.rare and not ctx.meta.get(__name__) else super().get_help_record(ctx)


class Command(click.Command):
    """A command that never takes an option for a value."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(_HELP_ALL)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, after a look at the options."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else list(self._words(ctx, args)))

    def _words(self, ctx: click.Context, args: list[str]) -> Iterator[str]:
        """Refuse unknown options and missing values; write ``--train A B`` as ``--train A --train B``."""
        options = {name: o for o in self.get_params(ctx) if isinstance(o, click.Option) for name in o.opts}
        words = list(takewhile(lambda word: word != "--", args))
        name, given, option = "", "", None
        for k, word in enumerate(words):
            if is_option(word):
                name, given, value = word.partition("=")
                option = options.get(name.replace("_", "-"))
                if option is None:
                    raise click.NoSuchOption(name, ctx=ctx)
                if option.is_flag and given:
                    ctx.fail(f"{name} takes no value, got {value!r}")
                needed = 0 if option.is_flag or given else option.nargs
                values = words[k + 1 : k + 1 + needed]
                if len(values) < needed or any(map(is_option, values)):
                    ctx.fail(f"{name} needs {'a value' if needed == 1 else f'{needed} values'}")
            elif isinstance(option, Option) and option.several and not given and words[k - 1] != name:
                yield name
            yield word
        yield from args[len(words) :]


Decorator = Callable[[Any], Any]
option = partial(click.option, cls=Option)


def group(*options: Decorator) -> Decorator:
    """Make one decorator of several, for options that commands share."""
    return lambda function: reduce(lambda decorated, declare: declare(decorated), reversed(options), function)


def command(name: str, example: str, more: str = "") -> Decorator:
    """Declare a command of :data:`COMMANDS`: what it returns is its exit code, None is 0."""
    text = f"{COMMANDS[name][1]} {more}"
    return click.command(name, cls=Command, help=text, epilog=f"\b\nExample:\n  {example}")


def number(text: str) -> float:
    """Read a number as people type it."""
    from bounds._checks import parse_number

    try:
        return parse_number(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def whole(text: str) -> float:
    """Read a whole number; beyond 2^53 it must not be rounded before it is checked."""
    return int(text) if text.isascii() and text.isdigit() else number(text)


def suggest(names: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """Complete a word by one of ``names()``."""
    return lambda ctx, param, incomplete: [name for name in names() if name.startswith(incomplete)]


def reward_range(*default: str) -> Decorator:
    """Declare the lowest and the highest reward."""
    return option("--reward-range", nargs=2, type=number, default=default or None, metavar="LOW HIGH",
                  help="of a reward; default: 0 1")  # fmt: skip


as_json = option("--json", "as_json", is_flag=True, help="one JSON object, full precision")


def _free(ctx: click.Context, _: click.Parameter, path: str | None) -> str | None:
    from bounds._files import check_free

    if path is not None and not ctx.resilient_parsing:
        check_free(path, force=ctx.params["force"])
    return path


def writes(name: str, help: str) -> Decorator:
    """Declare a file to write; whether it may be is known before anything is read."""
    return group(
        option(name, type=FILE, metavar="FILE", callback=_free, help=help),
        option("--force", is_flag=True, is_eager=True, help="overwrite FILE"),
    )


def is_option(word: str) -> bool:
    """Tell whether a word names an option."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not _NEGATIVE.match(word)


def _help_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[__name__] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_all,
    help="every option",
)
