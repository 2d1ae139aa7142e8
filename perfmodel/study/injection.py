"""What one slow worker per point would do to the bend and to the band.

Every worker waits for the slowest. At each K above one, one worker's compute is stretched by a factor that is
uniform on the given range, independently from run to run; a run's time then grows by `(f - 1) compute`, or by
`(f - 1) T` when the table has no parts, which is the upper bound. Mean and variance follow in closed form.
"""

from __future__ import annotations

import numpy as np

from perfmodel.decide import metrics
from perfmodel.physics.laws import Array
from perfmodel.study.statistics import IntervalKind, Points, half_width


def inject_straggler(
    points: Points, factors: tuple[float, float], threshold: float, ci: IntervalKind
) -> dict[str, object]:
    """Means, bands, S, E and bend with a straggler, beside the bend without."""
    low, high = factors
    mean_factor = 0.5 * (low + high)
    variance_factor = (high - low) ** 2 / 12.0
    many = points.k > 1
    slowed = points.parts_s.get("compute", points.mean_s)
    mean = points.mean_s + np.where(many, (mean_factor - 1.0) * slowed, 0.0)
    share = slowed / points.mean_s
    own = np.nan_to_num(points.std_s)
    # T' = T (1 + (f - 1) share): the variance of a product of two independent quantities.
    stretch = 1.0 + (mean_factor - 1.0) * share
    stretch_variance = share**2 * variance_factor
    variance = own**2 * (stretch**2 + stretch_variance) + points.mean_s**2 * stretch_variance
    std = np.where(many, np.sqrt(variance), own)
    repeats = points.repeats
    # A single run tells nothing about its own spread, but the straggler's is known.
    interval = np.where(repeats > 1, np.nan_to_num(half_width(std, repeats, ci)), 1.96 * std)
    efficiency = metrics.efficiency(points.k, mean, regime=points.regime)
    worst = points.mean_s + np.where(many, (high - 1.0) * slowed, 0.0)
    return {
        "factors": [low, high],
        "applies_to": "compute"
        if "compute" in points.parts_s
        else "the whole time (upper bound: no parts given)",
        "mean_s": mean,
        "std_s": std,
        "ci95_s": interval,
        "speedup": points.k * efficiency,
        "efficiency": efficiency,
        "bend_k": _first_below(points.k, efficiency, threshold),
        "bend_k_without": _first_below(points.k, points.efficiency, threshold),
        "bend_k_at_worst": _first_below(
            points.k, metrics.efficiency(points.k, worst, regime=points.regime), threshold
        ),
        "band_relative": interval / mean,
        "band_relative_without": points.ci95_s / points.mean_s,
    }


def _first_below(k: Array, efficiency: Array, threshold: float) -> int | None:
    below = np.flatnonzero(efficiency < threshold - 1e-12)
    return int(k[below[0]]) if below.size else None
