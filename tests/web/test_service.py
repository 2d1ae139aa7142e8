"""The serving page's question and answer."""

from __future__ import annotations

import pytest

from perfmodel.decide.serving.prediction import predict_serving
from perfmodel.specs.jobs import load_any_job

ASKED = {
    "workload": "llama3-8b",
    "cluster": "dgx-h100",
    "precision": "bf16",
    "input_tokens": 500,
    "output_tokens": 100,
    "tpot_p99_s": 0.05,
}


@pytest.fixture
def client(make_client):
    return make_client()


def test_the_answer_is_that_of_the_command_line(client):
    found = client.post("/api/service", ASKED).json()
    block = {
        "precision": "bf16",
        "input_tokens": 500,
        "output_tokens": 100,
        "slo": {"tpot": {"p99": "50 ms"}},
    }
    own = predict_serving(
        load_any_job({"workload": "llama3-8b", "cluster": "dgx-h100", "serving": block})
    ).envelope()
    assert found["result"] == own["result"]
    assert "Keeps the slo up to" in found["summary"]["answer"]


def test_a_demand_is_answered_with_a_fleet(client):
    result = client.post("/api/service", ASKED | {"demand_per_s": 100, "price": 2.0}).json()["result"]
    assert result["fleet"]["demand_per_s"] == 100
    assert result["fleet"]["usd_per_h"] == pytest.approx(2.0 * result["accelerators"])


def test_prefill_may_have_replicas_of_its_own(client):
    result = client.post("/api/service", ASKED | {"prefill": "disaggregated"}).json()["result"]
    assert result["layout"]["prefill_replicas"] >= 1
    assert result["pools"]["link"]["bytes_per_request"] == 500 * 65536 * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workload": "dlrm"}, "cannot be served"),
        ({"workload": "resnet50"}, "answers in one pass"),
        ({"workload": "../etc/passwd"}, "cannot be understood"),
        ({"workload": "llama3-9b"}, 'did you mean "llama3'),
        ({"precision": "fp4"}, "has no fp4 arithmetic"),
        ({"demand_per_s": 5, "load": "concurrency"}, "arrives at a rate"),
        ({"input_tokens": 0}, "cannot be understood"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(client, change, words):
    response = client.post("/api/service", ASKED | change)
    assert response.status_code == 422
    assert words in response.text.replace(chr(92), "")
