"""Where a scaling curve bends, by three rules, on one curve or on many draws of it at once.

- `threshold`: the largest K with E(K) >= threshold. On a predicted curve E is first made `cautious`: the middle of
  what may happen bends too late, because jobs that saturate do so without warning.
- `curvature`: Kneedle (Satopaa et al. 2011, ICDCSW) on S(K): the point furthest above the chord.
- `marginal`: the last step of the ladder on which one more dollar still buys speedup above a floor.

The last axis of every array is K, ascending; leading axes are draws. NaN marks an infeasible K and is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.beliefs.bands import NINETY
from perfmodel.physics.laws import Array

Rule: TypeAlias = Literal["threshold", "curvature", "marginal"]
DEFAULT_THRESHOLD = 0.70
# A speedup above the threshold by rounding is at the threshold.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Knee:
    """The knee of each draw.

    `last` is the position of the largest K that the rule still accepts, -1 when it accepts none; `k` is that
    K, NaN where the rule is not broken within the range (`reached` is False) and the knee lies beyond it.
    """

    rule: Rule
    k: Array
    last: NDArray[np.int64]
    reached: NDArray[np.bool_]

    def interval(self, level: float = 0.90) -> tuple[float, float]:
        """Central interval of k over the draws; infinite where the knee lies beyond the range."""
        k = np.sort(np.where(self.reached, self.k, np.inf).ravel())
        tail = (1.0 - level) / 2.0
        low = int(np.floor(tail * (k.size - 1)))
        return float(k[low]), float(k[k.size - 1 - low])

    @property
    def median(self) -> float:
        """The middle draw's k; infinite when most draws do not reach the knee."""
        k = np.sort(np.where(self.reached, self.k, np.inf).ravel())
        return float(k[(k.size - 1) // 2])


def _last_true(accepted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Position of the last True along the last axis, -1 where there is none."""
    n = accepted.shape[-1]
    found = n - 1 - np.argmax(accepted[..., ::-1], axis=-1)
    return np.where(accepted.any(axis=-1), found, -1).astype(np.int64)


def _knee(rule: Rule, k: Array, last: NDArray[np.int64], reached: NDArray[np.bool_]) -> Knee:
    at = np.where(last >= 0, k[np.maximum(last, 0)], np.nan)
    return Knee(rule, np.where(reached, at, np.nan), last, reached)


WIDEST_HALF = 1e6  # of a band, in logarithms: an infinite one leaves the middle of a curve alone
RISK = 0.05  # chance of being below the threshold from which a K is at risk: the lower end of the band


def cautious(efficiency: ArrayLike, half: ArrayLike, odds: float) -> Array:
    """The efficiency that is undercut with probability `odds`, `half` being the log half-width of the 90 % band.

    The first K where it is below a threshold is the first K that is below it with a probability above `odds`. 0.5 gives
    the curve itself, 0.05 the lower end of the band. A half-width that is not known counts as none.

    >>> cautious([1.0, 0.75], [0.0, 0.2], 0.5).round(3).tolist()
    [1.0, 0.75]
    >>> cautious([1.0, 0.75], [0.0, 0.2], 0.05).round(3).tolist()
    [1.0, 0.614]
    >>> cautious(0.8, np.inf, 0.5).tolist(), cautious(0.8, np.inf, 0.05).tolist()
    (0.8, 0.0)
    """
    half = np.asarray(half, dtype=np.float64)
    known = np.where(np.isnan(half), 0.0, np.minimum(half, WIDEST_HALF))
    depth = -NormalDist().inv_cdf(odds) / NINETY
    return np.asarray(np.asarray(efficiency, dtype=np.float64) * np.exp(-depth * known))


def first_below(k: ArrayLike, efficiency: ArrayLike, *, threshold: float = DEFAULT_THRESHOLD) -> float:
    """Smallest K with E(K) < threshold, infinite when there is none.

    >>> first_below([8, 4, 16], [0.6, 0.8, 0.5])
    8.0
    """
    e = np.asarray(efficiency, dtype=np.float64)
    below = np.asarray(k, dtype=np.float64)[np.isfinite(e) & (e < threshold - _ROUNDING)]
    return float(below.min()) if below.size else np.inf


def threshold_knee(k: ArrayLike, efficiency: ArrayLike, *, threshold: float = DEFAULT_THRESHOLD) -> Knee:
    """Largest K with `E(K) >= threshold`; reached when some larger K is below it.

    >>> float(threshold_knee([1, 2, 4, 8, 16], [1.0, 0.93, 0.77, 0.49, 0.21]).k)
    4.0
    """
    k = np.asarray(k, dtype=np.float64)
    e = np.asarray(efficiency, dtype=np.float64)
    usable = np.isfinite(e)
    accepted = usable & (e >= threshold - _ROUNDING)
    last = _last_true(accepted)
    return _knee("threshold", k, last, _last_true(usable & ~accepted) > last)


def curvature_knee(k: ArrayLike, speedup: ArrayLike) -> Knee:
    """Kneedle on S(K): both axes scaled to [0, 1], then the largest `d = y - x`.

    It counts as a knee when d falls from there by more than the mean spacing of x before the end of the range
    (Satopaa, equation 3, with a sensitivity of 1). It depends on the range of K that is looked at, as any rule
    of shape must.

    >>> k = 2.0 ** np.arange(10)
    >>> float(curvature_knee(k, 1 / (0.05 + 0.95 / k)).k)
    64.0
    >>> bool(curvature_knee(k, 0.9 * k).reached)
    False
    """
    k = np.asarray(k, dtype=np.float64)
    s = np.asarray(speedup, dtype=np.float64)
    usable = np.isfinite(s)
    count = usable.sum(axis=-1, keepdims=True)
    x = _unit(np.broadcast_to(k, s.shape), usable)
    y = _unit(s, usable)
    d = np.where(usable, y - x, -np.inf)
    top = np.argmax(d, axis=-1)
    peak = np.take_along_axis(d, top[..., np.newaxis], axis=-1)
    after = np.where(usable & (np.arange(k.size) > top[..., np.newaxis]), d, np.inf).min(axis=-1)
    spacing = 1.0 / np.maximum(count[..., 0] - 1, 1)
    reached = (count[..., 0] >= 3) & (after < peak[..., 0] - spacing)
    last = np.where(count[..., 0] > 0, np.where(reached, top, _last_true(usable)), -1).astype(np.int64)
    return _knee("curvature", k, last, reached)


def _unit(values: Array, usable: NDArray[np.bool_]) -> Array:
    """Values scaled so that the usable ones span [0, 1]; zero where they do not differ."""
    low = np.where(usable, values, np.inf).min(axis=-1, keepdims=True)
    high = np.where(usable, values, -np.inf).max(axis=-1, keepdims=True)
    span = np.where(high > low, high - low, 1.0)
    return np.where(usable, (values - low) / span, 0.0)


def marginal_knee(k: ArrayLike, speedup: ArrayLike, cost_usd: ArrayLike, *, floor: float = 0.0) -> Knee:
    """K before the first step whose speedup per extra dollar is not above `floor` (speedup per USD).

    A step that is faster and not dearer is always taken; a step that is not faster never is.

    >>> float(marginal_knee([1, 2, 4, 8, 16], [1, 1.86, 3.08, 3.88, 3.4], [0.711, 0.764, 0.924, 1.465, 3.342]).k)
    8.0
    """
    k = np.asarray(k, dtype=np.float64)
    s, c = np.broadcast_arrays(np.asarray(speedup, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64))
    usable = np.isfinite(s) & np.isfinite(c)
    before_s, before_c = _previous(s, usable), _previous(c, usable)
    gain, price = s - before_s, c - before_c
    worth = (gain > 0.0) & ((price <= 0.0) | (gain > floor * price))
    step = usable & np.isfinite(before_s)  # the first usable K has no step to it
    broken = step & ~worth
    reached = broken.any(axis=-1)
    first_broken = np.where(reached, np.argmax(broken, axis=-1), k.size)
    last = _last_true(usable & (np.arange(k.size) < first_broken[..., np.newaxis]))
    return _knee("marginal", k, last, reached)


def _previous(values: Array, usable: NDArray[np.bool_]) -> Array:
    """Each position's last usable value before it, NaN where there is none."""
    position = np.where(usable, np.arange(values.shape[-1]), -1)
    seen = np.maximum.accumulate(position, axis=-1)
    before = np.concatenate([np.full((*seen.shape[:-1], 1), -1), seen[..., :-1]], axis=-1)
    taken = np.take_along_axis(values, np.maximum(before, 0), axis=-1)
    return np.where(before >= 0, taken, np.nan)
