"""`perfmodel roofline` from the shell."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from perfmodel.cli.main import main

BASE = ["roofline", "-w", "llama3-8b", "-c", "dgx-h100", "--global-batch", "512", "-k", "8,64,512"]


def test_a_table_of_eighty_columns_in_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel", *BASE], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "of 989" in done.stdout
    assert "Phases" in done.stdout


def test_json_csv_and_plot(tmp_path, capsys):
    plot = tmp_path / "roof.svg"
    assert main([*BASE, "--format", "json", "--plot", str(plot)]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["ridge_flop_per_byte"] == pytest.approx(295, rel=0.02)
    assert all(row["k"] == [8, 64, 512] for row in result["phases"])
    assert plot.stat().st_size > 1000
    assert main([*BASE, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["k"] for row in rows} == {"8", "64", "512"}
    assert {"phase", "intensity_flop_per_byte", "flop_per_s", "bound"} <= set(rows[0])


def test_nothing_fits_is_an_answer(capsys):
    assert main(["roofline", "-w", "gpt3-175b", "-c", "dgx-a100", "-k", "1"]) == 0
    assert "Nothing fits" in capsys.readouterr().out
