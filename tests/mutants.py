"""Change the program at random and see whether its tests notice: ``python tests/mutants.py --count 200 --seed 0``.

Each mutant is one change of one file: a comparison, an operator, a number, a truth value, or a function for its
opposite. It is made in a copy of the tree, and the tests of its folder run there until one fails. What survives is
printed: a change that makes no difference, or something that no test looks at.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Folder -> the tests that cover it, the quickest first; the examples of the changed file come before them.
TESTS = {
    "rules": "profile rules invert worst_case exact",
    "divergence": "divergence logits topk exact",
    "intervals": "hypotheses confidence guarantees certify",
    "certificate": "findings kinds summary token_sums guarantees gates certify mask_study",
    "masks": "masking trainer_masks mask_study",
}
#: How often a mutant may take as long as the tests of its folder do, before it counts as noticed.
PATIENCE = 4.0

_OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_OTHER_NAMES = dict(
    pair
    for a, b in (("min", "max"), ("minimum", "maximum"), ("any", "all"), ("argmin", "argmax"), ("ceil", "floor"),
                 ("round_up", "round_down"), ("log1p", "log"), ("expm1", "exp"))
    for pair in ((a, b), (b, a))
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of one place in one file."""

    file: Path  # below the root
    line: int
    start: int  # of what is replaced, in bytes of the file
    stop: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"

    def apply(self, source: bytes) -> bytes:
        """Return the changed file."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield every change of a file, but for its annotations and texts."""
    source = (ROOT / file).read_bytes()
    lengths = [0]
    for line in source.splitlines(keepends=True):
        lengths.append(lengths[-1] + len(line))
    tree = ast.parse(source)
    left = {id(n) for a in ast.walk(tree) for part in _left(a) for n in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left or not isinstance(node, ast.expr):
            continue
        start, stop = (
            lengths[line - 1] + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        )
        for after in _changed(node):
            yield Mutant(file, node.lineno, start, stop, ast.unparse(node), after)


def _left(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that are left as they are."""
    if isinstance(node, ast.JoinedStr):
        return [node]
    return [part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None]


def _changed(node: ast.expr) -> Iterator[str]:
    """Yield what may stand in place of an expression."""
    copy = deepcopy(node)
    if isinstance(copy, ast.Compare) and len(copy.ops) == 1 and type(copy.ops[0]) in _OPPOSITES:
        copy.ops = [_OPPOSITES[type(copy.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(copy, ast.BinOp | ast.BoolOp) and type(copy.op) in _OPPOSITES:
        copy.op = _OPPOSITES[type(copy.op)]()  # type: ignore[assignment]
    elif isinstance(copy, ast.UnaryOp) and isinstance(copy.op, ast.Not | ast.USub):
        copy = copy.operand
    elif isinstance(copy, ast.Constant) and isinstance(copy.value, bool):
        copy.value = not copy.value
    elif isinstance(copy, ast.Constant) and isinstance(copy.value, int | float):
        copy.value = copy.value + 1 if copy.value in (0, 1) else copy.value * 2
    elif (
        isinstance(copy, ast.Call)
        and (name := getattr(copy.func, "attr", getattr(copy.func, "id", ""))) in _OTHER_NAMES
    ):
        setattr(copy.func, "attr" if isinstance(copy.func, ast.Attribute) else "id", _OTHER_NAMES[name])
    else:
        return
    yield f"({ast.unparse(copy)})"


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return mutants at random, each place as likely as any other."""
    files = sorted(f.relative_to(ROOT) for folder in TESTS for f in (ROOT / "bounds" / folder).glob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    return random.Random(seed).sample(every, min(count, len(every)))


def failure(tree: Path, file: Path, timeout: float | None = None) -> str:
    """Return what fails of the examples of a file and the tests of its folder, in a copy of the tree, or nothing."""
    tests = [f"tests/test_{name}.py" for name in TESTS[file.parts[1]].split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(file), *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer after {timeout:.0f} s"
    return "" if done.returncode == 0 else done.stdout.decode()[-2000:]


def main() -> None:
    """Print which mutants survive, and the share that does not."""
    import time

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    survivors, chosen = [], drawn(options.count, options.seed)
    allowed: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "runs", "_build"))
        for number, mutant in enumerate(chosen, 1):
            part = mutant.file.parts[1]
            if part not in allowed:
                started = time.monotonic()
                if wrong := failure(tree, mutant.file):
                    sys.exit(f"the tests of {part} fail as they are:\n{wrong}")
                allowed[part] = PATIENCE * (time.monotonic() - started) + 30.0
            source = (tree / mutant.file).read_bytes()
            (tree / mutant.file).write_bytes(mutant.apply(source))
            alive = not failure(tree, mutant.file, allowed[part])
            (tree / mutant.file).write_bytes(source)
            survivors += [mutant] * alive
            print(f"{number} of {len(chosen)} {'SURVIVES' if alive else 'noticed '} {mutant}", flush=True)
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants were noticed (seed {options.seed}). Survivors:")
    print("\n".join(map(str, survivors)) or "none")


if __name__ == "__main__":
    main()
