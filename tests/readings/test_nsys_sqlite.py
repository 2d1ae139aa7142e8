"""Nsight Systems exports built here with sqlite3, with the tables and columns of the tool."""

from __future__ import annotations

import random
import sqlite3

import numpy as np
import pytest

from perfmodel.errors import SpecError
from perfmodel.readings.nsys_sqlite import read_nsys_sqlite

PROCESS = 0x0122_0000_0000_0000  # the low 24 bits of a global thread id are the thread


def build(path, ranks=2, steps=6, *, slow=None, named_steps=True, old=False):
    """Each step: 50 us loading, 20 us copy, 600 us compute (rank `slow` 700), 100 us of 250 us all-reduce hidden."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.executemany(
        "INSERT INTO StringIds VALUES (?, ?)",
        [
            (1, "gemm"),
            (2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
            *((100 + s, f"step {s}") for s in range(steps)),
        ],
    )
    pid = "" if old else ", globalPid INTEGER"
    db.execute(
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, shortName INTEGER{pid})"
    )
    db.execute(
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER, bytes INTEGER{pid})"
    )
    db.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER)"
    )
    for rank in range(ranks):
        process = 0 if old else PROCESS + (rank << 24)
        tail = () if old else (process,)
        marks = ",?" if not old else ""
        at = 0
        for step in range(steps):
            compute = 700_000 if rank == slow else 600_000
            begin = at
            at += 50_000
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?,?,59,'dataloader next',NULL,?)", (begin, at, process + 7)
            )
            db.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,1,4096{marks})",
                (at, at + 20_000, rank, *tail),
            )
            at += 20_000
            db.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,7,1{marks})",
                (at, at + compute, rank, *tail),
            )
            at += compute
            db.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,20,2{marks})",
                (at - 100_000, at + 150_000, rank, *tail),
            )
            at += 180_000
            if named_steps:
                db.execute(
                    "INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,?,?)", (begin, at, 100 + step, process + 7)
                )
    db.execute("INSERT INTO NVTX_EVENTS VALUES (5,NULL,34,'mark',NULL,7)")
    db.commit()
    db.close()
    return path


def test_parts_and_stragglers(tmp_path):
    summary = read_nsys_sqlite(build(tmp_path / "report.sqlite", slow=1))
    first, second = summary.ranks
    assert summary.steps_from == "NVTX ranges"
    assert first.number.tolist() == [1, 2, 3, 4, 5]
    expected = {
        "compute": 600e-6,
        "exposed_communication": 150e-6,
        "exposed_copy": 20e-6,
        "input_stall": 50e-6,
        "idle": 30e-6,
    }
    for part, value in expected.items():
        np.testing.assert_allclose(first.parts_s[part], value, rtol=1e-9, err_msg=part)
    np.testing.assert_allclose(second.parts_s["compute"], 700e-6)
    assert summary.imbalance().slowest_rank == 1
    assert [(c.kind, c.count) for c in summary.collectives] == [("all_reduce", 12)]
    assert summary.used + summary.ignored + summary.rejected_count == summary.lines
    assert summary.rejected_count == 0


def test_own_step_pattern_and_reports_without_ranges(tmp_path):
    whole = read_nsys_sqlite(build(tmp_path / "a.sqlite", named_steps=False))
    assert whole.steps_from.startswith("the whole trace")
    named = read_nsys_sqlite(build(tmp_path / "b.sqlite"), step_pattern=r"^step (\d+)$")
    assert named.ranks[0].number.size == 5


def test_old_exports_without_process_ids(tmp_path):
    summary = read_nsys_sqlite(build(tmp_path / "old.sqlite", ranks=1, old=True))
    assert summary.ranks[0].number.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(12))
def test_damaged_databases_never_crash(tmp_path, seed):
    rng = random.Random(seed)
    path = build(tmp_path / "x.sqlite")
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 200)):
        data[rng.randrange(16, len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data[: rng.randrange(100, len(data))]))
    summary = read_nsys_sqlite(path)
    assert summary.used + summary.ignored + summary.rejected_count == summary.lines


def test_what_is_no_report(tmp_path):
    text = tmp_path / "notes.sqlite"
    text.write_text("this is no database\n" * 100)
    summary = read_nsys_sqlite(text)
    assert summary.ranks == ()
    assert summary.rejected_count == 1
    with pytest.raises(SpecError, match="no such file"):
        read_nsys_sqlite(tmp_path / "absent.sqlite")
