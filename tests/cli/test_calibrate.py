"""`perfmodel calibrate` and `--beliefs` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfmodel.specs.layout import layout_words

JOB = ["-w", "resnet50", "-c", "dgx-a100", "--regime", "weak", "--set", "batch_per_accelerator=128"]


Run = Callable[..., subprocess.CompletedProcess[str]]


def process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfmodel", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("k,time_s\n1,0.090\n2,0.094\n4,0.096\n")
    return tmp_path


def test_timings_become_beliefs_that_predict_uses_in_processes_of_their_own(timings: Path) -> None:
    done = process("calibrate", *JOB, "--timings", "t.csv", "-o", "b.json", cwd=timings)
    assert done.returncode == 0, done.stderr
    result = json.loads((timings / "b.json").read_text())
    assert result["schema"] == "perfmodel/calibration/1"
    assert [point["k"] for point in result["result"]["points"]] == [1, 2, 4]
    plain = process("predict", *JOB, "-k", "1..16", "--format", "json", cwd=timings)
    known = process("predict", *JOB, "-k", "1..16", "--beliefs", "b.json", "--format", "json", cwd=timings)
    before, after = (json.loads(text)["result"] for text in (plain.stdout, known.stdout))
    assert after["time_s"][0] == pytest.approx(0.090, rel=0.05)
    assert (
        after["time_s_high"][4] / after["time_s_low"][4] < before["time_s_high"][4] / before["time_s_low"][4]
    )


def test_beliefs_of_another_job_are_used_with_a_warning(run: Run, timings: Path) -> None:
    run("calibrate", *JOB, "--timings", "t.csv", "-o", "b.json", cwd=timings)
    other = [word.replace("resnet50", "bert-large") for word in JOB]
    own = run("predict", *JOB, "-k", "1..16", "--beliefs", "b.json", cwd=timings)
    assert "calibrated on" not in own.stdout
    for verb, where in (("predict", ["-k", "1..16"]), ("explain", ["--k", "8"])):
        done = run(verb, *other, *where, "--beliefs", "b.json", cwd=timings)
        said = " ".join(done.stdout.split())
        assert "calibrated on resnet50 on dgx-a100, used for bert-large on dgx-a100" in said, done.stderr


LARGE = ["-w", "llama3-8b", "-c", "dgx-h100", "--global-batch", "256"]


@pytest.mark.parametrize(
    ("job", "rows", "words"),
    [
        ("llama3-8b\nlayout: {dp: 8, tp: 2}", "8,3.0\n16,1.6\n", "job.yaml:2:14: error[S010]; K = 8,; dp*tp*pp*cp"),
        ("llama3-8b\nlayout: {tp: 8, micro_batch: 64}", "8,3.0\n64,0.6\n", "job.yaml:2:30; K = 64 (batch 256); batch"),
        ("resnet50", "8,3.0\n512,0.6\n", "t.csv:1:1: error[R010]; K = 512 (batch 256); --layout"),
    ],
)  # fmt: skip
def test_timings_of_a_layout_that_cannot_be_are_refused(
    run: Run, tmp_path: Path, job: str, rows: str, words: str
) -> None:
    (tmp_path / "t.csv").write_text("k,time_s\n" + rows)
    (tmp_path / "job.yaml").write_text(f"workload: {job}\ncluster: dgx-h100\nglobal_batch: 256\nk: 8..64\n")
    done = run("calibrate", "job.yaml", "--timings", "t.csv", "-o", "b.json", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert all(word in done.stderr for word in words.split("; ")), done.stderr
    assert not (tmp_path / "b.json").exists()


def test_timings_that_should_not_fit_in_memory_are_used_with_a_note(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,time_s\n8,24.0\n16,12.4\n")
    given = ["--layout", "sharding=ddp"]
    done = run("calibrate", *LARGE, *given, "--timings", "t.csv", "--format", "json", cwd=tmp_path)
    result = json.loads(done.stdout)["result"]
    assert len(result["points"]) == 2
    assert sum("does not fit in memory at K = 8, 16" in note for note in result["notes"]) == 1


JOB_FILE = "name: t\nworkload: llama3-8b\ncluster: dgx-h100\nglobal_batch: 512\nk: 8..64\n"


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        ("k,time_s\n8,0.00004\n16,0.000021\n", ["t.csv:2:3: error[R013]: 40 us at K = 8", "t.csv:3:4"]),
        ("k,time_s\n8,48\n8, 20\n", ["t.csv:3:4: error[R013]: 20 s at K = 8"]),
        ("k,compute_s,communication_s,idle_s\n# once\n8,0.04,0.01,0\n", ["t.csv:3:3: error[R013]: 50 ms"]),
    ],
)
def test_times_below_the_arithmetic_at_peak_are_refused_at_their_cell(
    run: Run, tmp_path: Path, rows: str, places: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "t.csv").write_text(rows)
    done = run("calibrate", "job.yaml", "--timings", "t.csv", "-o", "b.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("error[") == len(places)
    assert all(place in done.stderr for place in places), done.stderr
    assert "milliseconds" in done.stderr
    assert "26.02 s" in done.stderr
    assert not (tmp_path / "b.json").exists()


def test_impossible_times_of_a_log_are_refused_without_a_cell(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    rows = [f"it {i} took 40 msec" for i in range(40)]
    (tmp_path / "run_k8.txt").write_text("\n".join(rows) + "\n")
    pattern = r"it (?P<step>\d+) took (?P<time_ms>[\d.]+) msec"
    done = run("calibrate", "job.yaml", "--timings", "run_k8.txt", "--pattern", pattern, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("run_k8.txt: error[R013]: 40 ms at K = 8")
    assert done.stderr.count("error[") == 1


def test_times_of_a_workload_whose_flop_nobody_counted_are_taken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,time_s\n1,0.00004\n2,0.00003\n")
    work = "workload={name: w, kind: generic, params: 1000, flop_per_sample: 0, bytes_per_sample: 10}"
    job = ["--set", work, "-c", "dgx-h100", "--global-batch", "8"]
    done = run("calibrate", *job, "--timings", "t.csv", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_times_far_above_the_prediction_are_used_with_a_loud_note(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "t.csv").write_text("k,time_s\n8,9000\n16,4600\n")
    done = run("calibrate", "job.yaml", "--timings", "t.csv", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("note: t.csv: at K = 8, 16 the times are more than 100 times")
    assert "is it in ms" in done.stderr
    assert "is it in ms" in " ".join(done.stdout.split())
    quiet = run("calibrate", "job.yaml", "--timings", "t.csv", "--quiet", cwd=tmp_path)
    assert quiet.stderr == ""


@pytest.mark.parametrize(
    ("more", "rows", "words"),
    [
        ("", "8,48900\n16,24000\n", "milliseconds need dividing by 1000"),
        ("steps: 200\n", "8,9800\n16,5000\n", "divide them by the 200 steps"),
    ],
)
def test_times_of_another_unit_or_of_whole_jobs_are_refused(
    run: Run, tmp_path: Path, more: str, rows: str, words: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE + more)
    (tmp_path / "t.csv").write_text("k,time_s\n" + rows)
    done = run("calibrate", "job.yaml", "--timings", "t.csv", "-o", "b.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("t.csv: error[R013]: at K = 8, 16")
    assert "no times of one step" in done.stderr
    assert words in done.stderr
    assert not (tmp_path / "b.json").exists()


def write_sweep(path: Path, ranks: int, nodes: int, bus_gb_per_s: float) -> Path:
    """An all-reduce log as nccl-tests prints it, whose large messages reach a bus bandwidth."""
    lines = [
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20"
    ]
    for rank in range(ranks):
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {rank} on host{rank * nodes // ranks} device {rank} [0x00] GPU"
        )
    lines.append("#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong")
    factor = 2 * (ranks - 1) / ranks
    for power in range(10, 31, 2):
        size = 2**power
        us = 20.0 + size * factor / (bus_gb_per_s * 1e3)
        rate = f"{us:.2f} {size / us / 1e3:.2f} {size * factor / us / 1e3:.2f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {rate} {rate}")
    lines.append("# Avg bus bandwidth    : 1\n# all_reduce_perf")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_collective_logs_add_up_whatever_their_order(run: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path / "inside.log", 8, 1, 400.0)
    write_sweep(tmp_path / "across.log", 32, 4, 300.0)
    names = ["inside.log", "across.log"]
    found = []
    for order in (names, names[::-1], names[:1]):
        logs = [word for name in order for word in ("--nccl", name)]
        done = run("calibrate", *LARGE, *logs, "--nccl-op", "all_reduce", "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    told = [{item["name"]: item["value"] for item in one["result"]["direct"]} for one in found]
    assert told[0] == told[1]
    assert {"up_efficiency", "out_efficiency"} <= set(told[0])
    assert set(told[2]) < set(told[0])
    assert [file["file"] for file in found[0]["inputs"]["files"]["nccl"]] == names


@pytest.mark.parametrize(
    ("ranks", "nodes", "rate", "why"),
    [
        (8, 1, 800.0, "above the link's 450 GB/s"),
        (32, 2, 200.0, "16 ranks a machine, where each has 8 accelerators"),
        (16, 2, 1500.0, "above the link's 400 GB/s"),
    ],
)
def test_a_sweep_of_another_machine_is_refused(
    run: Run, tmp_path: Path, ranks: int, nodes: int, rate: float, why: str
) -> None:
    write_sweep(tmp_path / "s.log", ranks, nodes, rate)
    done = run("calibrate", *LARGE, "--nccl", "s.log", "--nccl-op", "all_reduce", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "error[R014]" in done.stderr
    assert why in done.stderr
    assert "no sweep of dgx-h100" in done.stderr


def test_repeats_that_disagree_and_beliefs_left_alone_are_named(run: Run, timings: Path) -> None:
    (timings / "t.csv").write_text("k,time_s\n8,0.09\n8,0.18\n16,0.1\n16,0.101\n")
    done = run("calibrate", *JOB, "--timings", "t.csv", "--format", "json", cwd=timings)
    result = json.loads(done.stdout)["result"]
    said = [note for note in result["notes"] if note.startswith("repeats disagree")]
    assert len(said) == 1
    assert "K = 8 by 47%" in said[0]
    assert "K = 16" not in said[0]
    moved = {row["name"] for row in result["coefficients"] if row["status"] != "unidentified"}
    assert moved
    assert not moved & set(result["unidentified"])
    assert (
        f"{len(moved)} of {len(moved) + len(result['unidentified'])} beliefs were informed"
        in result["answer"]
    )


def write_traces(folder: Path, ranks: int, *, slow: float = 0.0) -> list[str]:
    """Steps of 100 ms: 60 ms of compute, 20 ms of all-reduce of which half runs under it; odd ranks `slow` ms longer."""
    names = []
    for rank in range(ranks):
        events: list[dict[str, object]] = []
        for step in range(6):
            t, longer = step * 100_000, 1000.0 * slow * (rank % 2)

            def span(cat: str, name: str, start: float, length: float) -> dict[str, object]:
                return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "pid": 0, "tid": 7}

            events.append(span("user_annotation", f"ProfilerStep#{step}", t, 100_000))
            events.append(span("kernel", "sgemm", t, 60_000 + longer))
            events.append(span("kernel", "ncclDevKernel_AllReduce_Sum", t + 50_000 + longer, 20_000))
        names.append(f"rank{rank}.json")
        (folder / names[-1]).write_text(
            json.dumps({"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events})
        )
    return [word for name in names for word in ("--trace", name)]


def test_a_trace_informs_what_it_measured_and_says_what_it_did_not(run: Run, tmp_path: Path) -> None:
    done = run("calibrate", *JOB, *write_traces(tmp_path, 2, slow=3.0), "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    direct = {item["name"]: item["value"] for item in result["direct"]}
    assert direct["dp_exposed"] == pytest.approx(0.5, abs=0.02)
    assert set(direct) == {"dp_exposed", "jitter"}
    rows = {row["quantity"]: row for row in result["trace"]}
    assert rows["compute"]["measured_s"] == pytest.approx(0.0615, rel=1e-3)
    assert rows["compute"]["use"] == "used"
    assert rows["communication"]["measured_s"] == pytest.approx(0.020, rel=1e-3)
    assert rows["idle"]["measured_s"] == pytest.approx(0.0285, rel=1e-3)
    assert "not used" in rows["exposed_copy"]["use"]
    assert any("2 workers, 2 traced" in note for note in result["notes"])
    assert any("give its own with --layout" in note for note in result["notes"])


def test_a_trace_moves_the_prediction_towards_its_step(run: Run, tmp_path: Path) -> None:
    given = ["--layout", "sharding=ddp"]
    traces = write_traces(tmp_path, 2)
    assert run("calibrate", *JOB, *given, *traces, "-o", "b.json", cwd=tmp_path).returncode == 0
    times = []
    for beliefs in ([], ["--beliefs", "b.json"]):
        done = run("predict", *JOB, *given, "-k", "2", *beliefs, "--format", "json", cwd=tmp_path)
        parts = json.loads(done.stdout)["result"]["parts_s"]
        # A trace sees a busy device, whatever keeps it so.
        times.append(sum(parts[name][0] for name in ("compute", "optimizer", "contention")))
    assert abs(times[1] - 0.060) < 0.5 * abs(times[0] - 0.060)


def write_power(path: Path, devices: int, watts: float) -> None:
    lines = ["timestamp, index, power.draw [W]"]
    for second in range(60):
        for device in range(devices):
            at_work = 10 <= second < 50
            lines.append(f"2024/05/01 12:00:{second:02d}.000, {device}, {watts if at_work else 50.0:.1f} W")
    lines[5] = "2024/05/01 12:00:01.000, 0, [Unknown Error]"
    path.write_text("\n".join(lines) + "\n")


def test_power_logs_inform_joules_and_name_their_source(run: Run, timings: Path) -> None:
    write_power(timings / "power_k4.csv", 4, 200.0)
    job = [*JOB, "--layout", "sharding=ddp", "--set", "grid=US-VA"]
    done = run(
        "calibrate", *job, "--timings", "t.csv", "--power", "power_k4.csv", "-o", "b.json", cwd=timings
    )
    assert done.returncode == 0, done.stderr
    assert "power_k4.csv: 1 of 241 lines rejected (line 6)" in done.stderr
    result = json.loads((timings / "b.json").read_text())["result"]
    assert result["power"][0]["measured_w"] == pytest.approx(200.0)
    assert result["power"][0]["after_w"] == pytest.approx(200.0, rel=0.05)
    assert result["rejected"] == [
        {
            "file": "power_k4.csv",
            "line": 6,
            "reason": "power is not a number of watts",
            "text": "2024/05/01 12:00:01.000, 0, [Unknown Error]",
        }
    ]
    answers = []
    for beliefs in ([], ["--beliefs", "b.json"]):
        said = run("predict", *job, "-k", "4", *beliefs, "--format", "json", cwd=timings)
        answers.append(json.loads(said.stdout)["result"])
    plain, known = answers
    power = known["rests_on"]["power"]
    assert (power["confidence"], power["source"]) == ("measured", "power_k4.csv")
    assert power["value"].startswith("50 W at rest")
    assert plain["rests_on"]["power"]["confidence"] == "datasheet"
    # At the meter the host's draw is added to an accelerator's, and the room multiplies both: what the log took off
    # each of four accelerators is missing 1.25 times.
    per_device = [r["energy_j"][0] / (4 * r["time_s"][0]) for r in answers]
    saved = result["power"][0]["before_w"] - result["power"][0]["after_w"]
    assert saved > 100.0
    assert per_device[0] - per_device[1] == pytest.approx(1.25 * saved, rel=0.1)
    assert known["carbon_g"][0] / known["energy_j"][0] == pytest.approx(
        plain["carbon_g"][0] / plain["energy_j"][0]
    )


def test_power_alone_is_added_to_a_calibration(run: Run, timings: Path) -> None:
    write_power(timings / "power_k4.csv", 4, 200.0)
    run("calibrate", *JOB, "--timings", "t.csv", "-o", "b.json", cwd=timings)
    given = ["--beliefs", "b.json", "--power", "power_k4.csv", "-o", "c.json"]
    assert run("calibrate", *JOB, *given, cwd=timings).returncode == 0
    before, after = (
        json.loads((timings / name).read_text())["result"]["beliefs"]["calibration"]
        for name in ("b.json", "c.json")
    )
    assert after["power"]["source"] == "power_k4.csv"
    assert after["mean"] == before["mean"]


def test_a_log_by_an_expression_of_ones_own(run: Run, tmp_path: Path) -> None:
    for k, ms in ((1, 90.0), (2, 94.0)):
        rows = [f"it {i} took {ms + i % 3:.1f} msec" for i in range(40)]
        (tmp_path / f"run_k{k}.txt").write_text("\n".join(["hello", *rows]) + "\n")
    done = run(
        "calibrate", *JOB, "--timings", ".", "--pattern", r"it (?P<step>\d+) took (?P<time_ms>[\d.]+) msec",
        "--format", "json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["result"]["points"]
    assert [point["measured_s"] for point in points] == pytest.approx([0.091, 0.095], rel=0.01)


def test_a_collective_log_that_names_no_ranks_is_told_how_many(run: Run, tmp_path: Path) -> None:
    rows = [f"{size:<20d} {12.0 + size / 4e4:.2f}" for size in (4, 1024, 1 << 20, 1 << 26)]
    head = ["# OSU MPI-CUDA Allgather Latency Test v7.3", "# Size       Avg Latency(us)"]
    (tmp_path / "osu.txt").write_text("\n".join([*head, *rows, "2097152              4x.1"]) + "\n")
    refused = run("calibrate", *JOB, "--nccl", "osu.txt", cwd=tmp_path)
    assert refused.returncode == 2
    assert "give --nccl-ranks" in refused.stderr
    done = run("calibrate", *JOB, "--nccl", "osu.txt", "--nccl-ranks", "8", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert {item["name"] for item in result["direct"]} == {"up_efficiency", "base_s", "up_step_s"}
    assert [item["line"] for item in result["rejected"]] == [7]
    assert "osu.txt: 1 of 7 lines rejected (line 7)" in done.stderr


def test_per_rank_times_give_the_distribution_and_the_check_of_its_tail(run: Run, tmp_path: Path) -> None:
    import numpy as np

    times = 0.1 * np.random.default_rng(2).lognormal(0.0, 0.05, (60, 4)) * [1.0, 1.0, 1.1, 1.0]
    rows = [f"{rank},{step},{times[step, rank]:.6f}" for step in range(60) for rank in range(4)]
    (tmp_path / "ranks.csv").write_text("\n".join(["rank,step,time_s", *rows]) + "\n")
    done = run("calibrate", *JOB, "--ranks", "ranks.csv", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["jitter"][0]["spread"] == pytest.approx(0.05, rel=0.2)
    assert min(row["aic"] for row in result["jitter"]) == result["jitter"][0]["aic"]
    assert any("its tail may be trusted" in note for note in result["notes"])
    assert any("rank 2 takes 1.0" in note or "rank 2 takes 1.1" in note for note in result["notes"])


def test_one_step_a_rank_informs_nothing_and_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ranks.csv").write_text("rank,step,time_s\n0,1,1.0\n1,1,1.5\n2,1,2.0\n3,1,3.0\n0,1,2.0\n")
    done = run("calibrate", *JOB, "--ranks", "ranks.csv", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert (result["direct"], result["coefficients"]) == ([], [])
    assert any("jitter needs two or more steps" in note for note in result["notes"])
    assert "ranks.csv: 1 of 6 lines rejected (line 6): this rank and step were given before" in done.stderr


def test_a_fit_report_is_printed_with_and_without_an_output_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "t.csv").write_text("k,time_s\n8,40\n16,80\n32,160\n")
    fit = ("calibrate", "job.yaml", "--timings", "t.csv")
    alone, with_file = run(*fit, cwd=tmp_path), run(*fit, "-o", "b.json", cwd=tmp_path)
    assert (alone.returncode, with_file.returncode) == (0, 0)
    assert with_file.stdout == alone.stdout
    said = " ".join(with_file.stdout.split())
    assert "beliefs were informed" in said
    assert "note: doubted" in said
    quiet = run(*fit, "-o", "b.json", "--quiet", cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_layouts_that_nobody_gave_are_listed_and_said_to_be_assumed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "t.csv").write_text("k,time_s\n8,48\n16,25\n")

    def fit(*given: str) -> tuple[list[dict[str, object]], list[str]]:
        done = run("calibrate", "job.yaml", "--timings", "t.csv", *given, "--format", "json", cwd=tmp_path)
        result = json.loads(done.stdout)["result"]
        return [point["layout"] for point in result["points"]], [
            note for note in result["notes"] if "the layout of the measured runs is not stated" in note
        ]

    chosen, notes = fit()
    predicted = json.loads(run("predict", "job.yaml", "--format", "json", cwd=tmp_path).stdout)
    assert chosen == predicted["result"]["layout"][:2]
    assert len(notes) == 1
    assert f"K = 8: {layout_words(chosen[0])}; K = 16: {layout_words(chosen[1])};" in notes[0]
    assert notes[0].endswith("state what ran with --layout")
    stated, silent = fit("--layout", "tp=2,sharding=zero1")
    assert [layout["tp"] for layout in stated] == [2, 2]
    assert silent == []


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
def test_bad_input_is_one_clear_error(run: Run, timings: Path, arguments: list[str], words: str) -> None:
    (timings / "bad.csv").write_text("k,time_s\n1,fast\n")
    done = run(*arguments, cwd=timings)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
