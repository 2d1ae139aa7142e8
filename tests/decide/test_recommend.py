"""One sentence per goal, and the nearest answer when a goal cannot be met."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.recommend import recommend

K = [1, 2, 4, 8, 16]
TIME_S = [800.0, 430.0, 260.0, 206.0, 235.0]
COST = [0.711, 0.764, 0.924, 1.465, 3.342]
EFFICIENCY = [1.0, 0.93, 0.77, 0.49, 0.21]


def test_goals_within_reach() -> None:
    nightly, interactive, balanced = recommend(
        K, TIME_S, COST, EFFICIENCY, deadline_s=300.0, budget_usd=1.0, threshold=0.9
    )
    assert (nightly.k, interactive.k, balanced.k) == (4, 4, 2)
    assert all(r.met and r.relax is None for r in (nightly, interactive, balanced))
    assert nightly.sentence == (
        "Nightly: K = 4 (4.333 min, 0.924 USD, efficiency 77 %), the cheapest that meets the deadline of "
        "5 min; the price of it: 1.21 times as dear as K = 2, 16 points less efficient than K = 2."
    )
    assert "1.65 times as long as K = 4" in balanced.sentence


def test_without_limits_the_ends_of_the_curve() -> None:
    nightly, interactive, balanced = recommend(K, TIME_S, COST, EFFICIENCY)
    assert (nightly.k, interactive.k, balanced.k) == (1, 8, 4)


def test_out_of_reach_names_the_nearest_and_what_to_relax() -> None:
    nightly, interactive, balanced = recommend(
        K, TIME_S, COST, EFFICIENCY, deadline_s=100.0, budget_usd=0.5, threshold=1.5
    )
    assert [r.met for r in (nightly, interactive, balanced)] == [False, False, False]
    assert (nightly.k, interactive.k, balanced.k) == (8, 1, 1)
    assert nightly.relax == "deadline to 3.433 min"
    assert interactive.relax == "budget to 0.711 USD"
    assert balanced.relax == "efficiency threshold to 100 %"
    assert "no K meets the deadline of 1.667 min" in nightly.sentence


def test_one_k_gives_up_nothing() -> None:
    only = recommend([8], [100.0], [1.0], [1.0])
    assert {r.k for r in only} == {8}
    assert all("gives up nothing" in r.sentence for r in only)


def test_infeasible_k_never_win() -> None:
    rows = recommend(K, [np.nan, *TIME_S[1:]], COST, EFFICIENCY)
    assert rows[0].k == 2
    assert recommend(K, [np.nan] * 5, COST, EFFICIENCY) == ()


@pytest.mark.parametrize("goal", [0, 1, 2])
def test_as_dict_holds_the_fields(goal: int) -> None:
    data = recommend(K, TIME_S, COST, EFFICIENCY)[goal].as_dict()
    assert {"goal", "k", "time_s", "cost_usd", "efficiency", "met", "sentence", "relax"} == set(data)
