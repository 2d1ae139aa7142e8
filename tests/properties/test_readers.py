"""Readers on anything at all: they never raise, and every line is used, ignored or rejected."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.readings.chrome_trace import read_chrome_trace
from perfmodel.readings.comm_tables import read_comm_tables
from perfmodel.readings.intervals import union
from perfmodel.readings.json_stream import EventStream
from perfmodel.readings.nccl_tests import read_nccl_tests
from perfmodel.readings.osu import read_osu
from perfmodel.readings.power import read_power
from perfmodel.readings.rank_times import read_rank_times
from perfmodel.readings.sacct import read_sacct
from perfmodel.readings.source import Tally, warmup_steps
from perfmodel.readings.steps import PARTS, Activity, decompose
from perfmodel.readings.train_log import PRESETS, read_train_log

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Words that the readers look for, glued together at random: nearer to real damage than plain noise.
WORDS = [
    "# nThread 1", "# Rank  0 Pid 1 on a device 0 [0x07] X", "#  size count type redop root time algbw busbw #wrong", "8 2 float sum -1 1.0 0 0 0",
    "# OSU MPI Allreduce Latency Test v7", "mpirun -np 4 x", "1024 3.5", "---- Performance of all_reduce on 8 devices ----", "4 B 1x4 2.0 us 1 1",
    "| payload | busbw | algbw |", "| 4KiB | 1GBps | 1GBps |", "COMMS-RES-all_reduce-float 4 1 1 1 1 1 1 1 1", "size(MB) avgbw(GB/sec)", "8.0 1 1 1",
    "JobID|JobName|Elapsed|NTasks|State", "1|a|00:01:00|4|COMPLETED", "timestamp, index, power.draw [W]", "2024/01/01 00:00:00.0, 0, 5 W", "GPU 0 6.5",
    "rank,step,time_s", "0,1,0.5", "step,rank0,rank1", '{"rank": 0, "step": 1, "time_s": 2}', "rank 1 step 2 time 3 ms",
    "iteration 1/ 9 | elapsed time per iteration (ms): 5.0 |", "2025-01-01 00:00:00,000 step: 1 loss: 2", "train_step_timing in s: 1.5", "Epoch 0: 1%| 1/9 [00:01<00:02, 1.0it/s",
    "[", "]", "{", "}", ",", '"traceEvents": [', '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}', "-1", "nan", "1e999", "\x00", "\r", "\u00e9", "9" * 40,
]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=30)), max_size=30).flatmap(
    lambda parts: st.sampled_from(["\n", " ", ""]).map(lambda glue: glue.join(parts))
)
READERS = [
    read_nccl_tests,
    read_osu,
    read_comm_tables,
    read_power,
    read_rank_times,
    read_sacct,
    read_chrome_trace,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@QUICK
@given(text=TEXT)
def test_any_text_is_accounted_for(tmp_path: Path, read, text) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read(path)
    assert found.used + found.ignored + found.rejected_count == found.lines
    assert min(found.used, found.ignored, found.rejected_count) >= 0


@pytest.mark.parametrize("preset", list(PRESETS))
@QUICK
@given(text=TEXT)
def test_any_text_as_a_training_log(tmp_path: Path, preset, text) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read_train_log(path, preset=preset)
    assert found.used + found.ignored + found.rejected_count == found.lines
    assert np.all(found.time_s > 0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(
    st.dictionaries(st.sampled_from(["ph", "cat", "name", "args", "ts"]), VALUES, min_size=1, max_size=4),
    max_size=40,
)


@QUICK
@given(events=EVENTS, chunk=st.integers(1, 400), indent=st.sampled_from([None, 1]), bare=st.booleans())
def test_the_stream_reads_what_json_reads(events, chunk, indent, bare) -> None:
    text = json.dumps(
        events if bare else {"schemaVersion": 1, "traceEvents": events, "traceName": "x"}, indent=indent
    )
    tally = Tally(Path("x"))
    stream = EventStream(io.BytesIO(text.encode()), tally, chunk=chunk)
    assert [event for batch in stream for event in batch] == events
    assert tally.rejected_count == 0


SPANS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), max_size=12).map(
    lambda spans: union([a for a, _ in spans], [a + b for a, b in spans])
)


@given(
    compute=SPANS,
    communication=SPANS,
    copy=SPANS,
    loading=SPANS,
    edges=st.lists(st.floats(0, 120), min_size=2, max_size=8, unique=True),
)
def test_parts_add_up_to_the_step(compute, communication, copy, loading, edges) -> None:
    edges = np.sort(np.array(edges))
    activity = Activity(
        0, compute, communication, copy, loading, np.arange(edges.size - 1), edges[:-1], edges[1:]
    )
    found = decompose(activity)
    total = sum(found.parts_s[part] for part in PARTS)
    np.testing.assert_allclose(total, found.step_s, atol=1e-9)
    shown = found.parts_s["exposed_communication"] + found.hidden_communication_s
    busy = communication.length(activity.start, activity.end)[len(found.warmup) :]
    np.testing.assert_allclose(shown, busy, atol=1e-9)


@given(times=st.lists(st.floats(1e-6, 1e6), max_size=50))
def test_warm_up_never_takes_more_than_half(times) -> None:
    assert 0 <= warmup_steps(times) <= max(len(times) // 2, 0)
