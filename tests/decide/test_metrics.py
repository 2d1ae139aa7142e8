"""S, E, cost and the ladder against the worked breakdown table, and with infeasible K."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from perfmodel.decide import metrics

EXPECTED = json.loads((Path(__file__).parents[1] / "reference" / "breakdown.expected.json").read_text())
K = np.array([1, 2, 4, 8, 16])
TIME = np.array(EXPECTED["time_s"])
COST = metrics.cost(K, TIME, price_usd_per_s=3.2 / 3600)


def test_breakdown_to_the_printed_digit():
    speedup = metrics.speedup(K, TIME)
    assert speedup.round(2).tolist() == EXPECTED["speedup"]
    assert metrics.efficiency(K, TIME).round(2).tolist() == EXPECTED["efficiency"]
    assert COST.round(3).tolist() == EXPECTED["cost_usd"]
    for step, expected in zip(metrics.marginal_ladder(K, speedup, COST), EXPECTED["marginal"], strict=True):
        assert step.label == expected["step"]
        assert round(step.speedup, 2) == expected["speedup"]
        assert round(step.cost_usd, 3) == expected["cost_usd"]
        assert round(step.speedup_per_usd, 2) == expected["speedup_per_usd"]
    rate = metrics.exchange(speedup, COST)
    assert round(rate.times_the_cost, 2) == EXPECTED["exchange"]["times_the_cost"]
    assert round(rate.times_faster, 2) == EXPECTED["exchange"]["times_faster"]


def test_baseline_is_the_smallest_k_that_runs():
    time = [np.nan, np.nan, 1.0, 0.6]
    assert metrics.baseline_index([1, 2, 4, 8], time) == 2
    speedup = metrics.speedup([1, 2, 4, 8], time, baseline=2)
    assert speedup[2] == 4.0
    assert speedup[3] == pytest.approx(4 / 0.6)
    assert metrics.baseline_index([1, 2], [np.nan, np.nan]) == -1


def test_weak_regime():
    time = np.array([1.0, 1.1, 1.25])
    assert metrics.efficiency([1, 2, 4], time, regime="weak") == pytest.approx(1 / time)
    assert metrics.speedup([1, 2, 4], time, regime="weak") == pytest.approx([1, 2 / 1.1, 4 / 1.25])
    assert metrics.work_done([2, 4], work=10, regime="weak", baseline_k=2).tolist() == [10.0, 20.0]
    assert metrics.work_done([2, 4], work=10).tolist() == [10.0, 10.0]


def test_draws_axis_is_carried_elementwise():
    draws = np.stack([TIME, TIME * [1, 1.1, 1.2, 1.3, 1.4]])
    both = metrics.efficiency(K, draws)
    assert both[0] == pytest.approx(metrics.efficiency(K, draws[0]))
    assert both[1] == pytest.approx(metrics.efficiency(K, draws[1]))


def test_ladder_skips_what_is_infeasible_and_prices_no_free_step():
    steps = metrics.marginal_ladder([1, 2, 4], [1.0, np.nan, 3.0], [1.0, np.nan, 2.0])
    assert [step.label for step in steps] == ["1->4"]
    free = metrics.marginal_ladder([1, 2], [1.0, 2.1], [1.0, 0.95])[0]
    assert np.isnan(free.speedup_per_usd)


def test_exchange_without_any_usable_k():
    assert metrics.exchange([np.nan], [1.0]) is None
    assert metrics.best_index([np.nan, np.nan]) == -1
    assert metrics.best_index([2.0, 5.0, 5.0], largest=True) == 1
