"""Percentiles of a replica: ordered, growing with load, and those of the simulation that knows the same step."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, Load, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import textbook
from perfmodel.physics.serving_step import Deployment
from perfmodel.physics.serving_tail import QUANTILES, serving_latency

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))
import serving_des as des

ORDER = list(QUANTILES)


def saturation(at, **lengths):
    load = Load(kind=OPEN, rate_per_s=1e9, **lengths)
    return float(serving_answer(decoder(), node(), at, load, textbook()).saturation_requests_per_s)


@pytest.mark.parametrize("at", [Deployment(tensor=2.0), Deployment(tensor=4.0, pipeline=2.0, mixed=0.0)])
def test_quantiles_are_ordered_and_grow_with_the_rate(at):
    rates = saturation(at) * np.array([0.1, 0.5, 0.8, 0.95, 1.1])
    found = serving_latency(decoder(), node(), at, Load(kind=OPEN, rate_per_s=rates), textbook())
    assert found.answer.stable.tolist() == [True] * 4 + [False]
    for times in (found.ttft_s, found.tpot_s, found.e2e_s):
        table = np.stack([times[name] for name in ORDER])[:, :4]
        assert (np.diff(table, axis=0) > 0).all()
        assert (np.diff(table, axis=1) > 0).all()
        assert np.isnan(times["mean"][4])


def test_a_burst_is_the_tail_of_a_benchmark():
    load = Load(concurrency=32.0, requests=np.array([np.nan, 320.0]))
    found = serving_latency(decoder(), node(), Deployment(), load, textbook())
    assert found.ttft_s["p99"][1] > 2.0 * found.ttft_s["p99"][0]
    assert found.ttft_s["p50"][1] == pytest.approx(found.ttft_s["p50"][0], rel=0.2)


def test_beyond_the_slots_all_wait_in_line():
    load = Load(concurrency=np.array([256.0, 2560.0]))
    found = serving_latency(decoder(), node(), Deployment(), load, textbook())
    assert found.ttft_s["p50"][1] > 5.0 * found.ttft_s["mean"][0]
    assert found.tpot_s["mean"][1] == pytest.approx(found.tpot_s["mean"][0])


def test_kinds_of_load_stand_beside_each_other():
    load = Load(
        kind=np.array([CLOSED, OPEN, OFFLINE, OPEN]),
        concurrency=np.array([4.0, np.nan, np.nan, np.nan]),
        rate_per_s=np.array([np.nan, 1.0, np.nan, 1e4]),
    )
    found = serving_latency(decoder(), node(), Deployment(tensor=2.0), load, textbook())
    assert np.isfinite(found.tpot_s["p99"][:2]).all()
    assert np.isnan(found.tpot_s["p99"][2:]).all()


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_an_open_loop_agrees_with_the_simulation(share):
    at, c = Deployment(tensor=2.0), textbook()
    lengths = {"input_tokens": 600.0, "output_tokens": 300.0, "output_cv": 0.5}
    rate = share * saturation(at, **lengths)
    load = Load(kind=OPEN, rate_per_s=rate, **lengths)
    found = serving_latency(decoder(), node(), at, load, c)
    step = replica_step(decoder(), node(), at, load, c)
    cache = {}

    def step_s(decodes, prompt, context):
        key = (decodes, prompt)
        if key not in cache:
            cache[key] = float(step.seconds(decodes, prompt))
        return cache[key]

    rng = np.random.default_rng(3)
    n = 4000
    requests = des.Requests(
        des.arrivals(rng, rate, n), des.lengths(rng, 600.0, 0.0, n), des.lengths(rng, 300.0, 0.5, n)
    )
    run = des.simulate(des.Replica(step_s), requests).kept(0.1)
    first = float(c.first_s)
    assert run.ttft_s.mean() + first == pytest.approx(float(found.ttft_s["mean"]), rel=0.1)
    assert run.tpot_s.mean() == pytest.approx(float(found.tpot_s["mean"]), rel=0.05)
    assert np.quantile(run.ttft_s, 0.99) + first == pytest.approx(float(found.ttft_s["p99"]), rel=0.3)


@pytest.mark.parametrize("clients", [8, 64])
def test_a_closed_loop_agrees_with_the_simulation(clients):
    # Its clients answer at the end of a step, so that none of the running step is left.
    at, c = Deployment(tensor=2.0), replace(textbook(), rest=np.asarray(0.0))
    load = Load(concurrency=float(clients), input_tokens=600.0, output_tokens=60.0, output_cv=0.5)
    found = serving_answer(decoder(), node(), at, load, c)
    step = replica_step(decoder(), node(), at, load, c)
    rng = np.random.default_rng(3)
    n = 3000
    requests = des.Requests(np.zeros(n), des.lengths(rng, 600.0, 0.0, n), des.lengths(rng, 60.0, 0.5, n))
    replica = des.Replica(lambda d, p, _: float(step.seconds(d, p)))
    run = des.simulate(replica, requests, concurrency=clients).kept(0.1, 0.1)
    assert run.tpot_s.mean() == pytest.approx(float(found.tpot_s), rel=0.06)
    # The simulation has no time outside the steps.
    assert run.e2e_s.mean() == pytest.approx(float(found.e2e_s - c.first_s), rel=0.06)
