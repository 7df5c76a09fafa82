"""CONTRIBUTING as it stands: its blocks, applied to a copy of the package, do what it says."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = [section for section in TEXT.split("\n## ") if section.startswith(("Add a ", "Add an "))]


def blocks(section, language):
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def apply(block, root):
    """Do what the first line of a block says: "# FILE: new file", "import", "add", or "add to/before NAME"."""
    first, body = block.split("\n", 1)
    file, action = re.fullmatch(r"# (\S+): (new file|import|add|add (?:to|before) \w+)", first).groups()
    path = root / file
    assert path.exists() == (action != "new file"), first
    text = path.read_text() if path.exists() else ""
    if action == "import":
        nodes = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        lines = text.splitlines(keepends=True)
        lines.insert(nodes[-1].end_lineno, body)
        text = "".join(lines)
    elif action.startswith("add before"):
        at = start_of(action.split()[-1], text)
        text = f"{text[:at]}{body}\n\n{text[at:]}"
    elif action.startswith("add to"):
        at, inside = end_of(action.split()[-1], text)
        text = (
            f"{text[:at].rstrip().rstrip(',')},\n{body.rstrip()},\n{text[at:]}"
            if inside
            else (f"{text[:at]}{textwrap.indent(body, '    ')}{text[at:]}")
        )
    else:
        text += f"\n\n{body}" if text else body
    compile(text, str(path), "exec")
    path.write_text(text)


def assigned(name, text):
    """Where a name is last assigned to."""
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assign | ast.AnnAssign)]
    targets = ((n, getattr(n, "targets", [getattr(n, "target", None)])) for n in nodes)
    found = [n for n, names in targets if name in [t.id for t in names if isinstance(t, ast.Name)]]
    return max(found, key=lambda n: n.lineno)


def start_of(name, text):
    """Where the assignment of a name begins, with the comment above it."""
    lines = text.splitlines(keepends=True)
    first = assigned(name, text).lineno - 1
    while lines[first - 1].startswith("#:"):
        first -= 1
    return len("".join(lines[:first]))


def end_of(name, text):
    """Where the bracket ends that a name is assigned, and that; or where the assignments in a class end."""
    lines = text.encode().splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            last = max(n.end_lineno for n in node.body if isinstance(n, ast.Assign))
            return len(b"".join(lines[:last]).decode()), False
    value = assigned(name, text).value
    value = value.args[0] if isinstance(value, ast.Call) else value
    assert isinstance(value, ast.Tuple | ast.List | ast.Dict)
    before = lines[: value.end_lineno]
    return len((b"".join(before[:-1]) + before[-1][: value.end_col_offset - 1]).decode()), True


def run(command, root):
    arguments = shlex.split(command)
    python = [sys.executable, *(["-m", "bounds"] if arguments[0] == "trm-bounds" else [])]
    assert arguments[0] in ("trm-bounds", "python")
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "120"}
    return subprocess.run([*python, *arguments[1:]], cwd=root, env=environment, capture_output=True, text=True)


def follow(section, root):
    """Apply the blocks, run the commands, and compare: shown lines come in this order, and begin so."""
    assert blocks(section, "python")
    for block in blocks(section, "python"):
        apply(block, root)
    for name, block in zip(re.findall(r"`(\w+\.jsonl)`", section), blocks(section, "json"), strict=False):
        (root / name).write_text(block)
    (console,) = blocks(section, "console")
    for part in console.removeprefix("$ ").split("\n$ "):
        command, *shown = part.rstrip("\n").split("\n")
        done = run(command, root)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        out = iter(done.stdout.splitlines())
        for line in (s for s in shown if s != "..."):
            assert any(o.startswith(line) for o in out), f"{command}: no line begins with {line!r} in\n{done.stdout}"
        if "pytest" in command:
            assert re.search(r"\b\d+ passed", done.stdout), done.stdout


@pytest.fixture
def copy(tmp_path):
    for name in ("bounds", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what is compiled of them
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("section", EXAMPLES, ids=lambda s: s.split("\n")[0])
def test_the_worked_examples_hold(section, copy):
    follow(section, copy)


def test_there_is_an_example_of_each():
    assert [s.split("\n")[0] for s in EXAMPLES] == [
        "Add a rule", "Add a reader", "Add a check of logs", "Add an estimate", "Add a figure",
    ]  # fmt: skip


def test_make_targets_exist():
    targets = re.findall(r"`make ([\w-]+)`", TEXT)
    assert "test" in targets
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert f"\n{target}:" in makefile
