"""The first screen: so many lines, what matters first, and what is left out named."""

from __future__ import annotations

import pytest

from perfmodel.cli.main import main
from perfmodel.report.model import Column, Table
from perfmodel.report.screen import shorter

BUDGETS = {"predict": 45, "plan": 40, "explain": 60}
JOBS = (
    ("-w", "llama3-70b", "-c", "dgx-h100", "--global-batch", "1024", "--set", "tokens=1T"),
    ("-w", "resnet50", "-c", "dgx-a100", "--global-batch", "4096"),
    (
        "-w",
        "deepseek-v3",
        "-c",
        "dgx-h100",
        "--global-batch",
        "4096",
        "--set",
        "deadline=60 day",
        "--set",
        "tokens=1T",
    ),
    ("-w", "llama3-405b", "-c", "dgx-a100", "--global-batch", "64"),
    ("-w", "gpt3-175b", "-c", "p4d.24xlarge", "--set", "batch_per_accelerator=1"),
)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job[1])
@pytest.mark.parametrize("verb", list(BUDGETS))
def test_the_first_screen_keeps_its_lines(verb, job, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    more = {"plan": ("--max-k", "64"), "explain": ("-k", "64"), "predict": ()}[verb]
    assert main([verb, *job, *more]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert 3 <= len(lines) <= BUDGETS[verb]
    assert max(len(line) for line in lines) <= 80
    assert lines[-1].startswith("perfmodel ")


def test_full_has_what_the_first_screen_leaves_out(capsys):
    job = ["predict", "-w", "llama3-8b", "-c", "dgx-h100", "--global-batch", "512"]
    assert main(job) == 0
    first = capsys.readouterr().out
    assert main([*job, "--full"]) == 0
    whole = capsys.readouterr().out
    assert "--full has" in first
    assert "--full has" not in whole
    assert "Sensitivity" in whole
    assert "Sensitivity" not in first
    assert len(whole.splitlines()) > 2 * len(first.splitlines())


def test_rows_without_a_value_go_first_and_what_is_marked_stays():
    rows = [[1, None], [2, None], *([k, float(k)] for k in range(3, 11))]
    table = Table("T", (Column("K"), Column("time", "s")), rows, marked=(4,))
    found = shorter(table, 4)
    assert [row[0] for row in found.rows][:1] == [3]
    assert found.rows[-1][0] == 10
    assert len(found.rows) == 4
    assert [found.rows[i][0] for i in found.marked] == [5]
