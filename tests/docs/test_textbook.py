"""The page of textbook statements: every command runs, and prints every answer to the digit shown."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import snippets

PAGE = Path(__file__).parents[2] / "docs" / "textbook-coverage.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| `perfmodel (.+?)` \| (.+) \|$", re.MULTILINE)
LEAST = 83
WIDE = "220"  # columns, so that no row of a table is broken


class Row(NamedTuple):
    number: int
    statement: str
    command: str
    answers: tuple[str, ...]


def rows() -> list[Row]:
    text = PAGE.read_text(encoding="utf-8")
    return [
        Row(int(n), said, command, tuple(re.findall("`(.+?)`", told)))
        for n, said, command, told in ROW.findall(text)
    ]


ROWS = rows()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What a command prints, on one line; commands of several rows run once."""

    @cache
    def run(command: str) -> tuple[tuple[int, ...], str]:
        block = snippets.Block(0, (("perfmodel", *shlex.split(command)),), (), 0, None, None, ())
        with snippets.workplace(tmp_path_factory.mktemp("work")), pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", WIDE)
            done = snippets.run(block)
        return done.codes, " ".join(done.output.split())

    return run


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}")
def test_the_command_prints_the_answer(row, printed):
    codes, text = printed(row.command)
    assert codes == (0,), row.statement
    missing = [answer for answer in row.answers if answer not in text]
    assert not missing, f"{row.statement}: {row.command}"


def test_every_row_is_read_and_has_an_answer():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)]
    assert len(lines) == len(ROWS) >= LEAST
    assert [row.number for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert all(row.answers for row in ROWS)
    assert len({row.statement for row in ROWS}) == len(ROWS)


def test_the_page_says_whose_list_it_is():
    assert "The list is ours." in PAGE.read_text(encoding="utf-8")
