"""Two pools: limits, conservation, and the queues in line beside a discrete-event simulation of both."""

from dataclasses import replace

import numpy as np
import pytest
import serving_des as des
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.serving import OFFLINE, OPEN, Load, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import NAMES, SPREADS, textbook
from perfmodel.physics.serving_pools import (
    pool_coefficients,
    pool_deployments,
    pool_loads,
    prefill_wait,
    transfer,
)
from perfmodel.physics.serving_step import Deployment
from perfmodel.physics.serving_tail import serving_latency

TWO_AND_THREE = Deployment(prefill_at=Deployment(), prefill_replicas=2.0, decode_replicas=3.0)


def draw(seed):
    rng = np.random.default_rng(seed)
    base = textbook()
    return type(base)(**{n: getattr(base, n) * np.exp(SPREADS[n] * rng.normal()) for n in NAMES})


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "tokens": st.integers(32, 8000),
        "outputs": st.integers(16, 2000),
        "tensor": st.sampled_from([1.0, 4.0]),
        "senders": st.sampled_from([1.0, 3.0]),
        "takers": st.sampled_from([1.0, 2.0, 5.0]),
    }
)


def built(case):
    at = Deployment(
        tensor=case["tensor"],
        prefill_at=Deployment(tensor=2.0),
        prefill_replicas=case["senders"],
        decode_replicas=case["takers"],
    )
    load = Load(
        kind=OPEN, rate_per_s=1.0, input_tokens=float(case["tokens"]), output_tokens=float(case["outputs"])
    )
    return at, load, draw(case["seed"])


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_more_load_never_lowers_latency_and_ends_where_the_first_pool_or_the_link_is_full(case):
    at, load, c = built(case)
    most = serving_answer(decoder(), node(), at, load, c).saturation_requests_per_s
    prefill, decode = pool_deployments(at)
    prompts, tokens = pool_loads(load)
    _, c_decode = pool_coefficients(c)
    each = serving_answer(decoder(), node(), decode, tokens, c_decode).saturation_requests_per_s
    roofs = [
        case["senders"] * prefill_wait(decoder(), node(), prefill, prompts, c).saturation_per_s,
        case["takers"] * each,
        transfer(decoder(), node(), at, load, c).most_per_s,
    ]
    assert np.isclose(most, min(roofs))
    shares = np.array([0.05, 0.3, 0.6, 0.9, 1.001])
    found = serving_answer(decoder(), node(), at, replace(load, rate_per_s=most * shares), c)
    assert found.stable.tolist() == [True] * 4 + [False]
    assert (np.diff(found.ttft_s[:4]) >= -1e-3 * found.ttft_s[:3]).all()
    assert (np.diff(found.tpot_s[:4]) >= -1e-4 * found.tpot_s[:3]).all()
    made = found.throughput_out_tokens_per_s[:4]
    assert np.allclose(made, most * shares[:4] * case["outputs"])  # tokens asked are tokens made


@settings(max_examples=30, deadline=None)
@given(
    CASES,
    st.sampled_from(
        ["memory_bytes_per_s", "peak_flop_per_s", "peak16_flop_per_s", "up_bytes_per_s", "out_bytes_per_s"]
    ),
)
def test_a_better_machine_never_hurts(case, what):
    at, load, c = built(case)
    better = replace(node(), **{what: getattr(node(), what) * 1.5})
    most = serving_answer(decoder(), node(), at, load, c).saturation_requests_per_s
    rates = replace(load, rate_per_s=most * np.array([0.2, 0.8]))
    before, after = (serving_answer(decoder(), m, at, rates, c) for m in (node(), better))
    assert (after.e2e_s <= before.e2e_s * 1.005).all()
    assert after.saturation_requests_per_s >= before.saturation_requests_per_s * (1.0 - 5e-3)


@settings(max_examples=30, deadline=None)
@given(CASES)
def test_a_closed_loop_keeps_its_requests(case):
    at, load, c = built(case)
    flight = np.array([1.0, 8.0, 100.0, 5000.0])
    found = serving_answer(decoder(), node(), at, Load(concurrency=flight, input_tokens=load.input_tokens, output_tokens=load.output_tokens), c)  # fmt: skip
    assert np.allclose(found.requests_per_s * found.e2e_s, flight)
    assert np.allclose(found.e2e_s, found.ttft_s + (case["outputs"] - 1) * found.tpot_s, rtol=0.02)
    assert (found.requests_per_s <= found.saturation_requests_per_s * (1.0 + 1e-9)).all()
    assert (np.diff(found.requests_per_s) >= -1e-3 * found.requests_per_s[1:]).all()


def test_prompts_leave_decoding_alone():
    # At one rate an accelerator, tokens of a replica that also prefills come later than of one that only decodes.
    load = Load(kind=OPEN, rate_per_s=1.0, input_tokens=3000.0, output_tokens=200.0)
    alone = serving_answer(decoder(), node(), Deployment(), load, textbook())
    pools = replace(TWO_AND_THREE, prefill_replicas=1.0, decode_replicas=1.0)
    apart = serving_answer(decoder(), node(), pools, replace(load, rate_per_s=1.0), textbook())
    assert apart.tpot_s < alone.tpot_s
    assert apart.ttft_s > transfer(decoder(), node(), pools, load, textbook()).seconds


def test_an_offline_run_makes_what_the_narrower_pool_lets_through():
    load = Load(kind=OFFLINE, requests=10_000.0)
    found = serving_answer(decoder(), node(), TWO_AND_THREE, load, textbook())
    assert 0.97 < found.requests_per_s / found.saturation_requests_per_s < 1.0


def _simulated(at, load, c, rate, n, seed):
    """Requests dealt to the replicas of each pool at random; caches cross one after another on each link."""
    rng = np.random.default_rng(seed)
    shape, machine = decoder(), node()
    prefill, decode = pool_deployments(at)
    prompts, tokens = pool_loads(load)
    c_prefill, c_decode = pool_coefficients(c)
    inputs = des.lengths(rng, load.input_tokens, load.input_cv, n)
    outputs = des.lengths(rng, load.output_tokens, load.output_cv, n)
    arrival = des.arrivals(rng, rate, n)

    def pool(one, asked, own, count, given, wanted, made):
        step = replica_step(shape, machine, one, asked, own)
        to = rng.integers(count, size=n)
        first, finish = np.empty(n), np.empty(n)

        def step_s(d, p, _):
            empty = float(step.seconds(d, 0.0))
            return empty + float(own.interference) * (float(step.seconds(d, p)) - empty)

        for r in range(count):
            mine = np.flatnonzero(to == r)
            order = mine[np.argsort(given[mine], kind="stable")]
            run = des.simulate(
                des.Replica(step_s, int(one.max_sequences), int(one.chunk_tokens)),
                des.Requests(given[order], wanted[order], made[order]),
            )
            first[order], finish[order] = run.first_s, run.finish_s
        return first, finish

    ones = np.ones(n, dtype=np.int64)
    started, _ = pool(prefill, prompts, c_prefill, int(at.prefill_replicas), arrival, inputs, ones)
    crossing = transfer(shape, machine, at, load, c)
    links = [0.0] * int(min(at.prefill_replicas, at.decode_replicas))
    there = np.empty(n)
    for request in np.argsort(started):
        link = int(np.argmin(links))
        links[link] = (
            max(links[link], started[request]) + float(crossing.seconds) * inputs[request] / load.input_tokens
        )
        there[request] = links[link]
    first, finish = pool(decode, tokens, c_decode, int(at.decode_replicas), there, ones, outputs)
    kept = slice(n // 5, n - n // 10)
    ttft = (first - arrival + float(c.first_s))[kept]
    many = outputs[kept] > 1
    tpot = ((finish - first)[kept] / np.maximum(outputs[kept] - 1, 1))[many]
    return {"ttft": ttft, "tpot": tpot, "e2e": (finish - arrival + float(c.first_s))[kept]}


@pytest.mark.parametrize(("share", "cv", "bandwidth"), [(0.4, 0.0, 1.0), (0.7, 0.6, 1.0), (0.7, 0.6, 0.01)])
def test_queues_in_line_are_those_of_a_simulation(share, cv, bandwidth):
    machine_at = TWO_AND_THREE
    load = Load(kind=OPEN, rate_per_s=1.0, input_tokens=900.0, output_tokens=120.0, input_cv=cv, output_cv=cv)
    c = textbook()
    c = type(c)(**{n: getattr(c, n) * (bandwidth if n == "exchange_rate" else 1.0) for n in NAMES})
    most = float(serving_answer(decoder(), node(), machine_at, load, c).saturation_requests_per_s)
    found = serving_latency(decoder(), node(), machine_at, replace(load, rate_per_s=share * most), c)
    run = _simulated(machine_at, load, c, share * most, 3000, 5)
    for name, mean, p99 in (("ttft", 0.08, 0.20), ("tpot", 0.02, 0.05), ("e2e", 0.03, 0.10)):
        ours = getattr(found, f"{name}_s")
        assert float(ours["mean"]) == pytest.approx(run[name].mean(), rel=mean)
        assert float(ours["p99"]) == pytest.approx(np.quantile(run[name], 0.99), rel=p99)
