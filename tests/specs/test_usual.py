"""What stands in for a network, its cards and the reach of a link that nobody states."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.specs.catalog import Catalog
from perfmodel.specs.folders import shipped_folder
from perfmodel.specs.hardware import Cluster, Node
from perfmodel.specs.usual import ASSUMED_BYTES_PER_S, completed, usual_cards, usual_domain, usual_network

NODE = "accelerator: {}\naccelerators_per_node: {}\n"
SHIPPED = Catalog([shipped_folder()])


def catalog(folder: Path, **nodes: str) -> Catalog:
    """A catalogue of these nodes with two accelerators of one generation on a link of 25 GB/s."""
    files = {f"nodes/{name}": text for name, text in nodes.items()}
    files["links/net"] = "latency: 2 us\nbandwidth: 25 GB/s\n"
    files["links/other"] = "latency: 2 us\nbandwidth: 50 GB/s\n"
    for name in ("old", "new", "newest"):
        files[f"accelerators/{name}"] = (
            "generation: gen\nmemory: 80 GB\nmemory_bandwidth: 2 TB/s\npeak: {bf16: 300 TFLOP/s}\n"
        )
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Catalog([folder])


@pytest.fixture
def four_nodes(tmp_path: Path) -> Catalog:
    return catalog(
        tmp_path,
        one_nic=NODE.format("old", 8) + "scale_out: net\n",
        four=NODE.format("old", 8) + "scale_out: net\nnics_per_node: 4\n",
        eight=NODE.format("new", 8) + "scale_out: net\nnics_per_node: 8\n",
        alone=NODE.format("new", 4),
    )


def test_the_usual_network_is_the_median_share_over_nodes_of_an_accelerator_else_of_its_generation(
    four_nodes: Catalog,
) -> None:
    rates = {
        name: usual_network(four_nodes.get("accelerators", name), four_nodes)
        for name in ("old", "new", "newest")
    }
    assert rates == pytest.approx({"old": 25e9 * (1 / 8 + 4 / 8) / 2, "new": 25e9, "newest": 25e9 * 4 / 8})


def test_a_node_that_names_no_link_has_the_usual_one_of_its_accelerator(tmp_path: Path) -> None:
    node = Node(
        name="mine", accelerator=SHIPPED.get("accelerators", "a100-sxm4-40gb"), accelerators_per_node=8
    )
    cluster, notes = completed(Cluster(name="c", node=node), SHIPPED)
    assert cluster.node.scale_up == SHIPPED.get("links", "nvswitch-2")
    assert "scale_up nvswitch-2, the usual link of a100-sxm4-40gb, is a default" in notes
    alone, _ = completed(
        Cluster(name="c", node=node.model_copy(update={"accelerators_per_node": 1})), SHIPPED
    )
    assert alone.node.scale_up is None
    unknown = catalog(tmp_path).get("accelerators", "old")
    bare, _ = completed(
        Cluster(name="c", node=Node(name="mine", accelerator=unknown, accelerators_per_node=8)),
        catalog(tmp_path),
    )
    assert bare.node.scale_up is None  # on the host's bus


def test_no_nodes_no_evidence(tmp_path: Path) -> None:
    empty = catalog(tmp_path)
    device, link = empty.get("accelerators", "old"), empty.get("links", "net")
    assert usual_network(device, empty) == ASSUMED_BYTES_PER_S
    assert usual_cards(device, link, 8, empty) == 1


def test_a_named_link_has_as_many_cards_as_such_nodes_have_on_it(four_nodes: Catalog) -> None:
    link, other = four_nodes.get("links", "net"), four_nodes.get("links", "other")
    old, new = (four_nodes.get("accelerators", name) for name in ("old", "new"))
    assert [usual_cards(old, link, 8, four_nodes), usual_cards(new, link, 8, four_nodes)] == [4, 8]
    assert usual_cards(new, other, 4, four_nodes) == 4  # nobody has that link: as on its others


def test_eight_h100_with_ndr_have_eight_cards_of_400_gbit() -> None:
    node = Node(
        name="mine",
        accelerator=SHIPPED.get("accelerators", "h100-sxm5-80gb"),
        accelerators_per_node=8,
        scale_up=SHIPPED.get("links", "nvlink-4"),
    )
    found, notes = completed(Cluster(name="c", node=node, scale_out=SHIPPED.get("links", "ib-ndr")), SHIPPED)
    assert found.network_bytes_per_s == pytest.approx(8 * 50e9)
    assert notes == ["network: 8 cards of ib-ndr a node is a default"]
    stated = found.model_copy(update={"network_per_node": 1e11})
    assert stated.network_bytes_per_s == 1e11
    assert completed(stated, SHIPPED) == (stated, [])


def test_a_tray_on_a_rack_wide_link_reaches_the_rack() -> None:
    tray = Node(
        name="tray",
        accelerator=SHIPPED.get("accelerators", "gb200"),
        accelerators_per_node=4,
        scale_up=SHIPPED.get("links", "nvl72"),
    )
    assert usual_domain(tray, SHIPPED) == 72
    rack = tray.model_copy(update={"accelerators_per_node": 72})
    assert usual_domain(rack, SHIPPED) == 72
    h100 = Node(
        name="half",
        accelerator=SHIPPED.get("accelerators", "h100-sxm5-80gb"),
        accelerators_per_node=4,
        scale_up=SHIPPED.get("links", "nvlink-4"),
    )
    assert usual_domain(h100, SHIPPED) == 4
