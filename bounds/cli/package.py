"""Commands about files and the package itself: split, formats, figures, glossary, verify."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

import bounds
from bounds.cli.command import FILE, FOLDER, as_json, command, number, option, suggest, whole
from bounds.cli.output import counting_progress, show


@command(
    "split",
    "trm-bounds split prompts.jsonl --share 0.2",
    "PATH is JSONL or Parquet: prompts, or responses to them. NAME.train and NAME.held-out are written beside it. "
    "After a training on the former, sample answers to the latter, score them with the new weights, and "
    "certify --train-policy held-out.",
)
@click.argument("path", type=FILE)
@option("--share", type=number, default="0.2", metavar="X", help="of the prompts that are set aside; default: 0.2")
@option("--seed", type=whole, default="0", metavar="N", help="another one sets others aside; default: 0")
@option("--by", metavar="FIELD", help="what names a prompt; default: prompt_id, prompt_tokens or prompt")
@option("--force", is_flag=True, help="overwrite the files")
@as_json
def split(path: str, share: float, seed: float, by: str | None, force: bool, as_json: bool) -> None:
    """Print the names of the two files."""
    from bounds.logs.split import split as split_file

    train, held_out = split_file(path, share=share, seed=int(seed), by=by, force=force)
    print(json.dumps({"train": str(train), "held_out": str(held_out)}) if as_json else f"{train}\n{held_out}")


def _recipes() -> Iterable[str]:
    from bounds.logs.formats import RECIPES, SCORE

    return (*RECIPES, SCORE)


@command("formats", "trm-bounds formats --recipe verl")
@option("--recipe", metavar="TRAINER", shell_complete=suggest(_recipes),
        help="print what exports from verl, skyrl or trl, or scores the other half (score)")  # fmt: skip
@as_json
def formats(recipe: str | None, as_json: bool) -> None:
    """Print the formats that are read, or a recipe."""
    from rich.text import Text

    from bounds.logs import formats as known

    if recipe is not None:
        print(known.recipe(recipe), end="")
    elif as_json:
        print(json.dumps(known.to_dict()))
    else:
        for table in known.tables():
            show(table)
        show(Text(known.MEMORY_ONLY))


def _names() -> list[str]:
    """Return the figures and tables that there are."""
    from bounds.figures import FIGURES
    from bounds.figures.tables import TABLES

    return [*FIGURES, *TABLES]


def _glossary() -> Iterable[str]:
    from bounds.glossary import GLOSSARY

    return GLOSSARY


@command("glossary", "trm-bounds glossary kl_seq", "NAME is a name in an output or an option; without: all names.")
@click.argument("names", nargs=-1, metavar="[NAME ...]", shell_complete=suggest(_glossary))
@as_json
def glossary(names: tuple[str, ...], as_json: bool) -> None:
    """Print what names mean."""
    from bounds.glossary import GLOSSARY, term
    from bounds.results import jsonable

    found = {name: term(name) for name in names} or dict(GLOSSARY)
    lines = (f"{name}: {meaning}" for name, meaning in found.items())
    print(json.dumps(jsonable(found)) if as_json else "\n".join(lines))


@command(
    "figures",
    "trm-bounds figures comparison scaling --out figures",
    "NAME is a figure (comparison, verdict, scaling, regimes, adaptive_routes, tightness, length_bias, certificate, "
    "run_over_time, mask_tradeoff) or a table (table_bounds, table_bounds_by_size, table_length_bias); without: all.",
)
@click.argument("names", nargs=-1, metavar="[NAME ...]", shell_complete=suggest(_names))
@option("--out", type=FOLDER, default="figures", metavar="DIR", help="default: figures")
def figures(names: tuple[str, ...], out: str) -> None:
    """Write figures as PNG, PDF and CSV, and tables as LaTeX, Markdown and CSV."""
    from bounds.certificate.distributed import cores

    count = len(set(names)) or len(_names())
    with counting_progress("drawing", count) as on_start:
        written = bounds.figures.write(names, out, on_start, jobs=min(cores(), max(1, count // 3)))
    for path in written:
        print(path)


@command("verify", "trm-bounds verify")
@as_json
def verify(as_json: bool) -> int:
    """Print each check of the rules; 1 where one fails."""
    from bounds._text import TerminalTable
    from bounds.proof.registry import tables
    from bounds.results import jsonable

    with counting_progress("checking", len(bounds.proof.CHECKS)) as on_start:
        results = bounds.proof.verify(on_start=on_start)
    failed = [r for r in results if not r.passed]
    if as_json:
        print(json.dumps(jsonable({"checks": results, "failed": len(failed)})))
    else:
        for cells in tables(results):
            show(TerminalTable(*cells))
        print(f"{len(results)} checks, {len(failed)} failed")
    return 1 if failed else 0
