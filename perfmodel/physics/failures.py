"""Failures, checkpoints and restarts: how much longer a run takes than its work.

Failures of a group of workers are a Poisson process: many independent components with rare faults approach
one whatever their own law (Palm-Khintchine), and the fleet study [3] finds that the mean time between the
failures of a job is inverse in its nodes. Work is cut into segments of `interval_s`, each followed by a
checkpoint; a failure loses the segment in progress, and the run resumes after `restart_s`, during which it
may fail again.

References
----------
.. [1] J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
.. [2] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
   Future Generation Computer Systems 22, 2006. Eqs. 20 (wall time) and 37 (interval).
.. [3] A. Kokolis et al., "Revisiting reliability in large-scale machine learning research clusters",
   arXiv:2410.21680.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def failure_rate_per_s(
    k: npt.ArrayLike,
    *,
    mtbf_per_accelerator_s: float = np.inf,
    mtbf_per_node_s: float = np.inf,
    accelerators_per_node: int = 1,
    preemption_per_node_s: float = 0.0,
) -> Floats:
    r"""Failures per second of a job on `k` accelerators.

    .. math:: \lambda(K) = K/M_a + N\,(1/M_n + r),\qquad N = \lceil K/g \rceil

    `mtbf_per_accelerator_s` and `mtbf_per_node_s` are mean times between failures of one accelerator and
    of what the accelerators of a node share [s]; `preemption_per_node_s` is the spot market's rate [1/s].

    Parameters
    ----------
    k : number of accelerators.
    mtbf_per_accelerator_s : mean time between failures of one accelerator [s].
    mtbf_per_node_s : of what the accelerators of a node share [s].
    accelerators_per_node : g.
    preemption_per_node_s : rate at which the spot market takes a node back [1/s].

    Returns
    -------
    Failures per second [1/s].

    >>> float(1 / failure_rate_per_s(16384, mtbf_per_accelerator_s=50_000 * 3600) / 3600).__round__(2)
    3.05
    """
    count = np.asarray(k, dtype=float)
    nodes = np.ceil(count / accelerators_per_node)
    return np.asarray(
        count / mtbf_per_accelerator_s + nodes * (1.0 / mtbf_per_node_s + preemption_per_node_s)
    )


def uninterrupted_s(length_s: npt.ArrayLike, rate_per_s: npt.ArrayLike) -> Floats:
    r"""Expected time until `length_s` passes without a failure, starting again at each.

    .. math:: E = (e^{\lambda L} - 1)/\lambda

    Parameters
    ----------
    length_s : time without a failure that is waited for [s].
    rate_per_s : failures per second [1/s].

    Returns
    -------
    Seconds.

    >>> uninterrupted_s(10.0, 0.0).item()
    10.0
    """
    length, rate = np.broadcast_arrays(np.asarray(length_s, float), np.asarray(rate_per_s, float))
    x = rate * length
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        growth = np.where(x > 1e-12, np.expm1(x) / np.where(x > 0, x, 1.0), 1.0 + 0.5 * x)
    return np.asarray(length * growth)


def young_interval_s(checkpoint_s: npt.ArrayLike, rate_per_s: npt.ArrayLike) -> Floats:
    r"""Young's interval between checkpoints [s], :math:`\sqrt{2 C / \lambda}` [1]; infinite without failures.

    Parameters
    ----------
    checkpoint_s : time of one checkpoint [s].
    rate_per_s : failures per second [1/s].

    Returns
    -------
    Seconds.

    >>> young_interval_s(50.0, 0.01).item()
    100.0
    """
    rate = np.asarray(rate_per_s, dtype=float)
    with np.errstate(divide="ignore"):
        return np.asarray(np.sqrt(2.0 * np.asarray(checkpoint_s, float) / rate))


def daly_interval_s(checkpoint_s: npt.ArrayLike, rate_per_s: npt.ArrayLike) -> Floats:
    r"""Daly's higher-order interval [s], eq. 37 of [2].

    .. math:: \tau = \sqrt{2CM}\,\Big[1 + \tfrac13\sqrt{C/2M} + \tfrac19\,C/2M\Big] - C \quad (C < 2M),
        \qquad \tau = M \text{ otherwise}

    Parameters
    ----------
    checkpoint_s : time of one checkpoint [s].
    rate_per_s : failures per second [1/s].

    Returns
    -------
    Seconds.

    >>> round(daly_interval_s(60.0, 1 / 11000.0).item())
    1109
    """
    cost, rate = np.broadcast_arrays(np.asarray(checkpoint_s, float), np.asarray(rate_per_s, float))
    ratio = 0.5 * cost * rate
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(ratio)
        tau = np.sqrt(2.0 * cost / rate) * (1.0 + root / 3.0 + ratio / 9.0) - cost
        tau = np.where(ratio < 1.0, tau, 1.0 / rate)
    return np.asarray(np.where(rate > 0, tau, np.inf))


def best_interval_s(checkpoint_s: npt.ArrayLike, rate_per_s: npt.ArrayLike) -> Floats:
    r"""The interval that minimises the expected wall time exactly [s].

    Setting the derivative of eq. 20 of [2] to zero gives, with Lambert's W on its main branch,

    .. math:: \tau = \big(1 + W(-e^{-1-\lambda C})\big)/\lambda

    Restart time does not enter. Young and Daly are its expansions for small :math:`\lambda C`.

    Parameters
    ----------
    checkpoint_s : time of one checkpoint [s].
    rate_per_s : failures per second [1/s].

    Returns
    -------
    Seconds.

    >>> round(best_interval_s(60.0, 1 / 11000.0).item())
    1109
    """
    from scipy.special import lambertw

    cost, rate = np.broadcast_arrays(np.asarray(checkpoint_s, float), np.asarray(rate_per_s, float))
    x = cost * rate
    # Near the branch point 1 + W loses all digits; Daly's series is exact to O(x^2) there.
    safe = np.maximum(x, 1e-8)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = (1.0 + np.real(lambertw(-np.exp(-1.0 - safe)))) / rate
    return np.asarray(np.where(x > 1e-6, exact, daly_interval_s(cost, rate)))


@dataclass(frozen=True)
class WallTime:
    """Moments of the wall time of a run [s, s^2], its floor without failures, the expected failures, and the
    chance that none happens."""

    mean_s: Floats
    variance_s2: Floats
    floor_s: Floats
    failures: Floats
    untouched: Floats

    def quantile(self, probability: npt.ArrayLike) -> Floats:
        """Quantile of the wall time [s].

        With probability `untouched` the run takes `floor_s`. Otherwise the time above the floor is a sum of
        independent losses, nearly normal for many failures and skew for few: a gamma law with the matched
        conditional moments has both limits.
        """
        from scipy.special import gammaincinv

        level = np.asarray(probability, dtype=float)
        touched = np.maximum(1.0 - self.untouched, 1e-300)
        excess = np.maximum(self.mean_s - self.floor_s, 0.0) / touched
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            spread = (self.variance_s2 + (self.mean_s - self.floor_s) ** 2) / touched - excess**2
            certain = ~((spread > 0) & (excess > 0) & np.isfinite(spread))
            shape = np.where(certain, 1.0, excess**2 / np.where(certain, 1.0, spread))
            scale = np.where(certain, 0.0, spread / np.where(certain, 1.0, excess))
            rest = np.clip((level - self.untouched) / touched, 0.0, 1.0)
            tail = gammaincinv(shape, rest) * scale
        return np.asarray(np.where(np.isfinite(self.mean_s), self.floor_s + tail, np.inf))


def wall_time(
    work_s: npt.ArrayLike,
    *,
    rate_per_s: npt.ArrayLike,
    checkpoint_s: npt.ArrayLike,
    restart_s: npt.ArrayLike,
    interval_s: npt.ArrayLike,
) -> WallTime:
    r"""Wall time of `work_s` seconds of useful work under failures.

    With s the segment and its checkpoint, R the restart and :math:`\lambda` the rate, one segment takes

    .. math:: E = e^{\lambda R}\,(e^{\lambda s} - 1)/\lambda

    (eq. 20 of [2]); the variance follows from the same renewal argument: either s passes untouched, or a
    failure at X < s is followed by the first stretch of R + s without a failure, whose variance is
    :math:`(e^{2\lambda L} - 2\lambda L e^{\lambda L} - 1)/\lambda^2`. The run is `work / interval`
    independent segments, one at least. Work that cannot finish (:math:`\lambda s` very large) has an
    infinite wall time.

    Parameters
    ----------
    work_s : useful work [s].
    rate_per_s : failures per second [1/s].
    checkpoint_s : time of one checkpoint [s].
    restart_s : time from a failure to running again [s].
    interval_s : work between two checkpoints [s].

    Returns
    -------
    Moments in seconds.

    >>> w = wall_time(3600.0, rate_per_s=0.0, checkpoint_s=10.0, restart_s=60.0, interval_s=600.0)
    >>> w.mean_s.item(), w.variance_s2.item()
    (3660.0, 0.0)
    """
    work, rate, cost, restart, interval = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (work_s, rate_per_s, checkpoint_s, restart_s, interval_s))
    )
    useful = np.minimum(interval, work)
    with np.errstate(invalid="ignore", divide="ignore"):
        segments = np.where(work > 0, work / np.where(useful > 0, useful, 1.0), 0.0)
    s = useful + cost
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.exp(rate * restart) * uninterrupted_s(s, rate)
        variance = _segment_variance(s, restart, rate, mean)
        variance = np.where(np.isfinite(mean), variance, np.inf)
        total = segments * mean
    return WallTime(
        mean_s=np.asarray(total),
        variance_s2=np.asarray(segments * variance),
        floor_s=np.asarray(segments * s),
        failures=np.asarray(np.where(rate > 0, rate, 0.0) * total),
        untouched=np.asarray(np.exp(-rate * segments * s)),
    )


def _segment_variance(s: Floats, restart: Floats, rate: Floats, mean: Floats) -> Floats:
    """Variance of one segment's wall time [s^2]; see `wall_time`."""
    length = restart + s
    x, y = rate * length, rate * s
    small = x < 1e-3
    safe = np.where(small, 1.0, rate)
    keep = np.exp(-y)
    # Moments of X restricted to X < s, X exponential.
    first = (1.0 - keep * (1.0 + y)) / safe
    second = (2.0 - keep * (2.0 + 2.0 * y + y * y)) / safe**2
    wait = uninterrupted_s(length, rate)
    wait_second = (np.exp(2 * x) - 2 * x * np.exp(x) - 1.0) / safe**2 + wait**2
    exact = s**2 * keep + second + 2.0 * first * wait + (1.0 - keep) * wait_second - mean**2
    # One failure at most: X uniform on (0, s) is lost, and R: E[(X + R)^2] = s^2/3 + s R + R^2.
    series = rate * s * (s * s / 3.0 + s * restart + restart * restart)
    return np.asarray(np.where(small, series, np.maximum(exact, 0.0)))


def spare_wait_s(rate_per_s: npt.ArrayLike, *, repair_s: float, spares: int) -> Floats:
    r"""Expected wait for a working replacement after a failure [s], with `spares` hot ones.

    Broken units come back after `repair_s` on average, independently, so the number away is Poisson with
    mean :math:`a = \lambda D` (the M/G/infinity queue). A failure that finds n away waits until all but
    `spares` of the n + 1 are back: with exponential repairs, the sum of D/j for j from `spares`+1 to n+1.

    Parameters
    ----------
    rate_per_s : failures per second [1/s].
    repair_s : mean time until a broken unit is back [s].
    spares : units in reserve.

    Returns
    -------
    Seconds a failure.

    >>> spare_wait_s(1e-6, repair_s=3600.0, spares=0).item() > 3600
    True
    >>> spare_wait_s(1e-6, repair_s=3600.0, spares=2).item() < 0.1
    True
    """
    load = np.asarray(rate_per_s, dtype=float) * repair_s
    top = int(np.ceil(np.max(load, initial=0.0) + 12.0 * np.sqrt(np.max(load, initial=0.0)) + 20.0)) + spares
    away = np.arange(top + 1)
    wait = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, top + 2))])  # H(j)
    delay = np.maximum(wait[away + 1] - wait[spares], 0.0) * repair_s
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, top + 1)))])
    safe = np.maximum(load[..., None], 1e-300)
    probability = np.exp(away * np.log(safe) - safe - log_factorial)
    return np.asarray(probability @ delay)
