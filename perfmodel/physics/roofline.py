"""Roofline times of kernels: the larger of arithmetic and memory time, with a rounded corner.

Reference: Williams, Waterman, Patterson, Communications of the ACM 52 (2009) 65.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.constants import LEAST_FILL
from perfmodel.physics.fabric import soft_max

Array = NDArray[np.float64]


def roofline_time(
    flop: ArrayLike, traffic_bytes: ArrayLike, *, flop_per_s: ArrayLike, bytes_per_s: ArrayLike
) -> Array:
    """Seconds of a kernel that computes `flop` and moves `traffic_bytes`.

    .. math:: T = \\left((F/P)^4 + (V/B)^4\\right)^{1/4}                                  (1)

    A hard maximum would plant a corner in T(K); real kernels near the ridge lose up to a fifth.

    Parameters
    ----------
    flop : amount of arithmetic [FLOP].
    traffic_bytes : moved to and from memory [B].
    flop_per_s, bytes_per_s : rates that the kernel reaches [FLOP/s, B/s].

    Returns
    -------
    Seconds.

    >>> float(roofline_time(2e12, 0.0, flop_per_s=1e12, bytes_per_s=1e12))
    2.0
    """
    return soft_max(
        np.asarray(flop, float) / np.asarray(flop_per_s, float),
        np.asarray(traffic_bytes, float) / np.asarray(bytes_per_s, float),
    )


def at_most_peak(share: ArrayLike, pace: ArrayLike) -> Array:
    """Share of a peak that arithmetic reaches, held so that no job computes faster than the peak.

    .. math:: s' = \\min(s, p), \\quad T = p\\,F/(s' P) \\ge F/P                                (2)

    A job's device time is multiplied by its pace p; without the limit a fast pace and a high share could exceed the peak.

    Parameters
    ----------
    share : fraction of the peak [1], at most one.
    pace : device time of such jobs against what their operations explain [1].

    Returns
    -------
    The fraction to compute with; unchanged where the pace is no faster than it.

    >>> at_most_peak(0.8, [1.1, 0.9, 0.5]).tolist()
    [0.8, 0.8, 0.5]
    """
    return np.asarray(np.minimum(np.asarray(share, float), np.asarray(pace, float)))


def product_time(
    rows: ArrayLike,
    inner: ArrayLike,
    outer: ArrayLike,
    *,
    weights: ArrayLike = 1.0,
    flop_per_s: ArrayLike,
    bytes_per_s: ArrayLike,
    activation_bytes: ArrayLike = 2.0,
    weight_bytes: ArrayLike = 2.0,
) -> Array:
    """Seconds of a matrix product ``(rows, inner) x (inner, outer)`` spread over `weights` matrices.

    .. math:: F = 2 R I O, \\quad V = w I O b_w + R (I + O) b_a, \\quad T = T_{roofline}(F, V)   (3)

    Forward, input-gradient and weight-gradient products of one layer have the same F and V, so one evaluation serves
    all three; what their last tiles cost them differs (`lost_waves`).

    Parameters
    ----------
    rows, inner, outer : R, I and O.
    weights : matrices that the rows are spread over (experts); 1 for a dense layer.
    flop_per_s, bytes_per_s : rates that the kernel reaches [FLOP/s, B/s].
    activation_bytes, weight_bytes : of one element [B].

    Returns
    -------
    Seconds of one pass.

    >>> t = product_time(4096, 4096, 4096, flop_per_s=1e14, bytes_per_s=1e12)
    >>> bool(1.37e-3 < t < 1.38e-3)
    True
    """
    r, i, o = (np.asarray(value, float) for value in (rows, inner, outer))
    area = i * o
    traffic = np.asarray(weights, float) * area * weight_bytes + r * (i + o) * activation_bytes
    return roofline_time(2.0 * r * area, traffic, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)


def lost_waves(outputs: ArrayLike, wave: ArrayLike) -> Array:
    """Waves of tiles per wave of a product's work: what a loss of one wave adds, as a part of its time.

    .. math:: \\frac{W}{N + W/10}                                                          (4)

    N outputs are made in tiles, W at a time (a wave: a tile on every compute unit). The last wave is part full, and so
    every product runs longer by about the same share of a wave, whatever its size. A table of tiles would say how much
    for each shape, and make the curve jump. W = 0, a device without such units, loses nothing.

    Parameters
    ----------
    outputs : N, elements of the result.
    wave : W, elements that all compute units make at once.

    Returns
    -------
    Share of a wave, a plain number.

    >>> lost_waves([0.9e6, 3.9e6], 1e6).tolist()
    [1.0, 0.25]
    """
    w = np.asarray(wave, float)
    return np.asarray(w / np.maximum(np.asarray(outputs, float) + LEAST_FILL * w, 1.0))


def ridge_flop_per_byte(flop_per_s: ArrayLike, bytes_per_s: ArrayLike) -> Array:
    """Arithmetic intensity at which the two roofs meet [FLOP/B].

    .. math:: I = P/B                                                                                          (5)

    Parameters
    ----------
    flop_per_s, bytes_per_s : the two roofs [FLOP/s, B/s].

    Returns
    -------
    FLOP per byte.

    >>> float(ridge_flop_per_byte(312e12, 2.039e12).round(0))
    153.0
    """
    return np.asarray(np.asarray(flop_per_s, float) / np.asarray(bytes_per_s, float))
