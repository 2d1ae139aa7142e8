"""The page about ways to pay is what the code says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("repricing", ROOT / "validation" / "repricing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "repricing.md").read_text(encoding="utf-8") == module.page()
    assert [d.p_star.k for _, d in module.decisions(0.0)] == [1, 1, 1, 1]
    assert [d.p_star.k for _, d in module.decisions(2.0)] == [2, 4, 2, 2]
