"""Every constant has a unit, a source and users; and the list of users is true."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

import perfmodel
from perfmodel import units
from perfmodel.physics import constants
from perfmodel.physics.constants import about

PACKAGE = Path(perfmodel.__file__).parent
UNITS = {"1", "B", "s", "B/s", "FLOP/B", "tokens", "B at 2 B per element"}


def _users() -> dict[str, set[str]]:
    """Modules that import each name from the module of constants."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "physics.constants" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "perfmodel.physics.constants":
                module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
                for alias in node.names:
                    found.setdefault(alias.name, set()).add(module)
    return found


def test_the_list_of_users_is_true() -> None:
    stated = {name: set(entry.users.split()) for name, entry in about().items()}
    assert stated == _users()


def test_each_number_is_finite_and_has_unit_and_source() -> None:
    entries = about()
    numbers = {name for name in vars(constants) if name.isupper()}
    assert set(entries) == numbers
    for name, entry in entries.items():
        assert entry.unit in UNITS, name
        assert entry.source, name
        value = getattr(constants, name)
        assert all(math.isfinite(v) and v > 0.0 for v in (value if isinstance(value, tuple) else (value,))), (
            name
        )


@pytest.mark.parametrize(
    ("name", "derived"),
    [
        ("FAST_CONVOLUTION", 36 / 16),
        ("GATED_TRAFFIC", (3 + 5) / (2 + 3)),
        ("PCIE3_BYTES_PER_S", units.parse("8 Gbit/s", "B/s") * 16 * 128 / 130),
        ("BACKWARD_SHARE", 2 / 3),
        ("OPTIMIZER_BYTES", 4 * 4 + 3 * 4 + 2 + 4),
    ],
)
def test_a_counted_constant_is_what_the_count_gives(name: str, derived: float) -> None:
    assert getattr(constants, name) == pytest.approx(derived, rel=0.011)
