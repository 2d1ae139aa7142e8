"""A synchronous step waits for the slowest of K workers: the expected maximum of K step times.

With F the distribution of one worker's time and Q its quantile function, the maximum of K independent workers is
``Q(V^(1/K))`` for V uniform, so with ``V = exp(-e^t)``

.. math:: E[\\max_K] = \\int_{-\\infty}^{\\infty} Q(\\exp(-e^t / K)) \\, e^{t - e^t} dt.          (1)

The integrand is analytic and decays doubly exponentially to the right: the trapezoidal rule on a fixed grid is
exact to about ten digits for every K from 1 to 10^7 and beyond, at once.

Families are given by their mean and their *spread*, the standard deviation over the mean of one worker's step.

References: David, Nagaraja, *Order Statistics* (2003), ch. 4; Takahasi, Mori, Publ. RIMS 9 (1974) 721 (the
quadrature); Dean, Barroso, CACM 56 (2013) 74 (why it matters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Quantile = Callable[[Array, Array], Array]

FAMILIES: Final = ("normal", "lognormal", "gamma", "weibull", "gumbel", "pareto", "exponential")

#: Tail index of the Pareto-tailed family when none is given: finite variance, heavy maximum.
PARETO_TAIL: Final = 3.0


def expected_max_factor(k: ArrayLike, spread: ArrayLike) -> Array:
    """Mean of the slowest of `k` lognormal workers over the mean of one; closed approximation for the step model.

    With ``sigma^2 = ln(1 + spread^2)`` and m, v the mean and variance of the maximum of k standard normals,
    ``E = exp(sigma m + sigma^2 (v - 1)/2)`` (second cumulant of the maximum); m and v are rational in ``u = ln k``.
    Within 0.11 % for spread <= 0.3 and 0.25 % for spread <= 0.5, k from 1 to 10^7; exactly 1 at k = 1. Smooth and
    increasing in both arguments. Costs one log, two square roots and one exp per element.

    Parameters
    ----------
    k : number of workers, 1 or more.
    spread : standard deviation over mean of one worker's step.

    Returns
    -------
    A plain number, 1 or more.

    >>> expected_max_factor([1, 8, 1024], 0.02).round(4).tolist()
    [1.0, 1.0287, 1.067]
    """
    m, v = _normal_maximum(k)
    variance = np.log1p(np.square(np.asarray(spread, float)))
    return np.asarray(np.exp(np.sqrt(variance) * m + 0.5 * variance * (v - 1.0)))


def _normal_maximum(k: ArrayLike) -> tuple[Array, Array]:
    """Mean (to 0.2 %) and variance (to 1 %) of the maximum of `k` standard normals, rational fits in ln k."""
    u = np.log(np.maximum(np.asarray(k, float), 1.0))
    mean = u / np.sqrt((1.2307 + u * (0.88186 + u * 0.218194)) / (1.0 + 0.421399 * u))
    variance = (1.0 + 0.3329 * u) / (1.0 + u * (0.8615 + u * 0.4102))
    return np.asarray(mean), np.asarray(variance)


def expected_max(
    k: ArrayLike, family: str, mean: float = 1.0, spread: float = 0.02, *, tail: float = PARETO_TAIL
) -> Array:
    """Expected time of the slowest of `k` workers by equation (1), in the unit of `mean`.

    `family` is one of `FAMILIES`; `tail` is the tail index (> 2) of the Pareto-tailed family, a minimum plus a
    Lomax excess. The closed forms are ``mean + beta ln k`` (Gumbel), ``mean - s + s H_k`` (shifted exponential with
    s = spread * mean) and ``x0 + c (Gamma(k+1) Gamma(1-1/a) / Gamma(k+1-1/a) - 1)`` (Pareto-tailed).

    Parameters
    ----------
    k : number of workers, 1 or more.
    family : one of `FAMILIES`.
    mean : of one worker's step, in any unit of time.
    spread : standard deviation over mean of one worker's step.
    tail : tail index of the Pareto-tailed family, above 2.

    Returns
    -------
    In the unit of `mean`.

    >>> expected_max([1, 2], "normal", mean=10.0, spread=0.1).round(6).tolist()    # 10 + 1/sqrt(pi)
    [10.0, 10.56419]
    >>> expected_max([1, 4], "exponential", mean=1.0, spread=1.0).round(6).tolist()    # H_4 = 25/12
    [1.0, 2.083333]
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; one of {', '.join(FAMILIES)}")
    ks = np.maximum(np.asarray(k, float), 1.0)
    if spread == 0.0:
        return np.full_like(ks, mean)
    closed = _closed_form(ks, family, spread, tail)
    if closed is not None:
        return mean * closed
    return mean * _quadrature(ks, _quantile(family, spread))


def _closed_form(k: Array, family: str, spread: float, tail: float) -> Array | None:
    from scipy.special import digamma, gammaln

    if family == "gumbel":
        return np.asarray(1.0 + spread * np.sqrt(6.0) / np.pi * np.log(k))
    if family == "exponential":
        return np.asarray(1.0 + spread * (digamma(k + 1.0) + np.euler_gamma - 1.0))
    if family == "pareto":
        if tail <= 2.0:
            raise ValueError(f"the tail index must exceed 2 for a finite spread, not {tail}")
        scale = spread * (tail - 1.0) * np.sqrt((tail - 2.0) / tail)
        ratio = np.exp(gammaln(k + 1.0) + gammaln(1.0 - 1.0 / tail) - gammaln(k + 1.0 - 1.0 / tail))
        return np.asarray(1.0 + scale * (ratio - 1.0 - 1.0 / (tail - 1.0)))
    return None


def _quantile(family: str, spread: float) -> Quantile:
    """Quantile of a unit-mean family from (cumulative, survival): each tail is read from its precise side."""
    from scipy import special

    def normal_score(cdf: Array, sf: Array) -> Array:
        return np.where(cdf < 0.5, special.ndtri(cdf), -special.ndtri(sf))

    if family == "normal":
        return lambda cdf, sf: 1.0 + spread * normal_score(cdf, sf)
    if family == "lognormal":
        sigma = float(np.sqrt(np.log1p(spread * spread)))
        return lambda cdf, sf: np.exp(sigma * normal_score(cdf, sf) - 0.5 * sigma * sigma)
    if family == "gamma":
        shape = 1.0 / spread**2
        return lambda cdf, sf: (
            np.where(cdf < 0.5, special.gammaincinv(shape, cdf), special.gammainccinv(shape, sf)) / shape
        )
    shape = weibull_shape(spread)
    scale = 1.0 / float(special.gamma(1.0 + 1.0 / shape))
    return lambda cdf, sf: (
        scale * np.where(cdf < 0.5, -np.log1p(-np.minimum(cdf, 0.5)), -np.log(sf)) ** (1.0 / shape)
    )


def weibull_shape(spread: float) -> float:
    """Shape of the Weibull distribution whose standard deviation is `spread` times its mean.

    Parameters
    ----------
    spread : standard deviation over mean of one worker's step.

    Returns
    -------
    The shape parameter, a plain number.

    >>> round(weibull_shape(1.0), 9)
    1.0
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln

    def excess(log_shape: float) -> float:
        c = float(np.exp(-log_shape))
        return float(gammaln(1.0 + 2.0 * c) - 2.0 * gammaln(1.0 + c) - np.log1p(spread * spread))

    return float(np.exp(brentq(excess, -3.0, 12.0, xtol=1e-13)))


_GRID: Final = np.arange(-60.0, 4.0, 0.0625)
_WEIGHT: Final = 0.0625 * np.exp(_GRID - np.exp(_GRID))


def _quadrature(k: Array, quantile: Quantile) -> Array:
    hazard = np.exp(_GRID) / k[..., None]
    cdf, sf = np.exp(-hazard), -np.expm1(-hazard)
    tiny = np.finfo(float).tiny
    values = quantile(np.maximum(cdf, tiny), np.maximum(sf, tiny))
    return np.asarray((values * _WEIGHT).sum(axis=-1))


def expected_max_empirical(k: ArrayLike, samples: ArrayLike) -> Array:
    """Expected maximum of `k` draws from the empirical distribution of `samples`; exact.

    ``E = sum_i x_(i) [(i/N)^k - ((i-1)/N)^k]``. It never exceeds the largest sample: beyond k of about N the tail
    has to come from a fitted family (see `perfmodel.physics.straggler_fit`).

    Parameters
    ----------
    k : number of workers.
    samples : measured step times, in any unit.

    Returns
    -------
    In the unit of the samples.

    >>> expected_max_empirical([1, 2], [1.0, 3.0]).tolist()
    [2.0, 2.5]
    """
    x = np.sort(np.asarray(samples, float).ravel())
    ks = np.asarray(k, float)
    ladder = np.linspace(0.0, 1.0, x.size + 1) ** ks[..., None]
    return np.asarray((np.diff(ladder, axis=-1) * x).sum(axis=-1))


def expected_max_with_slow_devices(
    k: ArrayLike,
    jitter: float,
    *,
    device_spread: float = 0.0,
    slow_fraction: float = 0.0,
    slowdown: float = 1.0,
) -> Array:
    """Step-time factor with persistent differences between devices and lognormal jitter of each step.

    A device's time is ``a b``: `a` lognormal of spread `device_spread`, and `slowdown` times that for a share
    `slow_fraction` of devices; `b` the step's jitter. The product of the lognormals is one lognormal F, the slow
    devices make a mixture, and ``E = integral of 1 - [(1-f) F(x) + f F(x/c)]^K dx``, relative to a healthy device's
    mean. MegaScale (arXiv:2402.15627) found 0.5 % of machines persistently slower.

    Parameters
    ----------
    k : number of workers.
    jitter : relative spread of a device's step.
    device_spread : relative spread between devices.
    slow_fraction : share f of slow devices.
    slowdown : their time c over a healthy one's.

    Returns
    -------
    A plain number.

    >>> expected_max_with_slow_devices([1, 10_000], 0.01, slow_fraction=0.005, slowdown=1.1).round(3).tolist()
    [1.001, 1.125]
    """
    from scipy.special import log_ndtr

    ks = np.maximum(np.asarray(k, float), 1.0)
    variance = np.log1p(jitter**2) + np.log1p(device_spread**2)
    sigma = max(float(np.sqrt(variance)), 1e-6)
    edges = np.log([min(slowdown, 1.0), max(slowdown, 1.0)]) - 0.5 * sigma * sigma
    x = np.exp(np.linspace(edges[0] - 9.0 * sigma, edges[1] + 9.0 * sigma, 4001))
    healthy = log_ndtr((np.log(x) + 0.5 * sigma * sigma) / sigma)
    slow = log_ndtr((np.log(x / slowdown) + 0.5 * sigma * sigma) / sigma)
    with np.errstate(divide="ignore"):
        weights = np.log([1.0 - slow_fraction, slow_fraction])
    log_cdf = np.logaddexp(weights[0] + healthy, weights[1] + slow)
    survival = -np.expm1(ks[..., None] * np.minimum(log_cdf, 0.0))
    return np.asarray(x[0] + 0.5 * ((survival[..., 1:] + survival[..., :-1]) * np.diff(x)).sum(axis=-1))


def variable_length_factor(k: ArrayLike, spread: ArrayLike, per_worker: ArrayLike) -> Array:
    """Cost of variable-length samples dealt at random, `per_worker` of them to each of `k` workers.

    The sum of b lengths of relative spread s has spread ``s / sqrt(b)``; its maximum as in `expected_max_factor`.

    Parameters
    ----------
    k : number of workers.
    spread : standard deviation over mean of a sample's work.
    per_worker : samples of a worker in a step.

    Returns
    -------
    A plain number, 1 or more.

    >>> bool(variable_length_factor(64, 0.8, 100) < variable_length_factor(64, 0.8, 4))
    True
    """
    return expected_max_factor(k, np.asarray(spread, float) / np.sqrt(np.asarray(per_worker, float)))
