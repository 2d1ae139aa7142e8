"""The audit of a claimed rate of tokens."""

from __future__ import annotations

import pytest

from perfmodel.decide.audit.service import QUESTIONS, audit_service
from perfmodel.errors import SpecError
from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.specs.serving_claims import load_service_claim

WHOLE = {"tokens": "output", "per": "system", "accelerators": 8, "input_tokens": 1000, "output_tokens": 500,
         "concurrency": 64, "ttft": {"p99": "2 s"}, "speculative": False, "engine": "vllm"}  # fmt: skip


def audited(rate, block=None, drop=(), **keys):
    said = {key: value for key, value in (WHOLE | (block or {})).items() if key not in drop}
    claim = {"workload": "llama3-70b", "cluster": "dgx-h100", "precision": "fp8", "price": "2 USD/h",
             "serving": said | {"tokens_per_s": rate}} | keys  # fmt: skip
    claim = {key: value for key, value in claim.items() if value is not None}
    return audit_service(load_service_claim(claim), beliefs=textbook_beliefs()).result


def codes(result):
    return {finding["code"]: finding["severity"] for finding in result["findings"]}


def test_a_modest_and_complete_claim_is_consistent():
    found = audited(1500)
    assert found["verdict"] == "consistent"
    assert found["findings"] == []
    assert "187.5 an accelerator" in found["restated"]
    assert "2.96 USD per million" in found["restated"]


def test_more_than_the_arithmetic_is_impossible():
    assert codes(audited(200_000, {"concurrency": 100_000}))["tokens-above-arithmetic"] == "impossible"


def test_the_bound_of_bandwidth_is_the_weights_once_a_step():
    # 69.5 GB of weights that a token uses (embeddings are looked up), 26.8 TB/s: some 385 steps a second.
    assert "tokens-above-bandwidth" not in codes(audited(370, {"concurrency": 1}))
    assert codes(audited(400, {"concurrency": 1}))["tokens-above-bandwidth"] == "impossible"
    unsaid = codes(audited(400, {"concurrency": 1}, drop=["speculative"]))
    assert unsaid["tokens-above-bandwidth"] == "suspicious"
    assert unsaid["speculative-missing"] == "note"
    assert "tokens-above-bandwidth" not in codes(
        audited(400, {"concurrency": 1, "speculative": {"tokens": 3, "acceptance": 0.9}})
    )


def test_keys_and_values_that_do_not_fit_are_impossible():
    assert codes(audited(900, {"concurrency": 20_000}))["memory-does-not-fit"] == "impossible"


def test_weights_that_do_not_fit_are_impossible():
    assert (
        codes(audited(10, {"accelerators": 1, "concurrency": 1}, workload="llama3-405b"))[
            "memory-does-not-fit"
        ]
        == "impossible"
    )


def test_what_the_model_does_not_expect_is_suspicious():
    found = audited(16_000)
    assert codes(found) == {"tokens-above-band": "suspicious"}


@pytest.mark.parametrize(
    ("per", "rate", "block"),
    [("system", 1600, {}), ("accelerator", 200, {}), ("user", 25, {}), ("system", 4800, {"tokens": "total"})],
)
def test_one_rate_in_every_unit_is_one_claim(per, rate, block):
    assert "1,600 output tokens/s on 8" in audited(rate, {"per": per} | block)["restated"]


def test_numbers_that_break_littles_law_are_suspicious():
    kept = {"ttft": {"mean": "1 s"}, "tpot": {"mean": "38 ms"}}
    assert audited(1600, kept)["verdict"] == "consistent"
    assert codes(audited(1600, kept | {"tpot": {"mean": "10 ms"}})) == {"numbers-disagree": "suspicious"}


@pytest.mark.parametrize(
    ("drop", "code", "severity"),
    [
        (["input_tokens"], "lengths-missing", "suspicious"),
        (["ttft"], "latency-missing", "note"),
        (["concurrency"], "load-missing", "note"),
        (["tokens"], "tokens-missing", "note"),
        (["per"], "per-missing", "note"),
        (["speculative"], "speculative-missing", "note"),
        (["engine"], "engine-missing", "note"),
    ],
)
def test_what_is_not_said_is_asked(drop, code, severity):
    found = audited(1500, drop=drop)
    assert codes(found) == {code: severity}
    assert found["findings"][0]["question"] == QUESTIONS[code]


def test_a_slide_with_a_number_alone_is_asked_for_everything():
    found = audited(1500, drop=set(WHOLE) - {"tokens"}, precision=None, price=None)
    assert {code for code in QUESTIONS if code.endswith("-missing")} - {"tokens-missing"} <= set(codes(found))


def test_what_serves_no_tokens_is_refused():
    with pytest.raises(SpecError, match="only decoders"):
        audited(100, workload="resnet50")


def test_a_claim_without_hardware_is_refused():
    with pytest.raises(SpecError, match="names a cluster or an accelerator"):
        load_service_claim({"workload": "llama3-8b", "serving": {"tokens_per_s": 5}})
