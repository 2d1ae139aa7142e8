"""Public functions of the physics state units, results and an example; equations and references are for reviews."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfmodel import physics

MODULES = sorted(Path(physics.__file__).parent.glob("*.py"))
#: Modules whose functions do not all have the form yet. Take a name off when they do; add none.
BEHIND = {
    "coefficients",
    "collectives",
    "layouts",
    "memory",
    "overlap",
    "pipeline",
    "queueing",
    "state_bytes",
    "workdepth",
}
#: Tables and bookkeeping rather than physics.
PLAIN = {"constants", "examples", "parts"}


def _public() -> list[tuple[str, str, str]]:
    found = []
    for path in MODULES:
        if path.stem in BEHIND | PLAIN:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.append((path.stem, node.name, ast.get_docstring(node) or ""))
    return found


@pytest.mark.parametrize(("module", "name", "text"), _public(), ids=lambda value: str(value)[:30])
def test_a_function_states_its_parameters_result_and_an_example(module, name, text):
    assert "Parameters\n----------" in text, f"{module}.{name}"
    assert "Returns\n-------" in text, f"{module}.{name}"
    assert ">>> " in text, f"{module}.{name}"


def test_the_list_of_modules_that_are_behind_names_modules():
    assert {path.stem for path in MODULES} >= BEHIND | PLAIN
