"""PyTorch profiler (Kineto) traces and Ray timelines: Chrome trace JSON, gzip too, one file per rank or many in one.

Events stream through; what stays is two numbers per device event. Steps come from `ProfilerStep#N`
annotations, on the device where the trace has them (from the first kernel of a step to that of the next), else on the
host; a trace without kernels is read from its CPU operators.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import Problem, SpecError
from perfmodel.readings.intervals import Union, union
from perfmodel.readings.json_stream import NO_TIMING, EventStream, timing
from perfmodel.readings.ray_timeline import RayTimeline
from perfmodel.readings.source import WARMUP_RULE, Tally, open_bytes
from perfmodel.readings.steps import Activity, Collective, TraceSummary, combine, decompose
from perfmodel.readings.sweeps import canonical_op

MICROSECOND = 1e-6
MOST_EVENTS = 20_000_000  # of one file: two minutes, and half a gigabyte
MOST_RANKS = 10_000_000  # a larger number is damage
PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d{1,15})(?!\d)")
OTHER_STEP = re.compile(r"(?i)(?:^|[^a-z])(?:train_?step|step|iteration|iter)[\s#:_=]*(\d{1,15})$")
LOADING = re.compile(r"(?i)enumerate\(DataLoader\)|data_?loader|get_batch|next_batch|batch_generator")
_COMMUNICATION = re.compile(
    r"(?i)^(?:nccl|rccl|void nccl|gloo:|c10d::|mscclpp|oneccl|hccl)|cross_device_reduce|nvshmem|deep_ep"
)
_KERNEL_OP = re.compile(
    r"(?i)(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce|send|recv|barrier)"
)
_RANK_IN_NAME = re.compile(
    r"(?i)(?:rank|trainer|worker|gpu)[_-]?(\d{1,9})|(?:^|[_.-])r?(\d{1,9})(?=\.(?:\w+\.)*json)"
)
_CATEGORY = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "Memcpy": "copy",
    "Memset": "copy",
    "cpu_op": "cpu",
    "Operator": "cpu",
    "user_annotation": "annotation",
    "gpu_user_annotation": "device annotation",
}
_BYTES = {
    "double": 8,
    "long": 8,
    "int64": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "byte": 1,
    "char": 1,
    "bool": 1,
}


class Spans:
    """Starts and ends in two flat arrays, 16 bytes an event; `unit_s` is their unit in seconds."""

    def __init__(self, unit_s: float = MICROSECOND) -> None:
        self.start = array("d")
        self.end = array("d")
        self.unit_s = unit_s

    def add(self, start: float, duration: float) -> None:
        """Keep one span."""
        self.start.append(start)
        self.end.append(start + duration)

    def union(self) -> Union:
        """When any of the spans was open [s]."""
        return union(np.array(self.start) * self.unit_s, np.array(self.end) * self.unit_s)


class KernelNames:
    """Which kernels and operators communicate; each name is looked at once."""

    def __init__(self) -> None:
        self._kinds: dict[str, str | None] = {}

    def kind(self, name: str) -> str | None:
        """The collective, "other" for one that its name does not tell, None for compute.

        >>> KernelNames().kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        'reduce_scatter'
        """
        if name not in self._kinds:
            found = _KERNEL_OP.search(name)
            op = canonical_op(found.group(1)) if found else None
            self._kinds[name] = (op or "other") if _COMMUNICATION.search(name) else None
        return self._kinds[name]


@dataclass
class _Lane:
    """One device (or, without devices, the host's operators)."""

    compute: Spans = field(default_factory=Spans)
    communication: Spans = field(default_factory=Spans)
    copy: Spans = field(default_factory=Spans)


@dataclass
class _Volume:
    count: int = 0
    time_s: float = 0.0
    bytes: float = 0.0
    known: int = 0
    ranks: int | None = None


@dataclass
class _Kineto:
    """What is kept of one file."""

    lanes: dict[int, _Lane] = field(default_factory=dict)
    host: _Lane = field(default_factory=_Lane)
    loading: Spans = field(default_factory=Spans)
    host_steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    device_steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    other_steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    volumes: dict[str, _Volume] = field(default_factory=dict)
    host_volumes: dict[str, _Volume] = field(default_factory=dict)
    names: KernelNames = field(default_factory=KernelNames)

    def add(self, event: dict[str, Any], kind: str) -> str | None:
        """Keep an event; the reason when it cannot be used."""
        span = timing(event)
        if span is None:
            return NO_TIMING
        start, duration = span
        name = event.get("name")
        if not isinstance(name, str):
            return "an event without a name"
        if kind == "kernel":
            self._kernel(event, name, start, duration)
        elif kind == "copy":
            lane = self._lane(event)
            (lane.communication if "PtoP" in name else lane.copy).add(start, duration)
        else:
            self._annotation(event, name, start, duration, kind)
        return None

    def _lane(self, event: dict[str, Any]) -> _Lane:
        args = event.get("args")
        device = args.get("device", event.get("pid")) if isinstance(args, dict) else event.get("pid")
        return self.lanes.setdefault(device if isinstance(device, int) else 0, _Lane())

    def _kernel(self, event: dict[str, Any], name: str, start: float, duration: float) -> None:
        kind = self.names.kind(name)
        lane = self._lane(event)
        if kind is None:
            lane.compute.add(start, duration)
        else:
            lane.communication.add(start, duration)
            self._volume(self.volumes, event, kind, duration)

    def _volume(self, volumes: dict[str, _Volume], event: dict[str, Any], kind: str, duration: float) -> None:
        args = event.get("args")
        facts = args if isinstance(args, dict) else {}
        named = canonical_op(str(facts.get("Collective name", "")).lstrip("_").removesuffix("_coalesced"))
        volume = volumes.setdefault(named or kind, _Volume())
        volume.count += 1
        volume.time_s += duration * MICROSECOND
        elements = [
            item for key in ("In msg nelems", "Out msg nelems") if isinstance(item := facts.get(key), int)
        ]
        width = _BYTES.get(str(facts.get("dtype", "")).lower())
        if width and len(elements) == 2:
            volume.bytes += float(width * max(elements))
            volume.known += 1
        if isinstance(facts.get("Group size"), int):
            volume.ranks = max(facts["Group size"], volume.ranks or 0)

    def _annotation(self, event: dict[str, Any], name: str, start: float, duration: float, kind: str) -> None:
        if step := PROFILER_STEP.match(name):
            steps = self.device_steps if kind == "device annotation" else self.host_steps
            _widen(steps, int(step.group(1)), start, start + duration)
        elif kind == "device annotation":
            return
        elif LOADING.search(name):
            self.loading.add(start, duration)
        elif kind == "annotation" and (other := OTHER_STEP.search(name)):
            _widen(self.other_steps, int(other.group(1)), start, start + duration)
        elif not self.lanes:  # host operators matter only until a kernel shows that there is a device
            op = self.names.kind(name)
            if op is None:
                if kind == "cpu":
                    self.host.compute.add(start, duration)
            else:
                self.host.communication.add(start, duration)
                if name.startswith("gloo:") or kind == "annotation":
                    self._volume(self.host_volumes, event, op, duration)


def _widen(steps: dict[int, tuple[float, float]], step: int, start: float, end: float) -> None:
    # One step is annotated once per stream.
    low, high = steps.get(step, (start, end))
    steps[step] = (min(low, start), max(high, end))


def read_chrome_trace(paths: Path | str | Sequence[Path | str]) -> TraceSummary:
    """Read the traces of one run, one file per rank (or per worker), and split their steps into parts."""
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    return combine([_read_file(path, index) for index, path in enumerate(files)])


def _read_file(path: Path, index: int) -> TraceSummary:
    tally = Tally(path)
    kineto = _Kineto()
    ray = RayTimeline(tally)
    with open_bytes(path) as raw:
        stream = EventStream(raw, tally)
        for batch in stream:
            _take(batch, kineto, ray, tally, stream)
    volumes: dict[str, _Volume] = {}
    if ray.workers:
        activities, steps_from = ray.activities(), "Ray tasks"
        world: int | None = len(activities)
    else:
        activities, steps_from, volumes = _activities(kineto, _rank(stream.header, path, index), tally)
        world = _world(stream.header, volumes)
    ranks = [decompose(activity) for activity in activities]
    if any(rank.warmup for rank in ranks):
        left_out = ", ".join(str(step) for step in sorted({step for rank in ranks for step in rank.warmup}))
        tally.note(f"{WARMUP_RULE} (steps {left_out})")
    return tally.finish(
        TraceSummary,
        ranks=tuple(rank for rank in ranks if rank.number.size),
        collectives=tuple(
            Collective(kind, v.count, v.time_s, v.bytes if v.known == v.count else None, v.ranks)
            for kind, v in sorted(volumes.items())
        ),
        steps_from=steps_from,
        world=world,
    )


def steps_of(path: Path) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Number, start and end [s] of each step of one file."""
    tally, kineto = Tally(path), _Kineto()
    ray = RayTimeline(tally)
    with open_bytes(path) as raw:
        stream = EventStream(raw, tally)
        for batch in stream:
            _take(batch, kineto, ray, tally, stream)
    devices = bool(kineto.lanes)
    number, start, end, _ = _windows(kineto, kineto.lanes if devices else {0: kineto.host}, devices)
    return number, start, end


def _world(header: dict[str, Any], volumes: dict[str, _Volume]) -> int | None:
    """Ranks of the run: as the profiler recorded them, else the largest group of a collective."""
    info = header.get("distributedInfo")
    world = info.get("world_size") if isinstance(info, dict) else None
    if isinstance(world, int) and not isinstance(world, bool) and 0 < world <= MOST_RANKS:
        return world
    groups = [volume.ranks for volume in volumes.values() if volume.ranks and volume.ranks <= MOST_RANKS]
    return max(groups) if groups else None


def _take(batch: Iterable[Any], kineto: _Kineto, ray: RayTimeline, tally: Tally, stream: EventStream) -> None:
    category = _CATEGORY.get
    for index, event in enumerate(batch):
        tally.lines += 1
        try:
            kind = category(event["cat"])
        except (KeyError, TypeError):
            if isinstance(event, dict) and ("cat" not in event or isinstance(event["cat"], str)):
                continue  # metadata
            tally.reject(stream.line_of(index), str(event), "not an event")
            continue
        if kind is not None and event.get("ph") == "X":
            reason = kineto.add(event, kind)
        elif kind is None and ray.recognises(event):
            reason = ray.add(event)
        else:
            continue
        if reason is None:
            tally.used += 1
        else:
            tally.reject(stream.line_of(index), str(event), reason)
    refuse_too_many(tally)


def refuse_too_many(tally: Tally) -> None:
    """Raise a SpecError as soon as a trace has more events than are read."""
    if tally.lines > MOST_EVENTS:
        message = f"more than {MOST_EVENTS:,} events: a trace of a few steps of one rank is enough"
        raise SpecError(Problem(str(tally.path), code="R003", message=message))


def _rank(header: dict[str, Any], path: Path, index: int) -> int:
    info = header.get("distributedInfo")
    if isinstance(info, dict) and type(info.get("rank")) is int:
        return int(info["rank"])
    found = _RANK_IN_NAME.search(path.name)
    return int(next(group for group in found.groups() if group)) if found else index


def _activities(kineto: _Kineto, rank: int, tally: Tally) -> tuple[list[Activity], str, dict[str, _Volume]]:
    devices = bool(kineto.lanes)
    lanes = kineto.lanes if devices else {0: kineto.host}
    volumes = kineto.volumes if devices else kineto.host_volumes
    if not devices and kineto.host.compute.start:
        tally.note("no device kernels in the trace: parts are those of the host's operators")
    number, start, end, steps_from = _windows(kineto, lanes, devices)
    if number.size == 0:
        return [], "none", volumes
    loading = kineto.loading.union()
    result = []
    for device, lane in sorted(lanes.items()):
        name = rank if len(lanes) == 1 else rank * len(lanes) + device
        result.append(
            Activity(
                name,
                lane.compute.union(),
                lane.communication.union(),
                lane.copy.union(),
                loading,
                number,
                start,
                end,
            )
        )
    return result, steps_from, volumes


def _windows(
    kineto: _Kineto, lanes: dict[int, _Lane], devices: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], str]:
    if devices and len(kineto.device_steps) > 1:
        # On the device a step lasts until the next one's first kernel: waiting for the host belongs to it.
        numbers = sorted(kineto.device_steps)
        starts = np.array([kineto.device_steps[n][0] for n in numbers])
        last = max(kineto.device_steps[numbers[-1]][1], kineto.host_steps.get(numbers[-1], (0.0, 0.0))[1])
        ends = np.append(starts[1:], max(last, starts[-1]))
        source = "ProfilerStep annotations on the device"
    elif kineto.host_steps or kineto.other_steps:
        steps = kineto.host_steps or kineto.other_steps
        numbers = sorted(steps)
        starts = np.array([steps[n][0] for n in numbers])
        ends = np.array([steps[n][1] for n in numbers])
        source = (
            "ProfilerStep annotations on the host" if kineto.host_steps else "step annotations on the host"
        )
    else:
        spans = [
            span
            for lane in lanes.values()
            for span in (lane.compute, lane.communication, lane.copy)
            if span.start
        ]
        if not spans:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0), "none"
        numbers, source = [0], "the whole trace (no step annotations)"
        starts = np.array([min(min(span.start) for span in spans)])
        ends = np.array([max(max(span.end) for span in spans)])
    return np.array(numbers, np.int64), starts * MICROSECOND, ends * MICROSECOND, source
