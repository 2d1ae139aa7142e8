"""Beliefs that a few measured loads of one server have narrowed: a joint posterior over the coefficients.

The posterior is kept as a median and a root R of its covariance, C = R R^T, since loads tell sums of terms and not each:
a time whose slopes are J has the log-spread ``|R^T J|``. It holds for the stack on which it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.physics.serving_coefficients import NAMES
from perfmodel.serving.beliefs import NINETY, ServingBelief, ServingBeliefs

Array = NDArray[np.float64]

SCHEMA: Final = "perfmodel/serving-calibration/1"
#: What a measured server still leaves open at another load: runs differ from day to day, and the model bends (assumed,
#: from repeated public runs: 1 to 8 % of the time per token, 5 to 15 % of the time to the first).
NEAR: Final = {"throughput": 0.05, "tpot": 0.05, "ttft": 0.15, "tpot_p99": 0.10, "ttft_p99": 0.25}


@dataclass(frozen=True)
class CalibratedBeliefs(ServingBeliefs):
    """Population beliefs, and what loads of one server say beyond them."""

    median: Array = field(default_factory=lambda: np.zeros(0))
    root: Array = field(default_factory=lambda: np.zeros((0, 0)))
    on: Mapping[str, str] = field(default_factory=dict)  # features of the stack that was measured
    about: Mapping[str, object] = field(default_factory=dict)  # workload, cluster, loads

    def matches(self, features: Mapping[str, str]) -> bool:
        """Whether a deployment is of the stack that was measured."""
        return all(features.get(key) == value for key, value in self.on.items())

    def posterior(self) -> ServingBelief:
        """The belief about every coefficient there, without what ties them together."""
        return ServingBelief(self.median, np.sqrt((self.root**2).sum(axis=1)), dict.fromkeys(NAMES, True))

    def half_width(self, quantity: str, spread: Array) -> Array:
        """Log half-width of a 90 % band: the doubt of the coefficients, and what differs between loads and days."""
        return np.asarray(NINETY * np.sqrt(NEAR[quantity] ** 2 + spread**2))


def to_mapping(found: CalibratedBeliefs) -> dict[str, object]:
    """Plain data for a file."""
    return {
        "schema": SCHEMA,
        "coefficients": list(NAMES),
        "median": [round(float(value), 6) for value in found.median],
        "root": [[round(float(value), 6) for value in row] for row in found.root],
        "on": dict(found.on),
        "about": dict(found.about),
    }


def from_mapping(data: Mapping[str, Any], population: ServingBeliefs) -> CalibratedBeliefs:
    """The inverse of `to_mapping`. Raises KeyError, ValueError or TypeError on a malformed mapping."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"it is a {data.get('schema')}, not a {SCHEMA}")
    if list(data["coefficients"]) != list(NAMES):
        raise ValueError("its coefficients are those of another version; calibrate again")
    median, root = np.asarray(data["median"], float), np.asarray(data["root"], float)
    if median.shape != (len(NAMES),) or root.shape[:1] != median.shape or root.ndim != 2:
        raise ValueError("a coefficient is missing")
    if not (np.isfinite(median).all() and np.isfinite(root).all()):
        raise ValueError("a belief is not a finite number")
    return calibrated(population, median, root, dict(data["on"]), dict(data.get("about", {})))


def calibrated(
    population: ServingBeliefs, median: Array, root: Array, on: Mapping[str, str], about: Mapping[str, object]
) -> CalibratedBeliefs:
    """Population beliefs with a posterior beside them."""
    return CalibratedBeliefs(
        values=population.values,
        spreads=population.spreads,
        counts=population.counts,
        level_spreads=population.level_spreads,
        bands=population.bands,
        tails=population.tails,
        meta=population.meta,
        median=median,
        root=root,
        on=on,
        about=about,
    )


def population_of(found: ServingBeliefs) -> ServingBeliefs:
    """The same without what one server said."""
    return ServingBeliefs(
        found.values, found.spreads, found.counts, found.level_spreads, found.bands, found.tails, found.meta
    )
