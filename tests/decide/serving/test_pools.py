"""Two pools in a prediction: what is told of them, their ratio, and that all verbs see the same group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.decide.serving.choose import choose
from perfmodel.decide.serving.prediction import predict_serving
from perfmodel.explain.service import explain_service, roofline_service
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.specs.jobs import load_any_job

SLO = {"ttft": {"p99": "1 s"}, "tpot": {"p99": "20 ms"}}


def pooled(service, ratio=None, **block):
    asked = {"prefill": {"disaggregated": ratio or {}}, "slo": SLO}
    return service(asked | block).job


def predicted(job):
    return predict_serving(job, textbook_beliefs()).envelope()["result"]


def test_a_group_is_what_the_job_says(service):
    job = pooled(service, {"prefill": 2, "decode": 3, "layout": {"tp": 2}}, layout={"tp": 1, "replicas": 2})
    found = predicted(job)
    layout = found["layout"]
    assert (layout["prefill_replicas"], layout["decode_replicas"]) == (2, 3)
    assert (layout["prefill"]["tp"], layout["tp"], layout["accelerators"]) == (2, 1, 7)
    assert layout["how"] == "as the job says"
    assert found["accelerators"] == 14
    made = np.array(found["throughput_out_tokens_per_s"])
    assert found["per_accelerator"]["throughput_out_tokens_per_s"] == pytest.approx(made / 14)
    assert made == pytest.approx(np.array(found["load"]) * 200)  # tokens asked are tokens made
    steps = np.sum([found["parts_s"][name] for name in found["parts_s"]], axis=0)
    assert steps == pytest.approx(found["step_s"])
    for pool in ("prefill", "decode", "link"):
        busy = found["pools"][pool]["busy"]
        assert busy == sorted(busy)
        assert 0.0 < busy[-1] <= 1.0
    assert found["saturation"]["requests_per_s"] == pytest.approx(
        2 * min(found["pools"][pool]["most_requests_per_s"] for pool in ("prefill", "decode", "link"))
    )


def test_the_ratio_follows_the_lengths(service):
    def share(inputs, outputs):
        found = choose(
            service(
                {"prefill": "disaggregated", "slo": SLO, "input_tokens": inputs, "output_tokens": outputs}
            )
        )
        layout = found.layout
        return layout.prefill_replicas * layout.prefill.accelerators / layout.accelerators

    assert share(6000, 50) > share(1000, 200) > share(100, 1000)


def test_the_remedy_of_a_full_pool_is_more_of_it(service):
    job = pooled(service, {"prefill": 1, "decode": 8}, layout={"tp": 1})
    knee = predicted(job)["knee"]["slo"]
    assert "prefill" in knee["cause"]
    assert "prefills" in knee["remedy"]
    assert knee["load_after_remedy"] > 1.3 * knee["load"]


def test_no_remedy_of_a_group_makes_it_worse():
    """The fullest part need not be what ends an objective: here the decode is, and the first token waits for the prefill."""
    example = Path(__file__).resolve().parents[3] / "examples" / "serve-split.yaml"
    knee = predict_serving(load_any_job(example)).envelope()["result"]["knee"]["slo"]
    assert knee["load_after_remedy"] > knee["load"]


def test_other_verbs_speak_of_the_same_group(service):
    job = pooled(service, {"prefill": 1, "decode": 2}, layout={"tp": 1}, load={"rate": "4 /s"})
    found = predicted(job)
    told = explain_service(job, textbook_beliefs()).envelope()["result"]
    assert told["layout"]["accelerators"] == found["layout"]["accelerators"] == 3
    assert told["ttft_s"]["mean"] == pytest.approx(found["ttft_s"]["mean"][0])
    assert told["step_s"] == pytest.approx(found["step_s"][0])
    assert roofline_service(job, textbook_beliefs()).envelope()["result"]["phases"]


def test_a_closed_loop_and_an_offline_run_have_pools_too(service):
    loads = {"closed": {"concurrency": "1..64"}, "offline": {"offline": 1000}}
    for kind, load in loads.items():
        job = pooled(
            service,
            {"prefill": 1, "decode": 2},
            layout={"tp": 1},
            load=load,
            **({"slo": None} if kind == "offline" else {}),
        )
        found = predicted(job)
        assert all(one > 0.0 for one in found["throughput_out_tokens_per_s"])
    assert found["pools"]["link"]["bytes_per_request"] == 1000 * 65536 * 2


def test_a_fleet_of_groups_grows_with_the_demand(service):
    counts = [predicted(pooled(service, demand=f"{rate} /s"))["accelerators"] for rate in (5, 50, 500)]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_policies_measure_the_same_group(service):
    from perfmodel.decide.gate.serving import Asked

    job = pooled(
        service, {"prefill": 1, "decode": 2}, layout={"tp": 1}, load={"rate": "4 /s"}, demand="60 /s"
    )
    found = predict_serving(job).envelope()["result"]
    asked = Asked(job)
    assert asked.at("rate", 4.0).times["ttft"]["p99"][0] == pytest.approx(found["ttft_s"]["p99"][0])
    assert asked._fleet(60.0).value == found["replicas"]
    assert asked.knee(asked.whole).value == pytest.approx(found["knee"]["slo"]["load"])


def test_layouts_that_do_not_fit_are_no_pool():
    from perfmodel.decide.serving.pool_ratio import pool_front, pool_rates
    from perfmodel.serving.setup import service_of
    from perfmodel.specs.jobs import load_any_job

    asked = {"input_tokens": 1000, "output_tokens": 200, "slo": {"tpot": {"p99": "80 ms"}}}
    found = service_of(
        load_any_job({"workload": "deepseek-v3", "cluster": "hgx-h200", "serving": asked}), textbook_beliefs()
    )
    rates = pool_rates(found, found.job.serving.slo.limits)
    assert any(rate == 0.0 for rate in rates.decode_per_s)
    assert any(rate > 0.0 for rate in rates.decode_per_s)
    for users, made, group, in_flight in pool_front(found, rates):
        assert np.isfinite([users, made, in_flight]).all()
        assert group.tp * group.dp >= 8
