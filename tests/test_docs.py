"""The documentation builds without a warning, and has every public name, every theorem and every command."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.util.inventory import InventoryFile

import bounds
from bounds.cli import COMMANDS
from bounds.questions.trainer_metrics import PUBLIC_RUNS

ROOT = Path(__file__).parents[1]


def test_the_documentation_builds_without_a_warning_and_is_complete(tmp_path):
    """One test, since it is built once."""
    site = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q", "-c", ROOT / "docs"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", ROOT, site],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    every_public_name_is_documented(inventory)
    every_theorem_is_found_by_its_name((site / "docs" / "theorems.html").read_text(), inventory)
    every_command_is_shown((site / "docs" / "commands.html").read_text())
    notebooks_and_texts_are_pages(site)
    what_public_runs_showed_is_told_as_a_guarantee((site / "docs" / "dashboards.html").read_text())


def every_public_name_is_documented(inventory):
    for name in bounds.__all__:
        thing = getattr(bounds, name)
        kinds = ["module"] * inspect.ismodule(thing) + ["function"] * inspect.isfunction(thing)
        path = thing.__name__ if inspect.ismodule(thing) else f"bounds.{name}"
        assert any(path in inventory.get(f"py:{k}", {}) for k in kinds or ("class", "exception", "data")), name


def every_theorem_is_found_by_its_name(text, inventory):
    for rule in bounds.RULES:
        assert inventory["std:label"][f"rule-{rule.name}"].uri == f"docs/theorems.html#{rule.name}"
        assert f'id="{rule.name}"' in text
    assert text.count("<math") == len(bounds.RULES)
    assert not re.findall(r"\\[a-zA-Z]+", text)  # no LaTeX is left over


def every_command_is_shown(text):
    for name in COMMANDS:
        assert f"Usage: trm-bounds {name} " in text


def what_public_runs_showed_is_told_as_a_guarantee(text):
    for run in PUBLIC_RUNS:
        assert f'href="{run.source}"' in text
        error = bounds.unified(T=4096, kl_seq=4096 * run.kl).best.value
        row = text[text.index(run.source) - 800 : text.index(run.source)].rpartition("<tr")[2]
        assert (f"at most {error:.2g}" if error < 1.0 else "nothing is proved") in row


def notebooks_and_texts_are_pages(site):
    sources = [*(ROOT / "notebooks").glob("*.ipynb"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert len(sources) >= 5
    for source in sources:
        assert (site / source.relative_to(ROOT)).with_suffix(".html").is_file()
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    for page in ("README.html", "lab/README.html"):
        for picture in re.findall(r'(?:src|srcset)="([^"]*figures/[^"]+)"', (site / page).read_text()):
            assert (site / page).parent.joinpath(picture).exists(), picture
