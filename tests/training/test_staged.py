"""Cards without peer access: what they exchange goes through the memory of the host, across its halves at one rate."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.beliefs.features import features
from perfmodel.physics.coefficients import Coefficients, quiet, textbook
from perfmodel.physics.exchanges import Links
from perfmodel.physics.layouts import layouts
from perfmodel.physics.machine import Machine, numbers
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.workload import Workload

CATALOG = Catalog.default()
GRADIENT = 1e9
RANKS = np.array([2.0, 4.0, 8.0])


def box(accelerator: str, link: str) -> Machine:
    return numbers(
        CATALOG.get("accelerators", accelerator),
        "fp16",
        per_node=8.0,
        domain=8.0,
        scale_up=CATALOG.get("links", link),
        network_bytes_per_s=1e10,
        network_latency_s=1e-6,
    )


def slow_bus(rate: float) -> Coefficients:
    ideal = {name: getattr(quiet(), name) for name in Coefficients.__dataclass_fields__}
    return Coefficients(**{**ideal, "bus_bytes_per_s": np.asarray(rate)})


def exchange(machine: Machine, c: Coefficients, ranks: np.ndarray = RANKS) -> np.ndarray:
    at = layouts(ranks, global_batch=64 * ranks, accelerators_per_node=8)
    return Links(machine, at, c).time("all_reduce", np.full_like(ranks, GRADIENT), ranks, np.ones(()))


def test_half_a_node_exchanges_over_lanes_of_its_own_and_a_whole_one_in_turns() -> None:
    ranks = np.array([2.0, 3.0, 4.0, 5.0, 8.0])
    gradients = np.array([2.0 / 2.0, 4.0 / 3.0, 6.0 / 4.0, 4.0, 7.0])  # past the host, of one rank or of all
    seconds = exchange(box("rtx-3090", "pcie-4"), slow_bus(1e9), ranks)
    assert seconds == pytest.approx(2.0 * gradients * GRADIENT / 1e9, rel=1e-3)


def test_groups_of_a_node_share_what_joins_its_halves() -> None:
    at = layouts(np.array([8.0]), global_batch=64.0, accelerators_per_node=8, tp=2)
    links = Links(box("rtx-3090", "pcie-4"), at, slow_bus(1e9))
    pairs = links.time("all_reduce", np.array([GRADIENT]), np.array([2.0]), np.ones(()))
    strided = links.time("all_reduce", np.array([GRADIENT]), np.array([4.0]), np.array(2.0))
    assert float(pairs[0]) == pytest.approx(
        2.0 * GRADIENT / 1e9, rel=1e-3
    )  # neighbours, over their own lanes
    assert float(strided[0]) == pytest.approx(
        2 * 2.0 * 3.0 * GRADIENT / 1e9, rel=1e-3
    )  # two groups, both halves


def test_one_rank_exchanges_nothing() -> None:
    assert exchange(box("rtx-3090", "pcie-4"), slow_bus(1e9), np.array([1.0])).tolist() == [0.0]


def test_peer_access_spares_a_pair_the_host() -> None:
    direct, staged = (
        exchange(box(card, "pcie-4"), slow_bus(1e9), np.array([2.0])) for card in ("rtx-a6000", "rtx-3090")
    )
    assert float(direct[0]) == pytest.approx(0.3 * float(staged[0]), rel=0.01)


def test_a_bridge_carries_a_pair_and_every_other_hop_of_a_ring() -> None:
    bridged = exchange(box("rtx-2080-ti", "nvlink-2-bridge"), slow_bus(1e9))
    bare = exchange(box("rtx-2080-ti", "pcie-3"), slow_bus(1e9))
    assert float(bridged[0] / bare[0]) < 0.1
    assert bridged[1:] == pytest.approx(0.5 * bare[1:], rel=1e-2)


def test_a_switch_needs_no_host() -> None:
    machine = box("a100-sxm4-80gb", "nvswitch-2")
    assert exchange(machine, slow_bus(1.0)) == pytest.approx(exchange(machine, quiet()))


def test_beliefs_about_the_bus_tell_the_two_apart() -> None:
    work = Workload(name="w", kind="convnet", params=1e6, flop_per_sample_forward=1e9)

    def level(accelerator: str, name: str, framework: str = "pytorch_eager") -> str:
        device = CATALOG.get("accelerators", accelerator)
        return features(work, device, "fp16", framework=framework, scale_up=None, scale_out=None)[name]

    assert level("rtx-3090", "peer") == "staged"
    assert level("rtx-a6000", "peer") == "direct"
    # Whatever the program was written in, a TPU runs what XLA made of it.
    assert level("tpu-v4", "framework", "tensorflow") == "xla"
    assert level("a100-sxm4-80gb", "framework", "tensorflow") == "tensorflow"


def test_textbook_bus_is_that_of_peers() -> None:
    staged = exchange(box("rtx-3090", "pcie-4"), slow_bus(9e9))
    assert np.all(staged > exchange(box("rtx-a6000", "pcie-4"), textbook()))
