"""Where objectives end, why, and what the remedy would bring."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.serving.curve import knee_grid, load_curve
from perfmodel.decide.serving.knee import crossing, knees
from perfmodel.specs.serving import ServedLayout

ONE = ServedLayout()


def curve(found, kind="rate", loads=(1.0,)):
    grid = knee_grid(found, ONE, kind, np.array(loads))
    return load_curve(found, ONE, kind, np.unique(np.concatenate([grid, loads])))


def knee(found, limits, kind="rate", loads=(1.0,)):
    return knees(curve(found, kind, loads), limits)["slo"]


def test_a_crossing_is_straight_in_logarithms():
    load, values = np.array([1.0, 4.0]), {"a": np.array([1.0, 16.0])}
    assert crossing(load, values, {"a": 4.0})[0] == pytest.approx(2.0)
    assert np.isnan(crossing(load, values, {"a": 0.5})[0])
    assert crossing(load, values, {"a": 20.0}) == (np.inf, None)
    assert crossing(load, {"a": np.array([1.0, np.nan])}, {"a": 4.0}) == (1.0, "a")


def test_the_first_objective_to_end_is_the_one_that_counts():
    load = np.array([1.0, 2.0, 4.0])
    values = {"a": np.array([1.0, 2.0, 4.0]), "b": np.array([1.0, 1.0, 100.0])}
    assert crossing(load, values, {"a": 1.5, "b": 50.0})[1] == "a"


def test_the_knee_keeps_its_limit_and_no_more(service):
    found = service({"slo": {"tpot": {"p99": "20 ms"}}})
    at = knee(found, (("tpot", "p99", 0.020),))["load"]
    near = load_curve(found, ONE, "rate", np.array([0.99 * at, at, 1.01 * at])).times["tpot"]["p99"]
    assert near[0] < 0.020 * 1.01
    assert near[1] == pytest.approx(0.020, rel=0.02)
    assert near[2] > 0.020 * 0.99


def test_stricter_objectives_end_earlier_and_bands_hold_the_knee(service):
    found = curve(service())
    loads = []
    for limit in (0.015, 0.02, 0.03, 0.05):
        one = knees(found, (("tpot", "p99", limit),))["slo"]
        loads.append(one["load"])
        assert one["low"] is None or one["low"] <= one["load"]
        assert one["high"] is None or one["high"] >= one["load"]
    assert loads == sorted(loads)


def test_objectives_that_nothing_keeps_say_what_an_idle_service_takes(service):
    found = knee(service(), (("tpot", "p99", 1e-4),))
    assert found["load"] is None
    assert "even when nearly idle" in found["cause"]


@pytest.mark.parametrize(
    ("block", "keys", "limits", "kind", "words"),
    [
        # Few sequences fit beside the weights of a large model: they wait for memory.
        ({"layout": {"tp": 1}, "input_tokens": 200, "output_tokens": 1000}, {"workload": "qwen2.5-32b"}, (("ttft", "p99", 3.0),), "rate", "fill the memory"),
        ({"max_batch": 4}, {}, (("ttft", "p99", 1.0),), "rate", "slots of the engine"),
        ({"input_tokens": 8000, "output_tokens": 50}, {}, (("tpot", "p99", 0.05),), "rate", "prompts of other requests"),
        ({"input_tokens": 10, "output_tokens": 2000}, {}, (("tpot", "mean", 0.011),), "concurrency", "step"),
    ],
)  # fmt: skip
def test_the_cause_is_what_was_made_scarce_and_its_remedy_helps(service, block, keys, limits, kind, words):
    found = knee(service(block, **keys), limits, kind, (1.0, 512.0))
    assert words in found["cause"]
    assert found["load_after_remedy"] > found["load"]


def test_a_closed_loop_has_its_knee_in_requests(service):
    found = knee(service(), (("tpot", "mean", 0.010),), "concurrency", (1.0, 256.0))
    assert 1.0 < found["load"] < 256.0


def test_no_objective_no_knee(service):
    assert knees(curve(service()), ())["slo"]["cause"] == "the job states no slo"
