"""The expected maximum against an independent integral, and the quick form within the error that it states."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import special, stats
from scipy.integrate import quad

from perfmodel.physics.stragglers import FAMILIES, expected_max, expected_max_factor, weibull_shape


def law(family: str, spread: float):
    """The unit-mean distribution from scipy, parametrised here on its own."""
    if family == "normal":
        return stats.norm(1.0, spread)
    if family == "lognormal":
        sigma = np.sqrt(np.log1p(spread**2))
        return stats.lognorm(sigma, scale=np.exp(-0.5 * sigma**2))
    if family == "gamma":
        return stats.gamma(spread**-2, scale=spread**2)
    if family == "weibull":
        shape = weibull_shape(spread)
        return stats.weibull_min(shape, scale=1.0 / special.gamma(1.0 + 1.0 / shape))
    if family == "gumbel":
        scale = spread * np.sqrt(6.0) / np.pi
        return stats.gumbel_r(1.0 - np.euler_gamma * scale, scale)
    if family == "exponential":
        return stats.expon(1.0 - spread, spread)
    scale = spread * 2.0 / np.sqrt(3.0)
    return stats.lomax(3.0, loc=1.0 - scale / 2.0, scale=scale)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("k", [1, 3, 1000])
def test_the_quadrature_is_the_integral_of_the_survival_function(family: str, spread: float, k: int) -> None:
    """E[X] = a + integral over x > a of 1 - F(x)^K, for a below all that happens."""
    f = law(family, spread)
    assert f.std() == pytest.approx(spread, rel=1e-9)
    low = float(f.ppf(1e-14 ** (1.0 / k)))
    edges = [low, *f.ppf(np.array([0.5, 0.9, 0.999]) ** (1.0 / k)), f.isf(1e-8 / k), f.isf(1e-13 / k)]
    pieces = [quad(lambda x: -np.expm1(k * f.logcdf(x)), a, b, epsabs=1e-12)[0] for a, b in pairwise(edges)]
    assert float(expected_max(k, family, 1.0, spread)) == pytest.approx(low + sum(pieces), abs=1e-7)


@pytest.mark.parametrize(("spread", "stated"), [(0.01, 1.1e-3), (0.1, 1.1e-3), (0.3, 1.1e-3), (0.5, 2.5e-3)])
def test_the_quick_form_keeps_its_stated_error(spread: float, stated: float) -> None:
    k = np.unique(np.round(np.geomspace(1, 1e7, 200)))
    exact = expected_max(k, "lognormal", 1.0, spread)
    assert np.abs(expected_max_factor(k, spread) / exact - 1.0).max() <= stated
    assert (np.diff(expected_max_factor(k, spread)) > 0).all()


def test_spread_is_standard_deviation_over_mean_of_one_worker() -> None:
    """E[max of 2] - mean = E|X - Y|/2, and for a normal law that is spread / sqrt(pi)."""
    spreads = np.array([0.01, 0.1, 0.5])
    gaps = np.array([float(expected_max(2, "normal", 1.0, s)) - 1.0 for s in spreads])
    assert gaps == pytest.approx(spreads / np.sqrt(np.pi), rel=1e-9)
