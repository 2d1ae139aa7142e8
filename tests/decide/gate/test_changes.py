"""Causes of a change, one input at a time, on a model small enough to check by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.gate.changes import MODEL, TOGETHER, apply, differences, effects, grouped
from perfmodel.decide.gate.grammar import parse
from perfmodel.errors import SpecError

BEFORE = {"work": 64.0, "machine": {"name": "old", "speed": 2.0, "memory": 10.0}, "k": [1, 2, 4]}


def toy(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """T(K) = work / (speed * K): enough of a prediction for the metrics used here."""
    if inputs["work"] > 1000:
        raise SpecError("too much work")
    time_s = [inputs["work"] / inputs["machine"]["speed"] / k for k in inputs["k"]]
    return {
        "k": inputs["k"],
        "time_s": time_s,
        "time_s_low": time_s,
        "time_s_high": time_s,
        "memory_bytes": [5.0] * len(time_s),
        "knee": {"threshold": {"k": 4, "k_low": 4, "k_high": 4}},
        "p_star": {"k": 1},
        "fastest": {"k": 4},
    }


def memory(inputs: Mapping[str, Any]) -> float:
    return float(inputs["machine"]["memory"])


def told(
    after: Mapping[str, Any], *policies: str, locked: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    chosen = [parse(text) for text in policies]
    found = effects(chosen, locked or toy(BEFORE), BEFORE, after, toy(after), toy, memory)
    return [effect.mapping("job") for effect in found]


def test_no_change_is_told_as_none() -> None:
    assert told(BEFORE, "time(k=4) <= 9 s", "knee >= 4") == []


def test_each_cause_alone_and_both_together() -> None:
    after = {**BEFORE, "work": 128.0, "machine": {"name": "old", "speed": 4.0, "memory": 20.0}}
    rows = told(after, "change(time, k=4) <= 5 %", "memory <= 90 %")
    by_cause = {(row["metric"], row["cause"]): (row["before"], row["after"]) for row in rows}
    assert by_cause == {
        ("time(k=4)", "machine.speed: 2 -> 4"): (8.0, 4.0),
        ("time(k=4)", "work: 64 -> 128"): (8.0, 16.0),
        ("memory", "machine.memory: 10 B -> 20 B"): (0.5, 0.25),
    }
    # Time is what it was: each cause is named though together they cancel.


def test_a_sum_that_no_single_cause_explains_is_told_too() -> None:
    after = {**BEFORE, "work": 128.0, "machine": {"name": "old", "speed": 1.0, "memory": 10.0}}
    rows = told(after, "time(k=4) <= 9 s")
    assert [(row["cause"], row["after"]) for row in rows] == [
        ("machine.speed: 2 -> 1", 16.0),
        ("work: 64 -> 128", 16.0),
        (TOGETHER, 32.0),
    ]


def test_another_machine_is_one_cause() -> None:
    after = {**BEFORE, "machine": {"name": "new", "speed": 8.0, "memory": 40.0, "ports": 2, "year": 2030}}
    rows = told(after, "time(k=4) <= 9 s")
    assert [row["cause"] for row in rows] == ["machine: old -> new"]


def test_an_edited_machine_with_a_new_name_is_told_by_its_edit() -> None:
    after = {**BEFORE, "machine": {"name": "old-tuned", "speed": 8.0, "memory": 10.0}}
    rows = told(after, "time(k=4) <= 9 s")
    assert [row["cause"] for row in rows] == ["machine.speed: 2 -> 8"]


def test_a_variant_without_a_name_is_told_by_what_was_varied() -> None:
    link = {"name": "ib", "bandwidth": 4.0, "latency": 1.0, "step": 1.0, "efficiency": 0.9, "ports": 1}
    slow = {"name": "roce", "bandwidth": 2.0, "latency": 2.0, "step": 2.0, "efficiency": 0.8, "ports": 2}
    before = {"cluster": {"name": "pod", "scale_out": link}}
    after = {"cluster": {"name": "pod (varied)", "scale_out": slow}}
    assert "cluster.scale_out: ib -> roce" in [str(found) for found in differences(before, after)]


def test_a_moved_model_is_not_blamed_on_the_inputs() -> None:
    locked = toy({**BEFORE, "work": 60.0})
    rows = told(BEFORE, "time(k=4) <= 9 s", locked=locked)
    assert [row["cause"] for row in rows] == [MODEL]
    assert (rows[0]["before"], rows[0]["after"]) == (7.5, 8.0)


def test_a_change_that_cannot_stand_alone_is_left_to_the_sum() -> None:
    after = {**BEFORE, "work": 2000.0}
    result = {**toy(BEFORE), "time_s": [1.0, 1.0, 1.0]}
    found = effects([parse("time(k=4) <= 9 s")], toy(BEFORE), BEFORE, after, result, toy, memory)
    assert [effect.cause for effect in found] == [TOGETHER]


def test_many_changes_are_told_by_group() -> None:
    before = {"machine": {f"n{i}": i for i in range(20)}, "work": 1}
    after = {"machine": {f"n{i}": i + 1 for i in range(20)}, "work": 2}
    found = differences(before, after)
    assert len(found) == 21
    assert [d.path for d in grouped(found, before, after)] == [("machine",), ("work",)]


TREES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.dictionaries(st.sampled_from(["name", "x", "y", "z"]), inner, max_size=4),
    max_leaves=8,
)
INPUTS = st.dictionaries(st.sampled_from(["p", "q", "r"]), TREES, max_size=3)


@given(INPUTS, INPUTS)
def test_applying_every_difference_gives_the_new_inputs(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    changed: dict[str, Any] = before
    for difference in differences(before, after):
        changed = apply(changed, difference)
    assert changed == after
    assert differences(after, after) == []


def test_causes_are_in_the_words_of_the_spec() -> None:
    before = {
        "price": {"per_accelerator": 3.92 / 3600},
        "accelerator": {"peak": {"bf16": 989e12}},
        "layout": "auto",
    }
    after = {
        "price": {"per_accelerator": 2.1 / 3600},
        "accelerator": {"peak": {"bf16": 312e12}},
        "layout": {"tp": 2},
    }
    assert [str(difference) for difference in differences(before, after)] == [
        "accelerator.peak.bf16: 989 TFLOP/s -> 312 TFLOP/s",
        "layout: auto -> tp=2",
        "price.per_accelerator: 3.92 USD/h -> 2.1 USD/h",
    ]
