"""One collective sweep by itself: latency, bandwidth and the width of the knee between them.

.. math:: T(S) = (A^p + (f S / B)^p)^{1/p}                                                (1)

with `A` the latency of the whole call [s], `B` the bus bandwidth [B/s], `f` the bus factor (2 (n-1)/n for all-reduce,
(n-1)/n for gathers, scatters and exchanges, else 1). `p = 1` is Hockney's law; measured sweeps are nearer 0.65, because
libraries change protocol and open channels on the way up.

Reference: Hockney, Parallel Computing 20 (1994) 389.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.constants import KNEE

Array = NDArray[np.float64]

KNEE_SPREAD: Final = 0.2  # log-spread of p between sweeps
DEGREES: Final = 3.0
LEAST_BYTES: Final = 8192.0  # errors are counted from here on
KNEE_BOUNDS: Final = (0.3, 3.0)


@dataclass(frozen=True)
class SweepPrior:
    """What is believed before a sweep is seen: medians and log-spreads; an infinite spread has no weight."""

    alpha_s: float = 2e-5
    alpha_spread: float = np.inf
    bandwidth_bytes_per_s: float = 1e11
    bandwidth_spread: float = np.inf
    knee: float = KNEE
    knee_spread: float = KNEE_SPREAD


@dataclass(frozen=True)
class SweepFit:
    """Latency, bus bandwidth and knee of one sweep, with what they leave over."""

    op: str
    ranks: int
    nodes: int
    alpha_s: float
    bandwidth_bytes_per_s: float  # bus bandwidth, see equation (1)
    p: float
    message_bytes: Array
    residuals: Array  # ln(measured / predicted)
    crossover_bytes: float  # where latency and bytes take the same time
    median_ape: float  # over messages of 8 KiB and more; over all where there are none
    unidentified: tuple[str, ...] = ()
    at_bound: tuple[str, ...] = ()

    def time_s(self, message_bytes: ArrayLike) -> Array:
        """Seconds at other sizes by equation (1)."""
        factor = bus_factor(self.op, self.ranks)
        work = factor * np.asarray(message_bytes, float) / self.bandwidth_bytes_per_s
        return knee(np.asarray(self.alpha_s), work, self.p)

    def lines(self) -> tuple[str, ...]:
        """A short report."""
        from perfmodel.units import format_quantity

        found = [
            f"{self.op} over {self.ranks} ranks in {self.nodes} node{'s' if self.nodes > 1 else ''}: "
            f"latency {format_quantity(self.alpha_s, 's')}, "
            f"bus bandwidth {format_quantity(self.bandwidth_bytes_per_s, 'B/s')}, p = {self.p:.2f}",
            f"latency-bound below {format_quantity(self.crossover_bytes, 'B')}, bandwidth-bound above",
            f"median error {100 * self.median_ape:.1f} % over {self.residuals.size} sizes",
        ]
        found += [f"{name} is not identified by these sizes" for name in self.unidentified]
        found += [f"{name} stands at its bound" for name in self.at_bound]
        return tuple(found)


def bus_factor(op: str, ranks: int) -> float:
    """Bytes over the busiest link per byte of the message, for ring algorithms.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 2), bus_factor("broadcast", 4)
    (1.75, 0.5, 1.0)
    """
    share = (ranks - 1) / ranks if ranks > 1 else 1.0
    if op == "all_reduce":
        return 2.0 * share
    return share if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0


def knee(latency_s: ArrayLike, work_s: ArrayLike, p: ArrayLike) -> Array:
    """Equation (1).

    >>> float(knee(3.0, 4.0, 1.0)), float(knee(3.0, 4.0, 2.0))
    (7.0, 5.0)
    """
    a, w, order = np.asarray(latency_s, float), np.asarray(work_s, float), np.asarray(p, float)
    return np.asarray((a**order + w**order) ** (1.0 / order))


def through_two_points(
    sizes: tuple[float, float], times_s: tuple[float, float], p: float = KNEE
) -> tuple[float, float]:
    """Latency [s] and seconds per byte of the curve of order `p` through two measured points.

    w^p = (T2^p - T1^p) / (S2^p - S1^p),  A^p = T1^p - w^p S1^p

    >>> alpha, slope = through_two_points((1e4, 1e9), (2e-5, 1e-2), p=1.0)
    >>> round((alpha + slope * 1e4) * 1e6, 6), round(alpha + slope * 1e9, 6)
    (20.0, 0.01)
    """
    (small, large), (first, last) = sizes, times_s
    if not 0 < small < large:
        raise ValueError("two points need two different sizes, the smaller first")
    power = max((last**p - first**p) / (large**p - small**p), (1e-6 * last / large) ** p)
    rest = max(first**p - power * small**p, (1e-3 * first) ** p)
    return float(rest ** (1 / p)), float(power ** (1 / p))


def _slopes(x: Array, wire_bytes: Array) -> Array:
    """Slopes of ln T, equation (1), over (ln A, ln B, ln p)."""
    log_a, log_w, p = x[0], np.log(wire_bytes) - x[1], np.exp(x[2])
    share = 1.0 / (1.0 + np.exp(np.clip(p * (log_w - log_a), -700, 700)))  # of latency in T^p
    log_time = np.logaddexp(p * log_a, p * log_w) / p
    bend = share * log_a + (1.0 - share) * log_w - log_time
    return np.stack([share, share - 1.0, bend], axis=-1)


def fit_sweep(
    op: str,
    message_bytes: ArrayLike,
    time_s: ArrayLike,
    ranks: int,
    nodes: int | None = None,
    prior: SweepPrior | None = None,
) -> SweepFit:
    """Fit equation (1) to one sweep in the logarithm, with Student-t errors: one spike does not move it.

    Parameters
    ----------
    op : as in `perfmodel.readings`.
    message_bytes, time_s : the sweep, any order; needs one point or more, all positive.
    ranks, nodes : the group.
    prior : beliefs to lean on; by default only p is believed in (0.65, log-spread 0.2).
    """
    from scipy.optimize import least_squares

    size, time = np.asarray(message_bytes, float).ravel(), np.asarray(time_s, float).ravel()
    if size.size == 0 or size.shape != time.shape:
        raise ValueError("a sweep needs as many times as sizes, at least one")
    if not (np.isfinite(size).all() and np.isfinite(time).all() and (size > 0).all() and (time > 0).all()):
        raise ValueError("sizes and times of a sweep must be positive numbers")
    order = np.argsort(size, kind="stable")
    size, time = size[order], time[order]
    believed = prior or SweepPrior()
    factor = bus_factor(op, ranks)
    target = np.log(time)
    # Weak beliefs around the sweep's own extremes keep a one-sided sweep solvable.
    start = np.array([target.min(), np.max(np.log(factor * size) - target), np.log(believed.knee)])
    medians = np.array([np.log(believed.alpha_s), np.log(believed.bandwidth_bytes_per_s), start[2]])
    spreads = np.array([believed.alpha_spread, believed.bandwidth_spread, believed.knee_spread])
    centre = np.where(np.isfinite(spreads), medians, start)
    width = np.where(np.isfinite(spreads), spreads, 4.0)

    def predicted(x: Array) -> Array:
        return np.asarray(np.log(knee(np.exp(x[0]), factor * size / np.exp(x[1]), np.exp(x[2]))))

    scale = 0.1
    x = start
    low, high = np.log(KNEE_BOUNDS[0]), np.log(KNEE_BOUNDS[1])
    weight = np.ones_like(target)
    for _ in range(12):
        root = np.sqrt(weight) / scale

        def residual(at: Array, root: Array = root) -> Array:
            return np.concatenate([root * (predicted(at) - target), (at - centre) / width])

        def slope(at: Array, root: Array = root) -> Array:
            return np.concatenate([root[:, None] * _slopes(at, factor * size), np.diag(1.0 / width)])

        solved = least_squares(
            residual, x, jac=slope, bounds=([-np.inf, -np.inf, low], [np.inf, np.inf, high]), ftol=1e-6
        )
        moved = float(np.abs(solved.x - x).max())
        x = np.asarray(solved.x)
        left = target - predicted(x)
        scale = max(1.4826 * float(np.median(np.abs(left))), 0.02)
        weight = (DEGREES + 1) / (DEGREES + np.square(left / scale))
        if moved < 1e-3:
            break
    slopes = np.asarray(solved.jac, float)
    covariance = np.linalg.inv(slopes.T @ slopes)
    posterior = np.sqrt(np.diag(covariance))
    names = ("latency", "bandwidth", "p")
    left = target - predicted(x)
    counted = size >= LEAST_BYTES
    ape = np.abs(np.expm1(-left[counted] if counted.any() else -left))
    alpha, bandwidth = float(np.exp(x[0])), float(np.exp(x[1]))
    return SweepFit(
        op=op,
        ranks=ranks,
        nodes=nodes or 1,
        alpha_s=alpha,
        bandwidth_bytes_per_s=bandwidth,
        p=float(np.exp(x[2])),
        message_bytes=size,
        residuals=left,
        crossover_bytes=alpha * bandwidth / factor,
        median_ape=float(np.median(ape)),
        unidentified=tuple(n for n, sd in zip(names[:2], posterior, strict=False) if sd > 1.0),
        at_bound=("p",) if min(abs(x[2] - low), abs(x[2] - high)) < 1e-3 else (),
    )
