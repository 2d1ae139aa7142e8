"""Bands of efficiencies: what two K share cancels, and a measured baseline is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.calibrate.job import calibrate
from perfmodel.decide.metrics import efficiency_band
from perfmodel.specs.jobs import load_job
from perfmodel.training.curve import curve
from perfmodel.training.setup import setup_of

WORDS = {"workload": "resnet50", "cluster": "dgx-a100", "k": "1..64", "global_batch": 8192}


def test_without_timings_what_the_draws_share_cancels_and_two_times_apart_bound_it() -> None:
    beliefs = shipped_beliefs()
    found = curve(setup_of(load_job(None, overrides=WORDS)), beliefs, draws=200, seed=1)
    band = efficiency_band(found, beliefs)
    assert band is not None
    assert band.low[band.baseline] == band.high[band.baseline] == 1.0
    ratio, times = np.log(band.high / band.low), np.log(found.high_s / found.low_s)
    assert ratio[1] < times[1]
    assert (ratio <= np.hypot(times, times[0]) * (1 + 1e-9)).all()


@pytest.mark.parametrize("draws", [0, 200])
def test_against_a_measured_baseline_the_doubt_is_that_of_the_time(draws: int) -> None:
    """As `validate` scores it, whether anything is drawn or not."""
    setup = setup_of(load_job(None, overrides=WORDS))
    first = replace(setup, k=setup.k[:2], global_batch=setup.global_batch[:2])
    shipped = shipped_beliefs()
    timed, _ = calibrate(first, curve(first, shipped, draws=0).time_s * 1.1, shipped)
    found = curve(setup, timed, draws=draws, seed=1)
    band = efficiency_band(found, timed)
    assert band is not None
    assert band.low[0] == band.high[0] == 1.0
    assert band.low[1:] / band.middle[1:] == pytest.approx(found.time_s[1:] / found.high_s[1:])
