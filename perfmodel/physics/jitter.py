"""Declared jitter of any family, put as the lognormal spread that costs a synchronous step the same at each K."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.stragglers import expected_max_factor
from perfmodel.physics.variation import Variation, expected_factor, spread_of

Array = NDArray[np.float64]

LARGEST_SPREAD = 3.0  # of the equivalent lognormal; beyond, one worker's time is anybody's guess
_HALVINGS = 50


def equivalent_spread(k: ArrayLike, variation: Variation) -> Array:
    r"""Lognormal spread s(K) with ``E[max of K]`` equal to that of `variation`.

    The step model knows one family, in closed form; the exact expected maximum of the declared one comes from
    `perfmodel.physics.variation`. At K = 1 nobody waits and the declared spread is returned.

    .. math:: E[\max_K]\big(\mathrm{lognormal}(s)\big) = E[\max_K](\mathrm{family})                                  (1)

    Parameters
    ----------
    k : numbers of workers.
    variation : how one worker's step varies (`physics.variation`).

    Returns
    -------
    Lognormal spread at each K, a plain number.

    >>> equivalent_spread([1, 64], Variation("lognormal", 0.02)).round(4).tolist()
    [0.02, 0.02]
    >>> pareto, normal = (equivalent_spread([64, 1024], Variation(family, 0.1)) for family in ("pareto", "normal"))
    >>> bool((pareto > normal).all())
    True
    """
    ks = np.asarray(k, float)
    wanted = expected_factor(ks, variation)
    low, high = np.zeros_like(ks), np.full_like(ks, LARGEST_SPREAD)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = expected_max_factor(ks, middle) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.where(ks > 1.0, 0.5 * (low + high), spread_of(variation)))
