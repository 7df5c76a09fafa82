"""README as it stands: its Python runs, its commands print what it shows, its links exist."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

import bounds
from bounds.cli.main import main
from bounds.questions.trainer_metrics import RULES_OF_THUMB

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = [block for block in re.findall(r"```console\n(.*?)```", TEXT, re.S) if "$ trm-bounds" in block]


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(blocks) >= 2
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0)
        assert test.examples
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("block", CONSOLE, ids=lambda b: b.split("\n")[0][2:40])
def test_commands_print_what_is_shown(block, capsys, tmp_path, monkeypatch):
    """Lines between "..." follow each other in the output just so; files are written elsewhere."""
    monkeypatch.chdir(tmp_path)
    command, *shown = block.rstrip("\n").split("\n")
    assert main(shlex.split(command.removeprefix("$ trm-bounds"))) == 0
    out = [line.rstrip() for line in capsys.readouterr().out.split("\n")]
    start = 0
    for piece in "\n".join(shown).split("...\n"):
        lines = piece.removesuffix("\n...").rstrip("\n").split("\n")
        if lines != [""]:
            assert lines[0] in out[start:], lines[0]
            start = out.index(lines[0], start)
            assert out[start : start + len(lines)] == lines
            start += len(lines)


def test_there_are_commands_to_run():
    assert len(CONSOLE) == 5


def test_what_trainers_call_healthy_is_what_the_table_says():
    _, _, *lines = TEXT[TEXT.index("| what is called healthy") :].partition("\n\n")[0].split("\n")
    table = [line.strip("| ").split(" | ") for line in lines]
    assert [float(row[1]) for row in table] == [thumb.healthy for thumb in RULES_OF_THUMB]
    for (said, _, kl, gap), thumb in zip(table, RULES_OF_THUMB, strict=True):
        assert said.split("`")[1] in thumb.name
        assert float(kl) == pytest.approx(4096 * thumb.healthy, rel=0.03)
        error = bounds.unified(T=4096, kl_seq=4096 * thumb.healthy).best.value
        assert gap == ("nothing is said" if error > 1.0 else f"{error:.2g}")


def test_make_targets_and_links_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\$ make (\w+)", TEXT):
        assert f"\n{target}:" in makefile
    for link in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / link).exists(), link
    for path in re.findall(r'(?:src|srcset)="([^"]+)"', TEXT):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:notebooks|figures)/[^`]+)`", TEXT):
        assert (ROOT / path).exists(), path
