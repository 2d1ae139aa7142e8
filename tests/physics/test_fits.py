"""Fits recover what made the data, give honest standard errors, and refuse to choose when they must."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.physics.fits import (
    STRONG_LAWS,
    LawFit,
    _effective_points,
    _same_law,
    basis,
    choose_law,
    fit_amdahl,
    fit_usl,
)
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


def test_a_score_is_that_of_the_textbook_for_runs_without_repeats():
    """AICc = n ln(SS/n) + 2p + 2p(p+1)/(n - p - 1), the noise one of the p; weights are those of Akaike."""
    k = K[:7]
    time_s = (0.1 + 0.9 / k) * (1 + 0.01 * np.array([1, -2, 0.5, 1.5, -1, 2, -1.5]))
    found = choose_law(k, time_s)
    assert found.effective_points == 7.0
    for fit in found.fits:
        model = sum(fit.seconds[term] * basis(k, term) for term in fit.terms)
        squares = float((((model - time_s) / time_s) ** 2).sum())
        p = len(fit.terms) + 1
        assert fit.rms_relative == pytest.approx(np.sqrt(squares / 7), rel=1e-6)
        assert fit.aicc == pytest.approx(
            7 * np.log(squares / 7) + 2 * p + 2 * p * (p + 1) / (7 - p - 1), rel=1e-6
        )
    best = found.fits[0]
    likelihood = np.exp([-0.5 * (fit.aicc - best.aicc) for fit in found.fits])
    assert [fit.weight for fit in found.fits] == pytest.approx((likelihood / likelihood.sum()).tolist())
    assert sum(fit.weight for fit in found.fits) == pytest.approx(1.0)
    assert [fit.delta for fit in found.fits] == pytest.approx([fit.aicc - best.aicc for fit in found.fits])
    assert best.delta == 0.0


def test_standard_errors_are_those_of_weighted_least_squares():
    k = K[:6]
    time_s = (0.2 + 0.8 / k) * (1 + 0.02 * np.array([1, -1, 1, -1, 1, -1]))
    fit = next(fit for fit in choose_law(k, time_s).fits if fit.law == "amdahl")
    columns = np.stack([basis(k, term) for term in fit.terms], axis=1) / time_s[:, None]
    solved, (squares,), *_ = np.linalg.lstsq(columns, np.ones(6), rcond=None)
    errors = np.sqrt(np.diag(squares / 4 * np.linalg.inv(columns.T @ columns)))
    assert list(fit.seconds.values()) == pytest.approx(solved.tolist())
    assert list(fit.stderr_s.values()) == pytest.approx(errors.tolist())


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_repeats_count_as_far_as_their_misfit_is_their_own(shift):
    """Ten runs at each K: all of them where only noise is left, hardly more than the K where these err together."""
    k = K[:6]
    curve = (0.1 + 0.9 / k) * (1 + shift * np.array([1, -1, 1, -1, 1, -1.0]))
    found = choose_law(k, curve, std_s=0.01 * curve, repeats=np.full(6, 10))
    if shift:
        assert found.effective_points < 10
    else:
        assert found.effective_points == pytest.approx(60.0)


def test_the_effective_points_are_those_of_their_equation():
    """Two laws over four K with three runs each: rho from the one that misfits less for a coefficient."""
    active = np.array([True])
    solved = {
        "one": (np.ones(1), active, 0.03, np.ones((4, 1))),
        "two": (np.ones(2), np.array([True, True]), 0.01, np.ones((4, 2))),
    }
    within, runs, points = 0.004, 12.0, 4
    between, inside = min(0.03 / 3, 0.01 / 2), within / 8
    rho = (between - inside) / (between + 2 * inside)
    assert _effective_points(solved, within, runs, points) == pytest.approx(12 / (1 + 2 * rho))
    assert _effective_points(solved, 10.0, runs, points) == 12.0
    assert _effective_points(solved, 0.0, runs, points) == 4.0
    assert (
        _effective_points(solved, within, 4.0, points) == _effective_points({}, within, runs, points) == 4.0
    )


def test_a_law_with_a_coefficient_of_zero_is_the_smaller_one():
    def law(**seconds: float) -> LawFit:
        return LawFit("x", tuple(seconds), seconds, {}, 0.0, 0.0, 0.0, 0.0, "strong")

    assert _same_law(law(serial=1.0, parallel=2.0), law(serial=3.0, parallel=1.0, log2=0.0))
    assert not _same_law(law(serial=1.0, parallel=2.0), law(serial=3.0, parallel=1.0, log2=0.1))


def test_amdahl_counts_the_baseline_as_no_point():
    """At K0 the equation holds whatever the fraction is: freedom is that of the other points."""
    k, speedup = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.8, 3.1])
    x, y = 1 - 1 / k[1:], 1 / speedup[1:] - 1 / k[1:]
    raw = (x @ y) / (x @ x)
    fit = fit_amdahl(k, speedup)
    assert fit.serial_fraction == pytest.approx(raw)
    assert fit.stderr == pytest.approx(np.sqrt(((y - raw * x) ** 2).sum() / 1 / (x @ x)))
    assert np.isnan(fit_amdahl(k[:2], speedup[:2]).stderr)


def test_usl_errors_follow_from_those_of_its_columns():
    """Sigma and kappa are ratios of fitted seconds: their errors by finite differences of the same ratios."""
    k = K[:6]
    speedup = usl_speedup(k, 0.05, 0.002) * (1 + 0.01 * np.array([1, -1, 1, 1, -1, -1]))
    fit = fit_usl(k, speedup)
    columns = np.stack([1 / k, np.ones(6), k - 1], axis=1) * speedup[:, None]
    c, (squares,), *_ = np.linalg.lstsq(columns, np.ones(6), rcond=None)
    covariance = squares / 3 * np.linalg.inv(columns.T @ columns)

    def ratios(c):
        return np.array([c[1], c[2]]) / (c[0] + c[1])

    assert [fit.sigma, fit.kappa] == pytest.approx(ratios(c).tolist())
    step = 1e-6
    slopes = np.stack([(ratios(c + step * e) - ratios(c - step * e)) / (2 * step) for e in np.eye(3)], axis=1)
    errors = np.sqrt(np.diag(slopes @ covariance @ slopes.T))
    assert [fit.sigma_stderr, fit.kappa_stderr] == pytest.approx(errors.tolist(), rel=1e-4)
