"""Random requests, valid and invalid by the OpenAPI document: always an answer in a documented form, never a fault."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from perfmodel.web.openapi import document

OPERATIONS = {
    "predict": 40,
    "compare": 12,
    "calibrate": 25,
    "job": 25,
    "report": 12,
    "service": 10,
}  # and how often each is tried
# A job may be valid in form and still say nothing that can be run, so a refusal is a good answer to it; other methods
# are tried in test_api.py.
LEFT_OUT = [checks.positive_data_acceptance, checks.unsupported_method]


def calm(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


def named() -> dict[str, Any]:
    """The document with names that the catalogue knows in place of their pattern: most jobs then reach the model."""
    found = copy.deepcopy(document())
    schemas = found["components"]["schemas"]
    job = schemas["WhatIf"]["properties"]
    job["workload"] = {"enum": ["resnet50", "llama3-8b", "gpt3-175b", "dlrm-dcnv2", "mixtral-8x7b"]}
    job["cluster"] = {"enum": ["dgx-a100", "dgx-1v", "gb200-nvl72", "p5.48xlarge", "tpu-v4-pod"]}
    job["k"] = {"enum": ["1..64", "8", "7,13,100", "64..128:16", "1"]}
    job["grid"] = {"enum": ["US-VA", None]}
    job["precision"] = {"enum": ["bf16", "fp16", None]}
    service = schemas["ServiceIf"]["properties"]
    service["workload"] = {"enum": ["resnet50", "llama3-8b", "mixtral-8x7b", "nemotron-h-56b"]}
    service["cluster"] = {"enum": ["dgx-a100", "dgx-h100", "gb200-nvl72", "tpu-v4-pod"]}
    schemas["Upload"]["properties"]["timings"] = {
        "enum": [
            "k,time_s\n1,0.5\n8,0.1\n",
            "k,time_s\n4,1e-6\n",
            "k,time_s,global_batch\n8,3,64\n8,3.1,64\n",
        ]
    }
    return found


DOCUMENTS = {"as it is": document(), "with known names": named()}


def operation(which: str, name: str) -> Any:
    schema = schemathesis.openapi.from_dict(DOCUMENTS[which])
    return schema[f"/api/{name}"]["POST"]


def aligned(result: dict[str, Any]) -> None:
    for key in ("time_s", "speedup", "efficiency", "cost_usd", "layout", "reason"):
        assert len(result[key]) == len(result["k"])
    for time, reason in zip(result["time_s"], result["reason"], strict=True):
        assert (time is None) == bool(reason)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value
)
@pytest.mark.parametrize("which", DOCUMENTS)
def test_every_answer_is_as_documented(which, mode, name, client):
    statuses: set[int] = set()

    @given(case=operation(which, name).as_strategy(generation_mode=mode))
    @calm(OPERATIONS[name])
    def run(case):
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8765")
        body = {
            "content" if key == "data" else key: sent[key]
            for key in ("headers", "json", "data")
            if key in sent
        }
        response = client.request("POST", f"/api/{name}", **body)
        statuses.add(response.status_code)
        case.validate_response(response, excluded_checks=LEFT_OUT)
        if name == "predict" and response.status_code == 200:
            aligned(response.json()["result"])

    run()
    if mode is GenerationMode.POSITIVE and which == "with known names":
        assert 200 in statuses  # else nothing was tried but the refusals
