"""Laws that an answer about a service keeps, whatever the model, the machine, the lengths and the load."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.decide.serving.curve import load_curve, saturation
from perfmodel.decide.serving.knee import crossing, step_parts
from perfmodel.decide.serving.pool_ratio import pooled
from perfmodel.physics.serving_shape import ServingShape
from perfmodel.physics.serving_step import weight_bytes_per_rank
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.serving.setup import Service, service_of
from perfmodel.specs.jobs import load_any_job
from perfmodel.specs.serving import ServedLayout, ServingJob

ROUND = 1e-6
MODELS = ("llama3-8b", "mixtral-8x7b", "gemma2-9b", "nemotron-h-56b")
CLUSTERS = ("dgx-h100", "hgx-a100", "standard-nd96isr-mi300x-v5")


@cache
def base(workload: str, cluster: str) -> ServingJob:
    found = load_any_job(
        {"workload": workload, "cluster": cluster, "serving": {"input_tokens": 9, "output_tokens": 9}}
    )
    assert isinstance(found, ServingJob)
    return found


@st.composite
def services(draw: st.DrawFn) -> tuple[Service, ServedLayout]:
    """A service that fits, with lengths, limits and engine of any kind."""
    job = base(draw(st.sampled_from(MODELS)), draw(st.sampled_from(CLUSTERS)))
    # Of a few tokens the queue is too rough an approximation: it was made for prompts and answers. With 32 of either, the time
    # per token of a mixture of experts falls by 3 % between 5 and 30 % of the load.
    lengths = {key: {"mean": draw(st.floats(64, most)), "spread": draw(st.sampled_from([0.0, 0.5, 1.0]))}
               for key, most in (("input_tokens", 6000), ("output_tokens", 1500))}  # fmt: skip
    said = {
        **lengths,
        "engine": draw(st.sampled_from([None, "vllm", "sglang", "tensorrt-llm"])),
        "prefix_hit": draw(st.sampled_from([0.0, 0.5])),
        "max_batch": draw(st.sampled_from([None, 8, 200])),
        "kv_precision": draw(st.sampled_from([None, "fp8"])),
    }
    serving = type(job.serving).model_validate(said)
    layout = ServedLayout(tp=draw(st.sampled_from([4, 8])))
    if draw(st.booleans()):  # a group of two pools
        layout = pooled(layout, ServedLayout(tp=4), draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    return service_of(job.model_copy(update={"serving": serving}), textbook_beliefs()), layout


def rates(service: Service, layout: ServedLayout, shares: list[float]) -> np.ndarray:
    return float(saturation(service, service.deployment([layout]))) * np.array(shares)


@settings(max_examples=15, deadline=None)
@given(services())
def test_more_load_never_shortens_a_time_and_parts_sum_to_the_step(
    found: tuple[Service, ServedLayout],
) -> None:
    service, layout = found
    curve = load_curve(service, layout, "rate", rates(service, layout, [0.05, 0.3, 0.6, 0.9]))
    for times in curve.times.values():
        assert (np.diff(times["mean"]) >= -ROUND * times["mean"][:-1]).all()
        for lower, upper in zip(("p50", "p90", "p95"), ("p90", "p95", "p99"), strict=True):
            assert (times[lower] <= times[upper] * (1 + ROUND)).all()
    parts = step_parts(curve)
    at = service.deployment([layout])
    np.testing.assert_allclose(sum(parts.values()), curve.times["tpot"]["mean"] * at.advance, rtol=1e-9)
    assert all((value >= 0.0).all() for value in parts.values())
    assert ((curve.answer.cache_share >= 0.0) & (curve.answer.cache_share <= 1.0)).all()


@settings(max_examples=15, deadline=None)
@given(services(), st.lists(st.integers(1, 2000), min_size=3, max_size=3, unique=True).map(sorted))
def test_a_closed_loop_makes_more_and_answers_later_as_more_is_in_flight(
    found: tuple[Service, ServedLayout], loads: list[int]
) -> None:
    service, layout = found
    curve = load_curve(service, layout, "concurrency", np.array(loads, float))
    made = curve.answer.throughput_out_tokens_per_s
    assert (np.diff(made) >= -1e-3 * made[:-1]).all()
    assert (np.diff(curve.times["e2e"]["mean"]) >= -1e-3 * curve.times["e2e"]["mean"][:-1]).all()
    np.testing.assert_allclose(
        curve.answer.requests_per_s * curve.times["e2e"]["mean"], loads, rtol=1e-6
    )  # Little


@settings(max_examples=15, deadline=None)
@given(services())
def test_nothing_is_made_above_the_roofs_of_bandwidth_and_arithmetic(
    found: tuple[Service, ServedLayout],
) -> None:
    service, layout = found
    at = service.deployment([layout])
    curve = load_curve(service, layout, "concurrency", np.array([1.0, 64.0, 2000.0]))
    shape: ServingShape = service.shape
    device = service.machine
    ranks = float(at.accelerators)
    active = float(shape.dense_params + shape.expert_params * shape.top_k / np.maximum(shape.experts, 1.0))
    new = 1.0 - service.job.serving.prefix_hit
    tokens = service.job.serving.input_tokens.mean * new + service.job.serving.output_tokens.mean
    flop = curve.answer.requests_per_s * tokens * 2.0 * active
    assert (flop <= float(device.peak_flop_per_s) * ranks).all()
    read = active * float(np.minimum(at.weight_bytes, at.expert_bytes)) / float(at.tensor)
    assert (curve.times["tpot"]["mean"] >= read / float(device.memory_bytes_per_s)).all()
    for quantity in ("tpot", "ttft"):
        low, _ = curve.bounded(quantity, "mean")
        assert (low >= curve.roof.least_s(quantity, "mean") * (1 - ROUND)).all()
    assert (curve.throughput_ends[1] <= curve.roof.out_tokens_per_s * (1 + ROUND)).all()
    held = curve.answer.cache_share * curve.answer.fitting
    assert (held <= curve.answer.fitting * (1 + ROUND)).all()
    assert float(weight_bytes_per_rank(shape, at)) < float(device.memory_bytes)


@settings(max_examples=10, deadline=None)
@given(services(), st.sampled_from(["memory_bandwidth", "memory"]))
def test_better_hardware_never_serves_less(found: tuple[Service, ServedLayout], what: str) -> None:
    service, layout = found
    job = service.job
    device = job.cluster.node.accelerator
    better = device.model_copy(update={what: 2.0 * getattr(device, what)})
    node = job.cluster.node.model_copy(update={"accelerator": better})
    other = service_of(
        job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})}), textbook_beliefs()
    )
    before, after = (float(saturation(one, one.deployment([layout]))) for one in (service, other))
    assert after >= before * (1 - ROUND)
    load = np.array([0.5 * before])
    for quantity in ("tpot", "e2e"):
        times = [load_curve(one, layout, "rate", load).times[quantity]["mean"][0] for one in (service, other)]
        assert times[1] <= times[0] * (1 + 1e-3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=8), st.floats(1e-3, 1e3), st.floats(1.0, 3.0))
def test_a_laxer_limit_never_ends_earlier(values: list[float], limit: float, more: float) -> None:
    load = np.arange(1.0, len(values) + 1.0)
    known = {"a": np.sort(np.array(values))}
    strict, lax = (
        np.nan_to_num(crossing(load, known, {"a": bound})[0], nan=0.0) for bound in (limit, limit * more)
    )
    assert lax >= strict * (1 - 1e-12)


def test_the_same_question_has_the_same_answer() -> None:
    from perfmodel.decide.serving.prediction import predict_serving

    job = base("llama3-8b", "dgx-h100")
    assert predict_serving(job).to_json() == predict_serving(job).to_json()
