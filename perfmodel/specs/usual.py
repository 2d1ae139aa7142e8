"""What a cluster usually has where it is not stated: links inside a node and their reach, network cards, the rate of an
unnamed network.

The catalogue's nodes are the evidence: what nodes with this accelerator have, else those of its generation, else those
with the named link. One rule serves the job files that people write and the measured runs of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Final

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Accelerator, Cluster, Link, Node
from perfmodel.units import counted, format_quantity

# Per accelerator, where no node of the catalogue tells: a card of 100 Gbit/s for eight of them. Assumed.
ASSUMED_BYTES_PER_S: Final = 12.5e9 / 8.0
LARGEST_HOST: Final = 8  # accelerators; what has more under one host is a whole rack or pod already


def completed(cluster: Cluster, catalog: Catalog) -> tuple[Cluster, list[str]]:
    """The cluster with its usual network and reach where they are not stated, and notes that say so."""
    notes: list[str] = []
    node, out = cluster.node, cluster.network
    usual = node.accelerator.scale_up
    if node.scale_up is None and usual in catalog.names("links") and node.accelerators_per_node > 1:
        node = node.model_copy(update={"scale_up": catalog.get("links", usual)})
        cluster = cluster.model_copy(update={"node": node})
        notes.append(f"scale_up {usual}, the usual link of {node.accelerator.name}, is a default")
    reach = usual_domain(node, catalog) if node.scale_up_domain is None else node.scale_up_domain
    if node.scale_up_domain is None and reach > node.accelerators_per_node:
        node = node.model_copy(update={"scale_up_domain": reach})
        cluster = cluster.model_copy(update={"node": node})
        notes.append(f"scale_up_domain {reach}, that of the catalogue's nodes on this link, is a default")
    if cluster.network_per_node is not None or (out is not None and cluster.cards is not None):
        return cluster, notes
    if out is not None:
        cards = usual_cards(node.accelerator, out, node.accelerators_per_node, catalog)
        notes.append(f"network: {counted(cards, 'card', 'cards')} of {out.name} a node is a default")
        return cluster.model_copy(update={"nics_per_node": cards}), notes
    rate = usual_network(node.accelerator, catalog) * node.accelerators_per_node
    notes.append(
        f"network: {format_quantity(rate, 'B/s')} a node is a default: none was stated. Beyond {node.accelerators_per_node} is it "
        "scaled out, over which scale_out and how many nics_per_node, or up, in a node with more accelerators?"
    )
    return cluster.model_copy(update={"network_per_node": rate}), notes


def usual_network(device: Accelerator, catalog: Catalog) -> float:
    """Bytes per second and accelerator of the network that nodes with an accelerator usually have: their median."""
    rates = _first(
        (
            node.scale_out.bandwidth * (node.nics_per_node or 1) / node.accelerators_per_node
            for node in _nodes(catalog)
            if node.scale_out is not None and alike(node)
        )
        for alike in _alike(device)
    )
    return median(rates) if rates else ASSUMED_BYTES_PER_S


def usual_cards(device: Accelerator, link: Link, count: int, catalog: Catalog) -> int:
    """Network cards of a node of `count` accelerators on a named link: as many an accelerator as such nodes have.

    Nodes with this link come first, then those of the accelerator on any link; one card where none is alike.
    """

    def shares(alike: Callable[[Node], bool], named: bool) -> Iterable[float]:
        return (
            node.nics_per_node / node.accelerators_per_node
            for node in _nodes(catalog)
            if node.nics_per_node
            and node.scale_out is not None
            and alike(node)
            and (not named or node.scale_out.name == link.name)
        )

    own = _alike(device)
    found = _first(
        [
            *(shares(alike, True) for alike in own),
            shares(lambda node: True, True),
            *(shares(alike, False) for alike in own),
        ]
    )
    return max(1, round(median(found) * count)) if found else 1


def usual_domain(node: Node, catalog: Catalog) -> int:
    """Accelerators that share scale-up links: a node's, or the rack or torus that its link makes of many nodes."""
    own = node.accelerators_per_node
    if node.scale_up is None or own > LARGEST_HOST:
        return own
    found = [own]
    for name in catalog.mentioning("nodes", node.scale_up.name):
        other = catalog.get("nodes", name)
        same = other.scale_up is not None and other.scale_up.name == node.scale_up.name
        reach = other.scale_up_domain or 0
        if same and reach > max(other.accelerators_per_node, LARGEST_HOST):
            found.append(reach)
    return max(found)


def _nodes(catalog: Catalog) -> list[Node]:
    return [catalog.get("nodes", name) for name in catalog.names("nodes")]


def _alike(device: Accelerator) -> tuple[Callable[[Node], bool], ...]:
    """Whether a node has this accelerator; whether it has one of its generation."""
    return (
        lambda node: node.accelerator.name == device.name,
        lambda node: device.generation is not None and node.accelerator.generation == device.generation,
    )


def _first(groups: Iterable[Iterable[float]]) -> list[float]:
    """The first group that is not empty."""
    return next((values for group in groups if (values := list(group))), [])
