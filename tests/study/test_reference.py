"""The worked reference tables, to the printed digit, through the library and through the command line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli.main import main
from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study, study_file
from perfmodel.study.table import parse_timings

REFERENCE = Path(__file__).parents[1] / "reference"
TABLES = Path(__file__).parents[2] / "examples" / "textbook"


def command(*arguments: str) -> dict[str, Any]:
    """The command called in this process: tests below call both verbs in one of their own."""
    out = io.StringIO()
    with contextlib.chdir(TABLES), contextlib.redirect_stdout(out):
        assert main([*arguments, "--format", "json"]) == 0
    return dict(json.loads(out.getvalue())["result"])


def process(*arguments: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "perfmodel", *arguments, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=TABLES,
    )
    return dict(json.loads(run.stdout)["result"])


def library(name: str, **options: Any) -> dict[str, Any]:
    return dict(study_file(TABLES / name, StudyOptions(**options)).envelope()["result"])


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((REFERENCE / f"{name}.expected.json").read_text()))


def printed(values: list[float], digits: int) -> list[float]:
    return [round(value, digits) for value in values]


RUBRIC = {
    "library": lambda: library("rubric.csv", work=1_200_000),
    "command": lambda: process("study", "rubric.csv", "--work", "1200000"),
}
BREAKDOWN = {
    "library": lambda: library("breakdown.csv", price_usd_per_s=3.2 / 3600),
    "command": lambda: command("study", "breakdown.csv", "--price", "3.20 USD/h"),
}
STUDY = {
    "library": lambda: library("study.csv", regime="strong"),
    "command": lambda: command("study", "study.csv", "--regime", "strong"),
}


@pytest.mark.parametrize("way", RUBRIC)
def test_rubric(way):
    result, want = RUBRIC[way](), expected("rubric")
    assert printed(result["speedup"], 2) == want["speedup"]
    assert printed(result["efficiency"], 3) == want["efficiency"]
    assert printed(result["cost_usd"], 2) == want["cost_usd"]
    assert [float(f"{x:.3e}") for x in result["cost_per_work"]] == want["cost_per_work"]
    assert printed(result["work_per_usd"], 0) == want["work_per_usd"]
    amdahl = result["fits"]["amdahl"]
    assert round(amdahl["serial_fraction"], 4) == want["amdahl_serial_fraction"]
    assert round(amdahl["ceiling"], 1) == want["amdahl_ceiling"]
    assert round(amdahl["k_at_efficiency_050"], 2) == want["amdahl_k_at_efficiency_050"]
    s = amdahl["serial_fraction"]
    assert round(1 / (s + (1 - s) / 32), 2) == want["amdahl_speedup_at_32"]
    assert result["quality"]["held"] is want["quality_held"]
    assert round(result["quality"]["max_drift"], 3) == want["max_quality_drift"]
    assert result["quality"]["tolerance"] == want["quality_tolerance"]
    assert result["cost_optimal_k"] == want["cheapest_k"]
    assert result["threshold"]["last_at_or_above_k"] == want["largest_k_with_efficiency_070"]
    assert result["recommended_k"] == 8


def test_rubric_degraded():
    want = expected("rubric")["degraded"]
    text = (TABLES / "rubric.csv").read_text().replace("32,250,32,0.871", "32,250,32,0.860")
    assert text.count("0.860") == 1
    result = study(parse_timings(text)).envelope()["result"]
    assert result["quality"]["held"] is False
    assert result["quality"]["excluded_k"] == want["k_excluded_by_gate"]
    assert result["recommended_k"] == want["verdict_k"]
    assert result["fastest_k"] == 16  # 32 is faster, and out of the ranking
    assert [step["step"] for step in result["marginal"]] == ["1->2", "2->4", "4->8", "8->16"]
    assert "K = 32 is out of every ranking" in result["verdict"]


@pytest.mark.parametrize("way", BREAKDOWN)
def test_breakdown(way):
    result, want = BREAKDOWN[way](), expected("breakdown")
    assert result["mean_s"] == want["time_s"]
    assert printed(result["speedup"], 2) == want["speedup"]
    assert printed(result["efficiency"], 2) == want["efficiency"]
    assert printed(result["cost_usd"], 3) == want["cost_usd"]
    assert printed(result["parts_percent"]["communication"], 1) == want["communication_percent"]
    assert printed(result["parts_percent"]["idle"], 1) == want["idle_percent"]
    for step, row in zip(result["marginal"], want["marginal"], strict=True):
        assert step["step"] == row["step"]
        assert round(step["speedup"], 2) == row["speedup"]
        assert round(step["cost_usd"], 3) == row["cost_usd"]
        assert round(step["speedup_per_usd"], 2) == row["speedup_per_usd"]
    assert result["cost_optimal_k"] == want["cost_optimal_k"]
    assert result["fastest_k"] == want["fastest_k"]
    assert {key: round(value, 2) for key, value in result["exchange"].items()} == want["exchange"]
    assert result["bend"]["cause"] == "communication"


@pytest.mark.parametrize("way", STUDY)
def test_study(way):
    result, want = STUDY[way](), expected("study")
    rows = want["rows"]
    assert result["k"] == [row["k"] for row in rows]
    assert printed(result["mean_s"], 4) == [row["mean_s"] for row in rows]
    assert printed(result["std_s"], 4) == [row["std_s"] for row in rows]
    assert printed(result["speedup"], 2) == [row["speedup"] for row in rows]
    assert printed(result["efficiency"], 3) == [row["efficiency"] for row in rows]
    assert result["threshold"]["value"] == want["threshold"]
    assert result["threshold"]["first_below_k"] == want["first_k_below_threshold"]
    assert result["bend"]["k"] == want["first_k_below_threshold"]


@pytest.mark.parametrize("regime", ["strong", "weak"])
def test_both_regimes_of_one_system(regime):
    want = expected("strong_weak")
    k = want["k"]
    parallel = [0.96 / n if regime == "strong" else 0.96 for n in k]
    exact = command("law", "communication", "--serial", "0.04", "--term", "log2p1", "--alpha", "10 ms",
                    "-k", ",".join(str(n) for n in k), "--regime", regime)["curves"][0]["time"]  # fmt: skip
    assert printed(exact, 4) == want[f"{regime}_time_s"]
    assert exact[0] == pytest.approx(0.04 + parallel[0] + 0.01)
    text = "k,time_s\n" + "".join(f"{n},{t!r}\n" for n, t in zip(k, exact, strict=True))
    result = study(parse_timings(text), StudyOptions(regime=regime)).envelope()["result"]
    assert printed(result["efficiency"], 3) == want[f"{regime}_efficiency"]


def test_amdahl_table_from_the_shell():
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "perfmodel",
            "law",
            "amdahl",
            "--serial",
            "0.05",
            "-k",
            "1..512",
            "--format",
            "csv",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = list(csv.DictReader(io.StringIO(run.stdout)))
    with (REFERENCE / "amdahl_f005.csv").open(newline="") as file:
        want = list(csv.DictReader(file))
    for row, reference in zip(found, want, strict=True):
        assert int(row["k"]) == int(reference["k"])
        for key in ("time", "speedup", "efficiency"):
            assert f"{float(row[key]):.4f}" == reference[key]


def test_amdahl_sweep_from_the_shell():
    want = expected("amdahl_sweep")
    keeps = want.pop("serial_fraction_that_keeps_efficiency_080")
    result = command("law", "amdahl", "--serial", "0.01,0.05,0.20", "-k", "1..512")
    for curve in result["curves"]:
        row = want[f"{curve['serial_fraction']:g}"]
        assert round(curve["ceiling"], 6) == row["ceiling"]
        assert curve["smallest_k_below"] == row["smallest_k_with_efficiency_below_050"]
    found = dict(zip(result["k"], result["keeps"]["serial_fraction"], strict=True))
    assert {k: round(found[int(k)], 6) for k in keeps} == keeps


def test_gustafson_from_the_shell():
    result = command("law", "gustafson", "--serial", "0.05", "-k", "1..512")
    with (REFERENCE / "gustafson_s005.csv").open(newline="") as file:
        want = [row["scaled_speedup"] for row in csv.DictReader(file)]
    assert [f"{s:.2f}" for s in result["curves"][0]["speedup"]] == want
