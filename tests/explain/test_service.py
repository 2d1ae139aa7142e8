"""A service explained, under the roofline, and beside another."""

from __future__ import annotations

import math

import pytest

from perfmodel.errors import UsageError
from perfmodel.explain.service import FORMULAS, explain_service, roofline_service
from perfmodel.explain.service_comparison import METRICS, compare_services
from perfmodel.physics.serving_step import STEP_PARTS
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.specs.jobs import load_any_job

KNOWN = textbook_beliefs()


def job(block=None, **keys):
    said = {
        "input_tokens": 800,
        "output_tokens": 200,
        "load": {"rate": "1..8 /s"},
        "slo": {"tpot": {"p99": "30 ms"}},
        "layout": {"tp": 2},
    }
    whole = {
        "workload": "llama3-8b",
        "cluster": "dgx-h100",
        "price": "2 USD/h",
        "serving": said | (block or {}),
    }
    return load_any_job(whole | keys)


def test_every_part_has_its_formula():
    assert set(FORMULAS) == {*STEP_PARTS, "prompts"}


@pytest.mark.parametrize("load", [{"rate": "1..8 /s"}, {"concurrency": "1..16"}, {"offline": 100}])
def test_terms_are_the_step_and_come_largest_first(load):
    slo = {} if "offline" in load else {"slo": {"tpot": {"p99": "30 ms"}}}
    found = explain_service(load_any_job({"workload": "llama3-8b", "cluster": "dgx-h100", "serving": {
        "input_tokens": 800, "output_tokens": 200, "load": load} | slo}), KNOWN).result  # fmt: skip
    times = [row["time_s"] for row in found["terms"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(found["step_s"], rel=0.01)
    assert sum(row["share"] for row in found["terms"]) == pytest.approx(1.0, rel=0.01)


def test_more_of_an_input_moves_times_the_way_it_must():
    rows = {row["input"]: row for row in explain_service(job(), KNOWN).result["sensitivity"]}
    for name in ("memory bandwidth", "peak rate", "link bandwidth"):
        assert rows[name]["tpot_high"] < 0.0 < rows[name]["tpot_low"]
    assert rows["link latency"]["tpot_low"] < 0.0 < rows["link latency"]["tpot_high"]


def test_decode_is_bound_by_memory_and_prefill_by_arithmetic():
    found = roofline_service(job(), KNOWN).result
    one, batch, prompt, full = found["phases"]
    assert (one["bound"], prompt["bound"], full["bound"]) == ("memory", "compute", "compute")
    assert one["intensity_flop_per_byte"] < batch["intensity_flop_per_byte"] < found["ridge_flop_per_byte"]
    for row in found["phases"]:
        assert 0.0 < row["share_of_roof"] < 1.0
        assert row["attainable_flop_per_s"] <= found["peak_flop_per_s"]
    # One sequence reads each weight (2 bytes) once for 2 FLOP.
    assert one["intensity_flop_per_byte"] == pytest.approx(1.0, rel=0.05)


def test_changes_multiply_to_the_ratio():
    found = compare_services(job(), job({"prefix_hit": 0.5}, cluster="hgx-h200"), KNOWN).result
    assert {row["input"] for row in found["changes"]} == {"cluster", "serving.prefix_hit", "together"}
    for metric in METRICS:
        assert math.prod(row[metric] for row in found["changes"]) == pytest.approx(found["ratio"][metric])


def test_one_change_is_the_whole_difference():
    found = compare_services(job(), job({"precision": "fp8"}), KNOWN).result
    (row,) = found["changes"]
    assert row["requests_per_s_per_accelerator"] == pytest.approx(
        found["ratio"]["requests_per_s_per_accelerator"]
    )
    assert row["requests_per_s_per_accelerator"] > 1.0
    assert found["a"]["layout"]["tp"] == found["b"]["layout"]["tp"] == 2


def test_what_does_not_differ_is_no_comparison():
    with pytest.raises(UsageError, match="do not differ"):
        compare_services(job(), job(), KNOWN)


def test_a_service_that_keeps_its_slo_at_no_load_has_no_throughput():
    found = compare_services(job(), job({"slo": {"tpot": {"p99": "0.01 ms"}}}), KNOWN).envelope()["result"]
    assert "keeps the slo at no load" in found["answer"]
    assert found["ratio"]["requests_per_s_per_accelerator"] is None
