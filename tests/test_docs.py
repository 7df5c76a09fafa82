"""The documentation builds without a warning, and has every public name, every theorem and every command."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import bounds
from bounds.surface.commands import COMMANDS

ROOT = Path(__file__).parents[1]


def build(out, *options):
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q", "-c", ROOT / "docs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options, "-d", out / "doctrees", ROOT, out / "html"],
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("docs")
    done = build(out)
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def inventory(site):
    return InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data


def test_every_public_name_is_documented(inventory):
    for name in bounds.__all__:
        thing = getattr(bounds, name)
        kind = next(
            (k for k, is_it in (("module", inspect.ismodule), ("function", inspect.isfunction)) if is_it(thing)),
            "class",
        )
        path = thing.__name__ if kind == "module" else f"bounds.{name}"
        kinds = ("exception", "class", "data") if kind == "class" else (kind,)
        assert any(path in inventory.get(f"py:{k}", {}) for k in kinds), name


def test_every_theorem_is_found_by_its_name(site, inventory):
    text = (site / "docs" / "theorems.html").read_text()
    for rule in bounds.RULES:
        assert inventory["std:label"][f"rule-{rule.name}"].uri == f"docs/theorems.html#{rule.name}"
        assert f'id="{rule.name}"' in text
    assert text.count("<math") == len(bounds.RULES)
    assert not re.findall(r"\\[a-zA-Z]+", text)  # no LaTeX is left over


def test_every_command_is_shown(site):
    text = (site / "docs" / "commands.html").read_text()
    for module in COMMANDS:
        assert f"usage: trm-bounds {module.__name__.rpartition('.')[2]}" in text


def test_notebooks_and_readme_are_pages(site):
    sources = [*(ROOT / "notebooks").glob("*.ipynb"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert len(sources) >= 5
    for source in sources:
        assert (site / source.relative_to(ROOT)).with_suffix(".html").is_file()
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
