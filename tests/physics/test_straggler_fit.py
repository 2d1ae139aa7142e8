"""Families fitted to step times: their distance from the samples against scipy's own, and what they find again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from perfmodel.physics.straggler_fit import (
    BLOCK,
    FamilyFit,
    _bootstrap_p,
    _draw,
    _frozen,
    _tail_ratios,
    fit_family,
)
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


def of(family: str, mean: float, spread: float, tail: float = 6.0) -> FamilyFit:
    return FamilyFit(family, mean, spread, tail, 0.0, 0.05)


@pytest.mark.parametrize(
    ("family", "quantile"),
    [
        ("normal", lambda q: 2.0 * (1.0 + 0.2 * stats.norm.ppf(q))),
        ("lognormal", lambda q: 2.0 / np.sqrt(1.04) * np.exp(np.sqrt(np.log(1.04)) * stats.norm.ppf(q))),
        ("gamma", lambda q: 2.0 * 0.04 * stats.gamma(25.0).ppf(q)),
        ("exponential", lambda q: 2.0 * (0.8 - 0.2 * np.log(1.0 - q))),
        ("gumbel", lambda q: 2.0 - 0.4 * np.sqrt(6) / np.pi * (np.euler_gamma + np.log(-np.log(q)))),
        # Lomax of index 6: mean c/5 and deviation c/5 sqrt(6/4) above its least value.
        (
            "pareto",
            lambda q: 2.0 - 0.4 * np.sqrt(4 / 6) + 0.4 * np.sqrt(4 / 6) * 5 * ((1.0 - q) ** (-1 / 6) - 1.0),
        ),
    ],
)
def test_draws_have_the_quantiles_of_their_family(family: str, quantile) -> None:
    drawn = _draw(of(family, 2.0, 0.2), 400_000, np.random.default_rng(2))
    for q in (0.05, 0.5, 0.95):
        assert np.quantile(drawn, q) == pytest.approx(float(quantile(q)), rel=0.005), q


def test_the_share_of_worse_fits_counts_the_samples_themselves() -> None:
    """A fit that all drawn samples beat has one chance in so many and one; one that none beats is certain."""
    rng = np.random.default_rng(3)
    bad, good = replace(of("normal", 1.0, 0.1), ks=1.0), replace(of("normal", 1.0, 0.1), ks=0.0)
    assert _bootstrap_p(50, bad, rng, 19) == pytest.approx(1 / 20)
    assert _bootstrap_p(50, good, rng, 19) == 1.0


def test_tails_are_measured_over_fitted() -> None:
    """Exponential excesses have no memory: twice as long a tail has twice the mean excess."""
    samples = 0.8 + 0.2 * np.random.default_rng(4).exponential(1.0, 200_000)
    excess, block = _tail_ratios(samples, of("exponential", 1.0, 0.1), np.random.default_rng(5))
    assert excess == pytest.approx(2.0, rel=0.03)
    mean_maximum = sum(1.0 / i for i in range(1, BLOCK + 1))
    assert block == pytest.approx((0.8 + 0.2 * mean_maximum) / (0.9 + 0.1 * mean_maximum), rel=0.01)
    few = _tail_ratios(samples[: BLOCK - 1], of("exponential", 1.0, 0.1), np.random.default_rng(5))
    assert np.isnan(few[1])
