"""Change the program at random and see whether its tests notice: ``python tests/mutants.py --count 200 --seed 0``.

Each mutant is one change of one file: a comparison, an operator, a number, a truth value, or a function for its
opposite. It is made in a copy of the tree, and those tests of its folder run there that enter the changed function, the
quickest first, until one fails; all of them where none does, as for what runs while a module is imported or compiled.
What survives is printed: a change that makes no difference, or something that no test looks at.

Big libraries are imported once: each run is a fork.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import math
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).parents[1]
#: Folder -> the tests that cover it, beside the examples of its files.
TESTS = {
    "rules": "profile rules invert worst_case exact",
    "divergence": "divergence logits topk exact",
    "intervals": "hypotheses confidence plan guarantees certify",
    "certificate": "findings kinds summary token_sums guarantees gates certify mask_study",
    "masks": "masking trainer_masks mask_study",
}
#: How often a mutant may compute as long as its tests do, before it counts as noticed: a busy machine takes no part.
PATIENCE = 4.0
SURVIVES = "SURVIVES"
LIBRARIES = "matplotlib.pyplot mpmath numba pandas pyarrow.parquet scipy.stats sympy"

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
    function: int  # the line where the innermost function around it begins; 0 outside
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
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    left = {id(n) for a in ast.walk(tree) for part in _left(a) for n in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left or not isinstance(node, ast.expr):
            continue
        start, stop = (
            lengths[line - 1] + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        )
        for after in _changed(node):
            yield Mutant(file, node.lineno, _function(functions, node), start, stop, ast.unparse(node), after)


def _function(functions: list[ast.FunctionDef | ast.Lambda], node: ast.expr) -> int:
    """Return the line of the function whose code has a node: with its first decorator, as in ``co_firstlineno``."""
    around = [
        f for f in functions for part in (f.body if isinstance(f.body, list) else [f.body]) if _inside(node, part)
    ]
    starts = [min([f.lineno, *(d.lineno for d in getattr(f, "decorator_list", ()))]) for f in around]
    return max(starts, default=0)


def _inside(node: ast.expr, part: ast.stmt | ast.expr) -> bool:
    first, last = (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)
    return first <= (node.lineno, node.col_offset) and (node.end_lineno or 0, node.end_col_offset or 0) <= last


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


def drawn(folders: list[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants at random, each place as likely as any other."""
    files = sorted(f.relative_to(ROOT) for folder in folders for f in (ROOT / "bounds" / folder).glob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    return random.Random(seed).sample(every, min(count, len(every)))


@dataclass
class Reach:
    """The tests of a folder: how many seconds each takes, and which functions (file, line) of the tree it enters."""

    tree: Path
    seconds: dict[str, float] = field(default_factory=dict)
    entered: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch which functions are called."""
        seen: set[tuple[str, int]] = set()

        def enter(frame: FrameType, event: str, arg: object) -> None:
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        started = time.process_time()
        sys.settrace(enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - started
            for place in seen:
                self.entered[place].add(item.nodeid)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that enter a mutant's function, the quickest first; all of them where none does."""
        reaching = self.entered.get((str(self.tree / mutant.file), mutant.function)) or self.seconds
        return sorted(reaching, key=lambda test: self.seconds[test])


@dataclass(frozen=True)
class Chosen:
    """The tests to run, in their order."""

    tests: list[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep these alone."""
        items[:] = sorted((i for i in items if i.nodeid in self.tests), key=lambda i: self.tests.index(i.nodeid))


def forked(run: Callable[[], int], log: Path, seconds: float = math.inf) -> int:
    """Return what a function returns in a fork, whose output goes to a file; -SIGXCPU if it computes for longer."""
    child = os.fork()
    if not child:
        if seconds < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = 1
        try:
            code = int(run())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def paths(folder: str, names: set[str]) -> list[str]:
    """Return the test files of a folder of ``bounds``, or those of some tests."""
    every = [*(f"tests/test_{name}.py" for name in TESTS[folder].split()), f"bounds/{folder}"]
    return [path for path in every if any(name.startswith(path) for name in names)] if names else every


def reach(tree: Path, folder: str) -> Reach:
    """Run the tests of a folder as it is, and see what they enter."""
    found, kept, log = Reach(tree), tree / "reach", tree / "log"

    def run() -> int:
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *paths(folder, set())], plugins=[found])
        kept.write_bytes(pickle.dumps((found.seconds, dict(found.entered))))
        return code

    if forked(run, log):
        sys.exit(f"the tests of {folder} fail as they are:\n{log.read_text()[-3000:]}")
    found.seconds, found.entered = pickle.loads(kept.read_bytes())
    return found


def verdict(tree: Path, mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Return what the tests say of a mutant in the tree."""
    file, options = tree / mutant.file, ["-x", "-q", "-p", "no:cacheprovider"]
    source, times = file.read_bytes(), (file.stat().st_atime, file.stat().st_mtime)

    def run() -> int:
        sys.dont_write_bytecode = True
        return pytest.main([*options, *paths(mutant.file.parts[1], set(tests))], plugins=[Chosen(tests)])

    file.write_bytes(mutant.apply(source))
    code = forked(run, tree / "log", seconds)
    file.write_bytes(source)
    os.utime(file, times)  # what is compiled of it stays good
    if code in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
        sys.exit(f"no test ran:\n{(tree / 'log').read_text()[-3000:]}")
    return {0: SURVIVES, -signal.SIGXCPU: "noticed by its time"}.get(code, "noticed")


def main() -> None:
    """Print which mutants survive, and the share that does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="+", choices=TESTS, default=list(TESTS))
    options = parser.parse_args()
    survivors, chosen = [], sorted(drawn(options.folders, options.count, options.seed), key=lambda m: m.file)
    for library in LIBRARIES.split():
        importlib.import_module(library)
    known: dict[str, Reach] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "runs", "_build"))
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        for number, mutant in enumerate(chosen, 1):
            part = mutant.file.parts[1]
            known[part] = known.get(part) or reach(tree, part)
            tests = known[part].tests(mutant)
            seconds = PATIENCE * sum(known[part].seconds[test] for test in tests) + 30.0
            said = verdict(tree, mutant, tests, seconds)
            survivors += [mutant] * (said == SURVIVES)
            print(f"{number} of {len(chosen)} {said}, {len(tests)} tests: {mutant}", flush=True)
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants were noticed (seed {options.seed}). Survivors:")
    print("\n".join(map(str, survivors)) or "none")


if __name__ == "__main__":
    main()
