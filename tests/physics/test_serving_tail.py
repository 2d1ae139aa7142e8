"""Percentiles of a replica: ordered, growing with load, and those of the simulation that knows the same step."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.queueing import Traffic, latency
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, Load, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import textbook
from perfmodel.physics.serving_step import Deployment, cache_sequences
from perfmodel.physics.serving_tail import QUANTILES, replica_queue, serving_latency

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


def test_a_full_replica_waits_by_the_queue_and_the_line_beside_it():
    """Quantiles of a closed loop: the line is the same for all, the rest varies as the queue does at that rate."""
    at, c = Deployment(tensor=2.0, max_sequences=32.0), textbook()
    load = Load(concurrency=np.array([20.0, 80.0]), input_tokens=700.0, output_tokens=150.0, output_cv=0.6)
    answer = serving_answer(decoder(), node(), at, load, c)
    found = serving_latency(decoder(), node(), at, load, c)
    most = answer.saturation_requests_per_s
    rate = np.minimum(answer.requests_per_s, 0.97 * most)
    # The queue has room for everybody: what it tells is how much requests differ, not how long they wait for a slot.
    spacious = np.minimum(64.0 + 1.5 * answer.slots, 0.25 * at.chunk_tokens)
    queue = replica_queue(decoder(), node(), at, load, rate, c, spacious)
    line = np.array([0.0, 48.0]) / most
    assert answer.slots.tolist() == [20.0, 32.0]
    for name, q in QUANTILES.items():
        ttft = (queue.ttft_quantile_s(q) + c.first_s) / (queue.ttft_mean_s + c.first_s)
        assert found.ttft_s[name] == pytest.approx(line + (answer.ttft_s - line) * ttft)
        tpot = queue.tpot_quantile_s(q) / queue.tpot_mean_s
        assert found.tpot_s[name] == pytest.approx(answer.tpot_s * tpot)
        whole = (queue.e2e_quantile_s(q) + c.first_s) / (queue.e2e_mean_s + c.first_s)
        assert found.e2e_s[name] == pytest.approx(line + (answer.e2e_s - line) * whole)
    assert found.ttft_s["mean"] == pytest.approx(answer.ttft_s)
    assert found.answer.decodes == pytest.approx(answer.decodes)


def test_who_comes_in_the_burst_waits_for_its_prompts_in_order():
    at, c = Deployment(tensor=2.0, max_sequences=64.0), textbook()
    load = Load(concurrency=64.0, requests=np.array([128.0, np.nan]), input_tokens=3000.0, output_tokens=50.0)
    answer = serving_answer(decoder(), node(), at, load, c)
    found = serving_latency(decoder(), node(), at, load, c)
    steady = answer.ttft_s[0] - 0.5 * answer.burst_s[0]  # half of the requests come in the burst
    assert steady == pytest.approx(answer.ttft_s[1])
    for name, place in (("p90", 0.8), ("p95", 0.9), ("p99", 0.98)):
        assert found.ttft_s[name][0] == pytest.approx(steady + 2.0 * place * answer.burst_s[0])
    assert found.ttft_s["p50"][0] < steady  # the half that comes later


@pytest.mark.parametrize("mixed", [1.0, 0.0])
def test_an_open_stream_is_the_queue_of_one_lane_counted_by_tokens(mixed):
    at = Deployment(
        tensor=2.0, pipeline=2.0, mixed=mixed, draft_tokens=2.0, acceptance=0.5, max_sequences=40.0
    )
    c = replace(textbook(), interference=np.asarray(1.3))
    load = Load(
        kind=OPEN, rate_per_s=3.0, input_tokens=800.0, output_tokens=120.0, input_cv=0.5, output_cv=0.5, arrival_cv=1.4,
        prefix_hit=0.25,
    )  # fmt: skip
    step = replica_step(decoder(), node(), at, load, c)

    def step_s(n, p):
        n, p = np.broadcast_arrays(n, p)
        empty, both, alone = (
            np.vectorize(lambda a, b: float(step.seconds(a, b)))(*pair)
            for pair in ((n, 0.0 * p), (n, p), (0.0 * n, p))
        )
        extra = both - empty if mixed else alone * (p > 0.0)
        return empty + 1.3 * extra

    advance = 1.0 + 0.5 + 0.25
    traffic = Traffic(600.0, 1.0 + 119.0 / advance, 0.5, 0.5, 1.4)
    fitting = float(cache_sequences(decoder(), node(), at, 800.0, 120.0, c))
    queue = latency(step_s, 1.5, traffic, slots=min(fitting, 40.0) / 2.0, chunk_tokens=8192.0)
    found = serving_latency(decoder(), node(), at, load, c)
    assert float(found.ttft_s["mean"]) == pytest.approx(float(queue.ttft_mean_s + c.first_s), rel=1e-6)
    assert float(found.tpot_s["p95"]) == pytest.approx(float(queue.tpot_quantile_s(0.95)) / advance, rel=1e-6)
    assert float(found.e2e_s["p90"]) == pytest.approx(float(queue.e2e_quantile_s(0.9) + c.first_s), rel=1e-6)
    assert float(found.answer.decodes) == pytest.approx(2.0 * float(queue.batch), rel=1e-6)
    held = min(3.0 * float(found.e2e_s["mean"]), float(found.answer.slots))
    assert float(found.answer.cache_share) == pytest.approx(held / fitting, rel=1e-6)
