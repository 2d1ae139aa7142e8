"""What a group of accelerators can use of its scale-up links, by the group's size and the stride between its ranks.

A switch gives any group the full rate. Links that join accelerators directly do not: a pair on a hybrid cube mesh has
one link of six, a group of g among n that are joined pair by pair has (g - 1)/(n - 1) of the bandwidth, and cards
bridged in pairs fall to PCIe beyond a pair. The shares are read off the graph of `perfmodel.physics.topology` once per kind of
node and kept as a small table; between table entries they are interpolated. For the common kinds the graph's answer is
written down here, so that nobody waits for a graph library (a test compares the two). A torus needs no graph: groups
get axes of it, so a group of g among n that run the job gets

.. math:: \\mathrm{share} = \\max\\left(\\frac{\\ln g}{\\ln n}, \\frac{1}{d}\\right)                            (1)

of the bandwidth of its d axes, the whole of it when the group is the job.

References: Li et al., IEEE TPDS 31 (2020) 94 (cube mesh measured); Jouppi et al., ISCA 2023 (axes of a TPU v4 torus).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.constants import DEFAULT_AXES, DEFAULT_PCIE
from perfmodel.physics.topology import (
    Graph,
    Vertex,
    accelerators,
    bottleneck_bandwidth,
    build,
    collective_bandwidth,
    usual_wiring,
)
from perfmodel.specs.hardware import Accelerator, Cluster, Link, Node

Array = NDArray[np.float64]

STEPS: Final = 8  # table entries by size, evenly up to all accelerators of the node
STRIDES: Final = (1, 2, 4)  # between ranks of a group
IRREGULAR: Final = frozenset({"cube-mesh", "fully-connected", "bridge-pairs", "ring"})
LARGEST: Final = 64  # accelerators of an irregular node whose graph is searched
UNIFORM: Final[Array] = np.ones(STEPS * len(STRIDES))
# Links that groups of 2, 3 ... ranks can use on the hybrid cube mesh of eight, by links of a device; a row a stride.
CUBE_MESH_LINKS: Final[dict[int, tuple[tuple[int, ...], ...]]] = {
    6: ((1, 2, 4, 2, 2, 4, 6), (1, 1, 2), (1,)),
    4: ((1, 2, 3, 1, 2, 2, 4), (1, 1, 2), (1,)),
}


def share_table(topology: str | None, link: Link | None, device: Accelerator, count: int) -> Array:
    """Shares of a node's scale-up bandwidth, `STEPS` sizes for each of `STRIDES`; ones where any group gets all.

    Parameters
    ----------
    topology : how the accelerators of a node are joined; None: the link's usual way.
    link : the scale-up link; None: the host's bus.
    device : the accelerator.
    count : accelerators of a node.

    Returns
    -------
    Shares, 0 to 1, of shape (STEPS * len(STRIDES),).

    >>> from perfmodel.specs.catalog import Catalog
    >>> node = Catalog.default().get("nodes", "dgx-1v")
    >>> (6 * share_table(node.topology, node.scale_up, node.accelerator, 8)[1:8]).round(2).tolist()
    [1.0, 2.0, 4.0, 2.0, 2.0, 4.0, 6.0]
    """
    kind = topology or usual_wiring(link, count)
    if link is None or kind not in IRREGULAR or not 2 < count <= LARGEST:
        return UNIFORM
    return _table(kind, count, link.bandwidth, link.ports, device.pcie or DEFAULT_PCIE)


def torus_axes(topology: str | None, link: Link | None, count: int) -> float:
    """Axes of the torus that joins the accelerators; 0 where there is none.

    Parameters
    ----------
    topology : how the accelerators are joined.
    link : the scale-up link.
    count : accelerators of a node.

    Returns
    -------
    A number of axes.

    >>> torus_axes("torus", Link(name="ici", latency=1e-6, bandwidth=5e10, ports=6), 4), torus_axes(None, None, 8)
    (3.0, 0.0)
    """
    if link is None or (topology or usual_wiring(link, count)) != "torus":
        return 0.0
    return link.ports / 2.0 if link.ports else DEFAULT_AXES


@lru_cache(maxsize=64)
def _table(kind: str, count: int, bandwidth: float, ports: int | None, pcie: int) -> Array:
    known = _written(kind, count, ports) or graph_shares(kind, count, bandwidth, ports, pcie)
    knots = count * np.arange(1, STEPS + 1) / STEPS
    # Ranks so far apart that no two are in a node use no scale-up link: any value serves.
    rows = [np.interp(knots, np.arange(2, len(row) + 2), row) if row else np.ones(STEPS) for row in known]
    table = np.concatenate(rows)
    table.setflags(write=False)
    return table


def _written(kind: str, count: int, ports: int | None) -> list[list[float]] | None:
    """Shares of groups of 2, 3 ... for each of `STRIDES`, where they are known without a graph."""
    if kind == "fully-connected":
        return [[(g - 1) / (count - 1) for g in range(2, count // stride + 1)] for stride in STRIDES]
    if kind == "cube-mesh" and count == len(CUBE_MESH_LINKS[6][0]) + 1:
        links = 4 if ports == 4 else 6
        return [[n / links for n in row] for row in CUBE_MESH_LINKS[links]]
    return None


def graph_shares(kind: str, count: int, bandwidth: float, ports: int | None, pcie: int) -> list[list[float]]:
    """Shares of groups of 2, 3 ... for each of `STRIDES`, read off the graph of a node of `count` accelerators.

    Parameters
    ----------
    kind : how the accelerators are joined.
    count : accelerators of the node.
    bandwidth : of the link [B/s per direction].
    ports : links of a device.
    pcie : generation of the bus.

    Returns
    -------
    Shares, 0 to 1, by stride and size.

    >>> graph_shares("ring", 4, 1e11, 2, 4)[0]  # groups of 2, 3 and 4
    [0.5, 0.5, 1.0]
    """
    link = Link(name="link", latency=1e-6, bandwidth=bandwidth, ports=ports)
    device = Accelerator(name="device", memory=1e9, memory_bandwidth=1e12, peak={"fp32": 1e12}, pcie=pcie)
    spec = {
        "name": "node",
        "accelerator": device,
        "accelerators_per_node": count,
        "scale_up": link,
        "topology": kind,
    }
    graph = build(Cluster(name="cluster", node=Node.model_validate(spec)))
    ranks = accelerators(graph)
    return [
        [min(_least(graph, ranks, size, stride) / bandwidth, 1.0) for size in range(2, count // stride + 1)]
        for stride in STRIDES
    ]


def _least(graph: Graph, ranks: list[Vertex], size: int, stride: int) -> float:
    """Rate of the slowest of the groups into which the node is dealt; of the first alone where they do not fill it.

    Members that have no link with each other go through the others, and the groups at work share those ways.
    """
    span = size * stride
    starts = [0]
    if len(ranks) % span == 0:
        starts = [block + offset for block in range(0, len(ranks), span) for offset in range(stride)]
    groups = [ranks[start : start + span : stride] for start in starts]
    return min(
        collective_bandwidth(graph, group) or bottleneck_bandwidth(graph, group) / len(groups)
        for group in groups
    )


def group_share(table: Array, size: Array, stride: Array, node: Array) -> Array:
    """Share of the scale-up bandwidth of groups of `size` ranks, `stride` apart, in nodes of `node` accelerators.

    `table` has the entries of `share_table` on its first axis; further axes broadcast against the others.

    Parameters
    ----------
    table : of `share_table`.
    size : ranks of the group.
    stride : between its ranks.
    node : accelerators of a node.

    Returns
    -------
    Shares, 0 to 1.

    >>> from perfmodel.physics.examples import node
    >>> group_share(node().up_share, np.array([2.0, 8.0]), np.ones(2), np.array(8.0)).tolist()  # a switch serves all
    [1.0, 1.0]
    """
    place = np.clip(size * (STEPS / node), 1.0, float(STEPS)) - 1.0
    low = np.minimum(np.floor(place), STEPS - 2.0)
    row = STEPS * np.clip(np.rint(np.log2(stride)), 0.0, len(STRIDES) - 1.0)
    first = (row + low).astype(np.intp)
    at_low, at_high = _entries(table, first), _entries(table, first + 1)
    return np.asarray(at_low + (place - low) * (at_high - at_low))


def _entries(table: Array, index: NDArray[np.intp]) -> Array:
    if table.ndim == 1:
        return np.asarray(table[index])
    shape = np.broadcast_shapes(table.shape[1:], index.shape)
    whole = np.broadcast_to(
        table.reshape(table.shape[:1] + (1,) * (len(shape) - table.ndim + 1) + table.shape[1:]),
        (table.shape[0], *shape),
    )
    return np.asarray(np.take_along_axis(whole, np.broadcast_to(index, shape)[None], axis=0)[0])


def torus_share(axes: Array, size: Array, reach: Array) -> Array:
    """Equation (1) of this module; 1 where `axes` is 0.

    Parameters
    ----------
    axes : d; 0: no torus.
    size : g, ranks of the group.
    reach : n, ranks of the job in the torus.

    Returns
    -------
    Shares, 0 to 1.

    >>> torus_share(np.array([3.0, 3.0, 0.0]), np.array([16.0, 4096.0, 4.0]), np.array(4096.0)).round(3).tolist()
    [0.333, 1.0, 1.0]
    """
    part = np.log(np.maximum(size, 1.0)) / np.log(np.maximum(reach, 1.0 + 1e-9))
    return np.asarray(np.where(axes > 0.0, np.clip(part, 1.0 / np.maximum(axes, 1.0), 1.0), 1.0))
