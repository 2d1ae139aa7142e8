"""`perfmodel calibrate` and `--beliefs` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = ["-w", "resnet50", "-c", "dgx-a100", "--regime", "weak", "--set", "batch_per_accelerator=128"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfmodel", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("k,time_s\n1,0.090\n2,0.094\n4,0.096\n")
    return tmp_path


def test_timings_become_beliefs_that_predict_uses(timings: Path) -> None:
    done = run("calibrate", *JOB, "--timings", "t.csv", "-o", "b.json", cwd=timings)
    assert (done.returncode, done.stdout) == (0, "")
    result = json.loads((timings / "b.json").read_text())
    assert result["schema"] == "perfmodel/calibration/1"
    assert [point["k"] for point in result["result"]["points"]] == [1, 2, 4]
    plain = run("predict", *JOB, "-k", "1..16", "--format", "json", cwd=timings)
    known = run("predict", *JOB, "-k", "1..16", "--beliefs", "b.json", "--format", "json", cwd=timings)
    before, after = (json.loads(text)["result"] for text in (plain.stdout, known.stdout))
    assert after["time_s"][0] == pytest.approx(0.090, rel=0.05)
    assert (
        after["time_s_high"][4] / after["time_s_low"][4] < before["time_s_high"][4] / before["time_s_low"][4]
    )


def test_a_trace_informs_the_exposed_share(tmp_path: Path) -> None:
    """Two ranks, five steps of 100 ms: 60 ms of compute, 20 ms of all-reduce of which half runs under it."""
    for rank in (0, 1):
        events: list[dict[str, object]] = []
        for step in range(6):
            t = step * 100_000
            events.append(
                {
                    "ph": "X",
                    "cat": "user_annotation",
                    "name": f"ProfilerStep#{step}",
                    "ts": t,
                    "dur": 100_000,
                    "pid": rank,
                    "tid": 1,
                }
            )
            events.append(
                {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": t, "dur": 60_000, "pid": rank, "tid": 7}
            )
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "ncclDevKernel_AllReduce_Sum",
                    "ts": t + 50_000,
                    "dur": 20_000,
                    "pid": rank,
                    "tid": 9,
                }
            )
        (tmp_path / f"rank{rank}.json").write_text(
            json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events})
        )
    done = run(
        "calibrate", *JOB, "--trace", "rank0.json", "--trace", "rank1.json", "--format", "json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    direct = json.loads(done.stdout)["result"]["direct"]
    assert [item["name"] for item in direct] == ["dp_exposed"]
    assert direct[0]["value"] == pytest.approx(0.5, abs=0.02)


def test_a_fit_report_is_printed_without_an_output_file(timings: Path) -> None:
    done = run("calibrate", *JOB, "--timings", "t.csv", cwd=timings)
    assert done.returncode == 0
    assert "beliefs were informed" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", *JOB], "nothing to calibrate with"),
        (["calibrate", *JOB, "--timings", "none.csv"], "none.csv"),
        (["calibrate", *JOB, "--timings", "bad.csv"], "bad.csv:2"),
        (["predict", *JOB, "--beliefs", "bad.csv"], "holds no beliefs"),
        (["predict", *JOB, "--beliefs", "none.json"], "cannot read"),
    ],
)
def test_bad_input_is_one_clear_error(timings: Path, arguments: list[str], words: str) -> None:
    (timings / "bad.csv").write_text("k,time_s\n1,fast\n")
    done = run(*arguments, cwd=timings)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
