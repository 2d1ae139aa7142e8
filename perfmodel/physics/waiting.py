"""Building blocks of queues: who waits, how long, and quantiles of what is mixed from several kinds of requests.

References: Allen, Probability, Statistics and Queueing Theory (1990), 5.3 (G/G/c); Cooper, Introduction to Queueing
Theory (1981), 5.2 (Erlang C, GI/M/1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def crossing(excess: Callable[[Array], Array], low: Array, high: Array, halvings: int, secants: int) -> Array:
    """Where a rising function of the bracket passes zero: halvings first, then false position (Illinois).

    Parameters
    ----------
    excess : the function, of arrays of the shape of the bracket.
    low, high : ends of the bracket.
    halvings, secants : how many steps of either kind.

    Returns
    -------
    Where it passes zero, to the last bracket.

    >>> crossing(lambda x: x**3 - 2.0, np.zeros(1), np.full(1, 64.0), 6, 8).round(5).tolist()
    [1.25992]
    """
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        below = excess(middle) < 0.0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    at_low, at_high = excess(low), excess(high)
    middle = 0.5 * (low + high)
    before = np.zeros_like(low + at_low)  # the end that moved: -1 the low one, 1 the high one
    for _ in range(secants):
        # Ends that do not bracket the root, as where there is none, are halved.
        gap = at_high - at_low
        good = (at_low < 0.0) & (at_high > 0.0) & np.isfinite(gap)
        middle = np.where(good, high - at_high * (high - low) / np.where(good, gap, 1.0), 0.5 * (low + high))
        value = excess(middle)
        below = value < 0.0
        at_high = np.where(below & (before < 0.0), 0.5 * at_high, at_high)
        at_low = np.where(~below & (before > 0.0), 0.5 * at_low, at_low)
        low, at_low = np.where(below, middle, low), np.where(below, value, at_low)
        high, at_high = np.where(below, high, middle), np.where(below, at_high, value)
        before = np.where(below, -1.0, 1.0)
    return np.asarray(middle)


@dataclass(frozen=True)
class Mixture:
    """A time whose parts, on the last axis, are gamma distributed above `least_s` with these means and variances."""

    weight: Array
    mean_s: Array
    variance_s2: Array
    least_s: Array
    most_s: Array | float = np.inf  # of the whole

    @property
    def overall_mean_s(self) -> Array:
        """Mean [s]."""
        return np.asarray((self.weight * self.mean_s).sum(axis=-1))

    def quantile_s(self, q: float) -> Array:
        """Quantile [s].

        >>> one = np.ones(1)
        >>> round(float(Mixture(one, one, one, 0.0 * one).quantile_s(0.99)), 3)    # exponential: ln 100
        4.605
        """
        from scipy.special import gammainc

        shape, scale = gamma_of(self.mean_s - self.least_s, self.variance_s2)
        deviation = np.sqrt(np.maximum(self.variance_s2, 0.0))
        reach = 4.0 + 6.0 / (1.0 - q) ** 0.25
        low = self.least_s.min(axis=-1)
        high = (self.mean_s + reach * deviation).max(axis=-1)

        def excess(time_s: Array) -> Array:
            beyond = np.maximum(time_s[..., None] - self.least_s, 0.0)
            return np.asarray((self.weight * gammainc(shape, beyond / scale)).sum(axis=-1) - q)

        return np.asarray(np.minimum(crossing(excess, low, high, 16, 4), self.most_s))


def gamma_of(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Shape and scale of the gamma distribution with these moments; bounded so that a constant stays finite.

    Parameters
    ----------
    mean : of the distribution, in any unit.
    variance : in its square.

    Returns
    -------
    Shape (a plain number) and scale (in the unit of the mean).

    >>> [float(x) for x in gamma_of(np.array(2.0), np.array(1.0))]
    [4.0, 0.5]
    """
    mean = np.maximum(mean, 1e-15)
    shape = np.clip(mean**2 / np.maximum(variance, 1e-30), 1e-3, 1e6)
    return np.asarray(shape), np.asarray(mean / shape)


_EDGES: Final = np.array([0, 0.002, 0.01, 0.03, 0.08, 0.2, 0.4, 0.6, 0.8, 0.92, 0.97, 0.99, 0.998, 1.0])
LENGTH_SHARES: Final = np.diff(_EDGES)


def length_nodes(cv: Array) -> Array:
    """Gamma-distributed lengths of mean 1 in the classes of `LENGTH_SHARES`, on a new last axis.

    Parameters
    ----------
    cv : standard deviation over mean.

    Returns
    -------
    Plain numbers, whose mean by `LENGTH_SHARES` is 1.

    >>> nodes = length_nodes(np.array([0.0, 1.0]))
    >>> (nodes @ LENGTH_SHARES).round(9).tolist(), (nodes.max(axis=-1) > 5.0).tolist()
    ([1.0, 1.0], [False, True])
    """
    from scipy.special import gammaincinv

    shape = 1.0 / np.maximum(cv, 1e-3)[..., None] ** 2
    nodes = gammaincinv(shape, 0.5 * (_EDGES[1:] + _EDGES[:-1])) / shape
    return np.asarray(nodes / (nodes @ LENGTH_SHARES)[..., None])


def erlang_c(servers: ArrayLike, offered: ArrayLike) -> Array:
    """Probability that a request finds all `servers` busy, for an `offered` load in servers; 1 when overloaded.

    ``B = pdf / cdf`` of a Poisson number of mean a at c, ``C = B / (1 - rho (1 - B))``; c need not be whole.

    Parameters
    ----------
    servers : c.
    offered : a, arrivals in the time of one service.

    Returns
    -------
    A probability.

    >>> erlang_c([1, 2, 10], [0.5, 1.0, 8.0]).round(4).tolist()
    [0.5, 0.3333, 0.4092]
    """
    from scipy.special import gammaincc, gammaln

    c, a = np.broadcast_arrays(np.asarray(servers, float), np.asarray(offered, float))
    rho = a / c
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.exp(c * np.log(a) - a - gammaln(c + 1.0))
        blocked = np.where(a > 0.0, density / gammaincc(c + 1.0, a), 0.0)
        waiting = blocked / (1.0 - rho * (1.0 - blocked))
    return np.asarray(np.where(rho >= 1.0, 1.0, waiting))


def wait_mean_s(
    rate_per_s: ArrayLike,
    service_s: ArrayLike,
    *,
    service_cv: ArrayLike = 1.0,
    arrival_cv: ArrayLike = 1.0,
    servers: ArrayLike = 1.0,
) -> Array:
    """Mean wait [s] in front of `servers` equal servers; inf when they are saturated.

    ``W = (ca^2 + cs^2)/2 C(c, a) s / (c (1 - rho))`` (Allen-Cunneen); exact for M/M/c and M/G/1.

    Parameters
    ----------
    rate_per_s : arrivals [1/s].
    service_s : s, mean time of a service [s].
    service_cv, arrival_cv : cs and ca, standard deviation over mean of services and of the times between arrivals.
    servers : c.

    Returns
    -------
    Seconds.

    >>> round(float(wait_mean_s(0.5, 1.0)), 9), round(float(wait_mean_s(0.5, 1.0, service_cv=0.0)), 9)
    (1.0, 0.5)
    >>> float(wait_mean_s(2.0, 1.0))
    inf
    """
    rate, service, c = (np.asarray(value, float) for value in (rate_per_s, service_s, servers))
    rho = rate * service / c
    variability = 0.5 * (np.square(np.asarray(arrival_cv, float)) + np.square(np.asarray(service_cv, float)))
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = variability * erlang_c(c, rate * service) * service / (c * (1.0 - rho))
    return np.asarray(np.where(rho < 1.0, wait, np.inf))


def wait_quantile_s(
    q: float,
    rate_per_s: ArrayLike,
    service_s: ArrayLike,
    *,
    service_cv: ArrayLike = 1.0,
    arrival_cv: ArrayLike = 1.0,
    servers: ArrayLike = 1.0,
) -> Array:
    """Quantile of that wait [s]: 0 for those who do not wait, exponential for the others; exact for M/M/c.

    Parameters
    ----------
    q : which quantile, 0 to 1.
    rate_per_s : arrivals [1/s].
    service_s : mean time of a service [s].
    service_cv, arrival_cv : standard deviation over mean of services and of the times between arrivals.
    servers : how many.

    Returns
    -------
    Seconds.

    >>> float(wait_quantile_s(0.4, 0.5, 1.0)), round(float(wait_quantile_s(0.99, 0.5, 1.0)), 3)    # 2 ln 50
    (0.0, 7.824)
    """
    rate, service = np.asarray(rate_per_s, float), np.asarray(service_s, float)
    mean = wait_mean_s(rate, service, service_cv=service_cv, arrival_cv=arrival_cv, servers=servers)
    busy = erlang_c(servers, rate * service)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = mean / busy * np.log(busy / (1.0 - q))
    return np.asarray(np.where(busy > 1.0 - q, wait, 0.0))


def busy_share(arrivals: ArrayLike, arrival_cv: ArrayLike) -> Array:
    """Probability that something arrives in an interval in which `arrivals` are expected, for gamma intervals.

    ``1 - exp(-a)`` for cv 1; of a stationary renewal process in general:
    ``1 - Q(k + 1, k a) + a Q(k, k a)`` with ``k = 1/cv^2`` and Q the regularised upper incomplete gamma function.

    Parameters
    ----------
    arrivals : a, expected in the interval.
    arrival_cv : standard deviation over mean of the times between arrivals; below 0.1 as 0.1.

    Returns
    -------
    A probability.

    >>> busy_share([0.1, 1.0], 1.0).round(4).tolist(), busy_share([0.1, 1.0], 2.0).round(4).tolist()
    ([0.0952, 0.6321], [0.065, 0.3924])
    """
    a, cv = np.asarray(arrivals, float), np.asarray(arrival_cv, float)
    if (cv == 1.0).all():
        return np.asarray(-np.expm1(-a))
    from scipy.special import gammaincc

    k = 1.0 / np.maximum(cv, 0.1) ** 2
    return np.asarray(1.0 - gammaincc(k + 1.0, k * a) + a * gammaincc(k, k * a))


def met_share(load: Array, arrival_cv: Array) -> Array:
    """Share of the arrivals that meet a busy GI/M/1 server: ``x = (1 + (1 - x) / (k rho))^-k``, gamma intervals.

    Parameters
    ----------
    load : rho, share of the time in which the server is busy.
    arrival_cv : standard deviation over mean of the times between arrivals; below 0.1 as 0.1.

    Returns
    -------
    A share of the arrivals.

    >>> met_share(np.array([0.5]), np.array([1.0])).tolist()    # random arrivals see the mean
    [0.5]
    >>> [float(met_share(np.array(0.5), np.array(cv)).round(3)) for cv in (0.5, 2.0)]    # regular ones less, bursts more
    [0.302, 0.771]
    """
    if (arrival_cv == 1.0).all():
        return load
    k = 1.0 / np.maximum(arrival_cv, 0.1) ** 2
    root = load
    for _ in range(30):
        root = (1.0 + (1.0 - root) / (k * np.maximum(load, 1e-9))) ** -k
    return np.asarray(np.minimum(root, 0.9999))
