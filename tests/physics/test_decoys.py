"""Nothing in the physics stands beside the tool: it takes part in a verb, or a test holds a verb's answer to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import perfmodel

PACKAGE = Path(perfmodel.__file__).parent
PHYSICS = PACKAGE / "physics"
TESTS = Path(__file__).resolve().parents[1]

# Functions that no verb calls, and the test that holds what a verb does call to each.
ORACLES = {
    "collectives.all_reduce_hierarchical": "physics/test_algorithms.py",  # of `algorithms.terms`
    "collectives.lower_bound": "properties/test_collectives.py",  # of every closed form
    "failures.young_interval_s": "decide/test_goodput.py",  # of the interval that a run saves at
    "pipeline.step_time": "properties/test_pipeline.py",  # of the schedule that workdepth walks
    "pipeline.uneven_step_time": "properties/test_pipeline.py",
    "queueing.saturation_rate_per_s": "physics/test_queueing.py",  # of the saturation that a replica's steps give
    "stragglers.expected_max_with_slow_devices": "training/test_declared.py",  # of the step's limit
    "topology.bisection_bandwidth": "physics/test_topology.py",  # of the graph that `wiring` reads, by its largest flow
    "topology.group_bandwidth": "physics/test_topology.py",
    "waiting.wait_quantile_s": "physics/test_waiting.py",
}
# Modules that only doctests and tests are made from.
EXAMPLES = {"perfmodel.physics.examples"}
# Modules of the prediction of serving, which count from the day a verb comes to it.
SERVING = ("serving", "queueing", "waiting")


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the package by module."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(("perfmodel", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules that a module names: by import, or in a text such as "perfmodel.workloads.from_hf:read_config"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


@cache
def reached() -> frozenset[str]:
    """Modules that a verb can come to."""
    known = trees()
    todo = [name for name in known if name.startswith("perfmodel.cli.")]
    found = set(todo)
    while todo:
        for name in imported(known[todo.pop()]):
            if name in known and name not in found:
                found.add(name)
                todo.append(name)
    return frozenset(found)


def names_used(tree: ast.Module) -> set[str]:
    """Names that the code of a module uses; docstrings are none."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
    return found


def physics() -> dict[str, ast.Module]:
    """The modules of the physics whose verbs are there."""
    exempt = () if serving_is_there() else tuple(f"perfmodel.physics.{name}" for name in SERVING)
    return {
        name: tree
        for name, tree in trees().items()
        if name.startswith("perfmodel.physics.") and not name.startswith(exempt or ("no module",))
    }


def serving_is_there() -> bool:
    """Whether a verb comes to the modules that predict serving."""
    return any(name.startswith("perfmodel.serving.") for name in reached())


def test_every_module_takes_part_in_a_verb() -> None:
    assert set(physics()) - reached() - EXAMPLES == set()


def test_every_function_takes_part_or_is_an_oracle() -> None:
    used = {name: names_used(tree) for name, tree in trees().items() if name in reached()}
    unused = {
        f"{name.rpartition('.')[2]}.{node.name}"
        for name, tree in physics().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if name not in EXAMPLES and not any(node.name in names for names in used.values())
    }
    assert unused == set(ORACLES)


def test_every_oracle_is_in_the_test_that_holds_it_against_something() -> None:
    for name, file in ORACLES.items():
        used = names_used(ast.parse((TESTS / file).read_text(encoding="utf-8")))
        assert name.partition(".")[2] in used, name
