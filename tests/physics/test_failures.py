"""Failures in closed form: rates, intervals, and the moments of a run; the Monte Carlo is in tests/properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfmodel.physics.failures import (
    WallTime,
    best_interval_s,
    daly_interval_s,
    failure_rate_per_s,
    spare_wait_s,
    uninterrupted_s,
    wall_time,
    young_interval_s,
)


def test_a_node_that_is_partly_used_fails_as_a_whole():
    rate = failure_rate_per_s(
        [1, 8, 9, 16], mtbf_per_node_s=100.0, accelerators_per_node=8, preemption_per_node_s=0.03
    )
    assert rate == pytest.approx([0.04, 0.04, 0.08, 0.08])


def test_rates_of_accelerators_and_nodes_add():
    rate = failure_rate_per_s(
        12, mtbf_per_accelerator_s=1200.0, mtbf_per_node_s=50.0, accelerators_per_node=4
    )
    assert float(rate) == pytest.approx(12 / 1200 + 3 / 50)
    assert float(failure_rate_per_s(12)) == 0.0


@pytest.mark.parametrize("x", [1e-13, 1e-6, 0.3, 5.0])
def test_waiting_for_a_stretch_without_failure(x):
    assert float(uninterrupted_s(7.0, x / 7.0)) == pytest.approx(7.0 * math.expm1(x) / x, rel=1e-9)


def test_intervals():
    cost, mtbf = 60.0, 11000.0
    assert float(young_interval_s(cost, 1 / mtbf)) == pytest.approx(math.sqrt(2 * cost * mtbf))
    root = math.sqrt(cost / (2 * mtbf))
    expected = math.sqrt(2 * cost * mtbf) * (1 + root / 3 + root**2 / 9) - cost
    assert float(daly_interval_s(cost, 1 / mtbf)) == pytest.approx(expected)
    assert float(daly_interval_s(300.0, 1 / 100.0)) == 100.0  # checkpoints cost more than two failures
    assert float(daly_interval_s(60.0, 0.0)) == math.inf


@pytest.mark.parametrize(("cost", "rate"), [(1e-3, 1e-4), (60.0, 1e-4), (600.0, 1e-3)])
def test_the_best_interval_solves_its_equation(cost, rate):
    """The derivative of the expected time per unit of work: ``rate tau = 1 - exp(-rate (tau + cost))``."""
    tau = float(best_interval_s(cost, rate))
    assert rate * tau == pytest.approx(1.0 - math.exp(-rate * (tau + cost)), rel=1e-3)


def run(**more):
    said = {"rate_per_s": 1e-4, "checkpoint_s": 30.0, "restart_s": 200.0, "interval_s": 1000.0, **more}
    return wall_time(10_000.0, **said)


def test_mean_of_a_run():
    found, rate = run(), 1e-4
    segment = math.exp(rate * 200.0) * math.expm1(rate * 1030.0) / rate
    assert float(found.mean_s) == pytest.approx(10 * segment)
    assert float(found.floor_s) == pytest.approx(10 * 1030.0)
    assert float(found.failures) == pytest.approx(rate * 10 * segment)
    assert float(found.untouched) == pytest.approx(math.exp(-rate * 10 * 1030.0))


def test_variance_of_a_run_joins_its_series():
    """The exact form and the series for rare failures agree where one hands over to the other."""
    length = 200.0 + 1030.0
    below, above = (float(run(rate_per_s=x / length).variance_s2) / x for x in (0.999e-3, 1.001e-3))
    assert above == pytest.approx(below, rel=0.01)
    rate = 1e-9
    expected = 10 * rate * 1030.0 * (1030.0**2 / 3 + 1030.0 * 200.0 + 200.0**2)
    assert float(run(rate_per_s=rate).variance_s2) == pytest.approx(expected, rel=1e-6)


def test_work_shorter_than_an_interval_is_one_segment():
    assert float(run(interval_s=1e6).floor_s) == pytest.approx(10_030.0)
    none = wall_time(0.0, rate_per_s=1e-4, checkpoint_s=30.0, restart_s=200.0, interval_s=1000.0)
    assert float(none.mean_s) == 0.0


def test_quantiles():
    sure = run(rate_per_s=0.0)
    assert float(sure.quantile(0.99)) == float(sure.floor_s)
    found = run()
    assert float(found.quantile(0.5 * float(found.untouched))) == float(found.floor_s)
    # Many failures: nearly normal.
    many = wall_time(1e7, rate_per_s=1e-3, checkpoint_s=10.0, restart_s=50.0, interval_s=150.0)
    z = (np.asarray(many.quantile([0.1, 0.9])) - many.mean_s) / np.sqrt(many.variance_s2)
    assert z == pytest.approx([-1.2816, 1.2816], abs=0.03)
    assert float(run(rate_per_s=10.0).quantile(0.5)) == math.inf


@pytest.mark.parametrize("spares", [0, 1, 3])
def test_waiting_for_a_spare(spares):
    rate, repair = 2e-4, 7200.0
    expected = 0.0
    for away in range(60):
        wait = sum(repair / j for j in range(spares + 1, away + 2))
        expected += float(stats.poisson.pmf(away, rate * repair)) * wait
    assert float(spare_wait_s(rate, repair_s=repair, spares=spares)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("cost", "mtbf", "failed"), [(190.0, 100.0, False), (210.0, 100.0, True), (280.0, 100.0, True)]
)
def test_beyond_two_failures_a_checkpoint_the_interval_is_the_time_between_failures(cost, mtbf, failed):
    """Daly 2006, equation 37: the series holds for C < 2 M, else the interval is M."""
    found = float(daly_interval_s(cost, 1 / mtbf))
    root = math.sqrt(cost / (2 * mtbf))
    series = math.sqrt(2 * cost * mtbf) * (1 + root / 3 + root**2 / 9) - cost
    assert found == pytest.approx(mtbf if failed else series)


@pytest.mark.parametrize("untouched", [0.0, 0.3, 0.8])
def test_a_run_that_is_interrupted_takes_longer_by_a_gamma_variable_of_its_own_moments(untouched):
    """Mean and variance of all runs, of which a share takes the floor, leave these to the others."""
    mean, variance, floor = 120.0, 4000.0, 100.0
    run = WallTime(*(np.asarray(v) for v in (mean, variance, floor, 1.0, untouched)))
    excess = (mean - floor) / (1.0 - untouched)
    square = (variance + (mean - floor) ** 2) / (1.0 - untouched)
    law = stats.gamma(excess**2 / (square - excess**2), scale=(square - excess**2) / excess)
    for level in (0.2, 0.6, 0.95):
        expected = floor + law.ppf(max((level - untouched) / (1.0 - untouched), 0.0))
        assert float(run.quantile(level)) == pytest.approx(expected)
