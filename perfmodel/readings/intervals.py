"""Unions of time intervals, as arrays: who was busy when, without a loop over events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in ascending order [s]; `before` is the length of all earlier ones."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    before: NDArray[np.float64]

    def length(self, low: ArrayLike, high: ArrayLike) -> NDArray[np.float64]:
        """Covered length within each window [low, high].

        >>> union([0.0, 1.0, 5.0], [2.0, 3.0, 6.0]).length([0.0, 2.5], [10.0, 5.5]).tolist()
        [4.0, 1.0]
        """
        return self._up_to(np.asarray(high, np.float64)) - self._up_to(np.asarray(low, np.float64))

    def _up_to(self, time: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.start.size == 0:
            return np.zeros_like(time)
        index = np.searchsorted(self.start, time, side="right") - 1
        inside = np.maximum(index, 0)
        covered = self.before[inside] + np.minimum(time, self.end[inside]) - self.start[inside]
        return np.where(index < 0, 0.0, covered)


def union(start: ArrayLike, end: ArrayLike) -> Union:
    """The union of intervals that may overlap, nest or come in any order."""
    first = np.asarray(start, np.float64)
    last = np.asarray(end, np.float64)
    if first.size == 0:
        empty = np.zeros(0)
        return Union(empty, empty, empty)
    order = np.argsort(first, kind="stable")
    first, reach = first[order], np.maximum.accumulate(last[order])
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    begins, ends = first[opens], reach[closes]
    lengths = ends - begins
    return Union(begins, ends, np.concatenate(([0.0], np.cumsum(lengths)[:-1])))


def merged(*unions: Union) -> Union:
    """The union of unions."""
    return union(
        np.concatenate([item.start for item in unions]), np.concatenate([item.end for item in unions])
    )
