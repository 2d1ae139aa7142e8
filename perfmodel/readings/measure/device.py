"""`measure device`: matmul rate by size and precision, memory bandwidth, launch overhead -> an Accelerator spec.

A square matmul of size n costs 2 n^3 FLOP; copy moves 2 and triad (a = b + s c) 3 arrays. The best rate over sizes is
what the device reaches. Launch overhead is the time of one tiny kernel in a long dependent chain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfmodel.errors import UsageError
from perfmodel.readings.measure.journal import Journal
from perfmodel.readings.measure.machine import Machine, cannot_multiply
from perfmodel.readings.measure.progress import tracked
from perfmodel.readings.measure.timing import NOISY, Sample, Settings, TooSlowError, time_call
from perfmodel.results.envelope import Result
from perfmodel.units import format_quantity
from perfmodel.workloads.text import render, slug

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
GPU_SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
CPU_SIZES = (128, 256, 512, 1024, 2048)
LAUNCH_CHAIN = 64
EMULATED = 200.0  # no device multiplies this much slower in hardware (fp64 on a gaming GPU: 1/64 of fp32)


@dataclass(frozen=True)
class Item:
    """One thing to time: how much work (FLOP or bytes) a call does."""

    key: str
    work: float
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class DeviceReport:
    """Rates by item key and the spec's fields; `skipped` has what this device or build cannot do."""

    machine: Machine
    samples: Mapping[str, Sample]
    work: Mapping[str, float]
    skipped: tuple[str, ...]
    date: str

    def rate(self, prefix: str) -> float | None:
        """Best rate [FLOP/s or B/s] over the items whose key begins with `prefix`."""
        rates = [self.work[key] / s.time_s for key, s in self.samples.items() if key.startswith(prefix)]
        return max(rates) if rates else None

    def peaks(self) -> dict[str, float]:
        """Best matmul rate by precision [FLOP/s]; those far below the best are emulated and left out."""
        found = {precision: self.rate(f"matmul/{precision}/") for precision in PRECISIONS}
        best = max((rate for rate in found.values() if rate is not None), default=0.0)
        return {
            precision: rate
            for precision, rate in found.items()
            if rate is not None and rate >= best / EMULATED
        }

    def noisy(self) -> tuple[str, ...]:
        """Items whose repeats differ by more than they should."""
        return tuple(key for key, sample in self.samples.items() if sample.spread > NOISY)

    def launch_s(self) -> float | None:
        """Time of one tiny kernel in a chain [s]."""
        sample = self.samples.get("launch")
        return None if sample is None else sample.time_s / LAUNCH_CHAIN


def items(machine: Machine, precisions: tuple[str, ...], sizes: tuple[int, ...]) -> list[Item]:
    """What `measure device` times, smallest first; sizes whose operands would fill the memory are left out."""
    fitting = [n for n in sizes if 3.0 * 8.0 * n * n < 0.5 * machine.memory_bytes]
    found = [
        Item(f"matmul/{precision}/{n}", 2.0 * n**3, _matmul(machine, precision, n))
        for precision in precisions
        for n in fitting
    ]
    largest = 2**28 if machine.kind == "cpu" else 2**30
    for elements in (2**22, 2**24, largest // 4):
        size = 4.0 * elements
        if 3.0 * size < 0.5 * machine.memory_bytes:
            found.append(Item(f"memory/copy/{int(size)}", 2.0 * size, _stream(machine, elements, "copy")))
            found.append(Item(f"memory/triad/{int(size)}", 3.0 * size, _stream(machine, elements, "triad")))
    found.append(Item("launch", float(LAUNCH_CHAIN), _launch(machine)))
    return found


def _matmul(machine: Machine, precision: str, n: int) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        torch = machine.torch
        names = {
            "fp64": "float64",
            "fp32": "float32",
            "tf32": "float32",
            "fp16": "float16",
            "bf16": "bfloat16",
        }
        if precision == "tf32" and machine.kind != "cuda":
            raise RuntimeError("tf32 is a mode of NVIDIA GPUs")
        if precision == "fp8":
            return _scaled_matmul(machine, n)
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        dtype = getattr(torch, names[precision])
        a = torch.randn(n, n, device=machine.device).to(dtype)
        b = torch.randn(n, n, device=machine.device).to(dtype)
        out = torch.empty(n, n, dtype=dtype, device=machine.device)
        return lambda: torch.mm(a, b, out=out)

    return prepare


def _scaled_matmul(machine: Machine, n: int) -> Callable[[], object]:
    torch = machine.torch
    dtype = torch.float8_e4m3fnuz if machine.kind == "rocm" else torch.float8_e4m3fn
    a = torch.randn(n, n, device=machine.device).to(dtype)
    b = torch.randn(n, n, device=machine.device).to(dtype).t()  # the second operand must be column-major
    one = torch.ones((), device=machine.device)
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _stream(machine: Machine, elements: int, kind: str) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        torch = machine.torch
        a, b, c = (torch.ones(elements, dtype=torch.float32, device=machine.device) for _ in range(3))
        if kind == "copy":
            return lambda: a.copy_(b)
        return lambda: torch.add(b, c, alpha=0.5, out=a)

    return prepare


def _launch(machine: Machine) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        x = machine.torch.zeros(1, device=machine.device)

        def chain() -> None:
            for _ in range(LAUNCH_CHAIN):
                x.add_(1.0)

        return chain

    return prepare


def measure_device(
    machine: Machine,
    *,
    precisions: tuple[str, ...] = PRECISIONS,
    sizes: tuple[int, ...] | None = None,
    settings: Settings | None = None,
    journal: Path | None = None,
    quiet: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> DeviceReport:
    """Time everything in `items`; what an earlier run finished is taken from the journal."""
    unknown = [precision for precision in precisions if precision not in PRECISIONS]
    if unknown:
        raise UsageError(
            f"--precision: unknown {', '.join(unknown)}", code="M005", help=f"of {', '.join(PRECISIONS)}"
        )
    chosen = settings or Settings()
    plan = items(machine, precisions, sizes or (CPU_SIZES if machine.kind == "cpu" else GPU_SIZES))
    book = Journal(
        journal,
        {"measure": "device", "device": machine.title, **machine.versions(), "settings": repr(chosen)},
    )
    samples: dict[str, Sample] = {}
    skipped: list[str] = []
    refused: dict[str, str | None] = {}  # precision -> why this machine does not have it
    for item in tracked(plan, len(plan), "device", quiet=quiet):
        record = book.get(item.key)
        if record is None:
            precision = item.key.split("/")[1] if item.key.startswith("matmul/") else None
            if precision is not None and precision not in refused:
                refused[precision] = cannot_multiply(machine, precision)
            reason = refused.get(precision) if precision is not None else None
            record = {"skipped": reason} if reason else _run(item, machine, chosen, clock)
            book.add(item.key, record)
            if precision is not None and record.get("slow"):
                refused[precision] = f"smaller products were already too slow: {record['skipped']}"
        if "skipped" in record:
            skipped.append(f"{item.key}: {record['skipped']}")
        else:
            samples[item.key] = Sample(tuple(record["times_s"]), int(record["calls"]))
    book.finish()
    work = {item.key: item.work for item in plan}
    return DeviceReport(machine, samples, work, tuple(skipped), datetime.now(UTC).date().isoformat())


def _run(item: Item, machine: Machine, settings: Settings, clock: Callable[[], float]) -> dict[str, Any]:
    try:
        sample = time_call(item.prepare(), settings, synchronize=machine.synchronize, clock=clock)
    except TooSlowError as error:
        return {"skipped": str(error), "slow": True}
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        # A precision without kernels here, or no memory left for this size: the others still count.
        return {"skipped": str(error).splitlines()[0][:160] if str(error) else type(error).__name__}
    return {"times_s": sample.times_s, "calls": sample.calls}


def accelerator_fields(
    report: DeviceReport,
    *,
    name: str | None = None,
    extends: Any = None,
    crowd: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Fields of an Accelerator spec. `extends`, a catalogue Accelerator, keeps its datasheet: fractions are measured.

    `crowd` is what it keeps of its rates while its neighbours work (`crowd.CrowdReport.fields`).
    """
    machine = report.machine
    bandwidth, peaks = report.rate("memory/"), report.peaks()
    if bandwidth is None or not peaks:
        raise UsageError(
            "nothing could be measured on this device", code="M006", help="; ".join(report.skipped[:3])
        )
    fields: dict[str, Any] = {"name": name or f"measured-{slug(machine.title)}"}
    if extends is not None:
        fields["extends"] = extends.name
        half = [peaks[p] / extends.peak[p] for p in ("bf16", "fp16") if p in peaks and p in extends.peak]
        if half:
            fields["matmul_fraction"] = round(min(max(half), 1.0), 4)
        fields["memory_fraction"] = round(min(bandwidth / extends.memory_bandwidth, 1.0), 4)
    else:
        fields |= {
            "title": machine.title,
            "vendor": machine.vendor,
            "memory": _text(machine.memory_bytes, "B"),
            "memory_bandwidth": _text(bandwidth, "B/s"),
            "peak": {precision: _text(rate, "FLOP/s") for precision, rate in peaks.items()},
            "compute_units": machine.compute_units,
            "l2": _text(machine.l2_bytes, "B") if machine.l2_bytes else None,
            # The peaks above are what the device reached: nothing is left to discount.
            "matmul_fraction": 1.0,
            "memory_fraction": 1.0,
        }
    launch = report.launch_s()
    if launch is not None:
        fields["launch_overhead"] = _text(min(launch, 1e-3), "s")
    if crowd is not None:
        fields["crowd"] = dict(crowd)
    versions = ", ".join(f"{key} {value}" for key, value in machine.versions().items())
    fields |= {
        "source": f"perfmodel measure device ({versions})",
        "date": report.date,
        "confidence": "measured",
    }
    tried = {key.split("/")[1] for key in report.work if key.startswith("matmul/")}
    if missing := [precision for precision in PRECISIONS if precision in tried - set(peaks)]:
        fields["notes"] = f"without hardware here: {', '.join(missing)}"
    return fields


def _text(value: float, unit: str) -> str:
    return format_quantity(value, unit)


def accelerator_yaml(fields: Mapping[str, Any]) -> str:
    """The spec as YAML text."""
    return render(fields, schema="accelerator.schema.json")


def device_result(report: DeviceReport, fields: Mapping[str, Any]) -> Result:
    """The measurement as an envelope: each item with its rate and spread."""
    rows = [
        {
            "item": key,
            "time_s": sample.time_s,
            "spread": sample.spread,
            "repeats": len(sample.times_s),
            "rate": report.work[key] / sample.time_s if key != "launch" else None,
        }
        for key, sample in report.samples.items()
    ]
    result = {
        "measured": "device",
        "device": report.machine.title,
        "items": rows,
        "spec": dict(fields),
        "launch_overhead_s": report.launch_s(),
        "noisy": list(report.noisy()),
        "skipped": list(report.skipped),
    }
    return Result("measurement", {"device": report.machine.device, **report.machine.versions()}, result)
