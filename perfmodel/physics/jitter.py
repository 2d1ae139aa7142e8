"""Declared jitter of any family, put as the lognormal spread that costs a synchronous step the same at each K."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.physics.stragglers import expected_max, expected_max_factor

Array = NDArray[np.float64]

LARGEST_SPREAD = 3.0  # of the equivalent lognormal; beyond, one worker's time is anybody's guess
_HALVINGS = 50


def equivalent_spread(k: ArrayLike, family: str, spread: float) -> Array:
    r"""Lognormal spread s(K) with ``E[max of K]`` equal to that of `family` with `spread`.

    The step model knows one family, in closed form; the exact expected maximum of the declared one comes from
    `perfmodel.physics.stragglers`. At K = 1 nobody waits and the declared spread is returned.

    .. math:: E[\max_K]\big(\mathrm{lognormal}(s)\big) = E[\max_K](\mathrm{family})                                  (1)

    Parameters
    ----------
    k : numbers of workers.
    family : a family of `physics.stragglers`.
    spread : standard deviation over mean of one worker's step.

    Returns
    -------
    Lognormal spread at each K, a plain number.

    >>> equivalent_spread([1, 64], "lognormal", 0.02).round(4).tolist()
    [0.02, 0.02]
    >>> bool((equivalent_spread([64, 1024], "pareto", 0.1) > equivalent_spread([64, 1024], "normal", 0.1)).all())
    True
    """
    ks = np.asarray(k, float)
    wanted = expected_max(ks, family, 1.0, spread)
    low, high = np.zeros_like(ks), np.full_like(ks, LARGEST_SPREAD)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = expected_max_factor(ks, middle) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.where(ks > 1.0, 0.5 * (low + high), spread))
