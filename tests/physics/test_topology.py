"""Graphs of catalogue machines against figures worked out by hand."""

from __future__ import annotations

from itertools import combinations
from math import inf

import pytest

from perfmodel.errors import SpecError
from perfmodel.physics import topology
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Cluster, Fabric

CATALOG = Catalog.default()


def _cluster(name: str, **changes: object) -> Cluster:
    return CATALOG.cluster(name).model_copy(update=changes)


def _node(name: str, **changes: object) -> Cluster:
    cluster = CATALOG.cluster(name)
    return cluster.model_copy(update={"node": cluster.node.model_copy(update=changes)})


def test_any_pair_of_a_switch_gets_the_full_rate() -> None:
    cluster = _cluster("dgx-h100")
    graph = topology.build(cluster)
    ranks = topology.accelerators(graph)
    assert len(ranks) == 8
    assert cluster.node.scale_up is not None
    rate = cluster.node.scale_up.bandwidth
    assert topology.group_bandwidth(graph, ranks[:3]) == pytest.approx(rate)
    assert topology.bisection_bandwidth(graph) == pytest.approx(4 * rate)
    assert topology.hops(graph, ranks[0], ranks[7]) == 2
    assert topology.latency(graph, ranks[0], ranks[7]) == pytest.approx(cluster.node.scale_up.latency)


def test_cube_mesh_uses_six_links_of_every_device() -> None:
    ends = [0] * 8
    for a, b, links in topology.CUBE_MESH:
        ends[a] += links
        ends[b] += links
    assert ends == [topology.CUBE_LINKS] * 8


def test_partial_groups_of_a_cube_mesh_see_fewer_links() -> None:
    cluster = _node("dgx-1v", topology="cube-mesh")
    assert cluster.node.scale_up is not None
    link = cluster.node.scale_up.bandwidth / topology.CUBE_LINKS
    graph = topology.build(cluster)
    ranks = topology.accelerators(graph)
    assert topology.group_bandwidth(graph, [ranks[0], ranks[1]]) == pytest.approx(link)
    assert topology.group_bandwidth(graph, [ranks[0], ranks[3]]) == pytest.approx(2 * link)
    assert topology.group_bandwidth(graph, ranks[:4]) == pytest.approx(4 * link)
    assert topology.group_bandwidth(graph, ranks) == pytest.approx(6 * link)


@pytest.mark.parametrize("members", [2, 4, 8])
def test_fully_connected_groups_get_one_link_a_peer(members: int) -> None:
    cluster = _node("dgx-h100", topology="fully-connected")
    assert cluster.node.scale_up is not None
    graph = topology.build(cluster)
    ranks = topology.accelerators(graph)[:members]
    share = (members - 1) / 7
    assert topology.group_bandwidth(graph, ranks) == pytest.approx(share * cluster.node.scale_up.bandwidth)


def test_ring_torus_and_tree_inside_a_node() -> None:
    for kind, cut in (("ring", 1.0), ("torus", 4 / 3), ("pcie-tree", 2.0)):
        cluster = _node("dgx-h100", topology=kind)
        assert cluster.node.scale_up is not None
        bare = cluster.model_copy(
            update={"scale_out": None, "node": cluster.node.model_copy(update={"scale_out": None})}
        )
        found = topology.bisection_bandwidth(topology.build(bare))
        assert found == pytest.approx(cut * cluster.node.scale_up.bandwidth), kind


def test_a_ring_goes_the_shorter_way_round() -> None:
    graph = topology.build(
        _node("dgx-h100", topology="ring", scale_out=None).model_copy(update={"scale_out": None})
    )
    ranks = topology.accelerators(graph)
    assert [topology.hops(graph, ranks[0], rank) for rank in ranks] == [0, 1, 2, 3, 4, 3, 2, 1]


def test_a_rack_shares_one_switch() -> None:
    cluster = _cluster("gb200-nvl72")
    per_node = cluster.node.accelerators_per_node
    graph = topology.build(cluster, nodes=72 // per_node)
    ranks = topology.accelerators(graph)
    assert len(ranks) == 72
    assert topology.hops(graph, ranks[0], ranks[-1]) == 2


def test_oversubscription_divides_what_crosses_a_leaf() -> None:
    flat = Fabric(kind="fat-tree", oversubscription=1.0, leaf_nodes=2)
    thin = Fabric(kind="fat-tree", oversubscription=4.0, leaf_nodes=2)
    full = topology.build(_cluster("dgx-h100", topology=flat), nodes=4)
    quarter = topology.build(_cluster("dgx-h100", topology=thin), nodes=4)
    assert topology.bisection_bandwidth(full) == pytest.approx(4 * topology.bisection_bandwidth(quarter))
    first, second = ("nic", 0, 0), ("nic", 1, 0)
    assert topology.hops(quarter, first, second) == 2
    assert topology.hops(quarter, first, ("nic", 2, 0)) == 4
    assert topology.pair_bandwidth(full, first, second) == topology.pair_bandwidth(quarter, first, second)


def test_rails_join_equal_cards_in_one_hop() -> None:
    cluster = _cluster("dgx-h100", topology=Fabric(kind="rail", leaf_nodes=4))
    graph = topology.build(cluster, nodes=2)
    assert topology.hops(graph, ("nic", 0, 3), ("nic", 1, 3)) == 2
    assert topology.hops(graph, ("nic", 0, 3), ("nic", 1, 4)) == 4


def test_two_nodes_are_bound_by_their_cards() -> None:
    cluster = _cluster("dgx-h100")
    link = cluster.scale_out or cluster.node.scale_out
    cards = cluster.nics_per_node or cluster.node.nics_per_node
    assert link is not None
    assert cards is not None
    graph = topology.build(cluster, nodes=2)
    assert topology.bisection_bandwidth(graph) == pytest.approx(cards * link.bandwidth)


def test_bottleneck_is_the_least_of_all_pairs() -> None:
    graph = topology.build(_node("dgx-1v", topology="cube-mesh"))
    ranks = topology.accelerators(graph)
    pairs = [topology.pair_bandwidth(graph, a, b) for a in ranks for b in ranks if a != b]
    assert topology.bottleneck_bandwidth(graph, ranks) == pytest.approx(min(pairs))


def test_one_member_needs_no_link() -> None:
    graph = topology.build(_cluster("dgx-h100"))
    assert topology.bottleneck_bandwidth(graph, topology.accelerators(graph)[:1]) == inf
    assert topology.group_bandwidth(graph, topology.accelerators(graph)[:1]) == inf


def test_nodes_without_a_network_are_refused() -> None:
    cluster = _node("dgx-h100", scale_out=None).model_copy(update={"scale_out": None})
    with pytest.raises(SpecError, match="no network"):
        topology.build(cluster, nodes=2)
    with pytest.raises(SpecError, match="at least one node"):
        topology.build(cluster, nodes=0)


@pytest.mark.parametrize(
    ("members", "links", "rings"), [(3, 1, 1), (3, 2, 2), (4, 1, 1), (5, 1, 2), (7, 1, 3)]
)
def test_a_complete_graph_has_as_many_rings_as_half_of_its_links(
    members: int, links: int, rings: int
) -> None:
    """Walecki: the complete graph of an odd number of members falls into (n - 1)/2 closed rings."""
    names = [("accelerator", 0, i) for i in range(members)]
    edges = dict.fromkeys(combinations(names, 2), links)
    assert topology._rings(names, edges) == rings


def test_a_path_closes_no_ring_and_a_square_one() -> None:
    names = [("accelerator", 0, i) for i in range(4)]
    path = {(names[i], names[i + 1]): 2 for i in range(3)}
    assert topology._rings(names, path) == 0
    assert topology._rings(names, {**path, (names[3], names[0]): 1}) == 1


def test_a_library_finds_all_links_of_a_cube_mesh_in_rings() -> None:
    cluster = _node("dgx-1v", topology="cube-mesh")
    assert cluster.node.scale_up is not None
    graph = topology.build(cluster)
    link = cluster.node.scale_up.bandwidth / topology.CUBE_LINKS
    ranks = topology.accelerators(graph)
    assert topology.collective_bandwidth(graph, ranks) == pytest.approx(6 * link)
    assert topology.collective_bandwidth(graph, ranks[:1]) == inf


def test_a_network_of_which_nothing_is_stated_is_not_oversubscribed() -> None:
    stated = Fabric(kind="fat-tree", oversubscription=1.0, leaf_nodes=2)
    for nodes in (2, 4):
        bare = topology.build(_cluster("dgx-h100", topology=None), nodes=nodes)
        full = topology.build(_cluster("dgx-h100", topology=stated), nodes=nodes)
        assert topology.bisection_bandwidth(bare) == pytest.approx(topology.bisection_bandwidth(full))
