"""Where the objectives of a service end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def crossing(
    load: Array, values: Mapping[str, Array], limits: Mapping[str, float]
) -> tuple[float, str | None]:
    """The load up to which every time keeps its limit, straight between points in logarithms, and who ends first.

    nan: not even the smallest load keeps them; inf: every load does. What is not steady keeps nothing.

    >>> crossing(np.array([1.0, 2.0, 4.0]), {"tpot_p99": np.array([0.01, 0.02, 0.04])}, {"tpot_p99": 0.02})
    (2.0, 'tpot_p99')
    """
    first, who = np.inf, None
    for name, limit in limits.items():
        known = np.where(np.isnan(values[name]), np.inf, values[name])
        over = known > limit * (1.0 + 1e-9)
        if not over.any():
            continue
        at = int(np.argmax(over))
        if at == 0:
            return float("nan"), name
        end = load[at - 1]
        if np.isfinite(known[at]):
            share = np.log(limit / known[at - 1]) / np.log(known[at] / known[at - 1])
            end = float(load[at - 1] * (load[at] / load[at - 1]) ** np.clip(share, 0.0, 1.0))
        if end < first:
            first, who = float(end), name
    return first, who
