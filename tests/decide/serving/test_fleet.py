"""Replicas for a demand: arithmetic, monotony, and a simulation of the fleet."""

from __future__ import annotations

import math

import numpy as np
import pytest
import serving_des as des
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.serving.curve import knee_grid, load_curve
from perfmodel.decide.serving.fleet import enough_running, fleet, replicas_for
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


@pytest.mark.parametrize(("spread", "balancer"), [(0.0, "random"), (0.7, "random"), (0.0, "in turn")])
def test_the_number_is_that_of_a_simulated_fleet(service, spread, balancer):
    lengths = {
        "input_tokens": {"mean": 800, "spread": spread},
        "output_tokens": {"mean": 120, "spread": spread},
    }
    found = service(lengths | {"slo": SLO, "demand": "60 /s", "prefill": "chunked", "balancer": balancer})
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
        # One replica of so many: of requests that are dealt in turn it sees every `count`-th.
        cv = 1.0 if balancer == "random" else count**-0.5
        run = des.simulate(replica, des.Requests(des.arrivals(rng, 60.0 / count, n, cv), inputs, outputs))
        run, first = run.kept(0.1), float(found.coefficients.first_s)
        return np.quantile(run.ttft_s, 0.99) + first <= 0.5 and np.quantile(run.tpot_s, 0.99) <= 0.020

    simulated = next(count for count in range(1, 40) if keeps(count))
    assert abs(made["replicas"] - simulated) <= max(1, 0.15 * simulated)


def test_requests_dealt_in_turn_need_no_more_replicas(service):
    counts = {}
    for balancer in ("random", "in turn", "least loaded"):
        _, made = sized(service({"slo": SLO, "demand": "300 /s", "balancer": balancer}))
        counts[balancer] = made["replicas"]
        assert made["fleet"]["rate_per_replica_per_s"] <= made["fleet"]["knee_per_replica_per_s"] * (1 + 1e-9)
        assert made["fleet"]["tpot_s"]["p99"] <= 0.020 * 1.02
    assert counts["in turn"] == counts["least loaded"] <= counts["random"]


@pytest.mark.parametrize(("count", "spare", "away"), [(3, 1, 0.05), (20, 2, 0.01), (1, 0, 0.2)])
def test_enough_run_as_often_as_a_binomial_variable_says(count, spare, away):
    n = count + spare
    exact = sum(math.comb(n, k) * away**k * (1 - away) ** (n - k) for k in range(spare + 1))
    assert enough_running(count, spare, away) == pytest.approx(exact)


def test_spares_follow_from_the_availability_that_is_asked_for(service):
    spares = []
    for wanted in (0.9, 0.999, 0.99999):
        failures = {"mtbf_per_accelerator": "500 h", "repair": "5 h", "availability": wanted}
        _, made = sized(service({"slo": SLO, "demand": "100 /s", "failures": failures}))
        assert made["fleet"]["failures"]["availability"] >= wanted
        assert (
            made["fleet"]["failures"]["availability_without_spares"]
            <= made["fleet"]["failures"]["availability"]
        )
        spares.append(made["spare"])
    assert spares == sorted(spares)
    assert spares[-1] > spares[0]


DAY = [0.2, 0.1, 0.3, 0.8, 1.0, 0.6]


def over(service, **block):
    _, made = sized(service({"slo": SLO, "demand": "100 /s", "day": DAY} | block, price="2 USD/h"))
    return made["fleet"]["day"]


def test_a_day_needs_at_each_time_what_its_demand_alone_would(service):
    found = over(service)
    for share, needed in zip(DAY, found["replicas"], strict=True):
        _, alone = sized(service({"slo": SLO, "demand": f"{100 * share} /s"}))
        assert needed == alone["replicas"] + alone["spare"]


@pytest.mark.parametrize("rented", [1.0, 2.5, 4.0, 40.0])
def test_no_other_base_would_cost_less(service, rented):
    found = over(service, rented=f"{rented} USD/h")

    def cost(base):
        return 4.0 * sum(2.0 * base + rented * max(needed - base, 0) for needed in found["replicas"])

    best = min(cost(base) for base in range(int(max(found["replicas"])) + 1))
    assert found["usd_per_day"] == pytest.approx(best)
    assert found["usd_per_day"] == pytest.approx(cost(found["base_replicas"]))
    assert found["usd_per_day_all_base"] == pytest.approx(cost(max(found["replicas"])))
    assert found["usd_per_day_all_rented"] == pytest.approx(cost(0))


def test_a_dearer_peak_makes_the_base_larger(service):
    bases = [over(service, rented=f"{price} USD/h")["base_replicas"] for price in (1.0, 2.5, 4.0, 40.0)]
    assert bases == sorted(bases)
    assert bases[0] == 0
    assert bases[-1] > bases[1]


def test_scale_up_and_scale_out_answer_the_same_demand(service):
    found = service({"slo": SLO, "demand": "300 /s"}, price="2 USD/h")
    _, made = sized(found, ServedLayout(tp=2))
    rows = made["fleet"]["widths"]
    assert [row["tp"] for row in rows] == [1, 2, 4, 8]
    (own,) = (row for row in rows if row["tp"] == 2)
    assert abs(own["replicas"] - made["replicas"]) <= max(1, 0.05 * made["replicas"])
    for row in rows:
        assert row["knee_requests_per_s"] * row["replicas"] >= 300 * (1 - 1e-9)
        assert row["accelerators"] == (row["replicas"] + 1) * row["tp"]
        assert row["usd_per_h"] == pytest.approx(2.0 * row["accelerators"])
    knees_ = [row["knee_requests_per_s"] for row in rows]
    assert knees_ == sorted(knees_)
