"""Formats told apart, and timings out of whatever holds them, straight into the study's parser."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

import perfmodel.readings.runs
from perfmodel.errors import SpecError
from perfmodel.readings import read_collectives, read_ranks, read_timings, read_trace
from perfmodel.readings.detect import detect
from perfmodel.readings.runs import timings
from perfmodel.study.table import parse_timings

NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8192 step: 2(factor)
# Rank  0 Group  0 Pid 1 on node0 device  0 [0x07] NVIDIA H100
# Rank  1 Group  0 Pid 2 on node0 device  1 [0x08] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        8192          2048     float     sum      -1    20.00    0.41    0.41      0    21.00    0.39    0.39      0
"""


def megatron(k, seconds):
    rows = [f"using world size: {k}, data-parallel size: {k}"]
    rows += [
        f" iteration {n:8d}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): {1e3 * seconds * (8 if n == 1 else 1 + 0.001 * (n % 3)):.3f} | global batch size: 64 |"
        for n in range(1, 42)
    ]
    return "\n".join(rows) + "\n"


SAMPLES = {
    "nccl-tests": ("a.log", NCCL),
    "osu": ("b.log", "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n8   2.0\n"),
    "comm-table": ("c.log", "---- Performance of all_reduce on 8 devices ----\n"),
    "chrome-trace": ("d.json", '{"schemaVersion": 1, "traceEvents": []}'),
    "rank-times": ("e.csv", "rank,step,time_s\n0,1,0.5\n"),
    "power": ("f.csv", "timestamp, index, power.draw [W]\n2024/05/01 12:00:00.000, 0, 200.0 W\n"),
    "sacct": ("g.txt", "JobID|JobName|Elapsed|NTasks|State\n1|a|00:10:00|8|COMPLETED\n"),
    "train-log": ("h.log", megatron(8, 1.0)),
    "timings": ("i.csv", "# by hand\nk,time_s\n1,10\n2,6\n"),
}


def save(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", list(SAMPLES))
def test_each_format_is_recognised(tmp_path, kind):
    assert detect(save(tmp_path, *SAMPLES[kind])) == kind


def test_sqlite_and_the_unknown(tmp_path):
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    assert detect(path) == "nsys-sqlite"
    with pytest.raises(SpecError, match="not recognised"):
        detect(save(tmp_path, "x.txt", "dear diary\n"))
    with pytest.raises(SpecError, match="cannot read"):
        detect(tmp_path / "absent")


def test_the_module_is_reachable_by_its_dotted_name(tmp_path):
    path = save(tmp_path, *SAMPLES["timings"])
    assert perfmodel.readings.runs.timings(path) == path.read_bytes()


def test_a_training_log_goes_into_the_study_as_it_is(tmp_path):
    table = parse_timings(timings(save(tmp_path, "run.log", megatron(8, 1.5))))
    assert set(table.k) == {8.0}
    assert table.rows == 10
    np.testing.assert_allclose(table.time_s, 1.5, rtol=2e-3)
    assert set(table.columns["global_batch"]) == {64.0}


def test_a_folder_of_logs_is_a_study(tmp_path):
    for k, seconds in ((1, 8.0), (2, 4.2), (4, 2.3)):
        save(tmp_path, f"run{k}.log", megatron(k, seconds))
    found = read_timings(tmp_path, parse_timings)
    assert found.k.tolist() == [1, 2, 4]
    np.testing.assert_allclose(found.time_s, [8.0, 4.2, 2.3], rtol=2e-3)
    assert found.repeats.tolist() == [10, 10, 10]
    assert np.all(found.std_s > 0)


def test_repeats_and_changing_batches_of_a_table(tmp_path):
    text = "k,time_s,global_batch\n1,10,64\n1,12,64\n2,6,64\n2,6,128\n4,3,64\n"
    found = read_timings(save(tmp_path, "t.csv", text), parse_timings)
    assert found.time_s.tolist() == [11.0, 6.0, 3.0]
    assert found.repeats.tolist() == [2, 2, 1]
    np.testing.assert_allclose(found.std_s, [np.sqrt(2.0), 0.0, np.nan])
    np.testing.assert_array_equal(found.global_batch, [64.0, np.nan, 64.0])


def test_slurm_jobs_as_timings(tmp_path):
    found = read_timings(save(tmp_path, *SAMPLES["sacct"]), parse_timings)
    assert (found.k.tolist(), found.time_s.tolist()) == ([8], [600.0])


def test_a_table_with_a_mistake_names_its_own_line(tmp_path):
    with pytest.raises(SpecError) as caught:
        read_timings(save(tmp_path, "t.csv", "k,time_s\n1,10\n2,fast\n"), parse_timings)
    assert caught.value.problems[0].line == 3


@pytest.mark.parametrize(
    ("read", "kind", "message"),
    [
        (lambda p: timings(p), "power", "holds no timings"),
        (lambda p: read_collectives(p), "sacct", "holds no collective sweeps"),
        (lambda p: read_collectives(p), "comm-table", "no usable sweep"),
        (lambda p: read_trace(p), "chrome-trace", "no steps"),
        (lambda p: read_trace(p), "osu", "not the traces of one run"),
        (lambda p: read_ranks(p), "osu", "no step times of ranks"),
    ],
)
def test_files_without_the_data_are_refused_by_name(tmp_path, read, kind, message):
    name, text = SAMPLES[kind]
    path = save(tmp_path, name.replace(".csv", ".txt"), text)
    with pytest.raises(SpecError, match=message) as caught:
        read(path)
    assert caught.value.problems[0].file == str(path)


def test_a_log_that_does_not_say_its_k(tmp_path):
    text = "\n".join(megatron(8, 1.0).splitlines()[1:])
    with pytest.raises(SpecError, match="how many workers"):
        timings(save(tmp_path, "run.log", text))
    assert parse_timings(timings(save(tmp_path, "run_k4.log", text))).k[0] == 4


def test_collectives_of_one_placement(tmp_path):
    path = save(tmp_path, "all_reduce_perf.log", NCCL)
    assert [s.placement for s in read_collectives(path)] == ["out_of_place"]
    assert read_collectives(path, placement="in_place")[0].time_s[0] == pytest.approx(21e-6)
