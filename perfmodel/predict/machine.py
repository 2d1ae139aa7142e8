"""The numbers of a cluster that the step model reads, at one precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.specs.hardware import Accelerator, Cluster

Array = NDArray[np.float64]

# Precisions to fall back on, in order, when a device has no datasheet rate for the one asked for.
FALLBACKS: dict[str, tuple[str, ...]] = {
    "fp64": ("fp64", "fp32"),
    "fp32": ("fp32", "tf32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32", "bf16"),
    "fp16": ("fp16", "bf16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp8": ("fp8", "int8", "bf16", "fp16"),
    "fp4": ("fp4", "fp8", "bf16"),
    "int8": ("int8", "fp8", "bf16"),
}
ELEMENT_BYTES: dict[str, float] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "fp4": 2, "int8": 2}
WEIGHT_BYTES: dict[str, float] = {**ELEMENT_BYTES, "fp8": 1.5, "fp4": 1.25}
DEFAULT_NETWORK_BYTES_PER_S = 12.5e9  # 100 Gbit/s a node where nobody says; a belief widens it
HOST_LINK_BYTES_PER_S = 12e9  # PCIe 3 x16 as copied; what a parameter server on the host sees


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, or many along a trailing axis. SI units."""

    peak_flop_per_s: Array
    peak16_flop_per_s: Array  # attention and logits stay in 16 bit
    memory_bytes: Array
    memory_bytes_per_s: Array
    element_bytes: Array
    weight_bytes: Array
    is_low_precision: Array  # 1 below 16 bit
    node: Array  # accelerators that share a host
    domain: Array  # accelerators that share scale-up links
    up_bytes_per_s: Array  # per accelerator and direction
    out_bytes_per_s: Array  # per accelerator and direction
    up_latency_s: Array
    out_latency_s: Array
    in_switch: Array  # 1 where the switch reduces
    host_link_bytes_per_s: Array


def peak(accelerator: Accelerator, precision: str) -> float:
    """Datasheet rate at `precision`, or at the nearest precision that the device has [FLOP/s]."""
    for name in FALLBACKS[precision]:
        rate = accelerator.peak.get(name)
        if rate:
            return float(rate)
    return float(max(accelerator.peak.values()))


def machine(cluster: Cluster, precision: str) -> Machine:
    """Read a resolved cluster."""
    node = cluster.node
    device = node.accelerator
    up, out = node.scale_up, cluster.scale_out
    per_node = float(node.accelerators_per_node)
    domain = float(node.scale_up_domain or per_node)
    nics = float(cluster.nics_per_node or node.nics_per_node or 1)
    oversubscription = float(cluster.topology.oversubscription) if cluster.topology else 1.0
    out_rate = (out.bandwidth * nics / per_node / oversubscription) if out is not None else DEFAULT_NETWORK_BYTES_PER_S / per_node
    low = precision in ("fp8", "fp4", "int8")
    return Machine(
        peak_flop_per_s=np.asarray(peak(device, precision)),
        peak16_flop_per_s=np.asarray(peak(device, "bf16" if low else precision)),
        memory_bytes=np.asarray(float(device.memory)),
        memory_bytes_per_s=np.asarray(float(device.memory_bandwidth)),
        element_bytes=np.asarray(ELEMENT_BYTES[precision]),
        weight_bytes=np.asarray(WEIGHT_BYTES[precision]),
        is_low_precision=np.asarray(float(low)),
        node=np.asarray(per_node),
        domain=np.asarray(domain),
        up_bytes_per_s=np.asarray(float(up.bandwidth) if up is not None else HOST_LINK_BYTES_PER_S),
        out_bytes_per_s=np.asarray(out_rate),
        up_latency_s=np.asarray(float(up.latency) if up is not None and up.latency else 2e-6),
        out_latency_s=np.asarray(float(out.latency) if out is not None and out.latency else 5e-6),
        in_switch=np.asarray(float(bool(up is not None and up.in_network_reduction))),
        host_link_bytes_per_s=np.asarray(HOST_LINK_BYTES_PER_S),
    )


def stack(items: Sequence[Machine]) -> Machine:
    """Many machines along a trailing axis."""
    return Machine(**{f.name: np.array([float(getattr(item, f.name)) for item in items]) for f in fields(Machine)})
