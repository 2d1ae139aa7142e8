"""Measurements that agree with the model change nothing, and a measured point is where it was measured.

Jobs are those of `random_jobs.py`, each over six doublings of K.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_jobs import jobs_of, random_job

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import Setup, setup_of

SEEDS = jobs_of(24)
BELIEFS = shipped_beliefs()
LEAST_FEASIBLE = 4  # points of a curve, so that some are left to predict


def calibrated(setup: Setup, before: Curve, factor: float, points: int) -> tuple[Any, Any, Curve]:
    """Positions that were measured, their times, and the curve after."""
    at = np.flatnonzero(before.feasible)[:points]
    times = factor * before.time_s[at]
    measured = replace(setup, k=setup.k[at], global_batch=setup.global_batch[at])
    beliefs, _ = calibrate(measured, times, BELIEFS)
    return at, times, curve(setup, beliefs, draws=0)


@pytest.fixture(scope="module")
def jobs() -> list[tuple[int, Setup, Curve]]:
    made = [
        (seed, setup := setup_of(random_job(seed, doublings=6)), curve(setup, BELIEFS, draws=0))
        for seed in SEEDS
    ]
    return [item for item in made if item[2].feasible.sum() >= LEAST_FEASIBLE]


def test_what_the_model_says_already_changes_nothing(jobs: list[tuple[int, Setup, Curve]]) -> None:
    for seed, setup, before in jobs:
        _, _, after = calibrated(setup, before, 1.0, 1 + seed % 3)
        ratio = after.time_s[before.feasible] / before.time_s[before.feasible]
        np.testing.assert_allclose(ratio, 1.0, rtol=1e-6, err_msg=f"job {seed}")


@pytest.mark.parametrize("factor", [0.9, 1.4, 2.0])
def test_a_measured_point_lies_in_its_own_band(jobs: list[tuple[int, Setup, Curve]], factor: float) -> None:
    for seed, setup, before in jobs:
        at, times, after = calibrated(setup, before, factor, 1 + seed % 3)
        np.testing.assert_allclose(after.time_s[at], times, rtol=0.03, err_msg=f"job {seed}")
        assert (after.low_s[at] <= times).all(), seed
        assert (times <= after.high_s[at]).all(), seed
        width = np.log(after.high_s[at] / after.low_s[at])
        assert (width <= np.log(before.high_s[at] / before.low_s[at]) + 1e-9).all(), seed
