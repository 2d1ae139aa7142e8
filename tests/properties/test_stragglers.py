"""Invariants of waiting for the slowest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.physics.stragglers import (
    FAMILIES,
    expected_max,
    expected_max_empirical,
    expected_max_factor,
    expected_max_with_slow_devices,
)

families = st.sampled_from(FAMILIES)
spreads = st.floats(1e-3, 0.8)
counts = st.integers(1, 10**6)


@given(families, spreads, st.floats(0.1, 100.0))
def test_one_worker_takes_its_mean(family: str, spread: float, mean: float) -> None:
    assert float(expected_max(1, family, mean, spread)) == pytest.approx(mean, rel=1e-8)


@given(families, spreads, counts, st.floats(1.0, 10.0))
def test_more_workers_and_more_spread_wait_longer(family: str, spread: float, k: int, factor: float) -> None:
    now = float(expected_max(k, family, 1.0, spread))
    assert float(expected_max(k * factor, family, 1.0, spread)) >= now * (1 - 1e-9)
    assert float(expected_max(k, family, 1.0, min(spread * factor, 0.9))) >= now * (1 - 1e-9)
    assert now >= 1.0 - 1e-9


@given(families, spreads, st.lists(counts, min_size=2, max_size=6))
def test_batch_axis_is_elementwise(family: str, spread: float, ks: list[int]) -> None:
    alone = [float(expected_max(k, family, 1.0, spread)) for k in ks]
    assert expected_max(np.array(ks), family, 1.0, spread) == pytest.approx(alone, rel=1e-13)


@given(st.floats(0.0, 0.5), counts)
def test_the_fast_form_stays_within_one_percent_of_the_exact(spread: float, k: int) -> None:
    exact = float(expected_max(k, "lognormal", 1.0, spread))
    assert float(expected_max_factor(k, spread)) == pytest.approx(exact, rel=0.01)
    assert float(expected_max_factor(1, spread)) == 1.0


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=30), st.integers(1, 1000))
def test_empirical_maximum_lies_between_mean_and_largest(samples: list[float], k: int) -> None:
    found = float(expected_max_empirical(k, samples))
    assert np.mean(samples) * (1 - 1e-9) <= found <= max(samples) * (1 + 1e-9)


@given(st.floats(0.005, 0.2), st.floats(0.0, 0.2), st.floats(1.0, 2.0), st.integers(1, 10_000))
def test_slow_devices_only_add(jitter: float, fraction: float, slowdown: float, k: int) -> None:
    healthy = float(expected_max_with_slow_devices(k, jitter))
    mixed = float(expected_max_with_slow_devices(k, jitter, slow_fraction=fraction, slowdown=slowdown))
    assert healthy * (1 - 1e-3) <= mixed <= healthy * slowdown * (1 + 1e-3)
