"""Fits of scaling laws to timings, with standard errors, and a choice between laws that may be refused.

All laws here are linear in their coefficients: `T(K) = sum_j c_j phi_j(K)`, c_j >= 0 seconds. They are fitted
to relative errors, because timings are noisy in proportion to their size. The choice uses the corrected
Akaike criterion (Hurvich and Tsai 1989, Biometrika 76:2) with the usual reading that a difference below 2
leaves both laws with substantial support (Burnham and Anderson 2002, section 2.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.laws import (
    Array,
    Regime,
    amdahl_ceiling,
    amdahl_k_at_efficiency,
    usl_k_at_efficiency,
    usl_peak_k,
)

# Laws and the terms they add up. In the weak regime serial and parallel time are both constant, so that
# timings alone hold no serial fraction and `flat` takes the place of ideal and Amdahl.
STRONG_LAWS: dict[str, tuple[str, ...]] = {
    "ideal": ("parallel",),
    "amdahl": ("parallel", "serial"),
    "linear": ("parallel", "linear"),
    "log2": ("parallel", "log2"),
    "imbalance": ("parallel", "imbalance"),
    "usl": ("parallel", "serial", "linear"),
    "amdahl_log2": ("parallel", "serial", "log2"),
    "amdahl_imbalance": ("parallel", "serial", "imbalance"),
}
WEAK_LAWS: dict[str, tuple[str, ...]] = {
    "flat": ("parallel",),
    "linear": ("parallel", "linear"),
    "log2": ("parallel", "log2"),
    "imbalance": ("parallel", "imbalance"),
}
SUBSTANTIAL_SUPPORT = 2.0  # difference in AICc under which two laws are not told apart
_SMALLEST_RMS = 1e-9  # timings carry no more digits than this; keeps the logarithm of a perfect fit finite


@dataclass(frozen=True, slots=True)
class AmdahlFit:
    """Serial fraction of the baseline run with its standard error, and what follows from it."""

    serial_fraction: float
    stderr: float  # NaN with fewer than two points beside the baseline
    ceiling: float
    k_at_efficiency_050: float
    at_bound: bool  # the unbounded estimate was negative: the points are superlinear on the whole


@dataclass(frozen=True, slots=True)
class LawFit:
    """One law fitted to the means at each K. `rho` below is the share of the misfit common to one K's repeats."""

    law: str
    terms: tuple[str, ...]
    seconds: dict[str, float]  # coefficient of each term at r = K/K0, seconds
    stderr_s: dict[str, float]  # NaN where the coefficient is held at zero or there is no freedom left
    rms_relative: float  # root mean square relative error over all runs
    aicc: float  # NaN when there are too few points to score this law
    delta: float  # aicc above the best; NaN when not scored
    weight: float  # Akaike weight; zero when not scored
    regime: Regime

    def terms_s(self, k: ArrayLike, baseline_k: float) -> dict[str, Array]:
        """Seconds of each term at K; they add up to the fitted T(K)."""
        r = np.asarray(k, dtype=np.float64) / baseline_k
        return {term: self.seconds[term] * basis(r, term, self.regime) for term in self.terms}

    def time_s(self, k: ArrayLike, baseline_k: float) -> Array:
        """The fitted T(K) in seconds."""
        parts = self.terms_s(k, baseline_k)
        return np.asarray(sum(parts.values()), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Choice:
    """Every law that was tried, best first, and the one that the data single out, if any."""

    fits: tuple[LawFit, ...]
    chosen: str | None
    rivals: tuple[str, ...]  # laws that the data do not tell apart from the best
    untested: tuple[str, ...]  # laws with too many coefficients for this many points
    effective_points: float

    def __getitem__(self, law: str) -> LawFit:
        return next(fit for fit in self.fits if fit.law == law)


@dataclass(frozen=True, slots=True)
class UslFit:
    """Contention and coherency with standard errors, and the K of the largest speedup."""

    sigma: float
    sigma_stderr: float
    kappa: float
    kappa_stderr: float
    k_peak: float
    k_at_efficiency_050: float


def fit_amdahl(k: ArrayLike, speedup: ArrayLike, *, baseline_k: float = 1.0) -> AmdahlFit:
    """Least squares through the origin on `(1/S - 1/p) = s (1 - 1/p)` (1), p = K/K0, S relative to S(K0) = 1.

    With K0 = 1 this is Amdahl's serial fraction; otherwise s is the share of T(K0) that does not shrink.
    The ceiling and the K at half efficiency are in the units of the input, that is with S(K0) = K0.

    Parameters
    ----------
    k : numbers of workers.
    speedup : measured, with S(K0) = K0.
    baseline_k : K0.

    Returns
    -------
    Serial fraction with its standard error, ceiling and K at half efficiency.

    >>> fit = fit_amdahl([1, 2, 4, 8], [1.0, 2 / 1.05, 4 / 1.15, 8 / 1.35])
    >>> round(fit.serial_fraction, 12), round(fit.ceiling, 9)
    (0.05, 20.0)
    """
    p = np.asarray(k, dtype=np.float64) / baseline_k
    s_relative = np.asarray(speedup, dtype=np.float64) / baseline_k
    x, y = 1.0 - 1.0 / p, 1.0 / s_relative - 1.0 / p
    informative = x > 0.0
    xx = float(np.sum(x[informative] ** 2))
    if xx == 0.0:
        return AmdahlFit(np.nan, np.nan, np.nan, np.nan, False)
    raw = float(np.sum(x[informative] * y[informative])) / xx
    freedom = int(informative.sum()) - 1
    residual = float(np.sum((y[informative] - raw * x[informative]) ** 2))
    stderr = float(np.sqrt(residual / freedom / xx)) if freedom > 0 else np.nan
    s = min(max(raw, 0.0), 1.0)
    return AmdahlFit(
        s,
        stderr,
        float(amdahl_ceiling(s)) * baseline_k,
        float(amdahl_k_at_efficiency(0.5, s)) * baseline_k,
        raw < 0.0,
    )


def basis(r: ArrayLike, term: str, regime: Regime = "strong") -> Array:
    """phi_j at r = K/K0: what one second of a term at the baseline's scale becomes at K.

    A ring all-reduce adds no basis of its own: its latency is `linear`, and its bandwidth, (r - 1)/r, is a
    mixture of `serial` and `parallel` that timings alone cannot separate from serial work.

    Parameters
    ----------
    r : K/K0.
    term : a term of `LAWS`.
    regime : strong or weak.

    Returns
    -------
    A plain number for each r.

    >>> basis([1, 2, 4], "parallel").tolist(), basis([1, 2, 4], "log2").tolist()
    ([1.0, 0.5, 0.25], [0.0, 1.0, 2.0])
    """
    r = np.asarray(r, dtype=np.float64)
    if term == "log2":
        return np.asarray(np.log2(r))
    if term == "parallel":
        return 1.0 / r if regime == "strong" else np.ones_like(r)
    if term == "serial":
        return np.ones_like(r)
    if term == "linear":
        return r - 1.0
    if term == "imbalance":
        # The slowest of several shares: absent on the baseline, then a constant part of the parallel time.
        return np.where(r > 1.0, basis(r, "parallel", regime), 0.0)
    raise ValueError(f"unknown term {term!r}")


def _non_negative(columns: Array, target: Array) -> tuple[Array, NDArray[np.bool_], float]:
    """Least squares with coefficients >= 0, exact: every support of at most three columns is tried."""
    n = columns.shape[1]
    best = (np.zeros(n), np.zeros(n, dtype=np.bool_), float(target @ target))
    for size in range(1, n + 1):
        for support in combinations(range(n), size):
            chosen = list(support)
            found, *_ = np.linalg.lstsq(columns[:, chosen], target, rcond=None)
            if np.any(found < 0.0):
                continue
            residual = target - columns[:, chosen] @ found
            squares = float(residual @ residual)
            if squares < best[2]:
                coefficients, active = np.zeros(n), np.zeros(n, dtype=np.bool_)
                coefficients[chosen], active[chosen] = found, True
                best = (coefficients, active, squares)
    return best


def fit_usl(k: ArrayLike, speedup: ArrayLike, *, baseline_k: float = 1.0) -> UslFit:
    """The Universal Scalability Law on `1/S = c (1/r + sigma (1 - 1/r) + kappa (r - 1))`, relative errors.

    The baseline is a measurement like the others: its own scale c is fitted, not pinned.

    Parameters
    ----------
    k : numbers of workers.
    speedup : measured, with S(K0) = K0.
    baseline_k : K0.

    Returns
    -------
    Contention and coherency with standard errors; NaN below three numbers of workers.

    >>> from perfmodel.physics.laws import usl_speedup
    >>> k = np.array([1, 2, 4, 8, 16, 32])
    >>> fit = fit_usl(k, usl_speedup(k, 0.03, 0.0004))
    >>> round(fit.sigma, 9), round(fit.kappa, 9), round(fit.k_peak, 3)
    (0.03, 0.0004, 49.244)
    """
    r = np.asarray(k, dtype=np.float64) / baseline_k
    inverse = baseline_k / np.asarray(speedup, dtype=np.float64)
    if np.unique(r).size < 3:
        return UslFit(*([np.nan] * 6))
    columns = np.stack([basis(r, term) for term in ("parallel", "serial", "linear")], axis=1)
    scaled = columns / inverse[:, np.newaxis]
    c, active, squares = _non_negative(scaled, np.ones_like(r))
    one = c[0] + c[1]
    if one <= 0.0:
        return UslFit(*([np.nan] * 6))
    sigma, kappa = c[1] / one, c[2] / one
    freedom = r.size - int(active.sum())
    errors = np.full(2, np.nan)
    if freedom > 0:
        covariance = _covariance(scaled, active, squares / freedom)
        # Delta method: sigma = c1/(c0 + c1), kappa = c2/(c0 + c1).
        slopes = np.array([[-c[1] / one**2, c[0] / one**2, 0.0], [-c[2] / one**2, -c[2] / one**2, 1.0 / one]])
        errors = np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))
    return UslFit(
        float(sigma),
        float(errors[0]) if active[1] else np.nan,
        float(kappa),
        float(errors[1]) if active[2] else np.nan,
        float(usl_peak_k(sigma, kappa)) * baseline_k,
        float(usl_k_at_efficiency(0.5, sigma, kappa)) * baseline_k,
    )


def _covariance(columns: Array, active: NDArray[np.bool_], variance: float) -> Array:
    """Covariance of the coefficients; zero for those held at the bound."""
    full = np.zeros((active.size, active.size))
    free = columns[:, active]
    full[np.ix_(active, active)] = variance * np.linalg.pinv(free.T @ free)
    return full


def choose_law(
    k: ArrayLike,
    mean_s: ArrayLike,
    *,
    std_s: ArrayLike | None = None,
    repeats: ArrayLike | None = None,
    regime: Regime = "strong",
    baseline_k: float | None = None,
) -> Choice:
    """Fit every law of the regime and choose one, or refuse.

    A law is chosen when it is the best by AICc, no law with other coefficients lies within
    `SUBSTANTIAL_SUPPORT` of it, and no law was left untested for want of points. Repeats of one K count as
    separate evidence only as far as the best fit's misfit is not common to them (intraclass correlation
    rho): `n_eff = N/(1 + (N/m - 1) rho)` (2) for N runs at m different K.

    Parameters
    ----------
    k : number of workers, once each.
    mean_s, std_s : mean and standard deviation of the repeats [s].
    repeats : runs at each K; None: one.
    regime : strong or weak.
    baseline_k : K0, at which each term counts one second; None: the smallest K.

    Returns
    -------
    Every law that was tried, best first, and the one that the data single out, if any.

    >>> k = np.array([1, 2, 4, 8, 16, 32, 64])
    >>> choose_law(k, 0.05 + 0.95 / k).chosen
    'amdahl'
    """
    k = np.asarray(k, dtype=np.float64)
    mean = np.asarray(mean_s, dtype=np.float64)
    n = np.ones_like(k) if repeats is None else np.asarray(repeats, dtype=np.float64)
    std = np.zeros_like(k) if std_s is None else np.nan_to_num(np.asarray(std_s, dtype=np.float64))
    r = k / (float(k.min()) if baseline_k is None else baseline_k)
    within = float(np.sum((n - 1.0) * (std / mean) ** 2))
    runs, points = float(n.sum()), k.size
    laws = {
        law: terms
        for law, terms in (STRONG_LAWS if regime == "strong" else WEAK_LAWS).items()
        if len(terms) < points
    }
    weights = np.sqrt(n) / mean
    solved: dict[str, tuple[Array, NDArray[np.bool_], float, Array]] = {}
    for law, terms in laws.items():
        columns = np.stack([basis(r, term, regime) for term in terms], axis=1) * weights[:, np.newaxis]
        solved[law] = (*_non_negative(columns, mean * weights), columns)
    effective = _effective_points(solved, within, runs, points)
    fits = [
        _law_fit(law, laws[law], solution, within, runs, effective, regime)
        for law, solution in solved.items()
    ]
    fits = _ranked(fits)
    every = STRONG_LAWS if regime == "strong" else WEAK_LAWS
    untested = tuple(law for law in every if law not in {fit.law for fit in fits if np.isfinite(fit.aicc)})
    best = fits[0] if fits and np.isfinite(fits[0].aicc) else None
    rivals = tuple(
        fit.law
        for fit in fits[1:]
        if best is not None and fit.delta < SUBSTANTIAL_SUPPORT and not _same_law(fit, best)
    )
    chosen = best.law if best is not None and not rivals and not untested else None
    return Choice(tuple(fits), chosen, rivals, untested, effective)


def _effective_points(
    solved: dict[str, tuple[Array, NDArray[np.bool_], float, Array]],
    within: float,
    runs: float,
    points: int,
) -> float:
    """Equation (2), with rho from the law that misfits the means least."""
    if runs <= points or not solved:
        return float(points)
    between = min(misfit / (points - c.size) for c, _, misfit, _ in solved.values())
    inside = within / (runs - points)
    per_point = runs / points
    total = between + (per_point - 1.0) * inside
    rho = 0.0 if total == 0.0 else min(max((between - inside) / total, 0.0), 1.0)
    return runs / (1.0 + (per_point - 1.0) * rho)


def _law_fit(
    law: str,
    terms: tuple[str, ...],
    solution: tuple[Array, NDArray[np.bool_], float, Array],
    within: float,
    runs: float,
    effective: float,
    regime: Regime,
) -> LawFit:
    coefficients, active, misfit, columns = solution
    squares = max(misfit + within, runs * _SMALLEST_RMS**2)
    freedom = runs - float(active.sum())
    variance = squares / freedom * runs / effective if freedom > 0 else np.nan
    errors = np.sqrt(np.diag(_covariance(columns, active, variance)))
    parameters = len(terms) + 1  # the noise is estimated too
    room = effective - parameters - 1.0
    aicc = (
        effective * np.log(squares / runs) + 2.0 * parameters + 2.0 * parameters * (parameters + 1.0) / room
        if room > 0.0
        else np.nan
    )
    return LawFit(
        law,
        terms,
        dict(zip(terms, coefficients.tolist(), strict=True)),
        {
            term: float(error) if held else np.nan
            for term, error, held in zip(terms, errors, active, strict=True)
        },
        float(np.sqrt(squares / runs)),
        float(aicc),
        np.nan,
        0.0,
        regime,
    )


def _ranked(fits: list[LawFit]) -> list[LawFit]:
    """Best first, with differences and Akaike weights; laws without a score last, by misfit."""
    scored = sorted((fit for fit in fits if np.isfinite(fit.aicc)), key=lambda fit: fit.aicc)
    rest = sorted((fit for fit in fits if not np.isfinite(fit.aicc)), key=lambda fit: fit.rms_relative)
    if not scored:
        return rest
    deltas = np.array([fit.aicc - scored[0].aicc for fit in scored])
    likelihood = np.exp(-0.5 * deltas)
    shares = likelihood / likelihood.sum()
    return [
        LawFit(
            fit.law,
            fit.terms,
            fit.seconds,
            fit.stderr_s,
            fit.rms_relative,
            fit.aicc,
            float(delta),
            float(share),
            fit.regime,
        )
        for fit, delta, share in zip(scored, deltas, shares, strict=True)
    ] + rest


def _same_law(one: LawFit, other: LawFit) -> bool:
    """A law whose extra coefficients are held at zero is the smaller law under another name."""
    return {term for term, value in one.seconds.items() if value > 0.0} == {
        term for term, value in other.seconds.items() if value > 0.0
    }
