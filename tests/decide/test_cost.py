"""Bills, p*, exchange rate and causes on curves whose answers are known by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.decide import cost
from perfmodel.decide.goodput import Reliability
from perfmodel.decide.pricing import (
    HOUR_S,
    YEAR_S,
    Ownership,
    Tariff,
    Tier,
    on_demand,
    owned_at,
    per_hour,
    spot,
    threshold_utilisation,
)

# The worked breakdown of the reference tables: compute, communication and idle seconds.
TABLE = np.genfromtxt(
    Path(__file__).parents[1].parent / "examples" / "textbook" / "breakdown.csv", delimiter=",", names=True
)
K = TABLE["k"]
TIME_S = TABLE["compute_s"] + TABLE["communication_s"] + TABLE["idle_s"]
NODE = on_demand(per_hour(3.20))
SPOT = Reliability(
    preemption_per_node_s=per_hour(0.10), accelerators_per_node=1, checkpoint_s=5, restart_s=60
)


def test_reference_breakdown_to_the_printed_digit() -> None:
    d = cost.decide(K, TIME_S, NODE)
    assert d.bill.total_usd.round(3).tolist() == [0.711, 0.764, 0.924, 1.465, 3.342]
    assert (d.p_star.k, d.fastest.k) == (1, 8)
    assert (round(d.times_the_cost, 2), round(d.times_faster, 2)) == (2.06, 3.88)
    steps = [(s["step"], round(s["speedup"], 2), round(s["cost_usd"], 3)) for s in d.ladder]
    assert steps == [
        ("1->2", 0.86, 0.053),
        ("2->4", 1.22, 0.160),
        ("4->8", 0.81, 0.540),
        ("8->16", -0.48, 1.877),
    ]
    rates = [round(s["speedup_per_usd"], 2) for s in d.ladder]
    assert rates == pytest.approx([16.13, 7.60, 1.49, -0.26], abs=0.011)


def regimes(fixed_usd_per_h: float) -> list[cost.Decision]:
    base = dataclasses.replace(NODE, fixed_usd_per_s=per_hour(fixed_usd_per_h))
    tariffs = [
        base,
        spot(base, fraction=0.30, interruptions=SPOT),
        owned_at(base, fraction=0.60, utilisation=0.60),
        owned_at(base, fraction=0.60, utilisation=0.90),
    ]
    return cost.compare(K, TIME_S, tariffs)


def test_reference_repriced_with_nothing_fixed_keeps_p_star() -> None:
    rows = regimes(0.0)
    assert [d.p_star.k for d in rows] == [1, 1, 1, 1]
    assert "no price level can move it" in rows[0].sentence
    assert all(d.moved_by == () for d in rows)
    # Owned at 60 % of the price breaks even at 60 % use: there the bill equals renting's.
    np.testing.assert_allclose(rows[2].bill.total_usd, rows[0].bill.total_usd)
    assert (rows[3].bill.total_usd < rows[0].bill.total_usd).all()
    assert threshold_utilisation(0.60) == pytest.approx(0.60)
    # Against spot at 30 % no utilisation is high enough.
    assert threshold_utilisation(0.60, 0.30) is None


def test_reference_repriced_with_a_fixed_price_moves_p_star_outward() -> None:
    rows = regimes(2.0)
    assert [d.p_star.k for d in rows] == [2, 4, 2, 2]
    spot_row = rows[1]
    assert spot_row.moved_by == ("fixed",)
    assert spot_row.sentence == (
        "p* moves outward from 1 to 4 because of what is paid by the hour whatever K is (2 USD/h)."
    )


def test_parts_sum_to_the_total_with_everything_switched_on() -> None:
    tariff = Tariff(
        "everything",
        per_hour(2.0),
        fixed_usd_per_s=per_hour(3.0),
        node_size=8,
        minimum_k=12,
        minimum_s=400.0,
        tiers=(Tier(5, per_hour(1.5)), Tier(10, per_hour(1.0))),
        storage_usd_per_s=per_hour(0.03),
        egress_usd=9.0,
        value_of_time_usd_per_s=per_hour(80.0),
        interruptions=SPOT,
        spares=8,
    )
    b = cost.bill(K, TIME_S, tariff)
    np.testing.assert_allclose(sum(b.parts_usd.values()), b.total_usd, rtol=1e-12)
    assert set(b.parts_usd) == set(cost.PARTS)
    assert (b.parts_usd["interruptions"] > 0).all()
    assert (b.parts_usd["tiers"][:3] == 0).all()
    assert (b.parts_usd["tiers"][3:] < 0).all()


def test_whole_nodes_bill_what_does_not_compute() -> None:
    tariff = dataclasses.replace(NODE, node_size=8)
    b = cost.bill([1, 8, 9], [100.0, 100.0, 100.0], tariff)
    np.testing.assert_allclose(b.total_usd / b.total_usd[0], [1, 1, 2])
    d = cost.decide([1, 2, 4, 8], [800.0, 430.0, 260.0, 206.0], tariff)
    assert d.p_star.k == 8
    assert d.moved_by == ("whole_nodes",)
    assert "outward from 1 to 8" in d.sentence


def test_minimum_commitments() -> None:
    many = dataclasses.replace(NODE, minimum_k=4)
    assert cost.bill([1], [100.0], many).total_usd[0] == pytest.approx(4 * per_hour(3.2) * 100)
    long = dataclasses.replace(NODE, minimum_s=HOUR_S)
    np.testing.assert_allclose(cost.bill([2], [100.0], long).total_usd, [6.40])


def test_value_of_time_and_storage_move_p_star_and_are_named() -> None:
    waiting = dataclasses.replace(NODE, value_of_time_usd_per_s=per_hour(50.0))
    d = cost.decide(K, TIME_S, waiting)
    assert (d.p_star.k, d.moved_by) == (8, ("waiting",))
    both = dataclasses.replace(NODE, fixed_usd_per_s=per_hour(0.3), value_of_time_usd_per_s=per_hour(0.3))
    d = cost.decide(K, TIME_S, both)
    # Either is too small alone and both together are enough: both are named.
    assert (d.p_star.k, d.moved_by) == (2, ("fixed", "waiting"))


def test_preemptions_that_grow_with_k_can_move_p_star_inward() -> None:
    time_s = np.array([100.0, 49.0, 24.0, 11.5])  # superlinear: accelerators alone would take K = 8
    storm = Reliability(preemption_per_node_s=per_hour(1.0), accelerators_per_node=1, checkpoint_s=30)
    d = cost.decide([1, 2, 4, 8], time_s, spot(NODE, fraction=0.3, interruptions=storm))
    assert d.p_star_accelerators_only == 8
    assert d.p_star.k == 1
    assert d.moved_by == ("interruptions",)
    assert "inward from 8 to 1" in d.sentence


def test_infeasible_k_are_left_out_and_nothing_feasible_is_an_error() -> None:
    time_s = np.array([np.nan, 430.0, 260.0, np.nan, 235.0])
    d = cost.decide(K, time_s, NODE)
    assert d.p_star.k == 2
    assert [s["step"] for s in d.ladder] == ["2->4", "4->16"]
    assert np.isnan(d.bill.total_usd[0])
    with pytest.raises(ValueError, match="nothing to decide"):
        cost.decide(K, np.full(5, np.nan), NODE)


def test_weak_scaling_costs_per_unit_of_work() -> None:
    d = cost.decide([1, 2, 4], [10.0, 10.5, 11.0], NODE, work=[1, 2, 4])
    assert d.p_star.k == 1
    assert d.fastest.k == 4
    assert d.fastest.cost_usd == pytest.approx(per_hour(3.2) * 11.0)
    assert d.times_faster == pytest.approx(4 * 10.0 / 11.0)


def test_draws_give_a_span_of_choices() -> None:
    rng = np.random.default_rng(3)
    draws = TIME_S * np.exp(rng.normal(0, 0.15, (400, 5)))
    d = cost.decide(K, draws, dataclasses.replace(NODE, fixed_usd_per_s=per_hour(3.0)))
    assert d.p_star.k_low < d.p_star.k_high
    assert d.p_star.k_low <= d.p_star.k <= d.p_star.k_high
    single = cost.decide(K, TIME_S, NODE)
    assert (single.p_star.k_low, single.p_star.k_high) == (1, 1)


OWNED: dict[str, Any] = {
    "purchase_usd": 50_000.0,
    "life_s": 4 * YEAR_S,
    "resale_usd": 10_000.0,
    "power_w": 1000.0,
    "idle_power_w": 300.0,
    "pue": 1.3,
    "electricity_usd_per_j": 0.10 / 3.6e6,
    "hosting_usd_per_s": per_hour(0.20),
}


def test_owned_price_by_hand_and_break_even() -> None:
    own = Ownership(**OWNED, utilisation=0.6)
    capital = 40_000 / (4 * 365.25 * 24)  # USD per calendar hour
    busy, idle = 1.3 * 0.10, 0.3 * 1.3 * 0.10
    by_hand = (capital + 0.20 + 0.4 * idle) / 0.6 + busy
    assert own.usd_per_busy_s() * HOUR_S == pytest.approx(by_hand)
    u = own.break_even_utilisation(per_hour(3.0))
    assert u is not None
    assert own.usd_per_busy_s(u) * HOUR_S == pytest.approx(3.0)
    assert own.usd_per_busy_s(u + 0.1) < per_hour(3.0)
    assert own.break_even_utilisation(per_hour(0.05)) is None
    assert own.break_even_utilisation(per_hour(1.0)) is None


def test_cost_of_capital_is_an_annuity() -> None:
    free = Ownership(purchase_usd=40_000.0, life_s=4 * YEAR_S)
    dear = dataclasses.replace(free, interest_per_year=0.08)
    yearly = dear.capital_usd_per_s * YEAR_S
    # The present value of the yearly payments is the price.
    assert sum(yearly / 1.08**n for n in range(1, 5)) == pytest.approx(40_000.0)
    nearly = dataclasses.replace(free, interest_per_year=1e-9)
    assert nearly.capital_usd_per_s == pytest.approx(free.capital_usd_per_s, rel=1e-6)


def test_owned_tariff_keeps_what_is_paid_around_it() -> None:
    base = dataclasses.replace(NODE, fixed_usd_per_s=per_hour(2.0), tiers=(Tier(4, 1.0),), interruptions=SPOT)
    tariff = Ownership(**OWNED, utilisation=0.8).tariff(base)
    assert tariff.fixed_usd_per_s == base.fixed_usd_per_s
    assert tariff.tiers == ()
    assert tariff.interruptions is None
