"""A timeline in the trace event format that Perfetto and chrome://tracing open, a measured step beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from perfmodel.report.model import listed, mappings

MICROSECONDS = 1e6
_MEASURED = 1000  # number of the first process of a measured step


def document(
    timeline: Mapping[str, object], about: Mapping[str, str], measured: Sequence[Mapping[str, object]] = ()
) -> str:
    """The trace as JSON text.

    `measured` holds one mapping a trace: `name`, `time_s` and `events` with `row`, `name`, `kind`, `start_s`, `time_s`.
    """
    events = list(_predicted(timeline))
    first = _MEASURED
    for step in measured:
        made = list(_beside(step, first))
        events += made
        first += 1 + len({event["pid"] for event in made})
    found = {
        "displayTimeUnit": "ms",
        "otherData": {key: str(value) for key, value in about.items()},
        "traceEvents": events,
    }
    return json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _predicted(timeline: Mapping[str, object]) -> Iterable[dict[str, object]]:
    lanes = mappings(timeline["lanes"])
    groups = list(dict.fromkeys(lane["group"] for lane in lanes))
    place = {}
    for index, lane in enumerate(lanes):
        pid = 1 + groups.index(lane["group"])
        place[index] = (pid, 1 + index)
        yield _meta("thread_name", pid, 1 + index, {"name": lane["stream"]})
        yield _meta("thread_sort_index", pid, 1 + index, {"sort_index": index})
    for index, group in enumerate(groups):
        yield _meta("process_name", 1 + index, 0, {"name": f"predicted: {group}"})
        yield _meta("process_sort_index", 1 + index, 0, {"sort_index": index})
    for lane_index, start, seconds, part, direction, micro_batch, chunk in listed(timeline["spans"]):
        pid, tid = place[lane_index]
        words = part.replace("_", " ")
        told = {"pass": direction, "micro_batch": micro_batch, "chunk": chunk}
        name = f"{direction} {micro_batch}" if part == "compute" and direction is not None else words
        yield {
            "ph": "X",
            "name": name,
            "cat": part,
            "ts": start * MICROSECONDS,
            "dur": seconds * MICROSECONDS,
            "pid": pid,
            "tid": tid,
            "args": {"part": part, **{key: value for key, value in told.items() if value is not None}},
        }


def _beside(step: Mapping[str, object], first: int) -> Iterable[dict[str, object]]:
    """A measured step under processes of its own."""
    rows: dict[tuple[str, str], tuple[int, int]] = {}
    devices: list[str] = []
    for event in mappings(step["events"]):
        device, row = event["row"]
        if device not in devices:
            devices.append(device)
            pid = first + len(devices)
            yield _meta("process_name", pid, 0, {"name": f"measured: {step['name']}, {device}"})
            yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        if (device, row) not in rows:
            rows[device, row] = (first + 1 + devices.index(device), 1 + len(rows))
            pid, tid = rows[device, row]
            yield _meta("thread_name", pid, tid, {"name": row})
        pid, tid = rows[device, row]
        yield {
            "ph": "X",
            "name": event["name"],
            "cat": event["kind"],
            "ts": event["start_s"] * MICROSECONDS,
            "dur": event["time_s"] * MICROSECONDS,
            "pid": pid,
            "tid": tid,
            "args": {},
        }


def _meta(name: str, pid: int, tid: int, args: Mapping[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": dict(args)}
