"""Nsight Systems reports exported with `nsys export --type sqlite`.

Kernels, copies and NVTX ranges are read row by row through a cursor. A rank is one device of one process. Steps come
from NVTX ranges whose text ends in a number after `step` or `iteration` (or matches the caller's pattern); times are
nanoseconds.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.chrome_trace import (
    LOADING,
    OTHER_STEP,
    PROFILER_STEP,
    KernelNames,
    Spans,
    refuse_too_many,
)
from perfmodel.readings.source import WARMUP_RULE, Tally
from perfmodel.readings.steps import Activity, Collective, TraceSummary, decompose

NANOSECOND = 1e-9
_PEER_COPY = 10  # CUPTI_ACTIVITY_MEMCPY_KIND_PTOP
_RANGE_EVENTS = (59, 60)  # NVTX push/pop and start/end ranges
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


@dataclass
class _Device:
    compute: Spans = field(default_factory=lambda: Spans(NANOSECOND))
    communication: Spans = field(default_factory=lambda: Spans(NANOSECOND))
    copy: Spans = field(default_factory=lambda: Spans(NANOSECOND))


def read_nsys_sqlite(path: Path | str, *, step_pattern: str | None = None) -> TraceSummary:
    """Read one export. `step_pattern` is a regular expression whose first group is the step's number."""
    where = Path(path)
    tally = Tally(where)
    if not where.is_file():
        raise SpecError(Problem(str(where), code="R001", message="cannot read it: no such file"))
    connection = sqlite3.connect(f"{where.resolve().as_uri()}?mode=ro", uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        return _read(connection, tally, re.compile(step_pattern) if step_pattern else None)
    finally:
        connection.close()


def _read(connection: sqlite3.Connection, tally: Tally, pattern: re.Pattern[str] | None) -> TraceSummary:
    names = KernelNames()
    devices: dict[tuple[int, int], _Device] = {}
    totals: dict[str, list[float]] = {}  # kind -> [count, seconds]
    tables = {
        str(row[0]) for row in _rows(connection, "SELECT name FROM sqlite_master WHERE type='table'", tally)
    }
    strings = (
        {row[0]: row[1] for row in _rows(connection, "SELECT id, value FROM StringIds", tally)}
        if "StringIds" in tables
        else {}
    )
    if _KERNELS in tables:
        for start, end, device, process, name in _spans(
            connection, _KERNELS, ("shortName", "demangledName"), tally
        ):
            lane = devices.setdefault((process, device), _Device())
            text = strings.get(name, name)
            kind = names.kind(text) if isinstance(text, str) else None
            (lane.compute if kind is None else lane.communication).add(start, end - start)
            if kind is not None:
                total = totals.setdefault(kind, [0.0, 0.0])
                total[0] += 1
                total[1] += (end - start) * NANOSECOND
    for table in _COPIES:
        if table in tables:
            for start, end, device, process, kind in _spans(connection, table, ("copyKind",), tally):
                lane = devices.setdefault((process, device), _Device())
                (lane.communication if kind == _PEER_COPY else lane.copy).add(start, end - start)
    if not devices:
        tally.note("no device activity in the report: was it traced with --trace=cuda,nvtx?")
    steps, loading = _ranges(connection, tables, strings, pattern, tally)
    ranks = []
    steps_from = "none"
    for rank, (key, lane) in enumerate(sorted(devices.items())):
        number, low, high, steps_from = _windows(steps.get(key[0], {}), lane)
        ranks.append(
            decompose(
                Activity(
                    rank,
                    lane.compute.union(),
                    lane.communication.union(),
                    lane.copy.union(),
                    loading.union(),
                    number,
                    low,
                    high,
                )
            )
        )
    if any(rank.warmup for rank in ranks):
        tally.note(WARMUP_RULE)
    return tally.finish(
        TraceSummary,
        ranks=tuple(ranks),
        collectives=tuple(
            Collective(kind, int(n), s, None, len(ranks)) for kind, (n, s) in sorted(totals.items())
        ),
        steps_from=steps_from,
    )


def _rows(connection: sqlite3.Connection, query: str, tally: Tally) -> Iterator[tuple[Any, ...]]:
    """Rows of a query; a damaged database ends the rows with one rejection."""
    try:
        for row in connection.execute(query):
            yield row
            refuse_too_many(tally)
    except (sqlite3.Error, OverflowError, ValueError, MemoryError) as error:
        tally.lines += 1
        tally.reject(0, query, f"the database is damaged or not one of Nsight Systems: {error}")


def _columns(connection: sqlite3.Connection, table: str, tally: Tally) -> set[str]:
    return {str(row[1]) for row in _rows(connection, f"PRAGMA table_info({table})", tally)}


def _spans(
    connection: sqlite3.Connection, table: str, extra: tuple[str, ...], tally: Tally
) -> Iterator[tuple[float, float, int, int, Any]]:
    """start, end, device, process and the first of `extra` that the table has."""
    present = _columns(connection, table, tally)
    missing = {"start", "end"} - present
    if missing:
        tally.lines += 1
        tally.reject(0, table, f"the table has no column {', '.join(sorted(missing))}")
        return
    device = "deviceId" if "deviceId" in present else "0"
    process = "globalPid" if "globalPid" in present else "0"
    wanted = next((column for column in extra if column in present), "NULL")
    for start, end, on, pid, value in _rows(
        connection, f'SELECT start, "end", {device}, {process}, {wanted} FROM {table}', tally
    ):
        tally.lines += 1
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            tally.reject(0, f"{table} {start} {end}", "an activity without a start and a length")
            continue
        tally.used += 1
        yield start, end, on if isinstance(on, int) else 0, pid if isinstance(pid, int) else 0, value


def _ranges(
    connection: sqlite3.Connection,
    tables: set[str],
    strings: dict[Any, Any],
    pattern: re.Pattern[str] | None,
    tally: Tally,
) -> tuple[dict[int, dict[int, tuple[float, float]]], Spans]:
    """Steps by process (the upper part of a global thread id), and the data loader's ranges."""
    steps: dict[int, dict[int, tuple[float, float]]] = {}
    loading = Spans(NANOSECOND)
    present = _columns(connection, "NVTX_EVENTS", tally) if "NVTX_EVENTS" in tables else set()
    if not {"start", "end"} <= present:
        return steps, loading
    text = "text" if "text" in present else "NULL"
    text_id = "textId" if "textId" in present else "NULL"
    thread = "globalTid" if "globalTid" in present else "0"
    kind = "eventType" if "eventType" in present else str(_RANGE_EVENTS[0])
    query = f'SELECT start, "end", {text}, {text_id}, {thread}, {kind} FROM NVTX_EVENTS'
    for start, end, written, identifier, tid, event in _rows(connection, query, tally):
        tally.lines += 1
        name = written if isinstance(written, str) else strings.get(identifier)
        if event not in _RANGE_EVENTS or not isinstance(name, str):
            continue
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            tally.reject(0, name, "a range without a start and an end")
            continue
        found = pattern.search(name) if pattern else PROFILER_STEP.match(name) or OTHER_STEP.search(name)
        if found and found.groups() and re.fullmatch(r"[0-9]{1,15}", found.group(1)):
            tally.used += 1
            # The low 24 bits of a global thread id are the thread; the rest is the process's id.
            process = tid & ~0xFFFFFF if isinstance(tid, int) else 0
            steps.setdefault(process, {})[int(found.group(1))] = (start * NANOSECOND, end * NANOSECOND)
        elif LOADING.search(name):
            tally.used += 1
            loading.add(start, end - start)
    return steps, loading


def _windows(
    steps: dict[int, tuple[float, float]], lane: _Device
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], str]:
    if steps:
        numbers = sorted(steps)
        spans = np.array([steps[number] for number in numbers], np.float64)
        return np.array(numbers, np.int64), spans[:, 0], spans[:, 1], "NVTX ranges"
    busy = [spans.union() for spans in (lane.compute, lane.communication, lane.copy) if spans.start]
    low, high = min(item.start[0] for item in busy), max(item.end[-1] for item in busy)
    return np.zeros(1, np.int64), np.array([low]), np.array([high]), "the whole trace (no step ranges)"
