"""Encoders and vision models: one pass answers, all that wait share a batch."""

from __future__ import annotations

import numpy as np
import pytest
import serving_des as des

from perfmodel.decide.serving.curve import latencies, saturation
from perfmodel.decide.serving.prediction import predict_serving
from perfmodel.decide.serving.search import Wanted, plan_serving
from perfmodel.errors import SpecError
from perfmodel.explain.service import explain_service, roofline_service
from perfmodel.physics.counting import operations
from perfmodel.physics.serving import OPEN, replica_step
from perfmodel.physics.serving_coefficients import ideal
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.jobs import load_any_job
from perfmodel.specs.serving import ServedLayout

WORKLOADS = ("bert-large", "resnet50", "vit-b16")


def served(workload, cluster="hgx-a100", **block):
    return service_of(
        load_any_job({"workload": workload, "cluster": cluster, "serving": block}), textbook_beliefs()
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_an_ideal_machine_does_the_forward_pass_at_its_peak(workload):
    found = served(workload, input_tokens=512) if workload == "bert-large" else served(workload)
    at = found.deployment([ServedLayout()])
    step = replica_step(found.shape, found.machine, at, found.load(OPEN, rate_per_s=1.0), ideal())
    units, count = found.job.serving.input_tokens.mean, 4096.0
    work = operations(found.job.workload, 512) if workload == "bert-large" else operations(found.job.workload)
    flop = float(work.forward_flop())
    if workload == "bert-large":  # whose logits nobody asks for
        last = work.slot_last > 0
        rows = work.slot_rows * work.slot_inner * work.slot_outer * work.slot_count
        flop -= float(2.0 * work.tokens * rows[last].sum())
    part = step.parts(0.0, count * units)
    traffic = count * units * float(found.shape.token_bytes) / float(found.machine.memory_bytes_per_s)
    time = float(part["weights"] + part["prompt_attention"]) - traffic
    assert time == pytest.approx(count * flop / float(found.machine.peak_flop_per_s), rel=0.02)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_one_path_and_what_it_never_does(workload):
    job = served(workload, slo={"e2e": {"p99": "60 ms"}}, demand="2000 /s").job
    found = predict_serving(job, textbook_beliefs()).envelope()["result"]
    assert found["is_one_pass"]
    assert found["e2e_s"]["p99"] == found["ttft_s"]["p99"]
    assert all(value is None for value in found["tpot_s"]["mean"])
    for statistic in ("mean", "p50", "p99"):
        times = found["e2e_s"][statistic]
        assert times == sorted(times)
    assert found["throughput_out_tokens_per_s"] == pytest.approx(found["load"])  # an answer a request
    assert np.sum(list(found["parts_s"].values()), axis=0) == pytest.approx(found["step_s"])
    assert found["replicas"] == -(-2000 // found["knee"]["slo"]["load"])
    plan, met = plan_serving([job], Wanted(), textbook_beliefs())
    best = plan.envelope()["result"]["candidates"][0]
    assert met
    assert best["accelerators"] <= found["accelerators"]
    told = explain_service(job, textbook_beliefs()).envelope()["result"]
    assert told["memory"]["sequences_that_fit"] is None
    assert len(roofline_service(job, textbook_beliefs()).envelope()["result"]["phases"]) == 3


@pytest.mark.parametrize(("workload", "share"), [("bert-large", 0.6), ("resnet50", 0.8)])
def test_the_wait_for_a_batch_is_that_of_a_simulation(workload, share):
    block = {"input_tokens": {"mean": 384, "spread": 0.4}} if workload == "bert-large" else {}
    found = served(workload, **block)
    at = found.deployment([ServedLayout()])
    step = replica_step(found.shape, found.machine, at, found.load(OPEN, rate_per_s=1.0), found.coefficients)
    rate = share * float(saturation(found, at))
    units, cv, rng, n = (
        found.job.serving.input_tokens.mean,
        found.job.serving.input_tokens.spread,
        np.random.default_rng(1),
        8000,
    )
    seconds = {}

    def step_s(decodes, work, context):
        if work not in seconds:
            seconds[work] = float(step.seconds(0.0, float(work)))
        return seconds[work]

    asked = des.Requests(
        des.arrivals(rng, rate, n), des.lengths(rng, units, cv, n), np.ones(n, dtype=np.int64)
    )
    run = des.simulate(des.Replica(step_s, n, int(at.chunk_tokens)), asked).kept(0.1)
    _, times = latencies(found, at, "rate", np.array([rate]))
    first = float(found.coefficients.first_s)
    assert float(times["e2e"]["mean"][0]) - first == pytest.approx(run.ttft_s.mean(), rel=0.15)
    assert float(times["e2e"]["p99"][0]) - first == pytest.approx(np.quantile(run.ttft_s, 0.99), rel=0.25)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"output_tokens": 20}, "answers in one pass"),
        ({"slo": {"tpot": {"p99": "1 ms"}}}, "no time between tokens"),
        ({"prefill": "chunked"}, "nothing is decoded"),
        ({"layout": {"pp": 2}}, "on tp ranks"),
    ],
)
def test_words_of_decoding_are_refused(block, said):
    with pytest.raises(SpecError) as caught:
        served("bert-base", **block)
    assert said in str(caught.value)
