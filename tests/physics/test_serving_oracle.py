"""The vectorised step and state of a replica against the same equations in plain arithmetic, solved by bisection."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scalar_serving as oracle

from perfmodel.physics.examples import decoder, node
from perfmodel.physics.machine import Machine
from perfmodel.physics.serving import CLOSED, OFFLINE, OPEN, STATIC, Load, replica_step, serving_answer
from perfmodel.physics.serving_coefficients import MEDIANS, NAMES, from_logs
from perfmodel.physics.serving_shape import ServingShape, serving_shape
from perfmodel.physics.serving_step import Deployment, cache_sequences, serving_step
from perfmodel.specs.workload import Workload

RNG = np.random.default_rng(5)
#: Coefficients away from their medians, none of them zero or one.
C = from_logs(np.log([MEDIANS[name] for name in NAMES]) + RNG.normal(0.0, 0.2, len(NAMES)))


def shape_of(**said: object) -> ServingShape:
    common = {
        "name": "x",
        "layers": 24,
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 4,
        "ffn": 768,
        "vocab": 64_000,
    }
    return serving_shape(Workload.model_validate(common | said))


SHAPES = {
    "dense": decoder(),
    "window": shape_of(
        kind="decoder-transformer", ffn=8192, attention_window=512, window_layers=18, params=2_000_000_000
    ),
    "mixture": shape_of(
        kind="moe-transformer", moe_ffn=768, gated_mlp=True, experts=64, top_k=4, params=10_000_000_000
    ),
}  # fmt: skip
#: Weights that every rank repeats and recurrent layers, in numbers that no product of others gives.
SHAPES["hybrid"] = replace(
    SHAPES["mixture"],
    **{name: np.asarray(value) for name, value in {
        "whole_params": 3.1e8, "linear_layers": 7.0, "latent_layers": 5.0, "mlp_layers": 3.0, "state_bytes": 2.7e7,
    }.items()},
)  # fmt: skip

MACHINES: dict[str, Machine] = {
    "node": node(),
    "pairs": replace(node(), domain=np.asarray(2.0), peak_flop_per_s=1.7 * node().peak_flop_per_s),
    "leaves": replace(
        node(), domain=np.asarray(2.0), node=np.asarray(2.0), oversubscription=np.asarray(3.0), leaf_nodes=np.asarray(1.5)
    ),
}  # fmt: skip

DEPLOYMENTS = {
    "one": Deployment(),
    "tensor": Deployment(tensor=4.0, weight_bytes=1.0, cache_bytes=1.0, chunk_tokens=1024.0),
    "stages": Deployment(tensor=2.0, pipeline=2.0, dense_in_16_bit=1.0, memory_fraction=0.8, reserve=0.7),
    "wide": Deployment(tensor=8.0, pipeline=2.0, mixed=0.0, max_sequences=96.0),
    "experts": Deployment(tensor=2.0, attention_replicas=4.0, expert_ranks=8.0, expert_bytes=1.0, chunk_tokens=2048.0),
    "drafts": Deployment(tensor=2.0, draft_tokens=3.0, acceptance=0.6),
}  # fmt: skip

CASES = [(s, m, d) for s in SHAPES for m in MACHINES for d in DEPLOYMENTS]


@pytest.mark.parametrize(("shape", "machine", "at"), CASES)
def test_each_part_of_a_step_is_that_of_its_equation(shape: str, machine: str, at: str) -> None:
    s, m, d = SHAPES[shape], MACHINES[machine], DEPLOYMENTS[at]
    step = serving_step(s, m, d, 900.0, 400.0, C)
    for decodes, prompts in ((1.0, 0.0), (48.0, 700.0), (3000.0, 0.0), (0.0, 4000.0)):
        found = step.parts(decodes, prompts)
        expected = oracle.step_parts(s, m, d, C, 900.0, 400.0, decodes, prompts)
        assert {name: float(v) for name, v in found.items()} == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert float(step.seconds(decodes, prompts)) == pytest.approx(sum(expected.values()), rel=1e-9)
    sequences = cache_sequences(s, m, d, 800.0, 300.0, C)
    assert float(sequences) == pytest.approx(oracle.fitting(s, m, d, C, 800.0, 300.0), rel=1e-9)


LOADS = {
    "one": Load(concurrency=1.0, input_tokens=700.0, output_tokens=150.0),
    "few": Load(concurrency=6.0, input_tokens=3000.0, output_tokens=40.0, output_cv=0.7),
    "many": Load(concurrency=180.0, input_tokens=600.0, output_tokens=200.0, prefix_hit=0.4),
    "too many": Load(concurrency=900.0, input_tokens=200.0, output_tokens=300.0),
    "prompts": Load(concurrency=64.0, input_tokens=6000.0, output_tokens=12.0),
    "burst": Load(concurrency=64.0, requests=300.0, input_tokens=900.0, output_tokens=100.0),
}


def replica(shape: ServingShape, machine: Machine, at: Deployment, load: Load) -> oracle.Replica:
    tokens, outputs, hit = (float(v) for v in (load.input_tokens, load.output_tokens, load.prefix_hit))
    context = tokens + 0.5 * outputs * (1.0 + float(load.output_cv) ** 2)
    drafted, accepted = int(at.draft_tokens), float(at.acceptance)

    def seconds(d: float, p: float) -> float:
        return sum(
            oracle.step_parts(shape, machine, at, C, context, 0.5 * (1.0 + hit) * tokens, d, p).values()
        )

    return oracle.Replica(
        seconds=seconds,
        lanes=float(at.pipeline),
        rows=1.0 + drafted,
        advance=sum(accepted**i for i in range(drafted + 1)),
        new_tokens=max(tokens * (1.0 - hit), 1.0),
        outputs=outputs,
        chunk=float(at.chunk_tokens),
        mixed=at.mixed > 0,
        c=oracle.plain(C),
    )


PAIRS = [("dense", at) for at in ("one", "tensor", "stages", "wide", "drafts")] + [("mixture", "experts")]


def slots_of(shape: ServingShape, at: Deployment, load: Load, asked: float) -> tuple[float, float]:
    fits = oracle.fitting(shape, node(), at, C, float(load.input_tokens), float(load.output_tokens))
    return max(min(asked, fits, float(at.max_sequences)), 1.0), fits


def burst_s(one: oracle.Replica, slots: float) -> float:
    """Half of the prompts of those who start together, in steps that decode as many."""
    ahead = 0.5 * max(slots / one.lanes - 1.0, 0.0)
    decodes = ahead if one.mixed else 0.0
    room = max(one.chunk - decodes * one.rows, 16.0)
    full = min(room, (2.0 * ahead + 1.0) * one.new_tokens)
    return float(one.c.wave * ahead * one.seconds(decodes, full) * one.new_tokens / full)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("shape", "at"), PAIRS)
def test_a_closed_loop_is_the_state_that_repeats_itself(shape: str, at: str, load: str) -> None:
    s, d, asked = SHAPES[shape], DEPLOYMENTS[at], LOADS[load]
    found = serving_answer(s, node(), d, asked, C)
    one, concurrency = replica(s, node(), d, asked), float(asked.concurrency)
    slots, fits = slots_of(s, d, asked, concurrency)
    decodes, most = one.full(slots)
    state = one.state(decodes)
    in_slot = max(one.in_slot(state, slots), slots / most - one.after * state["step"])
    burst = slots / max(float(asked.requests), slots) * burst_s(one, slots) if asked.requests > 0 else 0.0
    ttft = one.c.first_s + in_slot + burst + max(concurrency / most - slots / most, 0.0)
    tpot = state["step"] / one.advance
    e2e = ttft + (one.outputs - 1.0) * tpot
    expected = {
        "decodes": decodes, "step_s": state["step"], "ttft_s": ttft, "tpot_s": tpot, "e2e_s": e2e, "slots": slots,
        "requests_per_s": concurrency / e2e, "throughput_out_tokens_per_s": concurrency * one.outputs / e2e,
        "throughput_total_tokens_per_s": concurrency * (one.outputs + float(asked.input_tokens)) / e2e,
        "saturation_requests_per_s": most, "fitting": fits, "cache_share": min(slots, fits) / fits,
        "burst_s": burst_s(one, slots),
    }  # fmt: skip
    for name, value in expected.items():
        assert float(getattr(found, name)) == pytest.approx(value, rel=2e-3), name
    assert bool(found.is_saturated) == (concurrency > slots)
    assert bool(found.stable)


@pytest.mark.parametrize("share", [0.02, 0.4, 0.85, 1.6])
@pytest.mark.parametrize(("shape", "at"), PAIRS)
def test_an_open_loop_is_the_state_with_that_rate(shape: str, at: str, share: float) -> None:
    s, d = SHAPES[shape], DEPLOYMENTS[at]
    common = Load(kind=OPEN, input_tokens=900.0, output_tokens=120.0, requests=500.0)
    one = replica(s, node(), d, common)
    slots, fits = slots_of(s, d, common, math.inf)
    full, most = one.full(slots)
    rate = share * most
    found = serving_answer(s, node(), d, replace(common, rate_per_s=rate), C)
    arriving = min(rate, most)
    decodes = one.opened(arriving, full)
    state = one.state(decodes)
    in_slot = one.in_slot(state, max(decodes, 1.0))
    line = 0.5 * 500.0 * max(1.0 / most - 1.0 / rate, 0.0)
    assert bool(found.stable) == (share < 1.0)
    assert bool(found.is_saturated) == (share > 1.0)
    assert float(found.requests_per_s) == pytest.approx(arriving, rel=2e-3)
    assert float(found.decodes) == pytest.approx(decodes, rel=3e-3)
    assert float(found.tpot_s) == pytest.approx(state["step"] / one.advance, rel=1e-3)
    assert float(found.ttft_s) == pytest.approx(one.c.first_s + in_slot + line, rel=5e-3)
    taken = min(decodes + arriving * in_slot, fits) / fits
    assert float(found.cache_share) == pytest.approx(taken, rel=5e-3)


@pytest.mark.parametrize(("shape", "at"), PAIRS)
def test_an_offline_run_is_its_requests_and_its_end(shape: str, at: str) -> None:
    s, d = SHAPES[shape], DEPLOYMENTS[at]
    for requests in (5.0, 2000.0):
        load = Load(kind=OFFLINE, requests=requests, input_tokens=900.0, output_tokens=120.0)
        found = serving_answer(s, node(), d, load, C)
        one = replica(s, node(), d, load)
        slots, _ = slots_of(s, d, load, requests)
        decodes, most = one.full(slots)
        state = one.state(decodes)
        # Answers of one length: the last wave, begun half a mean length ago, ends in steps of few sequences.
        left = 0.5 * (1.0 - min(slots / requests, 1.0))
        ending = one.after * one.seconds(1.0, 0.0) * left
        assert float(found.requests_per_s) == pytest.approx(requests / (requests / most + ending), rel=2e-3)
        in_slot = max(one.in_slot(state, slots), slots / most - one.after * state["step"])
        burst = slots / max(requests, slots) * burst_s(one, slots)
        line = 0.5 * max(requests - slots, 0.0) / most
        assert float(found.ttft_s) == pytest.approx(one.c.first_s + in_slot + burst + line, rel=2e-3)
        beside = min(burst / one.after, state["step"] - state["empty"])
        assert float(found.tpot_s) == pytest.approx((state["step"] - beside) / one.advance, rel=2e-3)


@pytest.mark.parametrize(("shape", "at"), PAIRS)
def test_a_static_batch_is_prompts_and_then_steps(shape: str, at: str) -> None:
    s, d = SHAPES[shape], DEPLOYMENTS[at]
    for batch in (2.0, 5000.0):
        load = Load(kind=STATIC, concurrency=batch, input_tokens=900.0, output_tokens=120.0)
        found = serving_answer(s, node(), d, load, C)
        one = replica(s, node(), d, load)
        slots, _ = slots_of(s, d, load, batch)
        lane = slots / one.lanes
        chunk = min(lane * one.new_tokens, one.chunk)
        prefill = one.seconds(0.0, chunk) * lane * one.new_tokens / chunk
        tpot = one.seconds(lane, 0.0) / one.advance
        assert float(found.ttft_s) == pytest.approx(one.c.first_s + prefill, rel=1e-9)
        assert float(found.tpot_s) == pytest.approx(tpot, rel=1e-9)
        e2e = one.c.first_s + prefill + 119.0 * tpot
        assert float(found.requests_per_s) == pytest.approx(slots / e2e, rel=1e-9)
        assert float(found.decodes) == slots


def test_loads_of_all_kinds_answer_together_as_they_do_alone() -> None:
    loads = [
        Load(concurrency=20.0), Load(kind=OPEN, rate_per_s=0.7), Load(kind=OFFLINE, requests=500.0),
        Load(kind=STATIC, concurrency=8.0), Load(kind=OPEN, rate_per_s=1e3),
    ]  # fmt: skip
    both = [Deployment(tensor=2.0), Deployment(tensor=2.0, mixed=0.0)]
    kinds = {CLOSED, OPEN, OFFLINE, STATIC}
    assert {load.kind for load in loads} == kinds
    joined = Load(**{
        name: np.array([getattr(load, name) for load in loads] * 2) for name in ("kind", "concurrency", "rate_per_s", "requests")
    })  # fmt: skip
    mixed = np.repeat([1.0, 0.0], len(loads))
    found = serving_answer(decoder(), node(), Deployment(tensor=2.0, mixed=mixed), joined, C)
    alone = [serving_answer(decoder(), node(), at, load, C) for at in both for load in loads]
    for name in ("ttft_s", "tpot_s", "requests_per_s", "decodes", "is_saturated", "stable", "cache_share"):
        one_by_one = [float(getattr(answer, name)) for answer in alone]
        np.testing.assert_allclose(getattr(found, name).astype(float), one_by_one, rtol=1e-6)


def test_a_mean_context_is_the_prompt_and_what_is_there_of_the_output() -> None:
    step = replica_step(
        decoder(), node(), Deployment(),
        Load(input_tokens=1000.0, output_tokens=200.0, output_cv=0.5, prefix_hit=0.25), C,
    )  # fmt: skip
    expected = serving_step(decoder(), node(), Deployment(), 1000.0 + 100.0 * 1.25, 625.0, C)
    assert float(step.seconds(8.0, 300.0)) == pytest.approx(float(expected.seconds(8.0, 300.0)), rel=1e-12)
