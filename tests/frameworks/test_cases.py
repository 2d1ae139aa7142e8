"""Configurations as people have them: the share of their facts that reach the job, and none of them wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from perfmodel.frameworks.reader import Reading, read_texts
from perfmodel.specs.loader import read_file

FOLDER = Path(__file__).parent / "cases"
Case = tuple[str, dict[str, Any]]


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    return tuple(
        (path.stem, case) for path in sorted(FOLDER.glob("*.yaml")) for case in read_file(path).plain()
    )


def read(case: dict[str, Any]) -> Reading:
    files = case.get("files") or {f"{case['name']}.txt": case["text"]}
    return read_texts([(text, name) for name, text in files.items()], case.get("given", {}))


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case[0]}:{case[1]['name']}")
def test_no_fact_is_wrong(case: Case) -> None:
    framework, told = case
    found = dict(flat(read(told).assembled.plain()))
    expected = dict(flat(told["expected"]))
    wrong = {
        key: (found[key], value) for key, value in expected.items() if key in found and found[key] != value
    }
    assert not wrong, wrong
    # A fact that nobody expects is as wrong as one with another value; of a workload only the named keys are checked.
    more = {
        key: value
        for key, value in found.items()
        if key not in expected and not key.startswith("workload.") and key not in ("name", "stack.framework")
    }
    assert not more
    assert found["stack.framework"] == framework or framework in (
        "deepspeed",
        "accelerate",
        "megatron-bridge",
    )


def test_the_share_of_facts_that_are_mapped() -> None:
    there = total = 0
    for _, told in cases():
        found = dict(flat(read(told).assembled.plain()))
        expected = dict(flat(told["expected"]))
        total += len(expected)
        there += sum(key in found for key in expected)
    assert len(cases()) >= 40
    assert there / total >= 0.95


def test_nothing_that_matters_is_left_not_understood() -> None:
    unread = {
        f"{name}:{told['name']}": [entry.key for entry in read(told).draft.not_understood]
        for name, told in cases()
    }
    assert not {name: keys for name, keys in unread.items() if keys}


def test_five_or_more_of_each_framework() -> None:
    assert min(Counter(name for name, _ in cases()).values()) >= 5
