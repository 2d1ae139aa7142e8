"""Any declared variation: against closed forms, against simulation, and at its limits."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.jitter import equivalent_spread
from perfmodel.physics.stragglers import FAMILIES, expected_max, expected_max_factor
from perfmodel.physics.variation import Component, Variation, expected_factor, spread_of

K = np.array([1.0, 2.0, 16.0, 1024.0, 1e5])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixture_of_one_kind_is_that_kind(family: str) -> None:
    """The trapezoidal rule over the survival function against the quadrature over the quantiles."""
    parts = (Component(0.3, 1.0, family, 0.1), Component(0.7, 1.0, family, 0.1))
    found = expected_factor(K, Variation("mixture", parts=parts))
    np.testing.assert_allclose(found, expected_max(K, family, 1.0, 0.1), rtol=2e-5)


def test_a_mixture_is_what_drawing_from_it_gives() -> None:
    parts = (Component(0.95, 1.0, "lognormal", 0.05), Component(0.05, 1.8, "gamma", 0.2))
    rng = np.random.default_rng(3)
    slow = rng.random((20_000, 16)) < 0.05
    sigma = np.sqrt(np.log1p(0.05**2))
    usual = rng.lognormal(-0.5 * sigma**2, sigma, slow.shape)
    draws = np.where(slow, 1.8 * rng.gamma(25.0, 1 / 25.0, slow.shape), usual)
    mixture = Variation("mixture", parts=parts)
    assert float(expected_factor(16, mixture)) == pytest.approx(
        draws.max(axis=1).mean() / draws.mean(), rel=0.01
    )
    assert spread_of(mixture) == pytest.approx(draws.std() / draws.mean(), rel=0.02)


@pytest.mark.parametrize("constant", [0.0, 0.4, 0.9])
def test_the_constant_part_waits_for_nobody(constant: float) -> None:
    """A shifted exponential of spread s is 1 + s (H_K - 1), whatever of it is called constant."""
    found = expected_factor([1, 4], Variation("exponential", 0.1, constant=constant))
    assert found.tolist() == pytest.approx([1.0, 1.0 + 0.1 * (25 / 12 - 1)])


def test_a_heavier_tail_waits_longer() -> None:
    heavy, light = (expected_factor(1024, Variation("pareto", 0.05, tail=a)) for a in (2.2, 8.0))
    assert heavy > light > 1.0


def test_samples_never_wait_longer_than_the_longest() -> None:
    found = expected_factor([1, 4, 1e6], Variation("empirical", samples=(1.0, 1.0, 1.0, 2.0)))
    assert found[0] == pytest.approx(1.0)
    assert np.all(np.diff(found) > 0)
    assert found[-1] == pytest.approx(2.0 / 1.25)


def test_what_the_step_model_gets_costs_the_same() -> None:
    slow = Variation("mixture", parts=(Component(0.99, 1.0, "lognormal", 0.02), Component(0.01, 1.5)))
    k = np.array([8.0, 64.0, 512.0])
    np.testing.assert_allclose(
        expected_max_factor(k, equivalent_spread(k, slow)), expected_factor(k, slow), rtol=1e-9
    )
