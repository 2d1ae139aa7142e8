"""Scaling laws as pure functions of the number of workers K, and their inverses.

Every function broadcasts over its arguments and returns float64; an impossible K (below 1) gives NaN.
Times are in the unit of their inputs (seconds for `*_s`), speedup and efficiency are plain numbers.

References: Amdahl 1967 (AFIPS 30); Gustafson 1988 (CACM 31:5); Gunther 1993 (CMG), Universal Scalability
Law; Hockney 1994 (Parallel Computing 20:3), alpha-beta; Thakur et al. 2005 (IJHPCA 19:1), ring and tree.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]
Term: TypeAlias = Literal["linear", "log2", "log2p1", "ring"]
Regime: TypeAlias = Literal["strong", "weak"]

TERMS: tuple[Term, ...] = ("linear", "log2", "log2p1", "ring")
# K that equals a bound to within this relative distance is taken to be on it, so that E(21) = 0.5 at a
# serial fraction of 0.05 is not "below 0.5" by one rounding error.
_ON_THE_BOUND = 1e-9


def _workers(k: ArrayLike) -> Array:
    k = np.asarray(k, dtype=np.float64)
    return np.where(k >= 1.0, k, np.nan)


def _divide(numerator: ArrayLike, denominator: ArrayLike) -> Array:
    """Division in which x/0 is infinity without a warning: a law without loss has no ceiling."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.divide(numerator, denominator), dtype=np.float64)


# --- Amdahl ---------------------------------------------------------------------------------------------


def amdahl_time(k: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Time relative to one worker, Amdahl: `T(K)/T(1) = s + (1 - s)/K` (1).

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    T(K)/T(1).

    >>> amdahl_time([1, 2, 8], 0.05).round(4)
    array([1.    , 0.525 , 0.1688])
    """
    s = np.asarray(serial_fraction, dtype=np.float64)
    return s + (1.0 - s) / _workers(k)


def amdahl_speedup(k: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Speedup, the inverse of (1): `S(K) = 1/(s + (1 - s)/K)`.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A plain number.

    >>> float(amdahl_speedup(512, 0.05).round(4))
    19.2844
    """
    return 1.0 / amdahl_time(k, serial_fraction)


def amdahl_efficiency(k: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Efficiency `E(K) = S(K)/K = 1/(1 + s (K - 1))` (2).

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A plain number.

    >>> float(amdahl_efficiency(21, 0.05))
    0.5
    """
    return 1.0 / (1.0 + np.asarray(serial_fraction, dtype=np.float64) * (_workers(k) - 1.0))


def amdahl_ceiling(serial_fraction: ArrayLike) -> Array:
    """The speedup that no number of workers passes, `1/s`; infinite without serial work.

    Parameters
    ----------
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A plain number.

    >>> amdahl_ceiling([0.05, 0.0])
    array([20., inf])
    """
    return _divide(1.0, serial_fraction)


def amdahl_k_at_efficiency(efficiency: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Real K at which (2) equals `efficiency`: `K = 1 + (1/E - 1)/s`.

    Parameters
    ----------
    efficiency : E, 0 to 1.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A real K.

    >>> float(amdahl_k_at_efficiency(0.5, 0.05).round(6))
    21.0
    """
    loss = 1.0 / np.asarray(efficiency, dtype=np.float64) - 1.0
    # Full efficiency is held at K = 1 alone, and at every K when nothing is serial: 0/0 is "one".
    return 1.0 + np.where(loss == 0.0, 0.0, _divide(loss, serial_fraction))


def amdahl_serial_for_efficiency(k: ArrayLike, efficiency: ArrayLike) -> Array:
    """Largest serial fraction that keeps `E(K) >= efficiency`: `s = (1/E - 1)/(K - 1)`, at most 1.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    efficiency : E, 0 to 1.

    Returns
    -------
    Serial fraction.

    >>> amdahl_serial_for_efficiency([2, 8, 512], 0.8).round(6)
    array([0.25    , 0.035714, 0.000489])
    """
    loss = 1.0 / np.asarray(efficiency, dtype=np.float64) - 1.0
    workers = _workers(k)
    bound = np.where(workers == 1.0, 1.0, _divide(loss, workers - 1.0))
    return np.minimum(bound, 1.0)


def smallest_integer_above(k: ArrayLike) -> Array:
    """The smallest whole number strictly above `k`, with k itself read to nine digits.

    Parameters
    ----------
    k : any number.

    Returns
    -------
    A whole number.

    >>> smallest_integer_above([2.0, 2.5]).tolist()
    [3.0, 3.0]
    """
    k = np.asarray(k, dtype=np.float64)
    return np.floor(k * (1.0 + _ON_THE_BOUND)) + 1.0


# --- Gustafson ------------------------------------------------------------------------------------------


def gustafson_speedup(k: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Scaled speedup, Gustafson: `S(K) = s + K (1 - s)` (3); s is measured on the parallel machine.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A plain number.

    >>> float(gustafson_speedup(512, 0.05).round(2))
    486.45
    """
    s = np.asarray(serial_fraction, dtype=np.float64)
    return s + _workers(k) * (1.0 - s)


def gustafson_efficiency(k: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Efficiency of (3): `E(K) = 1 - s (1 - 1/K)`; it never falls below `1 - s`.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A plain number.

    >>> round(float(gustafson_efficiency(2, 0.1)), 12)
    0.95
    """
    return 1.0 - np.asarray(serial_fraction, dtype=np.float64) * (1.0 - 1.0 / _workers(k))


def gustafson_k_at_efficiency(efficiency: ArrayLike, serial_fraction: ArrayLike) -> Array:
    """Real K at which (3) has this efficiency, `K = s/(E - 1 + s)`; infinite when E <= 1 - s.

    Parameters
    ----------
    efficiency : E, 0 to 1.
    serial_fraction : serial share s of the work, 0 to 1.

    Returns
    -------
    A real K.

    >>> round(float(gustafson_k_at_efficiency(0.95, 0.1)), 9)
    2.0
    """
    e, s = np.broadcast_arrays(
        np.asarray(efficiency, dtype=np.float64), np.asarray(serial_fraction, dtype=np.float64)
    )
    room = e - 1.0 + s
    return np.where(e >= 1.0, 1.0, np.where(room > 0.0, _divide(s, np.where(room > 0.0, room, 1.0)), np.inf))


def gustafson_serial_for_efficiency(k: ArrayLike, efficiency: ArrayLike) -> Array:
    """Largest serial fraction that keeps the scaled efficiency: `s = (1 - E)/(1 - 1/K)`, at most 1.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    efficiency : E, 0 to 1.

    Returns
    -------
    Serial fraction.

    >>> round(float(gustafson_serial_for_efficiency(2, 0.95)), 12)
    0.1
    """
    workers = _workers(k)
    bound = _divide(1.0 - np.asarray(efficiency, dtype=np.float64), 1.0 - 1.0 / workers)
    return np.minimum(np.where(workers == 1.0, 1.0, bound), 1.0)


# --- Universal Scalability Law --------------------------------------------------------------------------


def usl_speedup(k: ArrayLike, sigma: ArrayLike, kappa: ArrayLike) -> Array:
    """Gunther's law: `S(K) = K/(1 + sigma (K - 1) + kappa K (K - 1))` (4).

    sigma is contention (Amdahl's s), kappa is coherency: the cost of each pair talking to each other.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    sigma, kappa : contention and coherency, plain numbers.

    Returns
    -------
    A plain number.

    >>> float(usl_speedup(32, 0.05, 0.0)) == float(amdahl_speedup(32, 0.05))
    True
    """
    return _workers(k) * usl_efficiency(k, sigma, kappa)


def usl_efficiency(k: ArrayLike, sigma: ArrayLike, kappa: ArrayLike) -> Array:
    """Efficiency of (4): `1/(1 + sigma (K - 1) + kappa K (K - 1))`.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    sigma, kappa : contention and coherency, plain numbers.

    Returns
    -------
    A plain number.

    >>> float(usl_efficiency(21, 0.05, 0.0))
    0.5
    """
    workers = _workers(k)
    sigma, kappa = np.asarray(sigma, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    return 1.0 / (1.0 + sigma * (workers - 1.0) + kappa * workers * (workers - 1.0))


def usl_peak_k(sigma: ArrayLike, kappa: ArrayLike) -> Array:
    """Real K of the largest speedup, `sqrt((1 - sigma)/kappa)`, at least 1; infinite when kappa is zero.

    Parameters
    ----------
    sigma, kappa : contention and coherency, plain numbers.

    Returns
    -------
    A real K.

    >>> float(usl_peak_k(0.02, 0.0002))
    70.0
    """
    room = np.maximum(1.0 - np.asarray(sigma, dtype=np.float64), 0.0)
    return np.maximum(np.sqrt(_divide(room, kappa)), 1.0)


def usl_k_at_efficiency(efficiency: ArrayLike, sigma: ArrayLike, kappa: ArrayLike) -> Array:
    """Real K at which (4) has this efficiency: the root of `kappa x^2 + (sigma + kappa) x = 1/E - 1`, x = K - 1.

    Parameters
    ----------
    efficiency : E, 0 to 1.
    sigma, kappa : contention and coherency, plain numbers.

    Returns
    -------
    A real K.

    >>> float(usl_k_at_efficiency(0.5, 0.05, 0.0))
    21.0
    """
    loss = 1.0 / np.asarray(efficiency, dtype=np.float64) - 1.0
    sigma, kappa = np.asarray(sigma, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    b = sigma + kappa
    # 2c/(b + sqrt(b^2 + 4ac)) stays exact as kappa goes to zero, where the schoolbook root is 0/0.
    root = _divide(2.0 * loss, b + np.sqrt(b * b + 4.0 * kappa * loss))
    return 1.0 + np.where(loss == 0.0, 0.0, root)


def usl_sigma_for_efficiency(k: ArrayLike, efficiency: ArrayLike, kappa: ArrayLike) -> Array:
    """Largest sigma that keeps `E(K) >= efficiency` beside this kappa; NaN when kappa alone breaks it.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    efficiency : E, 0 to 1.
    kappa : coherency, a plain number.

    Returns
    -------
    Contention.

    >>> round(float(usl_sigma_for_efficiency(21, 0.5, 0.0)), 12)
    0.05
    """
    workers = _workers(k)
    loss = 1.0 / np.asarray(efficiency, dtype=np.float64) - 1.0
    bound = _divide(loss, workers - 1.0) - np.asarray(kappa, dtype=np.float64) * workers
    bound = np.where(workers == 1.0, 1.0, bound)
    return np.minimum(np.where(bound >= 0.0, bound, np.nan), 1.0)


# --- Amdahl plus communication --------------------------------------------------------------------------


def communication_rounds(k: ArrayLike, term: Term) -> tuple[Array, Array]:
    """Messages and message volumes on the critical path of one exchange: `(rounds, volumes)` (5).

    | term   | rounds of alpha | volumes of n/B | what it is                                 |
    |--------|-----------------|----------------|--------------------------------------------|
    | linear | K - 1           | K - 1          | everybody to one server, one after another |
    | log2   | log2 K          | log2 K         | a tree                                     |
    | log2p1 | log2(K + 1)     | log2(K + 1)    | a tree whose root pays at K = 1 too        |
    | ring   | 2 (K - 1)       | 2 (K - 1)/K    | ring all-reduce                            |

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    term : a row of the table.

    Returns
    -------
    Rounds and volumes, plain numbers.

    >>> [float(x) for x in communication_rounds(4, "ring")]
    [6.0, 1.5]
    """
    workers = _workers(k)
    if term == "linear":
        return workers - 1.0, workers - 1.0
    if term == "log2":
        return np.log2(workers), np.log2(workers)
    if term == "log2p1":
        return np.log2(workers + 1.0), np.log2(workers + 1.0)
    if term == "ring":
        return 2.0 * (workers - 1.0), 2.0 * (workers - 1.0) / workers
    raise ValueError(f"unknown communication term {term!r}: one of {', '.join(TERMS)}")


def communication_time(
    k: ArrayLike,
    term: Term,
    *,
    alpha_s: ArrayLike,
    message_bytes: ArrayLike = 0.0,
    bandwidth_bytes_per_s: ArrayLike = np.inf,
) -> Array:
    """Seconds of one exchange: `rounds alpha + volumes n/B`, with the rounds and volumes of (5).

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    term : a row of the table of (5).
    alpha_s : latency of a round [s].
    message_bytes : n [B].
    bandwidth_bytes_per_s : B [B/s].

    Returns
    -------
    Seconds.

    >>> float(communication_time(8, "log2", alpha_s=0.01))
    0.03
    """
    rounds, volumes = communication_rounds(k, term)
    transfer_s = np.asarray(message_bytes, dtype=np.float64) / np.asarray(
        bandwidth_bytes_per_s, dtype=np.float64
    )
    return rounds * np.asarray(alpha_s, dtype=np.float64) + volumes * transfer_s


def communicating_time(
    k: ArrayLike,
    term: Term,
    *,
    serial_s: ArrayLike,
    parallel_s: ArrayLike,
    alpha_s: ArrayLike,
    message_bytes: ArrayLike = 0.0,
    bandwidth_bytes_per_s: ArrayLike = np.inf,
    regime: Regime = "strong",
) -> Array:
    """Amdahl plus communication: `T(K) = serial + parallel/K + communication(K)` (6), in seconds.

    In the weak regime the work of a worker is fixed and `parallel/K` is `parallel`.

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    term : a row of the table of (5).
    serial_s, parallel_s : work of one worker alone [s].
    alpha_s : latency of a round [s].
    message_bytes : n [B].
    bandwidth_bytes_per_s : B [B/s].
    regime : strong or weak.

    Returns
    -------
    Seconds.

    >>> communicating_time([1, 64], "log2p1", serial_s=0.04, parallel_s=0.96, alpha_s=0.01).round(4)
    array([1.01  , 0.1152])
    """
    parallel = np.asarray(parallel_s, dtype=np.float64)
    share = parallel / _workers(k) if regime == "strong" else parallel * np.ones_like(_workers(k))
    return (
        np.asarray(serial_s, dtype=np.float64)
        + share
        + communication_time(
            k,
            term,
            alpha_s=alpha_s,
            message_bytes=message_bytes,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )
    )


def strong_efficiency(k: ArrayLike, time_s: ArrayLike, baseline_k: float, baseline_s: ArrayLike) -> Array:
    """Strong scaling, fixed problem: `E(K) = K0 T(K0)/(K T(K))` (7).

    Parameters
    ----------
    k : number of workers; below 1 gives NaN.
    time_s : T(K) [s].
    baseline_k, baseline_s : K0 and T(K0) [s].

    Returns
    -------
    A plain number.

    >>> float(strong_efficiency(4, 0.5, 1, 1.0))
    0.5
    """
    return (
        baseline_k
        * np.asarray(baseline_s, dtype=np.float64)
        / (_workers(k) * np.asarray(time_s, dtype=np.float64))
    )


def weak_efficiency(time_s: ArrayLike, baseline_s: ArrayLike) -> Array:
    """Weak scaling, fixed work per worker: `E(K) = T(K0)/T(K)` (8); the ideal is a flat 1.

    Parameters
    ----------
    time_s : T(K) [s].
    baseline_s : T(K0) [s].

    Returns
    -------
    A plain number.

    >>> float(weak_efficiency(1.0602, 1.01).round(3))
    0.953
    """
    return np.asarray(baseline_s, dtype=np.float64) / np.asarray(time_s, dtype=np.float64)
