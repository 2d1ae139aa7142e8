"""The answer for a service: its keys, its sums, its bands and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide.serving.prediction import predict_serving
from perfmodel.errors import SpecError
from perfmodel.serving.beliefs import textbook_beliefs

SLO = {"ttft": {"p99": "1 s"}, "tpot": {"p99": "30 ms"}}
KINDS = [{"load": {"rate": "1..32 /s"}}, {"load": {"concurrency": "1..64"}}, {"load": {"offline": 500}}, {}]
BLOCKS = [block | {"slo": SLO} if block.get("load", {}).get("offline") is None else block for block in KINDS]


def result(service, block=None, **keys):
    return predict_serving(service(block, **keys).job, textbook_beliefs()).envelope()["result"]


@pytest.mark.parametrize("block", BLOCKS)
def test_parts_sum_to_the_step_and_bands_hold_the_middle(service, block):
    found = result(service, block)
    steps = np.array([np.nan if s is None else s for s in found["step_s"]])
    parts = np.array([[np.nan if v is None else v for v in values] for values in found["parts_s"].values()])
    known = np.isfinite(steps)
    assert known.any()
    np.testing.assert_allclose(parts[:, known].sum(axis=0), steps[known], rtol=1e-9)
    assert (parts[:, known] >= 0.0).all()
    for quantity in ("ttft_s", "tpot_s", "e2e_s"):
        for name in ("mean", "p50", "p90", "p95", "p99"):
            for low, value, high in zip(
                *(found[quantity][name + end] for end in ("_low", "", "_high")), strict=True
            ):
                assert value is None or (low < value and (high is None or value < high))
    for share in found["kv_share"]:
        assert share is None or 0.0 <= share <= 1.0


def test_what_is_asked_in_an_open_loop_is_answered_until_nothing_is_steady(service):
    found = result(service, {"load": {"rate": "1..1024 /s"}})
    assert found["stable"] == sorted(found["stable"], reverse=True)
    assert not all(found["stable"])
    saturated = found["saturation"]["requests_per_s"]
    for load, stable, tokens in zip(
        found["load"], found["stable"], found["throughput_out_tokens_per_s"], strict=True
    ):
        assert stable == (load < saturated * (1 + 1e-6)) or abs(load / saturated - 1) < 0.02
        assert tokens == (pytest.approx(200 * load) if stable else None)


def test_a_closed_loop_keeps_littles_law(service):
    found = result(service, {"load": {"concurrency": "1..256"}})
    np.testing.assert_allclose(
        np.array(found["requests_per_s"]) * np.array(found["e2e_s"]["mean"]),
        np.array(found["load"]),
        rtol=1e-6,
    )


def test_replicas_share_the_load_and_its_price(service):
    one = result(service, {"load": {"rate": "4 /s"}, "layout": {"tp": 1}})
    four = result(service, {"load": {"rate": "16 /s"}, "layout": {"tp": 1, "replicas": 4}})
    assert four["ttft_s"]["p99"] == pytest.approx(one["ttft_s"]["p99"])
    assert four["throughput_out_tokens_per_s"][0] == pytest.approx(4 * one["throughput_out_tokens_per_s"][0])
    assert four["usd_per_million_tokens"] == pytest.approx(one["usd_per_million_tokens"])
    assert four["j_per_million_tokens"] == pytest.approx(one["j_per_million_tokens"])
    assert four["saturation"]["requests_per_s"] == pytest.approx(4 * one["saturation"]["requests_per_s"])


def test_a_load_that_nobody_names_ends_before_saturation(service):
    found = result(service)
    assert all(found["stable"])
    assert 0.85 < found["load"][-1] / found["saturation"]["requests_per_s"] < 0.95


def test_prices_are_those_of_the_tokens_that_are_made(service):
    found = result(service, {"load": {"rate": "2 /s"}, "layout": {"tp": 2}}, price="3.60 USD/h")
    assert found["usd_per_h"] == pytest.approx(7.2)
    assert found["usd_per_million_tokens"][0] == pytest.approx(7.2 / 3600 / (2 * 200) * 1e6)
    assert found["usd_per_million_total_tokens"][0] == pytest.approx(7.2 / 3600 / (2 * 1200) * 1e6)


def test_a_model_that_fits_nowhere_is_refused_with_its_size(service):
    with pytest.raises(SpecError, match="leaves memory for a request"):
        result(service, workload="gpt-1008b", cluster={"node": "p3.16xlarge"})


def test_the_layout_of_the_job_is_kept_though_nothing_fits(service):
    found = result(
        service, {"layout": {"tp": 1}, "load": {"rate": "1 /s"}, "slo": SLO}, workload="llama3-405b"
    )
    assert found["stable"] == [False]
    assert found["reason"] == ["the model and one request do not fit the memory"]
    assert found["knee"]["slo"]["load"] is None


def test_what_narrows_the_band_narrows_it(service):
    for item in result(service, {"load": {"rate": "1..8 /s"}})["narrow"]:
        assert 0.0 < item["half_width_after"] < item["half_width"]


def test_an_expert_layout_is_found_and_runs(service):
    found = result(service, {"precision": "fp8", "load": {"rate": "1,2 /s"}, "slo": {"tpot": {"mean": "60 ms"}}},
                   workload="deepseek-v3", cluster="hgx-h200")  # fmt: skip
    assert found["layout"]["accelerators"] >= 8
    assert found["parts_s"]["experts"][0] > 0.0


def test_drafted_tokens_help_a_user_and_cost_a_step(service):
    plain = result(service, {"load": {"concurrency": 1}, "layout": {"tp": 1}})
    drafted = result(
        service,
        {"load": {"concurrency": 1}, "layout": {"tp": 1}, "speculative": {"tokens": 3, "acceptance": 0.8}},
    )
    assert drafted["step_s"][0] > plain["step_s"][0]
    assert drafted["tpot_s"]["mean"][0] < plain["tpot_s"]["mean"][0]
