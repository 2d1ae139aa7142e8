"""The three knee rules on one curve, on many draws, and with holes."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.decide import knee
from perfmodel.physics.laws import amdahl_efficiency, amdahl_speedup, usl_speedup

K = 2.0 ** np.arange(10)


def test_threshold_is_the_largest_k_that_holds():
    found = knee.threshold_knee(K, amdahl_efficiency(K, 0.05), threshold=0.7)
    assert (float(found.k), bool(found.reached)) == (8.0, True)


def test_threshold_looks_past_a_dip():
    found = knee.threshold_knee([1, 2, 4, 8], [1.0, 0.69, 0.75, 0.5])
    assert float(found.k) == 4.0


def test_exactly_at_the_threshold_holds():
    found = knee.threshold_knee([1, 2, 4], [1.0, 0.7, 0.3])
    assert float(found.k) == 2.0


def test_not_reached_is_nan_and_says_how_far_it_looked():
    found = knee.threshold_knee(K, np.full(K.size, 0.95))
    assert np.isnan(found.k)
    assert not found.reached
    assert int(found.last) == K.size - 1


def test_no_k_holds():
    found = knee.threshold_knee([2, 4], [0.5, 0.4])
    assert int(found.last) == -1
    assert bool(found.reached)
    assert np.isnan(found.k)


def test_curvature_is_the_point_furthest_above_the_chord():
    """The definition by hand: the largest difference of the two normalised axes."""
    s = amdahl_speedup(K, 0.02)
    by_hand = (s - s.min()) / (s.max() - s.min()) - (K - K.min()) / (K.max() - K.min())
    assert float(knee.curvature_knee(K, s).k) == K[np.argmax(by_hand)]


def test_curvature_finds_a_sharp_corner_exactly():
    k = np.arange(1.0, 41.0)
    s = np.minimum(k, 10 + 0.05 * (k - 10))
    assert float(knee.curvature_knee(k, s).k) == 10.0


@pytest.mark.parametrize("curve", [K, 0.8 * K, K**1.02], ids=["ideal", "straight", "superlinear"])
def test_curvature_sees_no_knee_in_a_line(curve):
    assert not knee.curvature_knee(K, curve).reached


def test_curvature_needs_three_points():
    assert not knee.curvature_knee([1, 2], [1.0, 1.2]).reached


def test_marginal_stops_where_speed_turns_back():
    s = usl_speedup(K, 0.02, 0.0005)
    cost = K / s
    assert float(knee.marginal_knee(K, s, cost).k) == K[np.argmax(s)]


def test_marginal_floor():
    s, cost = [1.0, 1.9, 3.4, 3.9], [1.0, 1.1, 1.3, 3.0]
    assert not knee.marginal_knee([1, 2, 4, 8], s, cost).reached
    assert float(knee.marginal_knee([1, 2, 4, 8], s, cost, floor=1.0).k) == 4.0


def test_marginal_takes_a_step_that_is_faster_and_cheaper():
    assert not knee.marginal_knee([1, 2], [1.0, 2.2], [1.0, 0.9], floor=100.0).reached


def test_holes_are_skipped():
    e = np.array([1.0, np.nan, 0.8, 0.6])
    assert float(knee.threshold_knee([1, 2, 4, 8], e).k) == 4.0
    s, cost = np.array([1.0, np.nan, 3.0, 2.9]), np.array([1.0, np.nan, 2.0, 4.0])
    assert float(knee.marginal_knee([1, 2, 4, 8], s, cost).k) == 4.0
    curve = amdahl_speedup(K, 0.05)
    curve[3] = np.nan
    assert knee.curvature_knee(K, curve).reached


def test_all_infeasible():
    nothing = np.full(4, np.nan)
    for found in (
        knee.threshold_knee([1, 2, 4, 8], nothing),
        knee.curvature_knee([1, 2, 4, 8], nothing),
        knee.marginal_knee([1, 2, 4, 8], nothing, nothing),
    ):
        assert int(found.last) == -1
        assert np.isnan(found.k)


def test_draws_give_the_same_as_one_by_one():
    fractions = np.array([0.001, 0.01, 0.05, 0.2])
    s = amdahl_speedup(K, fractions[:, None])
    cost = K / s
    for rule, single in (
        (knee.threshold_knee(K, s / K), lambda i: knee.threshold_knee(K, s[i] / K)),
        (knee.curvature_knee(K, s), lambda i: knee.curvature_knee(K, s[i])),
        (
            knee.marginal_knee(K, s, cost, floor=0.5),
            lambda i: knee.marginal_knee(K, s[i], cost[i], floor=0.5),
        ),
    ):
        for i in range(fractions.size):
            assert np.array_equal(rule.k[i], single(i).k, equal_nan=True)
            assert rule.last[i] == single(i).last


def test_interval_over_draws_counts_what_lies_beyond_the_range():
    fractions = np.linspace(0.0001, 0.2, 101)
    found = knee.threshold_knee(K, amdahl_efficiency(K, fractions[:, None]))
    low, high = found.interval(0.90)
    assert low < found.median < high
    none = knee.threshold_knee(K, np.ones((5, K.size)))
    assert none.interval() == (np.inf, np.inf)
    assert none.median == np.inf
