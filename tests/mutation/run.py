"""How many small faults in the physics, the beliefs and the training step do their own tests catch?

    python tests/mutation/run.py [--count 100] [--seed 0] [--least 0.85] [--only physics/fabric]

Each mutant changes one expression of one function: an operator, a number, a comparison, the lesser for the greater, or the
branches of a choice. It is written into a copy of the package, and the tests of that module run against it: its own file,
its doctests, its properties and whatever imports it, then those of the training step, which composes all modules. The figures of the measured
corpus (`tests/validate`) never run. What a replica serves with is composed by `physics/serving.py`, so that the tests of
serving take the place of those of the training step. Mutants that no test can catch, such as a cheaper way to the same number, count as
missed. `make mutants` runs a hundred; at least 85 % must be caught.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("physics", "beliefs", "training")
#: Modules of `physics/` that only a replica that serves is made of.
SERVING = ("serving", "queueing", "waiting")
#: Tables rather than functions.
TABLES = {"physics/constants.py", "physics/parts.py", "physics/examples.py", "physics/coefficients.py"}
TIMEOUT_S = 240
SWAPPED = {
    "minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil", "min": "max", "max": "min",
    "any": "all", "all": "any", "exp": "log1p", "sqrt": "square", "log2": "log",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed expression."""

    module: str  # below perfmodel
    line: int
    before: str
    after: str
    text: str  # of the whole module

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before} -> {self.after}"


def changed(node: ast.expr) -> ast.expr | None:
    """The expression with one fault, or None where none of the kinds applies."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in NEGATED:
        return ast.Compare(node.left, [NEGATED[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
    ):
        size = abs(node.value)
        if size == 0 or 1e-6 < size < 1e9:  # tolerances and bounds change nothing
            return ast.Constant(
                node.value + 1 if isinstance(node.value, int) else node.value * 1.5 + (size == 0)
            )
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "where" and len(node.args) == 3:
            return ast.Call(node.func, [node.args[0], node.args[2], node.args[1]], node.keywords)
        if name in SWAPPED:
            func = (
                ast.Attribute(node.func.value, SWAPPED[name], ast.Load())
                if isinstance(node.func, ast.Attribute)
                else ast.Name(SWAPPED[name], ast.Load())
            )
            return ast.Call(func, node.args, node.keywords)
    return None


def expressions(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions inside functions, without docstrings, annotations, indices and what is only raised."""

    def walk(node: ast.AST) -> Iterator[ast.expr]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "slice", "args") and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, (ast.Raise, ast.JoinedStr)) or not isinstance(child, ast.AST):
                    continue
                if isinstance(child, ast.expr):
                    yield child
                yield from walk(child)

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if not isinstance(statement, (ast.FunctionDef, ast.Raise)):
                    yield from walk(statement)


def mutants(package: Path, only: str = "") -> list[Mutant]:
    """All of them, in the order of the source."""
    found = []
    for room in ROOMS:
        for path in sorted((package / room).glob("*.py")):
            module = path.relative_to(package).as_posix()
            if module in TABLES or not module.startswith(only):
                continue
            text = path.read_text(encoding="utf-8")
            starts = [0]
            for line in text.splitlines(keepends=True):
                starts.append(starts[-1] + len(line))
            for node in expressions(ast.parse(text)):
                new = changed(node)
                if (
                    new is None
                    or node.end_lineno is None
                    or node.end_col_offset is None
                    or not text.isascii()
                ):
                    continue
                after = ast.unparse(ast.fix_missing_locations(ast.copy_location(new, node)))
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                before, whole = text[begin:end], f"{text[:begin]}({after}){text[end:]}"
                short = " ".join(before.split())
                found.append(Mutant(module, node.lineno, short[:60], " ".join(after.split())[:60], whole))
    return found


def importers(name: str, folder: Path) -> list[Path]:
    """Test files that import a module by its name, those of the measured corpus left out."""
    imported = re.compile(rf"^from {re.escape(name)} import", re.MULTILINE)
    return [
        path
        for path in sorted(folder.rglob("test_*.py"))
        if "validate" not in path.parts and imported.search(path.read_text(encoding="utf-8"))
    ]


def stages(module: str, workplace: Path) -> list[list[str]]:
    """The tests of a module, then those of what composes it, the quick ones first."""
    room, stem = Path(module).parts[0], Path(module).stem
    folder = workplace / "tests"
    own = [
        path for place in (room, "properties") for path in sorted((folder / place).glob(f"test_{stem}*.py"))
    ]
    own += [path for path in importers(f"perfmodel.{room}.{stem}", folder) if path not in own]
    if room == "physics" and stem.startswith(SERVING):
        composed = {*(folder / "serving").glob("test_*.py")}
        composed |= {path for name in SERVING for path in (folder / "physics").glob(f"test_{name}*.py")}
        listed = [[workplace / "perfmodel" / module, *own], sorted(composed - {*own})]
        return [[str(path) for path in stage] for stage in listed]
    rest = set((folder / "training").glob("test_*.py"))
    if room == "beliefs":
        rest |= set((folder / "beliefs").glob("test_*.py"))
    oracle = folder / "training" / "test_oracle.py"
    tests = [
        [workplace / "perfmodel" / module, *own],
        [oracle],
        sorted(rest - {oracle, *own}),
    ]
    return [[str(path) for path in stage] for stage in tests]


def is_caught(mutant: Mutant, workplace: Path) -> bool:
    """Whether a test fails on the mutant."""
    target = workplace / "perfmodel" / mutant.module
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.text, encoding="utf-8")
    environment = {
        **os.environ, "PYTHONPATH": str(workplace), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:benchmark"]
    # The option that turns benchmarks off belongs to the plugin that is not loaded.
    command += [
        "-o",
        "addopts=--doctest-modules --import-mode=importlib -p no:cacheprovider -p no:schemathesis",
    ]
    try:
        for tests in stages(mutant.module, workplace):
            with subprocess.Popen(
                [*command, *tests],
                cwd=workplace,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as run:
                try:
                    if run.wait(timeout=TIMEOUT_S) not in (0, 5):
                        return True
                except subprocess.TimeoutExpired:
                    os.killpg(run.pid, signal.SIGKILL)
                    return True
        return False
    finally:
        target.write_text(original, encoding="utf-8")


def workplace_in(folder: Path) -> Path:
    """A copy of the package beside links to everything else."""
    place = folder / "work"
    place.mkdir()
    shutil.copytree(ROOT / "perfmodel", place / "perfmodel", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests", "hardware_specs", "validation", "examples", "docs", "pyproject.toml"):
        (place / name).symlink_to(ROOT / name)
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.85, help="share that must be caught")
    parser.add_argument("--only", default="", help="start of the modules' paths, such as physics/fabric")
    said = parser.parse_args()
    known = mutants(ROOT / "perfmodel", said.only)
    chosen = random.Random(said.seed).sample(known, min(said.count, len(known)))
    caught, started = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = workplace_in(Path(folder))
        for number, mutant in enumerate(chosen, 1):
            found = is_caught(mutant, place)
            caught += found
            print(f"{number:4d} {'caught' if found else 'MISSED'}  {mutant}", flush=True)
    share = caught / len(chosen)
    minutes = (time.monotonic() - started) / 60.0
    print(
        f"{caught} of {len(chosen)} mutants caught ({share:.0%}), of {len(known)} possible; {minutes:.0f} min"
    )
    return 0 if share >= said.least else 1


if __name__ == "__main__":
    sys.exit(main())
