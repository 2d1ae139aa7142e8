"""Careless and hostile logs, patterns and power logs: one clear error with exit code 2, or what could be read."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from perfmodel.cli.main import main

STEPS = r"step (?P<step>\d+) took (?P<time_s>[\d.]+)"
POWER = "timestamp, index, power.draw [W]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("k,time_s\n1,1.0\n2,0.52\n4,0.27\n8,0.15\n")
    text = "world size: 8\n" + "".join(f"step {i} took 0.1{i} s\n" for i in range(9))
    (tmp_path / "run.txt").write_text(text)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error text of a command that must fail as bad input, without a word on stdout."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert "error[" in err
    return err


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
        ("(" * 5000, "not a regular expression"),
        (r"(?P<bogus>\d)(?P<time_s>\d)", "unknown group bogus"),
        (r"(?P<time_s>\d)(?P<time_ms>\d)", "time_s and time_ms both"),
        (r"(?P<step>\d)", "no group captures the time"),
    ],
)
def test_bad_patterns(pattern, words, capsys):
    assert words in refused(capsys, "study", "run.txt", "--pattern", pattern)


def test_a_pattern_that_never_ends(folder, capsys, monkeypatch):
    monkeypatch.setattr("perfmodel.readings.pattern.LONGEST_SEARCH_S", 0.1)
    (folder / "evil.txt").write_text("world size: 8\n" + "a" * 60 + "!\n")
    assert "no answer on one line" in refused(capsys, "study", "evil.txt", "--pattern", "(?P<time_s>(a+)+)$")


@pytest.mark.parametrize(
    "word", ["[2024-01-01 00:00:00,123] step: x ", "Epoch 1 ", "Total train batch size "]
)
def test_lines_made_to_be_searched_for_long(word, folder, capsys):
    (folder / "evil.txt").write_text("world size: 8\n" + word * (1_000_000 // len(word)) + "\n")
    start = time.process_time()  # of this process alone, however busy the machine is
    refused(capsys, "study", "evil.txt")
    assert time.process_time() - start < 5


def test_a_pattern_and_a_preset(capsys):
    assert "give one" in refused(capsys, "study", "run.txt", "--pattern", STEPS, "--preset", "megatron")


@pytest.mark.parametrize("interval", ["0 s", "-1 s", "1e-300 s", "1000 day", "1", "1 GB"])
def test_bad_sampling_intervals(interval, folder, capsys):
    (folder / "p.txt").write_text("GPU 0 200.0\nGPU 0 201.0\n")
    said = refused(capsys, "study", "t.csv", "--power", "1=p.txt", "--power-interval", interval)
    assert "--power-interval" in said


def test_a_sampling_interval_of_nothing(capsys):
    assert "without --power" in refused(capsys, "study", "t.csv", "--power-interval", "1 s")


@pytest.mark.parametrize(
    "row",
    [
        "0001-01-01T00:00:00+23:59, 0, 100 W",
        "1e308, 0, 100 W",
        "2024/05/01 12:00:00, 0, 1e300 W",
        "2024/05/01 12:00:00, 0, -5 W",
    ],
)
def test_samples_that_no_device_drew(row, folder, capsys):
    (folder / "p.csv").write_text(POWER + row + "\n")
    assert refused(capsys, "study", "t.csv", "--power", "8=p.csv").startswith("p.csv:2: error[R002]")


@pytest.mark.parametrize("device", ["9" * 5000, "\u00b2"])
def test_names_of_devices_that_are_no_numbers(device, folder):
    rows = "".join(f"2024/05/01 12:00:0{s}.000, {device}, 100 W\n" for s in range(3))
    (folder / "p.csv").write_text(POWER + rows, encoding="utf-8")
    assert main(["study", "t.csv", "--power", "8=p.csv", "--quiet"]) == 0


def test_damaged_gzip_gives_what_can_be_read_and_says_so(folder, capsys):
    rows = "".join(f"2024/05/01 12:00:{s:02}.000, {i}, 200 W\n" for s in range(50) for i in range(8))
    (folder / "p.csv").write_bytes(gzip.compress((POWER + rows).encode())[:400])
    assert main(["study", "t.csv", "--power", "8=p.csv", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["result"]["power"][0]["watts"] == pytest.approx(200)
    assert "the compressed data ends early" in err


@pytest.mark.parametrize("name", ["t.csv", "t.txt"])
@pytest.mark.parametrize(
    "data", [b"\x1f\x8b", gzip.compress(b"k,time_s\n1,1\n2,0.5\n" * 100)[:12]], ids=["two bytes", "twelve"]
)
def test_damaged_gzip_is_not_taken_for_an_interruption(name, data, folder, capsys):
    (folder / name).write_bytes(data)
    assert refused(capsys, "study", name).startswith(f"{name}: error[R001]: the compressed data")
    assert "ends early" in refused(capsys, "study", "run.txt", "--pattern", STEPS, "--power", f"8={name}")


def test_a_packed_table_is_unpacked(folder):
    (folder / "packed.csv").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    assert main(["study", "packed.csv", "--quiet"]) == 0


def test_pipes_are_refused_and_never_waited_for(folder, capsys):
    os.mkfifo(folder / "pipe")
    assert "not a regular file" in refused(capsys, "study", "pipe")
    (folder / "runs").mkdir()
    os.mkfifo(folder / "runs" / "pipe")
    assert "no logs in this folder" in refused(capsys, "study", "runs", "--pattern", STEPS)


def test_a_folder_inside_itself_counts_once(folder, capsys):
    (folder / "runs").mkdir()
    (folder / "runs" / "run.txt").write_text((folder / "run.txt").read_text())
    (folder / "runs" / "again").symlink_to(folder / "runs")
    assert main(["study", "runs", "--pattern", STEPS, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["result"]["readings"]) == 1


def test_every_bad_file_is_named(capsys):
    said = refused(capsys, "study", "no.csv", "none.csv", "--power", "8=gone.csv", "--power", "x=y")
    assert [line.split(":")[0] for line in said.splitlines() if "error[R" in line or "error[T" in line] == [
        "no.csv",
        "none.csv",
        "gone.csv",
    ]
    assert 'cannot read "x=y"' in said


JOB = ("-w", "resnet50", "-c", "dgx-a100", "--global-batch", "2048")


def trace(**changes: object) -> str:
    """A trace of twelve steps on eight ranks, with some of its words changed."""
    events = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 1000 * i, "dur": 990}
        | {"pid": 1, "tid": 1}
        for i in range(12)
    ] + [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1000 * i + 90 * j, "dur": 80, "pid": 0, "tid": 7}
        for i in range(12)
        for j in range(9)
    ]
    info = {"rank": 0, "world_size": 8} | changes
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events})


@pytest.mark.parametrize("world", [10**20, -8, True, 1e400, "x"])
def test_a_world_that_cannot_be_is_not_believed(world, folder):
    (folder / "run.json").write_text(trace(world_size=world))
    assert main(["calibrate", *JOB, "--trace", "run.json", "--quiet"]) == 0


def test_step_numbers_without_end(folder):
    (folder / "run.json").write_text(trace().replace("ProfilerStep#1", "ProfilerStep#" + "9" * 6000))
    assert main(["calibrate", *JOB, "--trace", "run.json", "--quiet"]) == 0


def test_a_truncated_trace_gives_the_steps_before_the_damage(folder, capsys):
    packed = gzip.compress(trace().encode())
    (folder / "run_k8.json.gz").write_bytes(packed[: int(0.95 * len(packed))])
    assert main(["study", "run_k8.json.gz", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["result"]["mean_s"][0] == pytest.approx(1e-3, rel=0.1)
    assert "the compressed data ends early" in err


def test_step_times_that_never_vary(folder, capsys):
    rows = "".join(f"{rank},{step},0.1\n" for rank in range(4) for step in range(40))
    (folder / "ranks.csv").write_text("rank,step,time_s\n" + rows)
    assert "too coarse" in refused(capsys, "calibrate", *JOB, "--ranks", "ranks.csv")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--nccl", "osu.txt", "--nccl-ranks", "8", "--nccl-op", "alreduce"), 'did you mean "all_reduce"'),
        (("--nccl", "osu.txt", "--nccl-ranks", "1000000000000"), "--nccl-ranks"),
        (("--timings", "t.csv", "--nccl-ranks", "8"), "give it with --nccl"),
    ],
)
def test_what_a_collective_log_is_told_to_be(flags, words, folder, capsys):
    rows = "".join(f"{2**i}   {10 + 2**i / 1e4:.2f}\n" for i in range(2, 20))
    (folder / "osu.txt").write_text("# OSU MPI Allreduce Latency Test v5.9\n# Size  Avg Latency(us)\n" + rows)
    assert words in refused(capsys, "calibrate", *JOB, *flags)
