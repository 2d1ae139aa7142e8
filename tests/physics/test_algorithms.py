"""A chosen algorithm in one domain is its closed form; on two tiers it is what its table says."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics import collectives as closed
from perfmodel.physics.algorithms import ALGORITHMS, CODES, has, terms
from perfmodel.physics.fabric import OPERATIONS, OWN_SHARD_COPY, collective_time

CLOSED = {
    ("all_reduce", "ring"): closed.all_reduce_ring,
    ("all_reduce", "halving_doubling"): closed.all_reduce_halving_doubling,
    ("all_reduce", "in_switch"): closed.all_reduce_in_switch,
    ("all_reduce", "parameter_server"): closed.parameter_server,
    ("all_gather", "ring"): closed.all_gather_ring,
    ("all_gather", "tree"): closed.all_gather_bruck,
    ("all_gather", "halving_doubling"): closed.all_gather_recursive_doubling,
    ("reduce_scatter", "ring"): closed.reduce_scatter_ring,
    ("reduce_scatter", "halving_doubling"): closed.reduce_scatter_recursive_halving,
    ("all_to_all", "ring"): closed.all_to_all_pairwise,
    ("all_to_all", "halving_doubling"): closed.all_to_all_bruck,
}


@pytest.mark.parametrize(("op", "name"), CLOSED)
@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_messages_and_bytes_in_one_domain_are_those_of_the_closed_form(op: str, name: str, n: int) -> None:
    found = terms(op, name, 3e7, n, 1)
    want = closed.parts(CLOSED[op, name], 3e7, n)
    assert float(found.steps_up) == pytest.approx(float(want.steps))
    assert float(found.up_bytes) == pytest.approx(float(want.wire_bytes))
    assert float(found.steps_out) == 0.0
    assert float(found.out_bytes) == 0.0


@pytest.mark.parametrize("n", [4, 16, 64])
def test_the_two_trees_send_two_messages_a_level_and_twice_the_vector(n: int) -> None:
    found, want = (
        terms("all_reduce", "tree", 3e7, n, 1),
        closed.parts(closed.all_reduce_double_binary_tree, 3e7, n),
    )
    assert float(found.steps_up) == 2 * np.log2(n) == float(want.steps)
    assert float(found.up_bytes) == 6e7 == float(want.wire_bytes)


@pytest.mark.parametrize(("g", "k"), [(8, 1), (8, 4), (1, 16), (4, 2)])
def test_a_flat_ring_sends_two_n_minus_one_messages_on_any_fabric(g: int, k: int) -> None:
    found = terms("all_reduce", "ring", 1.0, g * k, k)
    assert float(found.steps_up + found.steps_out) == 2 * (g * k - 1)


@pytest.mark.parametrize(("g", "k"), [(8, 4), (4, 2)])
def test_the_hierarchy_is_its_closed_form(g: int, k: int) -> None:
    size, a1, b1, a2, b2 = 1e8, 2e-6, 1e-11, 9e-6, 4e-11  # b2: of one rank's own card
    found = terms("all_reduce", "hierarchical", size, g * k, k)
    time = found.steps_up * a1 + found.steps_out * a2 + found.up_bytes * b1 + found.out_bytes * b2 / g
    assert float(time) == pytest.approx(float(closed.all_reduce_hierarchical(size, g, k, a1, b1, a2, b2)))
    assert found.in_series


@pytest.mark.parametrize(
    "name", ["ring", "tree", "halving_doubling", "in_switch", "hierarchical", "parameter_server"]
)
def test_reduce_scatter_and_all_gather_make_an_all_reduce(name: str) -> None:
    whole = terms("all_reduce", name, 1e6, 32, 4)
    halves = [terms(op, name, 1e6, 32, 4) for op in ("reduce_scatter", "all_gather")]
    assert float(sum(h.steps_up + h.steps_out for h in halves)) == pytest.approx(
        float(whole.steps_up + whole.steps_out)
    )


def test_what_an_operation_has() -> None:
    assert all(has(op, "auto") for op in OPERATIONS)
    assert [name for name in ALGORITHMS if has("all_to_all", name)] == [
        "auto",
        "ring",
        "halving_doubling",
        "hierarchical",
    ]
    assert not has("p2p", "ring")
    with pytest.raises(ValueError, match="has no algorithm"):
        terms("p2p", "ring", 1.0, 2, 1)
    assert CODES["auto"] == 0.0


FABRIC = {
    "base_s": 3e-5, "step_up_s": 1e-6, "step_out_s": 8e-6, "up_bytes_per_s": 4e11,
    "out_bytes_per_s_per_node": 3e11, "p": 0.65,
}  # fmt: skip


@pytest.mark.parametrize("n", [2, 5, 8, 16])
def test_up_to_sixteen_ranks_without_a_reducing_switch_auto_is_the_ring(n: int) -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        auto, ring = (collective_time(op, 1e7, n, 1, algorithm=a, **FABRIC) for a in ("auto", "ring"))
        assert float(ring) == pytest.approx(float(auto), rel=1e-12)


def test_an_algorithm_that_an_operation_lacks_leaves_it_as_it_is() -> None:
    auto, tree = (collective_time("all_to_all", 1e7, 32, 4, algorithm=a, **FABRIC) for a in ("auto", "tree"))
    assert tree == auto


def test_reduction_in_the_switch_needs_one() -> None:
    slow, quick = (
        collective_time("all_reduce", 1e9, 8, 1, algorithm="in_switch", in_switch_bytes_per_s=rate, **FABRIC)
        for rate in (0.0, 4e11)
    )
    latency_free = {**FABRIC, "base_s": 0.0, "step_up_s": 0.0}
    bytes_s = collective_time(
        "all_reduce", 1e9, 8, 1, algorithm="in_switch", in_switch_bytes_per_s=4e11, **latency_free
    )
    assert float(bytes_s) == pytest.approx(1e9 / 4e11)
    assert slow > 1.5 * quick
    assert OWN_SHARD_COPY < 1.0


S, G, K = 24.0, 8, 4
N = G * K
#: Messages inside and across, bytes of a scale-up link and of a domain's NICs, bytes added up: eight ranks in four domains.
TABLE = {
    ("all_reduce", "ring"): (2 * 28, 2 * 3, 2 * 28 / 32, 2 * 31 / 32, 31 / 32),
    ("all_reduce", "tree"): (6, 4, 2, 2, 1),
    ("all_reduce", "halving_doubling"): (6, 4, 2 * 7 / 8, 2 * 3 / 4, 31 / 32),
    ("all_reduce", "hierarchical"): (14, 6, 2 * 7 / 8, 2 * 3 / 4, 31 / 32),
    ("all_reduce", "in_switch"): (2, 4, 1, 2, 31 / 32),
    ("all_reduce", "parameter_server"): (2, 2, 2 * 8 / 4, 2 * 8 * 3 / 4, 8 * 31 / 32),
    ("reduce_scatter", "ring"): (28, 3, 28 / 32, 31 / 32, 31 / 32),
    ("reduce_scatter", "tree"): (3, 2, 28 / 32, 31 / 32, 31 / 32),
    ("reduce_scatter", "in_switch"): (1, 2, 28 / 32, 31 / 32, 31 / 32),
    ("reduce_scatter", "hierarchical"): (7, 3, 7 / 8, 3 / 4, 31 / 32),
    ("all_gather", "ring"): (28, 3, 28 / 32, 31 / 32, 0),
    ("all_gather", "halving_doubling"): (3, 2, 7 / 8, 3 / 4, 0),
    ("all_gather", "parameter_server"): (1, 1, 8 / 4, 8 * 3 / 4, 0),
    ("all_to_all", "ring"): (7, 8 * 3, 7 / 8, 8 * 3 / 4, 0),
    ("all_to_all", "hierarchical"): (7, 3, 7 / 8, 8 * 3 / 4, 0),
    ("all_to_all", "halving_doubling"): (3, 2, 3 / 2, 8 * 2 / 2, 0),
}


@pytest.mark.parametrize(("op", "name"), TABLE)
def test_messages_and_bytes_on_two_tiers(op: str, name: str) -> None:
    found = terms(op, name, S, N, K)
    up, out, *bytes_ = TABLE[op, name]
    assert (float(found.steps_up), float(found.steps_out)) == (up, out)
    told = [float(found.up_bytes), float(found.out_bytes), float(found.reduced_bytes)]
    assert told == pytest.approx([S * part for part in bytes_])
    assert found.in_series == (
        name in ("halving_doubling", "hierarchical") and (op, name) != ("all_to_all", "ring")
    )
    assert found.in_switch == (name == "in_switch")
    assert found.is_scattered == ((op, name) != ("all_reduce", "tree"))


@pytest.mark.parametrize(("op", "name"), TABLE)
def test_one_rank_sends_nothing_and_one_a_domain_nothing_inside(op: str, name: str) -> None:
    alone, apart = terms(op, name, S, 1, 1), terms(op, name, S, K, K)
    for part in (alone.steps_up, alone.steps_out, alone.up_bytes, alone.out_bytes, alone.reduced_bytes):
        assert float(part) == 0.0
    assert float(apart.steps_up) == 0.0
    assert float(apart.up_bytes) == 0.0
    assert float(apart.steps_out) > 0.0
    assert float(apart.out_bytes) > 0.0


def test_two_ranks_of_a_tree_only_exchange() -> None:
    assert float(terms("all_reduce", "tree", S, 2, 1).up_bytes) == S
    assert float(terms("all_reduce", "tree", S, 2, 2).out_bytes) == S
