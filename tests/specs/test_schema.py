"""JSON Schemas: valid, up to date, and in agreement with the loader."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from perfmodel.errors import SpecError
from perfmodel.specs.folders import shipped_folder
from perfmodel.specs.loader import read_file
from perfmodel.specs.schema import names, schema, to_text

FOLDERS = {
    "accelerators": "accelerator",
    "links": "link",
    "nodes": "node",
    "clusters": "cluster",
    "prices": "price",
    "grids": "grids",
}


@pytest.mark.parametrize("name", names())
def test_shipped_schema_is_up_to_date(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))
    assert (shipped_folder() / "schemas" / f"{name}.json").read_text(encoding="utf-8") == to_text(name)


def sample(kind: str) -> list[Path]:
    """Every sixth file: the lint reads them all, this only checks that the schemas agree."""
    return sorted((shipped_folder() / kind).rglob("*.yaml"))[::6]


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_shipped_specs_satisfy_and_name_their_schema(kind: str) -> None:
    validator = jsonschema.Draft202012Validator(schema(FOLDERS[kind]))
    for path in sample(kind):
        validator.validate(read_file(path).plain())
        first = path.read_text(encoding="utf-8").splitlines()[0]
        prefix, _, target = first.partition("$schema=")
        assert prefix == "# yaml-language-server: "
        assert (path.parent / target).resolve() == (
            shipped_folder() / "schemas" / f"{FOLDERS[kind]}.json"
        ).resolve()


@pytest.mark.parametrize(
    ("name", "data", "good"),
    [
        ("job", {"workload": "a", "cluster": "b", "layout": "auto", "k": "1..8", "price": "2 USD/h"}, True),
        ("job", {"workload": {"hf": "config.json"}, "cluster": {"node": "x"}, "k": [1, 2]}, True),
        ("job", {"workload": "a"}, False),
        ("job", {"workload": "a", "cluster": "b", "global_bach": 3}, False),
        ("link", {"latency": "2 us", "bandwidth": "400 Gbit/s"}, True),
        ("link", {"latency": "2 us", "bandwidth": "400 Gb/s"}, False),
        ("link", {"latency": "2 us", "bandwidth": 50}, False),
        ("link", {"extends": "ib-ndr", "latency": {"value": "2 us", "confidence": "measured"}}, True),
        ("accelerator", {"peak": {"bf16": {"value": "9 TFLOP/s", "source": "x"}}}, True),
        ("accelerator", {"peak": {"bf61": "9 TFLOP/s"}}, False),
        ("policies", {"jobs": {"a": "job.yaml"}, "policies": ["knee >= 8", {"expression": "x"}]}, True),
        ("policies", {"policies": []}, False),
        ("claim", {"points": [{"k": 8, "throughput": 3}], "price": "2 USD/h"}, True),
        ("claim", {"points": [{"throughput": 3}]}, False),
    ],
)
def test_what_editors_accept(name: str, data: object, good: bool) -> None:
    assert jsonschema.Draft202012Validator(schema(name)).is_valid(data) is good


def test_descriptions_patterns_and_examples() -> None:
    memory = schema("accelerator")["properties"]["memory"]
    assert memory["description"]
    assert memory["anyOf"][0]["examples"] == ["80 GB"]
    assert memory["anyOf"][0]["pattern"].startswith("^")


def test_an_unknown_name_is_guessed() -> None:
    with pytest.raises(SpecError, match='did you mean "cluster"'):
        schema("clustr")
