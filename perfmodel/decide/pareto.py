"""Which points are not beaten in everything: Pareto fronts over any number of objectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def front(objectives: Sequence[npt.ArrayLike]) -> npt.NDArray[np.bool_]:
    """Mask of the points that no other point dominates. Smaller is better in every objective.

    A point dominates another when it is nowhere worse and somewhere better; equal points all stay. NaN
    anywhere puts a point off the front. Two objectives take O(n log n); more take O(n * front).

    >>> front([[3, 2, 1, 3], [1, 2, 3, 3]]).tolist()
    [True, True, True, False]
    """
    points = np.stack([np.asarray(o, dtype=float).ravel() for o in objectives], axis=1)
    mask = np.zeros(points.shape[0], dtype=bool)
    valid = np.flatnonzero(np.isfinite(points).all(axis=1))
    if valid.size == 0:
        return mask
    kept = points[valid]
    order = np.lexsort(kept.T[::-1])
    good = _two(kept[order]) if kept.shape[1] == 2 else _many(kept[order])
    mask[valid[order[good]]] = True
    return mask


def _two(points: Floats) -> npt.NDArray[np.bool_]:
    """Front of points sorted by (first, second) objective."""
    second = points[:, 1]
    before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    improves = second < before
    # Copies of a point on the front follow it directly in this order.
    same = np.concatenate([[False], (points[1:] == points[:-1]).all(axis=1)])
    leader = np.maximum.accumulate(np.where(~same, np.arange(len(points)), 0))
    return np.asarray(improves[leader])


def _many(points: Floats) -> npt.NDArray[np.bool_]:
    """Front of lexicographically sorted points: only an earlier point can dominate a later one."""
    alive = np.ones(len(points), dtype=bool)
    for i in range(len(points)):
        if alive[i]:
            later = points[i + 1 :]
            beaten = (later >= points[i]).all(axis=1) & (later > points[i]).any(axis=1)
            alive[i + 1 :] &= ~beaten
    return alive
