"""Public functions of the physics state units, results and an example; equations and references are for reviews."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfmodel import physics

MODULES = sorted(Path(physics.__file__).parent.glob("*.py"))
#: Tables of numbers rather than functions.
TABLES = {"coefficients", "constants", "examples"}


def _public() -> list[tuple[str, str, bool, str]]:
    found = []
    for path in MODULES:
        if path.stem in TABLES:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                taken = bool(node.args.args or node.args.kwonlyargs)
                found.append((path.stem, node.name, taken, ast.get_docstring(node) or ""))
    return found


@pytest.mark.parametrize(("module", "name", "taken", "text"), _public(), ids=lambda value: str(value)[:30])
def test_a_function_states_its_parameters_result_and_an_example(module, name, taken, text):
    assert not taken or "Parameters\n----------" in text, f"{module}.{name}"
    assert "Returns\n-------" in text, f"{module}.{name}"
    assert ">>> " in text, f"{module}.{name}"


def test_the_list_names_modules():
    assert {path.stem for path in MODULES} >= TABLES
