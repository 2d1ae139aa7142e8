"""A walk that cannot be over a folder of specs ends early, with what to do instead."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from perfmodel.errors import UsageError
from perfmodel.specs import lint


def test_a_folder_that_holds_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "MOST_SEEN", 20)
    for number in range(30):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(UsageError, match="holds too much to be a folder of specs"):
        lint.lint(tmp_path, today=datetime.date(2026, 1, 1))
