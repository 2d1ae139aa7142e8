"""Inputs that once showed a fault show none; and each entry point takes its own good examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from entries import ENTRIES

HERE = Path(__file__).parent
KEPT = sorted(path for path in (HERE / "kept").glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_showed_a_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_DEBUG", "1")  # the tests of other files run without
    ENTRIES[path.parent.name].run(path.read_bytes())


@pytest.mark.parametrize("name", ENTRIES)
def test_the_first_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_DEBUG", "1")
    ENTRIES[name].run(ENTRIES[name].seeds()[0])
