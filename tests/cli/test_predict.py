"""`perfmodel predict` as a user runs it: the JSON contract, tables, CSV, Markdown, errors and exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from perfmodel.cli.main import main
from perfmodel.report.text import quantity

JOB = """\
name: small
workload: resnet50
cluster: dgx-a100
regime: strong
global_batch: 2048
k: 1..256
steps: 1000
price: {per_accelerator: 2 USD/h, fixed: 12 USD/h}
grid: US-VA
jitter: {distribution: lognormal, spread: 0.02}
reliability: {mtbf_per_accelerator: 50000 h, checkpoint: 60 s, restart: 300 s}
"""
RESULT = (
    "k", "time_s", "time_s_low", "time_s_high", "speedup", "efficiency", "throughput", "parts_s",
    "ledger_accelerator_s", "memory_bytes", "feasible", "reason", "layout", "cost_usd", "energy_j", "carbon_g",
    "baseline_k", "knee", "p_star", "fastest", "rests_on", "cost_basis",
)  # fmt: skip
ALIGNED = (*RESULT[1:7], *RESULT[9:16])


def run(*arguments: str, cwd: Path | None = None, columns: str = "80") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "perfmodel", *arguments], capture_output=True, text=True, timeout=120, cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": columns, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict") / "job.yaml"
    path.write_text(JOB)
    return path


@cache
def as_json(path: Path) -> str:
    done = run("predict", str(path), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_json_holds_the_contract(job):
    envelope = json.loads(as_json(job))
    assert envelope["schema"] == "perfmodel/prediction/1"
    assert envelope["seed"] == 0
    assert envelope["version"]
    result = envelope["result"]
    assert set(RESULT) <= set(result)
    n = len(result["k"])
    assert result["k"] == [2**i for i in range(9)]
    for key in ALIGNED:
        assert len(result[key]) == n, key
    for group in ("parts_s", "ledger_accelerator_s"):
        assert all(len(values) == n for values in result[group].values())
    for rule in ("threshold", "curvature", "marginal"):
        assert {"k", "k_low", "k_high", "cause", "remedy", "k_after_remedy", "at_risk_from_k"} <= set(
            result["knee"][rule]
        )
    for choice in ("p_star", "fastest"):
        assert {"k", "cost_usd", "time_s"} <= set(result[choice])
    for i in range(n):
        total = sum(values[i] for values in result["parts_s"].values())
        assert total == pytest.approx(result["time_s"][i], rel=1e-9)
        assert result["time_s_low"][i] < result["time_s"][i] < result["time_s_high"][i]
    assert result["cost_basis"] == "1000 steps"


def test_the_same_bytes_twice(job):
    assert run("predict", str(job), "--format", "json").stdout == as_json(job)


def test_table_fits_eighty_columns_and_answers_first(job):
    done = run("predict", str(job), "--full")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith("resnet50 on dgx-a100")
    text = " ".join(lines[1:5])
    assert "Cheapest is K" in text
    for heading in ("Decision", "Curve", "Step time by part"):
        assert heading in done.stdout


def test_csv_and_markdown(job, capsys):
    assert main(["predict", str(job), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [int(row["k"]) for row in rows] == [2**i for i in range(9)]
    assert float(rows[0]["time_s"]) > float(rows[-1]["time_s"])
    assert main(["predict", str(job), "--format", "md"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## resnet50 on dgx-a100")
    assert "| K |" in text


def test_files_are_written(job, tmp_path, capsys):
    names = {"--plot": "curve.svg", "--report": "report.html", "-o": "result.json"}
    flags = [word for flag, name in names.items() for word in (flag, str(tmp_path / name))]
    assert main(["predict", str(job), *flags, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert "<svg" in (tmp_path / "curve.svg").read_text()[:2000]
    assert (tmp_path / "report.html").read_text().lower().startswith("<!doctype html>")
    assert json.loads((tmp_path / "result.json").read_text()) == json.loads(as_json(job))


def test_an_infeasible_k_is_null_with_a_reason_and_exit_0(capsys):
    assert main(["predict", "-w", "llama3-8b", "-c", "dgx-h100", "-k", "1,8,12", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["feasible"] == [False, True, True]
    assert result["time_s"][0] is None
    assert result["cost_usd"][0] is None
    assert result["layout"][0] is None
    assert "GB" in result["reason"][0]
    assert result["baseline_k"] == 8


def test_nothing_feasible_is_exit_1_with_the_nearest_that_is(capsys):
    job = ["predict", "-w", "gpt3-175b", "-c", "dgx-a100"]
    assert main([*job, "-k", "1,2", "--format", "json"]) == 1
    result = json.loads(capsys.readouterr().out)["result"]
    assert set(RESULT) <= set(result)
    assert result["time_s"] == [None, None]
    near = result["nearest"]
    assert main([*job, "-k", "1,2"]) == 1
    assert f"Nearest: K = {near['k']} with" in " ".join(capsys.readouterr().out.split())
    assert main([*job, "-k", str(near["k"]), "--format", "json"]) == 0
    there = json.loads(capsys.readouterr().out)["result"]
    assert there["time_s"] == [pytest.approx(near["time_s"])]
    assert there["layout"] == [near["layout"]]
    assert there["nearest"] is None


@pytest.mark.parametrize(
    ("layout", "line", "words"),
    [
        ("layout: {tp: 7}", 7, "heads"),
        ("layout: {tp: 2048}", 7, "tp"),
        ("layout:\n  tp: 1\n  pp: 54", 9, "layers"),
        ("layout:\n  micro_batch: 4096", 8, "batch"),
    ],
)
def test_a_layout_that_is_impossible_at_every_k_is_exit_2_with_its_line(
    tmp_path, capsys, layout, line, words
):
    text = f"name: x\nworkload: llama3-8b\ncluster: dgx-h100\nglobal_batch: 512\nregime: strong\nk: [54, 108]\n{layout}\n"
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert main(["predict", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[0].startswith(f"{path}:{line}:")
    assert words in error


def test_a_precision_that_the_device_lacks_is_exit_2(capsys):
    assert main(["predict", "-w", "llama3-8b", "-c", "dgx-a100", "--precision", "fp8"]) == 2
    assert "fp8" in capsys.readouterr().err


def test_a_generic_workload_on_an_inline_cluster(tmp_path, capsys):
    path = tmp_path / "job.yaml"
    path.write_text(
        "workload: {name: mine, flop_per_sample: 24.6 GFLOP, bytes_per_sample: 400 MB, params: 25.6 M, sample: image}\n"
        "cluster:\n  node: hgx-a100\n  nics_per_node: 4\n"
        "  scale_out: {name: roce-100, latency: 3 us, bandwidth: 12.5 GB/s}\n"
        "  topology: {kind: rail, oversubscription: 1}\n"
        "global_batch: 4096\nk: 1..64\n"
    )
    assert main(["predict", str(path), "--format", "json", "--set", "price={per_accelerator: 2 USD/h}"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert all(result["feasible"])
    assert result["cost_usd"][0] == pytest.approx(2 / 3600 * result["time_s"][0])


def test_the_ladder_and_what_a_dollar_trains(capsys):
    arguments = [
        "predict",
        "-w",
        "resnet50",
        "-c",
        "dgx-a100",
        "-k",
        "1..64",
        "--set",
        "price={per_accelerator: 2 USD/h}",
    ]
    assert main([*arguments, "--set", "steps=100", "--set", "global_batch=2048", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert [step["step"] for step in found["marginal"]] == [
        "1->2",
        "2->4",
        "4->8",
        "8->16",
        "16->32",
        "32->64",
    ]
    for i, step in enumerate(found["marginal"]):
        assert step["speedup"] == pytest.approx(found["speedup"][i + 1] - found["speedup"][i])
        assert step["cost_usd"] == pytest.approx(found["cost_usd"][i + 1] - found["cost_usd"][i])
    for usd, samples in zip(found["cost_usd"], found["work_per_usd"], strict=True):
        assert samples == pytest.approx(100 * 2048 / usd)
    assert main([*arguments, "--full"]) == 0
    assert "Marginal ladder" in capsys.readouterr().out


def test_weak_scaling(capsys):
    assert main(["predict", "-w", "resnet50", "-c", "dgx-a100", "--regime", "weak", "--set", "batch_per_accelerator=64",
                 "-k", "1..64", "--format", "json"]) == 0  # fmt: skip
    result = json.loads(capsys.readouterr().out)["result"]
    times = result["time_s"]
    assert result["efficiency"] == pytest.approx([times[0] / t for t in times])
    assert result["speedup"] == pytest.approx(
        [k * times[0] / t for k, t in zip(result["k"], times, strict=True)]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-w", "resnet50"], "no job given"),
        (["-w", "resnet5O", "-c", "dgx-a100"], "did you mean"),
        (["-w", "resnet50", "-c", "dgx-a100", "-k", "0"], "k"),
        (["-w", "resnet50", "-c", "dgx-a100", "--layout", "tp"], "layout"),
        (["-w", "resnet50", "-c", "dgx-a100", "--beliefs", "nowhere.json"], "nowhere.json"),
        (["-w", "resnet50", "-c", "dgx-a100", "--plot", "x.bmp"], "x.bmp"),
    ],
)
def test_bad_usage_is_exit_2_in_one_message(arguments, words, capsys):
    assert main(["predict", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_sensitivity_is_told_in_words(capsys):
    from perfmodel.physics.coefficients import MEANINGS

    assert main(["predict", "-w", "resnet50", "-c", "dgx-a100", "-k", "8", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["result"]["sensitivity"]
    assert all(row["meaning"] == MEANINGS[row["input"]] for row in rows)
    assert main(["predict", "-w", "resnet50", "-c", "dgx-a100", "-k", "8", "--full"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    table = shown[shown.index("Sensitivity") :]
    assert "device time of such jobs against" in table
    assert "host_kernel_s" not in table


def test_one_k_has_a_time_and_no_knee(capsys):
    job = ["predict", "-w", "resnet50", "-c", "dgx-a100", "-k", "1"]
    assert main([*job, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    times = [found[name][0] for name in ("time_s", "time_s_low", "time_s_high")]
    takes, low, high = (quantity(time_s, "s", times[0]) for time_s in times)
    assert main([*job, "--full"]) == 0
    shown = capsys.readouterr().out
    assert f"K = 1 takes {takes} a step ({low} to {high})" in shown
    assert "nee" not in shown.replace("needs", "")
    assert "input stall" not in shown  # a trace of a rounded maximum
    table = shown[shown.index("Sensitivity") : shown.index("Change of the step time")]
    assert not any(line.split()[-2:] == ["0", "0"] for line in table.splitlines())


def test_where_nothing_fits_the_reason_is_told_once(capsys):
    job = ["-w", "llama3-8b", "-c", "dgx-h100", "-k", "8388608", "--global-batch", "2"]
    assert main(["predict", *job]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("the global batch is too small") == 1
    assert "Decision" not in shown


def test_the_headline_counts_interruptions_on_both_sides(capsys):
    often = ["--set", "reliability={mtbf_per_accelerator: 2000 h}", "--set", "steps=100000"]
    job = ["predict", "-w", "llama3-8b", "-c", "dgx-h100", "-k", "8..1024", *often]
    assert main([*job, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    runs = result["p_star"]["run_s"] / result["fastest"]["run_s"]
    assert main(job) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"for {runs:.1f}x the speed" in shown
    assert main([*job, "--set", "reliability={mtbf_per_accelerator: 1 h}"]) == 0
    assert "a step, with all interruptions" in " ".join(capsys.readouterr().out.split())


def test_wall_time_is_the_upper_end_of_the_run_rounded_up_to_minutes(capsys):
    words = [
        "predict",
        "-w",
        "llama3-8b",
        "-c",
        "dgx-h100",
        "-k",
        "8,64",
        "--set",
        "steps=20000",
        "--format",
        "json",
    ]
    assert main(words) == 0
    run = json.loads(capsys.readouterr().out)["result"]["run"]
    assert main([*words, "--wall-time"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "perfmodel/wall-time/1"
    found = found["result"]
    assert found["bound_s"] == run["time_s_high"]
    for asked, bound, line in zip(found["request_s"], found["bound_s"], found["slurm"], strict=True):
        assert 0 <= asked - bound < 60
        assert asked % 60 == 0
        days, _, clock = line.removeprefix("--time=").rpartition("-")
        hours, minutes, seconds = (int(part) for part in clock.split(":"))
        assert ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds == asked


def test_wall_time_needs_a_length_and_stands_alone(capsys):
    words = ["predict", "-w", "llama3-8b", "-c", "dgx-h100", "-k", "8", "--wall-time"]
    assert main(words) == 2
    assert "nobody says how long" in capsys.readouterr().err
    assert main([*words, "--export", "slurm"]) == 2
    assert "--wall-time goes with none of" in capsys.readouterr().err
