"""Random requests, from nearly right to nonsense: always an answer in a documented form, never a fault."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.web.openapi import document

SCHEMAS = document()["components"]["schemas"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "workload": st.sampled_from(
        ["resnet50", "llama3-8b", "gpt3-175b", "dlrm-dcnv2", "bert-large", "nope", "x.yaml"]
    ),
    "cluster": st.sampled_from(["dgx-a100", "dgx-1v", "gb200-nvl72", "p5.48xlarge", "tpu-v4-pod", "nope"]),
    "k": st.sampled_from(["1..64", "8", "7,13,100", "64..128:16", "1", "3..5:1", "", "x"]),
    "regime": st.sampled_from(["strong", "weak", "other"]),
    "global_batch": st.integers(0, 10_000),
    "batch_per_accelerator": st.integers(0, 100),
    "seq_len": st.integers(0, 100_000),
    "precision": st.sampled_from(["fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]),
    "layout": st.just("auto")
    | st.fixed_dictionaries(
        {},
        optional={
            "tp": st.integers(0, 64),
            "pp": st.integers(0, 200),
            "cp": st.integers(0, 8),
            "ep": st.integers(0, 8),
            "micro_batch": st.integers(0, 8),
            "sharding": st.sampled_from(["ddp", "zero1", "zero3", "fsdp", "hsdp", "what"]),
            "recompute": st.sampled_from(["none", "selective", "full"]),
        },
    ),
    "bandwidth": st.floats(0, 1e14),
    "latency": st.floats(0, 0.2),
    "price": st.floats(0, 1e5),
    "fixed": st.floats(0, 1e7),
    "jitter": st.floats(0, 2),
    "steps": st.integers(0, 10**10),
    "timings": st.lists(
        st.fixed_dictionaries({"k": st.integers(0, 2000), "time_s": st.floats(0, 1e5)}), max_size=3
    ),
    "seed": st.integers(-1, 2**32),
}
NEARLY = st.fixed_dictionaries(
    {"workload": FIELDS["workload"], "cluster": FIELDS["cluster"]},
    optional={name: strategy for name, strategy in FIELDS.items() if name not in ("workload", "cluster")},
)
ODD = st.builds(
    lambda base, key, value: {**base, key: value}, NEARLY, st.sampled_from([*FIELDS, "extra"]), JSON
)
CALM = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def check(response, good):
    assert response.status_code in (200, 400, 422), response.text[:500]
    schema = good if response.status_code == 200 else "Error"
    jsonschema.validate(
        response.json(), {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": SCHEMAS}}
    )


@given(body=NEARLY | ODD)
@CALM
def test_predict_never_faults(body, client):
    response = client.post("/api/predict", json.dumps(body).encode())
    check(response, "Envelope")
    if response.status_code == 200:
        result = response.json()["result"]
        for key in ("time_s", "speedup", "efficiency", "cost_usd", "layout", "reason"):
            assert len(result[key]) == len(result["k"])
        for time, reason in zip(result["time_s"], result["reason"], strict=True):
            assert (time is None) == bool(reason)


@pytest.mark.parametrize(
    "path", ["/api/predict", "/api/compare", "/api/calibrate", "/api/job", "/api/report"]
)
@given(body=JSON)
@CALM
def test_nonsense_is_refused(path, body, client):
    response = client.post(path, json.dumps(body).encode())
    assert response.status_code in (400, 422)
    check(response, "Error")


@given(
    text=st.text(max_size=200)
    | st.builds(lambda rows: "k,time_s\n" + "\n".join(rows), st.lists(st.text(max_size=20), max_size=5))
)
@CALM
def test_any_upload_gets_an_answer(text, client):
    job = {"workload": "resnet50", "cluster": "dgx-a100", "k": "1..8"}
    check(client.post("/api/calibrate", {"job": job, "timings": text}), "Calibrated")
