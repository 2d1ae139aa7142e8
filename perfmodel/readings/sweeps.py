"""A collective sweep: time against message size for one operation on one group of ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.readings.source import Reading

OPS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
)
LARGEST_MESSAGE_BYTES = 1e13  # hundred times the memory of an accelerator
SHORTEST_CALL_S, LONGEST_CALL_S = 1e-8, 1e5
LARGEST_RATE = 1e14  # bytes/s, ten times what the fastest memory reaches
_SPELLINGS = {op.replace("_", ""): op for op in OPS} | {
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "alltoallpersonalizedexchange": "all_to_all",
    "allgatherv": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescatterblock": "reduce_scatter",
    "bcast": "broadcast",
    "pt2pt": "send_recv",
    "p2p": "send_recv",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
}


@dataclass(frozen=True)
class Sweep:
    """Times of one collective over message sizes, one entry per size, ascending.

    `bytes` is the whole vector S: what each rank holds after an all-gather, before a reduce-scatter, and
    what it sends in total in an all-to-all. `repeats` counts the measurements behind each entry, whose
    median `time_s` [s] is.
    """

    op: str
    ranks: int
    nodes: int | None
    bytes: NDArray[np.float64]
    time_s: NDArray[np.float64]
    repeats: NDArray[np.int64]
    placement: str = "out_of_place"
    dtype: str | None = None
    device: str | None = None
    algorithm: str | None = None
    line: int = 0

    def bus_bandwidth(self) -> NDArray[np.float64]:
        """Bus bandwidth [B/s]: S / time * bus_factor."""
        return self.bytes / self.time_s * bus_factor(self.op, self.ranks)


@dataclass(frozen=True, kw_only=True)
class SweepLog(Reading):
    """The sweeps of one log, in the order in which they stand there."""

    sweeps: tuple[Sweep, ...] = ()
    warnings: tuple[str, ...] = ()


def canonical_op(name: str) -> str | None:
    """The project's name of a collective however a tool spells it; None when it is none.

    >>> canonical_op("AllReduce"), canonical_op("alltoall_perf"), canonical_op("reduce-scatter"), canonical_op("gemm")
    ('all_reduce', 'all_to_all', 'reduce_scatter', None)
    """
    return _SPELLINGS.get(re.sub(r"[^a-z0-9]", "", name.lower().removesuffix("_perf")))


def absurd(size_bytes: float, time_s: float) -> str | None:
    """Why a timing cannot be one of a collective: more bytes than any memory, a time that no clock tells, a rate beyond
    every link; None for one that can.

    >>> absurd(2.0**20, 5e-5), absurd(1e30, 1.0), absurd(2.0**20, 1e-15)
    (None, 'a message of 1e+30 bytes', 'a call of 1e-15 s')
    """
    if not 0.0 < size_bytes <= LARGEST_MESSAGE_BYTES:
        return f"a message of {size_bytes:g} bytes"
    if not SHORTEST_CALL_S <= time_s <= LONGEST_CALL_S:
        return f"a call of {time_s:g} s"
    rate = size_bytes / time_s
    return f"a rate of {rate:g} B/s" if rate > LARGEST_RATE else None


def bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n for an all-reduce,
    (n-1)/n for operations in which each rank keeps a share, 1 for the rest.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("broadcast", 8)
    (1.75, 0.75, 1.0)
    """
    if op == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def make_sweep(
    op: str,
    ranks: int,
    points: Sequence[tuple[float, float]],
    *,
    nodes: int | None = None,
    placement: str = "out_of_place",
    dtype: str | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    line: int = 0,
) -> Sweep:
    """A sweep of (bytes, seconds) points in any order; repeated sizes become their median."""
    sizes: dict[float, list[float]] = {}
    for size, time in points:
        sizes.setdefault(size, []).append(time)
    ordered = sorted(sizes)
    return Sweep(
        op,
        ranks,
        nodes,
        np.array(ordered, dtype=np.float64),
        np.array([float(np.median(sizes[size])) for size in ordered], dtype=np.float64),
        np.array([len(sizes[size]) for size in ordered], dtype=np.int64),
        placement,
        dtype,
        device,
        algorithm,
        line,
    )
