"""What jobs draw, and the bands of joules, grams and dollars."""

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.decide.energy import step_energy
from perfmodel.decide.power import POWER_SPREAD, energy_band, power_of
from perfmodel.decide.prediction import predict
from perfmodel.predict.beliefs import MeasuredPower
from perfmodel.specs.jobs import load_job


def job(**changes):
    words = {
        "workload": "llama3-8b",
        "cluster": "dgx-h100",
        "global_batch": 128,
        "k": "8..64",
        "grid": "US-VA",
    }
    return load_job(None, overrides=words | changes)


@pytest.fixture(scope="module")
def result():
    return predict(job(steps=1000)).result


def test_a_training_node_draws_three_quarters_of_its_rating():
    """Latif et al., arXiv:2412.08602: about 76 % of the 10.2 kW of a node of 8 H100."""
    model = replace(power_of(job()), pue=1.0)
    drawn = step_energy([8], {"compute": [1.0]}, model).power_w
    assert drawn.item() == pytest.approx(0.76 * 10.2e3, rel=0.03)


@pytest.mark.parametrize("name", ["cost_usd", "energy_j", "carbon_g", "time_s"])
def test_every_quantity_lies_inside_its_band(result, name):
    low, centre, high = (np.array(result[f"{name}{end}"]) for end in ("_low", "", "_high"))
    assert (low < centre).all()
    assert (centre < high).all()


def test_dollars_of_rented_time_have_the_band_of_the_time(result):
    for end in ("_low", "_high"):
        time = np.array(result[f"time_s{end}"]) / np.array(result["time_s"])
        cost = np.array(result[f"cost_usd{end}"]) / np.array(result["cost_usd"])
        assert cost == pytest.approx(time)


def test_what_is_paid_once_narrows_the_band_of_the_bill(result):
    fixed = predict(job(steps=1000, price={"regime": "on-demand", "egress": "1e4 USD"})).result
    assert (
        fixed["cost_usd_high"][0] / fixed["cost_usd"][0] < result["cost_usd_high"][0] / result["cost_usd"][0]
    )


def test_choices_carry_the_band_of_their_cost(result):
    for choice in (result["p_star"], result["fastest"]):
        at = list(result["k"]).index(choice["k"])
        for end in ("_low", "", "_high"):
            assert choice[f"cost_usd{end}"] == pytest.approx(result[f"cost_usd{end}"][at])


def test_energy_is_less_sure_than_time_and_a_power_log_makes_it_surer():
    time = (np.array([0.9]), np.array([1.0]), np.array([1.1]))
    low, high = energy_band(time, None)
    assert low < 0.9
    assert high > 1.1
    log = MeasuredPower(scale=1.0, spread=POWER_SPREAD / 4.0, idle_w=None, source="power.csv")
    assert energy_band(time, log)[0] > low
    assert energy_band(time, log)[1] < high


def test_a_sure_time_leaves_the_doubt_about_the_draw():
    one = np.ones(1)
    low, high = energy_band((one, one, one), None)
    assert np.log(high) == pytest.approx(1.645 * POWER_SPREAD)
    assert low * high == pytest.approx(1.0)
