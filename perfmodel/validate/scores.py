"""Figures of merit. Every family weighs the same: a point weighs 1 / (points of its family in that mode)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.weighted import weighted_quantile

Array = NDArray[np.float64]


def family_weights(family: NDArray[np.intp]) -> Array:
    """Weight of each point.

    >>> family_weights(np.array([0, 0, 3])).tolist()
    [0.5, 0.5, 1.0]
    """
    return np.asarray(1.0 / np.bincount(family)[family])


def by_source(family: NDArray[np.intp], source: NDArray[np.str_]) -> Array:
    """Weight of each point where every source weighs the same; `source` has that of each family.

    >>> by_source(np.array([0, 0, 1, 2]), np.array(["a", "a", "b"])).tolist()
    [0.25, 0.25, 0.5, 1.0]
    """
    if not family.size:
        return np.zeros(0)
    weights = family_weights(family)
    _, position = np.unique(source[family], return_inverse=True)
    return np.asarray(weights / np.bincount(position, weights)[position])


def errors(log_error: Array, family: NDArray[np.intp], weights: Array | None = None) -> dict[str, float]:
    """Median, mean and 90th percentile of |predicted / measured - 1|, and the median bias."""
    weights = family_weights(family) if weights is None else weights
    relative = np.abs(np.expm1(log_error))
    return {
        "median_ape": weighted_quantile(relative, weights, 0.5),
        "mean_ape": float(weights @ relative / weights.sum()),
        "p90_ape": weighted_quantile(relative, weights, 0.9),
        "bias": float(np.expm1(weighted_quantile(log_error, weights, 0.5))),
    }


def bands(
    log_error: Array, half: Array, family: NDArray[np.intp], weights: Array | None = None
) -> dict[str, float]:
    """Share of points inside the 90 % band, and its median half-width as a fraction of the prediction."""
    weights = family_weights(family) if weights is None else weights
    inside = (np.abs(log_error) <= half).astype(float)
    return {
        "coverage_90": float(weights @ inside / weights.sum()),
        "band_width_median": weighted_quantile(np.sinh(half), weights, 0.5),
    }


def summary(
    log_error: Array, half: Array, family: NDArray[np.intp], weights: Array | None = None
) -> dict[str, object]:
    """All figures of a set of points; every family weighs the same where `weights` says nothing else."""
    if not log_error.size:
        return {"families": 0, "points": 0}
    return {
        "families": int(np.unique(family).size),
        "points": int(log_error.size),
        **errors(log_error, family, weights),
        **bands(log_error, half, family, weights),
    }
