"""Change the program at random and see whether its tests notice: ``python tests/mutants.py --count 200 --seed 0``.

Each mutant is one change of one place: a comparison, an operator, a number, a truth value, or a function for its
opposite. The light tests that enter the changed function run, the quickest first, until one fails. What survives is
printed: a change that makes no difference, or something that no test looks at.

The tests are collected once, and each mutant is a fork in which the function's code is replaced. What runs while a
module is imported or compiled is changed in its file, and imported again.
"""

from __future__ import annotations

import argparse
import ast
import gc
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
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("rules", "divergence", "intervals", "certificate", "masks")
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider")
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
        """Return the changed file, in which no other line moves."""
        lines = b"\n" * source[self.start : self.stop].count(b"\n")
        return source[: self.start] + self.after[:-1].encode() + lines + b")" + source[self.stop :]


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


def files(folders: Iterable[str]) -> list[Path]:
    """Return the files of folders of ``bounds``, below the root."""
    return sorted(f.relative_to(ROOT) for folder in folders for f in (ROOT / "bounds" / folder).glob("*.py"))


def drawn(folders: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants at random, each place as likely as any other."""
    every = [mutant for file in files(folders) for mutant in mutants(file)]
    return random.Random(seed).sample(every, min(count, len(every)))


@dataclass
class Reach:
    """Which functions (file, line) each test enters, and in how many seconds; and what is entered by the imports."""

    kept: Path
    imports: set[tuple[str, int]] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    entered: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    def watch(self) -> set[tuple[str, int]]:
        """Watch which functions are called, until the next watch."""
        seen: set[tuple[str, int]] = set()

        def enter(frame: FrameType, event: str, arg: object) -> None:
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        sys.settrace(enter)
        return seen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch a test."""
        seen, started = self.watch(), time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - started
            for place in seen:
                self.entered[place].add(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keep what was seen."""
        sys.settrace(None)
        self.kept.write_bytes(pickle.dumps((self.imports, self.seconds, dict(self.entered))))

    def run(self) -> int:
        """Import the folders, and run all tests."""
        self.imports = self.watch()
        for file in files(FOLDERS):
            imported(file)
        sys.settrace(None)
        return pytest.main([*OPTIONS], plugins=[self])

    def lives(self, mutant: Mutant) -> bool:
        """Say whether a mutant's function first runs in a test, as it was compiled by Python alone."""
        place = (str(Path.cwd() / mutant.file), mutant.function)
        return place in self.entered and place not in self.imports and b"njit" not in mutant.file.read_bytes()

    def tests(self, mutant: Mutant, limit: float) -> list[str]:
        """Return the tests that enter a mutant's function or its file, and then those beside them, up to some seconds.

        Those beside them may use what an earlier test has left in a cache.
        """
        file = str(Path.cwd() / mutant.file)
        of_file = set().union(*(tests for (name, _), tests in self.entered.items() if name == file))
        entering = self.entered.get((file, mutant.function)) or of_file or set(self.seconds)
        places = {test.partition("::")[0] for test in entering}
        beside = (test for test in self.seconds if test.partition("::")[0] in places)
        every = sorted(beside, key=lambda test: (test not in entering, self.seconds[test]))
        sums = accumulate(self.seconds[test] for test in every)
        return [test for test, used in zip(every, sums, strict=True) if used <= limit] or every[:1]


@dataclass(frozen=True)
class Trials:
    """The trials of some mutants, each with its tests."""

    reach: Reach
    limit: float
    terminal: int
    said: Path = Path("said")

    def live(self, mutants: list[Mutant]) -> None:
        """Try mutants that change what lives."""
        if forked(lambda: pytest.main([*OPTIONS], plugins=[InPlace(self, mutants)])):
            raise RuntimeError(f"the trials broke off:\n{Path('log').read_text()[-3000:]}")

    def fresh(self, mutant: Mutant) -> None:
        """Try a mutant that changes its file."""
        source, times = mutant.file.read_bytes(), (mutant.file.stat().st_atime, mutant.file.stat().st_mtime)

        def run(tests: list[str]) -> int:
            sys.dont_write_bytecode = True
            paths = sorted({test.partition("::")[0] for test in tests})
            return pytest.main([*OPTIONS, *paths], plugins=[Chosen(tests)])

        mutant.file.write_bytes(mutant.apply(source))
        self.judge(mutant, run)
        mutant.file.write_bytes(source)
        os.utime(mutant.file, times)  # what is compiled of it stays good

    def judge(self, mutant: Mutant, run: Callable[[list[str]], int]) -> None:
        """Run a mutant's tests in a fork, and say what they say."""
        tests = self.reach.tests(mutant, self.limit)
        code = forked(lambda: run(tests), PATIENCE * sum(self.reach.seconds[test] for test in tests) + 30.0)
        if code in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            raise RuntimeError(f"no test ran:\n{Path('log').read_text()[-3000:]}")
        verdict = SURVIVES if code == 0 else "noticed" if code > 0 else "noticed by its time"
        line = f"{verdict}, {len(tests)} tests: {mutant}\n"
        os.write(self.terminal, line.encode())
        with self.said.open("a") as kept:
            kept.write(line)


@dataclass(frozen=True)
class Chosen:
    """The tests to run, in their order."""

    tests: list[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep these alone."""
        items[:] = sorted((i for i in items if i.nodeid in self.tests), key=lambda i: self.tests.index(i.nodeid))


@dataclass(frozen=True)
class InPlace:
    """Trials in place of a run of all tests that were collected."""

    trials: Trials
    mutants: list[Mutant]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant in a fork."""
        items = {item.nodeid: item for item in session.items}
        for mutant in self.mutants:

            def run(tests: list[str], mutant: Mutant = mutant) -> int:
                replace(mutant)
                chosen = [items[test] for test in tests]
                for item, after in zip_longest(chosen, chosen[1:]):
                    try:
                        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                    except BaseException:  # what pytest lets through, such as an interruption
                        return 1
                    if session.testsfailed:
                        return 1
                return 0

            self.trials.judge(mutant, run)
        return True


def imported(file: Path) -> None:
    """Import a module by its file below the root."""
    importlib.import_module(".".join(file.with_suffix("").parts))


def replace(mutant: Mutant) -> None:
    """Replace the code of a mutant's function wherever it lives."""
    imported(mutant.file)
    file, source = str(Path.cwd() / mutant.file), mutant.file.read_bytes()
    before, after = (list(codes(compile(text, file, "exec"))) for text in (source, mutant.apply(source)))
    new = {a: b for a, b in zip(before, after, strict=True) if a != b}
    found = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in new]
    for function in found:
        function.__code__ = new[function.__code__]
    if not found:
        print(f"nothing that lives has the code of {mutant}")
        os._exit(pytest.ExitCode.INTERNAL_ERROR)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of every function inside a module's or a function's."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from codes(part)


def forked(run: Callable[[], int], seconds: float = math.inf) -> int:
    """Return what a function returns in a fork, whose output goes to ``log``; negative if it computes for longer."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and tests send it
        if seconds < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
            signal.alarm(math.ceil(10.0 * seconds))
        output = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code: int = pytest.ExitCode.INTERNAL_ERROR  # what goes wrong here is no failure of a test
        try:
            code = int(run())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def explored(kept: Path) -> Reach:
    """Run all tests in a fork, and return what they enter."""
    if forked(Reach(kept).run):
        sys.exit(f"the tests fail as they are:\n{Path('log').read_text()[-3000:]}")
    return Reach(kept, *pickle.loads(kept.read_bytes()))


def main() -> None:
    """Print which mutants survive, and the share that does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="+", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of tests for each mutant")
    options = parser.parse_args()
    chosen = sorted(drawn(options.folders, options.count, options.seed), key=lambda m: m.file)
    for library in LIBRARIES.split():
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "runs", "_build"))
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        trials = Trials(explored(Path("reach")), options.limit, os.dup(1))
        trials.live([mutant for mutant in chosen if trials.reach.lives(mutant)])
        for mutant in chosen:
            if not trials.reach.lives(mutant):
                trials.fresh(mutant)
        said = trials.said.read_text().splitlines()
    survivors = [line for line in said if line.startswith(SURVIVES)]
    print(f"\n{len(said) - len(survivors)} of {len(chosen)} mutants were noticed (seed {options.seed}). Survivors:")
    print("\n".join(survivors) or "none")


if __name__ == "__main__":
    main()
