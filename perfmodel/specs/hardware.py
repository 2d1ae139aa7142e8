"""Accelerator, link, node, cluster: the catalogue's hardware files. Attributes are SI floats."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.fields import (
    Count,
    CountOrZero,
    Efficiency,
    Number,
    Quantity,
    Record,
    SpecModel,
)
from perfmodel.specs.precisions import Precision

Rate = Annotated[float, Quantity("FLOP/s", least="1 GFLOP/s", most="1 EFLOP/s")]
Bandwidth = Annotated[float, Quantity("B/s", least="1 MB/s", most="50 TB/s")]
Latency = Annotated[float, Quantity("s", most="100 ms")]
Power = Annotated[float, Quantity("W", most="10 MW")]

LinkKind = Literal["scale-up", "switch", "pcie", "scale-out", "cpu", "torus"]
NodeTopology = Literal[
    "nvswitch", "cube-mesh", "ring", "pcie-tree", "torus", "fully-connected", "bridge-pairs", "single"
]
FabricKind = Literal["rail", "fat-tree", "torus", "dragonfly", "direct"]


class Crowd(SpecModel):
    """Rates of one accelerator while all ranks of its host work at once, over those when it works alone."""

    ranks: Annotated[int, Number(least=2, most=4096, whole=True)] = Field(
        description="Ranks that worked at once."
    )
    matmul: Efficiency = Field(description="Matmul rate kept.")
    memory: Efficiency = Field(description="Memory bandwidth kept.")


class Accelerator(Record):
    """One device as the framework sees it (a GPU, a TPU chip, a GCD)."""

    vendor: str | None = Field(None, description="Who makes it.")
    architecture: str | None = Field(None, description="The chip's architecture.")
    generation: str | None = Field(
        None, description="Family name under which coefficients are shared: ampere, hopper, tpu-v4."
    )
    year: Annotated[int, Number(least=1990, most=2100, whole=True)] | None = Field(
        None, description="Year of release."
    )
    memory: Annotated[float, Quantity("B", least="100 MB", most="10 TB")] = Field(
        description="Device memory."
    )
    memory_type: str | None = Field(None, description="HBM3, GDDR6, ...")
    memory_bandwidth: Annotated[float, Quantity("B/s", least="1 GB/s", most="100 TB/s")] = Field(
        description="Datasheet bandwidth of the device memory."
    )
    peak: dict[Precision, Rate] = Field(
        description="Dense peak rate by precision (matmul units, 32-bit accumulation).", min_length=1
    )
    l2: Annotated[float, Quantity("B", most="10 GB")] | None = Field(
        None, description="Last-level cache or scratch memory."
    )
    compute_units: Annotated[int, Number(least=1, most=10_000, whole=True)] | None = Field(
        None, description="SMs, CUs or cores; of GPUs, how many tiles of a matrix product are made at once."
    )
    boost_clock_mhz: Annotated[float, Number(least=100, most=10_000)] | None = Field(
        None, description="Boost clock in MHz."
    )
    tdp: Annotated[float, Quantity("W", least="1 W", most="20 kW")] | None = Field(
        None, description="Rated power under load."
    )
    idle_power: Annotated[float, Quantity("W", most="20 kW")] | None = Field(
        None, description="Power at rest."
    )
    launch_overhead: Annotated[float, Quantity("s", most="1 ms")] | None = Field(
        None, description="Time to start one kernel, measured."
    )
    matmul_fraction: Efficiency | None = Field(
        None, description="Best 16-bit matmul rate over the peak, measured."
    )
    memory_fraction: Efficiency | None = Field(
        None, description="Streaming bandwidth over the datasheet's, measured."
    )
    crowd: Crowd | None = Field(
        None, description="What it keeps of its rates while its neighbours work too, measured."
    )
    scale_up: str | None = Field(None, description="Link id by which it usually reaches its neighbours.")
    scale_up_bandwidth: Bandwidth | None = Field(
        None, description="Scale-up bandwidth per direction of this device."
    )
    pcie: Annotated[int, Number(least=1, most=8, whole=True)] | None = Field(
        None, description="PCIe generation of the host link."
    )
    peer_access: bool = Field(
        True,
        description="Whether it reaches its neighbours' memory over PCIe; if not, what they exchange goes through the host's.",
    )

    def trains_in(self, precision: str) -> bool:
        """Whether it can multiply so narrow numbers; wider ones stand in for each other. TPUs train fp8 as integers."""
        if precision not in ("fp8", "fp4") or precision in self.peak:
            return True
        is_tpu = (self.generation or "").startswith("tpu")
        return precision == "fp8" and is_tpu and "int8" in self.peak


class Link(Record):
    """A way between devices (scale-up) or between nodes (scale-out)."""

    kind: LinkKind | None = Field(None, description="scale-up, switch, pcie, scale-out, cpu or torus.")
    latency: Latency = Field(description="alpha: time of a very small message, one hop.")
    bandwidth: Bandwidth = Field(description="Per direction: per device for scale-up, per NIC for scale-out.")
    ports: Count | None = Field(None, description="Lanes or links that add up to the bandwidth.")
    efficiency: Efficiency | None = Field(
        None, description="Achieved over nominal bandwidth of large transfers, measured."
    )
    library_bandwidth: Bandwidth | None = Field(
        None, description="Bandwidth that the collective library assumes per link."
    )
    collective_step: Latency | None = Field(None, description="Time of one step of a collective, fitted.")
    collective_efficiency: Annotated[float, Number(least=0, most=1.5, above=True)] | None = Field(
        None,
        description="Bandwidth factor of collectives, fitted (it may pass 1 where a link beats its nominal share).",
    )
    collective_basis: Literal["fit", "inherited"] | None = Field(
        None, description="Fitted on this link or taken from a related one."
    )
    overlap: Annotated[float, Number(least=0, most=1)] | None = Field(
        None,
        description="Share of a collective that compute can hide, measured; the rest slows compute down.",
    )
    in_network_reduction: bool = Field(False, description="Whether the switches add up values on the way.")
    topology: NodeTopology | None = Field(
        None, description="How it joins the accelerators of a node that states no topology."
    )


# Of what a node's rating leaves beside its accelerators, in training. Derived: a node of 8 H100 rated 10.2 kW draws 76 %
# of that (Latif et al., arXiv:2412.08602), of which accelerators that compute make up 5.1 kW by physics/energy.py.
HOST_LOAD = 0.57


class Node(Record):
    """One machine: accelerators, the links between them, and its network cards."""

    provider: str | None = Field(None, description="Who sells or rents it.")
    accelerator: Accelerator = Field(description="Accelerator id, or an inline accelerator.")
    accelerators_per_node: Annotated[int, Number(least=1, most=4096, whole=True)] = Field(
        description="Accelerators under one host (or in one rack-scale machine)."
    )
    scale_up: Link | None = Field(None, description="Link between the accelerators: an id, or inline.")
    topology: NodeTopology | None = Field(None, description="How the accelerators are joined.")
    scale_up_domain: Annotated[int, Number(least=1, most=100_000, whole=True)] | None = Field(
        None,
        description="Accelerators that reach each other over the scale-up link; more than a node's for NVL72 and TPU pods.",
    )
    nics_per_node: Annotated[int, Number(least=0, most=4096, whole=True)] | None = Field(
        None, description="Network cards for traffic between nodes."
    )
    scale_out: Link | None = Field(None, description="Link between nodes, per card: an id, or inline.")
    fabric: str | None = Field(None, description="The network in words.")
    cpu: str | None = Field(None, description="Host processor.")
    cores: Count | None = Field(None, description="Host cores or vCPUs.")
    host_memory: Annotated[float, Quantity("B", most="10 PB")] | None = Field(
        None, description="Host memory."
    )
    max_power: Power | None = Field(None, description="Power of the whole node at most.")
    host_power: Power | None = Field(
        None, description="Power of everything but the accelerators, under load."
    )
    price_key: str | None = Field(None, description="Name of the price record that sells it.")

    @property
    def host_draw(self) -> float | None:
        """Draw of everything but the accelerators in training [W]; None where nothing is known of it."""
        if self.host_power is not None:
            return self.host_power
        if self.max_power is None or self.accelerator.tdp is None:
            return None
        beside = self.max_power - self.accelerator.tdp * self.accelerators_per_node
        return HOST_LOAD * max(beside, 0.0)


class Fabric(SpecModel):
    """How nodes are joined."""

    kind: FabricKind = Field(description="rail (rail-optimised), fat-tree, torus, dragonfly or direct.")
    oversubscription: Annotated[float, Number(least=1, most=100)] = Field(
        1.0, description="Bandwidth into over out of a leaf switch; 1 is none."
    )
    leaf_nodes: Count | None = Field(None, description="Nodes under one leaf switch (or one scalable unit).")
    dimensions: tuple[Count, ...] | None = Field(None, description="Torus sizes.")


class Cluster(Record):
    """Many nodes on one fabric."""

    node: Node = Field(description="Node id, or an inline node.")
    scale_out: Link | None = Field(None, description="Link between nodes; the node's own when missing.")
    nics_per_node: CountOrZero | None = Field(
        None, description="Network cards used; the node's own when missing."
    )
    network_per_node: Bandwidth | None = Field(
        None,
        description="Rate per direction of all network cards of a node together, where that is what is known; "
        "cards times the rate of one when missing.",
    )
    topology: Fabric | None = Field(
        None, description="The fabric; rail-optimised without oversubscription when missing."
    )
    max_nodes: Count | None = Field(None, description="How many nodes there are; unlimited when missing.")

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of every node."""
        return self.node.accelerator

    @property
    def network(self) -> Link | None:
        """The link between nodes: the cluster's own, else the node's."""
        return self.scale_out or self.node.scale_out

    @property
    def cards(self) -> int | None:
        """Network cards of a node: those used, else the node's own; None where neither is stated."""
        return self.nics_per_node or self.node.nics_per_node

    @property
    def network_bytes_per_s(self) -> float | None:
        """Rate of a node's network per direction [B/s]: as stated, else cards times link; None without a network."""
        if self.network_per_node is not None:
            return self.network_per_node
        out = self.network
        return None if out is None else out.bandwidth * (self.cards or 1)

    @property
    def max_accelerators(self) -> int | None:
        """How many accelerators there are, or None."""
        return None if self.max_nodes is None else self.max_nodes * self.node.accelerators_per_node
