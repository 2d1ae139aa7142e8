"""Statistics of values that weigh differently, such as the runs of families of different sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def weighted_quantile(values: Array, weights: Array, q: float) -> float:
    """Smallest value at which the cumulated weight reaches `q`.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.5)
    2.0
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(share, q - 1e-12)), values.size - 1)])
