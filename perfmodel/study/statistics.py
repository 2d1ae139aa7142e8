"""Repeats to means, standard deviations, 95 % intervals, S and E; and whether the spread grows with K.

No Python loop over rows: a million runs are three passes of `numpy.bincount`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.decide import metrics
from perfmodel.physics.laws import Array, Regime
from perfmodel.study.table import Timings

IntervalKind: TypeAlias = Literal["t", "normal"]
_LEVEL = 0.975  # upper quantile of a two-sided 95 % interval


@dataclass(frozen=True, slots=True)
class Points:
    """One entry for each K, ascending; the baseline K0 is the first. Half-widths are of 95 % intervals."""

    k: Array
    repeats: NDArray[np.int64]
    mean_s: Array
    std_s: Array  # sample standard deviation; NaN for a single run
    ci95_s: Array  # half-width of the interval of the mean; NaN for a single run
    speedup: Array
    speedup_ci95: Array  # zero at K0, where S is K0 by definition; NaN where a spread is unknown
    efficiency: Array
    efficiency_ci95: Array
    parts_s: dict[str, Array]  # means of the parts that the table has
    columns: dict[str, Array]  # means of the optional columns; NaN where a K has no value
    regime: Regime

    @property
    def baseline_k(self) -> int:
        """K0, the smallest K that was measured."""
        return int(self.k[0])

    @property
    def relative(self) -> Array:
        """K/K0."""
        return np.asarray(self.k / self.k[0])

    @property
    def ideal_s(self) -> Array:
        """Time at each K if nothing were lost from the baseline on."""
        return self.ideal_part_s(self.mean_s)

    def ideal_part_s(self, part: Array) -> Array:
        """The same for one part of the time."""
        return np.asarray(part[0] / self.relative if self.regime == "strong" else np.full_like(part, part[0]))


@dataclass(frozen=True, slots=True)
class SpreadTrend:
    """Growth of the relative spread with K.

    `z` is the slope of log variance over log K in standard errors; `growth` the fitted ratio of the relative
    standard deviation at the largest K to that at the smallest. Both NaN without repeats at three K.
    """

    z: float
    growth: float

    @property
    def grows(self) -> bool:
        """Growth beyond chance (three standard errors) and large enough to matter."""
        return bool(self.z > 3.0 and self.growth > 1.5)


def group(values: Array, inverse: NDArray[np.intp], n: int) -> Array:
    """Mean of the finite values of each group; NaN for a group without one."""
    known = np.isfinite(values)
    if known.all():
        count = np.bincount(inverse, minlength=n)
        return np.bincount(inverse, weights=values, minlength=n) / count
    count = np.bincount(inverse[known], minlength=n)
    total = np.bincount(inverse[known], weights=values[known], minlength=n)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def half_width(std: Array, repeats: NDArray[np.int64], kind: IntervalKind) -> Array:
    """Half-width of the 95 % interval of a mean, `q s / sqrt(n)`: q from Student's t with n - 1 or the normal.

    >>> half_width(np.array([1.0]), np.array([5]), "t").round(4), half_width(np.array([1.0]), np.array([4]), "normal").round(4)
    (array([1.2417]), array([0.98]))
    """
    from scipy.special import ndtri, stdtrit

    freedom = np.maximum(repeats - 1, 1)
    quantile = stdtrit(freedom, _LEVEL) if kind == "t" else np.full(std.shape, float(ndtri(_LEVEL)))
    return np.asarray(np.where(repeats > 1, quantile * std / np.sqrt(repeats), np.nan), dtype=np.float64)


def summarise(timings: Timings, *, ci: IntervalKind = "t", regime: Regime = "strong") -> Points:
    """Group the runs by K and derive S and E with propagated intervals.

    Errors of T(K0) and T(K) are independent: `(dS/S)^2 = (dT0/T0)^2 + (dT/T)^2`.
    """
    k, inverse = np.unique(timings.k, return_inverse=True)
    n = k.size
    repeats = np.bincount(inverse, minlength=n).astype(np.int64)
    mean = group(timings.time_s, inverse, n)
    # Two passes: the one-pass formula loses all digits when the spread is small against the mean.
    squares = np.bincount(inverse, weights=(timings.time_s - mean[inverse]) ** 2, minlength=n)
    std = np.where(repeats > 1, np.sqrt(squares / np.maximum(repeats - 1, 1)), np.nan)
    interval = half_width(std, repeats, ci)
    efficiency = metrics.efficiency(k, mean, regime=regime)
    relative = interval / mean
    spread = np.sqrt(relative**2 + relative[0] ** 2)
    spread[0] = 0.0
    columns = {name: group(values, inverse, n) for name, values in timings.columns.items()}
    if "latency_p99_s" in columns:
        columns["latency_p99_s"] = _worst(timings.columns["latency_p99_s"], inverse, n)
    if "price_usd_per_h" in columns:
        # A run is paid at its own price and time: the mean bill, not the bill of the means.
        columns["cost_usd"] = group(timings.columns["price_usd_per_h"] / 3600.0 * timings.time_s, inverse, n)
    return Points(
        k,
        repeats,
        mean,
        std,
        interval,
        k * efficiency,
        k * efficiency * spread,
        efficiency,
        efficiency * spread,
        {name: group(values, inverse, n) for name, values in timings.parts_s.items()},
        columns,
        regime,
    )


def _worst(values: Array, inverse: NDArray[np.intp], n: int) -> Array:
    """Largest value of each group: tail latencies do not average."""
    worst = np.full(n, -np.inf)
    known = np.isfinite(values)
    np.maximum.at(worst, inverse[known], values[known])
    return np.where(np.isfinite(worst), worst, np.nan)


def spread_trend(points: Points) -> SpreadTrend:
    """Regress log of the relative variance on log K.

    The log of a sample variance with f = n - 1 degrees of freedom is off by digamma(f/2) - log(f/2) and has
    the variance trigamma(f/2), so the slope's standard error is known and needs no second estimate.
    """
    from scipy.special import digamma, polygamma

    usable = (points.repeats > 1) & (np.nan_to_num(points.std_s) > 0.0)
    if usable.sum() < 3:
        return SpreadTrend(np.nan, np.nan)
    x = np.log(points.k[usable])
    half = (points.repeats[usable] - 1) / 2.0
    y = 2.0 * np.log(points.std_s[usable] / points.mean_s[usable]) - digamma(half) + np.log(half)
    weight = 1.0 / polygamma(1, half)
    centre = np.average(x, weights=weight)
    square = float(np.sum(weight * (x - centre) ** 2))
    slope = float(np.sum(weight * (x - centre) * y)) / square
    return SpreadTrend(slope * np.sqrt(square), float(np.exp(0.5 * slope * (x[-1] - x[0]))))
