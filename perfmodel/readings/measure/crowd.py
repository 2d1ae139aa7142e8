"""What ranks of one host take from each other, and how much of a collective compute can hide: measured, not assumed.

Ranks that share cores, caches, a memory bus or a power budget slow each other down. The same products and copies are timed
on rank 0 alone and on all ranks at once, in turns, so that a drifting machine touches both alike. And a collective is
timed with a product of about its length, apart and together: what the two take less than their sum was hidden,

    overlap = (t_product + t_collective - t_both) / min(t_product, t_collective).    (1)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.readings.measure.device import DeviceReport, items
from perfmodel.readings.measure.group import Group
from perfmodel.readings.measure.timing import Settings, time_call

ROUNDS = 3
OVERLAP_BYTES = 4 * 2**20
MATMUL_SIZE = {"cpu": 512, "cuda": 4096, "rocm": 4096}
MOST_PRODUCTS = 1000


@dataclass(frozen=True)
class CrowdReport:
    """Rates with all ranks at work over those alone: of the best matmul of each precision, and of the memory."""

    ranks: int
    matmul: dict[str, float]
    memory: float

    def fields(self) -> dict[str, Any]:
        """The `crowd` of an Accelerator spec; of several precisions the one that suffers least."""
        return {
            "ranks": self.ranks,
            "matmul": round(min(max(self.matmul.values()), 1.0), 3),
            "memory": round(min(self.memory, 1.0), 3),
        }


def measure_crowd(
    group: Group,
    report: DeviceReport | None,
    settings: Settings,
    clock: Callable[[], float] = time.perf_counter,
) -> CrowdReport:
    """Time the best items of rank 0's report alone and on all ranks; every rank takes part, rank 0 alone has a report."""
    torch: Any = group.machine.torch
    chosen: list[Any] = [_best(report)] if report is not None else [None]
    torch.distributed.broadcast_object_list(chosen, 0)
    keys: list[str] = chosen[0]
    # Every rank makes its own items: precisions and sizes are those that rank 0 found best.
    precisions = tuple(dict.fromkeys(key.split("/")[1] for key in keys if key.startswith("matmul/")))
    sizes = tuple(int(key.split("/")[2]) for key in keys if key.startswith("matmul/"))
    made = {item.key: item for item in items(group.machine, precisions, sizes)}
    kept: dict[str, float] = {}
    for key in keys:
        call = made[key].prepare()
        alone, together = [], []
        for _ in range(ROUNDS):
            group.barrier()
            if group.rank == 0:
                alone.append(
                    time_call(call, settings, synchronize=group.machine.synchronize, clock=clock).time_s
                )
            group.barrier()
            found = time_call(
                call, settings, synchronize=group.machine.synchronize, clock=clock, agree=group.largest
            )
            together.append(found.time_s)
        ratio = np.median(alone) / np.median(together) if alone else 0.0
        kept[key] = group.largest(float(ratio))
    matmul = {key.split("/")[1]: value for key, value in kept.items() if key.startswith("matmul/")}
    memory = next(value for key, value in kept.items() if key.startswith("memory/"))
    return CrowdReport(group.world, matmul, memory)


def _best(report: DeviceReport) -> list[str]:
    """The quickest matmul of each precision, and the memory item with the highest rate."""
    rates = {key: report.work[key] / sample.time_s for key, sample in report.samples.items()}
    found = []
    for precision in report.peaks():
        own = [key for key in rates if key.startswith(f"matmul/{precision}/")]
        found.append(max(own, key=lambda key: rates[key]))
    streams = [key for key in rates if key.startswith("memory/")]
    # The largest arrays: smaller ones may live in a cache that ranks do not share.
    largest = max(int(key.rsplit("/", 1)[1]) for key in streams)
    own = [key for key in streams if key.endswith(f"/{largest}")]
    return [*found, max(own, key=lambda key: rates[key])]


def measure_overlap(
    group: Group,
    settings: Settings,
    size: int = OVERLAP_BYTES,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Share of an all-reduce of `size` bytes that a product of its length hides, by (1); all ranks take part."""
    torch: Any = group.machine.torch
    device, n = group.machine.device, MATMUL_SIZE[group.machine.kind]
    a, b = (torch.randn(n, n, device=device) for _ in range(2))
    out = torch.empty(n, n, device=device)
    x = torch.zeros(size // 4, dtype=torch.float32, device=device)

    def timed(call: Callable[[], object]) -> float:
        found = time_call(
            call, settings, synchronize=group.machine.synchronize, clock=clock, agree=group.largest
        )
        return found.time_s

    def product() -> None:
        torch.mm(a, b, out=out)

    reduce_s = timed(lambda: torch.distributed.all_reduce(x))
    count = int(np.clip(round(reduce_s / timed(product)), 1, MOST_PRODUCTS))

    def products() -> None:
        for _ in range(count):
            product()

    def both() -> None:
        request = torch.distributed.all_reduce(x, async_op=True)
        products()
        request.wait()

    shares = []
    for _ in range(ROUNDS):
        compute_s, reduce_s, both_s = (
            timed(products),
            timed(lambda: torch.distributed.all_reduce(x)),
            timed(both),
        )
        shares.append((compute_s + reduce_s - both_s) / min(compute_s, reduce_s))
    return float(np.clip(np.median(shares), 0.0, 1.0))
