"""Replicas for a demand: arithmetic, monotony, and a simulation of the fleet."""

from __future__ import annotations

import numpy as np
import pytest
import serving_des as des
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.serving.curve import knee_grid, load_curve
from perfmodel.decide.serving.fleet import fleet, replicas_for
from perfmodel.decide.serving.knee import knees
from perfmodel.physics.serving import OPEN, replica_step
from perfmodel.specs.serving import ServedLayout

SLO = {"ttft": {"p99": "0.5 s"}, "tpot": {"p99": "20 ms"}}


def sized(found, layout=None):
    layout = layout or ServedLayout()
    grid = knee_grid(found, layout, "rate", np.array([1.0]))
    curve = load_curve(found, layout, "rate", grid)
    return curve, fleet(curve, knees(curve, found.job.serving.slo.limits)["slo"])


@given(st.floats(0.01, 1e5), st.floats(0.01, 1e3))
def test_each_of_the_replicas_stays_at_or_below_its_knee(demand, knee):
    count = replicas_for(demand, knee)
    assert demand / count <= knee * (1 + 1e-9)
    assert count == 1 or demand / (count - 1) > knee * (1 - 1e-9)


def test_more_is_asked_more_is_needed_and_paid(service):
    counts, dollars = [], []
    for demand in (5, 50, 500):
        _, made = sized(service({"slo": SLO, "demand": f"{demand} /s"}))
        counts.append(made["replicas"])
        dollars.append(made["fleet"]["usd_per_h"])
        assert made["accelerators"] == made["replicas"] + 1
        assert made["replicas_low"] <= made["replicas"] <= (made["replicas_high"] or np.inf)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert dollars == sorted(dollars)


def test_spares_are_those_that_were_asked_for(service):
    _, made = sized(service({"slo": SLO, "demand": "50 /s", "spares": 3}))
    assert made["spare"] == 3
    assert made["fleet"]["with_spares_headroom"] > made["fleet"]["headroom"] >= 0.0


def test_a_demand_that_no_number_answers_says_why(service):
    _, made = sized(service({"slo": {"tpot": {"p99": "0.1 ms"}}, "demand": "5 /s"}))
    assert made["replicas"] is None
    assert "no number of replicas" in made["fleet"]["reason"]


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_the_number_is_that_of_a_simulated_fleet(service, spread):
    lengths = {
        "input_tokens": {"mean": 800, "spread": spread},
        "output_tokens": {"mean": 120, "spread": spread},
    }
    found = service(lengths | {"slo": SLO, "demand": "60 /s", "prefill": "chunked"})
    curve, made = sized(found)
    at = found.deployment([ServedLayout()])
    step = replica_step(found.shape, found.machine, at, found.load(OPEN, rate_per_s=1.0), found.coefficients)

    def step_s(decodes, prompts, context):
        return float(step.seconds(float(decodes), float(prompts)))

    replica = des.Replica(step_s, int(np.max(curve.answer.slots)), int(at.chunk_tokens))
    rng = np.random.default_rng(1)
    n = 1500

    def keeps(count):
        inputs, outputs = (des.lengths(rng, mean, spread, n) for mean in (800, 120))
        run = des.simulate(replica, des.Requests(des.arrivals(rng, 60.0 / count, n), inputs, outputs)).kept(
            0.1
        )
        first = float(found.coefficients.first_s)
        return np.quantile(run.ttft_s, 0.99) + first <= 0.5 and np.quantile(run.tpot_s, 0.99) <= 0.020

    simulated = next(count for count in range(1, 40) if keeps(count))
    assert abs(made["replicas"] - simulated) <= max(1, 0.15 * simulated)
