"""Chrome traces written here with known parts, then read back: whole, zipped, cut and damaged."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.readings.chrome_trace import read_chrome_trace
from perfmodel.readings.intervals import merged, union
from perfmodel.readings.json_stream import EventStream
from perfmodel.readings.source import Tally
from perfmodel.readings.steps import PARTS

ORIGIN = 5982735263.125  # us


def event(cat, name, start, duration, pid=0, tid=7, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ORIGIN + start,
        "dur": duration,
        "args": args,
    }


def kineto(
    rank=0,
    steps=6,
    *,
    compute=600.0,
    hidden=100.0,
    exposed=150.0,
    copy=20.0,
    stall=50.0,
    idle=30.0,
    slow_first=1,
    on_device=False,
):
    """One rank's events [us]: in each step a data wait, a copy, compute with hidden communication, then the rest."""
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    at = 0.0
    length = stall + copy + compute + exposed + idle
    for step in range(steps):
        stretch = 3.0 if step < slow_first else 1.0
        begin = at
        events.append(
            event(
                "user_annotation",
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                at,
                stall * stretch,
                pid=99,
            )
        )
        at += stall * stretch
        events.append(event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at, copy, tid=7, device=0))
        at += copy
        for piece in range(4):  # nested and overlapping kernels must not count twice
            events.append(
                event(
                    "kernel",
                    "sm90_gemm",
                    at + piece * compute / 4,
                    compute / 4 + (5.0 if piece < 3 else 0.0),
                    device=0,
                    stream=7,
                )
            )
        events.append(event("cpu_op", "aten::mm", at, 12.0, pid=99))
        facts = {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": 4,
        }
        events.append(
            event(
                "kernel",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                at + compute - hidden,
                hidden + exposed,
                tid=20,
                device=0,
                **facts,
            )
        )
        at += compute + exposed + idle * stretch
        events.append(event("user_annotation", f"ProfilerStep#{step + 10}", begin, at - begin, pid=99))
        if on_device:
            events.append(
                event("gpu_user_annotation", f"ProfilerStep#{step + 10}", begin, length - idle, tid=7)
            )
        events.append({"ph": "s", "id": step, "pid": 99, "tid": 1, "ts": at, "cat": "ac2g", "name": "ac2g"})
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
        "traceEvents": events,
        "traceName": f"rank{rank}.json",
    }


def save(tmp_path, data, name="trace.json", indent=None):
    path = tmp_path / name
    text = json.dumps(data, indent=indent)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


EXPECTED = {
    "compute": 600e-6,
    "exposed_communication": 150e-6,
    "exposed_copy": 20e-6,
    "input_stall": 50e-6,
    "idle": 30e-6,
}


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("bare_list", [True, False])
def test_parts_of_a_step(tmp_path, name, indent, bare_list):
    data = kineto()
    summary = read_chrome_trace(save(tmp_path, data["traceEvents"] if bare_list else data, name, indent))
    (rank,) = summary.ranks
    assert rank.number.tolist() == [11, 12, 13, 14, 15]
    assert rank.warmup == (10,)
    assert "steps 10" in summary.notes[0]
    assert summary.parts_s() == pytest.approx(EXPECTED, abs=1e-9)
    np.testing.assert_allclose(sum(rank.parts_s.values()), rank.step_s, rtol=1e-9)
    assert summary.hidden_fraction() == pytest.approx(100 / 250)
    (collective,) = summary.collectives
    assert (collective.kind, collective.count, collective.bytes, collective.ranks) == (
        "all_reduce",
        6,
        24000.0,
        4,
    )
    assert collective.time_s == pytest.approx(6 * 250e-6)
    assert summary.steps_from == "ProfilerStep annotations on the host"
    assert (
        summary.used + summary.ignored + summary.rejected_count == summary.lines == len(data["traceEvents"])
    )


def test_device_annotations_are_preferred_and_include_the_wait_for_the_host(tmp_path):
    summary = read_chrome_trace(save(tmp_path, kineto(on_device=True)))
    assert summary.steps_from == "ProfilerStep annotations on the device"
    assert summary.parts_s() == pytest.approx(EXPECTED, abs=1e-9)


def test_many_ranks_show_the_straggler(tmp_path):
    paths = [
        save(
            tmp_path,
            kineto(rank, compute=780.0 if rank == 2 else 600.0, exposed=20.0 if rank == 2 else 200.0),
            f"r{rank}.json.gz",
        )
        for rank in range(4)
    ]
    summary = read_chrome_trace(paths)
    assert [rank.rank for rank in summary.ranks] == [0, 1, 2, 3]
    imbalance = summary.imbalance()
    assert imbalance.slowest_rank == 2
    assert imbalance.slowest_share == 1.0
    assert imbalance.stragglers == (2,)
    assert imbalance.spread == pytest.approx(780 / 645 - 1)
    assert summary.step_s().size == 5
    assert summary.collectives[0].count == 24


def test_ranks_from_file_names_when_the_trace_does_not_say(tmp_path):
    bare = [save(tmp_path, kineto(0)["traceEvents"], f"host_rank{rank}.pt.trace.json") for rank in (5, 3)]
    assert [rank.rank for rank in read_chrome_trace(bare).ranks] == [3, 5]
    same = [save(tmp_path, kineto(0), f"copy{index}.json") for index in range(2)]
    repeated = read_chrome_trace(same)
    assert [rank.rank for rank in repeated.ranks] == [0, 1]
    assert any("repeat" in note for note in repeated.notes)


def test_a_host_only_trace_is_read_from_its_operators(tmp_path):
    events = []
    for step in range(5):
        at = step * 1000.0
        events += [
            event("cpu_op", "aten::linear", at, 400.0, pid=1, tid=1),
            event("cpu_op", "aten::addmm", at + 10.0, 380.0, pid=1, tid=1),
            event("user_annotation", "gloo:all_reduce", at + 300.0, 400.0, pid=1, tid=2),
            event("user_annotation", f"ProfilerStep#{step}", at, 1000.0, pid=1, tid=1),
        ]
    summary = read_chrome_trace(save(tmp_path, {"traceEvents": events}))
    parts = summary.parts_s()
    assert parts["compute"] == pytest.approx(400e-6, abs=1e-9)
    assert parts["exposed_communication"] == pytest.approx(300e-6, abs=1e-9)
    assert summary.hidden_fraction() == pytest.approx(0.25)
    assert summary.collectives[0].kind == "all_reduce"
    assert "no device kernels" in summary.notes[0]


def test_without_annotations_the_whole_trace_is_one_step(tmp_path):
    data = [
        item
        for item in kineto()["traceEvents"]
        if item["ph"] == "X" and not item["name"].startswith("Profiler")
    ]
    summary = read_chrome_trace(save(tmp_path, data))
    assert summary.steps_from.startswith("the whole trace")
    assert summary.ranks[0].number.tolist() == [0]


def test_ray_timeline(tmp_path):
    events = []
    for worker in range(3):
        for step in range(6):
            at = step * 10_000.0
            base = {
                "pid": "node:10.0.0.1",
                "tid": f"worker:{worker:04x}",
                "ph": "X",
                "cname": "x",
                "args": {},
            }
            busy = 6000.0 + 1000.0 * worker
            events += [
                {
                    **base,
                    "cat": "task::train_step",
                    "name": "train_step",
                    "ts": at,
                    "dur": 1000.0 + busy + 500.0,
                },
                {
                    **base,
                    "cat": "task:deserialize_arguments",
                    "name": "task:deserialize_arguments",
                    "ts": at,
                    "dur": 1000.0,
                },
                {**base, "cat": "task:execute", "name": "task:execute", "ts": at + 1000.0, "dur": busy},
                {
                    **base,
                    "cat": "task:store_outputs",
                    "name": "task:store_outputs",
                    "ts": at + 1000.0 + busy,
                    "dur": 500.0,
                },
            ]
    summary = read_chrome_trace(save(tmp_path, events))
    assert summary.steps_from == "Ray tasks"
    assert len(summary.ranks) == 3
    assert summary.imbalance().slowest_rank == 2
    parts = summary.parts_s()
    assert parts["compute"] == pytest.approx(7e-3)
    assert parts["exposed_communication"] == pytest.approx(0.5e-3)
    assert parts["input_stall"] == pytest.approx(1e-3)


def test_bad_events_are_counted_with_their_lines(tmp_path):
    data = kineto()
    text = json.dumps(data, indent=1).split("\n")
    spots = [index for index, line in enumerate(text) if '"dur"' in line]
    text[spots[3]] = '   "dur": "fast",'
    text[spots[7]] = '   "dur": -4.0,'
    text[spots[11]] = '   "dur": 12.0 12.0,'
    path = tmp_path / "bad.json"
    path.write_text("\n".join(text))
    summary = read_chrome_trace(path)
    assert summary.rejected_count == 3
    begins = [
        max(i for i in range(spot) if text[i].strip() == "{") + 1 for spot in (spots[3], spots[7], spots[11])
    ]
    assert sorted(item.line for item in summary.rejected) == begins
    assert summary.ranks[0].number.size == 5


@pytest.mark.parametrize("seed", range(60))
def test_cut_and_damaged_traces_never_crash(tmp_path, seed):
    rng = random.Random(seed)
    data = bytearray(json.dumps(kineto(steps=12), indent=rng.choice([None, 1])).encode())
    for _ in range(rng.randrange(0, 25)):
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[at] = rng.randrange(256)
        else:
            del data[at : at + rng.randrange(120)]
    blob = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.7 else data)
    path = tmp_path / "damaged.json"
    path.write_bytes(gzip.compress(blob)[: rng.randrange(20, 4000)] if rng.random() < 0.3 else blob)
    summary = read_chrome_trace(path)
    assert summary.used + summary.ignored + summary.rejected_count == summary.lines
    for rank in summary.ranks:
        assert all(np.all(rank.parts_s[part] >= 0.0) for part in PARTS)


@pytest.mark.parametrize("chunk", [7, 64, 1000, 1 << 20])
def test_the_chunk_size_changes_nothing(chunk):
    data = kineto(steps=40)
    blob = json.dumps(data, indent=1).encode()
    tally = Tally(Path("x"))
    stream = EventStream(io.BytesIO(blob), tally, chunk=chunk)
    events = [item for batch in stream for item in batch]
    assert events == data["traceEvents"]
    assert stream.header["distributedInfo"]["rank"] == 0
    assert tally.rejected_count == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "hello",
        "{",
        "[",
        "[[[[",
        '{"traceEvents": 5}',
        '{"traceEvents": [1, "a", null, {}]}',
        "[" * 100_000,
        '{"a": tru, "traceEvents": [{"ph": "X"}]}',
    ],
)
def test_what_is_no_trace_gives_no_ranks(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    summary = read_chrome_trace(path)
    assert summary.ranks == ()
    assert summary.used + summary.ignored + summary.rejected_count == summary.lines


def test_memory_stays_flat_as_the_trace_grows(tmp_path):
    """40 MB of trace must not hold 40 MB of objects: the peak above import stays below a fixed bound."""
    path = tmp_path / "big.json"
    block = ",\n".join(json.dumps(item) for item in kineto(steps=50)["traceEvents"])
    with path.open("w") as file:
        file.write('{"traceEvents": [\n' + block)
        while file.tell() < 40_000_000:
            file.write(",\n" + block)
        file.write("\n]}")
    code = (
        "import resource, sys, numpy\n"
        "from perfmodel.readings.chrome_trace import read_chrome_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "summary = read_chrome_trace(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, summary.lines)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    extra_kib, events = (int(word) for word in done.stdout.split())
    assert events > 150_000
    assert extra_kib < 60_000


def test_unions_against_counting_by_hand():
    rng = np.random.default_rng(0)
    for _ in range(50):
        start = rng.integers(0, 80, 12)
        end = start + rng.integers(0, 15, 12)
        grid = np.zeros(120, bool)
        for low, high in zip(start, end, strict=True):
            grid[low:high] = True
        low, high = sorted(rng.integers(0, 110, 2))
        assert union(start, end).length(low, high) == grid[low:high].sum()
        both = merged(union(start[:6], end[:6]), union(start[6:], end[6:]))
        assert both.length(0, 120) == grid.sum()


def test_a_trace_without_end_is_refused_at_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("perfmodel.readings.chrome_trace.MOST_EVENTS", 20)
    path = tmp_path / "run.json"
    path.write_text(json.dumps([event("kernel", "gemm", 10 * i, 5) for i in range(30)]))
    with pytest.raises(SpecError, match="more than 20 events"):
        read_chrome_trace(path)
