"""What holds for every collective, algorithm, size and group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.calibrate.sweep_fit import fit_sweep, knee, through_two_points
from perfmodel.physics import collectives as c

CASES = [(op, name) for op, costs in c.ALGORITHMS.items() for name in costs]
sizes = st.floats(0, 1e11)
ranks = st.integers(1, 5000)
alphas = st.floats(1e-7, 1e-3)
betas = st.floats(1e-13, 1e-8)


@pytest.mark.parametrize(("op", "name"), CASES)
@settings(max_examples=40, deadline=None)
@given(size=sizes, more=sizes, n=ranks, alpha=alphas, beta=betas)
def test_more_bytes_or_slower_links_never_help(
    op: str, name: str, size: float, more: float, n: int, alpha: float, beta: float
) -> None:
    cost = c.ALGORITHMS[op][name]
    least = float(cost(size, n, alpha, beta))
    slack = 1 + 1e-12
    assert float(cost(size + more, n, alpha, beta)) * slack >= least
    assert float(cost(size, n, alpha, beta * 2)) * slack >= least
    assert float(cost(size, n, alpha * 2, beta)) * slack >= least


@pytest.mark.parametrize(("op", "name"), CASES)
@settings(max_examples=40, deadline=None)
@given(size=sizes, n=ranks, alpha=alphas, beta=betas)
def test_lower_bounds_hold_and_one_rank_is_free(
    op: str, name: str, size: float, n: int, alpha: float, beta: float
) -> None:
    cost = c.ALGORITHMS[op][name]
    assert float(cost(size, 1, alpha, beta)) == 0.0
    assert float(cost(size, n, alpha, beta)) * (1 + 1e-9) >= float(c.lower_bound(op, size, n, alpha, beta))


@pytest.mark.parametrize("op", list(c.ALGORITHMS))
@given(n=ranks, more=st.integers(0, 5000), alpha=alphas)
@settings(max_examples=40, deadline=None)
def test_latency_grows_with_the_group(op: str, n: int, more: int, alpha: float) -> None:
    bound = c.lower_bound(op, 0.0, [n, n + more], alpha, 0.0)
    assert bound[1] >= bound[0]
    ring = next(name for name in c.ALGORITHMS[op] if name in ("ring", "pairwise", "binomial"))
    times = c.ALGORITHMS[op][ring](0.0, [n, n + more], alpha, 0.0)
    assert times[1] >= times[0]


@settings(max_examples=60, deadline=None)
@given(
    p=st.floats(0.4, 1.5),
    alpha=st.floats(1e-6, 1e-3),
    rate=st.floats(1e9, 1e12),
)
def test_two_points_give_back_the_curve_through_them(p: float, alpha: float, rate: float) -> None:
    size = np.array([1.0, alpha * rate * 1e3])
    time = knee(alpha, size / rate, p)
    found_alpha, slope = through_two_points((size[0], size[1]), (float(time[0]), float(time[1])), p)
    again = knee(found_alpha, slope * size, p)
    assert np.allclose(again, time, rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    alpha=st.floats(3e-6, 3e-4),
    rate=st.floats(1e10, 5e11),
    p=st.floats(0.55, 0.9),
    spike=st.integers(0, 19),
)
def test_a_sweep_is_recovered_in_spite_of_one_spike(alpha: float, rate: float, p: float, spike: int) -> None:
    size = np.logspace(3.5, 10, 20)
    time = knee(alpha, 1.75 * size / rate, p)
    bad = time.copy()
    bad[spike] *= 5
    found = fit_sweep("all_reduce", size, bad, 8, 1)
    others = np.arange(20) != spike
    assert np.median(np.abs(found.time_s(size)[others] / time[others] - 1)) < 0.05
