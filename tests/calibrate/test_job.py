"""Calibration of one job: two timings move the curve, one bad row does not take it along, and the report admits trouble."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.population import EFFECTS, from_mapping, shipped_beliefs, to_mapping
from perfmodel.calibrate.job import Direct, calibrate
from perfmodel.decide.prediction import predict
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of


@pytest.fixture(scope="module")
def setup():  # type: ignore[no-untyped-def]
    job = load_job(
        None,
        overrides={
            "workload": "resnet50",
            "cluster": "dgx-a100",
            "regime": "weak",
            "batch_per_accelerator": 128,
            "k": "1..64",
        },
    )
    return setup_of(job)


def at(setup, *ks):  # type: ignore[no-untyped-def]
    k = np.array(ks, float)
    return replace(setup, k=k, global_batch=128 * k)


def test_two_timings_pull_the_curve_towards_them(setup) -> None:  # type: ignore[no-untyped-def]
    beliefs = shipped_beliefs()
    before = curve(at(setup, 1, 2, 4, 8), beliefs, draws=0)
    measured = before.time_s[:2] * 1.5
    updated, report = calibrate(at(setup, 1, 2), measured, beliefs)
    after = curve(at(setup, 1, 2, 4, 8), updated, draws=0)
    assert after.time_s[:2] == pytest.approx(measured, rel=0.05)
    assert after.time_s[3] / before.time_s[3] == pytest.approx(1.5, rel=0.15)
    assert (after.high_s / after.low_s < before.high_s / before.low_s).all()
    assert [row["k"] for row in report["points"]] == [1, 2]
    assert {row["status"] for row in report["parameters"]} <= {
        "fitted",
        "unidentified",
        "at a bound",
        "in conflict with the prior",
    }
    assert any(row["status"] == "unidentified" for row in report["parameters"])


def test_one_bad_row_is_doubted_and_does_not_take_the_rest_along(setup) -> None:  # type: ignore[no-untyped-def]
    beliefs = shipped_beliefs()
    k = (1, 2, 3, 4, 6, 8)
    good = curve(at(setup, *k), beliefs, draws=0).time_s
    spoiled = good.copy()
    spoiled[2] *= 3.0
    updated, report = calibrate(at(setup, *k), spoiled, beliefs)
    after = curve(at(setup, *k), updated, draws=0).time_s
    assert [row["k"] for row in report["points"] if row["doubted"]] == [3]
    assert after[[0, 1, 3, 4, 5]] == pytest.approx(good[[0, 1, 3, 4, 5]], rel=0.12)


def test_a_bad_last_row_among_few_makes_no_other_doubted(setup) -> None:  # type: ignore[no-untyped-def]
    k = (1, 2, 4, 8)
    good = 0.8 * curve(at(setup, *k), shipped_beliefs(), draws=0).time_s
    updated, report = calibrate(at(setup, *k), good * [1.0, 1.0, 1.0, 2.8], shipped_beliefs())
    assert [row["k"] for row in report["points"] if row["doubted"]] == [8]
    assert curve(at(setup, *k), updated, draws=0).time_s == pytest.approx(good, rel=0.02)
    # Laws go through what was believed alone, and the file that keeps it is read again.
    assert updated.calibration is not None
    assert updated.calibration.k.tolist() == [1, 2, 4]
    assert from_mapping(to_mapping(updated)).calibration.points == 3  # type: ignore[union-attr]


def test_a_direct_measurement_moves_its_coefficient(setup) -> None:  # type: ignore[no-untyped-def]
    beliefs = shipped_beliefs()
    belief = beliefs.belief(setup.features())
    value = float(np.exp(belief.median[EFFECTS.index("jitter")])) * 3.0
    updated, report = calibrate(setup, np.zeros(0), beliefs, [Direct("jitter", value, 0.01, "ranks.csv")])
    assert updated.calibration is not None
    moved = updated.calibration.mean[EFFECTS.index("jitter")]
    assert 0.5 < moved <= np.log(3.0) + 1e-9
    assert report["direct"][0]["source"] == "ranks.csv"


def test_beliefs_survive_the_file(setup) -> None:  # type: ignore[no-untyped-def]
    beliefs = shipped_beliefs()
    updated, _ = calibrate(at(setup, 1, 2), np.array([0.1, 0.11]), beliefs)
    again = from_mapping(json.loads(json.dumps(to_mapping(updated))))
    first, second = (curve(setup, b, draws=0).time_s for b in (updated, again))
    assert second == pytest.approx(first, rel=1e-4)


def test_laws_pull_less_where_the_batch_is_not_the_measured_one(setup) -> None:  # type: ignore[no-untyped-def]
    """A file that does not say the batch takes it to stay; at the measured batch that makes no difference."""
    beliefs = shipped_beliefs()
    beliefs = replace(beliefs, meta={**beliefs.meta, "laws": {"resized": 2.0, "doubt": 0.0}})
    here = at(setup, 1, 2)
    updated, _ = calibrate(here, 1.4 * curve(here, beliefs, draws=0).time_s, beliefs)
    known = updated.calibration
    assert known is not None
    assert known.batch == pytest.approx([128.0, 128.0])
    known = replace(known, need=1.0)  # the times have the shape that the model gives, so it would ask no law
    updated = updated.calibrated(known)
    unsaid = updated.calibrated(replace(known, batch=np.zeros(0)))
    far = at(setup, 8, 64)
    same, silent = (curve(far, b, draws=0).time_s for b in (updated, unsaid))
    assert same == pytest.approx(silent)
    small = replace(far, global_batch=far.global_batch / 16)
    model_only = updated.calibrated(replace(known, batch=known.batch * 1e6))
    less, more, none = (curve(small, b, draws=0).time_s for b in (updated, unsaid, model_only))
    assert (np.abs(np.log(less / none)) < 0.2 * np.abs(np.log(more / none))).all()


def test_an_arithmetic_that_nobody_measured_inherits_its_generation_wider() -> None:
    beliefs = shipped_beliefs()
    job = load_job(
        None, overrides={"workload": "llama3-8b", "cluster": "dgx-h100", "global_batch": 512, "k": "8"}
    )
    features = setup_of(job).features()
    unseen = beliefs.belief(features | {"width": "3bit", "scale_up": "nvswitch-9"})
    unknown = beliefs.belief(dict.fromkeys(features, "nobody"))
    known = beliefs.belief(features)
    assert known.basis["matmul"] == "measured"
    assert unseen.basis["matmul"] == "inherited"
    assert unknown.basis["up_efficiency"] == "assumed"
    index = EFFECTS.index("matmul")
    assert known.spread[index] < unseen.spread[index] <= unknown.spread[index]


def test_predictions_with_the_same_seed_are_the_same() -> None:
    job = load_job(
        None, overrides={"workload": "llama3-8b", "cluster": "dgx-h100", "global_batch": 512, "k": "8..64"}
    )
    assert predict(job, seed=3).to_json() == predict(job, seed=3).to_json()
