"""Batches of all that wait: limits, monotony, and a discrete-event simulation of the same server."""

import numpy as np
import pytest
import serving_des as des

from perfmodel.physics.batch_queue import batch_wait


def line(work):
    return 0.010 + 2e-5 * work


def roof(work):
    return np.maximum(0.010, 2e-5 * work)


def test_an_idle_server_takes_one_at_once_and_nothing_is_steady_beyond_full_batches():
    found = batch_wait(line, [1e-9, 30.0, 200.0], work=500.0, most_work=4000.0)
    assert found.mean_s[0] == pytest.approx(0.020, rel=1e-4)
    assert found.saturation_per_s == pytest.approx(8.0 / 0.090)
    assert found.stable.tolist() == [True, True, False]
    assert np.isnan(found.mean_s[2])
    assert np.isnan(found.quantile_s(0.99)[2])


def test_more_load_never_lowers_the_wait_and_batches_grow():
    found = batch_wait(
        line, np.linspace(0.01, 0.97, 25) * 8.0 / 0.090, work=500.0, most_work=4000.0, work_cv=0.5
    )
    for value in (found.mean_s, found.quantile_s(0.5), found.quantile_s(0.99), found.busy, found.batch):
        assert (np.diff(value) >= -1e-3 * value[1:]).all()
    assert (found.quantile_s(0.99) > found.mean_s).all()


def test_what_is_larger_than_a_batch_is_cut():
    found = batch_wait(line, 1e-9, work=10_000.0, most_work=2000.0)
    assert found.mean_s == pytest.approx(5 * 0.050, rel=1e-4)


@pytest.mark.parametrize(
    ("time", "work", "cv", "share"),
    [(line, 500.0, 0.0, 0.5), (line, 500.0, 0.8, 0.7), (roof, 100.0, 0.5, 0.5), (line, 6000.0, 0.5, 0.6)],
)
def test_the_wait_is_that_of_a_simulation(time, work, cv, share):
    rng = np.random.default_rng(4)
    limit = float(batch_wait(time, 1e-9, work=work, most_work=4096.0).saturation_per_s)
    n = 6000
    asked = des.Requests(
        des.arrivals(rng, share * limit, n), des.lengths(rng, work, cv, n), np.ones(n, dtype=np.int64)
    )
    run = des.simulate(des.Replica(lambda d, p, c: float(time(p)), n, 4096), asked).kept(0.1)
    found = batch_wait(time, share * limit, work=work, most_work=4096.0, work_cv=cv)
    assert float(found.mean_s) == pytest.approx(run.ttft_s.mean(), rel=0.12)
    assert float(found.quantile_s(0.99)) == pytest.approx(np.quantile(run.ttft_s, 0.99), rel=0.25)
