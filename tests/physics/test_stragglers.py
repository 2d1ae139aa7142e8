"""The expected maximum: exact values, levels, slow devices, and fits of measured jitter."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.straggler_fit import fit_jitter
from perfmodel.physics.stragglers import (
    FAMILIES,
    expected_max,
    expected_max_empirical,
    expected_max_factor,
    expected_max_with_slow_devices,
    variable_length_factor,
    weibull_shape,
)

# Means of the maximum of n standard normals (Harter, Biometrika 48 (1961) 151).
HARTER = {2: 0.56419, 5: 1.16296, 10: 1.53875, 100: 2.50759}


def samples_of(family: str, shape: tuple[int, ...], spread: float, rng: np.random.Generator) -> np.ndarray:
    """Unit-mean samples of a family, drawn without the code under test."""
    if family == "normal":
        return 1 + spread * rng.standard_normal(shape)
    if family == "lognormal":
        sigma = np.sqrt(np.log(1 + spread**2))
        return np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)
    if family == "gamma":
        return rng.gamma(1 / spread**2, spread**2, shape)
    if family == "gumbel":
        beta = spread * np.sqrt(6) / np.pi
        return rng.gumbel(1 - 0.5772156649 * beta, beta, shape)
    if family == "exponential":
        return 1 - spread + spread * rng.standard_exponential(shape)
    draws = rng.pareto(3.0, shape) if family == "pareto" else rng.weibull(weibull_shape(spread), shape)
    reference = rng.pareto(3.0, 10**6) if family == "pareto" else rng.weibull(weibull_shape(spread), 10**6)
    if family == "pareto":  # Lomax with tail 3: mean 1/2, variance 3/4
        return 1 + spread * (draws - 0.5) / np.sqrt(0.75)
    return draws / reference.mean()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("k", [2, 16, 256])
def test_expected_maximum_matches_monte_carlo(family: str, k: int) -> None:
    rng = np.random.default_rng(k)
    maxima = samples_of(family, (4000, k), 0.2, rng).max(axis=1)
    error = maxima.std() / np.sqrt(maxima.size)
    assert abs(float(expected_max(k, family, 1.0, 0.2)) - maxima.mean()) < 4 * error + 2e-3 * (
        family == "weibull"
    )


def test_normal_maxima_to_the_printed_digit() -> None:
    for n, value in HARTER.items():
        assert float(expected_max(n, "normal", 0.0 + 1.0, 1.0)) - 1.0 == pytest.approx(value, abs=6e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_alone_nobody_waits_and_a_million_wait_longest(family: str) -> None:
    k = np.array([1, 2, 10, 1e3, 1e6])
    factors = expected_max(k, family, 3.0, 0.1)
    assert factors[0] == pytest.approx(3.0, rel=1e-9)
    assert (np.diff(factors) > 0).all()
    assert np.isfinite(factors).all()
    assert (expected_max(k, family, 3.0, 0.0) == 3.0).all()


def test_heavier_tails_wait_longer() -> None:
    light, heavy = (float(expected_max(1e4, f, 1.0, 0.1)) for f in ("normal", "pareto"))
    assert heavy > light
    assert expected_max(1e4, "pareto", 1.0, 0.1, tail=2.2) > expected_max(1e4, "pareto", 1.0, 0.1, tail=6.0)
    with pytest.raises(ValueError, match="tail index"):
        expected_max(2, "pareto", 1.0, 0.1, tail=2.0)
    with pytest.raises(ValueError, match="lognormal"):
        expected_max(2, "cauchy")


def test_the_fast_form_is_within_one_percent() -> None:
    k = np.unique(np.round(np.geomspace(1, 1e7, 60)))
    for spread, limit in ((0.02, 2e-4), (0.1, 5e-4), (0.3, 2e-3), (0.5, 5e-3), (0.7, 1e-2)):
        exact = expected_max(k, "lognormal", 1.0, spread)
        assert np.abs(expected_max_factor(k, spread) / exact - 1).max() < limit


def test_empirical_maximum_is_exact_and_bounded() -> None:
    x = np.array([1.0, 2.0, 5.0])
    pairs = np.maximum.outer(x, x).mean()
    assert float(expected_max_empirical(2, x)) == pytest.approx(pairs)
    assert float(expected_max_empirical(1e6, x)) == pytest.approx(5.0)


def test_slow_devices_match_monte_carlo_and_their_limits() -> None:
    rng = np.random.default_rng(5)
    slow = rng.random((4000, 64)) < 0.02
    sigma = np.sqrt(np.log(1 + 0.03**2) + np.log(1 + 0.02**2))
    times = np.exp(sigma * rng.standard_normal((4000, 64)) - sigma**2 / 2) * np.where(slow, 1.2, 1.0)
    ours = expected_max_with_slow_devices(64, 0.03, device_spread=0.02, slow_fraction=0.02, slowdown=1.2)
    assert float(ours) == pytest.approx(times.max(axis=1).mean(), rel=3e-3)
    plain = expected_max_with_slow_devices([1, 100], 0.05)
    assert plain == pytest.approx(expected_max([1, 100], "lognormal", 1.0, 0.05), rel=1e-4)


def test_static_imbalance() -> None:
    assert float(variable_length_factor(64, 1.0, 10_000)) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("family", ["lognormal", "gumbel", "pareto"])
def test_the_fit_finds_the_family_that_made_the_samples(family: str) -> None:
    rng = np.random.default_rng(11)
    times = 0.3 * samples_of(family, (1, 4000), 0.15, rng)
    found = fit_jitter(times, resamples=19)
    exact = expected_max(1000, family, 1.0, 0.15)
    assert float(found.factor(1000)) == pytest.approx(float(exact), rel=0.12)
    assert found.best.spread == pytest.approx(0.15, rel=0.15)
    if family != "pareto":
        assert found.tail_is_trusted


def test_a_wrong_tail_is_not_trusted() -> None:
    """Rare pauses of ten times the step: no family holds both the body and the pauses."""
    rng = np.random.default_rng(12)
    times = rng.normal(1.0, 0.02, 3000)
    times[::150] *= 10.0
    found = fit_jitter(times, resamples=19)
    assert not found.tail_is_trusted


def test_a_slow_rank_is_told_from_jitter() -> None:
    rng = np.random.default_rng(13)
    times = rng.lognormal(0.0, 0.03, (16, 300))
    times[5] *= 1.25
    found = fit_jitter(times, resamples=9)
    assert found.slowest_rank == 5
    assert found.slowest_factor == pytest.approx(1.25, abs=0.02)
    assert found.best.spread == pytest.approx(0.03, rel=0.1)
    assert fit_jitter(times, resamples=9) == found


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        fit_jitter([1.0, 2.0, 3.0])
