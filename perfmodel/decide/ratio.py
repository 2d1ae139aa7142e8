"""Bands of ratios between K: what two points of one curve share is not uncertain in their ratio."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.beliefs.population import Beliefs
from perfmodel.training.curve import Curve

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EfficiencyBand:
    """E(K) against the curve's own baseline, with the band; NaN where infeasible."""

    baseline: int  # position of K0
    middle: Array
    low: Array
    high: Array


def log_half_width(drawn: Array, base: Array, noise: float, factor: float) -> Array:
    """Half-width of ln(T / T0): `factor * sqrt(var(ln T - ln T0 over the draws) + 2 noise^2)`, zero for T0 itself.

    `drawn` has shape (draws, K), `base` (draws, 1); `noise` is the log-spread of one measurement and `factor` the
    conformal factor of the beliefs (1.645 for 90 % where the draws are honest by themselves).
    """
    spread = np.std(np.log(drawn) - np.log(base), axis=0)
    return np.asarray(np.where(spread > 0, factor * np.hypot(spread, np.sqrt(2.0) * noise), 0.0))


def conformal_factor(found: Curve, beliefs: Beliefs) -> float:
    """The widening of 90 % bands of drawn ratios that the validation asked for, for this kind of workload."""
    return beliefs.factor("ratio", found.setup.workload.kind)


def is_timed(beliefs: Beliefs) -> bool:
    """Whether step times of the job were measured: its baseline is known then."""
    return beliefs.calibration is not None and bool(beliefs.calibration.k.size)


def efficiency_band(found: Curve, beliefs: Beliefs, widen: float = 1.0) -> EfficiencyBand | None:
    """E(K) = (K0 T(K0) / B(K0)) / (K T(K) / B(K)), B the global batch: strong, weak and anything between.

    Errors at two K of one job are alike rather than opposed, so a ratio is no less certain than the two times are
    apart. On held-out runs 91 % of the ratios lie inside, with that bound and without it.
    """
    usable = np.flatnonzero(found.feasible)
    if usable.size == 0:
        return None
    first = int(usable[0])
    work = found.setup.global_batch / found.k
    middle = found.time_s[first] / found.time_s * work / work[first]
    times = widen * np.log(found.high_s / found.time_s)
    if is_timed(beliefs):
        # As knees are validated: against a measured baseline the doubt is that of T(K).
        half = times.copy()
        half[first] = 0.0
    elif found.draws_s.shape[0] < 2:
        return EfficiencyBand(first, middle, middle, middle)
    else:
        half = log_half_width(
            found.draws_s,
            found.draws_s[:, first : first + 1],
            beliefs.noise,
            widen * conformal_factor(found, beliefs),
        )
        half = np.minimum(half, np.hypot(times, times[first]))
    return EfficiencyBand(first, middle, middle * np.exp(-half), middle * np.exp(half))
