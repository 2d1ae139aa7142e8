"""Families fitted to step times: their distance from the samples against scipy's own, and what they find again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfmodel.physics.straggler_fit import _draw, _frozen, fit_family
from perfmodel.physics.stragglers import FAMILIES

RNG = np.random.default_rng(5)
SAMPLES = 1.0 + 0.05 * RNG.standard_normal(300)
SKEWED = 0.9 + RNG.exponential(0.1, 300)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("samples", [SAMPLES, SKEWED], ids=["even", "skewed"])
def test_the_distance_is_that_of_kolmogorov_and_smirnov(family: str, samples: np.ndarray) -> None:
    frozen, _ = _frozen(family, samples)
    found = fit_family(family, samples)
    assert found.ks == pytest.approx(stats.ks_1samp(samples, frozen.cdf).statistic, rel=1e-9)
    parameters = 3 if family == "pareto" else 2
    assert found.aic == pytest.approx(2 * parameters - 2 * float(np.sum(np.log(frozen.pdf(samples)))))


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_of_a_fit_have_its_mean_and_spread(family: str) -> None:
    best = fit_family(family, SKEWED if family in ("exponential", "pareto") else SAMPLES)
    drawn = _draw(best, 400_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(best.mean, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(best.spread, rel=0.05)
