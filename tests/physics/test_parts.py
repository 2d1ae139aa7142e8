"""Each part of a step is described once, and everything that knows parts knows all of them."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import perfmodel
from perfmodel.physics import parts
from perfmodel.physics.coefficients import NAMES as COEFFICIENTS
from perfmodel.physics.energy import PowerShares

PACKAGE = Path(perfmodel.__file__).parent
#: The step makes the parts and the timeline lays each of them out; both fail at once where a part is renamed.
PRODUCERS = {"physics/parts.py", "training/step.py", "explain/timeline.py"}
#: Names of parts that are words of other vocabularies as well.
COMMON = {"compute", "host", "imbalance", "bubble", "straggler", "serial", "input_stall", "optimizer"}


def test_names_are_unique_and_in_the_order_of_the_step():
    assert len(set(parts.NAMES)) == len(parts.PARTS) == len(parts.BY_NAME)
    assert parts.NAMES[0] == "compute"
    assert parts.NAMES[-1] == "serial"


@pytest.mark.parametrize("part", parts.PARTS, ids=lambda part: part.name)
def test_a_part_says_what_it_rests_on(part):
    assert part.words
    assert part.formula
    assert len(set(part.facts)) == len(part.facts) > 0
    assert set(part.beliefs) <= set(COEFFICIENTS)
    assert part.activity in {share.name for share in fields(PowerShares)}


@pytest.mark.parametrize("part", parts.PARTS, ids=lambda part: part.name)
def test_a_remedy_eases_what_the_part_rests_on(part):
    assert set(part.eased) <= set(part.beliefs)
    assert all(factor in (0.5, 2.0) for factor in part.eased.values())
    assert part.eased or part is parts.SERIAL


def test_traffic_waiting_and_device_do_not_overlap():
    groups = (*parts.TRAFFIC, *parts.WAITING, *parts.DEVICE)
    assert len(set(groups)) == len(groups)
    assert set(parts.NAMES) - set(groups) == {"host", "input_stall", "serial"}


def test_no_other_module_spells_a_part():
    """A renamed part would otherwise stay behind in a table somewhere."""
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where in PRODUCERS or where.startswith("frameworks/"):  # whose settings have names of their own
            continue
        text = path.read_text(encoding="utf-8")
        literals = {
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        spelled = literals & (set(parts.NAMES) - COMMON)
        assert not spelled, f"{where} spells {sorted(spelled)}"
