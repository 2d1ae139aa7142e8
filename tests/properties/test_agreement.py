"""Measurements that agree with the model change nothing, and a measured point is where it was measured.

Jobs are those of `random_jobs.py`, each over six doublings of K, timed at the first one to three that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from random_jobs import jobs_of, random_job

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.training.curve import Curve, curve
from perfmodel.training.search import Search, search
from perfmodel.training.setup import Setup, setup_of

SEEDS = jobs_of(36)
BELIEFS = shipped_beliefs()
LEAST_FEASIBLE = 4  # points of a curve, so that some are left to predict
SCALED = (0.9, 1.4, 2.0)
NOISE = 0.01  # log, of one timing
UNCHANGED = 0.05  # log
BY_CHANCE = (
    2.0  # half-widths of a 90 % band, 3.3 standard deviations: noise may leave the band itself now and then
)


@dataclass(frozen=True)
class Case:
    """A job before it is timed; `timed` are the positions of K that will be."""

    seed: int
    setup: Setup
    among: Search
    before: Curve
    timed: NDArray[np.intp]

    def after(self, times: NDArray[np.float64]) -> Curve:
        """The curve of the job once `times` are known."""
        k, batch = self.setup.k[self.timed], self.setup.global_batch[self.timed]
        beliefs, _ = calibrate(replace(self.setup, k=k, global_batch=batch), times, BELIEFS)
        return curve(self.setup, beliefs, draws=0, among=self.among)


def half(found: Curve) -> NDArray[np.float64]:
    """Log half-widths of a curve's band."""
    return np.asarray(np.log(found.high_s / found.low_s) / 2.0)


def cases() -> Iterator[Case]:
    for seed in SEEDS:
        setup = setup_of(random_job(seed, doublings=6))
        among = search(setup)
        before = curve(setup, BELIEFS, draws=0, among=among)
        feasible = np.flatnonzero(before.feasible)
        if feasible.size >= LEAST_FEASIBLE:
            yield Case(seed, setup, among, before, feasible[: 1 + seed % 3])


@pytest.fixture(scope="module")
def jobs() -> list[Case]:
    return list(cases())


def test_what_the_model_says_already_moves_and_widens_nothing(jobs: list[Case]) -> None:
    for case in jobs:
        after, fits = case.after(case.before.time_s[case.timed]), case.before.feasible
        ratio = after.time_s[fits] / case.before.time_s[fits]
        np.testing.assert_allclose(ratio, 1.0, rtol=1e-6, err_msg=f"job {case.seed}")
        assert (half(after)[fits] <= half(case.before)[fits] + 1e-9).all(), case.seed


def test_a_measured_point_lies_in_its_own_band(jobs: list[Case]) -> None:
    for case in jobs:
        factor = SCALED[case.seed // 3 % 3]  # with each count of timed points
        at, times = case.timed, factor * case.before.time_s[case.timed]
        after = case.after(times)
        np.testing.assert_allclose(after.time_s[at], times, rtol=0.03, err_msg=f"job {case.seed}")
        assert (after.low_s[at] <= times).all(), case.seed
        assert (times <= after.high_s[at]).all(), case.seed
        assert (half(after)[at] <= half(case.before)[at] + 1e-9).all(), case.seed


def test_noise_moves_little_or_within_what_chance_explains(jobs: list[Case]) -> None:
    """The truth is the model's own curve here: what was not measured stays near it, or the band explains it."""
    for case in jobs:
        noise = NOISE * np.random.default_rng([case.seed, 9]).standard_normal(case.timed.size)
        after, fits = case.after(case.before.time_s[case.timed] * np.exp(noise)), case.before.feasible
        moved = np.abs(np.log(after.time_s[fits] / case.before.time_s[fits]))
        assert (moved <= np.maximum(BY_CHANCE * half(after)[fits], UNCHANGED)).all(), case.seed
