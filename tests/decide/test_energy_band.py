"""What jobs draw, and the bands of joules, grams and dollars."""

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.bands import NINETY
from perfmodel.beliefs.population import MeasuredPower
from perfmodel.decide.energy import (
    SURROUNDINGS_SPREAD,
    PowerModel,
    energy_band,
    power_of,
    range_share,
    step_energy,
)
from perfmodel.decide.prediction import predict
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


TIME = (np.array([0.9]), np.array([1.0]), np.array([1.1]))
HALF = np.array([0.5])


def log(spread):
    return MeasuredPower(scale=1.0, spread=spread, idle_w=None, source="power.csv")


def test_energy_is_less_sure_than_time_and_a_power_log_makes_it_surer():
    low, high = energy_band(TIME, HALF, None)
    assert low < 0.9
    assert high > 1.1
    # What the fit of a log can leave open at most is what was assumed before it.
    for spread in (0.3, 0.02):
        surer = energy_band(TIME, HALF, log(spread))
        assert surer[0] > low
        assert surer[1] < high


def test_a_perfect_log_leaves_the_doubt_about_host_and_room():
    one = np.ones(1)
    low, high = energy_band((one, one, one), HALF, log(0.0))
    assert np.log(high) == pytest.approx(NINETY * SURROUNDINGS_SPREAD)
    assert low * high == pytest.approx(1.0)


def test_the_draw_matters_as_far_as_it_makes_up_the_energy():
    widths = [energy_band(TIME, np.array([share]), None)[1].item() for share in (0.0, 0.3, 0.6)]
    assert widths == sorted(widths)
    model = PowerModel(rated_w=700.0, idle_w=100.0, host_w=400.0)
    assert range_share(np.ones(1), {"compute": np.ones(1)}, model) == pytest.approx(0.9 * 600 / (640 + 400))


def test_a_node_that_states_its_maximum_alone_has_a_host_in_energy_and_in_its_owned_price():
    stated = {"node": {"accelerator": "h100-sxm5-80gb", "accelerators_per_node": 8, "scale_up": "nvswitch-3"}}
    stated["node"]["max_power"] = "10.2 kW"
    words = {"cluster": stated, "price": {"regime": "owned", "purchase": "40000 USD"}, "k": "8"}
    known = job(**words)
    assert power_of(known).host_w == pytest.approx(0.57 * 4600 / 8)
    assert known.price.power == pytest.approx(700 + 0.57 * 4600 / 8)
    stated["node"]["host_power"] = "0 W"
    assert power_of(job(**words)).host_w == 0.0


def test_time_lost_to_interruptions_is_said_to_be_in_the_cost_alone():
    often = {"mtbf_per_accelerator": "500 h", "checkpoint": "60 s", "restart": "300 s"}
    notes = predict(job(steps=1000, reliability=often)).result["notes"]
    assert any("energy and carbon are of useful steps" in note for note in notes)
    assert not any("useful steps" in note for note in predict(job(steps=1000)).result["notes"])
