"""The two-tier form: limits, irregular wiring, cost."""

from __future__ import annotations

import time

import numpy as np
import pytest

from perfmodel.physics.fabric import (
    IN_SWITCH_RANKS,
    OPERATIONS,
    OWN_SHARD_COPY,
    collective_time,
    group_link_share,
    knee_sum,
)

LINKS = {
    "base_s": 1e-5,
    "step_up_s": 1e-6,
    "step_out_s": 1e-5,
    "up_bytes_per_s": 3e11,
    "out_bytes_per_s_per_node": 2e11,
}


@pytest.mark.parametrize("op", OPERATIONS)
def test_one_rank_costs_nothing(op: str) -> None:
    assert float(collective_time(op, 1e9, 1, 1, **LINKS)) == 0.0


def test_the_knee_lies_between_hockney_and_its_square() -> None:
    w = np.geomspace(1e-3, 1e3, 41)
    exact = (1 + w**0.65) ** (1 / 0.65)
    assert np.abs(knee_sum(1.0, w, 0.65) / exact - 1).max() < 0.03
    assert np.allclose(knee_sum(1.0, w, 0.5), (1 + np.sqrt(w)) ** 2)


def test_ring_in_one_domain_is_hockney_at_p_one() -> None:
    n = np.arange(2, 17)
    ours = collective_time(
        "all_reduce", 1e9, n, 1, base_s=0, step_up_s=1e-6, step_out_s=0, up_bytes_per_s=1e11,
        out_bytes_per_s_per_node=1.0,
    )  # fmt: skip
    textbook = 2 * (n - 1) * 1e-6 + 2 * (n - 1) / n * 1e9 / 1e11
    assert np.allclose(ours - OWN_SHARD_COPY / n * 1e9 / 1e11, textbook, rtol=1e-12)


def test_two_domains_with_an_endless_network_cost_what_the_inside_costs() -> None:
    wide = LINKS | {"out_bytes_per_s_per_node": 1e18, "step_out_s": 0.0, "step_up_s": 0.0}
    one = collective_time("all_gather", 1e9, 64, 1, **wide)
    two = collective_time("all_gather", 1e9, 64, 2, **wide)
    assert float(two) == pytest.approx(float(one), rel=0.02)  # one hop of 64 leaves each domain


def test_two_nodes_beat_the_ring_over_their_cards() -> None:
    """A tree over two nodes sends the vector once where a ring sends it nearly twice."""
    slow = LINKS | {"out_bytes_per_s_per_node": 1e9, "base_s": 0.0, "step_up_s": 0.0, "step_out_s": 0.0}
    assert float(collective_time("all_reduce", 1e9, 16, 2, **slow)) == pytest.approx(1.0, rel=1e-3)
    assert float(collective_time("all_reduce", 1e9, 64, 8, **slow)) == pytest.approx(2.0, rel=0.02)


def test_in_switch_reduction_helps_all_reduce_of_large_groups_only() -> None:
    switch = LINKS | {"in_switch_bytes_per_s": 2.5e11}
    for op, n, helps in (("all_reduce", 8, True), ("all_reduce", 4, False), ("all_gather", 8, False)):
        gain = collective_time(op, 1e10, n, 1, **LINKS) / collective_time(op, 1e10, n, 1, **switch)
        assert bool(gain > 1.05) is helps
    assert IN_SWITCH_RANKS < 5
    network = LINKS | {"in_network_bytes_per_s": 2e11, "out_bytes_per_s_per_node": 2e11}
    assert collective_time("all_reduce", 1e10, 64, 8, **network) < collective_time(
        "all_reduce", 1e10, 64, 8, **LINKS
    )


def test_a_mixed_catalogue_takes_the_switch_where_there_is_one() -> None:
    both = collective_time("all_reduce", 1e10, 8, 1, **LINKS, in_switch_bytes_per_s=np.array([0.0, 2.5e11]))
    assert both[1] < both[0] == float(collective_time("all_reduce", 1e10, 8, 1, **LINKS))


def test_irregular_wiring() -> None:
    assert group_link_share("cube-mesh", np.arange(2, 9)) * 6 == pytest.approx([1, 2, 4, 2, 2, 4, 6])
    assert (np.diff(group_link_share("fully-connected", np.arange(2, 9), 8)) > 0).all()
    assert group_link_share("pcie-tree", [2, 3, 8]).tolist()[0] == 1.0
    assert (group_link_share("pcie-tree", [4, 8]) < 1).all()
    assert group_link_share("nvswitch", [2, 8]).tolist() == [1.0, 1.0]


def test_unknown_operation_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="all_to_all"):
        collective_time("gossip", 1, 2, 1, **LINKS)


def test_a_million_layouts_cost_less_than_a_second_of_one_core() -> None:
    n = np.random.default_rng(0).integers(2, 4096, 1_000_000).astype(float)
    nodes = np.ceil(n / 8)
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        collective_time("all_reduce", 1e8, n, nodes, **LINKS, in_switch_bytes_per_s=2.5e11, p=0.65)
        best = min(best, time.process_time() - start)
    assert best < 1.0


def test_latency_grows_as_a_ring_among_few_and_slower_among_many():
    def latency(ranks):
        return collective_time(
            "all_reduce", 0.0, ranks, 1.0, base_s=0.0, step_up_s=1.0, step_out_s=0.0,
            up_bytes_per_s=1.0, out_bytes_per_s_per_node=1.0,
        )  # fmt: skip

    assert latency(8.0) == 14.0
    assert latency(16.0) == 30.0
    ranks = np.linspace(2.0, 4096.0, 500)
    assert (np.diff(latency(ranks)) > 0).all()
    assert latency(4096.0) < 0.05 * 2 * 4095
