"""`perfmodel explain` from the shell."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from perfmodel.cli.main import main

LAYOUT = ["--layout", "tp=4,pp=4,micro_batch=2,recompute=full"]
BASE = ["explain", "-w", "llama3-70b", "-c", "dgx-h100", "--global-batch", "512", *LAYOUT]


@pytest.fixture
def shell(capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_table_of_eighty_columns_in_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel", *BASE, "--k", "256", "--full"], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "a step takes" in done.stdout.splitlines()[1]
    for heading in ("Terms", "Collectives", "Memory of a device", "Formulas", "Inputs that matter"):
        assert heading in done.stdout
    terms = done.stdout.partition("Terms")[2].partition("What the arithmetic")[0]
    assert "answers most to" in terms
    assert "more columns" not in terms
    assert "github.com/stas00/ml-engineering" in done.stdout  # an address is not cut
    assert "Sources" in done.stdout


def test_json_has_terms_collectives_and_sources(shell):
    code, out, err = shell(*BASE, "--k", "256", "--format", "json")
    assert (code, err) == (0, "")
    envelope = json.loads(out)
    assert envelope["schema"] == "perfmodel/explanation/1"
    result = envelope["result"]
    assert result["k"] == 256
    assert sum(row["time_s"] for row in result["terms"]) == pytest.approx(result["time_s"], rel=1e-9)
    for row in result["collectives"]:
        assert {"message_bytes", "ranks", "nodes", "time_s", "exposed_s", "hidden_s", "hidden_at_bytes_per_s",
                "negligible_at_bytes_per_s"} <= set(row)  # fmt: skip
    assert result["defaults"] is not None
    again = shell(*BASE, "--k", "256", "--format", "json")[1]
    assert again == out


def test_csv_is_the_terms(shell):
    _, out, _ = shell(*BASE, "--k", "256", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {"term", "time_s", "share", "sensitivity", "formula"} <= set(rows[0])
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1.0)


def test_markdown_and_plot_and_report(shell, tmp_path):
    code, out, _ = shell(
        *BASE,
        "--k",
        "256",
        "--format",
        "md",
        "--plot",
        str(tmp_path / "t.svg"),
        "--report",
        str(tmp_path / "t.html"),
    )
    assert code == 0
    assert out.startswith("## llama3-70b on dgx-h100 at K = 256")
    assert (tmp_path / "t.svg").stat().st_size > 1000
    assert "Collectives" in (tmp_path / "t.html").read_text()


def test_a_k_that_does_not_fit_is_exit_0_with_the_reason(shell):
    code, out, err = shell("explain", "-w", "llama3-70b", "-c", "dgx-h100", "--k", "4")
    assert (code, err) == (0, "")
    assert "not feasible" in out
    assert "Memory of a device" in out


@pytest.mark.parametrize("k", [["-k", "8..64"], []])
def test_one_k_is_asked_for(shell, k):
    code, _, err = shell("explain", "-w", "resnet50", "-c", "dgx-a100", *k)
    assert code == 2
    assert "--k" in err


def test_the_help_offers_one_k(shell, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = shell("explain", "--help")
    line = next(line for line in out.splitlines() if "--k" in line)
    assert " K " in line
    assert "RANGE" not in line


def test_a_k_that_the_layout_does_not_divide_is_exit_2(shell):
    code, _, err = shell(*BASE, "--k", "24")
    assert code == 2
    assert "16" in err
