"""Values with bands, three verdicts, and changes against a baseline."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide.gate.evaluate import Value, change, decide, measure, outcome, overall, position
from perfmodel.decide.gate.grammar import parse

RESULT: dict[str, Any] = {
    "k": [8, 16, 32, 64],
    "time_s": [1.0, 0.52, 0.28, None],
    "time_s_low": [0.9, 0.47, 0.25, None],
    "time_s_high": [1.1, 0.57, 0.31, None],
    "efficiency": [1.0, 0.96, 0.89, None],
    "speedup": [8.0, 15.4, 28.6, None],
    "throughput": [512.0, 985.0, 1829.0, None],
    "cost_usd": [100.0, 104.0, 112.0, None],
    "energy_j": [1e6, 1.1e6, 1.2e6, None],
    "carbon_g": None,
    "memory_bytes": [60e9, 50e9, 45e9, 90e9],
    "reason": [None, None, None, "memory"],
    "parts_s": {"compute": [0.8, 0.4, 0.2, None], "bubble": [0.2, 0.12, 0.08, None]},
    "knee": {
        "threshold": {"k": None, "k_low": 32, "k_high": None, "cause": "not reached"},
        "curvature": {"k": 16, "k_low": 8, "k_high": 32, "cause": "dp"},
        "marginal": {"k": 32, "k_low": None, "k_high": 32, "cause": ""},
    },
    "p_star": {"k": 8, "cost_usd": 100.0},
    "fastest": {"k": 32},
}


def value(text: str) -> Value:
    return measure(parse(text), RESULT, 80e9)


def verdict(text: str) -> str:
    return outcome(parse(text), value(text)).verdict


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("time(k=16) <= 0.6 s", "pass"),
        ("time(k=16) <= 0.55 s", "undecided"),
        ("time(k=16) <= 0.4 s", "fail"),
        ("time(k=64) <= 9 s", "fail"),  # infeasible
        ("time(k=128) <= 9 s", "fail"),  # not on the ladder
        ("efficiency(k=32) >= 0.7", "pass"),
        ("efficiency(k=32) >= 0.89", "undecided"),
        ("cost <= 120 USD", "pass"),
        ("cost <= 105 USD", "undecided"),
        ("cost(k=32) <= 90 USD", "fail"),
        ("memory <= 90 %", "pass"),  # 60 of 80 GB; 64 is infeasible and does not count
        ("memory(k=16) <= 40 GB", "fail"),
        ("knee >= 32", "pass"),  # not reached within the ladder
        ("knee >= 64", "fail"),  # and 64 is infeasible: there is nothing beyond 32
        ("knee(curvature) >= 16", "undecided"),
        ("knee(curvature) >= 64", "fail"),
        ("knee(marginal) >= 32", "pass"),
        ("share(bubble, k=16) <= 25 %", "pass"),
        ("share(optimizer, k=16) <= 25 %", "fail"),
        ("carbon <= 1 kg", "fail"),
        ("p_star >= 8", "pass"),
        ("fastest < 32", "fail"),
    ],
)
def test_verdicts(policy: str, expected: str) -> None:
    assert verdict(policy) == expected


def test_a_knee_beyond_the_range_is_undecided() -> None:
    open_end = {**RESULT, "k": [8, 16, 32], "time_s": [1.0, 0.52, 0.28]}
    beyond = measure(parse("knee >= 128"), open_end, None)
    assert (beyond.value, beyond.at_least) == (32, True)
    assert outcome(parse("knee >= 128"), beyond).verdict == "undecided"
    nothing = {**RESULT, "time_s": [None] * 4}
    assert measure(parse("knee >= 8"), nothing, None).reason == "no K is feasible"


def test_what_has_no_value_says_why() -> None:
    assert value("time(k=64) <= 9 s").reason == "K = 64: memory"
    assert "not a K of the job" in value("time(k=128) <= 9 s").reason
    assert "compute" in value("share(optimizer, k=16) <= 25 %").reason
    assert "not reached" in value("knee >= 32").reason


def test_a_band_of_the_prediction_wins_over_one_from_the_time() -> None:
    own = {**RESULT, "efficiency_low": [1, 0.95, 0.88, None], "efficiency_high": [1, 0.97, 0.9, None]}
    assert measure(parse("efficiency(k=16) >= 0.7"), own, None) == Value(0.96, 0.95, 0.97, k=16)
    derived = measure(parse("efficiency(k=16) >= 0.7"), RESULT, None)
    assert derived.low == pytest.approx(0.96 * 0.52 / 0.57)
    assert derived.high == pytest.approx(0.96 * 0.52 / 0.47)


@given(
    low=st.floats(-1e6, 1e6),
    wide=st.floats(0, 1e6),
    limit=st.floats(-1e6, 1e6),
    sign=st.sampled_from(["<=", ">=", "<", ">"]),
)
def test_pass_and_fail_never_change_places(low: float, wide: float, limit: float, sign: str) -> None:
    band = Value(low + wide / 2, low, low + wide)
    found = decide(sign, limit, band)
    assert found in {"pass", "fail", "undecided"}
    opposite = {"<=": ">", ">=": "<", "<": ">=", ">": "<="}[sign]
    assert decide(opposite, limit, band) == {"pass": "fail", "fail": "pass", "undecided": "undecided"}[found]
    # A narrower band never turns a decision around.
    middle = Value(band.value, band.value, band.value)
    if found != "undecided":
        assert decide(sign, limit, middle) == found


def test_changes_are_relative_or_in_steps() -> None:
    ladder = [8, 16, 32, 64]
    time = parse("change(time, k=16) <= 5 %")
    assert change(time, Value(0.5, 0.4, 0.6), Value(0.52, 0.4, 0.6), ladder).value == pytest.approx(0.04)
    knee = parse("change(knee) >= -1 step")
    moved = change(knee, Value(64, 64, 64), Value(32, 32, 32), ladder)
    assert moved.value == -1
    assert decide(">=", knee.limit.value, moved) == "pass"
    two = change(knee, Value(64, 64, 64), Value(16, 16, 16), ladder)
    assert decide(">=", knee.limit.value, two) == "fail"
    assert change(time, Value(None, None, None), Value(1, 1, 1), ladder).value is None


@given(
    st.lists(st.integers(1, 4096), min_size=1, max_size=9, unique=True),
    st.integers(1, 8192),
    st.integers(1, 8192),
)
def test_position_grows_with_k(ladder: list[int], a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert position(ladder, low) <= position(ladder, high) + 1e-9
    assert math.isfinite(position(ladder, a))
    for at, k in enumerate(sorted(ladder)):
        assert position(ladder, k) == at


def test_the_worst_verdict_wins() -> None:
    assert overall(["pass", "fail", "undecided"]) == "fail"
    assert overall(["pass", "undecided"]) == "undecided"
    assert overall(["pass"]) == "pass"
