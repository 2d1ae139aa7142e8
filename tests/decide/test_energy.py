"""Energy and carbon from the parts of a step."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from perfmodel.decide.energy import PowerModel, activity_seconds, step_energy
from perfmodel.physics.energy import KWH_J, PowerShares, energy_j
from perfmodel.physics.parts import PARTS

H100 = PowerModel(rated_w=700.0, idle_w=100.0, host_w=300.0, pue=1.2, grams_per_j=400.0 / KWH_J)


def test_by_hand() -> None:
    shares = PowerShares(compute=1.0, communication=0.5, waiting=0.0)
    model = PowerModel(700.0, 100.0, host_w=300.0, pue=1.2, shares=shares)
    e = step_energy([4], {"compute": [2.0], "data_parallel": [1.0], "bubble": [1.0]}, model)
    assert e.energy_j[0] == pytest.approx(1.2 * 4 * (2 * 1000 + 1 * 700 + 1 * 400))
    assert e.power_w[0] == pytest.approx(e.energy_j[0] / 4.0)
    assert e.carbon_g is None


def test_carbon_is_that_of_the_grid() -> None:
    e = step_energy([8], {"compute": [3.6]}, H100)
    assert e.carbon_g is not None
    assert e.carbon_g[0] == pytest.approx(e.energy_j[0] / KWH_J * 400.0)


def test_hgx_h100_draws_what_was_measured_in_training() -> None:
    """A node rated 10.2 kW draws about 76 % of it in intensive training and at most 8.4 kW."""
    model = PowerModel(rated_w=700.0, idle_w=70.0, host_w=350.0)
    e = step_energy([8], {"compute": [0.85], "data_parallel": [0.10], "straggler": [0.05]}, model)
    assert 0.70 * 10_200 < e.power_w[0] < 8_400


def test_waiting_costs_less_than_computing_and_nan_stays() -> None:
    busy = step_energy([8, 8], {"compute": [1.0, np.nan]}, H100)
    idle = step_energy([8, 8], {"bubble": [1.0, np.nan]}, H100)
    assert idle.energy_j[0] < busy.energy_j[0]
    assert np.isnan(busy.energy_j[1])


def test_unknown_parts_wait_and_activities_exist() -> None:
    assert {part.activity for part in PARTS} <= {share.name for share in fields(PowerShares)}
    assert list(activity_seconds({"somebody's own part": [1.0]})) == ["waiting"]


def test_energy_is_linear_in_time_k_and_pue() -> None:
    t = {"compute": np.array([1.0]), "communication": np.array([0.3])}
    base = energy_j([2], t, rated_w=400.0, idle_w=50.0)
    double = energy_j([4], {n: 3 * v for n, v in t.items()}, rated_w=400.0, idle_w=50.0, pue=1.5)
    np.testing.assert_allclose(double, 9 * base)
