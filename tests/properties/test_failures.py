"""Failures: the closed forms against a Monte Carlo of the run, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.failures import (
    best_interval_s,
    daly_interval_s,
    failure_rate_per_s,
    spare_wait_s,
    wall_time,
    young_interval_s,
)

HOUR = 3600.0


def simulate(
    work: float, rate: float, checkpoint: float, restart: float, interval: float, runs: int
) -> np.ndarray:
    """Wall times of `runs` runs, segment by segment; a failure may strike while the run restarts."""
    rng = np.random.default_rng(7)
    total = np.zeros(runs)
    for _ in range(round(work / interval)):
        pending = np.ones(runs, bool)
        needed = np.full(runs, interval + checkpoint)
        while pending.any():
            strike = rng.exponential(1.0 / rate, runs)
            survived = pending & (strike >= needed)
            failed = pending & ~survived
            total += np.where(survived, needed, 0.0) + np.where(failed, strike, 0.0)
            needed = np.where(failed, restart + interval + checkpoint, needed)
            pending = failed
    return total


@pytest.mark.parametrize("mtbf_h", [1.0, 4.0, 50.0])
def test_wall_time_matches_monte_carlo(mtbf_h: float) -> None:
    rate = 1.0 / (mtbf_h * HOUR)
    runs = simulate(10 * HOUR, rate, 60.0, 300.0, 1800.0, 20_000)
    found = wall_time(10 * HOUR, rate_per_s=rate, checkpoint_s=60.0, restart_s=300.0, interval_s=1800.0)
    assert float(found.mean_s) == pytest.approx(runs.mean(), abs=4 * runs.std() / np.sqrt(runs.size))
    assert float(found.variance_s2) == pytest.approx(runs.var(), rel=0.1)


rates = st.floats(1e-8, 1e-4)
costs = st.floats(1.0, 600.0)


@given(rates, costs, costs)
def test_the_best_interval_is_no_worse_than_its_neighbours(
    rate: float, checkpoint: float, restart: float
) -> None:
    best = float(best_interval_s(checkpoint, rate))

    def mean(interval: float) -> float:
        found = wall_time(
            1e7, rate_per_s=rate, checkpoint_s=checkpoint, restart_s=restart, interval_s=min(interval, 1e7)
        )
        return float(found.mean_s)

    if best < 1e7:
        assert mean(best) <= min(mean(best * 0.8), mean(best * 1.25)) * (1 + 1e-6)


@given(st.floats(1e-9, 1e-7), costs)
def test_young_and_daly_agree_when_failures_are_rare(rate: float, checkpoint: float) -> None:
    young = float(young_interval_s(checkpoint, rate))
    assert young == pytest.approx(np.sqrt(2 * checkpoint / rate))
    assert float(daly_interval_s(checkpoint, rate)) == pytest.approx(young, rel=0.02)
    assert float(best_interval_s(checkpoint, rate)) == pytest.approx(young, rel=0.02)


@given(st.integers(1, 100_000), st.floats(1e3, 1e6), st.integers(1, 16))
def test_failures_grow_with_the_machine(k: int, hours: float, per_node: int) -> None:
    few = failure_rate_per_s(k, mtbf_per_accelerator_s=hours * HOUR, accelerators_per_node=per_node)
    more = failure_rate_per_s(2 * k, mtbf_per_accelerator_s=hours * HOUR, accelerators_per_node=per_node)
    assert float(more) == pytest.approx(2 * float(few))
    spot = failure_rate_per_s(
        k,
        mtbf_per_accelerator_s=hours * HOUR,
        accelerators_per_node=per_node,
        preemption_per_node_s=0.1 / HOUR,
    )
    assert float(spot) > float(few)


@given(rates, costs, costs, st.floats(60.0, 1e5))
def test_failures_never_shorten_a_run(
    rate: float, checkpoint: float, restart: float, interval: float
) -> None:
    work = 1e6
    calm = wall_time(work, rate_per_s=0.0, checkpoint_s=checkpoint, restart_s=restart, interval_s=interval)
    rough = wall_time(work, rate_per_s=rate, checkpoint_s=checkpoint, restart_s=restart, interval_s=interval)
    assert float(rough.mean_s) >= float(calm.mean_s) >= work
    assert float(rough.untouched) < 1.0


@given(st.floats(1e-9, 1e-5), st.integers(0, 5))
def test_a_spare_more_never_waits_longer(rate: float, spares: int) -> None:
    now, more = (float(spare_wait_s(rate, repair_s=4 * HOUR, spares=s)) for s in (spares, spares + 1))
    assert more <= now * (1 + 1e-9)
