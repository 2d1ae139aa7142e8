"""The numbers of a cluster that the step model reads, at one precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import (
    DEFAULT_HOST_LATENCY_S,
    DEFAULT_NETWORK_BYTES_PER_S,
    DEFAULT_NETWORK_LATENCY_S,
    HOST_LINK_BYTES_PER_S,
)  # fmt: skip
from perfmodel.physics.topology import usual_wiring
from perfmodel.physics.wiring import UNIFORM, group_share, share_table, torus_axes, torus_share
from perfmodel.specs.hardware import Accelerator, Cluster, Link

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
ELEMENT_BYTES: dict[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 2,
    "fp4": 2,
    "int8": 2,
}
GPU_VENDORS = ("NVIDIA", "AMD")  # whose compute units load the operands of their own matrix units
EARLY_TENSOR_CORES = ("volta", "turing")  # that libraries drove before cuBLAS 11


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, or many along a trailing axis. SI units."""

    peak_flop_per_s: Array
    peak16_flop_per_s: Array  # attention and logits stay in 16 bit
    units: Array  # compute units; 0 where that is unknown, or no GPU
    unit_hz: Array  # cycles per second of all compute units together; 0 where that is unknown, or no GPU
    plain_flop_per_s: Array  # of cores that an old library leaves odd widths to; 0: tensor cores take them
    memory_bytes: Array
    memory_bytes_per_s: Array
    element_bytes: Array
    is_low_precision: Array  # 1 below 16 bit
    fast_convolutions: Array  # 1 where 3x3 ones take Winograd's algorithm: 32 bit on plain cores
    node: Array  # accelerators that share a host
    domain: Array  # accelerators that share scale-up links
    up_bytes_per_s: Array  # per accelerator and direction
    out_bytes_per_s: Array  # per accelerator and direction
    up_latency_s: Array  # of the wire and the switch, beside what software takes
    out_latency_s: Array
    in_switch: Array  # 1 where the switch reduces
    in_network: Array  # 1 where the switches between nodes do
    shared_bus: Array  # 1 where accelerators reach each other over the host's bus
    staged: Array  # share of a ring's hops that go through the host's memory, for want of peer access
    host_link_bytes_per_s: Array
    torus_axes: Array  # of the scale-up links; 0 where they are no torus
    leaf_nodes: Array  # that reach each other at the full rate; beyond, `oversubscription` applies
    oversubscription: Array
    crowd_ranks: (
        Array  # at work on one host when `crowd_flop` and `crowd_memory` were measured; 1: nothing is known
    )
    crowd_flop: Array  # time that compute takes longer then, as a share of its time alone
    crowd_memory: Array  # the same of memory traffic
    up_overlap: Array  # share of a collective inside a node that compute can hide
    out_overlap: Array  # the same across nodes
    up_share: Array  # of the scale-up rate by size and stride of a group: a table on the first axis (see `wiring.py`)

    def share(self, size: Array, stride: Array, reach: Array) -> Array | float:
        """What a group of `size` ranks, `stride` apart, can use of its scale-up links; `reach` run the job there."""
        share: Array | float = 1.0
        if self.up_share is not UNIFORM and (self.up_share < 1.0).any():
            share = group_share(self.up_share, size, stride, self.node)
        if self.torus_axes.any():
            share = share * torus_share(self.torus_axes, size, reach)
        return share

    def crowded(self, ranks: Array) -> tuple[Array, Array] | None:
        """How many times longer compute and memory traffic take while `ranks` of a host work; None where it was not measured.

        Ranks that share cores, caches or a memory bus take turns: the excess grows with the neighbours at work,
        ``1 + excess (n - 1) / (measured - 1)``.
        """
        if not np.any(self.crowd_ranks > 1.0):
            return None
        share = np.maximum(ranks - 1.0, 0.0) / np.maximum(self.crowd_ranks - 1.0, 1.0)
        return 1.0 + self.crowd_flop * share, 1.0 + self.crowd_memory * share

    def taper(self, nodes: Array) -> Array | float:
        """How much slower the network is per node for a group that spans `nodes` than under one leaf switch.

        Of N nodes, L under each leaf, all but L reach the first ones through the spine: ``1 + (o - 1) (1 - L/N)``
        with o the oversubscription, and o wherever the size of a leaf is unknown.
        """
        if not (self.oversubscription > 1.0).any():
            return 1.0
        beyond = np.clip(1.0 - self.leaf_nodes / np.maximum(nodes, 1.0), 0.0, 1.0)
        return np.asarray(1.0 + (self.oversubscription - 1.0) * beyond)


def peak(accelerator: Accelerator, precision: str) -> float:
    """Datasheet rate at `precision`, or at the nearest precision that the device has [FLOP/s].

    Parameters
    ----------
    accelerator : its datasheet.
    precision : such as bf16 or fp8.

    Returns
    -------
    FLOP per second.

    >>> device = Accelerator(name="x", memory=1e9, memory_bandwidth=1e12, peak={"fp16": 2e14, "fp32": 2e13})
    >>> peak(device, "bf16") == 2e14, peak(device, "fp64") == 2e13
    (True, True)
    """
    rates = {str(name): rate for name, rate in accelerator.peak.items()}
    for name in FALLBACKS[precision]:
        rate = rates.get(name)
        if rate:
            return float(rate)
    return float(max(rates.values()))


def machine(cluster: Cluster, precision: str, *, aligned_only: bool = False) -> Machine:
    """Read a resolved cluster.

    Parameters
    ----------
    cluster : resolved, all in SI units.
    precision : such as bf16 or fp8.
    aligned_only : whether tensor cores take products of round widths alone.

    Returns
    -------
    Numbers in SI units.

    >>> from perfmodel.specs.catalog import Catalog
    >>> found = machine(Catalog.default().cluster("dgx-h100"), "bf16")
    >>> float(found.node), bool(found.out_bytes_per_s == 5e10)  # a NIC of 400 Gbit/s each
    (8.0, True)
    """
    node = cluster.node
    per_node = float(node.accelerators_per_node)
    out = cluster.network
    fabric = cluster.topology
    network = cluster.network_bytes_per_s
    return numbers(
        node.accelerator,
        precision,
        per_node=per_node,
        # Cards bridged in pairs reach the other pairs of their host over PCIe, not over the network.
        domain=max(
            float(node.scale_up_domain or per_node), per_node if node.topology == "bridge-pairs" else 1.0
        ),
        scale_up=node.scale_up,
        network_bytes_per_s=DEFAULT_NETWORK_BYTES_PER_S if network is None else network,
        network_latency_s=out.latency if out is not None else DEFAULT_NETWORK_LATENCY_S,
        out_overlap=1.0 if out is None or out.overlap is None else out.overlap,
        topology=node.topology,
        leaf_nodes=float(fabric.leaf_nodes or 0) if fabric is not None else 0.0,
        oversubscription=float(fabric.oversubscription) if fabric is not None and out is not None else 1.0,
        in_network=out is not None and out.in_network_reduction,
        aligned_only=aligned_only,
    )


def numbers(
    device: Accelerator,
    precision: str,
    *,
    per_node: float,
    domain: float,
    scale_up: Link | None,
    network_bytes_per_s: float,
    network_latency_s: float,
    out_overlap: float = 1.0,
    topology: str | None = None,
    leaf_nodes: float = 0.0,
    oversubscription: float = 1.0,
    in_network: bool = False,
    aligned_only: bool = False,
) -> Machine:
    """The struct from its pieces; `network_bytes_per_s` is per node and direction.

    `topology` is how the accelerators of a node are joined, where the link does not say. With `aligned_only` tensor cores
    take products of round widths alone.

    Parameters
    ----------
    device : the accelerator's datasheet.
    precision : such as bf16 or fp8.
    per_node : accelerators that share a host.
    domain : accelerators that share scale-up links.
    scale_up : the link inside a domain; None: the host's bus.
    network_bytes_per_s, network_latency_s : of a node [B/s per direction] and of a message [s].
    out_overlap : share of an exchange across nodes that compute can hide, 0 to 1.
    topology : how the accelerators of a node are joined, where the link does not say.
    leaf_nodes, oversubscription : nodes under one leaf switch, and the taper beyond.
    in_network : whether switches between nodes reduce.
    aligned_only : whether tensor cores take products of round widths alone.

    Returns
    -------
    Numbers in SI units.

    >>> from perfmodel.physics.examples import node
    >>> float(node().out_bytes_per_s)  # 100 GB/s shared by eight
    12500000000.0
    """
    low = precision in ("fp8", "fp4", "int8")
    crowd = device.crowd
    early = device.generation in EARLY_TENSOR_CORES and precision == "fp16"
    units = (device.compute_units or 0) * (device.vendor in GPU_VENDORS)
    values = {
        "peak_flop_per_s": peak(device, precision),
        "peak16_flop_per_s": peak(device, "bf16" if low else precision),
        "units": units,
        "unit_hz": units * (device.boost_clock_mhz or 0.0) * 1e6,
        "plain_flop_per_s": device.peak.get("fp32", 0.0) if aligned_only and early else 0.0,
        "memory_bytes": device.memory,
        "memory_bytes_per_s": device.memory_bandwidth,
        "element_bytes": ELEMENT_BYTES[precision],
        "is_low_precision": low,
        "fast_convolutions": precision == "fp32" and "fp32" in device.peak and device.vendor in GPU_VENDORS,
        "node": per_node,
        "domain": domain,
        "up_bytes_per_s": scale_up.bandwidth if scale_up is not None else HOST_LINK_BYTES_PER_S,
        "out_bytes_per_s": network_bytes_per_s / per_node,
        "up_latency_s": scale_up.latency if scale_up is not None else DEFAULT_HOST_LATENCY_S,
        "out_latency_s": network_latency_s,
        "in_switch": bool(scale_up is not None and scale_up.in_network_reduction),
        "in_network": in_network,
        "shared_bus": scale_up is None or scale_up.kind == "pcie",
        "staged": 0.0 if device.peer_access else _unbridged(scale_up, topology, int(per_node)),
        "host_link_bytes_per_s": HOST_LINK_BYTES_PER_S,
        "torus_axes": torus_axes(topology, scale_up, int(per_node)),
        "leaf_nodes": leaf_nodes,
        "oversubscription": oversubscription,
        "crowd_ranks": crowd.ranks if crowd is not None else 1.0,
        "crowd_flop": 1.0 / crowd.matmul - 1.0 if crowd is not None else 0.0,
        "crowd_memory": 1.0 / crowd.memory - 1.0 if crowd is not None else 0.0,
        "up_overlap": 1.0 if scale_up is None or scale_up.overlap is None else scale_up.overlap,
        "out_overlap": out_overlap,
    }
    return Machine(
        **{name: np.asarray(float(value)) for name, value in values.items()},
        up_share=share_table(topology, scale_up, device, int(per_node)),
    )


def _unbridged(link: Link | None, topology: str | None, count: int) -> float:
    """Share of the hops of a ring through a node that leave a card's own links: all, or every other one of pairs."""
    if link is None or link.kind == "pcie":
        return 1.0
    return 0.5 if (topology or usual_wiring(link, count)) == "bridge-pairs" else 0.0


def stack(items: Sequence[Machine]) -> Machine:
    """Many machines along a trailing axis.

    Parameters
    ----------
    items : machines with scalar numbers.

    Returns
    -------
    One machine whose arrays have one entry for each.

    >>> from perfmodel.physics.examples import node
    >>> stack([node(), node()]).node.tolist()
    [8.0, 8.0]
    """
    if not items:
        none = {f.name: np.zeros(0) for f in fields(Machine)}
        return Machine(**{**none, "up_share": np.zeros((UNIFORM.size, 0))})
    return Machine(
        **{f.name: np.stack([getattr(item, f.name) for item in items], axis=-1) for f in fields(Machine)}
    )
