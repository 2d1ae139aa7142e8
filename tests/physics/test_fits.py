"""Fits recover what made the data, give honest standard errors, and refuse to choose when they must."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.fits import STRONG_LAWS, LawFit, _same_law, basis, choose_law, fit_amdahl, fit_usl
from perfmodel.physics.laws import amdahl_speedup, usl_speedup

K = 2.0 ** np.arange(8)


def noisy(curve, seed, repeats=5, noise=0.01):
    rng = np.random.default_rng(seed)
    runs = curve[:, None] * (1 + noise * rng.standard_normal((curve.size, repeats)))
    return runs.mean(1), {"std_s": runs.std(1, ddof=1), "repeats": np.full(curve.size, repeats)}


def test_amdahl_is_least_squares_through_the_origin():
    k = np.array([1, 2, 4, 8, 16, 32])
    speedup = 3600 / np.array([3600, 1880, 1010, 560, 340, 250])
    x, y = 1 - 1 / k, 1 / speedup - 1 / k
    slope, residual, *_ = np.linalg.lstsq(x[:, None], y, rcond=None)
    fit = fit_amdahl(k, speedup)
    assert fit.serial_fraction == pytest.approx(slope[0], rel=1e-12)
    assert fit.stderr == pytest.approx(np.sqrt(residual[0] / 4 / (x @ x)), rel=1e-9)


def test_amdahl_from_a_larger_baseline():
    """With K0 = 8 the fraction is of T(8); ceiling and half-efficiency K keep S(8) = 8."""
    k = np.array([8, 16, 32, 64])
    relative = amdahl_speedup(k / 8, 0.1)
    fit = fit_amdahl(k, 8 * relative, baseline_k=8)
    assert fit.serial_fraction == pytest.approx(0.1, rel=1e-9)
    assert fit.ceiling == pytest.approx(80)
    assert fit.k_at_efficiency_050 == pytest.approx(88)


def test_superlinear_points_hold_the_fraction_at_zero():
    fit = fit_amdahl([1, 2, 4], [1.0, 2.2, 4.6])
    assert fit.serial_fraction == 0.0
    assert fit.at_bound
    assert fit.ceiling == np.inf


def test_one_k_gives_nan_not_an_exception():
    assert np.isnan(fit_amdahl([4], [4.0], baseline_k=4).serial_fraction)
    assert np.isnan(fit_usl([1, 2], [1.0, 1.9]).sigma)


def test_usl_standard_errors_cover_the_truth():
    """Over 200 noisy data sets the error in units of its standard error has a spread near one."""
    scores = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        speedup = usl_speedup(K, 0.05, 0.0005) * (1 + 0.01 * rng.standard_normal(K.size))
        fit = fit_usl(K, speedup)
        scores.append((fit.sigma - 0.05) / fit.sigma_stderr)
    assert 0.8 < np.std(scores) < 1.8
    assert abs(np.mean(scores)) < 0.3


TRUTHS = {
    "amdahl": 0.05 + 0.95 / K,
    "linear": 1 / K + 0.002 * (K - 1),
    "log2": 1 / K + 0.02 * np.log2(K),
    "usl": 0.05 + 0.95 / K + 0.002 * (K - 1),
    "amdahl_log2": 0.05 + 0.95 / K + 0.02 * np.log2(K),
    "imbalance": np.where(K > 1, 1.4, 1.0) / K,
}


@pytest.mark.parametrize("law", TRUTHS)
def test_exact_data_choose_their_law(law):
    choice = choose_law(K, TRUTHS[law])
    assert choice.chosen == law
    assert choice[law].time_s(K, 1.0) == pytest.approx(TRUTHS[law], rel=1e-9)


@pytest.mark.parametrize("law", TRUTHS)
def test_noisy_data_never_choose_a_law_without_the_true_terms(law):
    wrong = 0
    for seed in range(20):
        mean, spread = noisy(TRUTHS[law], seed)
        choice = choose_law(K, mean, **spread)
        if choice.chosen is not None and not set(STRONG_LAWS[law]) <= set(STRONG_LAWS[choice.chosen]):
            wrong += 1
    assert wrong == 0


def test_refuses_between_laws_that_fit_alike():
    """Six points of a gentle bend: Amdahl and a tree fit within one unit of AICc."""
    k = np.array([1, 2, 4, 8, 16, 32])
    choice = choose_law(k, [3600, 1880, 1010, 560, 340, 250])
    assert choice.chosen is None
    assert {choice.fits[0].law, *choice.rivals} == {"amdahl", "log2"}


def test_refuses_with_too_few_points_to_test_the_larger_laws():
    choice = choose_law([1, 2, 4, 8], [1.0, 0.55, 0.33, 0.22])
    assert choice.chosen is None
    assert "usl" in choice.untested


def test_one_and_two_points_do_not_break():
    for k in ([4], [1, 2]):
        choice = choose_law(k, 1 / np.array(k, dtype=float))
        assert choice.chosen is None


def test_repeats_count_only_as_far_as_they_are_independent():
    """A wiggle that all repeats of a K share is not evidence thrice over."""
    wiggle = 1 + 0.05 * np.sin(np.arange(8) * 2.1)
    mean = TRUTHS["amdahl"] * wiggle
    many = {"std_s": 1e-6 * mean, "repeats": np.full(8, 50)}
    assert choose_law(K, mean, **many).effective_points == pytest.approx(8, rel=1e-3)
    mean, spread = noisy(TRUTHS["amdahl"], 3)
    assert choose_law(K, mean, **spread).effective_points > 25


def test_weak_regime_has_its_own_laws():
    choice = choose_law(K, 1 + 0.03 * np.log2(K), regime="weak")
    assert choice.chosen == "log2"
    assert choice["log2"].seconds["log2"] == pytest.approx(0.03)


def test_ring_bandwidth_is_a_mixture_of_serial_and_parallel():
    """The reason why timings alone cannot tell a ring's bandwidth from serial work."""
    assert basis(K, "serial") - basis(K, "parallel") == pytest.approx((K - 1) / K)


def test_unknown_term():
    with pytest.raises(ValueError, match="cubic"):
        basis(K, "cubic")


def test_akaike_weights_are_a_share_of_all_laws():
    choice = choose_law(K, noisy(TRUTHS["amdahl"], 1)[0])
    scored = [fit for fit in choice.fits if np.isfinite(fit.aicc)]
    assert sum(fit.weight for fit in scored) == pytest.approx(1.0)
    assert scored[0].delta == 0.0
    for fit in scored[1:]:
        assert fit.weight / scored[0].weight == pytest.approx(np.exp(-0.5 * fit.delta))


def test_a_law_with_a_coefficient_at_zero_is_the_smaller_law():
    def law(**seconds):
        return LawFit("", tuple(seconds), seconds, {}, 0.0, 0.0, 0.0, 0.0, "strong")

    assert _same_law(law(serial=1.0, linear=0.0), law(serial=2.0))
    assert not _same_law(law(serial=1.0, linear=0.1), law(serial=2.0))
    assert not _same_law(law(serial=1.0), law(log2=1.0))
