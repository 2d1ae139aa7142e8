"""Loads the hand-written envelopes by path: tests are not a package."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("report_fixtures", Path(__file__).with_name("fixtures.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)


@pytest.fixture
def make() -> dict[str, Callable[..., dict[str, Any]]]:
    """Builders of envelopes by kind."""
    return dict(_MODULE.ALL)
