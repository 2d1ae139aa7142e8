"""`measure collective`: ops and sizes under torchrun -> a Link spec and a log that our nccl-tests reader reads.

Every rank makes the same calls; a size's time is the slowest rank's, the median of the repeats. Bytes are the whole vector,
as nccl-tests counts them. The link's alpha and bandwidth are fitted to all operations together as

    t = steps * alpha + bus_factor * S / B,    steps = 2(n-1) all-reduce, n-1 gather/scatter kinds, 1 send-recv,   (1)

(Hockney 1994; Thakur et al. 2005, ring algorithms) by least squares of the relative error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import UsageError, did_you_mean
from perfmodel.readings.measure.crowd import OVERLAP_BYTES, measure_overlap
from perfmodel.readings.measure.group import Group
from perfmodel.readings.measure.journal import Journal
from perfmodel.readings.measure.machine import Machine
from perfmodel.readings.measure.progress import tracked
from perfmodel.readings.measure.timing import NOISY, Sample, Settings, time_call
from perfmodel.readings.sweeps import Sweep, bus_factor, make_sweep
from perfmodel.results.envelope import Result
from perfmodel.units import format_quantity
from perfmodel.workloads.text import render, slug

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
ELEMENT = 4  # bytes: float32
_PROGRAM = {"all_to_all": "alltoall", "send_recv": "sendrecv"}


@dataclass(frozen=True)
class CollectiveReport:
    """Sweeps of one group; `skipped` has the operations that this backend lacks."""

    machine: Machine
    ranks: int
    nodes: int
    sweeps: tuple[Sweep, ...]
    spread: Mapping[str, float]
    skipped: tuple[str, ...]
    date: str
    overlap: float | None = None  # share of an all-reduce that compute hides, see `crowd.py`


def sizes_between(smallest: float, largest: float, ranks: int) -> tuple[int, ...]:
    """Powers of two from `smallest` to `largest` bytes, each raised to whole elements for every rank.

    >>> sizes_between(1024, 8192, 2)
    (1024, 2048, 4096, 8192)
    """
    if not 1 <= smallest <= largest:
        raise UsageError(
            "the sizes must rise from at least 1 byte", code="M010", help="such as --min 1024 --max 64Mi"
        )
    unit = ELEMENT * ranks
    powers = range(math.ceil(math.log2(smallest)), math.floor(math.log2(largest)) + 1)
    return tuple(sorted({math.ceil(2**p / unit) * unit for p in powers}))


def operation(group: Group, op: str, size: int) -> Callable[[], object]:
    """A call of `op` on `size` bytes; RuntimeError where the backend cannot do it."""
    torch: Any = group.machine.torch
    dist: Any = torch.distributed
    count = size // ELEMENT
    share = max(count // group.world, 1)

    def new(elements: int) -> Any:
        return torch.ones(elements, dtype=torch.float32, device=group.machine.device)

    if op == "all_reduce":
        # Zeros: sums of ones would overflow over thousands of calls.
        x = new(count).zero_()
        return lambda: dist.all_reduce(x)
    if op == "broadcast":
        x = new(count)
        return lambda: dist.broadcast(x, 0)
    if op == "all_gather":
        whole, part = new(share * group.world), new(share)
        # Renamed in torch 2.13.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(whole, part)
    if op == "reduce_scatter":
        whole, part = new(share * group.world).zero_(), new(share)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda: scatter(part, whole)
    if op == "all_to_all":
        x, y = new(share * group.world), new(share * group.world)
        return lambda: dist.all_to_all_single(y, x)
    x, y = new(count), new(count)
    after, before = (group.rank + 1) % group.world, (group.rank - 1) % group.world

    def exchange() -> None:
        requests = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]
        )
        for request in requests:
            request.wait()

    return exchange


def measure_collective(
    group: Group,
    *,
    ops: Sequence[str] = OPS,
    sizes: Sequence[int],
    settings: Settings | None = None,
    journal: Path | None = None,
    quiet: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> CollectiveReport:
    """Time every operation at every size. Finished ones are kept at once by rank 0 and not measured again."""
    for op in ops:
        if op not in OPS:
            raise UsageError(
                f'--op: unknown "{op}"{did_you_mean(op, OPS)}', code="M011", help=f"of {', '.join(OPS)}"
            )
    if group.world < 2:
        raise UsageError(
            "a collective needs at least two processes",
            code="M012",
            help="add --nproc 2, or start it under torchrun",
        )
    chosen = settings or Settings()
    facts = {
        "measure": "collective",
        "device": group.machine.title,
        "ranks": group.world,
        **group.machine.versions(),
        "settings": repr(chosen),
    }
    book = Journal(journal if group.rank == 0 else None, facts)
    points: dict[str, list[tuple[float, float]]] = {op: [] for op in ops}
    spreads: dict[str, float] = {}
    skipped: dict[str, str] = {}
    plan = [(op, size) for op in ops for size in sizes]
    for op, size in tracked(plan, len(plan), "collectives", quiet=quiet or group.rank != 0):
        key = f"{op}/{size}"
        record = book.get(key)
        if group.largest(float(record is not None)) == 0.0:
            record = _run(group, op, size, chosen, clock)
            book.add(key, record)
        if record is None:
            continue  # an earlier run finished this size and rank 0 has it
        if "skipped" in record:
            skipped.setdefault(op, record["skipped"])
            continue
        sample = Sample(tuple(record["times_s"]), int(record["calls"]))
        points[op].append((float(size), sample.time_s))
        spreads[key] = sample.spread
    sweeps = tuple(
        make_sweep(op, group.world, found, nodes=group.nodes, dtype="float", device=group.machine.title)
        for op, found in points.items()
        if found
    )
    # Sums under compute can be told only where sums were asked for, and work.
    overlap = None
    if "all_reduce" in ops and points["all_reduce"]:
        overlap = measure_overlap(group, chosen, int(min(OVERLAP_BYTES, max(sizes))), clock)
    book.finish()
    missing = tuple(f"{op}: {reason}" for op, reason in skipped.items())
    return CollectiveReport(
        group.machine,
        group.world,
        group.nodes,
        sweeps,
        spreads,
        missing,
        datetime.now(UTC).date().isoformat(),
        overlap,
    )


def _run(group: Group, op: str, size: int, settings: Settings, clock: Callable[[], float]) -> dict[str, Any]:
    # A rank that cannot make its buffers must say so before the others wait for it in the collective.
    call: Callable[[], object] | None = None
    reason = "another rank could not make its buffers"
    try:
        call = operation(group, op, size)
    except (RuntimeError, AttributeError) as error:
        reason = _first_line(error)
    if group.largest(float(call is None)) > 0.0 or call is None:
        return {"skipped": reason}
    try:
        sample = time_call(
            call, settings, synchronize=group.machine.synchronize, clock=clock, agree=group.largest
        )
    except (RuntimeError, AttributeError) as error:
        return {"skipped": _first_line(error)}
    return {"times_s": sample.times_s, "calls": sample.calls}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__


def nccl_tests_log(report: CollectiveReport) -> str:
    """The sweeps as nccl-tests would print them, times in microseconds, one placement only."""
    lines: list[str] = []
    versions = " ".join(f"{key}={value}" for key, value in report.machine.versions().items())
    for sweep in report.sweeps:
        program = f"{_PROGRAM.get(sweep.op, sweep.op)}_perf"
        redop = "sum" if "reduce" in sweep.op else "none"
        lines += [
            f"# perfmodel measure collective, {report.date}, backend {report.machine.backend}, {versions}",
            f"# Collective test starting: {program}",
            f"# nThread 1 nGpus 1 minBytes {int(sweep.bytes[0])} maxBytes {int(sweep.bytes[-1])} step: 2(factor)",
            "#",
            "# Using devices",
        ]
        per_node = report.ranks // report.nodes
        for rank in range(report.ranks):
            lines.append(
                f"#  Rank {rank:2d} Group  0 Pid {rank:6d} on node{rank // per_node:03d} device {rank % per_node:2d} [0x{rank % per_node:02x}] {report.machine.title}"
            )
        lines += [
            "#",
            f"#{'out-of-place':>74}",
            f"#{'size':>12} {'count':>13} {'type':>9} {'redop':>7} {'root':>7} {'time':>12} {'algbw':>9} {'busbw':>9} {'#wrong':>6}",
            f"#{'(B)':>12} {'(elements)':>13} {'':>9} {'':>7} {'':>7} {'(us)':>12} {'(GB/s)':>9} {'(GB/s)':>9}",
        ]
        for size, seconds, bus in zip(sweep.bytes, sweep.time_s, sweep.bus_bandwidth(), strict=True):
            lines.append(
                f"{int(size):13d} {int(size) // ELEMENT:13d} {'float':>9} {redop:>7} {-1:>7} {seconds * 1e6:12.3f} {size / seconds / 1e9:9.4f} {bus / 1e9:9.4f} {0:6d}"
            )
        lines += ["#", f"# Collective test concluded: {program}"]
    return "\n".join(lines) + "\n"


def ring_steps(op: str, ranks: int) -> int:
    """Messages that follow one another in a ring: the factor of alpha in (1)."""
    return {"all_reduce": 2 * (ranks - 1), "send_recv": 1}.get(op, ranks - 1)


def fit_link(sweeps: Sequence[Sweep]) -> tuple[float, float, float]:
    """alpha [s], B [B/s] of (1) over all sweeps, and the median relative error of the fit.

    Least squares of the relative error, both coefficients kept at or above zero.
    """
    from scipy.optimize import nnls

    steps = np.concatenate([np.full(s.bytes.size, float(ring_steps(s.op, s.ranks))) for s in sweeps])
    wire = np.concatenate([s.bytes * bus_factor(s.op, s.ranks) for s in sweeps])
    time_s = np.concatenate([s.time_s for s in sweeps])
    scale = np.array([1.0, float(wire.max())])  # both columns of like size, for the solver
    matrix = np.column_stack([steps / time_s, wire / time_s / scale[1]])
    solution, _ = nnls(matrix, np.ones_like(time_s))
    alpha, per_byte = float(solution[0]), float(solution[1] / scale[1])
    if per_byte <= 0.0:
        raise UsageError(
            "the times do not grow with the size: no bandwidth", code="M013", help="measure larger sizes"
        )
    error = np.abs((steps * alpha + wire * per_byte) / time_s - 1.0)
    return alpha, 1.0 / per_byte, float(np.median(error))


def link_fields(report: CollectiveReport, *, name: str | None = None) -> tuple[dict[str, Any], float]:
    """Fields of a Link spec, and the median relative error of its fit."""
    if not report.sweeps:
        raise UsageError("no collective could be measured", code="M014", help="; ".join(report.skipped[:3]))
    alpha, bandwidth, error = fit_link(report.sweeps)
    kind = "scale-out" if report.nodes > 1 else "cpu" if report.machine.kind == "cpu" else "scale-up"
    ops = ", ".join(sweep.op for sweep in report.sweeps)
    versions = ", ".join(f"{key} {value}" for key, value in report.machine.versions().items())
    fields = {
        "name": name or f"measured-{report.machine.backend}-{slug(report.machine.title)}",
        "title": f"{report.machine.backend} between {report.ranks} ranks on {report.nodes} nodes",
        "kind": kind,
        "latency": format_quantity(max(alpha, 1e-9), "s"),
        "bandwidth": format_quantity(bandwidth, "B/s"),
        # The bandwidth above is what collectives reached: nothing is left to discount.
        "efficiency": 1.0,
        "collective_step": format_quantity(max(alpha, 1e-9), "s"),
        "collective_efficiency": 1.0,
        "collective_basis": "fit",
        **({} if report.overlap is None else {"overlap": round(report.overlap, 3)}),
        "source": f"perfmodel measure collective of {ops} on {report.ranks} ranks ({versions})",
        "date": report.date,
        "confidence": "measured",
    }
    return fields, error


def link_yaml(fields: Mapping[str, Any]) -> str:
    """The spec as YAML text."""
    return render(fields, schema="link.schema.json")


def collective_result(report: CollectiveReport, fields: Mapping[str, Any], error: float) -> Result:
    """The measurement as an envelope: a row per operation and size."""
    rows = [
        {
            "op": sweep.op,
            "bytes": float(size),
            "time_s": float(seconds),
            "bus_bandwidth_bytes_per_s": float(bus),
            "spread": report.spread.get(f"{sweep.op}/{int(size)}"),
        }
        for sweep in report.sweeps
        for size, seconds, bus in zip(sweep.bytes, sweep.time_s, sweep.bus_bandwidth(), strict=True)
    ]
    result = {
        "measured": "collective",
        "device": report.machine.title,
        "ranks": report.ranks,
        "nodes": report.nodes,
        "items": rows,
        "spec": dict(fields),
        "fit_median_error": error,
        "overlap": report.overlap,
        "noisy": [key for key, value in report.spread.items() if value > NOISY],
        "skipped": list(report.skipped),
    }
    return Result("measurement", {"backend": report.machine.backend, **report.machine.versions()}, result)
