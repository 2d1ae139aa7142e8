"""The OpenAPI document, made from the request models so that it cannot drift from them."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from perfmodel.results.envelope import __version__
from perfmodel.web.requests import Pair, Upload, WhatIf
from perfmodel.web.service import ServiceIf

_ENVELOPE: dict[str, object] = {
    "type": "object",
    "description": "One envelope for every answer; result holds the arrays, aligned with result.k, of a service with result.load.",
    "required": ["schema", "version", "seed", "inputs", "result"],
    "properties": {
        "schema": {"type": "string", "pattern": "^perfmodel/[a-z_]+/1$"},
        "version": {"type": "string"},
        "seed": {"type": "integer"},
        "inputs": {"type": "object"},
        "result": {"type": "object"},
    },
}
_ERROR: dict[str, object] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "problems"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "problems": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["field", "message"],
                        "properties": {
                            "field": {"type": "string"},
                            "message": {"type": "string"},
                            "help": {"type": "string"},
                        },
                    },
                },
            },
        }
    },
}
_JOB: dict[str, object] = {
    "type": "object",
    "required": ["yaml", "command"],
    "properties": {"yaml": {"type": "string"}, "command": {"type": "string"}},
}
_CALIBRATED: dict[str, object] = {
    "type": "object",
    "required": ["timings", "prediction"],
    "properties": {
        "timings": {"type": "array", "items": {"$ref": "#/components/schemas/Timing"}},
        "prediction": {"$ref": "#/components/schemas/Envelope"},
    },
}
_REFUSALS = {
    "400": "The body is not JSON.",
    "403": "The request comes from another site.",
    "408": "The body came too slowly.",
    "413": "The body is too large.",
    "415": "The body must be application/json.",
    "421": "The Host name is not one of this server's.",
    "422": "The request cannot be answered; problems says why.",
    "429": "Too many requests.",
    "503": "Too many questions are waiting.",
}


def document() -> dict[str, object]:
    """The OpenAPI 3.1 document."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in (WhatIf, Pair, Upload, ServiceIf)
    ]
    _, found = models_json_schema(models, ref_template="#/components/schemas/{model}")
    schemas = {
        **found["$defs"],
        "Envelope": _ENVELOPE,
        "Error": _ERROR,
        "Job": _JOB,
        "Calibrated": _CALIBRATED,
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "perfmodel",
            "version": __version__,
            "description": "Predict how a training job scales. Times in seconds, bytes, joules, USD; null where infeasible.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/api/catalog": {
                "get": _get("Workloads, clusters and grids to choose from.", "catalog", {"type": "object"})
            },
            "/api/predict": {"post": _post("Predict a job.", "predict", "WhatIf", "Envelope")},
            "/api/service": {"post": _post("Predict a service.", "service", "ServiceIf", "Envelope")},
            "/api/compare": {"post": _post("Compare two jobs.", "compare", "Pair", "Envelope")},
            "/api/calibrate": {
                "post": _post(
                    "Calibrate with measured timings, then predict.", "calibrate", "Upload", "Calibrated"
                )
            },
            "/api/job": {
                "post": _post("The job file and the command that ask the same.", "job", "WhatIf", "Job")
            },
            "/api/report": {
                "post": _post("The prediction as a self-contained HTML report.", "report", "WhatIf", None)
            },
            "/openapi.json": {"get": _get("This document.", "openapi", {"type": "object"})},
        },
        "components": {"schemas": schemas},
    }


def _get(summary: str, name: str, schema: dict[str, object]) -> dict[str, object]:
    good = {"description": "Good.", "content": {"application/json": {"schema": schema}}}
    return {"summary": summary, "operationId": name, "responses": {"200": good, **_errors("421", "429")}}


def _post(summary: str, name: str, body: str, answer: str | None) -> dict[str, object]:
    content: dict[str, object] = (
        {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer}"}}}
        if answer
        else {"text/html": {"schema": {"type": "string"}}}
    )
    return {
        "summary": summary,
        "operationId": name,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        },
        "responses": {"200": {"description": "Good.", "content": content}, **_errors(*_REFUSALS)},
    }


def _errors(*codes: str) -> dict[str, object]:
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {code: {"description": _REFUSALS[code], "content": reference} for code in codes}
