"""Failures against a Monte Carlo of the process, and against published runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from perfmodel.decide.goodput import Reliability, run, slowdown
from perfmodel.physics import failures

Floats = npt.NDArray[np.float64]

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def simulate(
    rng: np.random.Generator, runs: int, segments: int, segment_s: float, restart_s: float, rate: float
) -> Floats:
    """Wall times of `runs` runs, failure by failure: an independent telling of the same process."""
    wall = np.zeros(runs)
    for _ in range(segments):
        need = np.full(runs, segment_s)
        open_ = np.ones(runs, dtype=bool)
        while open_.any():
            gap = rng.exponential(1.0 / rate, runs)
            done = gap >= need
            wall += np.where(open_, np.where(done, need, gap), 0.0)
            open_ &= ~done
            need = np.full(runs, segment_s + restart_s)
    return wall


@pytest.mark.parametrize(
    ("mtbf_s", "interval_s", "restart_s"),
    [(5_000.0, 900.0, 300.0), (2_000.0, 600.0, 600.0), (40_000.0, 3600.0, 300.0)],
)
def test_wall_time_matches_monte_carlo(mtbf_s: float, interval_s: float, restart_s: float) -> None:
    runs, segments, pause = 6000, 20, 60.0
    sample = simulate(np.random.default_rng(1), runs, segments, interval_s + pause, restart_s, 1.0 / mtbf_s)
    w = failures.wall_time(
        segments * interval_s,
        rate_per_s=1.0 / mtbf_s,
        checkpoint_s=pause,
        restart_s=restart_s,
        interval_s=interval_s,
    )
    error = sample.std(ddof=1) / np.sqrt(runs)
    assert abs(sample.mean() - float(w.mean_s)) < 4 * error
    assert float(np.sqrt(w.variance_s2)) == pytest.approx(sample.std(ddof=1), rel=0.05)
    inside = (sample >= w.quantile(0.05)) & (sample <= w.quantile(0.95))
    assert 0.86 < inside.mean() < 0.96
    np.testing.assert_allclose(w.quantile([0.5, 0.95]), np.quantile(sample, [0.5, 0.95]), rtol=0.03)


def test_llama3_published_run_is_consistent() -> None:
    """54 days on 16384 accelerators, 419 unexpected interruptions, effective training time above 90 %.

    The mean time between failures comes from the same figure, so only the effective time is a test. The
    checkpoint stalls for the time that 5 TB take at the published 2 TB/s; a restart takes ten minutes.
    """
    mtbf = 54 * DAY_S * 16384 / 419
    assert mtbf / HOUR_S == pytest.approx(50_000, rel=0.02)
    published = Reliability(mtbf, checkpoint_s=3.0, restart_s=600.0)
    g = run([16384], [0.9 * 54 * DAY_S], published)
    assert g.goodput[0] > 0.90
    # It is a test: hourly checkpoints, or a slow file system, would not have reached it.
    assert (
        run(
            [16384],
            [0.9 * 54 * DAY_S],
            Reliability(mtbf, checkpoint_s=3.0, restart_s=600.0, interval_s=HOUR_S),
        ).goodput[0]
        < 0.85
    )
    assert (
        run([16384], [0.9 * 54 * DAY_S], Reliability(mtbf, checkpoint_s=120.0, restart_s=600.0)).goodput[0]
        < 0.85
    )


def test_fleet_study_projections() -> None:
    """6.50 failures per 1000 node-days: 1.8 h between failures at 16384 and 0.23 h at 131072 accelerators."""
    fleet = Reliability(mtbf_per_node_s=1000 * DAY_S / 6.50)
    hours = 1.0 / fleet.rate_per_s([16384, 131072]) / HOUR_S
    np.testing.assert_allclose(hours, [1.8, 0.225], rtol=0.01)


def test_losses_sum_and_no_failures_lose_nothing() -> None:
    r = Reliability(50_000 * HOUR_S, checkpoint_s=30.0)
    g = run([8, 1024, 16384], [30 * DAY_S] * 3, r)
    np.testing.assert_allclose(g.work_s + g.checkpoint_s + g.rework_s + g.restart_s, g.wall_s, rtol=1e-12)
    assert (np.diff(g.goodput) < 0).all()
    assert (g.wall_s_low < g.wall_s).all()
    assert (g.wall_s < g.wall_s_high).all()
    calm = run([8], [1000.0], Reliability())
    assert (calm.wall_s[0], calm.wall_s_low[0], calm.wall_s_high[0]) == (1000.0, 1000.0, 1000.0)


def test_a_run_that_cannot_finish_takes_for_ever() -> None:
    hopeless = Reliability(HOUR_S, accelerators_per_node=1, checkpoint_s=600.0, restart_s=600.0)
    g = run([100_000], [DAY_S], hopeless)
    assert np.isinf(g.wall_s[0])
    assert g.goodput[0] == 0.0


def test_young_and_daly_are_near_the_exact_interval() -> None:
    rate = np.array([1e-7, 1e-6, 1e-5, 1e-4])
    exact = failures.best_interval_s(60.0, rate)
    np.testing.assert_allclose(failures.daly_interval_s(60.0, rate), exact, rtol=1e-4)
    np.testing.assert_allclose(failures.young_interval_s(60.0, rate), exact, rtol=0.06)
    # Between the series and Lambert's W nothing jumps.
    around = failures.best_interval_s(1.0, np.array([0.999e-6, 1.001e-6]))
    assert around[0] / around[1] == pytest.approx(np.sqrt(1.001 / 0.999), rel=1e-6)


def test_hot_spares_shorten_the_wait_as_simulated() -> None:
    rate, repair = 1 / (2 * HOUR_S), 6 * HOUR_S
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1 / rate, 40_000)
    at = np.cumsum(gaps)
    back = at + rng.exponential(repair, at.size)
    for spares in (0, 2, 5):
        waits = []
        for i in range(200, at.size, 4):
            window = back[max(i - 200, 0) : i + 1]
            away = np.sort(window[window > at[i]])
            # All but `spares` of those away must be back.
            waits.append(away[away.size - spares - 1] - at[i] if away.size > spares else 0.0)
        predicted = float(failures.spare_wait_s(rate, repair_s=repair, spares=spares))
        assert predicted == pytest.approx(np.mean(waits), rel=0.06)


def test_spares_raise_goodput() -> None:
    base = {"mtbf_per_node_s": 500 * DAY_S, "checkpoint_s": 20.0, "repair_s": 2 * DAY_S}
    slow = [slowdown([4096], Reliability(**base, spares=n))[0] for n in (0, 4, 12)]  # type: ignore[arg-type]
    assert slow[0] > slow[1] > slow[2]


def test_draws_of_the_step_widen_the_band() -> None:
    rng = np.random.default_rng(0)
    work = 30 * DAY_S * np.exp(rng.normal(0, 0.1, (500, 1)))
    r = Reliability(50_000 * HOUR_S, checkpoint_s=30.0)
    wide = run([1024], work, r)
    narrow = run([1024], [30 * DAY_S], r)
    assert wide.wall_s_high[0] - wide.wall_s_low[0] > 2 * (narrow.wall_s_high[0] - narrow.wall_s_low[0])
    again = run([1024], work, r)
    assert again.wall_s_high[0] == wide.wall_s_high[0]
