"""Seconds of parts become beliefs: what a made-up truth shows in a trace at one K predicts that truth at another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.calibrate.parts import COVERS, HIDDEN, Traced
from perfmodel.physics.coefficients import NAMES
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import centre, choose, coefficients, curve
from perfmodel.training.setup import setup_of
from perfmodel.training.step import PARTS, step

MEASURED = ("compute", "exposed_communication", "hidden_communication", "idle", "input_stall")


@pytest.fixture(scope="module")
def setup():  # type: ignore[no-untyped-def]
    job = load_job(
        None,
        overrides={
            "workload": "llama3-8b",
            "cluster": "dgx-h100",
            "global_batch": 128,
            "layout": {"sharding": "fsdp"},
            "k": "8,64",
        },
    )
    return setup_of(job)


def truth(setup, **moved):  # type: ignore[no-untyped-def]
    """The step of a job whose coefficients differ from the population's by these log shifts."""
    _, logs = centre(setup, shipped_beliefs())
    at, _ = choose(setup, logs)
    for name, shift in moved.items():
        logs[NAMES.index(name)] += shift
    return step(setup.operations, setup.machine, at, coefficients(setup, logs[:, None], setup.k))


def trace_of(setup, made, index=0):  # type: ignore[no-untyped-def]
    def seconds(part):  # type: ignore[no-untyped-def]
        value = made.hidden_s if part == HIDDEN else made.parts[part]
        return float(np.broadcast_to(value, setup.k.shape)[index])

    return Traced(
        k=int(setup.k[index]),
        global_batch=float(setup.global_batch[index]),
        step_s=float(made.time_s[index]),
        seconds={name: sum(seconds(part) for part in COVERS[name].parts) for name in MEASURED},
        relative_error={},
        source="trace.json",
    )


def test_every_part_of_the_step_is_covered_once() -> None:
    covered = [part for name in MEASURED for part in COVERS[name].parts]
    assert sorted(covered) == sorted([*PARTS, HIDDEN])


def test_a_trace_at_one_k_predicts_another(setup) -> None:  # type: ignore[no-untyped-def]
    made = truth(setup, matmul=-0.15, up_efficiency=-0.4, shard_cost=0.3)
    beliefs = shipped_beliefs()
    updated, report = calibrate(setup, np.zeros(0), beliefs, (), trace_of(setup, made))
    before, after = (curve(setup, b, draws=0) for b in (beliefs, updated))
    wrong = np.abs(np.log(before.time_s / made.time_s))
    right = np.abs(np.log(after.time_s / made.time_s))
    assert (right < 0.35 * wrong).all()
    assert (after.high_s / after.low_s < before.high_s / before.low_s).all()
    rows = {row["quantity"]: row for row in report["trace"]}
    assert rows["compute"]["use"] == rows["exposed_communication"]["use"] == "used"
    for name in ("compute", "exposed_communication"):
        assert abs(np.log(rows[name]["after_s"] / rows[name]["measured_s"])) < abs(
            np.log(rows[name]["before_s"] / rows[name]["measured_s"])
        )
    assert "not used" in rows["input_stall"]["use"]
    assert updated.calibration is not None
    assert updated.calibration.notes == ("parts of the step at K=8 from trace.json",)


def test_a_number_that_nothing_explains_is_said_and_bends_no_other(setup) -> None:  # type: ignore[no-untyped-def]
    made = truth(setup)
    good = trace_of(setup, made)
    bad = replace(good, seconds={**good.seconds, "exposed_communication": 30.0 * good.step_s})
    updated, report = calibrate(setup, np.zeros(0), shipped_beliefs(), (), bad)
    rows = {row["quantity"]: row for row in report["trace"]}
    assert rows["exposed_communication"]["use"] == "used, but the model cannot follow it"
    assert rows["compute"]["after_s"] == pytest.approx(good.seconds["compute"], rel=0.05)
    assert curve(setup, updated, draws=0).time_s == pytest.approx(made.time_s, rel=0.2)


def test_a_part_known_to_be_small_is_an_upper_limit(setup) -> None:  # type: ignore[no-untyped-def]
    made = truth(setup, shard_cost=1.0)
    good = trace_of(setup, made)
    hidden = replace(good, seconds={**good.seconds, "exposed_communication": 0.0})
    _, report = calibrate(setup, np.zeros(0), shipped_beliefs(), (), hidden)
    row = next(row for row in report["trace"] if row["quantity"] == "exposed_communication")
    assert row["use"].startswith("used as an upper limit")
    assert row["after_s"] < row["before_s"]


def test_timings_and_a_trace_together(setup) -> None:  # type: ignore[no-untyped-def]
    """The trace moves the parts, the timing the whole: both are met."""
    made = truth(setup, matmul=-0.15, up_efficiency=-0.4)
    one = replace(setup, k=setup.k[:1], global_batch=setup.global_batch[:1])
    updated, report = calibrate(one, made.time_s[:1], shipped_beliefs(), (), trace_of(setup, made))
    after = curve(setup, updated, draws=0)
    assert after.time_s[0] == pytest.approx(made.time_s[0], rel=0.02)
    assert after.time_s[1] == pytest.approx(made.time_s[1], rel=0.05)
    assert abs(report["points"][0]["residual"]) < 0.02
