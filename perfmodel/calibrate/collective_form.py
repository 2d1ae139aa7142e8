"""What a measured collective depends on, and the form that its time takes.

.. math::
    T = \\min_{\\text{protocol}} (A^p + W^p)^{1/p}                                            (1)

`A` is the latency of the call and of its steps, `W` the time of its bytes, and the minimum (smooth, of order
-`SWITCH`) is over a low-latency protocol (flags travel with the data: short steps, more wire) and a simple one
(bulk copies: `step_ratio` longer steps, the full rate). `W` joins the two tiers of a pipelined collective by a norm of
order `TIERS`, nearly a maximum, and takes the least over the algorithms that libraries choose from.

References: Hockney, Parallel Computing 20 (1994) 389; Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005) 49; Patarasuk,
Yuan, JPDC 69 (2009) 117 (ring); Sanders, Speck, Traeff, Parallel Computing 35 (2009) 581 (two-tree); Graham et al.,
COMHPC 2016 (reduction in switches).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.models.fabric import group_link_share
from perfmodel.specs.catalog import Catalog

Array = NDArray[np.float64]

TIERS: Final = 6.0
SWITCH: Final = 4.0
IN_SWITCH_RANKS: Final = 5.0  # libraries keep to the ring in smaller groups
NO_PEER: Final = (
    "rtx-20",
    "rtx-30",
    "rtx-40",
    "rtx-50",
)  # cards whose driver stages every copy through the host
UNKNOWN: Final = "unknown"
ASSUMED_UP_BYTES_PER_S: Final = 450e9  # a blank scale-up link; its belief is wide
ASSUMED_NIC_BYTES_PER_S: Final = 50e9  # per accelerator, where no network is named; its belief is wide
NVL72_DOMAIN: Final = 72.0
#: A network's step in a collective goes with the root of the latency of its link; the median belongs to this latency.
REFERENCE_LATENCY_S: Final = 2e-6

#: Operations that share coefficients.
CLASSES: Final = {
    "all_gather": "gather_scatter",
    "reduce_scatter": "gather_scatter",
    "broadcast": "rooted",
    "reduce": "rooted",
}

#: Logarithms that the form reads, with prior median and spread of the value common to everything.
QUANTITIES: Final[dict[str, tuple[float, float]]] = {
    "base_s": (12e-6, 0.7),
    "up_step_s": (1.0e-6, 0.5),
    "out_step_s": (13e-6, 0.5),
    "up_efficiency": (0.85, 0.2),
    "out_efficiency": (0.9, 0.2),
    "in_switch": (0.6, 0.2),
    "copy": (0.38, 0.5),
    "shared_bus": (0.54, 0.4),
    "knee": (0.75, 0.2),
    "step_ratio": (2.5, 0.4),
    "wire_ratio": (2.0, 0.4),
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
    up_bytes_per_s: Array  # nominal, per accelerator and direction, of the links that the group can use
    out_bytes_per_s: Array  # nominal, per domain and direction
    out_latency_s: Array  # of the link between domains, as the catalogue has it
    in_switch: NDArray[np.bool_]
    is_bus: NDArray[np.bool_]  # more than two accelerators on the host's bus, or no peer access
    keys: Mapping[str, NDArray[np.str_]]

    def take(self, rows: NDArray[Any]) -> Points:
        """Some of the points."""
        return Points(
            self.op[rows],
            self.message_bytes[rows],
            self.ranks[rows],
            self.domains[rows],
            self.up_bytes_per_s[rows],
            self.out_bytes_per_s[rows],
            self.out_latency_s[rows],
            self.in_switch[rows],
            self.is_bus[rows],
            {name: values[rows] for name, values in self.keys.items()},
        )


def points(rows: Sequence[Mapping[str, str]], catalog: Catalog) -> Points:
    """Read rows of a collectives table; what the catalogue does not know is `unknown`, with an assumed rate."""
    seen: dict[tuple[str, ...], dict[str, Any]] = {}
    names = (
        "op",
        "accelerator",
        "accelerators_per_node",
        "ranks",
        "nodes",
        "scale_up",
        "scale_out",
        "algorithm",
    )
    found: list[dict[str, Any]] = []
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
        out_bytes_per_s=np.array([f["out"] for f in found], float),
        out_latency_s=np.array([f["latency"] for f in found], float),
        in_switch=np.array([f["in_switch"] for f in found], dtype=bool),
        is_bus=np.array([f["is_bus"] for f in found], dtype=bool),
        keys={name: np.array([f["keys"][name] for f in found], dtype=np.str_) for name in labels},
    )


def _setting(text: Mapping[str, str], catalog: Catalog) -> dict[str, Any]:
    accelerators, links = set(catalog.names("accelerators")), set(catalog.names("links"))
    name = text["accelerator"]
    accelerator: Any = catalog.get("accelerators", name) if name in accelerators else None
    generation = (accelerator.generation if accelerator is not None else None) or UNKNOWN
    up_name = text["scale_up"] or (accelerator.scale_up if accelerator is not None else None) or UNKNOWN
    up: Any = catalog.get("links", up_name) if up_name in links else None
    out_name = text["scale_out"] or UNKNOWN
    out: Any = catalog.get("links", out_name) if out_name in links else None
    ranks = float(text["ranks"])
    per_node = float(text["accelerators_per_node"] or 8)
    nodes = max(1.0, float(text["nodes"] or 1))
    domains = np.ceil(ranks / NVL72_DOMAIN) if up_name == "nvl72" else nodes
    inside = ranks / domains
    kind = _kind(up_name)
    share = float(group_link_share(_wiring(up_name), inside, per_node))
    rate = (up.bandwidth if up is not None else ASSUMED_UP_BYTES_PER_S) * share
    nics = _nics(catalog, name, out_name, per_node)
    network = (out.bandwidth if out is not None else ASSUMED_NIC_BYTES_PER_S) * nics
    if up_name == "nvl72":
        network *= NVL72_DOMAIN / per_node
    algorithm = text["algorithm"]
    ring_only = "NVLS off" in algorithm or algorithm == "Ring"
    op = text["op"]
    crosses = domains > 1
    return {
        "op": op,
        "ranks": ranks,
        "domains": domains,
        "up": rate,
        "out": network,
        "latency": out.latency if out is not None else REFERENCE_LATENCY_S,
        "in_switch": op == "all_reduce"
        and inside >= IN_SWITCH_RANKS
        and bool(up is not None and up.in_network_reduction)
        and not ring_only,
        "is_bus": kind == "pcie" and (inside > 2 or name.startswith(NO_PEER)),
        "keys": {
            "op": CLASSES.get(op, op),
            "generation": generation,
            "accelerator": name or UNKNOWN,
            "up_kind": kind,
            "up": up_name,
            "out_kind": _out_kind(out_name) if crosses else "none",
            "out": out_name if crosses else "none",
            "tier": "network" if crosses else "inside",
            "size": "pair" if inside <= 2 else "few" if inside < IN_SWITCH_RANKS else "many",
            "reduction": "switch" if op == "all_reduce" and inside >= 5 and not ring_only else "ranks",
        },
    }


def _kind(name: str) -> str:
    for prefix, kind in (("nvswitch", "nvlink"), ("nvl", "nvlink"), ("xgmi", "xgmi"), ("pcie", "pcie")):
        if name.startswith(prefix):
            return kind
    return name if name == UNKNOWN else "other"


def _out_kind(name: str) -> str:
    for part, kind in (("tcpx", "tcpx"), ("roce", "roce"), ("ib-", "ib"), ("efa", "efa")):
        if part in name:
            return kind
    return UNKNOWN


def _wiring(link: str) -> str:
    if "cube-mesh" in link:
        return "cube-mesh"
    return "fully-connected" if link.startswith("xgmi") else "nvswitch"


def _nics(catalog: Catalog, accelerator: str, link: str, per_node: float) -> float:
    """Cards a node: of the catalogue's nodes with this accelerator and link, else of those with the link."""
    found: list[tuple[bool, float]] = []
    for name in catalog.names("nodes"):
        node: Any = catalog.get("nodes", name)
        if node.scale_out is None or node.scale_out.name != link or not node.nics_per_node:
            continue
        found.append((node.accelerator.name == accelerator, float(node.nics_per_node)))
    same = [count for matches, count in found if matches]
    if same:
        return float(np.median(same))
    if link == UNKNOWN or not found:
        return per_node
    return float(np.median([count for _, count in found]))


def seconds(at: Points, logs: Mapping[str, Array]) -> Array:
    """Equation (1) of this module; `logs` holds the natural logarithm of every quantity of `QUANTITIES`."""
    value = {name: np.exp(x) for name, x in logs.items()}
    n, k, size = at.ranks, at.domains, at.message_bytes
    g = n / k
    crosses = k > 1
    reduce_all, exchange = at.op == "all_reduce", at.op == "all_to_all"
    gather = (at.op == "all_gather") | (at.op == "reduce_scatter")
    steps_up = np.select([reduce_all, gather, exchange], [2 * (g - 1), (g - 1) * k, np.ones_like(g)], g - 1)
    steps_out = np.select(
        [reduce_all, gather | exchange], [2 * np.ceil(np.log2(k)), k - 1], np.ceil(np.log2(k))
    )
    share = np.select([reduce_all, gather | exchange], [2 * (n - 1) / n, (n - 1) / n], 1.0)
    rate = at.up_bytes_per_s * value["up_efficiency"] * np.where(at.is_bus, value["shared_bus"], 1.0)
    up = size * (share + value["copy"] / n) / rate
    switch = size / (at.up_bytes_per_s * value["in_switch"])
    up = np.where(at.in_switch, np.minimum(up, switch), up)
    tree = np.where(reduce_all, np.minimum(share, np.minimum(2.0, 0.5 * k)), share)
    wire = np.where(exchange, g * (k - 1) / k, tree)
    out = np.where(crosses, size * wire / (at.out_bytes_per_s * value["out_efficiency"]), 0.0)
    top = np.maximum(up, out)
    work = top * ((up / top) ** TIERS + (out / top) ** TIERS) ** (1 / TIERS)
    steps = steps_up * value["up_step_s"] + steps_out * value["out_step_s"] * np.sqrt(
        at.out_latency_s / REFERENCE_LATENCY_S
    )
    p = value["knee"]
    low = _join(value["base_s"] + steps, work * (1.0 + value["wire_ratio"]), p)
    simple = _join(value["base_s"] + steps * (1.0 + value["step_ratio"]), work, p)
    least = np.minimum(low, simple)
    return np.asarray(least * ((low / least) ** -SWITCH + (simple / least) ** -SWITCH) ** (-1 / SWITCH))


def _join(latency: Array, work: Array, p: Array) -> Array:
    return np.asarray((latency**p + work**p) ** (1 / p))
