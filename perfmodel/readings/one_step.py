"""One step out of a profiler's trace, event by event: what is drawn beside a predicted step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.chrome_trace import MICROSECOND, KernelNames, steps_of
from perfmodel.readings.json_stream import EventStream, timing
from perfmodel.readings.source import Tally, open_bytes, warmup_steps

KINDS = {
    "kernel": "compute", "Kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy", "Memcpy": "copy",
    "Memset": "copy", "user_annotation": "annotation", "cpu_op": "host",
}  # fmt: skip
MOST_EVENTS = 50_000


@dataclass(frozen=True)
class MeasuredEvent:
    """One event of the step; `row` is its device and stream, or its host thread."""

    row: tuple[str, str]
    name: str
    kind: str  # compute, communication, copy, annotation, host
    start_s: float  # from the start of the step
    time_s: float


@dataclass(frozen=True)
class MeasuredStep:
    """The step of median length after warm-up."""

    number: int
    time_s: float
    events: tuple[MeasuredEvent, ...]
    cut: int  # events that are left out: there were too many


def read_one_step(path: Path, most: int = MOST_EVENTS) -> MeasuredStep:
    """The events of the median step; host operators are kept only where no device shows."""
    numbers, starts, ends = steps_of(path)
    if not numbers.size:
        raise SpecError(
            Problem(
                str(path), code="R004", message="no events with a start and a length are in this trace",
                help="give a trace of the PyTorch profiler (export_chrome_trace), gzip too",
            )
        )  # fmt: skip
    skip = min(warmup_steps(ends - starts), numbers.size - 1)
    length = (ends - starts)[skip:]
    at = skip + int(np.argsort(length, kind="stable")[(length.size - 1) // 2])
    low, high = float(starts[at]), float(ends[at])
    found: list[MeasuredEvent] = []
    names = KernelNames()
    cut = 0
    with open_bytes(path) as raw:
        for batch in EventStream(raw, Tally(path)):
            for event in batch:
                made = _event(event, low, high, names)
                if made is None:
                    continue
                if len(found) < most:
                    found.append(made)
                else:
                    cut += 1
    if any(event.kind in ("compute", "communication") and event.row[0] != "host" for event in found):
        found = [event for event in found if event.kind != "host"]
    found.sort(key=lambda event: (event.row, event.start_s, -event.time_s))
    return MeasuredStep(int(numbers[at]), high - low, tuple(found), cut)


def _event(event: Any, low: float, high: float, names: KernelNames) -> MeasuredEvent | None:
    """An event that overlaps the window, cut to it."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return None
    category = event.get("cat")
    kind = KINDS.get(category) if isinstance(category, str) else None
    span, name = timing(event), event.get("name")
    if kind is None or span is None or not isinstance(name, str):
        return None
    start, end = span[0] * MICROSECOND, (span[0] + span[1]) * MICROSECOND
    if end <= low or start >= high:
        return None
    if kind in ("compute", "host") and names.kind(name) is not None:
        kind = "communication" if kind == "compute" else "host"
    if kind in ("annotation", "host"):
        row = ("host", f"thread {str(event.get('tid'))[:20]}")
    else:
        args = event.get("args")
        facts = args if isinstance(args, dict) else {}
        device = facts.get("device", event.get("pid"))
        row = (f"device {str(device)[:20]}", f"stream {str(facts.get('stream', event.get('tid')))[:20]}")
    begin = max(start, low)
    return MeasuredEvent(row, name[:200], kind, begin - low, min(end, high) - begin)
