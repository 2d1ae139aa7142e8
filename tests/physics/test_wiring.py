"""Shares of the scale-up links by group, against figures counted by hand and against the step model's links."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.physics.coefficients import textbook
from perfmodel.physics.exchanges import Links
from perfmodel.physics.fabric import group_link_share
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine, machine, stack
from perfmodel.physics.wiring import STEPS, STRIDES, graph_shares, group_share, share_table, torus_share
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.hardware import Accelerator, Fabric, Link

CATALOG = Catalog.default()
SIZES = np.arange(2.0, 9.0)


def _machine(name: str) -> Machine:
    return machine(CATALOG.cluster(name), "fp16")


def _shares(name: str, stride: int = 1) -> np.ndarray:
    found = _machine(name)
    return np.asarray(
        found.share(SIZES[: 8 // stride - 1], np.full(8 // stride - 1, float(stride)), found.node)
    )


def test_cube_mesh_gives_the_links_that_rings_can_close_on() -> None:
    assert (6 * _shares("dgx-1v")).round(9).tolist() == [1, 2, 4, 2, 2, 4, 6]
    assert _shares("dgx-1v") == pytest.approx(group_link_share("cube-mesh", SIZES))


def test_ranks_that_lie_apart_on_a_cube_mesh_have_fewer_links() -> None:
    # {0,2,4,6} and {1,3,5,7} each close one ring of single links; some pairs four apart have one link.
    assert (6 * _shares("dgx-1v", 2)).round(9).tolist() == [1, 1, 2]
    assert (6 * _shares("dgx-1v", 4)).round(9).tolist() == [1]


def test_single_links_of_the_first_cube_mesh() -> None:
    # Four P100 are joined pair by pair: a direct exchange uses three of their four links.
    assert (4 * _shares("dgx-1-p100")).round(9).tolist() == [1, 2, 3, 1, 2, 2, 4]


@pytest.mark.parametrize(
    ("kind", "count", "ports"),
    [("cube-mesh", 8, 6), ("cube-mesh", 8, 4), ("fully-connected", 8, 7), ("fully-connected", 4, None)],
)
def test_what_is_written_down_is_what_the_graph_gives(kind: str, count: int, ports: int | None) -> None:
    link = Link(name="wire", latency=1e-6, bandwidth=120e9, ports=ports)
    device = Accelerator(name="chip", memory=1e10, memory_bandwidth=1e12, peak={"bf16": 1e14})
    table = share_table(kind, link, device, count).reshape(len(STRIDES), STEPS)
    for row, found in zip(table, graph_shares(kind, count, 120e9, ports, 3), strict=True):
        sizes = np.arange(2, len(found) + 2)
        assert row[sizes * STEPS // count - 1][: len(found)] == pytest.approx(found)


def test_a_link_a_peer() -> None:
    assert _shares("bm.gpu.mi300x.8") == pytest.approx((SIZES - 1) / 7)
    assert _shares("bm.gpu.mi300x.8", 2) == pytest.approx((SIZES[:3] - 1) / 7)


def test_bridged_pairs_fall_to_pcie_and_stay_in_their_host() -> None:
    found = _machine("nc96ads-a100-v4")
    link = CATALOG.get("links", "nvlink-3-bridge-pair")
    share = np.asarray(found.share(np.array([2.0, 4.0]), np.ones(2), found.node))
    assert share[0] == 1.0
    assert share[1] == pytest.approx(31.5e9 / link.bandwidth)
    assert float(found.domain) == 4.0


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-2", "g5.48xlarge", "gb200-nvl72", "dgx-a100"])
def test_switches_and_trees_give_any_group_all(name: str) -> None:
    found = _machine(name)
    assert np.all(found.up_share == 1.0)
    assert found.share(SIZES, np.ones(7), found.node) == 1.0


def test_a_torus_gives_a_group_its_axes() -> None:
    found = _machine("tpu-v4-pod")
    share = np.asarray(found.share(np.array([4.0, 16.0, 256.0, 4096.0]), np.ones(4), np.array(4096.0)))
    assert share == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1.0])


def test_many_machines_look_up_each_its_own_table() -> None:
    both = stack([_machine("dgx-1v"), _machine("dgx-a100"), _machine("bm.gpu.mi300x.8")])
    share = np.asarray(both.share(np.array([4.0, 4.0, 4.0]), np.ones(3), both.node))
    assert share == pytest.approx([4 / 6, 1.0, 3 / 7])
    wide = np.asarray(both.share(np.array([[2.0], [8.0]]), np.ones(()), both.node))
    assert wide == pytest.approx(np.array([[1 / 6, 1.0, 1 / 7], [1.0, 1.0, 1.0]]))


def test_shares_are_continuous_in_the_size() -> None:
    table = _machine("dgx-1v").up_share
    size = np.linspace(1.0, 8.0, 2001)
    share = group_share(table, size, np.ones(()), np.array(8.0))
    assert np.abs(np.diff(share)).max() < 0.002
    assert table.shape == (STEPS * len(STRIDES),)


def test_members_of_a_ring_without_a_link_go_through_the_others() -> None:
    link = Link(name="wire", latency=1e-6, bandwidth=100e9, kind="scale-up")
    device = Accelerator(name="chip", memory=1e10, memory_bandwidth=1e12, peak={"bf16": 1e14})
    table = share_table("ring", link, device, 8).reshape(len(STRIDES), STEPS)
    assert table[0, [1, 6, 7]].tolist() == [0.5, 0.5, 1.0]  # a chain has one port each way, the ring both
    assert 0.0 < table[1, 1] <= 0.5


def test_a_pair_on_a_cube_mesh_takes_six_times_as_long_over_its_one_link() -> None:
    found = _machine("dgx-1v")
    at = layouts(2.0, global_batch=64, accelerators_per_node=8)
    big = np.asarray(1e12)
    pair = Links(found, at, textbook()).time("all_reduce", big, np.asarray(2.0), np.ones(()))
    switched = Links(replace(found, up_share=np.ones_like(found.up_share)), at, textbook())
    assert float(pair / switched.time("all_reduce", big, np.asarray(2.0), np.ones(()))) == pytest.approx(
        6.0, rel=1e-2
    )


def test_oversubscription_waits_for_the_second_leaf() -> None:
    cluster = CATALOG.cluster("dgx-h100")
    fabric = Fabric(kind="fat-tree", oversubscription=4, leaf_nodes=16)
    found = machine(cluster.model_copy(update={"topology": fabric}), "bf16")
    slower = np.asarray(found.taper(np.array([1.0, 16.0, 32.0, 1e9])))
    assert slower == pytest.approx([1.0, 1.0, 2.5, 4.0])
    unsaid = machine(
        cluster.model_copy(update={"topology": Fabric(kind="fat-tree", oversubscription=4)}), "bf16"
    )
    assert float(unsaid.taper(np.array(2.0))) == 4.0
    assert machine(cluster, "bf16").taper(np.array(2.0)) == 1.0


def test_links_say_how_they_join_a_node_that_does_not() -> None:
    device = CATALOG.get("accelerators", "v100-sxm2-32gb")
    mesh, direct = CATALOG.get("links", "nvlink-2-cube-mesh"), CATALOG.get("links", "nvlink-2")
    assert 6 * share_table(None, mesh, device, 8)[3] == pytest.approx(4.0)
    four = share_table(None, direct, device, 4)
    assert four[3] == pytest.approx(1 / 3)
    assert np.all(share_table(None, direct, device, 16) == 1.0)


def test_common_machines_load_no_graph_library() -> None:
    code = (
        "import sys; from perfmodel.specs.catalog import Catalog; from perfmodel.physics.machine import machine; "
        "catalog = Catalog.default(); [machine(catalog.cluster(c), 'bf16') for c in ('dgx-h100', 'dgx-1v')]; "
        "sys.exit('networkx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_network_that_adds_up_on_the_way_halves_the_bytes_of_an_all_reduce() -> None:
    cluster = CATALOG.cluster("dgx-a100")
    link = cluster.node.scale_out or cluster.scale_out
    assert link is not None
    slow = link.model_copy(update={"bandwidth": link.bandwidth / 10})  # the network decides
    sharp = slow.model_copy(update={"in_network_reduction": True})
    plain, adding = (machine(cluster.model_copy(update={"scale_out": out}), "bf16") for out in (slow, sharp))
    at = layouts(512.0, global_batch=512, accelerators_per_node=8)
    ranks, big = np.asarray(512.0), np.asarray(1e12)
    before, after = (
        float(Links(m, at, textbook()).time("all_reduce", big, ranks, np.ones(()))) for m in (plain, adding)
    )
    assert before / after == pytest.approx(2.0, rel=0.05)


def test_a_torus_of_one_axis_gives_any_group_all_of_it() -> None:
    """A group on one axis of d has no less than one d-th, and all of it where it spans the torus."""
    for axes in (1.0, 2.0, 3.0):
        share = torus_share(np.array(axes), np.array([1.0, 2.0, 64.0]), np.array(64.0))
        assert share[0] == pytest.approx(1.0 / axes)
        assert share[2] == pytest.approx(1.0)
        assert share[1] == pytest.approx(max(np.log(2) / np.log(64), 1.0 / axes))
