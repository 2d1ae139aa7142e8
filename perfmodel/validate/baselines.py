"""One-line laws that see the same calibration points: what a prediction must beat.

All are fitted to the accelerator-time per unit of work, `tau(k) = k T(k) / work`, so that batches that change with k
are compared fairly. In that form (a, b >= 0):

    ideal                tau of the smallest k
    constant_efficiency  tau of the largest calibration k
    amdahl               a + b (k - 1)                     Amdahl 1967
    usl                  a + b (k - 1) + c k (k - 1)       Gunther 1993
    ring_law             a + b (k - 1) / k
    log_law              a + b log2 k
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NAMES = ("ideal", "constant_efficiency", "amdahl", "usl", "ring_law", "log_law")


def basis(name: str, k: Array) -> Array:
    """Columns of a law's linear form at `k`, shape (n, terms)."""
    one = np.ones_like(k)
    if name == "amdahl":
        return np.stack([one, k - 1.0], axis=1)
    if name == "usl":
        return np.stack([one, k - 1.0, k * (k - 1.0)], axis=1)
    if name == "ring_law":
        return np.stack([one, (k - 1.0) / k], axis=1)
    if name == "log_law":
        return np.stack([one, np.log2(k)], axis=1)
    return one[:, None]


def predict(name: str, k: Array, tau: Array, at: Array) -> Array:
    """tau at `at` by a law fitted to (k, tau), relative least squares with non-negative terms.

    >>> predict("ideal", np.array([1.0, 2.0]), np.array([1.0, 1.2]), np.array([4.0])).tolist()
    [1.0]
    >>> predict("log_law", np.array([1.0, 2.0]), np.array([1.0, 1.2]), np.array([4.0])).round(6).tolist()
    [1.4]
    """
    if name == "ideal":
        return np.full_like(at, tau[k == k.min()].mean())
    if name == "constant_efficiency":
        return np.full_like(at, tau[k == k.max()].mean())
    from scipy.optimize import nnls

    columns = basis(name, k)
    scale = columns.max(axis=0)
    scale[scale == 0.0] = 1.0
    coefficients, _ = nnls(columns / scale / tau[:, None], np.ones_like(tau))
    return np.asarray(basis(name, at) / scale @ coefficients)
