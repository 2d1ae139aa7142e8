"""Measurements that agree with the model change nothing, and a measured point is where it was measured.

`PERFMODEL_JOBS` sets how many random jobs are tried.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.specs.catalog import Catalog
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import Curve, curve
from perfmodel.training.setup import Setup, setup_of

JOBS = int(os.environ.get("PERFMODEL_JOBS", "16"))
CATALOG = Catalog.default()
BELIEFS = shipped_beliefs()
LEAST_FEASIBLE = 4  # points of a curve, so that some are left to predict


def random_setup(seed: int) -> Setup:
    """Six doublings of a job, half of them with a declared jitter."""
    rng = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    least = one((1, 8, 16, 64))
    words: dict[str, Any] = {
        "workload": one(("bert-large", "gpt2-xl", "llama3-8b", "llama3-70b", "mixtral-8x7b", "resnet50")),
        "cluster": one(("dgx-1v", "dgx-a100", "dgx-h100", "p5.48xlarge")),
        "k": [least * 2**i for i in range(6)],
    }
    if rng.random() < 0.3:
        words |= {"regime": "weak", "batch_per_accelerator": int(2 ** rng.integers(0, 5))}
    else:
        words["global_batch"] = int(2 ** rng.integers(6, 12))
    if rng.random() < 0.5:
        family = one(("normal", "lognormal", "gumbel", "exponential", "pareto"))
        words["jitter"] = {"distribution": family, "spread": float(rng.uniform(0.01, 0.2))}
    return setup_of(load_job(None, overrides=words, catalog=CATALOG))


def calibrated(setup: Setup, before: Curve, factor: float, points: int) -> tuple[Any, Any, Curve]:
    """Positions that were measured, their times, and the curve after."""
    at = np.flatnonzero(before.feasible)[:points]
    times = factor * before.time_s[at]
    measured = replace(setup, k=setup.k[at], global_batch=setup.global_batch[at])
    beliefs, _ = calibrate(measured, times, BELIEFS)
    return at, times, curve(setup, beliefs, draws=0)


@pytest.fixture(scope="module")
def jobs() -> list[tuple[int, Setup, Curve]]:
    made = [(seed, setup := random_setup(seed), curve(setup, BELIEFS, draws=0)) for seed in range(JOBS)]
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
