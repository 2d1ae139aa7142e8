"""One-line laws through a job's own measurements, and how far to lean on them.

The step model extrapolates with physics, a law with nothing but the measured points. Their errors have different
causes, so the two are joined on the log scale by their precisions: where the posterior of the step model is wide,
the law pulls more.

    ln T = (1 - w) ln T_model + w ln T_law,    w = s^2 / (s^2 + l^2)                        (1)

with s the posterior spread of the step model and l the spread of laws, by whether the node boundary is crossed
unseen. Laws are linear in tau(k) = k T(k) / work, the accelerator-time per unit of work: constant (the largest
measured k), a + b (k - 1)/k (ring) and a + b log2 k, with a, b >= 0; their log mean is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Log-spread of the laws' own errors on the measured corpus, rounded: beyond an unseen node boundary, and elsewhere.
CROSSING_SPREAD = 0.15
FAMILIAR_SPREAD = 0.08


def line(x: Array, tau: Array, at: Array) -> Array:
    """a + b x by relative least squares with a, b >= 0, at other x.

    >>> line(np.array([0.0, 1.0]), np.array([1.0, 1.2]), np.array([2.0])).round(6).tolist()
    [1.4]
    >>> line(np.array([0.0, 1.0]), np.array([1.2, 1.0]), np.array([2.0])).round(6).tolist()
    [1.0909]
    """
    ones, slope = 1.0 / tau, x / tau
    oo, os, ss = float(ones @ ones), float(ones @ slope), float(slope @ slope)
    determinant = oo * ss - os * os
    level, rise = float(ones.sum()) / oo, 0.0
    if determinant > 1e-12 * oo * max(ss, 1e-300):
        a = (float(ones.sum()) * ss - float(slope.sum()) * os) / determinant
        b = (float(slope.sum()) * oo - float(ones.sum()) * os) / determinant
        if a >= 0.0 and b >= 0.0:
            level, rise = a, b
        elif a < 0.0:
            level, rise = 0.0, float(slope.sum()) / ss
    return np.asarray(level + rise * at)


def law_log_tau(k: Array, tau: Array, at: Array) -> Array:
    """ln tau at other k: the mean of the three laws' logarithms."""
    constant = np.full_like(at, float(tau[k == k.max()].mean()))
    ring = line((k - 1.0) / k, tau, (at - 1.0) / at)
    log = line(np.log2(k), tau, np.log2(at))
    return np.asarray((np.log(constant) + np.log(ring) + np.log(log)) / 3.0)


def law_spread(k_measured: Array, node: Array | float, at: Array) -> Array:
    """Spread of the laws at other k: wider where the first node boundary lies between."""
    crosses = (at > node) & (float(k_measured.max()) <= np.asarray(node))
    return np.where(crosses, CROSSING_SPREAD, FAMILIAR_SPREAD)


def join(model: Array, spread: Array, law: Array, law_sd: Array) -> tuple[Array, Array, Array]:
    """Equation (1): (log value, its spread, weight of the law)."""
    weight = np.square(spread) / (np.square(spread) + np.square(law_sd))
    joined = (1.0 - weight) * model + weight * law
    return np.asarray(joined), np.asarray(spread * law_sd / np.hypot(spread, law_sd)), np.asarray(weight)
