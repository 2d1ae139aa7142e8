"""What a measured collective depends on, and the form that its time takes.

.. math::
    T = A + W + \\frac{c W + u D}{1 + u}, \\qquad u = \\left(\\frac{c W_0}{D}\\right)^2               (1)

`A` is the latency of the call and of its steps and `W` the time of its bytes. The third term is the choice between two
protocols: a low-latency one (flags travel with the data: `c W` more wire) serves small messages, a simple one (bulk
copies with a handshake a step: `D` more latency) large ones. Small messages take A + (1 + c) W, large ones A + D + W.
Libraries choose by the rate that they expect of their links (NCCL: a table of bandwidths per link type), so `u` has
`W_0`, the bytes' time on a bus that nobody shares: where ranks crowd a host's bus, the low-latency protocol is kept
past the size at which it stopped paying, and the time may fall at the change.

An exchange is a group of sends and receives. They change protocol at a fixed size per peer, u = (S / (n S_0))^2
(`PEER_SWITCH_BYTES`), without the wire of the first protocol; and the host posts one pair for every peer while the device
works, so its time is the norm of order 2 of (1) and of the host's (n - 1) `peer_s`.

`W` joins the two tiers of a pipelined collective by a norm of order 8, nearly a maximum, and takes the least over the
algorithms that libraries choose from.

References: Hockney, Parallel Computing 20 (1994) 389; Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49; Patarasuk,
Yuan, JPDC 69 (2009) 117 (ring); Sanders, Speck, Traeff, Parallel Computing 35 (2009) 581 (two-tree); Graham et al.,
COMHPC 2016 (reduction in switches); NVIDIA, NCCL 2.x, `NCCL_P2P_LL_THRESHOLD` (16 KiB per peer) and `src/graph/tuning.cc`
(the choice of protocol by tabled latency and bandwidth).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import IN_SWITCH_RANKS
from perfmodel.physics.fabric import group_link_share
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Link

Array = NDArray[np.float64]

IN_SWITCH_ORDER: Final = 12.0  # how sharply they change over
TIER_ORDER: Final = 8.0  # of the norm that joins scale-up and network: they are pipelined
HOST_ORDER: Final = 2.0  # of the norm that joins a host that posts sends and a device that serves them
UNKNOWN: Final = "unknown"
ASSUMED_UP_BYTES_PER_S: Final = 450e9  # a blank scale-up link; its belief is wide
ASSUMED_NIC_BYTES_PER_S: Final = 25e9  # per accelerator, where a catalogue has no node at all
ASSUMED_OUT_LATENCY_S: Final = 1.3e-6
ASSUMED_OUT_EFFICIENCY: Final = 0.95
ASSUMED_SOCKET_EFFICIENCY: Final = 0.85  # of a card that the kernel's TCP drives
SOCKET_LINK: Final = "ethernet-25"  # the host's own card: the median of the catalogue's Ethernet links
#: Sends to a peer keep the low-latency protocol up to 16 KiB; sweeps go by powers of two, so it changes half a step above.
PEER_SWITCH_BYTES: Final = 16384 * 2**0.5
MANY_WARM_UPS: Final = 20  # calls before timing; the common benchmarks make five
NVL72_DOMAIN: Final = 72.0
#: A network's step goes with this power of the latency of its link: most of a step is the library's own work.
LATENCY_POWER: Final = 0.4
REFERENCE_LATENCY_S: Final = 1e-6  # that the prior of a network's step belongs to

#: Operations that share coefficients.
CLASSES: Final = {
    "all_gather": "gather_scatter",
    "reduce_scatter": "gather_scatter",
    "broadcast": "rooted",
    "reduce": "rooted",
}

#: Logarithms that the form reads, with prior median and spread of the value common to everything.
QUANTITIES: Final[dict[str, tuple[float, float]]] = {
    "base_s": (8e-6, 1.0),
    "up_step_s": (1e-6, 0.7),
    "out_step_s": (10e-6, 0.5),
    "up_efficiency": (0.82, 0.1),
    "out_efficiency": (1.0, 0.2),  # as a multiple of the catalogue's
    "in_switch": (0.57, 0.2),
    "copy": (0.38, 0.3),  # of a rank's own shard, in units of its bytes at the full rate
    "crowding": (0.5, 0.5),  # power by which a host's bus is shared beyond a pair
    "peer_s": (1e-6, 1.0),  # of the host, for every peer of an exchange: it is a group of sends and receives
    "extra_wire": (1.5, 0.5),  # c of equation (1)
    "extra_steps": (3.0, 0.5),  # D of equation (1), inside a domain
    "extra_out_steps": (2.0, 0.5),  # and per step of a ring between domains
}


@dataclass(frozen=True)
class Points:
    """Measured or asked-for collectives, one element a point. SI units.

    `keys` names the levels (generation, link kind, ...) by which coefficients are shared.
    """

    op: NDArray[np.str_]
    message_bytes: Array
    ranks: Array
    domains: Array  # scale-up domains that the group spans
    up_bytes_per_s: Array  # nominal, per accelerator and direction, of all its links
    up_share: Array  # of these, what the group can use
    out_bytes_per_s: Array  # nominal, per domain and direction
    out_latency_s: Array  # of the link between domains, as the catalogue has it
    out_efficiency: Array  # likewise
    in_switch: NDArray[np.bool_]
    is_bus: NDArray[np.bool_]  # accelerators joined by the host's bus
    keys: Mapping[str, NDArray[np.str_]]

    @cached_property
    def counted(self) -> Counts:
        """What does not depend on the quantities: a fit asks for the same points a thousand times."""
        return _count(self.op, self.ranks, self.domains)

    def take(self, rows: NDArray[np.bool_ | np.intp]) -> Points:
        """Some of the points."""
        return Points(
            self.op[rows],
            self.message_bytes[rows],
            self.ranks[rows],
            self.domains[rows],
            self.up_bytes_per_s[rows],
            self.up_share[rows],
            self.out_bytes_per_s[rows],
            self.out_latency_s[rows],
            self.out_efficiency[rows],
            self.in_switch[rows],
            self.is_bus[rows],
            {name: values[rows] for name, values in self.keys.items()},
        )


def points(rows: Sequence[Mapping[str, str]], catalog: Catalog) -> Points:
    """Read rows of a collectives table; what the catalogue does not know is `unknown`, with an assumed rate.

    A row's note may state the network (InfiniBand, RoCE, TCP sockets) and how many warm-up calls were made. Remarks that
    were drawn from the times themselves are not read: they would tell a held-out sweep's answer.
    """
    seen: dict[tuple[str, ...], Setting] = {}
    names = (
        "op",
        "accelerator",
        "accelerators_per_node",
        "ranks",
        "nodes",
        "scale_up",
        "scale_out",
        "algorithm",
        "note",
    )
    found: list[Setting] = []
    for row in rows:
        key = tuple(row.get(name) or "" for name in names)
        if key not in seen:
            seen[key] = _setting(dict(zip(names, key, strict=True)), catalog)
        found.append(seen[key])
    labels = found[0]["keys"] if found else {}
    return Points(
        op=np.array([f["op"] for f in found], dtype=np.str_),
        message_bytes=np.array([float(row["bytes"]) for row in rows]),
        ranks=np.array([f["ranks"] for f in found], float),
        domains=np.array([f["domains"] for f in found], float),
        up_bytes_per_s=np.array([f["up"] for f in found], float),
        up_share=np.array([f["share"] for f in found], float),
        out_bytes_per_s=np.array([f["out"] for f in found], float),
        out_latency_s=np.array([f["latency"] for f in found], float),
        out_efficiency=np.array([f["efficiency"] for f in found], float),
        in_switch=np.array([f["in_switch"] for f in found], dtype=bool),
        is_bus=np.array([f["is_bus"] for f in found], dtype=bool),
        keys={name: np.array([f["keys"][name] for f in found], dtype=np.str_) for name in labels},
    )


class Setting(TypedDict):
    """What a row of the table says of its machine and its call."""

    op: str
    ranks: float
    domains: float
    up: float
    share: float
    out: float
    latency: float
    efficiency: float
    in_switch: bool
    is_bus: bool
    keys: dict[str, str]


def _setting(text: Mapping[str, str], catalog: Catalog) -> Setting:
    accelerators, links = set(catalog.names("accelerators")), set(catalog.names("links"))
    name = text["accelerator"]
    accelerator = catalog.get("accelerators", name) if name in accelerators else None
    generation = (accelerator.generation if accelerator is not None else None) or UNKNOWN
    up_name = text["scale_up"] or (accelerator.scale_up if accelerator is not None else None) or UNKNOWN
    up = catalog.get("links", up_name) if up_name in links else None
    out_name = text["scale_out"] or _stated_network(text["note"], catalog, name)
    out = catalog.get("links", out_name) if out_name in links else None
    ranks = float(text["ranks"])
    per_node = float(text["accelerators_per_node"] or 8)
    nodes = max(1.0, float(text["nodes"] or 1))
    domains = float(np.ceil(ranks / NVL72_DOMAIN)) if up_name == "nvl72" else nodes
    inside = ranks / domains
    kind = _kind(up_name)
    ring_only = "NVLS off" in text["algorithm"] or text["algorithm"] == "Ring"
    op = text["op"]
    crosses = domains > 1
    return {
        "op": op,
        "ranks": ranks,
        "domains": domains,
        "up": up.bandwidth if up is not None else ASSUMED_UP_BYTES_PER_S,
        "share": float(group_link_share(_wiring(up_name), inside, per_node)),
        "out": inside * _nic_rate(catalog, name, out, per_node),
        "latency": out.latency if out is not None else ASSUMED_OUT_LATENCY_S,
        "efficiency": _efficiency(out),
        "in_switch": op == "all_reduce"
        and bool(up is not None and up.in_network_reduction)
        and not ring_only,
        "is_bus": kind == "pcie",
        "keys": {
            "op": CLASSES.get(op, op),
            "generation": generation,
            "accelerator": name or UNKNOWN,
            "up_kind": kind,
            "up": up_name,
            "out_kind": (_out_kind(out_name) if out_name != UNKNOWN else _usual(catalog, name))
            if crosses
            else UNKNOWN,
            "out": out_name if crosses else UNKNOWN,
            "tier": "network" if crosses else "inside",
            "style": "warmed" if _warm_ups(text["note"]) >= MANY_WARM_UPS else "plain",
        },
    }


def _kind(name: str) -> str:
    for prefix, kind in (("nvswitch", "nvlink"), ("nvl", "nvlink"), ("xgmi", "xgmi"), ("pcie", "pcie")):
        if name.startswith(prefix):
            return kind
    return name if name == UNKNOWN else "other"


def _out_kind(name: str) -> str:
    for part, kind in (
        ("tcpx", "tcpx"),
        ("ethernet", "tcp"),
        ("roce", "roce"),
        ("ib-", "ib"),
        ("efa", "efa"),
    ):
        if part in name:
            return kind
    return UNKNOWN


def _warm_ups(note: str) -> int:
    """Warm-up calls that a note states, else none.

    >>> _warm_ups("nccl-tests, 40 warm-ups"), _warm_ups("excerpt")
    (40, 0)
    """
    found = re.search(r"(\d+) warm-ups", note)
    return int(found[1]) if found else 0


def _stated_network(note: str, catalog: Catalog, accelerator: str) -> str:
    """Link that a note names in words: the one of that kind which most nodes with this accelerator have."""
    said = note.lower()
    if "tcp sockets" in said:
        return SOCKET_LINK
    kind = "ib" if "infiniband" in said else "roce" if "roce" in said else ""
    names = [link.name for link, *_ in _networks(catalog, accelerator) if _out_kind(link.name) == kind]
    return str(max(sorted(set(names)), key=names.count)) if names else UNKNOWN


def _efficiency(link: Link | None) -> float:
    if link is None:
        return ASSUMED_OUT_EFFICIENCY
    return float(link.efficiency or (ASSUMED_SOCKET_EFFICIENCY if _out_kind(link.name) == "tcp" else 0.9))


def _wiring(link: str) -> str:
    if "cube-mesh" in link:
        return "cube-mesh"
    return "fully-connected" if link.startswith("xgmi") else "nvswitch"


def _networks(catalog: Catalog, accelerator: str | None = None) -> list[tuple[Link, int, int]]:
    """Network of each of the catalogue's nodes with this accelerator, its cards and accelerators."""
    nodes = [catalog.get("nodes", name) for name in catalog.names("nodes")]
    return [
        (n.scale_out, n.nics_per_node, n.accelerators_per_node)
        for n in nodes
        if n.scale_out and n.nics_per_node and accelerator in (None, n.accelerator.name)
    ]


def _usual(catalog: Catalog, accelerator: str) -> str:
    """Kind of network that most of the catalogue's nodes with this accelerator have."""
    kinds = [_out_kind(link.name) for link, *_ in _networks(catalog, accelerator)]
    return max(sorted(set(kinds)), key=kinds.count) if kinds else "ib"


def _nic_rate(catalog: Catalog, accelerator: str, link: Link | None, per_node: float) -> float:
    """Network [B/s] per accelerator: of nodes with this accelerator and link, else with the link, else one NIC each.

    Without a link, of nodes with this accelerator, else of all. Sockets use one card of the host.
    """
    if link is None:
        known = _networks(catalog, accelerator) or _networks(catalog)
        rates = [network.bandwidth * cards / count for network, cards, count in known]
        return float(np.median(rates)) if rates else ASSUMED_NIC_BYTES_PER_S
    if link.name == SOCKET_LINK:
        return float(link.bandwidth / per_node)
    found: list[tuple[bool, float]] = []
    for name in catalog.names("nodes"):
        node = catalog.get("nodes", name)
        if node.scale_out is not None and node.scale_out.name == link.name and node.nics_per_node:
            found.append((node.accelerator.name == accelerator, float(node.nics_per_node)))
    counts = [count for same, count in found if same] or [count for _, count in found] or [per_node]
    return float(link.bandwidth * np.median(counts) / per_node)


@dataclass(frozen=True)
class Counts:
    """What equation (1) counts of every point, whatever the quantities are."""

    group: Array  # ranks of one scale-up domain
    exchange: NDArray[np.bool_]
    rooted: NDArray[np.bool_]
    steps_up: Array
    steps_out: Array
    ring_out: Array
    moved: Array  # bytes over a rank's links inside the domain, in messages
    wire: Array  # bytes between domains, in messages


def _count(op: NDArray[np.str_], n: Array, k: Array) -> Counts:
    g = n / k
    reduce_all, exchange = op == "all_reduce", op == "all_to_all"
    gather = (op == "all_gather") | (op == "reduce_scatter")
    rooted = ~(reduce_all | exchange | gather)
    tree, ring = np.log2(k), k - 1
    all_wire = np.minimum(2 - 2 / n, 0.5 * k)
    one = np.ones_like(g)
    return Counts(
        group=g,
        exchange=exchange,
        rooted=rooted,
        steps_up=np.select([reduce_all, gather, exchange], [2 * (g - 1), n - k, np.log2(g)], g - 1),
        steps_out=np.select([reduce_all, gather | exchange], [2 * tree, ring], tree),
        ring_out=np.where(reduce_all, 2 * ring, ring),
        moved=np.select([reduce_all, rooted], [2 * (1 - 1 / g), one], 1 - 1 / g),
        wire=np.select([reduce_all, exchange, rooted], [all_wire, g * ring / k, one], 1 - 1 / n),
    )


def seconds(at: Points, logs: Mapping[str, Array]) -> Array:
    """Equation (1) of this module; `logs` holds the natural logarithm of every quantity of `QUANTITIES`."""
    value = {name: np.exp(x) for name, x in logs.items()}
    n, k, size = at.ranks, at.domains, at.message_bytes
    count = at.counted
    g, exchange, rooted = count.group, count.exchange, count.rooted
    inside = value["base_s"] + count.steps_up * value["up_step_s"]
    step_out = value["out_step_s"] * (at.out_latency_s / REFERENCE_LATENCY_S) ** LATENCY_POWER

    # Bytes: the own shard is copied at the device's full rate, unless that too goes over the host's bus.
    crowd = (2 / np.maximum(g, 2)) ** np.where(at.is_bus, value["crowding"], 0.0)
    copied = np.where(rooted, 0.0, value["copy"] / n)
    up = size * (count.moved / at.up_share + copied) / (crowd * at.up_bytes_per_s * value["up_efficiency"])
    avoided = 1 + (IN_SWITCH_RANKS / g) ** IN_SWITCH_ORDER
    switch = size * avoided / (at.up_bytes_per_s * value["in_switch"])
    up = np.where(at.in_switch, np.minimum(up, switch), up)
    rate = at.out_bytes_per_s * at.out_efficiency * value["out_efficiency"]
    out = np.where(k > 1, size * count.wire / rate, 0.0)
    work = _norm(up, out, TIER_ORDER)

    # Choice of protocol: by the bytes' time on a bus of one's own, or by the size per peer.
    low = np.where(exchange, 0.0, value["extra_wire"] * work)
    simple = value["extra_steps"] * inside + value["extra_out_steps"] * count.ring_out * step_out
    expected = value["extra_wire"] * _norm(up * crowd, out, TIER_ORDER)
    odds = np.square(np.where(exchange, size / n / PEER_SWITCH_BYTES, expected / simple))
    device = inside + count.steps_out * step_out + work + (low + odds * simple) / (1 + odds)
    host = np.where(exchange, (n - 1) * value["peer_s"], 0.0)
    return _norm(device, host, HOST_ORDER)


def _norm(x: Array, y: Array, order: float) -> Array:
    """The norm of this order of two non-negative terms, scaled by the larger; `x` or `y` is positive."""
    large, small = np.maximum(x, y), np.minimum(x, y)
    return np.asarray(large * (1 + (small / large) ** order) ** (1 / order))
