"""A resolved cluster as a graph: devices, switches, network cards and leaves, with bandwidth on every edge.

Vertices are `("accelerator", node, i)`, `("switch", node)`, `("host", node)`, `("bridge", node, i)`,
`("nic", node, j)`, `("leaf", l)` or `("leaf", l, rail)` and `("spine",)`. Edges are undirected, full duplex, and carry
`bandwidth` [B/s per direction] and `latency` [s]. Scale-up domains wider than a node (an NVL72 rack) share one switch.

The figures below are exact for fluid traffic that is routed at will (max-flow, min-cut); what a library reaches on top
is a coefficient of the step model.

References: Ford, Fulkerson, Can. J. Math. 8 (1956) 399 (max-flow, min-cut); Leiserson, IEEE Trans. Comput. 34 (1985)
892 (fat tree); Li et al., IEEE TPDS 31 (2020) 94 (NVLink cube mesh and NVSwitch measured).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from math import ceil, inf, prod
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import UsageError
from perfmodel.physics.constants import DEFAULT_PCIE, PCIE3_BYTES_PER_S, PCIE_LATENCY_S
from perfmodel.specs.hardware import Cluster, Link, Node

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.Graph[Any]
else:
    Graph = Any

Vertex = tuple[Hashable, ...]

#: Links between accelerators of the hybrid cube mesh of DGX-1V: six of each device's, doubled along the edges of two rings.
CUBE_MESH: Final[tuple[tuple[int, int, int], ...]] = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1), (3, 7, 1),
    (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip
CUBE_LINKS: Final = 6
CUBE_LINKS_FIRST: Final = 4  # of DGX-1 with P100: the same edges, none doubled
CARDS_PER_BRIDGE: Final = 2  # accelerators under one PCIe switch
DEFAULT_LEAF_NODES: Final = 32
LINKED_WITHOUT_SWITCH: Final = 4  # accelerators that NVLink joins pair by pair; more need a switch or a mesh


def accelerator(index: int, per_node: int) -> Vertex:
    """The vertex of global rank `index` when ranks fill one node after the other.

    Parameters
    ----------
    index : global rank.
    per_node : accelerators of a node.

    Returns
    -------
    A vertex.

    >>> accelerator(11, 8)
    ('accelerator', 1, 3)
    """
    return ("accelerator", index // per_node, index % per_node)


def build(cluster: Cluster, nodes: int = 1) -> Graph:
    """The graph of `nodes` nodes of a resolved cluster.

    Parameters
    ----------
    cluster : resolved.
    nodes : how many.

    Returns
    -------
    A graph with bandwidth [B/s per direction] and latency [s] on its edges.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> len(accelerators(graph))
    16
    """
    import networkx as nx

    if nodes < 1:
        raise UsageError(f"a topology needs at least one node, not {nodes}", code="T001")
    graph: Graph = nx.Graph()
    node = cluster.node
    for index in range(nodes):
        _inside(graph, node, index)
        _cards(graph, cluster, index)
    if nodes > 1:
        _fabric(graph, cluster, nodes)
    return graph


def _edge(graph: Graph, a: Vertex, b: Vertex, bandwidth: float, latency: float) -> None:
    """Add an edge; a second one between the same ends adds its bandwidth."""
    if graph.has_edge(a, b):
        bandwidth += graph[a][b]["bandwidth"]
    graph.add_edge(a, b, bandwidth=bandwidth, latency=latency)


def _inside(graph: Graph, node: Node, index: int) -> None:
    count = node.accelerators_per_node
    devices = [("accelerator", index, i) for i in range(count)]
    graph.add_nodes_from(devices)
    link = node.scale_up
    if link is None or count == 1:
        _shared(graph, node, index, devices)
        return
    rate, delay = link.bandwidth, link.latency
    kind = node.topology or usual_wiring(link, count)
    if kind == "nvswitch":
        domain = max(node.scale_up_domain or count, count)
        switch = ("switch", index * count // domain)
        for device in devices:
            _edge(graph, device, switch, rate, delay / 2)
    elif kind == "cube-mesh" and count in (4, 8):  # or one of its two halves
        single = link.ports == CUBE_LINKS_FIRST
        for a, b, links in (edge for edge in CUBE_MESH if max(edge[:2]) < count):
            share = 1 / CUBE_LINKS_FIRST if single else links / CUBE_LINKS
            _edge(graph, devices[a], devices[b], rate * share, delay)
    elif kind == "fully-connected":
        for first, second in combinations(devices, 2):
            _edge(graph, first, second, rate / (count - 1), delay)
    elif kind in ("ring", "torus", "cube-mesh"):
        sides = _near_square(count) if kind == "torus" else (count,)
        _grid(graph, devices, sides, rate, delay)
    elif kind == "bridge-pairs":
        for first, second in zip(devices[::2], devices[1::2], strict=False):
            _edge(graph, first, second, rate, delay)
        _shared(graph, node, index, devices)
    else:
        _tree(graph, index, devices, rate, delay)


def _shared(graph: Graph, node: Node, index: int, devices: Sequence[Vertex]) -> None:
    """The PCIe tree by which every accelerator reaches its host; x16 of the device's generation."""
    generation = node.accelerator.pcie or DEFAULT_PCIE
    _tree(graph, index, devices, PCIE3_BYTES_PER_S * 2.0 ** (generation - 3), PCIE_LATENCY_S)


def _tree(graph: Graph, index: int, devices: Sequence[Vertex], rate: float, delay: float) -> None:
    host = ("host", index)
    graph.add_node(host)
    for i, device in enumerate(devices):
        bridge = ("bridge", index, i // CARDS_PER_BRIDGE)
        _edge(graph, device, bridge, rate, delay / 4)
        if not graph.has_edge(bridge, host):
            _edge(graph, bridge, host, rate, delay / 4)


def _near_square(count: int) -> tuple[int, ...]:
    """The two factors of `count` nearest each other."""
    low = next(a for a in range(int(count**0.5), 0, -1) if count % a == 0)
    return (low, count // low) if low > 1 else (count,)


def _grid(graph: Graph, vertices: Sequence[Vertex], sides: Sequence[int], rate: float, delay: float) -> None:
    """Join vertices as a torus; each spreads its bandwidth evenly over its ports."""
    ports = sum(2 if side > 2 else 1 for side in sides if side > 1)
    for flat, vertex in enumerate(vertices):
        stride = 1
        for side in reversed(sides):
            if side > 1:
                at = flat // stride % side
                other = flat + ((at + 1) % side - at) * stride
                if side > 2 or at == 0:
                    _edge(graph, vertex, vertices[other], rate / ports, delay)
            stride *= side


def _cards(graph: Graph, cluster: Cluster, index: int) -> None:
    """Network cards, each next to the accelerators of its share of the node."""
    link, cards = _network(cluster)
    if link is None:
        return
    count = cluster.node.accelerators_per_node
    for i in range(max(cards, count)):
        card, device = (
            ("nic", index, i * cards // max(cards, count)),
            ("accelerator", index, i * count // max(cards, count)),
        )
        if not graph.has_edge(card, device):
            _edge(graph, card, device, link.bandwidth, link.latency / 4)


def _network(cluster: Cluster) -> tuple[Link | None, int]:
    link = cluster.network
    return link, int(cluster.nics_per_node or cluster.node.nics_per_node or 1)


def _fabric(graph: Graph, cluster: Cluster, nodes: int) -> None:
    link, cards = _network(cluster)
    if link is None:
        raise UsageError(f"{cluster.name}: {nodes} nodes, but no network between them", code="T001")
    shape = cluster.topology
    kind = shape.kind if shape is not None else "rail"
    rate, delay = link.bandwidth, link.latency / 4
    if kind in ("torus", "direct"):
        sides = tuple(shape.dimensions or ()) if shape is not None else ()
        if prod(sides) != nodes:
            sides = _near_square(nodes)
        hubs: list[Vertex] = [("leaf", n) for n in range(nodes)]
        for n, hub in enumerate(hubs):
            for j in range(cards):
                _edge(graph, ("nic", n, j), hub, rate, delay)
        _grid(graph, hubs, sides, rate * cards, delay)
        return
    per_leaf = (shape.leaf_nodes if shape is not None else None) or DEFAULT_LEAF_NODES
    taper = shape.oversubscription if shape is not None else 1.0
    for n in range(nodes):
        for j in range(cards):
            leaf: Vertex = ("leaf", n // per_leaf, j) if kind == "rail" else ("leaf", n // per_leaf)
            _edge(graph, ("nic", n, j), leaf, rate, delay)
            if ceil(nodes / per_leaf) > 1 or kind == "rail":
                _edge(graph, leaf, ("spine",), rate / taper, delay)


def hops(graph: Graph, a: Vertex, b: Vertex) -> int:
    """Edges on the shortest way between two vertices.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    a, b : two vertices.

    Returns
    -------
    A number of edges.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> hops(graph, accelerator(0, 8), accelerator(1, 8))  # up to the switch and down
    2
    """
    import networkx as nx

    return int(nx.shortest_path_length(graph, a, b))


def latency(graph: Graph, a: Vertex, b: Vertex) -> float:
    """Least sum of edge latencies between two vertices [s].

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    a, b : two vertices.

    Returns
    -------
    Seconds.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> latency(graph, accelerator(0, 8), accelerator(1, 8)) < latency(graph, accelerator(0, 8), accelerator(8, 8))
    True
    """
    import networkx as nx

    return float(nx.shortest_path_length(graph, a, b, weight="latency"))


def pair_bandwidth(graph: Graph, a: Vertex, b: Vertex) -> float:
    """Most that `a` can send to `b` over all ways at once: the max-flow [B/s].

    Reference: Ford, Fulkerson, Can. J. Math. 8 (1956) 399.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    a, b : two vertices.

    Returns
    -------
    B/s per direction.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(pair_bandwidth(graph, accelerator(0, 8), accelerator(1, 8)) / 1e9)  # 450 by NVLink, 50 by their cards
    500
    """
    import networkx as nx

    return float(nx.maximum_flow_value(graph, a, b, capacity="bandwidth"))


def bottleneck_bandwidth(graph: Graph, group: Sequence[Vertex]) -> float:
    """Least max-flow between any two members, the rate that no ring through the group can pass [B/s].

    By Gomory and Hu (1961) the least over all pairs is the least over pairs with one fixed member.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    group : vertices of its members.

    Returns
    -------
    B/s per direction; infinite for one member.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(bottleneck_bandwidth(graph, accelerators(graph)[:4]) / 1e9)
    500
    """
    if len(group) < 2:
        return inf
    first, *others = group
    return min(pair_bandwidth(graph, first, other) for other in others)


def cut_bandwidth(graph: Graph, left: Iterable[Vertex], right: Iterable[Vertex]) -> float:
    """Most that the vertices of one side can send to those of the other [B/s].

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    left, right : vertices of the two sides.

    Returns
    -------
    B/s per direction.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(cut_bandwidth(graph, accelerators(graph)[:8], accelerators(graph)[8:]) / 1e9)  # eight NICs of 400 Gbit/s
    400
    """
    wide: Graph = graph.copy()
    for side, vertices in ((("side", 0), left), (("side", 1), right)):
        for vertex in vertices:
            wide.add_edge(side, vertex, bandwidth=inf)
    import networkx as nx

    return float(nx.maximum_flow_value(wide, ("side", 0), ("side", 1), capacity="bandwidth"))


def accelerators(graph: Graph) -> list[Vertex]:
    """All accelerators in rank order.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.

    Returns
    -------
    Vertices.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> accelerators(graph)[8]
    ('accelerator', 1, 0)
    """
    return sorted(vertex for vertex in graph if vertex[0] == "accelerator")


def bisection_bandwidth(graph: Graph) -> float:
    """Flow between the first and the second half of the accelerators in rank order [B/s per direction].

    On the regular graphs of this module that split is a narrowest balanced one, up to symmetry.

    Reference: Leiserson, IEEE Trans. Comput. 34 (1985) 892.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.

    Returns
    -------
    B/s per direction.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(bisection_bandwidth(graph) / 1e9)
    400
    """
    ranks = accelerators(graph)
    half = len(ranks) // 2
    if half == 0:
        return inf
    return cut_bandwidth(graph, ranks[:half], ranks[-half:])


def group_bandwidth(graph: Graph, group: Sequence[Vertex]) -> float:
    """Rate per member at which a group can exchange data over links between its members and switches [B/s].

    Other accelerators do not forward: a partial group of a cube mesh or of a fully connected node sees only the links
    inside it, and a group in one node leaves the network cards alone. The figure is the least, over members, of the flow between that member and all others.

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    group : vertices of its members.

    Returns
    -------
    B/s per member.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(group_bandwidth(graph, accelerators(graph)[:2]) / 1e9)
    450
    """
    if len(group) < 2:
        return inf
    members = set(group)
    unused = {"nic"} if len({v[1] for v in members}) == 1 else set[Hashable]()
    kept = [v for v in graph if v in members or v[0] not in unused | {"accelerator"}]
    inside: Graph = graph.subgraph(kept)
    return min(cut_bandwidth(inside, [v], [w for w in group if w != v]) for v in group)


def collective_bandwidth(graph: Graph, group: Sequence[Vertex]) -> float:
    """Rate per member that a collective library finds for a group on the links between its members [B/s].

    No algorithm passes the least cut between two members. Where every pair has its own link, a direct exchange uses
    ``(n - 1)`` times the thinnest; else rings do, each closed and edge-disjoint from the others, one way round and
    the other; where no ring closes, a tree does, up to the cut. Through a switch or a host the cut itself is reached.
    Which is the best of these is what NCCL's search settles by trial (Jeaugey, GTC 2019, "Distributed training and
    fast inter-GPU communication with NCCL").

    Parameters
    ----------
    graph : vertices and edges of `build`; bandwidth [B/s per direction] and latency [s] on the edges.
    group : vertices of its members.

    Returns
    -------
    B/s per member.

    >>> from perfmodel.specs.catalog import Catalog
    >>> graph = build(Catalog.default().cluster("dgx-h100"), nodes=2)
    >>> round(collective_bandwidth(graph, accelerators(graph)[:8]) / 1e9)
    450
    """
    if len(group) < 2:
        return inf
    members = set(group)
    alone = len({v[1] for v in members}) == 1
    kept = [
        v for v in graph if v in members or v[0] not in ({"accelerator", "nic"} if alone else {"accelerator"})
    ]
    inside: Graph = graph.subgraph(kept)
    cut = bottleneck_bandwidth(inside, group)
    rates = {(a, b): inside[a][b]["bandwidth"] for a, b in combinations(group, 2) if inside.has_edge(a, b)}
    whole = len(rates) == len(group) * (len(group) - 1) // 2
    direct = (len(group) - 1) * min(rates.values()) if whole else 0.0
    if direct >= cut * (1 - 1e-9) or any(vertex not in members and inside.degree(vertex) for vertex in kept):
        return cut
    unit = min(rates.values())
    links = {edge: round(rate / unit) for edge, rate in rates.items()}
    closed = 2 * unit * _rings(list(group), links)
    return min(max(closed, direct), cut) or cut


def _rings(group: Sequence[Vertex], links: dict[tuple[Vertex, Vertex], int]) -> int:
    """Most closed rings through all members that share no link; each member gives two links to a ring."""
    left = {frozenset(edge): count for edge, count in links.items()}
    ends = {v: sum(count for edge, count in links.items() if v in edge) for v in group}

    def close(path: list[Vertex], wanted: int) -> bool:
        if wanted == 0:
            return True
        last, open_ = path[-1], [v for v in group if v not in path]
        for step in open_ or [path[0]]:
            edge = frozenset((last, step))
            if left.get(edge, 0) < 1:
                continue
            left[edge] -= 1
            done = close([*path, step], wanted) if open_ else close([group[0]], wanted - 1)
            left[edge] += 1
            if done:
                return True
        return False

    return next((n for n in range(min(ends.values()) // 2, 0, -1) if close([group[0]], n)), 0)


def usual_wiring(link: Link | None, accelerators: int) -> str:
    """How a scale-up link joins accelerators where the node does not say.

    Parameters
    ----------
    link : the scale-up link; None: the host's bus.
    accelerators : of a node.

    Returns
    -------
    A word of `group_link_share`.

    >>> usual_wiring(None, 8)
    'pcie-tree'
    """
    if link is None:
        return "pcie-tree"
    if link.topology is not None:
        return link.topology
    if link.kind in ("pcie", "torus"):
        return {"pcie": "pcie-tree", "torus": "torus"}[link.kind]
    direct = link.kind == "scale-up" and accelerators <= LINKED_WITHOUT_SWITCH
    return "fully-connected" if direct else "nvswitch"
