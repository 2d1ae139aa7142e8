"""The cause of the bend: named from parts, from spread, from shape; and what to measure when it cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.study.bend import REMEDIES
from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study
from perfmodel.study.table import Timings, parse_timings

K = 2.0 ** np.arange(8)

SHAPES = {
    "serial": lambda k: 0.05 + 0.95 / k,
    "communication, tree": lambda k: 1 / k + 0.02 * np.log2(k),
    "communication, linear": lambda k: 1 / k + 0.001 * (k - 1),
    "load imbalance": lambda k: np.where(k > 1, 1.6, 1.0) / k,
}


def simulate(curve, seed, *, repeats=5, noise=0.01, regime="strong", stall=None) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    k = np.repeat(K, repeats)
    time = curve(k) * (1 + noise * rng.standard_normal(k.size))
    if stall is not None:
        hit = rng.random(k.size) < 1 - (1 - stall) ** k
        time = time * np.where(hit, 1 + rng.random(k.size), 1.0)
    return dict(study(Timings("x", k, time), StudyOptions(regime=regime)).result)


@pytest.mark.parametrize("repeats", [1, 5])
@pytest.mark.parametrize("name", SHAPES)
def test_shape_names_the_cause(name, repeats):
    for seed in range(5):
        bend = simulate(SHAPES[name], seed, repeats=repeats)["bend"]
        assert bend["cause"] == name.split(",")[0]
        assert bend["remedy"] == REMEDIES[bend["cause"]]
        assert bend["evidence"]


@pytest.mark.parametrize(
    ("curve", "cause"),
    [
        (lambda k: 1 + 0.1 * np.log2(k), "communication"),
        (lambda k: 1 + 0.01 * (k - 1), "communication"),
        (lambda k: np.where(k > 1, 1.6, 1.0), "load imbalance"),
    ],
)
def test_weak_shapes(curve, cause):
    assert simulate(curve, 1, regime="weak")["bend"]["cause"] == cause


def test_spread_that_grows_with_k_is_a_straggler():
    named = [simulate(lambda k: 1 / k, seed, repeats=12, stall=0.012)["bend"] for seed in range(12)]
    bent = [bend for bend in named if bend["k"] is not None]
    assert len(bent) >= 4
    assert {bend["cause"] for bend in bent} == {"straggler"}
    assert "spread grows" in bent[0]["evidence"][0]


def test_a_growing_spread_too_small_to_matter_is_not_blamed():
    """Noise that grows from 0.1 % to 2 % cannot explain a loss of half the time."""
    rng = np.random.default_rng(5)
    k = np.repeat(K, 6)
    noise = 0.001 * (1 + 20 * np.log2(k) / 7)
    time = (0.05 + 0.95 / k) * (1 + noise * rng.standard_normal(k.size))
    bend = study(Timings("x", k, time)).result["bend"]
    assert bend["cause"] == "serial"


def parts_table(rows, extra="") -> dict[str, Any]:
    text = f"k,compute_s,communication_s,idle_s{extra}\n" + "".join(
        ",".join(str(x) for x in row) + "\n" for row in rows
    )
    return dict(study(parse_timings(text), StudyOptions(regime="strong")).result)


def test_parts_beat_shape():
    """The times have the shape of communication; the parts say that the compute does not shrink."""
    result = parts_table([(1, 100, 0, 0), (2, 56, 1, 0), (4, 36, 1, 0), (8, 28, 1, 0)])
    assert result["bend"]["cause"] == "serial"
    assert result["bend"]["confidence"] == "parts"
    ledger = result["ledger_worker_s"]
    lost = np.array(result["k"]) * np.array(result["mean_s"]) - result["mean_s"][0]
    assert np.sum(list(ledger.values()), axis=0) == pytest.approx(lost)


def test_input_time_is_a_cause_of_its_own():
    result = parts_table([(1, 100, 0, 0, 2), (2, 50, 1, 0, 20), (4, 25, 1, 0, 24)], ",io_s")
    assert result["bend"]["cause"] == "input"


def test_idle_that_is_the_same_in_every_repeat_is_imbalance():
    rng = np.random.default_rng(2)
    rows = []
    for k in (1, 2, 4, 8):
        for _ in range(5):
            idle = 0 if k == 1 else 60 / k * (1 + 0.01 * rng.standard_normal())
            rows.append((k, 100 / k * (1 + 0.01 * rng.standard_normal()), 0.5 * (k > 1), idle))
    result = parts_table(rows)
    assert result["bend"]["cause"] == "load imbalance"
    assert any("already" in line for line in result["bend"]["evidence"])


def test_idle_whose_spread_grows_is_a_straggler():
    rng = np.random.default_rng(2)
    rows = []
    for k in (1, 2, 4, 8, 16):
        for _ in range(8):
            hit = rng.random() < 0.05 * k
            rows.append((k, 100 / k, 0.1, 0 if k == 1 else 1 + (200 / k) * hit))
    result = parts_table(rows)
    assert result["bend"]["cause"] == "straggler"


def test_idle_without_repeats_stays_open():
    result = parts_table([(1, 100, 0, 0), (2, 50, 1, 0.5), (4, 25, 2, 20), (8, 12.5, 3, 30)])
    assert result["bend"]["cause"] == "straggler or load imbalance"
    assert result["bend"]["confidence"] == "weak"
    assert "repeats" in result["bend"]["remedy"]


def test_parts_that_leave_time_over_are_counted_as_other():
    text = "k,time_s,compute_s,communication_s,idle_s\n1,100,100,0,0\n2,75,50,1,0\n4,60,25,1,0\n"
    result = study(parse_timings(text)).result
    assert result["bend"]["cause"] == "other"
    assert "parts_gap" in {item["code"] for item in result["honesty"]}


def test_right_remedy_moves_the_bend_and_the_wrong_one_does_not():
    result = simulate(SHAPES["communication, tree"], 3, repeats=8)
    bend = result["bend"]
    assert bend["crossing_k_if_halved"]["communication"] > 1.5 * bend["crossing_k"]
    for cause, k in bend["crossing_k_if_halved"].items():
        if cause != "communication":
            assert k == pytest.approx(bend["crossing_k"], rel=0.05)


def test_crossing_lies_between_the_measured_points():
    result = study(parse_timings("k,time_s\n1,800\n2,430\n4,260\n8,206\n16,235\n")).result
    assert 4 < result["bend"]["crossing_k"] < 8


def test_not_reached_says_so_and_still_recommends_the_last_k():
    result = study(parse_timings("k,time_s\n1,10\n2,5.1\n4,2.7\n8,1.5\n")).result
    assert result["bend"]["k"] is None
    assert result["bend"]["cause"].startswith("not reached")
    assert result["recommended_k"] == 8
    assert "the largest measured" in result["verdict"]


def test_inseparable_shapes_ask_for_the_measurement_that_separates_them():
    text = "k,time_s\n1,3600\n2,1880\n4,1010\n8,560\n16,340\n32,250\n"
    result = study(parse_timings(text)).result
    assert result["bend"]["confidence"] == "weak"
    split = result["fits"]["split"]
    assert not split["separable"]
    assert split["shares_low"]["serial"] == 0.0
    assert split["shares_high"]["serial"] == 1.0
    assert "K = 64" in result["fits"]["further_measurement"]
    assert "communication_s" in result["fits"]["further_measurement"]
    assert "do not rule out" in result["verdict"]


def test_the_measurement_that_it_asked_for_settles_it():
    """Add the K it names, made by either law: the data then single out that law."""
    k = np.array([1.0, 2, 4, 8, 16, 32])
    time = np.array([3600, 1880, 1010, 560, 340, 250.0])
    first = study(Timings("x", k, time)).result["fits"]["choice"]
    laws = {fit["law"]: fit["seconds"] for fit in first["candidates"]}
    at_64 = {
        "amdahl": laws["amdahl"]["serial"] + laws["amdahl"]["parallel"] / 64,
        "log2": laws["log2"]["log2"] * 6 + laws["log2"]["parallel"] / 64,
    }
    for law, added in at_64.items():
        choice = study(Timings("x", np.append(k, 64), np.append(time, added))).result["fits"]["choice"]
        assert choice["candidates"][0]["law"] == law
        assert not {"amdahl", "log2"} & set(choice["rivals"])


def test_close_second_cause_is_named_beside_the_first():
    result = simulate(lambda k: 0.04 + 0.95 / k + 0.01 * np.log2(k + 1), 1, repeats=8, noise=0.003)
    assert {result["bend"]["cause"], result["bend"]["close_behind"]} == {"serial", "communication"}
    assert "close behind" in result["verdict"]
