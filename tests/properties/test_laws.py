"""Invariants of the scaling laws and of the knee rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.decide import knee, metrics
from perfmodel.physics import laws
from perfmodel.physics.fits import fit_amdahl, fit_usl

fractions = st.floats(0.0, 1.0)
some = st.floats(1e-6, 0.9)
small = st.floats(0.0, 0.1)
workers = st.integers(1, 10**6)
levels = st.floats(0.01, 0.99)


@given(fractions, small)
def test_one_worker_has_speedup_one(s, kappa):
    assert laws.amdahl_speedup(1, s) == pytest.approx(1.0)
    assert laws.gustafson_speedup(1, s) == pytest.approx(1.0)
    assert laws.usl_speedup(1, s, kappa) == pytest.approx(1.0)


@given(workers, fractions)
def test_speedup_is_between_one_and_its_bounds(k, s):
    speedup = float(laws.amdahl_speedup(k, s))
    assert 1.0 - 1e-9 <= speedup <= k * (1 + 1e-9)
    assert speedup <= float(laws.amdahl_ceiling(s)) * (1 + 1e-9)
    assert speedup <= float(laws.gustafson_speedup(k, s)) * (1 + 1e-9)


@given(workers, workers, fractions, small)
def test_efficiency_never_grows_with_k(k1, k2, s, kappa):
    low, high = sorted((k1, k2))
    for law in (
        lambda k: laws.amdahl_efficiency(k, s),
        lambda k: laws.gustafson_efficiency(k, s),
        lambda k: laws.usl_efficiency(k, s, kappa),
    ):
        assert law(high) <= law(low) * (1 + 1e-12)


@given(workers, fractions, fractions)
def test_less_serial_work_is_never_slower(k, s1, s2):
    low, high = sorted((s1, s2))
    assert laws.amdahl_time(k, low) <= laws.amdahl_time(k, high) * (1 + 1e-12)


@given(levels, some)
def test_k_at_efficiency_inverts_the_law(level, s):
    k = laws.amdahl_k_at_efficiency(level, s)
    assert laws.amdahl_efficiency(k, s) == pytest.approx(level, rel=1e-9)


@given(levels, some, small)
def test_usl_inverse(level, sigma, kappa):
    k = laws.usl_k_at_efficiency(level, sigma, kappa)
    assert laws.usl_efficiency(k, sigma, kappa) == pytest.approx(level, rel=1e-9)


@given(levels, some)
def test_smallest_k_below_is_a_boundary(level, s):
    below = float(laws.smallest_integer_above(laws.amdahl_k_at_efficiency(level, s)))
    assert laws.amdahl_efficiency(below, s) < level
    if below > 2:
        assert laws.amdahl_efficiency(below - 1, s) >= level * (1 - 1e-8)


@given(st.integers(2, 10**6), levels)
def test_serial_fraction_that_keeps_efficiency_keeps_it(k, level):
    s = laws.amdahl_serial_for_efficiency(k, level)
    assert laws.amdahl_efficiency(k, s) >= level * (1 - 1e-9)


@given(
    workers,
    workers,
    st.sampled_from(["linear", "log2", "log2p1", "ring"]),
    st.floats(0, 1),
    st.floats(0, 1e9),
)
def test_communication_is_never_negative_and_grows(k1, k2, term, alpha, size):
    low, high = sorted((k1, k2))
    times = laws.communication_time(
        [low, high], term, alpha_s=alpha, message_bytes=size, bandwidth_bytes_per_s=1e9
    )
    assert 0.0 <= times[0] <= times[1] * (1 + 1e-12)


@given(workers, st.sampled_from(["linear", "log2", "ring"]), st.floats(1e6, 1e12), st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(k, term, bandwidth, factor):
    slow, fast = (
        laws.communication_time(k, term, alpha_s=1e-6, message_bytes=1e9, bandwidth_bytes_per_s=b)
        for b in (bandwidth, bandwidth * factor)
    )
    assert fast <= slow * (1 + 1e-12)


@given(st.lists(workers, min_size=1, max_size=20), fractions)
def test_elementwise(ks, s):
    """No element depends on the shape or the neighbours it came with."""
    together = laws.amdahl_speedup(ks, s)
    assert together.tolist() == [float(laws.amdahl_speedup(k, s)) for k in ks]


@given(some, st.integers(1, 64), st.floats(1e-3, 1e6))
def test_amdahl_fit_recovers_its_law_at_any_baseline_and_scale(s, k0, scale):
    k = k0 * 2.0 ** np.arange(6)
    time = scale * laws.amdahl_time(k / k0, s)
    fit = fit_amdahl(k, k0 * time[0] / time, baseline_k=k0)
    assert fit.serial_fraction == pytest.approx(s, rel=1e-6)
    assert fit.ceiling == pytest.approx(k0 / s, rel=1e-6)


@given(st.floats(0.001, 0.3), st.floats(1e-5, 1e-2))
def test_usl_fit_recovers_its_law(sigma, kappa):
    k = 2.0 ** np.arange(8)
    fit = fit_usl(k, laws.usl_speedup(k, sigma, kappa))
    assert fit.sigma == pytest.approx(sigma, rel=1e-5)
    assert fit.kappa == pytest.approx(kappa, rel=1e-5)


curves = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12)


@given(curves, levels)
def test_threshold_knee_is_what_its_definition_says(efficiency, level):
    k = 2.0 ** np.arange(len(efficiency))
    found = knee.threshold_knee(k, efficiency, threshold=level)
    holding = [n for n, e in zip(k, efficiency, strict=True) if e >= level - 1e-12]
    assert int(found.last) == (int(np.log2(holding[-1])) if holding else -1)
    assert bool(found.reached) == (not holding or holding[-1] != k[-1])


@given(curves, st.floats(0.5, 0.99), st.floats(0.0, 0.4))
def test_a_stricter_threshold_never_allows_more(efficiency, level, step):
    k = 2.0 ** np.arange(len(efficiency))
    strict = knee.threshold_knee(k, efficiency, threshold=level)
    loose = knee.threshold_knee(k, efficiency, threshold=level - step)
    assert strict.last <= loose.last


@given(curves, st.floats(1e-3, 1e3))
def test_price_scales_cost_and_moves_no_choice(efficiency, factor):
    k = 2.0 ** np.arange(len(efficiency))
    time = 100.0 / (k * np.array(efficiency))
    one = metrics.cost(k, time, price_usd_per_s=0.01)
    other = metrics.cost(k, time, price_usd_per_s=0.01 * factor)
    assert other == pytest.approx(one * factor)
    speedup = metrics.speedup(k, time)
    assert np.isclose(one[metrics.best_index(other)], one.min())
    before, after = knee.marginal_knee(k, speedup, one), knee.marginal_knee(k, speedup, other)
    # A tie in cost may round either way; the speedup decides the rest.
    assert before.last == after.last or np.isclose(np.diff(one), 0.0, atol=1e-9 * one.max()).any()


@given(curves)
def test_curvature_does_not_depend_on_the_scale_of_the_speedup(efficiency):
    k = 2.0 ** np.arange(len(efficiency))
    speedup = k * np.array(efficiency)
    one, other = knee.curvature_knee(k, speedup), knee.curvature_knee(k, speedup * 8.0)
    assert one.last == other.last
    assert one.reached == other.reached
