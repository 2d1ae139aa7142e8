"""What must hold for any curve and any price."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfmodel.decide import cost
from perfmodel.decide.goodput import Reliability, slowdown
from perfmodel.decide.pareto import front
from perfmodel.decide.pricing import Tariff, Tier, per_hour

Floats = npt.NDArray[np.float64]

times = st.lists(st.integers(1, 10_000), min_size=2, max_size=10).map(lambda v: np.array(v, dtype=float))
prices = st.integers(1, 1000).map(lambda cents: cents / 100.0)
factors = st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 1.5, 2.0, 10.0, 1000.0])


def ladder_of(time_s: Floats) -> Floats:
    return 2.0 ** np.arange(len(time_s))


@given(times, prices, factors, st.booleans(), st.integers(1, 16), st.integers(0, 64))
def test_nothing_fixed_scaling_every_price_leaves_p_star(
    time_s: Floats, price: float, factor: float, tiered: bool, node: int, minimum: int
) -> None:
    tiers = (Tier(3, per_hour(price * 0.7)),) if tiered else ()
    tariff = Tariff("t", per_hour(price), node_size=node, minimum_k=minimum, tiers=tiers)
    k = ladder_of(time_s)
    before = cost.decide(k, time_s, tariff)
    after = cost.decide(k, time_s, tariff.accelerators_scaled(factor))
    assert after.p_star.k == before.p_star.k
    np.testing.assert_allclose(after.bill.total_usd, factor * before.bill.total_usd, rtol=1e-9)


@given(times, prices, prices, st.floats(0.01, 1.0), st.integers(1, 16))
def test_something_fixed_p_star_never_moves_inward_as_prices_fall(
    time_s: Floats, price: float, fixed: float, factor: float, node: int
) -> None:
    tariff = Tariff("t", per_hour(price), fixed_usd_per_s=per_hour(fixed), node_size=node)
    k = ladder_of(time_s)
    dear = cost.decide(k, time_s, tariff)
    cheap = cost.decide(k, time_s, tariff.accelerators_scaled(factor))
    assert cheap.p_star.k >= dear.p_star.k


@given(times, prices, st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_p_star_never_moves_inward_as_waiting_gets_dearer(
    time_s: Floats, price: float, value: float, more: float
) -> None:
    k = ladder_of(time_s)
    calm = Tariff("t", per_hour(price), value_of_time_usd_per_s=per_hour(value))
    hasty = dataclasses.replace(calm, value_of_time_usd_per_s=per_hour(value + more))
    assert cost.decide(k, time_s, hasty).p_star.k >= cost.decide(k, time_s, calm).p_star.k


@given(times, prices, st.floats(0, 50), st.integers(1, 16), st.integers(0, 40), st.floats(0, 5000))
def test_parts_sum_and_total_is_at_least_the_accelerators(
    time_s: Floats, price: float, fixed: float, node: int, minimum: int, shortest: float
) -> None:
    tariff = Tariff(
        "t",
        per_hour(price),
        fixed_usd_per_s=per_hour(fixed),
        node_size=node,
        minimum_k=minimum,
        minimum_s=shortest,
        interruptions=Reliability(mtbf_per_accelerator_s=1e6, checkpoint_s=10, restart_s=60),
    )
    b = cost.bill(ladder_of(time_s), time_s, tariff)
    np.testing.assert_allclose(sum(b.parts_usd.values()), b.total_usd, rtol=1e-9)
    assert (b.total_usd >= b.parts_usd["accelerators"] * (1 - 1e-12)).all()


@given(times, st.integers(0, 2**32 - 1), prices)
def test_elements_do_not_depend_on_their_neighbours(time_s: Floats, seed: int, price: float) -> None:
    tariff = Tariff("t", per_hour(price), node_size=8, interruptions=Reliability(mtbf_per_node_s=1e6))
    k = ladder_of(time_s)
    order = np.random.default_rng(seed).permutation(len(k))
    np.testing.assert_array_equal(
        cost.bill(k, time_s, tariff).total_usd[order], cost.bill(k[order], time_s[order], tariff).total_usd
    )


@given(
    st.floats(1e4, 1e9),
    st.floats(0.1, 600),
    st.floats(0, 3600),
    st.lists(st.integers(1, 20_000), min_size=2, max_size=8, unique=True),
)
def test_goodput_falls_with_k_and_the_best_interval_is_best(
    mtbf: float, checkpoint: float, restart: float, ks: list[int]
) -> None:
    k = np.sort(np.array(ks, dtype=float))
    assume(k[-1] / mtbf * (restart + checkpoint) < 5.0)
    best = Reliability(mtbf, accelerators_per_node=1, checkpoint_s=checkpoint, restart_s=restart)
    slow = slowdown(k, best)
    assert (slow >= 1.0).all()
    assert (np.diff(slow) >= -1e-9 * slow[1:]).all()
    interval = best.checkpoint_interval_s(k)
    for factor in (0.5, 0.9, 1.1, 2.0):
        for i in range(len(k)):
            other = dataclasses.replace(best, interval_s=float(interval[i]) * factor)
            assert slowdown(k[i : i + 1], other)[0] >= slow[i] * (1 - 1e-9)


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40), st.integers(2, 3))
def test_front_is_what_brute_force_finds(points: list[tuple[int, int, int]], dims: int) -> None:
    array = np.array(points, dtype=float)[:, :dims]
    mask = front(list(array.T))
    for i, p in enumerate(array):
        beaten = any((q <= p).all() and (q < p).any() for q in array)
        assert mask[i] == (not beaten)
