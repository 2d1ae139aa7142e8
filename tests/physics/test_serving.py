"""Throughput and latency of a replica: limits, conservation, and what more load or hardware may never do."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.serving import (
    CLOSED,
    OFFLINE,
    OPEN,
    STATIC,
    Load,
    longest_of,
    replica_step,
    serving_answer,
)
from perfmodel.physics.serving_coefficients import KNOWN, LEVELS, NAMES, SPREADS, ideal, textbook
from perfmodel.physics.serving_shape import serving_shape
from perfmodel.physics.serving_step import Deployment, cache_sequences, touched_experts, weight_bytes_per_rank
from perfmodel.specs.workload import Workload

ROUND = 1e-9


def mixture():
    return serving_shape(
        Workload(
            name="moe", kind="moe-transformer", layers=24, hidden=2048, heads=16, kv_heads=4, ffn=768, moe_ffn=768,
            gated_mlp=True, vocab=64_000, experts=64, top_k=4, params=10_000_000_000,
        )
    )  # fmt: skip


def draw(seed):
    rng = np.random.default_rng(seed)
    base = textbook()
    return type(base)(**{n: getattr(base, n) * np.exp(SPREADS[n] * rng.normal()) for n in NAMES})


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "tokens": st.integers(32, 8000),
        "outputs": st.integers(16, 2000),
        "tensor": st.sampled_from([1.0, 2.0, 8.0]),
        "pipeline": st.sampled_from([1.0, 2.0]),
        "mixed": st.sampled_from([0.0, 1.0]),
        "chunk": st.sampled_from([512.0, 8192.0]),
        "routed": st.booleans(),
    }
)


def built(case):
    at = Deployment(
        tensor=case["tensor"], pipeline=case["pipeline"], mixed=case["mixed"], chunk_tokens=case["chunk"]
    )
    return (mixture() if case["routed"] else decoder()), at, draw(case["seed"])


def answer(case, load, machine=None, at=None):
    shape, usual, c = built(case)
    tokens = {"input_tokens": float(case["tokens"]), "output_tokens": float(case["outputs"])}
    return serving_answer(shape, machine or node(), at or usual, replace(load, **tokens), c)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_more_requests_at_once_never_make_tokens_come_sooner(case):
    found = answer(case, Load(concurrency=2.0 ** np.arange(9)))
    # Prompts that share a step are cheaper together, which takes back some tenths of a percent for tiny requests.
    assert (np.diff(found.tpot_s) >= -5e-3 * found.tpot_s[1:]).all()
    assert (np.diff(found.e2e_s) >= -5e-3 * found.e2e_s[1:]).all()
    # Where prompts begin to fill the steps, the state is read a little high.
    assert (np.diff(found.throughput_out_tokens_per_s) >= -0.04 * found.throughput_out_tokens_per_s[1:]).all()


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_a_higher_rate_never_lowers_latency_and_ends_at_saturation(case):
    most = answer(case, Load(kind=OPEN, rate_per_s=1e9)).saturation_requests_per_s
    found = answer(
        case, Load(kind=OPEN, rate_per_s=most * np.array([0.05, 0.3, 0.6, 0.9, 0.999, 1.001, 2.0]))
    )
    assert found.stable.tolist() == [True] * 5 + [False] * 2
    assert (np.diff(found.tpot_s[:5]) >= -1e-4 * found.tpot_s[:4]).all()
    assert np.allclose(
        found.decodes[:5], found.requests_per_s[:5] * (case["outputs"] - 1) * found.step_s[:5], rtol=1e-2
    )


@settings(max_examples=40, deadline=None)
@given(
    CASES, st.sampled_from(["memory_bytes_per_s", "peak_flop_per_s", "peak16_flop_per_s", "up_bytes_per_s"])
)
def test_a_better_machine_never_hurts(case, what):
    machine = node()
    better = replace(machine, **{what: getattr(machine, what) * 1.5})
    loads = Load(concurrency=np.array([1.0, 8.0, 64.0]))
    before, after = answer(case, loads), answer(case, loads, machine=better)
    assert (after.e2e_s <= before.e2e_s * 1.01).all()
    rates = Load(kind=OPEN, rate_per_s=before.saturation_requests_per_s * 0.9)
    before, after = answer(case, rates), answer(case, rates, machine=better)
    assert (after.tpot_s <= before.tpot_s * 1.0001).all()
    assert (after.ttft_s <= before.ttft_s * 1.005).all()


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_throughput_stays_below_the_roofs(case):
    shape, at, c = built(case)
    found = answer(case, Load(concurrency=np.array([1.0, 30.0, 200.0])))
    machine = node()
    flop = 2.0 * (shape.dense_params + shape.expert_params * shape.top_k / shape.experts)
    compute = min(float(c.compute), 1.0)
    ranks = at.accelerators
    if c.compute <= 1.0 and c.pace >= 1.0 and c.compute * c.expert_compute <= 1.0:
        tokens = found.requests_per_s * (case["tokens"] * 0 + case["outputs"])
        assert (tokens * flop <= machine.peak_flop_per_s * ranks * (1 + ROUND)).all()
        assert compute <= 1.0
    if c.weight_read <= 1.0 and c.pace >= 1.0:
        read = (shape.dense_params * 2.0 / at.tensor) / machine.memory_bytes_per_s
        assert (found.tpot_s >= read * (1 - ROUND)).all()


@settings(max_examples=40, deadline=None)
@given(CASES, st.floats(1.0, 1e5))
def test_keys_and_values_never_exceed_the_memory(case, asked):
    shape, at, c = built(case)
    found = answer(case, Load(concurrency=np.array([asked])))
    fitting = cache_sequences(shape, node(), at, case["tokens"], case["outputs"], c)
    if found.fits.all():
        assert found.slots <= max(fitting, 1.0) * (1 + ROUND)
        assert found.cache_share <= 1.0 + ROUND
        held = weight_bytes_per_rank(shape, at)
        assert held < node().memory_bytes


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_parts_sum_to_the_step(case):
    shape, at, c = built(case)
    step = replica_step(shape, node(), at, Load(input_tokens=500.0, output_tokens=100.0), c)
    for d, p in ((1.0, 0.0), (40.0, 900.0)):
        assert np.isclose(sum(step.parts(d, p).values()), step.seconds(d, p), rtol=1e-12)


def test_little_relates_throughput_and_latency_in_a_closed_loop():
    load = Load(concurrency=np.array([1.0, 40.0, 1000.0]), output_tokens=200.0)
    found = serving_answer(decoder(), node(), Deployment(), load, textbook())
    time = found.ttft_s + 199.0 * found.tpot_s
    assert np.allclose(load.concurrency * 200.0 / time, found.throughput_out_tokens_per_s)
    assert found.is_saturated.tolist() == [False, False, True]
    assert np.isclose(found.tpot_s[2], serving_answer(
        decoder(), node(), Deployment(), replace(load, concurrency=256.0), textbook()).tpot_s)  # fmt: skip


def test_a_static_batch_is_its_prompts_and_then_its_steps():
    load = Load(kind=STATIC, concurrency=16.0, input_tokens=100.0, output_tokens=50.0)
    found = serving_answer(decoder(), node(), Deployment(), load, textbook())
    step = replica_step(decoder(), node(), Deployment(), load, textbook())
    expected = textbook().first_s + step.seconds(0.0, 1600.0) + 49.0 * step.seconds(16.0, 0.0)
    assert np.isclose(found.e2e_s, expected)
    assert np.isclose(found.throughput_out_tokens_per_s, 16.0 * 50.0 / expected)


def test_an_offline_run_is_slower_the_fewer_requests_share_its_end():
    load = Load(kind=OFFLINE, requests=np.array([300.0, 3000.0, np.nan]))
    found = serving_answer(decoder(), node(), Deployment(), load, textbook())
    assert (np.diff(found.throughput_out_tokens_per_s) > 0).all()


def test_a_model_that_does_not_fit_has_no_answer():
    large = replace(decoder(), params=np.asarray(1e12))
    found = serving_answer(large, node(), Deployment(), Load(concurrency=1.0), textbook())
    assert not found.fits
    assert np.isnan(found.tpot_s)


def test_all_draws_are_answered_at_once():
    several = textbook()
    several = replace(several, compute=np.array([[0.5], [0.6], [0.7]]))
    load = Load(
        kind=np.array([CLOSED, OPEN]), concurrency=np.array([8.0, np.nan]), rate_per_s=np.array([np.nan, 1.0])
    )
    found = serving_answer(decoder(), node(), Deployment(), load, several)
    assert found.ttft_s.shape == (3, 2)
    assert (np.diff(found.ttft_s, axis=0) < 0).all()


def test_experts_are_touched_one_by_one_and_then_all():
    n = np.array([1.0, 1e6])
    assert np.allclose(touched_experts(n, 64.0, 4.0, 1e-9), [4.0 / 64.0, 1.0], atol=2e-3)
    even, skewed = (touched_experts(32.0, 64.0, 4.0, v) for v in (0.01, 2.0))
    assert skewed < even


def test_an_ideal_machine_reads_its_weights_at_the_memory_bandwidth():
    found = serving_answer(
        decoder(), node(), Deployment(), Load(concurrency=1.0, input_tokens=1.0, output_tokens=2.0), ideal()
    )
    least = 2.0 * (decoder().dense_params + decoder().logit_params) / node().memory_bytes_per_s
    assert found.tpot_s == pytest.approx(least, rel=1e-3)


def test_known_levels_are_levels():
    assert all(level in LEVELS[name] for name, level, _ in KNOWN)
    assert {f.name for f in fields(textbook())} == set(NAMES)


@pytest.mark.parametrize("accepted", [0.0, 0.3, 0.9, 1.0])
def test_drafted_tokens_advance_a_sequence_by_those_accepted_in_a_row(accepted):
    at = Deployment(draft_tokens=3.0, acceptance=accepted)
    assert float(at.advance) == pytest.approx(sum(accepted**i for i in range(4)), rel=1e-4)


def test_a_run_ends_when_its_longest_answer_does():
    """All at once in one wave: work by the mean length, but a step's own cost until the longest has ended."""
    at = Deployment(tensor=2.0, max_sequences=1000.0)
    shape, machine, c = decoder(), node(), textbook()

    def run_s(cv: float) -> float:
        load = Load(kind=OFFLINE, requests=400.0, input_tokens=200.0, output_tokens=200.0, output_cv=cv)
        return float(400.0 / serving_answer(shape, machine, at, load, c).requests_per_s)

    alone = float(
        replica_step(shape, machine, at, Load(input_tokens=200.0, output_tokens=200.0), c).seconds(1.0, 0.0)
    )
    longest = float(longest_of(400.0, 1.0))
    assert longest == pytest.approx(np.log(400.0), rel=0.05)
    # Longer contexts of the long answers come on top, so more than the steps alone.
    assert run_s(1.0) - run_s(0.0) > 0.95 * 199.0 * alone * (longest - 1.0)
    assert run_s(1.0) - run_s(0.0) < 1.3 * 199.0 * alone * (longest - 1.0)
