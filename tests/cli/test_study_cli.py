"""`perfmodel study` from the shell: formats, files, exit codes, error lines."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from perfmodel.cli.main import main

TEXTBOOK = Path(__file__).parents[2] / "examples" / "textbook"


@pytest.fixture
def shell(capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["study", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_table_answers_first(shell):
    code, out, err = shell(str(TEXTBOOK / "rubric.csv"), "--work", "1200000")
    assert code == 0
    assert err == ""
    assert out.index("On this workload the system scales to") < out.index("Decision")
    for heading in ("Curve", "Marginal ladder", "Fits", "Checklist"):
        assert heading in out


def test_json_is_the_envelope(shell):
    code, out, _ = shell(str(TEXTBOOK / "study.csv"), "--format", "json", "--regime", "strong", "--seed", "3")
    envelope = json.loads(out)
    assert code == 0
    assert envelope["schema"] == "perfmodel/study/1"
    assert envelope["inputs"]["rows"] == 35
    assert envelope["seed"] == 3
    assert envelope["result"]["bend"]["k"] == 8


def test_csv_has_a_row_for_each_k(shell):
    _, out, _ = shell(str(TEXTBOOK / "breakdown.csv"), "--format", "csv", "--price", "3.20 USD/h")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["k"] for row in rows] == ["1", "2", "4", "8", "16"]
    assert float(rows[1]["cost_usd"]) == pytest.approx(0.7644, abs=1e-4)


def test_markdown(shell):
    _, out, _ = shell(str(TEXTBOOK / "breakdown.csv"), "--format", "md")
    assert out.startswith("## Study of")
    assert "| K |" in out


def test_straggler_and_normal_interval(shell):
    code, out, _ = shell(
        str(TEXTBOOK / "study.csv"), "--inject-straggler", "1.0..1.5", "--ci", "normal", "--format", "json"
    )
    result = json.loads(out)["result"]
    assert code == 0
    assert result["straggler"]["factors"] == [1.0, 1.5]
    assert result["straggler"]["bend_k"] <= result["bend"]["k"]
    assert result["ci95_s"][0] == pytest.approx(1.959964 * result["std_s"][0] / 5**0.5)


def test_files(shell, tmp_path):
    out, plot, report = tmp_path / "r.json", tmp_path / "p.svg", tmp_path / "r.html"
    code, text, _ = shell(
        str(TEXTBOOK / "breakdown.csv"), "-o", str(out), "--plot", str(plot), "--report", str(report)
    )
    assert (code, text) == (0, "")
    assert json.loads(out.read_text())["schema"] == "perfmodel/study/1"
    assert plot.read_text().lstrip().startswith("<?xml")
    assert "On this workload" in report.read_text()


def test_every_problem_of_a_bad_table_and_exit_2(shell, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("k,time_s\n1,10\n2,x\n0,3\n4,-1\n")
    code, out, err = shell(str(bad))
    assert (code, out) == (2, "")
    assert f"{bad}:3:3: error[T004]" in err
    assert f"{bad}:4:1: error[T007]" in err
    assert f"{bad}:5:3: error[T005]" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--price", "3.20"], "--price: a number without a unit"),
        (["--price", "3 GB"], "--price"),
        (["--price=-3 USD/h"], "--price must be zero or above"),
        (["--threshold", "1.5"], "--threshold must be above 0 and at most 1"),
        (["--threshold", "0"], "--threshold must be above 0"),
        (["--work", "0"], "--work must be 1e-30 to 1e+30"),
        (["--quality-tolerance", "-1"], "--quality-tolerance must be zero or above"),
        (["--inject-straggler", "2..1"], "--inject-straggler must be 1 to 1e+06"),
        (["--inject-straggler", "slow"], '--inject-straggler: cannot read "slow"'),
        (["--ci", "bootstrap"], "bootstrap"),
        (["--regime", "sideways"], "sideways"),
        (["--max-latency-p99", "soon"], "--max-latency-p99"),
        (["--min-throughput", "-2"], "--min-throughput must be 1e-30 to 1e+30"),
    ],
)
def test_bad_flags_exit_2_and_name_the_flag(shell, flags, message):
    code, out, err = shell(str(TEXTBOOK / "rubric.csv"), *flags)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_missing_file(shell, tmp_path):
    code, _, err = shell(str(tmp_path / "none.csv"))
    assert code == 2
    assert "none.csv: error[T001]: cannot read: no such file" in err
