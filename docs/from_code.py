"""Directives that write pages from the code, so that nothing is copied by hand.

``public-names``: every name of ``bounds.__all__``. ``module-names``: what a module has beyond those. ``module-text``:
what it says of itself. ``theorems``: every rule of ``bounds.RULES``. ``attained``: how much of the best bounds known
cases attain. ``command-help``: what ``trm-bounds COMMAND --help-all`` prints. ``trainer-masks``: trainers' options for
masks. ``trainer-scalars``: what trainers show. ``rules-of-thumb``: what they call healthy, as a guarantee.
``public-runs``: what was measured in public runs, likewise.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import bounds
from bounds.cli import COMMANDS
from bounds.cli.main import main
from bounds.glossary import GLOSSARY
from bounds.masks.trainers import TRAINERS, option_names
from bounds.proof.worst_case import INFORMATION, tightness
from bounds.questions.trainer_metrics import PUBLIC_RUNS, RULES_OF_THUMB, TRAINER_METRICS
from bounds.rules.profile import FIELDS


class _FromCode(SphinxDirective):
    """A directive whose content is reStructuredText that the code writes."""

    def text(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.text()), allow_section_headings=True)


class PublicNames(_FromCode):
    """A table of all public names, and the documentation of each at the name that people import."""

    def text(self) -> Iterator[str]:
        public = {name: getattr(bounds, name) for name in bounds.__all__}
        yield from _table(
            ["name", "what"], ([_link(name, thing), _first_line(name, thing)] for name, thing in public.items())
        )
        for title, is_kind in (("Functions", inspect.isfunction), ("Classes", inspect.isclass), ("Data", _is_data)):
            yield from _heading(title)
            for name, thing in public.items():
                if is_kind(thing):
                    yield from _documented(name, thing)


class ModuleNames(_FromCode):
    """What a module has; names that are public in ``bounds`` are documented there."""

    required_arguments = 1

    def text(self) -> Iterator[str]:
        name = self.arguments[0]
        yield from (f".. automodule:: {name}", "   :members:", "")
        module = importlib.import_module(name)
        by_autodoc = ModuleAnalyzer.for_module(name).find_attr_docs()
        for data in getattr(module, "__all__", inspect.get_annotations(module)):
            if data.isupper() and not data.startswith("_") and ("", data) not in by_autodoc:
                yield from _data(name, data, getattr(module, data))


class ModuleText(_FromCode):
    """What a module says of itself, without its names."""

    required_arguments = 1

    def text(self) -> Iterator[str]:
        yield from (inspect.getdoc(importlib.import_module(self.arguments[0])) or "").splitlines()


class Theorems(_FromCode):
    """Every rule: first a table by which one is found, then a section for each; and what the quantities mean."""

    def run(self) -> list[nodes.Node]:
        found = super().run()
        for section in (n for n in found if isinstance(n, nodes.section)):
            name = section[0].astext()
            section["ids"].insert(0, name)  # theorems.html#trajectory_kl
            section["classes"].append("theorem")
            self.env.domains.standard_domain.note_hyperlink_target(f"rule-{name}", self.env.docname, name, name)
        return found

    def text(self) -> Iterator[str]:
        rules = bounds.RULES
        yield from _table(
            ["name", "title", "family", "needs"],
            ([f":ref:`{r.name} <rule-{r.name}>`", r.title, r.family, _codes(r.needs)] for r in rules),
        )
        yield from ("The quantities that rules need, beside the horizon T:", "")
        yield from _table(
            ["name", "symbol", "meaning"], ([f"``{n}``", f.symbol, _escaped(f.meaning)] for n, f in FIELDS.items())
        )
        for r in rules:
            yield from _heading(r.name)
            yield from (r.title + ".", "", ".. math::", "", rf"   \left|\mathrm{{Error}}\right| \le {r.latex}", "")
            for term, text in (
                ("Needs", _codes(("T", *r.needs))),
                ("Uses where known", _codes(r.optional)),
                ("Assumes", _codes(r.assumes) or "nothing: it holds for any supports"),
                ("Family", r.family + (", one of the six of the published B*" if r.in_b_star else "")),
                ("Source", _escaped(r.source)),
            ):
                if text:
                    yield f":{term}: {text}"


class TrainerMasks(_FromCode):
    """The options of each trainer that a mask is read from, and those that are set aside."""

    def text(self) -> Iterator[str]:
        rows = ([trainer, *map(_codes, option_names(trainer))] for trainer in TRAINERS)
        yield from _table(["trainer", "options", "no part of a mask"], rows)


class TrainerScalars(_FromCode):
    """What each trainer shows: a table for each."""

    def text(self) -> Iterator[str]:
        for trainer, scalars in TRAINER_METRICS.items():
            yield from _heading(trainer)
            rows = ([f"``{n}``", _escaped(s.meaning), _escaped(s.note)] for n, s in scalars.items())
            yield from _table(["name", "is", "note"], rows)


class RulesOfThumb(_FromCode):
    """What trainers call healthy, as a guarantee at T = 4096."""

    def text(self) -> Iterator[str]:
        yield from _table(
            ["trainer", "number", "called healthy below", "D", "error", "where"],
            ([t.trainer, f"``{t.name}``", *_as_a_guarantee(t.healthy), _escaped(t.source)] for t in RULES_OF_THUMB),
        )


class PublicRuns(_FromCode):
    """What was measured in public runs, as a guarantee at T = 4096."""

    def text(self) -> Iterator[str]:
        yield from _table(
            ["run", "number", "KL per token", "D", "error", "where"],
            ([_escaped(r.run), f"``{r.name}``", *_as_a_guarantee(r.kl), r.source] for r in PUBLIC_RUNS),
        )


def _as_a_guarantee(kl: float) -> list[str]:
    """Return a KL per token, that of a response of 4096 tokens, and what is proved of the error."""
    error = bounds.unified(T=4096, kl_seq=4096 * kl).best.value
    return [f"{kl:g}", f"{4096 * kl:.3g}", f"at most {error:.2g}" if error < 1.0 else "nothing is proved"]


class Glossary(_FromCode):
    """Every name, and what it means."""

    def text(self) -> Iterator[str]:
        yield from (".. glossary::", "   :sorted:", "")
        for name, meaning in GLOSSARY.items():
            yield from (f"   {_escaped(name)}", f"      {_escaped(meaning.text)}")
            if meaning.formula:
                yield from ("", f"      {_formula(meaning.formula)}")
            yield ""


def _formula(text: str) -> str:
    return f":math:`{text}`" if "\\" in text else f"``{text}``"


class Attained(_FromCode):
    """A table of what is known: the best bound, how much of it known cases attain, and what is open."""

    def text(self) -> Iterator[str]:
        ratios: dict[str, list[float]] = {}
        for row in tightness():
            ratios.setdefault(str(row["information"]), []).append(float(row["ratio"]))
        yield from _table(
            ["known", "best bound", "", "attained", "open"],
            (
                [
                    i.known,
                    f":ref:`{i.rule} <rule-{i.rule}>`",
                    f":math:`{bounds.rule(i.rule).latex}`",
                    found,
                    i.open or "nothing: exact",
                ]
                for i in INFORMATION
                for found in (_span(ratios[i.known]),)
            ),
        )


def _span(ratios: list[float]) -> str:
    low, high = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
    return low if low == high else f"{low} to {high}"


class CommandHelp(_FromCode):
    """The help of each command, as it is printed."""

    def text(self) -> Iterator[str]:
        for name in COMMANDS:
            yield from _heading(f"trm-bounds {name}")
            yield from (".. code-block:: text", "")
            yield textwrap.indent(_printed(name, "--help-all"), "   ")


def _printed(*arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(arguments)
    return out.getvalue()


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: auto", "")
    for row in [head, *rows]:
        for k, cell in enumerate(row):
            yield f"   {'-' if k else '* -'} {cell}".replace("   - ", "     - ", 1)
    yield ""


def _heading(text: str) -> Iterator[str]:
    yield from ("", text, "-" * len(text), "")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"``{name}``" for name in names)


def _escaped(text: str) -> str:
    for mark in "\\*|`":
        text = text.replace(mark, f"\\{mark}")
    return text


def _is_data(thing: Any) -> bool:
    return not (inspect.isfunction(thing) or inspect.isclass(thing) or inspect.ismodule(thing))


def _link(name: str, thing: Any) -> str:
    if inspect.ismodule(thing):
        return f":mod:`{thing.__name__}`"
    role = "func" if inspect.isfunction(thing) else "class" if inspect.isclass(thing) else "data"
    return f":{role}:`bounds.{name}`"


def _comment(name: str, thing: Any) -> list[str]:
    """Return the lines ``#: ...`` above data, which have no docstring, in the module where they stand."""
    for module in sorted(m for m in sys.modules if m.partition(".")[0] == "bounds"):
        if getattr(sys.modules[module], name, None) is thing:
            found = ModuleAnalyzer.for_module(module).find_attr_docs()
            if ("", name) in found:
                return found["", name]
    return [""]


def _first_line(name: str, thing: Any) -> str:
    text = _comment(name, thing)[0] if _is_data(thing) else (inspect.getdoc(thing) or "").split("\n")[0]
    return text.replace("|", r"\|")


def _data(module: str, name: str, thing: Any) -> Iterator[str]:
    yield from (f".. py:data:: {name}", f"   :module: {module}", "")
    yield from (f"   {line}" for line in _comment(name, thing))
    yield ""


def _documented(name: str, thing: Any) -> Iterator[str]:
    if _is_data(thing):
        yield from _data("bounds", name, thing)
    else:
        kind, members = ("function", "") if inspect.isfunction(thing) else ("class", "   :members:")
        yield from (f".. auto{kind}:: bounds.{name}", members, "")


def _is_public(thing: Any) -> bool:
    return any(thing is getattr(bounds, name) for name in bounds.__all__)


def _skip(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    return True if what == "module" and _is_public(thing) else None


def _bars_are_text(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    r"""Bars are absolute values and norms in our docstrings, never substitutions."""
    for k, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = line.split("``")  # odd ones are code
            parts[::2] = [part.replace(r"\|", "|").replace("|", r"\|") for part in parts[::2]]
            lines[k] = "``".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directives known to Sphinx."""
    for name, directive in (
        ("public-names", PublicNames),
        ("module-names", ModuleNames),
        ("module-text", ModuleText),
        ("theorems", Theorems),
        ("command-help", CommandHelp),
        ("attained", Attained),
        ("trainer-masks", TrainerMasks),
        ("trainer-scalars", TrainerScalars),
        ("rules-of-thumb", RulesOfThumb),
        ("public-runs", PublicRuns),
        ("glossary-of-names", Glossary),
    ):
        app.add_directive(name, directive)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _bars_are_text)
    return {"parallel_read_safe": True}
