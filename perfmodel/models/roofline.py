"""Roofline times of kernels: the larger of arithmetic and memory time, with a rounded corner.

Reference: Williams, Waterman, Patterson, Communications of the ACM 52 (2009) 65.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.models.fabric import soft_max

Array = NDArray[np.float64]


def roofline_time(
    flop: ArrayLike, traffic_bytes: ArrayLike, *, flop_per_s: ArrayLike, bytes_per_s: ArrayLike
) -> Array:
    """Seconds of a kernel that computes `flop` and moves `traffic_bytes`.

    .. math:: T = \\left((F/P)^4 + (V/B)^4\\right)^{1/4}                                  (1)

    A hard maximum would plant a corner in T(K); real kernels near the ridge lose up to a fifth.

    >>> float(roofline_time(2e12, 0.0, flop_per_s=1e12, bytes_per_s=1e12))
    2.0
    """
    return soft_max(
        np.asarray(flop, float) / np.asarray(flop_per_s, float),
        np.asarray(traffic_bytes, float) / np.asarray(bytes_per_s, float),
    )


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
    call_s: ArrayLike = 0.0,
) -> Array:
    """Seconds of a matrix product ``(rows, inner) x (inner, outer)`` spread over `weights` matrices.

    .. math:: F = 2 R I O, \\quad V = w I O b_w + R (I + O) b_a, \\quad T = T_{roofline}(F, V) + t_{call}   (2)

    The fixed time per call stands for launch, tile and wave quantisation: a smooth penalty on small products,
    where a table of tiles would make the curve jump. Forward, input-gradient and weight-gradient products of one
    layer have the same F and V, so one evaluation serves all three.

    >>> t = product_time(4096, 4096, 4096, flop_per_s=1e14, bytes_per_s=1e12)
    >>> bool(1.37e-3 < t < 1.38e-3)
    True
    """
    r, i, o = (np.asarray(value, float) for value in (rows, inner, outer))
    area = i * o
    traffic = np.asarray(weights, float) * area * weight_bytes + r * (i + o) * activation_bytes
    work = roofline_time(2.0 * r * area, traffic, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    return np.asarray(work + np.asarray(call_s, float))


def ridge_flop_per_byte(flop_per_s: ArrayLike, bytes_per_s: ArrayLike) -> Array:
    """Arithmetic intensity at which the two roofs meet [FLOP/B].

    >>> float(ridge_flop_per_byte(312e12, 2.039e12).round(0))
    153.0
    """
    return np.asarray(np.asarray(flop_per_s, float) / np.asarray(bytes_per_s, float))
