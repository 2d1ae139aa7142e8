"""Collective costs against closed forms worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics import collectives as c

ALPHA, BETA = 2e-6, 1e-11


@pytest.mark.parametrize("n", [2, 3, 8, 72])
def test_ring_is_hockneys_closed_form(n: int) -> None:
    size = 3e7
    closed = 2 * (n - 1) * (ALPHA + size / n * BETA)
    assert c.all_reduce_ring(size, n, ALPHA, BETA) == pytest.approx(closed)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_all_reduce_is_reduce_scatter_and_all_gather(n: int) -> None:
    gamma = 5e-12
    both = c.reduce_scatter_ring(1e6, n, ALPHA, BETA, gamma) + c.all_gather_ring(1e6, n, ALPHA, BETA)
    assert c.all_reduce_ring(1e6, n, ALPHA, BETA, gamma) == pytest.approx(float(both))


@pytest.mark.parametrize(("g", "k"), [(2, 2), (8, 4), (4, 16), (3, 5)])
def test_hierarchical_moves_the_bytes_of_a_flat_ring_when_links_are_equal(g: int, k: int) -> None:
    flat = c.all_reduce_ring(1e9, g * k, 0.0, BETA)
    assert c.all_reduce_hierarchical(1e9, g, k, 0.0, BETA, 0.0, BETA) == pytest.approx(float(flat))
    fewer = c.all_reduce_hierarchical(0.0, g, k, ALPHA, BETA, ALPHA, BETA)
    assert fewer < c.all_reduce_ring(0.0, g * k, ALPHA, BETA)


def test_hierarchical_with_one_node_or_one_rank_a_node_is_the_flat_ring() -> None:
    flat = float(c.all_reduce_ring(1e6, 8, ALPHA, BETA))
    assert c.all_reduce_hierarchical(1e6, 8, 1, ALPHA, BETA, 1.0, 1.0) == pytest.approx(flat)
    assert c.all_reduce_hierarchical(1e6, 1, 8, 1.0, 1.0, ALPHA, BETA) == pytest.approx(flat)


def test_powers_of_two_pay_no_fold() -> None:
    eight, nine = (float(c.all_reduce_halving_doubling(1e6, n, ALPHA, BETA)) for n in (8, 9))
    assert nine - eight == pytest.approx(2 * ALPHA + 2e6 * BETA)


def test_in_switch_gains_up_to_two_over_the_ring() -> None:
    gain = c.all_reduce_ring(1e12, 64, 0.0, BETA) / c.all_reduce_in_switch(1e12, 64, 0.0, BETA)
    assert gain == pytest.approx(2 * 63 / 64)


def test_two_ranks_need_no_tree() -> None:
    assert c.all_reduce_double_binary_tree(1e6, 2, ALPHA, BETA) == c.all_reduce_ring(1e6, 2, ALPHA, BETA)


def _bruck_blocks(n: int) -> int:
    """Blocks that a rank sends in Bruck's exchange, counted bit by bit."""
    return sum(bin(block).count("1") for block in range(n))


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_bruck_exchange_counts_one_block_per_bit(n: int) -> None:
    assert c.all_to_all_bruck(float(n), n, 0.0, 1.0) == pytest.approx(_bruck_blocks(n))


def test_bruck_is_never_below_the_count_off_powers_of_two() -> None:
    for n in range(2, 40):
        assert float(c.all_to_all_bruck(float(n), n, 0.0, 1.0)) >= _bruck_blocks(n) - 1e-9


def test_short_messages_prefer_few_steps_and_long_ones_few_bytes() -> None:
    assert c.best("all_to_all", [8.0, 1e9], 16, ALPHA, BETA).algorithm.tolist() == ["Bruck", "pairwise"]
    assert c.best("broadcast", [8.0, 1e9], 16, ALPHA, BETA).algorithm.tolist() == ["binomial", "van de Geijn"]
    long = c.best("all_reduce", 1e9, 5, ALPHA, BETA)
    assert long.algorithm.item() == "ring"
    assert c.best("all_reduce", 1e9, 8, ALPHA, BETA, in_switch=True).algorithm.item() == "in-switch"


def test_best_is_the_least_of_all() -> None:
    size, ranks = np.logspace(1, 10, 10)[:, None], np.arange(1, 20)
    for op, costs in c.ALGORITHMS.items():
        every = np.stack([np.broadcast_to(f(size, ranks, ALPHA, BETA), (10, 19)) for f in costs.values()])
        assert np.array_equal(c.best(op, size, ranks, ALPHA, BETA).time_s, every.min(axis=0))


def test_more_servers_help_until_every_worker_has_one() -> None:
    times = [float(c.parameter_server(1e6, 8, ALPHA, BETA, servers=s)) for s in (1, 2, 8, 16)]
    assert times[0] > times[1] > times[2] == times[3]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        c.all_reduce_ring(1.0, 0, ALPHA, BETA)
    with pytest.raises(ValueError, match="bytes"):
        c.all_gather_ring(-1.0, 2, ALPHA, BETA)
    with pytest.raises(ValueError, match="unknown collective"):
        c.best("gossip", 1.0, 2, ALPHA, BETA)
    with pytest.raises(ValueError, match="unknown collective"):
        c.lower_bound("gossip", 1.0, 2, ALPHA, BETA)


@pytest.mark.parametrize(
    ("cost", "moved", "added"),
    [
        (c.all_reduce_ring, 2 * 7 / 8, 7 / 8),
        (c.all_reduce_halving_doubling, 2 * 7 / 8, 7 / 8),
        (c.all_reduce_recursive_doubling, 3.0, 3.0),
        (c.all_reduce_binomial, 6.0, 3.0),
    ],
)
def test_bytes_that_are_added_cost_gamma_each(cost, moved, added) -> None:
    """Eight ranks, without latency: beta for each byte moved, gamma for each that is added."""
    assert float(cost(1e6, 8, 0.0, 2e-9, 3e-10)) == pytest.approx(1e6 * (2e-9 * moved + 3e-10 * added))
