"""Measured step times in the form that a fit reads: arrays of points, grouped by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.features import discrepancy
from perfmodel.calibrate.mixed import Family
from perfmodel.physics.coefficients import from_logs
from perfmodel.physics.layouts import Layouts, pick
from perfmodel.physics.machine import Machine
from perfmodel.physics.operations import Operations, take
from perfmodel.training.step import step

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Observations:
    """Points along the last axis of every struct; `family` says to which family each belongs.

    `target` is the log of the step time. Where a source gives only seconds per sample and accelerator
    (`normalised`), a typical batch is assumed and only ratios within the family mean something.
    """

    ops: Operations
    machine: Machine
    at: Layouts
    target: Array
    family: Index
    names: tuple[str, ...]
    features: tuple[dict[str, str], ...]
    kinds: tuple[str, ...]
    normalised: NDArray[np.bool_]
    weights: tuple[float, ...] = ()  # of the families in a fit of many; none: all alike
    stated: Array | None = None  # log coefficients that points state themselves, NaN where they do not

    def model(self, logs: Array, rows: Index) -> Array:
        """Log step times of `rows` under log coefficients of shape (n_coefficients, ..., rows)."""
        if self.stated is not None:
            stated = self.stated[:, rows].reshape(len(logs), *(1,) * (logs.ndim - 2), len(rows))
            logs = np.where(np.isnan(stated), logs, stated)
        parts = step(take(self.ops, rows), pick(self.machine, rows), pick(self.at, rows), from_logs(logs))
        return np.asarray(np.log(parts.time_s))

    @cached_property
    def slopes(self) -> Array:
        """Slopes of the discrepancy, shape (n_discrepancies, points)."""
        return discrepancy(self.ops, self.at)

    @cached_property
    def rows(self) -> tuple[Index, ...]:
        """Rows of each family."""
        if not self.names:
            return ()
        order = np.argsort(self.family, kind="stable")
        counts = np.bincount(self.family, minlength=len(self.names))
        return tuple(np.split(order, np.cumsum(counts)[:-1]))

    @cached_property
    def ratio_only(self) -> NDArray[np.bool_]:
        """Families of which only ratios mean something."""
        return np.array([bool(self.normalised[rows].any()) for rows in self.rows])

    def families(self, ids: Sequence[int]) -> list[Family]:
        """The given families, for a fit."""
        return [Family(self.rows[i], self.weights[i] if self.weights else 1.0) for i in ids]
