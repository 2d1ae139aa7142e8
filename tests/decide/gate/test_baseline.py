"""The lock file: same bytes for the same content, small diffs, and a broken one is an error with a line."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.decide.gate.baseline import Entry, Lock, dumps, loads, read, rounded, summary
from perfmodel.errors import SpecError

PREDICTION: dict[str, Any] = {
    "k": [8, 16],
    "time_s": [1.0000000001, None],
    "time_s_low": [0.9, None],
    "time_s_high": [1.1, None],
    "efficiency": [1.0, None],
    "memory_bytes": [6e10, 5e10],
    "reason": [None, "memory"],
    "parts_s": {"compute": [1.0, None]},
    "knee": {"threshold": {"k": None, "k_low": None, "k_high": None, "cause": "not reached", "remedy": "x"}},
    "p_star": {"k": 8, "cost_usd": 3.0},
    "fastest": {"k": 8},
    "rests_on": {"big": "text"},
}


def lock(**inputs: Any) -> Lock:
    return Lock(
        "0.1.0",
        0,
        {"llama": Entry({"global_batch": 512, "precision": "bf16", **inputs}, summary(PREDICTION))},
    )


def test_round_trip_and_stable_bytes() -> None:
    text = dumps(lock())
    assert loads(text) == lock()
    assert dumps(loads(text)) == text
    assert text.endswith("}\n")
    shuffled = Lock(
        "0.1.0", 0, {"llama": Entry({"precision": "bf16", "global_batch": 512}, summary(PREDICTION))}
    )
    assert dumps(shuffled) == text


def test_only_what_is_compared_is_locked() -> None:
    kept = summary(PREDICTION)
    assert "rests_on" not in kept
    assert kept["time_s"] == [1.0, None]
    assert "remedy" not in kept["knee"]["threshold"]


def test_one_changed_input_is_one_changed_line() -> None:
    wide = {"workload": {f"field_{n}": n for n in range(12)}}
    before, after = dumps(lock(**wide)), dumps(lock(**{**wide, "global_batch": 1024}))
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert [line.strip("+- ,") for line in changed] == ['"global_batch": 512', '"global_batch": 1024']


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": "perfmodel/lock/9"}',
        '{"schema": "perfmodel/lock/1", "seed": 0}',
        '{"schema": "perfmodel/lock/1", "seed": 0, "jobs": {"a": 3}}',
        '{"schema": "perfmodel/lock/1", "seed": 0, "jobs": {"a": {"inputs": {}, "result": {"k": [1]}}}}',
        "[" * 100_000,
    ],
)
def test_a_broken_lock_is_bad_input(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        loads(text, "perfmodel.lock.json")
    assert caught.value.problems[0].file == "perfmodel.lock.json"
    assert "--update-baseline" in str(caught.value)


def test_a_syntax_error_has_its_line() -> None:
    with pytest.raises(SpecError, match=r"lock\.json:2:\d+: error\[P010\]"):
        loads('{"schema": "perfmodel/lock/1",\n oops}', "lock.json")


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "perfmodel.lock.json"
    assert read(path) is None
    path.write_text(dumps(lock()), encoding="utf-8")
    assert read(path) == lock()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError):
        read(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_any_inputs_survive(value: Any) -> None:
    one = lock(extra=value)
    assert loads(dumps(one)).jobs["llama"].inputs["extra"] == value


@settings(deadline=None)
@given(JSON)
def test_any_json_is_a_lock_or_an_error(value: Any) -> None:
    text = json.dumps(
        {"schema": "perfmodel/lock/1", "seed": 0, "jobs": {"a": {"inputs": {}, "result": value}}}
    )
    with pytest.raises(SpecError):
        loads(text)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounding_is_idempotent_and_close(value: float) -> None:
    once = rounded(value)
    assert rounded(once) == once
    assert once == pytest.approx(value, rel=1e-5)
