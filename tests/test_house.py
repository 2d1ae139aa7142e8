"""The size of the house: numbers that may only fall. `python benchmarks/house.py` prints them all."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_ANY = 108  # uses of `Any` outside the modules that read what others wrote
MOST_LINES = 600  # of a file, the last of them excluded


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    package = ROOT / "perfmodel"
    return {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}


def test_any_is_for_what_others_wrote(house: ModuleType, texts: dict[str, str]) -> None:
    uses = {name: house.any_uses(text) for name, text in texts.items() if not name.startswith(house.PARSING)}
    assert sum(uses.values()) <= MOST_ANY, {name: count for name, count in uses.items() if count}


def test_files_can_be_read_in_one_sitting(texts: dict[str, str]) -> None:
    assert {name: lines for name, text in texts.items() if (lines := text.count("\n")) >= MOST_LINES} == {}
