"""JSON Schema of every spec, for editors: descriptions, unit patterns, examples, and the forms that files may use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaValue as Schema

from perfmodel.errors import Problem, SpecError, did_you_mean
from perfmodel.specs.catalog import REFERENCES
from perfmodel.specs.claims import Claim
from perfmodel.specs.economy import Grid, Offer
from perfmodel.specs.fields import Origin
from perfmodel.specs.hardware import Accelerator, Cluster, Link, Node
from perfmodel.specs.job import JobFile
from perfmodel.specs.layout import Layout
from perfmodel.specs.policies import PolicyFile
from perfmodel.specs.serving_claims import ServiceClaim
from perfmodel.specs.workload import Workload

MODELS: dict[str, type[BaseModel]] = {
    "accelerator": Accelerator,
    "link": Link,
    "node": Node,
    "cluster": Cluster,
    "workload": Workload,
    "layout": Layout,
    "price": Offer,
    "grid": Grid,
    "grids": Grid,
    "job": JobFile,
    "claim": Claim,
    "service-claim": ServiceClaim,
    "policies": PolicyFile,
}
_CATALOGUE = {"Accelerator", "Link", "Node", "Cluster", "Workload", "Offer", "Grid"}
_REFERENCE_KEYS: dict[str, set[str]] = {
    "Node": set(REFERENCES["nodes"]),
    "Cluster": set(REFERENCES["clusters"]),
    "JobFile": {"workload", "cluster", "grid"},
    "Claim": {"workload", "cluster", "accelerator"},
    "ServiceClaim": {"workload", "cluster", "accelerator"},
}
_READ_FROM = {
    "file": {"type": "string", "description": "A YAML file, relative to this one."},
    "hf": {"type": "string", "description": "A Hugging Face config.json."},
    "torch": {"type": "string", "description": "module:function that returns (module, inputs)."},
}


_A_TRACE = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
_UNSOURCED = frozenset({"name", "title", "source", "date", "confidence", "notes", "expression", "file"})


def names() -> tuple[str, ...]:
    """Names that `schema` knows."""
    return tuple(MODELS)


def schema(name: str) -> Schema:
    """The JSON Schema (draft 2020-12) of one kind of file."""
    if name not in MODELS:
        known = ", ".join(MODELS)
        raise SpecError(
            Problem(
                code="S008", message=f'no schema "{name}"{did_you_mean(name, MODELS)}', help=f"one of {known}"
            )
        )
    model = MODELS[name]
    raw = model.model_json_schema(mode="validation")
    definitions = {key: _relaxed(key, item) for key, item in raw.pop("$defs", {}).items()}
    definitions["Sourced"] = _sourced()
    _short_forms(definitions)
    body = _relaxed(model.__name__, raw)
    if name == "grids":
        definitions["Grid"] = body
        body = _collection(body)
    _special(name, body)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"perfmodel {name}"}
    return {
        **head,
        **{key: item for key, item in body.items() if key != "title"},
        "$defs": dict(sorted(definitions.items())),
    }


def to_text(name: str) -> str:
    """The schema as deterministic JSON text."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def write_all(folder: Path) -> list[Path]:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in MODELS:
        path = folder / f"{name}.json"
        path.write_text(to_text(name), encoding="utf-8", newline="\n")
        written.append(path)
    return written


def _sourced() -> Schema:
    origin = Origin.model_json_schema()
    properties = {"value": {"description": "The value itself."}, **origin["properties"]}
    return {
        "type": "object",
        "description": "A value with its origin.",
        "properties": properties,
        "required": ["value"],
        "additionalProperties": False,
    }


def _relaxed(name: str, item: Schema) -> Schema:
    """What files may write beyond the model: origins, names of other entries, `extends`, a name from the file."""
    if "properties" not in item:
        return item
    properties = {}
    references = _REFERENCE_KEYS.get(name, set())
    for key, field in item["properties"].items():
        about = {"description": field["description"]} if "description" in field else {}
        plain = {
            part: value for part, value in field.items() if part not in ("description", "title", "default")
        }
        forms: list[Schema] = list(plain.pop("anyOf", [])) or [plain]
        if key in references:
            forms.insert(0, {"type": "string", "description": "A name of the catalogue, or a file."})
        elif key not in _UNSOURCED and not any("$ref" in form for form in forms):
            forms = [_values_sourced(form) for form in forms]
            forms.append({"$ref": "#/$defs/Sourced"})
        default = {"default": field["default"]} if field.get("default") is not None else {}
        properties[key] = (
            {**about, "anyOf": forms, **default} if len(forms) > 1 else {**about, **forms[0], **default}
        )
    if name in _CATALOGUE:
        properties["extends"] = {"type": "string", "description": "Take over the values of this entry."}
    if name == "Workload":
        properties.update(_READ_FROM)
    if name == "Cluster":
        properties["file"] = _READ_FROM["file"]
    made = {**item, "properties": properties}
    # A missing name is the file's; a variant takes what it does not say from what it extends.
    made.pop("required", None)
    if name not in _CATALOGUE and item.get("required"):
        made["required"] = item["required"]
    return made


def _values_sourced(form: Schema) -> Schema:
    """In a mapping of values (`peak`), each may carry its origin."""
    values = form.get("additionalProperties")
    if not isinstance(values, dict):
        return form
    return {**form, "additionalProperties": {"anyOf": [values, {"$ref": "#/$defs/Sourced"}]}}


def _collection(grid: Schema) -> Schema:
    shared = {
        key: item
        for key, item in grid["properties"].items()
        if key in ("kind", "source", "date", "confidence", "notes")
    }
    entries = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Grid"},
        "description": "Grids by id.",
    }
    return {
        "type": "object",
        "description": "Many grids in one file; keys beside them are shared.",
        "properties": {**shared, "grids": entries},
        "required": ["grids"],
        "additionalProperties": False,
    }


def _special(name: str, body: Schema) -> None:
    """Short forms that a model does not show."""
    edits: dict[str, dict[str, Callable[[Schema], None]]] = {
        "job": {"layout": _or({"const": "auto"}), "price": _or({"type": "string"}), "k": _counts},
        "policies": {"policies": _texts, "jobs": _or({"type": "array", "items": {"type": "string"}})},
    }
    for key, edit in edits.get(name, {}).items():
        edit(body["properties"][key])


def _short_forms(definitions: Schema) -> None:
    """What a service may write in short: a number of tokens, a trace, `auto`, `offline`."""
    own = definitions.get("Serving", {}).get("properties", {})
    for key in ("input_tokens", "output_tokens"):
        if key in own:
            _or({"type": "number", "minimum": 1})(own[key])
            _or(_A_TRACE)(own[key])
    for key, word in (("layout", "auto"), ("load", "offline"), ("load", "auto")):
        if key in own:
            _or({"const": word})(own[key])
    load = definitions.get("OfferedLoad", {}).get("properties", {})
    if load:
        _or(_A_TRACE)(load["arrivals"])
        _or(
            {
                "type": "object",
                "properties": {"requests": {"type": "integer", "minimum": 1}},
                "required": ["requests"],
            }
        )(load["offline"])


def _or(form: Schema) -> Callable[[Schema], None]:
    def edit(field: Schema) -> None:
        if "anyOf" not in field:
            field["anyOf"] = [
                {key: field.pop(key) for key in list(field) if key not in ("description", "default")}
            ]
        field["anyOf"].insert(0, form)

    return edit


def _counts(field: Schema) -> None:
    counts = {"type": "array", "items": {"type": "integer", "minimum": 1}}
    field["anyOf"] = [
        {"type": "integer", "minimum": 1},
        {"type": "string", "examples": ["1..1024", "64..128:8"]},
        counts,
    ]


def _texts(field: Schema) -> None:
    forms = field.get("anyOf", [field])
    for form in forms:
        if form.get("type") == "array":
            form["items"] = {"anyOf": [{"type": "string"}, form["items"]]}
